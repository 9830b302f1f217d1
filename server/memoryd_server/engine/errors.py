"""The errors that a caller of the engine can meet. They are part of the API: each has a reason, a message that says
what to do, and metadata for programs.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why a call failed: the values of the protocol's enum `ErrorReason` without their prefix, documented there."""

    FIELD_REQUIRED = "FIELD_REQUIRED"
    FIELD_INVALID = "FIELD_INVALID"
    FIELD_TOO_LARGE = "FIELD_TOO_LARGE"
    PAGE_TOKEN_INVALID = "PAGE_TOKEN_INVALID"
    STORE_UNKNOWN = "STORE_UNKNOWN"
    SESSION_NOT_FOUND = "SESSION_NOT_FOUND"
    MESSAGE_NOT_FOUND = "MESSAGE_NOT_FOUND"
    MESSAGE_ID_CONFLICT = "MESSAGE_ID_CONFLICT"
    REQUEST_ID_CONFLICT = "REQUEST_ID_CONFLICT"
    LAST_SEQ_MISMATCH = "LAST_SEQ_MISMATCH"
    ETAG_MISMATCH = "ETAG_MISMATCH"
    CONTENTION = "CONTENTION"
    WINDOW_TOO_LARGE = "WINDOW_TOO_LARGE"
    WINDOW_TOO_SMALL = "WINDOW_TOO_SMALL"
    WINDOW_CHANGED = "WINDOW_CHANGED"
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
    RECORD_TOO_LARGE = "RECORD_TOO_LARGE"
    INTERNAL = "INTERNAL"
    SERVER_DRAINING = "SERVER_DRAINING"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    METHOD_UNKNOWN = "METHOD_UNKNOWN"
    CREDENTIAL_MISSING = "CREDENTIAL_MISSING"
    CREDENTIAL_INVALID = "CREDENTIAL_INVALID"
    SESSION_EXISTS = "SESSION_EXISTS"
    FORK_INTERRUPTED = "FORK_INTERRUPTED"
    RESUME_TOKEN_INVALID = "RESUME_TOKEN_INVALID"
    WATCH_STALLED = "WATCH_STALLED"
    TOO_MANY_WATCHERS = "TOO_MANY_WATCHERS"
    SUMMARY_NOT_FOUND = "SUMMARY_NOT_FOUND"
    SUMMARY_TASK_VOID = "SUMMARY_TASK_VOID"
    ORIGINALS_REMOVED = "ORIGINALS_REMOVED"
    SUMMARIZER_FAILED = "SUMMARIZER_FAILED"
    SUMMARIES_DISABLED = "SUMMARIES_DISABLED"
    SUMMARIZER_DIFFERS = "SUMMARIZER_DIFFERS"
    SUMMARY_UNDER_WAY = "SUMMARY_UNDER_WAY"
    SECRET_FOUND = "SECRET_FOUND"
    MEMORY_FILE_NOT_FOUND = "MEMORY_FILE_NOT_FOUND"
    MEMORY_FILE_FULL = "MEMORY_FILE_FULL"
    RUN_NOT_FOUND = "RUN_NOT_FOUND"
    RUN_EXISTS = "RUN_EXISTS"
    LEASE_LOST = "LEASE_LOST"
    RUN_ENDED = "RUN_ENDED"
    RUN_NOT_CLAIMABLE = "RUN_NOT_CLAIMABLE"
    STEP_MISMATCH = "STEP_MISMATCH"
    TOO_MANY_RUNS = "TOO_MANY_RUNS"
    RUN_UNFINISHED = "RUN_UNFINISHED"


class RequestError(Exception):
    """A call that cannot be done, for a reason that its caller can act on.

    `retry_after` is in seconds, for reasons that pass by themselves.
    """

    def __init__(self, reason: Reason, text: str, /, *, retry_after: float | None = None, **metadata: object) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
        self.retry_after = retry_after
        self.metadata = {name: str(value) for name, value in metadata.items()}


def field_required(field: str, what: str) -> RequestError:
    """INVALID_ARGUMENT: `field` is empty; `what` says what belongs there."""
    return RequestError(Reason.FIELD_REQUIRED, f"{field} is empty: give {what}", field=field)


def field_invalid(field: str, why: str) -> RequestError:
    """INVALID_ARGUMENT: `field` cannot have this value; `why` says what it may be."""
    return RequestError(Reason.FIELD_INVALID, f"{field} is invalid: {why}", field=field)


def field_too_large(field: str, actual: int, limit: int, unit: str, advice: str) -> RequestError:
    """INVALID_ARGUMENT: `field` is over its limit."""
    return RequestError(
        Reason.FIELD_TOO_LARGE,
        f"{field} has {actual:,} {unit}, and the limit is {limit:,}: {advice}",
        field=field,
        limit=limit,
        actual=actual,
    )


def session_not_found(agent: str, session_id: str) -> RequestError:
    """NOT_FOUND: the session does not exist for this caller."""
    return RequestError(
        Reason.SESSION_NOT_FOUND,
        f"agent {agent!r} has no session {session_id!r}: an append begins it",
        agent=agent,
        session_id=session_id,
    )


def session_exists(agent: str, session_id: str) -> RequestError:
    """ALREADY_EXISTS: the name is, or was of late, that of a session."""
    return RequestError(
        Reason.SESSION_EXISTS,
        f"agent {agent!r} has or had a session {session_id!r} of late: fork to a name that was never used",
        agent=agent,
        session_id=session_id,
    )
