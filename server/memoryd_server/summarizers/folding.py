"""Folds messages into one summary, however long they are: the one way to a summarizer (invariants 9 and 10)."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Final

from memoryd_server.stores.records import Role
from memoryd_server.summarizers import answers, chunks
from memoryd_server.summarizers.base import (
    FailureReason,
    PartKind,
    SourceMessage,
    SourcePart,
    Summarizer,
    SummarizerError,
    SummaryAnswer,
    SummaryRequest,
)
from memoryd_server.summarizers.prompt import summary_tokens

LEAST_INPUT_TOKENS: Final = 1_024
"""The least input limit that folding works with: a summary of half of it, and messages beside it."""

_RESERVE: Final = 64
"""Tokens for the fences around an earlier summary and the messages."""


@dataclasses.dataclass(frozen=True, slots=True)
class Folded:
    """A summary to be committed, and what it took."""

    text: str
    """Not empty, and at most the request's `max_tokens` long."""
    model: str
    input_tokens: int | None
    """What an endpoint counted, over all calls; None where nobody counts."""
    output_tokens: int | None
    """As above."""
    calls: int
    """How many chunks were folded one after the other."""


async def fold(summarizer: Summarizer, request: SummaryRequest) -> Folded:
    """One summary of the earlier one and all messages of a request; what is over the summarizer's input limit is folded
    in chunks, each with the summary so far.

    Nothing of a fold that fails is kept, so its deadline has to allow for its calls.

    Raises: SummarizerError, also for a summarizer that raises something else or takes too long; asyncio.CancelledError.
    """
    limit = summarizer.input_limit
    try:
        async with asyncio.timeout(request.deadline - time.monotonic()):
            while True:
                try:
                    return await _fold(summarizer, request, limit)
                except SummarizerError as error:
                    if error.reason is not FailureReason.INPUT_TOO_LONG or limit is None:
                        raise
                    # The vocabularies of model and session differ, or its settings are wrong: it gets less at a time.
                    limit //= 2
                    if limit < LEAST_INPUT_TOKENS:
                        raise
    except SummarizerError:
        raise
    except TimeoutError as error:
        raise SummarizerError(
            FailureReason.TIMEOUT,
            f"the summarizer {summarizer.name} did not end in time: give it more, or a faster model",
            is_retryable=True,
        ) from error
    except Exception as error:
        raise SummarizerError(
            FailureReason.INTERNAL, f"the summarizer {summarizer.name} failed: see the log", is_retryable=True
        ) from error


async def _fold(summarizer: Summarizer, request: SummaryRequest, limit: int | None) -> Folded:
    if limit is None:
        answer = await _answer(summarizer, request)
        return Folded(answer.text, answer.model, answer.input_tokens, answer.output_tokens, 1)
    most = min(request.max_tokens, limit // 2)
    text, messages = request.previous, request.messages
    earlier = await asyncio.to_thread(summary_tokens, text, request.count) if text else 0
    if text and earlier > limit // 2:
        # It was made under other settings: too long to go along with every chunk, it is folded like a message.
        messages, text, earlier = (_as_message(text), *messages), None, 0
    room = limit - max(most, earlier) - _RESERVE
    folded: list[SummaryAnswer] = []
    for chunk in await asyncio.to_thread(chunks.divide, messages, room, request.count):
        answer = await _answer(
            summarizer,
            dataclasses.replace(
                request,
                previous=text,
                messages=chunk,
                target_tokens=min(request.target_tokens, most),
                max_tokens=most,
            ),
        )
        text = answer.text
        folded.append(answer)
    last = folded[-1]
    return Folded(
        last.text,
        last.model,
        _sum([answer.input_tokens for answer in folded]),
        _sum([answer.output_tokens for answer in folded]),
        len(folded),
    )


async def _answer(summarizer: Summarizer, request: SummaryRequest) -> SummaryAnswer:
    answer = await summarizer.summarize(request)
    text = answers.accept(answer.text, request.max_tokens, request.count, is_cut=answer.is_cut)
    return dataclasses.replace(answer, text=text)


def _as_message(summary: str) -> SourceMessage:
    return SourceMessage(0, Role.ASSISTANT, (SourcePart(PartKind.TEXT, summary),), name="earlier summary")


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
