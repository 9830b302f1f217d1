"""Gives calls their status while the server drains (invariant 16): gRPC itself gives some of them CANCELLED, which no
client tries again, and others none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from weakref import WeakSet

from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.interceptors.wrapping import Context, WrappingInterceptor

RETRY_SECONDS: Final = 1.0
"""When a client may try again: by then its connection has been told to go, and it finds another server."""

_HEALTH: Final = "/grpc.health.v1."
"""Health tells by itself that the server drains."""


class Draining(WrappingInterceptor):
    """Within the error boundary, which gives the status."""

    by_step = True

    def __init__(self) -> None:
        super().__init__()
        self._refusing = False
        self._admitted: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._working: set[asyncio.Task[Any]] = set()
        self._ended: WeakSet[asyncio.Task[Any]] = WeakSet()

    def refuse_calls(self) -> None:
        """From now on, new calls are refused; those under way go on."""
        self._refusing = True

    def end_calls(self) -> None:
        """Ends the calls that the server works for, watchers of its health too. Streams that wait for their callers to
        read are left to gRPC.
        """
        self._admitted.clear()
        self._ended.update(self._working)
        for task in self._working:
            task.cancel()

    @asynccontextmanager
    async def around(self, method: str, context: Context) -> AsyncIterator[None]:
        """Lets the call pass, refuses it, or tells why it was ended."""
        del context
        task = asyncio.current_task()
        assert task is not None
        if not self._refusing:
            self._admitted.add(task)
        elif task not in self._admitted and not method.startswith(_HEALTH):
            raise _draining()
        self._working.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if task not in self._ended:
                raise
            task.uncancel()
            raise _draining() from None
        finally:
            self._working.discard(task)


def _draining() -> RequestError:
    return RequestError(
        Reason.SERVER_DRAINING,
        "the server is shutting down: try again, and another one answers; an append is stored once if it is repeated "
        "with the same ids",
        retry_after=RETRY_SECONDS,
    )
