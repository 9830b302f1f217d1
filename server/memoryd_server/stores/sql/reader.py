"""Reads from SQLite, on the thread and the connection that are given to it."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TypeVar

from memoryd_server.stores.base import ClaimableRun, Loaded, RunName, Tail
from memoryd_server.stores.records import (
    Entry,
    FileKey,
    Record,
    SessionKey,
    StoredFile,
    StoredRun,
    StoredSummary,
    Usability,
)
from memoryd_server.stores.sql.carrying import carry_out
from memoryd_server.stores.sql.compiling import ALL
from memoryd_server.stores.sql.reads import Reads, Session
from memoryd_server.stores.sql.rows import Codec, Row, entry_of, message_of, record_of, row_of_file_key
from memoryd_server.stores.sql.statements import Statements
from memoryd_server.stores.sql.steps import Plan
from memoryd_server.stores.walk import (
    bodies_fit,
    merge_backwards,
    take_opening,
    take_tail,
    visibility,
    visible_segments,
)

AnyEntry = TypeVar("AnyEntry", bound=Entry)
Result = TypeVar("Result")


class TooMuch(Exception):
    """A read is probably larger than its caller allows."""


class Reader:
    """Reads, each of one moment of the database. Walks are lazy down to the cursor: rows not taken cost nothing."""

    def __init__(self, connection: sqlite3.Connection, statements: Statements) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._sql = statements
        self._reads = Reads(statements, Codec())

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> None:
        """Begins a read of several statements."""
        self._execute("BEGIN")

    def __exit__(self, *_: object) -> None:
        if self._connection.in_transaction:
            self._execute("COMMIT")

    def run(self, plan: Callable[[Reads], Plan[Result]]) -> Result:
        """Carries a plan out, on one moment."""
        with self:
            return carry_out(self._connection, plan(self._reads))

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

    def load_files(self, keys: Sequence[FileKey], most_bytes: int) -> Sequence[StoredFile]:
        """As the contract says; raises TooMuch when their contents are more than `most_bytes`."""
        with self:
            sizes = chain.from_iterable(self._execute(self._sql.files.size, row_of_file_key(key)) for key in keys)
            if sum(size for (size,) in sizes) > most_bytes:
                raise TooMuch
            return carry_out(self._connection, self._reads.files.load(keys))

    def load_run(self, key: SessionKey, run_id: str) -> tuple[Record, StoredRun | None] | None:
        """As the contract says, by one statement."""
        return carry_out(self._connection, self._reads.runs.load(key, run_id))

    def list_claimable(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[RunName]:
        """As the contract says, by one statement."""
        return carry_out(self._connection, self._reads.runs.list_claimable(tenant, agent, before, limit))

    def load_claimable(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[ClaimableRun]:
        """As the contract says, by one statement."""
        return carry_out(self._connection, self._reads.runs.load_claimable(tenant, agent, before, limit))

    def _session(self, key: SessionKey) -> Session | None:
        row = self._execute(self._sql.session, key).fetchone()
        return None if row is None else Session(row[0], row[1], record_of(*row[2:]))

    def _load_tail(self, session: Session, tail: Tail) -> Loaded:
        record = session.record
        summary: StoredSummary | None = None
        if tail.summary and record.summaries:
            summary = carry_out(self._connection, self._reads.current_summary(session, asked=True))
        fitting = _fitting(record, tail)
        # Where so many may suffice, one walk with bodies spares another for them.
        if fitting >= tail.messages or (fitting > 0 and tail.tokens is not None):
            walk = self._backwards(session, tail.usabilities, self._sql.messages_backwards, message_of)
            newest = take_tail(islice(walk, fitting + 1), tail)
            if len(newest) <= fitting:
                return Loaded(record, newest, self._opening(session, tail, self._sql.messages, message_of), summary)
        entries = take_tail(self._backwards(session, tail.usabilities, self._sql.entries_backwards, entry_of), tail)
        opening = self._opening(session, tail, self._sql.entries, entry_of)
        if not bodies_fit(entries, opening, tail.body_bytes):
            return Loaded(record, entries, opening, summary)
        seqs = list({entry.seq for entry in (*opening, *entries)})
        messages = carry_out(self._connection, self._reads.messages_by_seq(session, seqs))
        newest, first = ([messages[entry.seq] for entry in some] for some in (entries, opening))
        return Loaded(record, newest, first, summary)

    def _opening(self, session: Session, tail: Tail, sql: str, build: Callable[[Row], AnyEntry]) -> Sequence[AnyEntry]:
        record = session.record
        if not tail.opening or record.opening_to < record.first_seq:
            return ()
        return take_opening(self._by_seq(session, record.first_seq, record.opening_to, sql, build), tail)

    def _by_seq(
        self, session: Session, low: int, high: int, sql: str, build: Callable[[Row], AnyEntry]
    ) -> Iterator[AnyEntry]:
        segments = visible_segments(session.record, low, high)
        return self._rows(sql, [(session.id, session.life, *segment) for segment in segments], build)

    def _backwards(
        self, session: Session, usabilities: Collection[Usability], sql: str, build: Callable[[Row], AnyEntry]
    ) -> Iterator[AnyEntry]:
        """Walks in reading order, from the newest on, past what is removed."""
        segments = visible_segments(session.record)[::-1]
        entries = merge_backwards(
            [
                self._rows(
                    sql, [(session.id, session.life, int(usability), *segment, ALL) for segment in segments], build
                )
                for usability in usabilities
            ]
        )
        if not session.record.removed:
            return entries
        # Of a group whose head is visible, newer messages may be removed.
        is_visible = visibility(session.record)
        return (entry for entry in entries if is_visible(entry.seq))

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
    """The texts that a load reads, if its messages are as large as those of the whole history."""
    wanted, held = (tail.messages, record.messages) if tail.tokens is None else (tail.tokens, record.tokens)
    of_summary = record.summary.size if tail.summary and record.summary else 0
    return record.bytes * min(1, wanted / max(1, held)) + of_summary
