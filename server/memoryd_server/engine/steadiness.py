"""Work on a history that was read first, and that may change before the work is committed."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from memoryd_server.engine.changes import StaleRead
from memoryd_server.engine.committer import LAST_WORD_SECONDS, PATIENCE_SECONDS, contention
from memoryd_server.stores.records import SessionKey

Result = TypeVar("Result")

_PAUSE_SECONDS: Final = 0.01
"""The longest pause between two attempts: what stood in the way is over by then, mostly."""


async def until_steady(key: SessionKey, attempt: Callable[[], Awaitable[Result]], deadline: float | None) -> Result:
    """Tries until the session stays as it was read for long enough.

    Raises: what the attempt raises but StaleRead; RequestError CONTENTION.
    """
    patience = time.monotonic() + PATIENCE_SECONDS
    ends = patience if deadline is None else min(deadline - LAST_WORD_SECONDS, patience)
    while True:
        try:
            return await attempt()
        except StaleRead:
            if time.monotonic() > ends:
                raise contention(key) from None
            await asyncio.sleep(random.uniform(0, _PAUSE_SECONDS))
