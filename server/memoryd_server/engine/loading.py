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
from memoryd_server.engine.policies import WindowSettings, check_options, resolve
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.shortening import shorten
from memoryd_server.engine.windows import NeedsMessages, WindowPlan, WindowStats
from memoryd_server.stores.base import Loaded
from memoryd_server.stores.records import Entry, OpenCalls, Record, SessionKey, StoredMessage, Usability, WindowOptions


class WindowRequest(msgspec.Struct, frozen=True):
    """A request for a window."""

    key: SessionKey
    options: WindowOptions = WindowOptions()
    explain: bool = False


class _Draft(msgspec.Struct, frozen=True):
    """A finished plan with what it was made from."""

    record: Record
    settings: WindowSettings
    plan: WindowPlan
    bodies: dict[int, StoredMessage]
    """Bodies that were read beside the load."""


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_INLINE_ENTRIES: Final = 1_000
"""Windows of up to so many messages are planned on the event loop: that takes about a millisecond."""

_STEADY_ATTEMPTS: Final = 5
"""How often a load is repeated because a session's stored policy was another one than supposed."""


async def load(runtime: Runtime, request: WindowRequest) -> tuple[Sequence[StoredMessage], WindowStats]:
    """A window in one piece.

    Raises: RequestError (field errors, SESSION_NOT_FOUND, WINDOW_TOO_LARGE, WINDOW_TOO_SMALL, WINDOW_CHANGED),
    StoreUnavailable.
    """
    draft = await _draft(runtime, request, body_bytes=limits.MAX_PAGE_BYTES)
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
    runtime: Runtime, request: WindowRequest
) -> AsyncIterator[tuple[Sequence[StoredMessage], WindowStats | None]]:
    """A window of any size: pieces of at most `limits.MAX_PAGE_BYTES`, read one by one, then the stats.

    Raises: as `load`, apart from WINDOW_TOO_LARGE.
    """
    draft = await _draft(runtime, request, body_bytes=0)
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


async def _draft(runtime: Runtime, request: WindowRequest, *, body_bytes: int) -> _Draft:
    check_key(request.key)
    check_options("options", request.options)
    loaded, settings = await _load(runtime, request, body_bytes)
    count = await tokens.ready_counter(loaded.record.tokenizer)
    extra: dict[int, StoredMessage] = {}
    plan: WindowPlan | None = None
    while plan is None:
        try:
            plan = await _work_on(loaded.tail, windows.plan_window, settings, loaded.tail, loaded.opening, extra, count)
        except NeedsMessages as needs:
            extra.update(await _read(runtime, request.key, loaded.record, needs.seqs))
    draft = _Draft(loaded.record, settings, plan, extra)
    if plan.shorten_to is not None:
        newest = await _bodies(runtime, request.key, draft, plan.units[0].entries)
        shortened = await asyncio.to_thread(shorten, newest, plan.shorten_to, count)
        draft = _Draft(loaded.record, settings, windows.with_shortened(plan, shortened), extra)
    return draft


async def _load(runtime: Runtime, request: WindowRequest, body_bytes: int) -> tuple[Loaded, WindowSettings]:
    """Loads the session with the tail that its policies ask for. The session's own is a guess until it is loaded."""
    key = request.key
    agent = (await runtime.agents.get(key.tenant, key.agent)).policy.window
    cached = runtime.committer.records.get(key)
    guess = cached.policy.window if cached else WindowOptions()
    for _ in range(_STEADY_ATTEMPTS):
        supposed = resolve(request.options, guess, agent, runtime.defaults.window)
        loaded = await runtime.sessions.load(key, windows.tail_of(supposed, body_bytes))
        if loaded is None:
            raise session_not_found(key.agent, key.session_id)
        actual = loaded.record.policy.window
        if actual == guess:
            return loaded, supposed
        settings = resolve(request.options, actual, agent, runtime.defaults.window)
        if windows.tail_of(settings, body_bytes) == windows.tail_of(supposed, body_bytes):
            return loaded, settings
        guess = actual
    raise _changed()


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
    stats = await _work_on(draft.plan.entries, windows.stats_of, draft.record, draft.settings, draft.plan, explained)
    runtime.instruments.window_cut(stats)
    return stats


async def _work_on(
    entries: Sequence[Entry], call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Calls what goes through the entries: with many of them, not on the event loop."""
    if len(entries) <= _INLINE_ENTRIES:
        return call(*args, **kwargs)
    return await asyncio.to_thread(call, *args, **kwargs)
