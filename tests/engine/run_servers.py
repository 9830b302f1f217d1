"""Servers on one store, and calls about runs as short as tests want them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from memoryd_server.engine import run_claims, run_steps, runs, tokens
from memoryd_server.engine.changes import SessionSettings
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.run_access import RunView
from memoryd_server.engine.run_changes import CommittedStep
from memoryd_server.engine.run_claims import Claim
from memoryd_server.engine.run_errors import RunKey
from memoryd_server.engine.run_steps import StepCommit
from memoryd_server.engine.runs import Creation, Update
from memoryd_server.engine.runtime import Defaults, Runtime
from memoryd_server.stores.base import RunName
from memoryd_server.stores.records import Record, RunStatus, SessionKey, StoredStep
from memoryd_server.stores.registry import create_store
from tests.adapters import Adapter
from tests.engine.messages import KEY

SECOND: Final = 1_000_000
DAY: Final = 24 * 3600 * SECOND
LEASE: Final = 30 * SECOND


@asynccontextmanager
async def servers_on(
    adapter: Adapter, directory: Path, count: int = 1, **defaults: Any
) -> AsyncIterator[list[Runtime]]:
    """Servers on one store, which holds nothing."""
    async with AsyncExitStack() as running:
        url = running.enter_context(adapter.emptied(directory))
        servers: list[Runtime] = []
        for _ in range(count):
            if servers and not adapter.shared:
                servers.append(Runtime("default", servers[0].store, servers[0].info, servers[0].defaults))
                continue
            store = create_store("test", adapter.type, url)
            servers.append(
                Runtime("default", store, await store.open(), Defaults(tokenizer=tokens.ESTIMATE, **defaults))
            )
            running.push_async_callback(servers[-1].close)
        yield servers


@dataclass
class Worker:
    """Somebody who works at the runs of a session, by one server."""

    server: Runtime
    session: SessionKey = KEY
    name: str = "worker"

    def key(self, run_id: str) -> RunKey:
        return RunKey(self.session, run_id)

    async def create(
        self, run_id: str, *, queued: bool = False, metadata: str = "", ttl: int = 0, lease: int = LEASE
    ) -> RunView:
        settings = SessionSettings("user", ttl=ttl)
        return await runs.create(self.server, Creation(self.key(run_id), metadata, queued, self.name, lease, settings))

    async def step(
        self,
        run: RunView,
        number: int,
        *messages: IncomingMessage,
        payload: bytes = b"payload",
        status: RunStatus = RunStatus.RUNNING,
        reason: str = "",
    ) -> CommittedStep:
        wanted = StepCommit(run.key, run.fence, number, payload, "text/plain", messages, int(status), reason)
        return await run_steps.commit(self.server, wanted)

    async def claim(self, run_id: str = "", *, mark: str = "", lease: int = LEASE) -> RunView | None:
        """A claim of the run, or of any of the agent."""
        how = Claim(self.name, lease, mark)
        if run_id:
            return await run_claims.claim(self.server, self.session.tenant, how, key=self.key(run_id))
        return await run_claims.claim(self.server, self.session.tenant, how, agent=self.session.agent)

    async def take(self, run_id: str = "") -> RunView:
        """Likewise, and there is one."""
        view = await self.claim(run_id)
        assert view is not None
        return view

    async def update(self, run: RunView, status: RunStatus, reason: str = "", *, by_etag: bool = False) -> RunView:
        by = {"etag": run.etag} if by_etag else {"fence": run.fence}
        return await runs.update(self.server, Update(run.key, status=int(status), reason=reason, **by))

    async def finish(self, run: RunView) -> RunView:
        return await self.update(run, RunStatus.COMPLETED)

    async def get(self, run_id: str) -> RunView:
        return await runs.get(self.server, self.key(run_id))

    async def steps(self, run_id: str) -> list[StoredStep]:
        steps, token = await run_steps.list_(self.server, self.key(run_id))
        assert not token
        return list(steps)

    async def record(self) -> Record:
        loaded = await self.server.store.load(self.session)
        assert loaded is not None
        return loaded.record

    async def listed(self, *statuses: RunStatus, of_agent: bool = False) -> list[str]:
        """The ids of the session's or the agent's runs."""
        session = None if of_agent else self.session
        views, token = await runs.list_(
            *(self.server, self.session.tenant),
            session=session,
            agent=self.session.agent if of_agent else "",
            statuses=statuses,
        )
        assert not token
        return [view.key.run_id for view in views]


def name_of(run: RunView) -> RunName:
    return RunName(run.key.session, run.incarnation, run.key.run_id)
