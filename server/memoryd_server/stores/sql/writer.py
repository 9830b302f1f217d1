"""Writes to SQLite, on the one thread and the connection that are given to it."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from memoryd_server.stores.base import Change, Committed, Conflict, Known, Outcome
from memoryd_server.stores.chains import apply_chains
from memoryd_server.stores.records import (
    AgentRecord,
    Lookup,
    LookupKind,
    Record,
    SessionKey,
    decode_record,
    encode_record,
)
from memoryd_server.stores.sql.errors import is_busy
from memoryd_server.stores.sql.file import DatabaseFile
from memoryd_server.stores.sql.reader import find_lookups
from memoryd_server.stores.sql.rows import row_of_agent, row_of_lookup, row_of_message
from memoryd_server.stores.sql.statements import Statements
from memoryd_server.stores.sql.wal import WriteAheadLog

LOCK_SECONDS: Final = 5
"""How long a write waits for another server on the same file."""

FIRST_LIFE: Final = 1

LOCK_RETRY_SECONDS: Final = 0.001
"""How often it tries: SQLite's own waiting grows to 100 ms, by which a busy neighbour starves this server."""

_KINDS: Final = tuple(LookupKind)

Result = TypeVar("Result")


class _State(NamedTuple):
    """A session as it is stored, without its record."""

    id: int
    life: int
    incarnation: str
    version: int


def retry_while_locked(call: Callable[[], Result]) -> Result:
    """Calls until no other connection is in the way, or has been for LOCK_SECONDS."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return call()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
        time.sleep(LOCK_RETRY_SECONDS * random.uniform(0.5, 1.5))


class Writer:
    """Writes, each in one transaction that no other writer comes between."""

    def __init__(self, connection: sqlite3.Connection, statements: Statements) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._sql = statements
        self._log = WriteAheadLog(connection)
        self._file = DatabaseFile(connection)

    def close(self) -> None:
        self._log.close()
        self._connection.close()

    def tidy(self) -> None:
        """Upkeep between writes."""
        self._log.tidy()

    def check_file(self) -> None:
        """Raises: StoreUnavailable when the database is not where it was any more."""
        self._file.check()

    def __enter__(self) -> None:
        self._file.check()
        retry_while_locked(lambda: self._execute("BEGIN IMMEDIATE"))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._execute("ROLLBACK")

    def commit(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        with self:
            outcomes = apply_chains(changes, self._apply)
        self._log.grow(changes)
        return outcomes

    def purge(self, key: SessionKey, incarnation: str, from_seq: int, to_seq: int, limit: int) -> int:
        with self:
            state = self._state(key)
            if state is None or state.incarnation != incarnation:
                return 0
            of_life = (state.id, state.life)
            (last,) = self._execute(self._sql.last_to_purge, (*of_life, from_seq, to_seq, limit)).fetchone()
            if last is None:
                return 0
            return self._execute(self._sql.purge, (*of_life, from_seq, last)).rowcount

    def save_agent(self, record: AgentRecord) -> bool:
        with self:
            if record.version == 1:
                self._add_agent(record.tenant, record.agent)
            tenant, agent, *values = row_of_agent(record)
            return self._execute(self._sql.update_agent, (*values, tenant, agent, record.version - 1)).rowcount == 1

    def keep_value(self, name: str, value: bytes) -> None:
        """Stores a value of the table `meta`, unless there is one."""
        with self:
            if self._execute(self._sql.value, (name,)).fetchone() is None:
                self._execute(self._sql.insert_value, (name, value))

    def _state(self, key: SessionKey) -> _State | None:
        row = self._execute(self._sql.session_state, key).fetchone()
        return None if row is None else _State._make(row)

    def _apply(self, change: Change) -> Outcome:
        """Makes a change, or refuses it before anything of it is written."""
        state = self._state(change.key)
        known = [] if state is None else self._known(state.id, change.lookups)
        if known:
            return Known(known)
        previous = change.previous
        if state is None or previous is None:
            if state is not None or previous is not None:
                return self._conflict(change.key)
            session, life = self._be_born(change.key, change.record), FIRST_LIFE
        else:
            if (state.incarnation, state.version) != (previous.incarnation, previous.version):
                return self._conflict(change.key)
            session, life = state.id, state.life
            self._update(session, previous, change.record)
        for head in change.completed:
            self._execute(self._sql.complete_group, (session, life, head))
        if change.messages:
            rows = [row_of_message(session, life, message) for message in change.messages]
            self._connection.executemany(self._sql.insert_message, rows)
        if change.lookups:
            rows = [row_of_lookup(session, lookup) for lookup in change.lookups]
            self._connection.executemany(self._sql.insert_lookup, rows)
        return Committed()

    def _conflict(self, key: SessionKey) -> Conflict:
        row = self._execute(self._sql.session, key).fetchone()
        return Conflict(None if row is None else decode_record(row[2]))

    def _known(self, session: int, lookups: Sequence[Lookup]) -> list[Lookup]:
        known = []
        for kind in _KINDS:
            ids = [lookup.id for lookup in lookups if lookup.kind is kind]
            if ids:
                known += find_lookups(self._connection, self._sql, session, kind, ids)
        return known

    def _be_born(self, key: SessionKey, record: Record) -> int:
        self._add_agent(key.tenant, key.agent)
        session = self._execute(self._sql.insert_session, (*key, FIRST_LIFE, *_row_of_record(record))).lastrowid
        assert session is not None
        return session

    def _update(self, session: int, previous: Record, record: Record) -> None:
        if _indexed(previous) == _indexed(record):
            self._execute(self._sql.update_record, (record.version, encode_record(record).decode(), session))
        else:
            self._execute(self._sql.update_session, (*_row_of_record(record), session))

    def _add_agent(self, tenant: str, agent: str) -> None:
        self._execute(self._sql.add_agent, row_of_agent(AgentRecord(tenant, agent)))


def _indexed(record: Record) -> tuple[int, str | None, int | None]:
    """What indexes over sessions hold of a record."""
    removed_at = min(removed.removed_at for removed in record.removed) if record.removed else None
    return record.activity, record.user_id or None, removed_at


def _row_of_record(record: Record) -> tuple[str, int, int, str | None, int | None, str]:
    """The values of the columns `statements.RECORD`."""
    return record.incarnation, record.version, *_indexed(record), encode_record(record).decode()
