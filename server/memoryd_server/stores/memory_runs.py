"""Runs of the in-memory store: those of one life, and the lists of all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import msgspec
from sortedcontainers import SortedDict, SortedList

from memoryd_server.stores.base import RunChange, RunQuery
from memoryd_server.stores.records import RunStatus, SessionKey, StoredRun, StoredStep

Place = tuple[int, str, str]
"""A time, a session id and a run id."""

_NO_PLACES: Final[SortedList[Place]] = SortedList()
_FIRST: Final = ""


@dataclass(slots=True)
class Runs:
    """The runs of one life of a session."""

    runs: dict[str, StoredRun] = field(default_factory=dict)
    steps: defaultdict[str, SortedDict[int, StoredStep]] = field(default_factory=lambda: defaultdict(SortedDict))
    leaving: set[str] = field(default_factory=set)
    """Runs that are deleted, and of which steps are left."""

    def changed(self, change: RunChange) -> StoredRun:
        """The run after a change."""
        head = change.head or self.runs[change.run_id].head
        return StoredRun(change.run_id, head, change.state)

    def begins_again(self, change: RunChange) -> bool:
        """Whether a change begins a run of whose id one is stored, or steps are left."""
        return change.begins and (change.run_id in self.runs or change.run_id in self.leaving)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.runs) + sum(map(len, self.steps.values()))

    def shorten(self, run_id: str, limit: int) -> int:
        """Takes out up to `limit` steps of a run. Returns: how many."""
        steps = self.steps.get(run_id, SortedDict())
        taken = list(islice(steps, max(0, limit)))
        for number in taken:
            del steps[number]
        if not steps:
            self.steps.pop(run_id, None)
            self.leaving.discard(run_id)
        return len(taken)

    def shorten_all(self, limit: int) -> tuple[int, int]:
        """Takes out up to `limit` runs and steps. Returns: how many of the ones and of the others."""
        steps = 0
        for run_id in list(self.steps):
            steps += self.shorten(run_id, limit - steps)
        runs = list(islice(self.runs, max(0, limit - steps)))
        for run_id in runs:
            del self.runs[run_id]
        return len(runs), steps


class RunLists:
    """Which runs there are in living sessions, in the orders in which they are asked for."""

    def __init__(self) -> None:
        self._lists: defaultdict[tuple[str, ...], SortedList[Place]] = defaultdict(SortedList)

    def add(self, key: SessionKey, run: StoredRun) -> None:
        """A run of a living session began or changed."""
        for name, place in _places(key, run):
            self._lists[name].add(place)

    def remove(self, key: SessionKey, run: StoredRun) -> None:
        """A run is about to change or to go."""
        for name, place in _places(key, run):
            self._lists[name].remove(place)

    def newest(self, query: RunQuery) -> Iterator[Place]:
        """The places of an agent's or a session's runs behind the query's cursor, newest first."""
        agent = (query.tenant, query.agent)
        if query.session_id is not None:
            name: tuple[str, ...] = ("session", *agent, query.session_id)
        elif len(query.statuses) == 1:
            (status,) = query.statuses
            name = ("status", *agent, status.name)
        else:
            name = ("agent", *agent)
        after = parse(query.after) if query.after else None
        return self._lists.get(name, _NO_PLACES).irange(None, after, (True, False), reverse=True)

    def until(self, kind: str, tenant: str, agent: str, before: int, limit: int) -> Sequence[Place]:
        """The first places of `claimable` or `ended` with a time before the given one."""
        places = self._lists.get((kind, tenant, agent), _NO_PLACES)
        return list(islice(places.irange(None, (before, _FIRST, _FIRST), (True, False)), limit))


def spell(place: Place) -> str:
    """A place as the cursor of a page."""
    return msgspec.json.encode(place).decode()


def parse(cursor: str) -> Place:
    """The inverse of `spell`."""
    return msgspec.json.decode(cursor, type=Place)


def _places(key: SessionKey, run: StoredRun) -> Iterator[tuple[tuple[str, ...], Place]]:
    agent = (key.tenant, key.agent)
    state = run.state
    created = (run.head.created, key.session_id, run.id)
    yield ("agent", *agent), created
    yield ("session", *key), created
    yield ("status", *agent, RunStatus(state.status).name), created
    if state.claimable_at is not None:
        yield ("claimable", *agent), (state.claimable_at, key.session_id, run.id)
    if state.ended:
        yield ("ended", *agent), (state.ended, key.session_id, run.id)
