"""What tests say on the wire: bare stubs on a channel, the messages that they send, and the errors that come back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import grpc
import grpc.aio
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from memoryd.v1 import (
    agent_service_pb2_grpc,
    history_service_pb2_grpc,
    memory_context_service_pb2_grpc,
    run_service_pb2_grpc,
    store_service_pb2_grpc,
    summary_service_pb2_grpc,
    window_service_pb2_grpc,
)
from memoryd.v1 import error_reason_pb2 as reasons
from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import message_pb2 as pb
from memoryd.v1 import summary_service_pb2 as summaries
from memoryd.v1 import window_service_pb2 as window
from memoryd.v1.session_pb2 import Session, SessionKey

CORRELATION_METADATA: Final = "memoryd-correlation-id"
STORE_METADATA: Final = "memoryd-store"

Metadata = tuple[tuple[str, str], ...]


class Stubs:
    """The generated stubs of all services on one channel with gRPC's default options, as any client would have them."""

    def __init__(self, address: str, *options: tuple[str, Any], token: str = "") -> None:
        self.channel = grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0), *options])
        if token:
            self.channel = grpc.intercept_channel(self.channel, Bearer(token))
        self.histories = history_service_pb2_grpc.HistoryServiceStub(self.channel)
        self.windows = window_service_pb2_grpc.WindowServiceStub(self.channel)
        self.agents = agent_service_pb2_grpc.AgentServiceStub(self.channel)
        self.stores = store_service_pb2_grpc.StoreServiceStub(self.channel)
        self.summaries = summary_service_pb2_grpc.SummaryServiceStub(self.channel)
        self.memory = memory_context_service_pb2_grpc.MemoryContextServiceStub(self.channel)
        self.runs = run_service_pb2_grpc.RunServiceStub(self.channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.channel.close()

    def append(
        self, key: SessionKey, *messages: pb.Message, metadata: Metadata = (), **fields: Any
    ) -> list[history.AppendedMessage]:
        """Appends; `fields` are those of the request."""
        request = history.AppendMessagesRequest(session=key, messages=messages, **fields)
        return list(self.histories.AppendMessages(request, timeout=30, metadata=metadata).messages)

    def pages(self, key: SessionKey, **fields: Any) -> list[list[pb.Message]]:
        """All pages of a list."""
        pages: list[list[pb.Message]] = []
        token = ""
        while True:
            request = history.ListMessagesRequest(session=key, page_token=token, **fields)
            answer = self.histories.ListMessages(request, timeout=30)
            pages.append(list(answer.messages))
            token = answer.next_page_token
            if not token:
                return pages

    def messages(self, key: SessionKey, **fields: Any) -> list[pb.Message]:
        """All messages of a list."""
        return list(itertools.chain.from_iterable(self.pages(key, **fields)))

    def session(self, key: SessionKey) -> Session:
        return self.histories.GetSession(history.GetSessionRequest(session=key), timeout=30).session

    def clear(self, key: SessionKey) -> int:
        return self.histories.ClearHistory(history.ClearHistoryRequest(session=key), timeout=30).cleared_message_count

    def load(self, key: SessionKey, explain: bool = False, **options: Any) -> window.LoadWindowResponse:
        """Loads a window; `options` are those of WindowOptions."""
        request = window.LoadWindowRequest(session=key, options=options, explain=explain)  # type: ignore[arg-type]
        return self.windows.LoadWindow(request, timeout=30)

    def stream(self, key: SessionKey, explain: bool = False, **options: Any) -> list[window.StreamWindowResponse]:
        """Streams a window; `options` are those of WindowOptions."""
        request = window.StreamWindowRequest(session=key, options=options, explain=explain)  # type: ignore[arg-type]
        return list(self.windows.StreamWindow(request, timeout=60))

    def lease(self, key: SessionKey, **fields: Any) -> summaries.SummaryTask:
        """Leases the task that must wait; `fields` are those of the request."""
        request = summaries.LeaseSummaryTaskRequest(session=key, **fields)
        answer = self.summaries.LeaseSummaryTask(request, timeout=30)
        assert answer.HasField("task")
        return answer.task

    def commit(self, task: summaries.SummaryTask, said: str, **fields: Any) -> summaries.Summary:
        request = summaries.CommitSummaryRequest(session=task.session, task_token=task.task_token, text=said, **fields)
        return self.summaries.CommitSummary(request, timeout=30).summary

    def abandon(self, task: summaries.SummaryTask, *, failed: bool = False) -> None:
        request = summaries.AbandonSummaryTaskRequest(session=task.session, task_token=task.task_token, failed=failed)
        self.summaries.AbandonSummaryTask(request, timeout=30)

    def chain(self, key: SessionKey) -> list[summaries.Summary]:
        """The summaries of a session, the current one first."""
        return list(self.summaries.ListSummaries(summaries.ListSummariesRequest(session=key), timeout=30).summaries)


class Bearer(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamStreamClientInterceptor):
    """Shows a token with every call."""

    def __init__(self, token: str) -> None:
        self._shown = ("authorization", f"Bearer {token}")

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._showing(client_call_details), request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._showing(client_call_details), request)

    def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return continuation(self._showing(client_call_details), request_iterator)

    def _showing(self, details: Any) -> Any:
        return details._replace(metadata=(*(details.metadata or ()), self._shown))


