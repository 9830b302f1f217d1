"""Durable runs through the clients, on a real server; each test holds for the sync and for the async client."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from grpc import StatusCode

from memoryd import (
    FOREVER,
    SERVERS_DEFAULT,
    AsyncMemoryClient,
    AsyncRun,
    Contention,
    DeadlineExceeded,
    EtagMismatch,
    FieldInvalid,
    MemoryClient,
    MessageIdConflict,
    RunEnded,
    RunExists,
    RunInfo,
    RunLeaseLost,
    RunNotClaimable,
    RunNotFound,
    RunStatus,
    RunUnfinished,
    ServerDraining,
    ServerUnavailable,
    SessionNotFound,
    SessionSettings,
    StoreUnavailable,
    SummarizerFailed,
    TooManyRuns,
    assistant,
    user,
)
from tests.sdk.conftest import Connect
from tests.servers import ServerProcess

MOST_UNFINISHED = 64
"""The most unfinished runs of a session."""
MOST_OF_A_REASON = 4_096
"""Bytes."""
CANNOT_BE_ENTERED = "was entered before"


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.fixture
def server(in_memory_server: ServerProcess) -> ServerProcess:
    """The engine is the same on every store; what each store keeps of runs, the tests of stores say."""
    return in_memory_server


async def listed(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


async def ids_of(runs: AsyncIterator[RunInfo]) -> list[str]:
    return [run.id async for run in runs]


async def test_a_run_that_is_left_is_completed(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    async with memory.run(session, "r", metadata='{"goal":"Oslo"}', holder="me", lease=20) as run:
        assert (run.id, run.session.id, run.metadata, run.holder) == ("r", session.id, '{"goal":"Oslo"}', "me")
        assert (run.status, run.steps, run.is_held) == (RunStatus.RUNNING, 0, True)
        assert await run.resume() is None
        begun = await memory.get_run(session, "r")
        assert (begun.status, begun.holder, begun.ended, begun.recoveries) == (RunStatus.RUNNING, "me", None, 0)
        assert begun.lease_expires is not None
        assert timedelta(seconds=15) < begun.lease_expires - begun.created <= timedelta(seconds=21)

        step = await run.step({"seat": "12A"}, messages=[user("Book it."), assistant("Seat 12A?")])
        assert (step.number, step.first_seq, step.message_count, step.json()) == (1, 1, 2, {"seat": "12A"})
        assert abs(datetime.now(UTC) - step.create_time) < timedelta(minutes=5)
        assert (await run.step()).number == run.steps == 2
    assert (run.status, run.is_held) == (RunStatus.COMPLETED, False)

    info = await memory.get_run(session, "r")
    assert (info.agent, info.session_id, info.id) == (agent, session.id, "r")
    assert (info.status, info.reason, info.metadata, info.steps) == (RunStatus.COMPLETED, "", '{"goal":"Oslo"}', 2)
    assert info.lease_expires is None
    assert info.ended == info.updated >= info.created
    assert [(message.text, message.run_id) async for message in session.messages()] == [
        ("Book it.", "r"),
        ("Seat 12A?", "r"),
    ]
    steps = await listed(memory.run_steps(session, "r", page_size=1))
    assert steps[0] == step
    assert [(each.number, each.message_count) for each in steps] == [(1, 2), (2, 0)]
    assert [each.number for each in await listed(memory.run_steps(session, "r", 1))] == [2]


async def test_a_run_gets_an_id_and_a_holder_that_tell_it_apart(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    first, second = memory.run(session), memory.run(session)
    assert len(first.id) == 32
    assert first.id != second.id
    assert first.holder.rpartition(":")[2].isdigit()
    assert (first.status, first.fence, first.is_held) == (RunStatus.UNSPECIFIED, "", False)
    async with first, second:
        assert "" < first.fence < second.fence
    with pytest.raises(RuntimeError, match=CANNOT_BE_ENTERED):
        async with first:
            pass


async def test_a_run_begins_its_session_with_settings(memory: AsyncMemoryClient, agent: str) -> None:
    session, queued = memory.session(agent=agent), memory.session(agent=agent)
    settings = SessionSettings(user_id="mia", labels={"channel": "web"})
    async with memory.run(session, create=settings):
        assert (await session.info()).user_id == "mia"
    await memory.enqueue_run(queued, create=settings)
    assert (await queued.info()).labels == {"channel": "web"}


@pytest.mark.parametrize(
    ("payload", "stored", "content_type"),
    [
        (b"\x00\xff", b"\x00\xff", ""),
        ("Zürich\x00", "Zürich\x00".encode(), "text/plain; charset=utf-8"),
        ({"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}'.encode(), "application/json"),
        (["a"], b'["a"]', "application/json"),
        (4.5, b"4.5", "application/json"),
        (True, b"true", "application/json"),
        (None, b"null", "application/json"),
    ],
)
async def test_a_payload_comes_back(
    memory: AsyncMemoryClient, agent: str, payload: Any, stored: bytes, content_type: str
) -> None:
    async with memory.run(memory.session(agent=agent)) as run:
        await run.step(payload)
        last = await run.resume()
        assert last is not None
        assert (last.payload, last.content_type) == (stored, content_type)
        assert last.text == stored.decode(errors="replace")
        assert (await run.step(payload, content_type="text/x-mine")).content_type == "text/x-mine"
        last = await run.resume()
        assert last is not None
        assert (last.number, last.content_type) == (2, "text/x-mine")


@pytest.mark.parametrize(
    ("payload", "error", "complaint"),
    [
        ({"a": object()}, TypeError, "payload is no JSON .*object.*; give bytes, text, or what JSON can say"),
        ({1, 2}, TypeError, "payload is no JSON .*set"),
        (datetime(2026, 7, 25, tzinfo=UTC), TypeError, "payload is no JSON .*datetime"),
        ({"a": float("nan")}, ValueError, "payload is no JSON"),
        (float("-inf"), ValueError, "payload is no JSON"),
        (ENDLESS, ValueError, "payload is no JSON"),
        ("\ud800", ValueError, "payload holds half of a surrogate pair"),
    ],
)
async def test_a_payload_that_is_no_json_is_named(
    memory: AsyncMemoryClient, agent: str, payload: Any, error: type[Exception], complaint: str
) -> None:
    async with memory.run(memory.session(agent=agent)) as run:
        for attempt in (
            run.step(payload),
            run.pause(RunStatus.INTERRUPTED, payload),
            run.finish(payload=payload),
        ):
            with pytest.raises(error, match=complaint):
                await attempt
        assert run.is_held


async def test_one_message_is_as_good_as_a_list_of_one(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    wrong: Any
    async with memory.run(session, "r") as run:
        assert (await run.step("a", messages=user("1"))).message_count == 1
        for wrong, kind in ((None, "None"), ("Hello!", "of type str"), ({}, "of type dict"), (5, "of type int")):
            for attempt in (
                run.step(messages=wrong),
                run.pause("interrupted", messages=wrong),
                run.finish(messages=wrong),
                session.append_all(wrong),
            ):
                with pytest.raises(TypeError, match=f"messages is {kind}; give a list of messages, for example"):
                    await attempt
        await run.pause(RunStatus.AWAITING_APPROVAL, messages=user("2"))
    async with memory.claim(session, "r") as run:
        await run.finish(messages=user("3"))
    await session.append_all(user("4"))
    assert [message.text async for message in session.messages()] == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("no seats", "ValueError: no seats"),
        ("", "ValueError"),
        ("half of a pair: \ud83d, a null: \0", "ValueError: half of a pair: ?, a null: \0"),
        ("ü" * MOST_OF_A_REASON, "ValueError: " + "ü" * ((MOST_OF_A_REASON - len("ValueError: ")) // 2)),
    ],
)
async def test_an_exception_fails_the_run_and_goes_on(
    memory: AsyncMemoryClient, agent: str, message: str, reason: str
) -> None:
    session = memory.session(agent=agent)
    error = ValueError(message)
    with pytest.raises(ValueError) as caught:
        async with memory.run(session, "r"):
            raise error
    assert caught.value is error
    info = await memory.get_run(session, "r")
    assert (info.status, info.reason) == (RunStatus.FAILED, reason)
    assert info.ended is not None


class Unspeakable(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise AttributeError("of the text")


async def test_an_exception_that_cannot_say_what_it_is_fails_the_run(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    error = Unspeakable()
    with pytest.raises(Unspeakable) as caught:
        async with memory.run(session, "r"):
            raise error
    assert caught.value is error
    info = await memory.get_run(session, "r")
    assert (info.status, info.reason) == (RunStatus.FAILED, "Unspeakable")


OUTAGES = [
    ServerUnavailable("away", code=StatusCode.UNAVAILABLE),
    StoreUnavailable("away", code=StatusCode.UNAVAILABLE),
    ServerDraining("away", code=StatusCode.UNAVAILABLE),
    DeadlineExceeded("away", code=StatusCode.DEADLINE_EXCEEDED),
    Contention("away", code=StatusCode.ABORTED),
]
OWN = [
    ValueError("away"),
    TimeoutError("away"),
    ConnectionError("away"),
    SessionNotFound("away", code=StatusCode.NOT_FOUND),
    EtagMismatch("away", code=StatusCode.ABORTED),
    SummarizerFailed("away", code=StatusCode.UNAVAILABLE),
    ExceptionGroup("away", [OUTAGES[0], ValueError("of its own")]),
]


@pytest.mark.parametrize(
    ("error", "status"),
    [(error, RunStatus.INTERRUPTED) for error in (*OUTAGES, ExceptionGroup("away", OUTAGES))]
    + [(error, RunStatus.FAILED) for error in OWN],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.value,
)
async def test_an_outage_of_memoryd_interrupts_a_run_and_another_error_fails_it(
    memory: AsyncMemoryClient, agent: str, error: Exception, status: RunStatus
) -> None:
    """What says nothing of the work is no end of it; also of a run that a worker's loop claimed."""
    session = memory.session(agent=agent)
    await memory.enqueue_run(session, "claimed")

    async def begun() -> None:
        async with memory.run(session, "begun"):
            raise error

    async def claimed() -> None:
        async for run in memory.claims(agent):
            async with run:
                raise error

    for work in (claimed, begun):
        with pytest.raises(type(error)) as caught:
            await work()
        assert caught.value is error
    for info in [info async for info in memory.runs(session=session)]:
        assert (info.status, info.reason, info.lease_expires) == (status, f"{type(error).__name__}: {error}", None)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_a_worker_that_is_told_to_stop_leaves_its_run_to_others(
    server: ServerProcess, agent: str, kind: type[BaseException]
) -> None:
    with MemoryClient(server.address) as memory:
        session = memory.session(agent=agent)

        def work() -> None:
            with memory.run(session, "r") as run:
                run.step("half way")
                raise kind

        with pytest.raises(kind):
            work()
        info = memory.get_run(session, "r")
        assert (info.status, info.reason, info.lease_expires) == (RunStatus.INTERRUPTED, kind.__name__, None)
        with memory.claim(session, "r") as again:
            last = again.resume()
            assert last is not None
            assert last.text == "half way"
            assert (again.steps, again.step().number) == (1, 2)
        assert memory.get_run(session, "r").recoveries == 0


