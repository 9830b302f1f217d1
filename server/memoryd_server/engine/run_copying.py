"""Copies the runs of a session with their steps from a store into another: as they are, unfinished ones included, but
for who holds them (`copied_versions`).

Runs come behind the messages of their steps, in commits of bounded size. An ended one may be there in part meanwhile.
Nobody may take up an unfinished one before it is whole, or its last steps would be done twice: until then the copy
itself holds it, for ever. So it stays as it is when the copy is interrupted, and a repeated copy completes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from memoryd_server import limits
from memoryd_server.engine.changes import StaleRead
from memoryd_server.engine.copied_versions import (
    as_copied,
    descends,
    idle_fence,
    is_same_state,
    next_version,
    was_claimed_there,
)
from memoryd_server.engine.copy_differences import Differs, changed_there
from memoryd_server.engine.pacing import patiently
from memoryd_server.engine.record_tokens import id_token
from memoryd_server.engine.run_pages import list_runs, list_steps
from memoryd_server.engine.run_sweeping import UNFINISHED
from memoryd_server.engine.runs import delete_wholly
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.staging import SourceChanged
from memoryd_server.stores.base import Change, RunChange, RunName, RunQuery, RunStore
from memoryd_server.stores.records import (
    Lookup,
    Record,
    RunHead,
    RunLink,
    RunState,
    RunStatus,
    SessionKey,
    StoredRun,
    StoredStep,
    encode_run_head,
    replace,
)

BATCH_BYTES: Final = 1 << 20
"""Bytes of the steps and heads of one commit, but always one step: many sessions are copied at once in bounded memory.
"""

BATCH_ROWS: Final = 256
"""Runs and steps of one commit."""

HOLDER: Final = "memoryd copy"
"""Who is said to hold a run that is not whole yet."""

FOR_EVER: Final = 253_370_764_800_000_000
"""When that lease is over, in microseconds: the last year that a timestamp of the protocol can tell begins then, in
every zone."""

_PLANS: Final = 3
"""How often a commit of runs that begin is planned before it is looked for what stands in their way."""


class ListedRun(NamedTuple):
    """What is kept of a run that was listed, without its head."""

    id: str
    created: int
    state: RunState


class AgentsWithRuns:
    """Which agents have runs, so that the sessions of the others need not be asked for theirs."""

    def __init__(self, *stores: RunStore) -> None:
        self._stores = stores
        self._known: dict[tuple[str, str], bool] = {}

    def forget(self) -> None:
        """Others may have begun runs since."""
        self._known.clear()

    async def has(self, key: SessionKey) -> bool:
        """Whether a session's agent has runs in one of the stores, or had none when it was asked about. Raises:
        StoreUnavailable.
        """
        agent = (key.tenant, key.agent)
        if agent not in self._known:
            pages = [await store.list_runs(RunQuery(*agent, None, frozenset(), 1)) for store in self._stores]
            self._known[agent] = any(page.runs for page in pages)
        return self._known[agent]


@dataclass(frozen=True, slots=True)
class Survey:
    """How the runs of a copied session differ from the source's."""

    wanted: Sequence[tuple[str, ListedRun | None]] = ()
    """The ids of runs that the target lacks, or has an earlier state of, oldest first."""
    dropped: Sequence[ListedRun] = ()
    """Runs of the target that the source has deleted since."""

    @property
    def finds_nothing(self) -> bool:
        """Whether all are the same."""
        return not self.wanted and not self.dropped


@dataclass(slots=True)
class _Batch:
    """What one commit brings."""

    changes: dict[str, RunChange] = field(default_factory=dict)
    steps: list[StoredStep] = field(default_factory=list)
    bytes: int = 0

    def has_room_for(self, steps: Sequence[StoredStep]) -> bool:
        rows = len(self.changes) + len(self.steps) + len(steps)
        return not self.changes or (self.bytes + _size_of(steps) <= BATCH_BYTES and rows < BATCH_ROWS)

    def put(
        self, run_id: str, state: RunState, head: RunHead | None, steps: Sequence[StoredStep] = (), *, begins: bool
    ) -> None:
        before = self.changes.get(run_id)
        begins = begins if before is None else before.begins
        head = head or (before.head if before is not None else None)
        self.changes[run_id] = RunChange(run_id, state, head, is_first=begins)
        self.steps += steps
        self.bytes += _size_of(steps) + (len(encode_run_head(head)) if head else 0)


