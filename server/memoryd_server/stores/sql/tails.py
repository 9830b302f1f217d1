"""Loads by one statement, so that all is of one moment and takes one round trip: what is the same on every database.

The statement answers a row of the session and rows of the tail and the opening, as many as probably suffice. Where they
do not, it is run again for more: each run is of one moment by itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final, NamedTuple, Protocol

from memoryd_server.stores.base import Loaded, Tail
from memoryd_server.stores.records import Entry, Record, SessionKey, StoredSummary, Usability, decode_summary
from memoryd_server.stores.sql.reads import Reads
from memoryd_server.stores.sql.rows import ENTRY_COLUMNS, MESSAGE_COLUMNS, Codec, Row, record_of
from memoryd_server.stores.sql.statements import Statements
from memoryd_server.stores.sql.steps import Fetch, Plan
from memoryd_server.stores.walk import (
    bare,
    bodies_fit,
    reading_order,
    take_opening,
    take_tail,
    visibility,
    visible_segments,
)

USUAL_TOKENS: Final = 40
"""Tokens of a message, where nothing is known of a session."""

SPARE: Final = 1.25
"""How many more rows than a number of tokens probably takes are read, as a factor; and FEW beyond that."""

FEW: Final = 8

MORE: Final = 4
"""How many times as many rows are read when they did not suffice."""

REMEMBERED: Final = 4_096
"""Sessions of which it is remembered how long their messages are."""

SESSION_ROW: Final = 0
TAIL_ROW: Final = 2
OPENING_ROW: Final = 4
SUMMARY_ROW: Final = 6
"""The first column of a row: what it is about; of tail and opening, plus 1 when it lacks its body."""

SESSION_COLUMNS: Final = {
    "seq": "id",
    "head": "life",
    "prior_user": "first_seq",
    "created": "opening_to",
    "content": "record",
    "metadata": "open_calls",
}
"""Where a session's row has its columns among MESSAGE_COLUMNS."""

SUMMARY_COLUMN: Final = "content"
"""Where the row of the newest summary has its text."""


class Asked(NamedTuple):
    """What a statement is to answer."""

    key: SessionKey
    usabilities: tuple[Usability, ...]
    most: int
    """Rows of each usability."""
    most_opening: int
    """Rows of the opening; 0 for none."""
    body_bytes: int
    summary: bool = False
    """Whether to answer a row of the newest summary, if there is one."""


class LoadStatements(Protocol):
    """The statements of a database.

    Their rows are of the kind of row and MESSAGE_COLUMNS. Rows of one kind may come in any order, those of the tail
    being the newest of each usability in reading order, from the session's `first_seq` on. Those that stand foremost in
    the order of their kind have their bodies as long as the sizes of these together are at most `body_bytes`.
    """

    def rows(self, asked: Asked) -> Plan[Sequence[Row]]:
        """What they answer, by the last of them alone; no row when there is no such session."""


class _TooFew(Exception):
    """A walk goes on beyond the rows that were read."""


