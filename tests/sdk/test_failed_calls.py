"""What the clients make of calls that fail: tries again, typed errors, deadlines (design section 10)."""

import copy
import pickle
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message as ProtoMessage

import memoryd
from memoryd import (
    AnswerUnreadable,
    AsyncMemoryClient,
    DeadlineExceeded,
    InternalError,
    MemorydError,
    MethodUnknown,
    NotFound,
    ResourceExhausted,
    ServerUnavailable,
    SessionNotFound,
    StoredMemory,
    StoreUnavailable,
    Unavailable,
    WindowChanged,
    user,
)
from memoryd.decoding import run_info_from_proto
from memoryd.plans import STREAM_ATTEMPTS
from memoryd.v1 import error_reason_pb2
from memoryd.v1.agent_service_pb2 import GetAgentResponse, ListAgentsResponse
from memoryd.v1.history_service_pb2 import (
    AppendedMessage,
    AppendMessagesRequest,
    AppendMessagesResponse,
    ClearHistoryResponse,
    EraseUserResponse,
    ForkSessionResponse,
    GetMessageResponse,
    GetSessionResponse,
    ListMessagesResponse,
    ListSessionsResponse,
    RedactMessageResponse,
    RewindSessionResponse,
)
from memoryd.v1.memory_context_service_pb2 import (
    AddMemoryEntriesResponse,
    AppendDailyLogResponse,
    GetMemoryFileResponse,
    ListMemoryFilesResponse,
    ListMemoryFileVersionsResponse,
    PutMemoryFileResponse,
    RenderMemoryContextResponse,
)
from memoryd.v1.message_pb2 import Content, Message, Part, Role
from memoryd.v1.run_service_pb2 import (
    CreateRunResponse,
    GetRunResponse,
    ListRunsResponse,
    ListRunStepsResponse,
    Run,
    RunKey,
)
from memoryd.v1.session_pb2 import SessionKey
from memoryd.v1.store_service_pb2 import GetStoreResponse, ListStoresResponse
from memoryd.v1.window_service_pb2 import LoadWindowResponse, StreamWindowResponse, WindowStats
from tests.sdk.conftest import Connect
from tests.sdk.scripted_server import ScriptedServer, answers, fails

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
ABORTED = grpc.StatusCode.ABORTED

REASONS = {
    name.removeprefix("ERROR_REASON_"): number for name, number in error_reason_pb2.ErrorReason.items() if number
}
PIECE = StreamWindowResponse(messages=[Message(role=Role.ROLE_USER, seq=1), Message(role=Role.ROLE_ASSISTANT, seq=2)])
LAST_PIECE = StreamWindowResponse(stats=WindowStats(window_message_count=2))
TOO_LARGE = fails(grpc.StatusCode.FAILED_PRECONDITION, "WINDOW_TOO_LARGE", bytes="9", limit="3")


async def listed(items: Any) -> list[Any]:
    return [item async for item in items]


RUN = run_info_from_proto(Run(key=RunKey(session=SessionKey(agent="a", session_id="s"), run_id="r"), etag="e"))
READS: dict[str, tuple[Callable[[AsyncMemoryClient], Awaitable[Any]], ProtoMessage]] = {
    "ListMessages": (lambda memory: listed(memory.session(agent="a", id="s").messages()), ListMessagesResponse()),
    "GetMessage": (
        lambda memory: memory.session(agent="a", id="s").message(seq=1),
        GetMessageResponse(message=Message(role=Role.ROLE_USER)),
    ),
    "GetSession": (lambda memory: memory.session(agent="a", id="s").info(), GetSessionResponse()),
    "ListSessions": (lambda memory: listed(memory.sessions()), ListSessionsResponse()),
    "LoadWindow": (lambda memory: memory.session(agent="a", id="s").window(), LoadWindowResponse()),
    "GetAgent": (lambda memory: memory.agent("a").info(), GetAgentResponse()),
    "ListAgents": (lambda memory: listed(memory.agents()), ListAgentsResponse()),
    "GetStore": (lambda memory: memory.store(), GetStoreResponse()),
    "ListStores": (lambda memory: memory.stores(), ListStoresResponse()),
    "RenderMemoryContext": (
        lambda memory: memory.render_context(StoredMemory(user="mia")),
        RenderMemoryContextResponse(),
    ),
    "GetMemoryFile": (lambda memory: memory.files(user="mia").get(), GetMemoryFileResponse()),
    "ListMemoryFiles": (lambda memory: listed(memory.files(user="mia").list()), ListMemoryFilesResponse()),
    "ListMemoryFileVersions": (lambda memory: memory.files(user="mia").versions(), ListMemoryFileVersionsResponse()),
    "GetRun": (lambda memory: memory.get_run(memory.session(agent="a", id="s"), "r"), GetRunResponse()),
    "ListRuns": (lambda memory: listed(memory.runs(agent="a")), ListRunsResponse()),
    "ListRunSteps": (
        lambda memory: listed(memory.run_steps(memory.session(agent="a", id="s"), "r")),
        ListRunStepsResponse(),
    ),
}
CHANGES: dict[str, Callable[[AsyncMemoryClient], Awaitable[Any]]] = {
    "UpdateSession": lambda memory: memory.session(agent="a", id="s").update(user_id="u"),
    "UpdateAgent": lambda memory: memory.agent("a").update(policy=memoryd.Policy()),
    "ClearAgentHistory": lambda memory: memory.clear_agent("a"),
    "DeleteMemoryFile": lambda memory: memory.files(user="mia").delete("MEMORY.md"),
    "UpdateRun": lambda memory: memory.update_run(RUN, status="cancelled"),
    "DeleteRun": lambda memory: memory.delete_run(memory.session(agent="a", id="s"), "r"),
}


