"""The SQLite store: one thread that writes, a few that read, and the event loop for little reads (`inline`), each with
a connection of its own.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, NullPool, create_engine, event
from sqlalchemy.exc import DBAPIError

from memoryd_server.limits import MIB
from memoryd_server.stores.base import (
    Change,
    ClaimableRun,
    Loaded,
    Outcome,
    RunName,
    StoreCapability,
    StoreInfo,
    StoreMisconfigured,
    Tail,
    Version,
)
from memoryd_server.stores.records import FileKey, Record, SessionKey, StoredFile, StoredRun
from memoryd_server.stores.sql.errors import unavailable, unopenable
from memoryd_server.stores.sql.file import make_private
from memoryd_server.stores.sql.inline import LITTLE_BYTES, LITTLE_FILES, LITTLE_RUNS, InlineReads, is_little
from memoryd_server.stores.sql.migrate import upgrade
from memoryd_server.stores.sql.planned import SECRET, SECRET_BYTES, PlannedStore
from memoryd_server.stores.sql.reader import Reader, TooMuch
from memoryd_server.stores.sql.reads import Reads
from memoryd_server.stores.sql.statements import statements_for
from memoryd_server.stores.sql.steps import Plan
from memoryd_server.stores.sql.threads import HoldingThreads
from memoryd_server.stores.sql.writer import LOCK_SECONDS, Writer, retry_while_locked
from memoryd_server.stores.sql.writes import Writes
from memoryd_server.stores.urls import masked

TYPE: Final = "sqlite"

READERS: Final = 4
"""Threads that read: one that waits for the disk leaves the others to the rest."""

READ_PRAGMAS: Final = (
    "query_only = ON",
    f"busy_timeout = {LOCK_SECONDS * 1000}",
)
WRITE_PRAGMAS: Final = (
    # An answered commit is on the disk (fullfsync: on macOS, too).
    "synchronous = FULL",
    "fullfsync = ON",
    "checkpoint_fullfsync = ON",
    # `Writer` waits for the lock, `WriteAheadLog` writes the log back.
    "busy_timeout = 0",
    "wal_autocheckpoint = 0",
    f"journal_size_limit = {16 * MIB}",
)

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _begin(connection: Connection) -> None:
    driver_connection: sqlite3.Connection = connection.connection.driver_connection  # type: ignore[assignment]
    retry_while_locked(lambda: driver_connection.execute("BEGIN IMMEDIATE"))


class SQLiteStore(PlannedStore):
    """Keeps everything in a SQLite file, durably, for any number of servers on one machine."""

    def __init__(self, url: URL) -> None:
        """The URL names a file, and the driver `pysqlite` or none (`registry` sees to it)."""
        self._name = masked(url.render_as_string(hide_password=False))
        self._path = url.database
        # Transactions are begun by statements of our own, never by the driver.
        self._engine = create_engine(url, poolclass=NullPool, connect_args={"isolation_level": None, "timeout": 0})
        event.listen(self._engine, "begin", _begin)
        self._statements = statements_for(self._engine.dialect)
        self._writer = HoldingThreads(
            "memoryd-sqlite-writer", 1, self._open_writer, close_held=Writer.close, after_call=Writer.tidy
        )
        self._readers = HoldingThreads("memoryd-sqlite-reader", READERS, self._open_reader, close_held=Reader.close)
        self._inline = InlineReads(self._open_inline_reader)

    async def open(self) -> StoreInfo:
        try:
            await self._writer.start()
            secret = secrets.token_bytes(SECRET_BYTES)
            await self._writer.run(Writer.run, lambda writes: writes.keep_value(SECRET, secret))
            await self._readers.start()
            self._inline.open()
            kept = await self._readers.run(Reader.run, lambda reads: reads.look_at_tables(SECRET))
        except BaseException as error:
            await self.close()
            cause = error.orig if isinstance(error, DBAPIError) else error
            problem = unopenable(cause, self._name) if isinstance(cause, sqlite3.Error) else None
            if problem is None:
                raise
            raise problem from error
        assert kept is not None
        capabilities = (StoreCapability("shared", supported=True), StoreCapability("durable", supported=True))
        return StoreInfo(type=TYPE, durable=True, capabilities=capabilities, secret=kept)

    async def close(self) -> None:
        # The writer last: when nobody else has the file, its end empties the log.
        self._inline.close()
        await self._readers.stop()
        await self._writer.stop()
        self._engine.dispose()

    def _open_writer(self) -> Writer:
        make_private(self._path)
        with self._connection() as connection:
            self._use_log(connection)
            with self._engine.begin() as migration:
                upgrade(migration)
            for pragma in WRITE_PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            return Writer(connection, self._statements)

    def _open_reader(self) -> Reader:
        with self._connection() as connection:
            for pragma in READ_PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            return Reader(connection, self._statements)

    def _open_inline_reader(self) -> Reader:
        with self._connection() as connection:
            # The event loop does not wait for a lock.
            for pragma in ("query_only = ON", "busy_timeout = 0"):
                connection.execute(f"PRAGMA {pragma}")
            return Reader(connection, self._statements)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection of the driver itself, to keep; closed if setting it up fails."""
        pooled = self._engine.raw_connection()
        connection: sqlite3.Connection = pooled.driver_connection  # type: ignore[assignment]
        pooled.detach()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise

    def _use_log(self, connection: sqlite3.Connection) -> None:
        """Switches the file to a write-ahead log, for which SQLite itself does not wait until the file is free."""
        (mode,) = retry_while_locked(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
        if mode != "wal":
            raise StoreMisconfigured(
                f"{self._name}: SQLite cannot keep a write-ahead log there (its journal mode is {mode}). Put the "
                "file on a local disk, not on a network file system."
            )

    async def _read(
        self, call: Callable[Concatenate[Reader, Arguments], Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        try:
            return await self._readers.run(call, *args, **kwargs)
        except sqlite3.Error as error:
            problem = unavailable(error)
            if problem is None:
                raise
            raise problem from error

    async def _write(
        self, call: Callable[Concatenate[Writer, Arguments], Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        try:
            return await self._writer.run(call, *args, **kwargs)
        except sqlite3.Error as error:
            problem = unavailable(error)
            if problem is None:
                raise
            raise problem from error

    async def _plan_read(self, plan: Callable[[Reads], Plan[Result]]) -> Result:
        return await self._read(Reader.run, plan)

    async def _plan_write(self, plan: Callable[[Writes], Plan[Result]]) -> Result:
        return await self._write(Writer.run, plan)

    async def ping(self) -> None:
        await self._write(Writer.check_file)
        await self._plan_read(lambda reads: reads.look_at_tables(SECRET))

    async def now(self) -> int:
        return time.time_ns() // 1_000

    async def load(self, key: SessionKey, tail: Tail | None = None) -> Loaded | None:
        if is_little(tail) and self._inline.allowed:
            # Whatever stands in the way: the threads have time for it, and raise what is to be raised.
            with suppress(TooMuch, sqlite3.Error):
                return self._inline.run(Reader.load, key, tail, most_bytes=LITTLE_BYTES)
        return await self._read(Reader.load, key, tail)

    async def load_files(self, keys: Sequence[FileKey]) -> Sequence[StoredFile]:
        if len(keys) <= LITTLE_FILES and self._inline.allowed:
            # As in `load`.
            with suppress(TooMuch, sqlite3.Error):
                return self._inline.run(Reader.load_files, keys, LITTLE_BYTES)
        return await super().load_files(keys)

    async def load_run(self, key: SessionKey, run_id: str) -> tuple[Record, StoredRun | None] | None:
        if self._inline.allowed:
            # As in `load`.
            with suppress(sqlite3.Error):
                return self._inline.run(Reader.load_run, key, run_id)
        return await super().load_run(key, run_id)

    async def list_claimable(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[RunName]:
        if limit <= LITTLE_RUNS and self._inline.allowed:
            # As in `load`.
            with suppress(sqlite3.Error):
                return self._inline.run(Reader.list_claimable, tenant, agent, before, limit)
        return await super().list_claimable(tenant, agent, before, limit)

    async def load_claimable(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[ClaimableRun]:
        if limit <= LITTLE_RUNS and self._inline.allowed:
            # As in `load`.
            with suppress(sqlite3.Error):
                return self._inline.run(Reader.load_claimable, tenant, agent, before, limit)
        return await super().load_claimable(tenant, agent, before, limit)

    async def save_file(self, file: StoredFile, expected: Version | None) -> bool:
        return await self._write(Writer.run, lambda writes: writes.files.save(file, expected), size=file.version.size)

    async def commit(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        return await self._write(Writer.commit, changes)
