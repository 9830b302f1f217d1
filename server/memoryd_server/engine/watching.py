"""Watches: what happens to a session, in order and each event once, from any place where an earlier watch ended.

Nothing is kept for a watcher: it reads from the store where it stands. Appends are told by the messages themselves, by
seq, and all else by the events that commits store beside them. An event stands behind the seq that was the last when it
happened, so that (seq, event number) is a place in the one order of both.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import msgspec

from memoryd_server import limits
from memoryd_server.engine import page_tokens
from memoryd_server.engine.errors import Reason, RequestError, field_invalid, session_not_found
from memoryd_server.engine.incoming import check_key
from memoryd_server.engine.runtime import Runtime
from memoryd_server.stores.base import MessageQuery
from memoryd_server.stores.records import Event, EventKind, Record, SessionKey, StoredMessage

FIRST_PAUSE_SECONDS: Final = 0.1
LAST_PAUSE_SECONDS: Final = 1.0
"""How often a watch looks for what other servers did: the more seldom, the longer nothing happens."""

HEARTBEAT_SECONDS: Final = 20.0
"""How often a watch answers when nothing happens: keeps the caller's token young, and shows that the stream lives."""

EVENTS_A_PAGE: Final = 100
MESSAGES_A_PAGE: Final = 256

_RETRY_SECONDS: Final = 5.0


