"""A store that fails, waits and is overtaken as a test tells it, around the in-memory store that keeps the data."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence

from memoryd_server.stores.base import (
    Change,
    CommitLimits,
    Deleted,
    Due,
    DuePage,
    EventPage,
    HistoryStore,
    Loaded,
    LookupPage,
    MessagePage,
    MessageQuery,
    Outcome,
    SessionPage,
    SessionQuery,
    Tail,
    Version,
)
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.records import (
    AgentRecord,
    Entry,
    FileKey,
    Lookup,
    LookupKind,
    Record,
    SessionKey,
    StoredFile,
    StoredMessage,
    StoredSummary,
    Usability,
)

Step = Callable[[], Awaitable[None]]
"""Happens before a call reaches the store: it may wait, change the store, or raise instead of the store."""


class FaultyStore(HistoryStore):
    """Steps through `before_commit`, `before_load` and `before_stage`, one step a call; notes all commits."""

    def __init__(
        self, store: InMemoryStore | None = None, *, concurrency: int = 1, sessions: int | None = None
    ) -> None:
        self.store = store or InMemoryStore()
        self.commit_limits = CommitLimits(concurrency, sessions)
        self.before_commit: deque[Step] = deque()
        self.before_load: deque[Step] = deque()
        self.before_stage: deque[Step] = deque()
        self.always: Step | None = None
        """Happens before every call of any kind."""
        self.commits: list[Sequence[Change]] = []
        self.loads = 0
        self.under_way: list[set[SessionKey]] = []
        """The sessions of each commit that is under way."""
        self.most_under_way = 0

    async def _step(self, steps: deque[Step] | None = None) -> None:
        if self.always is not None:
            await self.always()
        if steps:
            await steps.popleft()()

    async def commit(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        sessions = {change.key for change in changes}
        assert not any(sessions & others for others in self.under_way), "two commits hold the same session"
        self.under_way.append(sessions)
        self.most_under_way = max(self.most_under_way, len(self.under_way))
        assert len(self.under_way) <= self.commit_limits.concurrency
        try:
            await self._step(self.before_commit)
            self.commits.append(changes)
            outcomes = await self.store.commit(changes)
            await self._step()
            return outcomes
        finally:
            self.under_way.remove(sessions)

    async def load(self, key: SessionKey, tail: Tail | None = None) -> Loaded | None:
        self.loads += 1
        await self._step(self.before_load)
        return await self.store.load(key, tail)

    async def find(self, key: SessionKey, kind: LookupKind, ids: Sequence[str]) -> Sequence[Lookup]:
        await self._step()
        return await self.store.find(key, kind, ids)

    async def list_lookups(self, key: SessionKey, limit: int, after: str = "") -> LookupPage:
        return await self.store.list_lookups(key, limit, after)

    async def read(
        self, key: SessionKey, incarnation: str, seqs: Sequence[int]
    ) -> tuple[Record, Sequence[StoredMessage]] | None:
        return await self.store.read(key, incarnation, seqs)

    async def list_messages(self, key: SessionKey, query: MessageQuery) -> MessagePage | None:
        return await self.store.list_messages(key, query)

    async def list_unusable(self, key: SessionKey, usabilities: Collection[Usability], limit: int) -> Sequence[Entry]:
        return await self.store.list_unusable(key, usabilities, limit)

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        return await self.store.list_sessions(query)

    async def list_entries(
        self, key: SessionKey, incarnation: str, from_seq: int, to_seq: int, limit: int
    ) -> tuple[Record, Sequence[Entry]] | None:
        return await self.store.list_entries(key, incarnation, from_seq, to_seq, limit)

    async def list_in_reading_order(
        self, key: SessionKey, incarnation: str, from_head: int, to_head: int, limit: int
    ) -> tuple[Record, Sequence[Entry]] | None:
        return await self.store.list_in_reading_order(key, incarnation, from_head, to_head, limit)

    async def read_summaries(
        self, key: SessionKey, incarnation: str, numbers: Sequence[int]
    ) -> tuple[Record, Sequence[StoredSummary]] | None:
        return await self.store.read_summaries(key, incarnation, numbers)

    async def list_folds(self, tenant: str, agent: str, before: int, limit: int, after: str = "") -> DuePage:
        return await self.store.list_folds(tenant, agent, before, limit, after)

    async def list_events(self, key: SessionKey, incarnation: str, after: int, limit: int) -> EventPage | None:
        return await self.store.list_events(key, incarnation, after, limit)

    async def begin_staging(self, tenant: str, user_id: str, due: int) -> str:
        await self._step()
        return await self.store.begin_staging(tenant, user_id, due)

    async def stage(self, staging: str, messages: Sequence[StoredMessage], lookups: Sequence[Lookup], due: int) -> None:
        await self._step(self.before_stage)
        await self.store.stage(staging, messages, lookups, due)

    async def end_staging(self, staging: str) -> None:
        await self._step()
        await self.store.end_staging(staging)

    async def list_due(self, due: Due, before: int, limit: int, after: str = "") -> DuePage:
        return await self.store.list_due(due, before, limit, after)

    async def sweep(self, now: int, limit: int) -> Deleted:
        await self._step()
        return await self.store.sweep(now, limit)

    async def erase(self, tenant: str, user_id: str, limit: int) -> Deleted:
        await self._step()
        return await self.store.erase(tenant, user_id, limit)

    async def purge(self, key: SessionKey, incarnation: str, from_seq: int, to_seq: int, limit: int) -> int:
        return await self.store.purge(key, incarnation, from_seq, to_seq, limit)


class FaultyFiles(InMemoryStore):
    """Steps through `before_load`, `before_save`, `after_save` and `before_delete` of memory files, one step a call;
    counts the loads and the saves that were made."""

    def __init__(self) -> None:
        super().__init__()
        self.before_load: deque[Step] = deque()
        self.before_save: deque[Step] = deque()
        self.after_save: deque[Step] = deque()
        self.before_delete: deque[Step] = deque()
        self.always: Step | None = None
        """Happens before every call of these, and before an agent's settings are read."""
        self.rival: Callable[[FileKey], Awaitable[None]] | None = None
        """Comes between the read of a file and every change of it."""
        self.loads = 0
        self.saves = 0
        self.conflicts = 0
        """Saves that were not made, because the file was another."""
        self.ahead = 0
        """By how many microseconds the store's clock is ahead of this machine's."""

    async def now(self) -> int:
        return await super().now() + self.ahead

    async def _step(self, steps: deque[Step] | None = None) -> None:
        if self.always is not None:
            await self.always()
        if steps:
            await steps.popleft()()

    async def load_agent(self, tenant: str, agent: str) -> AgentRecord | None:
        await self._step()
        return await super().load_agent(tenant, agent)

    async def load_files(self, keys: Sequence[FileKey]) -> Sequence[StoredFile]:
        await self._step(self.before_load)
        self.loads += 1
        return await super().load_files(keys)

    async def save_file(self, file: StoredFile, expected: Version | None) -> bool:
        await self._step(self.before_save)
        if self.rival is not None:
            await self.rival(file.key)
        saved = await super().save_file(file, expected)
        self.saves += saved
        self.conflicts += not saved
        if self.after_save:
            await self.after_save.popleft()()
        return saved

    async def delete_file(self, key: FileKey, expected: Version) -> bool:
        await self._step(self.before_delete)
        if self.rival is not None:
            await self.rival(key)
        return await super().delete_file(key, expected)


class Gate:
    """A step that waits until the test opens it, and tells when it is reached."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._open = asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self._open.wait()

    def open(self) -> None:
        self._open.set()


def failing(error: BaseException) -> Step:
    """A step that raises."""

    async def fail() -> None:
        raise error

    return fail
