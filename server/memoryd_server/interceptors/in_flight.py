"""Counts the calls that are being served: gRPC's `stop` returns before aborted handlers have cleaned up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from memoryd_server.interceptors.wrapping import Context, WrappingInterceptor


class InFlight(WrappingInterceptor):
    """Outermost: a call counts until the last of its `finally` blocks has run."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @asynccontextmanager
    async def around(self, method: str, context: Context) -> AsyncIterator[None]:
        """Counts the call."""
        del method, context
        self.count += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.count -= 1
            if not self.count:
                self._idle.set()

    async def wait_until_idle(self) -> None:
        """Returns when no call is being served."""
        await self._idle.wait()
