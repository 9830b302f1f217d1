"""Erasure: deletes all that a user owns, for good."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from memoryd_server import limits
from memoryd_server.engine import changes
from memoryd_server.engine.committer import LAST_WORD_SECONDS
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.incoming import check_text
from memoryd_server.engine.runtime import Runtime
from memoryd_server.stores.base import Deleted, SessionQuery
from memoryd_server.stores.records import SessionKey

MOST_RENEWALS: Final = 10
"""How often an erasure ends sessions that began since it ended the others: somebody appends without a pause."""

_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Erased:
    """What an erasure deleted."""

    sessions: int
    rows: Deleted


async def erase_user(runtime: Runtime, tenant: str, user_id: str, *, deadline: float | None = None) -> Erased:
    """Ends the user's sessions and deletes what they held, until a second read finds nothing: dead sessions, forks
    under way and what was taken away before included. A failure half way leaves a part for the next call.

    Raises: RequestError (field errors, CONTENTION when the user's sessions keep beginning anew or the deadline comes),
    StoreUnavailable.
    """
    check_text("user_id", user_id, limits.MAX_ID_BYTES, required=True, what="the user's id")
    sessions, rows, renewals = 0, Deleted(), -1
    while True:
        ended = await _end_sessions(runtime, tenant, user_id, deadline)
        deleted = await runtime.store.erase(tenant, user_id, limits.PURGE_BATCH)
        if not ended and not deleted.total:
            return Erased(sessions, rows)
        sessions += ended
        rows += deleted
        renewals += ended > 0
        if renewals >= MOST_RENEWALS or (deadline is not None and time.monotonic() > deadline - LAST_WORD_SECONDS):
            raise RequestError(
                Reason.CONTENTION,
                f"sessions of user {user_id!r} kept beginning anew, or the deadline came; {sessions:,} sessions and "
                f"{rows.messages:,} messages are deleted: keep callers from appending for the user, and call again for "
                "the rest",
                retry_after=_RETRY_SECONDS,
            )


async def _end_sessions(runtime: Runtime, tenant: str, user_id: str, deadline: float | None) -> int:
    """Ends the user's living sessions, expired ones included. Returns: how many."""
    ended, after = 0, ""
    while True:
        page = await runtime.store.list_sessions(SessionQuery(tenant, None, user_id, limits.MAX_PAGE_ITEMS, after))
        ends = await asyncio.gather(*(_end(runtime, key, user_id, deadline) for key, _ in page.sessions))
        ended += sum(ends)
        after = page.after
        if not after:
            return ended


async def _end(runtime: Runtime, key: SessionKey, user_id: str, deadline: float | None) -> bool:
    return await runtime.committer.run(
        key,
        lambda record, _known: changes.plan_erase(record, key, user_id),
        deadline=deadline,
        expired_too=True,
    )
