"""What a run of the benchmarks measures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

STORES: Final = ("in_memory", "sqlite", "postgresql", "mariadb", "redis", "mongodb")
OPERATIONS: Final = (
    "load_window_20",
    "load_window_20s",
    "load_window_2000t",
    "list_page",
    "append_1",
    "append_10",
    "commit_summary",
    "render_context",
    "claim_run",
    "commit_run_step",
    "renew_run_lease",
)
SUMMARIZED: Final = frozenset({"load_window_20s", "commit_summary"})
"""Those for sessions with summaries."""
REMEMBERING: Final = frozenset({"render_context"})
"""Those for memory, inline and stored, and for no session."""
OF_RUNS: Final = frozenset({"claim_run", "commit_run_step", "renew_run_lease"})
"""Those for runs."""
COPY: Final = "copy"
"""What is measured beside these: `memoryd copy` between two stores."""
COPIED_STORES: Final = ("sqlite", "redis")
"""Between which is copied, there and back."""
HISTORIES: Final = (100, 10_000, 1_000_000)
CALLERS: Final = (1, 32)


@dataclass(frozen=True, slots=True)
class Reach:
    """The most that is measured on a store. See `Options`."""

    history: int = 1_000_000
    callers: int = 32
    ending_messages: int = 5_000
    other_sessions: int = 100_000
    run_steps: int = 10_000
    runs: int = 100_000


_SERVED: Final = Reach(history=100_000)
"""Loading a million messages into a database server takes minutes."""
REACHES: Final = {
    "in_memory": Reach(other_sessions=0),
    "sqlite": Reach(),
    "postgresql": _SERVED,
    "mariadb": _SERVED,
    "redis": _SERVED,
    # The server that stands in for MongoDB goes through whole collections to find what it is asked for, and is wrong
    # under concurrent updates.
    "mongodb": Reach(history=500, callers=1, ending_messages=100, other_sessions=100, run_steps=100, runs=100),
}


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
    other_sessions: int = 100_000
    """Sessions beside those that are measured, in a database of their own."""
    run_steps: tuple[int, ...] = (1, 10_000)
    """Steps of runs that have not ended."""
    runs: tuple[int, ...] = (100, 100_000)
    """Runs of an agent."""
    copied_messages: int = 100_000
    """Messages that are copied from one store to another; 0 for no copy."""
    rounds: int = 5
    slices: int = 4
    """Turns that each side takes in a round."""
    slice_seconds: float = 0.1
    warm_up_seconds: float = 0.5
    """How long each operation is called before anything is measured."""
    out: Path = Path("build/bench.json")
    databases: Path = Path("/var/tmp")
    """Where database servers keep their data: a directory that their own user reaches, and that is not in memory."""

    def histories_on(self, store: str) -> tuple[int, ...]:
        """The lengths of the histories on a store."""
        return tuple(sorted({min(length, REACHES[store].history) for length in self.histories}))

    def callers_on(self, store: str) -> tuple[int, ...]:
        """The numbers of calls under way at once on a store."""
        return tuple(sorted({min(callers, REACHES[store].callers) for callers in self.callers}))

    def run_steps_on(self, store: str) -> tuple[int, ...]:
        """The numbers of steps of runs on a store."""
        return tuple(sorted({min(steps, REACHES[store].run_steps) for steps in self.run_steps}))

    def runs_on(self, store: str) -> tuple[int, ...]:
        """The numbers of runs of an agent on a store."""
        return tuple(sorted({min(runs, REACHES[store].runs) for runs in self.runs}))

    def endings_on(self, store: str) -> int:
        """The messages at the end of some histories on a store that windows must step over."""
        return min(self.ending_messages, REACHES[store].ending_messages)

    def others_on(self, store: str) -> int:
        """How many other sessions there are in the store's crowded database; 0 where there is none, or none is called
        for.
        """
        if not self.reads_histories:
            return 0
        return min(self.other_sessions, REACHES[store].other_sessions)

    @property
    def appends(self) -> bool:
        """Whether anything is appended: each caller then needs a session of its own."""
        return any(name.startswith("append") for name in self.operations)

    @property
    def reads_histories(self) -> bool:
        """Whether sessions without summaries are measured by themselves."""
        return not (SUMMARIZED | REMEMBERING | OF_RUNS).issuperset(self.operations)

    @property
    def remembers(self) -> bool:
        """Whether memory is rendered."""
        return not REMEMBERING.isdisjoint(self.operations)

    @property
    def works(self) -> bool:
        """Whether runs are worked on."""
        return not OF_RUNS.isdisjoint(self.operations)

    @property
    def summarizes(self) -> bool:
        """Whether sessions with summaries are measured."""
        return not SUMMARIZED.isdisjoint(self.operations)
