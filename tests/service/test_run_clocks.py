"""Servers whose machines disagree about the time by half a minute (invariant 15): leases go by the store's clock.

Not on SQLite and in_memory, whose clock is the server's own.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pytest
from google.protobuf.duration_pb2 import Duration

from memoryd.v1 import run_service_pb2 as pb
from memoryd_server.engine import clock
from memoryd_server.stores.registry import create_store
from tests.adapters import ADAPTERS, Adapter, parameters
from tests.servers import ServerProcess
from tests.service.in_process import AsyncStubs, connect, failing, serving, until_answer
from tests.service.run_calls import COMPLETED, LONG, RUNNING, SHORTEST, run_of
from tests.service.wire import new_key, text

WITH_A_CLOCK: Final = parameters(adapter for adapter in ADAPTERS if adapter.database and adapter.is_atomic)
"""The adapters whose stores have a clock of their own."""

LEASE: Final = Duration(seconds=20)
"""Shorter than what the clocks differ by."""


@dataclass(frozen=True)
class Servers:
    """Two servers on one database."""

    right: AsyncStubs
    """Its machine's clock is the store's."""
    wrong: AsyncStubs


@pytest.fixture(params=[30, -30], ids=["ahead", "behind"])
def machine_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has this process's clock be wrong by half a minute."""
    machine_time: Callable[[], int] = clock._machine_time
    monkeypatch.setattr(clock, "_machine_time", lambda: machine_time() + request.param * 1_000_000)


@dataclass(frozen=True)
class Database:
    """A database with a server on it whose clock is right."""

    type: str
    url: str
    server: ServerProcess


@pytest.fixture(scope="module", params=WITH_A_CLOCK)
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    adapter: Adapter = request.param
    directory = tmp_path_factory.mktemp("clocks")
    with adapter.emptied(directory) as url:
        server = ServerProcess("--store", f"default={url}", "--tokenizer", "estimate", log=directory / "server.log")
        yield Database(adapter.type, url, server)
        server.close()


@pytest.fixture
async def servers(database: Database, machine_clock: None) -> AsyncIterator[Servers]:
    del machine_clock
    async with (
        serving(create_store("default", database.type, database.url)) as (app, wrong),
        connect(database.server.address) as channel,
    ):
        await app.stores.pick("").clock.sync()
        yield Servers(AsyncStubs(channel), wrong)


@pytest.fixture(params=["right", "wrong"])
def holder_and_other(request: pytest.FixtureRequest, servers: Servers) -> tuple[AsyncStubs, AsyncStubs]:
    """The server that the holder of a run asks, and the other one."""
    both = servers.right, servers.wrong
    return both if request.param == "right" else both[::-1]


@pytest.fixture
def run(agent: str) -> pb.RunKey:
    return run_of(new_key(agent))


def step(run: pb.RunKey, fence: str, number: int, **fields: Any) -> pb.CommitRunStepRequest:
    return pb.CommitRunStepRequest(run=run, fence=fence, number=number, **fields)


async def test_a_lease_is_held_while_it_lasts(holder_and_other: tuple[AsyncStubs, AsyncStubs], run: pb.RunKey) -> None:
    """Nobody else claims the run, and the holder's writes succeed, at whichever server."""
    holder, other = holder_and_other
    begun = await holder.runs.CreateRun(pb.CreateRunRequest(run=run, lease_duration=LEASE))
    for number, stubs in enumerate((holder, other, holder), 1):
        for each in (holder, other):
            assert not (await each.runs.ClaimRun(pb.ClaimRunRequest(agent=run.session.agent))).HasField("run")
            refusal = await failing(each.runs.ClaimRun(pb.ClaimRunRequest(run=run)))
            assert refusal.reason == "RUN_NOT_CLAIMABLE"
            assert refusal.retry_seconds is not None
            assert 1 <= refusal.retry_seconds <= LEASE.seconds + 1
        committed = await stubs.runs.CommitRunStep(step(run, begun.fence, number, messages=[text("one")]))
        assert committed.status == RUNNING
        renewal = pb.RenewRunLeaseRequest(run=run, fence=begun.fence, lease_duration=LEASE)
        until = (await stubs.runs.RenewRunLease(renewal)).lease_expire_time
        # The tests' databases are on this machine: their clocks are its own.
        assert abs(until.ToNanoseconds() / 1e9 - time.time() - LEASE.seconds) < 10
    update = pb.UpdateRunRequest(run=pb.Run(key=run, metadata="mine"), fence=begun.fence)
    assert (await other.runs.UpdateRun(update)).run.metadata == "mine"
    await other.runs.CommitRunStep(step(run, begun.fence, 4, status=COMPLETED))
    found = (await holder.runs.GetRun(pb.GetRunRequest(run=run))).run
    assert (found.status, found.recovery_count, found.step_count) == (COMPLETED, 0, 4)


async def test_a_lease_that_is_over_is_anothers(
    holder_and_other: tuple[AsyncStubs, AsyncStubs], run: pb.RunKey
) -> None:
    """Not before its time, and soon after: of who holds the run then, the first one hears at both servers."""
    holder, other = holder_and_other
    began = time.monotonic()
    begun = await holder.runs.CreateRun(pb.CreateRunRequest(run=run, lease_duration=SHORTEST))
    request = pb.ClaimRunRequest(agent=run.session.agent, lease_duration=LONG)
    claimed = await until_answer(partial(other.runs.ClaimRun, request), lambda answer: answer.HasField("run"))
    assert 1 <= time.monotonic() - began < 15
    assert claimed.run.recovery_count == 1
    for stubs in (holder, other):
        for late in (
            stubs.runs.CommitRunStep(step(run, begun.fence, 1, messages=[text("late")])),
            stubs.runs.RenewRunLease(pb.RenewRunLeaseRequest(run=run, fence=begun.fence)),
            stubs.runs.ReleaseRun(pb.ReleaseRunRequest(run=run, fence=begun.fence)),
        ):
            assert (await failing(late)).reason == "LEASE_LOST"
        assert (await stubs.runs.GetRun(pb.GetRunRequest(run=run))).run == claimed.run
    await holder.runs.CommitRunStep(step(run, claimed.fence, 1, status=COMPLETED))
