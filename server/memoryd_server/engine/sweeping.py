"""Background work on a store: ends sessions whose time is over and runs that nobody claims, and deletes what was taken
away and runs that ended long ago (design section 5).

One server at a time does it, by a lease in the store. It is done in small batches, and is idempotent: what was begun by
a server that died is taken up by the next. Whatever fails at one session stops nothing else. A store that is away is
told once, and once that it is back.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from memoryd_server import limits
from memoryd_server.engine import changes, run_sweeping
from memoryd_server.engine.clock import RESYNC_SECONDS
from memoryd_server.engine.outages import Outage
from memoryd_server.engine.runtime import Runtime
from memoryd_server.stores.base import Deleted, Due, StoreUnavailable
from memoryd_server.stores.records import RemovedRange, SessionKey

INTERVAL_SECONDS: Final = 5.0
"""How often a server looks for what is due."""

LEASE_NAME: Final = "sweep"

LEASE_SECONDS: Final = 30.0
"""How long a server that does not renew its lease keeps the others from sweeping: it renews it with each session."""

PAGE_SESSIONS: Final = 100

RETENTION_SECONDS: Final = 600.0
"""How often a server looks for runs that ended long ago: it asks for the settings of every agent."""

_MICROSECONDS: Final = 1_000_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a round did."""

    expired: int
    """Sessions that it ended."""
    abandoned: int
    """Runs that it ended."""
    deleted: Deleted
    failures: int
    """How often something failed, which the next round tries again."""


def due_before(due: Due, now: int) -> int:
    """Before which time a session became due for what is done about it now."""
    delay = {Due.EXPIRY: 0, Due.ABANDONMENT: limits.RUN_ABANDON_SECONDS, Due.PURGE: limits.PURGE_DELAY_SECONDS}[due]
    return now - delay * _MICROSECONDS


