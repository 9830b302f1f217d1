"""What readers may see of a history, and where their walks through it end: the rules of `base`, for every adapter."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from typing import NamedTuple, TypeVar

from memoryd_server.stores.base import MessageQuery, Tail
from memoryd_server.stores.records import Entry, Record

AnyEntry = TypeVar("AnyEntry", bound=Entry)


class Segment(NamedTuple):
    """An unbroken range of seqs; both ends are included."""

    low: int
    high: int


def visible_segments(record: Record, low: int = 1, high: int = sys.maxsize) -> list[Segment]:
    """The ranges between `low` and `high` that are not removed, ascending.

    Walks go through these, so that a removed range costs nothing however long it is.
    """
    low = max(low, record.first_seq)
    high = min(high, record.last_seq)
    segments = []
    for removed in sorted(record.removed, key=lambda removed: removed.from_seq):
        if removed.from_seq > low:
            segments.append(Segment(low, min(high, removed.from_seq - 1)))
        low = max(low, removed.to_seq + 1)
    segments.append(Segment(low, high))
    return [segment for segment in segments if segment.low <= segment.high]


def visibility(record: Record) -> Callable[[int], bool]:
    """Tells whether a seq is visible."""
    segments = visible_segments(record)
    if len(segments) == 1:
        low, high = segments[0]
        return lambda seq: low <= seq <= high
    return lambda seq: any(segment.low <= seq <= segment.high for segment in segments)


def reading_order(entry: Entry) -> tuple[int, int, int]:
    """The sort key of the order in which windows show messages."""
    return entry.head, entry.position, entry.seq


def merge_backwards(walks: list[Iterator[AnyEntry]]) -> Iterator[AnyEntry]:
    """One lazy walk backwards in reading order, out of one for each usability."""
    return walks[0] if len(walks) == 1 else merge(*walks, key=reading_order, reverse=True)


def take_tail(entries: Iterable[AnyEntry], tail: Tail) -> list[AnyEntry]:
    """Takes from a walk backwards in reading order until a bound is reached, the newest group whole."""
    taken: list[AnyEntry] = []
    tokens, token_bound = 0, sys.maxsize if tail.tokens is None else tail.tokens
    newest_head, full = None, False
    for entry in entries:
        if newest_head is None:
            newest_head = entry.head
        elif full and entry.head != newest_head:
            break
        taken.append(entry)
        tokens += entry.tokens
        full = full or len(taken) >= tail.messages or tokens >= token_bound
        if full and entry.head != newest_head:
            break  # Spares the next step of the walk.
    return taken


def take_opening(entries: Iterable[AnyEntry], tail: Tail) -> list[AnyEntry]:
    """Takes from a walk by seq until half of a bound is reached."""
    taken: list[AnyEntry] = []
    tokens, token_bound = 0, sys.maxsize if tail.tokens is None else tail.tokens
    for entry in entries:
        taken.append(entry)
        tokens += entry.tokens
        if 2 * len(taken) >= tail.messages or 2 * tokens >= token_bound:
            break
    return taken


def take_page(entries: Iterable[AnyEntry], query: MessageQuery) -> tuple[list[AnyEntry], bool]:
    """Takes a page from what a query matches. Returns whether there is more of that, too."""
    taken: list[AnyEntry] = []
    size = 0
    for entry in entries:
        size += entry.size
        if len(taken) >= query.limit or (taken and size > query.bytes):
            return taken, True
        taken.append(entry)
    return taken, False


def bodies_fit(tail: Iterable[Entry], opening: Iterable[Entry], body_bytes: int) -> bool:
    """Whether the bodies of tail and opening may come along; what is in both counts once."""
    sizes = {entry.seq: entry.size for entry in tail}
    sizes.update((entry.seq, entry.size) for entry in opening)
    return sum(sizes.values()) <= body_bytes


def bare(entry: Entry) -> Entry:
    """The entry without its body, and without `undo`, which no window asks for."""
    return Entry(
        entry.seq,
        entry.head,
        entry.position,
        entry.usability,
        entry.role,
        entry.tokens,
        entry.size,
        entry.calls,
        entry.answers,
        entry.prior_user,
    )
