"""The store's time, read without asking the store each time."""

from __future__ import annotations

import time
from typing import Final

from memoryd_server.stores.base import Store

RESYNC_SECONDS: Final = 30.0
"""How often the clock is set anew: two machines drift by well under a millisecond in that time."""


class StoreClock:
    """Follows `Store.now()` by the difference to this machine's clock. Until the first `sync` it is this machine's."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._offset = 0
        self.error = 0
        """By how many microseconds it may be wrong: half of what asking the store took."""

    async def sync(self) -> None:
        """Asks the store. Raises: StoreUnavailable; the clock then goes on as it was."""
        before = _machine_time()
        store_time = await self._store.now()
        after = _machine_time()
        self.error = (after - before + 1) // 2
        offset = store_time - (before + after) // 2
        # A difference within the error is none: stores whose clock is this machine's keep its time.
        self._offset = offset if abs(offset) > self.error else 0

    def now(self) -> int:
        """The store's time in microseconds since the Unix epoch."""
        return _machine_time() + self._offset

    def surely(self) -> int:
        """The earliest time that it may be for the store: what has passed by then has passed."""
        return self.now() - self.error


def _machine_time() -> int:
    return time.time_ns() // 1_000
