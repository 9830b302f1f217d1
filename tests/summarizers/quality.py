"""Measures how much of what conversations say is still in their summaries, and what making them costs.

    python -m tests.summarizers.quality --help

Sets: the conversations of `tests/summarizers/conversations`, and the airline transcripts where they are, twice: whole,
with the ids, dates, amounts and names that user and agent said or used (`stated`); and their first three fifths, with
those of them that user and agent need afterwards (`needed`). The weights of the ranking were chosen on the own
conversations but the French one, and on transcripts with even numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

from memoryd_server.engine.tokens import O200K_BASE, counter
from memoryd_server.summarizers import sentences
from memoryd_server.summarizers.base import SourceMessage, SummaryRequest
from memoryd_server.summarizers.extractive import ExtractiveSummarizer
from tests.summarizers import conversations
from tests.summarizers.conversations import Conversation, plain_text

SHARE: Final = 0.2
"""The length of a summary, as a part of the tokens of what it covers."""

FOLDS: Final = (1, 5)
"""Made at once, and in five folds of which each has the summary before it."""

Method = Callable[[str | None, Sequence[SourceMessage], int], str]
"""Makes a summary of an earlier one and messages, in at most so many tokens."""

count: Final = counter(O200K_BASE)
"""Counts tokens as most sessions do."""


def extractive(previous: str | None, messages: Sequence[SourceMessage], tokens: int) -> str:
    request = SummaryRequest(tuple(messages), tokens, tokens, count, time.monotonic() + 60, previous=previous)
    return asyncio.run(ExtractiveSummarizer().summarize(request)).text


def newest(previous: str | None, messages: Sequence[SourceMessage], tokens: int) -> str:
    text = "\n".join([previous or "", plain_text(messages)])
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        if count(text[middle:]) <= tokens:
            high = middle
        else:
            low = middle + 1
    return text[low:]


def lexrank(previous: str | None, messages: Sequence[SourceMessage], tokens: int) -> str:
    """sumy's, on the sentences that sentencex finds; words of scripts without spaces are pairs of characters."""
    from sumy.models.dom import (  # type: ignore[import-not-found] # It is installed for this alone.
        ObjectDocumentModel,
        Paragraph,
        Sentence,
    )
    from sumy.summarizers.lex_rank import LexRankSummarizer  # type: ignore[import-not-found]

    class Words:
        def to_words(self, text: str) -> tuple[str, ...]:
            words = text.split()
            return tuple(words if len(words) > 1 else (text[at : at + 2] for at in range(len(text) - 1)))

    said = [sentence.strip() for sentence in sentences.split("\n".join([previous or "", plain_text(messages)]))]
    left = tokens

    class WithinTokens(LexRankSummarizer):  # type: ignore[misc]
        def _get_best_sentences(self, sentences: Any, number: int, rating: Any) -> tuple[Any, ...]:
            nonlocal left
            chosen = []
            for index in sorted(range(len(sentences)), key=lambda index: -rating[sentences[index]]):
                price = count(str(sentences[index])) + 1
                if price <= left:
                    chosen.append(index)
                    left -= price
            return tuple(sentences[index] for index in sorted(chosen))

    document = ObjectDocumentModel([Paragraph([Sentence(one, Words()) for one in said if one])])
    return "\n".join(map(str, WithinTokens()(document, len(said))))


def best_sentences(conversation: Conversation, tokens: int) -> float:
    """The recall of whole sentences that were chosen with the facts known: about the most that is to be had."""
    said = [one for one in sentences.split(plain_text(conversation.messages)) if count(one) <= tokens]
    holds = [{fact for fact in conversation.facts if fact.is_in(one)} for one in said]
    known: set[Any] = set()
    left = tokens
    while True:
        gains = [
            (len(facts - known) / count(one), index)
            for index, (one, facts) in enumerate(zip(said, holds, strict=True))
            if facts - known and count(one) <= left
        ]
        if not gains:
            return len(known) / len(conversation.facts)
        _, index = max(gains)
        known |= holds[index]
        left -= count(said[index])


def budget(conversation: Conversation) -> int:
    return max(1, int(count(plain_text(conversation.messages)) * SHARE))


def fold(method: Method, conversation: Conversation, folds: int) -> str:
    """The summary of a conversation after so many folds."""
    messages, previous = conversation.messages, None
    edges = [len(messages) * fold // folds for fold in range(folds + 1)]
    for start, end in pairwise(edges):
        previous = method(previous, messages[start:end], budget(conversation))
    assert previous is not None
    return previous


def recall(conversation: Conversation, summary: str) -> float:
    """The part of the facts that the summary holds."""
    return sum(fact.is_in(summary) for fact in conversation.facts) / len(conversation.facts)


def sets() -> dict[str, list[Conversation]]:
    found = {conversation.name: [conversation] for conversation in conversations.own()}
    for name, airline in (
        ("airline, stated", conversations.airline_stated()),
        ("airline, needed", conversations.airline_needed()),
    ):
        numbered = list(enumerate(airline))
        for half, remainder in (("chosen on", 0), ("held out", 1)):
            some = [one for number, one in numbered if number % 2 == remainder and one.facts]
            if some:
                found[f"{name}, {half}"] = some
    return found


def methods() -> dict[str, Method]:
    found: dict[str, Method] = {"extractive": extractive, "newest": newest}
    if importlib.util.find_spec("sumy") and importlib.util.find_spec("numpy"):
        found["LexRank"] = lexrank
    else:
        print("sumy is missing, and its column with it: `make summary-quality` installs it.")
    return found


def mean(numbers: Iterable[float]) -> float:
    return statistics.mean(list(numbers))


def _table() -> None:
    columns = methods()
    print(f"Recall of facts at {SHARE:.0%} of the tokens, made at once / in {FOLDS[1]} folds; ms for a fold")
    print(f"{'':28}{'best':>6}" + "".join(f"{name:>22}" for name in columns))
    for name, some in sets().items():
        row = f"{name:28}{mean(best_sentences(one, budget(one)) for one in some):6.2f}"
        for method in columns.values():
            started = time.process_time()
            at_once, in_folds = ([recall(one, fold(method, one, folds)) for one in some] for folds in FOLDS)
            spent = (time.process_time() - started) / len(some) / sum(FOLDS) * 1_000
            row += f"{mean(at_once):9.2f} /{mean(in_folds):5.2f}{spent:6.0f}"
        print(row, flush=True)


def _costs() -> None:
    """The time of the thread for more and more messages of the own conversations."""
    said = [message for one in conversations.own() for message in one.messages]
    print("\nextractive, ms of processor time (the least of 5)")
    for number in (40, 400, 4_000, 40_000):
        messages = (said * (number // len(said) + 1))[:number]
        spent = []
        for _ in range(5 if number <= 4_000 else 1):
            started = time.process_time()
            extractive(None, messages, 1_000)
            spent.append(time.process_time() - started)
        print(f"{number:8,} messages {min(spent) * 1_000:10.1f}", flush=True)


def _show() -> None:
    for one in conversations.own():
        summary = fold(extractive, one, 1)
        print(f"\n== {one.name}, {count(summary)} of {budget(one)} tokens\n{summary}")
        print("-- lacks:", ", ".join(str(fact.needles) for fact in one.facts if not fact.is_in(summary)))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.summarizers.quality", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--show", action="store_true", help="show the summaries of the own conversations, and their gaps"
    )
    parser.add_argument("--costs", action="store_true", help="measure time over length alone")
    options = parser.parse_args()
    if not options.costs:
        _table()
    if options.show:
        _show()
    _costs()


if __name__ == "__main__":
    main()
