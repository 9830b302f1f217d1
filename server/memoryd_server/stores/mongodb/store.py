"""The MongoDB store: its parts, as the contract asks for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from memoryd_server import limits
from memoryd_server.stores.base import (
    Change,
    CommitLimits,
    Deleted,
    Due,
    DuePage,
    EventPage,
    Loaded,
    LookupPage,
    MessagePage,
    MessageQuery,
    Outcome,
    PoolStatus,
    RunName,
    RunPage,
    RunQuery,
    SessionPage,
    SessionQuery,
    StepPage,
    Store,
    StoreCapability,
    StoreInfo,
    StoreMisconfigured,
    StoreUnavailable,
    Tail,
    Version,
)
from memoryd_server.stores.mongodb.agents import Agents
from memoryd_server.stores.mongodb.clock import STEP, Clock
from memoryd_server.stores.mongodb.commits import Commits
from memoryd_server.stores.mongodb.database import CONNECTIONS, Database
from memoryd_server.stores.mongodb.errors import unopenable
from memoryd_server.stores.mongodb.files import Files
from memoryd_server.stores.mongodb.leftovers import Leftovers
from memoryd_server.stores.mongodb.loads import Loads
from memoryd_server.stores.mongodb.location import Location
from memoryd_server.stores.mongodb.meta import Meta
from memoryd_server.stores.mongodb.reads import Reads
from memoryd_server.stores.mongodb.run_deletion import RunDeletion
from memoryd_server.stores.mongodb.runs import Runs
from memoryd_server.stores.mongodb.sessions import Sessions
from memoryd_server.stores.mongodb.summaries import Summaries
from memoryd_server.stores.records import (
    AgentRecord,
    Entry,
    FileKey,
    FileOwner,
    FileVersion,
    Lookup,
    LookupKind,
    Record,
    SessionKey,
    StoredFile,
    StoredMessage,
    StoredRun,
    StoredSummary,
    Tier,
    Usability,
)

TYPE: Final = "mongodb"

_MICROSECONDS: Final = 1_000_000


class MongoDBStore(Store):
    """Keeps everything in a database on MongoDB, for any number of servers of memoryd. It changes one document at once
    and asks for no transactions.
    """

    # A commit of each session is one of its own: on a sharded database it may be that of one shard that fails.
    commit_limits = CommitLimits(concurrency=CONNECTIONS, sessions=1)
    clock_step = STEP

    def __init__(self, location: Location, **options: Any) -> None:
        """`options`: of the driver's client, for tests."""
        self._location = location
        self._options = options
        self._opened: Database | None = None

    async def open(self) -> StoreInfo:
        try:
            # Not before, since Motor's client belongs to an event loop.
            self._opened = Database(self._location, **self._options)
            self._connect_parts(self._opened)
            return await self._prepare(self._opened)
        except StoreMisconfigured as error:
            await self.close()
            raise StoreMisconfigured(f"{self._location.database}: {error}") from error
        except BaseException as error:
            await self.close()
            cause = error.__cause__ if isinstance(error, StoreUnavailable) and error.__cause__ else error
            problem = unopenable(cause, self._location.database, self._location.answer_seconds)
            if problem is None:
                raise
            raise problem from error

    def _connect_parts(self, database: Database) -> None:
        self._database = database
        self._clock = Clock(database)
        self._meta = Meta(database, self._clock)
        self._agents = Agents(database)
        self._sessions = Sessions(database)
        self._summaries = Summaries(database)
        self._runs = Runs(database, self._sessions)
        self._run_deletion = RunDeletion(database, self._sessions)
        self._leftovers = Leftovers(database, self._agents, self._summaries, self._run_deletion, self._clock)
        self._loads = Loads(database, self._sessions, self._summaries)
        self._reads = Reads(database, self._sessions, self._loads, self._summaries)
        self._files = Files(database)
        self._commits = Commits(database, self._sessions, self._agents, self._leftovers, self._clock)

    async def _prepare(self, database: Database) -> StoreInfo:
        await self._meta.check_format()
        await database.create_indexes()
        await self._meta.make_secret()
        risk = self._location.risk
        shared = StoreCapability("shared", supported=True)
        durable = StoreCapability("durable", supported=not risk, reason=risk)
        return StoreInfo(TYPE, durable.supported, (shared, durable), secret=await self._meta.secret())

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    def pool_status(self) -> PoolStatus:
        """See `base.Pooled`."""
        return self._database.status()

    async def ping(self) -> None:
        await self._meta.secret()

    async def now(self) -> int:
        return await self._clock.now()

    async def adopt_secret(self, secret: bytes) -> None:
        await self._meta.adopt_secret(secret)

    async def adopted_secrets(self) -> Sequence[bytes]:
        return await self._meta.adopted_secrets()

    async def lease(self, name: str, holder: str, seconds: float) -> bool:
        return await self._meta.lease(name, holder, seconds)

    async def load(self, key: SessionKey, tail: Tail | None = None) -> Loaded | None:
        return await self._loads.load(key, tail)

    async def read(
        self, key: SessionKey, incarnation: str, seqs: Sequence[int]
    ) -> tuple[Record, Sequence[StoredMessage]] | None:
        return await self._reads.read(key, incarnation, seqs)

    async def list_messages(self, key: SessionKey, query: MessageQuery) -> MessagePage | None:
        return await self._reads.list_messages(key, query)

    async def list_entries(
        self, key: SessionKey, incarnation: str, from_seq: int, to_seq: int, limit: int
    ) -> tuple[Record, Sequence[Entry]] | None:
        return await self._reads.list_entries(key, incarnation, from_seq, to_seq, limit)

    async def list_in_reading_order(
        self, key: SessionKey, incarnation: str, from_head: int, to_head: int, limit: int
    ) -> tuple[Record, Sequence[Entry]] | None:
        return await self._reads.list_in_reading_order(key, incarnation, from_head, to_head, limit)

    async def read_summaries(
        self, key: SessionKey, incarnation: str, numbers: Sequence[int]
    ) -> tuple[Record, Sequence[StoredSummary]] | None:
        return await self._reads.read_summaries(key, incarnation, numbers)

    async def list_unusable(self, key: SessionKey, usabilities: Collection[Usability], limit: int) -> Sequence[Entry]:
        return await self._loads.list_unusable(key, usabilities, limit)

    async def list_events(self, key: SessionKey, incarnation: str, after: int, limit: int) -> EventPage | None:
        return await self._reads.list_events(key, incarnation, after, limit)

    async def find(self, key: SessionKey, kind: LookupKind, ids: Sequence[str]) -> Sequence[Lookup]:
        return await self._reads.find(key, kind, ids)

    async def list_lookups(self, key: SessionKey, limit: int, after: str = "") -> LookupPage:
        return await self._reads.list_lookups(key, limit, after)

    async def commit(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        return await self._commits.commit(changes)

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        return await self._reads.list_sessions(query)

    async def list_due(self, due: Due, before: int, limit: int, after: str = "") -> DuePage:
        return await self._reads.list_due(due, before, limit, after)

    async def list_folds(self, tenant: str, agent: str, before: int, limit: int, after: str = "") -> DuePage:
        return await self._reads.list_folds(tenant, agent, before, limit, after)

    async def begin_staging(self, tenant: str, user_id: str, due: int) -> str:
        return await self._leftovers.begin_staging(tenant, user_id, due)

    async def stage(self, staging: str, messages: Sequence[StoredMessage], lookups: Sequence[Lookup], due: int) -> None:
        await self._leftovers.stage(staging, messages, lookups, due)

    async def end_staging(self, staging: str) -> None:
        await self._leftovers.end_staging(staging)

    async def sweep(self, now: int, limit: int) -> Deleted:
        deleted = await self._leftovers.sweep(now, limit)
        await self._files.forget_ended(now - limits.PURGE_DELAY_SECONDS * _MICROSECONDS, limit)
        return deleted

    async def erase(self, tenant: str, user_id: str, limit: int) -> Deleted:
        deleted = await self._leftovers.erase(tenant, user_id, limit)
        if deleted.total < limit:
            of_user = FileOwner(tenant, Tier.USER, user_id)
            deleted += Deleted(files=await self._files.erase(of_user, limit - deleted.total))
        return deleted

    async def purge(self, key: SessionKey, incarnation: str, from_seq: int, to_seq: int, limit: int) -> int:
        session = await self._sessions.read(key)
        if session is None or session.incarnation != incarnation:
            return 0
        await self._sessions.settle(session)
        return await self._leftovers.purge(*session.place, from_seq, to_seq, limit)

    async def load_run(self, key: SessionKey, run_id: str) -> tuple[Record, StoredRun | None] | None:
        return await self._runs.load(key, run_id)

    async def list_runs(self, query: RunQuery) -> RunPage:
        return await self._runs.list_runs(query)

    async def list_claimable(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[RunName]:
        return await self._runs.list_claimable(tenant, agent, before, limit)

    async def list_steps(
        self, key: SessionKey, incarnation: str, run_id: str, after: int, limit: int, bytes: int
    ) -> StepPage | None:
        return await self._runs.list_steps(key, incarnation, run_id, after, limit, bytes)

    async def list_ended_runs(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[RunName]:
        return await self._runs.list_ended(tenant, agent, before, limit)

    async def delete_run(self, name: RunName, limit: int) -> int:
        return await self._run_deletion.delete(name, limit)

    async def load_agent(self, tenant: str, agent: str) -> AgentRecord | None:
        return await self._agents.load(tenant, agent)

    async def save_agent(self, record: AgentRecord) -> bool:
        return await self._agents.save(record)

    async def list_agents(self, tenant: str, after: str, limit: int) -> Sequence[AgentRecord]:
        return await self._agents.list(tenant, after, limit)

    async def list_tenants(self, after: str, limit: int) -> Sequence[str]:
        return await self._agents.list_tenants(after, limit)

    async def load_files(self, keys: Sequence[FileKey]) -> Sequence[StoredFile]:
        return await self._files.load(keys)

    async def save_file(self, file: StoredFile, expected: Version | None) -> bool:
        return await self._files.save(file, expected)

    async def delete_file(self, key: FileKey, expected: Version) -> bool:
        return await self._files.delete(key, expected)

    async def list_files(self, owner: FileOwner, before: str, limit: int) -> Sequence[tuple[str, FileVersion]]:
        return await self._files.list(owner, before, limit)

    async def list_file_versions(self, key: FileKey) -> Sequence[FileVersion]:
        return await self._files.list_versions(key)

    async def load_file_version(self, key: FileKey, version: int) -> StoredFile | None:
        return await self._files.load_version(key, version)

    async def list_file_owners(self, tenant: str, after: FileOwner | None, limit: int) -> Sequence[FileOwner]:
        return await self._files.list_owners(tenant, after, limit)

    async def list_file_tenants(self, after: str, limit: int) -> Sequence[str]:
        return await self._files.list_tenants(after, limit)
