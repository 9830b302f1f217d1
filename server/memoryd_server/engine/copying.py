"""Copies what a store holds into another one, of whatever type, and verifies the copy (design section 3, "Stores by
name").

All sessions are walked twice, several at a time: first they are copied, then compared with the copies by digests of all
that both stores hold of them. Whatever the source got meanwhile is looked at once more. A copy can be interrupted and
repeated at any time: what is there already and equal is passed over, and what the source got since is added.

Not copied: events, and with them what watchers have seen; tokens of pages and watches, which are bound to their store;
sessions whose time is over, and what earlier sessions of a name left.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Final, Protocol, TypeVar

import msgspec

from memoryd_server import limits
from memoryd_server.engine.errors import RequestError
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.session_copying import Copied, Differs, SessionCopier
from memoryd_server.engine.stores import is_reachable
from memoryd_server.stores.base import SessionQuery, StoreUnavailable
from memoryd_server.stores.records import AgentRecord, Record, SessionKey

IN_FLIGHT: Final = 64
"""Sessions at once: small ones share commits then, and wait for their databases together."""

PAGE_SESSIONS: Final = 500
"""Sessions, agents or tenants that are listed at once."""

TRIES: Final = 6
"""How often a session is tried while a store does not answer."""

FIRST_PAUSE_SECONDS: Final = 0.2
"""How long the second try waits at most; then each twice as long as the one before: 6 s in all."""

EASE_SECONDS: Final = 1.0
"""How long half as many sessions at once are given, when a store did not answer, before they are halved again."""

LAST_LOOKS: Final = 3
"""How often the sessions are looked at that the source went on with during the look before."""

_LAG: Final = (limits.ACTIVITY_LAG_SECONDS + 1) * 1_000_000
"""Microseconds by which a session's activity may lag behind an append, clocks that differ a little included."""

Result = TypeVar("Result")

_log = logging.getLogger(__name__)


class SameStore(Exception):
    """The stores to copy from and to are one."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What to copy; an empty set stands for all."""

    tenants: frozenset[str] = frozenset()
    agents: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()


@dataclass(slots=True)
class Tally:
    """What a copy has done so far."""

    sessions: int = 0
    """Sessions of the source that were found at first."""
    messages: int = 0
    """Messages in them."""
    new: int = 0
    """Sessions of which the target had nothing."""
    updated: int = 0
    """Sessions of which the target had an earlier state."""
    written: int = 0
    """Messages that were stored in the target."""
    handled: int = 0
    """Messages of the sessions that were copied or passed over."""
    compared: int = 0
    """Messages that were compared."""
    same: int = 0
    """Comparisons of a session that found equal digests; one that went on meanwhile may be compared once more."""
    different: int = 0
    """Sessions and agents that are not the same in both stores."""
    moving: int = 0
    """Sessions that the source went on with during the last look at it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A session that the target does not hold as the source does, or an agent's settings."""

    tenant: str
    agent: str
    session_id: str | None
    """None for the settings of an agent."""
    what: str
    """What differs, as a sentence goes on behind the name."""
    advice: str
    """What to do."""


class Observer(Protocol):
    """Is told how a copy goes on."""

    def copying(self) -> None:
        """All is counted, and the copy begins."""

    def comparing(self) -> None:
        """All is copied, and the comparison begins."""

    def advanced(self) -> None:
        """Something more is done, as the tally says."""

    def differs(self, difference: Difference) -> None:
        """Something is not the same in both stores."""


async def copy(source: Runtime, target: Runtime, scope: Scope, tally: Tally, observer: Observer) -> None:
    """Copies and compares.

    `tally` is kept up to date, so that it is right also after an interruption.

    Raises: SameStore, when both are one; StoreUnavailable when one of them stops answering, or something cannot be
    listed. What was begun may be there in part, and a repetition goes on from there.
    """
    await _Copy(source, target, scope, tally, observer).run()


