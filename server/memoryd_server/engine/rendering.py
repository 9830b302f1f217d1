"""Renders two tiers of memory into one block for the prompt (design section 7, invariant 13). Pure: the same input
gives the same bytes, and the cost is linear in it.

A budget is in code points and bounds headers, notices, bodies and the separator between the tiers. Lines end with a
line feed; they are kept or dropped whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from memoryd_server import limits
from memoryd_server.engine.memory_escape import MEMORY_CONTEXT, UNTRUSTED_CONTENT, escape, escape_label
from memoryd_server.engine.memory_guide import WARNING
from memoryd_server.stores.records import Tier


class Style(IntEnum):
    """The form of the block; the values are those of the protocol's enum `MemoryStyle`."""

    ENCLOSED = 1
    """All memory stands inside UNTRUSTED_CONTENT."""
    OPENHANDS = 2
    """UNTRUSTED_CONTENT holds the warning alone, and memory follows it; notices tell no number."""


class TierState(IntEnum):
    """What became of a tier; the values are those of the protocol's enum `MemoryTierState`."""

    ABSENT = 1
    EMPTY = 2
    LOADED = 3
    TRUNCATED = 4
    UNREADABLE = 5


@dataclass(frozen=True, slots=True)
class TierStatus:
    """A tier in the block."""

    state: TierState
    kept: int = 0
    """Lines of it that are in the block."""
    dropped: int = 0
    """Lines that are not."""


@dataclass(frozen=True, slots=True)
class Source:
    """A tier's index as it was read."""

    label: str = ""
    """Where it is; empty for the tier's usual place."""
    content: str | bytes | None = None
    """None when there is no file, or `unreadable` says why it could not be read."""
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered block."""

    block: str
    """Empty when no tier holds text."""
    statuses: dict[Tier, TierStatus]
    warnings: Sequence[str]


TITLES: Final = {Tier.USER: "User memory", Tier.PROJECT: "Project memory"}
DEFAULT_LABELS: Final = {
    Tier.USER: "~/.openhands/memory/MEMORY.md",
    Tier.PROJECT: ".openhands/memory/MEMORY.md",
}

_ABSENT: Final = TierStatus(TierState.ABSENT)
_NO_SOURCE: Final = Source()


def render(sources: dict[Tier, Source], budget: int, style: Style) -> Rendered:
    """The block of these sources, user tier first. `budget` is at least `limits.MIN_MEMORY_BUDGET`."""
    statuses: dict[Tier, TierStatus] = {}
    warnings: list[str] = []
    tiers: list[_Tier] = []
    for tier in Tier:
        source = sources.get(tier, _NO_SOURCE)
        statuses[tier] = _ABSENT
        if source.unreadable:
            statuses[tier] = TierStatus(TierState.UNREADABLE)
            warnings.append(f"{TITLES[tier]} could not be read: {escape_label(source.unreadable)}")
        elif source.content is not None:
            text, damaged = _read(source.content)
            if damaged:
                warnings.append(f"{TITLES[tier]} holds bytes that are not UTF-8: U+FFFD stands for them")
            if text:
                tiers.append(_Tier(tier, _header(tier, source.label), text, style))
            else:
                statuses[tier] = TierStatus(TierState.EMPTY)
    if not tiers:
        return Rendered("", statuses, warnings)
    _share(tiers, budget)
    statuses |= {tier.tier: tier.status for tier in tiers}
    text = "\n\n".join(tier.rendered for tier in tiers)
    return Rendered(_enclosed(text, style), statuses, warnings)


def shown_label(tier: Tier, label: str) -> str:
    """A source's path as headers and instructions show it."""
    return escape_label(label) or DEFAULT_LABELS[tier]


def _header(tier: Tier, label: str) -> str:
    shown = shown_label(tier, label)
    if len(shown) > limits.MAX_MEMORY_LABEL:
        # Not within what stands for a "<".
        shown = re.sub("&[a-z]*$", "", shown[: limits.MAX_MEMORY_LABEL])
    return f"# {TITLES[tier]} ({shown})"


def _read(content: str | bytes) -> tuple[str, bool]:
    """The text without a BOM, with line feeds alone and no space at its ends; and whether bytes were not UTF-8."""
    damaged = False
    if isinstance(content, str):
        text = content
    else:
        try:
            text = content.decode()
        except UnicodeDecodeError:
            text, damaged = content.decode(errors="replace"), True
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.removeprefix("\ufeff").strip(), damaged


def _enclosed(text: str, style: Style) -> str:
    closing = f"</{UNTRUSTED_CONTENT}>"
    body = f"{WARNING}\n\n{text}\n{closing}" if style is Style.ENCLOSED else f"{WARNING}\n{closing}\n\n{text}"
    return f"<{MEMORY_CONTEXT}>\n<{UNTRUSTED_CONTENT}>\n{body}\n</{MEMORY_CONTEXT}>"