class Loads(Reads):
    """Reads, with the plans of `load`."""

    def __init__(self, statements: Statements, codec: Codec, load_statements: LoadStatements) -> None:
        super().__init__(statements, codec)
        self._load_statements = load_statements
        self._tokens: OrderedDict[SessionKey, float] = OrderedDict()

    def load_tail(self, key: SessionKey, tail: Tail) -> Plan[Loaded | Record | None]:
        """Loads by statements of which each is of one moment by itself.

        Returns: the bare record when that does not lead to an end: then `load_tail_stepwise` does.
        """
        most = self._rows_of(key, tail)
        while True:
            most_opening = min(most, tail.messages + 1) // 2 + 1 if tail.opening else 0
            asked = Asked(key, tuple(tail.usabilities), most, most_opening, tail.body_bytes, tail.summary)
            rows = yield from self._load_statements.rows(asked)
            if not rows:
                return None
            parts: dict[int, list[Row]] = {SESSION_ROW: [], TAIL_ROW: [], OPENING_ROW: [], SUMMARY_ROW: []}
            for row in rows:
                parts[row[0] & ~1].append(row)
            _, _, first_seq, opening_to, text, open_calls = _of_session(parts[SESSION_ROW][0])
            record = record_of(text, open_calls)
            if tail.tokens is not None:
                self._remember(key, record)
            if (first_seq, opening_to) != (record.first_seq, record.opening_to):
                return record  # A server of schema 0001 wrote it last.
            try:
                return self._loaded(record, tail, asked, parts) or record
            except _TooFew:
                most = max(MORE * most, self._rows_of(key, tail))

    def load_tail_stepwise(self, key: SessionKey, tail: Tail) -> Plan[Loaded | None]:
        """Loads by several statements, whatever it takes; to be run on one moment."""
        session = yield from self._session(key)
        if session is None:
            return None
        record = session.record
        most = self._rows_of(key, tail)
        entries: list[Entry] | None = None
        while entries is None:
            newest: list[Entry] = []
            for usability in tail.usabilities:
                newest += yield from self._newest(session, usability, most)
            try:
                entries = take_tail(_walk(sorted(newest, key=reading_order, reverse=True), most), tail)
            except _TooFew:
                most *= MORE
        opening: list[Entry] = []
        if tail.opening:
            for segment in visible_segments(record, record.first_seq, record.opening_to):
                rows = yield Fetch(self._sql.entries, (session.id, session.life, *segment))
                opening += map(self._codec.entry, rows)
            opening = take_opening(opening, tail)
        summary = yield from self.current_summary(session, asked=tail.summary)
        if not bodies_fit(entries, opening, tail.body_bytes):
            return Loaded(record, entries, opening, summary)
        bodies = yield from self.messages_by_seq(session, list({entry.seq for entry in (*opening, *entries)}))
        whole, first = ([bodies[entry.seq] for entry in some] for some in (entries, opening))
        return Loaded(record, whole, first, summary)

    def _rows_of(self, key: SessionKey, tail: Tail) -> int:
        """The rows that the tail probably takes: one more than wanted tells whether the newest group goes on."""
        if tail.tokens is None:
            return tail.messages + 1
        rows = int(tail.tokens / self._tokens.get(key, USUAL_TOKENS) * SPARE) + FEW
        return min(tail.messages + 1, rows)

    def _remember(self, key: SessionKey, record: Record) -> None:
        if record.messages:
            self._tokens[key] = max(1.0, record.tokens / record.messages)
            self._tokens.move_to_end(key)
            if len(self._tokens) > REMEMBERED:
                self._tokens.popitem(last=False)

    def _loaded(self, record: Record, tail: Tail, asked: Asked, parts: dict[int, list[Row]]) -> Loaded | None:
        """The answer; None when bodies are missing in it that belong there."""
        # They are in order already; but no standard says so.
        newest = sorted(parts[TAIL_ROW], key=_backwards, reverse=True)
        first = sorted(parts[OPENING_ROW], key=_by_seq)
        is_visible = visibility(record) if record.removed else None
        entries = take_tail(_walk(map(self._of_row, newest), asked.most, is_visible), tail)
        opening = take_opening(_run(map(self._of_row, first), asked.most_opening, is_visible), tail)
        summary: StoredSummary | None = None
        if tail.summary and record.summaries:
            summary = decode_summary(_text_of_summary(parts[SUMMARY_ROW][0]))
        if not bodies_fit(entries, opening, tail.body_bytes):
            return Loaded(record, list(map(bare, entries)), list(map(bare, opening)), summary)
        if any(type(entry) is Entry for entry in (*entries, *opening)):
            return None
        return Loaded(record, entries, opening, summary)

    def _of_row(self, row: Row) -> Entry:
        return self._codec.entry(row[1:_ENTRY_END]) if row[0] & 1 else self._codec.message(row[1:])


_backwards = itemgetter(*(1 + MESSAGE_COLUMNS.index(name) for name in ("head", "position", "seq")))
_by_seq = itemgetter(1 + MESSAGE_COLUMNS.index("seq"))
_of_session = itemgetter(*(1 + MESSAGE_COLUMNS.index(name) for name in SESSION_COLUMNS))
_text_of_summary = itemgetter(1 + MESSAGE_COLUMNS.index(SUMMARY_COLUMN))
_ENTRY_END: Final = 1 + len(ENTRY_COLUMNS)


def _walk(entries: Iterable[Entry], most: int, is_visible: Callable[[int], bool] | None = None) -> Iterator[Entry]:
    """What is visible of the entries, of which at most so many of each usability were asked for.

    Raises: _TooFew where more of them may follow.
    """
    left = dict.fromkeys(Usability, most)
    for entry in entries:
        left[entry.usability] -= 1
        if is_visible is None or (is_visible(entry.head) and is_visible(entry.seq)):
            yield entry
        if not left[entry.usability]:
            raise _TooFew


def _run(entries: Iterable[Entry], most: int, is_visible: Callable[[int], bool] | None) -> Iterator[Entry]:
    """As `_walk`, by seq, where so many were asked for in all."""
    for number, entry in enumerate(entries, 1):
        if is_visible is None or is_visible(entry.seq):
            yield entry
        if number == most:
            raise _TooFew
