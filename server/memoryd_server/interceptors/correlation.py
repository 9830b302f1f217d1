"""Gives each call its correlation id: what ties an answer to the log."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

import structlog

from memoryd_server.interceptors.wrapping import Context, WrappingInterceptor

CORRELATION_METADATA: Final = "memoryd-correlation-id"
"""Metadata key of the id: a caller may send its own, and every answer carries it in its trailing metadata."""

STORE_METADATA: Final = "memoryd-store"
"""Metadata key with which a caller picks a store."""

AUTHORIZATION_METADATA: Final = "authorization"
"""Metadata key of the caller's credential."""

_MAX_ID_CHARACTERS: Final = 64


@dataclass(slots=True)
class Call:
    """What is known of the call that is being served. Not frozen: the further the call gets, the more is known."""

    correlation_id: str
    store: str
    """The name of the store that the caller picked; empty for the default, until that is looked up."""
    authorization: Sequence[str] = field(default=(), repr=False)
    """The caller's credentials as they were sent: none or one, if the caller does it right."""
    tenant: str = ""
    """Whose data the call is about; empty until the caller is authenticated."""


NO_CALL: Final = Call("", "")
current_call: ContextVar[Call] = ContextVar("current_call", default=NO_CALL)


def _acceptable(correlation_id: str) -> bool:
    return 0 < len(correlation_id) <= _MAX_ID_CHARACTERS and correlation_id.isascii() and correlation_id.isprintable()


class Correlation(WrappingInterceptor):
    """Outermost but for the count of calls, so that all others know the call."""

    @asynccontextmanager
    async def around(self, method: str, context: Context) -> AsyncIterator[None]:
        """Sets `current_call`, and the id in logs and trailing metadata."""
        del method
        correlation_id = store = ""
        authorization: Sequence[str] = ()
        # Read once for all interceptors, since gRPC makes the metadata anew each time, which costs as much as the rest.
        for key, value in context.invocation_metadata() or ():
            if key == CORRELATION_METADATA and isinstance(value, str) and _acceptable(value):
                correlation_id = value
            elif key == STORE_METADATA and isinstance(value, str):
                store = value
            elif key == AUTHORIZATION_METADATA and isinstance(value, str):
                authorization = (*authorization, value)
        correlation_id = correlation_id or uuid.uuid4().hex
        current_call.set(Call(correlation_id, store, authorization))
        context.set_trailing_metadata(((CORRELATION_METADATA, correlation_id),))
        # Not unbound afterwards: each call has a context of its own, which ends with it.
        structlog.contextvars.bind_contextvars(correlation_id=correlation_id)
        yield