class _Copy:
    def __init__(self, source: Runtime, target: Runtime, scope: Scope, tally: Tally, observer: Observer) -> None:
        self._source = source
        self._target = target
        self._scope = scope
        self._tally = tally
        self._observer = observer
        self._sessions = SessionCopier(source, target, written=self._wrote, compared=self._compared)
        self._agents_seen: set[tuple[str, str]] = set()
        self._empty: set[str] = set()
        """Tenants of which the target had no session at first."""
        self._different: set[SessionKey] = set()
        self._recent: dict[SessionKey, int] = {}
        """The versions of sessions that were active since the comparison began, when they were compared last."""
        self._width = IN_FLIGHT
        """How many sessions are worked at at once: fewer, the more often a store did not answer."""
        self._eased = 0.0
        self._begun = 0
        """When it began, by the source's clock."""

    async def run(self) -> None:
        if self._source.info.secret == self._target.info.secret:
            raise SameStore
        async for _, record in self._walk():
            self._tally.sessions += 1
            self._tally.messages += record.messages
            self._observer.advanced()
        self._observer.copying()
        await self._adopt_secrets()
        await self._look_at_target()
        if not self._scope.users:
            await self._copy_agents()
        await self._at_each(self._walk(), self._copy_session)
        self._observer.comparing()
        self._begun = since = self._source.clock.now() - _LAG
        await self._at_each(self._walk(), self._compare_session)
        for _ in range(LAST_LOOKS):
            # What is active meanwhile moves to the front of the list, and may have been missed in the walk.
            self._tally.moving = 0
            now = self._source.clock.now() - _LAG
            await self._at_each(self._walk(since), self._compare_session)
            since = now
            if not self._tally.moving:
                break
        self._observer.advanced()

    async def _adopt_secrets(self) -> None:
        """So that what is repeated to the target is recognized, also in what was copied to the source before."""
        adopted = await self._patiently(self._source.store.adopted_secrets)
        for secret in {self._source.info.secret, *adopted} - {self._target.info.secret}:
            await self._patiently(partial(self._target.store.adopt_secret, secret))

    async def _look_at_target(self) -> None:
        async for tenant in self._tenants():
            query = SessionQuery(tenant, None, None, 1)
            page = await self._patiently(partial(self._target.store.list_sessions, query))
            if not page.sessions:
                self._empty.add(tenant)

    # Sessions

    async def _walk(self, since: int = 0) -> AsyncIterator[tuple[SessionKey, Record]]:
        """The source's sessions; with `since`, those that were active from then on."""
        async for tenant in self._tenants():
            for agent, user in product(_each(self._scope.agents), _each(self._scope.users)):
                async for key, record in self._list(tenant, agent, user):
                    if record.activity < since:
                        break
                    yield key, record

    async def _list(self, tenant: str, agent: str | None, user: str | None) -> AsyncIterator[tuple[SessionKey, Record]]:
        after = ""
        while True:
            query = SessionQuery(tenant, agent, user, PAGE_SESSIONS, after)
            page = await self._patiently(partial(self._source.sessions.list_sessions, query))
            for session in page.sessions:
                yield session
            after = page.after
            if not after:
                return

    async def _tenants(self) -> AsyncIterator[str]:
        last = ""
        while page := await self._patiently(partial(self._source.store.list_tenants, last, PAGE_SESSIONS)):
            for tenant in page:
                if not self._scope.tenants or tenant in self._scope.tenants:
                    yield tenant
            last = page[-1]

    async def _at_each(
        self,
        sessions: AsyncIterator[tuple[SessionKey, Record]],
        work: Callable[[SessionKey, Record], Awaitable[None]],
    ) -> None:
        """Works at many sessions at once. Raises what the first of them does."""
        waiting: asyncio.Queue[tuple[SessionKey, Record] | None] = asyncio.Queue(self._width)

        async def feed() -> None:
            async for session in sessions:
                await waiting.put(session)
            await waiting.put(None)

        async def work_on(place: int) -> None:
            while place < self._width:
                session = await waiting.get()
                if session is None:
                    waiting.put_nowait(None)  # For the others.
                    return
                await work(*session)

        tasks = [asyncio.create_task(each) for each in (feed(), *map(work_on, range(self._width)))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _copy_session(self, key: SessionKey, record: Record) -> None:
        if self._scope.users:
            await self._copy_agent(key.tenant, key.agent)
        with suppress(_Failed):  # The comparison tries it once more, and tells.
            unborn = key.tenant in self._empty
            copied = await self._attempt(partial(self._sessions.copy, key, record, unborn=unborn))
            self._count(copied)
            # What was written is counted already.
            self._tally.handled += 0 if copied is Copied.BORN else record.messages
        self._observer.advanced()

    async def _compare_session(self, key: SessionKey, record: Record) -> None:
        if self._recent.get(key) == record.version:
            return
        try:
            copied = await self._attempt(partial(self._sessions.compare, key))
        except _Failed as failed:
            if key not in self._different:
                self._different.add(key)
                self._tally.different += 1
                self._observer.differs(Difference(*key, failed.what, failed.advice))
        else:
            self._count(copied)
            self._tally.moving += copied in (Copied.BORN, Copied.UPDATED)
            self._tally.same += copied is not Copied.GONE
            if key in self._different:
                self._different.remove(key)
                self._tally.different -= 1
        if record.activity >= self._begun:
            self._recent[key] = record.version
        self._observer.advanced()

    def _count(self, copied: Copied) -> None:
        self._tally.new += copied is Copied.BORN
        self._tally.updated += copied is Copied.UPDATED

    def _wrote(self, messages: int) -> None:
        self._tally.written += messages
        self._tally.handled += messages
        self._observer.advanced()

    def _compared(self, messages: int) -> None:
        self._tally.compared += messages
        self._observer.advanced()

    # Agents

    async def _copy_agents(self) -> None:
        async for tenant in self._tenants():
            last = ""
            while page := await self._patiently(partial(self._source.store.list_agents, tenant, last, PAGE_SESSIONS)):
                for record in page:
                    if not self._scope.agents or record.agent in self._scope.agents:
                        await self._copy_agent(tenant, record.agent)
                last = page[-1].agent

    async def _copy_agent(self, tenant: str, agent: str) -> None:
        """Copies an agent's settings, once."""
        if (tenant, agent) in self._agents_seen:
            return
        self._agents_seen.add((tenant, agent))
        try:
            await self._attempt(partial(self._copy_settings, tenant, agent))
        except _Failed as failed:
            self._tally.different += 1
            self._observer.differs(Difference(tenant, agent, None, failed.what, failed.advice))

    async def _copy_settings(self, tenant: str, agent: str) -> None:
        """Raises: Differs, StoreUnavailable."""
        here = await self._source.store.load_agent(tenant, agent) or AgentRecord(tenant, agent)
        while True:
            there = await self._target.store.load_agent(tenant, agent) or AgentRecord(tenant, agent)
            if there.policy == here.policy:
                return
            if there.version:
                raise Differs(
                    "its settings differ, and the target's may be newer",
                    "set them in one of the stores with UpdateAgent",
                )
            if await self._target.store.save_agent(msgspec.structs.replace(here, version=1)):
                return

    # Failures

    async def _attempt(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Raises: _Failed; StoreUnavailable when one of the stores does not answer any more."""
        try:
            return await self._patiently(call)
        except Differs as error:
            raise _Failed(error.what, error.advice) from error
        except RequestError as error:
            raise _Failed(f"it could not be copied: {error.text}", "copy again") from error
        except StoreUnavailable as error:
            if not all(await asyncio.gather(is_reachable(self._source), is_reachable(self._target))):
                raise
            raise _Failed(f"it could not be copied: {error}", "copy again") from error
        except Exception as error:
            _log.exception("a session or an agent could not be copied")
            raise _Failed(
                f"it could not be copied: {type(error).__name__}", "see what was logged, then copy again"
            ) from error

    async def _patiently(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Calls again while a store does not answer, for some seconds. Raises: StoreUnavailable."""
        for attempt in range(TRIES - 1):
            try:
                return await call()
            except StoreUnavailable:
                self._ease()
                await asyncio.sleep(FIRST_PAUSE_SECONDS * 2**attempt * random.uniform(0.5, 1))
        return await call()

    def _ease(self) -> None:
        """Works at half as many sessions at once from now on: what is too much for a store may be why it fails."""
        now = time.monotonic()
        if now >= self._eased + EASE_SECONDS:
            self._eased = now
            self._width = max(1, self._width // 2)


def _each(names: frozenset[str]) -> Sequence[str | None]:
    """The names, one by one; None, which stands for all, when there are none."""
    return sorted(names) or (None,)


class _Failed(Exception):
    """Something is not the same in both stores."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(what)
        self.what = what
        self.advice = advice
