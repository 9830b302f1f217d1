"""The in-memory store: for tests, demonstrations and what may be lost. The reference for what the contract means."""

from __future__ import annotations

import math
import os
import secrets
import time
from collections import ChainMap, defaultdict
from collections.abc import Collection, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec
from sortedcontainers import SortedDict, SortedList

from memoryd_server import limits
from memoryd_server.stores.base import (
    Change,
    ClaimableRun,
    Committed,
    Conflict,
    Deleted,
    Due,
    DuePage,
    EventPage,
    Known,
    Loaded,
    LookupPage,
    Lost,
    MessagePage,
    MessageQuery,
    Outcome,
    RunChange,
    RunName,
    RunPage,
    RunQuery,
    SessionPage,
    SessionQuery,
    StagingLost,
    StepPage,
    Store,
    StoreCapability,
    StoreInfo,
    Tail,
    Taken,
    Version,
)
from memoryd_server.stores.chains import apply_chains
from memoryd_server.stores.cursor import Cursor
from memoryd_server.stores.memory_files import InMemoryFiles
from memoryd_server.stores.memory_runs import RunLists, Runs, spell
from memoryd_server.stores.records import (
    AgentRecord,
    Entry,
    Event,
    Lookup,
    LookupKind,
    Record,
    SessionKey,
    StoredMessage,
    StoredRun,
    StoredStep,
    StoredSummary,
    Usability,
)
from memoryd_server.stores.walk import (
    bare,
    bodies_fit,
    merge_backwards,
    reading_order,
    take_opening,
    take_page,
    take_tail,
    visibility,
    visible_segments,
)

TYPE: Final = "in_memory"
_SECOND: Final = 1_000_000
_NO_SESSIONS: Final[SortedList[Cursor]] = SortedList()
_NO_DUE: Final[SortedList[tuple[int, SessionKey]]] = SortedList()
_NO_AGENTS: Final[SortedDict[str, AgentRecord]] = SortedDict()

Lookups = SortedDict[tuple[LookupKind, str], Lookup]


@dataclass(slots=True, eq=False)
class _Life:
    """One life of a session: its record, messages and events."""

    record: Record
    messages: SortedDict[int, StoredMessage] = field(default_factory=SortedDict)
    order: dict[Usability, SortedList[tuple[int, int, int]]] = field(
        default_factory=lambda: {usability: SortedList() for usability in Usability}
    )
    """The messages of each usability in reading order."""
    events: SortedDict[int, Event] = field(default_factory=SortedDict)
    summaries: dict[int, StoredSummary] = field(default_factory=dict)
    runs: Runs = field(default_factory=Runs)
    lookups: Lookups = field(default_factory=SortedDict)
    """Those that began in this life."""

    @property
    def version(self) -> Version:
        return Version(self.record.incarnation, self.record.version)

    def put(self, message: StoredMessage) -> None:
        self.messages[message.seq] = message
        self.order[message.usability].add(reading_order(message))

    def take(self, seq: int) -> StoredMessage:
        message = self.messages.pop(seq)
        self.order[message.usability].remove(reading_order(message))
        return message

    def replace(self, message: StoredMessage) -> None:
        stored = self.messages[message.seq]
        self.messages[message.seq] = msgspec.structs.replace(
            stored,
            name=message.name,
            content=message.content,
            metadata=message.metadata,
            extra=message.extra,
            redaction=message.redaction,
            tokens=message.tokens,
            size=message.size,
        )

    def turn(self, head: int, before: Usability, after: Usability) -> None:
        """Turns the messages of a group from one usability to another."""
        turning = list(self.order[before].irange((head,), (head + 1,)))  # type: ignore[arg-type]
        for _, _, seq in turning:
            self.put(msgspec.structs.replace(self.take(seq), usability=after))

    def walk_by_seq(self, low: int, high: int, *, descending: bool = False) -> Iterator[StoredMessage]:
        segments = visible_segments(self.record, low, high)
        for segment in reversed(segments) if descending else segments:
            for seq in self.messages.irange(segment.low, segment.high, reverse=descending):
                yield self.messages[seq]

    def walk_backwards(self, usabilities: Collection[Usability]) -> Iterator[StoredMessage]:
        return merge_backwards([self._walk_backwards(usability) for usability in usabilities])

    def walk_groups(self, from_head: int, to_head: int) -> Iterator[StoredMessage]:
        """In reading order."""
        is_visible = visibility(self.record)
        for low, high in visible_segments(self.record, from_head, to_head):
            walks = [order.irange((low,), (high, math.inf)) for order in self.order.values()]  # type: ignore[arg-type]
            for _, _, seq in merge(*walks):
                if is_visible(seq):
                    yield self.messages[seq]

    def _walk_backwards(self, usability: Usability) -> Iterator[StoredMessage]:
        is_visible = visibility(self.record)
        for low, high in reversed(visible_segments(self.record)):
            for _, _, seq in self.order[usability].irange((low,), (high, math.inf), reverse=True):  # type: ignore[arg-type]
                if is_visible(seq):
                    yield self.messages[seq]