def _notice(lines: int, style: Style) -> str:
    if style is Style.OPENHANDS:
        return "[earlier memory truncated]"
    return f"[earlier memory truncated: {lines} line{'' if lines == 1 else 's'}]"


class _Tier:
    """A tier that holds text. Its body is all of it if that fits, else the lines from the bottom that do."""

    def __init__(self, tier: Tier, header: str, text: str, style: Style) -> None:
        self.tier = tier
        self.header = header
        self.lines = text.count("\n") + 1
        self.size: int | None = None
        """Code points of the whole, escaped; None when it is more than was asked for."""
        self._style = style
        self._text = text
        self._whole = ""
        self._walk: _Walk | None = None
        """None when the body is the whole."""
        self._budget = 0
        self._reserve = len(_notice(max(2, self.lines), style)) + 1
        """For the notice and its line end: no notice is longer."""

    def measure(self, most: int) -> None:
        """Finds `size`, unless it is over `most`. Escaping makes no text shorter."""
        if len(self._text) <= most:
            self._whole = escape(self._text)
            self.size = len(self._whole) if len(self._whole) <= most else None

    def begin(self, budget: int) -> None:
        """Takes as its body what fits into so many code points."""
        self._budget = budget
        if not self._fits_whole():
            self._walk = _Walk(self._text, budget - self._reserve)
            self._walk.take(budget - self._reserve)

    def go_on(self, more: int) -> None:
        """Goes on where it stopped, with so many code points more. Over-long lines stay away."""
        self._budget += more
        if self._walk is None or not more:
            return
        if self._fits_whole() and max(map(len, self._whole.split("\n"))) <= self._walk.longest:
            self._walk = None
        else:
            self._walk.take(self._budget - self._reserve)

    def give(self) -> int:
        """Gives away the code points that are left of its budget. Returns: how many."""
        unused = 0 if self._walk is None else self._budget - self._reserve - self._walk.used
        self._budget -= unused
        return unused

    def _fits_whole(self) -> bool:
        return self.size is not None and self.size <= self._budget

    @property
    def status(self) -> TierStatus:
        """What became of it."""
        if self._walk is None:
            return TierStatus(TierState.LOADED, self.lines)
        kept = len(self._walk.kept)
        return TierStatus(TierState.TRUNCATED, kept, self.lines - kept)

    @property
    def rendered(self) -> str:
        """Header, notice where lines are missing, and body."""
        if self._walk is None:
            return f"{self.header}\n{self._whole}"
        notice = _notice(self.lines - len(self._walk.kept), self._style)
        return "\n".join([self.header, notice, *reversed(self._walk.kept)])


class _Walk:
    """Takes lines of a text from the bottom, and passes over those that are over-long. Costs what it takes."""

    def __init__(self, text: str, longest: int) -> None:
        self.kept: list[str] = []
        """Escaped, from the bottom."""
        self.used = 0
        """Code points of the kept lines, joined."""
        self.longest = longest
        """Code points of a line beyond which it is over-long."""
        self._lines = _lines_from_bottom(text, longest)
        self._next = next(self._lines, None)

    def take(self, room: int) -> None:
        """Takes lines as long as the next one fits into `room`."""
        while self._next is not None:
            if len(self._next) <= self.longest:
                used = self.used + len(self._next) + bool(self.kept)
                if used > room:
                    return
                self.used = used
                self.kept.append(self._next)
            self._next = next(self._lines, None)


def _lines_from_bottom(text: str, longest: int) -> Iterator[str]:
    """The lines of a text from the last to the first, escaped but for those that are over-long as they are. Escapes
    about as much as is read of it.
    """
    end = len(text)
    while True:
        start = text.rfind("\n", 0, max(0, end - longest)) + 1
        first, line_end, others = text[start:end].partition("\n")
        if line_end:
            yield from reversed(escape(others).split("\n"))
        yield first if len(first) > longest else escape(first)
        if not start:
            return
        end = start - 1


def _share(tiers: Sequence[_Tier], budget: int) -> None:
    """Gives each tier its body: all is verbatim if it fits, else each has an equal share, and what one leaves goes to
    the other.
    """
    room = budget - sum(len(tier.header) + 1 for tier in tiers) - 2 * (len(tiers) - 1)
    for tier in tiers:
        tier.measure(room)
    shares = [room] if len(tiers) == 1 else _shares(tiers[0].size, tiers[1].size, room)
    for tier, share in zip(tiers, shares, strict=True):
        tier.begin(share)
    if len(tiers) == 2:
        user, project = tiers
        user.go_on(project.give())
        project.go_on(user.give())


def _shares(user: int | None, project: int | None, room: int) -> list[int]:
    """How the room is shared between tiers of these sizes; None for one that is over the room. The odd code point is
    the user tier's.
    """
    half, share = room // 2, room - room // 2
    if user is not None and user <= share:
        return [user, room - user]
    if project is not None and project <= half:
        return [room - project, project]
    return [share, half]
