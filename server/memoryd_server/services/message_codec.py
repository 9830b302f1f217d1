"""Messages between the protocol and the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from google.protobuf.duration_pb2 import Duration
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from google.protobuf.timestamp_pb2 import Timestamp

from memoryd.v1 import history_service_pb2, message_pb2
from memoryd_server.engine.content import (
    Data,
    Media,
    Part,
    Reasoning,
    Refusal,
    SimplePart,
    Text,
    ToolCall,
    ToolResult,
    decode_parts,
)
from memoryd_server.engine.errors import field_invalid, field_required
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.replay import Appended
from memoryd_server.stores.records import StoredMessage

_ADDED_BYTES: Final = 48
"""What the server adds to a message at most: seq, time and token count, encoded."""

_INLINE_MESSAGES: Final = 256
_INLINE_BYTES: Final = 256 * 1024
"""Answers of up to so many messages and bytes are encoded on the event loop: that takes less than a millisecond."""

_MICROSECOND: Final = 1_000_000


def decode_messages(messages: Iterable[message_pb2.Message]) -> list[IncomingMessage]:
    """Messages to append. Raises: RequestError for a part without a kind, or one that cannot stand where it does."""
    return [_decode_message(message, index) for index, message in enumerate(messages)]


def _decode_message(message: message_pb2.Message, index: int) -> IncomingMessage:
    parts: tuple[Part, ...] | None = None
    if message.HasField("content"):
        field = f"messages[{index}].content.parts"
        parts = tuple(_decode_part(part, field, place) for place, part in enumerate(message.content.parts))
    return IncomingMessage(
        id=message.id,
        role=message.role,
        name=message.name if message.HasField("name") else None,
        parts=parts,
        run_id=message.run_id,
        metadata=message.metadata,
        extra=message.extra,
        size=message.ByteSize() + _ADDED_BYTES,
    )


def _decode_part(part: message_pb2.Part, field: str, place: int) -> Part:
    kind = part.WhichOneof("kind")
    if kind == "text":
        return Text(part.text)
    if kind == "reasoning":
        return Reasoning(part.reasoning.text, part.reasoning.signature)
    if kind == "tool_call":
        call = part.tool_call
        return ToolCall(call.id, call.name, call.arguments)
    if kind == "tool_result":
        result = part.tool_result
        inner_field = f"{field}[{place}].tool_result.parts"
        inner = tuple(_decode_simple(inner, inner_field, at) for at, inner in enumerate(result.parts))
        return ToolResult(result.call_id, result.name, result.is_error, inner)
    return _decode_simple(part, field, place)


def _decode_simple(part: message_pb2.Part, field: str, place: int) -> SimplePart:
    match part.WhichOneof("kind"):
        case "text":
            return Text(part.text)
        case "refusal":
            return Refusal(part.refusal)
        case "data":
            return Data(part.data)
        case "media":
            media = part.media
            source = media.WhichOneof("source")
            return Media(
                media.type,
                media.uri if source == "uri" else None,
                media.data if source == "data" else None,
                media.size,
            )
        case None:
            raise field_required(f"{field}[{place}]", "a kind: text, tool_call, …")
        case kind:
            raise field_invalid(f"{field}[{place}]", f"a tool result holds text, refusal, media and data, not {kind}")


class MessageList(Protocol):
    """A repeated field of messages."""

    def add(self) -> message_pb2.Message: ...


def is_quickly_encoded(messages: Sequence[StoredMessage]) -> bool:
    """Whether encoding the messages is work that the event loop may do."""
    return len(messages) <= _INLINE_MESSAGES and sum([message.size for message in messages]) <= _INLINE_BYTES


async def encode_messages(messages: Sequence[StoredMessage], into: MessageList) -> None:
    """Appends stored messages to a repeated field; what takes long is done off the event loop."""
    if is_quickly_encoded(messages):
        _encode_messages(messages, into)
    else:
        await asyncio.to_thread(_encode_messages, messages, into)


def _encode_messages(messages: Sequence[StoredMessage], into: MessageList) -> None:
    for message in messages:
        encode_message(message, into.add())


def encode_message(message: StoredMessage, into: message_pb2.Message) -> None:
    """Writes a stored message into an empty protocol message."""
    into.id = message.id
    into.seq = message.seq
    into.role = message.role  # type: ignore[assignment]  # The values are the same.
    into.token_count = message.tokens
    encode_time(message.created, into.create_time)
    if message.name is not None:
        into.name = message.name
    if message.run_id:
        into.run_id = message.run_id
    if message.metadata:
        into.metadata = message.metadata
    if message.extra:
        into.extra = message.extra
    if message.redaction is not None:
        into.redaction.reason = message.redaction.reason
        encode_time(message.redaction.at, into.redaction.redact_time)
    if message.content is not None:
        content = into.content
        parts = decode_parts(message.content)
        if not parts:
            content.SetInParent()
        for part in parts:
            if type(part) is Text:  # Most are.
                content.parts.add().text = part.text
            else:
                _ENCODERS[type(part)](part, content.parts.add())


def _encode_text(part: Text, into: message_pb2.Part) -> None:
    into.text = part.text


def _encode_reasoning(part: Reasoning, into: message_pb2.Part) -> None:
    into.reasoning.SetInParent()
    into.reasoning.text = part.text
    into.reasoning.signature = part.signature


def _encode_refusal(part: Refusal, into: message_pb2.Part) -> None:
    into.refusal = part.text


def _encode_media(part: Media, into: message_pb2.Part) -> None:
    media = into.media
    media.SetInParent()
    media.type = part.media_type
    media.size = part.size
    if part.uri is not None:
        media.uri = part.uri
    elif part.data is not None:
        media.data = part.data


def _encode_data(part: Data, into: message_pb2.Part) -> None:
    into.data = part.json


def _encode_call(part: ToolCall, into: message_pb2.Part) -> None:
    call = into.tool_call
    call.SetInParent()
    call.id = part.id
    call.name = part.name
    call.arguments = part.arguments


def _encode_result(part: ToolResult, into: message_pb2.Part) -> None:
    result = into.tool_result
    result.SetInParent()
    result.call_id = part.call_id
    result.name = part.name
    result.is_error = part.is_error
    for inner in part.parts:
        _ENCODERS[type(inner)](inner, result.parts.add())


# mypy cannot say that each function takes its key.
_ENCODERS: Final[dict[type[Part], Callable[..., None]]] = {
    Text: _encode_text,
    Reasoning: _encode_reasoning,
    Refusal: _encode_refusal,
    Media: _encode_media,
    Data: _encode_data,
    ToolCall: _encode_call,
    ToolResult: _encode_result,
}


def encode_time(microseconds: int, into: Timestamp) -> None:
    """Writes a time into a Timestamp."""
    into.seconds = microseconds // _MICROSECOND
    into.nanos = microseconds % _MICROSECOND * 1_000


def decode_duration(field: str, duration: Duration) -> int:
    """A Duration in microseconds, rounded down. Raises: RequestError FIELD_INVALID when it is none."""
    if not (abs(duration.seconds) <= 315_576_000_000 and abs(duration.nanos) < 1_000_000_000):
        raise field_invalid(field, "it is no valid Duration")
    if duration.seconds * duration.nanos < 0:
        raise field_invalid(field, "it is no valid Duration: the signs of seconds and nanos differ")
    return duration.seconds * _MICROSECOND + duration.nanos // 1_000


def encode_duration(microseconds: int, into: Duration) -> None:
    """Writes a length of time into a Duration."""
    into.seconds = microseconds // _MICROSECOND
    into.nanos = microseconds % _MICROSECOND * 1_000


def decode_time(field: str, time: Timestamp) -> int:
    """A Timestamp in microseconds. Raises: RequestError FIELD_INVALID when it is none (years 1 to 9999)."""
    if not (-62_135_596_800 <= time.seconds <= 253_402_300_799 and 0 <= time.nanos < 1_000_000_000):
        raise field_invalid(field, "it is no valid Timestamp")
    return time.seconds * _MICROSECOND + time.nanos // 1_000


def encode_appended(
    appended: Sequence[Appended], into: RepeatedCompositeFieldContainer[history_service_pb2.AppendedMessage]
) -> None:
    """What became of appended messages."""
    for message in appended:
        entry = into.add(
            id=message.id, seq=message.seq, token_count=message.tokens, memory_context_removed=message.memory_removed
        )
        encode_time(message.created, entry.create_time)
