"""Watches of a server whose answers are scripted: what ends them, what they resume after, and where they go on."""

import asyncio
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message as ProtoMessage

import memoryd.watching
from memoryd import (
    AnswerUnreadable,
    AsyncMemoryClient,
    InternalError,
    InvalidArgument,
    MemorydError,
    MethodUnknown,
    ResumeTokenInvalid,
    ServerUnavailable,
    SessionNotFound,
    Unauthenticated,
    WatchEvent,
    WatchEventKind,
)
from memoryd.v1.history_service_pb2 import WatchEvent as ProtoEvent
from memoryd.v1.history_service_pb2 import WatchEventKind as ProtoKind
from memoryd.v1.history_service_pb2 import WatchMessagesRequest, WatchMessagesResponse
from memoryd.v1.message_pb2 import Message, Role
from tests.sdk.conftest import Connect
from tests.sdk.scripted_server import Answer, ScriptedServer, answers, fails

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
APPENDED = ProtoKind.WATCH_EVENT_KIND_APPENDED


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memoryd.watching, "FIRST_PAUSE", 0.001)


def stands(token: str = "t0") -> WatchMessagesResponse:
    """The first answer of every watch."""
    return WatchMessagesResponse(resume_token=token)


def told(*seqs: int) -> WatchMessagesResponse:
    """An answer with messages of these seqs; each event's token is `t` and its seq."""
    events = [
        ProtoEvent(
            kind=APPENDED,
            from_seq=seq,
            to_seq=seq,
            message=Message(role=Role.ROLE_USER, seq=seq, id=f"m{seq}"),
            resume_token=f"t{seq}",
        )
        for seq in seqs
    ]
    return WatchMessagesResponse(events=events, resume_token=f"t{seqs[-1]}")


def waits(*before: ProtoMessage, ended: threading.Event) -> Answer:
    """The stream says this, and then nothing until its caller cancels it, which sets `ended`."""

    def answer(request: bytes, context: grpc.ServicerContext) -> Iterator[ProtoMessage]:
        context.add_callback(ended.set)
        yield from before
        ended.wait()

    return answer


def asked(scripted: ScriptedServer) -> list[tuple[str, int | None]]:
    """Where each call asked to begin: token and seq."""
    requests = map(WatchMessagesRequest.FromString, scripted.asked("WatchMessages"))
    return [
        (request.resume_token, request.after_seq if request.HasField("after_seq") else None) for request in requests
    ]


async def taken(watch: Any, count: int) -> list[WatchEvent]:
    """The next events of a watch."""
    return [await anext(watch) for _ in range(count)]


def seqs(events: Sequence[WatchEvent]) -> list[int]:
    return [event.from_seq for event in events]


INTERRUPTIONS: dict[str, Answer] = {
    "unavailable": fails(UNAVAILABLE, after=[told(3)]),
    "drain": fails(UNAVAILABLE, "SERVER_DRAINING", after=[told(3)]),
    "store": fails(UNAVAILABLE, "STORE_UNAVAILABLE", after=[told(3)]),
    "stalled": fails(grpc.StatusCode.ABORTED, "WATCH_STALLED", after=[told(3)]),
    "too many watchers": fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_WATCHERS", after=[told(3)]),
    "deadline": fails(grpc.StatusCode.DEADLINE_EXCEEDED, after=[told(3)]),
    "cancelled on the way": fails(grpc.StatusCode.CANCELLED, after=[told(3)]),
    "reset on the way": fails(grpc.StatusCode.INTERNAL, after=[told(3)]),
    "ended": answers(told(3)),
}


@pytest.mark.parametrize("interruption", INTERRUPTIONS)
async def test_a_watch_resumes_behind_what_it_gave(
    interruption: str, connect: Connect, scripted: ScriptedServer
) -> None:
    over = threading.Event()
    scripted.script(
        "WatchMessages",
        answers(stands(), told(1, 2)),
        INTERRUPTIONS[interruption],
        fails(UNAVAILABLE),
        waits(stands("t3"), told(4), ended=over),
    )
    async with connect(scripted.address).session(agent="a", id="s").watch(after_seq=0) as watch:
        assert watch.resume_token == "t0"
        assert seqs(await taken(watch, 4)) == [1, 2, 3, 4]
        assert watch.resume_token == "t4"
    assert asked(scripted) == [("", 0), ("t2", None), ("t3", None), ("t3", None)]
    assert over.wait(20), "closing the watch did not cancel its call"


async def test_a_watch_without_a_place_begins_with_what_happens_now(connect: Connect, scripted: ScriptedServer) -> None:
    """Once it stands, its place is that of the first answer: what happens while it is broken off is not lost."""
    over = threading.Event()
    scripted.script("WatchMessages", fails(UNAVAILABLE), answers(stands("now")), waits(told(9), ended=over))
    async with connect(scripted.address).session(agent="a", id="s").watch() as watch:
        assert seqs(await taken(watch, 1)) == [9]
    assert asked(scripted) == [("", None), ("", None), ("now", None)]


