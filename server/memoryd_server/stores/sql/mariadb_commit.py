"""Commits on MariaDB and MySQL: mostly one text of several statements, in one round trip.

The text makes all its changes or none: behind each compare-and-set stands a statement that fails unless one row was
changed, and then the transaction is rolled back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import BindParameter, Dialect, bindparam, update

from memoryd_server.limits import MIB
from memoryd_server.stores.base import Change
from memoryd_server.stores.sql.mariadb_connection import literal
from memoryd_server.stores.sql.rows import (
    CHANGING_COLUMNS,
    RECORD_COLUMNS,
    Row,
    changing,
    indexed,
    row_of_lookup,
    row_of_message,
    row_of_record,
)
from memoryd_server.stores.sql.schema import sessions
from memoryd_server.stores.sql.statements import Statements, compile_once

MUST_BE_ONE: Final = b"SELECT 9223372036854775807 + (ROW_COUNT() <> 1)"
"""Fails, as out of range, unless the statement before changed one row."""

LARGE_BYTES: Final = MIB
"""Rows of about so many bytes are inserted together: each message beyond fits into a packet by itself."""

_VALUES: Final = " VALUES "


class CommitTexts:
    """Makes the texts of commits."""

    def __init__(self, dialect: Dialect, statements: Statements) -> None:
        self._sql = statements
        self._set_changing = _compare_and_set(dialect, CHANGING_COLUMNS)
        self._set_record = _compare_and_set(dialect, RECORD_COLUMNS)

    def of(self, changes: Sequence[tuple[int, int, Change]]) -> list[bytes]:
        """The statements that make changes which only add, each given with its session's number and life."""
        texts: list[bytes] = []
        lookups: list[Row] = []
        messages: list[Row] = []
        for session, life, change in changes:
            texts += (self._change_record(session, change), MUST_BE_ONE)
            texts += [with_values(self._sql.complete_group, (session, life, head)) for head in change.completed]
            lookups += [row_of_lookup(session, life, lookup) for lookup in change.lookups]
            messages += [row_of_message(session, life, message) for message in change.messages]
        for sql, rows in ((self._sql.insert_lookup, lookups), (self._sql.insert_message, messages)):
            if rows:
                texts += with_rows(sql, rows)
        return texts

    def _change_record(self, session: int, change: Change) -> bytes:
        previous, record = change.previous, change.record
        assert previous is not None
        assert record is not None
        expected = (session, previous.incarnation, previous.version)
        if indexed(previous) == indexed(record):
            return with_values(self._set_changing, (*changing(record), *expected))
        return with_values(self._set_record, (*row_of_record(record), *expected))


def in_packets(texts: Sequence[bytes], size: int) -> list[list[bytes]]:
    """Texts in groups that each fit into a packet of the given size."""
    packets: list[list[bytes]] = [[]]
    room = size
    for text in texts:
        if packets[-1] and len(text) + 1 > room:
            packets.append([])
            room = size
        packets[-1].append(text)
        room -= len(text) + 1
    return packets


def _compare_and_set(dialect: Dialect, columns: Sequence[str]) -> str:
    s = sessions.c
    statement = update(sessions).where(
        s.id == bindparam("number"),
        s.incarnation == bindparam("expected_incarnation"),
        s.version == bindparam("expected_version"),
    )
    values: dict[str, BindParameter[Any]] = {name: bindparam(name) for name in columns}
    expected = ("number", "expected_incarnation", "expected_version")
    return compile_once(dialect, statement.values(values), *columns, *expected)


@cache
def _pieces(sql: str) -> tuple[bytes, ...]:
    return tuple(sql.encode().split(b"?"))


def _fill(pieces: Sequence[bytes], values: Row) -> bytes:
    parts = [pieces[0]]
    for value, piece in zip(values, pieces[1:], strict=True):
        parts += (literal(value), piece)
    return b"".join(parts)


def with_values(sql: str, values: Row) -> bytes:
    """A statement with its parameters written into it."""
    return _fill(_pieces(sql), values)


def with_rows(sql: str, rows: Sequence[Row]) -> list[bytes]:
    """An INSERT of one row as one of several, or as a few where the rows are large."""
    into, _, row = sql.partition(_VALUES)
    pieces = _pieces(row)
    texts: list[bytes] = []
    filled: list[bytes] = []
    size = 0
    for values in rows:
        if size > LARGE_BYTES:
            texts.append(_join(into, filled))
            filled, size = [], 0
        filled.append(_fill(pieces, values))
        size += len(filled[-1])
    texts.append(_join(into, filled))
    return texts


def _join(into: str, rows: Sequence[bytes]) -> bytes:
    return (into + _VALUES).encode() + b",".join(rows)
