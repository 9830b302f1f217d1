"""Reads and writes of runs and their steps as plans of statements, for every SQL database.

Runs change with their session's record, so that who may change that is alone with them. A run that has ended may be
deleted beside: its row is locked while that goes on, and hidden from the lists until its last step is gone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import repeat
from operator import itemgetter
from typing import Final, NamedTuple

from memoryd_server.stores.base import Change, ClaimableRun, Deleted, RunName, RunPage, RunQuery, StepPage
from memoryd_server.stores.records import (
    Record,
    RunStatus,
    SessionKey,
    StoredRun,
    decode_run_head,
    decode_run_state,
    encode_run_head,
    encode_run_state,
)
from memoryd_server.stores.sql.rows import Codec, Row, record_of, row_of_run, row_of_run_state
from memoryd_server.stores.sql.run_statements import LEAVING, RunStatements
from memoryd_server.stores.sql.steps import Execute, ExecuteMany, Fetch, Plan, first

SWEPT_TOGETHER: Final = 64
"""Runs, deleted half way, that one transaction goes on with: a few round trips each, and it must end in time."""


class Place(NamedTuple):
    """A place in a list of runs, which goes from the greatest to the least."""

    created: int
    session: int
    run_id: str

    @classmethod
    def parse(cls, text: str) -> Place:
        """The inverse of `str`; the empty text is the place before the first run."""
        if not text:
            return cls(sys.maxsize, sys.maxsize, "")
        # An id may hold any character, the others are digits.
        created, session, run_id = text.split(".", 2)
        return cls(int(created), int(session), run_id)

    def __str__(self) -> str:
        return f"{self.created}.{self.session}.{self.run_id}"


_PLACE: Final = itemgetter(slice(1, 4))
"""The place in a row of a list, behind the session's id."""


class RunReads:
    """The plans of the reads."""

    def __init__(self, statements: RunStatements, codec: Codec) -> None:
        self._sql = statements
        self._codec = codec

    def load(self, key: SessionKey, run_id: str) -> Plan[tuple[Record, StoredRun | None] | None]:
        row = first((yield Fetch(self._sql.load, (run_id, *key))))
        if row is None:
            return None
        text, open_calls, tenant, head, state = row
        return record_of(text, open_calls), _run_of(run_id, head, state) if tenant else None

    def list_runs(self, query: RunQuery) -> Plan[RunPage]:
        place = Place.parse(query.after)
        # One row more tells whether there is another page.
        limit = query.limit + 1
        if query.session_id is not None:
            rows = yield from self._of_session(query, query.session_id, place, limit)
        else:
            rows = yield from self._of_agent(query, place, limit)
        page = rows[: query.limit]
        return RunPage(
            runs=[
                (SessionKey(query.tenant, query.agent, session_id), _run_of(run_id, head, state))
                for session_id, _, _, run_id, head, state in page
            ],
            after=str(Place(*_PLACE(page[-1]))) if len(rows) > len(page) else "",
        )

    def _of_agent(self, query: RunQuery, place: Place, limit: int) -> Plan[list[Row]]:
        agent, behind = (query.tenant, query.agent), self._sql.place_in_agent(*place)
        if not query.statuses:
            return list((yield Fetch(self._sql.list_of_agent, (*agent, *behind, limit))))
        rows: list[Row] = []
        for status in query.statuses:
            rows += yield Fetch(self._sql.list_by_status, (*agent, int(status), *behind, limit))
        return sorted(rows, key=_PLACE, reverse=True)[:limit]

    def _of_session(self, query: RunQuery, session_id: str, place: Place, limit: int) -> Plan[list[Row]]:
        row = first((yield Fetch(self._sql.session, (query.tenant, query.agent, session_id))))
        if row is None:
            return []
        session, life, _ = row
        # As many statuses as the statement has parameters: all, or those that are asked for and one of them again.
        statuses = sorted(query.statuses or RunStatus)
        statuses += repeat(statuses[-1], len(RunStatus) - len(statuses))
        behind = self._sql.place_in_session(place.created, place.run_id)
        rows = yield Fetch(self._sql.list_of_session, (session, life, *statuses, *behind, limit))
        return [(session_id, *row) for row in rows]

    def list_claimable(self, tenant: str, agent: str, before: int, limit: int) -> Plan[Sequence[RunName]]:
        return (yield from self._names(self._sql.list_claimable, tenant, agent, before, limit))

    def load_claimable(self, tenant: str, agent: str, before: int, limit: int) -> Plan[Sequence[ClaimableRun]]:
        rows = yield Fetch(self._sql.load_claimable, (tenant, agent, before, limit))
        return ClaimableRun.as_far_as_readable(
            ClaimableRun(SessionKey(tenant, agent, session_id), record_of(text, open_calls), _run_of(*run))
            for session_id, text, open_calls, *run in rows
        )

    def list_ended(self, tenant: str, agent: str, before: int, limit: int) -> Plan[Sequence[RunName]]:
        return (yield from self._names(self._sql.list_ended, tenant, agent, before, limit))

    def _names(self, sql: str, tenant: str, agent: str, before: int, limit: int) -> Plan[Sequence[RunName]]:
        rows = yield Fetch(sql, (tenant, agent, before, limit))
        return [
            RunName(SessionKey(tenant, agent, session_id), incarnation, run_id)
            for session_id, incarnation, run_id in rows
        ]

    def list_steps(
        self, key: SessionKey, incarnation: str, run_id: str, after: int, limit: int, size: int
    ) -> Plan[StepPage | None]:
        row = first((yield Fetch(self._sql.place, (run_id, *key))))
        if row is None or row[2] != incarnation or not row[3]:
            return None
        of_run = (*row[:2], run_id)
        last, count, more = after, 0, False
        for number, size_of_step in (yield Fetch(self._sql.sizes, (*of_run, after, limit + 1))):
            size -= size_of_step
            if count == limit or (count and size < 0):
                more = True
                break
            last, count = number, count + 1
        if not count:
            return StepPage((), more=False)
        return StepPage(list(map(self._codec.step, (yield Fetch(self._sql.steps, (*of_run, after, last))))), more)