async def test_a_watch_goes_on_where_a_token_says(connect: Connect, scripted: ScriptedServer) -> None:
    scripted.script("WatchMessages", waits(told(8), ended=threading.Event()))
    async with connect(scripted.address).session(agent="a", id="s").watch(resume_token="t7") as watch:
        assert seqs(await taken(watch, 1)) == [8]
    assert asked(scripted) == [("t7", None)]


ENDS: dict[str, tuple[grpc.StatusCode, str, type[MemorydError]]] = {
    "not found": (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND", SessionNotFound),
    "foreign token": (grpc.StatusCode.INVALID_ARGUMENT, "RESUME_TOKEN_INVALID", ResumeTokenInvalid),
    "invalid": (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID", InvalidArgument),
    "unauthenticated": (grpc.StatusCode.UNAUTHENTICATED, "CREDENTIAL_INVALID", Unauthenticated),
    "old server": (grpc.StatusCode.UNIMPLEMENTED, "", MethodUnknown),
    "fault of the server": (grpc.StatusCode.INTERNAL, "INTERNAL", InternalError),
}


@pytest.mark.parametrize("end", ENDS)
async def test_what_is_of_no_use_to_try_again_ends_a_watch(
    end: str, connect: Connect, scripted: ScriptedServer
) -> None:
    code, reason, kind = ENDS[end]
    scripted.script("WatchMessages", fails(code, reason, after=[stands(), told(1)]))
    watch = connect(scripted.address).session(agent="a", id="s").watch()
    assert seqs(await taken(watch, 1)) == [1]
    with pytest.raises(kind):
        await anext(watch)
    assert len(scripted.asked("WatchMessages")) == 1
    await watch.close()


@pytest.mark.parametrize("code", [grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN])
async def test_what_never_stood_is_told_and_not_tried_again(
    code: grpc.StatusCode, connect: Connect, scripted: ScriptedServer
) -> None:
    """A wrong address answers like a lost connection; only a watch that stood once can have lost one."""
    scripted.script("WatchMessages", fails(code))
    with pytest.raises(MemorydError):
        async with connect(scripted.address).session(agent="a", id="s").watch():
            pass
    assert len(scripted.asked("WatchMessages")) == 1


async def test_a_caller_can_bound_the_tries(connect: Connect) -> None:
    session = connect("127.0.0.1:9").session(agent="a", id="s")
    with pytest.raises(ServerUnavailable, match=r"no memoryd server answers at 127\.0\.0\.1:9"):
        await anext(session.watch(retry_for=0))
    with pytest.raises(ServerUnavailable):
        await anext(session.watch(retry_for=0.05))


async def test_after_an_error_a_watch_can_go_on(connect: Connect, scripted: ScriptedServer) -> None:
    scripted.script(
        "WatchMessages",
        fails(UNAVAILABLE, after=[told(1, 2)]),
        waits(told(2, 3), ended=threading.Event()),
    )
    watch = connect(scripted.address).session(agent="a", id="s").watch(retry_for=0)
    assert seqs(await taken(watch, 2)) == [1, 2]
    with pytest.raises(ServerUnavailable):
        await anext(watch)
    assert seqs(await taken(watch, 1)) == [2]
    assert [token for token, _ in asked(scripted)] == ["", "t2"]
    await watch.close()


async def test_every_kind_of_event_has_its_name(connect: Connect, scripted: ScriptedServer) -> None:
    kinds = [number for number in ProtoKind.values() if number]
    numbers: list[Any] = [*kinds, 99]
    events = [ProtoEvent(kind=kind, from_seq=3, to_seq=5, resume_token=f"t{kind}") for kind in numbers]
    scripted.script(
        "WatchMessages", waits(WatchMessagesResponse(events=events, resume_token="end"), ended=threading.Event())
    )
    async with connect(scripted.address).session(agent="a", id="s").watch() as watch:
        given = await taken(watch, len(events))
        assert watch.resume_token == "end"
    assert [event.kind for event in given] == [
        *(WatchEventKind[ProtoKind.Name(kind).removeprefix("WATCH_EVENT_KIND_")] for kind in kinds),
        WatchEventKind.UNSPECIFIED,
    ]
    assert {(event.from_seq, event.to_seq, event.message, event.event_time) for event in given} == {(3, 5, None, None)}
    assert [event.resume_token for event in given] == [event.resume_token for event in events]


async def test_an_unreadable_event_is_an_error_each_time_and_never_passed_over(
    connect: Connect, scripted: ScriptedServer
) -> None:
    """A failed read is an error, never an empty result (invariant 12)."""
    unknown = WatchMessagesResponse(
        events=[ProtoEvent(kind=APPENDED, message=Message(role=99), resume_token="t2")],  # type: ignore[arg-type]
        resume_token="t2",
    )
    scripted.script("WatchMessages", answers(told(1), unknown), answers(unknown))
    watch = connect(scripted.address).session(agent="a", id="s").watch()
    await taken(watch, 1)
    for _ in range(2):
        with pytest.raises(AnswerUnreadable, match="a newer one may"):
            await anext(watch)
    assert [token for token, _ in asked(scripted)] == ["", "t1"]
    await watch.close()


async def test_interruptions_are_logged(
    connect: Connect, scripted: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    scripted.script(
        "WatchMessages",
        fails(UNAVAILABLE, "SERVER_DRAINING", after=[told(1)]),
        fails(UNAVAILABLE),
        waits(told(2), ended=threading.Event()),
    )
    with caplog.at_level(logging.INFO, "memoryd"):
        async with connect(scripted.address).session(agent="a", id="s").watch() as watch:
            await taken(watch, 2)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "the watch of session 's' broke off and is resumed: text of SERVER_DRAINING"),
        ("INFO", "the watch of session 's' goes on"),
    ]


async def test_closing_a_watch_ends_an_iteration_that_waits(connect: Connect, scripted: ScriptedServer) -> None:
    over = threading.Event()
    scripted.script("WatchMessages", waits(stands(), ended=over))
    watch = await connect(scripted.address).session(agent="a", id="s").watch().__aenter__()

    async def all_events() -> list[WatchEvent]:
        return [event async for event in watch]

    waiting = asyncio.create_task(all_events())
    await asyncio.sleep(0)
    await watch.close()
    assert await waiting == []
    assert await asyncio.to_thread(over.wait, 20)
    assert [event async for event in watch] == []


async def test_closing_a_watch_ends_its_pause(
    connect: Connect, scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memoryd.watching, "FIRST_PAUSE", 3600.0)
    monkeypatch.setattr(memoryd.watching, "LONGEST_PAUSE", 3600.0)
    over = threading.Event()

    def break_off(request: bytes, context: grpc.ServicerContext) -> Iterator[ProtoMessage]:
        context.add_callback(over.set)
        yield from fails(UNAVAILABLE)(request, context)

    scripted.script("WatchMessages", break_off)
    watch = connect(scripted.address).session(agent="a", id="s").watch()

    async def all_events() -> list[WatchEvent]:
        return [event async for event in watch]

    waiting = asyncio.create_task(all_events())
    assert await asyncio.to_thread(over.wait, 20)
    await watch.close()
    assert await waiting == []


async def test_a_closed_client_ends_its_watches(connect: Connect, scripted: ScriptedServer) -> None:
    over = threading.Event()
    scripted.script("WatchMessages", waits(stands(), ended=over))
    memory = connect(scripted.address)
    watch = await memory.session(agent="a", id="s").watch().__aenter__()
    waiting = asyncio.create_task(anext(watch))
    await asyncio.sleep(0)
    await memory.close()
    with pytest.raises(RuntimeError, match="this client is closed"):
        await waiting
    assert await asyncio.to_thread(over.wait, 20)


async def test_a_cancelled_task_cancels_the_call_and_loses_no_event(scripted: ScriptedServer) -> None:
    first, second = threading.Event(), threading.Event()
    scripted.script("WatchMessages", waits(stands(), told(1), ended=first), waits(told(2), ended=second))
    async with AsyncMemoryClient(scripted.address) as memory, memory.session(agent="a", id="s").watch() as watch:
        assert seqs(await taken(watch, 1)) == [1]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(watch), 0.05)
        assert await asyncio.to_thread(first.wait, 20)
        assert seqs(await taken(watch, 1)) == [2]
    assert [token for token, _ in asked(scripted)] == ["", "t1"]


async def test_a_watch_has_no_deadline(connect: Connect, scripted: ScriptedServer) -> None:
    left: list[float | None] = []

    def look(request: bytes, context: grpc.ServicerContext) -> Iterator[ProtoMessage]:
        left.append(context.time_remaining())
        yield told(1)

    scripted.script("WatchMessages", look)
    watch = connect(scripted.address, timeout=5).session(agent="a", id="s").watch()
    await taken(watch, 1)
    # gRPC tells the absence of a deadline as the end of time.
    assert left[0] is None or left[0] > 1e6
    await watch.close()


async def test_a_watch_begins_at_one_place(connect: Connect) -> None:
    session = connect("127.0.0.1:9").session(agent="a", id="s")
    with pytest.raises(ValueError, match="give either resume_token or after_seq"):
        session.watch(resume_token="t", after_seq=0)
    with pytest.raises(TypeError, match="after_seq is of type str"):
        session.watch(after_seq="1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="retry_for is not finite"):
        session.watch(retry_for=float("inf"))
