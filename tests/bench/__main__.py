"""`python -m tests.bench`: the benchmarks, or a part of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, TypeVar

import typer
import uvloop
from rich.console import Console

from tests.bench.options import CALLERS, COPIED_STORES, COPY, HISTORIES, OPERATIONS, STORES, Options
from tests.bench.processes import ProcessFailed
from tests.bench.run import run, run_profiles

Item = TypeVar("Item")

_WHOLE = Options()
_WIDTH_IN_FILES = 120


def _items(given: Iterable[str] | None, all_: tuple[Item, ...], read: Callable[[str], Item]) -> tuple[Item, ...]:
    """The items of an option that may be repeated, with commas between items as well; all when it is left out."""
    return tuple(dict.fromkeys(read(text) for items in given or () for text in items.split(","))) or all_


def _one_of(names: tuple[str, ...]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in names:
            raise typer.BadParameter(f"{text!r} is not measured: use {', '.join(names)}")
        return text

    return read


def _number(text: str) -> int:
    if not text.replace("_", "").isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"{text!r} is not a number from 1")
    return int(text)


def main(
    store: Annotated[list[str] | None, typer.Option(help=f"Some of: {', '.join(STORES)}.")] = None,
    op: Annotated[list[str] | None, typer.Option(help=f"Some of: {', '.join((*OPERATIONS, COPY))}.")] = None,
    history: Annotated[list[str] | None, typer.Option(help="Lengths of histories, in hundreds of messages.")] = None,
    callers: Annotated[list[str] | None, typer.Option(help="Numbers of calls under way at once.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often all sides take their turns.")] = _WHOLE.rounds,
    seconds: Annotated[float, typer.Option(min=0.001, help="How long a side takes in a round.")] = _WHOLE.slices
    * _WHOLE.slice_seconds,
    out: Annotated[Path, typer.Option(help="Where the rows go; bars go beside.")] = _WHOLE.out,
    profile: Annotated[bool, typer.Option("--profile", help="Sample the server with py-spy instead.")] = False,
) -> None:
    """Measure what the service adds to an RPC.

    What is left out is measured whole. Options may be repeated, or list items with commas between them.
    """
    stores = _items(store, STORES, _one_of(STORES))
    measured = _items(op, (*OPERATIONS, COPY), _one_of((*OPERATIONS, COPY)))
    copies = COPY in measured and (bool(op) or {*COPIED_STORES} <= {*stores})
    options = Options(
        stores=stores,
        operations=tuple(name for name in measured if name != COPY),
        copied_messages=_WHOLE.copied_messages if copies else 0,
        histories=_items(history, HISTORIES, _number),
        callers=_items(callers, CALLERS, _number),
        rounds=rounds,
        slice_seconds=seconds / _WHOLE.slices,
        out=out,
    )
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH_IN_FILES
    try:
        uvloop.run(run_profiles(options, console) if profile else run(options, console))
    except ProcessFailed as failure:
        sys.exit(f"the benchmark cannot go on: {failure}; see above why")


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
