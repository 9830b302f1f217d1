"""Runs whose lease is renewed, lost or given back, on a real server whose answers may stay out."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import grpc
import pytest

import memoryd
from memoryd import (
    AsyncMemoryClient,
    AsyncRun,
    AsyncRunClaims,
    AsyncSession,
    DeadlineExceeded,
    EtagMismatch,
    RunInfo,
    RunLeaseLost,
    RunNotClaimable,
    RunStatus,
    ServerUnavailable,
    SessionSettings,
    StepMismatch,
    assistant,
)
from memoryd.run_plans import TRIES
from memoryd.v1.run_service_pb2 import (
    ClaimRunRequest,
    ClaimRunResponse,
    CommitRunStepResponse,
    GetRunResponse,
    RenewRunLeaseResponse,
    Run,
    RunKey,
    UpdateRunResponse,
)
from memoryd.v1.run_service_pb2 import RunStatus as RunStatusNumber
from memoryd.v1.session_pb2 import SessionKey
from memoryd.v1.store_service_pb2 import GetStoreResponse, Store
from tests.sdk.conftest import Connect
from tests.sdk.scripted_server import ScriptedServer, answers, fails
from tests.servers import ServerProcess
from tests.service.in_process import until
from tests.service.lossy_proxy import LossyProxy

Found = TypeVar("Found")

NOWHERE = "127.0.0.1:1"
"""An address at which nobody answers."""
SHORT = 2.0
"""Seconds of a lease that a test can see the end of, and that a busy machine can keep."""
PATIENCE = 30.0
"""Seconds after which what has not happened counts as never happening."""


@pytest.fixture
def server(in_memory_server: ServerProcess) -> ServerProcess:
    """The engine is the same on every store; what each store keeps of runs, the tests of stores say."""
    return in_memory_server


@asynccontextmanager
async def proxied(connect: Connect, server: ServerProcess) -> AsyncIterator[tuple[LossyProxy, AsyncMemoryClient]]:
    async with LossyProxy.run(server.address) as proxy:
        memory = connect(proxy.address)
        await memory.store()  # So that there is a connection whose answers can be lost.
        yield proxy, memory


async def found(look: Callable[[], Awaitable[Found]], condition: Callable[[Found], bool]) -> Found:
    """What a look finds once the condition holds for it."""
    begun = time.monotonic()
    while not condition(result := await look()):
        assert time.monotonic() - begun < PATIENCE, "it never came to hold"
        await asyncio.sleep(0.01)
    return result


async def set_status(memory: AsyncMemoryClient, session: AsyncSession, id: str, status: RunStatus) -> RunInfo:
    """Takes a run from its holder, whose renewals change its etag."""
    while True:
        try:
            return await memory.update_run(await memory.get_run(session, id), status=status, reason="enough")
        except EtagMismatch:
            continue


async def test_a_lease_is_renewed_while_the_block_lasts(memory: AsyncMemoryClient, agent: str) -> None:
    """A worker may take as long as it likes for a step."""
    session = memory.session(agent=agent)
    async with memory.run(session, "r", lease=SHORT) as run:
        first = (await memory.get_run(session, "r")).lease_expires
        assert first is not None
        later = await found(
            lambda: memory.get_run(session, "r"),
            lambda info: info.lease_expires is not None and (info.lease_expires - first).total_seconds() > SHORT,
        )
        assert (later.status, later.recoveries, later.updated) == (RunStatus.RUNNING, 0, later.created)
        assert run.is_held
        with pytest.raises(RunNotClaimable):
            async with memory.claim(session, "r"):
                pass
        await run.step("a")
    assert (await memory.get_run(session, "r")).status is RunStatus.COMPLETED


@pytest.mark.parametrize("status", [RunStatus.CANCELLED, RunStatus.INTERRUPTED])
async def test_a_body_is_cancelled_once_its_run_is_taken_away(
    server: ServerProcess, agent: str, status: RunStatus
) -> None:
    async with AsyncMemoryClient(server.address) as memory:
        session = memory.session(agent=agent)
        ended = []

        async def work() -> None:
            async with memory.run(session, "r", lease=SHORT) as run:
                held.set_result(run)
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.append(run.is_held)

        held: asyncio.Future[AsyncRun] = asyncio.get_running_loop().create_future()
        worker = asyncio.create_task(work())
        run = await held
        await set_status(memory, session, "r", status)
        with pytest.raises(RunLeaseLost) as error:
            await worker
        assert ended == [False]
        told = error.value.metadata
        assert (told["agent"], told["session_id"], told["run_id"]) == (agent, session.id, "r")
        if status is RunStatus.CANCELLED:
            assert (error.value.reason, error.value.status) == ("RUN_ENDED", status)
            assert "it has ended as CANCELLED" in str(error.value)
        else:
            assert (error.value.reason, error.value.status) == ("LEASE_LOST", RunStatus.UNSPECIFIED)
            assert "the lease was given back when the run became INTERRUPTED" in str(error.value)
        assert isinstance(error.value.__cause__, Exception)
        assert worker.cancelling() == 0
        with pytest.raises(RunLeaseLost):
            await run.step("late")
        info = await memory.get_run(session, "r")
        assert (info.status, info.reason, info.steps) == (status, "enough", 0)


async def test_a_loss_that_the_body_swallows_is_told_all_the_same(server: ServerProcess, agent: str) -> None:
    async with AsyncMemoryClient(server.address) as memory:
        session = memory.session(agent=agent)

        async def work(then: Exception | None) -> None:
            async with memory.run(session, lease=SHORT) as run:
                await set_status(memory, session, run.id, RunStatus.CANCELLED)
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if then is not None:
                        raise then from None

        with pytest.raises(RunLeaseLost):
            await work(None)
        with pytest.raises(ValueError, match="of its own"):
            await work(ValueError("of its own"))


async def test_a_cancellation_from_outside_is_no_loss(server: ServerProcess, agent: str) -> None:
    async with AsyncMemoryClient(server.address) as memory:
        session = memory.session(agent=agent)

        async def work() -> None:
            async with memory.run(session, "r", lease=SHORT) as run:
                await set_status(memory, session, "r", RunStatus.CANCELLED)
                try:
                    await asyncio.Event().wait()
                finally:
                    assert not run.is_held
                    worker.cancel()

        worker = asyncio.create_task(work())
        with pytest.raises(asyncio.CancelledError):
            await worker
        assert worker.cancelling() == 1


async def test_a_run_that_was_lost_raises_by_its_next_call(memory: AsyncMemoryClient, agent: str) -> None:
    """A sync body cannot be cancelled: it is told so, and by `is_held`."""
    session = memory.session(agent=agent)

    async def work(id: str, late: Callable[[AsyncRun], Awaitable[object]] | None) -> None:
        async with memory.run(session, id, lease=SHORT) as run:
            await set_status(memory, session, id, RunStatus.BLOCKED)
            if late is None:
                await until(lambda: not run.is_held)
            else:
                await late(run)

    lates: dict[str, Callable[[AsyncRun], Awaitable[object]] | None] = {
        "step": lambda run: run.step("late", messages=[assistant("late")]),
        "pause": lambda run: run.pause(RunStatus.AWAITING_APPROVAL),
        "finish": lambda run: run.finish(RunStatus.COMPLETED, payload="late"),
        "leave": None,
    }
    for name, late in lates.items():
        with pytest.raises(RunLeaseLost, match="is not held any more"):
            await work(name, late)
    infos = [info async for info in memory.runs(session=session)]
    assert {(info.status, info.reason, info.steps) for info in infos} == {(RunStatus.BLOCKED, "enough", 0)}
    assert len(infos) == len(lates)
    assert [message async for message in session.messages()] == []


async def test_a_session_that_is_erased_takes_its_run_from_the_holder(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)

    async def work() -> None:
        async with memory.run(session, lease=SHORT, create=SessionSettings(user_id=agent)) as run:
            await memory.erase_user(agent)
            await until(lambda: not run.is_held)

    with pytest.raises(RunLeaseLost):
        await work()


async def test_a_cancelled_worker_leaves_its_run_to_others(server: ServerProcess, agent: str) -> None:
    """INTERRUPTED is written although the task is cancelled, and cancelled again."""
    async with AsyncMemoryClient(server.address) as memory:
        session = memory.session(agent=agent)
        working = asyncio.Event()

        async def work() -> None:
            async with memory.run(session, "r") as run:
                await run.step("half way")
                working.set()
                await asyncio.Event().wait()

        worker = asyncio.create_task(work())
        await working.wait()
        worker.cancel()
        await asyncio.sleep(0)
        worker.cancel()
        with pytest.raises(asyncio.CancelledError):
            await worker
        info = await memory.get_run(session, "r")
        assert (info.status, info.reason, info.steps) == (RunStatus.INTERRUPTED, "CancelledError", 1)
        async with memory.claim(session, "r") as run:
            assert (await run.resume()) is not None


@pytest.mark.parametrize("lead", [0, 1, 3])
async def test_a_worker_that_is_cancelled_while_it_begins_holds_nothing(
    server: ServerProcess, agent: str, lead: int
) -> None:
    async with AsyncMemoryClient(server.address) as memory:
        session = memory.session(agent=agent)
        await memory.enqueue_run(session, "queued")

        async def work(run: AsyncRun) -> None:
            async with run:
                await asyncio.Event().wait()

        for run in (memory.run(session, "new"), memory.claim(session, "queued")):
            worker = asyncio.create_task(work(run))
            for _ in range(lead):
                await asyncio.sleep(0)
            worker.cancel()
            with pytest.raises(asyncio.CancelledError):
                await worker
        for info in [info async for info in memory.runs(session=session)]:
            assert (info.status, info.lease_expires) == (RunStatus.INTERRUPTED, None)


async def test_a_client_that_is_closed_cancels_the_bodies_of_its_runs(server: ServerProcess, agent: str) -> None:
    """Nobody renews their leases any more."""
    memory = AsyncMemoryClient(server.address)
    working = asyncio.Event()

    async def work() -> None:
        async with memory.run(memory.session(agent=agent)):
            working.set()
            await asyncio.Event().wait()

    worker = asyncio.create_task(work())
    await working.wait()
    await memory.close()
    with pytest.raises(RunLeaseLost, match="its client was closed"):
        await worker
    assert worker.cancelling() == 0


async def test_a_timeout_inside_is_an_error_and_one_outside_a_cancellation(server: ServerProcess, agent: str) -> None:
    async with AsyncMemoryClient(server.address) as memory:
        session = memory.session(agent=agent)

        async def inside() -> None:
            async with memory.run(session, "inside"), asyncio.timeout(0):
                await asyncio.Event().wait()

        async def outside() -> None:
            async with asyncio.timeout(None) as limit, memory.run(session, "outside"):
                limit.reschedule(0)
                await asyncio.Event().wait()

        for work in (inside, outside):
            with pytest.raises(TimeoutError):
                await work()
        assert (await memory.get_run(session, "inside")).status is RunStatus.FAILED
        assert (await memory.get_run(session, "outside")).status is RunStatus.INTERRUPTED


async def test_an_unreachable_server_loses_the_run_once_its_lease_is_over(
    connect: Connect, server: ServerProcess, memory: AsyncMemoryClient, agent: str
) -> None:
    """By the holder's own clock, no later than another worker may claim it."""
    session = memory.session(agent=agent)

    async def work(away: AsyncMemoryClient, proxy: LossyProxy) -> None:
        async with away.run(away.session(agent=agent, id=session.id), "r", lease=SHORT) as run:
            proxy.target = NOWHERE
            proxy.cut()
            await until(lambda: not run.is_held)

    async with proxied(connect, server) as (proxy, away):
        with pytest.raises(RunLeaseLost, match="none of its renewals got through within 2 s") as error:
            await work(away, proxy)
        assert isinstance(error.value.__cause__, ServerUnavailable | DeadlineExceeded)
        proxy.target = server.address
    async for run in memory.claims(agent, poll=0.05):
        assert run.id == "r"
        break
    assert (await memory.get_run(session, "r")).recoveries == 1


