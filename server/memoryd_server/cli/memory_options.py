"""Whose memory a command is about, and what the commands on memory share on their command lines."""

import getpass
import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import typer

from memoryd_server.cli.options import NO_VALUE
from memoryd_server.cli.safe_text import one_line, quoted
from memoryd_server.cli.strict_options import DashedCommand, StrictCommand
from memoryd_server.cli.terminal import Failure

if TYPE_CHECKING:
    from memoryd import AsyncMemoryClient, AsyncMemoryFiles, MemoryClient, MemoryFiles

INDEX: Final = "MEMORY.md"
"""The file that is rendered."""

UserId = Annotated[
    str | None, typer.Option("--user", metavar="ID", help="The user whose memory it is.", show_default=False)
]
ProjectId = Annotated[
    str | None, typer.Option("--project", metavar="ID", help="The project whose memory it is.", show_default=False)
]
Author = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Who writes, as told in the versions; without it, your name on this machine.",
        show_default=False,
    ),
]
AllowSecrets = Annotated[
    bool,
    typer.Option(
        "--allow-secrets", metavar=NO_VALUE, help="Store text that looks like a credential: for what is none."
    ),
]


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of memory files."""

    tier: str
    """`user` or `project`."""
    id: str

    def __str__(self) -> str:
        return f"{self.tier} {one_line(self.id)}"

    @property
    def option(self) -> str:
        """What names it on a command line."""
        return f"--{self.tier} {quoted(self.id)}"

    def files(self, client: "MemoryClient") -> "MemoryFiles":
        """Its files in the client's store."""
        return client.files(**{self.tier: self.id})

    def async_files(self, client: "AsyncMemoryClient") -> "AsyncMemoryFiles":
        """Its files in the client's store."""
        return client.files(**{self.tier: self.id})


def owner_of(user: str | None, project: str | None) -> Owner:
    """The owner that the options name. Raises: Failure, unless they name exactly one."""
    if (user is None) == (project is None):
        raise Failure("memory files have one owner: give either --user ID or --project ID", status=2)
    owner = Owner("project", project or "") if user is None else Owner("user", user)
    if not owner.id:
        raise Failure(f"the {owner.tier} is empty: give the id of a {owner.tier}", status=2)
    return owner


def author_of(given: str | None) -> str:
    """Who writes: whom the option names, else the user of this process, if the machine has a name for them."""
    if given is not None:
        return given
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # A process of a user id that no account has.
        return ""


class BulletCommand(DashedCommand):
    """A command whose arguments may be bullets: a word that begins with a dash and a space is text, and no option."""

    DASHED: ClassVar[re.Pattern[str]] = re.compile(r"-+\s")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments. Raises: Failure, where text without a space behind its dash is taken for an option."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            unknown: Any = error
            if not hasattr(unknown, "possibilities"):  # Only the error of an unknown option has: no public name has it.
                raise
            (text,) = (parameter.metavar for parameter in self.params if parameter.param_type_name == "argument")
            raise Failure(
                f"{one_line(unknown.format_message())}. Text that begins with - and no space goes behind --, after the "
                f"options (`{ctx.command_path} --user ID -- {text}`), or on standard input",
                status=2,
            ) from error


class FilesCommand(StrictCommand):
    """A command whose options for files on this disk may come without a value, and then stand for the usual place."""

    _USUAL: ClassVar[dict[str, str]] = {"--user-files": "", "--project-files": "."}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments."""
        given = []
        for arg, following in itertools.zip_longest(args, args[1:], fillvalue="--"):
            bare = arg in self._USUAL and following.startswith("-")
            given.append(f"{arg}={self._USUAL[arg]}" if bare else arg)
        return super().parse_args(ctx, given)
