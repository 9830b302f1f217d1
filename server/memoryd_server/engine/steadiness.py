"""Work on what was read first, a history or a memory file, and what may change before the work is committed."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from memoryd_server.engine.changes import StaleRead
from memoryd_server.engine.committer import LAST_WORD_SECONDS, PATIENCE_SECONDS, contention
from memoryd_server.engine.errors import RequestError
from memoryd_server.stores.records import SessionKey

Result = TypeVar("Result")

_PAUSE_SECONDS: Final = 0.01
"""The longest pause between two attempts: what stood in the way is over by then, mostly."""


async def until_steady(key: SessionKey, attempt: Callable[[], Awaitable[Result]], deadline: float | None) -> Result:
    """Tries until the session stays as it was read for long enough.

    Raises: what the attempt raises but StaleRead; RequestError CONTENTION.
    """
    return await until_unchanged(attempt, deadline, lambda: contention(key))


async def until_unchanged(
    attempt: Callable[[], Awaitable[Result]], deadline: float | None, contended: Callable[[], RequestError]
) -> Result:
    """Tries until nothing comes between what an attempt reads and what it changes.

    Raises: what the attempt raises but StaleRead; `contended` when patience or the deadline ends.
    """
    patience = time.monotonic() + PATIENCE_SECONDS
    ends = patience if deadline is None else min(deadline - LAST_WORD_SECONDS, patience)
    while True:
        try:
            return await attempt()
        except StaleRead:
            if time.monotonic() > ends:
                raise contended() from None
            await asyncio.sleep(random.uniform(0, _PAUSE_SECONDS))
