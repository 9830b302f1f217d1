"""The store on PostgreSQL, over asyncpg's own connections."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

import asyncpg
import msgspec
from asyncpg import exceptions
from sqlalchemy import URL, NullPool
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.ext.asyncio import create_async_engine

from memoryd_server.stores.base import (
    Change,
    CommitLimits,
    Committed,
    Conflict,
    Loaded,
    Outcome,
    PoolStatus,
    StoreCapability,
    StoreInfo,
    StoreMisconfigured,
    StoreUnavailable,
    Tail,
)
from memoryd_server.stores.records import Lookup, Record, SessionKey, StoredMessage
from memoryd_server.stores.sql.appends import merge_appends
from memoryd_server.stores.sql.migrate import upgrade
from memoryd_server.stores.sql.planned import PlannedStore
from memoryd_server.stores.sql.pool import ConnectionPool
from memoryd_server.stores.sql.postgresql_errors import FAILURES, ROLLED_BACK, is_lost, unavailable, unopenable
from memoryd_server.stores.sql.postgresql_statements import AppendStatement, BirthStatement, PostgreSQLLoadStatements
from memoryd_server.stores.sql.reads import Reads
from memoryd_server.stores.sql.rows import Codec, Row, lookup_of, message_of, row_of_lookup, row_of_message
from memoryd_server.stores.sql.schema import REVISION, REVISION_TABLE
from memoryd_server.stores.sql.statements import Statements
from memoryd_server.stores.sql.steps import Execute, Fetch, Insert, Plan
from memoryd_server.stores.sql.tails import Loads
from memoryd_server.stores.sql.writes import Writes

TYPE: Final = "postgresql"

CONNECTIONS: Final = 10
"""The most connections that a server has to its database."""

COMMITS: Final = 4
"""Commits under way at once: they share the flushes of the database's log, and what waits meanwhile shares a commit."""

CONNECT_SECONDS: Final = 2.0
"""How long making a connection may take."""

ANSWER_SECONDS: Final = 5.0
"""How long a call waits for the database, a connection included, before it is given up."""

LOCK_SECONDS: Final = 3
"""How long a statement waits for another connection's lock."""

ABANDONED_SECONDS: Final = 10
"""After which time the database rolls back a transaction whose server was stopped or cut off: others wait for it."""

MIGRATION_SECONDS: Final = 60
"""How long a server waits while another one brings the schema up to date."""

MIGRATION_LOCK: Final = int.from_bytes(b"memoryd")
"""The number of the advisory lock under which the schema is brought up to date."""

CLOSE_SECONDS: Final = 1.0
"""How long the database may take to say goodbye."""

ATTEMPTS: Final = 5
"""How often a transaction is tried that others keep rolling back."""

