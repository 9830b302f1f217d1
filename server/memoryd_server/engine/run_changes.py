"""What happens to runs, as pure functions over a session's record (invariant 15).

The states of a session's unfinished runs live in its record, so that a claim, a step and a renewal are compare-and-sets
like any append. A plan that needs more of a run than its state is given the run as it was read, and raises StaleRead
when its state has changed since.

A lease is held while it surely is not over by the store's clock, and claimed once it surely is: between the two nobody
writes, whatever a server's own clock says.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from memoryd_server import limits
from memoryd_server.engine import changes, replay
from memoryd_server.engine.changes import AppendInput, SessionSettings, StaleRead, active_at, check_etag
from memoryd_server.engine.clock import StoreClock
from memoryd_server.engine.errors import Reason, RequestError, field_invalid, field_required
from memoryd_server.engine.record_tokens import id_token
from memoryd_server.engine.run_errors import (
    RunKey,
    lease_lost,
    no_session,
    run_not_claimable,
    step_mismatch,
    too_many_runs,
)
from memoryd_server.stores.base import Change, RunChange
from memoryd_server.stores.records import (
    Lookup,
    Record,
    RunHead,
    RunLink,
    RunState,
    RunStatus,
    StoredRun,
    StoredStep,
    replace,
)

_FENCE: Final = re.compile(r"([0-9a-f]{16})-([0-9a-f]{32})")


class Fence(NamedTuple):
    """What a holder proves its claim with: of a life of the session, and greater with each claim of any of its runs."""

    number: int
    incarnation: str

    @classmethod
    def parse(cls, text: str) -> Fence:
        """The inverse of `str`. Raises: RequestError (FIELD_REQUIRED, FIELD_INVALID)."""
        if not text:
            raise field_required("fence", "the fence that came with the run when it was created or claimed")
        found = _FENCE.fullmatch(text)
        if found is None:
            raise field_invalid("fence", "it is none that CreateRun or ClaimRun answered")
        return cls(int(found[1], 16), found[2])

    def __str__(self) -> str:
        return f"{self.number:016x}-{self.incarnation}"


def fence_of(record: Record, state: RunState) -> Fence:
    """The fence of a run's last claim."""
    return Fence(state.fence, record.incarnation)


def etag_of(incarnation: str, state: RunState) -> str:
    """The etag of a run (AIP-154); none of an earlier run of its id has the same."""
    return f"{incarnation[:8]}-{state.fence}-{state.version}"


class NotUnfinished(Exception):
    """The record knows of no such unfinished run: it has ended, or there is none. Read it to find out."""


