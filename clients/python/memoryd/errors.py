"""The errors that calls raise: one class a reason, decoded from the `google.rpc.ErrorInfo` that every memoryd error
carries.

>>> from memoryd import MemoryClient, SessionNotFound
>>> try:
...     window = MemoryClient().session(agent="assistant", id="user_123").window()
... except SessionNotFound:
...     window = None  # a conversation that has not begun
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from memoryd.methods import Method
from memoryd.runs import RunStatus

_DOMAIN = "memoryd"
_STATUS_DETAILS = "grpc-status-details-bin"


class MemorydError(Exception):
    """The base of every error of a call. It is raised `from` the gRPC error, where there is one."""

    _of_reason: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        """What happened and what to do."""
        self.code = code
        """The gRPC status."""
        self.reason = reason
        """The name of the ErrorReason, for example `SESSION_NOT_FOUND`; empty when no memoryd server answered."""
        self.metadata = dict(metadata or {})
        """What the reason tells about this case; error_reason.proto names the keys."""
        self.retry_after = retry_after
        """The seconds that the server asks to wait before the call is made again; None when it does not say."""

    @property
    def correlation_id(self) -> str:
        """The id that finds the call in the server's log; empty when no server of memoryd answered."""
        return self.metadata.get("correlation_id", "")

    def __str__(self) -> str:
        return f"{self.message} (correlation id {self.correlation_id})" if self.correlation_id else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.message, self.code, self.reason, self.metadata, self.retry_after)


def _restore(
    kind: type[MemorydError],
    message: str,
    code: grpc.StatusCode,
    reason: str,
    metadata: dict[str, str],
    retry_after: float | None,
) -> MemorydError:
    return kind(message, code=code, reason=reason, metadata=metadata, retry_after=retry_after)


class InvalidArgument(MemorydError):
    """A field of the request is missing or has a value that it cannot have."""

    @property
    def field(self) -> str:
        """The field's path in the request, for example `session.agent`; empty when the error names none."""
        return self.metadata.get("field", "")


class FieldRequired(InvalidArgument):
    """A required field is empty."""

    _of_reason = "FIELD_REQUIRED"


class FieldInvalid(InvalidArgument):
    """A field has a value that it cannot have."""

    _of_reason = "FIELD_INVALID"


class FieldTooLarge(InvalidArgument):
    """A field is over its limit; metadata holds `limit` and `actual` (bytes or items)."""

    _of_reason = "FIELD_TOO_LARGE"


class PageTokenInvalid(InvalidArgument):
    """The page token is damaged, or is of another store, tenant or query. Start again from the first page."""

    _of_reason = "PAGE_TOKEN_INVALID"


class ResumeTokenInvalid(InvalidArgument):
    """The resume token is damaged, or is of another store, tenant or session. Read the session, and watch without
    one.
    """

    _of_reason = "RESUME_TOKEN_INVALID"


class StoreUnknown(InvalidArgument):
    """The server has no store with the name that the client asks for; metadata holds `stores`, the known names."""

    _of_reason = "STORE_UNKNOWN"


class SecretFound(InvalidArgument):
    """A text for a memory file holds a credential, which the error does not tell. Nothing was written: take it out, or
    give `allow_secrets=True` if it is none.
    """

    _of_reason = "SECRET_FOUND"

    @property
    def line(self) -> int:
        """The line of the text that holds it, from 1; `field` tells which text."""
        return int(self.metadata.get("line") or 0)

    @property
    def kind(self) -> str:
        """The kind of credential."""
        return self.metadata.get("kind", "")


class Unauthenticated(MemorydError):
    """The server does not know who calls. Trying again does not help."""


class CredentialMissing(Unauthenticated):
    """The server serves only callers that show a token, and the client was given none."""

    _of_reason = "CREDENTIAL_MISSING"


class CredentialInvalid(Unauthenticated):
    """The server does not accept the client's token: it is not one of this server's, or no longer."""

    _of_reason = "CREDENTIAL_INVALID"


class NotFound(MemorydError):
    """What the call names does not exist."""


class SessionNotFound(NotFound):
    """There is no such session. The first append begins one."""

    _of_reason = "SESSION_NOT_FOUND"


class MessageNotFound(NotFound):
    """The session holds no such message."""

    _of_reason = "MESSAGE_NOT_FOUND"


class SummaryNotFound(NotFound):
    """The session has no such summary, or none at all."""

    _of_reason = "SUMMARY_NOT_FOUND"


class MemoryFileNotFound(NotFound):
    """The owner has no such memory file, or the file no such version; metadata holds `name`, and `version` where one
    was asked for.
    """

    _of_reason = "MEMORY_FILE_NOT_FOUND"


