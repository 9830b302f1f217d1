"""Logs each call: method, status, duration. Never what it carried."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import grpc
import structlog

from memoryd_server.interceptors.wrapping import Context, WrappingInterceptor

_NAME: Final = "memoryd.access"
_log: Final = structlog.stdlib.get_logger(_NAME)
_levels: Final = logging.getLogger(_NAME)
"""Asked for the level, since structlog's own loggers answer that only once they are set up."""


class AccessLog(WrappingInterceptor):
    """Outside of the error boundary, so that it sees the status that the caller gets."""

    @asynccontextmanager
    async def around(self, method: str, context: Context) -> AsyncIterator[None]:
        """Logs the call when it has ended: successes at DEBUG, others at INFO."""
        started = time.perf_counter()
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):  # The latter in a stream that its caller gave up.
            _log.info("call", method=method, status="CANCELLED", ms=_since(started))
            raise
        except BaseException:
            code: object = context.code()
            _log.info(
                "call",
                method=method,
                status=code.name if isinstance(code, grpc.StatusCode) else code,
                ms=_since(started),
            )
            raise
        if _levels.isEnabledFor(logging.DEBUG):  # On the path of every call, so not left to the logger.
            _log.debug("call", method=method, status="OK", ms=_since(started))


def _since(started: float) -> float:
    return round((time.perf_counter() - started) * 1_000, 3)