class WatchKind(IntEnum):
    """What a watch tells; the values are those of the protocol's enum `WatchEventKind`."""

    APPENDED = 1
    SUMMARIZED = 2
    REDACTED = 3
    CLEARED = 4
    REWOUND = 5
    RESYNC = 6


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a watch stands."""

    incarnation: str
    seq: int
    """Appends are told up to this one."""
    number: int
    """Events are told up to this one."""
    epoch: int
    """The history's epoch there: whatever moves it has an event, unless a server that knew no events did it."""
    at: int
    """When the watch stood there, by the store's clock."""


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened, as a watch tells it."""

    kind: WatchKind
    from_seq: int
    to_seq: int
    message: StoredMessage | None
    at: int | None
    resume_token: str


@dataclass(frozen=True, slots=True)
class WatchAnswer:
    """Some of what happened. Empty when nothing did."""

    happenings: Sequence[Happening]
    resume_token: str


async def watch(
    runtime: Runtime, key: SessionKey, resume_token: str = "", after_seq: int | None = None
) -> AsyncGenerator[WatchAnswer]:
    """Tells what happens to a session. The first answer comes at once and is empty.

    Raises: RequestError (field errors, RESUME_TOKEN_INVALID, TOO_MANY_WATCHERS, SESSION_NOT_FOUND when there is no
    session or it ends, WATCH_STALLED), StoreUnavailable.
    """
    check_key(key)
    if after_seq is not None and after_seq < 0:
        raise field_invalid("after_seq", "a seq is 0 or more")
    if runtime.watched.count >= limits.MAX_WATCHERS:
        raise RequestError(
            Reason.TOO_MANY_WATCHERS,
            f"this server serves {limits.MAX_WATCHERS:,} watchers, the most that it may: watch another one, or later",
            retry_after=_RETRY_SECONDS,
            limit=limits.MAX_WATCHERS,
        )
    walk = _Walk(runtime, key)
    with runtime.watched.watching(key) as changed:
        runtime.instruments.watchers(1)
        try:
            await walk.begin(resume_token, after_seq)
            yield walk.answer(())
            pause, answered = FIRST_PAUSE_SECONDS, time.monotonic()
            while True:
                changed.clear()
                async with aclosing(walk.catch_up()) as found:
                    async for happenings in found:
                        pause, answered = FIRST_PAUSE_SECONDS, time.monotonic()
                        yield walk.answer(happenings)
                        _check_stall(answered)
                if time.monotonic() - answered >= HEARTBEAT_SECONDS:
                    answered = time.monotonic()
                    yield walk.answer(())
                    _check_stall(answered)
                try:
                    async with asyncio.timeout(pause):
                        await changed.wait()
                except TimeoutError:
                    pause = min(2 * pause, LAST_PAUSE_SECONDS)
        finally:
            runtime.instruments.watchers(-1)


def _check_stall(answered: float) -> None:
    """Raises: RequestError WATCH_STALLED when the answer that was given at this time was left unread for long."""
    if time.monotonic() - answered > limits.WATCH_STALL_SECONDS:
        raise RequestError(
            Reason.WATCH_STALLED,
            f"an answer was left unread for more than {limits.WATCH_STALL_SECONDS} s: resume with the last token",
            retry_after=0.0,
        )


class _Walk:
    """The way of one watch through what happened."""

    def __init__(self, runtime: Runtime, key: SessionKey) -> None:
        self._runtime = runtime
        self._sessions = runtime.sessions
        self._key = key
        self._place = _Place("", 0, 0, 0, 0)
        self._lost = False

    async def begin(self, resume_token: str, after_seq: int | None) -> None:
        """Goes to where the watch begins."""
        if resume_token:
            self._place = page_tokens.read(
                self._runtime.info.secret,
                ("WatchMessages", *self._key),
                resume_token,
                _Place,
                field="resume_token",
                reason=Reason.RESUME_TOKEN_INVALID,
                advice="send one that a watch of this session gave, or read the session and watch without a token",
            )
            self._lost = self._runtime.clock.now() - self._place.at >= limits.EVENT_SECONDS * 1_000_000
            return
        record = await self._record()
        self._place = self._end_of(record)
        if after_seq is not None:
            self._go_to(seq=min(after_seq, record.last_seq))

    async def _record(self) -> Record:
        loaded = await self._sessions.load(self._key)
        if loaded is None:
            raise session_not_found(self._key.agent, self._key.session_id)
        return loaded.record

    def _end_of(self, record: Record) -> _Place:
        """The place behind all that happened so far."""
        return _Place(record.incarnation, record.last_seq, record.version, record.epoch, self._runtime.clock.now())

    def _go_to(self, **fields: int) -> None:
        self._place = msgspec.structs.replace(self._place, **fields)

    def token(self) -> str:
        """The token of where the watch stands."""
        return page_tokens.make(self._runtime.info.secret, ("WatchMessages", *self._key), self._place)

    def answer(self, happenings: Sequence[Happening]) -> WatchAnswer:
        """An answer that ends where the watch stands."""
        return WatchAnswer(happenings, self.token())

    def _happening(
        self, kind: WatchKind, from_seq: int, to_seq: int, message: StoredMessage | None = None, at: int | None = None
    ) -> Happening:
        return Happening(kind, from_seq, to_seq, message, at, self.token())

    async def catch_up(self) -> AsyncGenerator[Sequence[Happening]]:
        """Tells all that happened since the place where the watch stands, in pieces of bounded size."""
        while True:
            record = await self._record()
            place = self._place
            if self._lost or record.incarnation != place.incarnation:
                yield self._resync(record)
                continue
            if (record.last_seq, record.epoch) == (place.seq, place.epoch):
                # Whatever else changed is no watcher's business.
                self._place = self._end_of(record)
                return
            events: Sequence[Event] = ()
            if record.epoch != place.epoch:
                page = await self._sessions.list_events(self._key, place.incarnation, place.number, EVENTS_A_PAGE)
                if page is None:
                    continue
                record, events = page.record, page.events
            if not self._explain(record, events):
                yield self._resync(record)
                continue
            steady = True
            for event in events:
                async with aclosing(self._appended(event.after_seq, record, tell_missing=True)) as appended:
                    async for happenings in appended:
                        yield happenings
                if self._place.seq < event.after_seq:
                    steady = False
                    break
                yield [await self._tell(event)]
            if steady and len(events) < EVENTS_A_PAGE:
                async with aclosing(self._appended(record.last_seq, record, tell_missing=False)) as appended:
                    async for happenings in appended:
                        yield happenings

    def _resync(self, record: Record) -> Sequence[Happening]:
        self._lost = False
        self._place = self._end_of(record)
        return [self._happening(WatchKind.RESYNC, 0, 0, at=self._place.at)]

    def _explain(self, record: Record, events: Sequence[Event]) -> bool:
        """Whether the events are all that moved the epoch: one may be deleted, or never have been stored."""
        epochs = [event.epoch for event in events]
        expected = list(range(self._place.epoch + 1, self._place.epoch + 1 + len(epochs)))
        complete = len(events) == EVENTS_A_PAGE or self._place.epoch + len(epochs) == record.epoch
        return epochs == expected and complete

    async def _tell(self, event: Event) -> Happening:
        self._go_to(number=event.number, epoch=event.epoch, at=self._runtime.clock.now())
        message = None
        if event.kind == EventKind.REDACTED:
            read = await self._sessions.read(self._key, self._place.incarnation, [event.from_seq])
            message = read[1][0] if read and read[1] and read[1][0].redaction else None
        kind = WatchKind(event.kind)
        return self._happening(kind, event.from_seq, event.to_seq, message, event.created)

    async def _appended(
        self, to_seq: int, record: Record, *, tell_missing: bool
    ) -> AsyncGenerator[Sequence[Happening]]:
        """Tells the appends up to a seq; ends early when history is taken away meanwhile, which then has an event.

        `tell_missing`: whether messages that are not there any more are told: later events tell what took them away.
        """
        while self._place.seq < to_seq:
            page = await self._sessions.list_messages(
                self._key,
                MessageQuery(
                    self._place.seq + 1,
                    to_seq,
                    descending=False,
                    limit=MESSAGES_A_PAGE,
                    bytes=limits.WATCH_PAGE_BYTES,
                ),
            )
            if page is None or (page.record.incarnation, page.record.epoch) != (record.incarnation, record.epoch):
                return
            now = self._runtime.clock.now()
            happenings = []
            for message in page.messages:
                if tell_missing and message.seq > self._place.seq + 1:
                    happenings.append(self._missing(message.seq - 1))
                self._go_to(seq=message.seq, at=now)
                happenings.append(
                    self._happening(WatchKind.APPENDED, message.seq, message.seq, message, message.created)
                )
            if not page.more and self._place.seq < to_seq:
                if tell_missing:
                    happenings.append(self._missing(to_seq))
                self._go_to(seq=to_seq, at=now)
            if happenings:
                yield happenings

    def _missing(self, to_seq: int) -> Happening:
        from_seq = self._place.seq + 1
        self._go_to(seq=to_seq)
        return self._happening(WatchKind.APPENDED, from_seq, to_seq)
