"""Runs: what the RunService does, free of its protocol."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from memoryd_server import limits
from memoryd_server.engine import page_tokens, run_changes
from memoryd_server.engine.changes import SessionSettings, StaleRead
from memoryd_server.engine.errors import field_invalid, field_required
from memoryd_server.engine.histories import check_settings, page_size_of
from memoryd_server.engine.incoming import check_agent, check_key, check_text
from memoryd_server.engine.run_access import (
    RunView,
    change_run,
    check_reason,
    check_run,
    check_run_metadata,
    find_run,
    lease_of,
    status_of,
)
from memoryd_server.engine.run_changes import Fence, NewRun, RunUpdate, etag_of, fence_of
from memoryd_server.engine.run_errors import RunKey, no_session, run_ended, run_exists, run_unfinished
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.steadiness import until_steady
from memoryd_server.stores.base import Change, RunName, RunQuery
from memoryd_server.stores.records import Record, RunStatus, SessionKey, StoredRun

_PLANS: Final = 3
"""How often a new run is planned before its id is looked for again: once on a cached record, once on what the store
holds, and once more since an append may come between."""


@dataclass(frozen=True, slots=True)
class Creation:
    """A request for a new run."""

    key: RunKey
    metadata: str = ""
    is_queued: bool = False
    holder: str = ""
    lease: int | None = None
    """Microseconds; None for the default."""
    settings: SessionSettings = SessionSettings()


async def create(runtime: Runtime, request: Creation, *, deadline: float | None = None) -> RunView:
    """Begins a run, and the session if there is none.

    Raises: RequestError (field errors, RUN_EXISTS, TOO_MANY_RUNS, RECORD_TOO_LARGE, CONTENTION), StoreUnavailable.
    """
    key = request.key
    if not key.run_id:
        key = RunKey(key.session, uuid.uuid4().hex)
    check_run(key)
    check_run_metadata("metadata", request.metadata)
    check_text("holder", request.holder, limits.MAX_ID_BYTES)
    lease = lease_of(request.lease)
    check_settings(runtime, "create", request.settings)
    new = NewRun(
        key=key,
        metadata=request.metadata,
        holder=request.holder,
        lease=None if request.is_queued else lease,
        settings=request.settings,
        tokenizer=request.settings.tokenizer or runtime.defaults.tokenizer,
    )

    async def attempt() -> RunView:
        found = await runtime.sessions.load_run(*key)
        if found is not None and found[1] is not None:
            return _begun(new, RunView(key, found[0].incarnation, found[1]))
        plans = 0

        def plan(record: Record | None, _known: object) -> tuple[Change | None, tuple[Record, StoredRun]]:
            nonlocal plans
            plans += 1
            if plans > _PLANS:  # The store refuses it again and again: perhaps since such a run is there by now.
                raise StaleRead
            return run_changes.plan_create(record, new, runtime.clock.now())

        try:
            record, run = await runtime.committer.run(key.session, plan, deadline=deadline, unborn=found is None)
        except StaleRead:
            if found is not None:  # An earlier run of this id may be deleted half way, and shown no more.
                await delete_wholly(runtime, RunName(key.session, found[0].incarnation, key.run_id))
            raise
        return RunView(key, record.incarnation, run)

    return await until_steady(key.session, attempt, deadline)


def _begun(new: NewRun, view: RunView) -> RunView:
    """A run that is there, if it is as the request would have begun it. Raises: RequestError RUN_EXISTS."""
    head, state = view.run.head, view.run.state
    is_queued = state.status is RunStatus.INTERRUPTED
    same = (is_queued, head.metadata, head.holder) == (
        new.lease is None,
        new.metadata,
        "" if new.lease is None else new.holder,
    )
    if state.version == 1 and same:
        return view
    raise run_exists(view.key, state.status)


async def get(runtime: Runtime, key: RunKey) -> RunView:
    """A run. Raises: RequestError (field errors, SESSION_NOT_FOUND, RUN_NOT_FOUND), StoreUnavailable."""
    check_run(key)
    _, view = await find_run(runtime, key)
    return view


async def list_(
    runtime: Runtime,
    tenant: str,
    *,
    session: SessionKey | None = None,
    agent: str = "",
    statuses: Sequence[int] = (),
    page_size: int = 0,
    page_token: str = "",
) -> tuple[Sequence[RunView], str]:
    """A page of the runs of a session or of an agent, newest first, and the token of the next one.

    Raises: RequestError (field errors, PAGE_TOKEN_INVALID, SESSION_NOT_FOUND), StoreUnavailable.
    """
    if session is None:
        check_agent(agent)
    else:
        check_key(session)
        agent = session.agent
    limit = page_size_of(page_size)
    wanted = frozenset(status_of("statuses", status) for status in statuses)
    session_id = None if session is None else session.session_id
    query = ("ListRuns", tenant, agent, session_id, sorted(wanted))
    secret = runtime.info.secret
    after = page_tokens.read(secret, query, page_token, str) if page_token else ""
    page, records = await runtime.sessions.list_runs(RunQuery(tenant, agent, session_id, wanted, limit, after))
    if session is not None and not records and await runtime.sessions.load(session) is None:
        raise no_session(session)
    views = [RunView(RunKey(key, run.id), records[key].incarnation, run) for key, run in page.runs]
    return views, page_tokens.make(secret, query, page.after) if page.after else ""


@dataclass(frozen=True, slots=True)
class Update:
    """A request to change a run; None leaves a value as it is."""

    key: RunKey
    fence: str = ""
    etag: str = ""
    status: int | None = None
    """A value of the protocol's enum `RunStatus`."""
    reason: str | None = None
    metadata: str | None = None