async def test_an_exception_is_not_hidden_while_the_server_is_away(
    connect: Connect, server: ServerProcess, agent: str, caplog: pytest.LogCaptureFixture
) -> None:
    error = ValueError("no seats")

    async def work(away: AsyncMemoryClient, proxy: LossyProxy) -> None:
        async with away.run(away.session(agent=agent), "r"):
            proxy.target = NOWHERE
            proxy.cut()
            raise error

    async with proxied(connect, server) as (proxy, away):
        with pytest.raises(ValueError) as caught:
            await work(away, proxy)
        assert caught.value is error
        assert "ended could not be recorded" in caplog.text
        proxy.target = server.address


async def test_a_run_whose_end_cannot_be_recorded_says_so(
    connect: Connect, server: ServerProcess, memory: AsyncMemoryClient, agent: str
) -> None:
    session = memory.session(agent=agent)

    async def work(away: AsyncMemoryClient, proxy: LossyProxy) -> None:
        async with away.run(away.session(agent=agent, id=session.id), "r"):
            proxy.target = NOWHERE
            proxy.cut()

    async with proxied(connect, server) as (proxy, away):
        with pytest.raises(ServerUnavailable):
            await work(away, proxy)
        proxy.target = server.address
    assert (await memory.get_run(session, "r")).status is RunStatus.RUNNING


