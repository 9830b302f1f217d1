"""`memoryd token create | list | revoke`: the bearer tokens that a server accepts."""

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from memoryd_server.cli.options import AsJson
from memoryd_server.cli.safe_text import one_line
from memoryd_server.cli.strict_options import StrictCommand
from memoryd_server.cli.terminal import Failure, err, out, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memoryd_server.credentials.token_file import TokenEntry

File = Annotated[
    Path,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        envvar="MEMORYD_TOKENS_FILE",
        help="The server's file of tokens.",
        show_default=False,
    ),
]

commands = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")


@commands.callback()
def _token() -> None:
    """Make, list and revoke the tokens that callers show a server.

    They stand in a file, `memoryd serve --tokens-file FILE`, as hashes: a token is shown once, when it is made. Servers
    see a change of the file within about two seconds.
    """


@commands.command("create", cls=StrictCommand)
def create(
    file: File,
    tenant: Annotated[
        str,
        typer.Option(metavar="TENANT", help="Whose data it opens; tenants never see each other's.", show_default=False),
    ],
    name: Annotated[
        str, typer.Option(metavar="TEXT", help="What to call it, for example who has it.", show_default=False)
    ] = "",
    to: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Write the token into this new file, which its owner alone can read, instead of printing it.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make a token, show it once, and write its hash into the file.

    The data of a server that had no tokens before belongs to the tenant `default`.

    For example:

    `memoryd token create --file tokens.toml --tenant acme --name ci --out token`
    """
    from memoryd_server.credentials import token_editing
    from memoryd_server.credentials.reloading import Unusable

    try:
        with contextlib.nullcontext() if to is None else _for_the_owner(to) as written:
            token, entry = token_editing.create(file, tenant, name)
            typer.echo(token, file=written)
    except Unusable as error:
        raise Failure(str(error)) from error
    except ValueError as error:
        raise Failure(f"--tenant, --name: {error}", status=2) from error
    shown = "It is shown only this once" if to is None else f"{one_line(str(to))} alone has the token itself"
    tell(err(), f"Token {entry.id} of tenant {entry.tenant} is in {one_line(str(file))}. {shown}: keep it safe.")


@contextmanager
def _for_the_owner(path: Path) -> Iterator[TextIO]:
    """A new file of mode 0600, gone again when what should fill it fails."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise Failure(f"{one_line(str(path))} exists already: give --out a file that does not") from error
    except OSError as error:
        raise Failure(f"{one_line(str(path))} cannot be written ({error.strerror})") from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            yield file
    except BaseException:
        path.unlink(missing_ok=True)
        raise


@commands.command("list", cls=StrictCommand)
def list_(file: File, as_json: AsJson = False) -> None:
    """List the tokens of the file: ids, tenants, names and times, never the tokens themselves.

    For example:

    `memoryd token list --file tokens.toml`
    """
    entries = _entries(file)
    if as_json:
        for entry in entries:
            created = None if entry.created is None else entry.created.isoformat()
            typer.echo(json.dumps({"id": entry.id, "tenant": entry.tenant, "name": entry.name, "created": created}))
    elif entries:
        _print(entries)
    else:
        tell(err(), f"{one_line(str(file))} has no tokens. Make one with `memoryd token create`.")


def _print(entries: "Sequence[TokenEntry]") -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("Id", no_wrap=True, style="bold")
    for heading in ("Tenant", "Name", "Created"):
        table.add_column(heading, overflow="fold")
    for entry in entries:
        created = "" if entry.created is None else f"{entry.created:%Y-%m-%d %H:%M}"
        table.add_row(entry.id, one_line(entry.tenant), one_line(entry.name), created)
    out().print(table)


@commands.command("revoke", cls=StrictCommand)
def revoke(
    token: Annotated[
        str, typer.Argument(metavar="TOKEN", help="The token's id, or its name if only one has it.", show_default=False)
    ],
    file: File,
) -> None:
    """Take a token out of the file: servers refuse it, and end its open streams, within about two seconds.

    For example:

    `memoryd token revoke 3f2a9c81d04e --file tokens.toml`
    """
    from memoryd_server.credentials import token_editing
    from memoryd_server.credentials.reloading import Unusable

    entry = _meant(token, _entries(file), file)
    try:
        token_editing.revoke(file, entry.sha256)
    except Unusable as error:
        raise Failure(str(error)) from error
    except KeyError as error:
        raise Failure(f"token {entry.id} was revoked by somebody else meanwhile") from error
    name = f" ({one_line(entry.name)})" if entry.name else ""
    tell(err(), f"Token {entry.id}{name} of tenant {one_line(entry.tenant)} is revoked.")


def _entries(file: Path) -> "Sequence[TokenEntry]":
    from memoryd_server.credentials import token_editing
    from memoryd_server.credentials.reloading import Unusable

    try:
        return token_editing.entries_of(file)
    except Unusable as error:
        raise Failure(str(error)) from error


def _meant(token: str, entries: "Sequence[TokenEntry]", file: Path) -> "TokenEntry":
    """The token that a person means. Raises: Failure, which never repeats what may be a token itself."""
    found = [entry for entry in entries if entry.id == token] or [entry for entry in entries if entry.name == token]
    if len(found) == 1:
        return found[0]
    if not found:
        raise Failure(
            f"{one_line(str(file))} has no token with this id or name; `memoryd token list` lists what it has. A token "
            f"itself is no id"
        )
    ids = "\n".join(f"  {entry.id}  tenant {one_line(entry.tenant)}" for entry in found)
    raise Failure(f"{len(found)} tokens are called {one_line(token)}. Give the id of one:\n{ids}", status=2)
