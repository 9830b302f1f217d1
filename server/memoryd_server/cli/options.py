"""The options that several commands share."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Final

import typer

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


def up_to(largest: int) -> Callable[[int | None], int | None]:
    """The callback of an option that can be 1 to `largest`: anything else is a usage error that says so."""

    def check(value: int | None) -> int | None:
        if value is not None and not 1 <= value <= largest:
            raise typer.BadParameter(f"it can be 1 to {largest:,}")
        return value

    return check


Address = Annotated[
    str,
    typer.Option(metavar="HOST:PORT", envvar="MEMORYD_ADDRESS", help="The server's address.", rich_help_panel=SERVER),
]
Store = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        envvar="MEMORYD_STORE",
        help="The server's store; without it, the server's default.",
        rich_help_panel=SERVER,
        show_default=False,
    ),
]
SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.", show_default=False)]
AgentOfSession = Annotated[
    str | None,
    typer.Option(
        "--agent",
        "-a",
        metavar="NAME",
        help="The agent that owns the session; not needed while only one agent has a session of this id.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", metavar=NO_VALUE, help="JSON for programs instead of text for people.")]


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
