"""Summaries: what the SummaryService does, free of its protocol."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from memoryd_server import limits
from memoryd_server.engine import (
    folding,
    instruments,
    page_tokens,
    summary_changes,
    summary_links,
    summary_texts,
)
from memoryd_server.engine.changes import StaleRead
from memoryd_server.engine.errors import (
    Reason,
    RequestError,
    field_invalid,
    field_required,
    field_too_large,
    session_not_found,
)
from memoryd_server.engine.folder import settings_of, take_lease
from memoryd_server.engine.folding import Task
from memoryd_server.engine.incoming import check_agent, check_key, check_text
from memoryd_server.engine.policies import FoldSettings
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.steadiness import until_steady
from memoryd_server.engine.summary_changes import LeaseTaken, LeaseVoid
from memoryd_server.engine.windows import shown
from memoryd_server.stores.records import Record, SessionKey, StoredMessage, StoredSummary, SummaryLink
from memoryd_server.summarizers import prompt
from memoryd_server.summarizers.base import CLIENT, SummarizerError

_RETRY_SECONDS: Final = 1.0
_CANDIDATES: Final = 32
"""Sessions of an agent that one call looks at for a task: others may have taken it, or its policy be another now."""


@dataclass(frozen=True, slots=True)
class SummaryView:
    """A summary, with its place in the session's chain."""

    record: Record
    link: SummaryLink
    summary: StoredSummary

    @property
    def id(self) -> str:
        """The summary's id."""
        return summary_links.summary_id(self.record, self.link.number)

    @property
    def previous_id(self) -> str:
        """The id of the summary that was part of its input; empty for none."""
        return summary_links.summary_id(self.record, self.summary.previous)

    @property
    def is_current(self) -> bool:
        """Whether it is the one that windows show."""
        return self.link == self.record.summary


async def summarize(
    runtime: Runtime, key: SessionKey, *, deadline: float | None = None
) -> tuple[SummaryView | None, int]:
    """Folds now what exceeds `keep`.

    Returns: the current summary, if there is one, and how many messages were folded.
    Raises: RequestError (field errors, SESSION_NOT_FOUND, SUMMARIES_DISABLED, SUMMARIZER_DIFFERS, SUMMARIZER_FAILED,
    SUMMARY_UNDER_WAY), StoreUnavailable.
    """
    check_key(key)
    record = await _record(runtime, key)
    settings = await _settings(runtime, key, record)
    if settings.is_left_to_clients:
        raise _differs(key, settings, "lease a summary task, and commit what your model makes of it")
    try:
        folds = await runtime.folder.fold_now(key, deadline)
    except StaleRead:
        raise RequestError(
            Reason.CONTENTION,
            f"session {key.session_id!r} of agent {key.agent!r} kept changing while it was summarized: try again",
            retry_after=_RETRY_SECONDS,
        ) from None
    if folds.error is not None:
        error = folds.error
        raise RequestError(
            Reason.SUMMARIZER_FAILED,
            f"{error.text} ({folds.messages:,} messages were summarized before)" if folds.messages else error.text,
            retry_after=error.retry_after or _RETRY_SECONDS,
            summarizer=settings.summarizer,
            failure=error.reason.value,
        )
    views = await _views(runtime, key, newest_only=True)
    return (views[0] if views else None), folds.messages


async def get(runtime: Runtime, key: SessionKey, summary_id: str = "") -> SummaryView:
    """A summary: the current one, or one by id. Raises: RequestError (SESSION_NOT_FOUND, SUMMARY_NOT_FOUND),
    StoreUnavailable.
    """
    check_key(key)
    check_text("summary_id", summary_id, limits.MAX_ID_BYTES)
    for view in await _views(runtime, key, newest_only=not summary_id):
        if not summary_id or view.id == summary_id:
            return view
    raise _not_found(key, summary_id)


async def list_(runtime: Runtime, key: SessionKey) -> Sequence[SummaryView]:
    """The summaries of a session, the current one first. Raises: RequestError SESSION_NOT_FOUND, StoreUnavailable."""
    check_key(key)
    return await _views(runtime, key)


async def _views(runtime: Runtime, key: SessionKey, *, newest_only: bool = False) -> Sequence[SummaryView]:
    record = await _record(runtime, key)
    links = record.summaries[-1:] if newest_only else record.summaries
    if not links:
        return ()
    read = await runtime.sessions.read_summaries(key, record.incarnation, summary_links.numbers(links))
    if read is None:
        raise session_not_found(key.agent, key.session_id)
    now_there, found = read
    by_number = {summary.number: summary for summary in found}
    # What was folded between the two reads is not among those that were asked for.
    chain = now_there.summaries[-1:] if newest_only else now_there.summaries
    if any(link.number not in by_number for link in chain):
        return await _views(runtime, key, newest_only=newest_only)
    return [SummaryView(now_there, link, by_number[link.number]) for link in reversed(chain)]


