"""Cuts rendered memory out of messages that are appended (invariant 14): a prompt is stored without the memory that was
rendered into it, which is another at the next run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from memoryd_server.engine.content import Part, Text
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.memory_escape import MEMORY_CONTEXT, UNTRUSTED_CONTENT
from memoryd_server.stores.records import Role

_OPENING: Final = re.compile(rf"<{MEMORY_CONTEXT}>\s*+<{UNTRUSTED_CONTENT}>")
_INNER_CLOSING: Final = f"</{UNTRUSTED_CONTENT}>"
_CLOSING: Final = f"</{MEMORY_CONTEXT}>"
_LINE_ENDS: Final = "\r\n"


def without_memory(message: IncomingMessage) -> IncomingMessage:
    """The message as it is to be stored: a SYSTEM or DEVELOPER message without complete rendered blocks, of either
    style, and any other as it came.
    """
    if message.role not in (Role.SYSTEM, Role.DEVELOPER) or not message.parts:
        return message
    parts = tuple([_without_blocks(part) for part in message.parts])
    cut = sum(_size(old) - _size(new) for old, new in zip(message.parts, parts, strict=True))
    if not cut:
        return message
    return msgspec.structs.replace(message, parts=parts, size=message.size - cut, memory_removed=True)


def _size(part: Part) -> int:
    return len(part.text.encode()) if isinstance(part, Text) else 0


def _without_blocks(part: Part) -> Part:
    if not isinstance(part, Text) or _CLOSING not in part.text:
        return part
    text = _cut_blocks(part.text)
    return part if len(text) == len(part.text) else Text(text)


def _cut_blocks(text: str) -> str:
    """The text without its complete blocks, and without the line ends that set these apart. A block ends with the first
    closing marker, since none stands in what was rendered; of several opening ones before it, the last is its own.
    """
    segments: list[str] = []
    segment: list[str] = []
    *closed, rest = text.split(_CLOSING)
    for piece in closed:
        before = _before_block(piece)
        if before is None:
            segment += (piece, _CLOSING)
        else:
            segments.append("".join((*segment, before)))
            segment.clear()
    segments.append("".join((*segment, rest)))
    return segments[0] if len(segments) == 1 else _joined(segments)


def _before_block(text: str) -> str | None:
    """What stands before the block that ends with this text; None when it ends none."""
    last = None
    for opening in _OPENING.finditer(text):
        last = opening
    return text[: last.start()] if last is not None and _INNER_CLOSING in text[last.end() :] else None


def _joined(segments: Sequence[str]) -> str:
    """Texts between which blocks stood, each as far from the next as the block was from the one or the other."""
    kept: list[str] = []
    gap = ""
    for index, segment in enumerate(segments):
        start = segment if index == 0 else segment.lstrip(_LINE_ENDS)
        gap = max(gap, segment[: len(segment) - len(start)], key=len)
        text = start if index == len(segments) - 1 else start.rstrip(_LINE_ENDS)
        if text:
            kept += (gap, text) if kept else (text,)
            gap = start[len(text) :]
    return "".join(kept)
