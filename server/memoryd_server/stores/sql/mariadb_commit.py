"""Commits on MariaDB and MySQL: mostly one text of several statements, in one round trip.

The text makes all its changes or none: behind each compare-and-set stands a statement that fails unless one row was
changed, and then the transaction is rolled back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import BindParameter, Dialect, bindparam, update

from memoryd_server.stores.base import Change, RunChange
from memoryd_server.stores.records import encode_run_head
from memoryd_server.stores.sql.compiling import compile_once
from memoryd_server.stores.sql.mariadb_texts import with_rows, with_values
from memoryd_server.stores.sql.rows import (
    CHANGING_COLUMNS,
    RECORD_COLUMNS,
    RUNNING_COLUMNS,
    Row,
    changed_columns,
    row_of_lookup,
    row_of_message,
    row_of_run,
    row_of_run_state,
    row_of_step,
    stored_version,
)
from memoryd_server.stores.sql.schema import sessions
from memoryd_server.stores.sql.statements import Statements

MUST_BE_ONE: Final = b"SELECT 9223372036854775807 + (ROW_COUNT() <> 1)"
"""Fails, as out of range, unless the statement before changed one row."""


class CommitTexts:
    """Makes the texts of commits."""

    def __init__(self, dialect: Dialect, statements: Statements) -> None:
        self._sql = statements
        self._set: dict[Sequence[str], str] = {
            columns: _compare_and_set(dialect, columns)
            for columns in (CHANGING_COLUMNS, RUNNING_COLUMNS, RECORD_COLUMNS)
        }

    def of(self, changes: Sequence[tuple[int, int, Change]]) -> list[bytes]:
        """The statements that make changes which only add, each given with its session's number and life."""
        texts: list[bytes] = []
        lookups: list[Row] = []
        messages: list[Row] = []
        begun: list[Row] = []
        steps: list[Row] = []
        for session, life, change in changes:
            texts += (self._change_record(session, change), MUST_BE_ONE)
            texts += [with_values(self._sql.complete_group, (session, life, head)) for head in change.completed]
            for changed in change.changed_runs:
                if changed.begins:
                    begun.append(row_of_run(session, life, change.key, changed))
                else:
                    texts.append(self._change_run(session, life, changed))
            steps += [row_of_step(session, life, step) for step in change.new_steps]
            lookups += [row_of_lookup(session, life, lookup) for lookup in change.lookups]
            messages += [row_of_message(session, life, message) for message in change.messages]
        for sql, rows in (
            (self._sql.insert_lookup, lookups),
            (self._sql.insert_message, messages),
            (self._sql.runs.insert, begun),
            (self._sql.runs.insert_step, steps),
        ):
            if rows:
                texts += with_rows(sql, rows)
        return texts

    def _change_record(self, session: int, change: Change) -> bytes:
        previous, record = change.previous, change.record
        assert previous is not None
        assert record is not None
        expected = (session, previous.incarnation, stored_version(previous))
        columns, values = changed_columns(previous, record)
        return with_values(self._set[columns], (*values, *expected))

    def _change_run(self, session: int, life: int, change: RunChange) -> bytes:
        of_run, values, runs = (session, life, change.run_id), row_of_run_state(change), self._sql.runs
        if change.head is None:
            return with_values(runs.change, (*values, *of_run))
        return with_values(runs.change_head, (*values, encode_run_head(change.head), *of_run))


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
