"""Regular expressions that find a word however it is dressed up: case, spaces, invisible characters and look-alikes of
Unicode's compatibility forms within one line.

All classes are fixed ranges, so that the same text is found on every Python. Every expression is linear: what may stand
between two letters never overlaps with what a letter may be.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_UNSEEN_RANGES: Final = (
    # Control characters and spaces, but for the line feed: it ends a line.
    *((0x00, 0x09), (0x0B, 0x20), (0x7F, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)),
    *((0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0x2800, 0x2800)),
    # Format characters.
    *((0xAD, 0xAD), (0x600, 0x605), (0x61C, 0x61C), (0x6DD, 0x6DD), (0x70F, 0x70F), (0x890, 0x891), (0x8E2, 0x8E2)),
    *((0x180E, 0x180E), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0xFEFF, 0xFEFF), (0xFFF0, 0xFFFB)),
    *((0x110BD, 0x110BD), (0x110CD, 0x110CD), (0x13430, 0x1343F), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A)),
    (0xE0000, 0xE0FFF),
    # Others that are drawn as nothing (Unicode, Default_Ignorable_Code_Point), and marks upon a letter.
    *((0x34F, 0x34F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x3164, 0x3164), (0xFE00, 0xFE0F)),
    *((0xFFA0, 0xFFA0), (0x300, 0x36F), (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF), (0x20D0, 0x20FF), (0xFE20, 0xFE2F)),
    # Private use, and what is no character: fonts draw them as they like, or not at all.
    *((0xE000, 0xF8FF), (0xFDD0, 0xFDEF), (0xFFFE, 0xFFFF), (0xF0000, 0x10FFFF)),
)

_LINE_END_POINTS: Final = (0x0A, 0x0B, 0x0C, 0x1C, 0x1D, 0x1E, 0x85, 0x2028, 0x2029)
"""What ends a line for somebody: for `str.splitlines`, which knows them all, or for an editor."""

_LOOK_ALIKE_RANGES: Final = (
    *((0x21, 0x7E), (0xA0, 0x24F), (0x2B0, 0x2E3), (0x1D2C, 0x1DBF), (0x1E00, 0x1EFF), (0x2070, 0x209C)),
    *((0x20A8, 0x20A8), (0x2100, 0x218B), (0x226E, 0x226F), (0x24B6, 0x24E9), (0x2C7C, 0x2C7D), (0x3250, 0x33FF)),
    *((0xA7F2, 0xA7F4), (0xFB00, 0xFB06), (0xFE30, 0xFE6B), (0xFF01, 0xFF5E), (0x1D400, 0x1D7FF), (0x1F12A, 0x1F190)),
)
"""Where the characters are whose compatibility form is ASCII, marks upon letters aside."""


def _escape(point: int) -> str:
    return f"\\U{point:08x}"


_UNSEEN: Final = "".join(f"{_escape(first)}-{_escape(last)}" for first, last in _UNSEEN_RANGES)
_LINE_ENDS: Final = "".join(map(_escape, _LINE_END_POINTS))

UNSEEN: Final = f"[{_UNSEEN}]*+"
"""Any number of characters that are not seen within a line."""

LINE_END: Final = f"[{_LINE_ENDS}]"
"""A character that ends a line for somebody."""

INDENT: Final = f"(?:(?!{LINE_END})[{_UNSEEN}])*+"
"""Any number of characters that are not seen and end no line."""


def _look_alikes() -> dict[str, str]:
    """The characters that a reader takes for ASCII, by the latter in lower case: one letter, or the several that a
    ligature joins.
    """
    found: dict[str, str] = {}
    for first, last in _LOOK_ALIKE_RANGES:
        for point in range(first, last + 1):
            letters = unicodedata.normalize("NFKD", chr(point)).casefold()
            plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
            if plain.isascii() and plain > " ":
                found[plain] = found.get(plain, "") + _escape(point)
    return found


_LOOK_ALIKES: Final = _look_alikes()


def any_of(characters: str) -> str:
    """An expression for one character that looks like one of these, in either case."""
    return f"[{''.join(_LOOK_ALIKES[character.casefold()] for character in characters)}]"


def look_alikes(character: str) -> str:
    """The characters that `any_of` finds."""
    return _LOOK_ALIKES[character.casefold()].encode().decode("unicode_escape")


def word(text: str) -> str:
    """An expression for an ASCII word whose characters may have unseen ones between them. A space in it stands for any
    number of unseen characters, and an underscore may be missing or be a hyphen.
    """
    characters = [character for character in text if character != " "]
    expressions: list[str] = []
    while characters:
        pair = "".join(characters[:2])
        if characters[0] == "_":
            expressions.append(f"{any_of('_-')}?+")
        elif len(pair) == 2 and (ligatures := _LOOK_ALIKES.get(pair.casefold())):
            expressions.append(f"(?:{any_of(pair[0])}{UNSEEN}{any_of(pair[1])}|[{ligatures}])")
            del characters[0]
        else:
            expressions.append(any_of(characters[0]))
        del characters[0]
    return UNSEEN.join(expressions)


def compiled(expression: str) -> re.Pattern[str]:
    """The expression, to be searched for."""
    return re.compile(expression)