@pytest.mark.parametrize("status", [RunStatus.AWAITING_APPROVAL, "awaiting_budget", RunStatus.INTERRUPTED])
async def test_a_paused_run_goes_on_elsewhere(
    memory: AsyncMemoryClient, connect: Connect, server: ServerProcess, agent: str, status: RunStatus | str
) -> None:
    """The step and the status are one commit; leaving the block then changes nothing."""
    session = memory.session(agent=agent)
    async with memory.run(session, "r", metadata="m") as run:
        await run.step("a")
        await run.pause(status, {"seat": "12A"}, reason="books a seat", messages=[assistant("Seat 12A?")])
        assert (run.status, run.steps, run.is_held) == (status, 2, False)
        with pytest.raises(RuntimeError, match="was given back; claim it to go on"):
            await run.step("b")
    paused = await memory.get_run(session, "r")
    assert (paused.status, paused.reason, paused.steps) == (status, "books a seat", 2)
    assert (paused.lease_expires, paused.ended) == (None, None)

    other = connect(server.address)
    async with other.claim(other.session(agent=agent, id=session.id), "r", holder="second") as again:
        assert (again.status, again.steps, again.metadata) == (RunStatus.RUNNING, 2, "m")
        assert again.fence > run.fence
        last = await again.resume()
        assert last is not None
        assert (last.number, last.json(), last.message_count) == (2, {"seat": "12A"}, 1)
        assert (await again.step("booked")).number == 3
    done = await memory.get_run(session, "r")
    assert (done.status, done.holder, done.recoveries) == (RunStatus.COMPLETED, "second", 0)