async def revert(
    runtime: Runtime, key: SessionKey, summary_id: str, *, deadline: float | None = None
) -> SummaryView | None:
    """Takes the current summary back; nothing is folded before the next append.

    Returns: the summary that is current then.
    Raises: RequestError (field errors, SESSION_NOT_FOUND, SUMMARY_NOT_FOUND, ETAG_MISMATCH, ORIGINALS_REMOVED,
    CONTENTION), StoreUnavailable.
    """
    check_key(key)
    if not summary_id:
        raise field_required("summary_id", "the id of the current summary")
    check_text("summary_id", summary_id, limits.MAX_ID_BYTES)

    async def attempt() -> SummaryView | None:
        views = await list_(runtime, key)
        if not any(view.id == summary_id for view in views):
            raise _not_found(key, summary_id)
        current = views[0]
        if current.id != summary_id:
            raise RequestError(
                Reason.ETAG_MISMATCH,
                f"the current summary is another one: {current.id}; look at it, then decide",
                etag=current.id,
            )
        now = runtime.clock.now()
        record = await runtime.committer.run(
            key,
            lambda found, _known: summary_changes.plan_revert(found, key, current.record, current.summary, now),
            deadline=deadline,
        )
        return SummaryView(record, views[1].link, views[1].summary) if len(views) > 1 else None

    return await until_steady(key, attempt, deadline)


@dataclass(frozen=True, slots=True)
class LeasedTask:
    """The work for one summary, leased to a client."""

    key: SessionKey
    token: str
    previous: str
    messages: Sequence[StoredMessage]
    instructions: str
    input: str
    target_tokens: int
    expires: int
    attempts: int


async def lease_task(
    runtime: Runtime,
    *,
    key: SessionKey | None = None,
    tenant: str = "",
    agent: str = "",
    seconds: float | None = None,
    deadline: float | None = None,
) -> LeasedTask | None:
    """Leases the next summary of a session, or of any session of an agent, to a client.

    Returns: None when none waits.
    Raises: RequestError (field errors, SESSION_NOT_FOUND, SUMMARIES_DISABLED, SUMMARIZER_DIFFERS, CONTENTION),
    StoreUnavailable.
    """
    seconds = limits.DEFAULT_TASK_LEASE_SECONDS if seconds is None else seconds
    if not 1 <= seconds <= limits.MAX_TASK_LEASE_SECONDS:
        raise field_invalid("lease_duration", f"it is 1 to {limits.MAX_TASK_LEASE_SECONDS} seconds, not {seconds:g}")
    if key is not None:
        check_key(key)
        record = await _record(runtime, key)
        settings = await _settings(runtime, key, record)
        if not settings.is_left_to_clients:
            raise _differs(key, settings, "it is summarized without a client")
        if record.folding.retry_at > runtime.clock.now():
            return None
        return await _lease(runtime, key, settings, seconds, deadline)
    check_agent(agent)
    page = await runtime.store.list_folds(tenant, agent, runtime.clock.now(), _CANDIDATES)
    for candidate in page.keys:
        loaded = await runtime.sessions.load(candidate)
        if loaded is None:
            continue
        candidate_settings = await settings_of(runtime, candidate, loaded.record)
        task = None
        if candidate_settings is not None and candidate_settings.is_left_to_clients:
            task = await _lease(runtime, candidate, candidate_settings, seconds, deadline)
        if task is not None:
            return task
    return None


async def _lease(
    runtime: Runtime, key: SessionKey, settings: FoldSettings, seconds: float, deadline: float | None
) -> LeasedTask | None:
    lease = uuid.uuid4().hex

    async def attempt() -> tuple[Task, Record] | None:
        loaded = await runtime.sessions.load(key)
        task = await folding.read_task(runtime.sessions, key, settings)
        if task is None:
            if loaded is not None and loaded.record.folding.wanted:
                seen = loaded.record
                await runtime.committer.run(key, lambda found, _known: summary_changes.plan_unwant(found, key, seen))
            return None
        return task, await take_lease(runtime, key, task, lease, CLIENT, seconds)

    try:
        leased = await until_steady(key, attempt, deadline)
    except LeaseTaken:
        return None
    if leased is None:
        return None
    task, record = leased
    request = await summary_texts.request_for(task, settings)
    asked = await asyncio.to_thread(prompt.build, request.previous, request.messages, request.target_tokens)
    messages = task.messages
    if sum(message.size for message in messages) > limits.SUMMARY_TASK_BYTES:
        messages = ()  # One group that no answer holds: the input has it with its longest texts cut.
    return LeasedTask(
        key=key,
        token=page_tokens.make(runtime.info.secret, _query(key), lease),
        previous=request.previous or "",
        messages=[shown(message) for message in messages],
        instructions=asked.instructions,
        input=asked.data,
        target_tokens=request.target_tokens,
        expires=record.folding.until,
        attempts=record.folding.attempts,
    )


