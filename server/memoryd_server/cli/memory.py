"""`memoryd memory`: the Markdown memory of users and projects, in the store and on this disk."""

from pathlib import Path
from typing import Annotated

import typer

from memoryd_server import limits
from memoryd_server.cli.changing import Yes
from memoryd_server.cli.memory_options import (
    INDEX,
    AllowSecrets,
    Author,
    BulletCommand,
    FilesCommand,
    ProjectId,
    UserId,
    author_of,
    owner_of,
)
from memoryd_server.cli.options import LARGEST_SEQ, NO_VALUE, AsJson, MemoryStyle, Server, talks_to_a_server, up_to
from memoryd_server.cli.strict_options import StrictCommand
from memoryd_server.cli.terminal import Failure

commands = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")

_NAME_HELP = f"{INDEX} or YYYY-MM-DD.md"


@commands.callback()
def _memory() -> None:
    """Look at and keep the Markdown memory that agents get with their prompts.

    A user or a project owns an index, `MEMORY.md`, which is rendered into prompts, and daily logs, `YYYY-MM-DD.md`,
    which are not. They are in the store, for agents whose disk does not last, or in a folder: `~/.openhands/memory`
    for a user, `.openhands/memory` in the workspace for a project, which a team can commit.

    Every write makes a version; the last 50 are kept. Text that holds a credential is refused.
    """


@commands.command("show", cls=StrictCommand)
@talks_to_a_server
def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help=f"Show this file, {_NAME_HELP}, instead of the list.", show_default=False),
    ] = None,
    user: UserId = None,
    project: ProjectId = None,
    version: Annotated[
        int | None,
        typer.Option(callback=up_to(LARGEST_SEQ), metavar="N", help=f"The file as it was then; without NAME, {INDEX}."),
    ] = None,
    versions: Annotated[
        bool,
        typer.Option(
            "--versions",
            metavar=NO_VALUE,
            help=f"List the last {limits.MAX_FILE_VERSIONS} versions, with author and time, newest first.",
        ),
    ] = False,
    as_json: AsJson = False,
    *,
    server: Server,
) -> None:
    """List the memory files of a user or a project in the store, or show what one says.

    In a pipe, a file comes byte by byte as it is.

    For example:

    `memoryd memory show --user ana`

    `memoryd memory show MEMORY.md --user ana`

    `memoryd memory show --user ana --versions`

    `memoryd memory show MEMORY.md --project atlas --version 3 > old.md`
    """
    owner = owner_of(user, project)
    if versions and version is not None:
        raise Failure("give either --version N, which shows one, or --versions, which lists them", status=2)
    from memoryd_server.cli.memory_errors import files_of
    from memoryd_server.cli.memory_view import show_file, show_files, show_versions

    with files_of(owner, server) as files:
        if versions:
            show_versions(files, name or INDEX, as_json=as_json)
        elif name is None and version is None:
            show_files(files, owner, as_json=as_json)
        else:
            show_file(files, name or INDEX, version, as_json=as_json)