@pytest.mark.parametrize("method", READS)
async def test_reads_are_tried_again(method: str, connect: Connect, scripted: ScriptedServer) -> None:
    read, response = READS[method]
    scripted.script(method, fails(UNAVAILABLE), fails(UNAVAILABLE, "SERVER_DRAINING"), answers(response))
    await read(connect(scripted.address))
    assert len(scripted.asked(method)) == 3


@pytest.mark.parametrize("method", CHANGES)
async def test_changes_are_not_tried_again(method: str, connect: Connect, scripted: ScriptedServer) -> None:
    scripted.script(method, fails(UNAVAILABLE))
    with pytest.raises(Unavailable):
        await CHANGES[method](connect(scripted.address))
    assert len(scripted.asked(method)) == 1


async def test_the_largest_append_is_tried_again(connect: Connect, scripted: ScriptedServer) -> None:
    """gRPC sends again only what it has kept of a request, and keeps little unless it is told to."""
    response = AppendMessagesResponse(messages=[AppendedMessage(id=f"{number}", seq=number) for number in (1, 2)])
    scripted.script("AppendMessages", *[fails(UNAVAILABLE, "STORE_UNAVAILABLE")] * 2, answers(response))
    text = "x" * (7 * (1 << 20) // 4 - 500)
    await connect(scripted.address).session(agent="a").append(user(text), user(text))
    assert len(scripted.asked("AppendMessages")) == 3


async def test_an_append_is_tried_again_with_the_same_ids(connect: Connect, scripted: ScriptedServer) -> None:
    """Ids are made before the first try, so that a retried append is stored once (invariant 2)."""
    response = AppendMessagesResponse(messages=[AppendedMessage(id="a", seq=1)])
    scripted.script("AppendMessages", fails(UNAVAILABLE, "STORE_UNAVAILABLE", store="default"), answers(response))
    message = user("a")
    (appended,) = (
        await connect(scripted.address)
        .session(agent="a")
        .append(message, memoryd.Message(role=memoryd.Role.USER, id=""))
    )
    assert appended.seq == 1
    first, second = map(AppendMessagesRequest.FromString, scripted.asked("AppendMessages"))
    assert first == second
    assert first.session.session_id
    assert [len(sent.id) for sent in first.messages] == [32, 32]
    assert first.messages[0].id == message.id


async def test_tries_end_and_the_error_stays(connect: Connect, scripted: ScriptedServer) -> None:
    scripted.script("GetSession", *[fails(UNAVAILABLE, "STORE_UNAVAILABLE", store="main", correlation_id="c7")] * 5)
    with pytest.raises(StoreUnavailable) as error:
        await connect(scripted.address).session(agent="a").info(timeout=1)
    assert len(scripted.asked("GetSession")) > 1
    assert error.value.metadata == {"store": "main", "correlation_id": "c7"}
    assert str(error.value) == "text of STORE_UNAVAILABLE (correlation id c7)"


REPEATABLE: dict[str, tuple[Callable[[AsyncMemoryClient], Awaitable[Any]], ProtoMessage, bool]] = {
    "ClearHistory": (lambda memory: memory.session(agent="a", id="s").clear(), ClearHistoryResponse(), True),
    "RewindSession": (lambda memory: memory.session(agent="a", id="s").rewind(3), RewindSessionResponse(), True),
    "ForkSession": (lambda memory: memory.session(agent="a", id="s").fork(), ForkSessionResponse(), True),
    "RedactMessage": (
        lambda memory: memory.session(agent="a", id="s").redact(seq=3),
        RedactMessageResponse(message=Message(role=Role.ROLE_USER, seq=3)),
        False,
    ),
    "EraseUser": (lambda memory: memory.erase_user("mia"), EraseUserResponse(), False),
    "PutMemoryFile": (lambda memory: memory.files(user="mia").put("- a\n"), PutMemoryFileResponse(), True),
    "AddMemoryEntries": (lambda memory: memory.files(user="mia").add("- a"), AddMemoryEntriesResponse(), True),
    "AppendDailyLog": (lambda memory: memory.files(user="mia").log("a"), AppendDailyLogResponse(), True),
    "CreateRun": (lambda memory: memory.enqueue_run(memory.session(agent="a", id="s")), CreateRunResponse(), True),
}


@pytest.mark.parametrize("method", REPEATABLE)
async def test_a_change_is_tried_again_as_the_same_request(
    method: str, connect: Connect, scripted: ScriptedServer
) -> None:
    """Request ids (and a fork's name) are made before the first try, so that nothing happens twice (invariant 2)."""
    change, response, marked = REPEATABLE[method]
    scripted.script(method, fails(UNAVAILABLE), fails(UNAVAILABLE, "STORE_UNAVAILABLE"), answers(response))
    await change(connect(scripted.address))
    tries = scripted.asked(method)
    assert len(tries) == 3
    assert len(set(tries)) == 1
    scripted.script(method, answers(response))
    await change(connect(scripted.address))
    assert (scripted.asked(method)[-1] != tries[0]) is marked


@pytest.mark.parametrize("reason", REASONS)
async def test_every_reason_has_its_error(reason: str, connect: Connect, scripted: ScriptedServer) -> None:
    """One class a reason of the API: `SESSION_NOT_FOUND` is `SessionNotFound`."""
    names = {"INTERNAL": "InternalError", "LEASE_LOST": "RunLeaseLost"}
    expected = getattr(memoryd, names.get(reason, reason.title().replace("_", "")))
    scripted.script(
        "UpdateSession",
        fails(grpc.StatusCode.UNKNOWN, reason, retry_after=3, correlation_id="c7", field="a.b", extra="x"),
    )
    with pytest.raises(MemorydError) as caught:
        await connect(scripted.address).session(agent="a").update(user_id="u")
    error = caught.value
    assert type(error) is expected
    assert (error.reason, error.code, error.message) == (reason, grpc.StatusCode.UNKNOWN, f"text of {reason}")
    assert (error.correlation_id, error.metadata["extra"], error.retry_after) == ("c7", "x", 3)
    assert isinstance(error.__cause__, grpc.RpcError)
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (type(twin), str(twin), vars(twin)) == (type(error), str(error), vars(error))


async def test_a_new_reason_gives_the_class_of_the_status(connect: Connect, scripted: ScriptedServer) -> None:
    scripted.script("GetSession", fails(grpc.StatusCode.NOT_FOUND, "PLANET_NOT_FOUND", planet="x"))
    with pytest.raises(NotFound) as error:
        await connect(scripted.address).session(agent="a").info()
    assert (type(error.value), error.value.reason, error.value.metadata["planet"]) == (
        NotFound,
        "PLANET_NOT_FOUND",
        "x",
    )


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, ResourceExhausted),
        (grpc.StatusCode.INTERNAL, InternalError),
        (grpc.StatusCode.UNKNOWN, MemorydError),
        (grpc.StatusCode.PERMISSION_DENIED, MemorydError),
    ],
)
async def test_errors_from_elsewhere_have_no_reason(
    code: grpc.StatusCode, kind: type[MemorydError], connect: Connect, scripted: ScriptedServer
) -> None:
    """A proxy's errors carry no ErrorInfo of memoryd."""
    scripted.script("GetSession", fails(code))
    with pytest.raises(MemorydError) as error:
        await connect(scripted.address).session(agent="a").info()
    assert (type(error.value), error.value.code, error.value.reason, error.value.metadata) == (kind, code, "", {})
    assert str(error.value) == f"GetSession failed at {scripted.address} with {code.name}: text of {code.name}"


