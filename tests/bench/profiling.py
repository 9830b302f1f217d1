"""Where the server spends its time: `--profile` samples it with py-spy, which needs no change in what it looks at.

Samples are counted as microseconds of a call, of the operation and of its floor side by side: the difference is what
the service does. Only the thread that holds the interpreter lock is sampled, so time spent waiting (for a disk, for a
thread to wake), in SQLite or in the core of gRPC is not in it.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.table import Table

from tests.bench.cases import FLOOR, Case
from tests.bench.measuring import Round, Side, run_slice
from tests.bench.processes import ProcessFailed, ServerProcess

_PER_SECOND: Final = 500
_SECONDS: Final = 8
_SHOWN: Final = 40
_STACK: Final = re.compile(r"(?P<frames>.*) (?P<samples>\d+)")
_LINE: Final = re.compile(r":\d+\)$")


@dataclass(frozen=True, slots=True)
class Profile:
    """Where time went, in microseconds of a call."""

    own: Mapping[str, float]
    """In each function itself."""
    whole: Mapping[str, float]
    """In each function and all that it called."""
    total: float


async def profile(case: Case, sides: Mapping[str, Side], server: ServerProcess, directory: Path) -> Table:
    """Profiles an operation on its longest history, and its floor. Leaves the samples in the directory, as flame graph
    tools read them.

    Raises: ProcessFailed when there is no py-spy, or when it may not look at the server.
    """
    name = case.name.replace("/", "-")
    floor = await _profile(sides[FLOOR], server, directory / f"{name}-floor.txt")
    operation = await _profile(sides[case.longest.name], server, directory / f"{name}.txt")
    table = Table("function", title=f"{case.name}, history {case.longest.history:,}: µs of a call")
    for heading in ("over the floor", "own", "with callees", "floor"):
        table.add_column(heading, justify="right")
    table.add_row("all", *_figures(operation.total - floor.total, operation.total, operation.total, floor.total))
    over = {function: whole - floor.whole.get(function, 0) for function, whole in operation.whole.items()}
    for function in sorted(over, key=over.__getitem__, reverse=True)[:_SHOWN]:
        own, whole = operation.own.get(function, 0), operation.whole[function]
        table.add_row(function, *_figures(over[function], own, whole, floor.whole.get(function, 0)))
    return table


def _figures(*microseconds: float) -> list[str]:
    return [f"{figure:.1f}" for figure in microseconds]


async def _profile(side: Side, server: ServerProcess, file: Path) -> Profile:
    file.parent.mkdir(parents=True, exist_ok=True)
    await run_slice(side, 1, Round())
    sampler = await asyncio.create_subprocess_exec(
        *(_py_spy(), "record", "--pid", str(server.pid), "--rate", str(_PER_SECOND), "--duration", str(_SECONDS)),
        *("--gil", "--nonblocking", "--format", "raw", "--output", str(file)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    calls = Round()
    ended = asyncio.create_task(sampler.communicate())
    while not ended.done():
        await run_slice(side, 0.1, calls)
    if sampler.returncode:
        raise ProcessFailed(f"py-spy ended with status {sampler.returncode}: {ended.result()[1].decode()}")
    return _read(file, calls.per_second)


def _read(file: Path, calls_per_second: float) -> Profile:
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for line in file.read_text().splitlines():
        match = _STACK.fullmatch(line)
        if match is None:
            continue
        samples = int(match["samples"])
        functions = [_LINE.sub(")", frame) for frame in match["frames"].split(";")]
        own[functions[-1]] += samples
        whole.update(dict.fromkeys(functions, samples))
    each = 1e6 / (_PER_SECOND * _SECONDS * calls_per_second)
    return Profile(
        {function: samples * each for function, samples in own.items()},
        {function: samples * each for function, samples in whole.items()},
        sum(own.values()) * each,
    )


def _py_spy() -> str:
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise ProcessFailed(f"profiles need py-spy: {sys.executable} -m pip install py-spy")
    return found
