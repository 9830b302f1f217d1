"""The store on a database server: what is the same on every such server, over a pool of its driver's connections."""

from __future__ import annotations

import asyncio
import random
import secrets
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import repeat
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

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
from memoryd_server.stores.pool import ConnectionPool, Poolable
from memoryd_server.stores.records import Record, SessionKey
from memoryd_server.stores.sql.planned import SECRET, SECRET_BYTES, PlannedStore
from memoryd_server.stores.sql.reads import Reads
from memoryd_server.stores.sql.rows import Row
from memoryd_server.stores.sql.steps import Execute, Fetch, Insert, Plan, Step
from memoryd_server.stores.sql.tails import Loads
from memoryd_server.stores.sql.writes import Writes

CONNECTIONS: Final = 10
"""The most connections that a server has to its database: with more, MariaDB contends for its locks."""

COMMITS: Final = 4
"""Commits under way at once: they share the flushes of the database's log, and what waits meanwhile shares a commit."""

ANSWER_SECONDS: Final = 5.0
"""How long a call waits for the database, a connection included, before it is given up."""

LOCK_SECONDS: Final = 3
"""How long a statement waits for another connection's lock."""

MIGRATION_SECONDS: Final = 60
"""How long a server waits while another one brings the schema up to date."""

CLOSE_SECONDS: Final = 1.0
"""How long the database may take to say goodbye."""

ATTEMPTS: Final = 5
"""How often a transaction is tried that others keep rolling back."""

FIRST_BACKOFF_SECONDS: Final = 0.005
"""How long a transaction that others rolled back waits for its second attempt at most; then twice as long each time."""

Result = TypeVar("Result")
Chain = Sequence[Change]
"""Changes of one session, each of which rests on the one before."""


class ServedConnection(Poolable, Protocol):
    """A connection to a database server. Used by one call at a time."""

    def fetch(self, sql: str, parameters: Sequence[Any] = ()) -> Awaitable[Sequence[Any]]:
        """The rows of a statement."""

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Awaitable[int]:
        """Returns: how many rows it changed or deleted."""

    def insert(self, sql: str, parameters: Sequence[Any] = ()) -> Awaitable[int]:
        """Inserts one row. Returns: the number that the database gave it."""

    def execute_many(self, sql: str, rows: Sequence[Row]) -> Awaitable[object]:
        """Runs a statement with each of some rows of parameters."""

    def transaction(self, *, snapshot: bool = False) -> AbstractAsyncContextManager[None]:
        """Commits at the end of the block; rolls back when that raises. What breaks it off leaves the connection
        unusable. With `snapshot`, it only reads, and all its statements see one moment.
        """


Connection = TypeVar("Connection", bound=ServedConnection)


@dataclass(frozen=True)
class DriverErrors:
    """How a driver's errors are told apart."""

    failures: tuple[type[Exception], ...]
    """What a call may raise when the database or the way to it fails."""
    is_lost: Callable[[BaseException], bool]
    """Whether the connection is of no use any more."""
    is_misled: Callable[[BaseException], bool]
    """Whether the other connections are of no use either, since they lead to the same server."""
    is_undone: Callable[[BaseException], bool]
    """Whether the transaction surely is not made, and may be made when it is tried again."""
    unavailable: Callable[[BaseException, float], StoreUnavailable | None]
    """What a call raises that failed so, having waited for so many seconds; None for a fault of ours, which is to
    surface as it is."""
    unopenable: Callable[[BaseException, str, float], StoreUnavailable | StoreMisconfigured | None]
    """What `open` raises when it failed so, given the name of the database and how many seconds a call waits."""