async def test_spoiled_details_do_not_hide_the_error(connect: Connect, scripted: ScriptedServer) -> None:
    def spoiled(request: bytes, context: grpc.ServicerContext) -> list[Any]:
        context.set_trailing_metadata((("grpc-status-details-bin", b"\xff\xff"),))
        context.abort(grpc.StatusCode.NOT_FOUND, "text")

    scripted.script("GetSession", spoiled)
    with pytest.raises(NotFound):
        await connect(scripted.address).session(agent="a").info()


async def test_another_service_at_the_address_is_named(connect: Connect, scripted: ScriptedServer) -> None:
    with pytest.raises(MethodUnknown, match=f"the server at {scripted.address} does not know GetSession"):
        await connect(scripted.address).session(agent="a").info()


async def test_a_missing_server_says_where_and_what_to_do(connect: Connect) -> None:
    with pytest.raises(ServerUnavailable) as error:
        await connect("127.0.0.1:9").session(agent="a").update(user_id="u")
    assert error.value.code is UNAVAILABLE
    assert "no memoryd server answers at 127.0.0.1:9" in str(error.value)
    assert "Start one with `memoryd serve`" in str(error.value)


async def test_calls_end_with_their_deadline(connect: Connect, scripted: ScriptedServer) -> None:
    """The client's timeout holds for each operation, retries included; an operation may bring its own."""
    over = threading.Event()

    def hangs(request: bytes, context: grpc.ServicerContext) -> list[Any]:
        over.wait()
        return [GetSessionResponse()]

    try:
        scripted.script("GetSession", fails(UNAVAILABLE), hangs)
        with pytest.raises(DeadlineExceeded) as error:
            await connect(scripted.address, timeout=0.5).session(agent="a").info()
        assert error.value.code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert f"GetSession did not end within 0.5 s at {scripted.address}" in str(error.value)
        scripted.script("GetSession", hangs)
        with pytest.raises(DeadlineExceeded, match=r"within 0\.25 s"):
            await connect(scripted.address).session(agent="a").info(timeout=0.25)
    finally:
        over.set()