@commands.command("render", cls=FilesCommand)
@talks_to_a_server
def render(
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="ID", help="User memory: that of this user in the store.", show_default=False),
    ] = None,
    user_files: Annotated[
        str | None,
        typer.Option(
            "--user-files",
            metavar="[DIR]",
            help="User memory: the files in this folder; without DIR, ~/.openhands/memory (or in OH_PERSISTENCE_DIR).",
            show_default=False,
        ),
    ] = None,
    project: Annotated[
        str | None,
        typer.Option(
            "--project", metavar="ID", help="Project memory: that of this project in the store.", show_default=False
        ),
    ] = None,
    project_files: Annotated[
        str | None,
        typer.Option(
            "--project-files",
            metavar="[WORKSPACE]",
            help="Project memory: the files in .openhands/memory of this workspace; without WORKSPACE, of this folder.",
            show_default=False,
        ),
    ] = None,
    agent: Annotated[
        str,
        typer.Option(
            "--agent",
            "-a",
            metavar="NAME",
            help="Whose prompt it is: without `load_memory` in its settings there is no memory. Without it, nobody is "
            "asked.",
            show_default=False,
        ),
    ] = "",
    budget: Annotated[
        int | None,
        typer.Option(
            callback=up_to(limits.MAX_MEMORY_BUDGET, smallest=limits.MIN_MEMORY_BUDGET),
            metavar="N",
            help=f"The most characters of memory; without it, {limits.DEFAULT_MEMORY_BUDGET:,}.",
            show_default=False,
        ),
    ] = None,
    style: Annotated[MemoryStyle, typer.Option(help="The form of the block.")] = MemoryStyle.ENCLOSED,
    instructions: Annotated[
        bool,
        typer.Option("--instructions", metavar=NO_VALUE, help="Print how the agent is told to keep its memory, too."),
    ] = False,
    as_json: AsJson = False,
    *,
    server: Server,
) -> None:
    """Print the block of memory for a prompt, as an agent would get it.

    Each tier comes from the store or from files of this disk, which this command reads and the server never does. What
    became of each, and what went wrong, is told beside it, on standard error.

    For example:

    `memoryd memory render --user ana --project-files`

    `memoryd memory render --user-files --project atlas --budget 2000 --instructions`
    """
    for tier, stored, files in (("user", user, user_files), ("project", project, project_files)):
        if stored is not None and files is not None:
            raise Failure(f"{tier} memory has one place: give either --{tier} or --{tier}-files", status=2)
    if user is None and user_files is None and project is None and project_files is None:
        raise Failure(
            "whose memory? Give --user ID or --user-files for the user tier, --project ID or --project-files for the "
            "project tier, or one of each",
            status=2,
        )
    from memoryd import ProjectFiles, StoredMemory, UserFiles
    from memoryd_server.cli import memory_view
    from memoryd_server.cli.connecting import connected

    try:
        user_tier = UserFiles(user_files or None) if user is None else StoredMemory(user=user)
        project_tier = ProjectFiles(project_files or ".") if project is None else StoredMemory(project=project)
    except ValueError as error:
        raise Failure(str(error), status=2) from error
    with connected(server) as client:
        memory_view.render(
            client,
            user=None if user is None and user_files is None else user_tier,
            project=None if project is None and project_files is None else project_tier,
            agent=agent,
            budget=budget,
            style=style,
            instructions=instructions,
            as_json=as_json,
        )


@commands.command("add", cls=BulletCommand)
@talks_to_a_server
def add(
    entries: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ENTRY", help="The entries; without them, the lines of standard input.", show_default=False
        ),
    ] = None,
    user: UserId = None,
    project: ProjectId = None,
    author: Author = None,
    allow_secrets: AllowSecrets = False,
    as_json: AsJson = False,
    *,
    server: Server,
) -> None:
    """Add entries at the end of an index in the store. Those that it has already are skipped.

    An entry is one line of Markdown as it shall stand in the file, of at most 4 KiB; most are bullets. Write what is
    durable, of use in many tasks, and laborious to find again: a preference, a decision with its reason, a pitfall.
    Details belong into a log (`memoryd memory log`), secrets nowhere. New entries go to the bottom, since the top of an
    index that is too long is left out first.

    Others may add at the same time: nothing is lost. An entry that begins with a dash and no space goes behind `--`.

    For example:

    `memoryd memory add --user ana '- prefers uv over pip'`

    `memoryd memory add --project atlas '- the API uses cursors, since offsets skipped rows' '- tests need PostgreSQL'`

    `memoryd memory add --user ana < entries.md`
    """
    owner = owner_of(user, project)
    from memoryd_server.cli.memory_changes import add_entries
    from memoryd_server.cli.memory_errors import files_of

    with files_of(owner, server) as files:
        add_entries(files, owner, entries or [], author=author_of(author), allow_secrets=allow_secrets, as_json=as_json)


