"""Bringing transcripts into a server: several sessions at once, each exactly once.

Every session is looked at before anything is appended to it, so an import can be repeated at any time: after an
interruption, with a file that has more lines, or with transcripts that have more messages. What a session holds must be
the beginning of its transcript; anything else is refused.
"""

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from memoryd import (
    AsyncMemoryClient,
    AsyncSession,
    FieldInvalid,
    FieldTooLarge,
    InvalidArgument,
    LastSeqMismatch,
    MessageIdConflict,
    MessageNotFound,
    ResourceExhausted,
    SessionNotFound,
    SessionSettings,
    batches,
)
from memoryd_server.cli.transcripts import BadLine, Source, Transcript, base_of

IN_FLIGHT: Final = 16
"""Sessions that are stored at once."""
IN_FLIGHT_BYTES: Final = 64 << 20
"""Bytes of the lines that are stored at once; one longer line is stored alone."""
ATTEMPTS: Final = 5
"""How often a session is looked at again because others wrote to it meanwhile."""


@dataclass(slots=True)
class Tally:
    """What an import has done so far."""

    sessions: int = 0
    """Whose messages are all stored now."""
    new: int = 0
    """Messages stored by this import."""
    known: int = 0
    """Messages that were stored already."""
    cut: int = 0
    """New messages out of which the server cut rendered memory."""
    empty: int = 0
    """Lines without messages."""
    bytes: int = 0
    """Of the lines that are done."""
    bad: int = 0
    """Lines that were passed over."""
    example: tuple[str, str] | None = None
    """Agent and id of a session that was imported."""


class Observer(Protocol):
    """Is told how an import goes on."""

    def advanced(self, tally: Tally) -> None:
        """Something more is done."""

    def skipped(self, bad: BadLine) -> None:
        """A line was passed over."""


async def transfer(
    client: AsyncMemoryClient,
    sources: Iterable[Source],
    tally: Tally,
    observer: Observer,
    *,
    create: SessionSettings,
    skip_bad: bool,
) -> None:
    """Imports the transcripts of files in their order, several at once.

    Args:
        client: The server's client.
        sources: The files.
        tally: Is kept up to date, so that it is right also after an interruption.
        observer: Is told about each step.
        create: The settings of sessions that the import begins.
        skip_bad: Whether bad lines are passed over; otherwise the first one ends the import, once the lines that were
            begun are done.

    Raises:
        BadLine: for the first bad line, unless they are skipped.
        MemorydError: when the server fails; what was begun may be stored in part, and a repetition goes on from there.
        OSError: when a file cannot be read.
    """
    await _Transfer(client, tally, observer, create, skip_bad).run(sources)


