"""MariaDB's and MySQL's statement for loads.

It never joins sessions and messages, nor does it tell usabilities apart by IN: the database would sort all messages of
the session, instead of walking the index that has them in order. A session that this server knows is named by its
number, and the session's row tells whether that still holds; of another the statement looks the number up, which takes
longer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

from sqlalchemy import Dialect

from memoryd_server.stores.records import Record, SessionKey, Usability
from memoryd_server.stores.sql.rows import ENTRY_COLUMNS, KEY, MESSAGE_COLUMNS, Row
from memoryd_server.stores.sql.schema import messages, sessions, summaries
from memoryd_server.stores.sql.steps import Fetch, Plan
from memoryd_server.stores.sql.tails import (
    OPENING_ROW,
    SESSION_COLUMNS,
    SESSION_ROW,
    SUMMARY_COLUMN,
    SUMMARY_ROW,
    TAIL_ROW,
    Asked,
)

READING_ORDER: Final = "memoryd_messages_in_reading_order"

KNOWN_SESSIONS: Final = 8_192
"""Sessions whose numbers a server remembers, in some megabytes: more than the engine has records of."""

_SESSION_COLUMNS: Final = {**SESSION_COLUMNS, "tokens": "bytes", "size": "largest", "name": "incarnation"}
"""Where a session's row has its columns: those that `tails` reads, and those that tell whether the statement served."""


class Known(NamedTuple):
    """A session as this server last saw it: its number and life, which never change while it lives, and hints."""

    id: int
    life: int
    incarnation: str
    first_seq: int | None = None
    opening_to: int | None = None
    bytes: int | None = None
    largest: int | None = None

    @classmethod
    def of(cls, session: int, life: int, record: Record) -> Known:
        """With the hints that are in a record."""
        hints = (record.first_seq, record.opening_to, record.bytes, record.largest)
        return cls(session, life, record.incarnation, *hints)

    @property
    def has_hints(self) -> bool:
        """Whether there are any: a server of an older schema leaves none."""
        return None not in self

    @property
    def place(self) -> Row:
        """What a statement is told of it."""
        return self[:5]

    @property
    def has_opening(self) -> bool:
        """Whether the history opens with pinned messages."""
        assert self.first_seq is not None
        assert self.opening_to is not None
        return self.opening_to >= self.first_seq

    def is_little(self, size: int, largest: int) -> bool:
        """Whether all messages have at most a size together, or each of them a largest one."""
        return (self.bytes is not None and self.bytes <= size) or (self.largest is not None and self.largest <= largest)


