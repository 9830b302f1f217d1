"""What the converters' tests share: a trip over the wire, and equality that tells 1 from 1.0 and from True."""

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from memoryd import (
    Message,
    Part,
    Text,
    ToolResult,
    Window,
    message_from_proto,
    message_to_proto,
)
from memoryd.decoding import window_stats_from_proto
from memoryd.v1.message_pb2 import Message as ProtoMessage
from memoryd.v1.window_service_pb2 import WindowStats


def stored(messages: Iterable[Message]) -> list[Message]:
    """The messages as they come back from a server: over the wire, with all that a server adds."""
    return [
        message_from_proto(ProtoMessage.FromString(message_to_proto(_numbered(message, seq)).SerializeToString()))
        for seq, message in enumerate(messages, 1)
    ]


def _numbered(message: Message, seq: int) -> Message:
    return replace(message, seq=seq, token_count=7, create_time=datetime(2026, 11, 29, 12, 0, 0, 123456, UTC))


def window_of(messages: Iterable[Message]) -> Window:
    """A window that shows the messages."""
    return Window(messages=tuple(messages), stats=window_stats_from_proto(WindowStats()))


def exact(value: Any) -> str:
    """JSON that is the same only for values that are the same, types of numbers included; the order of keys is free."""
    return json.dumps(value, sort_keys=True)


def shortened(message: Message) -> Message:
    """The message as a window gives it that had to shorten its texts."""
    return replace(message, content=tuple(map(_shortened, message.content or ())))


def _shortened(part: Part) -> Part:
    match part:
        case Text(text):
            return Text(f"{text[:3]}[shortened]")
        case ToolResult():
            return replace(
                part, parts=tuple(Text(f"{p.text[:3]}[shortened]") if isinstance(p, Text) else p for p in part.parts)
            )
        case _:
            return part


def kept_twice(message: Message, source: dict[str, Any]) -> bool:
    """Whether `extra` holds the content of the source as a whole, beside its parts."""
    content = json.dumps(source.get("content"), ensure_ascii=False, separators=(",", ":"))
    return len(content) > 5 and content in message.extra
