"""Summaries without a model: the sentences and fields that say most, as they were said (design section 6).

The embedded default: deterministic, without network, for any language. It is pure Python on a thread: it holds the
interpreter lock, which the interpreter takes away every 5 ms when the event loop waits for it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from typing import Final

from memoryd_server.summarizers import answers, ranking, units
from memoryd_server.summarizers.base import (
    EXTRACTIVE,
    Count,
    FailureReason,
    SummarizerError,
    SummaryAnswer,
    SummaryRequest,
)
from memoryd_server.summarizers.units import Unit

MODEL: Final = "extractive-1"
"""As summaries record it; the number changes with the ranking."""

PASS_UNITS: Final = 1_000
"""Units that are ranked at once, beside those that the passes before have left: bounds memory, to about 5 MB."""

_NO_SPACE_AFTER: Final = ("。", "！", "？")
"""After these no space is written, and it would cost a token."""

_NOTHING_SAID: Final = "({messages:,} messages without text)"

SURVIVING: Final = 2
"""What a pass leaves for the next one, in lengths of the summary."""


class ExtractiveSummarizer:
    """Takes about 1 ms for each message of some sentences, and never fails but for its deadline. It has no settings."""

    name = EXTRACTIVE
    input_limit = None

    async def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        given_up = threading.Event()
        try:
            text = await asyncio.to_thread(_extract, request, given_up)
        finally:
            # A thread cannot be stopped from outside: it looks after each pass.
            given_up.set()
        return SummaryAnswer(text, MODEL)

    async def close(self) -> None:
        pass


def _extract(request: SummaryRequest, given_up: threading.Event) -> str:
    said = chain(units.of_summary(request.previous or ""), units.of_messages(request.messages))
    left: list[Unit] = []
    shortest: Unit | None = None
    for batch in _batches(said, PASS_UNITS):
        if given_up.is_set():
            return ""
        if time.monotonic() > request.deadline:
            raise SummarizerError(
                FailureReason.TIMEOUT, "the summarizer extractive did not end in time", is_retryable=True
            )
        left += batch
        shortest = min((*batch, shortest) if shortest else batch, key=lambda unit: len(unit.text))
        chosen = ranking.select(left, SURVIVING * request.target_tokens, request.count)
        left = [left[index] for index in sorted(chosen)]
    text = _fitting(left, request.target_tokens, request.count)
    if text:
        return text
    # Each unit alone is too long: a part of one is better than nothing, which would fail again and again.
    said_least = _compose([shortest]) if shortest else _NOTHING_SAID.format(messages=len(request.messages))
    return answers.shorten(said_least, request.target_tokens, request.count)


def _batches(said: Iterable[Unit], size: int) -> Iterator[list[Unit]]:
    iterator = iter(said)
    while batch := list(islice(iterator, size)):
        yield batch


def _fitting(candidates: Sequence[Unit], target: int, count: Count) -> str:
    chosen = ranking.select(candidates, target, count)
    text = _compose(candidates[index] for index in sorted(chosen))
    while len(chosen) > 1 and count(text) > target:
        # Labels took more than was reckoned: the last choices make room.
        chosen.pop()
        text = _compose(candidates[index] for index in sorted(chosen))
    return text


def _compose(chosen: Iterable[Unit]) -> str:
    """A line for what one speaker said in one message; every line has its label, so that no text can pass for a line
    of somebody else.
    """
    lines: list[str] = []
    for (_, label), same in groupby(chosen, key=lambda unit: (unit.source, unit.label)):
        said = "".join(unit.text + ("" if unit.text.endswith(_NO_SPACE_AFTER) else " ") for unit in same).rstrip()
        lines.append(f"{label}: {said}" if label else said)
    return "\n".join(lines)
