"""The store on MariaDB and MySQL, over asyncmy."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final, TypeVar

from sqlalchemy import URL, NullPool, text
from sqlalchemy.dialects.mysql.asyncmy import MySQLDialect_asyncmy
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from memoryd_server.limits import MIB
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
from memoryd_server.stores.records import Record, SessionKey
from memoryd_server.stores.sql.appends import merge_appends
from memoryd_server.stores.sql.mariadb_commit import CommitTexts, in_packets, with_rows, with_values
from memoryd_server.stores.sql.mariadb_connection import BEGIN, BEGIN_SNAPSHOT, MariaDBConnection, connect_arguments
from memoryd_server.stores.sql.mariadb_errors import (
    DEADLOCK,
    DUPLICATE_KEY,
    FAILURES,
    OUT_OF_RANGE,
    READ_ONLY,
    code_of,
    is_lost,
    unavailable,
    unopenable,
)
from memoryd_server.stores.sql.mariadb_load import Known, KnownSessions, MariaDBLoadStatements
from memoryd_server.stores.sql.migrate import upgrade
from memoryd_server.stores.sql.planned import PlannedStore
from memoryd_server.stores.sql.pool import ConnectionPool
from memoryd_server.stores.sql.reads import Reads
from memoryd_server.stores.sql.rows import Codec
from memoryd_server.stores.sql.statements import KEY, Statements
from memoryd_server.stores.sql.steps import Execute, ExecuteMany, Fetch, Insert, Plan, Step
from memoryd_server.stores.sql.tails import Loads
from memoryd_server.stores.sql.writes import Writes

TYPE: Final = "mysql"

CONNECTIONS: Final = 10
"""The most connections that a server has to its database: with more, MariaDB contends for its locks."""

COMMITS: Final = 4
"""Commits under way at once: they share the flushes of the database's log."""

ANSWER_SECONDS: Final = 5.0
"""How long a call waits for the database, a connection included, before it is given up."""

CONNECT_SECONDS: Final = 3.0
"""How long making a connection may take."""

MIGRATION_SECONDS: Final = 60
"""How long a server waits while another one brings the schema up to date."""

ATTEMPTS: Final = 5
"""How often a transaction is tried that others keep rolling back."""

SMALLEST_PACKET: Final = 16 * MIB
"""What max_allowed_packet must be at least: a message of 2 MiB may take seven times as much as JSON in a statement."""

LARGEST_PACKET: Final = 64 * MIB
"""What one text of statements takes at most, however much the server allows."""

PACKET_MARGIN: Final = 1_024
"""What a packet holds beside the text."""

FIRST_BACKOFF_SECONDS: Final = 0.005
"""How long a transaction that others rolled back waits for its second attempt; then twice as long each time."""

OLDEST_MARIADB: Final = (10, 6)
OLDEST_MYSQL: Final = (8, 0)
"""Versions that are still maintained."""

_LOCK: Final = "CONCAT('memoryd-', MD5(DATABASE()))"
"""Names of locks belong to the whole server, and take 64 characters."""

SECRET: Final = "secret"
SECRET_BYTES: Final = 32

Result = TypeVar("Result")


