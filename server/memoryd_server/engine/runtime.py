"""What the engine holds of one store while the server runs."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

from memoryd_server import limits
from memoryd_server.engine.claimable_runs import ClaimableRunsOfAgents
from memoryd_server.engine.clock import StoreClock
from memoryd_server.engine.committer import Committer
from memoryd_server.engine.folder import Folder, Summarizers
from memoryd_server.engine.instruments import NO_INSTRUMENTS, Instruments
from memoryd_server.engine.living import LivingSessions
from memoryd_server.engine.policies import SERVER_OPTIONS
from memoryd_server.engine.tokens import O200K_BASE
from memoryd_server.engine.watched import WatchedSessions
from memoryd_server.stores.base import AgentStore, Store, StoreInfo
from memoryd_server.stores.records import AgentRecord, FileKey, Policy
from memoryd_server.summarizers.base import EXTRACTIVE

CACHED_AGENTS: Final = 1_024
"""Agents whose settings a server keeps for `limits.AGENT_CACHE_SECONDS`."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the server's settings say where no policy does."""

    tokenizer: str = O200K_BASE
    policy: Policy = Policy(window=SERVER_OPTIONS)
    summarizer: str = EXTRACTIVE
    """The summarizer of policies that name none."""
    run_retention: int = 30 * 24 * 3600 * 1_000_000
    """Microseconds for which runs are kept after their end where an agent's settings do not say; 0 for ever."""
    run_recoveries: int = 3
    """How often a run is taken up after its lease was over before it ends FAILED."""


class AgentCache:
    """The settings of agents, at most `limits.AGENT_CACHE_SECONDS` old."""

    def __init__(self, store: AgentStore) -> None:
        self._store = store
        self._agents: OrderedDict[tuple[str, str], tuple[float, AgentRecord]] = OrderedDict()

    async def get(self, tenant: str, agent: str) -> AgentRecord:
        """The agent's settings; empty ones when it was never updated. Raises: StoreUnavailable."""
        now = time.monotonic()
        cached = self._agents.get((tenant, agent))
        if cached is not None and now - cached[0] < limits.AGENT_CACHE_SECONDS:
            return cached[1]
        record = await self._store.load_agent(tenant, agent) or AgentRecord(tenant, agent)
        self.put(record, read_at=now)
        return record

    def put(self, record: AgentRecord, *, read_at: float | None = None) -> None:
        """Remembers settings that were just read or written."""
        key = (record.tenant, record.agent)
        self._agents[key] = (time.monotonic() if read_at is None else read_at, record)
        self._agents.move_to_end(key)
        if len(self._agents) > CACHED_AGENTS:
            self._agents.popitem(last=False)


@dataclass(slots=True)
class Runtime:
    """A store that is open, with what stands before it."""

    name: str
    store: Store
    info: StoreInfo
    defaults: Defaults
    instruments: Instruments = NO_INSTRUMENTS
    summarizers: Summarizers = field(default_factory=Summarizers)
    """Shared by all stores of a server, which closes them."""
    clock: StoreClock = field(init=False)
    sessions: LivingSessions = field(init=False)
    committer: Committer = field(init=False)
    agents: AgentCache = field(init=False)
    watched: WatchedSessions = field(init=False)
    folder: Folder = field(init=False)
    claimable_runs: ClaimableRunsOfAgents = field(init=False, default_factory=ClaimableRunsOfAgents)
    file_turns: WeakValueDictionary[FileKey, asyncio.Lock] = field(init=False, default_factory=WeakValueDictionary)
    """Calls of this process for one memory file take turns: only other servers come between a read and a change."""

    def __post_init__(self) -> None:
        self.clock = StoreClock(self.store)
        self.sessions = LivingSessions(self.store, self.clock)
        self.watched = WatchedSessions()
        self.committer = Committer(
            self.store,
            is_living=self.sessions.grows,
            changed=self.watched.wake,
            instruments=self.instruments,
        )
        self.agents = AgentCache(self.store)
        self.folder = Folder(self, self.summarizers)

    async def close(self) -> None:
        """Ends folds under way, waits for commits, and closes the store."""
        await self.folder.close()
        await self.committer.close()
        await self.store.close()
