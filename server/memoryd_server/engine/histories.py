"""Histories: what the HistoryService does, free of its protocol."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import msgspec

from memoryd_server import limits
from memoryd_server.engine import changes, page_tokens, replay, tokens
from memoryd_server.engine.changes import AppendInput, RequestMark, SessionSettings, SessionUpdate, TokenizerDiffers
from memoryd_server.engine.content import encode_content
from memoryd_server.engine.errors import Reason, RequestError, field_invalid, field_required, session_not_found
from memoryd_server.engine.incoming import (
    IncomingMessage,
    check_agent,
    check_batch,
    check_key,
    check_labels,
    check_text,
    check_ttl,
)
from memoryd_server.engine.memory_blocks import without_memory
from memoryd_server.engine.policies import check_policy
from memoryd_server.engine.recognizing import recognizing
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.summary_links import is_covered
from memoryd_server.engine.summary_messages import summary_message
from memoryd_server.stores.base import MessagePage, MessageQuery, SessionQuery
from memoryd_server.stores.records import LookupKind, Record, Role, SessionKey, StoredMessage, SummaryLink

_LAST_SEQ: Final = 2**63 - 1
_DESCENDING: Final = 2
_ORDERS: Final = ("unspecified", "ascending", "descending")
_VIEWS: Final = ("unspecified", "active", "all")
_ALL: Final = 2

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Append:
    """A request to append messages."""

    key: SessionKey
    messages: Sequence[IncomingMessage]
    request_id: str = ""
    expected_last_seq: int | None = None
    settings: SessionSettings = SessionSettings()

    @property
    def weight(self) -> int:
        """Encoded bytes of the messages."""
        return sum(message.size for message in self.messages)


async def append(runtime: Runtime, request: Append, *, deadline: float | None = None) -> Sequence[replay.Appended]:
    """Appends messages, all or none, and begins the session if there is none (invariants 1 to 3).

    `deadline` in `time.monotonic()` seconds bounds how long conflicts are tried again.

    Raises: RequestError, StoreUnavailable.
    """
    check_key(request.key)
    check_batch(request.messages)
    check_text("request_id", request.request_id, limits.MAX_ID_BYTES)
    if request.expected_last_seq is not None and request.expected_last_seq < 0:
        raise field_invalid("expected_last_seq", "a seq is 0 or more")
    check_settings(runtime, "create", request.settings)

    new_ids = [message.id or uuid.uuid4().hex for message in request.messages]
    return await recognizing(runtime, lambda secrets: _append(runtime, request, new_ids, secrets, deadline))


async def _append(
    runtime: Runtime, request: Append, new_ids: Sequence[str], secrets: replay.Secrets, deadline: float | None
) -> Sequence[replay.Appended]:
    ids = [(LookupKind.MESSAGE, id_) for id_ in new_ids]
    if request.request_id:
        ids.append((LookupKind.REQUEST, request.request_id))

    async def commit(wanted: AppendInput) -> Sequence[replay.Appended]:
        return await runtime.committer.run(
            request.key,
            partial(changes.plan_append, wanted, runtime.clock.now),
            weight=request.weight,
            ids=ids,
            deadline=deadline,
        )

    return await with_prepared(runtime, request, new_ids, secrets, commit)


async def with_prepared(
    runtime: Runtime,
    request: Append,
    new_ids: Sequence[str],
    secrets: replay.Secrets,
    commit: Callable[[AppendInput], Awaitable[Answer]],
) -> Answer:
    """Commits an append that is prepared in the session's vocabulary, which the cached record tells or the commit.

    Raises: what `commit` raises but TokenizerDiffers.
    """
    inline = request.weight <= tokens.INLINE_BYTES
    cached = runtime.committer.records.get(request.key)
    birth_tokenizer = request.settings.tokenizer or runtime.defaults.tokenizer
    tokenizer = cached.tokenizer if cached else birth_tokenizer
    while True:
        arguments = (request, new_ids, secrets, tokenizer, birth_tokenizer)
        if inline and tokens.is_loaded(tokenizer):
            wanted = prepare(*arguments)
        else:
            wanted = await asyncio.to_thread(prepare, *arguments)
        try:
            return await commit(wanted)
        except TokenizerDiffers as differs:  # The session has another vocabulary than was supposed.
            tokenizer = differs.tokenizer


def prepare(
    request: Append, new_ids: Sequence[str], secrets: replay.Secrets, tokenizer: str, birth_tokenizer: str
) -> AppendInput:
    """Works out what an append needs before its session is looked at. Long texts are not for the event loop."""
    count = tokens.counter(tokenizer)
    contents = [encode_content(message.parts) for message in request.messages]
    digests = [
        replay.message_digests(secrets, message, content)
        for message, content in zip(request.messages, contents, strict=True)
    ]
    messages = [without_memory(message) for message in request.messages]
    return AppendInput(
        key=request.key,
        messages=messages,
        contents=[
            encode_content(message.parts) if message.memory_removed else content
            for message, content in zip(messages, contents, strict=True)
        ],
        tokens=[tokens.message_tokens(count, message.name, message.parts or ()) for message in messages],
        tokenizer=tokenizer,
        birth_tokenizer=birth_tokenizer,
        digests=digests,
        batch_digests=replay.batch_digests(secrets, digests),
        request_id=request.request_id,
        expected_last_seq=request.expected_last_seq,
        settings=request.settings,
        new_ids=new_ids,
    )


def check_settings(runtime: Runtime, field: str, settings: SessionSettings) -> None:
    """What a session is created with. Raises: RequestError (field errors)."""
    check_text(f"{field}.user_id", settings.user_id, limits.MAX_ID_BYTES)
    check_labels(f"{field}.labels", settings.labels)
    check_policy(f"{field}.policy", settings.policy, runtime.summarizers.names)
    check_ttl(f"{field}.ttl", settings.ttl)
    if settings.tokenizer is not None and settings.tokenizer not in tokens.TOKENIZERS:
        raise field_invalid(f"{field}.tokenizer", f"use one of {', '.join(tokens.TOKENIZERS)}")


@dataclass(frozen=True, slots=True)
class MessageList:
    """A request for a page of messages."""

    key: SessionKey
    page_size: int = 0
    page_token: str = ""
    order: int = 0
    """A value of the protocol's enum `ListOrder`."""
    view: int = 0
    """A value of the protocol's enum `MessageView`. Without a summary, both views are the same."""
    roles: frozenset[int] = frozenset()
    run_id: str = ""
    from_seq: int = 0
    to_seq: int = 0
    from_time: int | None = None
    to_time: int | None = None

    @property
    def descending(self) -> bool:
        """Whether the newest come first."""
        return self.order == _DESCENDING

    @property
    def filtered(self) -> bool:
        """Whether messages in the seq range may be passed over."""
        return bool(self.roles or self.run_id or self.from_time is not None or self.to_time is not None)

    @property
    def narrowed(self) -> bool:
        """Whether it asks for a part of the history alone."""
        return bool(self.filtered or self.from_seq or self.to_seq)


