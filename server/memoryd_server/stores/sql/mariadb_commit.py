"""Commits on MariaDB and MySQL: mostly one text of several statements, in one round trip.

The text makes all its changes or none: behind each compare-and-set stands a statement that fails unless one row was
changed, and then the transaction is rolled back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import BindParameter, Dialect, bindparam, update

from memoryd_server.stores.base import Change
from memoryd_server.stores.sql.mariadb_texts import with_rows, with_values
from memoryd_server.stores.sql.rows import (
    CHANGING_COLUMNS,
    RECORD_COLUMNS,
    Row,
    changing,
    row_of_lookup,
    row_of_message,
    row_of_record,
    seldom_changing,
    stored_version,
)
from memoryd_server.stores.sql.schema import sessions
from memoryd_server.stores.sql.statements import Statements, compile_once

MUST_BE_ONE: Final = b"SELECT 9223372036854775807 + (ROW_COUNT() <> 1)"
"""Fails, as out of range, unless the statement before changed one row."""


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
        expected = (session, previous.incarnation, stored_version(previous))
        if seldom_changing(previous) == seldom_changing(record):
            return with_values(self._set_changing, (*changing(record), *expected))
        return with_values(self._set_record, (*row_of_record(record), *expected))


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
