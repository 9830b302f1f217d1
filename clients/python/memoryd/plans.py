"""What each operation of the clients does, free of any way to make calls.

A plan is a generator: it yields the calls to make, is sent their answers (or thrown their typed errors), and returns
the operation's result. The sync and the async client each have one small loop that carries plans out.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar, cast

import grpc
from google.protobuf.field_mask_pb2 import FieldMask

from memoryd.arguments import SEQS, integer, string
from memoryd.decoding import (
    agent_info_from_proto,
    appended_messages_from_proto,
    message_from_proto,
    messages_from_proto,
    session_info_from_proto,
    store_info_from_proto,
    summary_from_proto,
    window_stats_from_proto,
)
from memoryd.encoding import (
    message_to_proto,
    policy_to_proto,
    run_retention_to_proto,
    session_settings_to_proto,
    ttl_to_proto,
    window_options_to_proto,
)
from memoryd.enums import OPEN_CALLS, OVERSIZE
from memoryd.errors import AnswerUnreadable, StoreUnavailable, WindowChanged, WindowTooLarge
from memoryd.histories import (
    AgentInfo,
    AppendedMessage,
    ClearedAgent,
    ErasedUser,
    RewoundSession,
    SessionInfo,
    SessionSettings,
)
from memoryd.ids import new_id
from memoryd.messages import Message
from memoryd.methods import (
    ABANDON_SUMMARY_TASK,
    APPEND_MESSAGES,
    CLEAR_AGENT_HISTORY,
    CLEAR_HISTORY,
    COMMIT_SUMMARY,
    ERASE_USER,
    FORK_SESSION,
    GET_AGENT,
    GET_MESSAGE,
    GET_SESSION,
    GET_STORE,
    GET_SUMMARY,
    LEASE_SUMMARY_TASK,
    LIST_STORES,
    LIST_SUMMARIES,
    LOAD_WINDOW,
    REDACT_MESSAGE,
    REVERT_SUMMARY,
    REWIND_SESSION,
    STREAM_WINDOW,
    SUMMARIZE,
    UPDATE_AGENT,
    UPDATE_SESSION,
    Method,
    Request,
    Response,
)
from memoryd.policies import OpenCalls, Oversize, Policy, WindowMode, WindowOptions
from memoryd.stores import StoreInfo
from memoryd.summaries import SummarizedSession, Summary
from memoryd.v1 import (
    agent_service_pb2,
    history_service_pb2,
    store_service_pb2,
    summary_service_pb2,
    window_service_pb2,
)
from memoryd.v1.session_pb2 import Session as ProtoSession
from memoryd.v1.session_pb2 import SessionKey
from memoryd.windows import Window

Result = TypeVar("Result")
Plan = Generator["Call[Any, Any]", Any, Result]

STREAM_ATTEMPTS = 5
"""How often a window's stream is begun: again when history was taken away meanwhile."""


@dataclass(frozen=True, slots=True)
class Call(Generic[Request, Response]):
    """A call to make. The answer to a streaming one is the list of its responses."""

    method: Method[Request, Response]
    request: Request
    streaming: bool = False


def call(method: Method[Request, Response], request: Request) -> Plan[Response]:
    """Plans one call with one answer."""
    return cast(Response, (yield Call(method, request)))


def stream(method: Method[Request, Response], request: Request) -> Plan[list[Response]]:
    """Plans one call with a stream of answers."""
    return cast(list[Response], (yield Call(method, request, streaming=True)))


def session_key(agent: str, id: str) -> SessionKey:
    """The key of a session. TypeError and ValueError as in `arguments`."""
    return SessionKey(agent=string(agent, "agent", "assistant"), session_id=string(id, "id", "user_123"))


def key_of(session: Any, kind: type[Any]) -> SessionKey:
    """The key of a session that a caller gives as an argument. TypeError for what is no session of this client."""
    if not isinstance(session, kind):
        raise TypeError(
            f"session is of type {type(session).__name__}; give {kind.__name__}, as session(agent=…, id=…) of this "
            "client makes it"
        )
    return cast(SessionKey, session._key)


