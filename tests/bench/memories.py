"""The memory that is rendered: an index for each tier, made up, from a seed, as long as a prompt takes both."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Final

from tests.bench.histories import prose

CHARACTERS: Final = 6_000
"""Of each index."""

_SEED: Final = "memoryd/memory"
_SHORTEST_ENTRY: Final = 3


@cache
def index(tier: str) -> str:
    """The index of a tier: headings, and entries of about 100 characters."""
    random = Random(f"{_SEED}/{tier}")
    lines: list[str] = []
    left = CHARACTERS
    while left > _SHORTEST_ENTRY:
        line = f"## {prose(random)[:20]}" if len(lines) % 12 == 0 else f"- {prose(random)[: random.randint(60, 140)]}"
        lines.append(line[: left - 1].ljust(_SHORTEST_ENTRY, "."))
        left -= len(lines[-1]) + 1
    return "\n".join(lines) + "." * left + "\n"