def _run_of(run_id: str, head: str, state: str) -> StoredRun:
    return StoredRun(run_id, decode_run_head(head), decode_run_state(state))


class RunWrites:
    """The plans of the writes, each to be run in a transaction."""

    def __init__(self, statements: RunStatements, codec: Codec) -> None:
        self._sql = statements
        self._codec = codec

    def begins_again(self, session: int, life: int, change: Change) -> Plan[bool]:
        """Whether a change begins a run of whose id one is stored: there is a row until the last step is gone."""
        for changed in change.changed_runs:
            if changed.begins and first((yield Fetch(self._sql.stored, (session, life, changed.run_id)))) is not None:
                return True
        return False

    def write(self, session: int, life: int, change: Change) -> Plan[None]:
        """Writes what a change of a session says of its runs."""
        for changed in change.changed_runs:
            of_run = (session, life, changed.run_id)
            values = row_of_run_state(changed)
            if changed.begins:
                yield Execute(self._sql.insert, row_of_run(session, life, change.key, changed))
            elif changed.head is not None:
                yield Execute(self._sql.change_head, (*values, encode_run_head(changed.head), *of_run))
            else:
                same = (changed.state.claimable_at, encode_run_state(changed.state), *of_run, values[0])
                if not (yield Execute(self._sql.advance, same)):
                    yield Execute(self._sql.change, (*values, *of_run))
        if change.new_steps:
            yield ExecuteMany(
                self._sql.insert_step, [self._codec.row_of_step(session, life, step) for step in change.new_steps]
            )

    def delete(self, name: RunName, limit: int) -> Plan[int]:
        row = first((yield Fetch(self._sql.session, name.key)))
        if row is None or row[2] != name.incarnation:
            return 0
        deleted = yield from self._delete(row[0], row[1], name.run_id, limit)
        return deleted.total

    def _delete(self, session: int, life: int, run_id: str, limit: int) -> Plan[Deleted]:
        of_run = (session, life, run_id)
        row = first((yield Fetch(self._sql.lock, of_run)))
        if row is None or row[1] is None:
            return Deleted()
        if row[0] != LEAVING:
            yield Execute(self._sql.hide, of_run)
        steps = 0
        (last,) = first((yield Fetch(self._sql.last_step_to_delete, (*of_run, limit)))) or (None,)
        if last is not None:
            steps = yield Execute(self._sql.delete_steps, (*of_run, last))
        if steps >= limit:
            return Deleted(steps=steps)
        return Deleted(steps=steps, runs=(yield Execute(self._sql.delete, of_run)))

    def sweep(self, limit: int) -> Plan[Deleted]:
        """Goes on with runs that are deleted half way."""
        deleted = Deleted()
        for session, life, run_id in list((yield Fetch(self._sql.list_leaving, (min(limit, SWEPT_TOGETHER),)))):
            if deleted.total < limit:
                deleted += yield from self._delete(session, life, run_id, limit - deleted.total)
        return deleted

    def delete_of_life(self, session: int, life: int, limit: int) -> Plan[Deleted]:
        """Deletes up to `limit` steps and runs of a dead life."""
        of_life = (session, life)
        steps = 0
        found = list((yield Fetch(self._sql.first_steps_of_life, (*of_life, limit))))
        if found:
            run_id, number = found[-1]
            steps = yield Execute(self._sql.delete_steps_of_runs_before, (*of_life, run_id))
            steps += yield Execute(self._sql.delete_steps, (*of_life, run_id, number))
        runs = 0
        if steps < limit:
            (last,) = first((yield Fetch(self._sql.last_to_delete, (*of_life, limit - steps)))) or (None,)
            if last is not None:
                runs = yield Execute(self._sql.delete_first, (*of_life, last))
        return Deleted(runs=runs, steps=steps)
