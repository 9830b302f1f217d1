"""Slices, rounds, percentiles and ratios.

Sides that are compared take turns, slice by slice, so that what else the machine does meets all of them alike.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, Final

from tests.bench.options import Options

_WARM_UP_SLICES: Final = 2


@dataclass(frozen=True, slots=True)
class Side:
    """One of the calls that are compared, with the requests of each caller."""

    call: Callable[[Any], Awaitable[Any]]
    requests: Sequence[Callable[[], Any]]
    """For each caller, what makes its next request; perhaps awaitable, where other calls come before it. That takes
    none of the measured time.
    """
    check: Callable[[Any], None]
    """Raises when an answer is wrong."""


@dataclass(slots=True)
class Round:
    """What one side did in one round."""

    latencies: list[int] = field(default_factory=list)
    """Of each call, in nanoseconds."""
    nanoseconds: int = 0
    """How long its slices took together."""

    @property
    def p50_ms(self) -> float:
        return statistics.median(self.latencies) / 1e6

    @property
    def per_second(self) -> float:
        return len(self.latencies) * 1e9 / self.nanoseconds


@dataclass(frozen=True, slots=True)
class Measured:
    """What one side did in all rounds."""

    rounds: Sequence[Round]

    @property
    def p50_ms(self) -> float:
        return self._percentile(50)

    @property
    def p99_ms(self) -> float:
        return self._percentile(99)

    @property
    def per_second(self) -> float:
        return statistics.median(round_.per_second for round_ in self.rounds)

    def p50_over(self, other: Measured) -> float:
        """This p50 over the other's, the median over the rounds."""
        return statistics.median(a.p50_ms / b.p50_ms for a, b in zip(self.rounds, other.rounds, strict=True))

    def throughput_over(self, other: Measured) -> float:
        """These calls a second over the other's, the median over the rounds."""
        return statistics.median(a.per_second / b.per_second for a, b in zip(self.rounds, other.rounds, strict=True))

    def _percentile(self, percent: int) -> float:
        latencies = sorted(latency for round_ in self.rounds for latency in round_.latencies)
        return latencies[min(len(latencies) - 1, len(latencies) * percent // 100)] / 1e6


async def compare(sides: Mapping[str, Side], options: Options) -> Mapping[str, Measured]:
    """Measures all sides in turns: in each round, each has so many slices. Each time, another one begins."""
    names = list(sides)
    for _ in range(_WARM_UP_SLICES):
        for name in names:
            await run_slice(sides[name], options.slice_seconds, Round())
    measured: dict[str, list[Round]] = {name: [] for name in names}
    for _ in range(options.rounds):
        gc.collect()
        gc.disable()  # The client's own pauses are nothing that a side did.
        for name in names:
            measured[name].append(Round())
        for _ in range(options.slices):
            names.append(names.pop(0))
            for name in names:
                await run_slice(sides[name], options.slice_seconds, measured[name][-1])
        gc.enable()
    return {name: Measured(rounds_) for name, rounds_ in measured.items()}


async def run_slice(side: Side, seconds: float, into: Round) -> None:
    """Has all callers call for so long, one call after the other each."""
    began = perf_counter_ns()
    ends = began + int(seconds * 1e9)

    async def one_caller(next_request: Callable[[], Any]) -> None:
        while True:
            request = next_request()
            if inspect.isawaitable(request):
                request = await request
            called = perf_counter_ns()
            answer = await side.call(request)
            answered = perf_counter_ns()
            into.latencies.append(answered - called)
            side.check(answer)
            if answered > ends:
                return

    await asyncio.gather(*map(one_caller, side.requests))
    into.nanoseconds += perf_counter_ns() - began