class StepTaken(Exception):
    """The run has a step of that number. Read it to find out whether the call is a repeated one."""


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to begin."""

    key: RunKey
    metadata: str
    holder: str
    lease: int | None
    """Microseconds of the first lease; None for one that is queued."""
    settings: SessionSettings
    tokenizer: str
    """Of the session if this run begins it."""


def plan_create(record: Record | None, new: NewRun, now: int) -> tuple[Change | None, tuple[Record, StoredRun]]:
    """Plans to begin a run of whose id none is stored: its change, and the record and the run then.

    Raises: RequestError (TOO_MANY_RUNS, RECORD_TOO_LARGE); StaleRead when there is such a run by now.
    """
    key, run_id = new.key
    if record is None:
        base = changes.birth(new.settings, new.tokenizer, now)
        changes.check_settings_size(base)
    else:
        base = record
    if _link(base, run_id) is not None:
        raise StaleRead
    if len(base.runs) >= limits.MAX_UNFINISHED_RUNS:
        raise too_many_runs(key, len(base.runs))
    version = base.version + 1
    is_held = new.lease is not None
    state = RunState(
        status=RunStatus.RUNNING if is_held else RunStatus.INTERRUPTED,
        version=1,
        fence=version,
        steps=0,
        updated=now,
        until=now + new.lease if new.lease is not None else 0,
    )
    head = RunHead(now, holder=new.holder if is_held else "", metadata=new.metadata)
    after = replace(base, version=version, runs=(*base.runs, RunLink(id_token(run_id), state)))
    change = Change(key, record, after, changed_runs=(RunChange(run_id, state, head),))
    return change, (after, StoredRun(run_id, head, state))


@dataclass(frozen=True, slots=True)
class NewStep:
    """A step to commit, with the status of its run from then on."""

    key: RunKey
    fence: Fence
    number: int
    payload: bytes
    content_type: str
    append: AppendInput | None
    """The messages that it produced; None for none."""
    status: RunStatus
    reason: str
    lease: int | None
    """Microseconds for which the lease lasts from now on; None leaves its end as it is."""


@dataclass(frozen=True, slots=True)
class CommittedStep:
    """The answer to a step."""

    messages: Sequence[replay.Appended]
    created: int
    incarnation: str
    state: RunState
    """Of its run."""

    @property
    def etag(self) -> str:
        """The mark of that."""
        return etag_of(self.incarnation, self.state)


def plan_step(
    record: Record | None, step: NewStep, run: StoredRun | None, clock: StoreClock, known: Sequence[Lookup]
) -> tuple[Change | None, CommittedStep]:
    """Plans to commit a step: its change, and its answer. `run` is the run as it was read; needed when the status is to
    be another one than RUNNING.

    Raises: RequestError (SESSION_NOT_FOUND, LEASE_LOST, STEP_MISMATCH, MESSAGE_ID_CONFLICT, RECORD_TOO_LARGE);
    NotUnfinished, StepTaken, StaleRead; TokenizerDiffers.
    """
    record, state = _unfinished(record, step.key, step.fence)
    if state.steps >= step.number:
        raise StepTaken
    _check_held(step.key, state, step.fence, clock)
    if step.number != state.steps + 1:
        raise step_mismatch(step.key, step.number, state.steps)
    now = clock.now()
    head = None
    if step.status is not RunStatus.RUNNING:
        head = msgspec.structs.replace(_read(run, state).head, reason=step.reason)
    new = _moved(state, step.status, now, until=state.until if step.lease is None else now + step.lease)
    new = msgspec.structs.replace(new, steps=step.number)
    appended: Sequence[replay.Appended] = ()
    if step.append is None:
        base = replace(record, version=record.version + 1, **active_at(record, now))
        change = Change(step.key.session, record, base)
    else:
        planned, appended = changes.plan_append(step.append, lambda: now, record, known)
        if planned is None or planned.record is None:
            raise RequestError(
                Reason.MESSAGE_ID_CONFLICT,
                f"message id {appended[0].id!r} is known, and not as one of this step; nothing was written: use new "
                "ids for new messages",
                message_id=appended[0].id,
            )
        change, base = planned, planned.record
    stored = StoredStep(
        run_id=step.key.run_id,
        number=step.number,
        payload=step.payload,
        content_type=step.content_type,
        created=now,
        fence=step.fence.number,
        status=step.status,
        first_seq=appended[0].seq if appended else 0,
        messages=len(appended),
    )
    change = dataclasses.replace(
        change,
        record=_with(base, step.key.run_id, new),
        changed_runs=(RunChange(step.key.run_id, new, head),),
        new_steps=(stored,),
    )
    return change, CommittedStep(appended, now, record.incarnation, new)


@dataclass(frozen=True, slots=True)
class RunUpdate:
    """New values of a run; None leaves one as it is."""

    status: RunStatus | None = None
    reason: str | None = None
    metadata: str | None = None

    def of(self, run: StoredRun) -> tuple[RunStatus, RunHead]:
        """What a run then says. A new status has the reason that comes with it, or none."""
        status = run.state.status if self.status is None else self.status
        reason = self.reason if self.reason is not None else "" if status is not run.state.status else run.head.reason
        metadata = run.head.metadata if self.metadata is None else self.metadata
        return status, msgspec.structs.replace(run.head, reason=reason, metadata=metadata)

    def is_done(self, run: StoredRun) -> bool:
        """Whether a run says all of it already."""
        return self.of(run) == (run.state.status, run.head)


def plan_update(
    record: Record | None, key: RunKey, run: StoredRun, update: RunUpdate, by: Fence | str, clock: StoreClock
) -> tuple[Change | None, StoredRun]:
    """Plans to change an unfinished run, read as `run`, with its fence or its etag: the change, and the run then.

    A status that it got under that fence or etag already is no change: a repeated call.

    Raises: RequestError (FIELD_INVALID, SESSION_NOT_FOUND, LEASE_LOST, ETAG_MISMATCH); NotUnfinished, StaleRead.
    """
    if isinstance(by, Fence):
        record, state = _unfinished(record, key, by)
        _read(run, state)
        gave_up = state.fence == by.number and state.status is not RunStatus.RUNNING
        if gave_up and update.status is not None and update.is_done(run):
            return None, run
        _check_held(key, state, by, clock)
    else:
        record, state = _unfinished(record, key, None)
        _read(run, state)
        before = msgspec.structs.replace(state, version=state.version - 1)
        if by == etag_of(record.incarnation, before) and update.is_done(run):
            return None, run
        check_etag(by, etag_of(record.incarnation, state))
    if update.is_done(run):
        return None, run
    status, head = update.of(run)
    if status is RunStatus.RUNNING and head.reason:
        raise field_invalid("run.status_reason", "a run that is RUNNING has no reason: leave it out")
    return _changing(record, key, _moved(state, status, clock.now(), until=state.until), head)


def plan_claim(
    record: Record | None,
    key: RunKey,
    run: StoredRun,
    holder: str,
    lease: int,
    request_id: str,
    most_recoveries: int,
    clock: StoreClock,
    *,
    queued_only: bool,
) -> tuple[Change | None, tuple[Record, StoredRun]]:
    """Plans to claim a run, read as `run`: its change, and the record and the run then. An orphan that was recovered
    often enough ends FAILED instead. `queued_only`: whether what waits for something is left alone.

    Raises: RequestError (SESSION_NOT_FOUND, RUN_NOT_CLAIMABLE); NotUnfinished, StaleRead.
    """
    record, state = _unfinished(record, key, None)
    _read(run, state)
    now = clock.now()
    is_orphan = state.status is RunStatus.RUNNING
    if is_orphan and state.until > clock.surely():
        if request_id and run.head.claim == request_id and _is_held(state, fence_of(record, state), clock):
            return None, (record, run)
        raise run_not_claimable(key, run, now)
    if queued_only and state.claimable_at is None:
        raise run_not_claimable(key, run, now)
    head = msgspec.structs.replace(run.head, holder=holder, reason="", claim=request_id)
    new = _moved(state, RunStatus.RUNNING, now, until=now + lease)
    if is_orphan and state.recoveries >= most_recoveries:
        times = "once" if most_recoveries == 1 else f"{most_recoveries} times"
        reason = f"its workers stopped without a word: it was recovered {times}, and its lease was over again"
        head = msgspec.structs.replace(run.head, reason=reason)
        new = _moved(state, RunStatus.FAILED, now)
    else:
        recoveries = state.recoveries + is_orphan
        new = msgspec.structs.replace(new, fence=record.version + 1, recoveries=recoveries)
    change, claimed = _changing(record, key, new, head)
    assert change.record is not None
    return change, (change.record, claimed)


def plan_renew(
    record: Record | None, key: RunKey, fence: Fence, lease: int, clock: StoreClock
) -> tuple[Change | None, int]:
    """Plans to put off the end of a lease: its change, and when the lease is over then.

    Raises: RequestError (SESSION_NOT_FOUND, LEASE_LOST); NotUnfinished.
    """
    record, state = _unfinished(record, key, fence)
    _check_held(key, state, fence, clock)
    until = clock.now() + lease
    new = msgspec.structs.replace(state, version=state.version + 1, until=until)
    after = _with(replace(record, version=record.version + 1), key.run_id, new)
    return Change(key.session, record, after, changed_runs=(RunChange(key.run_id, new, None),)), until


def plan_abandon(
    record: Record | None, key: RunKey, run: StoredRun, before: int, clock: StoreClock
) -> tuple[Change | None, bool]:
    """Plans to end a run, read as `run`, that nobody has claimed or changed since `before`: its change, and whether it
    ends.

    Raises: StaleRead.
    """
    link = None if record is None else _link(record, key.run_id)
    if record is None or link is None:
        return None, False
    state = link.state
    _read(run, state)
    if state.updated >= before or (state.status is RunStatus.RUNNING and state.until > clock.surely()):
        return None, False
    days = limits.RUN_ABANDON_SECONDS // (24 * 3600)
    head = msgspec.structs.replace(run.head, reason=f"nobody claimed it for {days} days")
    change, _ = _changing(record, key, _moved(state, RunStatus.ABANDONED, clock.now()), head)
    return change, True


def _changing(record: Record, key: RunKey, state: RunState, head: RunHead) -> tuple[Change, StoredRun]:
    """The change that gives a run a new state and head, and the run then."""
    times: dict[str, Any] = active_at(record, state.updated) if state.status.is_final else {}
    after = _with(replace(record, version=record.version + 1, **times), key.run_id, state)
    change = Change(key.session, record, after, changed_runs=(RunChange(key.run_id, state, head),))
    return change, StoredRun(key.run_id, head, state)


def _moved(state: RunState, status: RunStatus, now: int, *, until: int = 0) -> RunState:
    """The state with a status, under which alone RUNNING has a lease."""
    return msgspec.structs.replace(
        state,
        status=status,
        version=state.version + 1,
        updated=now,
        until=until if status is RunStatus.RUNNING else 0,
        ended=now if status.is_final else 0,
    )


def _with(record: Record, run_id: str, state: RunState) -> Record:
    """The record with the new state of an unfinished run, which it no longer knows once that has ended."""
    token = id_token(run_id)
    runs = tuple(RunLink(token, state) if link.token == token else link for link in record.runs)
    if state.status.is_final:
        runs = tuple(link for link in runs if link.token != token)
    return replace(record, runs=runs)


def _link(record: Record, run_id: str) -> RunLink | None:
    token = id_token(run_id)
    return next((link for link in record.runs if link.token == token), None)


def _unfinished(record: Record | None, key: RunKey, fence: Fence | None) -> tuple[Record, RunState]:
    """The session's record and the state of its unfinished run.

    Raises: RequestError (SESSION_NOT_FOUND; LEASE_LOST for a fence of another life); NotUnfinished.
    """
    if record is None:
        raise no_session(key.session)
    if fence is not None and fence.incarnation != record.incarnation:
        raise lease_lost(key, "the session is another by now")
    link = _link(record, key.run_id)
    if link is None:
        raise NotUnfinished
    return record, link.state


def _read(run: StoredRun | None, state: RunState) -> StoredRun:
    """The run as it was read, if that is how it still is. Raises: StaleRead."""
    if run is None or (run.state.fence, run.state.version) != (state.fence, state.version):
        raise StaleRead
    return run


def _is_held(state: RunState, fence: Fence, clock: StoreClock) -> bool:
    has_claim = state.status is RunStatus.RUNNING and state.fence == fence.number
    return has_claim and clock.perhaps() < state.until


def _check_held(key: RunKey, state: RunState, fence: Fence, clock: StoreClock) -> None:
    """Raises: RequestError LEASE_LOST."""
    if _is_held(state, fence, clock):
        return
    if state.fence != fence.number:
        why = "another worker claimed it"
    elif state.status is RunStatus.RUNNING:
        why = "the lease is over, since it was not renewed in time"
    else:
        why = f"the lease was given back when the run became {state.status.name}"
    raise lease_lost(key, why)
