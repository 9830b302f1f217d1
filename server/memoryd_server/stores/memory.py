"""The in-memory store: for tests, demonstrations and what may be lost. The reference for what the contract means."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import msgspec
from sortedcontainers import SortedDict, SortedList

from memoryd_server.stores.base import (
    Change,
    Committed,
    Conflict,
    Known,
    Loaded,
    MessagePage,
    MessageQuery,
    Outcome,
    SessionPage,
    SessionQuery,
    Store,
    StoreCapability,
    StoreInfo,
    Tail,
    Version,
)
from memoryd_server.stores.chains import apply_chains
from memoryd_server.stores.cursor import Cursor
from memoryd_server.stores.records import (
    AgentRecord,
    Entry,
    Lookup,
    LookupKind,
    Record,
    SessionKey,
    StoredMessage,
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
_NO_SESSIONS: Final[SortedList[Cursor]] = SortedList()
_NO_AGENTS: Final[SortedDict[str, AgentRecord]] = SortedDict()


@dataclass(slots=True, eq=False)
class _Session:
    """A session with its messages and look-ups."""

    number: int
    record: Record
    messages: SortedDict[int, StoredMessage] = field(default_factory=SortedDict)
    order: dict[Usability, SortedList[tuple[int, int, int]]] = field(
        default_factory=lambda: {usability: SortedList() for usability in Usability}
    )
    """The messages of each usability in reading order."""
    lookups: dict[tuple[LookupKind, str], Lookup] = field(default_factory=dict)

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

    def complete(self, head: int) -> None:
        waiting = list(self.order[Usability.OPEN].irange((head,), (head + 1,)))  # type: ignore[arg-type]
        for _, _, seq in waiting:
            self.put(msgspec.structs.replace(self.take(seq), usability=Usability.USABLE))

    def walk_by_seq(self, low: int, high: int, *, descending: bool = False) -> Iterator[StoredMessage]:
        segments = visible_segments(self.record, low, high)
        for segment in reversed(segments) if descending else segments:
            for seq in self.messages.irange(segment.low, segment.high, reverse=descending):
                yield self.messages[seq]

    def walk_backwards(self, usabilities: Collection[Usability]) -> Iterator[StoredMessage]:
        return merge_backwards([self._walk_backwards(usability) for usability in usabilities])

    def _walk_backwards(self, usability: Usability) -> Iterator[StoredMessage]:
        is_visible = visibility(self.record)
        for low, high in reversed(visible_segments(self.record)):
            for _, _, seq in self.order[usability].irange((low,), (high, math.inf), reverse=True):  # type: ignore[arg-type]
                if is_visible(seq):
                    yield self.messages[seq]


class InMemoryStore(Store):
    """Keeps everything in the process; gone when that ends. A method awaits nothing, so that each is atomic."""

    def __init__(self) -> None:
        self._sessions: dict[SessionKey, _Session] = {}
        self._keys: dict[int, SessionKey] = {}
        self._lists: defaultdict[tuple[str, ...], SortedList[Cursor]] = defaultdict(SortedList)
        self._purgeable: SortedList[tuple[int, SessionKey]] = SortedList()
        self._agents: defaultdict[str, SortedDict[str, AgentRecord]] = defaultdict(SortedDict)

    async def open(self) -> StoreInfo:
        reason = (
            "The data lives in the memory of one server process. To share it between servers, or to keep it, use a "
            "store of the type sqlite."
        )
        return StoreInfo(
            type=TYPE,
            durable=False,
            capabilities=(StoreCapability("shared", supported=False, reason=reason),),
            secret=os.urandom(32),
        )

    async def close(self) -> None:
        pass

    async def ping(self) -> None:
        pass

    async def now(self) -> int:
        return time.time_ns() // 1_000

    async def load(self, key: SessionKey, tail: Tail | None = None) -> Loaded | None:
        session = self._sessions.get(key)
        if session is None:
            return None
        record = session.record
        if tail is None:
            return Loaded(record)
        newest = take_tail(session.walk_backwards(tail.usabilities), tail)
        opening: list[StoredMessage] = []
        if tail.opening:
            opening = take_opening(session.walk_by_seq(record.first_seq, record.opening_to), tail)
        if bodies_fit(newest, opening, tail.body_bytes):
            return Loaded(record, newest, opening)
        return Loaded(record, list(map(bare, newest)), list(map(bare, opening)))

    async def read(
        self, key: SessionKey, incarnation: str, seqs: Sequence[int]
    ) -> tuple[Record, Sequence[StoredMessage]] | None:
        session = self._sessions.get(key)
        if session is None or session.record.incarnation != incarnation:
            return None
        is_visible = visibility(session.record)
        return session.record, [session.messages[seq] for seq in seqs if seq in session.messages and is_visible(seq)]

    async def list_messages(self, key: SessionKey, query: MessageQuery) -> MessagePage | None:
        session = self._sessions.get(key)
        if session is None:
            return None
        walk = session.walk_by_seq(query.from_seq, query.to_seq, descending=query.descending)
        messages, more = take_page((message for message in walk if _matches(message, query)), query)
        return MessagePage(session.record, messages, more)

    async def list_unusable(self, key: SessionKey, usabilities: Collection[Usability], limit: int) -> Sequence[Entry]:
        session = self._sessions.get(key)
        if session is None:
            return []
        return [bare(message) for message in islice(session.walk_backwards(usabilities), limit)]

    async def find(self, key: SessionKey, kind: LookupKind, ids: Sequence[str]) -> Sequence[Lookup]:
        session = self._sessions.get(key)
        if session is None:
            return []
        return [session.lookups[kind, id_] for id_ in dict.fromkeys(ids) if (kind, id_) in session.lookups]

    async def commit(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        return apply_chains(changes, self._apply)

    def _apply(self, change: Change) -> Outcome:
        session = self._sessions.get(change.key)
        if session is not None:
            known = [
                session.lookups[lookup.kind, lookup.id]
                for lookup in change.lookups
                if (lookup.kind, lookup.id) in session.lookups
            ]
            if known:
                return Known(known)
        if change.expected != (session.version if session else None):
            return Conflict(session.record if session else None)
        if session is None:
            session = self._be_born(change)
        else:
            self._update(change.key, session, change.record)
        for head in change.completed:
            session.complete(head)
        for message in change.messages:
            session.put(message)
        for lookup in change.lookups:
            session.lookups[lookup.kind, lookup.id] = lookup
        return Committed()

    def _be_born(self, change: Change) -> _Session:
        key = change.key
        session = _Session(len(self._sessions) + 1, change.record)
        self._sessions[key] = session
        self._keys[session.number] = key
        self._enlist(key, session)
        self._agents[key.tenant].setdefault(key.agent, AgentRecord(key.tenant, key.agent))
        return session

    def _update(self, key: SessionKey, session: _Session, record: Record) -> None:
        if _listed(session.record) == _listed(record):
            session.record = record
        else:
            self._delist(key, session)
            session.record = record
            self._enlist(key, session)

    def _enlist(self, key: SessionKey, session: _Session) -> None:
        activity, user_id, removed_at = _listed(session.record)
        for name in _list_names(key, user_id):
            self._lists[name].add(Cursor(activity, session.number))
        if removed_at is not None:
            self._purgeable.add((removed_at, key))

    def _delist(self, key: SessionKey, session: _Session) -> None:
        activity, user_id, removed_at = _listed(session.record)
        for name in _list_names(key, user_id):
            self._lists[name].remove(Cursor(activity, session.number))
        if removed_at is not None:
            self._purgeable.remove((removed_at, key))

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        found: list[tuple[SessionKey, Record]] = []
        place = Cursor.parse(query.after)
        for cursor in self._lists.get(_list_name(query), _NO_SESSIONS).irange(None, place, (True, False), reverse=True):
            key = self._keys[cursor.number]
            if query.agent is None or query.agent == key.agent:
                if len(found) == query.limit:
                    return SessionPage(found, str(place))
                found.append((key, self._sessions[key].record))
                place = cursor
        return SessionPage(found, "")

    async def list_purgeable(self, removed_before: int, limit: int) -> Sequence[SessionKey]:
        return [key for _, key in islice(self._purgeable.irange(None, (removed_before,)), limit)]  # type: ignore[arg-type]

    async def purge(self, key: SessionKey, incarnation: str, from_seq: int, to_seq: int, limit: int) -> int:
        session = self._sessions.get(key)
        if session is None or session.record.incarnation != incarnation:
            return 0
        seqs = list(islice(session.messages.irange(from_seq, to_seq), limit))
        for seq in seqs:
            session.take(seq)
        return len(seqs)

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


def _matches(message: StoredMessage, query: MessageQuery) -> bool:
    return (
        (not query.roles or message.role in query.roles)
        and (not query.run_id or message.run_id == query.run_id)
        and (query.from_time is None or message.created >= query.from_time)
        and (query.to_time is None or message.created < query.to_time)
    )


def _listed(record: Record) -> tuple[int, str, int | None]:
    """What lists of sessions know of a record."""
    removed_at = min(removed.removed_at for removed in record.removed) if record.removed else None
    return record.activity, record.user_id, removed_at


def _list_names(key: SessionKey, user_id: str) -> list[tuple[str, ...]]:
    """The lists that hold a session."""
    names = [("tenant", key.tenant), ("agent", key.tenant, key.agent)]
    return [*names, ("user", key.tenant, user_id)] if user_id else names


def _list_name(query: SessionQuery) -> tuple[str, ...]:
    """The list that answers a query; one of a user is short enough to pass over other agents' sessions in it."""
    if query.user_id is not None:
        return "user", query.tenant, query.user_id
    return ("tenant", query.tenant) if query.agent is None else ("agent", query.tenant, query.agent)