class _Position(msgspec.Struct, frozen=True, array_like=True):
    """Where a next page of messages begins."""

    incarnation: str
    seq: int


async def list_messages(runtime: Runtime, request: MessageList) -> tuple[Sequence[StoredMessage], str]:
    """A page of messages, and the token of the next one; empty when it is the last.

    Raises: RequestError (field errors, PAGE_TOKEN_INVALID, SESSION_NOT_FOUND), StoreUnavailable.
    """
    check_key(request.key)
    limit = page_size_of(request.page_size)
    _check_filter(request)
    secret = runtime.info.secret
    query = ("ListMessages", *request.key, *msgspec.structs.astuple(_signature(request)))
    position = page_tokens.read(secret, query, request.page_token, _Position) if request.page_token else None
    low, high = max(request.from_seq, 1), request.to_seq or _LAST_SEQ
    if request.filtered and position is None:
        # The scan of a page is bounded, so it must begin where messages are.
        loaded = await runtime.sessions.load(request.key)
        if loaded is None:
            raise session_not_found(request.key.agent, request.key.session_id)
        low, high = max(low, loaded.record.first_seq), min(high, loaded.record.last_seq)
    if position is not None:
        low, high = (low, min(high, position.seq)) if request.descending else (max(low, position.seq), high)
    while True:
        page, next_seq = await _scan(runtime, request, low, high, limit)
        if position is not None and position.incarnation != page.record.incarnation:
            raise RequestError(
                Reason.PAGE_TOKEN_INVALID,
                "page_token is of an earlier session of this name: start again without a token",
                field="page_token",
            )
        low, high = max(low, page.record.first_seq), min(high, page.record.last_seq)
        if not request.descending:
            next_seq = max(next_seq, low)  # A clear since the last page may have moved the beginning far ahead.
        link = None if request.view == _ALL else page.record.summary
        if link is None:
            messages, scanned = page.messages, True
        else:
            messages = [message for message in page.messages if not is_covered(link, message.seq, message.head)]
            next_seq = _past(link, next_seq, descending=request.descending)
            # Of what a summary stands for, no page shall be empty.
            scanned = bool(messages) or not page.messages
        more = low <= next_seq <= high
        if scanned or not more:
            break
        low, high = (low, next_seq) if request.descending else (next_seq, high)
    if link is not None and position is None and not request.narrowed:
        summary = await _summary(runtime, request.key, page.record, link)
        if summary is not None:
            if len(messages) == limit:
                next_seq, more = messages[-1].seq, True
            messages = [summary, *messages[: limit - 1]]
    token = page_tokens.make(secret, query, _Position(page.record.incarnation, next_seq)) if more else ""
    return messages, token


