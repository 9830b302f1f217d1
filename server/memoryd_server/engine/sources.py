"""Stored messages as summarizers are given them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from memoryd_server import limits
from memoryd_server.engine.content import (
    Data,
    Media,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    decode_parts,
)
from memoryd_server.engine.windows import INTERRUPTED_TEXT
from memoryd_server.stores.records import StoredMessage, Usability
from memoryd_server.summarizers.base import PartKind, SourceMessage, SourcePart

_CUT: Final = "\n[… left out: {characters:,} characters …]\n"
"""What stands for the middle of a text that is too long even for a task of its own."""


def source_messages(messages: Sequence[StoredMessage]) -> tuple[SourceMessage, ...]:
    """Messages in reading order as a summarizer is given them. Groups are whole.

    Calls without a result are marked as interrupted. Where the messages are one group that exceeds what a task holds,
    the middle of its longest texts is left out.
    """
    answered: dict[int, set[int]] = {}
    for message in messages:
        answered.setdefault(message.head, set()).update(message.answers)
    room = _room(messages)
    return tuple(_source(message, answered, room) for message in messages)


def _room(messages: Sequence[StoredMessage]) -> int | None:
    """How many characters each message may have; None for any number."""
    if sum(message.size for message in messages) <= limits.SUMMARY_TASK_BYTES:
        return None
    return max(1_000, limits.SUMMARY_TASK_BYTES // len(messages) // 4)


def _source(message: StoredMessage, answered: Mapping[int, set[int]], room: int | None) -> SourceMessage:
    parts = list(_parts(decode_parts(message.content) if message.content else ()))
    if message.usability is Usability.OPEN and message.calls:
        calls = [part for part in parts if part.kind is PartKind.CALL]
        parts += [
            SourcePart(PartKind.ERROR, INTERRUPTED_TEXT, call.name)
            for index, call in enumerate(calls)
            if index not in answered[message.head]
        ]
    if room is not None:
        parts = [SourcePart(part.kind, _shortened(part.text, room // max(1, len(parts))), part.name) for part in parts]
    return SourceMessage(message.seq, message.role, tuple(parts), message.name or "")


def _shortened(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    half = room // 2
    return text[:half] + _CUT.format(characters=len(text) - 2 * half) + text[len(text) - half :]


def _parts(parts: Sequence[Part]) -> Iterator[SourcePart]:
    for part in parts:
        match part:
            case Text(text=text) | Refusal(text=text) | Data(json=text):
                yield SourcePart(PartKind.TEXT, text)
            case ToolCall():
                yield SourcePart(PartKind.CALL, part.arguments, part.name)
            case ToolResult():
                inner = "\n".join(piece.text for piece in _parts(part.parts))
                yield SourcePart(PartKind.ERROR if part.is_error else PartKind.RESULT, inner, part.name)
            case Media():
                yield SourcePart(PartKind.MEDIA, " ".join(filter(None, (part.media_type, part.uri))))
            case Reasoning():
                pass