def append(
    session: SessionKey,
    messages: Sequence[Message],
    *,
    request_id: str | None = None,
    expected_last_seq: int | None = None,
    create: SessionSettings | None = None,
) -> Plan[list[AppendedMessage]]:
    """Appends messages in one call."""
    response = yield from call(
        APPEND_MESSAGES,
        history_service_pb2.AppendMessagesRequest(
            session=session,
            messages=map(message_to_proto, messages),
            request_id=string(request_id or "", "request_id", "import-7"),
            expected_last_seq=_expected(expected_last_seq),
            create=None if create is None else session_settings_to_proto(create),
        ),
    )
    return appended_messages_from_proto(response)


def message(session: SessionKey, *, seq: int | None, id: str | None) -> Plan[Message]:
    """Reads one message, by seq or by id."""
    request = history_service_pb2.GetMessageRequest(session=session)
    _choose(request, seq, id)
    response = yield from call(GET_MESSAGE, request)
    return message_from_proto(response.message)


def redact(session: SessionKey, *, seq: int | None, id: str | None, reason: str) -> Plan[Message]:
    """Takes away one message's content, by seq or by id."""
    request = history_service_pb2.RedactMessageRequest(
        session=session, reason=string(reason, "reason", "asked for by the user")
    )
    _choose(request, seq, id)
    response = yield from call(REDACT_MESSAGE, request)
    return message_from_proto(response.message)


def _choose(
    request: history_service_pb2.GetMessageRequest | history_service_pb2.RedactMessageRequest,
    seq: int | None,
    id: str | None,
) -> None:
    if (seq is None) == (id is None):
        raise ValueError("give either seq or id, to say which message")
    if seq is not None:
        request.seq = integer(seq, "seq", SEQS)
    if id is not None:
        request.id = string(id, "id", "0199d1c3")


def window(
    session: SessionKey,
    options: WindowOptions,
    *,
    summary: bool | None,
    wait_for_summary: bool | None,
    explain: bool,
) -> Plan[Window]:
    """Loads a window, by stream when it is too large for one answer."""
    request = window_service_pb2.LoadWindowRequest(
        session=session,
        options=window_options_to_proto(options),
        explain=explain,
        summary=summary,
        wait_for_summary=wait_for_summary,
    )
    try:
        response = yield from call(LOAD_WINDOW, request)
    except WindowTooLarge:
        return (yield from _streamed_window(request))
    return Window(messages=tuple(messages_from_proto(response.messages)), stats=window_stats_from_proto(response.stats))


def _streamed_window(request: window_service_pb2.LoadWindowRequest) -> Plan[Window]:
    streamed = window_service_pb2.StreamWindowRequest(
        session=request.session,
        options=request.options,
        explain=request.explain,
        summary=request.summary if request.HasField("summary") else None,
        wait_for_summary=request.wait_for_summary if request.HasField("wait_for_summary") else None,
    )
    attempts_left = STREAM_ATTEMPTS
    while True:
        attempts_left -= 1
        try:
            return _joined((yield from stream(STREAM_WINDOW, streamed)))
        except WindowChanged:
            if attempts_left == 0:
                raise


def _joined(pieces: Sequence[window_service_pb2.StreamWindowResponse]) -> Window:
    if not pieces or not pieces[-1].HasField("stats"):
        raise AnswerUnreadable(
            "the stream of the window ended without its stats, so the window is not whole; load it again",
            code=grpc.StatusCode.DATA_LOSS,
        )
    return Window(
        messages=tuple(message for piece in pieces for message in messages_from_proto(piece.messages)),
        stats=window_stats_from_proto(pieces[-1].stats),
    )


def window_options(
    *,
    messages: int | None,
    tokens: int | None,
    pin_system: bool | None,
    start_with_user: bool | None,
    open_calls: OpenCalls | str | None,
    oversize: Oversize | str | None,
) -> WindowOptions:
    """The options that the arguments of `Session.window` stand for."""
    if messages is not None and tokens is not None:
        raise ValueError("a window has one limit: give either messages or tokens")
    if messages is not None:
        integer(messages, "messages", "1 to 100,000")
    if tokens is not None:
        integer(tokens, "tokens", "1 to 100,000,000")
    mode = WindowMode.MESSAGES if messages is not None else WindowMode.TOKENS if tokens is not None else None
    return WindowOptions(
        mode=mode,
        limit=tokens if messages is None else messages,
        pin_system=pin_system,
        start_with_user=start_with_user,
        open_calls=None if open_calls is None else OPEN_CALLS.chosen(open_calls, "open_calls"),
        oversize=None if oversize is None else OVERSIZE.chosen(oversize, "oversize"),
    )


