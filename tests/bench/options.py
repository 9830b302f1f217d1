"""What a run of the benchmarks measures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

STORES: Final = ("in_memory", "sqlite")
OPERATIONS: Final = ("load_window_20", "load_window_2000t", "list_page", "append_1", "append_10")
"""Reads come first: what the others append is plain, and would change what a window holds."""
HISTORIES: Final = (100, 10_000, 1_000_000)
CALLERS: Final = (1, 32)


@dataclass(frozen=True, slots=True)
class Options:
    """The part of the whole that is measured, and how long."""

    stores: tuple[str, ...] = STORES
    operations: tuple[str, ...] = OPERATIONS
    histories: tuple[int, ...] = HISTORIES
    """Messages of a history."""
    callers: tuple[int, ...] = CALLERS
    """Calls under way at once."""
    ending_messages: int = 5_000
    """Messages at the end of some histories that windows must step over."""
    rounds: int = 5
    slices: int = 4
    """Turns that each side takes in a round."""
    slice_seconds: float = 0.1
    warm_up_seconds: float = 0.5
    """How long each operation is called before anything is measured."""
    out: Path = Path("build/bench.json")

    @property
    def appends(self) -> bool:
        """Whether anything is appended: each caller then needs a session of its own."""
        return any(name.startswith("append") for name in self.operations)
