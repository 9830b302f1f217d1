"""Reads from SQLite, on the thread and the connection that are given to it."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple, TypeVar

from memoryd_server.stores.base import Loaded, MessagePage, MessageQuery, SessionPage, SessionQuery, Tail
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
    Usability,
    decode_record,
)
from memoryd_server.stores.sql.rows import Row, agent_of, entry_of, lookup_of, message_of
from memoryd_server.stores.sql.statements import Statements
from memoryd_server.stores.walk import (
    bodies_fit,
    merge_backwards,
    take_opening,
    take_page,
    take_tail,
    visibility,
    visible_segments,
)

READ_AHEAD: Final = 2
"""Rows that SQLite may read beyond a page: the one that tells whether there is more, and the driver's next."""

AnyEntry = TypeVar("AnyEntry", bound=Entry)


class TooMuch(Exception):
    """A read is probably larger than its caller allows."""


class _Session(NamedTuple):
    id: int
    life: int
    record: Record


class Reader:
    """Reads, each of one moment of the database. Walks are lazy down to the cursor: rows not taken cost nothing."""

    def __init__(self, connection: sqlite3.Connection, statements: Statements) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._sql = statements

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> None:
        """Begins a read of several statements."""
        self._execute("BEGIN")

    def __exit__(self, *_: object) -> None:
        if self._connection.in_transaction:
            self._execute("COMMIT")

    def value(self, name: str) -> bytes | None:
        """A value of the table `meta`."""
        row = self._execute(self._sql.value, (name,)).fetchone()
        return None if row is None else row[0]

    def load(self, key: SessionKey, tail: Tail | None, most_bytes: int | None = None) -> Loaded | None:
        """As the contract says; raises TooMuch when that probably reads more than `most_bytes` of bodies."""
        if tail is None:
            session = self._session(key)
            return None if session is None else Loaded(session.record)
        with self:
            session = self._session(key)
            if session is None:
                return None
            if most_bytes is not None and _expected_bytes(session.record, tail) > most_bytes:
                raise TooMuch
            return self._load_tail(session, tail)

    def read(
        self, key: SessionKey, incarnation: str, seqs: Sequence[int]
    ) -> tuple[Record, Sequence[StoredMessage]] | None:
        with self:
            session = self._session(key)
            if session is None or session.record.incarnation != incarnation:
                return None
            visible = list(filter(visibility(session.record), seqs))
            messages = self._messages_by_seq(session, visible)
            return session.record, [messages[seq] for seq in visible if seq in messages]

    def list_messages(self, key: SessionKey, query: MessageQuery) -> MessagePage | None:
        with self:
            session = self._session(key)
            if session is None:
                return None
            record = session.record
            if record.bytes <= query.bytes or record.largest * (query.limit + READ_AHEAD) <= query.bytes:
                messages, more = take_page(
                    self._matching(session, query, self._sql.matching_messages, message_of), query
                )
                return MessagePage(record, messages, more)
            entries, more = take_page(self._matching(session, query, self._sql.matching_entries, entry_of), query)
            by_seq = self._messages_by_seq(session, [entry.seq for entry in entries])
            return MessagePage(record, [by_seq[entry.seq] for entry in entries], more)

    def list_unusable(self, key: SessionKey, usabilities: Collection[Usability], limit: int) -> Sequence[Entry]:
        with self:
            session = self._session(key)
            if session is None:
                return []
            return list(islice(self._backwards(session, usabilities, self._sql.entries_backwards, entry_of), limit))

    def find(self, key: SessionKey, kind: LookupKind, ids: Sequence[str]) -> Sequence[Lookup]:
        with self:
            session = self._session(key)
            return [] if session is None else find_lookups(self._connection, self._sql, session.id, kind, ids)

    def list_sessions(self, query: SessionQuery) -> SessionPage:
        place = Cursor.parse(query.after)
        parameters: tuple[object, ...] = (query.tenant, place.activity, place.number)
        if query.user_id is None and query.agent is None:
            sql = self._sql.list_sessions_of_tenant
        elif query.user_id is None:
            sql, parameters = self._sql.list_sessions_of_agent, (*parameters, query.agent)
        elif query.agent is None:
            sql, parameters = self._sql.list_sessions_of_user, (*parameters, query.user_id)
        else:
            sql, parameters = self._sql.list_sessions_of_user_and_agent, (*parameters, query.user_id, query.agent)
        # One row more tells whether there is another page.
        rows = self._execute(sql, (*parameters, query.limit + 1)).fetchall()
        page = rows[: query.limit]
        return SessionPage(
            sessions=[
                (SessionKey(tenant, agent, session_id), decode_record(record))
                for _, _, tenant, agent, session_id, record in page
            ],
            after=str(Cursor(*page[-1][:2])) if len(rows) > len(page) else "",
        )

    def list_purgeable(self, removed_before: int, limit: int) -> Sequence[SessionKey]:
        return [SessionKey(*row) for row in self._execute(self._sql.list_purgeable, (removed_before, limit))]

    def load_agent(self, tenant: str, agent: str) -> AgentRecord | None:
        row = self._execute(self._sql.agent, (tenant, agent)).fetchone()
        return None if row is None else agent_of(row)

    def list_agents(self, tenant: str, after: str, limit: int) -> Sequence[AgentRecord]:
        return [agent_of(row) for row in self._execute(self._sql.list_agents, (tenant, after, limit))]

    def _session(self, key: SessionKey) -> _Session | None:
        row = self._execute(self._sql.session, key).fetchone()
        return None if row is None else _Session(row[0], row[1], decode_record(row[2]))

    def _load_tail(self, session: _Session, tail: Tail) -> Loaded:
        record = session.record
        fitting = _fitting(record, tail)
        # Where so many may suffice, one walk with bodies spares another for them.
        if fitting >= tail.messages or (fitting > 0 and tail.tokens is not None):
            walk = self._backwards(session, tail.usabilities, self._sql.messages_backwards, message_of)
            newest = take_tail(islice(walk, fitting + 1), tail)
            if len(newest) <= fitting:
                return Loaded(record, newest, self._opening(session, tail, self._sql.messages, message_of))
        entries = take_tail(self._backwards(session, tail.usabilities, self._sql.entries_backwards, entry_of), tail)
        opening = self._opening(session, tail, self._sql.entries, entry_of)
        if not bodies_fit(entries, opening, tail.body_bytes):
            return Loaded(record, entries, opening)
        messages = self._messages_by_seq(session, list({entry.seq for entry in (*opening, *entries)}))
        return Loaded(record, [messages[entry.seq] for entry in entries], [messages[entry.seq] for entry in opening])

    def _opening(self, session: _Session, tail: Tail, sql: str, build: Callable[[Row], AnyEntry]) -> Sequence[AnyEntry]:
        record = session.record
        if not tail.opening or record.opening_to < record.first_seq:
            return ()
        return take_opening(self._by_seq(session, record.first_seq, record.opening_to, sql, build), tail)

    def _by_seq(
        self, session: _Session, low: int, high: int, sql: str, build: Callable[[Row], AnyEntry]
    ) -> Iterator[AnyEntry]:
        segments = visible_segments(session.record, low, high)
        return self._rows(sql, [(session.id, session.life, *segment) for segment in segments], build)

    def _backwards(
        self, session: _Session, usabilities: Collection[Usability], sql: str, build: Callable[[Row], AnyEntry]
    ) -> Iterator[AnyEntry]:
        """Walks in reading order, from the newest on, past what is removed."""
        segments = visible_segments(session.record)[::-1]
        entries = merge_backwards(
            [
                self._rows(sql, [(session.id, session.life, int(usability), *segment) for segment in segments], build)
                for usability in usabilities
            ]
        )
        if not session.record.removed:
            return entries
        # Of a group whose head is visible, newer messages may be removed.
        is_visible = visibility(session.record)
        return (entry for entry in entries if is_visible(entry.seq))

    def _matching(
        self,
        session: _Session,
        query: MessageQuery,
        variants: dict[tuple[bool, bool], str],
        build: Callable[[Row], AnyEntry],
    ) -> Iterator[AnyEntry]:
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
        runs = [(session.id, session.life, *segment, *filters) for segment in segments]
        return self._rows(sql, runs, build)

    def _messages_by_seq(self, session: _Session, seqs: Sequence[int]) -> dict[int, StoredMessage]:
        messages = {}
        for sql, values in self._sql.messages_by_seq.runs(seqs):
            for message in map(message_of, self._execute(sql, (session.id, session.life, *values))):
                messages[message.seq] = message
        return messages

    def _rows(self, sql: str, runs: Iterable[Row], build: Callable[[Row], AnyEntry]) -> Iterator[AnyEntry]:
        """The rows of a statement, run with one row of parameters after the other, each when it is its turn."""
        return chain.from_iterable(map(build, self._execute(sql, parameters)) for parameters in runs)


def _fitting(record: Record, tail: Tail) -> int:
    """Bodies of so many messages of the tail surely fit, with those of the opening."""
    if record.bytes <= tail.body_bytes:
        return sys.maxsize - 1
    in_opening = min((tail.messages + 1) // 2, record.opening_to - record.first_seq + 1) if tail.opening else 0
    return tail.body_bytes // max(1, record.largest) - max(0, in_opening)


def _expected_bytes(record: Record, tail: Tail) -> float:
    """The bodies that a tail holds, if its messages are as large as those of the whole history."""
    wanted, held = (tail.messages, record.messages) if tail.tokens is None else (tail.tokens, record.tokens)
    return record.bytes * min(1, wanted / max(1, held))


def find_lookups(
    connection: sqlite3.Connection, statements: Statements, session: int, kind: LookupKind, ids: Sequence[str]
) -> list[Lookup]:
    """The look-ups of a session that are there, each once."""
    return [
        lookup_of(row)
        for sql, values in statements.lookups_by_id.runs(list(dict.fromkeys(ids)))
        for row in connection.execute(sql, (session, int(kind), *values))
    ]