@commands.command("log", cls=BulletCommand)
@talks_to_a_server
def log(
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="The text; without it, standard input.", show_default=False),
    ] = None,
    user: UserId = None,
    project: ProjectId = None,
    date: Annotated[
        str | None,
        typer.Option(metavar="YYYY-MM-DD", help="The day; without it, today on this machine.", show_default=False),
    ] = None,
    time_zone: Annotated[
        str,
        typer.Option(
            metavar="ZONE", help="Today in this time zone, such as Europe/Berlin, instead.", show_default=False
        ),
    ] = "",
    author: Author = None,
    allow_secrets: AllowSecrets = False,
    as_json: AsJson = False,
    *,
    server: Server,
) -> None:
    """Add text at the end of a daily log in the store, which is made if there is none.

    Logs hold the detail of what was done and found. They are not rendered: an agent reads one when the index points
    there.

    For example:

    `memoryd memory log --project atlas 'Moved the API to cursors: offsets skipped rows under load.'`

    `git log -1 --format=%B | memoryd memory log --project atlas --date 2026-07-25`
    """
    owner = owner_of(user, project)
    if date is not None and time_zone:
        raise Failure("--time-zone tells which day is today: leave it out beside --date", status=2)
    from memoryd_server.cli.memory_changes import append_log
    from memoryd_server.cli.memory_errors import files_of

    with files_of(owner, server) as files:
        append_log(
            files,
            owner,
            text or [],
            date=date,
            time_zone=time_zone,
            author=author_of(author),
            allow_secrets=allow_secrets,
            as_json=as_json,
        )


@commands.command("edit", cls=StrictCommand)
@talks_to_a_server
def edit(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"The file, {_NAME_HELP}.")] = INDEX,
    user: UserId = None,
    project: ProjectId = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Begin with this text instead of the file's: to go on with an edit that could not be stored.",
            show_default=False,
        ),
    ] = None,
    author: Author = None,
    allow_secrets: AllowSecrets = False,
    *,
    server: Server,
) -> None:
    """Edit a memory file of the store in your editor, the one that VISUAL or EDITOR names; or make one.

    Nothing is written when you change nothing. When somebody else changed the file meanwhile, nothing is written over
    it: your text is kept in a file, and the command says how to go on.

    For example:

    `memoryd memory edit --user ana`

    `EDITOR='code --wait' memoryd memory edit 2026-07-25.md --project atlas`
    """
    owner = owner_of(user, project)
    from memoryd_server.cli.memory_changes import edit_file
    from memoryd_server.cli.memory_errors import files_of

    with files_of(owner, server) as files:
        edit_file(
            files,
            owner,
            name,
            start=start,
            author=author_of(author),
            allow_secrets=allow_secrets,
            address=server.address,
        )


@commands.command("delete", cls=StrictCommand)
@talks_to_a_server
def delete(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"The file, {_NAME_HELP}.", show_default=False)],
    user: UserId = None,
    project: ProjectId = None,
    yes: Yes = False,
    *,
    server: Server,
) -> None:
    """Delete a memory file from the store with all its versions, for good.

    Says first what would go, and asks. `memoryd erase` deletes all that a user owns.

    For example:

    `memoryd memory delete 2026-07-25.md --user ana`
    """
    owner = owner_of(user, project)
    from memoryd_server.cli.memory_changes import delete_file
    from memoryd_server.cli.memory_errors import files_of

    with files_of(owner, server) as files:
        delete_file(files, owner, name, yes=yes)


Directory = Annotated[
    Path | None,
    typer.Argument(
        metavar="DIR",
        help="The folder; without it, ~/.openhands/memory (or in OH_PERSISTENCE_DIR) for a user, and .openhands/memory "
        "of the workspace that you are in for a project.",
        show_default=False,
    ),
]
OnlyFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        metavar="NAME",
        help=f"Only this file, {_NAME_HELP}; may be repeated. Without it, all.",
        show_default=False,
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", metavar=NO_VALUE, help="Say what would be done, and change nothing.")
]


