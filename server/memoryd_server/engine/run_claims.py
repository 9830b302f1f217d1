"""Claims of runs, and their leases."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from memoryd_server import limits
from memoryd_server.engine import run_changes
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.incoming import check_agent, check_text
from memoryd_server.engine.run_access import RunView, change_run, check_run, find_run, lease_of
from memoryd_server.engine.run_changes import Fence, NotUnfinished
from memoryd_server.engine.run_errors import RunKey, run_ended
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.steadiness import until_steady
from memoryd_server.stores.base import ClaimableRun
from memoryd_server.stores.records import Record

_log = logging.getLogger(__name__)

_CANDIDATES: Final = 32
"""Claimable runs of an agent that are looked at when another worker took the first of them."""
_ROUNDS: Final = 4
"""How often a call looks for others when all of so many were taken."""
_OTHERS_WERE_FASTER: Final = frozenset(
    {
        Reason.RUN_NOT_CLAIMABLE,
        Reason.RUN_ENDED,
        Reason.RUN_NOT_FOUND,
        Reason.SESSION_NOT_FOUND,
        Reason.CONTENTION,
    }
)


@dataclass(frozen=True, slots=True)
class Claim:
    """How a run is claimed."""

    holder: str = ""
    lease: int | None = None
    """Microseconds; None for the default."""
    request_id: str = ""


async def claim(
    runtime: Runtime,
    tenant: str,
    how: Claim,
    *,
    key: RunKey | None = None,
    agent: str = "",
    deadline: float | None = None,
) -> RunView | None:
    """Claims a run by its name, or any claimable run of an agent, the longest waiting first.

    Returns: None when the agent has none to claim.
    Raises: RequestError (field errors; of a name SESSION_NOT_FOUND, RUN_NOT_FOUND, RUN_NOT_CLAIMABLE, RUN_ENDED,
    CONTENTION), StoreUnavailable.
    """
    check_text("holder", how.holder, limits.MAX_ID_BYTES)
    check_text("request_id", how.request_id, limits.MAX_ID_BYTES)
    lease_of(how.lease)
    if key is None:
        check_agent(agent)
        return await _claim_any(runtime, tenant, agent, how, deadline)
    check_run(key)
    view = await _claim(runtime, key, how, deadline)
    if view.run.state.status.is_final:  # It was recovered too often.
        raise run_ended(key, view.run.state.status)
    return view


async def _claim_any(runtime: Runtime, tenant: str, agent: str, how: Claim, deadline: float | None) -> RunView | None:
    ahead = runtime.claimable_runs.of(tenant, agent)

    async def read(limit: int) -> Sequence[ClaimableRun]:
        return await runtime.store.load_claimable(tenant, agent, runtime.clock.surely() + 1, limit)

    # Mostly nobody else is after the next one, and it can be read. What was read ahead may be taken: then the first is
    # read anew.
    try:
        is_ahead = True
        while is_ahead:
            found = await ahead.take(read)
            if found is None:
                return None
            (session, record, run), is_ahead = found
            if runtime.sessions.sees(record):
                key = RunKey(session, run.id)
                view = await _try_to_claim(runtime, key, how, deadline, (record, RunView(key, record.incarnation, run)))
                if view is not None:
                    return view
            if is_ahead:
                ahead.came_too_late()
    except msgspec.DecodeError:
        _unreadable(runtime, tenant, agent)
    for _ in range(_ROUNDS):
        names = await runtime.store.list_claimable(tenant, agent, runtime.clock.surely() + 1, _CANDIDATES)
        # Where others look at the same list, whoever came too late for its first goes on anywhere.
        for name in random.sample(names, len(names)):
            view = await _try_to_claim(runtime, RunKey(name.key, name.run_id), how, deadline)
            if view is not None:
                return view
        if len(names) < _CANDIDATES:
            break
    return None


async def _try_to_claim(
    runtime: Runtime, key: RunKey, how: Claim, deadline: float | None, found: tuple[Record, RunView] | None = None
) -> RunView | None:
    """The run, if nobody else was faster, and it can be read."""
    try:
        view = await _claim(runtime, key, how, deadline, found, queued_only=True)
    except RequestError as error:
        if error.reason in _OTHERS_WERE_FASTER:
            return None
        raise
    except msgspec.DecodeError:
        _unreadable(runtime, key.session.tenant, key.session.agent)
        return None
    return None if view.run.state.status.is_final else view


def _unreadable(runtime: Runtime, tenant: str, agent: str) -> None:
    """Tells of what must not keep workers from the agent's other runs."""
    _log.exception(
        "a run of agent %r of tenant %r in store %s, or its session, is damaged; others are claimed",
        *(agent, tenant, runtime.name),
    )


async def _claim(
    runtime: Runtime,
    key: RunKey,
    how: Claim,
    deadline: float | None,
    found: tuple[Record, RunView] | None = None,
    *,
    queued_only: bool = False,
) -> RunView:
    """`found`: the run as it was just read, which spares the first attempt the read."""
    most, lease = runtime.defaults.run_recoveries, lease_of(how.lease)

    async def attempt() -> RunView:
        nonlocal found
        (record, view), found = found or await find_run(runtime, key), None
        if view.run.state.status.is_final:
            raise run_ended(key, view.run.state.status)
        after, run = await change_run(
            runtime,
            key,
            record,
            lambda current: run_changes.plan_claim(
                current, key, view.run, how.holder, lease, how.request_id, most, runtime.clock, queued_only=queued_only
            ),
            deadline,
        )
        return RunView(key, after.incarnation, run)

    return await until_steady(key.session, attempt, deadline)


async def renew(
    runtime: Runtime, key: RunKey, fence: str, lease: int | None = None, *, deadline: float | None = None
) -> int:
    """Puts off the end of a lease.

    Returns: when it is over then, by the store's clock.
    Raises: RequestError (field errors, SESSION_NOT_FOUND, RUN_NOT_FOUND, LEASE_LOST, RUN_ENDED, CONTENTION),
    StoreUnavailable.
    """
    check_run(key)
    by, duration = Fence.parse(fence), lease_of(lease)
    try:
        return await runtime.committer.run(
            key.session,
            lambda record, _known: run_changes.plan_renew(record, key, by, duration, runtime.clock),
            deadline=deadline,
        )
    except NotUnfinished:
        _, view = await find_run(runtime, key)
        raise run_ended(key, view.run.state.status) from None
