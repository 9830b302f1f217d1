"""Tells a meter of each call: that it began, and how and when it ended."""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager
from types import TracebackType
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

    def around(self, method: str, context: Context) -> AbstractAsyncContextManager[None]:
        """Tells of the call."""
        return _Metered(self._meter, method, context)


class _Metered(AbstractAsyncContextManager[None]):
    """Not made by `asynccontextmanager`, which costs twice as much: it is on the path of every call."""

    __slots__ = ("_context", "_meter", "_method", "_started")

    def __init__(self, meter: CallMeter, method: str, context: Context) -> None:
        self._meter = meter
        self._method = method
        self._context = context
        self._started = time.perf_counter()

    async def __aenter__(self) -> None:
        self._meter.started(self._method)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        seconds = time.perf_counter() - self._started
        self._meter.finished(self._method, status_of(self._context, error), seconds)
