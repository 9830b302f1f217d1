"""What to draw of a window in its history: which messages, what became of each, and what is folded. Pure.

Messages stand in the order of the history. Where the window has them in another order (results behind their calls), a
note says so.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby, pairwise
from typing import Final

from memoryd import LeftOutReason, Message, Window, WindowMode
from memoryd_server.cli.groups import Pairing, Placed
from memoryd_server.cli.safe_text import one_line


class Place(Enum):
    """What became of a message: the mark in the margin, its style, and what the legend says."""

    PINNED = ("P", "cyan", "pinned")
    WINDOW = ("┃", "green", "in window")
    MADE_UP = ("+", "magenta", "made up")
    SUMMARY = ("S", "blue", "summary")
    COVERED = ("┆", "blue", "in the summary")
    LIMIT = ("·", "dim", "does not fit")
    ORPHAN = ("✗", "yellow", "answers no call")
    OPEN = ("○", "yellow", "open call")
    LEFT_OUT = ("·", "dim", "left out")
    """For one of the reasons above. Only of messages that were not read, in histories with many such reasons."""

    def __init__(self, mark: str, style: str, meaning: str) -> None:
        self.mark = mark
        self.style = style
        self.meaning = meaning


_SHOWN: Final = (Place.PINNED, Place.WINDOW, Place.MADE_UP, Place.SUMMARY)
_OF_REASON: Final = {
    LeftOutReason.LIMIT: Place.LIMIT,
    LeftOutReason.ORPHAN_RESULT: Place.ORPHAN,
    LeftOutReason.OPEN_TOOL_CALL: Place.OPEN,
}
_FEW: Final = 6
"""So many skipped messages in a row are drawn as part of what surrounds them; more are a stretch of their own."""
_MAX_LANES: Final = 2
"""Tool groups that are open at once in a drawing; brackets of more would leave no room for the text."""


@dataclass(slots=True)
class Row:
    """One message of the drawing."""

    message: Message
    place: Place
    placed: Placed
    notes: list[str] = field(default_factory=list)
    lanes: str = ""
    """The brackets that hold tool groups together, one character a lane."""


@dataclass(slots=True)
class Fold:
    """A stretch of messages drawn as one line."""

    counts: Counter[Place]
    tokens: int | None
    """None where not all of them were read."""
    lanes: str = ""

    @property
    def place(self) -> Place:
        """What became of most of them."""
        return max(self.counts, key=lambda place: self.counts[place])


@dataclass(frozen=True, slots=True)
class Folding:
    """How much of long stretches is drawn: so many messages at the beginning and at the end of each."""

    pinned: tuple[int, int]
    left_out: tuple[int, int]
    shown: tuple[int, int]

    @classmethod
    def to_rows(cls, rows: int) -> "Folding":
        """The folding that draws about so many messages."""
        tenth = max(1, rows // 10)
        return cls((tenth, 1), (max(1, tenth // 2), tenth), (2 * tenth, max(1, 5 * tenth)))

    def of(self, place: Place) -> tuple[int, int]:
        """The messages drawn at the two ends of a stretch."""
        if place is Place.PINNED:
            return self.pinned
        return self.shown if place in _SHOWN else self.left_out


Item = Row | Fold


def ranges_to_read(window: Window, folding: Folding) -> list[tuple[int, int]]:
    """The seqs to read of a long history, first and last: what is drawn of it, and little more.

    The beginning and the end of the history are always part of it.
    """
    stats = window.stats
    seqs = [message.seq for message in window.messages if message.seq]
    covered_from, covered_to = covered_seqs(window)
    firsts = (covered_from, stats.left_out.limit_from_seq)
    first_seq = min([*seqs, *(entry.seq for entry in stats.left_out.messages), *filter(None, firsts), stats.last_seq])
    last_pinned = seqs[stats.pinned_message_count - 1] if stats.pinned_message_count else first_seq - 1
    before, after = folding.left_out[0] + _FEW, folding.left_out[1] + _FEW
    head, tail = folding.shown
    wanted = [
        (first_seq, first_seq + folding.pinned[0]),
        (last_pinned + 1 - folding.pinned[1], last_pinned + before),
        (stats.last_seq - after, stats.last_seq),
        *([(covered_to - after, covered_to + 1)] if covered_to else []),
    ]
    for first, last in _clusters(sorted(_shown_seqs(window)), head + tail):
        wanted += [(first - after, first + head), (last - tail, last + before)]
    ranges: list[tuple[int, int]] = []
    for first, last in sorted((max(1, first), min(stats.last_seq, last)) for first, last in wanted):
        if ranges and first <= ranges[-1][1] + _FEW:
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], last))
        elif first <= last:
            ranges.append((first, last))
    return ranges


def shown_summary(window: Window) -> Message | None:
    """The message that stands for older ones in a window; None when the window shows no summary."""
    summary_id = window.stats.summary_id
    return next((message for message in window.messages if summary_id and message.id == summary_id), None)


def covered_seqs(window: Window) -> tuple[int, int]:
    """The first and the last seq of what the window's summary stands for; zeros when it shows none."""
    summary = shown_summary(window)
    if summary is None:
        return 0, 0
    metadata = json.loads(summary.metadata)
    return metadata["from_seq"], metadata["to_seq"]