class RunNotFound(NotFound):
    """The session has no such run: none was created, or it was deleted, by hand or after its retention."""

    _of_reason = "RUN_NOT_FOUND"


class AlreadyExists(MemorydError):
    """An id is known with other content, or a name is taken. Nothing was written."""


class MessageIdConflict(AlreadyExists):
    """A message id (metadata: `message_id`) is known with other content, or only some ids of the batch are known."""

    _of_reason = "MESSAGE_ID_CONFLICT"


class RequestIdConflict(AlreadyExists):
    """The request id is known with another request."""

    _of_reason = "REQUEST_ID_CONFLICT"


class SessionExists(AlreadyExists):
    """The target of a fork is the name of a session, or was until less than 24 hours ago. Fork to another name."""

    _of_reason = "SESSION_EXISTS"


class RunExists(AlreadyExists):
    """The session has another run of this id. Use a new id, or claim the run."""

    _of_reason = "RUN_EXISTS"


class Aborted(MemorydError):
    """The call lost against another one. Read again, then decide."""


class LastSeqMismatch(Aborted):
    """The session's last seq is not the expected one."""

    _of_reason = "LAST_SEQ_MISMATCH"

    @property
    def actual(self) -> int:
        """The session's last seq; 0 when there is no session yet."""
        return int(self.metadata.get("actual") or 0)


class EtagMismatch(Aborted):
    """The settings, the memory file or the run changed since the etag was read, or there is a memory file that was to
    be made, or another summary is current than the one to take back.
    """

    _of_reason = "ETAG_MISMATCH"

    @property
    def etag(self) -> str:
        """The current etag, or the id of the current summary; empty when the file is gone."""
        return self.metadata.get("etag", "")


class Contention(Aborted):
    """Other calls kept changing the session until the deadline. Nothing was written; try again."""

    _of_reason = "CONTENTION"


class WindowChanged(Aborted):
    """History was taken away while a window was streamed, and again each time that the SDK started over."""

    _of_reason = "WINDOW_CHANGED"


class ForkInterrupted(Aborted):
    """The source of a fork lost messages while it was copied. Nothing was made; fork again."""

    _of_reason = "FORK_INTERRUPTED"


class WatchStalled(Aborted):
    """A watcher left an answer unread for too long. `Session.watch` resumes by itself, so that only users of the bare
    stubs see this.
    """

    _of_reason = "WATCH_STALLED"


class SummaryTaskVoid(Aborted):
    """The summary task is void: its lease is over, or the history changed where it lies. Nothing was changed: go on
    with the next task.
    """

    _of_reason = "SUMMARY_TASK_VOID"


class SummaryUnderWay(Aborted):
    """Another server or client makes the session's summary. Try again when it is done."""

    _of_reason = "SUMMARY_UNDER_WAY"


class StepMismatch(Aborted):
    """The step is not the run's next one, or was committed with other content or another status: by a try whose answer
    was lost, say. Nothing was written. `Run.resume` reads where the run stands.
    """

    _of_reason = "STEP_MISMATCH"

    @property
    def step_count(self) -> int:
        """How many steps the run has."""
        return int(self.metadata.get("step_count") or 0)


class FailedPrecondition(MemorydError):
    """The state of the session or of the run does not allow the call."""


class WindowTooLarge(FailedPrecondition):
    """The window is over 3.5 MiB. `Session.window` then streams it, so that only users of the bare stubs see this."""

    _of_reason = "WINDOW_TOO_LARGE"


class WindowTooSmall(FailedPrecondition):
    """`oversize` is FAIL and the newest group alone exceeds the limit; metadata holds `limit` and `needed`."""

    _of_reason = "WINDOW_TOO_SMALL"


class OriginalsRemoved(FailedPrecondition):
    """The messages behind a summary are removed (retention DELETE), so it cannot be taken back; metadata holds
    `to_seq`, the newest one that is gone.
    """

    _of_reason = "ORIGINALS_REMOVED"


class SummariesDisabled(FailedPrecondition):
    """The stored policies of session and agent have no summaries. Store a policy with a SummaryPolicy first."""

    _of_reason = "SUMMARIES_DISABLED"


class SummarizerDiffers(FailedPrecondition):
    """The session's summarizer (metadata: `summarizer`) is `client`, so its summaries are made by whoever leases tasks;
    or it is another one, so that there are no tasks to lease.
    """

    _of_reason = "SUMMARIZER_DIFFERS"


class RunLeaseLost(FailedPrecondition):
    """The caller does not hold the run any more: its lease is over, another worker claimed it, somebody changed its
    status or ended it, or its client was closed. Nothing was written. Stop working at it.

    `reason` tells them apart as far as the server did: RUN_ENDED with a `status` (CANCELLED by somebody, say),
    RUN_NOT_FOUND or SESSION_NOT_FOUND for what is gone, and LEASE_LOST otherwise; the message says more.
    """

    _of_reason = "LEASE_LOST"

    @property
    def status(self) -> RunStatus:
        """How the run ended; UNSPECIFIED when the error does not tell that it did."""
        return _run_status(self)


