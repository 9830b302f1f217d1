"""A run from beginning to end: fill the stores, start the servers, measure, report."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import grpc
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from tests.bench import sessions
from tests.bench.bars import Bar, Memory, bars_of, bars_of_memory
from tests.bench.cases import CaseResult, cases, warm_up
from tests.bench.options import Options
from tests.bench.processes import ServerProcess, run_to_end, serving
from tests.bench.report import Row, Summary, rows_of, show, write


async def run(options: Options, console: Console) -> Summary:
    """Measures what the options say, writes the files and prints the tables. Raises: ProcessFailed, WrongAnswer."""
    options.out.parent.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        # Beside the results, since a temporary directory may be in memory, where nothing is durable and all is fast.
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=options.out.parent)))
        progress = stack.enter_context(_progress(console))
        bare = await stack.enter_async_context(serving("tests.bench.bare"))
        servers = await _start_servers(options, directory, stack, progress)
        rows: list[Row] = []
        bars: list[Bar] = []
        memory: list[Memory] = []
        task = progress.add_task("measure", total=len(servers) * len(options.operations) * len(options.callers))
        for store, server in servers.items():
            results, used = await _measure(store, server, bare, options, partial(_advance, progress, task))
            memory.append(used)
            for result in results:
                rows += rows_of(result)
                bars += bars_of(result)
            bars += bars_of_memory(used)
    summary = Summary(all(bar.is_reached for bar in bars), bars, memory)
    write(options.out, rows, summary)
    show(console, rows, summary)
    return summary


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)


def _advance(progress: Progress, task: TaskID, description: str) -> None:
    progress.update(task, advance=1, description=description)


async def _start_servers(
    options: Options, directory: Path, stack: AsyncExitStack, progress: Progress
) -> dict[str, ServerProcess]:
    """Fills all stores, at the same time, and starts a server on each."""
    plans = directory / "plans.json"
    needed = sessions.needed(options)
    sessions.write_plans(plans, needed)
    messages = sum(plan.length for plan in needed)

    async def start(store: str) -> ServerProcess:
        task = progress.add_task(f"load {store}", total=messages)
        loaded: Callable[[int], None] = lambda count: progress.update(task, completed=count)  # noqa: E731
        file = directory / f"{store}.db"
        if store == "sqlite":
            await run_to_end("tests.bench.load", file, plans, loaded=loaded)
        server = await stack.enter_async_context(serving("tests.bench.server", store, file, plans, loaded=loaded))
        progress.update(task, completed=messages)
        return server

    started = await asyncio.gather(*map(start, options.stores))
    return dict(zip(options.stores, started, strict=True))


async def _measure(
    store: str, server: ServerProcess, bare: ServerProcess, options: Options, done: Callable[[str], None]
) -> tuple[list[CaseResult], Memory]:
    after_start = server.memory_mb()
    async with grpc.aio.insecure_channel(server.address) as channel, grpc.aio.insecure_channel(bare.address) as floor:
        await warm_up(channel, options)
        before = server.memory_mb()
        results = []
        for case in cases(store, options):
            results.append(await case.run(channel, floor, options))
            done(f"measured {case.name}")
    return results, Memory(store, after_start, before, server.memory_mb(), server.peak_memory_mb())
