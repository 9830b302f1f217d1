"""The SQLite store: one thread that writes, a few that read, and the event loop for little reads (`inline`), each with
a connection of its own.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, NullPool, create_engine, event
from sqlalchemy.exc import DBAPIError

from memoryd_server.limits import MIB
from memoryd_server.stores.base import (
    Change,
    Loaded,
    MessagePage,
    MessageQuery,
    Outcome,
    SessionPage,
    SessionQuery,
    Store,
    StoreCapability,
    StoreInfo,
    StoreMisconfigured,
    Tail,
)
from memoryd_server.stores.records import (
    AgentRecord,
    Entry,
    Lookup,
    LookupKind,
    Record,
    SessionKey,
    StoredMessage,
    Usability,
)
from memoryd_server.stores.sql.errors import unavailable, unopenable
from memoryd_server.stores.sql.file import make_private
from memoryd_server.stores.sql.inline import LITTLE_BYTES, InlineReads, is_little
from memoryd_server.stores.sql.migrate import upgrade
from memoryd_server.stores.sql.reader import Reader, TooMuch
from memoryd_server.stores.sql.statements import Statements
from memoryd_server.stores.sql.threads import HoldingThreads
from memoryd_server.stores.sql.writer import LOCK_SECONDS, Writer, retry_while_locked

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

SECRET: Final = "secret"
SECRET_BYTES: Final = 32

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _begin(connection: Connection) -> None:
    driver_connection: sqlite3.Connection = connection.connection.driver_connection  # type: ignore[assignment]
    retry_while_locked(lambda: driver_connection.execute("BEGIN IMMEDIATE"))


class SQLiteStore(Store):
    """Keeps everything in a SQLite file, durably, for any number of servers on one machine."""

    def __init__(self, url: URL) -> None:
        """The URL names a file, and the driver `pysqlite` or none (`registry` sees to it)."""
        self._name = url.render_as_string(hide_password=True)
        self._path = url.database
        # Transactions are begun by statements of our own, never by the driver.
        self._engine = create_engine(url, poolclass=NullPool, connect_args={"isolation_level": None, "timeout": 0})
        event.listen(self._engine, "begin", _begin)
        self._statements = Statements(self._engine.dialect)
        self._writer = HoldingThreads(
            "memoryd-sqlite-writer", 1, self._open_writer, close_held=Writer.close, after_call=Writer.tidy
        )
        self._readers = HoldingThreads("memoryd-sqlite-reader", READERS, self._open_reader, close_held=Reader.close)
        self._inline = InlineReads(self._open_inline_reader)

    async def open(self) -> StoreInfo:
        try:
            await self._writer.start()
            await self._writer.run(Writer.keep_value, SECRET, secrets.token_bytes(SECRET_BYTES))
            await self._readers.start()
            self._inline.open()
            secret = await self._readers.run(Reader.value, SECRET)
        except BaseException as error:
            await self.close()
            cause = error.orig if isinstance(error, DBAPIError) else error
            problem = unopenable(cause, self._name) if isinstance(cause, sqlite3.Error) else None
            if problem is None:
                raise
            raise problem from error
        assert secret is not None
        return StoreInfo(
            type=TYPE, durable=True, capabilities=(StoreCapability("shared", supported=True),), secret=secret
        )

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

    async def ping(self) -> None:
        await self._write(Writer.check_file)
        await self._read(Reader.value, SECRET)

    async def now(self) -> int:
        return time.time_ns() // 1_000

    async def load(self, key: SessionKey, tail: Tail | None = None) -> Loaded | None:
        if is_little(tail) and self._inline.allowed:
            # Whatever stands in the way: the threads have time for it, and raise what is to be raised.
            with suppress(TooMuch, sqlite3.Error):
                return self._inline.run(Reader.load, key, tail, most_bytes=LITTLE_BYTES)
        return await self._read(Reader.load, key, tail)

    async def read(
        self, key: SessionKey, incarnation: str, seqs: Sequence[int]
    ) -> tuple[Record, Sequence[StoredMessage]] | None:
        return await self._read(Reader.read, key, incarnation, seqs)

    async def list_messages(self, key: SessionKey, query: MessageQuery) -> MessagePage | None:
        return await self._read(Reader.list_messages, key, query)

    async def list_unusable(self, key: SessionKey, usabilities: Collection[Usability], limit: int) -> Sequence[Entry]:
        return await self._read(Reader.list_unusable, key, usabilities, limit)

    async def find(self, key: SessionKey, kind: LookupKind, ids: Sequence[str]) -> Sequence[Lookup]:
        return await self._read(Reader.find, key, kind, ids)

    async def commit(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        return await self._write(Writer.commit, changes)

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        return await self._read(Reader.list_sessions, query)

    async def list_purgeable(self, removed_before: int, limit: int) -> Sequence[SessionKey]:
        return await self._read(Reader.list_purgeable, removed_before, limit)

    async def purge(self, key: SessionKey, incarnation: str, from_seq: int, to_seq: int, limit: int) -> int:
        return await self._write(Writer.purge, key, incarnation, from_seq, to_seq, limit)

    async def load_agent(self, tenant: str, agent: str) -> AgentRecord | None:
        return await self._read(Reader.load_agent, tenant, agent)

    async def save_agent(self, record: AgentRecord) -> bool:
        return await self._write(Writer.save_agent, record)

    async def list_agents(self, tenant: str, after: str, limit: int) -> Sequence[AgentRecord]:
        return await self._read(Reader.list_agents, tenant, after, limit)