async def lost_once(proxy: LossyProxy, call: Awaitable[Found], arrived: Callable[[], Awaitable[bool]]) -> Found:
    """What a call answers whose first answer was lost after the server had carried it out."""
    proxy.losing = True
    calling = asyncio.ensure_future(call)
    await found(arrived, bool)
    proxy.losing = False
    proxy.cut()
    return await calling


async def test_what_a_lost_answer_told_is_done_once(
    connect: Connect, server: ServerProcess, memory: AsyncMemoryClient, agent: str
) -> None:
    """Beginning, each step with its messages, pause, claim and end (invariants 2 and 15)."""
    session = memory.session(agent=agent)
    await session.append(assistant("before"))

    async def info() -> RunInfo | None:
        return next(iter([info async for info in memory.runs(session=session)]), None)

    def stands(status: RunStatus, steps: int) -> Callable[[], Awaitable[bool]]:
        async def arrived() -> bool:
            run = await info()
            return run is not None and (run.status, run.steps) == (status, steps)

        return arrived

    async with proxied(connect, server) as (proxy, away):
        far = away.session(agent=agent, id=session.id)
        run = away.run(far, "r")
        await lost_once(proxy, run.__aenter__(), stands(RunStatus.RUNNING, 0))
        step = await lost_once(
            proxy, run.step("a", messages=[assistant("1"), assistant("2")]), stands(RunStatus.RUNNING, 1)
        )
        assert (step.number, step.first_seq, step.message_count) == (1, 2, 2)
        await lost_once(
            proxy,
            run.pause(RunStatus.AWAITING_BUDGET, "b", messages=[assistant("3")]),
            stands(RunStatus.AWAITING_BUDGET, 2),
        )
        await run.__aexit__(None, None, None)

        again = away.claim(far, "r")
        await lost_once(proxy, again.__aenter__(), stands(RunStatus.RUNNING, 2))
        await lost_once(proxy, again.pause(RunStatus.INTERRUPTED, reason="why"), stands(RunStatus.INTERRUPTED, 2))
        await again.__aexit__(None, None, None)

        last = away.claim(far, "r")
        async with last:
            await lost_once(proxy, last.finish(RunStatus.BLOCKED, reason="why"), stands(RunStatus.BLOCKED, 2))
    end = await memory.get_run(session, "r")
    assert (end.status, end.reason, end.steps, end.recoveries) == (RunStatus.BLOCKED, "why", 2, 0)
    assert [message.text async for message in session.messages()] == ["before", "1", "2", "3"]
    assert [step.text async for step in memory.run_steps(session, "r")] == ["a", "b"]