@commands.command("push", cls=StrictCommand)
@talks_to_a_server
def push(
    directory: Directory = None,
    user: UserId = None,
    project: ProjectId = None,
    only: OnlyFiles = None,
    delete_too: Annotated[
        bool,
        typer.Option(
            "--delete", metavar=NO_VALUE, help="Delete in the store what was deleted here since the last push or pull."
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", metavar=NO_VALUE, help="The folder wins where the store has changed, too."),
    ] = False,
    dry_run: DryRun = False,
    author: Author = None,
    allow_secrets: AllowSecrets = False,
    as_json: AsJson = False,
    *,
    server: Server,
) -> None:
    """Bring the memory files of a folder into the store. `memoryd memory pull` brings them back.

    A file that changed in the store since your last push or pull of this folder is not overwritten: the command says
    which one, and what to do. Of a folder that this machine never pushed or pulled, files that differ from the store's
    are such conflicts. All other files are pushed.

    What is in the folder beside MEMORY.md and YYYY-MM-DD.md is left alone. Nothing is written into the folder.

    The exit status is 0 when all is done, and 1 when a file could not be pushed.

    For example:

    `memoryd memory push --project atlas`

    `memoryd memory push notes/memory --user ana --dry-run`

    `memoryd memory push --project atlas --file MEMORY.md --force`
    """
    from memoryd_server.cli.memory_sync import Direction

    _synchronize(
        Direction.PUSH,
        directory,
        user,
        project,
        only,
        delete=delete_too,
        force=force,
        dry_run=dry_run,
        author=author_of(author),
        allow_secrets=allow_secrets,
        as_json=as_json,
        server=server,
    )


@commands.command("pull", cls=StrictCommand)
@talks_to_a_server
def pull(
    directory: Directory = None,
    user: UserId = None,
    project: ProjectId = None,
    only: OnlyFiles = None,
    delete_too: Annotated[
        bool,
        typer.Option(
            "--delete", metavar=NO_VALUE, help="Delete here what was deleted in the store since the last push or pull."
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", metavar=NO_VALUE, help="The store wins where the folder has changed, too: that text is lost."
        ),
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    *,
    server: Server,
) -> None:
    """Bring the memory files of the store into a folder, which is made if there is none.

    A file that changed here since your last push or pull of this folder is not overwritten: the command says which one,
    and what to do. Of a folder that this machine never pushed or pulled, files that differ from the store's are such
    conflicts. All other files are pulled.

    A file is replaced as a whole or not at all, and keeps its permissions. Symbolic links are not written through. What
    is in the folder beside MEMORY.md and YYYY-MM-DD.md is left alone, but for temporary files of a pull that was
    killed: the next one removes them.

    The exit status is 0 when all is done, and 1 when a file could not be pulled.

    For example:

    `memoryd memory pull --project atlas`

    `memoryd memory pull notes/memory --user ana --delete`
    """
    from memoryd_server.cli.memory_sync import Direction

    _synchronize(
        Direction.PULL,
        directory,
        user,
        project,
        only,
        delete=delete_too,
        force=force,
        dry_run=dry_run,
        as_json=as_json,
        server=server,
    )


def _synchronize(
    direction: str,
    directory: Path | None,
    user: str | None,
    project: str | None,
    only: list[str] | None,
    *,
    delete: bool,
    force: bool,
    dry_run: bool,
    as_json: bool,
    server: Server,
    author: str = "",
    allow_secrets: bool = False,
) -> None:
    owner = owner_of(user, project)
    from memoryd_server.cli.memory_folder import check_name
    from memoryd_server.cli.memory_sync import Direction, Wish
    from memoryd_server.cli.sync_run import synchronize

    for name in only or ():
        check_name(name)
    wish = Wish(
        Direction(direction),
        frozenset(only or ()),
        delete=delete,
        force=force,
        dry_run=dry_run,
        author=author,
        allow_secrets=allow_secrets,
    )
    synchronize(server, owner, directory, wish, as_json=as_json)


AgentName = Annotated[str, typer.Argument(metavar="AGENT", help="The agent's name.", show_default=False)]


@commands.command("enable", cls=StrictCommand)
@talks_to_a_server
def enable(agent: AgentName, as_json: AsJson = False, *, server: Server) -> None:
    """Let an agent use memory: sets `load_memory` in its settings.

    Without it, a rendering that names the agent gives nothing.

    For example:

    `memoryd memory enable assistant`
    """
    _set_load_memory(agent, True, as_json, server)


@commands.command("disable", cls=StrictCommand)
@talks_to_a_server
def disable(agent: AgentName, as_json: AsJson = False, *, server: Server) -> None:
    """Let an agent use no memory any more: takes `load_memory` from its settings. Its files stay.

    For example:

    `memoryd memory disable assistant`
    """
    _set_load_memory(agent, False, as_json, server)


def _set_load_memory(agent: str, load_memory: bool, as_json: bool, server: Server) -> None:
    from memoryd_server.cli.connecting import connected
    from memoryd_server.cli.memory_changes import set_load_memory

    with connected(server) as client:
        set_load_memory(client, agent, load_memory=load_memory, as_json=as_json)
