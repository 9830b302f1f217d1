"""How windows are cut, histories folded and tokens counted: the options of a request, and what is stored for sessions
and agents.
"""

from dataclasses import dataclass
from enum import StrEnum


class Tokenizer(StrEnum):
    """The vocabulary that a session's tokens are counted in. Fixed when the session begins."""

    UNSPECIFIED = "unspecified"
    """In a request: the server's default. In an answer: one that this SDK does not know."""
    O200K_BASE = "o200k_base"
    """The vocabulary of GPT-4o and later OpenAI models, counted exactly."""
    CL100K_BASE = "cl100k_base"
    """The vocabulary of GPT-3.5 and GPT-4, counted exactly."""
    ESTIMATE = "estimate"
    """No vocabulary: one token for every four ASCII characters (rounded up) and one for every other character."""


class WindowMode(StrEnum):
    """The unit of a window's limit."""

    UNSPECIFIED = "unspecified"
    """In an answer: a mode that this SDK does not know."""
    MESSAGES = "messages"
    """The limit counts messages."""
    TOKENS = "tokens"
    """The limit counts tokens of the session's tokenizer."""


class OpenCalls(StrEnum):
    """What a window does with a group that has an unanswered call."""

    UNSPECIFIED = "unspecified"
    """In an answer: a value that this SDK does not know."""
    OMIT = "omit"
    """The group is left out, and the window goes on past it. The default."""
    SYNTHESIZE = "synthesize"
    """Each unanswered call gets a marked result that says it was interrupted. Such a result has no seq."""
    KEEP = "keep"
    """The group is shown as it is stored. For agents that are about to answer the calls themselves."""


class Oversize(StrEnum):
    """What a window does when its newest group alone exceeds what is left of a token limit."""

    UNSPECIFIED = "unspecified"
    """In an answer: a value that this SDK does not know."""
    SHORTEN = "shorten"
    """The group's longest texts are shortened in the middle until it fits. The default."""
    RETURN = "return"
    """The group is returned whole, and the stats say `over_limit`."""
    FAIL = "fail"
    """The call fails with WindowTooSmall."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowOptions:
    """How a window is cut. What is None comes from the session's stored policy, then the agent's, then the server's."""

    mode: WindowMode | None = None
    """The unit of `limit`. Server's default: MESSAGES."""
    limit: int | None = None
    """The most that a window may hold: 1 to 100,000 messages or 1 to 100,000,000 tokens. Server's default: 10,000."""
    pin_system: bool | None = None
    """Whether the SYSTEM and DEVELOPER messages that open the history stay in every window. Server's default: True."""
    start_with_user: bool | None = None
    """Whether a window that would begin with another role gets the newest USER message before it in front. Server's
    default: False."""
    open_calls: OpenCalls | None = None
    """What to do with groups that have an unanswered call. Server's default: OMIT."""
    oversize: Oversize | None = None
    """What to do when the newest group alone exceeds a token limit. Server's default: SHORTEN."""


class Retention(StrEnum):
    """What becomes of the messages that a summary covers."""

    UNSPECIFIED = "unspecified"
    """In an answer: a value that this SDK does not know."""
    KEEP = "keep"
    """They stay: the view `all` lists them, and the summary can be taken back. The default."""
    DELETE = "delete"
    """They are removed in the commit of the summary. Pinned messages stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryPolicy:
    """How a history is folded: when all that a window of the stored policy would show exceeds its limit, the oldest
    groups are summarized, so that the newest `keep` messages or tokens stay as they are.

    It replaces a more general policy's as a whole; what is None takes its default. The limit of the stored policies
    must then be at least 2 messages or 256 tokens.
    """

    enabled: bool | None = None
    """Whether there are summaries. Default: True; False lets a session do without although its agent has them."""
    summarizer: str = ""
    """Who makes them: `extractive` (the server itself, without a network), `openai` (the endpoint in the server's
    settings) or `client` (whoever leases summary tasks). Empty for the server's default."""
    max_tokens: int | None = None
    """The most tokens of a summary, 64 to 8,000. Default: 1,000 when the limit counts messages, 20 % of a limit in
    tokens."""
    keep: int | None = None
    """How many of the newest messages or tokens stay as they are when older ones are folded, in the unit of the
    window's mode. Default: all that the limit leaves beside summary and pins. Half the limit folds less often, and
    keeps the beginning of the prompt the same for longer."""
    retention: Retention | None = None
    """What becomes of the messages that a summary covers. Default: KEEP."""
    wait: bool | None = None
    """Whether a load that finds that it must fold waits for the summary, at most 10 seconds. Default: True. Nothing
    waits for the summarizer `client`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The stored policy of a session or an agent."""

    window: WindowOptions = WindowOptions()
    """How windows are cut when a request leaves options out."""
    summary: SummaryPolicy | None = None
    """How histories are folded. None: as the more general policy says; the server's own folds nothing."""
