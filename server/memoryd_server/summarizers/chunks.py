"""Divides what is to be summarized into chunks that a model can take; nothing is left out (invariant 10)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final

from memoryd_server.summarizers.base import Count, SourceMessage, SourcePart
from memoryd_server.summarizers.prompt import message_tokens, part_tokens, text_tokens

LEAST_TOKENS: Final = 256
"""The least room that messages are divided for: their fences take a quarter of it."""

_CHARACTERS_A_TOKEN: Final = 4
"""A first guess of how much text fits: it only saves counting."""

_PRECISION: Final = 64
"""A piece may be shorter than fits by this part of it: each doubling of it counts a piece once more."""


def divide(messages: Sequence[SourceMessage], limit: int, count: Count) -> list[tuple[SourceMessage, ...]]:
    """The messages in order, in chunks of at most `limit` tokens, at least `LEAST_TOKENS`, as `prompt` renders them.

    A message that is over the limit alone is divided into pieces of its own: their texts, joined, are its texts. Time
    grows with the length of the messages times its logarithm. It may take long: call it off the event loop.
    """
    assert limit >= LEAST_TOKENS
    chunks: list[tuple[SourceMessage, ...]] = []
    chunk: list[SourceMessage] = []
    tokens = 0
    for message in messages:
        for piece, price in _pieces(message, limit, count):
            if chunk and tokens + price > limit:
                chunks.append(tuple(chunk))
                chunk, tokens = [], 0
            chunk.append(piece)
            tokens += price
    if chunk:
        chunks.append(tuple(chunk))
    return chunks


def _pieces(message: SourceMessage, limit: int, count: Count) -> list[tuple[SourceMessage, int]]:
    price = message_tokens(message, count)
    if price <= limit:
        return [(message, price)]
    frame = message_tokens(dataclasses.replace(message, parts=()), count)
    pieces: list[tuple[list[SourcePart], int]] = [([], frame)]
    for part in message.parts:
        around = part_tokens(dataclasses.replace(part, text=""), count)
        for text in _cut(part.text, max(limit - frame - around, 1), count):
            cut = dataclasses.replace(part, text=text)
            price = part_tokens(cut, count)
            parts, tokens = pieces[-1]
            if parts and tokens + price > limit:
                pieces.append(([cut], frame + price))
            else:
                parts.append(cut)
                pieces[-1] = (parts, tokens + price)
    return [
        (dataclasses.replace(message, parts=tuple(parts), piece=number, pieces=len(pieces)), tokens)
        for number, (parts, tokens) in enumerate(pieces, start=1)
    ]


def _cut(text: str, room: int, count: Count) -> Iterator[str]:
    """The text in pieces of at most `room` tokens each, cut at a line's end or else a space where there is one."""
    start = 0
    while True:
        end = start + _fitting(text, start, room, count)
        if end >= len(text):
            yield text[start:]
            return
        half = start + (end - start) // 2
        end = text.rfind("\n", half, end) + 1 or text.rfind(" ", half, end) + 1 or end
        yield text[start:end]
        start = end


def _fitting(text: str, start: int, room: int, count: Count) -> int:
    """How many characters from `start` have at most `room` tokens; at least one, so that cutting ends."""

    def fits(characters: int) -> bool:
        return text_tokens(text[start : start + characters], count) <= room

    left = len(text) - start
    high = min(left, room * _CHARACTERS_A_TOKEN)
    while high < left and fits(high):
        high = min(left, high * 2)
    if fits(high):
        return high
    low = 1
    while high - low > max(1, low // _PRECISION):
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low
