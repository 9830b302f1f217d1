"""`memoryd runs`: the runs of agents, which an operator looks at, approves, ends and deletes."""

from enum import StrEnum
from typing import Annotated

import typer

from memoryd_server.cli.changing import Yes
from memoryd_server.cli.options import (
    LARGEST_LIST,
    NO_VALUE,
    AgentOfSession,
    AsJson,
    Server,
    SessionId,
    not_empty,
    talks_to_a_server,
    up_to,
)
from memoryd_server.cli.strict_options import DashedCommand, StrictCommand
from memoryd_server.cli.terminal import Failure

commands = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")


class Status(StrEnum):
    """How a run stands: the statuses of the SDK, which is not loaded for help."""

    RUNNING = "running"
    INTERRUPTED = "interrupted"
    AWAITING_APPROVAL = "awaiting_approval"
    AWAITING_BUDGET = "awaiting_budget"
    COMPLETED = "completed"
    BLOCKED = "blocked"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    ABANDONED = "abandoned"


RunId = Annotated[str, typer.Argument(metavar="RUN", callback=not_empty, help="The run's id.", show_default=False)]


@commands.callback()
def _runs() -> None:
    """Look at the runs of agents: durable records of what they do, paused in one process and resumed in another.

    A worker holds a run by a lease, and commits what it does in steps. When it stops without a word, its lease ends,
    and another worker goes on behind the last step. A run that needs somebody's approval waits until it has it.
    """


@commands.command("list", cls=StrictCommand)
@talks_to_a_server
def list_(
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            "-a",
            metavar="NAME",
            callback=not_empty,
            help="The runs of all sessions of this agent.",
            show_default=False,
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            metavar="ID",
            callback=not_empty,
            help="The runs of this session; --agent says whose it is where several agents have one of this id.",
            show_default=False,
        ),
    ] = None,
    statuses: Annotated[
        list[Status] | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help=f"Only runs of this status: {', '.join(Status)}. Repeatable.",
            case_sensitive=False,
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", callback=up_to(LARGEST_LIST), metavar="N", help="At most so many.")
    ] = 20,
    as_json: AsJson = False,
    *,
    server: Server,
) -> None:
    """List the runs of an agent or of a session, the newest first.

    Where nobody renewed a lease in time it is told as over: the run's worker is gone, and any other may claim the run.

    For example:

    `memoryd runs list --agent assistant --status awaiting_approval`

    `memoryd runs list --session user_123`
    """
    if agent is None and session is None:
        raise Failure("whose runs? Give --agent NAME, or --session ID", status=2)
    from memoryd_server.cli.connecting import connected
    from memoryd_server.cli.run_view import show_runs

    with connected(server) as client:
        show_runs(client, agent, session, [status.value for status in statuses or ()], limit=limit, as_json=as_json)


@commands.command("show", cls=StrictCommand)
@talks_to_a_server
def show(
    session: SessionId,
    run: RunId,
    agent: AgentOfSession = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", callback=up_to(LARGEST_LIST), metavar="N", help="At most so many steps.")
    ] = 20,
    every: Annotated[bool, typer.Option("--all", metavar=NO_VALUE, help="Every step, whatever the limit.")] = False,
    full: Annotated[
        bool, typer.Option("--full", metavar=NO_VALUE, help="Whole payloads instead of one line each.")
    ] = False,
    as_json: AsJson = False,
    *,
    server: Server,
) -> None:
    """Show a run: how it stands, and its last steps, each with the seqs of the messages that it produced.

    `memoryd history` shows the messages.

    For example:

    `memoryd runs show user_123 run-7 --full`
    """
    from memoryd_server.cli.connecting import connected
    from memoryd_server.cli.run_view import show_run

    with connected(server) as client:
        show_run(client, session, agent, run, limit=None if every else limit, full=full, as_json=as_json)


@commands.command("approve", cls=StrictCommand)
@talks_to_a_server
def approve(
    session: SessionId,
    run: RunId,
    agent: AgentOfSession = None,
    note: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="Why, for people: told with the run until a worker claims it.", show_default=False
        ),
    ] = "",
    metadata: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="What the worker is to know, in the place of the run's metadata, which stay otherwise.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    *,
    server: Server,
) -> None:
    """Let a run go on that waits for approval, or for a budget: from then on any worker may claim it.

    `memoryd runs show` tells what it asks for. A run that does not wait any more stays as it is.

    For example:

    `memoryd runs approve user_123 run-7 --note "up to 500 EUR"`
    """
    from memoryd_server.cli.connecting import connected
    from memoryd_server.cli.run_alterations import approve_run

    with connected(server) as client:
        approve_run(client, session, agent, run, note=note, metadata=metadata, as_json=as_json)


@commands.command("cancel", cls=StrictCommand)
@talks_to_a_server
def cancel(
    session: SessionId,
    run: RunId,
    agent: AgentOfSession = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for people.", show_default=False)] = "",
    yes: Yes = False,
    as_json: AsJson = False,
    *,
    server: Server,
) -> None:
    """End a run for good, whoever holds it: its worker is told so at its next step, or when it renews its lease.

    Says first which run it is, and asks. Its steps and messages stay.

    For example:

    `memoryd runs cancel user_123 run-7 --reason "the trip is off"`
    """
    from memoryd_server.cli.connecting import connected
    from memoryd_server.cli.run_alterations import cancel_run

    with connected(server) as client:
        cancel_run(client, session, agent, run, reason=reason, yes=yes, as_json=as_json)


@commands.command("delete", cls=StrictCommand)
@talks_to_a_server
def delete(
    session: SessionId,
    run: RunId,
    agent: AgentOfSession = None,
    yes: Yes = False,
    *,
    server: Server,
) -> None:
    """Delete a run that has ended, with its steps, for good. Its messages stay.

    Says first which run it is, and asks. Runs that ended long ago are deleted by themselves: `memoryd runs retention`.

    For example:

    `memoryd runs delete user_123 run-7`
    """
    from memoryd_server.cli.connecting import connected
    from memoryd_server.cli.run_alterations import delete_run

    with connected(server) as client:
        delete_run(client, session, agent, run, yes=yes)


@commands.command("retention", cls=DashedCommand)
@talks_to_a_server
def retention(
    agent: Annotated[
        str, typer.Argument(metavar="AGENT", callback=not_empty, help="The agent's name.", show_default=False)
    ],
    time: Annotated[
        str | None,
        typer.Argument(
            metavar="[TIME]",
            help="How long: 30d, 12h, 90s; none keeps them for ever; default is what the servers' settings say. "
            "Without it, what holds now is told.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    *,
    server: Server,
) -> None:
    """Show or set how long the runs of an agent are kept after they ended. Unfinished ones are always kept.

    For example:

    `memoryd runs retention assistant`

    `memoryd runs retention assistant 7d`
    """
    from memoryd_server.cli.connecting import connected
    from memoryd_server.cli.run_retention import set_retention, show_retention

    with connected(server) as client:
        if time is None:
            show_retention(client, agent, as_json=as_json)
        else:
            set_retention(client, agent, time, as_json=as_json)
