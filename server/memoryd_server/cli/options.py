"""The options that several commands share."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

import typer

from memoryd_server import limits
from memoryd_server.durations import parse_duration

SERVER: Final = "Server"
"""The panel of help with the options that say whom to talk to."""

NO_VALUE: Final = " "
"""The metavar of a flag: a flag takes no value."""

DEFAULT_ADDRESS: Final = "127.0.0.1:7600"

LARGEST_SEQ: Final = 2**63 - 1
"""The largest seq that the API can carry (int64)."""
LARGEST_LIST: Final = 1_000_000_000
"""The most that one command lists: more than anybody reads."""
LARGEST_MESSAGE_LIMIT: Final = 100_000
LARGEST_TOKEN_LIMIT: Final = 100_000_000
"""What a window's limit can be, as policy.proto says."""


def up_to(largest: int, *, smallest: int = 1) -> Callable[[int | None], int | None]:
    """The callback of an option that can be `smallest` to `largest`: anything else is a usage error that says so."""

    def check(value: int | None) -> int | None:
        if value is not None and not smallest <= value <= largest:
            raise typer.BadParameter(f"it can be {smallest} to {largest:,}")
        return value

    return check


def not_empty(value: str | None) -> str | None:
    """The callback of a name: an empty one, as of a variable that is not set, is a usage error."""
    if value is not None and not value:
        raise typer.BadParameter("it is empty: give a name")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Whom a command talks to, and how: each field is an option of every command that `talks_to_a_server`."""

    address: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", envvar="MEMORYD_ADDRESS", help="The server's address.", rich_help_panel=SERVER
        ),
    ] = DEFAULT_ADDRESS
    store: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            envvar="MEMORYD_STORE",
            help="The server's store; without it, the server's default.",
            rich_help_panel=SERVER,
            show_default=False,
        ),
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file that holds your token, or the environment's MEMORYD_TOKEN holds it.",
            rich_help_panel=SERVER,
            show_default=False,
        ),
    ] = None
    ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="MEMORYD_CA",
            help="Use TLS; the file holds the certificate of the server's CA.",
            rich_help_panel=SERVER,
            show_default=False,
        ),
    ] = None
    tls: Annotated[
        bool,
        typer.Option(
            "--tls",
            metavar=NO_VALUE,
            envvar="MEMORYD_TLS",
            help="Use TLS; the server's certificate is from a public CA.",
            rich_help_panel=SERVER,
        ),
    ] = False
    allow_token_without_tls: Annotated[
        bool,
        typer.Option(
            "--allow-token-without-tls",
            metavar=NO_VALUE,
            help="Send the token unencrypted to another machine.",
            rich_help_panel=SERVER,
        ),
    ] = False


def talks_to_a_server(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of `Server`, behind its own; it gets them as its argument `server`."""
    types = get_type_hints(Server, include_extras=True)
    added = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=types[field.name]
        )
        for field in fields(Server)
    ]
    own = inspect.signature(command)

    @functools.wraps(command)
    def run(**given: Any) -> None:
        server = Server(**{parameter.name: given.pop(parameter.name) for parameter in added})
        command(**given, server=server)

    shown = [parameter for parameter in own.parameters.values() if parameter.name != "server"]
    run.__signature__ = own.replace(parameters=[*shown, *added])  # type: ignore[attr-defined]
    return run


SessionId = Annotated[
    str, typer.Argument(metavar="SESSION", callback=not_empty, help="The session's id.", show_default=False)
]
AgentOfSession = Annotated[
    str | None,
    typer.Option(
        "--agent",
        "-a",
        metavar="NAME",
        callback=not_empty,
        help="The agent that owns the session; not needed while only one agent has a session of this id.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", metavar=NO_VALUE, help="JSON for programs instead of text for people.")]


def duration(text: str) -> timedelta:
    """A ttl as a person writes it: `90s`, `12h`, `30d`, `1d 12h`. A usage error says what it can be."""
    try:
        return parse_duration(text, limits.MIN_TTL_SECONDS, limits.MAX_TTL_SECONDS)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Ttl = Annotated[
    timedelta | None,
    typer.Option(
        "--ttl",
        parser=duration,
        metavar="TIME",
        help="New sessions expire so long after their last message: 30d, 12h, 90s. Without it, never.",
        show_default=False,
    ),
]


class Format(StrEnum):
    """What the messages of a transcript are."""

    OPENAI_CHAT = "openai-chat"
    ANTHROPIC = "anthropic"


class OpenCalls(StrEnum):
    """What a window does with a group that has an unanswered call."""

    OMIT = "omit"
    SYNTHESIZE = "synthesize"
    KEEP = "keep"


class Oversize(StrEnum):
    """What a window does when its newest group alone exceeds a token limit."""

    SHORTEN = "shorten"
    RETURN = "return"
    FAIL = "fail"


class MemoryStyle(StrEnum):
    """The form of a rendered block."""

    ENCLOSED = "enclosed"
    OPENHANDS = "openhands"
