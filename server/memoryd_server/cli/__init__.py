"""The command line: `memoryd` and its commands, a module for those that belong together."""

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from memoryd_server.cli import (
    changing,
    copying,
    demo,
    importing,
    memory,
    runs,
    serving,
    summarizing,
    sweeping,
    tokens,
    viewing,
)
from memoryd_server.cli.options import NO_VALUE
from memoryd_server.cli.strict_options import StrictCommand
from memoryd_server.cli.terminal import Failure, err, prepare_streams, tell

app = typer.Typer(
    name="memoryd",
    help="memoryd keeps the conversations of agents, and hands each run the window of history that fits.",
    epilog="Begin with: memoryd demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"memoryd {version('memoryd-server')}")
        raise typer.Exit


@app.callback()
def _memoryd(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", metavar=NO_VALUE, help="Print the version and end.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


app.command("serve", cls=StrictCommand)(serving.serve)
app.command("demo", cls=StrictCommand)(demo.demo)
app.command("config", cls=StrictCommand)(serving.config)
app.add_typer(tokens.commands, name="token")
app.command("import", cls=StrictCommand)(importing.import_)
app.command("copy", cls=StrictCommand)(copying.copy)
app.command("sweep", cls=StrictCommand)(sweeping.sweep)
app.command("stores", cls=StrictCommand)(viewing.stores)
app.command("sessions", cls=StrictCommand)(viewing.sessions)
app.command("history", cls=StrictCommand)(viewing.history)
app.command("window", cls=StrictCommand)(viewing.window)
app.command("watch", cls=StrictCommand)(viewing.watch)
app.command("summaries", cls=StrictCommand)(summarizing.summaries)
app.command("summarize", cls=StrictCommand)(summarizing.summarize)
app.command("revert-summary", cls=StrictCommand)(summarizing.revert_summary)
app.add_typer(memory.commands, name="memory")
app.add_typer(runs.commands, name="runs")
app.command("fork", cls=StrictCommand)(changing.fork)
app.command("rewind", cls=StrictCommand)(changing.rewind)
app.command("redact", cls=StrictCommand)(changing.redact)
app.command("erase", cls=StrictCommand)(changing.erase)


def main() -> None:
    """Runs the command line. A user's mistake ends with a sentence and a status, never with a traceback."""
    prepare_streams()
    try:
        app()
    except Failure as failure:
        tell(err(), f"memoryd: {failure}", "red")
        sys.exit(failure.status)