SETTINGS: Final = {
    "application_name": "memoryd",
    # The texts are few, and each has one good plan, which an index leads: the database is to plan each once for a
    # connection, and not to be misled by tables that were small when it looked.
    "plan_cache_mode": "force_generic_plan",
    **dict.fromkeys(("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "jit"), "off"),
    "lock_timeout": f"{LOCK_SECONDS}s",
    "idle_in_transaction_session_timeout": f"{ABANDONED_SECONDS}s",
}
"""What statements cost must not depend on the defaults of the database or of the user."""

SECRET: Final = "secret"
SECRET_BYTES: Final = 32

BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
BEGIN_SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
"""Begins a read of several statements that all see one moment."""

_NUL, _ESCAPE = "\0", "\x1a"
_ESCAPED_NUL, _ESCAPED_ESCAPE = _ESCAPE + "0", _ESCAPE + "1"

Driver: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Result = TypeVar("Result")


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


class _Connection:
    """A connection of the pool. Used by one call at a time; what a call breaks off in the middle makes it unusable."""

    __slots__ = ("driver", "is_broken")

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.is_broken = False

    @property
    def is_usable(self) -> bool:
        return not self.is_broken and not self.driver.is_closed()

    def abort(self) -> None:
        self.driver.terminate()

    async def close(self) -> None:
        with suppress(*FAILURES):
            await self.driver.close(timeout=CLOSE_SECONDS)


class PostgreSQLStore(PlannedStore):
    """Keeps everything in a database on a PostgreSQL server, for any number of servers of memoryd."""

    commit_limits = CommitLimits(concurrency=COMMITS)

    def __init__(self, url: URL) -> None:
        """The URL is one that asyncpg takes, libpq's options included (`registry` sees to it)."""
        self._name = url.render_as_string(hide_password=True)
        self._dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
        codec = PostgreSQLCodec()
        statements = Statements(PGDialect_asyncpg())  # type: ignore[no-untyped-call]
        self._reads = Loads(statements, codec, PostgreSQLLoadStatements())
        self._writes = Writes(statements, codec)
        self._append = AppendStatement(codec)
        self._birth = BirthStatement(codec)
        self._pool = ConnectionPool(self._connect, CONNECTIONS)

    async def open(self) -> StoreInfo:
        try:
            await self._check_encoding()
            await self._migrate()
            secret = secrets.token_bytes(SECRET_BYTES)
            await self._plan_write(lambda writes: writes.keep_value(SECRET, secret))
            kept = await self._plan_read(lambda reads: reads.value(SECRET))
            unsafe = await self._unsafe_settings()
        except BaseException as error:
            await self.close()
            problem = unopenable(_origin(error), self._name, ANSWER_SECONDS)
            if problem is None:
                raise
            raise problem from error
        assert kept is not None
        capabilities = [StoreCapability("shared", supported=True)]
        if unsafe:
            reason = (
                f"The database runs with {', '.join(unsafe)}: what was answered may be lost when its machine fails. "
                "Set fsync, full_page_writes and synchronous_commit to on."
            )
            capabilities.append(StoreCapability("durable", supported=False, reason=reason))
        return StoreInfo(type=TYPE, durable=not unsafe, capabilities=tuple(capabilities), secret=kept)

    async def close(self) -> None:
        await self._pool.close()

    def pool_status(self) -> PoolStatus:
        """See `base.Pooled`."""
        return self._pool.status()

    async def ping(self) -> None:
        await self._with_connection(lambda driver: driver.fetchval("SELECT 1"), repeatable=True)

    async def now(self) -> int:
        return await self._plan_loosely(Reads.now)

    async def load(self, key: SessionKey, tail: Tail | None = None) -> Loaded | None:
        if tail is None:
            return await self._plan_loosely(lambda reads: reads.load_record(key))
        loaded = await self._with_connection(
            lambda driver: _carry_out(driver, self._reads.load_tail(key, tail)), repeatable=True
        )
        if isinstance(loaded, Record):
            return await self._plan_read(lambda _: self._reads.load_tail_stepwise(key, tail))
        return loaded

    async def commit(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        chains: dict[SessionKey, list[int]] = {}
        for index, change in enumerate(changes):
            chains.setdefault(change.key, []).append(index)
        appends: dict[SessionKey, Change] = {}
        made: set[SessionKey] = set()
        # In one order on every server, so that none waits for another that waits for it.
        for key in sorted(chains):
            merged = merge_appends([changes[index] for index in chains[key]], births=True)
            if merged is not None and merged.previous is not None:
                appends[key] = merged
            elif merged is not None and await self._fetch_alone(self._birth.fetch(merged)):
                made.add(key)
        if appends:
            numbers = await self._fetch_alone(self._append.fetch(list(appends.values())))
            keys = list(appends)
            made.update(keys[number - 1] for (number,) in numbers)
        outcomes: list[Outcome] = [Committed()] * len(changes)
        for key, indexes in chains.items():
            if key not in made:
                refused = False
                for index in indexes:
                    outcomes[index] = Conflict() if refused else await self._apply(changes[index])
                    refused = refused or not isinstance(outcomes[index], Committed)
        return outcomes

    async def _fetch_alone(self, fetch: Fetch) -> Sequence[asyncpg.Record]:
        """Runs a statement that makes changes. Returns: its rows; none when it surely made nothing."""
        try:
            return await self._with_connection(lambda driver: driver.fetch(fetch.sql, *fetch.parameters))
        except StoreUnavailable as error:
            if isinstance(error.__cause__, ROLLED_BACK):
                return ()
            raise
        except exceptions.UniqueViolationError:
            return ()

    async def _apply(self, change: Change) -> Outcome:
        return await self._plan_write(lambda writes: writes.apply(change))

    # Carrying plans out

    async def _plan_read(self, plan: Callable[[Reads], Plan[Result]]) -> Result:
        return await self._with_connection(
            lambda driver: _in_transaction(driver, BEGIN_SNAPSHOT, plan(self._reads)), repeatable=True
        )

    async def _plan_loosely(self, plan: Callable[[Reads], Plan[Result]]) -> Result:
        return await self._with_connection(lambda driver: _carry_out(driver, plan(self._reads)), repeatable=True)

    async def _plan_write(self, plan: Callable[[Writes], Plan[Result]]) -> Result:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._with_connection(lambda driver: _in_transaction(driver, BEGIN, plan(self._writes)))
            except StoreUnavailable as error:
                if attempt == ATTEMPTS or not isinstance(error.__cause__, ROLLED_BACK):
                    raise
            except exceptions.UniqueViolationError:
                # Another server made what this one found missing: a session, a lease. Now it is found.
                if attempt == ATTEMPTS:
                    raise
            await asyncio.sleep(0.002 * 2**attempt * random.random())
        raise AssertionError

    async def _with_connection(
        self, call: Callable[[Driver], Awaitable[Result]], *, repeatable: bool = False
    ) -> Result:
        """Calls with a connection. `repeatable`: once more with another one, if it turns out that the connection was
        lost before.
        """
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                try:
                    return await self._with_one_connection(call)
                except FAILURES as error:
                    if not repeatable or not is_lost(error):
                        raise
                self._pool.drop_free()
                return await self._with_one_connection(call)
        except FAILURES as error:
            problem = unavailable(error, ANSWER_SECONDS)
            if problem is None:
                raise
            if is_lost(error):
                self._pool.drop_free()  # They lead to the same server.
            raise problem from error

    async def _with_one_connection(self, call: Callable[[Driver], Awaitable[Result]]) -> Result:
        async with self._pool.connection() as connection:
            try:
                return await call(connection.driver)
            except exceptions.PostgresError:
                raise
            except BaseException as error:
                connection.is_broken = is_lost(error) or isinstance(error, asyncio.CancelledError)
                raise

    async def _connect(self) -> _Connection:
        return _Connection(await self._connect_driver(SETTINGS))

    async def _connect_driver(self, settings: dict[str, str]) -> Driver:
        """Raises: FAILURES."""
        return await asyncpg.connect(
            self._dsn, timeout=CONNECT_SECONDS, server_settings=settings, max_cached_statement_lifetime=0
        )

    # Opening

    async def _check_encoding(self) -> None:
        encoding = await self._with_connection(lambda driver: driver.fetchval("SHOW server_encoding"))
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
        rows = await self._with_connection(lambda driver: driver.fetch(sql, names))
        return [text for (text,) in rows]


def _origin(error: BaseException) -> BaseException:
    """The driver's own error behind one of SQLAlchemy or of the contract."""
    while not isinstance(error, FAILURES) and error.__cause__ is not None:
        error = error.__cause__
    return error


async def _revision(driver: Driver) -> str | None:
    """The revision of the schema; None for a database that holds none."""
    if await driver.fetchval("SELECT to_regclass($1)", REVISION_TABLE) is None:
        return None
    revision: str | None = await driver.fetchval(f"SELECT version_num FROM {REVISION_TABLE}")
    return revision


async def _in_transaction(driver: Driver, begin: str, plan: Plan[Result]) -> Result:
    """Carries a plan out in a transaction. Whoever breaks it off with the connection still in it, closes that."""
    await driver.execute(begin)
    try:
        result = await _carry_out(driver, plan)
    except Exception as error:
        if not is_lost(error):
            await driver.execute("ROLLBACK")
        raise
    await driver.execute("COMMIT")
    return result


async def _carry_out(driver: Driver, plan: Plan[Result]) -> Result:
    """Runs the statements of a plan, and returns its result."""
    answer: Any = None
    while True:
        try:
            step = plan.send(answer)
        except StopIteration as end:
            result: Result = end.value
            return result
        if isinstance(step, Fetch):
            answer = await driver.fetch(step.sql, *step.parameters)
        elif isinstance(step, Execute):
            answer = _count(await driver.execute(step.sql, *step.parameters))
        elif isinstance(step, Insert):
            answer = await driver.fetchval(step.sql, *step.parameters)
        else:
            await driver.executemany(step.sql, step.rows)
            answer = None


def _count(status: str) -> int:
    """The rows that a statement changed, from the database's word about it (`UPDATE 3`, `INSERT 0 1`)."""
    return int(status.rpartition(" ")[2])


def _with_free_texts(message: StoredMessage, change: Callable[[str], str]) -> StoredMessage:
    """The message with those of its texts changed that may hold any character."""
    return msgspec.structs.replace(
        message,
        name=None if message.name is None else change(message.name),
        content=None if message.content is None else change(message.content),
        metadata=change(message.metadata),
        extra=change(message.extra),
    )
