"""Lists of sessions and of messages, for people and for programs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text as Line

from memoryd import MemoryClient, Message, Session, SessionInfo
from memoryd_server.cli.connecting import found_session
from memoryd_server.cli.drawing import ROLE_STYLES, ROLE_WIDTH, heading
from memoryd_server.cli.groups import Pairing
from memoryd_server.cli.json_lines import message_json, print_line, session_json
from memoryd_server.cli.previews import preview, whole
from memoryd_server.cli.safe_text import one_line
from memoryd_server.cli.terminal import err, line, out, tell

_PAGE: Final = 1_000


def show_sessions(client: MemoryClient, *, agent: str, user: str, limit: int, as_json: bool) -> None:
    """Prints sessions, newest activity first."""
    found = list(islice(client.sessions(agent=agent, user_id=user, page_size=min(limit + 1, _PAGE)), limit + 1))
    if as_json:
        for session in found[:limit]:
            print_line(session_json(session))
        return
    if not found:
        tell(
            err(),
            f"no sessions{_of(agent, user)}. `memoryd import` brings transcripts in; an agent's first append does too",
        )
        return
    console = out()
    console.print(session_table(found[:limit]))
    if len(found) > limit:
        tell(err(), f"there are more than these {limit:,}; --limit {limit * 5} shows more of them", "dim")


def _of(agent: str, user: str) -> str:
    return (f" of agent {one_line(agent)}" if agent else "") + (f" of user {one_line(user)}" if user else "")


def session_table(sessions: Sequence[SessionInfo]) -> Table:
    """A table of sessions, in their order."""
    expire = any(session.expire_time for session in sessions)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("Session", overflow="fold", style="bold")
    table.add_column("Agent", overflow="fold")
    table.add_column("User", overflow="fold")
    table.add_column("Messages", justify="right", no_wrap=True)
    table.add_column("Tokens", justify="right", no_wrap=True)
    table.add_column("Last activity", no_wrap=True)
    if expire:
        table.add_column("Expires", no_wrap=True)
    for session in sessions:
        open_calls = f" ({session.open_call_count} open)" if session.open_call_count else ""
        table.add_row(
            one_line(session.session_id),
            one_line(session.agent),
            one_line(session.user_id),
            f"{session.message_count:,}{open_calls}",
            f"{session.token_count:,}",
            _minute(session.activity_time),
            *([_minute(session.expire_time)] if expire else []),
        )
    return table


def _minute(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M}"


@dataclass(frozen=True, slots=True)
class Part:
    """Which messages of a history to show."""

    from_seq: int | None
    to_seq: int | None
    limit: int | None
    """None for no limit."""

    def of(self, session: Session) -> Iterator[Message]:
        """The messages, oldest first: the first ones from `from_seq` on, else the last ones."""
        last_ones = self.from_seq is None and self.limit is not None
        messages = islice(
            session.messages(
                order="descending" if last_ones else "ascending",
                page_size=min(self.limit or _PAGE, _PAGE),
                from_seq=self.from_seq or 0,
                to_seq=self.to_seq or 0,
                view="all",
            ),
            self.limit,
        )
        return reversed(list(messages)) if last_ones else messages


def show_history(
    client: MemoryClient, session_id: str, agent: str | None, part: Part, *, full: bool, as_json: bool
) -> None:
    """Prints messages of a session, the newest last."""
    session, info = found_session(client, session_id, agent)
    if as_json:
        for message in part.of(session):
            print_line(message_json(message))
        return
    console = out()
    line(console, _title(info))
    console.print()
    seqs = print_messages(console, part.of(session), seq_width=len(str(info.last_seq)), full=full)
    if not seqs:
        tell(err(), "no messages here" if info.message_count else "no messages", "dim")
        return
    missing = _missing(session, part, *seqs)
    if missing:
        tell(err(), missing, "dim")


def _title(info: SessionInfo) -> Line:
    counts = f"   {info.message_count:,} messages, {info.token_count:,} tokens"
    waiting = f", {info.open_call_count} open calls" if info.open_call_count else ""
    return heading(info.agent, info.session_id).append(counts + waiting, "dim")


def _missing(session: Session, part: Part, first: int, last: int) -> str:
    """What the limit leaves out. The session is asked: seqs do not tell, as clears and rewinds leave gaps in them."""
    if part.limit is None:
        return ""
    if part.from_seq is not None:
        more = Part(last + 1, part.to_seq, 1)
        return f"more follow: --from-seq {last + 1} goes on" if last != part.to_seq and any(more.of(session)) else ""
    if first > 1 and any(Part(1, first - 1, 1).of(session)):
        return "earlier ones are not shown: --from-seq 1 shows the first, --all every one"
    return ""


def print_messages(
    console: Console, messages: Iterable[Message], *, seq_width: int, full: bool = False
) -> tuple[int, int] | None:
    """Prints messages, oldest first. Returns: the first and the last seq; None when there were none."""
    printer = MessagePrinter(console, seq_width=seq_width, full=full)
    first = last = 0
    for message in messages:
        first, last = first or message.seq, message.seq
        printer.show(message)
    return (first, last) if last else None


class MessagePrinter:
    """Prints what happens in a session, in its order: a line each, and one where another day begins."""

    def __init__(self, console: Console, *, seq_width: int, full: bool) -> None:
        self._console = console
        self._seq_width = seq_width
        self._full = full
        self._pairing = Pairing()
        self._day = ""

    def show(self, message: Message) -> None:
        """Prints a message."""
        console = self._console
        tools = self._pairing.place(message).tools
        margin = Line.assemble(
            f"{message.seq:>{self._seq_width}}",
            self._time(message.create_time),
            (f"  {message.role:<{ROLE_WIDTH}}", ROLE_STYLES[message.role]),
            (f"  {message.token_count:>6,}  ", "dim"),
        )
        if self._full:
            line(console, margin)
            text = whole(message, tools)
            text.expand_tabs(4)
            console.print(Line("\n").join([*text.split("\n", allow_blank=True)]), soft_wrap=not console.is_terminal)
            console.print()
        else:
            line(console, margin.append_text(preview(message, tools)))

    def note(self, moment: datetime | None, text: Line) -> None:
        """Prints what is no message."""
        line(self._console, Line.assemble(f"{'':{self._seq_width}}", self._time(moment), "  ", text))

    def _time(self, moment: datetime | None) -> tuple[str, str]:
        if moment is None:
            return f"{'':10}", ""
        local = moment.astimezone()
        if f"{local:%Y-%m-%d}" != self._day:
            self._day = f"{local:%Y-%m-%d}"
            line(self._console, Line(f"{'':{self._seq_width}}  {self._day}", "dim"))
        return f"  {local:%H:%M:%S}", "dim"