class RunEnded(FailedPrecondition):
    """The run has ended, and never changes again; metadata holds its `status`."""

    _of_reason = "RUN_ENDED"

    @property
    def status(self) -> RunStatus:
        """How it ended; UNSPECIFIED for a status that this SDK does not know."""
        return _run_status(self)


class RunNotClaimable(FailedPrecondition):
    """Another worker (metadata: `holder`) holds the run until its lease is over."""

    _of_reason = "RUN_NOT_CLAIMABLE"

    @property
    def holder(self) -> str:
        """Who says to hold it."""
        return self.metadata.get("holder", "")


class RunUnfinished(FailedPrecondition):
    """The run (metadata: its `status`) has not ended, and cannot be deleted. Set a status that ends it first."""

    _of_reason = "RUN_UNFINISHED"

    @property
    def status(self) -> RunStatus:
        """How it stands; UNSPECIFIED for a status that this SDK does not know."""
        return _run_status(self)


def _run_status(error: MemorydError) -> RunStatus:
    return RunStatus.__members__.get(error.metadata.get("status", ""), RunStatus.UNSPECIFIED)


class Unavailable(MemorydError):
    """The server, or the store behind it, did not answer, also after retries.

    An append may have been stored all the same: append the same Message objects again, and they are stored once.
    """


class StoreUnavailable(Unavailable):
    """The server's store did not answer; metadata holds `store`."""

    _of_reason = "STORE_UNAVAILABLE"


class SummarizerFailed(Unavailable):
    """The summarizer (metadata: `summarizer`) failed, why is in metadata `failure`. Nothing was changed, and the server
    tries again with backoff.
    """

    _of_reason = "SUMMARIZER_FAILED"


class ServerDraining(Unavailable):
    """The server is shutting down."""

    _of_reason = "SERVER_DRAINING"


class ServerUnavailable(Unavailable):
    """No server answers at the client's address."""


class TlsFailed(ServerUnavailable):
    """Client and server do not agree on TLS, or the client does not trust the server's certificate."""


class DeadlineExceeded(MemorydError):
    """The call took longer than its timeout. An append may have been stored: append the same Message objects again.

    A read or an append may have been tried again until then because the server or its store was unavailable: the
    server's log has the errors of those tries.
    """

    _of_reason = "DEADLINE_EXCEEDED"


class ResourceExhausted(MemorydError):
    """A quota is used up, or a message is larger than what gRPC lets through."""


class RecordTooLarge(ResourceExhausted):
    """The session's record is full. Use fewer or shorter labels."""

    _of_reason = "RECORD_TOO_LARGE"


class MemoryFileFull(ResourceExhausted):
    """The memory file would be over 1 MiB; metadata holds `name`, `limit` and `actual` (bytes). Nothing was written:
    put a shorter file first.
    """

    _of_reason = "MEMORY_FILE_FULL"


class TooManyWatchers(ResourceExhausted):
    """The server serves as many watchers as it may; metadata holds `limit`. `Session.watch` tries again by itself."""

    _of_reason = "TOO_MANY_WATCHERS"


class TooManyRuns(ResourceExhausted):
    """The session has as many unfinished runs as it may (metadata: `limit`). End some, or use another session."""

    _of_reason = "TOO_MANY_RUNS"


class InternalError(MemorydError):
    """A fault of the server; its text is only in the log, under the correlation id."""

    _of_reason = "INTERNAL"


class MethodUnknown(MemorydError):
    """The server has no such method: it is older than this SDK, or the address is that of another service."""

    _of_reason = "METHOD_UNKNOWN"


class AnswerUnreadable(MemorydError):
    """The answer holds what this SDK does not know, or is not whole. A newer SDK reads what a newer server sends."""


