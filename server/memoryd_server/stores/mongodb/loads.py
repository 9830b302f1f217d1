"""`load`: a session's record with its newest usable messages, by two commands where bodies surely fit, else by three or
four. The summary, where it is asked for and there is one, takes another, which is sent beside those for messages.

The session's document is read first, then messages. Between the two others may change these, and no moment is common to
them. What was read is of the record's moment all the same, or it is read again:

- Messages of a later version have a later seq than the record's last and are left out. A body that was replaced since,
  and a group that was completed, bear the stamp of a later version.
- A group of which an answer was taken away turns open and vanishes from the walk. It does so only once all of its
  removed answers, which stay where they are until they are purged, bear the stamp. A walk that meets these before they
  are stamped, and then misses the others, misses the group's head, which is last in it.
- Of a session that ends, and is erased at once, the oldest messages go first. A walk goes from the newest on: the ones
  that it misses are behind those that it found, so that it ends early, or all that it still finds are answers without
  their heads.

So a walk that ends early, and one that misses a head, counts only if the session has kept everything since, which takes
one command more. In sessions that nothing is taken from, counts and heads are as the record says. A summary never
changes: the one that the record names is of its moment, or gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import msgspec

from memoryd_server.stores.base import Loaded, StoreUnavailable, Tail
from memoryd_server.stores.mongodb.database import DESCENDING, Database, Order
from memoryd_server.stores.mongodb.documents import (
    ENTRY_FIELDS,
    STAMP_FIELDS,
    WALK_FIELDS,
    Document,
    entry_of,
    message_of,
)
from memoryd_server.stores.mongodb.layout import HISTORY, numbered_id, numbered_range
from memoryd_server.stores.mongodb.openings import opening_of
from memoryd_server.stores.mongodb.sessions import Session, Sessions
from memoryd_server.stores.mongodb.summaries import Summaries
from memoryd_server.stores.records import (
    Entry,
    Record,
    Role,
    SessionKey,
    StoredMessage,
    StoredSummary,
    SummaryLink,
    Usability,
)
from memoryd_server.stores.walk import (
    Segment,
    bare,
    bodies_fit,
    reading_order,
    take_opening,
    take_tail,
    visibility,
    visible_segments,
)

ATTEMPTS: Final = 10
"""How often a session is read that others keep taking from."""

USUAL_TOKENS: Final = 40
"""Tokens of a message, where a record does not tell."""

SPARE: Final = 1.25
"""How many more places than a number of tokens probably takes are walked over, as a factor; and FEW beyond that."""

FEW: Final = 8

MORE: Final = 4
"""How many times as many places are walked over when they did not suffice."""

SHORT: Final = 20
"""Messages of a session that is read as a whole, however few of its tokens are asked for."""

_CHANGING: Final = "The session changed again and again while it was read. Repeat the call."
_FORWARDS: Final = (("head", 1), ("position", 1), ("seq", 1))
_BACKWARDS: Final = (("head", DESCENDING), ("position", DESCENDING), ("seq", DESCENDING))

Build = Callable[[Document], Entry]


class Torn(Exception):
    """What was read is not of one moment."""


class _TooFew(Exception):
    """A walk goes on beyond what was read."""


@dataclass(frozen=True)
class _Walk:
    """Entries in an order, from its first on."""

    entries: Sequence[Entry]
    is_complete: bool
    """Whether there are no more of them."""

    def __iter__(self) -> Iterator[Entry]:
        yield from self.entries
        if not self.is_complete:
            raise _TooFew


class _How(NamedTuple):
    """How messages are read."""

    fields: Sequence[str]
    build: Build


def _place_of(document: Document) -> Entry:
    """An entry of which no more is known than its place and its measures."""
    seq, head, position, tokens, size = (document[name] for name in ("seq", "head", "position", "tokens", "size"))
    return Entry(seq, head, position, Usability.USABLE, Role.USER, tokens, size, 0, (), 0)


_WHOLE: Final = _How((), message_of)
_BARE: Final = _How(ENTRY_FIELDS, entry_of)
_PLACES: Final = _How(WALK_FIELDS, _place_of)


class Loads:
    """Loads sessions."""

    def __init__(self, database: Database, sessions: Sessions, summaries: Summaries) -> None:
        self._database = database
        self._sessions = sessions
        self._summaries = summaries

    async def load(self, key: SessionKey, tail: Tail | None) -> Loaded | None:
        """See `HistoryStore.load`."""
        if tail is None:
            found = await self._sessions.read(key)
            return None if found is None else Loaded(found.record)
        for _ in range(ATTEMPTS):
            session = await self._sessions.read(key, opening=tail.opening)
            if session is None:
                return None
            if any(part.changes_messages for part in session.pending):
                session = await self._sessions.settle(session)
            try:
                return await self._load(session, tail)
            except Torn:
                continue
        raise StoreUnavailable(_CHANGING)

    async def list_unusable(self, key: SessionKey, usabilities: Collection[Usability], limit: int) -> Sequence[Entry]:
        """See `HistoryStore.list_unusable`."""
        for _ in range(ATTEMPTS):
            session = await self._sessions.read(key)
            if session is None:
                return []
            if any(part.changes_messages for part in session.pending):
                session = await self._sessions.settle(session)
            try:
                walk = await self._walk(session, usabilities, limit, _BARE)
            except Torn:
                continue
            if await self._sessions.has_kept(session):
                return list(map(bare, walk.entries[:limit]))
        raise StoreUnavailable(_CHANGING)

    async def list_groups(self, session: Session, from_head: int, to_head: int, limit: int) -> Sequence[Entry]:
        """See `HistoryStore.list_in_reading_order`; of a session with nothing pending. Raises: Torn."""
        segments = visible_segments(session.record, from_head, to_head)
        walk = await self._walk_through(session, tuple(Usability), segments, limit, _BARE, _FORWARDS)
        return walk.entries[:limit]

    async def by_seq(self, session: Session, seqs: Sequence[int], how: _How = _WHOLE) -> dict[int, Entry]:
        """Those messages of a session that are there, by seq. Raises: Torn."""
        if not seqs:
            return {}
        ids = [numbered_id(*session.place, seq) for seq in dict.fromkeys(seqs)]
        found = await self._database.find(HISTORY, {"home": session.place.home, "_id": {"$in": ids}}, fields=how.fields)
        check_stamps(session, found)
        return {entry.seq: entry for entry in map(how.build, found)}

    async def _load(self, session: Session, tail: Tail) -> Loaded:
        current = session.record.summary if tail.summary else None
        if current is None:
            return await self._load_messages(session, tail)
        loaded, summary = await asyncio.gather(self._load_messages(session, tail), self._summary(session, current))
        return msgspec.structs.replace(loaded, summary=summary)

    async def _summary(self, session: Session, link: SummaryLink) -> StoredSummary:
        found = await self._summaries.read(session, [link.number])
        if found is None:
            raise Torn
        return found[link.number]

    async def _load_messages(self, session: Session, tail: Tail) -> Loaded:
        record = session.record
        how = _how(record, tail)
        most = _most(record, tail)
        walk = await self._walk(session, tail.usabilities, most, how)
        while (newest := _taken(walk, tail)) is None:
            most = max(MORE * most, _expected(tail, sum(each.tokens for each in walk.entries), len(walk.entries)))
            walk = await self._walk(session, tail.usabilities, most, how)
        if _is_suspicious(record, tail, walk) and not await self._sessions.has_kept(session):
            raise Torn
        opening = await self._opening(session, tail, walk, how)
        fit = bodies_fit(newest, opening, tail.body_bytes)
        if how is _PLACES:
            known: dict[int, Entry] = {
                each.seq: each for each in (*newest, *opening) if isinstance(each, StoredMessage)
            }
            missing = [each.seq for each in (*opening, *newest) if each.seq not in known]
            known.update(await self.by_seq(session, missing, _WHOLE if fit else _BARE))
            try:
                newest, opening = [known[each.seq] for each in newest], [known[each.seq] for each in opening]
            except KeyError:
                raise Torn from None
        if not fit or not all(isinstance(each, StoredMessage) for each in (*newest, *opening)):
            newest, opening = list(map(bare, newest)), list(map(bare, opening))
        return Loaded(record, newest, opening)

    async def _walk(self, session: Session, usabilities: Collection[Usability], most: int, how: _How) -> _Walk:
        """At least `most` of a session's newest visible entries; fewer when there are no more."""
        segments = visible_segments(session.record)[::-1]
        walk = await self._walk_through(session, usabilities, segments, most, how, _BACKWARDS)
        return _with_pending(session, usabilities, walk)

    async def _walk_through(
        self,
        session: Session,
        usabilities: Collection[Usability],
        segments: Iterable[Segment],
        most: int,
        how: _How,
        order: Order,
    ) -> _Walk:
        """At least `most` of the visible entries whose heads are in the segments, in their order."""
        is_visible = visibility(session.record)
        entries: list[Entry] = []
        is_complete = True
        for segment in segments:
            if len(entries) >= most:
                is_complete = False
                break
            # Of a group whose head is visible, newer messages may be removed, or later than the record: these are read
            # and passed over.
            asked = most - len(entries)
            while True:
                found = await self._in_order(session, usabilities, segment, asked, how, order)
                visible = [entry for entry in found if is_visible(entry.seq)]
                if len(found) < asked or len(entries) + len(visible) >= most:
                    break
                asked *= 2
            entries += visible
            if len(found) == asked:
                is_complete = False
                break
        return _Walk(entries, is_complete)

    async def _in_order(
        self,
        session: Session,
        usabilities: Collection[Usability],
        heads: Segment,
        limit: int,
        how: _How,
        order: Order,
    ) -> list[Entry]:
        piles = sorted(map(int, usabilities))
        in_range = {
            "home": session.place.home,
            "life": session.place.life,
            "pile": piles[0] if len(piles) == 1 else {"$in": piles},
            "head": {"$gte": heads.low, "$lte": heads.high},
        }
        found = await self._database.find(HISTORY, in_range, fields=how.fields, order=order, limit=limit)
        if how is not _PLACES:
            check_stamps(session, found, since_last=True)
        return list(map(how.build, found))

    async def _opening(self, session: Session, tail: Tail, walk: _Walk, how: _How) -> Sequence[Entry]:
        """The opening, of which nothing is read that is at hand."""
        record = session.record
        if not tail.opening or record.opening_to < record.first_seq:
            return ()
        last = min(record.opening_to, record.first_seq + (tail.messages + 1) // 2)
        if last == record.opening_to and not record.removed:
            copied = opening_of(session.opening, record.first_seq, last)
            if copied is not None:
                return take_opening(copied, tail)
        segments = visible_segments(record, record.first_seq, last)
        seqs = [seq for low, high in segments for seq in range(low, high + 1)]
        read = {each.seq: each for each in walk.entries}
        if how is _PLACES or not all(seq in read for seq in seqs):
            how = _BARE if how is _PLACES else how
            read = {each.seq: each for each in _pending(session)}  # Unless it is written out, and others changed it.
            for segment in segments:
                in_range = numbered_range(HISTORY, *session.place, *segment)
                found = await self._database.find(HISTORY, in_range, fields=how.fields)
                check_stamps(session, found)
                read.update((entry.seq, entry) for entry in map(how.build, found))
            if not all(seq in read for seq in seqs) and not await self._sessions.has_kept(session):
                raise Torn
        return take_opening([read[seq] for seq in seqs if seq in read], tail)


def check_stamps(session: Session, found: Iterable[Document], *, since_last: bool = False) -> None:
    """Raises Torn when a message was changed by a later version than the session's.

    `since_last`: messages may be among them that a later version brought.
    """
    last = session.record.last_seq if since_last else None
    for document in found:
        if any(document[stamp] > session.version for stamp in STAMP_FIELDS) and (
            last is None or document["seq"] <= last
        ):
            raise Torn


def _how(record: Record, tail: Tail) -> _How:
    """How a tail's messages are best read."""
    if tail.tokens is not None and record.messages > SHORT:
        return _PLACES
    if not tail.body_bytes:
        return _BARE
    in_opening = min(tail.messages // 2 + 1, max(0, record.opening_to - record.first_seq + 1)) if tail.opening else 0
    surely_fit = record.largest * (min(tail.messages + 1, record.messages) + in_opening) <= tail.body_bytes
    return _WHOLE if surely_fit or record.bytes <= tail.body_bytes else _PLACES


def _most(record: Record, tail: Tail) -> int:
    """The entries that the tail probably takes: one more than wanted tells whether the newest group goes on."""
    return _expected(tail, record.tokens, record.messages)


def _expected(tail: Tail, tokens: int, messages: int) -> int:
    """The same, where so many messages have so many tokens."""
    if tail.tokens is None:
        return tail.messages + 1
    length = max(1, tokens / messages) if messages else USUAL_TOKENS
    return min(tail.messages + 1, int(tail.tokens / length * SPARE) + FEW)


def _taken(walk: _Walk, tail: Tail) -> Sequence[Entry] | None:
    """What the tail takes of a walk; None where the walk goes on beyond what was read."""
    try:
        return take_tail(walk, tail)
    except _TooFew:
        return None


def _pending(session: Session) -> list[StoredMessage]:
    """The messages that the session carries and that may not be written out."""
    return [message for part in session.pending for message in part.messages]


def _with_pending(session: Session, usabilities: Collection[Usability], walk: _Walk) -> _Walk:
    """A walk with what the session carries, as far as the walk goes."""
    is_visible = visibility(session.record)
    there = {entry.seq for entry in walk.entries}
    added = [
        message
        for message in _pending(session)
        if message.usability in usabilities
        and message.seq not in there
        and is_visible(message.seq)
        and is_visible(message.head)
        and (walk.is_complete or reading_order(message) > reading_order(walk.entries[-1]))
    ]
    if not added:
        return walk
    return replace(walk, entries=sorted([*walk.entries, *added], key=reading_order, reverse=True))


def _is_suspicious(record: Record, tail: Tail, walk: _Walk) -> bool:
    """Whether a walk may have missed what was there at the record's moment."""
    heads = {entry.head for entry in walk.entries if entry.head == entry.seq}
    headless = {entry.head for entry in walk.entries} - heads
    if not walk.is_complete:
        # Its end may lie within a group.
        return bool(headless - {walk.entries[-1].head})
    expected = record.messages
    if Usability.OPEN not in tail.usabilities:
        expected -= record.open_messages
    if Usability.ORPHAN not in tail.usabilities:
        expected -= record.orphan_messages
    return bool(headless) or len(walk.entries) != expected


__all__ = ["ATTEMPTS", "Loads", "Torn", "check_stamps"]
