"""Chooses the units that say most for their length: greedy coverage of weighted terms.

A term that is covered once counts little from then on, so what was said twice is kept once; the price of a unit is its
tokens. Terms are weighted by what they look like, in any script: ids and numbers most, then names, then words, less
where they are everywhere. There are no word lists, and no graph of all pairs: time grows with the text (times the
logarithm of its units), memory with its terms, and equal input gives equal output.

The weights were chosen by `python -m tests.summarizers.quality` on half of its conversations.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from memoryd_server.summarizers.base import Count
from memoryd_server.summarizers.units import Unit

_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
"""Scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana, Han."""

_TERM: Final = re.compile(
    rf"(?P<word>[^\W{_UNSPACED}]+(?:[.,:/@+'’_#-]+[^\W{_UNSPACED}]+)*)"
    r"|(?P<numeral>[〇一二三四五六七八九十百千万萬億亿兆两]{2,})"
    r"|(?P<katakana>[\u30a0-\u30ff]{2,})"
    rf"|(?P<run>[{_UNSPACED}]+)"
)
_HIRAGANA: Final = re.compile("[\u3040-\u309f]")
_SENTENCE_END: Final = re.compile(r"[.!?:…]\W*\Z")


class Look(Enum):
    """What a term looks like; the value is what covering it is worth."""

    ID = 2.5
    """Letters with digits, addresses, paths: whoever needs it needs it exactly. Numbers, dates, amounts too."""
    NAME = 2.0
    """A word with a capital letter within a sentence."""
    KATAKANA = 1.5
    """A foreign word in Japanese, often a name."""
    PAIR = 0.7
    """Two neighbouring characters of a script without spaces."""
    WORD = 0.5
    """A word of more than three letters."""
    SHORT = 0.2
    """A shorter one: mostly grammar."""
    HIRAGANA = 0.05
    """A pair of characters with one that mostly writes grammar."""


_SPEAKERS: Final[Mapping[str, float]] = {
    "error": 2.5,
    "user": 1.3,
    "assistant": 1.0,
    "": 1.0,
    "call": 0.6,
    "system": 0.5,
    "developer": 0.5,
    "tool": 0.3,
    "result": 0.3,
}
"""How much is given to who says it. What a result means is mostly said again; that a call failed seldom is."""

_EARLIER: Final = 1.25
"""How much more is given to units of the earlier summary: they have won once, and lost the company that made them
weigh."""

_ENDS: Final[Mapping[str, float]] = dict.fromkeys("?？؟!！", 0.5)
"""How much is left of a unit that ends so: the answer to a question says more than it, and what ends with an
exclamation mark is mostly a greeting or thanks.
"""

_COVERED: Final = 0.3
"""How much of a term is left once a chosen unit has it."""

_RETURNING: Final = 0.3
"""How much more, times the logarithm of the messages that have it, a term is worth."""

_COMMON: Final[Mapping[bool, tuple[float, float]]] = {True: (2.0, 0.3), False: (8.0, 0.1)}
"""How fast a name (True) or a word loses worth with the share of messages that have it, and what is left in the end."""

_CAPITALIZED: Final = 0.12
"""The share of names among words from which on capital letters mean less: in German every noun has one."""

_LENGTH: Final = 0.8
"""The exponent of the price: at 1 the shortest units would win, at 0 the longest."""

_SHYNESS: Final = 2
"""Tokens that are added to prices where units are compared: short ones say little alone."""

LABEL_TOKENS: Final = 3
"""About what the label before a unit takes."""


@dataclass(frozen=True, slots=True)
class _Rated:
    terms: Mapping[str, float]
    factor: float
    price: int


def select(units: Sequence[Unit], budget: int, count: Count) -> list[int]:
    """The indexes of the chosen units, the best first: together about `budget` tokens with their labels."""
    rated = _rate(units, count)
    covered: set[str] = set()

    def score(index: int) -> float:
        unit = rated[index]
        worth = sum(weight * _COVERED if term in covered else weight for term, weight in unit.terms.items())
        return worth * unit.factor / math.pow(unit.price + _SHYNESS, _LENGTH)

    # Scores only fall, by each term once: one that still leads when it is counted anew is the highest, and no unit is
    # counted more often than it has terms.
    best = [(-score(index), index) for index in range(len(units))]
    heapq.heapify(best)
    chosen: list[int] = []
    left = budget
    while best and left > LABEL_TOKENS:
        _, index = heapq.heappop(best)
        if rated[index].price > left:
            continue
        now = -score(index)
        if best and now > best[0][0]:
            heapq.heappush(best, (now, index))
            continue
        chosen.append(index)
        left -= rated[index].price
        covered.update(rated[index].terms)
    return chosen


def _rate(units: Sequence[Unit], count: Count) -> list[_Rated]:
    looks = [_looks(unit.text) for unit in units]
    spread: dict[str, int] = {}
    last: dict[str, int] = {}
    for unit, terms in zip(units, looks, strict=True):
        for term in terms:
            if last.get(term) != unit.source:
                last[term] = unit.source
                spread[term] = spread.get(term, 0) + 1
    sources = max(1, len({unit.source for unit in units}))
    names = sum(look is Look.NAME for terms in looks for look in terms.values())
    words = sum(look in (Look.WORD, Look.SHORT) for terms in looks for look in terms.values())
    name_worth = min(1.0, _CAPITALIZED * (names + words) / names) if names else 1.0

    def worth(term: str, look: Look) -> float:
        seen = spread[term]
        weight = look.value * (1 + _RETURNING * math.log(seen))
        if look in (Look.ID, Look.KATAKANA):
            return weight
        falling, least = _COMMON[look is Look.NAME]
        weight *= max(least, 1 - falling * seen / sources)
        return weight * name_worth if look is Look.NAME else weight

    return [
        _Rated(
            {term: worth(term, look) for term, look in terms.items()}, _factor(unit), count(unit.text) + LABEL_TOKENS
        )
        for unit, terms in zip(units, looks, strict=True)
    ]


def _looks(text: str) -> dict[str, Look]:
    """The terms of a unit."""
    found: dict[str, Look] = {}
    for match in _TERM.finditer(text):
        term = match.group()
        match match.lastgroup:
            case "word":
                found[term.casefold()] = _look(term, text, match.start())
            case "numeral":
                found[term] = Look.ID
            case "katakana":
                found[term] = Look.KATAKANA
            case _:
                for index in range(max(len(term) - 1, 1)):
                    pair = term[index : index + 2]
                    found[pair] = Look.HIRAGANA if _HIRAGANA.search(pair) else Look.PAIR
    return found


def _look(word: str, text: str, start: int) -> Look:
    if not word.isalpha() and (any(map(str.isdigit, word)) or any(mark in word for mark in "@_/")):
        return Look.ID
    stem = re.split("['’]", word, maxsplit=1)[0]
    if len(stem) == 1:
        return Look.SHORT
    if any(map(str.isupper, stem[1:])):
        return Look.NAME
    if stem[0].isupper() and start and not _SENTENCE_END.search(text, max(0, start - 3), start):
        return Look.NAME
    return Look.WORD if len(word) > 3 else Look.SHORT


def _factor(unit: Unit) -> float:
    factor = _SPEAKERS[unit.speaker] * (_EARLIER if unit.source < 0 else 1)
    end = unit.text.rstrip("\"'»”」』)） ")[-1:]
    return factor * _ENDS.get(end, 1.0)