async def test_a_deadline_that_is_over_sends_nothing(connect: Connect, scripted: ScriptedServer) -> None:
    """gRPC would send the call all the same, and take an answer that comes soon enough."""
    with pytest.raises(DeadlineExceeded) as error:
        await connect(scripted.address).session(agent="a").append(user("a"), timeout=1e-9)
    assert error.value.code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert f"AppendMessages was not sent to {scripted.address}: the 1e-09 s of the operation" in str(error.value)
    assert scripted.requests == []


async def test_a_deadline_that_ended_the_tries_names_what_may_have_been(
    connect: Connect, scripted: ScriptedServer
) -> None:
    """gRPC drops the errors of the tries before, so the text says where the cause can be found."""
    over = threading.Event()

    def hangs(request: bytes, context: grpc.ServicerContext) -> list[Any]:
        over.wait()
        return [GetSessionResponse()]

    try:
        scripted.script("GetSession", fails(UNAVAILABLE, "STORE_UNAVAILABLE", store="main"), hangs)
        scripted.script("ClearAgentHistory", hangs)
        memory = connect(scripted.address, timeout=0.5)
        with pytest.raises(DeadlineExceeded, match="its store was unavailable and the call was tried again") as error:
            await memory.session(agent="a").info()
        assert "see the server's log, and stores() tells which stores answer now" in str(error.value)
        with pytest.raises(DeadlineExceeded, match="read before you repeat it") as error:
            await memory.clear_agent("a")
        assert "tried again" not in str(error.value)
    finally:
        over.set()


async def test_the_clients_deadline_is_30_seconds(connect: Connect, scripted: ScriptedServer) -> None:
    left: list[float] = []

    def look(request: bytes, context: grpc.ServicerContext) -> list[Any]:
        left.append(context.time_remaining())
        return [GetSessionResponse()]

    scripted.script("GetSession", look)
    await connect(scripted.address).session(agent="a").info()
    assert 25 < left[0] < 31


async def test_the_store_is_named_in_every_request(connect: Connect, scripted: ScriptedServer) -> None:
    scripted.script("GetSession", answers(GetSessionResponse()), answers(GetSessionResponse()))
    await connect(scripted.address, store="second").session(agent="a").info()
    await connect(scripted.address).session(agent="a").info()
    assert scripted.metadata[0]["memoryd-store"] == "second"
    assert "memoryd-store" not in scripted.metadata[1]


