"""Sessions and agents: what they are created with, and what the server tells about them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from memoryd.policies import Policy, Tokenizer

FOREVER: Final = timedelta.max
"""The ttl of a session that does not expire: takes a ttl away in an update. Also a run retention that keeps all."""
SERVERS_DEFAULT: Final = timedelta.min
"""Takes an agent's own run retention away in an update: from then on, it is the server's."""


class ListOrder(StrEnum):
    """In which order messages are listed."""

    ASCENDING = "ascending"
    """Oldest first."""
    DESCENDING = "descending"
    """Newest first."""


class MessageView(StrEnum):
    """Which messages a list shows."""

    ACTIVE = "active"
    """The current summary first, then the messages that it does not cover."""
    ALL = "all"
    """Every message that is still stored, and no summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What a session is created with, when an append begins it."""

    user_id: str = ""
    """The owner of the session; empty for none. At most 256 bytes."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """At most 64, keys of 1 to 256 bytes and values of up to 256 bytes, one line each."""
    tokenizer: Tokenizer = Tokenizer.UNSPECIFIED
    """The vocabulary that tokens are counted in. Default: the server's."""
    policy: Policy | None = None
    """The session's stored policy."""
    ttl: timedelta | None = None
    """How long the session outlives its last append: 1 second to 100 years; None for ever. An expired session is gone
    with all that belonged to it, and the next append begins a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedMessage:
    """What became of one appended message."""

    id: str
    seq: int
    """The message's place in its session, from 1."""
    create_time: datetime
    """When it was stored, in UTC."""
    token_count: int
    """Its price in tokens of the session's tokenizer."""
    memory_context_removed: bool = False
    """Whether rendered memory was cut out of it: memoryd stores no MEMORY_CONTEXT block of a system or developer
    message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A session's settings and counts."""

    agent: str
    session_id: str
    user_id: str
    """The owner; empty for none."""
    labels: Mapping[str, str]
    policy: Policy
    """The session's stored policy; what it leaves out comes from the agent's and the server's."""
    tokenizer: Tokenizer
    message_count: int
    """How many messages the history holds."""
    token_count: int
    """How many tokens the history holds."""
    open_message_count: int
    """How many of the messages belong to groups with an unanswered call."""
    orphan_message_count: int
    """How many of the messages no window shows, since they are results without their calls."""
    open_call_count: int
    """How many calls still wait for their results."""
    last_seq: int
    """The seq of the newest message that was ever stored; 0 before the first."""
    create_time: datetime | None
    """When the session began, in UTC."""
    activity_time: datetime | None
    """When the session last took an append, in UTC, to a second."""
    etag: str
    """The mark of the settings (user_id, labels, ttl, policy) for a conditional update. Appends do not change it."""
    ttl: timedelta | None
    """How long the session outlives its last append; None for ever."""
    expire_time: datetime | None
    """When the session expires if no append comes, in UTC; None without a ttl."""
    unfinished_run_count: int = 0
    """How many of its runs have not ended: while there are any, it does not expire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInfo:
    """An agent's settings."""

    agent: str
    policy: Policy
    """The policy of the agent's sessions; what it leaves out comes from the server's."""
    update_time: datetime | None
    """When the settings were last changed, in UTC; None before the first change."""
    etag: str
    """The mark of the settings for a conditional update."""
    load_memory: bool = False
    """Whether memory is rendered for the agent."""
    run_retention: timedelta | None = None
    """How long runs of the agent's sessions are kept after they ended; zero for ever, None as the server's settings say
    (30 days by default)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearedAgent:
    """What the clearing of an agent took away."""

    session_count: int
    """In how many sessions there were messages to take away."""
    message_count: int
    """How many messages were taken away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewoundSession:
    """What a rewind took away."""

    message_count: int
    """How many messages were taken away."""
    open_call_count: int
    """How many calls wait for results after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedUser:
    """What the erasure of a user deleted. After an erasure that was tried again: what the last try found."""

    session_count: int
    """How many sessions were deleted."""
    message_count: int
    """How many messages were deleted, those included that had been taken away before and were still stored."""
    lookup_count: int
    """How many id look-ups were deleted."""
    memory_file_count: int = 0
    """How many memory files were deleted, each with its versions."""
    run_count: int = 0
    """How many runs were deleted."""
    run_step_count: int = 0
    """How many steps of these were."""
