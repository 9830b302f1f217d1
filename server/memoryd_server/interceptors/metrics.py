"""Tells a meter of each call: that it began, and how and when it ended."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from memoryd_server.interceptors.statuses import status_of
from memoryd_server.interceptors.wrapping import Context, WrappingInterceptor


class CallMeter(Protocol):
    """Hears of calls. Methods are "/package.Service/Method", and may be ones that the server does not have."""

    def started(self, method: str) -> None:
        """A call arrived."""

    def finished(self, method: str, status: str, seconds: float) -> None:
        """A call ended with the gRPC status of this name."""


class CallMetrics(WrappingInterceptor):
    """Outside of the error boundary, so that it sees the status that the caller gets."""

    def __init__(self, meter: CallMeter) -> None:
        super().__init__()
        self._meter = meter

    @asynccontextmanager
    async def around(self, method: str, context: Context) -> AsyncIterator[None]:
        """Tells of the call."""
        started = time.perf_counter()
        self._meter.started(method)
        try:
            yield
        except BaseException as error:
            self._meter.finished(method, status_of(context, error), time.perf_counter() - started)
            raise
        self._meter.finished(method, status_of(context, None), time.perf_counter() - started)