def _clusters(seqs: Sequence[int], distance: int) -> list[tuple[int, int]]:
    """The first and last of each run of seqs that lie no further apart; of many runs only the outer ones."""
    if not seqs:
        return []
    edges = [(one, next_one) for one, next_one in pairwise(seqs) if next_one - one > distance]
    firsts = [seqs[0], *(next_one for _, next_one in edges)]
    lasts = [*(one for one, _ in edges), seqs[-1]]
    clusters = list(zip(firsts, lasts, strict=True))
    return clusters if len(clusters) <= 2 * _FEW else clusters[:_FEW] + clusters[-_FEW:]


def _shown_seqs(window: Window) -> list[int]:
    """The seqs of the window's stored messages after the pins, in reading order."""
    return [message.seq for message in window.messages[window.stats.pinned_message_count :] if message.seq]


def draw(window: Window, stretches: Sequence[Sequence[Message]], folding: Folding) -> list[Item]:
    """What to draw of a window.

    Args:
        window: The window, loaded with `explain`.
        stretches: What was read of the history (view `all`, ascending): runs of successive messages, between which
            messages were not read.
        folding: How much of long stretches is drawn.

    Returns:
        The drawing's items, from the oldest message to the newest.
    """
    places = _Places(window)
    runs = [_rows(window, stretch, places) for stretch in stretches if stretch]
    _insert_summary(window, runs)
    for run in runs:
        _note_why_the_window_ended(window, run)
        _add_brackets(run)
    if not runs:
        return []
    gaps = _gaps(window, runs, places)
    items = [item for run, gap in zip(runs, [*gaps, None], strict=True) for item in (*run, gap) if item is not None]
    width = max((len(item.lanes) for item in items), default=0)
    for item in items:
        item.lanes = item.lanes.ljust(width)
    return [item for place, stretch in _stretches(items) for item in _folded(stretch, folding.of(place))]


class _Places:
    """What became of each stored message."""

    def __init__(self, window: Window) -> None:
        stats = window.stats
        left_out = stats.left_out
        self._shown = dict.fromkeys(_shown_seqs(window), Place.WINDOW)
        self._shown |= {message.seq: Place.PINNED for message in window.messages[: stats.pinned_message_count]}
        self.explained = {entry.seq: _OF_REASON.get(entry.reason, Place.LIMIT) for entry in left_out.messages}
        self._limit_to = left_out.limit_to_seq
        self._covered_to = covered_seqs(window)[1]
        # The explanation lists the newest, so what is newer than its oldest and not in it did not fit.
        complete = left_out.orphan_result_count + left_out.open_tool_call_count <= len(self.explained)
        self._explained_from = 0 if complete else min(self.explained, default=stats.last_seq + 1)

    def of(self, message: Message) -> Place:
        known = self._shown.get(message.seq) or self.explained.get(message.seq)
        if known:
            return known
        if message.seq <= self._covered_to:
            return Place.COVERED
        if message.seq >= self._explained_from or message.seq <= self._limit_to:
            return Place.LIMIT
        return Place.OPEN if message.tool_calls or not message.tool_results else Place.ORPHAN

    def covered_after(self, seq: int, count: int) -> int:
        """How many of `count` messages after this one, which the window does not show, the summary stands for."""
        return max(0, min(count, self._covered_to - seq))

    def is_explained_after(self, seq: int) -> bool:
        """Whether every message after this one that is in neither window nor explanation did not fit."""
        return seq + 1 >= self._explained_from


def _rows(window: Window, stretch: Sequence[Message], places: _Places) -> list[Row]:
    """The rows of a run of messages, with what windows make up for them."""
    pairing = Pairing()
    rows = [Row(message, places.of(message), pairing.place(message)) for message in stretch]
    by_seq = {row.message.seq: row for row in rows}
    _note_what_is_open(rows, pairing.unanswered())
    _note_what_the_window_changed(window, by_seq)
    made_up = _made_up(window)
    return [
        item
        for row in rows
        for item in (
            row,
            *(
                Row(message, Place.MADE_UP, Placed(row.placed.head), ["made up"])
                for message in made_up.get(row.message.seq, ())
            ),
        )
    ]


