"""The one place where exceptions become statuses (invariants 12 and 16)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, NoReturn

import grpc
import grpc.aio
import structlog
from google.protobuf.any_pb2 import Any as AnyProto
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.interceptors.correlation import CORRELATION_METADATA, current_call
from memoryd_server.interceptors.wrapping import Context, Handler, WrappingInterceptor
from memoryd_server.stores.base import StoreUnavailable

ERROR_DOMAIN: Final = "memoryd"

_STATUS_DETAILS_METADATA: Final = "grpc-status-details-bin"

_MAX_TEXT_BYTES: Final = 1_024
_MAX_VALUE_BYTES: Final = 512
"""Of an error's text and of each metadata value, in UTF-8. A default client takes 8 KiB of trailing metadata for sure,
and from 16 KiB on tells RESOURCE_EXHAUSTED instead; the text is in there twice, once percent-encoded (three bytes for
one)."""

_STORE_RETRY_SECONDS: Final = 1.0

CODES: Final = {
    Reason.FIELD_REQUIRED: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.FIELD_INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.FIELD_TOO_LARGE: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.PAGE_TOKEN_INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.STORE_UNKNOWN: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.SESSION_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.MESSAGE_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.MESSAGE_ID_CONFLICT: grpc.StatusCode.ALREADY_EXISTS,
    Reason.REQUEST_ID_CONFLICT: grpc.StatusCode.ALREADY_EXISTS,
    Reason.LAST_SEQ_MISMATCH: grpc.StatusCode.ABORTED,
    Reason.ETAG_MISMATCH: grpc.StatusCode.ABORTED,
    Reason.CONTENTION: grpc.StatusCode.ABORTED,
    Reason.WINDOW_TOO_LARGE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.WINDOW_TOO_SMALL: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.WINDOW_CHANGED: grpc.StatusCode.ABORTED,
    Reason.STORE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Reason.RECORD_TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.INTERNAL: grpc.StatusCode.INTERNAL,
    Reason.SERVER_DRAINING: grpc.StatusCode.UNAVAILABLE,
    Reason.DEADLINE_EXCEEDED: grpc.StatusCode.DEADLINE_EXCEEDED,
    Reason.METHOD_UNKNOWN: grpc.StatusCode.UNIMPLEMENTED,
    Reason.CREDENTIAL_MISSING: grpc.StatusCode.UNAUTHENTICATED,
    Reason.CREDENTIAL_INVALID: grpc.StatusCode.UNAUTHENTICATED,
    Reason.SESSION_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    Reason.FORK_INTERRUPTED: grpc.StatusCode.ABORTED,
    Reason.RESUME_TOKEN_INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.WATCH_STALLED: grpc.StatusCode.ABORTED,
    Reason.TOO_MANY_WATCHERS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.SUMMARY_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.SUMMARY_TASK_VOID: grpc.StatusCode.ABORTED,
    Reason.ORIGINALS_REMOVED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.SUMMARIZER_FAILED: grpc.StatusCode.UNAVAILABLE,
    Reason.SUMMARIES_DISABLED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.SUMMARIZER_DIFFERS: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.SUMMARY_UNDER_WAY: grpc.StatusCode.ABORTED,
    Reason.SECRET_FOUND: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.MEMORY_FILE_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.MEMORY_FILE_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.RUN_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.RUN_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    Reason.LEASE_LOST: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.RUN_ENDED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.RUN_NOT_CLAIMABLE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.STEP_MISMATCH: grpc.StatusCode.ABORTED,
    Reason.TOO_MANY_RUNS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.RUN_UNFINISHED: grpc.StatusCode.FAILED_PRECONDITION,
}
"""The status of each reason, as `error_reason.proto` documents it."""

_log: Final = structlog.stdlib.get_logger("memoryd.errors")


class ErrorBoundary(WrappingInterceptor):
    """Turns every exception into a status with one ErrorInfo. Texts of unknown ones go to the log only."""

    @asynccontextmanager
    async def around(self, method: str, context: Context) -> AsyncIterator[None]:
        """Ends a failed call with its status."""
        try:
            yield
        except grpc.aio.AbortError:
            raise
        except RequestError as error:
            await _abort(context, error)
        except StoreUnavailable as error:
            _log.warning("store unavailable", method=method, error=str(error), store=current_call.get().store)
            await _abort(context, _store_unavailable(error))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # The caller went away, or the server drains: gRPC gives the status.
            # Something inside was cancelled: without a status of ours, the caller would wait for its deadline.
            _log.exception("a task inside of a call was cancelled", method=method)
            await _abort(context, _internal())
        except Exception:
            _log.exception("unexpected error", method=method)
            await _abort(context, _internal())

    def unknown_method(self, method: str) -> Handler:
        """Tells the caller of an unknown method so, with a reason."""

        async def refuse(request: Any, context: Context) -> None:
            del request
            await _abort(
                context,
                RequestError(
                    Reason.METHOD_UNKNOWN,
                    f"this server has no method {method[:256]}: it may be older than the client; reflection lists "
                    f"what it has",
                ),
            )

        return grpc.unary_unary_rpc_method_handler(refuse)


def _internal() -> RequestError:
    return RequestError(
        Reason.INTERNAL, "the server failed; its log has the cause under the correlation id of this answer"
    )


def _store_unavailable(error: StoreUnavailable) -> RequestError:
    return RequestError(
        Reason.STORE_UNAVAILABLE,
        f"the store did not answer ({error}): try again; an append is stored once if it is repeated with the same ids",
        retry_after=_STORE_RETRY_SECONDS,
        store=current_call.get().store or "(default)",
    )


def _cut(text: str, limit: int) -> str:
    encoded = text.encode(errors="replace")
    return encoded.decode() if len(encoded) <= limit else encoded[:limit].decode(errors="ignore") + "…"


async def _abort(context: Context, error: RequestError) -> NoReturn:
    correlation_id = current_call.get().correlation_id
    structlog.contextvars.bind_contextvars(reason=error.reason.value)  # For the access log.
    code = CODES[error.reason]
    text = _cut(error.text, _MAX_TEXT_BYTES)
    info = ErrorInfo(
        reason=error.reason,
        domain=ERROR_DOMAIN,
        metadata={name: _cut(value, _MAX_VALUE_BYTES) for name, value in error.metadata.items()}
        | {"correlation_id": correlation_id},
    )
    status = Status(code=code.value[0], message=text, details=[_packed(info)])
    if error.retry_after is not None:
        delay = Duration()
        delay.FromNanoseconds(int(error.retry_after * 1_000_000_000))
        status.details.append(_packed(RetryInfo(retry_delay=delay)))
    await context.abort(
        code,
        text,
        trailing_metadata=(
            (CORRELATION_METADATA, correlation_id),
            (_STATUS_DETAILS_METADATA, status.SerializeToString()),
        ),
    )


def _packed(message: ErrorInfo | RetryInfo) -> AnyProto:
    packed = AnyProto()
    packed.Pack(message)
    return packed