async def test_a_pause_without_a_payload_is_no_step(memory: AsyncMemoryClient, agent: str) -> None:
    """So that `resume` gives the last step that holds something."""
    session = memory.session(agent=agent)
    async with memory.run(session, "r") as run:
        await run.step("a")
        await run.pause(RunStatus.AWAITING_BUDGET, reason="no money")
    assert (await memory.get_run(session, "r")).steps == 1
    async with memory.claim(session, "r") as run:
        await run.pause(RunStatus.AWAITING_BUDGET, messages=[assistant("No money.")])
    async with memory.claim(session, "r") as run:
        last = await run.resume()
        assert last is not None
        assert (last.number, last.payload, last.message_count) == (2, b"", 1)


@pytest.mark.parametrize(
    "status",
    [
        RunStatus.COMPLETED,
        RunStatus.BLOCKED,
        RunStatus.FAILED,
        RunStatus.CANCELLED,
        RunStatus.TIMEOUT,
        RunStatus.ABANDONED,
    ],
)
@pytest.mark.parametrize("payload", [None, "why"])
async def test_a_run_ends_as_its_holder_says(
    memory: AsyncMemoryClient, agent: str, status: RunStatus, payload: str | None
) -> None:
    session = memory.session(agent=agent)
    run = memory.run(session, "r")

    async def work() -> None:
        async with run:
            await run.finish(status, reason="no seats", payload=payload)
            raise ValueError("of what came after")

    with pytest.raises(ValueError, match="of what came after"):
        await work()
    info = await memory.get_run(session, "r")
    assert (info.status, info.reason, info.steps) == (status, "no seats", 0 if payload is None else 1)
    assert info.ended is not None
    with pytest.raises(RunEnded) as error:
        async with memory.claim(session, "r"):
            pass
    assert error.value.status is status