class MariaDBStore(PlannedStore):
    """Keeps everything in a database on a MariaDB or MySQL server, for any number of servers of memoryd."""

    commit_limits = CommitLimits(concurrency=COMMITS)

    def __init__(self, url: URL) -> None:
        """The URL names a database (`registry` sees to it). Raises: StoreMisconfigured when it says what none can."""
        dialect = MySQLDialect_asyncmy(paramstyle="qmark")
        self._url = url.set(drivername="mysql+asyncmy")
        self._arguments = connect_arguments(dialect, self._url)
        self._name = url.render_as_string(hide_password=True)
        self._statements = Statements(dialect)
        codec = Codec()
        self._known = KnownSessions()
        self._reads = Loads(self._statements, codec, MariaDBLoadStatements(dialect, self._known))
        self._writes = Writes(self._statements, codec)
        self._texts = CommitTexts(dialect, self._statements)
        self._pool = ConnectionPool(self._connect, CONNECTIONS)
        self._packet = SMALLEST_PACKET - PACKET_MARGIN

    async def open(self) -> StoreInfo:
        try:
            await self._migrate()
            durable, capabilities = await self._with_connection(self._look_at_server)
            await self._plan_write(lambda writes: writes.keep_value(SECRET, secrets.token_bytes(SECRET_BYTES)))
            secret = await self._plan_read(lambda reads: reads.value(SECRET))
        except BaseException as error:
            await self.close()
            cause = error.orig if isinstance(error, DBAPIError) else error
            cause = cause.__cause__ if isinstance(cause, StoreUnavailable) else cause
            problem = None if cause is None else unopenable(cause, ANSWER_SECONDS)
            if problem is None:
                raise
            raise type(problem)(f"{self._name}: {problem}") from error
        assert secret is not None
        return StoreInfo(type=TYPE, durable=durable, capabilities=capabilities, secret=secret)

    async def close(self) -> None:
        await self._pool.close()

    def pool_status(self) -> PoolStatus:
        """See `base.Pooled`."""
        return self._pool.status()

    async def ping(self) -> None:
        await self._with_connection(lambda connection: connection.fetch("SELECT 1"), repeatable=True)

    async def now(self) -> int:
        return await self._plan_loosely(Reads.now)

    async def load(self, key: SessionKey, tail: Tail | None = None) -> Loaded | None:
        if tail is None:
            return await self._plan_loosely(lambda reads: reads.load_record(key))
        loaded = await self._with_connection(
            lambda connection: self._carry_out(connection, self._reads.load_tail(key, tail)), repeatable=True
        )
        if isinstance(loaded, Record):
            return await self._plan_read(lambda _: self._reads.load_tail_stepwise(key, tail))
        return loaded

    async def commit(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        outcomes = await self._with_connection(lambda connection: self._commit(connection, changes))
        for change, outcome in zip(changes, outcomes, strict=True):
            if isinstance(outcome, Committed):
                self._learn(change)
        return outcomes

    async def _commit(self, connection: MariaDBConnection, changes: Sequence[Change]) -> Sequence[Outcome]:
        chains: dict[SessionKey, list[int]] = {}
        for index, change in enumerate(changes):
            chains.setdefault(change.key, []).append(index)
        outcomes: list[Outcome] = [Committed()] * len(changes)
        added = self._additions(changes, chains)
        if added and await self._add_all(connection, added):
            for _, _, change in added:
                del chains[change.key]
        # In one order on every server, so that none waits for another that waits for it.
        rest = [index for key in sorted(chains) for index in chains[key]]
        if rest:
            plan = partial(self._apply_each, [changes[index] for index in rest])
            for index, outcome in zip(rest, await self._in_transaction(connection, plan), strict=True):
                outcomes[index] = outcome
        return outcomes

    def _learn(self, change: Change) -> None:
        """Remembers the session as a change left it."""
        known, record = self._known.get(change.key), change.record
        if known is not None and record is not None and known.incarnation == record.incarnation:
            self._known.put(change.key, Known.of(known.id, known.life, record))

    def _additions(
        self, changes: Sequence[Change], chains: dict[SessionKey, list[int]]
    ) -> Sequence[tuple[int, int, Change]]:
        """The chains that only add to sessions whose numbers are known, each as one change, in the order of numbers."""
        found = []
        for key, indexes in chains.items():
            known = self._known.get(key)
            previous = changes[indexes[0]].previous
            if known is not None and previous is not None and known.incarnation == previous.incarnation:
                change = merge_appends([changes[index] for index in indexes])
                if change is not None:
                    found.append((known.id, known.life, change))
        return sorted(found, key=itemgetter(0))

    async def _add_all(self, connection: MariaDBConnection, additions: Sequence[tuple[int, int, Change]]) -> bool:
        """Makes all the changes at once. Returns: False when one of them is to be refused; none is made then."""
        packets = in_packets(self._texts.of(additions), self._packet)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                if len(packets) == 1:
                    await connection.run_transaction(*packets[0])
                else:
                    async with connection.transaction():
                        for packet in packets:
                            await connection.run(*packet)
            except FAILURES as error:
                if code_of(error) in {OUT_OF_RANGE, DUPLICATE_KEY}:
                    return False
                if code_of(error) != DEADLOCK or attempt == ATTEMPTS:
                    raise
            else:
                return True
            await _back_off(attempt)
        raise AssertionError

    def _apply_each(self, changes: Sequence[Change]) -> Plan[Sequence[Outcome]]:
        """Makes or refuses each change by itself; what comes behind a refused change of its session is refused too."""
        refused: set[SessionKey] = set()
        outcomes: list[Outcome] = []
        for change in changes:
            outcome = Conflict() if change.key in refused else (yield from self._writes.apply(change))
            if not isinstance(outcome, Committed):
                refused.add(change.key)
            outcomes.append(outcome)
        return outcomes

    async def _plan_loosely(self, plan: Callable[[Reads], Plan[Result]]) -> Result:
        return await self._with_connection(
            lambda connection: self._carry_out(connection, plan(self._reads)), repeatable=True
        )

    async def _plan_read(self, plan: Callable[[Reads], Plan[Result]]) -> Result:
        async def read(connection: MariaDBConnection) -> Result:
            async with connection.transaction(BEGIN_SNAPSHOT):
                return await self._carry_out(connection, plan(self._reads))

        return await self._with_connection(read, repeatable=True)

    async def _plan_write(self, plan: Callable[[Writes], Plan[Result]]) -> Result:
        return await self._with_connection(
            lambda connection: self._in_transaction(connection, lambda: plan(self._writes))
        )

    async def _in_transaction(self, connection: MariaDBConnection, plan: Callable[[], Plan[Result]]) -> Result:
        """Carries a plan out in a transaction; again when others rolled that back: then nothing of it was made."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with connection.transaction(BEGIN):
                    return await self._carry_out(connection, plan())
            except FAILURES as error:
                # Of two births of one name the second finds a duplicate, and on the next attempt the session.
                if code_of(error) not in {DEADLOCK, DUPLICATE_KEY} or attempt == ATTEMPTS:
                    raise
            await _back_off(attempt)
        raise AssertionError

    async def _carry_out(self, connection: MariaDBConnection, plan: Plan[Result]) -> Result:
        answer: Any = None
        while True:
            try:
                step = plan.send(answer)
            except StopIteration as end:
                result: Result = end.value
                return result
            answer = await self._run(connection, step)

    async def _run(self, connection: MariaDBConnection, step: Step) -> Any:
        match step:
            case Fetch(sql, parameters):
                rows = await connection.fetch(sql, parameters)
                if sql is self._statements.session_state and rows:
                    self._known.put(SessionKey(*parameters), Known(*rows[0][:3]))
                return rows
            case Execute(sql, parameters):
                return await connection.execute(sql, parameters)
            case Insert(sql, parameters):
                number = await connection.insert(sql, parameters)
                if sql is self._statements.insert_session:
                    *key, life, incarnation = parameters[: len(KEY) + 2]
                    self._known.put(SessionKey(*key), Known(number, life, incarnation))
                return number
            case ExecuteMany(sql, rows):
                texts = with_rows(sql, rows) if sql.startswith("INSERT") else [with_values(sql, row) for row in rows]
                for packet in in_packets(texts, self._packet):
                    await connection.run(*packet)
                return None

    async def _with_connection(
        self, call: Callable[[MariaDBConnection], Awaitable[Result]], *, repeatable: bool = False
    ) -> Result:
        """Calls with a connection. `repeatable`: once more with another one, if it turns out that the connection was
        lost before.
        """
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                try:
                    async with self._pool.connection() as connection:
                        return await call(connection)
                except FAILURES as error:
                    if not repeatable or not is_lost(error):
                        raise
                async with self._pool.connection() as connection:
                    return await call(connection)
        except FAILURES as error:
            problem = unavailable(error, ANSWER_SECONDS)
            if problem is None:
                raise
            if is_lost(error) or code_of(error) in READ_ONLY:
                self._pool.drop_free()  # They lead to the same server.
            raise problem from error

    async def _connect(self) -> MariaDBConnection:
        # The driver's own limit leaves the handshake out.
        async with asyncio.timeout(CONNECT_SECONDS):
            return await MariaDBConnection.connect(self._arguments)

    async def _migrate(self) -> None:
        """Brings the schema up to date, while no other server does: what changes a schema commits by itself."""

        async def connect() -> Any:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await MariaDBConnection.connect_driver(self._arguments)

        engine = create_async_engine(self._url, poolclass=NullPool, async_creator=connect)
        try:
            async with engine.connect() as connection:
                locked = await connection.scalar(text(f"SELECT GET_LOCK({_LOCK}, {MIGRATION_SECONDS})"))
                if not locked:
                    raise StoreUnavailable(
                        "Another server has been changing the schema for long. Start this one again."
                    )
                try:
                    # Changes of a table wait until no transaction has looked at it.
                    await connection.execute(text(f"SET SESSION lock_wait_timeout = {MIGRATION_SECONDS}"))
                    await connection.run_sync(upgrade)
                    await connection.commit()
                finally:
                    await connection.execute(text(f"DO RELEASE_LOCK({_LOCK})"))
        finally:
            await engine.dispose()

    async def _look_at_server(self, connection: MariaDBConnection) -> tuple[bool, tuple[StoreCapability, ...]]:
        """Returns: whether the server keeps what it has committed, and what it can do. Raises: StoreMisconfigured."""
        ((version, packet, flush, has_log, log_sync, doublewrite),) = await connection.fetch(
            "SELECT @@version, @@max_allowed_packet, @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog, "
            "CAST(@@innodb_doublewrite AS CHAR)"
        )
        is_mariadb = "mariadb" in version.lower()
        oldest = OLDEST_MARIADB if is_mariadb else OLDEST_MYSQL
        numbers = tuple(int(number) for number in version.split("-")[0].split(".")[:2])
        name = f"{'MariaDB' if is_mariadb else 'MySQL'} {version.split('-')[0]}"
        if numbers < oldest:
            raise StoreMisconfigured(f"the server is {name}, and memoryd needs {'.'.join(map(str, oldest))} at least.")
        if packet < SMALLEST_PACKET:
            raise StoreMisconfigured(
                f"max_allowed_packet of the server is {packet:,} bytes, and memoryd needs {SMALLEST_PACKET:,} at "
                "least: set it to 64M, and restart memoryd."
            )
        self._packet = min(packet, LARGEST_PACKET) - PACKET_MARGIN
        risks = []
        if flush not in {1, 3}:
            risks.append("innodb_flush_log_at_trx_commit to 1")
        if has_log and log_sync != 1:
            risks.append("sync_binlog to 1")
        if doublewrite.upper() in {"0", "OFF", "DETECT_ONLY"}:
            risks.append("innodb_doublewrite to ON")
        durable = StoreCapability(
            "durable",
            supported=not risks,
            reason=f"{name} may lose commits when its machine fails. Set {' and '.join(risks)}." if risks else "",
        )
        return not risks, (StoreCapability("shared", supported=True), durable)


async def _back_off(attempt: int) -> None:
    await asyncio.sleep(FIRST_BACKOFF_SECONDS * 2**attempt * random.random())


__all__ = ["MariaDBStore"]
