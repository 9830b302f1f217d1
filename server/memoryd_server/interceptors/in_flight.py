"""Counts the calls that are being served: gRPC's `stop` returns before aborted handlers have cleaned up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from memoryd_server.interceptors.wrapping import ENDLESS, Context, WrappingInterceptor


class InFlight(WrappingInterceptor):
    """Outermost: a call counts until the last of its `finally` blocks has run."""

    def __init__(self) -> None:
        super().__init__()
        self._ending = _Counter()
        self._endless = _Counter()

    @property
    def count(self) -> int:
        """How many calls are being served."""
        return self._ending.count + self._endless.count

    @asynccontextmanager
    async def around(self, method: str, context: Context) -> AsyncIterator[None]:
        """Counts the call."""
        del context
        counter = self._endless if method.startswith(ENDLESS) else self._ending
        counter.add(1)
        try:
            yield
        finally:
            counter.add(-1)

    async def wait_until_idle(self, *, but_for_endless: bool = False) -> None:
        """Returns when no call is being served, or none but those that end only when their callers want."""
        await self._ending.zero.wait()
        if not but_for_endless:
            await self._endless.zero.wait()


class _Counter:
    def __init__(self) -> None:
        self.count = 0
        self.zero = asyncio.Event()
        self.zero.set()

    def add(self, change: int) -> None:
        self.count += change
        if self.count:
            self.zero.clear()
        else:
            self.zero.set()