def session_info(session: SessionKey) -> Plan[SessionInfo]:
    """Reads a session's settings and counts."""
    response = yield from call(GET_SESSION, history_service_pb2.GetSessionRequest(session=session))
    return session_info_from_proto(response.session)


def update_session(
    session: SessionKey,
    *,
    user_id: str | None,
    labels: Mapping[str, str] | None,
    ttl: timedelta | None,
    policy: Policy | None,
    etag: str | None,
) -> Plan[SessionInfo]:
    """Changes those settings of a session that are not None."""
    given = {"user_id": user_id, "labels": labels, "ttl": ttl, "policy": policy}
    response = yield from call(
        UPDATE_SESSION,
        history_service_pb2.UpdateSessionRequest(
            session=ProtoSession(
                key=session,
                user_id=user_id or "",
                labels=labels,
                ttl=ttl_to_proto(ttl),
                policy=None if policy is None else policy_to_proto(policy),
                etag=etag or "",
            ),
            update_mask=FieldMask(paths=paths(given)),
        ),
    )
    return session_info_from_proto(response.session)


def clear_session(session: SessionKey, *, request_id: str | None) -> Plan[int]:
    """Takes away a session's messages."""
    request = history_service_pb2.ClearHistoryRequest(session=session, request_id=marked(request_id))
    response = yield from call(CLEAR_HISTORY, request)
    return response.cleared_message_count


def rewind(
    session: SessionKey, to_seq: int, *, expected_last_seq: int | None, request_id: str | None
) -> Plan[RewoundSession]:
    """Takes away a session's messages after a seq."""
    response = yield from call(
        REWIND_SESSION,
        history_service_pb2.RewindSessionRequest(
            session=session,
            to_seq=integer(to_seq, "to_seq", SEQS),
            expected_last_seq=_expected(expected_last_seq),
            request_id=marked(request_id),
        ),
    )
    return RewoundSession(message_count=response.removed_message_count, open_call_count=response.open_call_count)


def fork(
    source: SessionKey, target: SessionKey, *, through_seq: int | None, request_id: str | None
) -> Plan[history_service_pb2.ForkSessionResponse]:
    """Copies a session into a new one."""
    request = history_service_pb2.ForkSessionRequest(
        source=source,
        target=target,
        through_seq=None if through_seq is None else integer(through_seq, "through_seq", SEQS),
        request_id=marked(request_id),
    )
    return (yield from call(FORK_SESSION, request))


def _expected(last_seq: int | None) -> int | None:
    return None if last_seq is None else integer(last_seq, "expected_last_seq", SEQS)


def marked(given: str | None) -> str:
    """The request id of a request, made before its first try where the caller gives none."""
    return new_id() if given is None else string(given, "request_id", "import-7")


def summarize(session: SessionKey) -> Plan[SummarizedSession]:
    """Folds what exceeds `keep`."""
    response = yield from call(SUMMARIZE, summary_service_pb2.SummarizeRequest(session=session))
    return SummarizedSession(summary=_summary_in(response), message_count=response.folded_message_count)


def summary(session: SessionKey, id: str | None) -> Plan[Summary]:
    """Reads a summary: the current one without an id."""
    request = summary_service_pb2.GetSummaryRequest(session=session, summary_id=_summary_id(id or ""))
    response = yield from call(GET_SUMMARY, request)
    return summary_from_proto(response.summary)


def summaries(session: SessionKey) -> Plan[list[Summary]]:
    """Reads the chain of summaries."""
    response = yield from call(LIST_SUMMARIES, summary_service_pb2.ListSummariesRequest(session=session))
    return [summary_from_proto(summary) for summary in response.summaries]


def revert_summary(session: SessionKey, id: str) -> Plan[Summary | None]:
    """Takes the current summary back."""
    request = summary_service_pb2.RevertSummaryRequest(session=session, summary_id=_summary_id(id))
    return _summary_in((yield from call(REVERT_SUMMARY, request)))


def _summary_in(
    response: summary_service_pb2.SummarizeResponse | summary_service_pb2.RevertSummaryResponse,
) -> Summary | None:
    return summary_from_proto(response.summary) if response.HasField("summary") else None


def _summary_id(id: str) -> str:
    return string(id, "id", "what a summary's id holds")


