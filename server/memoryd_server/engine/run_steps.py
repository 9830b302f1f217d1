"""Steps of runs: committed with their messages and the run's status at once, and listed."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from memoryd_server import limits
from memoryd_server.engine import histories, page_tokens, replay, run_changes
from memoryd_server.engine.changes import AppendInput, StaleRead
from memoryd_server.engine.content import encode_content
from memoryd_server.engine.errors import Reason, RequestError, field_invalid, field_too_large
from memoryd_server.engine.histories import Append, page_size_of
from memoryd_server.engine.incoming import IncomingMessage, check_batch, check_text
from memoryd_server.engine.recognizing import recognizing
from memoryd_server.engine.run_access import check_reason, check_run, find_run, lease_of, status_of
from memoryd_server.engine.run_changes import CommittedStep, Fence, NewStep, NotUnfinished, StepTaken
from memoryd_server.engine.run_errors import RunKey, lease_lost, run_ended, run_not_found, step_mismatch
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.steadiness import until_steady
from memoryd_server.stores.records import Lookup, LookupKind, RunStatus, StoredRun, StoredStep


@dataclass(frozen=True, slots=True)
class StepCommit:
    """A request to commit a step."""

    key: RunKey
    fence: str
    number: int
    payload: bytes = b""
    content_type: str = ""
    messages: Sequence[IncomingMessage] = ()
    status: int = 0
    """A value of the protocol's enum `RunStatus`; 0 leaves it RUNNING."""
    reason: str = ""
    lease: int | None = None
    """Microseconds; None leaves the lease's end as it is."""


async def commit(runtime: Runtime, request: StepCommit, *, deadline: float | None = None) -> CommittedStep:
    """Commits a step, its messages and its run's status at once.

    Raises: RequestError (field errors, SESSION_NOT_FOUND, RUN_NOT_FOUND, LEASE_LOST, RUN_ENDED, STEP_MISMATCH,
    MESSAGE_ID_CONFLICT, RECORD_TOO_LARGE, CONTENTION), StoreUnavailable.
    """
    check_run(request.key)
    fence = Fence.parse(request.fence)
    if request.number < 1:
        raise field_invalid("number", "a step's number is 1 or more: one more than the run has steps")
    if len(request.payload) > limits.MAX_STEP_BYTES:
        raise field_too_large(
            "payload", len(request.payload), limits.MAX_STEP_BYTES, "bytes", "keep it elsewhere, and commit its place"
        )
    check_text("content_type", request.content_type, limits.MAX_CONTENT_TYPE_BYTES)
    status = status_of("status", request.status) if request.status else RunStatus.RUNNING
    check_reason(request.reason)
    if request.reason and status is RunStatus.RUNNING:
        raise field_invalid("status_reason", "a step that leaves the run RUNNING has no reason: leave it out")
    lease = None if request.lease is None else lease_of(request.lease)
    messages = [_of_step(runtime, request, index, message) for index, message in enumerate(request.messages)]
    if messages:
        check_batch(messages, "step")
    append = Append(request.key.session, messages)
    step = NewStep(
        key=request.key,
        fence=fence,
        number=request.number,
        payload=request.payload,
        content_type=request.content_type,
        append=None,
        status=status,
        reason=request.reason,
        lease=lease,
    )

    async def attempt() -> CommittedStep:
        run = None
        if status is not RunStatus.RUNNING:
            run = (await find_run(runtime, request.key))[1].run
        try:
            return await recognizing(runtime, partial(_commit, runtime, step, append, run, deadline))
        except (NotUnfinished, StepTaken):
            return await _committed(runtime, step, append)

    return await until_steady(request.key.session, attempt, deadline)


def _of_step(runtime: Runtime, request: StepCommit, index: int, message: IncomingMessage) -> IncomingMessage:
    """A message as one of the step, with an id: a repeated call makes the same one."""
    run_id = request.key.run_id
    if message.run_id not in ("", run_id):
        raise field_invalid(f"messages[{index}].run_id", f"it is another one than the step's run, {run_id!r}")
    named = (*request.key.session, run_id, request.fence, request.number, index)
    made = replay.request_digests((runtime.info.secret,), named)[0].hex()
    return msgspec.structs.replace(message, run_id=run_id, id=message.id or made)


