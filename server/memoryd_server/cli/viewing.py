"""`memoryd stores`, `sessions`, `history`, `window` and `watch`: looking at what a server keeps, and where."""

from typing import Annotated

import typer

from memoryd_server.cli.options import (
    LARGEST_LIST,
    LARGEST_MESSAGE_LIMIT,
    LARGEST_SEQ,
    LARGEST_TOKEN_LIMIT,
    NO_VALUE,
    AgentOfSession,
    AsJson,
    OpenCalls,
    Oversize,
    Server,
    SessionId,
    talks_to_a_server,
    up_to,
)
from memoryd_server.cli.terminal import Failure


@talks_to_a_server
def stores(
    as_json: AsJson = False,
    *,
    server: Server,
) -> None:
    """List the server's stores: their types, whether they answer now, and what they lack.

    Other commands, and clients, use the default one unless they name another.

    For example:

    `memoryd stores --address 127.0.0.1:7700`
    """
    from memoryd_server.cli.connecting import connected
    from memoryd_server.cli.store_view import show_stores

    with connected(server) as client:
        show_stores(client, chosen=server.store, as_json=as_json)


@talks_to_a_server
def sessions(
    agent: Annotated[
        str, typer.Option("--agent", "-a", metavar="NAME", help="Only sessions of this agent.", show_default=False)
    ] = "",
    user: Annotated[str, typer.Option(metavar="ID", help="Only sessions of this user.", show_default=False)] = "",
    limit: Annotated[
        int, typer.Option("--limit", "-n", callback=up_to(LARGEST_LIST), metavar="N", help="At most so many.")
    ] = 20,
    as_json: AsJson = False,
    *,
    server: Server,
) -> None:
    """List sessions, the one with the newest activity first.

    For example:

    `memoryd sessions --agent assistant --limit 100`
    """
    from memoryd_server.cli.connecting import connected
    from memoryd_server.cli.listing import show_sessions

    with connected(server) as client:
        show_sessions(client, agent=agent, user=user, limit=limit, as_json=as_json)


@talks_to_a_server
def history(
    session: SessionId,
    agent: AgentOfSession = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", callback=up_to(LARGEST_LIST), metavar="N", help="At most so many messages.")
    ] = 50,
    every: Annotated[bool, typer.Option("--all", metavar=NO_VALUE, help="Every message, whatever the limit.")] = False,
    from_seq: Annotated[
        int | None,
        typer.Option(
            callback=up_to(LARGEST_SEQ), metavar="SEQ", help="Begin with this message instead of with the last few."
        ),
    ] = None,
    to_seq: Annotated[
        int | None, typer.Option(callback=up_to(LARGEST_SEQ), metavar="SEQ", help="End with this message.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", metavar=NO_VALUE, help="Whole messages instead of one line each.")
    ] = False,
    as_json: AsJson = False,
    *,
    server: Server,
) -> None:
    """Show the messages of a session, the newest last.

    For example:

    `memoryd history user_123 --agent assistant --from-seq 10 --limit 5 --full`
    """
    from memoryd_server.cli.connecting import connected
    from memoryd_server.cli.listing import Part, show_history

    with connected(server) as client:
        part = Part(from_seq, to_seq, None if every else limit)
        show_history(client, session, agent, part, full=full, as_json=as_json)


@talks_to_a_server
def window(
    session: SessionId,
    agent: AgentOfSession = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            callback=up_to(LARGEST_MESSAGE_LIMIT),
            metavar="N",
            help="The limit in messages, 1 to 100,000.",
            show_default=False,
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(
            "--tokens",
            "-t",
            callback=up_to(LARGEST_TOKEN_LIMIT),
            metavar="N",
            help="The limit in tokens, 1 to 100,000,000.",
            show_default=False,
        ),
    ] = None,
    pin: Annotated[
        bool | None,
        typer.Option("--pin/--no-pin", metavar=NO_VALUE, help="Keep the first system messages.", show_default=False),
    ] = None,
    start_with_user: Annotated[
        bool | None,
        typer.Option(
            "--start-with-user/--start-with-any",
            metavar=NO_VALUE,
            help="Begin the window with a user message.",
            show_default=False,
        ),
    ] = None,
    open_calls: Annotated[
        OpenCalls | None,
        typer.Option(
            metavar="HOW",
            help="Tool groups with an unanswered call: omit, synthesize a result, or keep.",
            show_default=False,
        ),
    ] = None,
    oversize: Annotated[
        Oversize | None,
        typer.Option(
            metavar="HOW",
            help="A newest group over a token limit: shorten, return or fail.",
            show_default=False,
        ),
    ] = None,
    summary: Annotated[
        bool | None,
        typer.Option(
            "--summary/--no-summary",
            metavar=NO_VALUE,
            help="Show the session's summary in the place of what it covers.",
            show_default=False,
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=10, metavar="N", help="Messages to draw, about; more are folded.")] = 60,
    as_json: AsJson = False,
    *,
    server: Server,
) -> None:
    """Draw a session's history with the window marked: what a run would be given, what not, and why.

    What you do not say comes from the stored policies of the session and the agent.

    For example:

    `memoryd window user_123 --agent assistant --limit 8`

    `memoryd window user_123 --tokens 4000 --open-calls synthesize`
    """
    if limit is not None and tokens is not None:
        raise Failure("a window has one limit: give either --limit (messages) or --tokens", status=2)
    from memoryd_server.cli.connecting import connected
    from memoryd_server.cli.window_view import show_window

    with connected(server) as client:
        show_window(
            client,
            session,
            agent,
            {
                "messages": limit,
                "tokens": tokens,
                "pin_system": pin,
                "start_with_user": start_with_user,
                "open_calls": None if open_calls is None else open_calls.value,
                "oversize": None if oversize is None else oversize.value,
                "summary": summary,
            },
            rows=rows,
            as_json=as_json,
        )


@talks_to_a_server
def watch(
    session: SessionId,
    agent: AgentOfSession = None,
    from_start: Annotated[
        bool,
        typer.Option(
            "--from-start", metavar=NO_VALUE, help="Begin with the oldest message instead of with what happens now."
        ),
    ] = False,
    resume_token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="Go on behind the event that had this token, at most 24 hours later.",
            show_default=False,
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", metavar=NO_VALUE, help="Whole messages instead of one line each.")
    ] = False,
    as_json: AsJson = False,
    *,
    server: Server,
) -> None:
    """Follow a session: print what is appended, redacted and taken away as it happens, until Ctrl-C.

    A lost connection or a server that restarts only pauses it: nothing is missed, and nothing shown twice.

    With --json each event is a line with its resume_token, which a program keeps to go on from there.

    For example:

    `memoryd watch user_123 --agent assistant --from-start`

    `memoryd watch user_123 --json | my-program`
    """
    if from_start and resume_token is not None:
        raise Failure("a watch begins at one place: give either --from-start or --resume-token", status=2)
    from memoryd_server.cli.connecting import connected
    from memoryd_server.cli.watch_view import show_watch

    with connected(server) as client:
        show_watch(client, session, agent, resume_token=resume_token, from_start=from_start, full=full, as_json=as_json)
