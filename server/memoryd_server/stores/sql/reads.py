"""Reads as plans of statements, for every SQL database. A plan of several statements is to be run on one moment."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from memoryd_server.stores.base import (
    Due,
    DuePage,
    EventPage,
    Loaded,
    LookupPage,
    MessagePage,
    MessageQuery,
    SessionPage,
    SessionQuery,
)
from memoryd_server.stores.cursor import Cursor
from memoryd_server.stores.records import (
    AgentRecord,
    Entry,
    Lookup,
    LookupKind,
    Record,
    Role,
    SessionKey,
    StoredMessage,
    StoredSummary,
    Usability,
    decode_summary,
)
from memoryd_server.stores.sql.files import FileReads
from memoryd_server.stores.sql.rows import Codec, Row, event_of, record_of
from memoryd_server.stores.sql.runs import RunReads
from memoryd_server.stores.sql.statements import Statements
from memoryd_server.stores.sql.steps import Fetch, Plan, first
from memoryd_server.stores.walk import Segment, merge_backwards, reading_order, take_page, visibility, visible_segments

READ_AHEAD: Final = 2
"""Rows that are read beyond a page: the one that tells whether there is more, and the driver's next."""

ADOPTED: Final = "adopted."
"""How the names begin under which the table `meta` keeps the secrets of other stores."""

_ADOPTED_NAMES: Final = (ADOPTED, ADOPTED[:-1] + chr(ord(ADOPTED[-1]) + 1))
"""They lie between these two."""

AnyEntry = TypeVar("AnyEntry", bound=Entry)


class Session(NamedTuple):
    """A session's row."""

    id: int
    life: int
    record: Record


