"""What is to be reached, and whether it was. A bar that is missed is told, loudly; it fails nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from tests.bench.cases import CaseResult, Subject, without_summary
from tests.bench.copying import Copied
from tests.bench.measuring import Measured

_FLOOR_RATIOS: Final = {
    ("load_window_20", "in_memory"): 1.3,
    ("load_window_20", "sqlite"): 1.5,
    ("load_window_20", "postgresql"): 2.0,
    ("load_window_20", "mariadb"): 2.5,
    ("load_window_20", "redis"): 1.8,
    ("append_1", "in_memory"): 1.4,
    ("append_1", "sqlite"): 2.0,
    ("append_1", "postgresql"): 2.2,
    ("append_1", "mariadb"): 3.0,
    ("append_1", "redis"): 2.0,
    ("render_context", "in_memory"): 1.4,
    ("render_context", "sqlite"): 1.4,
    ("render_context_stored", "sqlite"): 2.0,
    ("claim_run", "sqlite"): 2.5,
    ("claim_run", "redis"): 2.0,
    ("commit_run_step", "sqlite"): 2.5,
    ("commit_run_step", "redis"): 2.0,
    ("commit_run_step_1", "sqlite"): 2.5,
    ("commit_run_step_1", "redis"): 2.0,
    ("renew_run_lease", "sqlite"): 2.5,
    ("renew_run_lease", "redis"): 2.0,
}
"""How much of the floor's p50 an operation may take, for one caller."""

_FLOOR_OVER_BARE: Final = 1.3
"""How much of a bare server's p50 the floor may take: else the floor would hide what it should show."""

_LONG_OVER_SHORT: Final = 1.25
"""How much of its p50 on the shortest history an operation may take on the longest, for one caller; likewise of that on
the shortest run, and of that with the fewest runs."""

_CROWDED_OVER_ALONE: Final = 1.2
"""How much of its p50 in a small database an operation may take among many other sessions, for one caller."""

_WITH_OVER_WITHOUT_SUMMARY: Final = 1.15
"""How much of its p50 on a session without a summary a window may take on the same with one, for one caller."""

_SQLITE_APPENDS_OVER_FLOOR: Final = 0.4
"""How much of the floor's calls a second durable appends reach at least, for many callers on sessions of their own."""

_WITHOUT_BARS: Final = "mongodb"
"""The server that stands in for it tells nothing about the time that MongoDB takes."""

_MEMORY_MB: Final = 220
_MEMORY_GROWTH_MB: Final = 20


_COPIED_A_SECOND: Final = 10_000
"""Messages that `memoryd copy` moves at least."""


class Bar(msgspec.Struct, frozen=True):
    """A figure and its bound."""

    store: str
    what: str
    measured: float
    bound: float
    at_least: bool = False

    @property
    def is_reached(self) -> bool:
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound


class Memory(msgspec.Struct, frozen=True):
    """The memory of a server in MB (10^6 bytes)."""

    store: str
    after_start: float
    before: float
    """After all operations were called for a while on a session that is not measured."""
    after: float
    """After everything."""
    peak: float


def bars_of(result: CaseResult) -> Iterator[Bar]:
    """The bars of one case."""
    what = f"{result.operation}, {result.callers} callers" if result.callers > 1 else result.operation
    yield Bar(result.store, f"{what}: floor over bare", result.floor.p50_over(result.bare), _FLOOR_OVER_BARE)
    if result.callers == 1 and result.store != _WITHOUT_BARS:
        yield from _bars_of_one_caller(result)
    elif result.store == "sqlite" and result.operation == "append_1":
        for subject, measured in result.subjects.items():
            share = measured.throughput_over(result.floor)
            of = f"{what}, history {subject.history:,}: calls/s over floor"
            yield Bar(result.store, of, share, _SQLITE_APPENDS_OVER_FLOOR, at_least=True)


def _bars_of_one_caller(result: CaseResult) -> Iterator[Bar]:
    bound = _FLOOR_RATIOS.get((result.operation, result.store))
    if bound is not None:
        for subject, measured in result.subjects.items():
            if not subject.store:
                on = f", history {subject.history:,}" if subject.history else ""
                what = f"{subject.operation}{on}: p50 over floor"
                yield Bar(result.store, what, measured.p50_over(result.floor), bound)
    lengths = _by_length(result)
    for subject, measured in result.subjects.items():
        if subject.store:
            alone = next(on for alike, on in lengths if alike.history == subject.history)
            yield Bar(
                result.store, f"{subject.operation}: p50 over alone", measured.p50_over(alone), _CROWDED_OVER_ALONE
            )
    for subject, measured in result.subjects.items():
        if subject.among_runs:
            among_few = next(on for alike, on in lengths if alike.history == subject.history)
            what = f"{subject.operation}: p50 over that among fewer runs"
            yield Bar(result.store, what, measured.p50_over(among_few), _LONG_OVER_SHORT)
    for subject, measured in result.subjects.items():
        if subject.operation == without_summary(result.operation):
            with_summary = next(on for alike, on in lengths if alike.history == subject.history)
            what = f"{result.operation}, history {subject.history:,}: p50 over that without a summary"
            yield Bar(result.store, what, with_summary.p50_over(measured), _WITH_OVER_WITHOUT_SUMMARY)
    if len(lengths) > 1 and result.operation != "list_page":
        (short, on_short), (long, on_long) = lengths[0], lengths[-1]
        what = f"{result.operation}: p50 at {long.history:,} over {short.history:,}"
        yield Bar(result.store, what, on_long.p50_over(on_short), _LONG_OVER_SHORT)


def _by_length(result: CaseResult) -> Sequence[tuple[Subject, Measured]]:
    mixed = [item for item in result.subjects.items() if item[0].operation == result.operation]
    return sorted(mixed, key=lambda item: item[0].history)


def bar_of_copy(copied: Copied) -> Bar:
    """The bar of a copy."""
    what = f"copy of {copied.messages:,} messages to {copied.target}: messages/s"
    return Bar(copied.source, what, copied.per_second, _COPIED_A_SECOND, at_least=True)


def bars_of_memory(memory: Memory) -> Iterator[Bar]:
    """The bars of a server's memory."""
    if memory.store == "sqlite":
        yield Bar(memory.store, "server memory, peak MB", memory.peak, _MEMORY_MB)
        yield Bar(memory.store, "server memory, MB grown", memory.after - memory.before, _MEMORY_GROWTH_MB)