async def test_a_status_that_does_not_fit_is_refused_before_any_call(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    async with memory.run(session, "r") as run:
        with pytest.raises(ValueError, match="status is 'completed', with which no run waits"):
            await run.pause(RunStatus.COMPLETED)
        for status in ("running", "interrupted"):
            with pytest.raises(ValueError, match=f"status is '{status}', with which no run ends"):
                await run.finish(status)
        with pytest.raises(ValueError, match="status is 'done'; it can be one of 'running', "):
            await run.finish("done")
        assert run.is_held
    assert (await memory.get_run(session, "r")).status is RunStatus.COMPLETED
    with pytest.raises(RuntimeError, match="is not held yet: enter it first"):
        await memory.run(session).step()


async def test_each_reason_has_its_error(memory: AsyncMemoryClient, agent: str) -> None:
    session, missing = memory.session(agent=agent), memory.session(agent=agent)
    message = assistant("Hello!")
    async with memory.run(session, "r", holder="first") as run:
        with pytest.raises(RunExists):
            await memory.enqueue_run(session, "r")
        with pytest.raises(RunNotClaimable) as error:
            async with memory.claim(session, "r"):
                pass
        assert error.value.holder == "first"
        with pytest.raises(RunUnfinished) as unfinished:
            await memory.delete_run(session, "r")
        assert unfinished.value.status is RunStatus.RUNNING
        await run.step("a", messages=[message])
        with pytest.raises(MessageIdConflict):
            await run.step("b", messages=[message])
        with pytest.raises(FieldInvalid):
            async with memory.run(session, lease=0.5):
                pass
    for attempt in (memory.get_run(session, "x"), listed(memory.run_steps(session, "x"))):
        with pytest.raises(RunNotFound):
            await attempt
    for attempt in (memory.get_run(missing, "x"), listed(memory.runs(session=missing))):
        with pytest.raises(SessionNotFound):
            await attempt


async def test_a_session_has_so_many_unfinished_runs_and_no_more(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    for _ in range(MOST_UNFINISHED):
        await memory.enqueue_run(session)
    with pytest.raises(TooManyRuns):
        async with memory.run(session):
            pass


async def test_runs_are_listed_newest_first(memory: AsyncMemoryClient, agent: str) -> None:
    one, two = memory.session(agent=agent), memory.session(agent=agent)
    assert await listed(memory.runs(agent=agent)) == []
    queued = await memory.enqueue_run(one, "a", metadata="m")
    assert (queued.status, queued.metadata, queued.holder) == (RunStatus.INTERRUPTED, "m", "")
    async with memory.run(two, "b"):
        pass
    await memory.enqueue_run(one, "c")
    assert await ids_of(memory.runs(agent=agent, page_size=1)) == ["c", "b", "a"]
    assert await ids_of(memory.runs(session=one)) == ["c", "a"]
    assert await ids_of(memory.runs(agent=agent, statuses=[RunStatus.COMPLETED])) == ["b"]
    for one_status in (RunStatus.COMPLETED, "completed"):
        assert await ids_of(memory.runs(agent=agent, statuses=one_status)) == ["b"]
    assert await ids_of(memory.runs(session=one, statuses=["interrupted", "running"])) == ["c", "a"]
    assert (await listed(memory.runs(session=one)))[1] == queued
    for neither in ({}, {"agent": agent, "session": one}):
        with pytest.raises(ValueError, match="give either agent or session"):
            await listed(memory.runs(**neither))  # type: ignore[arg-type]


async def test_anybody_who_has_read_a_run_may_change_it_once(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    queued = await memory.enqueue_run(session, "r")
    noted = await memory.update_run(queued, metadata="m")
    assert (noted.metadata, noted.status, noted.reason) == ("m", RunStatus.INTERRUPTED, "")
    with pytest.raises(EtagMismatch):
        await memory.update_run(queued, status=RunStatus.CANCELLED)
    waiting = await memory.update_run(noted, status="awaiting_approval", reason="books a seat")
    told = await memory.update_run(waiting, reason="books two seats")
    assert (told.status, told.reason, told.metadata) == (RunStatus.AWAITING_APPROVAL, "books two seats", "m")
    ended = await memory.update_run(told, status=RunStatus.CANCELLED)
    assert (ended.status, ended.reason) == (RunStatus.CANCELLED, "")
    with pytest.raises(RunEnded):
        await memory.update_run(ended, status=RunStatus.INTERRUPTED)
    with pytest.raises(ValueError, match="nothing to update: give status or reason or metadata"):
        await memory.update_run(ended)


async def test_an_ended_run_is_deleted_and_its_messages_stay(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    async with memory.run(session, "r") as run:
        await run.step("a", messages=[assistant("Hello!")])
    assert await memory.delete_run(session, "r") is True
    assert await memory.delete_run(session, "r") is False
    with pytest.raises(RunNotFound):
        await memory.get_run(session, "r")
    assert [message.text async for message in session.messages()] == ["Hello!"]


async def test_an_agent_says_how_long_its_runs_are_kept(memory: AsyncMemoryClient, agent: str) -> None:
    settings = memory.agent(agent)
    assert (await settings.info()).run_retention is None
    for given, stored in (
        (timedelta(days=7), timedelta(days=7)),
        (timedelta(0), timedelta(0)),
        (SERVERS_DEFAULT, None),
        (FOREVER, timedelta(0)),
    ):
        assert (await settings.update(run_retention=given)).run_retention == stored
        assert (await settings.update(load_memory=True)).run_retention == stored
    with pytest.raises(TypeError, match="run_retention is of type int; give a timedelta"):
        await settings.update(run_retention=30)  # type: ignore[arg-type]


async def test_an_erasure_counts_runs_and_steps(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    async with memory.run(session, create=SessionSettings(user_id=agent)) as run:
        await run.step("a")
        await run.step("b")
    await memory.enqueue_run(session)
    erased = await memory.erase_user(agent)
    assert (erased.session_count, erased.run_count, erased.run_step_count) == (1, 2, 2)


async def test_arguments_that_no_request_could_carry_are_named(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    wrong: Any = 5
    for make in (
        lambda: memory.run(wrong),
        lambda: memory.claim(wrong, "r"),
        lambda: memory.runs(session=wrong),
    ):
        with pytest.raises(TypeError, match=r"session is of type int; give (Async)?Session"):
            make()
    with pytest.raises(TypeError, match="id is of type int; give text"):
        memory.run(session, wrong)
    with pytest.raises(TypeError, match="info is of type int; give what get_run or runs told"):
        await memory.update_run(wrong, status="cancelled")
    for lease in (float("inf"), float("nan")):
        with pytest.raises(ValueError, match="lease is not finite; give the seconds that a lease lasts"):
            memory.run(session, lease=lease)
    with pytest.raises(ValueError, match=r"lease is 1e\+300; give the seconds that a lease lasts"):
        memory.run(session, lease=1e300)
    with pytest.raises(TypeError, match="lease is of type bool; give the seconds that a lease lasts"):
        memory.claim(session, "r", lease=True)
    for poll, complaint in ((0.0, "is 0"), (float("nan"), "is not finite")):
        with pytest.raises(ValueError, match=f"poll {complaint}; give the seconds between two questions for a run"):
            memory.claims(agent, poll=poll)


async def test_an_empty_id_names_no_run(memory: AsyncMemoryClient, agent: str) -> None:
    """A server would make an id in its place, which nobody knows."""
    session = memory.session(agent=agent)
    for make in (
        lambda: memory.run(session, ""),
        lambda: memory.claim(session, ""),
        lambda: memory.run_steps(session, ""),
    ):
        with pytest.raises(ValueError, match=r"id is empty; give the run's id, for example 'run-7'"):
            make()
    for call in (memory.enqueue_run, memory.get_run, memory.delete_run):
        with pytest.raises(ValueError, match=r"id is empty; give the run's id"):
            await call(session, "")
    with pytest.raises(SessionNotFound):
        await listed(memory.runs(session=session))


async def test_a_client_that_is_closed_gives_its_runs_back(
    memory: AsyncMemoryClient, connect: Connect, server: ServerProcess, agent: str
) -> None:
    """Nothing of the run is recorded from then on, and its block says so unless it says more."""

    async def work(id: str, then: Callable[[AsyncRun], Awaitable[object]] | None = None) -> None:
        other = connect(server.address)
        async with other.run(other.session(agent=agent, id="s"), id) as run:
            await other.close()
            assert (run.is_held, run.status) == (False, RunStatus.INTERRUPTED)
            if then is not None:
                await then(run)

    async def fail(run: AsyncRun) -> None:
        raise ValueError("of its own")

    with pytest.raises(RunLeaseLost, match=r"its client was closed, .* it is not recorded as completed"):
        await work("left")
    with pytest.raises(RunLeaseLost, match="its client was closed"):
        await work("stepped", lambda run: run.step("a"))
    with pytest.raises(ValueError, match="of its own"):
        await work("failed", fail)
    infos = await listed(memory.runs(agent=agent))
    assert {info.id for info in infos} == {"left", "stepped", "failed"}
    assert {info.status for info in infos} == {RunStatus.INTERRUPTED}


async def test_tasks_take_turns_with_the_calls_of_a_run(server: ServerProcess, agent: str) -> None:
    """Steps number themselves, also those of several tasks."""
    async with AsyncMemoryClient(server.address) as memory, memory.run(memory.session(agent=agent)) as run:
        steps = await asyncio.gather(*(run.step(str(number)) for number in range(20)))
        assert [step.number for step in steps] == [*range(1, 21)]
