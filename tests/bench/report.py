"""The table for people and the files for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from tests.bench.bars import Bar, Memory
from tests.bench.cases import CaseResult
from tests.bench.copying import Copied
from tests.bench.measuring import Measured


class Row(msgspec.Struct, frozen=True):
    """One line of `bench.json`."""

    store: str
    """One of `options.STORES`; `…/floor` for the floor of an operation on that store's server."""
    op: str
    history: int
    """Messages of the history, or steps of the run; 0 where neither is there."""
    callers: int
    p50_ms: float
    p99_ms: float
    ops_per_s: float
    floor_ratio: float
    """p50 over that of the floor, the median over the rounds; for a floor, over that of the bare server."""


def rows_of(result: CaseResult) -> Iterator[Row]:
    """The rows of one case: its floor, then its histories, short ones first."""
    floor = f"{result.store}/floor"
    yield _row(floor, result.operation, 0, result.callers, result.floor, result.bare)
    for subject, measured in result.subjects.items():
        yield _row(result.store, subject.operation, subject.history, result.callers, measured, result.floor)


def _row(store: str, op: str, history: int, callers: int, measured: Measured, under: Measured) -> Row:
    return Row(
        store=store,
        op=op,
        history=history,
        callers=callers,
        p50_ms=round(measured.p50_ms, 4),
        p99_ms=round(measured.p99_ms, 4),
        ops_per_s=round(measured.per_second, 1),
        floor_ratio=round(measured.p50_over(under), 3),
    )


class Summary(msgspec.Struct, frozen=True):
    """What `bench_bars.json` holds: which bars were reached, the servers' memory, and copies."""

    reached: bool
    bars: Sequence[Bar]
    memory: Sequence[Memory]
    copies: Sequence[Copied]


def write(out: Path, rows: Sequence[Row], summary: Summary) -> None:
    """Writes the rows to `out`, and the summary beside it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    for path, content in ((out, rows), (bars_file(out), summary)):
        path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")


def bars_file(out: Path) -> Path:
    """Where the summary beside the rows is."""
    return out.with_name(f"{out.stem}_bars{out.suffix}")


def show(console: Console, rows: Sequence[Row], summary: Summary) -> None:
    """Prints rows, memory, copies and bars."""
    if rows:
        console.print(_table_of_rows(rows))
        console.print(_table_of_memory(summary.memory))
    if summary.copies:
        console.print(_table_of_copies(summary.copies))
    console.print(_table_of_bars(summary.bars))
    missed = [bar for bar in summary.bars if not bar.is_reached]
    if missed:
        console.print(f"[bold red]{len(missed)} of {len(summary.bars)} bars are MISSED.[/]")
    else:
        console.print(f"[green]All {len(summary.bars)} bars are reached.[/]")


def _table_of_rows(rows: Sequence[Row]) -> Table:
    table = Table("store", "op", title="Calls", caption="floor ratio of a floor: over the bare server")
    for heading in ("history", "callers", "p50 ms", "p99 ms", "ops/s", "floor ratio"):
        table.add_column(heading, justify="right")
    for row in rows:
        if row.store.endswith("/floor"):
            table.add_section()
        table.add_row(
            row.store,
            row.op,
            f"{row.history:,}" if row.history else "",
            str(row.callers),
            f"{row.p50_ms:.3f}",
            f"{row.p99_ms:.3f}",
            f"{row.ops_per_s:,.0f}",
            f"{row.floor_ratio:.2f}",
            style="dim" if row.store.endswith("/floor") else "",
        )
    return table


def _table_of_memory(memory: Sequence[Memory]) -> Table:
    table = Table("store", title="Server memory, MB")
    for heading in ("after start", "warm", "at the end", "peak"):
        table.add_column(heading, justify="right")
    for one in memory:
        figures = (one.after_start, one.before, one.after, one.peak)
        table.add_row(one.store, *(f"{figure:.0f}" for figure in figures))
    return table


def _table_of_copies(copies: Sequence[Copied]) -> Table:
    table = Table("from", "to", title="memoryd copy", caption="computing: the copying process's share of the time")
    for heading in ("messages", "seconds", "messages/s", "computing"):
        table.add_column(heading, justify="right")
    for one in copies:
        figures = (f"{one.messages:,}", f"{one.seconds:.1f}", f"{one.per_second:,.0f}", f"{one.cpu:.0%}")
        table.add_row(one.source, one.target, *figures)
    return table


def _table_of_bars(bars: Sequence[Bar]) -> Table:
    table = Table("store", "what", title="Bars")
    for heading in ("measured", "bar", ""):
        table.add_column(heading, justify="right")
    for bar in bars:
        bound = f"≥ {bar.bound:g}" if bar.at_least else f"≤ {bar.bound:g}"
        verdict = "[green]reached[/]" if bar.is_reached else "[bold red]MISSED[/]"
        table.add_row(bar.store, bar.what, f"{bar.measured:.2f}", bound, verdict)
    return table
