"""A run from beginning to end: fill the stores, start the servers, measure, report."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.bench import sessions
from tests.bench.bars import Bar, Memory, bar_of_copy, bars_of, bars_of_memory
from tests.bench.cases import CaseResult, cases, warm_up
from tests.bench.copying import Copied, measure_copies
from tests.bench.databases import SERVERS
from tests.bench.options import Options
from tests.bench.processes import ServerProcess, run_to_end, serving
from tests.bench.profiling import profile
from tests.bench.report import Row, Summary, rows_of, show, write
from tests.bench.settings import CROWDED
from tests.databases.servers import OwnServer


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
    copies = await _copies(options, console) if options.copied_messages else []
    if options.operations:
        async with _prepared(options, console) as prepared:
            done = _counter(prepared, options, "measured")
            for store, server in prepared.servers.items():
                results, used = await _measure(store, server, prepared.bare, options, done)
                memory.append(used)
                for result in results:
                    rows += rows_of(result)
                    bars += bars_of(result)
                bars += bars_of_memory(used)
    bars += map(bar_of_copy, copies)
    summary = Summary(all(bar.is_reached for bar in bars), bars, memory, copies)
    write(options.out, rows, summary)
    show(console, rows, summary)
    return summary


async def _copies(options: Options, console: Console) -> list[Copied]:
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.out.parent) as directory,
        _progress(console) as progress,
        _told(progress, "copy", options.copied_messages) as loaded,
    ):
        return await measure_copies(options, Path(directory), options.databases, loaded)


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
    total = sum(len(list(cases(store, options))) for store in prepared.servers)
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

    async def start(store: str) -> ServerProcess:
        plans = _write_plans(directory / f"{store}.json", sessions.needed(options, store))
        urls = await asyncio.to_thread(_databases, store, options.databases, directory, stack)
        if store != "in_memory":
            await fill(f"load {store}", urls[0], plans, 0)
            crowded = _write_plans(directory / f"{store}-crowded.json", [sessions.crowded_session(options, store)])
            await fill(f"crowd {store}", urls[1], crowded, options.others_on(store))
        with _told(progress, f"start {store}", sum(plan.length for plan in sessions.read_plans(plans))) as loaded:
            return await stack.enter_async_context(serving("tests.bench.server", store, plans, *urls, loaded=loaded))

    async def fill(what: str, url: str, plans: Path, others: int) -> None:
        messages = sum(plan.length for plan in sessions.read_plans(plans))
        with _told(progress, what, others or messages) as loaded:
            await run_to_end("tests.bench.load", url, plans, others, loaded=loaded)

    started = await asyncio.gather(*map(start, options.stores))
    return dict(zip(options.stores, started, strict=True))


def _write_plans(path: Path, plans: Sequence[sessions.SessionPlan]) -> Path:
    sessions.write_plans(path, plans)
    return path


def _databases(store: str, databases: Path, directory: Path, stack: AsyncExitStack) -> Sequence[str]:
    """The URLs of two new databases: one for what is measured, one for the same among many others."""
    if store == "in_memory":
        return ("memory://",)
    if store == "sqlite":
        return [f"sqlite:///{directory.absolute()}/{name}.db" for name in ("measured", CROWDED)]
    server = stack.enter_context(OwnServer(SERVERS[store], databases))
    return [stack.enter_context(server.new_database()) for _ in range(2)]


@contextmanager
def _told(progress: Progress, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Shows a bar that moves as it is told."""
    task = progress.add_task(what, total=total)
    yield lambda count: progress.update(task, completed=count)
    progress.update(task, completed=total)


async def _measure(
    store: str, server: ServerProcess, bare: ServerProcess, options: Options, done: Callable[[str], None]
) -> tuple[list[CaseResult], Memory]:
    after_start = server.memory_mb()
    async with _channel(server) as channel, _channel(bare) as bare_channel:
        await warm_up(channel, store, options)
        before = server.memory_mb()
        results = []
        for case in cases(store, options):
            results.append(await case.run(channel, bare_channel, options))
            done(case.name)
    return results, Memory(store, after_start, before, server.memory_mb(), server.peak_memory_mb())
