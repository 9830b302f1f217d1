"""Writes as plans of statements, for every SQL database.

Each is to be run in a transaction, in which no other comes between what it locks (`FOR UPDATE`) and what it writes. A
change is refused before anything of it is written.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Final, NamedTuple

from memoryd_server import limits
from memoryd_server.stores.base import Change, Committed, Conflict, Deleted, Known, Lost, Outcome, StagingLost, Taken
from memoryd_server.stores.records import (
    AgentRecord,
    Lookup,
    LookupKind,
    Record,
    SessionKey,
    StoredMessage,
)
from memoryd_server.stores.sql.files import FileWrites
from memoryd_server.stores.sql.reads import ADOPTED, find_lookups
from memoryd_server.stores.sql.rows import (
    CHANGING_COLUMNS,
    RECORD_COLUMNS,
    RUNNING_COLUMNS,
    Codec,
    LeftoverKind,
    changed_columns,
    record_of,
    row_of_agent,
    row_of_event,
    row_of_record,
    row_of_summary,
    stored_version,
)
from memoryd_server.stores.sql.runs import RunWrites
from memoryd_server.stores.sql.statements import Statements
from memoryd_server.stores.sql.steps import Execute, ExecuteMany, Fetch, Insert, Plan, first

FIRST_LIFE: Final = 1

LEFTOVERS: Final = 50
"""Dead lives and stagings that one transaction deletes: about ten round trips each, and it must end in time."""

HIDDEN_TENANT: Final = ""
"""The tenant of the rows that stagings have in the table of sessions: no real one is empty, so no list holds them."""

_NAME_DIGITS: Final = 32
"""Hexadecimal digits of its digest that name an adopted secret: names in the table `meta` have 64 bytes at most."""

_MICROSECONDS: Final = 1_000_000
_ALL_SEQS: Final = (0, 2**63 - 1)
_KINDS: Final = tuple(LookupKind)


class _State(NamedTuple):
    """A session as it is stored, without its record."""

    id: int
    life: int
    incarnation: str
    version: int
    """As it is stored (`rows.stored_version`)."""

    def holds(self, record: Record) -> bool:
        """Whether this is the record that is stored."""
        return self.incarnation == record.incarnation and abs(self.version) == record.version


class _Name(NamedTuple):
    """A dead name."""

    session: int
    life: int


class Writes:
    """The plans of the writes of the contract."""

    def __init__(self, statements: Statements, codec: Codec) -> None:
        self.files = FileWrites(statements.files, codec)
        self.runs = RunWrites(statements.runs, codec)
        self._sql = statements
        self._codec = codec
        self._updates: Final = {
            CHANGING_COLUMNS: statements.update_record,
            RUNNING_COLUMNS: statements.update_running_record,
            RECORD_COLUMNS: statements.update_session,
        }

    def apply(self, change: Change) -> Plan[Outcome]:
        """Makes a change, or refuses it."""
        if change.staging:
            return (yield from self._adopt(change, change.record))
        row = first((yield Fetch(self._sql.session_state, change.key)))
        if row is None:
            return (yield from self._be_born(change))
        state = _State(*row[:4])
        known = yield from self._known(state.id, change.lookups)
        if known:
            return Known(known)
        previous, record = change.previous, change.record
        if previous is None or not state.holds(previous):
            return (yield from self._conflict(change.key))
        if record is None or record.incarnation != previous.incarnation:
            user_id = previous.user_id or None
            yield from self._end_life(change.key, state, user_id, forever=record is None)
            if record is None:
                return Committed()
            life = state.life + 1
            yield Execute(self._sql.begin_life, (life, *row_of_record(record), state.id))
        else:
            life = state.life
            if (yield from self.runs.begins_again(state.id, life, change)):
                return Conflict()
            yield from self._update(state, previous, record)
        yield from self._write_rows(state.id, life, change)
        return Committed()

    def _be_born(self, change: Change) -> Plan[Outcome]:
        key, record = change.key, change.record
        name = yield from self._dead_name(key)
        known = [] if name is None else (yield from self._known(name.session, change.lookups))
        if known:
            return Known(known)
        if change.previous is not None:
            return Conflict()
        if record is None:
            return Committed()
        session = yield Insert(self._sql.insert_session, (*key, FIRST_LIFE, *row_of_record(record)))
        life = FIRST_LIFE
        if name is not None:
            session, born, life = name.session, session, name.life + 1
            yield Execute(self._sql.renumber_session, (session, life, born))
            yield Execute(self._sql.delete_dead_name, (session,))
        yield from self._add_agent(key.tenant, key.agent)
        yield from self._write_rows(session, life, change)
        return Committed()

    def _write_rows(self, session: int, life: int, change: Change) -> Plan[None]:
        """Writes what goes with a record."""
        of_life = (session, life)
        for head in change.completed:
            yield Execute(self._sql.complete_group, (*of_life, head))
        for head in change.reopened:
            yield Execute(self._sql.reopen_group, (*of_life, head))
        if change.replaced:
            replaced = [(*self._codec.replaced(message), *of_life, message.seq) for message in change.replaced]
            yield ExecuteMany(self._sql.replace_message, replaced)
        if change.messages:
            rows = [self._codec.row_of_message(session, life, message) for message in change.messages]
            yield ExecuteMany(self._sql.insert_message, rows)
        if change.lookups:
            yield ExecuteMany(
                self._sql.insert_lookup, [self._codec.row_of_lookup(session, life, lookup) for lookup in change.lookups]
            )
        if change.events:
            yield ExecuteMany(self._sql.insert_event, [row_of_event(session, life, event) for event in change.events])
        if change.dropped_summaries:
            yield ExecuteMany(self._sql.delete_summary, [(*of_life, number) for number in change.dropped_summaries])
        if change.new_summaries:
            yield ExecuteMany(
                self._sql.insert_summary, [row_of_summary(session, life, summary) for summary in change.new_summaries]
            )
        yield from self.runs.write(session, life, change)

    def _update(self, state: _State, previous: Record, record: Record) -> Plan[None]:
        # A server of an older schema keeps open calls in the record, however many they are.
        if state.version == stored_version(previous):
            columns, values = changed_columns(previous, record)
        else:
            columns, values = RECORD_COLUMNS, row_of_record(record)
        yield Execute(self._updates[columns], (*values, state.id))

    def _end_life(self, key: SessionKey, state: _State, user_id: str | None, *, forever: bool) -> Plan[None]:
        """Leaves what a life held to `sweep`, and remembers the name when no life follows."""
        now = yield from self.now()
        due = now + limits.PURGE_DELAY_SECONDS * _MICROSECONDS + 1
        life = (state.id, state.life)
        yield Execute(self._sql.insert_leftover, (*life, int(LeftoverKind.LIFE), key.tenant, user_id, due))
        if forever:
            yield Execute(self._sql.delete_session, (state.id,))
            yield Execute(self._sql.insert_dead_name, (*life, *key, now))

    def _conflict(self, key: SessionKey) -> Plan[Outcome]:
        row = first((yield Fetch(self._sql.session, key)))
        return Conflict(None if row is None else record_of(*row[2:]))

    def _known(self, session: int, lookups: Sequence[Lookup]) -> Plan[list[Lookup]]:
        known: list[Lookup] = []
        for kind in _KINDS:
            ids = [lookup.id for lookup in lookups if lookup.kind is kind]
            if ids:
                known += yield from find_lookups(self._sql, self._codec, session, kind, ids)
        return known

    def _dead_name(self, key: SessionKey) -> Plan[_Name | None]:
        row = first((yield Fetch(self._sql.dead_name, key)))
        return None if row is None else _Name(*row)

    def _add_agent(self, tenant: str, agent: str) -> Plan[None]:
        yield Execute(self._sql.add_agent, row_of_agent(AgentRecord(tenant, agent)))

    # Stagings

    def begin_staging(self, tenant: str, user_id: str, due: int) -> Plan[str]:
        hidden = (HIDDEN_TENANT, tenant, secrets.token_hex(16))
        nobody = Record("", 0, "", 0, 0)
        session = yield Insert(self._sql.insert_session, (*hidden, FIRST_LIFE, *row_of_record(nobody)))
        leftover = (session, FIRST_LIFE, int(LeftoverKind.STAGING), tenant, user_id or None, due)
        yield Execute(self._sql.insert_leftover, leftover)
        return str(session)

    def stage(self, staging: str, messages: Sequence[StoredMessage], lookups: Sequence[Lookup], due: int) -> Plan[None]:
        session = int(staging)
        yield from self._lock_staging(session)
        yield Execute(self._sql.date_staging, (due, session, FIRST_LIFE))
        if messages:
            rows = [self._codec.row_of_message(session, FIRST_LIFE, message) for message in messages]
            yield ExecuteMany(self._sql.add_message, rows)
        if lookups:
            yield ExecuteMany(
                self._sql.add_lookup, [self._codec.row_of_lookup(session, FIRST_LIFE, lookup) for lookup in lookups]
            )

    def end_staging(self, staging: str) -> Plan[None]:
        session = int(staging)
        # From now on a sweep may take it. What an erasure abandons is left to that, which counts what it deletes.
        yield Execute(self._sql.date_staging, (0, session, FIRST_LIFE))
        if (yield Execute(self._sql.abandon_staging, (session, FIRST_LIFE))):
            yield Execute(self._sql.delete_session, (session,))

    def _adopt(self, change: Change, record: Record | None) -> Plan[Outcome]:
        """A birth from a staging."""
        key, session = change.key, int(change.staging)
        assert record is not None
        row = first((yield Fetch(self._sql.session_state, key)))
        name = yield from self._dead_name(key)
        known = yield from self._known(row[0] if row else name.session if name else session, change.lookups)
        if known:
            return Known(known)
        if row is not None:
            return (yield from self._conflict(key))
        if name is not None:
            return Taken()
        kind = first((yield Fetch(self._sql.lock_leftover, (session, FIRST_LIFE))))
        if kind is None or kind[0] != LeftoverKind.STAGING:
            return Lost()
        yield Execute(self._sql.delete_leftover, (session, FIRST_LIFE))
        yield Execute(self._sql.name_session, (*key, *row_of_record(record), session))
        yield from self._add_agent(key.tenant, key.agent)
        yield from self._write_rows(session, FIRST_LIFE, change)
        return Committed()

    def _lock_staging(self, session: int) -> Plan[None]:
        row = first((yield Fetch(self._sql.lock_leftover, (session, FIRST_LIFE))))
        if row is None or row[0] != LeftoverKind.STAGING:
            raise StagingLost("The copy was abandoned for too long, or its user was erased.")

    # Deleting

    def purge(self, key: SessionKey, incarnation: str, from_seq: int, to_seq: int, limit: int) -> Plan[int]:
        row = first((yield Fetch(self._sql.session_state, key)))
        if row is None or row[2] != incarnation:
            return 0
        return (yield from self._delete_messages(row[0], row[1], from_seq, to_seq, limit))

    def sweep(self, now: int, limit: int) -> Plan[Deleted]:
        deleted = yield from self._delete_leftovers(Fetch(self._sql.due_leftovers, (now, LEFTOVERS)), limit)
        if deleted.total < limit:
            before = now - limits.EVENT_SECONDS * _MICROSECONDS
            (last,) = first((yield Fetch(self._sql.last_old_event, (before, limit - deleted.total)))) or (None,)
            if last is not None:
                deleted += Deleted(events=(yield Execute(self._sql.delete_old_events, (last,))))
        if deleted.total < limit:
            deleted += yield from self.runs.sweep(limit - deleted.total)
        before = now - limits.LOOKUP_SECONDS * _MICROSECONDS
        for (session,) in list((yield Fetch(self._sql.old_dead_names, (before, LEFTOVERS)))):
            if deleted.total >= limit:
                break
            # Unless it lives again.
            if first((yield Fetch(self._sql.lock_dead_name, (session,)))) is not None:
                lives = Fetch(self._sql.leftovers_of_session, (session, LEFTOVERS))
                deleted += yield from self._delete_leftovers(lives, limit - deleted.total, forgets=True)
        return deleted

    def erase(self, tenant: str, user_id: str, limit: int) -> Plan[Deleted]:
        lives = Fetch(self._sql.leftovers_of_user, (tenant, user_id, LEFTOVERS))
        deleted = yield from self._delete_leftovers(lives, limit, forgets=True)
        if deleted.total < limit:
            deleted += Deleted(files=(yield from self.files.erase(tenant, user_id, limit - deleted.total)))
        return deleted

    def _delete_leftovers(self, some: Fetch, limit: int, *, forgets: bool = False) -> Plan[Deleted]:
        """Deletes what a statement finds. Runs it again while nothing was deleted, as that would say that nothing is
        left.
        """
        deleted = Deleted()
        while not deleted.total and (found := list((yield some))):
            for session, life in found:
                if deleted.total < limit:
                    deleted += yield from self._delete_leftover(session, life, limit - deleted.total, forgets)
        return deleted

    def _delete_leftover(self, session: int, life: int, limit: int, forgets: bool) -> Plan[Deleted]:
        """Deletes of a dead life or a staging; with `forgets`, look-ups of the life too, and with the last of the dead
        lives a dead name.
        """
        of_life = (session, life)
        row = first((yield Fetch(self._sql.lock_leftover, of_life)))
        if row is None:
            return Deleted()
        kind = LeftoverKind(row[0])
        if kind is LeftoverKind.STAGING:
            yield Execute(self._sql.abandon_staging, of_life)
            yield Execute(self._sql.delete_session, (session,))
        deleted = Deleted(messages=(yield from self._delete_messages(session, life, *_ALL_SEQS, limit)))
        if deleted.total < limit:
            sql = (self._sql.last_event_to_delete, self._sql.delete_events)
            deleted += Deleted(events=(yield from self._delete_first(*sql, of_life, limit - deleted.total)))
        if deleted.total < limit:
            sql = (self._sql.last_summary_to_delete, self._sql.delete_summaries)
            deleted += Deleted(summaries=(yield from self._delete_first(*sql, of_life, limit - deleted.total)))
        if deleted.total < limit:
            deleted += yield from self.runs.delete_of_life(session, life, limit - deleted.total)
        if deleted.total >= limit:
            return deleted
        if kind is LeftoverKind.LIFE and not forgets:
            yield Execute(self._sql.keep_swept, of_life)
            return deleted
        deleted += Deleted(lookups=(yield from self._delete_lookups(session, life, limit - deleted.total)))
        if deleted.total < limit:
            yield Execute(self._sql.delete_leftover, of_life)
            if first((yield Fetch(self._sql.leftovers_of_session, (session, 1)))) is None:
                deleted += Deleted(sessions=(yield Execute(self._sql.delete_dead_name, (session,))))
        return deleted

    def _delete_messages(self, session: int, life: int, low: int, high: int, limit: int) -> Plan[int]:
        of_life = (session, life)
        (last,) = first((yield Fetch(self._sql.last_to_purge, (*of_life, low, high, limit)))) or (None,)
        return 0 if last is None else (yield Execute(self._sql.purge, (*of_life, low, last)))

    def _delete_first(self, last_of: str, delete: str, of_life: tuple[int, int], limit: int) -> Plan[int]:
        """Deletes the first rows of a life by number, given the statement that finds the last of them."""
        (last,) = first((yield Fetch(last_of, (*of_life, limit)))) or (None,)
        return 0 if last is None else (yield Execute(delete, (*of_life, last)))

    def _delete_lookups(self, session: int, life: int, limit: int) -> Plan[int]:
        last = dict((yield Fetch(self._sql.oldest_lookups, (session, life, limit))))
        deleted = 0
        for kind, id_ in last.items():
            deleted += yield Execute(self._sql.delete_lookups, (session, life, kind, id_))
        return deleted

    # Everything else

    def save_agent(self, record: AgentRecord) -> Plan[bool]:
        if record.version == 1:
            yield from self._add_agent(record.tenant, record.agent)
        tenant, agent, *values = row_of_agent(record)
        changed: int = yield Execute(self._sql.update_agent, (*values, tenant, agent, record.version - 1))
        return changed == 1

    def lease(self, name: str, holder: str, seconds: float) -> Plan[bool]:
        now = yield from self.now()
        ends_at = now + int(seconds * _MICROSECONDS)
        row = first((yield Fetch(self._sql.lease, (name,))))
        if row is None:
            yield Execute(self._sql.insert_lease, (name, holder, ends_at))
            return True
        if self._codec.text(row[0]) != holder and row[1] > now:
            return False
        yield Execute(self._sql.update_lease, (holder, ends_at, name))
        return True

    def keep_value(self, name: str, value: bytes) -> Plan[None]:
        """Stores a value of the table `meta`, unless there is one."""
        if first((yield Fetch(self._sql.value, (name,)))) is None:
            yield Execute(self._sql.insert_value, (name, value))

    def adopt_secret(self, secret: bytes) -> Plan[None]:
        # The name is no longer than its column, and the same for the same secret.
        yield from self.keep_value(ADOPTED + hashlib.sha256(secret).hexdigest()[:_NAME_DIGITS], secret)

    def now(self) -> Plan[int]:
        """The store's time."""
        row = first((yield Fetch(self._sql.now)))
        assert row is not None
        return int(row[0])
