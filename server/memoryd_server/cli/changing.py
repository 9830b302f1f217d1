"""`memoryd fork`, `rewind`, `redact` and `erase`: copying what a server keeps, and taking it away."""

from typing import Annotated

import typer

from memoryd_server.cli.options import (
    LARGEST_SEQ,
    NO_VALUE,
    AgentOfSession,
    AsJson,
    Server,
    SessionId,
    talks_to_a_server,
    up_to,
)
from memoryd_server.cli.terminal import Failure

Yes = Annotated[
    bool, typer.Option("--yes", "-y", metavar=NO_VALUE, help="Do not ask; needed where there is no terminal.")
]


@talks_to_a_server
def fork(
    session: SessionId,
    target: Annotated[
        str | None,
        typer.Argument(metavar="TARGET", help="The new session's id; without it, one is made.", show_default=False),
    ] = None,
    agent: AgentOfSession = None,
    to_agent: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The agent that is to own it; without it, the same one.", show_default=False),
    ] = None,
    through_seq: Annotated[
        int | None,
        typer.Option(
            callback=up_to(LARGEST_SEQ), metavar="SEQ", help="The last message to copy; without it, all are copied."
        ),
    ] = None,
    as_json: AsJson = False,
    *,
    server: Server,
) -> None:
    """Copy a session into a new one, up to a message: to try another way from there.

    The messages keep their seqs and ids. User, labels, ttl and policy are copied, too. The session itself stays as it
    is.

    For example:

    `memoryd fork user_123 user_123-retry --agent assistant --through-seq 12`
    """
    from memoryd_server.cli.alterations import fork_session
    from memoryd_server.cli.connecting import connected

    with connected(server) as client:
        fork_session(client, session, agent, target, to_agent=to_agent, through_seq=through_seq, as_json=as_json)


@talks_to_a_server
def rewind(
    session: SessionId,
    to_seq: Annotated[
        int,
        typer.Option(
            "--to-seq",
            callback=up_to(LARGEST_SEQ, smallest=0),
            metavar="SEQ",
            help="The last message that stays; 0 takes all away.",
            show_default=False,
        ),
    ],
    agent: AgentOfSession = None,
    yes: Yes = False,
    *,
    server: Server,
) -> None:
    """Take away a session's newest messages, as if they had never been said.

    Says first what would go, and asks. Tool calls whose results go wait for results again. New messages get new seqs.

    For example:

    `memoryd rewind user_123 --agent assistant --to-seq 12`
    """
    from memoryd_server.cli.alterations import rewind_session
    from memoryd_server.cli.connecting import connected

    with connected(server) as client:
        rewind_session(client, session, agent, to_seq, yes=yes)


@talks_to_a_server
def redact(
    session: SessionId,
    seq: Annotated[
        int | None,
        typer.Argument(
            metavar="SEQ", callback=up_to(LARGEST_SEQ), help="The message's seq, or give --id.", show_default=False
        ),
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The message's id, instead of its seq.", show_default=False)
    ] = None,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why, for those who read the history later.", show_default=False)
    ] = "",
    agent: AgentOfSession = None,
    yes: Yes = False,
    *,
    server: Server,
) -> None:
    """Take away what one message says, for good. Its place in the history stays, and shows that it was redacted.

    Says first which message it is, and asks.

    For example:

    `memoryd redact user_123 14 --agent assistant --reason "a password"`
    """
    if (seq is None) == (id is None):
        raise Failure("say which message: give either its SEQ or --id", status=2)
    from memoryd_server.cli.alterations import redact_message
    from memoryd_server.cli.connecting import connected

    with connected(server) as client:
        redact_message(client, session, agent, seq=seq, id=id, reason=reason, yes=yes)


@talks_to_a_server
def erase(
    user: Annotated[str, typer.Argument(metavar="USER", help="The user's id.", show_default=False)],
    yes: Yes = False,
    *,
    server: Server,
) -> None:
    """Delete all that a user owns, for good: sessions with all their messages and runs, expired ones included, and
    memory files.

    Says first what would go, and asks. Afterwards nothing of it is left in the server's database; backups are yours to
    see to.

    For example:

    `memoryd erase mia`
    """
    if not user:
        raise Failure("the user is empty, and never means everybody: give a user's id", status=2)
    from memoryd_server.cli.alterations import erase_user
    from memoryd_server.cli.connecting import connected

    with connected(server) as client:
        erase_user(client, user, yes=yes)