async def commit_task(
    runtime: Runtime, key: SessionKey, token: str, text: str, model: str, *, deadline: float | None = None
) -> SummaryView:
    """Commits the summary of a leased task. A repeated commit gets the first answer.

    Raises: RequestError (field errors, SESSION_NOT_FOUND, SUMMARY_TASK_VOID, CONTENTION), StoreUnavailable.
    """
    lease = _lease_of(runtime, key, token)
    check_text("model", model, limits.MAX_NAME_BYTES)
    size = len(text.encode())
    if size > limits.MAX_SUMMARY_BYTES:
        raise field_too_large("text", size, limits.MAX_SUMMARY_BYTES, "bytes", "ask the model for a shorter summary")
    record = await _record(runtime, key)
    settings = await settings_of(runtime, key, record)
    if settings is None:
        raise _void(key)
    try:
        made = await summary_texts.accepted(text, CLIENT, model, settings, record.tokenizer)
    except SummarizerError as error:
        raise field_invalid("text", "it says nothing: abandon the task instead, as failed") from error
    now = runtime.clock.now()
    try:
        committed, summary = await runtime.committer.run(
            key,
            lambda found, _known: summary_changes.plan_commit(found, key, lease, made, now),
            deadline=deadline,
        )
    except LeaseVoid:
        for view in await list_(runtime, key):
            if view.summary.lease == lease:
                return view
        raise _void(key) from None
    runtime.instruments.task_ended(instruments.COMMITTED, summary.duration / 1_000_000, summary.messages)
    return SummaryView(committed, committed.summaries[-1], summary)


async def abandon_task(
    runtime: Runtime, key: SessionKey, token: str, *, failed: bool, deadline: float | None = None
) -> None:
    """Gives a leased task up; with `failed`, it waits with backoff before it is leased again. Nothing happens when the
    lease is over.

    Raises: RequestError (field errors, CONTENTION), StoreUnavailable.
    """
    lease = _lease_of(runtime, key, token)
    now = runtime.clock.now()
    try:
        if failed:
            failed_fold = await runtime.committer.run(
                key,
                lambda found, _known: summary_changes.plan_fail(found, key, lease, summary_changes.ABANDONED, 0.0, now),
                deadline=deadline,
            )
            runtime.instruments.task_ended(instruments.ABANDONED, max(0, now - failed_fold.begun) / 1_000_000, 0)
        else:
            await runtime.committer.run(
                key,
                lambda found, _known: summary_changes.plan_release(found, key, lease),
                deadline=deadline,
            )
    except LeaseVoid:
        return


def _query(key: SessionKey) -> tuple[str, ...]:
    return ("SummaryTask", *key)


def _lease_of(runtime: Runtime, key: SessionKey, token: str) -> str:
    check_key(key)
    if not token:
        raise field_required("task_token", "the token of the leased task")
    return page_tokens.read(
        runtime.info.secret,
        _query(key),
        token,
        str,
        field="task_token",
        reason=Reason.FIELD_INVALID,
        advice="send the one that LeaseSummaryTask gave, with the session of its task",
    )


async def _record(runtime: Runtime, key: SessionKey) -> Record:
    loaded = await runtime.sessions.load(key)
    if loaded is None:
        raise session_not_found(key.agent, key.session_id)
    return loaded.record


async def _settings(runtime: Runtime, key: SessionKey, record: Record) -> FoldSettings:
    settings = await settings_of(runtime, key, record)
    if settings is None:
        raise RequestError(
            Reason.SUMMARIES_DISABLED,
            f"the stored policies of session {key.session_id!r} and agent {key.agent!r} have no summaries: store a "
            "policy with `summary` for one of them first",
            agent=key.agent,
            session_id=key.session_id,
        )
    return settings


def _differs(key: SessionKey, settings: FoldSettings, advice: str) -> RequestError:
    return RequestError(
        Reason.SUMMARIZER_DIFFERS,
        f"the summarizer of session {key.session_id!r} of agent {key.agent!r} is {settings.summarizer!r}: {advice}",
        agent=key.agent,
        session_id=key.session_id,
        summarizer=settings.summarizer,
    )


def _not_found(key: SessionKey, summary_id: str) -> RequestError:
    what = f"summary {summary_id!r}" if summary_id else "summary"
    return RequestError(
        Reason.SUMMARY_NOT_FOUND,
        f"session {key.session_id!r} of agent {key.agent!r} has no {what}",
        agent=key.agent,
        session_id=key.session_id,
        summary_id=summary_id,
    )


def _void(key: SessionKey) -> RequestError:
    return RequestError(
        Reason.SUMMARY_TASK_VOID,
        f"the task of session {key.session_id!r} of agent {key.agent!r} is void: its lease is over, or the history "
        "changed where it lies; nothing was changed: lease a new one",
        agent=key.agent,
        session_id=key.session_id,
    )
