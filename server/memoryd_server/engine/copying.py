"""Copies what a store holds into another one, of whatever type, and verifies the copy (design section 3, "Stores by
name").

All sessions are walked twice, as many at a time as both stores answer for soon (see `pacing`): first they are copied,
then compared with the copies by digests of all that both stores hold of them. Whatever the source got meanwhile is
looked at once more. A copy can be interrupted and repeated at any time: what is there already and equal is passed over,
and what the source got since is added.

Runs are copied with their steps, finished or not; whoever holds one in the source does not hold it in the copy.

Memory files are copied with their versions, unless single agents are asked for: they belong to none.

Not copied: events, and with them what watchers have seen; tokens of pages and watches, which are bound to their store;
sessions whose time is over, and what earlier sessions of a name left.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Final, Protocol, TypeVar

import msgspec

from memoryd_server import limits
from memoryd_server.engine.copy_differences import Differs
from memoryd_server.engine.errors import RequestError
from memoryd_server.engine.file_copying import FileCopier, list_file_owners, list_file_tenants, list_owned
from memoryd_server.engine.pacing import MOST_AT_ONCE, Pace, Turns, paced
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.session_copying import Copied, SessionCopier
from memoryd_server.engine.stores import is_reachable
from memoryd_server.stores.base import SessionQuery, StoreUnavailable
from memoryd_server.stores.records import AgentRecord, FileKey, Record, SessionKey, Tier

PAGE_SESSIONS: Final = 500
"""Sessions, agents or tenants that are listed at once."""

LAST_LOOKS: Final = 3
"""How often the sessions are looked at that the source went on with during the look before."""

_LAG: Final = (limits.ACTIVITY_LAG_SECONDS + 1) * 1_000_000
"""Microseconds by which a session's activity may lag behind an append, clocks that differ a little included."""

Item = TypeVar("Item")
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
    """What a copy has done so far. Each session counts once: as `new`, `updated`, `known`, `gone`, `different` or
    `failed`.
    """

    sessions: int = 0
    """Sessions of the source that were found at first."""
    messages: int = 0
    """Messages in them."""
    new: int = 0
    """Sessions of which the target had nothing, and that were copied."""
    updated: int = 0
    """Sessions of which the target had an earlier state, and that were brought up to date."""
    known: int = 0
    """Sessions that the target had already."""
    gone: int = 0
    """Sessions that ended in the source while they were copied."""
    different: int = 0
    """Sessions that the target holds otherwise."""
    failed: int = 0
    """Sessions that could not be copied or compared."""
    agents: int = 0
    """Agents whose settings are not the same in both stores."""
    files: int = 0
    """Memory files that are the same in both stores."""
    new_files: int = 0
    """Memory files of which the target had nothing, or an earlier state."""
    different_files: int = 0
    """Memory files that the target holds otherwise, or that could not be copied or compared."""
    written: int = 0
    """Messages that were stored in the target."""
    written_steps: int = 0
    """Steps of runs that were stored in the target."""
    runs: int = 0
    """Runs that are the same in both stores."""
    steps: int = 0
    """Steps of these."""
    handled: int = 0
    """Messages of the sessions that were copied or passed over, so far as they are."""
    compared: int = 0
    """Messages of the sessions that were compared, so far as they are; those that are looked at again count once."""
    same: int = 0
    """Sessions that are the same in both stores."""
    moving: int = 0
    """Sessions that the source went on with during the last look at it."""
    unmatched: list[str] = field(default_factory=list)
    """What was asked for and matches nothing in the source, as a person says it, such as `agent 'nosuch'`."""

    @property
    def settled(self) -> int:
        """Sessions of which it is known what happened to them."""
        return self.new + self.updated + self.known + self.gone + self.different + self.failed


@dataclass(frozen=True, slots=True)
class Difference:
    """A session that the target does not hold as the source does, an agent's settings, or a memory file."""

    tenant: str
    agent: str
    """Empty for a memory file."""
    session_id: str | None
    """None for the settings of an agent and for a memory file."""
    what: str
    """What differs, as a sentence goes on behind the name."""
    advice: str
    """What to do."""
    failed: bool = False
    """Whether it could not be copied or compared, so that nobody knows."""
    file: FileKey | None = None


