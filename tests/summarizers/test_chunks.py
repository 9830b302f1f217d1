from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.engine.tokens import O200K_BASE, counter, estimate
from memoryd_server.stores.records import Role
from memoryd_server.summarizers import chunks, prompt
from memoryd_server.summarizers.base import (
    FailureReason,
    PartKind,
    SourceMessage,
    SourcePart,
    SummarizerError,
    SummaryAnswer,
    SummaryRequest,
)
from memoryd_server.summarizers.folding import LEAST_INPUT_TOKENS, fold
from tests.summarizers.requests import request, said

PARTS: Final = st.builds(
    SourcePart,
    st.sampled_from(PartKind),
    st.one_of(
        st.text(max_size=50),
        st.builds(lambda text, times: text * times, st.text(min_size=1, max_size=30), st.integers(1, 500)),
    ),
    st.text(max_size=10),
)
MESSAGES: Final = st.lists(
    st.builds(
        SourceMessage,
        st.integers(1, 9),
        st.sampled_from(Role),
        st.lists(PARTS, max_size=4).map(tuple),
        st.text(max_size=10),
    ),
    max_size=6,
)


def _joined(pieces: Iterable[SourceMessage]) -> list[tuple[PartKind, str, str]]:
    """What messages say, with parts that were cut put together."""
    told: list[tuple[PartKind, str, str]] = []
    goes_on = False
    for piece in pieces:
        for index, part in enumerate(piece.parts):
            if told and told[-1][:2] == (part.kind, part.name) and (goes_on or index):
                told[-1] = (part.kind, part.name, told[-1][2] + part.text)
            else:
                told.append((part.kind, part.name, part.text))
        goes_on = piece.piece < piece.pieces
    return told


@given(MESSAGES, st.integers(chunks.LEAST_TOKENS, 2_000))
def test_chunks_hold_every_message_whole_and_in_order(messages: list[SourceMessage], limit: int) -> None:
    """(invariant 10)"""
    divided = chunks.divide(messages, limit, estimate)

    assert all(divided)
    for chunk in divided:
        assert sum(estimate(prompt.render(message)) for message in chunk) <= limit
    pieces = [message for chunk in divided for message in chunk]
    for message in messages:
        of_it = [pieces.pop(0)]
        while of_it[-1].piece < of_it[-1].pieces:
            of_it.append(pieces.pop(0))
        assert _joined(of_it) == _joined([message])
        assert [piece.piece for piece in of_it] == list(range(1, of_it[0].pieces + 1))
        assert {(piece.seq, piece.role, piece.name) for piece in of_it} == {(message.seq, message.role, message.name)}
    assert not pieces


def test_a_long_text_is_cut_between_lines_or_words() -> None:
    lines = "".join(f"Line {number} says something of its own.\n" for number in range(1_000))
    words = " ".join(f"word{number}" for number in range(2_000))
    for text, end in ((lines, "\n"), (words, " ")):
        pieces = [piece for chunk in chunks.divide([said(1, text)], 500, estimate) for piece in chunk]
        assert len(pieces) > 5
        assert all(piece.parts[-1].text.endswith(end) for piece in pieces[:-1])


@pytest.mark.parametrize("text", ["a" * 150_000, "字" * 150_000, "<MESSAGE>" * 17_000, "ab " * 50_000])
def test_dividing_is_quick_on_a_long_tool_result(text: str) -> None:
    count = counter(O200K_BASE)
    message = SourceMessage(1, Role.TOOL, (SourcePart(PartKind.RESULT, text, "read_file"),))
    started = time.process_time()
    divided = chunks.divide([message], 4_000, count)
    assert time.process_time() - started < 5, "0.1 s, but the machine may be busy"
    assert "".join(part.text for chunk in divided for piece in chunk for part in piece.parts) == text


class Echo:
    """Answers with the seqs of what it is given, those in the earlier summary first: a message that was skipped or
    given twice shows.
    """

    name = "echo"
    NONE: Final = "none"
    """Its answer to the first piece of the first message."""

    def __init__(
        self, input_limit: int | None = None, *, takes: int | None = None, answer: Callable[[], str] | None = None
    ) -> None:
        self.input_limit = input_limit
        self.requests: list[SummaryRequest] = []
        self._takes = takes
        self._answer = answer

    async def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        await asyncio.sleep(0)
        tokens = sum(estimate(prompt.render(message)) for message in request.messages)
        tokens += estimate(prompt.escape(request.previous or ""))
        assert self.input_limit is None or tokens <= self.input_limit
        if self._takes is not None and tokens > self._takes:
            raise SummarizerError(FailureReason.INPUT_TOO_LONG, "too long", is_retryable=False)
        self.requests.append(request)
        if self._answer is not None:
            return SummaryAnswer(self._answer(), "echo-1")
        seqs = [str(message.seq) for message in request.messages if message.piece == message.pieces and message.seq]
        earlier = [word for word in (request.previous or "").split() if word != self.NONE]
        return SummaryAnswer(" ".join(earlier + seqs) or self.NONE, "echo-1", 10, 2)

    async def close(self) -> None:
        pass


async def _never() -> SummaryAnswer:
    answer: asyncio.Future[SummaryAnswer] = asyncio.get_running_loop().create_future()
    return await answer


