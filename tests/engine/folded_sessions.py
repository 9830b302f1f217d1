"""A session that is folded by a summarizer which knows what it was given, beside what the tests know of the history."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from memoryd_server.engine import histories, loading, redacting, rewinding, summaries, tokens
from memoryd_server.engine.changes import SessionSettings, SessionUpdate
from memoryd_server.engine.folder import Summarizers
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.loading import WindowRequest
from memoryd_server.engine.policies import PolicyUpdate
from memoryd_server.engine.runtime import Defaults, Runtime
from memoryd_server.engine.windows import WindowStats
from memoryd_server.stores.base import Store, StoreInfo
from memoryd_server.stores.records import (
    Covered,
    Policy,
    Record,
    Retention,
    SessionKey,
    StoredMessage,
    StoredSummary,
    SummaryLink,
    SummaryPolicy,
    Usability,
    WindowMode,
    WindowOptions,
)
from memoryd_server.summarizers.base import EXTRACTIVE, SummaryAnswer, SummaryRequest
from tests.engine.messages import KEY
from tests.engine.sessions import SECRET

SECOND = 1_000_000

Behaviour = Callable[[SummaryRequest], Awaitable[SummaryAnswer | None]]
"""What a summarizer does in the place of answering; with None it answers after all."""


class KnowingSummarizer:
    """Answers with a text of which it knows for which seqs it stands: those that it was given, and those of the earlier
    summary, which must be one of its own.
    """

    name = EXTRACTIVE

    def __init__(self, input_limit: int | None = None) -> None:
        self.input_limit = input_limit
        self.given: dict[str, frozenset[int]] = {}
        self.requests: list[SummaryRequest] = []
        self.behaviours: deque[Behaviour] = deque()
        """What it does at the next calls, one each; then it answers."""

    async def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        self.requests.append(request)
        if self.behaviours:
            answer = await self.behaviours.popleft()(request)
            if answer is not None:
                return answer
        earlier = self.given[request.previous] if request.previous is not None else frozenset()
        new = frozenset(message.seq for message in request.messages)
        text = f"summary {len(self.given)}"
        self.given[text] = earlier | new
        return SummaryAnswer(text, "knowing")

    async def close(self) -> None:
        pass

    def last_seqs(self) -> list[int]:
        """The seqs of the last request, in its order."""
        return [message.seq for message in self.requests[-1].messages]


class Held:
    """Holds a summarizer until it is let go."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()

    async def __call__(self, request: SummaryRequest) -> None:
        self.begun.set()
        await self.let_go.wait()


def answering(text: str) -> Behaviour:
    """A model that says this."""

    async def answer(request: SummaryRequest) -> SummaryAnswer:
        return SummaryAnswer(text, "scripted")

    return answer


def raising(error: BaseException) -> Behaviour:
    """A summarizer that fails so."""

    async def fail(request: SummaryRequest) -> SummaryAnswer:
        raise error

    return fail


def folding_policy(
    limit: int,
    *,
    keep: int | None = None,
    mode: WindowMode = WindowMode.MESSAGES,
    retention: Retention = Retention.KEEP,
    summarizer: str = "",
    wait: bool = True,
    max_tokens: int | None = None,
    window: WindowOptions = WindowOptions(),
) -> Policy:
    """A policy with summaries."""
    options = WindowOptions(mode, limit, window.pin_system, window.start_with_user, window.open_calls, window.oversize)
    return Policy(
        options,
        SummaryPolicy(summarizer=summarizer, max_tokens=max_tokens, keep=keep, retention=retention, wait=wait),
    )


def server_on(store: Store, summarizer: KnowingSummarizer, secret: bytes = SECRET) -> Runtime:
    """What a server holds of the store."""
    return Runtime(
        "default",
        store,
        StoreInfo("in_memory", False, (), secret),
        Defaults(tokenizer=tokens.ESTIMATE),
        summarizers=Summarizers({EXTRACTIVE: summarizer}),
    )


def pass_time(seconds: float, *servers: Runtime) -> None:
    """Has the store's clock go on, as these servers know it."""
    for server in servers:
        server.clock._offset += int(seconds * SECOND)