class Observer(Protocol):
    """Is told how a copy goes on."""

    def copying(self) -> None:
        """All is counted, and the copy begins."""

    def comparing(self) -> None:
        """All is copied, and the comparison begins."""

    def looking_again(self) -> None:
        """All is compared, and what the source went on with meanwhile is looked at again."""

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
        self._turns = Turns()
        """Of the sessions: no more are begun than both stores are asked at once."""
        self._paces = [Pace(wants_more=lambda: self._turns.are_awaited, changed=self._set_width) for _ in range(2)]
        self._source, self._target = map(paced, (source, target), self._paces)
        self._scope = scope
        self._tally = tally
        self._observer = observer
        self._outcomes = _Outcomes(tally)
        self._sessions = SessionCopier(
            self._source,
            self._target,
            written=self._wrote,
            compared=self._compared,
            written_steps=self._wrote_steps,
            compared_runs=self._compared_runs,
        )
        self._files = FileCopier(self._source, self._target)
        self._new_files: set[FileKey] = set()
        """Those that the target lacked, or had an earlier state of."""
        self._agents_seen: set[tuple[str, str]] = set()
        self._matched: set[tuple[str, str]] = set()
        """What was found in the source of what was asked for: as `agent` and its name, for instance."""
        self._empty: set[str] = set()
        """Tenants of which the target had no session at first."""
        self._progress: Counter[SessionKey] = Counter()
        """Messages that are done of the sessions at work."""
        self._recent: dict[SessionKey, int] = {}
        """The versions of sessions that were active since the comparison began, when they were compared last."""
        self._compares = False
        """Whether all is copied."""
        self._looks_again = False
        """Whether all was compared once."""
        self._begun = 0
        """When the comparison began, by the source's clock."""

    async def run(self) -> None:
        if self._source.info.secret == self._target.info.secret:
            raise SameStore
        try:
            await self._source.clock.sync()
            await self._target.clock.sync()
            await self._copy_and_compare()
        finally:
            await asyncio.gather(self._source.committer.close(), self._target.committer.close())

    async def _copy_and_compare(self) -> None:
        async for key, record in self._walk():
            self._tally.sessions += 1
            self._tally.messages += record.messages
            self._matched |= {("tenant", key.tenant), ("agent", key.agent), ("user", record.user_id)}
            self._observer.advanced()
        self._observer.copying()
        await self._adopt_secrets()
        await self._look_at_target()
        if not self._scope.users:
            await self._copy_agents()
        await self._at_each(self._walk_files(self._source), self._copy_file)
        self._tally.unmatched = self._unmatched()
        await self._at_each(self._walk(), self._copy_session)
        self._compares = True
        self._observer.comparing()
        self._sessions.look_anew()
        self._begun = since = self._source.clock.now() - _LAG
        await self._at_each(self._walk(), self._compare_session)
        await self._at_each(self._walk_files(self._source), self._compare_file)
        await self._at_each(self._walk_files(self._target), self._look_for_leftover)
        self._looks_again = True
        self._observer.looking_again()
        for _ in range(LAST_LOOKS):
            # What is active meanwhile moves to the front of the list, and may have been missed in the walk.
            self._tally.moving = 0
            now = self._source.clock.now() - _LAG
            self._sessions.look_anew()
            await self._at_each(self._walk(since), self._compare_session)
            since = now
            if not self._tally.moving:
                break
        self._observer.advanced()

    async def _adopt_secrets(self) -> None:
        """So that what is repeated to the target is recognized, also in what was copied to the source before."""
        adopted = await self._source.store.adopted_secrets()
        for secret in {self._source.info.secret, *adopted} - {self._target.info.secret}:
            await self._target.store.adopt_secret(secret)

    async def _look_at_target(self) -> None:
        async for tenant in self._tenants():
            page = await self._target.store.list_sessions(SessionQuery(tenant, None, None, 1))
            if not page.sessions:
                self._empty.add(tenant)

    def _unmatched(self) -> list[str]:
        """What was asked for and is not there; all of it, where each is there, but no session has it together."""
        scope = self._scope
        asked = [
            (kind, name)
            for kind, names in (("tenant", scope.tenants), ("agent", scope.agents), ("user", scope.users))
            for name in sorted(names)
        ]
        missing = [each for each in asked if each not in self._matched]
        if not missing and scope.users and not self._tally.sessions and not self._new_files:
            missing = asked
        return [f"{kind} {name!r}" for kind, name in missing]

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
            page = await self._source.sessions.list_sessions(query)
            for session in page.sessions:
                yield session
            after = page.after
            if not after:
                return

    async def _tenants(self) -> AsyncIterator[str]:
        last = ""
        while page := await self._source.store.list_tenants(last, PAGE_SESSIONS):
            for tenant in page:
                if not self._scope.tenants or tenant in self._scope.tenants:
                    yield tenant
            last = page[-1]

    async def _at_each(
        self,
        items: AsyncIterator[Item],
        work: Callable[[Item], Awaitable[None]],
    ) -> None:
        """Works at many sessions or files at once. Raises what the first of them does."""
        for pace in self._paces:
            pace.begin_anew()
        waiting: asyncio.Queue[Item | None] = asyncio.Queue(MOST_AT_ONCE)

        async def feed() -> None:
            async for item in items:
                await waiting.put(item)
            await waiting.put(None)

        async def work_on() -> None:
            while True:
                async with self._turns:
                    item = await waiting.get()
                    if item is None:
                        waiting.put_nowait(None)  # For the others.
                        return
                    await work(item)

        tasks = [asyncio.create_task(each) for each in (feed(), *(work_on() for _ in range(MOST_AT_ONCE)))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _set_width(self) -> None:
        self._turns.width = min(pace.width for pace in self._paces)

    async def _copy_session(self, session: tuple[SessionKey, Record]) -> None:
        key, record = session
        if self._scope.users:
            await self._copy_agent(key.tenant, key.agent)
        with suppress(_Failed):  # The comparison tries it once more, and tells.
            unborn = key.tenant in self._empty
            self._outcomes.put(key, await self._attempt(partial(self._sessions.copy, key, record, unborn=unborn)))
        self._tally.handled += record.messages - self._progress.pop(key, 0)
        self._observer.advanced()

    async def _compare_session(self, session: tuple[SessionKey, Record]) -> None:
        key, record = session
        if self._recent.get(key) == record.version:
            return
        counts = not self._looks_again or key not in self._outcomes
        try:
            copied = await self._attempt(partial(self._sessions.compare, key))
        except _Failed as failed:
            if self._outcomes.put_failure(key, could_not=failed.could_not):
                self._observer.differs(Difference(*key, failed.what, failed.advice, failed.could_not))
        else:
            self._outcomes.put(key, copied)
            self._tally.moving += copied in (Copied.BORN, Copied.UPDATED)
            self._tally.same += copied is not Copied.GONE
        if record.activity >= self._begun:
            self._recent[key] = record.version
        self._tally.compared += (record.messages if counts else 0) - self._progress.pop(key, 0)
        self._observer.advanced()

    def _wrote(self, key: SessionKey, messages: int) -> None:
        self._tally.written += messages
        if not self._compares:
            self._tally.handled += messages
            self._progress[key] += messages
        self._observer.advanced()

    def _compared(self, key: SessionKey, messages: int) -> None:
        if not self._looks_again:
            self._tally.compared += messages
            self._progress[key] += messages
        self._observer.advanced()

    def _wrote_steps(self, key: SessionKey, steps: int) -> None:
        self._tally.written_steps += steps
        self._observer.advanced()

    def _compared_runs(self, key: SessionKey, runs: int, steps: int) -> None:
        if not self._looks_again or key not in self._outcomes:
            self._tally.runs += runs
            self._tally.steps += steps
        self._observer.advanced()

    # Memory files

    async def _walk_files(self, runtime: Runtime) -> AsyncIterator[FileKey]:
        if self._scope.agents:
            return
        async for tenant in list_file_tenants(runtime):
            if self._scope.tenants and tenant not in self._scope.tenants:
                continue
            async for owner in list_file_owners(runtime, tenant):
                if not self._scope.users or (owner.tier is Tier.USER and owner.id in self._scope.users):
                    if runtime is self._source:
                        user = {("user", owner.id)} if owner.tier is Tier.USER else set()
                        self._matched |= {("tenant", tenant)} | user
                    async for key in list_owned(runtime, owner):
                        yield key

    async def _copy_file(self, key: FileKey) -> None:
        with suppress(_Failed):  # The comparison tries it once more, and tells.
            if await self._attempt(partial(self._files.copy, key)) in (Copied.BORN, Copied.UPDATED):
                self._new_files.add(key)
        self._observer.advanced()

    async def _look_for_leftover(self, key: FileKey) -> None:
        try:
            await self._attempt(partial(self._files.look_for_leftover, key))
        except _Failed as failed:
            self._tell_of_file(key, failed)

    def _tell_of_file(self, key: FileKey, failed: _Failed) -> None:
        self._tally.different_files += 1
        difference = Difference(key.owner.tenant, "", None, failed.what, failed.advice, failed.could_not, key)
        self._observer.differs(difference)

    async def _compare_file(self, key: FileKey) -> None:
        try:
            copied = await self._attempt(partial(self._files.compare, key))
        except _Failed as failed:
            self._tell_of_file(key, failed)
        else:
            self._tally.files += copied is not Copied.GONE
            self._tally.new_files += key in self._new_files or copied in (Copied.BORN, Copied.UPDATED)
        self._observer.advanced()

    # Agents

    async def _copy_agents(self) -> None:
        async for tenant in self._tenants():
            last = ""
            while page := await self._source.store.list_agents(tenant, last, PAGE_SESSIONS):
                for record in page:
                    self._matched |= {("tenant", tenant), ("agent", record.agent)}
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
            self._tally.agents += 1
            self._observer.differs(Difference(tenant, agent, None, failed.what, failed.advice, failed.could_not))

    async def _copy_settings(self, tenant: str, agent: str) -> None:
        """Raises: Differs, StoreUnavailable."""
        here = await self._source.store.load_agent(tenant, agent) or AgentRecord(tenant, agent)
        while True:
            there = await self._target.store.load_agent(tenant, agent) or AgentRecord(tenant, agent)
            if (there.policy, there.settings) == (here.policy, here.settings):
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
            return await call()
        except Differs as error:
            raise _Failed(error.what, error.advice) from error
        except RequestError as error:
            raise _could_not(error.text) from error
        except StoreUnavailable as error:
            if not all(await asyncio.gather(is_reachable(self._source), is_reachable(self._target))):
                raise
            raise _could_not(str(error)) from error
        except Exception as error:
            _log.exception("a session, a memory file or an agent could not be copied")
            raise _could_not(type(error).__name__, "see what was logged, then copy again") from error


class _Outcomes:
    """What happened to each session, which counts once in the tally. A session takes some 100 bytes here."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._of: dict[int, str] = {}
        """The names of the tally's fields, by the hashes of sessions."""
        self._before: dict[int, str] = {}
        """What sessions that differ or failed were before that; "" for nothing."""

    def __contains__(self, key: SessionKey) -> bool:
        return hash(key) in self._of

    def put(self, key: SessionKey, copied: Copied) -> None:
        """A session was copied or compared, and is as it should be."""
        session = hash(key)
        before = self._before.pop(session, self._of.get(session, ""))
        # What is looked at again stays what it was by the first look.
        stays = (copied is Copied.KNOWN and before in ("new", "updated")) or (
            copied is Copied.UPDATED and before == "new"
        )
        self._set(session, before if stays else _FIELDS[copied])

    def put_failure(self, key: SessionKey, *, could_not: bool) -> bool:
        """A session differs, or could not be copied. Returns: whether it is told for the first time."""
        session = hash(key)
        is_new = session not in self._before
        self._before.setdefault(session, self._of.get(session, ""))
        self._set(session, "failed" if could_not else "different")
        return is_new

    def _set(self, session: int, field: str) -> None:
        before = self._of.get(session)
        if before == field:
            return
        for name, change in ((before, -1), (field, 1)):
            if name is not None:
                setattr(self._tally, name, getattr(self._tally, name) + change)
        self._of[session] = field


_FIELDS: Final = {
    Copied.BORN: "new",
    Copied.UPDATED: "updated",
    Copied.KNOWN: "known",
    Copied.GONE: "gone",
}


def _each(names: frozenset[str]) -> Sequence[str | None]:
    """The names, one by one; None, which stands for all, when there are none."""
    return sorted(names) or (None,)


class _Failed(Exception):
    """Something is not the same in both stores, or `could_not` be copied."""

    def __init__(self, what: str, advice: str, *, could_not: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.advice = advice
        self.could_not = could_not


def _could_not(why: str, advice: str = "copy again") -> _Failed:
    return _Failed(f"it could not be copied: {why}", advice, could_not=True)
