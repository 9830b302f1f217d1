"""Loads windows: what the WindowService does, free of its protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final, ParamSpec, TypeVar

import msgspec

from memoryd_server import limits
from memoryd_server.engine import tokens, windows
from memoryd_server.engine.errors import Reason, RequestError, session_not_found
from memoryd_server.engine.incoming import check_key
from memoryd_server.engine.policies import (
    FoldSettings,
    WindowSettings,
    check_options,
    check_summary_limit,
    fold_settings,
    least_limit,
    resolve,
)
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.shortening import shorten
from memoryd_server.engine.summary_messages import summary_message
from memoryd_server.engine.windows import NeedsMessages, Shown, SummaryState, WindowPlan, WindowStats
from memoryd_server.stores.base import Loaded, Tail
from memoryd_server.stores.records import (
    Entry,
    OpenCalls,
    Policy,
    Record,
    SessionKey,
    StoredMessage,
    Usability,
    WindowOptions,
)


class WindowRequest(msgspec.Struct, frozen=True):
    """A request for a window."""

    key: SessionKey
    options: WindowOptions = WindowOptions()
    explain: bool = False
    summary: bool | None = None
    """Whether it shows the summary; None for what the stored policies say."""
    wait: bool | None = None
    """Whether it waits for a fold that the stored policies ask for; None for what they say."""


class _Draft(msgspec.Struct, frozen=True):
    """A finished plan with what it was made from."""

    record: Record
    settings: WindowSettings
    plan: WindowPlan
    bodies: dict[int, StoredMessage]
    """Bodies that were read beside the load."""
    summary_state: SummaryState


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_INLINE_ENTRIES: Final = 1_000
"""Windows of up to so many messages are planned on the event loop: that takes about a millisecond."""

_NO_POLICY: Final = Policy()

_STEADY_ATTEMPTS: Final = 5
"""How often a load is repeated because the session changed under it, or had another policy than supposed."""


async def load(
    runtime: Runtime, request: WindowRequest, *, deadline: float | None = None
) -> tuple[Sequence[StoredMessage], WindowStats]:
    """A window in one piece. `deadline` in `time.monotonic()` seconds bounds how long it waits for a summary.

    Raises: RequestError (field errors, SESSION_NOT_FOUND, WINDOW_TOO_LARGE, WINDOW_TOO_SMALL, WINDOW_CHANGED),
    StoreUnavailable.
    """
    for _ in range(_STEADY_ATTEMPTS - 1):
        try:
            return await _load_once(runtime, request, deadline)
        except RequestError as error:
            if error.reason != Reason.WINDOW_CHANGED:
                raise
    return await _load_once(runtime, request, deadline)


async def _load_once(
    runtime: Runtime, request: WindowRequest, deadline: float | None
) -> tuple[Sequence[StoredMessage], WindowStats]:
    draft = await _draft(runtime, request, deadline, body_bytes=limits.MAX_PAGE_BYTES)
    entries = draft.plan.entries
    size = sum(entry.size for entry in entries)
    if size > limits.MAX_PAGE_BYTES:
        raise RequestError(
            Reason.WINDOW_TOO_LARGE,
            f"the window has {size:,} bytes, and one answer holds {limits.MAX_PAGE_BYTES:,}: read it with "
            "StreamWindow, as the SDKs do, or give a smaller limit",
            bytes=size,
            limit=limits.MAX_PAGE_BYTES,
        )
    messages = await _bodies(runtime, request.key, draft, entries)
    return messages, await _stats(runtime, request, draft)


async def stream(
    runtime: Runtime, request: WindowRequest, *, deadline: float | None = None
) -> AsyncIterator[tuple[Sequence[StoredMessage], WindowStats | None]]:
    """A window of any size: pieces of at most `limits.MAX_PAGE_BYTES`, read one by one, then the stats.

    Raises: as `load`, apart from WINDOW_TOO_LARGE.
    """
    draft = await _draft(runtime, request, deadline, body_bytes=0)
    for piece in _pieces(draft.plan.entries):
        yield await _bodies(runtime, request.key, draft, piece), None
    yield (), await _stats(runtime, request, draft)


def _pieces(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    piece: list[Entry] = []
    size = 0
    for entry in entries:
        if piece and (size + entry.size > limits.MAX_PAGE_BYTES or len(piece) == limits.MAX_PAGE_ITEMS):
            yield piece
            piece, size = [], 0
        piece.append(entry)
        size += entry.size
    if piece:
        yield piece


async def _draft(runtime: Runtime, request: WindowRequest, deadline: float | None, *, body_bytes: int) -> _Draft:
    check_key(request.key)
    check_options("options", request.options)
    found = await _load(runtime, request, body_bytes)
    if found.fold is not None and runtime.folder.is_due(request.key, found.loaded.record, found.fold):
        waits = found.shows_summary and (found.fold.wait if request.wait is None else request.wait)
        if await runtime.folder.fold_for_load(request.key, found.loaded.record, found.fold, waits, deadline):
            found = await _load(runtime, request, body_bytes)
    if _would_forget(request, found):
        found = await _load(runtime, msgspec.structs.replace(request, summary=True), body_bytes)
    loaded, settings = found.loaded, found.settings
    record = loaded.record
    shown: Shown | None = None
    if loaded.summary is not None and record.summary is not None and found.shows_summary:
        shown = Shown(record.summary, summary_message(record, record.summary, loaded.summary))
    gone_to = record.summary.to_head if record.summary and record.summary.is_final else 0
    count = await tokens.ready_counter(record.tokenizer)
    extra: dict[int, StoredMessage] = {}
    plan: WindowPlan | None = None
    while plan is None:
        try:
            plan = await _work_on(
                loaded.tail,
                windows.plan_window,
                settings,
                loaded.tail,
                loaded.opening,
                extra,
                count,
                shown,
                gone_to,
            )
        except NeedsMessages as needs:
            extra.update(await _read(runtime, request.key, record, needs.seqs))
    state = _summary_state(runtime, request.key, found)
    draft = _Draft(record, settings, plan, extra, state)
    if plan.shorten_to is not None:
        newest = await _bodies(runtime, request.key, draft, plan.units[0].entries)
        shortened = await asyncio.to_thread(shorten, newest, plan.shorten_to, count)
        draft = _Draft(record, settings, windows.with_shortened(plan, shortened), extra, state)
    return draft


def _would_forget(request: WindowRequest, found: _Found) -> bool:
    """Whether a window without the summary would hold nothing of messages that are removed: a policy without summaries
    may have come after one that removed what was summarized (invariant 9).
    """
    link = found.loaded.record.summary
    if request.summary is not None or found.shows_summary or link is None or not link.is_final:
        return False
    return found.settings.limit >= least_limit(found.settings.mode)


def _summary_state(runtime: Runtime, key: SessionKey, found: _Found) -> SummaryState:
    record = found.loaded.record
    if found.fold is not None and runtime.folder.is_due(key, record, found.fold):
        is_under_way = bool(record.folding.lease) or not record.folding.failure
        return SummaryState.PENDING if is_under_way else SummaryState.FAILED
    return SummaryState.CURRENT if record.summary is not None else SummaryState.NONE


class _Found(msgspec.Struct, frozen=True):
    """A session as it was loaded, with what its policies say."""

    loaded: Loaded
    settings: WindowSettings
    fold: FoldSettings | None
    shows_summary: bool


async def _load(runtime: Runtime, request: WindowRequest, body_bytes: int) -> _Found:
    """Loads the session with the tail that its policies ask for. The session's own is a guess until it is loaded."""
    key = request.key
    agent = (await runtime.agents.get(key.tenant, key.agent)).policy
    cached = runtime.committer.records.get(key)
    guess = cached.policy if cached else _NO_POLICY
    for _ in range(_STEADY_ATTEMPTS):
        supposed, tail, fold, shows = _ask(runtime, request, guess, agent, body_bytes)
        loaded = await runtime.sessions.load(key, tail)
        if loaded is None:
            raise session_not_found(key.agent, key.session_id)
        actual = loaded.record.policy
        if actual == guess:
            return _Found(loaded, supposed, fold, shows)
        settings, wanted, fold, shows = _ask(runtime, request, actual, agent, body_bytes)
        if wanted == tail:
            return _Found(loaded, settings, fold, shows)
        guess = actual
    raise _changed()


