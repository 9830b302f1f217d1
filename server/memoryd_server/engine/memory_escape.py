"""Makes memory neutral before it is rendered: it can imitate neither the markers of the block nor what stands between
them, headers and notices (design section 7, invariant 13). Ordinary Markdown and code are left as they are.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from memoryd_server.engine.disguises import INDENT, LINE_END, UNSEEN, any_of, compiled, look_alikes, word

MEMORY_CONTEXT: Final = "MEMORY_CONTEXT"
UNTRUSTED_CONTENT: Final = "UNTRUSTED_CONTENT"

_NEUTRAL: Final = "&lt;"
"""What stands for a "<" that would begin a marker."""

_QUOTED: Final = r"\1> "
"""How a line begins that would imitate a header or a notice, behind what ended the line before."""

_MARKER: Final = compiled(
    f"{any_of('<')}(?={UNSEEN}(?:{any_of('/')}{UNSEEN})?+(?:{word(MEMORY_CONTEXT)}|{word(UNTRUSTED_CONTENT)}))"
)
_BEGINS_MARKER: Final = look_alikes("<")
_IMITATION: Final = compiled(
    rf"({LINE_END})(?={INDENT}(?:(?:{any_of('#')}{UNSEEN})++(?:{word('user memory')}|{word('project memory')})(?!\w)"
    rf"|{any_of('[')}{UNSEEN}{word('earlier memory truncated')}))"
)
"""Begins with the end of the line before, which the search can leap to."""

_UNSAFE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"})
"""Characters that no label shows: control and format characters, other line ends, and what means nothing."""


def escape(text: str) -> str:
    """The text with its imitations neutral. It works within lines: a text that is cut at line ends gives the same."""
    if "#" in text or "[" in text or not text.isascii():
        text = _IMITATION.sub(_QUOTED, f"\n{text}")[1:]
    return _escape_markers(text)


def _escape_markers(text: str) -> str:
    # To look for each of a few characters is many times as fast as an expression for any of them.
    return _MARKER.sub(_NEUTRAL, text) if any(character in text for character in _BEGINS_MARKER) else text


def escape_label(label: str) -> str:
    """A path as it may stand within a line: without control characters, and unable to imitate a marker."""
    shown = "".join(character for character in label if unicodedata.category(character) not in _UNSAFE_CATEGORIES)
    return _escape_markers(shown.strip())
