"""Shortens the longest texts of a tool group in the middle, so that it fits a token limit (invariant 7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from memoryd_server.engine.content import Part, SimplePart, Text, ToolResult, decode_parts, encode_parts
from memoryd_server.engine.tokens import Count
from memoryd_server.stores.records import StoredMessage

_LEAST_KEPT_TOKENS: Final = 8
"""A text that would keep less than this around its marker is not worth a cut: the group counts as one that cannot
fit.
"""


def marker(seq: int) -> str:
    """What stands for the middle of a shortened text."""
    return f"\n[… shortened to fit: read message seq {seq} in full …]\n"


def shorten(messages: Sequence[StoredMessage], budget: int, count: Count) -> list[StoredMessage] | None:
    """Shortens texts, the longest first, until the messages together take at most `budget` tokens.

    Only plain texts are cut, in messages and in tool results: calls must stay valid, and reasoning is signed.

    Returns: the messages, those that changed with new content, tokens and size; None when even the shortest form does
    not fit.
    """
    contents = [decode_parts(message.content) if message.content else () for message in messages]
    prices = [[count(text) for text in _texts(parts)] for parts in contents]
    total = sum(message.tokens for message in messages)
    room = budget - (total - sum(map(sum, prices)))
    level = _water_level([price for row in prices for price in row], room)
    if level is None:
        return None

    shortened: list[StoredMessage] = []
    for message, parts, row in zip(messages, contents, prices, strict=True):
        mark = marker(message.seq)
        if any(price > level for price in row) and level < count(mark) + _LEAST_KEPT_TOKENS:
            return None
        shortened.append(_shorten_message(message, parts, row, level, mark, count))
    return shortened


def _texts(parts: Sequence[Part]) -> list[str]:
    texts: list[str] = []
    for part in parts:
        if isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, ToolResult):
            texts += _texts(part.parts)
    return texts


def _water_level(prices: Sequence[int], room: int) -> int | None:
    """The largest level such that prices, cut to it, sum to at most `room`; None when there is none."""
    if room < 0:
        return None
    left = room
    ordered = sorted(prices)
    for index, price in enumerate(ordered):
        others = len(ordered) - index
        if price * others > left:
            return left // others
        left -= price
    return ordered[-1] if ordered else 0


def _shorten_message(
    message: StoredMessage, parts: Sequence[Part], prices: Sequence[int], level: int, mark: str, count: Count
) -> StoredMessage:
    if all(price <= level for price in prices):
        return message
    saved_tokens = saved_bytes = 0
    remaining = iter(prices)

    def cut_part(part: SimplePart) -> SimplePart:
        nonlocal saved_tokens, saved_bytes
        if not isinstance(part, Text):
            return part
        price = next(remaining)
        if price <= level:
            return part
        text = _cut(part.text, level, mark, count)
        saved_tokens += price - count(text)
        saved_bytes += len(part.text.encode()) - len(text.encode())
        return Text(text)

    content = [_map_texts(part, cut_part) for part in parts]
    return msgspec.structs.replace(
        message,
        content=encode_parts(content),
        tokens=message.tokens - saved_tokens,
        size=message.size - saved_bytes,
    )


def _map_texts(part: Part, change: Callable[[SimplePart], SimplePart]) -> Part:
    if isinstance(part, Text):
        return change(part)
    if isinstance(part, ToolResult):
        return msgspec.structs.replace(part, parts=tuple(change(inner) for inner in part.parts))
    return part


def _cut(text: str, level: int, mark: str, count: Count) -> str:
    """The longest beginning and end of a text that, with the mark between, take at most `level` tokens."""

    def kept(characters: int) -> str:
        end = characters // 2
        return text[: characters - end] + mark + text[len(text) - end :]

    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if count(kept(middle)) <= level:
            low = middle
        else:
            high = middle - 1
    # Counts are nearly, not strictly, monotone in the length: step back until it fits.
    while low and count(kept(low)) > level:
        low -= 1
    return kept(low)