class RunCopier:
    """Copies the runs of sessions between two stores."""

    def __init__(self, source: Runtime, target: Runtime, *, written: Callable[[SessionKey, int], None]) -> None:
        """`written` is told of steps of a session that were stored in the target."""
        self._source = source
        self._target = target
        self._written = written

    async def arriving(self, key: SessionKey, source: Record) -> Sequence[tuple[RunLink, RunChange]]:
        """The unfinished runs of the source's session, for the birth of its copy: none of their steps is there yet, but
        with them the copy does not expire.

        Raises: SourceChanged when one is not as the record says; StoreUnavailable.
        """
        if not source.runs:
            return ()
        query = RunQuery(*key, UNFINISHED, limits.MAX_UNFINISHED_RUNS)
        runs = {id_token(run.id): run for _, run in (await self._source.store.list_runs(query)).runs}
        if any(link.token not in runs or runs[link.token].state != link.state for link in source.runs):
            raise SourceChanged
        arriving = []
        for link in source.runs:
            run = runs[link.token]
            state = _in_part(source, run, None, 0)
            change = RunChange(run.id, state, _head_in_part(run), is_first=True)
            arriving.append((RunLink(link.token, state), change))
        return arriving

    async def survey(self, key: SessionKey, source: Record, copy: Record, *, is_new: bool) -> Survey:
        """Compares the runs of a session by their states alone. `is_new`: whether the copy was just born.

        Raises: Differs when the target's are not an earlier state of the source's; SourceChanged, StoreUnavailable.
        """
        here = await _listed(self._source.store, key)
        if not here and is_new and not copy.runs:
            return Survey()
        there = {run.id: run for run in await _listed(self._target.store, key)}
        wanted: list[tuple[str, ListedRun | None]] = []
        dropped: list[ListedRun] = []
        for run in reversed(here):
            known = there.pop(run.id, None)
            if known is not None and known.created != run.created:
                dropped.append(known)
                known = None
            if known is None:
                wanted.append((run.id, None))
            elif not is_same_state(known.state, run.state):
                await self._check_earlier(key, source, copy, run, known)
                wanted.append((run.id, known))
        dropped += there.values()
        for run in dropped:
            if was_claimed_there(source, copy, run.state):
                raise changed_there(copy)
            if not descends(source, copy):
                raise Differs(
                    f"the source has no such run as the target's {run.id!r}",
                    "if it was deleted there since it was copied, delete it in the target, too",
                )
        return Survey(wanted, dropped)

    async def bring(self, key: SessionKey, source: Record, copy: Record, survey: Survey) -> Record:
        """Has the copy hold the runs of the source's session, whose messages it has. Returns: the copy's new record.

        Raises: SourceChanged, StaleRead, StoreUnavailable; RequestError CONTENTION.
        """
        if survey.dropped:
            copy = await self._drop(key, source, copy, survey.dropped)
        batch = _Batch()
        for run_id, known in survey.wanted:
            run = await self._read(key, source, run_id)
            is_stored, done = known is not None, 0 if known is None else known.state.steps
            pages = list_steps(self._source.store, key, source.incarnation, run, after=done, most_bytes=BATCH_BYTES)
            async for steps in pages:
                if any(step.first_seq + step.messages > source.last_seq + 1 for step in steps):
                    raise SourceChanged
                if not batch.has_room_for(steps):
                    copy = await self._commit(key, source, copy, batch)
                    is_stored |= run_id in batch.changes
                    batch = _Batch()
                done = steps[-1].number
                head = None if is_stored else _head_in_part(run)
                batch.put(run_id, _in_part(source, run, known, done), head, steps, begins=not is_stored)
            if run_id not in batch.changes and not batch.has_room_for(()):
                copy = await self._commit(key, source, copy, batch)
                batch = _Batch()
            batch.put(run_id, as_copied(source, run.state), run.head, begins=not is_stored)
        if batch.changes:
            copy = await self._commit(key, source, copy, batch)
        return copy

    async def _read(self, key: SessionKey, source: Record, run_id: str) -> StoredRun:
        """A run of the source as it was when its session's record was `source`. Raises: SourceChanged."""
        found = await self._source.sessions.load_run(key, run_id)
        if found is None or found[0].incarnation != source.incarnation or found[1] is None:
            raise SourceChanged
        state, token = found[1].state, id_token(run_id)
        unfinished = next((link.state for link in source.runs if link.token == token), None)
        if unfinished != (None if state.status.is_final else state):
            raise SourceChanged
        return found[1]

    async def _check_earlier(
        self, key: SessionKey, source: Record, copy: Record, run: ListedRun, known: ListedRun
    ) -> None:
        """Raises: Differs unless `known` is an earlier state of the source's run, or a part of it; SourceChanged."""
        state, now = known.state, run.state
        is_arriving = state.status is RunStatus.RUNNING and state.until == FOR_EVER
        is_part = is_arriving or state == msgspec.structs.replace(now, steps=state.steps)
        is_earlier = state.version < now.version and not state.status.is_final
        if state.steps > now.steps or not (is_part or is_earlier) or was_claimed_there(source, copy, state):
            raise changed_there(copy)
        if not state.steps:
            return
        last = [
            await runtime.store.list_steps(key, source.incarnation, run.id, state.steps - 1, 1, limits.MAX_STEP_BYTES)
            for runtime in (self._source, self._target)
        ]
        if None in last:
            raise SourceChanged
        here, there = (page.steps for page in last if page is not None)
        if here != there:
            raise changed_there(copy)

    async def _drop(self, key: SessionKey, source: Record, copy: Record, dropped: Sequence[ListedRun]) -> Record:
        """Deletes runs of the copy that the source has deleted."""
        loaded = await self._source.sessions.load(key)
        if loaded is None or loaded.record.incarnation != source.incarnation:
            raise SourceChanged
        batch = _Batch()
        now = self._target.clock.now()
        for run in dropped:
            if not run.state.status.is_final:
                version = run.state.version + 1
                ended = RunState(RunStatus.CANCELLED, version, run.state.fence, run.state.steps, now, ended=now)
                batch.put(run.id, ended, None, begins=False)
        if batch.changes:
            copy = await self._commit(key, source, copy, batch)
        for run in dropped:
            await delete_wholly(self._target, RunName(key, copy.incarnation, run.id))
        return copy

    async def _commit(self, key: SessionKey, source: Record, copy: Record, batch: _Batch) -> Record:
        """Commits runs and steps. Returns: the copy's new record. Raises: StaleRead when others changed the copy."""
        plans = 0

        def plan(current: Record | None, _known: Sequence[Lookup]) -> tuple[Change, Record]:
            nonlocal plans
            plans += 1
            if current is None or (current.incarnation, current.version) != (copy.incarnation, copy.version):
                raise StaleRead
            if plans > _PLANS:
                raise _InTheWay
            new = replace(
                current,
                version=next_version(source, copy),
                runs=_links(source, copy.runs, batch.changes.values()),
                # As when the last of its runs ended.
                activity=source.activity,
                appended=source.appended,
            )
            return Change(key, current, new, changed_runs=[*batch.changes.values()], new_steps=batch.steps), new

        committer = self._target.committer
        committer.records.put(key, copy)
        try:
            grown = await patiently(lambda: committer.run(key, plan, weight=batch.bytes, expired_too=True))
        except _InTheWay:
            for change in batch.changes.values():  # Of its id one may be deleted half way.
                if change.begins:
                    await delete_wholly(self._target, RunName(key, copy.incarnation, change.run_id))
            raise StaleRead from None
        self._written(key, len(batch.steps))
        return grown


