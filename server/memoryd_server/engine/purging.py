"""Deletes what was taken away (design section 5): later, in small batches, by any server, and idempotently."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from memoryd_server import limits
from memoryd_server.engine import changes
from memoryd_server.engine.runtime import Runtime
from memoryd_server.stores.records import RemovedRange, SessionKey

INTERVAL_SECONDS: Final = 15.0
"""How often a server looks for what is due."""

SESSIONS_A_ROUND: Final = 100

_log = logging.getLogger(__name__)


async def purge_due(runtime: Runtime, *, delay_seconds: float = limits.PURGE_DELAY_SECONDS) -> int:
    """Deletes messages whose removal is older than the delay. A session that fails does not stop the others.

    Returns: how many messages were deleted. Raises: StoreUnavailable.
    """
    before = await runtime.store.now() - int(delay_seconds * 1_000_000)
    deleted = 0
    for key in await runtime.store.list_purgeable(before, SESSIONS_A_ROUND):
        try:
            deleted += await _purge_session(runtime, key, before)
        except Exception:
            _log.exception("could not purge a session of store %s; it is tried again later", runtime.name)
    return deleted


async def _purge_session(runtime: Runtime, key: SessionKey, before: int) -> int:
    loaded = await runtime.store.load(key)
    if loaded is None:
        return 0
    deleted = 0
    for removed in loaded.record.removed:
        if removed.removed_at < before:
            deleted += await _purge_range(runtime, key, loaded.record.incarnation, removed)
    return deleted


async def _purge_range(runtime: Runtime, key: SessionKey, incarnation: str, removed: RemovedRange) -> int:
    deleted = 0
    while count := await runtime.store.purge(key, incarnation, removed.from_seq, removed.to_seq, limits.PURGE_BATCH):
        deleted += count
        await asyncio.sleep(0)  # Appends that wait for the database go first.
    await runtime.committer.run(key, lambda record, _known: changes.plan_forget_removed(record, key, removed))
    return deleted


async def purge_for_ever(runtime: Runtime) -> None:
    """The background task of a server. Ends by cancellation only."""
    while True:
        await asyncio.sleep(INTERVAL_SECONDS)
        try:
            await purge_due(runtime)
        except Exception:
            _log.exception("could not look for removed messages in store %s; it is tried again later", runtime.name)
