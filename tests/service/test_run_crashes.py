"""Workers and servers that die at seeded points (invariants 3 and 15): every step is recorded once, every message is
stored once, and every run ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import run_service_pb2 as pb
from memoryd.v1 import session_pb2 as session
from tests.adapters import EACH_SHARED_ADAPTER
from tests.servers import ServerProcess
from tests.service import run_calls as calls
from tests.service.in_process import until
from tests.service.run_calls import COMPLETED, RUNNING, run_of
from tests.service.run_workers import Plant, Trouble, fates_of, messages_of, payload_of
from tests.service.wire import Stubs, as_sent, new_key, seqs, text

RUNS: Final = 24
SESSIONS: Final = 3
STEPS: Final = 4
WORKERS: Final = 8
SEED: Final = 4711
RECOVERIES: Final = 1_000
"""As often as it takes: on a busy machine also a worker that lives may come too late for its lease of a second."""
END_SECONDS: Final = 120

Servers = tuple[ServerProcess, ServerProcess]


@pytest.fixture(scope="module", params=EACH_SHARED_ADAPTER)
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Two servers on one database of each adapter, to be killed; a test that kills one starts it again."""
    directory = tmp_path_factory.mktemp("runs")
    with ExitStack() as running:
        url = running.enter_context(request.param.emptied(directory))
        flags = ("--store", f"default={url}", "--tokenizer", "estimate", "--run-recoveries", f"{RECOVERIES}")
        started = []
        for number in (1, 2):
            server = ServerProcess(*flags, log=directory / f"server-{number}.log")
            running.callback(server.close)
            started.append(server)
        yield started[0], started[1]


async def kill_and_restart(plant: Plant, dice: random.Random) -> None:
    """Kills each server once, in the middle of its work."""
    for server in plant.servers:
        enough = plant.committed + dice.randrange(5, 20)
        await until(lambda enough=enough: plant.committed >= enough, END_SECONDS)  # type: ignore[misc]
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.restart)
        plant.lead_anew()


@pytest.mark.parametrize("servers_die", [False, True], ids=["workers", "workers and servers"])
async def test_who_dies_leaves_nothing_undone_and_nothing_done_twice(
    servers: Servers, agent: str, servers_die: bool
) -> None:
    seed = SEED + servers_die
    print(f"seed {seed}")
    keys = [new_key(agent) for _ in range(SESSIONS)]
    names = [run_of(keys[number % SESSIONS], f"run {number}") for number in range(RUNS)]
    with Stubs(servers[0].address) as stubs:
        for name in names:
            calls.create(stubs, name, queued=True)
    dice = random.Random(seed)
    plant = Plant(agent, servers, STEPS, fates_of(seed, [name.run_id for name in names], STEPS), dice)
    async with asyncio.timeout(END_SECONDS), asyncio.TaskGroup() as working:
        for worker in range(WORKERS):
            working.create_task(plant.work(f"worker {worker}", worker % 2))
        if servers_die:
            working.create_task(kill_and_restart(plant, dice))

    assert set(plant.troubles) == set(Trouble)
    for server in servers:
        with Stubs(server.address) as stubs:
            await asyncio.to_thread(check, stubs, agent, keys, names)


def check(stubs: Stubs, agent: str, keys: list[session.SessionKey], names: list[pb.RunKey]) -> None:
    """All that was to be done is there, once and in its order."""
    found = calls.runs(stubs, agent)
    assert {(run.key.session.session_id, run.key.run_id, run.status, run.step_count) for run in found} == {
        (name.session.session_id, name.run_id, COMPLETED, STEPS) for name in names
    }
    for key in keys:
        listed = stubs.messages(key, view=history.MESSAGE_VIEW_ALL, page_size=1_000)
        assert seqs(listed) == list(range(1, len(listed) + 1))
        assert stubs.session(key).message_count == len(listed)
        runs = [name for name in names if name.session == key]
        assert len(listed) == sum(len(messages_of(run.run_id, number)) for run in runs for number in numbers())
        for run in runs:
            steps = calls.steps(stubs, run)
            assert [(step.number, step.payload) for step in steps] == [
                (number, payload_of(run.run_id, number)) for number in numbers()
            ]
            assert [as_sent(message).content for message in listed if message.run_id == run.run_id] == [
                message.content for number in numbers() for message in messages_of(run.run_id, number)
            ]
            for step in steps:
                said = [listed[step.first_seq + place - 1].content for place in range(step.message_count)]
                assert said == [message.content for message in messages_of(run.run_id, step.number)]
        assert len({message.id for message in listed}) == len(listed)


def numbers() -> range:
    return range(1, STEPS + 1)


def test_runs_survive_kill_9(servers: Servers, agent: str) -> None:
    """Every answered call is there after the restart; the holder still holds, and repeats what it heard nothing of."""
    key = new_key(agent)
    going, waiting, done = (run_of(key, id_) for id_ in ("going", "waiting", "done"))
    server = servers[0]
    with Stubs(server.address) as stubs:
        fence = calls.create(stubs, going, metadata='{"a": 1}', holder="w").fence
        for number in range(1, 3):
            calls.step(stubs, going, fence, number, bytes(range(256)), text("one"), text("two"))
        last = calls.step(stubs, going, fence, 3, b"three", text("three"))
        calls.create(stubs, waiting, queued=True)
        calls.step(stubs, done, calls.create(stubs, done).fence, 1, b"done", status=COMPLETED, status_reason="done")
        before = calls.all_of(stubs, key)
        server.kill()
    server.restart()
    with Stubs(server.address) as stubs:
        assert calls.all_of(stubs, key) == before
        assert calls.get(stubs, going).status == RUNNING
        assert calls.step(stubs, going, fence, 3, b"three", text("three")) == last
        calls.renew(stubs, going, fence)
        calls.step(stubs, going, fence, 4, b"four", status=COMPLETED)
        assert calls.claim(stubs, agent).run.key == waiting
        assert [step.number for step in calls.steps(stubs, going)] == [1, 2, 3, 4]
        assert seqs(stubs.messages(key)) == [1, 2, 3, 4, 5]