class _InTheWay(Exception):
    """The store refuses runs although the session is as it was."""


async def _listed(store: RunStore, key: SessionKey) -> list[ListedRun]:
    return [ListedRun(run.id, run.head.created, run.state) async for page in list_runs(store, key) for run in page]


def _in_part(source: Record, run: StoredRun, known: ListedRun | None, steps: int) -> RunState:
    """The state of a run of which the copy has so many steps yet. `known`: what it had of it before."""
    state = run.state
    if state.status.is_final and (known is None or known.state.status.is_final):
        return msgspec.structs.replace(state, steps=steps)
    version = 1 if known is None else known.state.version
    return RunState(RunStatus.RUNNING, version, idle_fence(source), steps, state.updated, FOR_EVER, state.recoveries)


def _head_in_part(run: StoredRun) -> RunHead:
    """The head of a run of which the copy has not all steps yet."""
    return run.head if run.state.status.is_final else RunHead(run.head.created, HOLDER)


def _links(source: Record, before: Iterable[RunLink], changes: Iterable[RunChange]) -> tuple[RunLink, ...]:
    """The unfinished runs of a copy after some changes, in the order that the source has them in."""
    links = {link.token: link for link in before}
    for change in changes:
        token = id_token(change.run_id)
        if change.state.status.is_final:
            links.pop(token, None)
        else:
            links[token] = RunLink(token, change.state)
    places = {link.token: place for place, link in enumerate(source.runs)}
    return tuple(sorted(links.values(), key=lambda link: places.get(link.token, len(places))))


def _size_of(steps: Iterable[StoredStep]) -> int:
    return sum(len(step.payload) for step in steps)
