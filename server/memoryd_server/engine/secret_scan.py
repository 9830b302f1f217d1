"""Finds credentials in texts that are about to be kept (design section 7: writes of memory refuse them).

Only the place and the kind of a credential leave this module.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from memoryd_server.engine.disguises import UNSEEN

if TYPE_CHECKING:
    from detect_secrets.plugins.base import BasePlugin

    Detector = tuple[str, BasePlugin]

MAX_FOUND: Final = 10
"""Credentials that are told of one text: enough to see what is wrong with it."""

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_UNSEEN: Final = re.compile(UNSEEN)
_PECULIAR: Final = re.compile(r"[^\n\t -~]+")
"""What may be another character than it seems."""


@dataclass(frozen=True, slots=True)
class FoundSecret:
    """Where a credential is, and what it is; never the credential."""

    line: int
    """From 1. A line ends at LF, CRLF or CR, as in Markdown."""
    kind: str
    """In English, for people and programs: "AWS access key"."""


def find_secrets(text: str) -> Sequence[FoundSecret]:
    """The credentials in a text, in the order of lines, each kind once a line, MAX_FOUND at most.

    Pure and safe in every thread. It takes some tenths of a second for a MiB, and as much more at first:
    asynchronous callers call it in a thread.
    """
    # Late: it takes long, and most servers never need it.
    from memoryd_server.engine.secret_detectors import ASSIGNED, FORMS

    lines = _LINE_END.split(text)
    seen = _as_seen("\n".join(lines)).split("\n")
    # Both, since what is not seen may also part a credential from a word.
    both = [line if line == other else f"{line}\n{other}" for line, other in zip(lines, seen, strict=True)]
    return list(islice(_search(both, 1, FORMS, ASSIGNED), MAX_FOUND))


def find_secrets_in_bytes(content: bytes) -> Sequence[FoundSecret]:
    """The credentials in a text that is UTF-16 if it looks so, and UTF-8 otherwise. See `find_secrets`."""
    encoding = _utf_16(content)
    # A mark at the beginning proves nothing: other readers take no notice of it.
    return (encoding and find_secrets(content.decode(encoding, "replace"))) or find_secrets(
        content.decode("utf-8", "replace")
    )


def _utf_16(content: bytes) -> str:
    """The encoding as its mark tells it, or the zero in each second byte of most scripts; empty if it is another."""
    for mark, encoding, zeros in (
        (codecs.BOM_UTF16_LE, "utf-16-le", content[1::2]),
        (codecs.BOM_UTF16_BE, "utf-16-be", content[::2]),
    ):
        if content.startswith(mark) or (zeros and zeros.count(0) * 2 > len(zeros)):
            return encoding
    return ""


def _as_seen(text: str) -> str:
    """The text without what is not seen, and with ASCII for the characters whose compatibility form it is. Its lines
    stay what they are.

    By characters: to normalize a text at once takes quadratic time for some.
    """
    peculiar = {ord(one): _character_as_seen(one) for one in set[str]().union(*_PECULIAR.findall(text))}
    return _PECULIAR.sub(lambda run: run[0].translate(peculiar), text) if peculiar else text


def _character_as_seen(character: str) -> str:
    if _UNSEEN.fullmatch(character):
        return " " if character.isspace() else ""
    form = unicodedata.normalize("NFKC", character)
    return form if form.isascii() else character


def _search(
    lines: Sequence[str], first: int, forms: Sequence[Detector], assigned: Sequence[Detector]
) -> Iterator[FoundSecret]:
    """Searches lines at once, and then in halves with the detectors that found something: what they find in a line they
    find in any text around it, too. So it takes few calls, however many lines there are.
    """
    text = "\n".join(lines)
    forms, assigned = _suspects(forms, text), _suspects(assigned, text)
    if len(lines) == 1:
        # A credential whose form is known is told once, and not again as the value of its name.
        yield from (FoundSecret(first, kind) for kind in dict.fromkeys(kind for kind, _ in forms or assigned))
    elif forms or assigned:
        middle = len(lines) // 2
        yield from _search(lines[:middle], first, forms, assigned)
        yield from _search(lines[middle:], first + middle, forms, assigned)


def _suspects(detectors: Sequence[Detector], text: str) -> Sequence[Detector]:
    """The detectors that find something."""
    return [(kind, plugin) for kind, plugin in detectors if any(True for _ in plugin.analyze_string(text))]