async def test_an_empty_page_is_not_the_end(connect: Connect, scripted: ScriptedServer) -> None:
    """A filtered page may hold no message and still have a next one (AIP-158)."""
    message = Message(role=Role.ROLE_USER, seq=7)
    scripted.script(
        "ListMessages",
        answers(ListMessagesResponse(next_page_token="p2")),
        answers(ListMessagesResponse(messages=[message], next_page_token="p3")),
        answers(ListMessagesResponse()),
    )
    session = connect(scripted.address).session(agent="a")
    assert [m.seq async for m in session.messages(roles=["user"], page_size=5)] == [7]
    asked = [memoryd.v1.history_service_pb2.ListMessagesRequest.FromString(r) for r in scripted.asked("ListMessages")]
    assert [request.page_token for request in asked] == ["", "p2", "p3"]
    assert {(request.page_size, tuple(request.filter.roles)) for request in asked} == {(5, (Role.ROLE_USER,))}


async def test_a_large_window_is_streamed(connect: Connect, scripted: ScriptedServer) -> None:
    scripted.script("LoadWindow", TOO_LARGE)
    scripted.script("StreamWindow", answers(PIECE, PIECE, LAST_PIECE))
    window = await connect(scripted.address).session(agent="a", id="s").window(messages=7, explain=True)
    assert [message.seq for message in window] == [1, 2, 1, 2]
    assert window.stats.window_message_count == 2
    assert scripted.asked("LoadWindow") == scripted.asked("StreamWindow")


async def test_a_stream_that_breaks_off_begins_again(connect: Connect, scripted: ScriptedServer) -> None:
    """Nothing of the broken stream is in the window; each attempt is whole (invariant 6)."""
    scripted.script("LoadWindow", TOO_LARGE)
    scripted.script(
        "StreamWindow",
        fails(ABORTED, "WINDOW_CHANGED", after=[PIECE]),
        fails(UNAVAILABLE, "SERVER_DRAINING", after=[PIECE]),
        answers(PIECE, LAST_PIECE),
    )
    window = await connect(scripted.address).session(agent="a").window()
    assert [message.seq for message in window] == [1, 2]
    assert len(scripted.asked("StreamWindow")) == 3


async def test_a_window_that_keeps_changing_is_an_error(connect: Connect, scripted: ScriptedServer) -> None:
    scripted.script("LoadWindow", TOO_LARGE)
    scripted.script("StreamWindow", *[fails(ABORTED, "WINDOW_CHANGED", after=[PIECE])] * STREAM_ATTEMPTS)
    with pytest.raises(WindowChanged):
        await connect(scripted.address).session(agent="a").window()
    assert len(scripted.asked("StreamWindow")) == STREAM_ATTEMPTS


async def test_other_errors_of_a_stream_are_not_tried_again(connect: Connect, scripted: ScriptedServer) -> None:
    scripted.script("LoadWindow", TOO_LARGE)
    scripted.script("StreamWindow", fails(grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND", after=[PIECE]))
    with pytest.raises(SessionNotFound):
        await connect(scripted.address).session(agent="a").window()


@pytest.mark.parametrize("pieces", [(), (PIECE,)])
async def test_a_stream_without_stats_is_no_window(
    pieces: tuple[StreamWindowResponse, ...], connect: Connect, scripted: ScriptedServer
) -> None:
    scripted.script("LoadWindow", TOO_LARGE)
    scripted.script("StreamWindow", answers(*pieces))
    with pytest.raises(AnswerUnreadable, match="the window is not whole"):
        await connect(scripted.address).session(agent="a").window()


@pytest.mark.parametrize(
    "message",
    [
        Message(role=Role.Value("ROLE_TOOL") + 90, seq=1),  # type: ignore[arg-type]
        Message(role=Role.ROLE_USER, content=Content(parts=[Part()])),
    ],
)
async def test_what_a_newer_server_sends_is_no_silent_loss(
    message: Message, connect: Connect, scripted: ScriptedServer
) -> None:
    """A failed read is an error, never an empty result (invariant 12)."""
    scripted.script("GetMessage", answers(GetMessageResponse(message=message)))
    with pytest.raises(AnswerUnreadable, match="pip install --upgrade memoryd"):
        await connect(scripted.address).session(agent="a").message(seq=1)


async def test_an_unknown_enum_of_a_newer_server_is_unspecified(connect: Connect, scripted: ScriptedServer) -> None:
    stats = WindowStats(mode=77, summary_state=78)  # type: ignore[arg-type]
    scripted.script("LoadWindow", answers(LoadWindowResponse(stats=stats)))
    window = await connect(scripted.address).session(agent="a").window()
    assert window.stats.mode is memoryd.WindowMode.UNSPECIFIED
    assert window.stats.summary_state is memoryd.SummaryState.UNSPECIFIED