_BY_STATUS: Mapping[grpc.StatusCode, type[MemorydError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.ABORTED: Aborted,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.INTERNAL: InternalError,
    grpc.StatusCode.UNIMPLEMENTED: MethodUnknown,
}


def _by_reason(kind: type[MemorydError]) -> dict[str, type[MemorydError]]:
    found = {kind._of_reason: kind} if kind._of_reason else {}
    for child in kind.__subclasses__():
        found |= _by_reason(child)
    return found


_BY_REASON: Mapping[str, type[MemorydError]] = _by_reason(MemorydError)


_OTHER_NAME = (
    "the certificate of the server at {address} is for other names: give the client an address with one of its names, "
    "or the server a certificate for this one"
)
_SIGNS_OF_TLS = (
    (
        "certificate has expired",
        "the certificate of the server at {address} has expired (or a clock is wrong): its operator must renew it",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "the certificate of the server at {address} is not from a CA that the client trusts: give the right one as ca",
    ),
    ("Hostname Verification Check failed", _OTHER_NAME),
    ("is not in peer certificate", _OTHER_NAME),  # An older gRPC's words for the same.
    (
        "WRONG_VERSION_NUMBER",
        "the server at {address} does not speak TLS: leave out ca and tls, or have its operator give it a certificate",
    ),
    (
        "Handshake read failed",
        "the server at {address} broke off the TLS handshake: its certificate may be one that it cannot use",
    ),
    (
        "failed to connect.*(Socket closed|Connection reset)",
        "the server at {address} closed the connection at once: it may ask for TLS, or be shutting down; for one with "
        "TLS, give ca (the certificate of its CA) or tls=True",
    ),
)
"""Patterns of gRPC's texts, and what they mean. The texts are no part of its interface: where none fits, they are told.
"""

# By whether the method is tried again.
_SLOW = {
    True: (
        "The server is busy, or it or its store was unavailable and the call was tried again until then: see the "
        "server's log, and stores() tells which stores answer now. Or give a longer timeout. A change may have been "
        "made all the same: an append of the same Message objects is safe to repeat, and so is what you gave a "
        "request_id"
    ),
    False: (
        "See in the server's log whether it is busy, or give a longer timeout. The change may have been made all the "
        "same: read before you repeat it"
    ),
}


def typed_error(failed: Any, address: str, method: Method[Any, Any], timeout: float) -> MemorydError:
    """The typed error of a failed call, caused by `failed`: gRPC's error, sync or async.

    A reason that this SDK does not know gives the class of the status. Without an ErrorInfo of memoryd the error comes
    from the transport, and the text says which address was tried.
    """
    error = _decoded(failed, address, method, timeout)
    error.__cause__ = failed
    return error


def out_of_time(address: str, method: Method[Any, Any], timeout: float) -> DeadlineExceeded:
    """The error of a call that is not made, since the time of its operation is over."""
    return DeadlineExceeded(
        f"{method.name} was not sent to {address}: the {timeout:g} s of the operation were over before. Give a longer "
        f"timeout",
        code=grpc.StatusCode.DEADLINE_EXCEEDED,
    )


def _decoded(failed: Any, address: str, method: Method[Any, Any], timeout: float) -> MemorydError:
    code = failed.code()
    text = failed.details() or ""
    details = _details(failed.trailing_metadata() or ())
    info = _error_info(details)
    if info is not None:
        kind = _BY_REASON.get(info.reason) or _BY_STATUS.get(code, MemorydError)
        return kind(text, code=code, reason=info.reason, metadata=info.metadata, retry_after=_retry_after(details))
    match code:
        case grpc.StatusCode.UNAVAILABLE:
            return _unreachable(address, text, code)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlineExceeded(
                f"{method.name} did not end within {timeout:g} s at {address}. {_SLOW[method.retried]}",
                code=code,
            )
        case grpc.StatusCode.UNIMPLEMENTED:
            return MethodUnknown(
                f"the server at {address} does not know {method.name}: it is older than this SDK, or not memoryd "
                f"({text})",
                code=code,
            )
        case _:
            return _BY_STATUS.get(code, MemorydError)(
                f"{method.name} failed at {address} with {code.name}: {text}", code=code
            )


def _unreachable(address: str, text: str, code: grpc.StatusCode) -> ServerUnavailable:
    """What keeps a client from its server, as far as gRPC's text tells."""
    for sign, meaning in _SIGNS_OF_TLS:
        if re.search(sign, text):
            return TlsFailed(f"{meaning.format(address=address)} (gRPC: {text})", code=code)
    return ServerUnavailable(
        f"no memoryd server answers at {address}: {text}. Start one with `memoryd serve`, or give the client the "
        f"address of one that runs",
        code=code,
    )


def _error_info(details: Iterable[AnyMessage]) -> ErrorInfo | None:
    info = ErrorInfo()
    for detail in details:
        if detail.Unpack(info) and info.domain == _DOMAIN:
            return info
    return None


def _retry_after(details: Iterable[AnyMessage]) -> float | None:
    asked = RetryInfo()
    for detail in details:
        if detail.Unpack(asked):
            return asked.retry_delay.ToMilliseconds() / 1_000
    return None


def _details(trailing_metadata: Iterable[tuple[str, str | bytes]]) -> Iterable[AnyMessage]:
    for key, value in trailing_metadata:
        if key == _STATUS_DETAILS and isinstance(value, bytes):
            try:
                return Status.FromString(value).details
            except DecodeError:
                break
    return ()