async def test_a_step_in_doubt_is_repeated_or_read(
    connect: Connect, server: ServerProcess, memory: AsyncMemoryClient, agent: str
) -> None:
    session = memory.session(agent=agent)
    message = assistant("1")

    async def count() -> int:
        return (await memory.get_run(session, "r")).steps

    async with (
        proxied(connect, server) as (proxy, away),
        away.run(away.session(agent=agent, id=session.id), "r") as run,
    ):
        for number in (1, 2):
            proxy.losing = True
            with pytest.raises(DeadlineExceeded):
                await run.step(str(number), messages=[message] if number == 1 else (), timeout=0.5)
            assert (run.steps, await count()) == (number - 1, number)
            proxy.losing = False
            proxy.cut()
            if number == 1:
                assert (await run.step("1", messages=[message])).number == 1
        with pytest.raises(StepMismatch) as error:
            await run.step("another")
        assert error.value.step_count == 2
        last = await run.resume()
        assert last is not None
        assert (last.number, last.text, run.steps) == (2, "2", 2)
        assert (await run.step("another")).number == 3
    assert [step.text async for step in memory.run_steps(session, "r")] == ["1", "2", "another"]
    assert [message.text async for message in session.messages()] == ["1"]


async def test_a_run_outlives_an_outage_in_the_middle_of_a_step(
    connect: Connect, server: ServerProcess, memory: AsyncMemoryClient, agent: str
) -> None:
    """Whoever takes it up goes on behind what was committed, also by a try whose answer was lost."""
    session = memory.session(agent=agent)

    async def work(away: AsyncMemoryClient, proxy: LossyProxy) -> None:
        async with away.run(away.session(agent=agent, id=session.id), "r") as run:
            proxy.losing = True
            try:
                await run.step("a", timeout=0.5)
            finally:
                proxy.losing = False
                proxy.cut()

    async with proxied(connect, server) as (proxy, away):
        with pytest.raises(DeadlineExceeded):
            await work(away, proxy)
    info = await memory.get_run(session, "r")
    assert (info.status, info.reason.partition(":")[0]) == (RunStatus.INTERRUPTED, "DeadlineExceeded")
    async for run in memory.claims(agent):
        async with run:
            last = await run.resume()
            assert last is not None
            assert last.text == "a"
        break
    assert (await memory.get_run(session, "r")).status is RunStatus.COMPLETED