def _insert_summary(window: Window, runs: Sequence[list[Row]]) -> None:
    """Puts the summary behind the last message that it stands for."""
    summary = shown_summary(window)
    if summary is None:
        return
    covered_to = covered_seqs(window)[1]
    for run in runs:
        for index, row in enumerate(run):
            if row.message.seq > covered_to:
                run.insert(index, Row(summary, Place.SUMMARY, Placed()))
                return
    runs[-1].append(Row(summary, Place.SUMMARY, Placed()))


def _note_what_is_open(rows: Iterable[Row], unanswered: dict[int, list[str]]) -> None:
    for row in rows:
        if row.place is Place.ORPHAN:
            row.notes.append("no call for this")
        elif row.place is Place.OPEN:
            missing = unanswered.get(row.message.seq)
            if missing:
                row.notes.append(f"no result of {one_line(', '.join(missing), 40)}")
            elif row.message.tool_calls:
                row.notes.append("a call has no result")
            else:
                row.notes.append("another call of its group has no result")


def _note_what_the_window_changed(window: Window, by_seq: dict[int, Row]) -> None:
    for message in window.messages:
        if message.seq in window.stats.shortened_seqs and message.seq in by_seq:
            by_seq[message.seq].notes.append(f"shortened to {message.token_count:,} tokens")
    lowest_to_come = window.stats.last_seq + 1
    for before, seq in reversed(list(pairwise([0, *_shown_seqs(window)]))):
        if lowest_to_come < seq and seq in by_seq:
            by_seq[seq].notes.append(f"read after {before}")
        lowest_to_come = min(lowest_to_come, seq)


def _note_why_the_window_ended(window: Window, run: Sequence[Row]) -> None:
    """Says what the newest group that did not fit would have needed, where the run holds the window's beginning."""
    stats = window.stats
    limit_to = stats.left_out.limit_to_seq
    older = [row for row in run if row.place is Place.LIMIT and row.message.seq <= limit_to]
    if not older or all(row.message.seq <= limit_to for row in run):
        return
    head = older[-1].placed.head
    if head is None and older[-1].message.tool_results:
        return  # Its group begins before what was read.
    group = [row for row in run if row.placed.head == head and row.message.seq] if head else [older[-1]]
    by_tokens = stats.mode is WindowMode.TOKENS
    price = sum(row.message.token_count for row in group) if by_tokens else len(group)
    free = stats.limit - (stats.window_token_count if by_tokens else stats.window_message_count)
    if price > free >= 0:
        group[0].notes.append(f"needs {price:,}, {free:,} free")


def _made_up(window: Window) -> dict[int, list[Message]]:
    """The window's messages that are not stored, by the seq of the stored one that they follow."""
    made_up: dict[int, list[Message]] = {}
    follows = 0
    summary = shown_summary(window)
    for message in window.messages:
        if message.seq:
            follows = message.seq
        elif message is not summary:
            made_up.setdefault(follows, []).append(message)
    return made_up


def _add_brackets(rows: Sequence[Row]) -> None:
    """Gives each tool group with more than one row a bracket; groups that overlap stand in lanes side by side."""
    spans: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        if row.placed.head is not None:
            spans.setdefault(row.placed.head, []).append(index)
    lanes: list[dict[int, str]] = []
    ends: list[int] = []
    for members in spans.values():
        if len(members) < 2:
            continue
        lane = next((lane for lane, end in enumerate(ends) if end < members[0]), len(ends))
        if lane == _MAX_LANES:
            continue
        if lane == len(ends):
            ends.append(0)
            lanes.append({})
        ends[lane] = members[-1]
        lanes[lane] |= dict.fromkeys(range(members[0], members[-1] + 1), "│")
        lanes[lane] |= dict.fromkeys(members, "├")
        lanes[lane] |= {members[0]: "┌", members[-1]: "└"}
    for index, row in enumerate(rows):
        row.lanes = "".join(lane.get(index, " ") for lane in lanes)


