"""How an import shows how far it is: a bar on a terminal, a plain line every few seconds elsewhere."""

import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from memoryd_server.cli.terminal import tell
from memoryd_server.cli.transcripts import BadLine
from memoryd_server.cli.transfer import Tally

PLAIN_SECONDS: Final = 5.0
"""Between two lines of progress where there is no terminal."""


class Meter:
    """Shows the progress of an import until it is left."""

    def __init__(self, console: Console, total: int | None) -> None:
        """Makes a meter for `total` bytes; None where that is not known."""
        self._console = console
        self._total = total
        self._plain_at = time.monotonic() + PLAIN_SECONDS
        self._bar: Progress | None = None
        self._task = TaskID(0)
        if console.is_terminal:
            self._bar = Progress(
                TextColumn("importing"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[counts]}"),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task("", total=total, counts="")

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def advanced(self, tally: Tally) -> None:
        """Something more is done."""
        if self._bar:
            self._bar.update(self._task, completed=tally.bytes, counts=_counts(tally))
        elif time.monotonic() >= self._plain_at:
            self._plain_at = time.monotonic() + PLAIN_SECONDS
            share = f"{100 * tally.bytes // self._total} %, " if self._total else ""
            tell(self._console, f"importing: {share}{_counts(tally)}")

    def skipped(self, bad: BadLine) -> None:
        """A line was passed over."""
        tell(self._console, f"skipped: {bad}", "yellow")


def _counts(tally: Tally) -> str:
    return f"{tally.sessions:,} sessions, {tally.new + tally.known:,} messages"
