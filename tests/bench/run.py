"""A run from beginning to end: fill the stores, start the servers, measure, report."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.bench import sessions
from tests.bench.bars import Bar, Memory, bars_of, bars_of_memory
from tests.bench.cases import CaseResult, cases, warm_up
from tests.bench.options import Options
from tests.bench.processes import ServerProcess, run_to_end, serving
from tests.bench.profiling import profile
from tests.bench.report import Row, Summary, rows_of, show, write


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that a run measures, serving."""

    servers: Mapping[str, ServerProcess]
    """By store, which is filled."""
    bare: ServerProcess
    progress: Progress


async def run(options: Options, console: Console) -> Summary:
    """Measures what the options say, writes the files and prints the tables. Raises: ProcessFailed, WrongAnswer."""
    rows: list[Row] = []
    bars: list[Bar] = []
    memory: list[Memory] = []
    async with _prepared(options, console) as prepared:
        done = _counter(prepared, options, "measured")
        for store, server in prepared.servers.items():
            results, used = await _measure(store, server, prepared.bare, options, done)
            memory.append(used)
            for result in results:
                rows += rows_of(result)
                bars += bars_of(result)
            bars += bars_of_memory(used)
    summary = Summary(all(bar.is_reached for bar in bars), bars, memory)
    write(options.out, rows, summary)
    show(console, rows, summary)
    return summary


async def run_profiles(options: Options, console: Console) -> None:
    """Profiles the server instead, and prints where its time goes. Raises: ProcessFailed, WrongAnswer."""
    async with _prepared(options, console) as prepared:
        done = _counter(prepared, options, "profiled")
        for store, server in prepared.servers.items():
            async with _channel(server) as channel, _channel(prepared.bare) as bare:
                for case in cases(store, options):
                    sides = await case.sides(channel, bare)
                    console.print(await profile(case, sides, server, options.out.with_name("profiles")))
                    done(case.name)


@asynccontextmanager
async def _prepared(options: Options, console: Console) -> AsyncIterator[Prepared]:
    options.out.parent.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        # Beside the results, since a temporary directory may be in memory, where nothing is durable and all is fast.
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=options.out.parent)))
        progress = stack.enter_context(_progress(console))
        bare = await stack.enter_async_context(serving("tests.bench.bare"))
        yield Prepared(await _start_servers(options, directory, stack, progress), bare, progress)


def _counter(prepared: Prepared, options: Options, verb: str) -> Callable[[str], None]:
    """What tells of each case that is done."""
    total = len(prepared.servers) * len(options.operations) * len(options.callers)
    task = prepared.progress.add_task(verb, total=total)
    return lambda name: prepared.progress.update(task, advance=1, description=f"{verb} {name}")


def _channel(server: ServerProcess) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(server.address)


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)


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
    async with _channel(server) as channel, _channel(bare) as bare_channel:
        await warm_up(channel, options)
        before = server.memory_mb()
        results = []
        for case in cases(store, options):
            results.append(await case.run(channel, bare_channel, options))
            done(case.name)
    return results, Memory(store, after_start, before, server.memory_mb(), server.peak_memory_mb())
