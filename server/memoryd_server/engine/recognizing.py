"""Recognizes what is repeated, in sessions that were copied from another store too: the digests of their look-ups are
keyed with that store's secret, which this one has adopted (design section 3, "Stores by name").
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.replay import Secrets
from memoryd_server.engine.runtime import Runtime

Answer = TypeVar("Answer")

_UNRECOGNIZED: Final = {Reason.MESSAGE_ID_CONFLICT, Reason.REQUEST_ID_CONFLICT}


async def recognizing(runtime: Runtime, attempt: Callable[[Secrets], Awaitable[Answer]]) -> Answer:
    """Attempts a call whose repetition gets its first answer: with the store's own secret, and where an id is known for
    something else by that, with the adopted ones too. Most stores have none; they are read only then, and anew, since
    another process may just have adopted one.

    Raises: what the attempt raises; StoreUnavailable.
    """
    own = runtime.info.secret
    try:
        return await attempt((own,))
    except RequestError as error:
        if error.reason not in _UNRECOGNIZED:
            raise
        adopted = await runtime.store.adopted_secrets()
        if not adopted:
            raise
    return await attempt((own, *adopted))
