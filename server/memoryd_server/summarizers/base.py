"""The contract of summarizers (design section 6, invariants 9 and 10): what one is given, what it gives, how it fails.

Who does what, once and for all summarizers:

- **The caller** chooses the messages, turns them into `SourceMessage`s, bounds the call by a deadline, and tries again
  later what failed and may be tried again. It calls `folding.fold`, never a summarizer directly.
- **`folding.fold`** divides what is over a summarizer's `input_limit` into chunks (`chunks`), each folded with the
  summary so far, and takes every answer through `answers.accept`, which refuses an empty or white one and shortens one
  that is over the limit at the end of a sentence. The text of a client's own model goes through `accept` as well.
- **A summarizer** turns one request into one text or raises a `SummarizerError`: an answer without text (only tool
  calls, a refusal, nothing) is an error there, never text. A text is a text, whatever it says: one that mentions an
  error is an answer. It leaves length and white space to `accept`, and keeps nothing between calls.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from memoryd_server.stores.records import Role

EXTRACTIVE: Final = "extractive"
OPENAI: Final = "openai"
CLIENT: Final = "client"
SUMMARIZERS: Final = (EXTRACTIVE, OPENAI, CLIENT)
"""Who may make summaries: the server by itself, an endpoint of its settings, or whoever leases tasks."""

Count = Callable[[str], int]
"""Counts the tokens of a text. It is called off the event loop, perhaps from several threads."""


class PartKind(StrEnum):
    """What a part of a message is; the values are the words for it in prompts."""

    TEXT = "text"
    """What was said, a refusal included, and structured data as JSON text."""
    CALL = "tool_call"
    """A call of a tool: `name` is the tool's, `text` its arguments."""
    RESULT = "tool_result"
    """What a tool answered; `name` is the tool's where it is known."""
    ERROR = "tool_error"
    """The same, where the call failed."""
    MEDIA = "media"
    """A short note that stands for an image, a sound or a file: its type, and its name or address if it has one."""


@dataclass(frozen=True, slots=True)
class SourcePart:
    """One part of a message as text. The model's reasoning is no part: it was never said."""

    kind: PartKind
    text: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """A message that is to be summarized, or a piece of one that is longer than a summarizer's input."""

    seq: int
    role: Role
    parts: tuple[SourcePart, ...]
    name: str = ""
    piece: int = 1
    """Which piece of the message this is, from 1."""
    pieces: int = 1
    """How many pieces the message has."""


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """Asks for one summary that stands for an earlier one and the messages since."""

    messages: tuple[SourceMessage, ...]
    """What is folded, oldest first."""
    target_tokens: int
    """How long the summary should become, at least 1; what a summarizer aims at."""
    max_tokens: int
    """How long it may become, at least `target_tokens`; what is over it is cut off."""
    count: Count
    """Counts in the session's vocabulary: for the two limits above and for the input limit."""
    deadline: float
    """When the answer is worth nothing any more, in seconds of `time.monotonic()`."""
    previous: str | None = None
    """The text of the summary so far, without the line that marks it in windows; None at the first."""


@dataclass(frozen=True, slots=True)
class SummaryAnswer:
    """What a summarizer made of a request."""

    text: str
    model: str
    """What made it, as summaries record it: the model's name as its endpoint gives it, or a method and its version."""
    input_tokens: int | None = None
    """What the endpoint counted and will charge; None where nobody counts."""
    output_tokens: int | None = None
    """As above."""
    is_cut: bool = False
    """Whether the text ends where its maker had to stop, perhaps within a sentence."""


class FailureReason(StrEnum):
    """Why there is no summary: for stats, metrics and logs."""

    UNREACHABLE = "unreachable"
    """No connection, a connection that was cut, or an answer that an error of the endpoint (5xx) stands for."""
    OVERLOADED = "overloaded"
    """The endpoint asks to come later (429, or 503 with Retry-After)."""
    TIMEOUT = "timeout"
    """The deadline came."""
    MISCONFIGURED = "misconfigured"
    """The endpoint refuses key, model, address or parameters: somebody has to change a setting."""
    INPUT_TOO_LONG = "input_too_long"
    """The model takes less than `input_limit` says."""
    EMPTY_ANSWER = "empty_answer"
    """No text, or only white space: nothing to keep."""
    NO_TEXT = "no_text"
    """Tool calls or a refusal in the place of text."""
    BAD_ANSWER = "bad_answer"
    """An answer that is not of the protocol, or far larger than any summary."""
    INTERNAL = "internal"
    """Something else: a fault of the summarizer."""


class SummarizerError(Exception):
    """There is no summary. The text says what to do, and holds nothing of the conversation and no key."""

    def __init__(
        self, reason: FailureReason, text: str, *, is_retryable: bool, retry_after: float | None = None
    ) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
        self.is_retryable = is_retryable
        """Whether the same request may succeed later without anybody's doing. The caller bounds the attempts and backs
        off; what is not retryable waits for other messages or settings."""
        self.retry_after = retry_after
        """The least seconds to wait, where the endpoint says so."""


class Summarizer(Protocol):
    """Makes summaries. One object serves many calls at once, from one event loop."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in policies and settings: `extractive`, `openai`."""

    @property
    @abstractmethod
    def input_limit(self) -> int | None:
        """The most tokens that the earlier summary and the messages of one request may have, as `prompt` renders them
        and the request's `count` counts them; None where there is no limit.
        """

    @abstractmethod
    async def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        """Makes one summary of the earlier one and all messages of a request, which are within `input_limit`.

        It does not hold up the event loop. It ends by the deadline. When it is cancelled, it stops its work, and leaves
        no task, thread or connection in use behind.

        Raises: SummarizerError; asyncio.CancelledError.
        """

    @abstractmethod
    async def close(self) -> None:
        """Ends its connections. No call is under way any more."""
