"""Bounds every call in time, also one whose caller set no deadline (invariant 16)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.interceptors.wrapping import ENDLESS, Context, WrappingInterceptor

LONGEST_CALL_SECONDS: Final = 60.0
"""How long the server may work for a call without a deadline, or for one answer of its stream. A deadline of the caller
is kept by gRPC itself, which cancels the call.
"""


class Deadline(WrappingInterceptor):
    """Innermost, so that the error boundary gives its status."""

    by_step = True

    @asynccontextmanager
    async def around(self, method: str, context: Context) -> AsyncIterator[None]:
        """Ends a call without a deadline after `LONGEST_CALL_SECONDS`."""
        if context.time_remaining() is not None or method.startswith(ENDLESS):
            yield
            return
        bound = asyncio.timeout(LONGEST_CALL_SECONDS)
        try:
            async with bound:
                yield
        except TimeoutError as error:
            if not bound.expired():
                raise
            raise RequestError(
                Reason.DEADLINE_EXCEEDED,
                f"the call took longer than {LONGEST_CALL_SECONDS:.0f} s, the most without a deadline: ask for less, "
                f"or set one",
            ) from error
