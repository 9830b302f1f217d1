"""Runs: the durable records of what agents do, and their steps."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

Payload = bytes | str | int | float | bool | Mapping[str, Any] | Sequence[Any] | None
"""What a step can hold: bytes, text, or what JSON can say."""


class RunStatus(StrEnum):
    """How a run stands. From COMPLETED on it has ended, and never changes again."""

    UNSPECIFIED = "unspecified"
    """Of a run that is not entered yet; in an answer: one that this SDK does not know."""
    RUNNING = "running"
    """A worker holds it, or did until its lease was over."""
    INTERRUPTED = "interrupted"
    """Any worker may claim it: it is queued, was released, or its worker was stopped."""
    AWAITING_APPROVAL = "awaiting_approval"
    """It waits for somebody's approval. Claimed by name only."""
    AWAITING_BUDGET = "awaiting_budget"
    """It waits for a budget. Claimed by name only."""
    COMPLETED = "completed"
    """It reached its goal."""
    BLOCKED = "blocked"
    """It cannot go on without help, and ended."""
    FAILED = "failed"
    """It ended with an error, or was recovered too often."""
    CANCELLED = "cancelled"
    """Somebody ended it."""
    TIMEOUT = "timeout"
    """It took too long, and ended."""
    ABANDONED = "abandoned"
    """Nobody claimed it for 30 days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """A run as the server tells it, without its steps."""

    agent: str
    """The agent of its session."""
    session_id: str
    """The id of its session."""
    id: str
    """Unique within its session."""
    status: RunStatus
    reason: str
    """Why it has this status, as whoever set it said; empty while it is RUNNING."""
    metadata: str
    """The caller's own data, byte for byte."""
    holder: str
    """Who says to have claimed it last; empty for nobody."""
    steps: int
    """How many steps are committed."""
    recoveries: int
    """How often it was claimed after a lease was over."""
    lease_expires: datetime | None
    """When the lease is over unless it is renewed, by the store's clock, in UTC; None when nobody holds it."""
    created: datetime
    """When it began, in UTC."""
    updated: datetime
    """When it last changed, renewals of its lease aside, in UTC."""
    ended: datetime | None
    """When it ended, in UTC; None for an unfinished one."""
    etag: str
    """The mark of its state, for `update_run`. Steps and renewals of the lease change it too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStep:
    """A step of a run: what a worker needs to go on behind it."""

    number: int
    """From 1, without gaps."""
    payload: bytes = field(repr=False)
    """The bytes, as they were committed."""
    content_type: str
    """What the payload is, such as `application/json`; empty when nobody said."""
    first_seq: int
    """The seq of the first of the messages that it produced, which have consecutive ones; 0 when it produced none."""
    message_count: int
    """How many messages it produced."""
    create_time: datetime
    """When it was committed, in UTC."""
    status: RunStatus = RunStatus.UNSPECIFIED
    """What the run's status became with it: RUNNING when the run went on."""

    @property
    def text(self) -> str:
        """The payload as text: U+FFFD stands for bytes that are not UTF-8."""
        return self.payload.decode(errors="replace")

    def json(self) -> Any:
        """The value of the payload as JSON. ValueError when it is none."""
        return json.loads(self.payload)