async def _scan(runtime: Runtime, request: MessageList, low: int, high: int, limit: int) -> tuple[MessagePage, int]:
    """A page of a range of seqs, and where the next one begins. Raises: RequestError SESSION_NOT_FOUND."""
    scan_low, scan_high = low, high
    if request.filtered:
        if request.descending:
            scan_low = max(low, high - limits.MAX_PAGE_SCAN + 1)
        else:
            scan_high = min(high, low + limits.MAX_PAGE_SCAN - 1)
    page = await runtime.sessions.list_messages(
        request.key,
        MessageQuery(
            from_seq=scan_low,
            to_seq=scan_high,
            descending=request.descending,
            limit=limit,
            bytes=limits.MAX_PAGE_BYTES,
            roles=frozenset(Role(role) for role in request.roles),
            run_id=request.run_id,
            from_time=request.from_time,
            to_time=request.to_time,
        ),
    )
    if page is None:
        raise session_not_found(request.key.agent, request.key.session_id)
    if page.more:
        last = page.messages[-1].seq
        return page, last - 1 if request.descending else last + 1
    return page, scan_low - 1 if request.descending else scan_high + 1


def _past(link: SummaryLink, seq: int, *, descending: bool) -> int:
    """Where a walk goes on that would go through what a summary stands for."""
    if not link.pinned_to < seq <= link.to_head:
        return seq
    return link.pinned_to if descending else link.to_head + 1


async def _summary(runtime: Runtime, key: SessionKey, record: Record, link: SummaryLink) -> StoredMessage | None:
    """The message that shows the current summary; None when another one is current by now."""
    read = await runtime.sessions.read_summaries(key, record.incarnation, [link.number])
    return summary_message(record, link, read[1][0]) if read is not None and read[1] else None


class _Signature(msgspec.Struct, frozen=True):
    """What must be the same on the next page."""

    order: int
    view: int
    roles: list[int]
    run_id: str
    from_seq: int
    to_seq: int
    from_time: int | None
    to_time: int | None


def _signature(request: MessageList) -> _Signature:
    return _Signature(
        request.order,
        request.view,
        sorted(request.roles),
        request.run_id,
        request.from_seq,
        request.to_seq,
        request.from_time,
        request.to_time,
    )


def _check_filter(request: MessageList) -> None:
    for field, value, choices in (("order", request.order, _ORDERS), ("view", request.view, _VIEWS)):
        if not 0 <= value < len(choices):
            raise field_invalid(field, f"{value} is none of {', '.join(choices)}")
    for role in request.roles:
        if role not in Role.__members__.values():
            raise field_invalid("filter.roles", f"{role} is not a role; use {', '.join(role.name for role in Role)}")
    check_text("filter.run_id", request.run_id, limits.MAX_ID_BYTES)
    for field, seq in (("filter.from_seq", request.from_seq), ("filter.to_seq", request.to_seq)):
        if seq < 0:
            raise field_invalid(field, "a seq is 1 or more, and 0 sets no bound")


def page_size_of(page_size: int) -> int:
    """The items of a page (AIP-158): 0 is the default, more than the maximum is the maximum.

    Raises: RequestError FIELD_INVALID for a negative one.
    """
    if page_size < 0:
        raise field_invalid("page_size", "it is 1 or more, and 0 means the default")
    return min(page_size, limits.MAX_PAGE_ITEMS) or limits.DEFAULT_PAGE_ITEMS


async def get_message(runtime: Runtime, key: SessionKey, *, seq: int | None, id_: str | None) -> StoredMessage:
    """One message, by seq or by id. Raises: RequestError (SESSION_NOT_FOUND, MESSAGE_NOT_FOUND), StoreUnavailable."""
    _, message = await find_message(runtime, key, seq=seq, id_=id_)
    return message


