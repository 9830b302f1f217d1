"""What a message says: its parts, and the JSON text in which stores keep them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec


class Text(msgspec.Struct, frozen=True, tag="text"):
    """Plain text."""

    text: str


class Reasoning(msgspec.Struct, frozen=True, tag="reasoning", omit_defaults=True):
    """The model's thinking, with the provider's opaque signature."""

    text: str = ""
    signature: str = ""


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    """The model's refusal to answer."""

    text: str


class Media(msgspec.Struct, frozen=True, tag="media", omit_defaults=True):
    """An image, a sound, a file: by reference (`uri`) or in place (`data`)."""

    media_type: str = ""
    uri: str | None = None
    data: bytes | None = None
    size: int = 0


class Data(msgspec.Struct, frozen=True, tag="data"):
    """Structured data as JSON text, kept byte for byte."""

    json: str


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call", omit_defaults=True):
    """A call of a tool; `arguments` is text as the model wrote it."""

    id: str = ""
    name: str = ""
    arguments: str = ""


class ToolResult(msgspec.Struct, frozen=True, tag="tool_result", omit_defaults=True):
    """The answer to a tool call."""

    call_id: str = ""
    name: str = ""
    is_error: bool = False
    parts: tuple[Text | Refusal | Media | Data, ...] = ()


SimplePart = Text | Refusal | Media | Data
"""What a tool result may hold."""

Part = Text | Reasoning | Refusal | Media | Data | ToolCall | ToolResult

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(tuple[Part, ...])


def encode_parts(parts: Sequence[Part]) -> str:
    """The parts as JSON text."""
    return _ENCODER.encode(parts).decode()


def encode_content(parts: Sequence[Part] | None) -> str | None:
    """The content of a message as JSON text; None when it has none."""
    return None if parts is None else encode_parts(parts)


decode_parts: Final = _DECODER.decode
"""The inverse of `encode_parts`: the parts of a JSON text."""


def counted_texts(parts: Sequence[Part]) -> Iterator[str]:
    """The texts of the parts that have a price in tokens (invariant 8), in order. Media are priced apart."""
    for part in parts:
        match part:
            case Text(text=text) | Refusal(text=text) | Reasoning(text=text):
                yield text
            case Data(json=json):
                yield json
            case ToolCall():
                yield part.id
                yield part.name
                yield part.arguments
            case ToolResult():
                yield part.call_id
                yield part.name
                yield from counted_texts(part.parts)
            case Media():
                pass


def count_media(parts: Sequence[Part]) -> int:
    """How many media there are, those in tool results included."""
    count = 0
    for part in parts:
        if isinstance(part, Media):
            count += 1
        elif isinstance(part, ToolResult):
            count += count_media(part.parts)
    return count
