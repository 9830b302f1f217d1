"""The options that several commands share."""

from enum import StrEnum
from typing import Annotated, Final

import typer

SERVER: Final = "Server"
"""The panel of help with the options that say whom to talk to."""

NO_VALUE: Final = " "
"""The metavar of a flag: a flag takes no value."""

DEFAULT_ADDRESS: Final = "127.0.0.1:7600"

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