class ServedStore(PlannedStore, Generic[Connection]):
    """Keeps everything in a database on a database server, for any number of servers of memoryd."""

    commit_limits = CommitLimits(concurrency=COMMITS)

    type: ClassVar[str]
    """See `StoreInfo`."""
    errors: ClassVar[DriverErrors]

    def __init__(self, name: str, reads: Loads, writes: Writes) -> None:
        """`name`: of the database, for errors; without credentials."""
        self._name = name
        self._reads = reads
        self._writes = writes
        self._pool = ConnectionPool(self._connect, CONNECTIONS)

    @abstractmethod
    async def _connect(self) -> Connection:
        """Raises: what the driver raises."""

    @abstractmethod
    async def _prepare(self) -> str:
        """Brings the schema up to date, while no other server does, and looks at how the database is set up.

        Returns: why it may lose what it has committed, and what to do about it; "" when it does not.
        Raises: StoreMisconfigured when it cannot serve.
        """

    @abstractmethod
    async def _add(self, chains: Mapping[SessionKey, Chain]) -> Collection[SessionKey]:
        """The fast way for what most chains do, which is to add to their sessions.

        Returns: the sessions whose chains are made as a whole. Of the others nothing is.
        """

    @abstractmethod
    async def _apply(self, chains: Sequence[Chain]) -> Sequence[Sequence[Outcome]]:
        """Makes or refuses each change by itself, by `apply_chains` in as many transactions as suit the database."""

    def _learn(self, step: Step, answer: Any) -> None:
        """Remembers what is worth it of a statement's answer."""

    async def open(self) -> StoreInfo:
        try:
            risk = await self._prepare()
            secret = secrets.token_bytes(SECRET_BYTES)
            await self._plan_write(lambda writes: writes.keep_value(SECRET, secret))
            kept = await self._plan_read(lambda reads: reads.look_at_tables(SECRET))
        except BaseException as error:
            await self.close()
            problem = self.errors.unopenable(self._origin(error), self._name, ANSWER_SECONDS)
            if problem is None:
                raise
            raise problem from error
        assert kept is not None
        shared = StoreCapability("shared", supported=True)
        durable = StoreCapability("durable", supported=not risk, reason=risk)
        return StoreInfo(type=self.type, durable=durable.supported, capabilities=(shared, durable), secret=kept)

    async def close(self) -> None:
        await self._pool.close()

    def pool_status(self) -> PoolStatus:
        """See `base.Pooled`."""
        return self._pool.status()

    async def ping(self) -> None:
        await self._plan_loosely(lambda reads: reads.look_at_tables(SECRET))

    async def now(self) -> int:
        return await self._plan_loosely(Reads.now)

    async def load(self, key: SessionKey, tail: Tail | None = None) -> Loaded | None:
        if tail is None:
            return await self._plan_loosely(lambda reads: reads.load_record(key))
        loaded = await self._plan_loosely(lambda _: self._reads.load_tail(key, tail))
        if isinstance(loaded, Record):
            return await self._plan_read(lambda _: self._reads.load_tail_stepwise(key, tail))
        return loaded

    async def commit(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        by_session: dict[SessionKey, list[Change]] = {}
        for change in changes:
            by_session.setdefault(change.key, []).append(change)
        # In one order on every server, so that none waits for another that waits for it.
        chains = {key: by_session[key] for key in sorted(by_session)}
        added = await self._add(chains)
        outcomes: dict[SessionKey, Iterator[Outcome]] = {key: repeat(Committed()) for key in added}
        rest = [key for key in chains if key not in outcomes]
        if rest:
            for key, of_chain in zip(rest, await self._apply([chains[key] for key in rest]), strict=True):
                outcomes[key] = iter(of_chain)
        return [next(outcomes[change.key]) for change in changes]

    # Carrying plans out

    async def _plan_loosely(self, plan: Callable[[Reads], Plan[Result]]) -> Result:
        return await self._with_connection(
            lambda connection: self._carry_out(connection, plan(self._reads)), repeatable=True
        )

    async def _plan_read(self, plan: Callable[[Reads], Plan[Result]]) -> Result:
        async def read(connection: Connection) -> Result:
            async with connection.transaction(snapshot=True):
                return await self._carry_out(connection, plan(self._reads))

        return await self._with_connection(read, repeatable=True)

    async def _plan_write(self, plan: Callable[[Writes], Plan[Result]]) -> Result:
        async def write(connection: Connection) -> Result:
            async with connection.transaction():
                return await self._carry_out(connection, plan(self._writes))

        return await self._until_done(write)

    async def _carry_out(self, connection: Connection, plan: Plan[Result]) -> Result:
        """Runs the statements of a plan, and returns its result."""
        answer: Any = None
        while True:
            try:
                step = plan.send(answer)
            except StopIteration as end:
                result: Result = end.value
                return result
            if isinstance(step, Fetch):
                answer = await connection.fetch(step.sql, step.parameters)
            elif isinstance(step, Execute):
                answer = await connection.execute(step.sql, step.parameters)
            elif isinstance(step, Insert):
                answer = await connection.insert(step.sql, step.parameters)
            else:
                await connection.execute_many(step.sql, step.rows)
                answer = None
            self._learn(step, answer)

    async def _until_done(self, transact: Callable[[Connection], Awaitable[Result]]) -> Result:
        """Calls with a connection; again while others undo the transaction."""
        for attempt in range(1, ATTEMPTS):
            try:
                return await self._with_connection(transact)
            except Exception as error:
                if not self._is_undone(error):
                    raise
            await asyncio.sleep(FIRST_BACKOFF_SECONDS * 2**attempt * random.random())
        return await self._with_connection(transact)

    def _is_undone(self, error: Exception) -> bool:
        """Whether what `_with_connection` raised says that a transaction surely is not made."""
        return self.errors.is_undone(self._origin(error))

    def _origin(self, error: BaseException) -> BaseException:
        """The driver's own error behind one of SQLAlchemy or of the contract."""
        while not isinstance(error, self.errors.failures) and error.__cause__ is not None:
            error = error.__cause__
        return error

    async def _with_connection(
        self, call: Callable[[Connection], Awaitable[Result]], *, repeatable: bool = False
    ) -> Result:
        """Calls with a connection. `repeatable`: once more with another one, if it turns out that the connection was
        lost before.
        """
        errors = self.errors
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                try:
                    return await self._with_one_connection(call)
                except errors.failures as error:
                    if not repeatable or not errors.is_lost(error):
                        raise
                self._pool.drop_free()
                return await self._with_one_connection(call)
        except errors.failures as error:
            problem = errors.unavailable(error, ANSWER_SECONDS)
            if problem is None:
                raise
            if errors.is_misled(error):
                self._pool.drop_free()
            raise problem from error

    async def _with_one_connection(self, call: Callable[[Connection], Awaitable[Result]]) -> Result:
        async with self._pool.connection() as connection:
            try:
                return await call(connection)
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError) or self.errors.is_lost(error):
                    connection.abort()
                raise


def apply_chains(writes: Writes, chains: Sequence[Chain]) -> Plan[list[list[Outcome]]]:
    """Makes or refuses each change by itself; what comes behind a refused change of its chain is refused too (see
    `stores.chains`).
    """
    of_all: list[list[Outcome]] = []
    for chain in chains:
        outcomes: list[Outcome] = []
        for change in chain:
            is_refused = bool(outcomes) and not isinstance(outcomes[-1], Committed)
            outcomes.append(Conflict() if is_refused else (yield from writes.apply(change)))
        of_all.append(outcomes)
    return of_all
