"""From the SDK's types to the API's."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from memoryd.arguments import integer, seconds, string
from memoryd.enums import OPEN_CALLS, OVERSIZE, RETENTION, ROLE, TOKENIZER, WINDOW_MODE
from memoryd.histories import FOREVER, SERVERS_DEFAULT, SessionSettings
from memoryd.ids import new_id
from memoryd.messages import Data, Media, Message, Part, Reasoning, Redaction, Refusal, Text, ToolCall, ToolResult
from memoryd.policies import Policy, Retention, SummaryPolicy, WindowOptions
from memoryd.v1 import history_service_pb2, message_pb2, policy_pb2

_LIMITS = "1 to 100,000 messages or 1 to 100,000,000 tokens"
_LEASE = "the seconds that a lease lasts, for example 30"
_MOST_SECONDS = 315_576_000_000
"""The most that a Duration holds: 10,000 years."""


def timestamp(moment: datetime, argument: str) -> Timestamp:
    """A time for the API; ValueError without a time zone, since it would mean another moment on each machine."""
    if moment.tzinfo is None:
        raise ValueError(f"{argument} has no time zone: give one, for example datetime.now(timezone.utc)")
    result = Timestamp()
    result.FromDatetime(moment)
    return result


def ttl_to_proto(ttl: timedelta | None) -> Duration | None:
    """A session's ttl for the API, which has none for a session without end. TypeError for what is no timedelta."""
    return None if ttl is None or ttl == FOREVER else _span(ttl, "ttl")


def run_retention_to_proto(retention: timedelta | None) -> Duration | None:
    """An agent's run retention for the API, which has none for the server's own. TypeError for what is no timedelta."""
    if retention is None or retention == SERVERS_DEFAULT:
        return None
    return _span(timedelta() if retention == FOREVER else retention, "run_retention")


def _span(span: timedelta, argument: str) -> Duration:
    if not isinstance(span, timedelta):
        raise TypeError(
            f"{argument} is of type {type(span).__name__}; give a timedelta, for example timedelta(days=30)"
        )
    result = Duration()
    result.FromTimedelta(span)
    return result


def duration(value: float, argument: str) -> Duration:
    """A lease's number of seconds for the API. TypeError and ValueError as in `arguments`."""
    length = seconds(value, argument, _LEASE)
    if abs(length) > _MOST_SECONDS:
        raise ValueError(f"{argument} is {length:g}; give {_LEASE}")
    result = Duration()
    result.FromNanoseconds(round(length * 1_000_000_000))
    return result


def message_to_proto(message: Message) -> message_pb2.Message:
    """A message for the API. One without an id gets one. What only the server gives is carried along; it is ignored
    there.

    Raises ValueError for text that UTF-8 cannot encode, which is half of a surrogate pair, and TypeError for what is no
    Message.
    """
    if not isinstance(message, Message):
        raise TypeError(
            f"{type(message).__name__} is no Message: give user('Hello!'), for example, or *from_openai(messages)"
        )
    try:
        result = message_pb2.Message(
            id=message.id or new_id(),
            seq=message.seq,
            role=ROLE.number(message.role),
            name=message.name,
            content=None if message.content is None else message_pb2.Content(parts=_parts_to_proto(message.content)),
            run_id=message.run_id,
            metadata=message.metadata,
            extra=message.extra,
            token_count=message.token_count,
        )
    except UnicodeEncodeError as error:
        raise ValueError(
            f"a text of message {message.id} holds half of a surrogate pair (U+{ord(error.object[error.start]):04X}), "
            f"which UTF-8 cannot encode; replace it, for example with U+FFFD"
        ) from error
    if message.create_time is not None:
        result.create_time.CopyFrom(timestamp(message.create_time, "create_time"))
    if message.redaction is not None:
        result.redaction.CopyFrom(_redaction_to_proto(message.redaction))
    return result


def _redaction_to_proto(redaction: Redaction) -> message_pb2.Redaction:
    return message_pb2.Redaction(redact_time=timestamp(redaction.redact_time, "redact_time"), reason=redaction.reason)


def _parts_to_proto(parts: Iterable[Part]) -> list[message_pb2.Part]:
    return [_part_to_proto(part) for part in parts]


def _part_to_proto(part: Part) -> message_pb2.Part:
    match part:
        case Text(text):
            return message_pb2.Part(text=text)
        case Reasoning(text, signature):
            return message_pb2.Part(reasoning=message_pb2.Reasoning(text=text, signature=signature))
        case Refusal(text):
            return message_pb2.Part(refusal=text)
        case Media(type_, uri, None, size) if uri is not None:
            return message_pb2.Part(media=message_pb2.Media(type=type_, uri=uri, size=_size(size)))
        case Media(type_, _, data, size):
            return message_pb2.Part(media=message_pb2.Media(type=type_, data=data or b"", size=_size(size)))
        case Data(json):
            return message_pb2.Part(data=json)
        case ToolCall(id_, name, arguments):
            return message_pb2.Part(tool_call=message_pb2.ToolCall(id=id_, name=name, arguments=arguments))
        case ToolResult(call_id, name, is_error, parts):
            return message_pb2.Part(
                tool_result=message_pb2.ToolResult(
                    call_id=call_id, name=name, is_error=is_error, parts=_parts_to_proto(parts)
                )
            )
        case _:
            raise TypeError(f"{type(part).__name__} is no part of a message: give Text('Hello!'), for example")


def _size(size: int) -> int:
    return integer(size, "the size of a Media part", "the number of bytes, or 0 when it is not known")


def window_options_to_proto(options: WindowOptions) -> policy_pb2.WindowOptions:
    """Window options for the API."""
    return policy_pb2.WindowOptions(
        mode=None if options.mode is None else WINDOW_MODE.number(options.mode),
        limit=None if options.limit is None else integer(options.limit, "limit", _LIMITS),
        pin_system=options.pin_system,
        start_with_user=options.start_with_user,
        open_calls=(None if options.open_calls is None else OPEN_CALLS.number(options.open_calls)),
        oversize=None if options.oversize is None else OVERSIZE.number(options.oversize),
    )


def policy_to_proto(policy: Policy) -> policy_pb2.Policy:
    """A policy for the API."""
    return policy_pb2.Policy(
        window=window_options_to_proto(policy.window),
        summary=None if policy.summary is None else _summary_policy_to_proto(policy.summary),
    )


def _summary_policy_to_proto(policy: SummaryPolicy) -> policy_pb2.SummaryPolicy:
    return policy_pb2.SummaryPolicy(
        enabled=policy.enabled,
        summarizer=string(policy.summarizer, "summarizer", "extractive"),
        max_tokens=None if policy.max_tokens is None else integer(policy.max_tokens, "max_tokens", "16 to 8,000"),
        keep=None if policy.keep is None else integer(policy.keep, "keep", "1 or more messages or tokens"),
        retention=RETENTION.number(policy.retention or Retention.UNSPECIFIED),
        wait=policy.wait,
    )


def session_settings_to_proto(settings: SessionSettings) -> history_service_pb2.SessionSettings:
    """Session settings for the API."""
    return history_service_pb2.SessionSettings(
        user_id=settings.user_id,
        labels=settings.labels,
        tokenizer=TOKENIZER.number(settings.tokenizer),
        policy=None if settings.policy is None else policy_to_proto(settings.policy),
        ttl=ttl_to_proto(settings.ttl),
    )
