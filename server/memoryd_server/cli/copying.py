"""`memoryd copy`: what one store holds, into another."""

from pathlib import Path
from typing import Annotated

import typer

from memoryd_server.cli.terminal import Failure


def copy(
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="STORE",
            help="The store to copy from: its name in the settings, or its URL.",
            show_default=False,
        ),
    ],
    target: Annotated[
        str,
        typer.Option("--to", metavar="STORE", help="The store to copy into: as above.", show_default=False),
    ],
    agent: Annotated[
        list[str] | None,
        typer.Option(
            "--agent",
            "-a",
            metavar="NAME",
            help="Only sessions and runs of this agent, and no memory files. Repeatable.",
            show_default=False,
        ),
    ] = None,
    user: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help="Only sessions, runs and memory files of this user. Repeatable.", show_default=False
        ),
    ] = None,
    tenant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Only what belongs to this tenant; without it, to all. Repeatable.", show_default=False
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A TOML file of settings that names stores; also the environment's MEMORYD_CONFIG."
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the SQLite file is that is named default when no store is configured."),
    ] = None,
) -> None:
    """Copy sessions with their runs, and memory files, from one store into another of any type, and compare both.

    Seqs, ids, times, labels, redactions, steps, the settings of agents and the versions of memory files are kept, and a
    repeated append is recognized in the copy as it was in the source. Nothing is changed in the source, and nothing but
    copies in the target.

    A run that a worker holds is not held by it in the copy: there another worker can claim it once the lease is over,
    and goes on behind its last step.

    You can repeat a copy at any time: after an interruption it goes on where it stopped, what is there already is
    passed over, and of sessions that went on it copies what is new. So copy while your servers run, stop them, copy
    again, and start them with the other store.

    Afterwards it compares all that both stores hold of each session by SHA-256 digests. What is not the same is listed.
    The exit status is 0 when all is the same; 1 when something differs or the copy was not completed; 2 when an option
    or a store is wrong; 3 when nothing in the source has the agent, the user or the tenant that was asked for (what the
    others have is copied).

    Not copied: what is over (expired and erased sessions, the events of the last day), and tokens of pages and watches,
    which hold for the store that gave them; who watches a session is told to read it anew. Do not erase users while a
    copy runs, and erase those who were copied before in both stores.

    The stores are opened directly, with no server between. The memory of a server (memory://) cannot be copied. Others
    on this machine see a URL in the arguments of a command: name a store whose URL holds a password.

    For example:

    `memoryd copy --from default --to postgresql://localhost/memoryd`

    `memoryd copy --from main --to redis --agent assistant`
    """
    for name, values in (("--agent", agent), ("--user", user), ("--tenant", tenant)):
        if values and not all(values):
            raise Failure(f"{name} is empty, and never means all of them: leave it out for all", status=2)
    from memoryd_server.cli.copy_run import run_copy
    from memoryd_server.engine.copying import Scope

    run_copy(
        source,
        target,
        Scope(frozenset(tenant or ()), frozenset(agent or ()), frozenset(user or ())),
        overrides={} if data_dir is None else {"data_dir": data_dir},
        config_file=config,
    )
