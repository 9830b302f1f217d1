"""The two streams of a command: what it answers, and what it tells meanwhile."""

import sys
from typing import TextIO

from rich.console import Console
from rich.text import Text

from memoryd_server.cli.safe_text import many_lines


class Failure(Exception):
    """A command cannot do what it was asked. Its text is for a person: what happened, and what to do.

    The command line prints it without a traceback and ends with `status`.
    """

    def __init__(self, message: str, *, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def _console(stream: TextIO | None = None, *, stderr: bool = False) -> Console:
    # What is printed comes from conversations: no part of it may be taken for markup.
    return Console(file=stream, stderr=stderr, markup=False, emoji=False, highlight=False)


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


def tell(console: Console, message: str, style: str = "") -> None:
    """Prints a message for a person, folded between words at the width of a terminal, and never in a pipe."""
    console.print(Text(many_lines(message), style), soft_wrap=not console.is_terminal)


def prepare_streams() -> None:
    """Lets a terminal that cannot show a character show its escape instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
