"""What a sweep would find due at this moment, told without changing anything."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from memoryd_server.engine import run_sweeping
from memoryd_server.engine.run_sweeping import OverDueRuns
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.sweeping import PAGE_SESSIONS, due_before
from memoryd_server.stores.base import Due, StoreUnavailable

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SweepPreview:
    """What is due. Rows that nobody can reach any more are not counted: no store does so without reading them all."""

    expired_sessions: int
    abandoned_sessions: int
    """Sessions with runs that nobody claimed."""
    purged_sessions: int
    """Sessions with messages that were taken away."""
    runs: Sequence[OverDueRuns]
    """Those of each agent that has any."""
    failures: int
    """How often something could not be read; the log says what."""


async def preview(runtime: Runtime) -> SweepPreview:
    """Looks at what is due. Raises: StoreUnavailable."""
    now = await runtime.store.now()
    failures = 0
    runs: list[OverDueRuns] = []
    async for tenant in run_sweeping.tenants(runtime):
        try:
            async for agent, retention in run_sweeping.retentions(runtime, tenant):
                found = await run_sweeping.count_over_due(runtime, tenant, agent, retention, now)
                runs += [found] if found.runs else []
        except StoreUnavailable:
            raise
        except Exception:
            failures += 1
            _log.exception("could not read the settings of all agents of a tenant in store %s", runtime.name)
    return SweepPreview(
        expired_sessions=await _count(runtime, Due.EXPIRY, now),
        abandoned_sessions=await _count(runtime, Due.ABANDONMENT, now),
        purged_sessions=await _count(runtime, Due.PURGE, now),
        runs=runs,
        failures=failures,
    )


async def _count(runtime: Runtime, due: Due, now: int) -> int:
    count, after = 0, ""
    while True:
        page = await runtime.store.list_due(due, due_before(due, now), PAGE_SESSIONS, after)
        count += len(page.keys)
        after = page.after
        if not after:
            return count