class Sweeper:
    """Sweeps one store."""

    def __init__(
        self, runtime: Runtime, *, alone: bool = True, advanced: Callable[[int], None] = lambda _count: None
    ) -> None:
        """`alone`: whether it works only while no other server does. A round beside another one's does no harm.
        `advanced`: told while a round goes on how many more sessions and runs it ended, and rows it deleted.
        """
        self._runtime = runtime
        self._alone = alone
        self._advanced = advanced
        self._holder = secrets.token_hex(8)
        self._outage = Outage(runtime.name, "do all that is due")
        self._failures = 0
        """In this round."""
        self._is_away = False
        """Whether the store did not answer at something of this round."""
        self._retention_at = 0.0
        """When it next looks for runs that ended long ago, in `time.monotonic()` seconds."""

    async def run_for_ever(self) -> None:
        """The background task of a server. Ends by cancellation only."""
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            await self.try_to_sweep()

    async def try_to_sweep(self) -> None:
        """One round, if no other server is at it. What fails is logged, and a matter of the next round."""
        self._is_away = False
        try:
            await self.sweep()
        except StoreUnavailable as error:
            self._stays_away(error)
        except Exception:
            self._failed("could not look for what is due")
        else:
            if not self._is_away:
                self._outage.end()

    async def sweep(self) -> SweepReport | None:
        """One round, if no other server is at it. Returns: None when one is. Raises: StoreUnavailable."""
        if not await self._hold():
            return None
        self._failures = 0
        now = await self._runtime.store.now()
        expired = await self._at_each(Due.EXPIRY, now, lambda key: self._expire(key, now))
        self._runtime.instruments.expired(expired)
        left_alone = due_before(Due.ABANDONMENT, now)
        abandoned = await self._at_each(
            Due.ABANDONMENT, left_alone, lambda key: run_sweeping.abandon(self._runtime, key, left_alone)
        )
        self._runtime.instruments.abandoned(abandoned)
        before = due_before(Due.PURGE, now)
        deleted = Deleted(messages=await self._at_each(Due.PURGE, before, lambda key: self._purge(key, before)))
        if time.monotonic() >= self._retention_at:
            deleted += await self._delete_ended_runs(now)
            self._retention_at = time.monotonic() + RETENTION_SECONDS
        while await self._hold():
            batch = await self._runtime.store.sweep(now, limits.PURGE_BATCH)
            deleted += batch
            self._advanced(batch.total)
            if not batch.total:
                break
            await asyncio.sleep(0)  # Appends that wait for the database go first.
        self._runtime.instruments.swept(deleted)
        return SweepReport(expired, abandoned, deleted, self._failures)

    async def _hold(self) -> bool:
        return not self._alone or await self._runtime.store.lease(LEASE_NAME, self._holder, LEASE_SECONDS)

    async def _delete_ended_runs(self, now: int) -> Deleted:
        """Deletes the runs whose retention is over, agent by agent, while this server holds the lease."""
        deleted = Deleted()
        async for tenant in run_sweeping.tenants(self._runtime):
            with self._going_on("could not read the settings of all agents of a tenant"):
                async for agent, retention in run_sweeping.retentions(self._runtime, tenant):
                    if not await self._hold():
                        return deleted
                    with self._going_on("could not list the runs of an agent that ended long ago"):
                        deleted += await self._delete_runs_of(tenant, agent, now - retention)
        return deleted

    async def _delete_runs_of(self, tenant: str, agent: str, before: int) -> Deleted:
        deleted = Deleted()
        while names := await run_sweeping.list_over_due(self._runtime, tenant, agent, before):
            round_ = Deleted()
            for name in names:
                with self._going_on("could not delete a run that ended long ago"):
                    run = await run_sweeping.delete(self._runtime, name)
                    round_ += run
                    self._advanced(run.total)
            deleted += round_
            if not round_.total or not await self._hold():
                break
        return deleted

    async def _at_each(self, due: Due, before: int, work: Callable[[SessionKey], Awaitable[int]]) -> int:
        """Works at each session that is due, while this server holds the lease. Returns: the sum of what it did."""
        done, after = 0, ""
        while await self._hold():
            page = await self._runtime.store.list_due(due, before, PAGE_SESSIONS, after)
            for key in page.keys:
                with self._going_on("could not work at a session that is due"):
                    count = await work(key)
                    done += count
                    self._advanced(count)
            after = page.after
            if not after:
                break
        return done

    @contextmanager
    def _going_on(self, what: str) -> Iterator[None]:
        """Whatever fails in it stops nothing else: also a store may be away for this alone."""
        try:
            yield
        except StoreUnavailable as error:
            self._stays_away(error)
        except Exception:
            self._failed(what)

    def _stays_away(self, error: StoreUnavailable) -> None:
        self._failures += 1
        self._runtime.instruments.sweep_failed()
        self._is_away = True
        self._outage.begin(error)

    def _failed(self, what: str) -> None:
        self._failures += 1
        self._runtime.instruments.sweep_failed()
        _log.exception("%s in store %s; it is tried again later", what, self._runtime.name)

    async def _expire(self, key: SessionKey, now: int) -> int:
        died = await self._runtime.committer.run(
            key, lambda record, _known: changes.plan_expire(record, key, now), expired_too=True
        )
        return int(died)

    async def _purge(self, key: SessionKey, before: int) -> int:
        loaded = await self._runtime.store.load(key)
        if loaded is None:
            return 0
        deleted = 0
        for removed in loaded.record.removed:
            if removed.removed_at < before:
                deleted += await self._purge_range(key, loaded.record.incarnation, removed)
        return deleted

    async def _purge_range(self, key: SessionKey, incarnation: str, removed: RemovedRange) -> int:
        deleted = 0
        purge = self._runtime.store.purge
        while count := await purge(key, incarnation, removed.from_seq, removed.to_seq, limits.PURGE_BATCH):
            deleted += count
            await asyncio.sleep(0)  # Appends that wait for the database go first.
        await self._runtime.committer.run(
            key, lambda record, _known: changes.plan_forget_removed(record, key, removed), expired_too=True
        )
        return deleted


async def follow_store_clock(runtime: Runtime) -> None:
    """Sets a store's clock anew now and then: a background task. Ends by cancellation only."""
    outage = Outage(runtime.name, "ask for the time")
    while True:
        await asyncio.sleep(RESYNC_SECONDS)
        try:
            await runtime.clock.sync()
        except StoreUnavailable as error:
            outage.begin(error)
        except Exception:
            _log.exception("could not ask store %s for its time; its clock goes on as it was", runtime.name)
        else:
            outage.end()
