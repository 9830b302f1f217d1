"""Splits text of any language into sentences, with sentencex (Wikimedia's: some 300 languages, no data to download, no
dependencies, 40 MB a second).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import sentencex  # type: ignore[import-untyped] # It has no types.

_LANGUAGE: Final = "en"
"""Nobody says what language a conversation is in. The terminators of all languages hold in each; only abbreviations are
a language's own, and splitting at one costs a summary little.
"""

_BLOCK: Final = 1_000
"""Characters that are split at once: sentencex is quadratic in quotation marks that are never closed."""

_ORDINAL: Final = re.compile(r"(?:^|\s)\d{1,2}\.\s*$")
"""Many languages write a day as `3.`: no sentence ends there."""


def split(text: str) -> list[str]:
    """The sentences of a text, with the white space after each; joined they are the text. A line is never shared: what
    people and tools write in lines ends with them.
    """
    return [sentence for line in text.splitlines(keepends=True) for sentence in _joined_ordinals(_line_sentences(line))]


def _line_sentences(line: str) -> Iterator[str]:
    start = 0
    while start < len(line):
        end = len(line) if len(line) - start <= _BLOCK else _block_end(line, start)
        yield from sentencex.segment(_LANGUAGE, line[start:end])
        start = end


def _block_end(line: str, start: int) -> int:
    return line.rfind(" ", start + _BLOCK // 2, start + _BLOCK) + 1 or start + _BLOCK


def _joined_ordinals(sentences: Iterator[str]) -> Iterator[str]:
    whole = ""
    for sentence in sentences:
        whole += sentence
        if not _ORDINAL.search(sentence):
            yield whole
            whole = ""
    if whole:
        yield whole