@dataclass
class FoldedSession:
    """A session with a policy that folds it."""

    runtime: Runtime
    summarizer: KnowingSummarizer
    policy: Policy
    key: SessionKey = KEY
    living: set[int] = field(default_factory=set)
    """The seqs of all messages that were appended and not taken away again."""

    async def append(self, *messages: IncomingMessage) -> list[int]:
        """Appends a batch. Returns: its seqs."""
        answers = await histories.append(
            self.runtime, histories.Append(self.key, messages, settings=SessionSettings("user", policy=self.policy))
        )
        seqs = [answer.seq for answer in answers]
        self.living.update(seqs)
        return seqs

    async def load(
        self, options: WindowOptions = WindowOptions(), *, wait: bool | None = None, on: Runtime | None = None
    ) -> tuple[Sequence[StoredMessage], WindowStats]:
        """A window, by the stored policies where the options say nothing."""
        return await loading.load(on or self.runtime, WindowRequest(self.key, options, wait=wait))

    async def clear(self) -> None:
        """Takes all messages away."""
        await histories.clear(self.runtime, self.key)
        self.living.clear()

    async def rewind(self, to_seq: int) -> None:
        """Takes away the messages behind a seq."""
        await rewinding.rewind(self.runtime, self.key, to_seq)
        self.living = {seq for seq in self.living if seq <= to_seq}

    async def redact(self, seq: int) -> None:
        """Redacts a message."""
        await redacting.redact(self.runtime, self.key, "", seq=seq, id_=None)

    async def revert(self) -> None:
        """Takes the current summary back."""
        await summaries.revert(self.runtime, self.key, (await summaries.get(self.runtime, self.key)).id)

    async def adopt(self, policy: Policy) -> None:
        """Changes the session's policy."""
        await histories.update_session(self.runtime, self.key, SessionUpdate(policy=PolicyUpdate(policy, whole=True)))
        self.policy = policy

    async def record(self) -> Record:
        """The session's record as it is stored."""
        loaded = await self.runtime.store.load(self.key)
        assert loaded is not None
        return loaded.record

    async def stored(self) -> Sequence[StoredMessage]:
        """All messages of the history by seq, as they stand in the store."""
        record = await self.record()
        read = await self.runtime.store.read(self.key, record.incarnation, range(1, record.last_seq + 1))
        assert read is not None
        return read[1]

    async def chain(self) -> Sequence[StoredSummary]:
        """The stored summaries, oldest first."""
        record = await self.record()
        numbers = [link.number for link in record.summaries]
        read = await self.runtime.store.read_summaries(self.key, record.incarnation, numbers)
        assert read is not None
        assert [summary.number for summary in read[1]] == numbers
        return read[1]

    async def summarized(self) -> frozenset[int]:
        """The seqs for which the current summary stands, as its text tells."""
        chain = await self.chain()
        return self.summarizer.given[chain[-1].text] if chain else frozenset()

    async def check(self) -> None:
        """Every message is in the summary or raw, and the record knows how many are which (invariants 9 to 11)."""
        record, stored, given = await self.record(), await self.stored(), await self.summarized()
        link = record.summary
        covered = [message for message in stored if link and is_covered(link, message)]
        raw = {message.seq for message in stored} - {message.seq for message in covered}
        assert {message.seq for message in covered} == given & {message.seq for message in stored}
        assert given | raw == self.living
        assert not given & raw
        assert record.messages == len(stored)
        assert record.tokens == sum(message.tokens for message in stored)
        assert record.bytes == sum(message.size for message in stored)
        assert record.open_messages == _of(Usability.OPEN, stored)
        assert record.orphan_messages == _of(Usability.ORPHAN, stored)
        if link is not None:
            assert link.messages == len(given)
            assert link.stored == Covered(
                len(covered),
                sum(message.tokens for message in covered),
                sum(message.size for message in covered),
                _of(Usability.OPEN, covered),
                _of(Usability.ORPHAN, covered),
            )
        for older, newer in zip(record.summaries, record.summaries[1:], strict=False):
            assert older.to_head <= newer.to_head
            assert older.number < newer.number
        for group in record.open_state.groups:
            members = [message for message in stored if message.head == group.head]
            assert link is None or group.head > link.to_head
            assert group.messages == len(members)
            assert all(message.usability is Usability.OPEN for message in members)
        assert record.open_call_count == sum(len(call.indexes) for call in record.open_state.calls)

    async def check_window(self, *, on: Runtime | None = None) -> WindowStats:
        """The window of the stored policies is valid, within its limit, and its stats tell the truth (invariants 6, 7
        and 9).
        """
        for _ in range(5):
            window, stats = await self.load(wait=True, on=on)
            record = await self.record()
            stored, given = await self.stored(), await self.summarized()
            if stats.life == (record.incarnation, record.epoch):
                break
        else:
            raise AssertionError("the session goes on changing")
        link = record.summary
        raw = [message for message in stored if not (link and is_covered(link, message))]
        by_seq = {message.seq: message for message in raw}
        shown = [message for message in window if message.seq]
        assert (window[stats.pins].id if stats.summary_id else "") == stats.summary_id
        assert bool(stats.summary_id) == bool(given)
        assert [message.seq for message in shown[: stats.pins]] == [
            message.seq for message in raw[: stats.pins]
        ]  # They open the history.
        units: dict[int, set[int]] = {}
        for message in shown[stats.pins :]:
            assert by_seq[message.seq].usability is not Usability.ORPHAN
            units.setdefault(message.head, set()).add(message.seq)
        for head, members in units.items():
            assert members == {message.seq for message in raw if message.head == head}
        behind_pins = shown[stats.pins :]
        assert behind_pins == sorted(behind_pins, key=lambda message: (message.head, message.position, message.seq))
        used = stats.window_tokens if stats.settings.mode == WindowMode.TOKENS else len(window)
        assert used <= stats.settings.limit or (stats.over_limit and len(units) <= 1)
        left = stats.left_out
        assert left.orphan_count == _of(Usability.ORPHAN, raw)
        counted = sum(message.seq in by_seq for message in shown) + left.limit_count + left.orphan_count
        assert counted + left.open_count + (len(stored) - len(raw)) == len(stored) == stats.history_messages
        assert left.limit_count >= 0
        assert stats.uncovered == left.limit_count
        return stats


def is_covered(link: SummaryLink, message: StoredMessage) -> bool:
    """Whether a summary stands for a message."""
    return message.head <= link.to_head and message.seq > link.pinned_to


def _of(usability: Usability, messages: Sequence[StoredMessage]) -> int:
    return sum(message.usability is usability for message in messages)
