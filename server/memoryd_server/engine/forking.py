"""Forks: copies a session into a new one, which nobody sees before it is complete (invariant 11).

The copy is staged in batches. Whoever takes messages away from the source meanwhile makes it fail: the fork shows the
source as it was when it was read, and that must have been so until the copy was complete. The staging is begun before
anything is read, so that an erasure that comes in between finds it and stops the fork.

Runs stay the source's: a fork has none, whatever runs its messages are of, so that its ttl runs from the beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from memoryd_server import limits
from memoryd_server.engine import changes, pairing, replay, summary_links
from memoryd_server.engine.changes import Counts, RequestMark
from memoryd_server.engine.committer import NotAdopted
from memoryd_server.engine.errors import Reason, RequestError, field_invalid, session_exists, session_not_found
from memoryd_server.engine.incoming import check_key, check_text
from memoryd_server.engine.recognizing import recognizing
from memoryd_server.engine.rewinding import read_newest, read_summaries
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.staging import (
    SourceChanged,
    Staging,
    history,
    is_same_history,
    message_lookups,
    staging,
)
from memoryd_server.engine.steadiness import until_steady
from memoryd_server.engine.summary_links import hold_of
from memoryd_server.stores.base import StagingLost
from memoryd_server.stores.records import (
    NO_FOLDING,
    LookupKind,
    OpenState,
    Record,
    SessionKey,
    StoredMessage,
    StoredSummary,
    Usability,
    encode_open,
    replace,
)

_RETRY_SECONDS: Final = 1.0
"""When a client may fork again after the source changed."""


@dataclass(frozen=True, slots=True)
class Fork:
    """A request to fork a session."""

    source: SessionKey
    target: SessionKey
    through_seq: int | None = None
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class _Plan:
    source: Record
    """As it was read: the fork shows the source of this moment."""
    fork: Record
    """The record of the fork, but for its counts."""
    summaries: Sequence[StoredSummary]
    """Those that the fork has, too."""
    open_heads: frozenset[int]
    """Groups that wait for an answer in the fork: the source may have got it since."""


async def fork(runtime: Runtime, request: Fork, *, deadline: float | None = None) -> tuple[int, int]:
    """Copies a session. Costs what it copies, and a bare entry of each message behind `through_seq`.

    Returns: how many messages were copied, and the seq of the last; 0 when there is none.
    Raises: RequestError (field errors, SESSION_NOT_FOUND, SESSION_EXISTS, REQUEST_ID_CONFLICT, FORK_INTERRUPTED,
    CONTENTION), StoreUnavailable.
    """
    check_key(request.source, "source")
    check_key(request.target, "target")
    check_text("request_id", request.request_id, limits.MAX_ID_BYTES)
    if request.through_seq is not None and request.through_seq < 1:
        raise field_invalid("through_seq", "a seq is 1 or more; leave it out to copy all messages")
    return await recognizing(runtime, lambda secrets: _fork(runtime, request, secrets, deadline))


async def _fork(runtime: Runtime, request: Fork, secrets: replay.Secrets, deadline: float | None) -> tuple[int, int]:
    mark = RequestMark.of(secrets, request.request_id, "ForkSession", *request.source, request.through_seq)
    # In this order: a replay that finds the fork of its first try finds its look-up too. An expired session counts: its
    # name is not free before its look-ups are gone.
    taken = await runtime.store.load(request.target) is not None
    first = await _first_answer(runtime, request.target, mark)
    if first is not None:
        return _answer(first)
    if taken:
        raise session_exists(*request.target[1:])
    try:
        return _answer(await _copy(runtime, request, mark, deadline))
    except RequestError as error:
        if error.reason not in {Reason.SESSION_EXISTS, Reason.FORK_INTERRUPTED}:
            raise
        # Another try of the same request may have made the fork meanwhile.
        first = await _first_answer(runtime, request.target, mark)
        if first is None:
            raise
        return _answer(first)


async def _first_answer(runtime: Runtime, target: SessionKey, mark: RequestMark | None) -> Counts | None:
    """The first answer to a replay. Raises: RequestError REQUEST_ID_CONFLICT."""
    if mark is None:
        return None
    known = await runtime.store.find(target, LookupKind.REQUEST, [mark.request_id])
    return replay.first_counts(mark.request_id, mark.digests, known)


def _answer(counts: Counts) -> tuple[int, int]:
    copied, last_seq = counts
    return copied, last_seq


async def _copy(runtime: Runtime, request: Fork, mark: RequestMark | None, deadline: float | None) -> Counts:
    owner = await _load(runtime, request.source)
    try:
        async with staging(runtime, request.target.tenant, owner.user_id) as staged:
            plan = await until_steady(request.source, lambda: _plan(runtime, request, owner.user_id), deadline)
            fork = await _stage(runtime, request.source, plan, staged)
            if await _changed(runtime, request.source, plan.source):
                raise _interrupted()
            counts = await runtime.committer.run(
                request.target,
                lambda record, known: changes.plan_fork(
                    record, request.target, fork, staged.name, mark, known, runtime.clock.now(), plan.summaries
                ),
                ids=mark.ids if mark else (),
                deadline=deadline,
            )
            staged.adopted = True
            return counts
    except (SourceChanged, StagingLost) as error:
        raise _interrupted() from error
    except NotAdopted as error:
        raise (session_exists(*request.target[1:]) if error.taken else _interrupted()) from error


async def _load(runtime: Runtime, key: SessionKey) -> Record:
    loaded = await runtime.sessions.load(key)
    if loaded is None:
        raise session_not_found(key.agent, key.session_id)
    return loaded.record


async def _plan(runtime: Runtime, request: Fork, user_id: str) -> _Plan:
    """Raises: RequestError; StaleRead when the session changes while it is read."""
    newest = await read_newest(runtime, request.source, _through(request))
    source = newest.record
    if source.user_id != user_id:
        raise _interrupted()
    kept = summary_links.without(source, newest.withdrawn)
    reopened: Sequence[int] = ()
    # Seqs are never used again, and a summary may outlive all that it stands for.
    last_seq = max(newest.kept_seq, kept[-1].to_seq if kept else 0)
    if not newest.kept_seq:
        fork = replace(
            source,
            first_seq=last_seq + 1,
            opening_to=0,
            last_user=0,
            open_call_count=0,
            open=encode_open(OpenState()),
        )
    elif newest.taken:
        covered_to = kept[-1].to_head if kept else 0
        fork, reopened = pairing.rewind(
            source, newest.taken, newest.kept_seq, newest.members, newest.closed, covered_to
        )
    else:
        fork = source
    now = runtime.clock.now()
    fork = replace(
        fork,
        incarnation=changes.new_incarnation(),
        version=1,
        created=now,
        activity=now,
        appended=now,
        epoch=1,
        settings_version=1,
        removed=(),
        rewound_to=newest.kept_seq if newest.kept_seq < last_seq else 0,
        last_seq=last_seq,
        summaries=kept,
        runs=(),
        folding=hold_of(source.folding) if last_seq == source.last_seq else NO_FOLDING,
    )
    summaries = await read_summaries(runtime, request.source, source, kept)
    return _Plan(source, fork, summaries, frozenset(reopened) | {group.head for group in fork.open_state.groups})


def _through(request: Fork) -> int:
    return (1 << 62) if request.through_seq is None else request.through_seq


async def _stage(runtime: Runtime, key: SessionKey, plan: _Plan, staged: Staging) -> Record:
    """Copies the messages. Returns: the fork's record with their counts. Raises: SourceChanged, StagingLost."""
    source, fork = plan.source, plan.fork
    counts = _Counts()
    pages = history(runtime.sessions, key, source, source.first_seq, fork.last_seq, open_heads=plan.open_heads)
    async for messages in pages:
        await staged.add(messages, await message_lookups(runtime.store, key, messages))
        counts.add(messages)
    return replace(
        fork,
        messages=counts.messages,
        tokens=counts.tokens,
        bytes=counts.bytes,
        largest=counts.largest,
        open_messages=counts.open_messages,
        orphan_messages=counts.orphan_messages,
    )


@dataclass(slots=True)
class _Counts:
    messages: int = 0
    tokens: int = 0
    bytes: int = 0
    largest: int = 0
    open_messages: int = 0
    orphan_messages: int = 0

    def add(self, messages: Sequence[StoredMessage]) -> None:
        for message in messages:
            self.messages += 1
            self.tokens += message.tokens
            self.bytes += message.size
            self.largest = max(self.largest, message.size)
            self.open_messages += message.usability == Usability.OPEN
            self.orphan_messages += message.usability == Usability.ORPHAN


async def _changed(runtime: Runtime, key: SessionKey, source: Record) -> bool:
    loaded = await runtime.sessions.load(key)
    if loaded is None:
        return True
    return not is_same_history(loaded.record, source) or loaded.record.user_id != source.user_id


def _interrupted() -> RequestError:
    return RequestError(
        Reason.FORK_INTERRUPTED,
        "the source lost messages or changed its user while it was copied; nothing was made: fork again",
        retry_after=_RETRY_SECONDS,
    )