async def _commit(
    runtime: Runtime,
    step: NewStep,
    append: Append,
    run: StoredRun | None,
    deadline: float | None,
    secrets: replay.Secrets,
) -> CommittedStep:
    ids = [message.id for message in append.messages]

    async def commit_prepared(wanted: AppendInput | None) -> CommittedStep:
        new = dataclasses.replace(step, append=wanted)
        return await runtime.committer.run(
            step.key.session,
            lambda record, known: run_changes.plan_step(record, new, run, runtime.clock, known),
            weight=len(step.payload) + append.weight,
            ids=[(LookupKind.MESSAGE, id_) for id_ in ids],
            deadline=deadline,
        )

    if not append.messages:
        return await commit_prepared(None)
    return await histories.with_prepared(runtime, append, ids, secrets, commit_prepared)


async def _committed(runtime: Runtime, step: NewStep, append: Append) -> CommittedStep:
    """The answer to a step that may be there already: the first one, if it is the same step of the same claim.

    Raises: RequestError (SESSION_NOT_FOUND, RUN_NOT_FOUND, LEASE_LOST, RUN_ENDED, STEP_MISMATCH); StaleRead.
    """
    key = step.key
    record, view = await find_run(runtime, key)
    state = view.run.state
    if record.incarnation != step.fence.incarnation:
        raise lease_lost(key, "the session is another by now")
    if state.steps < step.number:
        if state.status.is_final:
            raise run_ended(key, state.status)
        raise StaleRead
    after, most = step.number - 1, limits.MAX_STEP_BYTES
    page = await runtime.store.list_steps(key.session, record.incarnation, key.run_id, after, 1, most)
    if page is None or not page.steps:
        raise run_not_found(key)
    stored = page.steps[0]
    if stored.fence != step.fence.number:
        if state.status.is_final:
            raise run_ended(key, state.status)
        if state.fence != step.fence.number:
            raise lease_lost(key, "another worker claimed it")
        raise step_mismatch(key, step.number, state.steps)
    said = (step.status, step.payload, step.content_type, len(append.messages))
    appended = None
    if said == (stored.status, stored.payload, stored.content_type, stored.messages):
        appended = await _appended(runtime, append, stored)
    if appended is None:
        raise step_mismatch(key, step.number, state.steps, "it was committed with another status or other content")
    return CommittedStep(appended, stored.created, record.incarnation, state)


async def _appended(runtime: Runtime, append: Append, stored: StoredStep) -> Sequence[replay.Appended] | None:
    """What became of a step's messages when they were first sent; None when those were others."""
    if not append.messages:
        return ()
    known = await runtime.store.find(append.key, LookupKind.MESSAGE, [message.id for message in append.messages])

    async def first(secrets: replay.Secrets) -> Sequence[replay.Appended] | None:
        return await asyncio.to_thread(_first_answer, append.messages, known, secrets)

    try:
        appended = await recognizing(runtime, first)
    except RequestError as error:
        if error.reason is not Reason.MESSAGE_ID_CONFLICT:
            raise
        return None
    return appended if appended and appended[0].seq == stored.first_seq else None


def _first_answer(
    messages: Sequence[IncomingMessage], known: Sequence[Lookup], secrets: replay.Secrets
) -> Sequence[replay.Appended] | None:
    digests = [replay.message_digests(secrets, message, encode_content(message.parts)) for message in messages]
    return replay.first_answer(messages, digests, "", (), known)


class _StepPosition(msgspec.Struct, frozen=True, array_like=True):
    """Where a next page of steps begins."""

    incarnation: str
    after: int


async def list_(
    runtime: Runtime, key: RunKey, after_number: int = 0, page_size: int = 0, page_token: str = ""
) -> tuple[Sequence[StoredStep], str]:
    """A page of a run's steps, by number, and the token of the next one.

    Raises: RequestError (field errors, PAGE_TOKEN_INVALID, SESSION_NOT_FOUND, RUN_NOT_FOUND), StoreUnavailable.
    """
    check_run(key)
    if after_number < 0:
        raise field_invalid("after_number", "a step's number is 1 or more, and 0 sets no bound")
    limit = page_size_of(page_size)
    query = ("ListRunSteps", *key.session, key.run_id, after_number)
    secret = runtime.info.secret
    position = page_tokens.read(secret, query, page_token, _StepPosition) if page_token else None
    record, _ = await find_run(runtime, key)
    if position is not None and position.incarnation != record.incarnation:
        raise RequestError(
            Reason.PAGE_TOKEN_INVALID,
            "page_token is of an earlier session of this name: start again without a token",
            field="page_token",
        )
    after = position.after if position else after_number
    page = await runtime.store.list_steps(
        key.session, record.incarnation, key.run_id, after, limit, limits.MAX_PAGE_BYTES
    )
    if page is None:
        raise run_not_found(key)
    if not page.more:
        return page.steps, ""
    return page.steps, page_tokens.make(secret, query, _StepPosition(record.incarnation, page.steps[-1].number))
