"""Runs of servers that share a database (invariant 15): one holder at a time, whichever server each worker asks."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import run_service_pb2 as pb
from memoryd.v1 import session_pb2 as session
from tests.service import run_calls as calls
from tests.service.conftest import Addresses
from tests.service.run_calls import AWAITING_APPROVAL, COMPLETED, FAILED, INTERRUPTED, RUNNING, SHORTEST, run_of
from tests.service.summarized import wait_until
from tests.service.wire import Stubs, new_key, refused, seqs, text

WORKERS: Final = 20
RUNS: Final = 200
SESSIONS: Final = 8
SEED: Final = 15


@pytest.fixture
def run(agent: str) -> pb.RunKey:
    return run_of(new_key(agent))


@dataclass
class Workshop:
    """What workers know of each other, which no server tells them."""

    agent: str
    unfinished: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    holders: dict[str, str] = field(default_factory=dict)
    """Who works at which run right now."""
    claims: defaultdict[str, list[tuple[str, str, int]]] = field(default_factory=lambda: defaultdict(list))
    """The claims of each run, in their order: holder, fence and the number of the step that it committed."""
    completed: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    failed: bool = False
    """Whether a worker found something wrong: the others need not go on."""

    def begin(self, claimed: pb.ClaimRunResponse, holder: str) -> None:
        run = claimed.run
        assert (run.status, run.holder) == (RUNNING, holder)
        with self.lock:
            assert run.key.run_id not in self.holders, "two workers hold one run"
            self.holders[run.key.run_id] = holder
            self.claims[run.key.run_id].append((holder, claimed.fence, run.step_count + 1))

    def end(self, run: pb.RunKey, *, completed: bool) -> None:
        """Just before the call that gives the run back."""
        with self.lock:
            del self.holders[run.run_id]
            if completed:
                self.completed[run.run_id] += 1
                self.unfinished -= 1


def work(stubs: Stubs, shop: Workshop, worker: int) -> None:
    """Claims whatever there is, takes a step at it, and completes it or leaves it to the next."""
    dice = random.Random(SEED * 1_000 + worker)
    for number in itertools.count():
        if shop.unfinished <= 0 or shop.failed:
            return
        holder = f"{worker}/{number}"
        claimed = calls.claim(stubs, shop.agent, holder=holder)
        if not claimed.HasField("run"):
            continue
        run, step = claimed.run.key, claimed.run.step_count + 1
        shop.begin(claimed, holder)
        completes = dice.random() < 0.8
        if completes:
            shop.end(run, completed=True)
            calls.step(stubs, run, claimed.fence, step, holder.encode(), text(holder), status=COMPLETED)
        else:
            calls.step(stubs, run, claimed.fence, step, holder.encode(), text(holder))
            shop.end(run, completed=False)
            calls.release(stubs, run, claimed.fence)


def work_or_tell(stubs: Stubs, shop: Workshop, worker: int) -> None:
    try:
        work(stubs, shop, worker)
    except BaseException:
        shop.failed = True
        raise


def test_twenty_workers_hold_two_hundred_runs_one_at_a_time(pair: Addresses, agent: str) -> None:
    print(f"seed {SEED}")
    keys = [new_key(agent) for _ in range(SESSIONS)]
    shop = Workshop(agent, RUNS)
    servers = [Stubs(address) for address in pair]
    here, there = servers
    requests = [
        pb.CreateRunRequest(run=run_of(keys[number % SESSIONS], f"run {number}"), queued=True) for number in range(RUNS)
    ]
    for begun in [here.runs.CreateRun.future(request, timeout=60) for request in requests]:
        assert begun.result().run.status == INTERRUPTED
    with ThreadPoolExecutor(WORKERS) as threads:
        working = [threads.submit(work_or_tell, servers[worker % 2], shop, worker) for worker in range(WORKERS)]
        for each in working:
            each.result()

    found = [run for key in keys for run in calls.runs(there, key)]
    assert {run.key.run_id: run.status for run in found} == {request.run.run_id: COMPLETED for request in requests}
    assert shop.completed == dict.fromkeys(shop.claims, 1)
    assert not shop.holders
    assert {run.recovery_count for run in found} == {0}
    steps = dict(zip((run.key.run_id for run in found), all_steps(here, found), strict=True))
    for run_id, claims in shop.claims.items():
        holders, fences, numbers = zip(*claims, strict=True)
        assert list(numbers) == list(range(1, len(claims) + 1))
        assert sorted(set(fences), key=str.encode) == list(fences)
        assert [each.payload.decode() for each in steps[run_id]] == list(holders)
    said = [message for key in keys for message in here.messages(key, page_size=1_000)]
    assert sorted(message.content.parts[0].text for message in said) == sorted(
        holder for claims in shop.claims.values() for holder, _, _ in claims
    )
    for stubs in servers:
        assert calls.claim(stubs, agent) == pb.ClaimRunResponse()
        stubs.close()


def all_steps(stubs: Stubs, runs: list[pb.Run]) -> list[list[pb.RunStep]]:
    """The steps of each of many runs with few steps."""
    reads = [stubs.runs.ListRunSteps.future(pb.ListRunStepsRequest(run=run.key), timeout=60) for run in runs]
    return [list(read.result().steps) for read in reads]


def test_a_named_run_is_held_by_one_of_many(here: Stubs, there: Stubs, run: pb.RunKey) -> None:
    """Twenty claims of one run at once: one succeeds, and the others are told who holds it."""
    calls.create(here, run, queued=True)
    requests = [pb.ClaimRunRequest(run=run, holder=f"{number}", lease_duration=calls.LONG) for number in range(20)]
    tries = [
        stubs.runs.ClaimRun.future(request, timeout=30)
        for stubs, request in zip(itertools.cycle((here, there)), requests, strict=False)
    ]
    winners = [each.result() for each in tries if each.exception() is None]
    assert len(winners) == 1
    assert calls.get(there, run) == winners[0].run
    for each in tries:
        if each.exception() is not None:
            refusal = refused(each.result)
            assert (refusal.reason, refusal.metadata["holder"]) == ("RUN_NOT_CLAIMABLE", winners[0].run.holder)


class TestAWorkerThatStalls:
    """Its lease is over before it writes again."""

    def writes_are_lost(self, here: Stubs, there: Stubs, run: pb.RunKey, fence: str) -> None:
        """Whatever it writes, through either server, is refused and changes nothing."""
        before = calls.all_of(here, run.session)
        for stubs in (here, there):
            number = calls.get(stubs, run).step_count + 1
            for late in (
                lambda stubs=stubs, number=number: calls.step(stubs, run, fence, number, b"late", text("late")),
                lambda stubs=stubs, number=number: calls.step(
                    stubs, run, fence, number, b"late", text("late"), status=COMPLETED, lease_duration=calls.LONG
                ),
                lambda stubs=stubs: calls.update(stubs, pb.Run(key=run, metadata="late"), fence=fence),
                lambda stubs=stubs: calls.update(stubs, pb.Run(key=run, status=FAILED), fence=fence),
                lambda stubs=stubs: calls.renew(stubs, run, fence),
                lambda stubs=stubs: calls.release(stubs, run, fence, status_reason="late"),
            ):
                refusal = refused(late)
                assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "LEASE_LOST")
                assert refusal.metadata["run_id"] == run.run_id
        assert calls.all_of(there, run.session) == before

    def test_writes_nothing_once_another_holds_its_run(self, here: Stubs, there: Stubs, run: pb.RunKey) -> None:
        fence = calls.create(here, run, holder="stalls").fence
        began = time.monotonic()
        calls.step(here, run, fence, 1, b"one", text("one"), lease_duration=SHORTEST)
        claimed = pb.ClaimRunResponse()

        def is_claimed() -> bool:
            claimed.CopyFrom(calls.claim(there, run.session.agent, holder="goes on"))
            return claimed.HasField("run")

        wait_until(is_claimed)
        assert time.monotonic() - began >= 1
        assert (claimed.run.holder, claimed.run.recovery_count, claimed.run.step_count) == ("goes on", 1, 1)
        assert claimed.fence > fence
        self.writes_are_lost(here, there, run, fence)
        # A repeated step is an answer, and no write.
        assert seqs(calls.step(here, run, fence, 1, b"one", text("one")).messages) == [1]

        calls.step(there, run, claimed.fence, 2, b"two", text("two"), status=COMPLETED)
        assert [each.payload for each in calls.steps(here, run)] == [b"one", b"two"]
        assert seqs(here.messages(run.session)) == [1, 2]

    def test_writes_nothing_before_another_holds_its_run(self, here: Stubs, there: Stubs, run: pb.RunKey) -> None:
        fence = calls.create(here, run, lease_duration=SHORTEST).fence
        # A step that can never be the next tells whether it is held, and changes nothing.
        wait_until(lambda: refused(lambda: calls.step(here, run, fence, 99)).reason == "LEASE_LOST")
        wait_until(lambda: refused(lambda: calls.step(there, run, fence, 99)).reason == "LEASE_LOST")
        self.writes_are_lost(here, there, run, fence)
        wait_until(lambda: calls.claim(there, run.session.agent).HasField("run"))

    def test_keeps_its_run_while_it_renews(self, here: Stubs, there: Stubs, run: pb.RunKey) -> None:
        """By a renewal or by a step, through either server, for longer than the first lease."""
        for stubs in (here, there):  # Both connections are there before the lease begins.
            assert calls.claim(stubs, run.session.agent) == pb.ClaimRunResponse()
        began = time.monotonic()
        fence = calls.create(here, run, lease_duration=Duration(seconds=2)).fence
        lease = Duration(seconds=30)
        calls.renew(there, run, fence, lease_duration=lease)
        refusal = refused(lambda: calls.claim(here, run))
        assert refusal.retry_seconds is not None
        assert refusal.retry_seconds > 25
        longer = calls.step(here, run, fence, 1, lease_duration=Duration(seconds=60)).lease_expire_time
        assert calls.get(there, run).lease_expire_time == longer

        def is_over() -> bool:
            assert calls.claim(there, run.session.agent) == pb.ClaimRunResponse()
            return time.monotonic() - began > 2.2

        wait_until(is_over)
        calls.step(here, run, fence, 2, status=COMPLETED)

    def test_ends_its_run_after_three_recoveries(self, here: Stubs, there: Stubs, run: pb.RunKey) -> None:
        """The reason says so, and nobody claims the run again."""
        fences = [calls.create(here, run, lease_duration=SHORTEST).fence]
        for recoveries, stubs in enumerate((there, here, there), 1):
            claimed = pb.ClaimRunResponse()

            def is_claimed(stubs: Stubs = stubs, claimed: pb.ClaimRunResponse = claimed) -> bool:
                claimed.CopyFrom(calls.claim(stubs, run.session.agent, lease_duration=SHORTEST))
                return claimed.HasField("run")

            wait_until(is_claimed)
            assert claimed.run.recovery_count == recoveries
            fences.append(claimed.fence)
        wait_until(lambda: calls.claim(here, run.session.agent) == pb.ClaimRunResponse() and ended(there, run))
        found = calls.get(there, run)
        assert (found.status, found.recovery_count) == (FAILED, 3)
        assert "3 times" in found.status_reason
        assert refused(lambda: calls.claim(there, run)).reason == "RUN_ENDED"
        for fence in fences:
            assert refused(lambda fence=fence: calls.step(here, run, fence, 1)).reason == "RUN_ENDED"  # type: ignore[misc]


def ended(stubs: Stubs, run: pb.RunKey) -> bool:
    return calls.get(stubs, run).HasField("end_time")


def test_an_approval_through_two_servers(here: Stubs, there: Stubs, run: pb.RunKey) -> None:
    """The worker that pauses, whoever approves and the worker that goes on need not know of the same server."""
    agent = run.session.agent
    fence = calls.create(here, run, holder="first").fence
    calls.step(here, run, fence, 1, b"asked", text("May I?"), status=AWAITING_APPROVAL, status_reason="sends mail")
    for stubs in (here, there):
        assert calls.claim(stubs, agent) == pb.ClaimRunResponse()
    (waiting,) = calls.runs(there, agent, AWAITING_APPROVAL)
    approved = calls.update(there, pb.Run(key=run, metadata='{"approved": true}', etag=waiting.etag))
    assert approved.status == AWAITING_APPROVAL
    claimed = calls.claim(there, run, holder="second")
    assert (claimed.run.metadata, claimed.run.step_count) == ('{"approved": true}', 1)
    assert [each.payload for each in calls.steps(there, run)] == [b"asked"]
    assert refused(lambda: calls.step(here, run, fence, 2)).reason == "LEASE_LOST"
    calls.step(there, run, claimed.fence, 2, b"sent", text("Sent."), status=COMPLETED)
    assert calls.get(here, run).status == COMPLETED
    assert seqs(here.messages(run.session)) == [1, 2]


STEPS: Final = 12
BATCH: Final = 3


def test_steps_and_appends_of_one_session_at_once(here: Stubs, there: Stubs, agent: str) -> None:
    """The messages of each stand side by side, in their order, at the seqs that the step tells (invariants 2 and 3)."""
    key = new_key(agent)
    runs = [run_of(key, f"run {number}") for number in range(2)]

    def take_steps(stubs: Stubs, run: pb.RunKey) -> list[str]:
        fence = calls.create(stubs, run).fence
        for number in range(1, STEPS + 1):
            batch = [text(f"{run.run_id} {number} {place}") for place in range(BATCH)]
            calls.step(stubs, run, fence, number, b"%d" % number, *batch[: number % (BATCH + 1)])
        return [f"{run.run_id} {n} {place}" for n in range(1, STEPS + 1) for place in range(n % (BATCH + 1))]

    def append(stubs: Stubs, writer: str) -> list[str]:
        said = [[f"{writer} {number} {place}" for place in range(BATCH)] for number in range(STEPS)]
        for batch in said:
            stubs.append(key, *map(text, batch))
        return list(itertools.chain.from_iterable(said))

    with ThreadPoolExecutor(4) as threads:
        working = [
            *(threads.submit(take_steps, stubs, run) for stubs, run in zip((here, there), runs, strict=True)),
            *(threads.submit(append, stubs, f"append {number}") for number, stubs in enumerate((here, there))),
        ]
        expected = [each.result() for each in working]

    listed = here.messages(key, view=history.MESSAGE_VIEW_ALL, page_size=1_000)
    assert seqs(listed) == list(range(1, sum(map(len, expected)) + 1))
    assert there.session(key).message_count == len(listed)
    said = {message.seq: message.content.parts[0].text for message in listed}
    for writer in expected:
        assert [word for word in said.values() if word in set(writer)] == writer
    batches = [batch for batch, _ in itertools.groupby(word.rpartition(" ")[0] for word in said.values())]
    assert len(batches) == len(set(batches))
    for run in runs:
        found = calls.steps(there, run)
        assert [each.number for each in found] == list(range(1, STEPS + 1))
        for each in found:
            count = each.number % (BATCH + 1)
            assert each.message_count == count
            assert bool(each.first_seq) == bool(count)
            for place in range(count):
                assert said[each.first_seq + place] == f"{run.run_id} {each.number} {place}"


def test_page_tokens_hold_on_both(here: Stubs, there: Stubs, agent: str) -> None:
    key: session.SessionKey = new_key(agent)
    for id_ in ("a", "b"):
        fence = calls.create(here, run_of(key, id_)).fence
        for number in (1, 2):
            calls.step(here, run_of(key, id_), fence, number)
    of_runs = pb.ListRunsRequest(agent=agent, page_size=1)
    of_runs.page_token = here.runs.ListRuns(of_runs).next_page_token
    assert [each.key.run_id for each in there.runs.ListRuns(of_runs).runs] == ["a"]
    of_steps = pb.ListRunStepsRequest(run=run_of(key, "a"), page_size=1)
    of_steps.page_token = here.runs.ListRunSteps(of_steps).next_page_token
    assert [each.number for each in there.runs.ListRunSteps(of_steps).steps] == [2]
