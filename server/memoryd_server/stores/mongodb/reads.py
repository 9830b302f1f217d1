"""The reads of the contract beside `load`: each is of the moment of a session's document, or is made again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from memoryd_server.stores.base import (
    Due,
    DuePage,
    EventPage,
    LookupPage,
    MessagePage,
    MessageQuery,
    SessionPage,
    SessionQuery,
    StoreUnavailable,
)
from memoryd_server.stores.mongodb.database import DESCENDING, Database
from memoryd_server.stores.mongodb.documents import (
    ENTRY_FIELDS,
    KEY_FIELDS,
    UNDOABLE_ENTRY_FIELDS,
    Document,
    entry_of,
    event_of,
    key_of,
    lookup_of,
    message_of,
)
from memoryd_server.stores.mongodb.layout import (
    EVENTS,
    HISTORY,
    SESSIONS,
    behind,
    lookup_id,
    lookup_range,
    numbered_range,
)
from memoryd_server.stores.mongodb.loads import ATTEMPTS, Loads, Torn, check_stamps
from memoryd_server.stores.mongodb.sessions import Session, Sessions
from memoryd_server.stores.mongodb.summaries import Summaries
from memoryd_server.stores.records import (
    Entry,
    Event,
    Lookup,
    LookupKind,
    Record,
    SessionKey,
    StoredMessage,
    StoredSummary,
    decode_record,
)
from memoryd_server.stores.walk import take_page, visibility, visible_segments

_CHANGING: Final = "The session changed again and again while it was read. Repeat the call."
_DUE_AT: Final = {Due.PURGE: "removed_at", Due.ABANDONMENT: "abandon_at", Due.EXPIRY: "expires_at"}
_BY_ID: Final = (("_id", 1),)
_BY_NUMBER: Final = (("number", 1),)
_BY_SEQ: Final = (("seq", 1),)
_BY_SEQ_BACKWARDS: Final = (("seq", DESCENDING),)
_NEWEST_FIRST: Final = (("activity", DESCENDING), ("home", DESCENDING))

Answer = TypeVar("Answer")


class Reads:
    """Reads sessions and lists of them."""

    def __init__(self, database: Database, sessions: Sessions, loads: Loads, summaries: Summaries) -> None:
        self._database = database
        self._sessions = sessions
        self._loads = loads
        self._summaries = summaries

    async def read(
        self, key: SessionKey, incarnation: str, seqs: Sequence[int]
    ) -> tuple[Record, Sequence[StoredMessage]] | None:
        """See `HistoryStore.read`."""

        async def answer(session: Session) -> tuple[Record, Sequence[StoredMessage]]:
            visible = list(filter(visibility(session.record), seqs))
            found = await self._loads.by_seq(session, visible)
            return session.record, [found[seq] for seq in visible if seq in found]  # type: ignore[misc]

        return await self._of_one_moment(key, incarnation, answer)

    async def list_messages(self, key: SessionKey, query: MessageQuery) -> MessagePage | None:
        """See `HistoryStore.list_messages`."""

        async def answer(session: Session) -> MessagePage:
            record = session.record
            if record.bytes <= query.bytes or record.largest * (query.limit + 1) <= query.bytes:
                found = await self._matching(session, query, ())
                messages, more = take_page(map(message_of, found), query)
                return MessagePage(record, messages, more)
            entries, more = take_page(map(entry_of, await self._matching(session, query, ENTRY_FIELDS)), query)
            by_seq = await self._loads.by_seq(session, [entry.seq for entry in entries])
            try:
                return MessagePage(record, [by_seq[entry.seq] for entry in entries], more)  # type: ignore[misc]
            except KeyError:
                raise Torn from None

        return await self._of_one_moment(key, None, answer)

    async def list_entries(
        self, key: SessionKey, incarnation: str, from_seq: int, to_seq: int, limit: int
    ) -> tuple[Record, Sequence[Entry]] | None:
        """See `HistoryStore.list_entries`."""

        async def answer(session: Session) -> tuple[Record, Sequence[Entry]]:
            entries: list[Entry] = []
            for segment in reversed(visible_segments(session.record, from_seq, to_seq)):
                if len(entries) < limit:
                    in_range = numbered_range(HISTORY, *session.place, *segment)
                    left = limit - len(entries)
                    found = await self._find(session, in_range, UNDOABLE_ENTRY_FIELDS, left, descending=True)
                    entries += map(entry_of, found)
            return session.record, entries

        return await self._of_one_moment(key, incarnation, answer)

    async def list_in_reading_order(
        self, key: SessionKey, incarnation: str, from_head: int, to_head: int, limit: int
    ) -> tuple[Record, Sequence[Entry]] | None:
        """See `HistoryStore.list_in_reading_order`."""

        async def answer(session: Session) -> tuple[Record, Sequence[Entry]]:
            return session.record, await self._loads.list_groups(session, from_head, to_head, limit)

        return await self._of_one_moment(key, incarnation, answer)

    async def read_summaries(
        self, key: SessionKey, incarnation: str, numbers: Sequence[int]
    ) -> tuple[Record, Sequence[StoredSummary]] | None:
        """See `HistoryStore.read_summaries`."""
        for _ in range(ATTEMPTS):
            session = await self._sessions.read(key)
            if session is None or session.incarnation != incarnation:
                return None
            found = await self._summaries.read(session, numbers)
            if found is not None:
                return session.record, list(found.values())
        raise StoreUnavailable(_CHANGING)

    async def list_events(self, key: SessionKey, incarnation: str, after: int, limit: int) -> EventPage | None:
        """See `HistoryStore.list_events`."""

        async def answer(session: Session) -> EventPage:
            in_range = numbered_range(EVENTS, *session.place, after + 1, session.version)
            found = await self._database.find(EVENTS, in_range, order=_BY_NUMBER, limit=limit)
            events: list[Event] = list(map(event_of, found))
            return EventPage(session.record, events)

        return await self._of_one_moment(key, incarnation, answer)

    async def find(self, key: SessionKey, kind: LookupKind, ids: Sequence[str]) -> Sequence[Lookup]:
        """See `HistoryStore.find`. What is there stays there, so that it needs no moment."""
        name = await self._sessions.find(key)
        if name is None:
            return []
        wanted = dict.fromkeys(ids)
        names = [lookup_id(name.place.home, kind, id_) for id_ in wanted]
        found = await self._database.find(HISTORY, {"home": name.place.home, "_id": {"$in": names}})
        lookups = {lookup.id: lookup for lookup in map(lookup_of, found)}
        if isinstance(name, Session):
            for part in name.pending:
                lookups.update((each.id, each) for each in part.lookups if each.kind is kind and each.id in wanted)
        return list(lookups.values())

    async def list_lookups(self, key: SessionKey, limit: int, after: str) -> LookupPage:
        """See `HistoryStore.list_lookups`."""
        name = await self._sessions.find(key)
        if name is None:
            return LookupPage([], "")
        if isinstance(name, Session):
            name = await self._sessions.settle(name)
        in_range = lookup_range(name.place.home, after)
        found = await self._database.find(HISTORY, in_range, order=_BY_ID, limit=limit + 1)
        page = found[:limit]
        return LookupPage(list(map(lookup_of, page)), page[-1]["_id"] if len(found) > len(page) else "")

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        """See `HistoryStore.list_sessions`."""
        wanted: Document = {"tenant": query.tenant}
        if query.user_id is not None:
            wanted["user_id"] = query.user_id
        if query.agent is not None:
            wanted["agent"] = query.agent
        if query.after:
            activity, _, home = query.after.partition(".")
            wanted |= behind("activity", int(activity), "home", home, backwards=True)
        else:
            wanted["activity"] = {"$gte": 0}
        fields = (*KEY_FIELDS, "activity", "home", "record")
        found = await self._database.find(SESSIONS, wanted, fields=fields, order=_NEWEST_FIRST, limit=query.limit + 1)
        page = found[: query.limit]
        return SessionPage(
            sessions=[(key_of(document), decode_record(document["record"])) for document in page],
            after=f"{page[-1]['activity']}.{page[-1]['home']}" if len(found) > len(page) else "",
        )

    async def list_due(self, due: Due, before: int, limit: int, after: str) -> DuePage:
        """See `HistoryStore.list_due`."""
        return await self._list_at({}, _DUE_AT[due], before, limit, after)

    async def list_folds(self, tenant: str, agent: str, before: int, limit: int, after: str) -> DuePage:
        """See `HistoryStore.list_folds`."""
        return await self._list_at({"tenant": tenant, "agent": agent}, "fold_at", before, limit, after)

    async def _list_at(self, of: Document, at: str, before: int, limit: int, after: str) -> DuePage:
        """Sessions with a time before the given one in a field, the earliest first."""
        wanted: Document = {**of, at: {"$lt": before}}
        if after:
            time, _, home = after.partition(".")
            wanted |= behind(at, int(time), "home", home)
            wanted[at]["$lt"] = before
        found = await self._database.find(
            SESSIONS, wanted, fields=(*KEY_FIELDS, at, "home"), order=((at, 1), ("home", 1)), limit=limit + 1
        )
        page = found[:limit]
        return DuePage(
            keys=list(map(key_of, page)),
            after=f"{page[-1][at]}.{page[-1]['home']}" if len(found) > len(page) else "",
        )

    async def _of_one_moment(
        self, key: SessionKey, incarnation: str | None, answer: Callable[[Session], Awaitable[Answer]]
    ) -> Answer | None:
        """Answers of a session of which nothing is pending, and from which nothing is taken away meanwhile."""
        for _ in range(ATTEMPTS):
            session = await self._sessions.read(key)
            if session is None or incarnation not in (None, session.incarnation):
                return None
            session = await self._sessions.settle(session)
            try:
                found = await answer(session)
            except Torn:
                continue
            if await self._sessions.has_kept(session):
                return found
        raise StoreUnavailable(_CHANGING)

    async def _matching(self, session: Session, query: MessageQuery, fields: Sequence[str]) -> list[Document]:
        """What a query matches, in its order, as far as a page needs it."""
        conditions: Document = {}
        if query.roles:
            conditions["role"] = {"$in": sorted(map(int, query.roles))}
        if query.run_id:
            conditions["run_id"] = query.run_id
        times = {"$gte": query.from_time, "$lt": query.to_time}
        created = {operator: time for operator, time in times.items() if time is not None}
        if created:
            conditions["created"] = created
        segments = visible_segments(session.record, query.from_seq, query.to_seq)
        if query.descending:
            segments.reverse()
        found: list[Document] = []
        for segment in segments:
            left = query.limit + 1 - len(found)
            if left > 0:
                wanted = {**numbered_range(HISTORY, *session.place, *segment), **conditions}
                found += await self._find(session, wanted, fields, left, descending=query.descending)
        return found

    async def _find(
        self, session: Session, filter: Document, fields: Sequence[str], limit: int, *, descending: bool
    ) -> list[Document]:
        order = _BY_SEQ_BACKWARDS if descending else _BY_SEQ
        found = await self._database.find(HISTORY, filter, fields=fields, order=order, limit=limit)
        check_stamps(session, found)
        return found