class KnownSessions:
    """The sessions that were seen last."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[SessionKey, Known] = OrderedDict()

    def get(self, key: SessionKey) -> Known | None:
        return self._sessions.get(key)

    def put(self, key: SessionKey, session: Known) -> None:
        self._sessions[key] = session
        self._sessions.move_to_end(key)
        if len(self._sessions) > KNOWN_SESSIONS:
            self._sessions.popitem(last=False)

    def drop(self, key: SessionKey) -> None:
        self._sessions.pop(key, None)


class _Shape(NamedTuple):
    """What a statement is for."""

    usabilities: tuple[Usability, ...]
    has_opening: bool
    is_known: bool
    """Whether it names the session by its number."""
    if_little: bool
    """Whether it answers messages only when the session's row tells that their bodies are little. Otherwise it looks at
    the sizes, and answers messages without bodies when these do not fit."""
    has_summary: bool


class MariaDBLoadStatements:
    """See `tails.LoadStatements`."""

    def __init__(self, dialect: Dialect, known: KnownSessions) -> None:
        self._known = known
        self._statement = lru_cache(maxsize=None)(lambda shape: _LoadStatement(dialect, shape))

    def rows(self, asked: Asked) -> Plan[Sequence[Row]]:
        usabilities = tuple(sorted(asked.usabilities))
        little = asked.body_bytes // (asked.most * len(usabilities) + asked.most_opening)
        known = self._known.get(asked.key)
        if known is not None and known.has_hints:
            if_little = known.is_little(asked.body_bytes, little)
            has_opening = asked.most_opening > 0 and known.has_opening
            statement = self._statement(_Shape(usabilities, has_opening, True, if_little, asked.summary))
            rows: Sequence[Row] = yield Fetch(statement.sql, statement.parameters(asked, known, little))
            found = self._learn(asked.key, rows)
            if found is None or (
                found.place == known.place and (not if_little or found.is_little(asked.body_bytes, little))
            ):
                return rows
        statement = self._statement(_Shape(usabilities, asked.most_opening > 0, False, False, asked.summary))
        rows = yield Fetch(statement.sql, statement.parameters(asked, None, little))
        self._learn(asked.key, rows)
        return rows

    def _learn(self, key: SessionKey, rows: Sequence[Row]) -> Known | None:
        """Remembers what rows tell of a session."""
        if not rows:
            self._known.drop(key)
            return None
        (row,) = (row for row in rows if row[0] == SESSION_ROW)
        found = Known._make(_of_session(row))
        self._known.put(key, found)
        return found


class _LoadStatement:
    """The text of a statement and the order of its parameters."""

    def __init__(self, dialect: Dialect, shape: _Shape) -> None:
        self._quote = dialect.identifier_preparer.quote
        self._shape = shape
        self._names: list[str] = []
        # Composed in the order of the text, which is the order of its parameters.
        texts = [self._session_row()]
        for is_bare in (False,) if shape.if_little else (False, True):
            texts += [self._tail(usability, is_bare) for usability in shape.usabilities]
            if shape.has_opening:
                texts.append(self._opening(is_bare))
        if shape.has_summary:
            texts.append(self._newest_summary())
        self.sql = " UNION ALL ".join(texts)

    def parameters(self, asked: Asked, known: Known | None, largest: int) -> list[Any]:
        """The values of its parameters. `largest`: the size up to which messages are little."""
        values = {
            **asked.key._asdict(),
            **(known._asdict() if known else {}),
            "most": asked.most,
            "most_opening": asked.most_opening,
            "body_bytes": asked.body_bytes,
            "little": largest,
        }
        return [values[name] for name in self._names]

    def _parameter(self, name: str) -> str:
        self._names.append(name)
        return "?"

    def _of_key(self) -> str:
        return f"FROM {sessions.name} s WHERE " + " AND ".join(f"s.{name} = {self._parameter(name)}" for name in KEY)

    def _session_row(self) -> str:
        selected = ", ".join(
            f"{f's.{_SESSION_COLUMNS[name]}' if name in _SESSION_COLUMNS else 'NULL'} AS {self._quote(name)}"
            for name in MESSAGE_COLUMNS
        )
        return f"(SELECT {SESSION_ROW} AS part, {selected} {self._of_key()})"

    def _number(self, name: str) -> str:
        """Of the session: its `id`, `life`, `first_seq` or `opening_to`."""
        return self._parameter(name) if self._shape.is_known else f"(SELECT s.{name} {self._of_key()})"

    def _newest_summary(self) -> str:
        selected = ", ".join("x.summary" if name == SUMMARY_COLUMN else "NULL" for name in MESSAGE_COLUMNS)
        of_life = f"x.session = {self._number('id')} AND x.life = {self._number('life')}"
        return (
            f"(SELECT {SUMMARY_ROW}, {selected} FROM {summaries.name} x WHERE {of_life} ORDER BY x.number DESC LIMIT 1)"
        )

    def _life(self) -> str:
        return f"m.session = {self._number('id')} AND m.life = {self._number('life')}"

    def _from_tail(self, usability: Usability) -> str:
        return (
            f"FROM {messages.name} m FORCE INDEX ({READING_ORDER}) WHERE {self._life()}"
            f" AND m.usability = {usability.value} AND m.head >= {self._number('first_seq')}"
        )

    def _from_opening(self) -> str:
        return (
            f"FROM {messages.name} m FORCE INDEX (PRIMARY) WHERE {self._life()}"
            f" AND m.seq >= {self._number('first_seq')} AND m.seq <= {self._number('opening_to')}"
        )

    def _first_of_tail(self) -> str:
        return f"ORDER BY m.head DESC, m.position DESC, m.seq DESC LIMIT {self._parameter('most')}"

    def _first_of_opening(self) -> str:
        return f"ORDER BY m.seq LIMIT {self._parameter('most_opening')}"

    def _tail(self, usability: Usability, is_bare: bool) -> str:
        where = f"{self._from_tail(usability)} AND {self._condition(is_bare)}"
        return f"({_select(self._quote, TAIL_ROW, is_bare)} {where} {self._first_of_tail()})"

    def _opening(self, is_bare: bool) -> str:
        where = f"{self._from_opening()} AND {self._condition(is_bare)}"
        return f"({_select(self._quote, OPENING_ROW, is_bare)} {where} {self._first_of_opening()})"

    def _condition(self, is_bare: bool) -> str:
        if self._shape.if_little:
            little = f"s.bytes <= {self._parameter('body_bytes')} OR s.largest <= {self._parameter('little')}"
            return f"(SELECT {little} FROM {sessions.name} s WHERE s.id = {self._parameter('id')})"
        parts = [
            f"(SELECT m.size {self._from_tail(usability)} {self._first_of_tail()})"
            for usability in self._shape.usabilities
        ]
        if self._shape.has_opening:
            parts.append(f"(SELECT m.size {self._from_opening()} {self._first_of_opening()})")
        together = f"(SELECT SUM(size) FROM ({' UNION ALL '.join(parts)}) AS sizes)"
        return f"{together} {'>' if is_bare else '<='} {self._parameter('body_bytes')}"


def _select(quote: Any, kind: int, is_bare: bool) -> str:
    columns = ENTRY_COLUMNS if is_bare else MESSAGE_COLUMNS
    selected = (f"m.{quote(name)}" if name in columns else "NULL" for name in MESSAGE_COLUMNS)
    return f"SELECT {kind + is_bare}, {', '.join(selected)}"


_of_session = itemgetter(
    *(
        1 + MESSAGE_COLUMNS.index({column: name for name, column in _SESSION_COLUMNS.items()}[column])
        for column in Known._fields
    )
)
