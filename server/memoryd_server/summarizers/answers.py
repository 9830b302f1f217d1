"""What becomes of a model's answer, the server's or an agent's own (invariant 10)."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from memoryd_server.summarizers import sentences
from memoryd_server.summarizers.base import Count, FailureReason, SummarizerError

ELLIPSIS: Final = "…"
"""Ends a summary whose first sentence alone was over the limit."""

_THINKING: Final = re.compile(r"\s*<(think|thinking)>.*?(?:</\1>|\Z)", re.DOTALL)
"""Models that think aloud begin so where their server does not take it out; it never ends where they were stopped."""

MARKER: Final = "[CONVERSATION SUMMARY]"
"""The line that marks summaries in windows: models that have seen it there begin with it."""


def accept(text: str, max_tokens: int, count: Count, *, is_cut: bool = False) -> str:
    """The summary that an answer is kept as: without white space around it, and at most `max_tokens` long.

    `is_cut`: whether the model had to stop. What is over the limit, and what it left unfinished, goes from the last end
    of a sentence on.

    Raises: SummarizerError (EMPTY_ANSWER) when nothing visible is left: nothing changes then (invariant 10).
    """
    text = _THINKING.sub("", text, count=1) if text.lstrip().startswith("<think") else text
    text = text.strip().removeprefix(MARKER).strip()
    if not any(_is_visible(character) for character in text):
        raise SummarizerError(
            FailureReason.EMPTY_ANSWER,
            "the summarizer answered with an empty text: nothing is changed, and it is asked again later",
            is_retryable=True,
        )
    if is_cut:
        text = _without_unfinished(text)
    return text if count(text) <= max_tokens else shorten(text, max_tokens, count)


def shorten(text: str, max_tokens: int, count: Count) -> str:
    """The longest beginning of a text that ends with a sentence and has at most `max_tokens`; where even the first
    sentence is longer, as much of that as fits, with an ellipsis.
    """
    ends = [0]
    for sentence in sentences.split(text):
        ends.append(ends[-1] + len(sentence))
    kept = _longest([text[:end].rstrip() for end in ends], max_tokens, count)
    if kept:
        return kept
    first = text[: ends[1]]
    return _longest([first[:end].rstrip() + ELLIPSIS for end in range(len(first))], max_tokens, count) or first[:1]


def _longest(candidates: list[str], max_tokens: int, count: Count) -> str:
    """The last of ever longer texts that fits; "" when none does."""
    low, high = 0, len(candidates)
    while low < high:
        middle = (low + high) // 2
        if count(candidates[middle]) <= max_tokens:
            low = middle + 1
        else:
            high = middle
    # Counts are nearly, not strictly, monotone in the length.
    while low and count(candidates[low - 1]) > max_tokens:
        low -= 1
    return candidates[low - 1] if low else ""


def _without_unfinished(text: str) -> str:
    *finished, last = sentences.split(text)
    is_finished = unicodedata.category(last.rstrip()[-1]).startswith("P")
    return text if is_finished or not finished else "".join(finished).rstrip()


def _is_visible(character: str) -> bool:
    return not character.isspace() and not unicodedata.category(character).startswith("C")
