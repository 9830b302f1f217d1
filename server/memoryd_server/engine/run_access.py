"""Runs as they are read, checked and changed, for all that the RunService does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from memoryd_server import limits
from memoryd_server.engine.changes import StaleRead
from memoryd_server.engine.errors import field_invalid, field_too_large
from memoryd_server.engine.incoming import check_key, check_text
from memoryd_server.engine.run_changes import Fence, NotUnfinished, etag_of
from memoryd_server.engine.run_errors import RunKey, no_session, run_not_found
from memoryd_server.engine.runtime import Runtime
from memoryd_server.stores.base import Change
from memoryd_server.stores.records import Record, RunStatus, StoredRun

_SECOND: Final = 1_000_000

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class RunView:
    """A run, with the life of the session that it is of."""

    key: RunKey
    incarnation: str
    run: StoredRun

    @property
    def etag(self) -> str:
        """The mark of its state."""
        return etag_of(self.incarnation, self.run.state)

    @property
    def fence(self) -> str:
        """What its holder proves its claim with; empty when nobody holds it."""
        state = self.run.state
        return str(Fence(state.fence, self.incarnation)) if state.status is RunStatus.RUNNING else ""


async def find_run(runtime: Runtime, key: RunKey) -> tuple[Record, RunView]:
    """The run as it is, with the session's record. Raises: RequestError (SESSION_NOT_FOUND, RUN_NOT_FOUND),
    StoreUnavailable.
    """
    found = await runtime.sessions.load_run(*key)
    if found is None:
        raise no_session(key.session)
    record, run = found
    if run is None:
        raise run_not_found(key)
    return record, RunView(key, record.incarnation, run)


async def change_run(
    runtime: Runtime,
    key: RunKey,
    read: Record,
    plan: Callable[[Record | None], tuple[Change | None, Answer]],
    deadline: float | None,
) -> Answer:
    """Commits a change of a run that was just read with the session's record. Raises: as the plan; StaleRead when the
    run has ended meanwhile.
    """
    runtime.committer.saw(key.session, read)
    try:
        return await runtime.committer.run(key.session, lambda record, _known: plan(record), deadline=deadline)
    except NotUnfinished:
        raise StaleRead from None


def check_run(key: RunKey, field: str = "run") -> None:
    """The name of a run."""
    check_key(key.session, f"{field}.session")
    check_text(f"{field}.run_id", key.run_id, limits.MAX_ID_BYTES, required=True, what="the run's id")


def check_reason(reason: str, field: str = "status_reason") -> None:
    """The reason of a status."""
    size = len(reason.encode())
    if size > limits.MAX_RUN_REASON_BYTES:
        raise field_too_large(field, size, limits.MAX_RUN_REASON_BYTES, "bytes", "keep its end, or its beginning")


def check_run_metadata(field: str, metadata: str) -> None:
    """The metadata of a run."""
    size = len(metadata.encode())
    if size > limits.MAX_METADATA_BYTES:
        raise field_too_large(field, size, limits.MAX_METADATA_BYTES, "bytes", "store a reference")


def lease_of(duration: int | None) -> int:
    """Microseconds of a lease. Raises: RequestError FIELD_INVALID."""
    if duration is None:
        return limits.DEFAULT_RUN_LEASE_SECONDS * _SECOND
    least, most = limits.MIN_RUN_LEASE_SECONDS, limits.MAX_RUN_LEASE_SECONDS
    if not least * _SECOND <= duration <= most * _SECOND:
        raise field_invalid("lease_duration", f"it is {least} to {most:,} seconds, not {duration / _SECOND:g}")
    return duration


def status_of(field: str, status: int) -> RunStatus:
    """The status of a value of the protocol's enum. Raises: RequestError FIELD_INVALID."""
    try:
        return RunStatus(status)
    except ValueError:
        names = ", ".join(each.name for each in RunStatus)
        raise field_invalid(field, f"{status} is not a status; use one of {names}") from None
