"""Writes to SQLite, on the one thread and the connection that are given to it."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from memoryd_server.stores.base import Change, Outcome
from memoryd_server.stores.chains import apply_chains
from memoryd_server.stores.sql.carrying import carry_out
from memoryd_server.stores.sql.errors import is_busy
from memoryd_server.stores.sql.file import DatabaseFile
from memoryd_server.stores.sql.rows import Codec
from memoryd_server.stores.sql.statements import Statements
from memoryd_server.stores.sql.steps import Plan
from memoryd_server.stores.sql.wal import WriteAheadLog
from memoryd_server.stores.sql.writes import Writes

LOCK_SECONDS: Final = 5
"""How long a write waits for another server on the same file."""

LOCK_RETRY_SECONDS: Final = 0.001
"""How often it tries: SQLite's own waiting grows to 100 ms, by which a busy neighbour starves this server."""

Result = TypeVar("Result")


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
        self._writes = Writes(statements, Codec())
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
            outcomes = apply_chains(changes, lambda change: carry_out(self._connection, self._writes.apply(change)))
        self._log.grow(len(changes), sum(map(_size, changes)))
        return outcomes

    def run(self, plan: Callable[[Writes], Plan[Result]], size: int = 0) -> Result:
        """Carries a plan out in a transaction. `size`: about how many bytes it writes, if these are many."""
        with self:
            result = carry_out(self._connection, plan(self._writes))
        self._log.grow(1, size)
        return result


def _size(change: Change) -> int:
    """About how many bytes a change writes, if these are many."""
    return sum(message.size for message in change.messages) + sum(len(step.payload) for step in change.new_steps)