_sessions = itertools.count(1)


def new_key(agent: str) -> SessionKey:
    """A session of an agent that no other test uses."""
    return SessionKey(agent=agent, session_id=f"s{next(_sessions)}")


def text(said: str, role: pb.Role.ValueType = pb.ROLE_USER, **fields: Any) -> pb.Message:
    """A message that says one text."""
    return pb.Message(role=role, content=pb.Content(parts=[pb.Part(text=said)]), **fields)


def calls(*ids: str, **fields: Any) -> pb.Message:
    """A message of the model that makes calls with these ids."""
    parts = [pb.Part(tool_call=pb.ToolCall(id=id_, name="search", arguments='{"q": 1}')) for id_ in ids]
    return pb.Message(role=pb.ROLE_ASSISTANT, content=pb.Content(parts=parts), **fields)


def results(*ids: str, role: pb.Role.ValueType = pb.ROLE_TOOL, said: str = "found", **fields: Any) -> pb.Message:
    """A message that answers calls with these ids."""
    parts = [pb.Part(tool_result=pb.ToolResult(call_id=id_, parts=[pb.Part(text=said)])) for id_ in ids]
    return pb.Message(role=role, content=pb.Content(parts=parts), **fields)


def seqs(messages: Iterable[pb.Message | history.AppendedMessage]) -> list[int]:
    return [message.seq for message in messages]


def as_sent(message: pb.Message) -> pb.Message:
    """A stored message without what the server adds to it."""
    sent = pb.Message()
    sent.CopyFrom(message)
    for field in ("seq", "create_time", "token_count"):
        sent.ClearField(field)
    return sent


@dataclass(frozen=True)
class Refusal:
    """How a call failed."""

    code: grpc.StatusCode
    text: str
    reason: str
    metadata: Mapping[str, str]
    retry_seconds: float | None
    trailing: Mapping[str, str | bytes]

    @property
    def correlation_id(self) -> str:
        return self.metadata["correlation_id"]


def refusal_of(error: grpc.RpcError) -> Refusal:
    """Reads an error, and checks what holds for every one of memoryd (design section 3): one ErrorInfo in its domain,
    with a reason of the API and the correlation id that the trailing metadata has too."""
    failed: Any = error
    trailing = {str(key): value for key, value in failed.trailing_metadata() or ()}
    packed = trailing.get("grpc-status-details-bin")
    assert isinstance(packed, bytes), f"no status details: {failed.code()} {failed.details()}"
    status = Status.FromString(packed)
    assert status.code == failed.code().value[0]
    assert status.message == failed.details()
    infos: list[ErrorInfo] = []
    retry_seconds: float | None = None
    for detail in status.details:
        info, retry = ErrorInfo(), RetryInfo()
        if detail.Unpack(info):
            infos.append(info)
        elif detail.Unpack(retry):
            retry_seconds = retry.retry_delay.ToTimedelta().total_seconds()
    assert len(infos) == 1
    (info,) = infos
    assert info.domain == "memoryd"
    assert f"ERROR_REASON_{info.reason}" in reasons.ErrorReason.keys()  # noqa: SIM118 - an enum of protobuf is no dictionary
    assert info.metadata["correlation_id"] == trailing[CORRELATION_METADATA]
    return Refusal(failed.code(), status.message, info.reason, dict(info.metadata), retry_seconds, trailing)


def refused(call: Callable[[], object]) -> Refusal:
    """The error of a call that must fail."""
    try:
        call()
    except grpc.RpcError as error:
        return refusal_of(error)
    raise AssertionError("the call was not refused")
