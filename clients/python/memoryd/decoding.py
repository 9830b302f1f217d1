"""From the API's types to the SDK's."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from memoryd.enums import (
    LEFT_OUT_REASON,
    OPEN_CALLS,
    OVERSIZE,
    RETENTION,
    ROLE,
    RUN_STATUS,
    SUMMARY_STATE,
    TIER_STATE,
    TOKENIZER,
    WATCH_EVENT_KIND,
    WINDOW_MODE,
)
from memoryd.errors import AnswerUnreadable
from memoryd.events import WatchEvent
from memoryd.histories import AgentInfo, AppendedMessage, SessionInfo
from memoryd.memories import MemoryFile, MemoryFileInfo, TierStatus
from memoryd.messages import (
    Data,
    Media,
    Message,
    Part,
    Reasoning,
    Redaction,
    Refusal,
    ResultPart,
    Text,
    ToolCall,
    ToolResult,
)
from memoryd.policies import Policy, SummaryPolicy, WindowOptions
from memoryd.runs import RunInfo, RunStep
from memoryd.stores import Capability, StoreInfo
from memoryd.summaries import Summary
from memoryd.v1 import (
    agent_service_pb2,
    history_service_pb2,
    memory_context_service_pb2,
    message_pb2,
    policy_pb2,
    run_service_pb2,
    session_pb2,
    store_service_pb2,
    summary_service_pb2,
    window_service_pb2,
)
from memoryd.windows import LeftOut, LeftOutMessage, WindowStats

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def moment(timestamp: Timestamp) -> datetime:
    """A time in UTC, to the microsecond. A window has one in each message: `ToDatetime` takes four times as long."""
    return _EPOCH + timedelta(0, timestamp.seconds, timestamp.nanos // 1_000)


def message_from_proto(message: message_pb2.Message) -> Message:
    """A message of the API. Raises AnswerUnreadable for a role or a part that this SDK does not know."""
    role = ROLE.member(message.role)
    if role is None:
        raise _unreadable(f"the role {message.role} of message {message.id or message.seq}")
    given = message.HasField
    # A window has many messages. The constructor of a frozen dataclass takes more than twice as long to set its slots.
    decoded = _new(Message)
    _set_id(decoded, message.id)
    _set_seq(decoded, message.seq)
    _set_role(decoded, role)
    _set_name(decoded, message.name if given("name") else None)
    _set_content(decoded, _parts(message.content.parts) if given("content") else None)
    _set_run_id(decoded, message.run_id)
    _set_metadata(decoded, message.metadata)
    _set_extra(decoded, message.extra)
    _set_create_time(decoded, moment(message.create_time) if given("create_time") else None)
    _set_token_count(decoded, message.token_count)
    _set_redaction(decoded, _redaction(message.redaction) if given("redaction") else None)
    return decoded


_new: Final = object.__new__
_slots: Final = vars(Message)
_set_id: Final = _slots["id"].__set__
_set_seq: Final = _slots["seq"].__set__
_set_role: Final = _slots["role"].__set__
_set_name: Final = _slots["name"].__set__
_set_content: Final = _slots["content"].__set__
_set_run_id: Final = _slots["run_id"].__set__
_set_metadata: Final = _slots["metadata"].__set__
_set_extra: Final = _slots["extra"].__set__
_set_create_time: Final = _slots["create_time"].__set__
_set_token_count: Final = _slots["token_count"].__set__
_set_redaction: Final = _slots["redaction"].__set__


def _redaction(redaction: message_pb2.Redaction) -> Redaction:
    return Redaction(moment(redaction.redact_time), redaction.reason)


def _parts(parts: Sequence[message_pb2.Part]) -> tuple[Part, ...]:
    # Most messages have one part: to iterate over a repeated field takes longer than to read that.
    return (_part(parts[0]),) if len(parts) == 1 else tuple(map(_part, parts))


def messages_from_proto(messages: Iterable[message_pb2.Message]) -> list[Message]:
    """Messages of the API."""
    return [message_from_proto(message) for message in messages]


def _part(part: message_pb2.Part) -> Part:
    match part.WhichOneof("kind"):
        case "text":
            return Text(part.text)
        case "reasoning":
            return Reasoning(part.reasoning.text, part.reasoning.signature)
        case "tool_call":
            return ToolCall(part.tool_call.id, part.tool_call.name, part.tool_call.arguments)
        case "tool_result":
            result = part.tool_result
            return ToolResult(result.call_id, result.name, result.is_error, tuple(map(_result_part, result.parts)))
        case _:
            return _result_part(part)


def _result_part(part: message_pb2.Part) -> ResultPart:
    match part.WhichOneof("kind"):
        case "text":
            return Text(part.text)
        case "refusal":
            return Refusal(part.refusal)
        case "media" if part.media.WhichOneof("source") == "uri":
            return Media(part.media.type, part.media.uri, None, part.media.size)
        case "media":
            return Media(part.media.type, None, part.media.data, part.media.size)
        case "data":
            return Data(part.data)
        case _:
            raise _unreadable("a kind of message part")


def _unreadable(what: str) -> AnswerUnreadable:
    return AnswerUnreadable(
        f"the server sent {what} that this SDK does not know; a newer one may: pip install --upgrade memoryd",
        code=grpc.StatusCode.UNIMPLEMENTED,
    )


def appended_messages_from_proto(response: history_service_pb2.AppendMessagesResponse) -> list[AppendedMessage]:
    """The answer to an append."""
    return [
        AppendedMessage(
            id=message.id,
            seq=message.seq,
            create_time=moment(message.create_time),
            token_count=message.token_count,
            memory_context_removed=message.memory_context_removed,
        )
        for message in response.messages
    ]


def window_options_from_proto(options: policy_pb2.WindowOptions) -> WindowOptions:
    """Window options of the API; UNSPECIFIED is the same as absent."""
    given = options.HasField
    return WindowOptions(
        mode=WINDOW_MODE.member_or_unspecified(options.mode) if options.mode else None,
        limit=options.limit if given("limit") else None,
        pin_system=options.pin_system if given("pin_system") else None,
        start_with_user=options.start_with_user if given("start_with_user") else None,
        open_calls=(OPEN_CALLS.member_or_unspecified(options.open_calls) if options.open_calls else None),
        oversize=OVERSIZE.member_or_unspecified(options.oversize) if options.oversize else None,
    )


def policy_from_proto(policy: policy_pb2.Policy) -> Policy:
    """A policy of the API."""
    return Policy(
        window=window_options_from_proto(policy.window),
        summary=_summary_policy(policy.summary) if policy.HasField("summary") else None,
    )


def _summary_policy(policy: policy_pb2.SummaryPolicy) -> SummaryPolicy:
    given = policy.HasField
    return SummaryPolicy(
        enabled=policy.enabled if given("enabled") else None,
        summarizer=policy.summarizer,
        max_tokens=policy.max_tokens if given("max_tokens") else None,
        keep=policy.keep if given("keep") else None,
        retention=RETENTION.member_or_unspecified(policy.retention) if policy.retention else None,
        wait=policy.wait if given("wait") else None,
    )


def summary_from_proto(summary: summary_service_pb2.Summary) -> Summary:
    """A summary of the API."""
    return Summary(
        id=summary.id,
        text=summary.text,
        previous_id=summary.previous_id,
        from_seq=summary.from_seq,
        to_seq=summary.to_seq,
        message_count=summary.message_count,
        covered_from_seq=summary.covered_from_seq,
        covered_message_count=summary.covered_message_count,
        summarizer=summary.summarizer,
        model=summary.model,
        input_token_count=summary.input_token_count,
        output_token_count=summary.output_token_count,
        create_time=moment(summary.create_time),
        duration=summary.duration.ToTimedelta(),
        current=summary.current,
        originals_removed=summary.originals_removed,
    )


def session_info_from_proto(session: session_pb2.Session) -> SessionInfo:
    """A session of the API."""
    return SessionInfo(
        agent=session.key.agent,
        session_id=session.key.session_id,
        user_id=session.user_id,
        labels=dict(session.labels),
        policy=policy_from_proto(session.policy),
        tokenizer=TOKENIZER.member_or_unspecified(session.tokenizer),
        message_count=session.message_count,
        token_count=session.token_count,
        open_message_count=session.open_message_count,
        orphan_message_count=session.orphan_message_count,
        open_call_count=session.open_call_count,
        last_seq=session.last_seq,
        create_time=moment(session.create_time) if session.HasField("create_time") else None,
        activity_time=moment(session.activity_time) if session.HasField("activity_time") else None,
        etag=session.etag,
        ttl=session.ttl.ToTimedelta() if session.HasField("ttl") else None,
        expire_time=moment(session.expire_time) if session.HasField("expire_time") else None,
        unfinished_run_count=session.unfinished_run_count,
    )


def watch_event_from_proto(event: history_service_pb2.WatchEvent) -> WatchEvent:
    """An event of the API."""
    return WatchEvent(
        kind=WATCH_EVENT_KIND.member_or_unspecified(event.kind),
        from_seq=event.from_seq,
        to_seq=event.to_seq,
        message=message_from_proto(event.message) if event.HasField("message") else None,
        event_time=moment(event.event_time) if event.HasField("event_time") else None,
        resume_token=event.resume_token,
    )


def agent_info_from_proto(agent: agent_service_pb2.Agent) -> AgentInfo:
    """An agent of the API."""
    return AgentInfo(
        agent=agent.agent,
        policy=policy_from_proto(agent.policy),
        update_time=moment(agent.update_time) if agent.HasField("update_time") else None,
        etag=agent.etag,
        load_memory=agent.load_memory,
        run_retention=agent.run_retention.ToTimedelta() if agent.HasField("run_retention") else None,
    )


def tier_status_from_proto(status: memory_context_service_pb2.MemoryTierStatus) -> TierStatus:
    """A tier of rendered memory; what is told of none is ABSENT."""
    return TierStatus(
        state=TIER_STATE.member_or_unspecified(status.state or memory_context_service_pb2.MEMORY_TIER_STATE_ABSENT),
        kept_lines=status.kept_line_count,
        dropped_lines=status.dropped_line_count,
    )


def memory_file_info_from_proto(file: memory_context_service_pb2.MemoryFile) -> MemoryFileInfo:
    """What is told of a memory file."""
    return MemoryFileInfo(
        name=file.name,
        version=file.version,
        etag=file.etag,
        size=file.size,
        author=file.author,
        create_time=moment(file.create_time),
    )


def memory_file_from_proto(response: memory_context_service_pb2.GetMemoryFileResponse) -> MemoryFile:
    """A memory file with its content."""
    file = response.file
    return MemoryFile(
        name=file.name,
        version=file.version,
        etag=file.etag,
        size=file.size,
        author=file.author,
        create_time=moment(file.create_time),
        content=response.content,
    )


def run_info_from_proto(run: run_service_pb2.Run) -> RunInfo:
    """A run of the API."""
    return RunInfo(
        agent=run.key.session.agent,
        session_id=run.key.session.session_id,
        id=run.key.run_id,
        status=RUN_STATUS.member_or_unspecified(run.status),
        reason=run.status_reason,
        metadata=run.metadata,
        holder=run.holder,
        steps=run.step_count,
        recoveries=run.recovery_count,
        lease_expires=moment(run.lease_expire_time) if run.HasField("lease_expire_time") else None,
        created=moment(run.create_time),
        updated=moment(run.update_time),
        ended=moment(run.end_time) if run.HasField("end_time") else None,
        etag=run.etag,
    )


def run_step_from_proto(step: run_service_pb2.RunStep) -> RunStep:
    """A step of a run."""
    return RunStep(
        number=step.number,
        payload=step.payload,
        content_type=step.content_type,
        first_seq=step.first_seq,
        message_count=step.message_count,
        create_time=moment(step.create_time),
        status=RUN_STATUS.member_or_unspecified(step.status),
    )


def store_info_from_proto(store: store_service_pb2.Store) -> StoreInfo:
    """A store of the API."""
    return StoreInfo(
        name=store.name,
        type=store.type,
        reachable=store.reachable,
        durable=store.durable,
        default=store.default,
        capabilities=tuple(
            Capability(name=capability.name, supported=capability.supported, reason=capability.reason)
            for capability in store.capabilities
        ),
    )


def window_stats_from_proto(stats: window_service_pb2.WindowStats) -> WindowStats:
    """Window stats of the API."""
    return WindowStats(
        history_message_count=stats.history_message_count,
        history_token_count=stats.history_token_count,
        window_message_count=stats.window_message_count,
        window_token_count=stats.window_token_count,
        mode=WINDOW_MODE.member_or_unspecified(stats.mode),
        limit=stats.limit,
        limit_used_percent=stats.limit_used_percent,
        left_out=_left_out(stats.left_out),
        uncovered_message_count=stats.uncovered_message_count,
        over_limit=stats.over_limit,
        shortened_seqs=tuple(stats.shortened_seqs),
        summary_state=SUMMARY_STATE.member_or_unspecified(stats.summary_state),
        summary_id=stats.summary_id,
        summary_failure=stats.summary_failure,
        prefix_digest=stats.prefix_digest,
        pinned_message_count=stats.pinned_message_count,
        last_seq=stats.last_seq,
        first_seq=stats.first_seq,
    )


def _left_out(left_out: window_service_pb2.LeftOut) -> LeftOut:
    return LeftOut(
        limit_count=left_out.limit_count,
        limit_from_seq=left_out.limit_from_seq,
        limit_to_seq=left_out.limit_to_seq,
        orphan_result_count=left_out.orphan_result_count,
        open_tool_call_count=left_out.open_tool_call_count,
        messages=tuple(
            LeftOutMessage(
                seq=message.seq,
                reason=LEFT_OUT_REASON.member_or_unspecified(message.reason),
            )
            for message in left_out.messages
        ),
    )
