"""The errors of runs."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from memoryd_server import limits
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.stores.records import RunStatus, SessionKey, StoredRun

_SECOND: Final = 1_000_000


class RunKey(NamedTuple):
    """The name of a run."""

    session: SessionKey
    run_id: str


def lease_lost(key: RunKey, why: str) -> RequestError:
    """FAILED_PRECONDITION: the caller does not hold the run."""
    return RequestError(
        Reason.LEASE_LOST,
        f"run {key.run_id!r} is not held any more: {why}; nothing was written: stop working at it, or claim it again",
        **_names(key),
    )


def run_ended(key: RunKey, status: RunStatus) -> RequestError:
    """FAILED_PRECONDITION: the run never changes again."""
    return RequestError(
        Reason.RUN_ENDED,
        f"run {key.run_id!r} has ended {status.name}, and never changes again; nothing was written: begin another run",
        **_names(key),
        status=status.name,
    )


def step_mismatch(key: RunKey, number: int, steps: int, why: str = "") -> RequestError:
    """ABORTED: the step is not the next one."""
    why = why or f"the next step of the run is {steps + 1}"
    return RequestError(
        Reason.STEP_MISMATCH,
        f"step {number} of run {key.run_id!r} cannot be committed: {why}; nothing was written: read the steps, and go "
        "on behind the last",
        **_names(key),
        number=number,
        step_count=steps,
    )


def no_session(session: SessionKey) -> RequestError:
    """NOT_FOUND: the session does not exist for this caller, and so has no runs."""
    return RequestError(
        Reason.SESSION_NOT_FOUND,
        f"agent {session.agent!r} has no session {session.session_id!r}, and so no run of it: it never began, has "
        "expired, or was erased",
        agent=session.agent,
        session_id=session.session_id,
    )


def run_not_found(key: RunKey) -> RequestError:
    """NOT_FOUND: the session has no such run."""
    session = key.session
    return RequestError(
        Reason.RUN_NOT_FOUND,
        f"session {session.session_id!r} of agent {session.agent!r} has no run {key.run_id!r}: it was never created, "
        "or is deleted: by somebody, or since its retention is over",
        **_names(key),
    )


def run_not_claimable(key: RunKey, run: StoredRun, now: int) -> RequestError:
    """FAILED_PRECONDITION: another worker holds the run, or it waits for something."""
    state = run.state
    by = f" by {run.head.holder!r}" if run.head.holder else ""
    if state.status is not RunStatus.RUNNING:
        return RequestError(
            Reason.RUN_NOT_CLAIMABLE,
            f"run {key.run_id!r} is {state.status.name}: claim it by its name once it may go on",
            **_names(key),
            holder="",
        )
    seconds = max(1.0, (state.until - now) / _SECOND)
    return RequestError(
        Reason.RUN_NOT_CLAIMABLE,
        f"run {key.run_id!r} is held{by} for {seconds:.0f} s more unless the lease is renewed: try again then",
        retry_after=seconds,
        **_names(key),
        holder=run.head.holder,
    )


def _names(key: RunKey) -> dict[str, Any]:
    return {"agent": key.session.agent, "session_id": key.session.session_id, "run_id": key.run_id}


def too_many_runs(session: SessionKey, runs: int) -> RequestError:
    """RESOURCE_EXHAUSTED: the session has as many unfinished runs as it may."""
    return RequestError(
        Reason.TOO_MANY_RUNS,
        f"session {session.session_id!r} of agent {session.agent!r} has {runs} unfinished runs, the most that it may "
        "have: end some of them, or use another session",
        agent=session.agent,
        session_id=session.session_id,
        limit=limits.MAX_UNFINISHED_RUNS,
    )


def run_exists(key: RunKey, status: RunStatus) -> RequestError:
    """ALREADY_EXISTS: the session has another run of the id."""
    return RequestError(
        Reason.RUN_EXISTS,
        f"session {key.session.session_id!r} of agent {key.session.agent!r} has another run {key.run_id!r}, "
        f"{status.name}: use a new id, or claim that run to go on with it",
        **_names(key),
    )


def run_unfinished(key: RunKey, status: RunStatus) -> RequestError:
    """FAILED_PRECONDITION: only a run that has ended is deleted."""
    return RequestError(
        Reason.RUN_UNFINISHED,
        f"run {key.run_id!r} is {status.name}: set a status that ends it first, such as CANCELLED",
        **_names(key),
        status=status.name,
    )
