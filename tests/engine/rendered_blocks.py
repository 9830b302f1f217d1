"""Reads rendered blocks back, and finds markers, headers and notices however they are disguised: an independent reading
of design section 7 and invariant 13, which shares no code with what renders.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from memoryd_server.engine.rendering import Style

_HEADER = re.compile(r"# (User|Project) memory \((.*)\)")
_NOTICES = {
    Style.ENCLOSED: re.compile(r"\[earlier memory truncated: (1 line|[0-9]+ lines)\]"),
    Style.OPENHANDS: re.compile(r"\[earlier memory truncated\]()"),
}
_ENVELOPES = {
    Style.ENCLOSED: re.compile(
        r"<MEMORY_CONTEXT>\n<UNTRUSTED_CONTENT>\n(?P<warning>(?:[^\n]+\n)+)\n"
        r"(?P<text>.+)\n</UNTRUSTED_CONTENT>\n</MEMORY_CONTEXT>",
        re.DOTALL,
    ),
    Style.OPENHANDS: re.compile(
        r"<MEMORY_CONTEXT>\n<UNTRUSTED_CONTENT>\n(?P<warning>(?:[^\n]+\n)+)</UNTRUSTED_CONTENT>\n\n"
        r"(?P<text>.+)\n</MEMORY_CONTEXT>",
        re.DOTALL,
    ),
}
_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Default_Ignorable_Code_Point, as Unicode lists it."""

_MARKER = re.compile(r"<(/?)(memory|untrusted)[_-]?(context|content)")
_IMITATION = re.compile(r"#+(user|project)memory(?!\w)|\[earliermemorytruncated")


@dataclass(frozen=True, slots=True)
class ReadTier:
    """A tier as it stands in a block."""

    title: str
    label: str
    notice: str | None
    """None without a notice; else how many lines it says are missing."""
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadBlock:
    """A block that is as it must be."""

    warning: str
    text: str
    """What the budget bounds: all between warning and closing markers."""
    tiers: tuple[ReadTier, ...]

    def tier(self, title: str) -> ReadTier:
        """The one tier of this title."""
        (tier,) = [tier for tier in self.tiers if tier.title == title]
        return tier


def read_block(block: str, style: Style = Style.ENCLOSED) -> ReadBlock:
    """The parts of a block; fails unless it is valid: markers at its ends, one header a tier, the user's before the
    project's, an empty line between them, a notice under its header alone.
    """
    envelope = _ENVELOPES[style].fullmatch(block)
    assert envelope is not None, block
    text = envelope["text"]
    lines = text.split("\n")
    headers = [(index, found) for index, line in enumerate(lines) if (found := _HEADER.fullmatch(line))]
    assert headers, block
    assert headers[0][0] == 0
    assert [found[1] for _, found in headers] in (["User"], ["Project"], ["User", "Project"])
    tiers = []
    for number, (index, found) in enumerate(headers):
        end = len(lines)
        if number + 1 < len(headers):
            end = headers[number + 1][0] - 1
            assert lines[end] == ""
        body = lines[index + 1 : end]
        notice = _NOTICES[style].fullmatch(body[0]) if body else None
        if notice:
            del body[0]
        assert not any(_NOTICES[style].fullmatch(line) for line in body)
        tiers.append(ReadTier(found[1], found[2], notice[1] if notice else None, tuple(body)))
    return ReadBlock(envelope["warning"], text, tuple(tiers))


def seen(line: str) -> str:
    """A line as a reader may take it: compatibility forms are the letters that they look like, case does not count, and
    what is not seen is not there.
    """
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", line).casefold())
    shown = "".join(letter for letter in plain if unicodedata.category(letter) not in {"Cf", "Cc", "Zs", "Zl", "Zp"})
    return _IGNORABLE.sub("", shown)


def markers(text: str) -> list[tuple[int, str]]:
    """The markers in a text, with the index of their line: `/memory_context` is a closing one."""
    return [
        (index, found[1] + f"{found[2]}_{found[3]}")
        for index, line in enumerate(text.split("\n"))
        for found in _MARKER.finditer(seen(line))
        if (found[2], found[3]) in {("memory", "context"), ("untrusted", "content")}
    ]


def imitations(text: str) -> list[int]:
    """The indexes of the lines that are headers or notices, or could be taken for one."""
    return [index for index, line in enumerate(text.split("\n")) if _IMITATION.match(seen(line))]


def assert_sealed(block: str, style: Style) -> None:
    """Exactly one opening and one closing marker of each kind, at the block's ends; and no header and no notice but the
    block's own (invariant 13).
    """
    read = read_block(block, style)
    lines = block.split("\n")
    last = len(lines) - 1
    warned = 2 + read.warning.count("\n")
    inner = last - 1 if style is Style.ENCLOSED else warned
    assert markers(block) == [
        (0, "memory_context"),
        (1, "untrusted_content"),
        (inner, "/untrusted_content"),
        (last, "/memory_context"),
    ]
    assert (lines[0], lines[1], lines[inner], lines[last]) == (
        "<MEMORY_CONTEXT>",
        "<UNTRUSTED_CONTENT>",
        "</UNTRUSTED_CONTENT>",
        "</MEMORY_CONTEXT>",
    )
    assert len(imitations(read.text)) == len(read.tiers) + sum(tier.notice is not None for tier in read.tiers)
