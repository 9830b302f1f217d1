"""`memoryd sweep`: the background work of servers, once and by hand."""

from pathlib import Path
from typing import Annotated

import typer

from memoryd_server.cli.options import NO_VALUE, AsJson


def sweep(
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="STORE",
            help="Only this store: its name in the settings, or its URL. Without it, all of the settings.",
            show_default=False,
        ),
    ] = None,
    run_retention: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long runs are kept after they ended, where their agent's settings do not say: 12h, 30d; none "
            "keeps all. Give what your servers are given.",
            show_default=False,
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
        typer.Option(metavar="DIR", help="Where the SQLite file is when no store is configured."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar=NO_VALUE, help="Change nothing: tell what is due.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Do once what servers do in the background: end what is over, and delete what is no longer kept.

    It ends sessions whose ttl is over, and runs that nobody claimed for 30 days. It deletes runs that ended longer ago
    than they are kept, messages that were taken away more than a minute ago, and what is left of sessions that are
    over.

    First it says how long runs are kept, and which setting says so. With --dry-run it then only counts what is due:
    sessions that expired, those with runs that nobody claimed or with messages that were taken away, and the runs of
    each agent that are no longer kept. What is left of sessions that are over is deleted, but not counted. A store
    of an older version is brought up to date all the same.

    Servers do all this by themselves while they run, so this is for stores without one, for schedulers, and for those
    who want to see it done. It does no harm beside running servers, and may be repeated at any time.

    The stores are opened directly, with no server between. The memory of a server (memory://) is swept by that server
    alone, and passed over here. The exit status is 0 when all is done; 1 when something failed; 2 when an option or a
    store is wrong.

    For example:

    `memoryd sweep --dry-run`

    `memoryd sweep --config memoryd.toml --store main --run-retention 7d --json`
    """
    from memoryd_server.cli.sweep_run import run_sweep

    given = {"run_retention": run_retention, "data_dir": data_dir}
    run_sweep(
        store,
        overrides={name: value for name, value in given.items() if value is not None},
        config_file=config,
        dry_run=dry_run,
        as_json=as_json,
    )
