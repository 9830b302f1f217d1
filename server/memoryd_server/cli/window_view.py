"""Loading and drawing a window: what `memoryd window` and the demo do."""

from typing import TypedDict

from rich.console import Console
from rich.text import Text as Line

from memoryd import MemoryClient, Message, Session, Window
from memoryd_server.cli.connecting import found_session
from memoryd_server.cli.drawing import drawn, footer, heading, legend
from memoryd_server.cli.json_lines import print_line, window_json
from memoryd_server.cli.picture import Folding, draw, ranges_to_read
from memoryd_server.cli.terminal import line, out

READ_WHOLE = 500
"""A history of up to so many messages is read as a whole, so that its folds are counted exactly."""


class Options(TypedDict, total=False):
    """How the window is cut: the arguments of `Session.window`."""

    messages: int | None
    tokens: int | None
    pin_system: bool | None
    start_with_user: bool | None
    open_calls: str | None
    oversize: str | None
    summary: bool | None
    wait_for_summary: bool | None


def show_window(
    client: MemoryClient, session_id: str, agent: str | None, options: Options, *, rows: int, as_json: bool
) -> None:
    """Prints a window: its drawing, or as JSON."""
    session, _ = found_session(client, session_id, agent)
    if as_json:
        print_line(window_json(session.window(**options, explain=True)))
        return
    draw_window(out(), session, options, rows=rows)


def draw_window(console: Console, session: Session, options: Options, *, rows: int) -> None:
    """Loads a window and what surrounds it, and draws them."""
    window = session.window(**options, explain=True)
    folding = Folding.to_rows(rows)
    items = draw(window, _read(session, window, folding), folding)
    line(console, heading(session.agent, session.id))
    console.print()
    for drawn_line in drawn(items) or [Line("no messages", "dim")]:
        line(console, drawn_line)
    console.print()
    for text in (*([legend(items)] if items else []), Line(), *footer(window)):
        console.print(text)


def _read(session: Session, window: Window, folding: Folding) -> list[list[Message]]:
    """What is drawn of the history, as it was when the window was loaded."""
    stats = window.stats
    if not stats.history_message_count:
        return []
    ranges = [(1, stats.last_seq)] if stats.history_message_count <= READ_WHOLE else ranges_to_read(window, folding)
    return [
        list(session.messages(from_seq=first, to_seq=last, page_size=READ_WHOLE, view="all")) for first, last in ranges
    ]
