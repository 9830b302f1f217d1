"""The command line: `memoryd` and its commands, a module for those that belong together."""

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from memoryd_server.cli import changing, copying, demo, importing, serving, tokens, viewing
from memoryd_server.cli.options import NO_VALUE
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


app.command("serve")(serving.serve)
app.command("demo")(demo.demo)
app.command("config")(serving.config)
app.add_typer(tokens.commands, name="token")
app.command("import")(importing.import_)
app.command("copy")(copying.copy)
app.command("stores")(viewing.stores)
app.command("sessions")(viewing.sessions)
app.command("history")(viewing.history)
app.command("window")(viewing.window)
app.command("watch")(viewing.watch)
app.command("fork")(changing.fork)
app.command("rewind")(changing.rewind)
app.command("redact")(changing.redact)
app.command("erase")(changing.erase)


def main() -> None:
    """Runs the command line. A user's mistake ends with a sentence and a status, never with a traceback."""
    prepare_streams()
    try:
        app()
    except Failure as failure:
        tell(err(), f"memoryd: {failure}", "red")
        sys.exit(failure.status)
