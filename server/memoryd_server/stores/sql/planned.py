"""A store whose methods are plans: all but the hot ones are the same on every SQL database."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeVar

from memoryd_server.stores.base import (
    ClaimableRun,
    Deleted,
    Due,
    DuePage,
    EventPage,
    LookupPage,
    MessagePage,
    MessageQuery,
    RunName,
    RunPage,
    RunQuery,
    SessionPage,
    SessionQuery,
    StepPage,
    Store,
    Version,
)
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
    Usability,
)
from memoryd_server.stores.sql.reads import Reads
from memoryd_server.stores.sql.steps import Plan
from memoryd_server.stores.sql.writes import Writes

SECRET: Final = "secret"
"""The name under which a database keeps the secret that its servers share."""

SECRET_BYTES: Final = 32

Result = TypeVar("Result")


class PlannedStore(Store):
    """Leaves to its adapter how plans are carried out, and `open`, `close`, `ping`, `now`, `load` and `commit`."""

    @abstractmethod
    async def _plan_read(self, plan: Callable[[Reads], Plan[Result]]) -> Result:
        """Carries a read out, on one moment."""

    async def _plan_loosely(self, plan: Callable[[Reads], Plan[Result]]) -> Result:
        """Carries a read out whose statements, if there are several, need not be of one moment."""
        return await self._plan_read(plan)

    @abstractmethod
    async def _plan_write(self, plan: Callable[[Writes], Plan[Result]]) -> Result:
        """Carries a write out, in a transaction."""

    async def read(
        self, key: SessionKey, incarnation: str, seqs: Sequence[int]
    ) -> tuple[Record, Sequence[StoredMessage]] | None:
        return await self._plan_read(lambda reads: reads.read(key, incarnation, seqs))

    async def list_messages(self, key: SessionKey, query: MessageQuery) -> MessagePage | None:
        return await self._plan_read(lambda reads: reads.list_messages(key, query))

    async def list_entries(
        self, key: SessionKey, incarnation: str, from_seq: int, to_seq: int, limit: int
    ) -> tuple[Record, Sequence[Entry]] | None:
        return await self._plan_read(lambda reads: reads.list_entries(key, incarnation, from_seq, to_seq, limit))

    async def list_in_reading_order(
        self, key: SessionKey, incarnation: str, from_head: int, to_head: int, limit: int
    ) -> tuple[Record, Sequence[Entry]] | None:
        return await self._plan_read(
            lambda reads: reads.list_in_reading_order(key, incarnation, from_head, to_head, limit)
        )

    async def read_summaries(
        self, key: SessionKey, incarnation: str, numbers: Sequence[int]
    ) -> tuple[Record, Sequence[StoredSummary]] | None:
        return await self._plan_read(lambda reads: reads.read_summaries(key, incarnation, numbers))

    async def list_unusable(self, key: SessionKey, usabilities: Collection[Usability], limit: int) -> Sequence[Entry]:
        return await self._plan_read(lambda reads: reads.list_unusable(key, usabilities, limit))

    async def find(self, key: SessionKey, kind: LookupKind, ids: Sequence[str]) -> Sequence[Lookup]:
        return await self._plan_loosely(lambda reads: reads.find(key, kind, ids))

    async def list_lookups(self, key: SessionKey, limit: int, after: str = "") -> LookupPage:
        return await self._plan_read(lambda reads: reads.list_lookups(key, limit, after))

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        return await self._plan_loosely(lambda reads: reads.list_sessions(query))

    async def list_events(self, key: SessionKey, incarnation: str, after: int, limit: int) -> EventPage | None:
        return await self._plan_read(lambda reads: reads.list_events(key, incarnation, after, limit))

    async def list_due(self, due: Due, before: int, limit: int, after: str = "") -> DuePage:
        return await self._plan_loosely(lambda reads: reads.list_due(due, before, limit, after))

    async def list_folds(self, tenant: str, agent: str, before: int, limit: int, after: str = "") -> DuePage:
        return await self._plan_loosely(lambda reads: reads.list_folds(tenant, agent, before, limit, after))

    async def load_agent(self, tenant: str, agent: str) -> AgentRecord | None:
        return await self._plan_loosely(lambda reads: reads.load_agent(tenant, agent))

    async def list_agents(self, tenant: str, after: str, limit: int) -> Sequence[AgentRecord]:
        return await self._plan_loosely(lambda reads: reads.list_agents(tenant, after, limit))

    async def list_tenants(self, after: str, limit: int) -> Sequence[str]:
        return await self._plan_loosely(lambda reads: reads.list_tenants(after, limit))

    async def begin_staging(self, tenant: str, user_id: str, due: int) -> str:
        return await self._plan_write(lambda writes: writes.begin_staging(tenant, user_id, due))

    async def stage(self, staging: str, messages: Sequence[StoredMessage], lookups: Sequence[Lookup], due: int) -> None:
        await self._plan_write(lambda writes: writes.stage(staging, messages, lookups, due))

    async def end_staging(self, staging: str) -> None:
        await self._plan_write(lambda writes: writes.end_staging(staging))

    async def purge(self, key: SessionKey, incarnation: str, from_seq: int, to_seq: int, limit: int) -> int:
        return await self._plan_write(lambda writes: writes.purge(key, incarnation, from_seq, to_seq, limit))

    async def sweep(self, now: int, limit: int) -> Deleted:
        return await self._plan_write(lambda writes: writes.sweep(now, limit))

    async def erase(self, tenant: str, user_id: str, limit: int) -> Deleted:
        return await self._plan_write(lambda writes: writes.erase(tenant, user_id, limit))

    async def save_agent(self, record: AgentRecord) -> bool:
        return await self._plan_write(lambda writes: writes.save_agent(record))

    async def load_files(self, keys: Sequence[FileKey]) -> Sequence[StoredFile]:
        return await self._plan_loosely(lambda reads: reads.files.load(keys))

    async def save_file(self, file: StoredFile, expected: Version | None) -> bool:
        return await self._plan_write(lambda writes: writes.files.save(file, expected))

    async def delete_file(self, key: FileKey, expected: Version) -> bool:
        return await self._plan_write(lambda writes: writes.files.delete(key, expected))

    async def list_files(self, owner: FileOwner, before: str, limit: int) -> Sequence[tuple[str, FileVersion]]:
        return await self._plan_loosely(lambda reads: reads.files.list_of(owner, before, limit))

    async def list_file_versions(self, key: FileKey) -> Sequence[FileVersion]:
        return await self._plan_loosely(lambda reads: reads.files.versions(key))

    async def load_file_version(self, key: FileKey, version: int) -> StoredFile | None:
        return await self._plan_loosely(lambda reads: reads.files.load_version(key, version))

    async def list_file_owners(self, tenant: str, after: FileOwner | None, limit: int) -> Sequence[FileOwner]:
        return await self._plan_loosely(lambda reads: reads.files.owners(tenant, after, limit))

    async def list_file_tenants(self, after: str, limit: int) -> Sequence[str]:
        return await self._plan_loosely(lambda reads: reads.files.tenants(after, limit))

    async def load_run(self, key: SessionKey, run_id: str) -> tuple[Record, StoredRun | None] | None:
        return await self._plan_loosely(lambda reads: reads.runs.load(key, run_id))

    async def list_runs(self, query: RunQuery) -> RunPage:
        return await self._plan_read(lambda reads: reads.runs.list_runs(query))

    async def list_claimable(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[RunName]:
        return await self._plan_loosely(lambda reads: reads.runs.list_claimable(tenant, agent, before, limit))

    async def load_claimable(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[ClaimableRun]:
        return await self._plan_loosely(lambda reads: reads.runs.load_claimable(tenant, agent, before, limit))

    async def list_steps(
        self, key: SessionKey, incarnation: str, run_id: str, after: int, limit: int, bytes: int
    ) -> StepPage | None:
        return await self._plan_read(lambda reads: reads.runs.list_steps(key, incarnation, run_id, after, limit, bytes))

    async def list_ended_runs(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[RunName]:
        return await self._plan_loosely(lambda reads: reads.runs.list_ended(tenant, agent, before, limit))

    async def delete_run(self, name: RunName, limit: int) -> int:
        return await self._plan_write(lambda writes: writes.runs.delete(name, limit))

    async def lease(self, name: str, holder: str, seconds: float) -> bool:
        return await self._plan_write(lambda writes: writes.lease(name, holder, seconds))

    async def adopt_secret(self, secret: bytes) -> None:
        await self._plan_write(lambda writes: writes.adopt_secret(secret))

    async def adopted_secrets(self) -> Sequence[bytes]:
        return await self._plan_loosely(Reads.adopted_secrets)
