"""What background work does about runs: it ends those that nobody claims, and deletes those that ended long ago
(invariant 15: retention counts from a run's end, and never touches an unfinished one).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from memoryd_server import limits
from memoryd_server.engine import run_changes
from memoryd_server.engine.run_errors import RunKey
from memoryd_server.engine.runs import delete_wholly
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.steadiness import until_steady
from memoryd_server.stores.base import Deleted, RunName, RunQuery, StoreUnavailable
from memoryd_server.stores.records import RunStatus, SessionKey, StoredRun

UNFINISHED: Final = frozenset(status for status in RunStatus if not status.is_final)

_PAGE: Final = 100
"""Agents, tenants or runs that are looked at together."""

COUNTED_RUNS: Final = 10_000
"""The most runs of an agent that are counted before any is deleted: a store lists them to count them."""


@dataclass(frozen=True, slots=True)
class OverDueRuns:
    """Runs of an agent that are not kept any more."""

    tenant: str
    agent: str
    retention: int
    """Microseconds for which they are kept after their end."""
    runs: int
    """How many; COUNTED_RUNS where there may be more."""


async def abandon(runtime: Runtime, key: SessionKey, before: int) -> int:
    """Ends the runs of a session that nobody has claimed or changed since `before`. Returns: how many.

    Raises: RequestError CONTENTION, StoreUnavailable.
    """

    async def attempt() -> int:
        query = RunQuery(key.tenant, key.agent, key.session_id, UNFINISHED, limits.MAX_UNFINISHED_RUNS)
        page = await runtime.store.list_runs(query)
        return sum([await _abandon(runtime, RunKey(key, run.id), run, before) for _, run in page.runs])

    return await until_steady(key, attempt, None)


async def _abandon(runtime: Runtime, key: RunKey, run: StoredRun, before: int) -> bool:
    return await runtime.committer.run(
        key.session,
        lambda record, _known: run_changes.plan_abandon(record, key, run, before, runtime.clock),
        expired_too=True,
    )


async def tenants(runtime: Runtime) -> AsyncIterator[str]:
    """The tenants that have agents. Raises: StoreUnavailable."""
    after = ""
    while found := await runtime.store.list_tenants(after, _PAGE):
        for after in found:
            yield after


async def retentions(runtime: Runtime, tenant: str) -> AsyncIterator[tuple[str, int]]:
    """A tenant's agents whose ended runs are not kept for ever, and for how many microseconds they are.

    Raises: StoreUnavailable; what a store raises of an agent that it cannot decode, behind all that come before it.
    """
    after, page = "", _PAGE
    while True:
        try:
            agents = await runtime.store.list_agents(tenant, after, page)
        except StoreUnavailable:
            raise
        except Exception:
            if page == 1:
                raise
            page = 1
            continue
        if not agents:
            return
        for record in agents:
            after = record.agent
            own = record.settings.run_retention
            retention = runtime.defaults.run_retention if own is None else own
            if retention:
                yield after, retention


async def list_over_due(runtime: Runtime, tenant: str, agent: str, before: int) -> list[RunName]:
    """Some of an agent's runs that ended before the given time, the longest ended first. Raises: StoreUnavailable."""
    return list(await runtime.store.list_ended_runs(tenant, agent, before, _PAGE))


async def count_over_due(runtime: Runtime, tenant: str, agent: str, retention: int, now: int) -> OverDueRuns:
    """How many runs of an agent are not kept any more. Raises: StoreUnavailable."""
    names = await runtime.store.list_ended_runs(tenant, agent, now - retention, COUNTED_RUNS)
    return OverDueRuns(tenant, agent, retention, len(names))


async def delete(runtime: Runtime, name: RunName) -> Deleted:
    """Deletes a run that has ended, with its steps. Returns: what of it was left. Raises: StoreUnavailable."""
    rows = await delete_wholly(runtime, name)
    return Deleted(runs=1, steps=rows - 1) if rows else Deleted()
