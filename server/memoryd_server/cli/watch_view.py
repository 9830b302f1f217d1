"""Following a session on the screen: what `memoryd watch` does."""

import logging
import os
import select
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import typer
from rich.text import Text as Line

from memoryd import MemoryClient, SessionInfo, SessionNotFound, Watch, WatchEvent, WatchEventKind
from memoryd_server.cli.connecting import found_session
from memoryd_server.cli.drawing import heading
from memoryd_server.cli.json_lines import event_json, print_line
from memoryd_server.cli.listing import MessagePrinter
from memoryd_server.cli.safe_text import one_line, quoted
from memoryd_server.cli.terminal import INTERRUPTED, Failure, err, line, out, tell

_SEQ_WIDTH: Final = 4
"""Columns for seqs at least, so that a session that grows stays in its columns for long."""

_TAKEN_AWAY: Final = {WatchEventKind.CLEARED: "cleared", WatchEventKind.REWOUND: "rewound"}


def show_watch(
    client: MemoryClient,
    session_id: str,
    agent: str | None,
    *,
    resume_token: str | None,
    from_start: bool,
    full: bool,
    as_json: bool,
) -> None:
    """Prints what happens to a session, until Ctrl-C, or until nobody reads it any more."""
    session, info = found_session(client, session_id, agent)
    view = _JsonLines() if as_json else _Screen(info, full=full)
    with (
        session.watch(resume_token=resume_token, after_seq=0 if from_start else None) as watch,
        _told_of_interruptions(),
    ):
        _end_with_the_reader(watch)
        try:
            for event in watch:
                view.show(event)
        except BrokenPipeError:
            _discard_output()
        except SessionNotFound as error:
            raise Failure(
                f"session {one_line(session.id)} of agent {one_line(session.agent)} is gone: it expired or was erased"
            ) from error
        except KeyboardInterrupt as interrupt:
            if not as_json:
                tell(
                    err(),
                    f"\nGo on from here: memoryd watch {quoted(session.id)} "
                    f"--agent {quoted(session.agent)} --resume-token {one_line(watch.resume_token)}",
                    "dim",
                )
            raise typer.Exit(INTERRUPTED) from interrupt


class _JsonLines:
    def show(self, event: WatchEvent) -> None:
        print_line(event_json(event))


class _Screen:
    def __init__(self, info: SessionInfo, *, full: bool) -> None:
        console = out()
        line(console, heading(info.agent, info.session_id))
        console.print()
        self._printer = MessagePrinter(console, seq_width=max(_SEQ_WIDTH, len(str(info.last_seq))), full=full)

    def show(self, event: WatchEvent) -> None:
        if event.kind is WatchEventKind.APPENDED and event.message is not None:
            self._printer.show(event.message)
        else:
            self._printer.note(event.event_time, Line(_said(event), "yellow"))


def _said(event: WatchEvent) -> str:
    """What happened, where it is no new message."""
    seqs = f"{event.from_seq}" if event.from_seq == event.to_seq else f"{event.from_seq} to {event.to_seq}"
    match event.kind:
        case WatchEventKind.APPENDED:
            return f"appended, and taken away since: {seqs}"
        case WatchEventKind.REDACTED:
            redaction = None if event.message is None else event.message.redaction
            reason = one_line(redaction.reason) if redaction else ""
            return f"redacted: {seqs}" + (f" ({reason})" if reason else "")
        case WatchEventKind.CLEARED | WatchEventKind.REWOUND:
            gone = "nothing" if event.to_seq < event.from_seq else seqs
            return f"{_TAKEN_AWAY[event.kind]}: {gone} taken away"
        case WatchEventKind.SUMMARIZED:
            return f"summarized: {seqs}"
        case WatchEventKind.RESYNC:
            return "what happened since the resume token is not known; `memoryd history` shows what there is now"
        case _:
            return "something that this memoryd does not know; a newer one may"


@contextmanager
def _told_of_interruptions() -> Iterator[None]:
    """Tells on standard error what the SDK logs of a watch that breaks off, and that it goes on."""
    log, handler = logging.getLogger("memoryd"), _Told()
    level, propagate = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagate


class _Told(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        tell(err(), f"memoryd: {record.getMessage()}", "dim")


def _end_with_the_reader(watch: Watch) -> None:
    """Ends a watch once the other end of the pipe that it prints to is closed. Printing would tell only with the next
    event, which may never come.
    """
    try:
        output = sys.stdout.fileno()
    except OSError:
        return
    if not (stat.S_ISFIFO(os.fstat(output).st_mode) and hasattr(select, "poll")):
        return
    poll = select.poll()
    poll.register(output, 0)  # Errors are told without being asked for.

    def wait() -> None:
        poll.poll()
        watch.close()

    threading.Thread(target=wait, daemon=True).start()


def _discard_output() -> None:
    """Lets what is still to be printed go nowhere, so that the end of the process does not fail on it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