@dataclass(slots=True, eq=False)
class _DeadLife:
    """What a life held that ended: its look-ups stay as long as the name is in use."""

    life: _Life
    user_id: str
    ended: int


@dataclass(slots=True, eq=False)
class _Session:
    """A session's name, with what outlives its lives."""

    number: int
    living: _Life | None = None
    dead: list[_DeadLife] = field(default_factory=list)
    ended: int = 0
    """When the last life ended."""

    def find(self, ids: Sequence[tuple[LookupKind, str]]) -> list[Lookup]:
        lookups = ChainMap(*self.lookups)
        return [lookups[id_] for id_ in dict.fromkeys(ids) if id_ in lookups]

    @property
    def lookups(self) -> list[Lookups]:
        """Those of each life; no id is in two of them."""
        return [life.lookups for life in ([self.living] if self.living else []) + [dead.life for dead in self.dead]]


@dataclass(slots=True, eq=False)
class _Staging:
    tenant: str
    user_id: str
    due: int
    messages: dict[int, StoredMessage] = field(default_factory=dict)
    lookups: Lookups = field(default_factory=SortedDict)


class InMemoryStore(InMemoryFiles, Store):
    """Keeps everything in the process; gone when that ends. A method awaits nothing, so that each is atomic."""

    def __init__(self) -> None:
        super().__init__()
        self._sessions: dict[SessionKey, _Session] = {}
        self._keys: dict[int, SessionKey] = {}
        self._lists: defaultdict[tuple[str, ...], SortedList[Cursor]] = defaultdict(SortedList)
        self._due: dict[Due, SortedList[tuple[int, SessionKey]]] = {due: SortedList() for due in Due}
        self._folds: defaultdict[tuple[str, str], SortedList[tuple[int, SessionKey]]] = defaultdict(SortedList)
        """As `_due`, for each agent: the sessions whose next summary is left to a client."""
        self._events: SortedList[tuple[int, SessionKey, int]] = SortedList()
        """Time, session and number of the events of living sessions."""
        self._runs = RunLists()
        self._buried: set[SessionKey] = set()
        """Names with dead lives."""
        self._stagings: dict[str, _Staging] = {}
        self._agents: defaultdict[str, SortedDict[str, AgentRecord]] = defaultdict(SortedDict)
        self._leases: dict[str, tuple[str, int]] = {}
        self._adopted: set[bytes] = set()
        self._last_number = 0

    async def open(self) -> StoreInfo:
        place = "The data lives in the memory of one server process"
        another = "use a store of another type, such as sqlite or postgresql."
        shared = f"{place}. To share it between servers, {another}"
        durable = f"{place}, and nothing is kept beyond its end. To keep it, {another}"
        return StoreInfo(
            type=TYPE,
            durable=False,
            capabilities=(
                StoreCapability("shared", supported=False, reason=shared),
                StoreCapability("durable", supported=False, reason=durable),
            ),
            secret=os.urandom(32),
        )

    async def close(self) -> None:
        pass

    async def ping(self) -> None:
        pass

    async def now(self) -> int:
        return _now()

    async def adopt_secret(self, secret: bytes) -> None:
        self._adopted.add(secret)

    async def adopted_secrets(self) -> Sequence[bytes]:
        return list(self._adopted)

    async def lease(self, name: str, holder: str, seconds: float) -> bool:
        now = _now()
        current, until = self._leases.get(name, (holder, 0))
        if current != holder and now < until:
            return False
        self._leases[name] = (holder, now + int(seconds * _SECOND))
        return True

    def _living(self, key: SessionKey, incarnation: str | None = None) -> _Life | None:
        session = self._sessions.get(key)
        life = session.living if session else None
        return None if life is None or incarnation not in (None, life.record.incarnation) else life

    async def load(self, key: SessionKey, tail: Tail | None = None) -> Loaded | None:
        life = self._living(key)
        if life is None:
            return None
        record = life.record
        if tail is None:
            return Loaded(record)
        newest = take_tail(life.walk_backwards(tail.usabilities), tail)
        opening: list[StoredMessage] = []
        if tail.opening:
            opening = take_opening(life.walk_by_seq(record.first_seq, record.opening_to), tail)
        summary = life.summaries[record.summary.number] if tail.summary and record.summary else None
        if bodies_fit(newest, opening, tail.body_bytes):
            return Loaded(record, newest, opening, summary)
        return Loaded(record, list(map(bare, newest)), list(map(bare, opening)), summary)

    async def read(
        self, key: SessionKey, incarnation: str, seqs: Sequence[int]
    ) -> tuple[Record, Sequence[StoredMessage]] | None:
        life = self._living(key, incarnation)
        if life is None:
            return None
        is_visible = visibility(life.record)
        return life.record, [life.messages[seq] for seq in seqs if seq in life.messages and is_visible(seq)]

    async def list_messages(self, key: SessionKey, query: MessageQuery) -> MessagePage | None:
        life = self._living(key)
        if life is None:
            return None
        walk = life.walk_by_seq(query.from_seq, query.to_seq, descending=query.descending)
        messages, more = take_page((message for message in walk if _matches(message, query)), query)
        return MessagePage(life.record, messages, more)

    async def list_entries(
        self, key: SessionKey, incarnation: str, from_seq: int, to_seq: int, limit: int
    ) -> tuple[Record, Sequence[Entry]] | None:
        life = self._living(key, incarnation)
        if life is None:
            return None
        walk = life.walk_by_seq(from_seq, to_seq, descending=True)
        return life.record, [
            msgspec.structs.replace(bare(message), undo=message.undo) for message in islice(walk, limit)
        ]

    async def list_in_reading_order(
        self, key: SessionKey, incarnation: str, from_head: int, to_head: int, limit: int
    ) -> tuple[Record, Sequence[Entry]] | None:
        life = self._living(key, incarnation)
        if life is None:
            return None
        return life.record, [bare(message) for message in islice(life.walk_groups(from_head, to_head), limit)]

    async def read_summaries(
        self, key: SessionKey, incarnation: str, numbers: Sequence[int]
    ) -> tuple[Record, Sequence[StoredSummary]] | None:
        life = self._living(key, incarnation)
        if life is None:
            return None
        return life.record, [life.summaries[number] for number in numbers if number in life.summaries]

    async def list_folds(self, tenant: str, agent: str, before: int, limit: int, after: str = "") -> DuePage:
        return self._due_page(self._folds.get((tenant, agent), _NO_DUE), before, limit, after)

    async def list_unusable(self, key: SessionKey, usabilities: Collection[Usability], limit: int) -> Sequence[Entry]:
        life = self._living(key)
        if life is None:
            return []
        return [bare(message) for message in islice(life.walk_backwards(usabilities), limit)]

    async def list_events(self, key: SessionKey, incarnation: str, after: int, limit: int) -> EventPage | None:
        life = self._living(key, incarnation)
        if life is None:
            return None
        numbers = life.events.irange(after, None, (False, True))
        return EventPage(life.record, [life.events[number] for number in islice(numbers, limit)])

    async def find(self, key: SessionKey, kind: LookupKind, ids: Sequence[str]) -> Sequence[Lookup]:
        session = self._sessions.get(key)
        return session.find([(kind, id_) for id_ in ids]) if session else []

    async def list_lookups(self, key: SessionKey, limit: int, after: str = "") -> LookupPage:
        session = self._sessions.get(key)
        if session is None:
            return LookupPage([], "")
        # An id may hold any character, a kind is digits.
        kind, _, id_ = after.partition(".")
        place = (LookupKind(int(kind)), id_) if after else None
        walk = merge(*(lookups.irange(place, None, (False, True)) for lookups in session.lookups))
        names = list(islice(walk, limit + 1))
        page = session.find(names[:limit])
        return LookupPage(page, f"{page[-1].kind.value}.{page[-1].id}" if len(names) > limit else "")

    async def commit(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        return apply_chains(changes, self._apply)

    def _apply(self, change: Change) -> Outcome:
        session = self._sessions.get(change.key)
        if session is not None:
            known = session.find([(lookup.kind, lookup.id) for lookup in change.lookups])
            if known:
                return Known(known)
        living = session.living if session else None
        if change.expected != (living.version if living else None):
            return Conflict(living.record if living else None)
        staging = None
        if change.staging:
            if session is not None:
                return Taken()
            staging = self._stagings.pop(change.staging, None)
            if staging is None:
                return Lost()
        if change.record is None:
            if session is not None:
                self._die(change.key, session)
            return Committed()
        if session is None:
            session = self._name(change.key)
        if living is not None and living.record.incarnation == change.record.incarnation:
            if any(map(living.runs.begins_again, change.changed_runs)):
                return Conflict()
            self._update(change.key, session, living, change.record)
        else:
            self._die(change.key, session)
            living = self._be_born(change.key, session, change.record, staging)
        for head in change.completed:
            living.turn(head, Usability.OPEN, Usability.USABLE)
        for head in change.reopened:
            living.turn(head, Usability.USABLE, Usability.OPEN)
        for message in change.replaced:
            living.replace(message)
        for message in change.messages:
            living.put(message)
        for event in change.events:
            living.events[event.number] = event
            self._events.add((event.created, change.key, event.number))
        living.summaries.update((summary.number, summary) for summary in change.new_summaries)
        for number in change.dropped_summaries:
            living.summaries.pop(number, None)
        for run in change.changed_runs:
            self._change_run(change.key, living.runs, run)
        for step in change.new_steps:
            living.runs.steps[step.run_id][step.number] = step
        living.lookups.update(((lookup.kind, lookup.id), lookup) for lookup in change.lookups)
        return Committed()

    def _change_run(self, key: SessionKey, runs: Runs, change: RunChange) -> None:
        before = runs.runs.get(change.run_id)
        if before is not None:
            self._runs.remove(key, before)
        run = runs.runs[change.run_id] = runs.changed(change)
        self._runs.add(key, run)

    def _name(self, key: SessionKey) -> _Session:
        self._last_number += 1
        session = self._sessions[key] = _Session(self._last_number)
        self._keys[session.number] = key
        return session

    def _be_born(self, key: SessionKey, session: _Session, record: Record, staging: _Staging | None) -> _Life:
        life = session.living = _Life(record)
        if staging is not None:
            for message in staging.messages.values():
                life.put(message)
            life.lookups = staging.lookups
        self._enlist(key, session, life)
        self._agents[key.tenant].setdefault(key.agent, AgentRecord(key.tenant, key.agent))
        return life

    def _die(self, key: SessionKey, session: _Session) -> None:
        life = session.living
        if life is None:
            return
        self._delist(key, session, life)
        for event in life.events.values():
            self._events.remove((event.created, key, event.number))
        for run in life.runs.runs.values():
            self._runs.remove(key, run)
        session.living, session.ended = None, _now()
        session.dead.append(_DeadLife(life, life.record.user_id, session.ended))
        self._buried.add(key)

    def _update(self, key: SessionKey, session: _Session, life: _Life, record: Record) -> None:
        if _listed(life.record) == _listed(record):
            life.record = record
        else:
            self._delist(key, session, life)
            life.record = record
            self._enlist(key, session, life)

    def _enlist(self, key: SessionKey, session: _Session, life: _Life) -> None:
        listed = _listed(life.record)
        for name in _list_names(key, listed.user_id):
            self._lists[name].add(Cursor(listed.activity, session.number))
        for due, at in listed.due.items():
            self._due[due].add((at, key))
        if listed.fold_at is not None:
            self._folds[key.tenant, key.agent].add((listed.fold_at, key))

    def _delist(self, key: SessionKey, session: _Session, life: _Life) -> None:
        listed = _listed(life.record)
        for name in _list_names(key, listed.user_id):
            self._lists[name].remove(Cursor(listed.activity, session.number))
        for due, at in listed.due.items():
            self._due[due].remove((at, key))
        if listed.fold_at is not None:
            self._folds[key.tenant, key.agent].remove((listed.fold_at, key))

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        found: list[tuple[SessionKey, Record]] = []
        place = Cursor.parse(query.after)
        for cursor in self._lists.get(_list_name(query), _NO_SESSIONS).irange(None, place, (True, False), reverse=True):
            key = self._keys[cursor.number]
            life = self._living(key)
            if life is not None and (query.agent is None or query.agent == key.agent):
                if len(found) == query.limit:
                    return SessionPage(found, str(place))
                found.append((key, life.record))
                place = cursor
        return SessionPage(found, "")

    async def list_due(self, due: Due, before: int, limit: int, after: str = "") -> DuePage:
        return self._due_page(self._due[due], before, limit, after)

    def _due_page(self, listed: SortedList[tuple[int, SessionKey]], before: int, limit: int, after: str) -> DuePage:
        walk = listed.irange(None, (before,))  # type: ignore[arg-type]
        places = [(Cursor(at, self._sessions[key].number), key) for at, key in walk]
        places.sort()
        if after:
            places = [place for place in places if place[0] > Cursor.parse(after)]
        page = places[:limit]
        return DuePage([key for _, key in page], str(page[-1][0]) if len(places) > limit else "")

    async def purge(self, key: SessionKey, incarnation: str, from_seq: int, to_seq: int, limit: int) -> int:
        life = self._living(key, incarnation)
        if life is None:
            return 0
        seqs = list(islice(life.messages.irange(from_seq, to_seq), limit))
        for seq in seqs:
            life.take(seq)
        return len(seqs)

    async def begin_staging(self, tenant: str, user_id: str, due: int) -> str:
        name = secrets.token_hex(16)
        self._stagings[name] = _Staging(tenant, user_id, due)
        return name

    async def stage(self, staging: str, messages: Sequence[StoredMessage], lookups: Sequence[Lookup], due: int) -> None:
        found = self._stagings.get(staging)
        if found is None:
            raise StagingLost(staging)
        found.due = due
        found.messages.update((message.seq, message) for message in messages)
        found.lookups.update(((lookup.kind, lookup.id), lookup) for lookup in lookups)

    async def end_staging(self, staging: str) -> None:
        self._stagings.pop(staging, None)

    async def sweep(self, now: int, limit: int) -> Deleted:
        deleted = Deleted()
        for name, staging in list(self._stagings.items()):
            if staging.due <= now and deleted.total < limit:
                del self._stagings[name]
                deleted += Deleted(messages=len(staging.messages), lookups=len(staging.lookups))
        while self._events and deleted.total < limit and self._events[0][0] < now - limits.EVENT_SECONDS * _SECOND:
            _, key, number = self._events.pop(0)
            life = self._living(key)
            assert life is not None
            del life.events[number]
            deleted += Deleted(events=1)
        for key in list(self._buried):
            session = self._sessions[key]
            for dead in session.dead:
                if dead.ended < now - limits.PURGE_DELAY_SECONDS * _SECOND:
                    deleted += _emptied(dead.life, limit - deleted.total)
            if session.living is None and session.ended < now - limits.LOOKUP_SECONDS * _SECOND:
                deleted += self._forget(key, session, session.dead, limit - deleted.total)
        deleted += self._sweep_runs(limit - deleted.total)
        return deleted

    def _sweep_runs(self, limit: int) -> Deleted:
        """Deletes what callers left of runs."""
        deleted = Deleted()
        for session in self._sessions.values():
            runs = session.living.runs if session.living else Runs()
            for run_id in list(runs.leaving):
                deleted += Deleted(steps=runs.shorten(run_id, limit - deleted.total))
        return deleted

    async def erase(self, tenant: str, user_id: str, limit: int) -> Deleted:
        deleted = Deleted(files=self.erase_files(tenant, user_id, limit))
        for name, staging in list(self._stagings.items()):
            if (staging.tenant, staging.user_id) == (tenant, user_id):
                # At once, so that nobody adds to it any more.
                del self._stagings[name]
                deleted += Deleted(messages=len(staging.messages), lookups=len(staging.lookups))
        for key in list(self._buried):
            if key.tenant == tenant:
                session = self._sessions[key]
                dead = [life for life in session.dead if life.user_id == user_id]
                deleted += self._forget(key, session, dead, limit - deleted.total)
        return deleted

    def _forget(self, key: SessionKey, session: _Session, dead: Sequence[_DeadLife], limit: int) -> Deleted:
        """Deletes up to `limit` rows of dead lives, look-ups included, and the name of which nothing is left."""
        deleted = Deleted()
        for ended in list(dead):
            life = ended.life
            deleted += _emptied(life, limit - deleted.total)
            if not (life.messages or life.events or life.summaries or life.runs.rows):
                deleted += Deleted(lookups=_shorten(life.lookups, limit - deleted.total))
                if not life.lookups:
                    session.dead.remove(ended)
        if not session.dead:
            self._buried.discard(key)
            if session.living is None:
                del self._sessions[key], self._keys[session.number]
                deleted += Deleted(sessions=1)
        return deleted

    async def load_run(self, key: SessionKey, run_id: str) -> tuple[Record, StoredRun | None] | None:
        life = self._living(key)
        return None if life is None else (life.record, life.runs.runs.get(run_id))

    async def list_runs(self, query: RunQuery) -> RunPage:
        found: list[tuple[SessionKey, StoredRun]] = []
        place = None
        for candidate in self._runs.newest(query):
            _, session_id, run_id = candidate
            key = SessionKey(query.tenant, query.agent, session_id)
            run = self._run(key, run_id)
            if not query.statuses or run.state.status in query.statuses:
                if len(found) == query.limit:
                    assert place is not None
                    return RunPage(found, spell(place))
                found.append((key, run))
                place = candidate
        return RunPage(found, "")

    async def list_claimable(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[RunName]:
        return self._run_names("claimable", tenant, agent, before, limit)

    async def load_claimable(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[ClaimableRun]:
        found = []
        for name in await self.list_claimable(tenant, agent, before, limit):
            loaded = await self.load_run(name.key, name.run_id)
            if loaded is None or loaded[1] is None:
                break
            found.append(ClaimableRun(name.key, loaded[0], loaded[1]))
        return found

    async def list_ended_runs(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[RunName]:
        return self._run_names("ended", tenant, agent, before, limit)

    def _run_names(self, kind: str, tenant: str, agent: str, before: int, limit: int) -> Sequence[RunName]:
        names = []
        for _, session_id, run_id in self._runs.until(kind, tenant, agent, before, limit):
            key = SessionKey(tenant, agent, session_id)
            life = self._living(key)
            assert life is not None
            names.append(RunName(key, life.record.incarnation, run_id))
        return names

    def _run(self, key: SessionKey, run_id: str) -> StoredRun:
        life = self._living(key)
        assert life is not None
        return life.runs.runs[run_id]

    async def list_steps(
        self, key: SessionKey, incarnation: str, run_id: str, after: int, limit: int, bytes: int
    ) -> StepPage | None:
        life = self._living(key)
        if life is None or life.record.incarnation != incarnation or run_id not in life.runs.runs:
            return None
        steps = life.runs.steps.get(run_id, SortedDict())
        page: list[StoredStep] = []
        left = bytes
        for number in steps.irange(after, None, (False, True)):
            step = steps[number]
            left -= len(step.payload)
            if len(page) == limit or (page and left < 0):
                return StepPage(page, more=True)
            page.append(step)
        return StepPage(page, more=False)

    async def delete_run(self, name: RunName, limit: int) -> int:
        life = self._living(name.key)
        if life is None or life.record.incarnation != name.incarnation:
            return 0
        run = life.runs.runs.get(name.run_id)
        if run is not None:
            if not run.state.ended:
                return 0
            self._runs.remove(name.key, run)
            del life.runs.runs[name.run_id]
            life.runs.leaving.add(name.run_id)
            return 1 + life.runs.shorten(name.run_id, limit - 1)
        return life.runs.shorten(name.run_id, limit)

    async def load_agent(self, tenant: str, agent: str) -> AgentRecord | None:
        return self._agents.get(tenant, _NO_AGENTS).get(agent)

    async def save_agent(self, record: AgentRecord) -> bool:
        stored = await self.load_agent(record.tenant, record.agent)
        if record.version - 1 != (stored.version if stored else 0):
            return False
        self._agents[record.tenant][record.agent] = record
        return True

    async def list_agents(self, tenant: str, after: str, limit: int) -> Sequence[AgentRecord]:
        agents = self._agents.get(tenant, _NO_AGENTS)
        # Code points sort as their UTF-8 bytes do.
        return [agents[name] for name in islice(agents.irange(after, None, (False, True)), limit)]

    async def list_tenants(self, after: str, limit: int) -> Sequence[str]:
        return sorted(tenant for tenant, agents in self._agents.items() if agents and tenant > after)[:limit]


def _now() -> int:
    return time.time_ns() // 1_000


def _shorten(rows: MutableMapping[Any, Any], limit: int) -> int:
    """Takes out up to `limit` rows. Returns: how many."""
    taken = list(islice(rows, max(0, limit)))
    for name in taken:
        del rows[name]
    return len(taken)


def _emptied(life: _Life, limit: int) -> Deleted:
    """Deletes up to `limit` messages, events, summaries, runs and steps of a life that ended."""
    messages = _shorten(life.messages, limit)
    events = _shorten(life.events, limit - messages)
    summaries = _shorten(life.summaries, limit - messages - events)
    runs, steps = life.runs.shorten_all(limit - messages - events - summaries)
    return Deleted(messages=messages, events=events, summaries=summaries, runs=runs, steps=steps)


def _matches(message: StoredMessage, query: MessageQuery) -> bool:
    return (
        (not query.roles or message.role in query.roles)
        and (not query.run_id or message.run_id == query.run_id)
        and (query.from_time is None or message.created >= query.from_time)
        and (query.to_time is None or message.created < query.to_time)
    )


class _Listed(NamedTuple):
    """What lists of sessions know of a record."""

    activity: int
    user_id: str
    due: dict[Due, int]
    fold_at: int | None


def _listed(record: Record) -> _Listed:
    due = {Due.PURGE: record.purge_at, Due.EXPIRY: record.expiry_listed_at, Due.ABANDONMENT: record.abandon_at}
    due_at = {kind: at for kind, at in due.items() if at is not None}
    return _Listed(record.activity, record.user_id, due_at, record.fold_at)


def _list_names(key: SessionKey, user_id: str) -> list[tuple[str, ...]]:
    """The lists that hold a session."""
    names = [("tenant", key.tenant), ("agent", key.tenant, key.agent)]
    return [*names, ("user", key.tenant, user_id)] if user_id else names


def _list_name(query: SessionQuery) -> tuple[str, ...]:
    """The list that answers a query; one of a user is short enough to pass over other agents' sessions in it."""
    if query.user_id is not None:
        return "user", query.tenant, query.user_id
    return ("tenant", query.tenant) if query.agent is None else ("agent", query.tenant, query.agent)
