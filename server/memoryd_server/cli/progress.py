"""How a command shows how far it is: a bar on a terminal, a plain line every few seconds elsewhere."""

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


class Bar:
    """Shows progress until it is left."""

    def __init__(self, console: Console, label: str, total: int | None = None) -> None:
        """Makes a bar for `total` of whatever is counted; None where that is not known."""
        self.console = console
        self._label = label
        self._total = total
        self._plain_at = time.monotonic() + PLAIN_SECONDS
        self._bar: Progress | None = None
        self._task = TaskID(0)
        if console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[counts]}"),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task(label, total=total, counts="")

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def begin(self, label: str, total: int | None) -> None:
        """Goes on with other work."""
        self._label, self._total = label, total
        if self._bar:
            self._bar.reset(self._task, description=label, total=total, counts="")

    def show(self, done: int, counts: str) -> None:
        """Something more is done."""
        if self._bar:
            self._bar.update(self._task, completed=done, counts=counts)
        elif time.monotonic() >= self._plain_at:
            self._plain_at = time.monotonic() + PLAIN_SECONDS
            share = f"{min(100, 100 * done // self._total)} %, " if self._total else ""
            tell(self.console, f"{self._label}: {share}{counts}")


class Meter(Bar):
    """Shows the progress of an import."""

    def __init__(self, console: Console, total: int | None) -> None:
        """Makes a meter for `total` bytes; None where that is not known."""
        super().__init__(console, "importing", total)

    def advanced(self, tally: Tally) -> None:
        """Something more is done."""
        self.show(tally.bytes, f"{tally.sessions:,} sessions, {tally.new + tally.known:,} messages")

    def skipped(self, bad: BadLine) -> None:
        """A line was passed over."""
        tell(self.console, f"skipped: {bad}", "yellow")
