"""Summaries: what stands for the oldest messages of a session, and what a fold did."""

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What stands for the oldest messages of a session, how it was made, and from what."""

    id: str
    text: str
    """The summary, without the line that marks it in windows."""
    previous_id: str
    """The id of the summary that was part of its input; empty for none."""
    from_seq: int
    """The seq of the first message that it took in beside the previous summary."""
    to_seq: int
    """The seq of the last message that it took in."""
    message_count: int
    """How many messages it took in beside the previous summary."""
    covered_from_seq: int
    """The seq of the first message that it and those before it stand for."""
    covered_message_count: int
    """How many messages it and those before it stand for, removed ones included."""
    summarizer: str
    """Who made it: `extractive`, `openai` or `client`."""
    model: str
    """With which model; empty for none."""
    input_token_count: int
    """The tokens of what it took in, the previous summary included."""
    output_token_count: int
    """The tokens of its text."""
    create_time: datetime
    """When it was committed, in UTC."""
    duration: timedelta
    """How long it took, from the lease to the commit."""
    current: bool
    """Whether it is the one that windows show."""
    originals_removed: bool
    """Whether messages behind it are removed, so that it cannot be taken back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarizedSession:
    """What a fold did."""

    summary: Summary | None
    """The current summary; None when nothing had to be folded yet."""
    message_count: int
    """How many messages were folded; 0 when no more than `keep` of the stored policy were raw."""
