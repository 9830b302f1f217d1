"""Logs each call: method, status, duration. Never what it carried."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import structlog

from memoryd_server.interceptors.statuses import status_of
from memoryd_server.interceptors.wrapping import ENDLESS, Context, WrappingInterceptor

SLOW_SECONDS: Final = 1.0
"""From when on a call that ended well is logged at INFO too."""

_MAX_METHOD_CHARACTERS: Final = 256
"""Callers make up the names of methods that the server does not have."""

_NAME: Final = "memoryd.access"
_log: Final = structlog.stdlib.get_logger(_NAME)
_levels: Final = logging.getLogger(_NAME)
"""Asked for the level, since structlog's own loggers answer that only once they are set up."""


class AccessLog(WrappingInterceptor):
    """Outside of the error boundary, so that it sees the status that the caller gets."""

    @asynccontextmanager
    async def around(self, method: str, context: Context) -> AsyncIterator[None]:
        """Logs the call when it has ended: successes at DEBUG, slow ones and all others at INFO."""
        started = time.perf_counter()
        try:
            yield
        except BaseException as error:
            _tell(logging.INFO, method, status_of(context, error), started)
            raise
        slow = time.perf_counter() - started >= SLOW_SECONDS and not method.startswith(ENDLESS)
        level = logging.INFO if slow else logging.DEBUG
        if _levels.isEnabledFor(level):  # On the path of every call, so not left to the logger.
            _tell(level, method, status_of(context, None), started)


def _tell(level: int, method: str, status: str, started: float) -> None:
    milliseconds = round((time.perf_counter() - started) * 1_000, 3)
    _log.log(level, "call", method=method[:_MAX_METHOD_CHARACTERS], status=status, ms=milliseconds)
