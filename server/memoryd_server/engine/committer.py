"""Makes changes of sessions: reads a record, plans, commits, and plans again on a conflict (design section 5).

Calls that wait in one process share a commit. Calls for one session in one commit are planned one upon the other, so
that many writers to one session cost one commit and no conflict. A record may come from this process's cache, since a
commit that rests on a stale one is refused by the store; but a refusal or a no-op rests on a fresh read only.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from memoryd_server import limits
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.instruments import NO_INSTRUMENTS, Instruments
from memoryd_server.stores.base import Change, Committed, Conflict, HistoryStore, Known, Lost, Outcome, Taken
from memoryd_server.stores.records import Lookup, LookupKind, Record, SessionKey

Answer = TypeVar("Answer")

Plan = Callable[[Record | None, Sequence[Lookup]], tuple[Change | None, Answer]]
"""Plans a change of a session from its record and from those of its look-ups that are known already.

Returns the change (None when nothing is to be done) and the answer to give once it is committed. Raises what the caller
shall get instead. Must be pure: it may run any number of times.
"""

CACHED_RECORDS: Final = 4_096
"""Records that a server keeps for warm appends: some megabytes."""

PATIENCE_SECONDS: Final = 10.0
"""How long a change is tried again without a deadline."""

LAST_WORD_SECONDS: Final = 0.1
"""How long before its deadline a change is given up, so that the caller still gets the reason."""

FIRST_BACKOFF_SECONDS: Final = 0.002
LAST_BACKOFF_SECONDS: Final = 0.05
"""The longest pause before a change that conflicted is tried again: the longer it waited, the longer others took its
turn."""

CONTENTION_RETRY_SECONDS: Final = 0.5
"""When a client may try again after contention outlived its call."""


@dataclass(eq=False, slots=True)
class _Ticket(Generic[Answer]):
    key: SessionKey
    plan: Plan[Answer]
    weight: int
    ids: Sequence[tuple[LookupKind, str]]
    patience_ends: float
    done: asyncio.Future[Answer]
    expired_too: bool = False
    """Whether its plan is given the record of a session whose time is over, rather than none."""
    unborn: bool = False
    """Whether its plan may rest on there being no session, without a read."""
    fresh: bool = False
    """Whether it must be planned on what the store holds now."""
    attempts: int = 0
    change: Change | None = None
    answer: Answer | None = None


class NotAdopted(Exception):
    """A staging did not become a session: it is lost, or the name is `taken`."""

    def __init__(self, *, taken: bool) -> None:
        super().__init__(taken)
        self.taken = taken


@dataclass(frozen=True, slots=True)
class _Read:
    """What the store held of a session when a commit was planned."""

    record: Record | None
    known: Mapping[_Ticket[Any], Sequence[Lookup]]


class RecordCache:
    """The records of the sessions that changed last. Only commits may rest on them."""

    def __init__(self, size: int = CACHED_RECORDS) -> None:
        self._size = size
        self._records: OrderedDict[SessionKey, Record] = OrderedDict()

    def get(self, key: SessionKey) -> Record | None:
        record = self._records.get(key)
        if record is not None:
            self._records.move_to_end(key)
        return record

    def put(self, key: SessionKey, record: Record) -> None:
        self._records[key] = record
        self._records.move_to_end(key)
        if len(self._records) > self._size:
            self._records.popitem(last=False)

    def drop(self, key: SessionKey) -> None:
        self._records.pop(key, None)


@dataclass(slots=True)
class CommitterStats:
    """What the committer has done so far."""

    commits: int = 0
    changes: int = 0
    conflicts: int = 0


class Committer:
    """The one way in which sessions of a store change."""

    def __init__(
        self,
        store: HistoryStore,
        *,
        is_living: Callable[[Record], bool] = lambda _: True,
        changed: Callable[[SessionKey], None] = lambda _: None,
        rng: random.Random | None = None,
        instruments: Instruments = NO_INSTRUMENTS,
    ) -> None:
        """`is_living` tells whether a session's time is not over; `changed` is called after each change of one."""
        self._store = store
        self._is_living = is_living
        self._changed = changed
        self._instruments = instruments
        self._random = rng or random.Random()
        self._waiting: deque[_Ticket[Any]] = deque()
        self._busy: set[SessionKey] = set()
        self._flights: set[asyncio.Task[None]] = set()
        self._retries: dict[asyncio.TimerHandle, asyncio.Future[Any]] = {}
        # A commit serves several calls: its log lines must not carry the id of the one that happened to start it.
        self._context = copy_context()
        self.records = RecordCache()
        self.stats = CommitterStats()

    async def run(
        self,
        key: SessionKey,
        plan: Plan[Answer],
        *,
        weight: int = 0,
        ids: Sequence[tuple[LookupKind, str]] = (),
        deadline: float | None = None,
        expired_too: bool = False,
        unborn: bool = False,
    ) -> Answer:
        """Makes the change that `plan` plans, and returns its answer once the store holds it.

        `weight`: bytes of its messages. `ids`: the look-ups that it adds. `deadline`: `time.monotonic()` seconds, until
        when conflicts are tried again. `expired_too`: whether the plan sees a session whose time is over; for others
        there is none, and what they give birth to takes its place. `unborn`: whether the caller has just seen that
        there is no session, which spares a read. A cancelled call's change is made whole or not at all.

        Raises: what the plan raises; RequestError CONTENTION; NotAdopted; StoreUnavailable.
        """
        patience = time.monotonic() + PATIENCE_SECONDS
        ticket: _Ticket[Answer] = _Ticket(
            key,
            plan,
            weight,
            ids,
            patience if deadline is None else min(deadline - LAST_WORD_SECONDS, patience),
            asyncio.get_running_loop().create_future(),
            expired_too,
            unborn,
        )
        self._waiting.append(ticket)
        self._take_off()
        return await ticket.done

    def saw(self, key: SessionKey, record: Record) -> None:
        """Tells of a record that was just read, so that a commit may rest on it without another read."""
        cached = self.records.get(key)
        if cached is None or cached.incarnation != record.incarnation or cached.version < record.version:
            self.records.put(key, record)

    @property
    def backlog(self) -> int:
        """How many changes wait for a commit, those to be tried again included."""
        return len(self._waiting) + len(self._retries)

    async def close(self) -> None:
        """Waits until nothing is under way. No call may come after it."""
        while under_way := {*self._flights, *(done for done in self._retries.values() if not done.done())}:
            await asyncio.wait(under_way)
        for timer in self._retries:
            timer.cancel()

    def _take_off(self) -> None:
        """Starts as many commits as the store takes at once, each with all that can share it."""
        while self._waiting and len(self._flights) < self._store.commit_limits.concurrency:
            group = self._next_group()
            if not group:
                return
            flight = asyncio.get_running_loop().create_task(self._fly(group), context=self._context)
            self._flights.add(flight)
            flight.add_done_callback(self._land)

    def _land(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        self._take_off()

    def _next_group(self) -> list[_Ticket[Any]]:
        """Takes the tickets of the next commit: oldest first, none of a session that is under way."""
        group: list[_Ticket[Any]] = []
        passed: list[_Ticket[Any]] = []
        sessions: set[SessionKey] = set()
        most_sessions = self._store.commit_limits.sessions
        weight = 0
        while self._waiting and len(group) < limits.MAX_GROUP_COMMIT_CHANGES:
            ticket = self._waiting.popleft()
            if ticket.done.done():
                continue
            full = most_sessions is not None and len(sessions) >= most_sessions and ticket.key not in sessions
            if ticket.key in self._busy or full:
                passed.append(ticket)
                continue
            if group and weight + ticket.weight > limits.MAX_GROUP_COMMIT_BYTES:
                self._waiting.appendleft(ticket)
                break
            group.append(ticket)
            sessions.add(ticket.key)
            weight += ticket.weight
        self._waiting.extendleft(reversed(passed))
        self._busy |= sessions
        return group

    async def _fly(self, group: list[_Ticket[Any]]) -> None:
        try:
            await self._commit(group)
        except BaseException as error:  # Whatever happened, no caller may wait for ever.
            for ticket in group:
                self.records.drop(ticket.key)
                if not ticket.done.done():
                    ticket.done.set_exception(_copy_of(error))
            if not isinstance(error, Exception):
                raise
        finally:
            self._busy.difference_update(ticket.key for ticket in group)

    async def _commit(self, group: list[_Ticket[Any]]) -> None:
        by_session: dict[SessionKey, list[_Ticket[Any]]] = {}
        for ticket in group:
            by_session.setdefault(ticket.key, []).append(ticket)
        reads = await self._read(by_session)
        planned: list[_Ticket[Any]] = []
        for key, tickets in by_session.items():
            planned += self._plan_session(key, tickets, reads.get(key))
        if not planned:
            return
        changes = [ticket.change for ticket in planned if ticket.change is not None]
        outcomes = await self._store.commit(changes)
        self.stats.commits += 1
        self.stats.changes += len(changes)
        self._instruments.committed(changes, outcomes)
        failed: set[SessionKey] = set()
        for ticket, change, outcome in zip(planned, changes, outcomes, strict=True):
            self._settle(ticket, change, outcome, failed)

    async def _read(self, by_session: Mapping[SessionKey, Sequence[_Ticket[Any]]]) -> dict[SessionKey, _Read]:
        """Reads what the plans need: sessions that are not cached, or whose tickets must be planned on a fresh read."""
        needed = {
            key: [ticket for ticket in tickets if ticket.fresh]
            for key, tickets in by_session.items()
            if any(ticket.fresh for ticket in tickets)
            or (self.records.get(key) is None and not all(ticket.unborn for ticket in tickets))
        }
        if not needed:
            return {}
        reads = await asyncio.gather(*(self._read_session(key, fresh) for key, fresh in needed.items()))
        return dict(zip(needed, reads, strict=True))

    async def _read_session(self, key: SessionKey, fresh: Sequence[_Ticket[Any]]) -> _Read:
        # Look-ups first: what an append adds between the two reads then shows in the record at least.
        known = [await self._find(ticket) for ticket in fresh]
        loaded = await self._store.load(key)
        return _Read(None if loaded is None else loaded.record, dict(zip(fresh, known, strict=True)))

    def _plan_session(self, key: SessionKey, tickets: Sequence[_Ticket[Any]], read: _Read | None) -> list[_Ticket[Any]]:
        """Plans the changes of one session, one upon the other, those first that need a fresh read."""
        record = self.records.get(key) if read is None else read.record
        planned: list[_Ticket[Any]] = []
        for ticket in sorted(tickets, key=lambda ticket: not ticket.fresh):
            known = read.known.get(ticket, ()) if read else ()
            rests_on_store = read is not None and not planned and (ticket.fresh or not ticket.ids)
            seen = record if record is None or ticket.expired_too or self._is_living(record) else None
            try:
                ticket.change, ticket.answer = ticket.plan(seen, known)
            except Exception as error:  # Also a plan's own refusal, such as another vocabulary, goes to its caller.
                self._conclude(ticket, rests_on_store, error=error)
                continue
            if ticket.change is None:
                self._conclude(ticket, rests_on_store, error=None)
                continue
            if ticket.change.previous is None and record is not None:
                if ticket.change.staging:  # The name of a session whose time is over is not free yet.
                    if not ticket.done.done():
                        ticket.done.set_exception(NotAdopted(taken=True))
                    continue
                ticket.change = dataclasses.replace(ticket.change, previous=record)
            planned.append(ticket)
            record = ticket.change.record
        return planned

    async def _find(self, ticket: _Ticket[Any]) -> Sequence[Lookup]:
        known: list[Lookup] = []
        for kind in LookupKind:
            ids = [id_ for id_kind, id_ in ticket.ids if id_kind == kind]
            if ids:
                known += await self._store.find(ticket.key, kind, ids)
        return known

    def _conclude(self, ticket: _Ticket[Any], rests_on_store: bool, *, error: Exception | None) -> None:
        """Ends a ticket without a change, if that rests on what the store holds; otherwise has it planned on that."""
        if ticket.done.done():
            return
        if not rests_on_store:
            ticket.fresh = True
            self._waiting.appendleft(ticket)
        elif error is not None:
            ticket.done.set_exception(error)
        else:
            ticket.done.set_result(ticket.answer)

    def _settle(self, ticket: _Ticket[Any], change: Change, outcome: Outcome, failed: set[SessionKey]) -> None:
        match outcome:
            case Committed():
                if change.record is None:
                    self.records.drop(ticket.key)
                else:
                    self.records.put(ticket.key, change.record)
                self._changed(ticket.key)
                if not ticket.done.done():
                    ticket.done.set_result(ticket.answer)
            case Known():
                self.records.drop(ticket.key)
                failed.add(ticket.key)
                ticket.fresh = True
                self._waiting.appendleft(ticket)
            case Lost() | Taken():
                failed.add(ticket.key)
                if not ticket.done.done():
                    ticket.done.set_exception(NotAdopted(taken=isinstance(outcome, Taken)))
            case Conflict() if ticket.key in failed:
                # It rested on a change of this very commit that was refused: not a sign of contention.
                self._waiting.append(ticket)
            case Conflict(record=record):
                if record is None:
                    self.records.drop(ticket.key)
                else:
                    self.records.put(ticket.key, record)
                failed.add(ticket.key)
                self.stats.conflicts += 1
                self._retry_later(ticket)

    def _retry_later(self, ticket: _Ticket[Any]) -> None:
        ticket.attempts += 1
        ticket.unborn = False
        # On the record that came with the first conflict it goes on at once: that is as new as can be.
        at_once = ticket.attempts == 1 and self.records.get(ticket.key) is not None
        longest = 0.0 if at_once else min(LAST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2**ticket.attempts)
        backoff = longest * self._random.random()
        if time.monotonic() + backoff > ticket.patience_ends:
            if not ticket.done.done():
                ticket.done.set_exception(contention(ticket.key))
            return
        if at_once:
            self._waiting.append(ticket)
            return
        loop = asyncio.get_running_loop()

        def requeue() -> None:
            del self._retries[timer]
            # Whoever stood in the way has gone on meanwhile: on the record of then, this would fail again.
            self.records.drop(ticket.key)
            self._waiting.append(ticket)
            self._take_off()

        timer = loop.call_later(backoff, requeue)
        self._retries[timer] = ticket.done


def contention(key: SessionKey) -> RequestError:
    """ABORTED: others kept changing the session."""
    return RequestError(
        Reason.CONTENTION,
        f"other calls kept changing session {key.session_id!r} of agent {key.agent!r}; nothing was written: try again",
        retry_after=CONTENTION_RETRY_SECONDS,
    )


def _copy_of(error: BaseException) -> BaseException:
    """An exception of its own for each caller, so that their tracebacks do not grow into each other."""
    with suppress(Exception):
        copy = type(error)(*error.args)
        copy.__cause__ = error
        return copy
    return error


__all__ = ["Committer", "CommitterStats", "NotAdopted", "Plan", "RecordCache", "contention"]