def _gaps(window: Window, runs: Sequence[Sequence[Row]], places: _Places) -> list[Fold | None]:
    """The stretches between the runs that were read, from what the window and its stats tell about them."""
    stats = window.stats
    read = [row.message for run in runs for row in run if row.message.seq]
    gaps: list[Fold] = []
    spans: list[int] = []
    for before, after in pairwise(runs):
        start, end = _last_seq(before), after[0].message.seq
        shown = [message for message in window.messages if start < message.seq < end]
        counts = Counter(places.of(message) for message in shown)
        counts.update(place for seq, place in places.explained.items() if start < seq < end)
        gaps.append(Fold(counts, sum(message.token_count for message in shown)))
        spans.append(end - start - 1)
    if not gaps:
        return []

    # Successive seqs are successive messages, save where history was taken away: the widest gap takes the difference.
    others = [span - gap.counts.total() for span, gap in zip(spans, gaps, strict=True)]
    widest = spans.index(max(spans))
    others[widest] += stats.history_message_count - len(read) - sum(spans)
    for gap, other, (before, _) in zip(gaps, others, pairwise(runs), strict=True):
        covered = places.covered_after(_last_seq(before), other)
        if covered:
            gap.counts[Place.COVERED] += covered
        if other > covered:
            place = Place.LIMIT if places.is_explained_after(_last_seq(before)) else Place.LEFT_OUT
            gap.counts[place] += other - covered

    mixed = [gap for gap in gaps if any(place not in _SHOWN for place in gap.counts)]
    known = sum(gap.tokens or 0 for gap in gaps if gap not in mixed)
    for gap in mixed:
        rest = stats.history_token_count - sum(message.token_count for message in read) - known
        gap.tokens = rest if len(mixed) == 1 else None
    return [gap if gap.counts else None for gap in gaps]


def _last_seq(run: Sequence[Row]) -> int:
    return max(row.message.seq for row in run)


_KINDS: Final = {
    Place.PINNED: Place.PINNED,
    Place.WINDOW: Place.WINDOW,
    Place.MADE_UP: Place.WINDOW,
    Place.SUMMARY: Place.SUMMARY,
    Place.COVERED: Place.COVERED,
    Place.LIMIT: Place.LIMIT,
    Place.ORPHAN: Place.OPEN,
    Place.OPEN: Place.OPEN,
    Place.LEFT_OUT: Place.LEFT_OUT,
}


def _stretches(items: Sequence[Item]) -> list[tuple[Place, list[Item]]]:
    """Cuts the items into stretches of one kind each. A few skipped messages belong to the stretch before them."""
    stretches: list[tuple[Place, list[Item]]] = []
    for kind, group in groupby(items, key=lambda item: _KINDS[item.place]):
        members = list(group)
        few = kind is Place.OPEN and len(members) <= _FEW and all(isinstance(item, Row) for item in members)
        before = stretches[-1][0] if stretches else None
        # What is left out for a reason that is not known goes with what is left out for one that is.
        unknown = Place.LEFT_OUT in (kind, before) and not {kind, before} & {Place.PINNED, Place.WINDOW, Place.SUMMARY}
        if before and (few or before is kind or unknown):
            stretches[-1] = (kind if before is Place.LEFT_OUT else before, [*stretches[-1][1], *members])
        else:
            stretches.append((kind, members))
    return stretches


def _folded(stretch: list[Item], ends: tuple[int, int]) -> list[Item]:
    """A stretch with its middle folded, where it is long or was not read."""
    head, tail = ends
    unread = [index for index, item in enumerate(stretch) if isinstance(item, Fold)]
    start = min([head, *unread])
    end = max([len(stretch) - tail, *(index + 1 for index in unread)])
    if end - start < 3 and not unread:
        return stretch
    middle = stretch[start:end]
    counts: Counter[Place] = Counter()
    for item in middle:
        counts.update(item.counts if isinstance(item, Fold) else (item.place,))
    tokens = [item.tokens if isinstance(item, Fold) else item.message.token_count for item in middle]
    known = [token_count for token_count in tokens if token_count is not None]
    if counts[Place.LEFT_OUT]:
        known_places = (*_SHOWN, Place.COVERED)
        left_out = counts.total() - sum(counts[place] for place in known_places)
        counts = Counter({Place.LEFT_OUT: left_out} | {place: counts[place] for place in known_places if counts[place]})
    fold = Fold(counts, sum(known) if len(known) == len(tokens) else None, _folded_lanes(middle))
    return [*stretch[:start], fold, *stretch[end:]]


def _folded_lanes(middle: Sequence[Item]) -> str:
    """The brackets of a folded stretch: those that come in, go out or pass."""
    chars = {(True, True): "│", (True, False): "└", (False, True): "┌", (False, False): " "}
    return "".join(
        chars[first in "┌├│└" and first in "├│└", last in "┌├│"]
        for first, last in zip(middle[0].lanes, middle[-1].lanes, strict=True)
    )