async def test_what_is_within_the_limit_is_one_call() -> None:
    summarizer = Echo(LEAST_INPUT_TOKENS)
    folded = await fold(summarizer, request([said(3, "three"), said(4, "four")], previous="1 2"))
    assert folded.text == "1 2 3 4"
    assert (folded.model, folded.input_tokens, folded.output_tokens, folded.calls) == ("echo-1", 10, 2, 1)


async def test_what_is_over_the_limit_is_folded_in_chunks_and_nothing_is_skipped() -> None:
    """(invariant 10)"""
    messages = [said(seq, f"message {seq} " * (2_000 if seq == 7 else 60)) for seq in range(1, 20)]
    summarizer = Echo(2_000)
    folded = await fold(summarizer, request(messages, previous="0", target=200))
    assert folded.text == "0 " + " ".join(map(str, range(1, 20)))
    assert folded.calls == len(summarizer.requests) > 2
    assert folded.input_tokens == 10 * folded.calls


async def test_a_tool_result_of_150_000_characters_does_not_stop_it() -> None:
    result = SourceMessage(2, Role.TOOL, (SourcePart(PartKind.RESULT, "x" * 150_000, "read_file"),))
    folded = await fold(Echo(8_000), request([said(1, "read"), result, said(3, "thanks")]))
    assert folded.text == "1 2 3"


async def test_a_model_that_takes_less_than_its_limit_says_gets_less_at_a_time() -> None:
    messages = [said(seq, "word " * 200) for seq in range(1, 60)]
    folded = await fold(Echo(16_000, takes=3_000), request(messages, target=500))
    assert folded.text == " ".join(map(str, range(1, 60)))


async def test_a_model_that_takes_next_to_nothing_is_no_loop() -> None:
    with pytest.raises(SummarizerError) as raised:
        await fold(Echo(16_000, takes=10), request([said(1, "word " * 200)]))
    assert raised.value.reason is FailureReason.INPUT_TOO_LONG


async def test_an_earlier_summary_that_is_over_half_the_limit_is_folded_like_a_message() -> None:
    """It was made when the settings allowed more (invariant 9)."""
    previous = "".join(f"Fact {number} is kept. " for number in range(400))
    summarizer = Echo(LEAST_INPUT_TOKENS)
    await fold(summarizer, request([said(5, "five")], previous=previous, target=200))
    given_texts = [part.text for asked in summarizer.requests for message in asked.messages for part in message.parts]
    assert "".join(given_texts) == previous + "five"


@given(
    sizes=st.lists(st.integers(0, 8_000), min_size=1, max_size=8),
    limit=st.integers(LEAST_INPUT_TOKENS, 6_000),
    target=st.integers(50, 3_000),
)
def test_every_message_is_folded_exactly_once(sizes: list[int], limit: int, target: int) -> None:
    """(invariants 9 and 10)"""
    messages = [said(seq, "w" * size) for seq, size in enumerate(sizes, start=1)]
    folded = asyncio.run(fold(Echo(limit), request(messages, target=target)))
    assert folded.text == " ".join(str(seq) for seq in range(1, len(sizes) + 1))


@pytest.mark.parametrize("answer", ["", "  \n"])
@pytest.mark.parametrize("limit", [None, 2_000])
async def test_an_empty_answer_is_refused(answer: str, limit: int | None) -> None:
    """(invariant 10)"""
    with pytest.raises(SummarizerError) as raised:
        await fold(Echo(limit, answer=lambda: answer), request([said(1, "one")]))
    assert raised.value.reason is FailureReason.EMPTY_ANSWER


async def test_an_answer_that_is_too_long_is_shortened_at_a_sentence() -> None:
    folded = await fold(Echo(answer=lambda: "It is Atlas. " * 100), request([said(1, "one")], target=20))
    assert folded.text == " ".join(["It is Atlas."] * 6)


async def test_a_summarizer_that_takes_too_long_is_stopped() -> None:
    stopped: list[bool] = []

    class Slow(Echo):
        async def summarize(self, request: SummaryRequest) -> SummaryAnswer:
            try:
                return await _never()
            finally:
                stopped.append(True)

    with pytest.raises(SummarizerError) as raised:
        await fold(Slow(), request([said(1, "one")], patience=0.01))
    assert raised.value.reason is FailureReason.TIMEOUT
    assert raised.value.is_retryable
    assert stopped


async def test_a_summarizer_that_fails_otherwise_says_nothing_of_what_it_was_given() -> None:
    def fail() -> str:
        raise KeyError("my secret project")

    with pytest.raises(SummarizerError) as raised:
        await fold(Echo(answer=fail), request([said(1, "my secret project")]))
    assert raised.value.reason is FailureReason.INTERNAL
    assert "secret" not in raised.value.text
    assert isinstance(raised.value.__cause__, KeyError), "for the log, which leaves its text out"


async def test_cancelling_is_not_a_failure() -> None:
    started = asyncio.Event()

    class Slow(Echo):
        async def summarize(self, request: SummaryRequest) -> SummaryAnswer:
            started.set()
            return await _never()

    task = asyncio.create_task(fold(Slow(), request([said(1, "one")])))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_requests_are_values() -> None:
    first = request([said(1, "one")])
    assert dataclasses.replace(first, previous=None) == first
