"""Memory on the screen: what an owner's files are, what one says, and the block that an agent would get."""

import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import typer
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text as Line

from memoryd import MemoryClient, MemoryFileInfo, MemoryFiles, ProjectFiles, StoredMemory, UserFiles
from memoryd.memory_contexts import RenderedMemory
from memoryd_server.cli.json_lines import bytes_json, memory_file_json, print_line
from memoryd_server.cli.memory_options import Owner
from memoryd_server.cli.safe_text import many_lines, one_line, quoted
from memoryd_server.cli.terminal import Failure, counted, err, out, tell

_PAGE = 1_000


def show_files(files: MemoryFiles, owner: Owner, *, as_json: bool) -> None:
    """Prints what files there are, the index first and then the newest logs."""
    found = list(files.list(page_size=_PAGE))
    if as_json:
        _print_lines(found)
    elif found:
        out().print(_table("File", [(one_line(file.name), file) for file in found]))
    else:
        tell(
            err(),
            f"{owner} has no memory files. `memoryd memory add {owner.option} '- …'` begins the index, and "
            f"`memoryd memory push {owner.option}` brings a folder in",
        )


def show_versions(files: MemoryFiles, name: str, *, as_json: bool) -> None:
    """Prints the versions of a file that are kept, newest first."""
    versions = files.versions(name)
    if as_json:
        _print_lines(versions)
    else:
        out().print(_table("Version", [(str(file.version), file) for file in versions]))


def show_file(files: MemoryFiles, name: str, version: int | None, *, as_json: bool) -> None:
    """Prints what a file says: as it is in a pipe, and safely on a terminal."""
    file = files.get(name, version)
    if as_json:
        print_line(memory_file_json(file) | bytes_json("content", file.content))
    else:
        print_content(file.content)


def print_content(content: bytes) -> None:
    """Prints text from memory, byte by byte into a pipe, and on a terminal so that it can do nothing but be read."""
    if not sys.stdout.isatty():
        typer.echo(content, nl=False)
        return
    text = many_lines(content.decode(errors="replace"))
    out().print(Line(text.removesuffix("\n")), soft_wrap=True)


def _print_lines(files: Sequence[MemoryFileInfo]) -> None:
    for file in files:
        print_line(memory_file_json(file))


def _table(first: str, rows: Sequence[tuple[str, MemoryFileInfo]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(first, no_wrap=True, style="bold", justify="right" if first == "Version" else "left")
    table.add_column("Size", no_wrap=True, justify="right")
    if first != "Version":
        table.add_column("Version", no_wrap=True, justify="right")
    table.add_column("Written", no_wrap=True)
    table.add_column("By", overflow="fold")
    for label, file in rows:
        version = [] if first == "Version" else [str(file.version)]
        table.add_row(label, decimal(file.size), *version, minute(file.create_time), one_line(file.author))
    return table


def minute(moment: datetime) -> str:
    """A time of the day here."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"


def render(
    client: MemoryClient,
    *,
    user: UserFiles | StoredMemory | None,
    project: ProjectFiles | StoredMemory | None,
    agent: str,
    budget: int | None,
    style: str,
    instructions: bool,
    as_json: bool,
) -> None:
    """Prints what an agent would get, and tells beside it what became of the tiers."""
    # The SDK logs warnings, too; here they are told by the command, made safe for a terminal.
    logging.getLogger("memoryd").addHandler(logging.NullHandler())
    try:
        context = client.render_context(user=user, project=project, agent=agent, budget=budget, style=style)
    except ValueError as error:  # The SDK's word on what no request can carry.
        raise Failure(str(error), status=2) from error
    if not context.enabled and context.warnings:
        client.store()  # Says best why there is no answer, if there still is none.
        raise Failure("; ".join(context.warnings))
    if as_json:
        print_line(_context_json(context))
        return
    _tell_tiers(context, {"user": user, "project": project}, agent)
    if text := context.prompt if instructions else context.block:
        print_content(f"{text}\n".encode())


def _tell_tiers(context: RenderedMemory, places: dict[str, object], agent: str) -> None:
    if not context.enabled:
        tell(
            err(),
            f"agent {one_line(agent)} does not use memory, so it gets none; `memoryd memory enable {quoted(agent)}` "
            f"changes that",
            "yellow",
        )
    else:
        for tier, status in (("user", context.user), ("project", context.project)):
            if places[tier] is not None:
                kept = f", {counted(status.kept_lines, 'line')}" if status.kept_lines else ""
                dropped = f", {status.dropped_lines:,} left out" if status.dropped_lines else ""
                tell(err(), f"{tier} memory: {status.state}{kept}{dropped}", "dim")
    for warning in context.warnings:
        tell(err(), f"warning: {one_line(warning)}", "yellow")


def _context_json(context: RenderedMemory) -> dict[str, Any]:
    return {
        "enabled": context.enabled,
        "block": context.block,
        "instructions": context.instructions,
        "user": asdict(context.user),
        "project": asdict(context.project),
        "warnings": list(context.warnings),
    }