async def find_message(
    runtime: Runtime, key: SessionKey, *, seq: int | None, id_: str | None
) -> tuple[Record, StoredMessage]:
    """One message, and the record with which it was read. Raises: as `get_message`."""
    check_key(key)
    if seq is None and id_ is None:
        raise field_required("by", "the message's seq or its id")
    if seq is not None and seq < 1:
        raise field_invalid("seq", "a seq is 1 or more")
    if id_ is not None:
        check_text("id", id_, limits.MAX_ID_BYTES, required=True, what="the message's id")
    loaded = await runtime.sessions.load(key)
    if loaded is None:
        raise session_not_found(key.agent, key.session_id)
    seqs = [seq] if seq is not None else []
    if id_ is not None:
        found = await runtime.store.find(key, LookupKind.MESSAGE, [id_])
        seqs = [appended.seq for lookup in found for appended in replay.answer_of(lookup)]
    read = await runtime.sessions.read(key, loaded.record.incarnation, seqs) if seqs else None
    for message in read[1] if read else ():
        # A look-up may be of an earlier life of the session, in which the seq was another message's.
        if read and (id_ is None or message.id == id_):
            return read[0], message
    what = f"seq {seq}" if id_ is None else f"id {id_!r}"
    raise RequestError(
        Reason.MESSAGE_NOT_FOUND,
        f"session {key.session_id!r} of agent {key.agent!r} holds no message with {what}",
        agent=key.agent,
        session_id=key.session_id,
        message=seq if id_ is None else id_,
    )


async def get_session(runtime: Runtime, key: SessionKey) -> Record:
    """A session's record. Raises: RequestError SESSION_NOT_FOUND, StoreUnavailable."""
    check_key(key)
    loaded = await runtime.sessions.load(key)
    if loaded is None:
        raise session_not_found(key.agent, key.session_id)
    return loaded.record


async def list_sessions(
    runtime: Runtime, tenant: str, agent: str, user_id: str, page_size: int, page_token: str
) -> tuple[Sequence[tuple[SessionKey, Record]], str]:
    """A page of sessions, newest activity first, and the token of the next one. Raises: RequestError,
    StoreUnavailable.
    """
    check_text("agent", agent, limits.MAX_ID_BYTES)
    check_text("user_id", user_id, limits.MAX_ID_BYTES)
    secret = runtime.info.secret
    query = ("ListSessions", tenant, agent, user_id)
    after = page_tokens.read(secret, query, page_token, str) if page_token else ""
    page = await runtime.sessions.list_sessions(
        SessionQuery(tenant, agent or None, user_id or None, page_size_of(page_size), after)
    )
    return page.sessions, page_tokens.make(secret, query, page.after) if page.after else ""


async def update_session(
    runtime: Runtime, key: SessionKey, update: SessionUpdate, *, deadline: float | None = None
) -> Record:
    """Changes a session's settings. Raises: RequestError (SESSION_NOT_FOUND, ETAG_MISMATCH, …), StoreUnavailable."""
    check_key(key, "session.key")
    if update.user_id is not None:
        check_text("session.user_id", update.user_id, limits.MAX_ID_BYTES)
    if update.labels is not None:
        check_labels("session.labels", update.labels)
    if update.policy is not None:
        check_policy("session.policy", update.policy.policy, runtime.summarizers.names)
    if update.ttl is not None:
        check_ttl("session.ttl", update.ttl)
    return await runtime.committer.run(
        key, lambda record, _known: changes.plan_update(record, key, update), deadline=deadline
    )


async def clear(runtime: Runtime, key: SessionKey, request_id: str = "", *, deadline: float | None = None) -> int:
    """Takes away a session's messages (invariant 11). Returns: how many. Raises: RequestError, StoreUnavailable."""
    check_key(key)
    check_text("request_id", request_id, limits.MAX_ID_BYTES)
    return await recognizing(
        runtime, lambda secrets: _clear(runtime, key, RequestMark.of(secrets, request_id, "ClearHistory"), deadline)
    )


async def _clear(runtime: Runtime, key: SessionKey, mark: RequestMark | None, deadline: float | None) -> int:
    now = runtime.clock.now()
    (count,) = await runtime.committer.run(
        key,
        lambda record, known: changes.plan_clear(record, key, now, mark, known),
        ids=mark.ids if mark else (),
        deadline=deadline,
    )
    return count


async def clear_agent(runtime: Runtime, tenant: str, agent: str, *, deadline: float | None = None) -> tuple[int, int]:
    """Takes away the messages of all sessions of an agent, session by session.

    Returns: in how many sessions there were messages, and how many. Raises: RequestError, StoreUnavailable.
    """
    check_agent(agent)
    sessions = messages = 0
    after = ""
    # A clear is no activity: it moves no session within the list that is being walked.
    while True:
        page = await runtime.sessions.list_sessions(SessionQuery(tenant, agent, None, limits.MAX_PAGE_ITEMS, after))
        keys = [key for key, record in page.sessions if record.messages]
        cleared = await asyncio.gather(*(_clear(runtime, key, None, deadline) for key in keys))
        sessions += sum(1 for count in cleared if count)
        messages += sum(cleared)
        after = page.after
        if not after:
            return sessions, messages