@pytest.mark.parametrize("way", ["pause", "finish"])
async def test_a_status_is_not_lost_behind_a_step_in_doubt(
    connect: Connect, server: ServerProcess, memory: AsyncMemoryClient, agent: str, way: str
) -> None:
    """The step is there without the status: nothing is given back, and the holder is told."""
    session = memory.session(agent=agent)

    async def settle(run: AsyncRun) -> None:
        if way == "pause":
            await run.pause(RunStatus.AWAITING_APPROVAL, "a", reason="why")
        else:
            await run.finish(RunStatus.BLOCKED, payload="a", reason="why")

    async with (
        proxied(connect, server) as (proxy, away),
        away.run(away.session(agent=agent, id=session.id), "r") as run,
    ):
        proxy.losing = True
        with pytest.raises(DeadlineExceeded):
            await run.step("a", timeout=0.5)
        proxy.losing = False
        proxy.cut()
        with pytest.raises(StepMismatch):
            await settle(run)
        assert (run.is_held, run.status) == (True, RunStatus.RUNNING)
        assert (await memory.get_run(session, "r")).status is RunStatus.RUNNING
        assert await run.resume() is not None
        await settle(run)
    info = await memory.get_run(session, "r")
    status = RunStatus.AWAITING_APPROVAL if way == "pause" else RunStatus.BLOCKED
    assert (run.status, info.status, info.reason, info.steps) == (status, status, "why", 2)


async def test_each_queued_run_is_worked_at_once(
    connect: Connect, server: ServerProcess, memory: AsyncMemoryClient, agent: str
) -> None:
    session = memory.session(agent=agent)
    queued = [(await memory.enqueue_run(session, metadata=str(number))).id for number in range(12)]
    done: list[str] = []
    claims = [connect(server.address).claims(agent, holder=holder, poll=0.01) for holder in ("a", "b")]

    async def work(runs: AsyncRunClaims, holder: str) -> None:
        async for run in runs:
            assert run.is_held
            async with run:
                assert (run.status, run.holder, run.session.id) == (RunStatus.RUNNING, holder, session.id)
                assert run.metadata == str(queued.index(run.id))
                assert await run.resume() is None
                await run.step("done")
                done.append(run.id)
            if len(done) == len(queued):
                for each in claims:
                    await each.close()

    await asyncio.gather(work(claims[0], "a"), work(claims[1], "b"))
    assert sorted(done) == sorted(queued)
    infos = [info async for info in memory.runs(agent=agent)]
    assert {(info.status, info.steps, info.recoveries) for info in infos} == {(RunStatus.COMPLETED, 1, 0)}


async def test_what_is_not_entered_is_released(memory: AsyncMemoryClient, agent: str) -> None:
    """When the loop goes on, when it ends, and when the iterator is left."""
    session = memory.session(agent=agent)
    await memory.enqueue_run(session, "a")
    await memory.enqueue_run(session, "b")
    skipped: list[AsyncRun] = []
    async for run in memory.claims(agent, poll=0.01):
        if skipped:
            info = await memory.get_run(session, skipped[0].id)
            assert (info.status, info.lease_expires) == (RunStatus.INTERRUPTED, None)
            break
        skipped.append(run)
    with pytest.raises(RuntimeError, match="was released, since it was not entered in its turn of the loop"):
        async with skipped[0]:
            pass

    async def free() -> bool:
        return {info.status async for info in memory.runs(session=session)} == {RunStatus.INTERRUPTED}

    await found(free, bool)
    async with memory.claims(agent) as claims:
        async for _run in claims:
            break
    await found(free, bool)


