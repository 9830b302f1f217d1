"""The two streams of a command: what it answers, and what it tells meanwhile."""

import sys
from typing import Final, TextIO

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memoryd_server.cli.safe_text import many_lines

INTERRUPTED: Final = 130
"""The exit status after Ctrl-C, as shells have it."""


_WIDEST: Final = 100_000
"""Columns of a table that is as wide as it needs: more than any has."""


class Failure(Exception):
    """A command cannot do what it was asked. Its text is for a person: what happened, and what to do.

    The command line prints it without a traceback and ends with `status`.
    """

    def __init__(self, message: str, *, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Lets the error through, as it is without rich: the command decides, and typer ends it with status 1."""
        raise  # noqa: PLE0704


def _console(stream: TextIO | None = None, *, stderr: bool = False) -> Console:
    # What is printed comes from conversations: no part of it may be taken for markup.
    return _Console(file=stream, stderr=stderr, markup=False, emoji=False, highlight=False)


def out() -> Console:
    """Where a command's answer goes: standard output."""
    return _console()


def err() -> Console:
    """Where progress, notes and errors go: standard error."""
    return _console(stderr=True)


def line(console: Console, text: Text) -> None:
    """Prints one line, cut at the width of the terminal."""
    text.truncate(console.width, overflow="ellipsis")
    console.print(text, no_wrap=True)


def whole(console: Console, table: Table) -> None:
    """Prints a table without a break in any cell, so that names can be copied and searched for: rows that are wider
    than the terminal are folded by that, which knows that they are one line.
    """
    table.width = console.measure(table, options=console.options.update(max_width=_WIDEST)).maximum
    console.print(table, crop=False)


def tell(console: Console, message: str, style: str = "") -> None:
    """Prints a message for a person, folded between words at the width of a terminal, and never in a pipe."""
    console.print(Text(many_lines(message), style), soft_wrap=not console.is_terminal)


def indented(console: Console, text: Text) -> None:
    """Prints text by two columns to the right, folded between words at the width of a terminal, and never in a pipe."""
    if console.is_terminal:
        console.print(Padding(text, (0, 0, 0, 2)))
        return
    for part in text.split(allow_blank=True):
        console.print(Text.assemble("  ", part) if part else "", soft_wrap=True)


def confirm(question: str, *, yes: bool) -> None:
    """Asks before what cannot be undone, unless the person said --yes. Raises Failure, when the answer is not yes."""
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise Failure("nothing was changed: there is no terminal to ask on; repeat the command with --yes", status=2)
    try:
        err().print(Text(f"{many_lines(question)} [y/N] "), end="")
        answer = sys.stdin.readline()
    except KeyboardInterrupt as interrupt:
        tell(err(), "")
        raise Failure("nothing was changed", status=INTERRUPTED) from interrupt
    if answer.strip().lower() not in ("y", "yes"):
        raise Failure("nothing was changed")


def counted(count: int, one: str, many: str = "") -> str:
    """A number of things; of more than one (or none) `many`, or `one` with an s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def prepare_streams() -> None:
    """Lets a terminal that cannot show a character show its escape instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