def _ask(
    runtime: Runtime, request: WindowRequest, session: Policy, agent: Policy, body_bytes: int
) -> tuple[WindowSettings, Tail, FoldSettings | None, bool]:
    """The window that is asked for, what to load for it, how the stored policies fold, and whether it shows a summary.

    Raises: RequestError FIELD_INVALID.
    """
    defaults = runtime.defaults.policy
    settings = resolve(request.options, session.window, agent.window, defaults.window)
    fold = fold_settings(runtime.defaults.summarizer, session, agent, defaults)
    shows = fold is not None if request.summary is None else request.summary
    if shows:
        check_summary_limit("options.limit", settings)
    return settings, windows.tail_of(settings, body_bytes, summary=shows), fold, shows


async def _bodies(
    runtime: Runtime, key: SessionKey, draft: _Draft, entries: Sequence[Entry]
) -> Sequence[StoredMessage]:
    """The messages of the entries as windows show them; reads what the load did not bring."""
    missing = [entry.seq for entry in entries if not isinstance(entry, StoredMessage) and entry.seq not in draft.bodies]
    read = await _read(runtime, key, draft.record, missing) if missing else {}
    return [
        windows.shown(entry if isinstance(entry, StoredMessage) else read.get(entry.seq) or draft.bodies[entry.seq])
        for entry in entries
    ]


async def _read(runtime: Runtime, key: SessionKey, record: Record, seqs: Sequence[int]) -> dict[int, StoredMessage]:
    """Messages by seq, of the life and the epoch in which the window was planned.

    Raises: RequestError WINDOW_CHANGED when history was taken away meanwhile.
    """
    read = await runtime.sessions.read(key, record.incarnation, seqs)
    if read is None or read[0].epoch != record.epoch or len(read[1]) != len(seqs):
        raise _changed()
    return {message.seq: message for message in read[1]}


def _changed() -> RequestError:
    return RequestError(
        Reason.WINDOW_CHANGED, "the session's history or policy changed while its window was read: load it again"
    )


async def _stats(runtime: Runtime, request: WindowRequest, draft: _Draft) -> WindowStats:
    explained: Sequence[Entry] = ()
    if request.explain:
        omit = draft.settings.open_calls == OpenCalls.OMIT
        usabilities = (Usability.ORPHAN, Usability.OPEN) if omit else (Usability.ORPHAN,)
        explained = await runtime.store.list_unusable(request.key, usabilities, limits.MAX_EXPLAINED_MESSAGES)
        if draft.plan.summary is not None and draft.record.summary is not None:
            to_head = draft.record.summary.to_head
            explained = [entry for entry in explained if entry.head > to_head]
    stats = await _work_on(
        draft.plan.entries,
        windows.stats_of,
        draft.record,
        draft.settings,
        draft.plan,
        explained,
        draft.summary_state,
    )
    runtime.instruments.window_cut(stats)
    return stats


async def _work_on(
    entries: Sequence[Entry], call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Calls what goes through the entries: with many of them, not on the event loop."""
    if len(entries) <= _INLINE_ENTRIES:
        return call(*args, **kwargs)
    return await asyncio.to_thread(call, *args, **kwargs)