async def update(runtime: Runtime, request: Update, *, deadline: float | None = None) -> RunView:
    """Changes a run, as its holder or by its etag.

    Raises: RequestError (field errors, SESSION_NOT_FOUND, RUN_NOT_FOUND, LEASE_LOST, RUN_ENDED, ETAG_MISMATCH,
    CONTENTION), StoreUnavailable.
    """
    check_run(request.key, "run.key")
    if not request.fence and not request.etag:
        raise field_required("run.etag", "the etag of the run as you read it, or as its holder the fence")
    status = None if request.status is None else status_of("run.status", request.status)
    if status is RunStatus.RUNNING and not request.fence:
        raise field_invalid("run.status", "a run becomes RUNNING by being claimed")
    if request.reason is not None:
        check_reason(request.reason, "run.status_reason")
    if request.metadata is not None:
        check_run_metadata("run.metadata", request.metadata)
    by = Fence.parse(request.fence) if request.fence else request.etag
    return await _update(runtime, request.key, RunUpdate(status, request.reason, request.metadata), by, deadline)


async def _update(runtime: Runtime, key: RunKey, wanted: RunUpdate, by: Fence | str, deadline: float | None) -> RunView:
    async def attempt() -> RunView:
        record, view = await find_run(runtime, key)
        if view.run.state.status.is_final:
            return _updated(record, view, wanted, by)
        run = await change_run(
            runtime,
            key,
            record,
            lambda found: run_changes.plan_update(found, key, view.run, wanted, by, runtime.clock),
            deadline,
        )
        return RunView(key, record.incarnation, run)

    return await until_steady(key.session, attempt, deadline)


def _updated(record: Record, view: RunView, wanted: RunUpdate, by: Fence | str) -> RunView:
    """A run that has ended, if that was the update's doing. Raises: RequestError RUN_ENDED."""
    state = view.run.state
    before = msgspec.structs.replace(state, version=state.version - 1)
    is_own = by in (fence_of(record, state), etag_of(record.incarnation, before))
    if is_own and wanted.status is not None and wanted.is_done(view.run):
        return view
    raise run_ended(view.key, state.status)


async def release(
    runtime: Runtime, key: RunKey, fence: str, reason: str = "", *, deadline: float | None = None
) -> RunView:
    """Gives a run up, for any worker to claim. Raises: as `update`."""
    check_run(key)
    check_reason(reason)
    return await _update(runtime, key, RunUpdate(RunStatus.INTERRUPTED, reason), Fence.parse(fence), deadline)


async def delete(runtime: Runtime, key: RunKey) -> bool:
    """Deletes a run that has ended, with its steps. Returns: whether there was one.

    Raises: RequestError (field errors, RUN_UNFINISHED), StoreUnavailable.
    """
    check_run(key)
    found = await runtime.sessions.load_run(*key)
    if found is None or found[1] is None:
        return False
    record, run = found[0], found[1]
    if not run.state.status.is_final:
        raise run_unfinished(key, run.state.status)
    await delete_wholly(runtime, RunName(key.session, record.incarnation, key.run_id))
    return True


async def delete_wholly(runtime: Runtime, name: RunName) -> int:
    """Deletes a run with its steps, some at a time. Returns: how many rows. Raises: StoreUnavailable."""
    deleted = 0
    while count := await runtime.store.delete_run(name, limits.PURGE_BATCH):
        deleted += count
        await asyncio.sleep(0)  # Appends that wait for the database go first.
    return deleted