class Reads:
    """The plans of the reads of the contract that are not made for speed."""

    def __init__(self, statements: Statements, codec: Codec) -> None:
        self.files = FileReads(statements.files, codec)
        self.runs = RunReads(statements.runs, codec)
        self._sql = statements
        self._codec = codec
        self._due: Final = {
            Due.PURGE: statements.list_purgeable,
            Due.EXPIRY: statements.list_expiring,
            Due.ABANDONMENT: statements.list_abandoned,
        }

    def value(self, name: str) -> Plan[bytes | None]:
        """A value of the table `meta`."""
        row = first((yield Fetch(self._sql.value, (name,))))
        return None if row is None else row[0]

    def adopted_secrets(self) -> Plan[Sequence[bytes]]:
        return [value for (value,) in (yield Fetch(self._sql.values_between, _ADOPTED_NAMES))]

    def look_at_tables(self, name: str) -> Plan[bytes | None]:
        """As `value`, and fails when one of the tables is missing."""
        row = first((yield Fetch(self._sql.look_at_tables, (name,))))
        return None if row is None else row[0]

    def now(self) -> Plan[int]:
        """The store's time."""
        row = first((yield Fetch(self._sql.now)))
        assert row is not None
        return int(row[0])

    def load_record(self, key: SessionKey) -> Plan[Loaded | None]:
        """`load` without a tail."""
        session = yield from self._session(key)
        return None if session is None else Loaded(session.record)

    def read(
        self, key: SessionKey, incarnation: str, seqs: Sequence[int]
    ) -> Plan[tuple[Record, Sequence[StoredMessage]] | None]:
        session = yield from self._session(key)
        if session is None or session.record.incarnation != incarnation:
            return None
        visible = list(filter(visibility(session.record), seqs))
        messages = yield from self.messages_by_seq(session, visible)
        return session.record, [messages[seq] for seq in visible if seq in messages]

    def list_messages(self, key: SessionKey, query: MessageQuery) -> Plan[MessagePage | None]:
        session = yield from self._session(key)
        if session is None:
            return None
        record = session.record
        if record.bytes <= query.bytes or record.largest * (query.limit + READ_AHEAD) <= query.bytes:
            messages = yield from self._matching(session, query, self._sql.matching_messages, self._codec.message)
            return MessagePage(record, *take_page(messages, query))
        found = yield from self._matching(session, query, self._sql.matching_entries, self._codec.entry)
        entries, more = take_page(found, query)
        by_seq = yield from self.messages_by_seq(session, [entry.seq for entry in entries])
        return MessagePage(record, [by_seq[entry.seq] for entry in entries], more)

    def list_entries(
        self, key: SessionKey, incarnation: str, from_seq: int, to_seq: int, limit: int
    ) -> Plan[tuple[Record, Sequence[Entry]] | None]:
        session = yield from self._session(key)
        if session is None or session.record.incarnation != incarnation:
            return None
        entries: list[Entry] = []
        for segment in reversed(visible_segments(session.record, from_seq, to_seq)):
            if len(entries) < limit:
                parameters = (session.id, session.life, *segment, limit - len(entries))
                rows = yield Fetch(self._sql.undoable_entries_backwards, parameters)
                entries += map(self._codec.undoable_entry, rows)
        return session.record, entries

    def list_in_reading_order(
        self, key: SessionKey, incarnation: str, from_head: int, to_head: int, limit: int
    ) -> Plan[tuple[Record, Sequence[Entry]] | None]:
        session = yield from self._session(key)
        if session is None or session.record.incarnation != incarnation:
            return None
        segments = visible_segments(session.record, from_head, to_head)
        walks: list[list[Entry]] = []
        for usability in Usability:
            walk = yield from self._visible(session, usability, self._sql.entries_forwards, segments, limit)
            walks.append(walk)
        return session.record, list(islice(merge(*walks, key=reading_order), limit))

    def read_summaries(
        self, key: SessionKey, incarnation: str, numbers: Sequence[int]
    ) -> Plan[tuple[Record, Sequence[StoredSummary]] | None]:
        session = yield from self._session(key)
        if session is None or session.record.incarnation != incarnation:
            return None
        summaries = yield from self.summaries_by_number(session, numbers)
        return session.record, [summaries[number] for number in numbers if number in summaries]

    def list_unusable(self, key: SessionKey, usabilities: Collection[Usability], limit: int) -> Plan[Sequence[Entry]]:
        session = yield from self._session(key)
        if session is None:
            return []
        walks: list[Iterator[Entry]] = []
        for usability in usabilities:
            newest = yield from self._newest(session, usability, limit)
            walks.append(iter(newest))
        return list(islice(merge_backwards(walks), limit))

    def find(self, key: SessionKey, kind: LookupKind, ids: Sequence[str]) -> Plan[Sequence[Lookup]]:
        number = yield from self._number(key)
        return [] if number is None else (yield from find_lookups(self._sql, self._codec, number, kind, ids))

    def list_lookups(self, key: SessionKey, limit: int, after: str) -> Plan[LookupPage]:
        number = yield from self._number(key)
        if number is None:
            return LookupPage([], "")
        # An id may hold any character, a kind is digits.
        first_kind, _, after_id = after.partition(".") if after else ("0", "", "")
        found: list[Lookup] = []
        for kind in LookupKind:
            if kind >= int(first_kind) and len(found) <= limit:
                place = after_id if kind == int(first_kind) else ""
                # One row more tells whether there is another page.
                parameters = (number, int(kind), place, limit + 1 - len(found))
                found += map(self._codec.lookup, (yield Fetch(self._sql.lookups_after, parameters)))
        page = found[:limit]
        return LookupPage(page, f"{page[-1].kind.value}.{page[-1].id}" if len(found) > limit else "")

    def list_sessions(self, query: SessionQuery) -> Plan[SessionPage]:
        place = Cursor.parse(query.after)
        parameters: tuple[object, ...] = (query.tenant, *self._sql.place(*place))
        if query.user_id is None and query.agent is None:
            sql = self._sql.list_sessions_of_tenant
        elif query.user_id is None:
            sql, parameters = self._sql.list_sessions_of_agent, (*parameters, query.agent)
        elif query.agent is None:
            sql, parameters = self._sql.list_sessions_of_user, (*parameters, query.user_id)
        else:
            sql, parameters = self._sql.list_sessions_of_user_and_agent, (*parameters, query.user_id, query.agent)
        # One row more tells whether there is another page.
        rows = list((yield Fetch(sql, (*parameters, query.limit + 1))))
        page = rows[: query.limit]
        return SessionPage(
            sessions=[(self._codec.key(row[2:5]), record_of(*row[5:])) for row in page],
            after=str(Cursor(*page[-1][:2])) if len(rows) > len(page) else "",
        )

    def list_events(self, key: SessionKey, incarnation: str, after: int, limit: int) -> Plan[EventPage | None]:
        session = yield from self._session(key)
        if session is None or session.record.incarnation != incarnation:
            return None
        rows = yield Fetch(self._sql.events_after, (session.id, session.life, after, limit))
        return EventPage(session.record, list(map(event_of, rows)))

    def list_due(self, due: Due, before: int, limit: int, after: str) -> Plan[DuePage]:
        place = Cursor.parse(after) if after else Cursor(0, 0)
        rows = list((yield Fetch(self._due[due], (before, *self._sql.place(*place), limit + 1))))
        return self._due_page(rows, limit)

    def list_folds(self, tenant: str, agent: str, before: int, limit: int, after: str) -> Plan[DuePage]:
        place = Cursor.parse(after) if after else Cursor(0, 0)
        parameters = (tenant, agent, before, *self._sql.place(*place), limit + 1)
        rows = list((yield Fetch(self._sql.list_folds, parameters)))
        return self._due_page(rows, limit)

    def _due_page(self, rows: list[Row], limit: int) -> DuePage:
        """A page of rows of which one more than a page holds was asked for."""
        page = rows[:limit]
        return DuePage(
            keys=[self._codec.key(row[2:]) for row in page],
            after=str(Cursor(*page[-1][:2])) if len(rows) > len(page) else "",
        )

    def load_agent(self, tenant: str, agent: str) -> Plan[AgentRecord | None]:
        row = first((yield Fetch(self._sql.agent, (tenant, agent))))
        return None if row is None else self._codec.agent(row)

    def list_agents(self, tenant: str, after: str, limit: int) -> Plan[Sequence[AgentRecord]]:
        rows = yield Fetch(self._sql.list_agents, (tenant, after, limit))
        return list(map(self._codec.agent, rows))

    def list_tenants(self, after: str, limit: int) -> Plan[Sequence[str]]:
        return [self._codec.text(tenant) for (tenant,) in (yield Fetch(self._sql.list_tenants, (after, limit)))]

    def messages_by_seq(self, session: Session, seqs: Sequence[int]) -> Plan[dict[int, StoredMessage]]:
        """The messages that are there, by seq."""
        messages = {}
        for sql, values in self._sql.messages_by_seq.runs(seqs):
            for message in map(self._codec.message, (yield Fetch(sql, (session.id, session.life, *values)))):
                messages[message.seq] = message
        return messages

    def summaries_by_number(self, session: Session, numbers: Sequence[int]) -> Plan[dict[int, StoredSummary]]:
        """The summaries that are there, by number."""
        summaries = {}
        for sql, values in self._sql.summaries_by_number.runs(numbers):
            for number, text in (yield Fetch(sql, (session.id, session.life, *values))):
                summaries[number] = decode_summary(text)
        return summaries

    def current_summary(self, session: Session, *, asked: bool) -> Plan[StoredSummary | None]:
        """What a load tells of a session's summaries."""
        link = session.record.summary
        if not asked or link is None:
            return None
        summaries = yield from self.summaries_by_number(session, [link.number])
        return summaries[link.number]

    def _session(self, key: SessionKey) -> Plan[Session | None]:
        row = first((yield Fetch(self._sql.session, key)))
        return None if row is None else Session(row[0], row[1], record_of(*row[2:]))

    def _number(self, key: SessionKey) -> Plan[int | None]:
        """What a session's name is numbered by, dead or living; None when nothing of it is left."""
        row = first((yield Fetch(self._sql.session_number, key)))
        if row is None:
            row = first((yield Fetch(self._sql.dead_session, key)))
        return None if row is None else row[0]

    def _newest(self, session: Session, usability: Usability, limit: int) -> Plan[list[Entry]]:
        """The newest visible entries of a usability, at most `limit`, backwards in reading order."""
        segments = visible_segments(session.record)[::-1]
        return (yield from self._visible(session, usability, self._sql.entries_backwards, segments, limit))

    def _visible(
        self, session: Session, usability: Usability, sql: str, segments: Sequence[Segment], limit: int
    ) -> Plan[list[Entry]]:
        """The visible entries of a usability, at most `limit`, whose heads lie in the segments, in the order of these
        and of the statement.
        """
        is_visible = visibility(session.record)
        entries: list[Entry] = []
        for low, high in segments:
            # Of a group whose head is visible, other messages may be removed: these are read and passed over.
            asked = limit
            while len(entries) < limit:
                parameters = (session.id, session.life, int(usability), low, high, asked)
                found = list(map(self._codec.entry, (yield Fetch(sql, parameters))))
                visible = [entry for entry in found if is_visible(entry.seq)]
                if len(found) < asked or len(entries) + len(visible) >= limit:
                    entries += visible[: limit - len(entries)]
                    break
                asked *= 2
        return entries

    def _matching(
        self,
        session: Session,
        query: MessageQuery,
        variants: dict[tuple[bool, bool], str],
        build: Callable[[Row], AnyEntry],
    ) -> Plan[list[AnyEntry]]:
        """What a query matches, in its order, as far as a page needs it."""
        sql = variants[query.descending, bool(query.run_id)]
        # As many roles as the statement has parameters: all, or those that are asked for and one of them again.
        roles = sorted(query.roles or Role)
        filters = (
            *(roles + roles[-1:] * (len(Role) - len(roles))),
            0 if query.from_time is None else query.from_time,
            sys.maxsize if query.to_time is None else query.to_time,
            *([query.run_id] if query.run_id else []),
        )
        segments = visible_segments(session.record, query.from_seq, query.to_seq)
        if query.descending:
            segments.reverse()
        found: list[AnyEntry] = []
        size = 0
        for segment in segments:
            if len(found) > query.limit or size > query.bytes:
                break
            limit = query.limit + 1 - len(found)
            for row in (yield Fetch(sql, (session.id, session.life, *segment, *filters, limit))):
                found.append(build(row))
                size += found[-1].size
                if size > query.bytes and len(found) > 1:
                    break
        return found


def find_lookups(
    statements: Statements, codec: Codec, session: int, kind: LookupKind, ids: Sequence[str]
) -> Plan[list[Lookup]]:
    """The look-ups of a session that are there, each once."""
    found: list[Lookup] = []
    for sql, values in statements.lookups_by_id.runs(list(dict.fromkeys(ids))):
        found += map(codec.lookup, (yield Fetch(sql, (session, int(kind), *values))))
    return found
