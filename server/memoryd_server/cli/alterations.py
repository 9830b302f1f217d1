"""Forks, rewinds, redactions and erasures: telling what would go, asking, doing it, and telling what was done."""

from itertools import islice
from typing import Final

from rich.text import Text as Line

from memoryd import LastSeqMismatch, MemoryClient, Message, MessageNotFound, Session
from memoryd_server.cli.connecting import found_session
from memoryd_server.cli.json_lines import print_line, session_json
from memoryd_server.cli.listing import MessagePrinter, print_messages, session_table
from memoryd_server.cli.safe_text import one_line, quoted
from memoryd_server.cli.terminal import Failure, confirm, counted, err, out, tell

LONG_CALL_SECONDS: Final = 600.0
"""What a fork or an erasure may take: both go through all messages."""
_ENDS: Final = 3
"""Messages at each end of a range that are shown; and sessions, of many."""
_PAGE: Final = 1_000


def fork_session(
    client: MemoryClient,
    session_id: str,
    agent: str | None,
    target: str | None,
    *,
    to_agent: str | None,
    through_seq: int | None,
    as_json: bool,
) -> None:
    """Copies a session, and tells where the copy is."""
    session, _ = found_session(client, session_id, agent)
    forked = session.fork(target, agent=to_agent, through_seq=through_seq, timeout=LONG_CALL_SECONDS)
    info = forked.info()
    if as_json:
        print_line(session_json(info))
        return
    tell(
        out(),
        f"Copied {counted(info.message_count, 'message')} of {name_of(session)} into {name_of(forked)}.\n"
        f"Look at it: memoryd history {quoted(forked.id)} --agent {quoted(forked.agent)}",
    )


def rewind_session(client: MemoryClient, session_id: str, agent: str | None, to_seq: int, *, yes: bool) -> None:
    """Takes away a session's messages after a seq."""
    session, info = found_session(client, session_id, agent)
    going = _Range()
    if to_seq < info.last_seq:
        for message in session.messages(from_seq=to_seq + 1, to_seq=info.last_seq, page_size=_PAGE, view="all"):
            going.add(message)
    if not going.count:
        tell(out(), f"{name_of(session)} has no messages after seq {to_seq}. Nothing was taken away.")
        return
    of_all = f"{going.count:,} of the {counted(info.message_count, 'message')}"
    tell(err(), f"This takes away {of_all} of {name_of(session)}, for good:")
    going.show()
    confirm("Take them away?" if going.count > 1 else "Take it away?", yes=yes)
    try:
        rewound = session.rewind(to_seq, expected_last_seq=info.last_seq)
    except LastSeqMismatch as error:
        raise Failure(
            f"{name_of(session)} took more messages meanwhile. Nothing was taken away; repeat the command to see what "
            f"would go now"
        ) from error
    waiting = rewound.open_call_count
    again = f" {counted(waiting, 'call waits', 'calls wait')} for results now." if waiting else ""
    tell(out(), f"Took away {counted(rewound.message_count, 'message')}.{again}")


def redact_message(
    client: MemoryClient,
    session_id: str,
    agent: str | None,
    *,
    seq: int | None,
    id: str | None,
    reason: str,
    yes: bool,
) -> None:
    """Takes away what one message says."""
    session, _ = found_session(client, session_id, agent)
    try:
        message = session.message(seq=seq, id=id)
    except MessageNotFound as error:
        raise Failure(
            f"{name_of(session)} has no message {seq or one_line(id or '')}; `memoryd history` lists its messages"
        ) from error
    if message.redaction is not None:
        why = f", for: {one_line(message.redaction.reason)}" if message.redaction.reason else ""
        when = f"{message.redaction.redact_time.astimezone():%Y-%m-%d %H:%M}"
        tell(out(), f"Message {message.seq} of {name_of(session)} was redacted already, at {when}{why}.")
        return
    tell(err(), f"This takes away what message {message.seq} of {name_of(session)} says, for good:")
    print_messages(err(), [message], seq_width=len(str(message.seq)))
    confirm("Redact it?", yes=yes)
    redacted = session.redact(seq=message.seq, reason=reason)
    tell(out(), f"Redacted message {redacted.seq} of {name_of(session)}.")


def erase_user(client: MemoryClient, user: str, *, yes: bool) -> None:
    """Deletes all that a user owns."""
    sessions = messages = 0
    listed = client.sessions(user_id=user, page_size=_PAGE)
    shown = list(islice(listed, 2 * _ENDS))
    for session in (*shown, *listed):
        sessions += 1
        messages += session.message_count
    files = sum(1 for _ in client.files(user=user).list(page_size=_PAGE))
    if sessions or files:
        memory = f", {counted(files, 'memory file')} with all versions" if files else ""
        tell(
            err(),
            f"This deletes all that user {one_line(user)} owns, for good: {counted(sessions, 'session')} with "
            f"{counted(messages, 'message')}{memory}, and what is still stored of earlier ones.",
        )
        if shown:
            err().print(session_table(shown))
        if sessions > len(shown):
            tell(err(), f"… and {counted(sessions - len(shown), 'more session', 'more sessions')}", "dim")
    else:
        tell(
            err(),
            f"User {one_line(user)} owns no session and no memory file. This deletes, for good, what may still be "
            f"stored of expired sessions.",
        )
    here = client.store().name
    if others := [one_line(store.name) for store in client.stores() if store.name != here]:
        tell(
            err(),
            f"Only store {one_line(here)} is looked at. The server has others, each for a command of its own: "
            + ", ".join(f"--store {name}" for name in others),
        )
    confirm(f"Erase user {one_line(user)}?", yes=yes)
    erased = client.erase_user(user, timeout=LONG_CALL_SECONDS)
    runs = (
        f"{counted(erased.run_count, 'run')} with {counted(erased.run_step_count, 'step')}, "
        if erased.run_count
        else ""
    )
    tell(
        out(),
        f"Erased user {one_line(user)}: {counted(erased.session_count, 'session')}, "
        f"{counted(erased.message_count, 'message')}, {runs}{counted(erased.lookup_count, 'look-up')} and "
        f"{counted(erased.memory_file_count, 'memory file')} deleted.",
    )


class _Range:
    """Messages that go: their number, and those at both ends."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[Message] = []
        self._last: list[Message] = []

    def add(self, message: Message) -> None:
        self.count += 1
        if len(self._first) < _ENDS:
            self._first.append(message)
        else:
            self._last = [*self._last[1 - _ENDS :], message]

    def show(self) -> None:
        newest = [*self._first, *self._last][-1]
        printer = MessagePrinter(err(), seq_width=len(str(newest.seq)), full=False)
        for message in self._first:
            printer.show(message)
        if between := self.count - len(self._first) - len(self._last):
            printer.note(None, Line(f"… {counted(between, 'more message', 'more messages')} …", "dim"))
        for message in self._last:
            printer.show(message)


def name_of(session: Session) -> str:
    """A session in a sentence."""
    return f"session {one_line(session.id)} of agent {one_line(session.agent)}"