async def test_what_waits_for_somebody_is_claimed_by_name_alone(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    async with memory.run(session, "waits") as run:
        await run.pause(RunStatus.AWAITING_APPROVAL, {"seat": "12A"})
    await memory.enqueue_run(session, "queued")
    async for run in memory.claims(agent, poll=0.01):
        async with run:
            pass
        if run.id == "queued":
            approved = await memory.update_run(
                await memory.get_run(session, "waits"), status=RunStatus.INTERRUPTED, reason="approved"
            )
            assert approved.reason == "approved"
        else:
            assert run.id == "waits"
            break
    assert {info.status async for info in memory.runs(agent=agent)} == {RunStatus.COMPLETED}


async def test_a_run_is_entered_by_a_task_that_is_made_for_it(server: ServerProcess, agent: str) -> None:
    async with AsyncMemoryClient(server.address) as memory:
        session = memory.session(agent=agent)
        for number in range(5):
            await memory.enqueue_run(session, str(number))
        together = asyncio.Barrier(5)

        async def work(run: AsyncRun) -> None:
            async with run:
                await together.wait()

        async with asyncio.TaskGroup() as tasks:
            started = 0
            async for run in memory.claims(agent):
                tasks.create_task(work(run))
                started += 1
                if started == 5:
                    break
        infos = [info async for info in memory.runs(agent=agent)]
        assert {(info.status, info.recoveries) for info in infos} == {(RunStatus.COMPLETED, 0)}


async def test_a_worker_waits_for_runs_and_outlives_an_outage(
    connect: Connect, server: ServerProcess, memory: AsyncMemoryClient, agent: str, caplog: pytest.LogCaptureFixture
) -> None:
    session = memory.session(agent=agent)
    done: list[str] = []

    async def work(claims: AsyncRunClaims) -> None:
        async for run in claims:
            async with run:
                pass
            done.append(run.id)  # What is left while the server is away raises.

    with caplog.at_level(logging.INFO, "memoryd"):
        async with proxied(connect, server) as (proxy, away):
            claims = away.claims(agent, poll=0.01)
            worker = asyncio.create_task(work(claims))
            await memory.enqueue_run(session, "first")
            await until(lambda: done == ["first"])
            proxy.target = NOWHERE
            proxy.cut()
            await until(lambda: "no run can be claimed, which is tried again" in caplog.text)
            await memory.enqueue_run(session, "second")
            proxy.target = server.address
            await until(lambda: done == ["first", "second"])
            await claims.close()
            await worker
    assert "runs are claimed again" in caplog.text


@pytest.mark.parametrize("lead", [1, 2, 4, 8])
async def test_a_worker_that_is_cancelled_while_it_claims_holds_nothing(
    server: ServerProcess, agent: str, lead: int
) -> None:
    async with AsyncMemoryClient(server.address) as memory:
        session = memory.session(agent=agent)
        for _ in range(3):
            await memory.enqueue_run(session)

        async def work() -> None:
            async for run in memory.claims(agent):
                async with run:
                    await asyncio.Event().wait()

        worker = asyncio.create_task(work())
        for _ in range(lead):
            await asyncio.sleep(0)
        worker.cancel()
        with pytest.raises(asyncio.CancelledError):
            await worker
        assert {info.status async for info in memory.runs(agent=agent)} == {RunStatus.INTERRUPTED}


RUN = Run(
    key=RunKey(session=SessionKey(agent="a", session_id="s"), run_id="r"), status=RunStatusNumber.RUN_STATUS_RUNNING
)
COMPLETED = Run(key=RUN.key, status=RunStatusNumber.RUN_STATUS_COMPLETED)
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


async def test_a_claim_by_name_is_tried_again_as_the_same_request(connect: Connect, scripted: ScriptedServer) -> None:
    """In between the run is read, whose own tries wait for the server."""
    scripted.script("ClaimRun", fails(UNAVAILABLE), fails(UNAVAILABLE), answers(ClaimRunResponse(run=RUN, fence="f")))
    scripted.script("GetRun", fails(UNAVAILABLE), answers(GetRunResponse(run=RUN)), answers(GetRunResponse(run=RUN)))
    scripted.script("UpdateRun", answers(UpdateRunResponse(run=COMPLETED)))
    memory = connect(scripted.address)
    async with memory.claim(memory.session(agent="a", id="s"), "r") as run:
        assert run.fence == "f"
    tries = [ClaimRunRequest.FromString(request) for request in scripted.asked("ClaimRun")]
    assert len(tries) == 3
    assert tries[0] == tries[1] == tries[2]
    assert len(tries[0].request_id) == 32


@pytest.mark.parametrize("method", ["ClaimRun", "UpdateRun"])
async def test_tries_of_claim_and_end_are_bounded(method: str, connect: Connect, scripted: ScriptedServer) -> None:
    scripted.script("ClaimRun", answers(ClaimRunResponse(run=RUN, fence="f")))
    scripted.script(method, *[fails(UNAVAILABLE)] * TRIES)
    scripted.script("GetRun", *[answers(GetRunResponse(run=RUN))] * TRIES)
    memory = connect(scripted.address)
    with pytest.raises(ServerUnavailable):
        async with memory.claim(memory.session(agent="a", id="s"), "r"):
            pass
    assert len(scripted.asked(method)) == TRIES


@pytest.mark.parametrize("seen", ["when it is read", "when it is tried again", "never"])
async def test_an_end_in_doubt_is_looked_at(seen: str, connect: Connect, scripted: ScriptedServer) -> None:
    """A first try whose answer was lost may arrive before or after the run is read."""
    ended = Run(key=RUN.key, status=RunStatusNumber.RUN_STATUS_BLOCKED, status_reason="why")
    other = Run(key=RUN.key, status=RunStatusNumber.RUN_STATUS_CANCELLED)
    looks = {"when it is read": [ended], "when it is tried again": [RUN, ended], "never": [RUN, other]}[seen]
    scripted.script("ClaimRun", answers(ClaimRunResponse(run=RUN, fence="f")))
    scripted.script("UpdateRun", fails(UNAVAILABLE), fails(PRECONDITION, "RUN_ENDED", status="BLOCKED"))
    scripted.script("GetRun", *[answers(GetRunResponse(run=look)) for look in looks])
    memory = connect(scripted.address)

    async def work() -> None:
        async with memory.claim(memory.session(agent="a", id="s"), "r") as run:
            await run.finish(RunStatus.BLOCKED, reason="why")

    if seen == "never":
        with pytest.raises(RunLeaseLost):
            await work()
    else:
        await work()
    assert len(scripted.asked("UpdateRun")) == (1 if seen == "when it is read" else 2)


@pytest.mark.parametrize("stands", ["RUNNING", "AWAITING_BUDGET", "CANCELLED"])
async def test_the_answer_tells_how_a_run_stands(stands: str, connect: Connect, scripted: ScriptedServer) -> None:
    """It may be a repeated one, behind which others changed the run."""
    answer = CommitRunStepResponse(status=f"RUN_STATUS_{stands}")  # type: ignore[arg-type]
    scripted.script("ClaimRun", answers(ClaimRunResponse(run=RUN, fence="f")))
    scripted.script("CommitRunStep", answers(answer))
    scripted.script("RenewRunLease", fails(PRECONDITION, "LEASE_LOST"))
    memory = connect(scripted.address)
    async with memory.claim(memory.session(agent="a", id="s"), "r") as run:
        await run.pause(RunStatus.AWAITING_BUDGET, "a")
        assert (run.status.name, run.is_held) == (stands, False)
    asked = [method for method, _ in scripted.requests]
    assert asked == ["ClaimRun", "CommitRunStep", *["RenewRunLease"] * (stands == "RUNNING")]


async def test_a_run_that_was_not_given_back_stays_with_its_holder(connect: Connect, scripted: ScriptedServer) -> None:
    """Whatever the server makes of a repeated step, no status is taken for set that is not."""
    running = RunStatusNumber.RUN_STATUS_RUNNING
    scripted.script("ClaimRun", answers(ClaimRunResponse(run=RUN, fence="f")))
    scripted.script("CommitRunStep", answers(CommitRunStepResponse(status=running)))
    scripted.script("RenewRunLease", answers(RenewRunLeaseResponse()))
    scripted.script("UpdateRun", answers(UpdateRunResponse(run=COMPLETED)))
    memory = connect(scripted.address)
    async with memory.claim(memory.session(agent="a", id="s"), "r") as run:
        with pytest.raises(StepMismatch, match="is RUNNING still, and held: its step 1 was committed before") as error:
            await run.pause(RunStatus.AWAITING_APPROVAL, "a")
        assert (run.is_held, run.steps, error.value.step_count) == (True, 1, 1)
        await run.finish()
    assert run.status is RunStatus.COMPLETED


async def test_a_renewal_that_the_end_overtook_is_no_loss(connect: Connect, scripted: ScriptedServer) -> None:
    """While the run is given back, a renewal that is refused may tell of that alone."""
    refusals = threading.Semaphore(0)

    def refuse(request: bytes, context: grpc.ServicerContext) -> Any:
        refusals.release()
        return fails(PRECONDITION, "RUN_ENDED", status="COMPLETED")(request, context)

    def end(request: bytes, context: grpc.ServicerContext) -> list[Any]:
        scripted.script("RenewRunLease", *[refuse] * 100)
        for _ in range(2):  # The second is asked for once the first is known.
            refusals.acquire(timeout=PATIENCE)
        return [UpdateRunResponse(run=COMPLETED)]

    scripted.script("ClaimRun", answers(ClaimRunResponse(run=RUN, fence="f")))
    scripted.script("UpdateRun", end)
    scripted.script("RenewRunLease", *[answers(RenewRunLeaseResponse())] * 100)
    memory = connect(scripted.address)
    async with memory.claim(memory.session(agent="a", id="s"), "r", lease=0.3) as run:
        await run.finish()
    assert (run.status, run.is_held) == (RunStatus.COMPLETED, False)


async def test_a_run_that_could_not_be_entered_can_be_tried_again(connect: Connect, scripted: ScriptedServer) -> None:
    taken = fails(PRECONDITION, "RUN_NOT_CLAIMABLE", holder="b")
    scripted.script("ClaimRun", taken, answers(ClaimRunResponse(run=RUN, fence="f")))
    scripted.script("RenewRunLease", *[answers(RenewRunLeaseResponse())] * 100)
    scripted.script("UpdateRun", answers(UpdateRunResponse(run=COMPLETED)))
    memory = connect(scripted.address)
    run = memory.claim(memory.session(agent="a", id="s"), "r", lease=0.3)
    with pytest.raises(RunNotClaimable):
        async with run:
            pass
    async with run:
        await until(lambda: len(scripted.asked("RenewRunLease")) > 1)
        assert run.is_held


async def test_a_run_keeps_its_store(connect: Connect, scripted: ScriptedServer) -> None:
    found = GetStoreResponse(store=Store(name="other", reachable=True))
    scripted.script("ClaimRun", answers(ClaimRunResponse(run=RUN, fence="f")))
    scripted.script("GetStore", answers(found))
    scripted.script("CommitRunStep", answers(CommitRunStepResponse()))
    scripted.script("UpdateRun", answers(UpdateRunResponse(run=COMPLETED)))
    memory = connect(scripted.address, store="main")
    async with memory.claim(memory.session(agent="a", id="s"), "r") as run:
        await memory.switch_store("other")
        await run.step("a")
    assert [metadata["memoryd-store"] for metadata in scripted.metadata] == ["main"] * 4


@pytest.mark.parametrize("answered", [True, False])
async def test_a_cancellation_waits_until_the_end_is_recorded(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    """So that a run whose work is done is not done again; but not for ever."""
    if not answered:
        monkeypatch.setattr(memoryd.aio_run, "DRAIN_SECONDS", 0.2)
    over = threading.Event()
    loop = asyncio.get_running_loop()

    def end(request: bytes, context: grpc.ServicerContext) -> list[Any]:
        loop.call_soon_threadsafe(worker.cancel)
        if answered:
            loop.call_soon_threadsafe(over.set)
        over.wait()
        return [UpdateRunResponse(run=COMPLETED)]

    async def work() -> None:
        async with run:
            pass

    scripted.script("ClaimRun", answers(ClaimRunResponse(run=RUN, fence="f")))
    scripted.script("UpdateRun", end)
    try:
        async with AsyncMemoryClient(scripted.address) as memory:
            run = memory.claim(memory.session(agent="a", id="s"), "r")
            worker = asyncio.create_task(work())
            with pytest.raises(asyncio.CancelledError):
                await worker
            assert run.status is (RunStatus.COMPLETED if answered else RunStatus.RUNNING)
            assert not memory._connection.leases
    finally:
        over.set()
