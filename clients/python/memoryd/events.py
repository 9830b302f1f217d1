"""What happens to a session, as a watch tells it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from memoryd.messages import Message


class WatchEventKind(StrEnum):
    """What happened to a session."""

    UNSPECIFIED = "unspecified"
    """In an answer: something that this SDK does not know."""
    APPENDED = "appended"
    """Messages were appended."""
    SUMMARIZED = "summarized"
    """A summary was made or withdrawn."""
    REDACTED = "redacted"
    """A message was redacted."""
    CLEARED = "cleared"
    """All messages were taken away."""
    REWOUND = "rewound"
    """The newest messages were taken away."""
    RESYNC = "resync"
    """What happened since the resume token is not known: it is of an earlier session of this name, or older than 24
    hours. Read the session anew; what happens from here on follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """Something that happened to a session."""

    kind: WatchEventKind
    from_seq: int
    """The seq of the first message that it is about; 0 for RESYNC."""
    to_seq: int
    """The seq of the last message that it is about, itself included; below `from_seq` when there is none."""
    message: Message | None
    """The message that was appended, or the redacted one as it is now. None in other events; None too when it has been
    taken away since: such messages may share one event, and a later event tells what took them away."""
    event_time: datetime | None
    """When it happened, in UTC; None where messages have been taken away since."""
    resume_token: str
    """Resumes a watch behind this event, for 24 hours: `Session.watch(resume_token=…)`."""