class _Transfer:
    def __init__(
        self, client: AsyncMemoryClient, tally: Tally, observer: Observer, create: SessionSettings, skip_bad: bool
    ) -> None:
        self._client = client
        self._tally = tally
        self._observer = observer
        self._create = create
        self._skip_bad = skip_bad
        self._under_way: dict[tuple[str, str], tuple[asyncio.Task[None], int]] = {}

    async def run(self, sources: Iterable[Source]) -> None:
        try:
            for source in sources:
                for number, line in source.lines():
                    await self._begin(source, number, line)
            while self._under_way:
                await self._settle_one()
        except BadLine:
            await asyncio.gather(*self._tasks(), return_exceptions=True)
            self._note_what_is_done()
            raise
        finally:
            for task in self._tasks():
                task.cancel()
            await asyncio.gather(*self._tasks(), return_exceptions=True)

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for task, _ in self._under_way.values()]

    async def _begin(self, source: Source, number: int, line: bytes) -> None:
        try:
            transcript = source.transcript(number, line)
        except BadLine as bad:
            self._pass_over(bad, len(line))
            return
        if transcript is None:
            self._tally.empty += 1
            self._done(len(line))
            return
        key = transcript.agent, transcript.session_id
        # Two lines of one session are stored one after the other: the second may be a longer state of the first.
        while key in self._under_way or self._is_full(transcript.size):
            await self._settle_one()
        self._under_way[key] = asyncio.create_task(self._store(transcript)), transcript.size

    def _is_full(self, more: int) -> bool:
        size = sum(size for _, size in self._under_way.values())
        return bool(self._under_way) and (len(self._under_way) == IN_FLIGHT or size + more > IN_FLIGHT_BYTES)

    async def _settle_one(self) -> None:
        """Waits until at least one session is done. Raises what went wrong with one."""
        await asyncio.wait(self._tasks(), return_when=asyncio.FIRST_COMPLETED)
        for error, size in self._note_what_is_done():
            if not isinstance(error, BadLine):
                raise error
            self._pass_over(error, size)

    def _note_what_is_done(self) -> list[tuple[BaseException, int]]:
        """Counts the sessions that are done. Returns: what went wrong with the others, and the bytes of their lines."""
        failed = []
        for key, (task, size) in list(self._under_way.items()):
            if not task.done():
                continue
            del self._under_way[key]
            if error := task.exception():
                failed.append((error, size))
            else:
                self._tally.sessions += 1
                self._tally.example = self._tally.example or key
                self._done(size)
        return failed

    def _pass_over(self, bad: BadLine, size: int) -> None:
        if not self._skip_bad:
            raise bad
        self._tally.bad += 1
        self._observer.skipped(bad)
        self._done(size)

    def _done(self, size: int) -> None:
        self._tally.bytes += size
        self._observer.advanced(self._tally)

    async def _store(self, transcript: Transcript) -> None:
        session = self._client.session(agent=transcript.agent, id=transcript.session_id)
        known: int | None = None
        for attempts_left in reversed(range(ATTEMPTS)):
            try:
                state = await _look_at(session, transcript)
                if known is None:
                    known = state.stored
                    self._tally.known += known
                await self._append(session, transcript, state)
            except (LastSeqMismatch, MessageIdConflict) as error:
                if not attempts_left:
                    raise BadLine(
                        transcript.where, f"others keep writing to session {transcript.session_id!r}: {error}"
                    ) from error
            else:
                return

    async def _append(self, session: AsyncSession, transcript: Transcript, state: "_State") -> None:
        stored, last_seq = state.stored, state.last_seq
        messages = [
            replace(message, id=message_id)
            for message, message_id in zip(
                transcript.messages[stored:], transcript.ids(state.base)[stored:], strict=True
            )
        ]
        try:
            for batch in batches(messages):
                appended = await session.append(*batch, expected_last_seq=last_seq, create=self._create)
                last_seq = appended[-1].seq
                stored += len(batch)
                self._tally.new += len(batch)
                self._tally.cut += sum(message.memory_context_removed for message in appended)
                self._observer.advanced(self._tally)
        except (InvalidArgument, ResourceExhausted) as error:
            raise BadLine(transcript.where, _in_the_file(error.message, transcript.names[stored:])) from error
        except ValueError as error:
            raise BadLine(transcript.where, str(error)) from error


def _in_the_file(text: str, names: Sequence[str]) -> str:
    """An error's text with the messages named as in the file, not as in the append."""

    def named(place: re.Match[str]) -> str:
        index = int(place[1])
        return names[index] if index < len(names) else place[0]

    return re.sub(r"messages\[(\d+)\]", named, text)


@dataclass(frozen=True, slots=True)
class _State:
    """How far a session has got with its transcript."""

    base: int
    """The last seq before the transcript's first message: not 0 where the session was cleared."""
    stored: int
    """How many of the transcript's messages are stored."""
    last_seq: int


async def _look_at(session: AsyncSession, transcript: Transcript) -> _State:
    """How much of a transcript its session holds. Raises BadLine when it holds anything else, or can hold nothing."""
    try:
        info = await session.info()
    except SessionNotFound:
        return _State(0, 0, 0)
    except (FieldInvalid, FieldTooLarge) as error:  # The name of the session.
        raise BadLine(transcript.where, error.message) from error
    if not info.message_count:
        return _State(info.last_seq, 0, info.last_seq)
    base = 0 if info.message_count == info.last_seq else await _base(session)
    ids = transcript.ids(base)
    stored = min(info.last_seq - base, len(ids))
    # An id stands for all messages before it, too. So one message tells whether everything is as it should be.
    if await _id_at(session, base + stored) == ids[stored - 1]:
        return _State(base, stored, info.last_seq)
    return _State(base, await _compare(session, transcript, ids), info.last_seq)


async def _base(session: AsyncSession) -> int:
    async for first in session.messages(page_size=1, view="all"):
        base = base_of(first.id)
        return base if base is not None and base < first.seq else 0
    return 0


async def _id_at(session: AsyncSession, seq: int) -> str | None:
    try:
        return (await session.message(seq=seq)).id
    except MessageNotFound:
        return None


async def _compare(session: AsyncSession, transcript: Transcript, ids: Sequence[str]) -> int:
    """Compares message by message: how many are stored, where nothing else is."""
    equal = 0
    async for message in session.messages(page_size=1_000, view="all"):
        if equal < len(ids) and message.id == ids[equal]:
            equal += 1
            continue
        name = f"session {transcript.session_id!r} of agent {transcript.agent!r}"
        if not equal:
            what = f"{name} already holds other messages"
        elif base_of(message.id) is None:
            what = f"{name} went on with other messages after the first {equal} of these"
        else:
            what = f"{transcript.names[equal]} is not what {name} holds there, and a transcript can only grow"
        raise BadLine(transcript.where, f"{what}. Import it under another --agent or session_id")
    return equal