def lease_summary_task(
    request: summary_service_pb2.LeaseSummaryTaskRequest,
) -> Plan[summary_service_pb2.SummaryTask | None]:
    """Leases a summary task; None when none waits."""
    response = yield from call(LEASE_SUMMARY_TASK, request)
    return response.task if response.HasField("task") else None


def commit_summary(session: SessionKey, task_token: str, text: str, model: str) -> Plan[Summary]:
    """Commits the summary of a task."""
    request = summary_service_pb2.CommitSummaryRequest(
        session=session,
        task_token=task_token,
        text=string(text, "text", "The project is called Atlas."),
        model=string(model, "model", "gpt-5-mini"),
    )
    response = yield from call(COMMIT_SUMMARY, request)
    return summary_from_proto(response.summary)


def abandon_summary_task(session: SessionKey, task_token: str, *, failed: bool) -> Plan[None]:
    """Gives a task up."""
    yield from call(
        ABANDON_SUMMARY_TASK,
        summary_service_pb2.AbandonSummaryTaskRequest(session=session, task_token=task_token, failed=failed),
    )


def erase_user(user_id: str) -> Plan[ErasedUser]:
    """Deletes all that a user owns."""
    request = history_service_pb2.EraseUserRequest(user_id=string(user_id, "user_id", "mia"))
    response = yield from call(ERASE_USER, request)
    return ErasedUser(
        session_count=response.erased_session_count,
        message_count=response.erased_message_count,
        lookup_count=response.erased_lookup_count,
        memory_file_count=response.erased_memory_file_count,
        run_count=response.erased_run_count,
        run_step_count=response.erased_run_step_count,
    )


def clear_agent(agent: str) -> Plan[ClearedAgent]:
    """Takes away the messages of an agent's sessions."""
    request = history_service_pb2.ClearAgentHistoryRequest(agent=string(agent, "agent", "assistant"))
    response = yield from call(CLEAR_AGENT_HISTORY, request)
    return ClearedAgent(session_count=response.cleared_session_count, message_count=response.cleared_message_count)


def agent_info(agent: str) -> Plan[AgentInfo]:
    """Reads an agent's settings."""
    response = yield from call(GET_AGENT, agent_service_pb2.GetAgentRequest(agent=agent))
    return agent_info_from_proto(response.agent)


def update_agent(
    agent: str,
    *,
    policy: Policy | None,
    load_memory: bool | None,
    run_retention: timedelta | None,
    etag: str | None,
) -> Plan[AgentInfo]:
    """Changes those settings of an agent that are not None."""
    given = {"policy": policy, "load_memory": load_memory, "run_retention": run_retention}
    response = yield from call(
        UPDATE_AGENT,
        agent_service_pb2.UpdateAgentRequest(
            agent=agent_service_pb2.Agent(
                agent=agent,
                policy=None if policy is None else policy_to_proto(policy),
                load_memory=load_memory,
                etag=etag or "",
                run_retention=run_retention_to_proto(run_retention),
            ),
            update_mask=FieldMask(paths=paths(given)),
        ),
    )
    return agent_info_from_proto(response.agent)


def paths(given: Mapping[str, object]) -> list[str]:
    """The paths of an update mask: those whose value is given. ValueError when none is."""
    found = [path for path, value in given.items() if value is not None]
    if not found:
        raise ValueError(f"nothing to update: give {' or '.join(given)}")
    return found


def store(name: str | None) -> Plan[StoreInfo]:
    """Asks about one store."""
    response = yield from call(GET_STORE, store_service_pb2.GetStoreRequest(name=string(name or "", "name", "default")))
    return store_info_from_proto(response.store)


def reachable_store(name: str) -> Plan[StoreInfo]:
    """Asks about a store that is to be used. StoreUnavailable when the server does not reach it."""
    found = yield from store(name)
    if not found.reachable:
        raise StoreUnavailable(
            f"the store {name!r} does not answer its server now: see the server's log, and switch when it answers "
            "again. The client goes on with the store that it used",
            code=grpc.StatusCode.UNAVAILABLE,
            reason="STORE_UNAVAILABLE",
            metadata={"store": name},
        )
    return found


def stores() -> Plan[list[StoreInfo]]:
    """Asks about all stores."""
    response = yield from call(LIST_STORES, store_service_pb2.ListStoresRequest())
    return [store_info_from_proto(store) for store in response.stores]
