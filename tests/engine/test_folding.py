"""Over any sequence of appends, loads, failures and restarts, every message is in the summary or raw (invariants 9 to
11).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server.engine import forking, summaries
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.forking import Fork
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.windows import SummaryState
from memoryd_server.stores.base import Store
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.records import OpenCalls, Policy, Retention, SessionKey, WindowMode, WindowOptions
from memoryd_server.summarizers.base import FailureReason, SummarizerError
from tests.engine.folded_sessions import (
    FoldedSession,
    KnowingSummarizer,
    answering,
    folding_policy,
    pass_time,
    raising,
    server_on,
)
from tests.engine.messages import KEY, calls, developer, histories, results, system, user

_FAILURES = (
    raising(SummarizerError(FailureReason.UNREACHABLE, "gone", is_retryable=True)),
    raising(SummarizerError(FailureReason.MISCONFIGURED, "wrong key", is_retryable=False)),
    raising(ValueError("a fault")),
    answering(""),
    answering(" \n\t"),
)
_STEPS = (
    *("append",) * 8,
    *("load",) * 4,
    *("answer", "fail", "restart", "clear", "rewind", "rewind", "redact", "fork", "revert", "policy", "summarize"),
)


@st.composite
def _policies(draw: st.DrawFn) -> Policy:
    mode = draw(st.sampled_from(WindowMode))
    by_messages = mode == WindowMode.MESSAGES
    options = WindowOptions(
        pin_system=draw(st.booleans()),
        start_with_user=draw(st.booleans()),
        open_calls=draw(st.sampled_from(OpenCalls)),
    )
    return folding_policy(
        draw(st.integers(2, 9) if by_messages else st.integers(256, 500)),
        keep=draw(st.none() | (st.integers(1, 6) if by_messages else st.integers(1, 300))),
        mode=mode,
        retention=draw(st.sampled_from(Retention)),
        window=options,
    )


class Life:
    """What happens to one session."""

    def __init__(self, store: Store, data: st.DataObject, name: str) -> None:
        self.store = store
        self.data = data
        self.summarizer = KnowingSummarizer()
        self.session = FoldedSession(
            server_on(store, self.summarizer),
            self.summarizer,
            data.draw(_policies(), label="policy"),
            KEY._replace(session_id=name),
        )
        self.name = name
        self.steps = 0
        self.redacted: dict[int, int] = {}
        """How many summaries had been made when a message was redacted, by its seq."""

    async def live(self, most: int) -> None:
        """So many steps at most, and an hour later nothing is left to fold."""
        await self._append()
        if not self.session.living:
            return
        for _ in range(self.data.draw(st.integers(4, most), label="steps")):
            await self._step()
        pass_time(7_200, self.session.runtime)
        await self._load()
        await self.session.check()

    async def _step(self) -> None:
        self.steps += 1
        step = self.data.draw(st.sampled_from(_STEPS), label="step")
        try:
            await getattr(self, f"_{step}")()
        except RequestError as error:
            if error.reason not in {Reason.ORIGINALS_REMOVED, Reason.SUMMARIZER_FAILED}:
                raise
        await self.session.check()
        for summary in await self.session.chain():
            made = list(self.summarizer.given).index(summary.text)
            for seq in self.summarizer.given[summary.text] & self.redacted.keys():
                assert made >= self.redacted[seq], f"a summary outlives the redaction of {seq}"

    async def _append(self) -> None:
        if batch := self.data.draw(histories(6), label="appended"):
            await self.session.append(*batch)

    async def _answer(self) -> None:
        waiting = [call.token[1:] for call in (await self.session.record()).open_state.calls if call.token[0] == "="]
        if waiting:
            await self.session.append(results(self.data.draw(st.sampled_from(waiting), label="answered")))

    async def _load(self) -> None:
        stats = await self.session.check_window()
        record = await self.session.record()
        held = record.folding.held_at == record.last_seq
        blocked = any(group.head > record.last_user for group in record.open_state.groups)
        if stats.summary_state is not SummaryState.FAILED and not held and not blocked:
            assert stats.uncovered == 0

    async def _fail(self) -> None:
        self.summarizer.behaviours.append(self.data.draw(st.sampled_from(_FAILURES), label="failure"))
        await self._load()
        self.summarizer.behaviours.clear()
        await self.session.check()
        if self.data.draw(st.booleans(), label="waits"):
            pass_time(3_600, self.session.runtime)
            await self._load()

    async def _restart(self) -> None:
        await self.session.runtime.folder.close()
        await self.session.runtime.committer.close()
        self.session.runtime = server_on(self.store, self.summarizer)

    async def _clear(self) -> None:
        await self.session.clear()

    async def _rewind(self) -> None:
        last_seq = (await self.session.record()).last_seq
        await self.session.rewind(self.data.draw(st.integers(max(0, last_seq - 12), last_seq), label="rewound to"))

    async def _redact(self) -> None:
        stored = [message.seq for message in await self.session.stored()]
        if stored:
            seq = self.data.draw(st.sampled_from(stored), label="redacted")
            await self.session.redact(seq)
            self.redacted.setdefault(seq, len(self.summarizer.given))

    async def _fork(self) -> None:
        """Goes on with the fork."""
        last_seq = (await self.session.record()).last_seq
        through = self.data.draw(st.integers(1, last_seq), label="through") if last_seq else 1
        target = SessionKey(*self.session.key[:2], f"{self.name}-{self.steps}")
        await forking.fork(self.session.runtime, Fork(self.session.key, target, through))
        living = {seq for seq in self.session.living if seq <= through}
        self.session = replace(self.session, key=target, living=living)

    async def _revert(self) -> None:
        if (await self.session.record()).summaries:
            await self.session.revert()

    async def _policy(self) -> None:
        await self.session.adopt(self.data.draw(_policies(), label="policy"))

    async def _summarize(self) -> None:
        await summaries.summarize(self.session.runtime, self.session.key)


async def _session(policy: Policy, *messages: IncomingMessage) -> FoldedSession:
    summarizer = KnowingSummarizer()
    session = FoldedSession(server_on(InMemoryStore(), summarizer), summarizer, policy)
    for message in messages:
        await session.append(message)
    return session


async def test_instructions_that_are_pinned_no_longer_are_folded_and_removed_like_others() -> None:
    """Retention DELETE removes only covered, unpinned messages, and all of them (invariant 10)."""
    delete = folding_policy(6, retention=Retention.DELETE)
    session = await _session(delete, system("a"), developer("b"), *(user(str(number)) for number in range(8)))
    await session.check_window()
    assert [message.seq for message in await session.stored()] == [1, 2, 8, 9, 10]
    await session.adopt(folding_policy(6, retention=Retention.DELETE, window=WindowOptions(pin_system=False)))
    await session.append(*(user(str(number)) for number in range(8)))
    await session.check_window()
    await session.check()
    assert [message.seq for message in await session.stored()] == [14, 15, 16, 17, 18]


@pytest.mark.parametrize("mode", WindowMode)
async def test_instructions_that_are_pinned_no_longer_are_folded_although_all_else_fits(mode: WindowMode) -> None:
    """Else they would be in neither the summary nor the window (invariant 9)."""
    session = await _session(
        folding_policy(6), system("a"), developer("b"), *(user(str(number)) for number in range(8))
    )
    await session.check_window()
    assert await session.summarized() == {3, 4, 5, 6, 7}
    limit = 6 if mode == WindowMode.MESSAGES else 500
    await session.adopt(folding_policy(limit, mode=mode, window=WindowOptions(pin_system=False)))
    assert (await session.check_window()).uncovered == 0
    assert await session.summarized() == {1, 2, 3, 4, 5, 6, 7}
    await session.check()


async def test_instructions_that_a_smaller_limit_pins_no_longer_are_folded() -> None:
    session = await _session(folding_policy(8), *(system(str(number)) for number in range(4)), user("1"), user("2"))
    await session.append(*(user(str(number)) for number in range(3)))
    await session.check_window()
    await session.adopt(folding_policy(4))
    assert (await session.check_window()).uncovered == 0
    await session.check()


async def test_a_rewind_to_the_beginning_takes_a_summary_along_of_which_no_message_is_left() -> None:
    session = await _session(folding_policy(4, keep=1, retention=Retention.DELETE), *(user("hi") for _ in range(5)))
    await session.load()
    await session.rewind(4)
    await session.check()
    assert (await session.record()).messages == 0
    await session.rewind(0)
    await session.check()
    assert await session.chain() == []


async def test_a_rewind_brings_no_call_back_for_which_a_summary_stands() -> None:
    """Its answer would be in neither the summary nor the windows (invariant 9)."""
    session = await _session(folding_policy(4), calls("a"), *(user(str(number)) for number in range(4)))
    await session.append(calls("a"), results("a"))
    await session.load()
    assert await session.summarized() == {1, 2, 3, 4}
    await session.rewind(5)
    assert (await session.record()).open_call_count == 0
    await session.append(results("a"))
    await session.check()


@pytest.mark.parametrize("mode", WindowMode)
async def test_what_synthesized_results_push_out_of_the_window_is_folded(mode: WindowMode) -> None:
    """The window that the policy gives and the summary hold every message (invariant 9)."""
    limit = 5 if mode == WindowMode.MESSAGES else 256
    policy = folding_policy(limit, mode=mode, window=WindowOptions(open_calls=OpenCalls.SYNTHESIZE))
    text = "" if mode == WindowMode.MESSAGES else "word " * 85
    session = await _session(policy, user("1" + text), user("2" + text), calls("a", "b", "c"))
    stats = await session.check_window()
    assert (stats.uncovered, stats.summary_state) == (0, SummaryState.CURRENT)
    await session.check()


@given(st.data())
@settings(max_examples=150)
async def test_every_message_is_in_the_summary_or_raw_whatever_happens(data: st.DataObject) -> None:
    await Life(InMemoryStore(), data, "session").live(14)
