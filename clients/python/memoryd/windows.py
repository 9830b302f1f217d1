"""Windows: the part of a history that one run is given, and what the server tells about it."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from memoryd.messages import Message
from memoryd.policies import WindowMode


class SummaryState(StrEnum):
    """Whether a summary stands for older messages."""

    UNSPECIFIED = "unspecified"
    """Not told, or a state that this SDK does not know."""
    NONE = "none"
    """The stored policies ask for no summary, or nothing had to be folded yet."""
    CURRENT = "current"
    """The summary covers all that the policy wants folded."""
    PENDING = "pending"
    """A summary is being made, or is left to a client. Until it is there, the window holds the earlier one, if any."""
    FAILED = "failed"
    """The last attempt failed and will be repeated; `summary_failure` says why."""


class LeftOutReason(StrEnum):
    """Why messages are not in a window."""

    UNSPECIFIED = "unspecified"
    """Not told, or a reason that this SDK does not know."""
    LIMIT = "limit"
    """They did not fit."""
    ORPHAN_RESULT = "orphan_result"
    """They are results without their calls."""
    OPEN_TOOL_CALL = "open_tool_call"
    """They belong to a group with an unanswered call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutMessage:
    """A message that is not in the window."""

    seq: int
    reason: LeftOutReason


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """What is not in a window, and why. With the window's stored messages, the counts add up to the history's."""

    limit_count: int
    """The number of messages that did not fit."""
    limit_from_seq: int
    """The lowest seq of what did not fit, by the heads of groups; 0 when all fit."""
    limit_to_seq: int
    """The highest seq of what did not fit, by the heads of groups; 0 when all fit. The range may hold messages that
    were left out for another reason."""
    orphan_result_count: int
    """The number of messages in the whole history that are results without their calls. (A USER message with such
    results and something else is shown without them.)"""
    open_tool_call_count: int
    """The number of messages in the whole history that are left out for an unanswered call."""
    messages: tuple[LeftOutMessage, ...]
    """With `explain`: up to 100 of those left out as ORPHAN_RESULT or OPEN_TOOL_CALL, newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStats:
    """What a window holds and what it does not."""

    history_message_count: int
    history_token_count: int
    window_message_count: int
    """Messages in the window, pins, summary and synthesized results included."""
    window_token_count: int
    """Tokens in the window, likewise."""
    mode: WindowMode
    """The mode in force."""
    limit: int
    """The limit in force, in the unit of the mode."""
    limit_used_percent: float
    """How much of the limit is used; over 100 with `over_limit`."""
    left_out: LeftOut
    """What is not in the window."""
    uncovered_message_count: int
    """Messages in neither window nor summary, apart from those left out as ORPHAN_RESULT or OPEN_TOOL_CALL."""
    over_limit: bool
    """Whether the window exceeds its limit, because its newest group alone does."""
    shortened_seqs: tuple[int, ...]
    """The seqs of messages with shortened texts."""
    summary_state: SummaryState
    summary_id: str
    """The id of the summary that the window shows; empty when it shows none."""
    summary_failure: str
    """Why the last attempt to make a summary failed, for example `unreachable` or `timeout`; empty when it did not."""
    prefix_digest: bytes
    """Of two windows of one session with equal digests, the longer one begins with the shorter one's messages, byte for
    byte: a provider's prompt cache holds."""
    pinned_message_count: int
    """How many of the window's first messages are pinned."""
    last_seq: int
    """The session's last seq when the window was read: the `expected_last_seq` of a conditional append."""
    first_seq: int
    """The seq of the first message after the pins; 0 when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The part of a history that one run is given. Iterating over it gives its messages."""

    messages: tuple[Message, ...]
    """In reading order: pins first, then the summary (a USER message with its id and no seq), then whole groups, the
    results of a group's calls right behind its head."""
    stats: WindowStats

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)
