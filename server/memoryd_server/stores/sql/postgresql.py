"""The store on PostgreSQL, over asyncpg's own connections."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, TypeAlias

import asyncpg
import msgspec
from sqlalchemy import URL, NullPool
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.ext.asyncio import create_async_engine

from memoryd_server.stores.base import Change, Outcome, StoreMisconfigured, Version
from memoryd_server.stores.records import FileVersion, Lookup, SessionKey, StoredFile, StoredMessage, StoredStep
from memoryd_server.stores.sql.appends import merge_appends
from memoryd_server.stores.sql.migrate import upgrade
from memoryd_server.stores.sql.postgresql_errors import ERRORS, FAILURES, is_lost
from memoryd_server.stores.sql.postgresql_files import SaveFileStatements
from memoryd_server.stores.sql.postgresql_statements import AppendStatement, BirthStatement, PostgreSQLLoadStatements
from memoryd_server.stores.sql.rows import (
    Codec,
    Row,
    file_version_of,
    lookup_of,
    message_of,
    row_of_file_version,
    row_of_lookup,
    row_of_message,
    row_of_step,
    step_of,
)
from memoryd_server.stores.sql.schema import REVISION, REVISION_TABLE
from memoryd_server.stores.sql.served import (
    CLOSE_SECONDS,
    LOCK_SECONDS,
    MIGRATION_SECONDS,
    Chain,
    ServedStore,
    apply_chains,
)
from memoryd_server.stores.sql.statements import statements_for
from memoryd_server.stores.sql.steps import Fetch
from memoryd_server.stores.sql.tails import Loads
from memoryd_server.stores.sql.writes import Writes
from memoryd_server.stores.urls import masked

CONNECT_SECONDS: Final = 2.0
"""How long making a connection may take."""

ABANDONED_SECONDS: Final = 10
"""After which time the database rolls back a transaction whose server was stopped or cut off: others wait for it."""

MIGRATION_LOCK: Final = int.from_bytes(b"memoryd")
"""The number of the advisory lock under which the schema is brought up to date."""

SETTINGS: Final = {
    "application_name": "memoryd",
    # The texts are few, and each has one good plan, which an index leads: the database is to plan each once for a
    # connection, and not to be misled by tables that were small when it looked.
    "plan_cache_mode": "force_generic_plan",
    **dict.fromkeys(("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "jit"), "off"),
    # An order is what leads a statement to its index. Where the database expects one row (without statistics always,
    # with them where most sessions are short), it would rather sort what the primary key finds, which is the whole
    # session, as soon as the tree of that is a level less deep.
    "enable_sort": "off",
    "lock_timeout": f"{LOCK_SECONDS}s",
    "idle_in_transaction_session_timeout": f"{ABANDONED_SECONDS}s",
}
"""What statements cost must not depend on the defaults of the database or of the user."""

_BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_BEGIN_SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

_NUL, _ESCAPE = "\0", "\x1a"
_ESCAPED_NUL, _ESCAPED_ESCAPE = _ESCAPE + "0", _ESCAPE + "1"

Driver: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


def to_storable(text: str) -> str:
    """A text that PostgreSQL can hold, which is any without U+0000."""
    if _NUL in text or _ESCAPE in text:
        return text.replace(_ESCAPE, _ESCAPED_ESCAPE).replace(_NUL, _ESCAPED_NUL)
    return text


def from_storable(text: str) -> str:
    """The inverse of `to_storable`."""
    if _ESCAPE in text:
        return text.replace(_ESCAPED_NUL, _NUL).replace(_ESCAPED_ESCAPE, _ESCAPE)
    return text


class PostgreSQLCodec(Codec):
    """See `Codec`."""

    @staticmethod
    def message(row: Row) -> StoredMessage:
        message = message_of(row)
        if (
            _ESCAPE in message.metadata
            or _ESCAPE in message.extra
            or (message.content is not None and _ESCAPE in message.content)
            or (message.name is not None and _ESCAPE in message.name)
        ):
            return _with_free_texts(message, from_storable)
        return message

    @staticmethod
    def row_of_message(session: int, life: int, message: StoredMessage) -> Row:
        texts = (message.metadata, message.extra, message.content or "", message.name or "")
        if any(_NUL in text or _ESCAPE in text for text in texts):
            message = _with_free_texts(message, to_storable)
        return row_of_message(session, life, message)

    @staticmethod
    def lookup(row: Row) -> Lookup:
        lookup = lookup_of(row)
        return msgspec.structs.replace(lookup, answer=from_storable(lookup.answer))

    @staticmethod
    def row_of_lookup(session: int, life: int, lookup: Lookup) -> Row:
        answer = to_storable(lookup.answer)
        if answer is not lookup.answer:
            lookup = msgspec.structs.replace(lookup, answer=answer)
        return row_of_lookup(session, life, lookup)

    @staticmethod
    def step(row: Row) -> StoredStep:
        step = step_of(row)
        if _ESCAPE in step.content_type:
            return msgspec.structs.replace(step, content_type=from_storable(step.content_type))
        return step

    @staticmethod
    def row_of_step(session: int, life: int, step: StoredStep) -> Row:
        content_type = to_storable(step.content_type)
        if content_type is not step.content_type:
            step = msgspec.structs.replace(step, content_type=content_type)
        return row_of_step(session, life, step)

    @staticmethod
    def file_version(row: Row) -> FileVersion:
        version = file_version_of(row)
        if _ESCAPE in version.author:
            return msgspec.structs.replace(version, author=from_storable(version.author))
        return version

    @staticmethod
    def row_of_file_version(version: FileVersion) -> Row:
        author = to_storable(version.author)
        if author is not version.author:
            version = msgspec.structs.replace(version, author=author)
        return row_of_file_version(version)


class PostgreSQLConnection:
    """See `ServedConnection`."""

    __slots__ = ("driver",)

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    @property
    def is_usable(self) -> bool:
        return not self.driver.is_closed()

    def abort(self) -> None:
        self.driver.terminate()

    async def close(self) -> None:
        with suppress(*FAILURES):
            await self.driver.close(timeout=CLOSE_SECONDS)

    def fetch(self, sql: str, parameters: Sequence[Any] = ()) -> Awaitable[Sequence[asyncpg.Record]]:
        return self.driver.fetch(sql, *parameters)

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        # The database's word about it is such as `UPDATE 3` or `INSERT 0 1`.
        status = await self.driver.execute(sql, *parameters)
        return int(status.rpartition(" ")[2])

    def insert(self, sql: str, parameters: Sequence[Any] = ()) -> Awaitable[int]:
        return self.driver.fetchval(sql, *parameters)

    def execute_many(self, sql: str, rows: Sequence[Row]) -> Awaitable[None]:
        return self.driver.executemany(sql, rows)

    @asynccontextmanager
    async def transaction(self, *, snapshot: bool = False) -> AsyncIterator[None]:
        await self.driver.execute(_BEGIN_SNAPSHOT if snapshot else _BEGIN)
        try:
            yield
        except Exception as error:
            if not is_lost(error):
                await self.driver.execute("ROLLBACK")
            raise
        await self.driver.execute("COMMIT")


class PostgreSQLStore(ServedStore[PostgreSQLConnection]):
    """Keeps everything in a database on a PostgreSQL server, for any number of servers of memoryd."""

    type = "postgresql"
    errors = ERRORS

    def __init__(self, url: URL) -> None:
        """The URL is one that asyncpg takes, libpq's options included (`registry` sees to it)."""
        self._dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
        codec = PostgreSQLCodec()
        statements = statements_for(PGDialect_asyncpg())  # type: ignore[no-untyped-call]
        self._append = AppendStatement(codec)
        self._birth = BirthStatement(codec)
        self._save_file = SaveFileStatements(codec)
        super().__init__(
            masked(url.render_as_string(hide_password=False)),
            Loads(statements, codec, PostgreSQLLoadStatements()),
            Writes(statements, codec),
        )

    async def save_file(self, file: StoredFile, expected: Version | None) -> bool:
        fetch = self._save_file.fetch(file, expected)
        return bool(await self._until_done(lambda connection: connection.fetch(fetch.sql, fetch.parameters)))

    async def _add(self, chains: Mapping[SessionKey, Chain]) -> Collection[SessionKey]:
        appends: dict[SessionKey, Change] = {}
        made: list[SessionKey] = []
        for key, chain in chains.items():
            merged = merge_appends(chain, births=True)
            if merged is not None and merged.previous is not None:
                appends[key] = merged
            elif merged is not None and await self._fetch_alone(self._birth.fetch(merged)):
                made.append(key)
        if appends:
            numbers = await self._fetch_alone(self._append.fetch(list(appends.values())))
            keys = list(appends)
            made += [keys[number - 1] for (number,) in numbers]
        return made

    async def _fetch_alone(self, fetch: Fetch) -> Sequence[asyncpg.Record]:
        """Runs a statement that makes changes. Returns: its rows; none when it surely made nothing."""
        try:
            return await self._with_connection(lambda connection: connection.fetch(fetch.sql, fetch.parameters))
        except Exception as error:
            if self._is_undone(error):
                return ()
            raise

    async def _apply(self, chains: Sequence[Chain]) -> Sequence[Sequence[Outcome]]:
        outcomes: list[Sequence[Outcome]] = []
        for chain in chains:
            outcomes += await self._plan_write(partial(apply_chains, chains=[chain]))
        return outcomes

    async def _connect(self) -> PostgreSQLConnection:
        return PostgreSQLConnection(await self._connect_driver(SETTINGS))

    async def _connect_driver(self, settings: dict[str, str]) -> Driver:
        """Raises: FAILURES."""
        return await asyncpg.connect(
            self._dsn, timeout=CONNECT_SECONDS, server_settings=settings, max_cached_statement_lifetime=0
        )

    # Opening

    async def _prepare(self) -> str:
        await self._check_encoding()
        await self._migrate()
        unsafe = await self._unsafe_settings()
        if not unsafe:
            return ""
        return (
            f"The database runs with {', '.join(unsafe)}: what was answered may be lost when its machine fails. "
            "Set fsync, full_page_writes and synchronous_commit to on."
        )

    async def _check_encoding(self) -> None:
        ((encoding,),) = await self._with_connection(lambda connection: connection.fetch("SHOW server_encoding"))
        if encoding != "UTF8":
            raise StoreMisconfigured(
                f"{self._name}: the database has the encoding {encoding}, which cannot hold every text. Give the store "
                "a database that was made with ENCODING 'UTF8' (and TEMPLATE template0)."
            )

    async def _migrate(self) -> None:
        if await self._with_connection(_revision) == REVISION:
            return  # Which spares the start SQLAlchemy's engine.

        async def connect() -> Driver:
            return await self._connect_driver({"application_name": "memoryd", "lock_timeout": f"{MIGRATION_SECONDS}s"})

        engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)
        try:
            async with engine.begin() as connection:
                await connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
                await connection.run_sync(upgrade)
        finally:
            await engine.dispose()

    async def _unsafe_settings(self) -> list[str]:
        """The settings, as the database shows them, by which it may lose what it has confirmed."""
        names = ("fsync", "full_page_writes", "synchronous_commit")
        sql = "SELECT name || ' = ' || setting FROM pg_settings WHERE name = ANY($1) AND setting = 'off' ORDER BY name"
        rows = await self._with_connection(lambda connection: connection.fetch(sql, [names]))
        return [text for (text,) in rows]


async def _revision(connection: PostgreSQLConnection) -> str | None:
    """The revision of the schema; None for a database that holds none."""
    ((table,),) = await connection.fetch("SELECT to_regclass($1)", (REVISION_TABLE,))
    if table is None:
        return None
    rows = await connection.fetch(f"SELECT version_num FROM {REVISION_TABLE}")
    return rows[0][0] if rows else None


def _with_free_texts(message: StoredMessage, change: Callable[[str], str]) -> StoredMessage:
    """The message with those of its texts changed that may hold any character."""
    return msgspec.structs.replace(
        message,
        name=None if message.name is None else change(message.name),
        content=None if message.content is None else change(message.content),
        metadata=change(message.metadata),
        extra=change(message.extra),
    )
