"""The store's time, read without asking the store each time."""

from __future__ import annotations

import time
from typing import Final

from memoryd_server.stores.base import Store

RESYNC_SECONDS: Final = 30.0
"""How often the clock is set anew: two machines drift by well under a millisecond in that time."""

SAMPLES: Final = 5
"""How often the store is asked at most, until an answer is quick: the first may wait for a connection, and any of them
for a busy machine."""

QUICK_MICROSECONDS: Final = 2_000
"""An answer that took no longer is as good as any."""


class StoreClock:
    """Follows `Store.now()` by the difference to this machine's clock. Until the first `sync` it is this machine's."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._offset = 0
        self.error = 0
        """By how many microseconds it may be wrong: half of what the quickest answer took, and what that leaves out."""

    async def sync(self) -> None:
        """Asks the store. Raises: StoreUnavailable; the clock then goes on as it was."""
        quickest, offset = await self._sample()
        for _ in range(SAMPLES - 1):
            if quickest <= QUICK_MICROSECONDS:
                break
            quickest, offset = min((quickest, offset), await self._sample())
        self.error = (quickest + 1) // 2 + self._store.clock_step - 1
        # A difference within the error is none: stores whose clock is this machine's keep its time.
        self._offset = offset if abs(offset) > self.error else 0

    async def _sample(self) -> tuple[int, int]:
        """How long the store took to tell its time, and by how much that is ahead of this machine's."""
        before = _machine_time()
        store_time = await self._store.now()
        after = _machine_time()
        return after - before, store_time - (before + after) // 2

    def now(self) -> int:
        """The store's time in microseconds since the Unix epoch."""
        return _machine_time() + self._offset

    def surely(self) -> int:
        """The earliest time that it may be for the store: what has passed by then has passed."""
        return self.now() - self.error

    def perhaps(self) -> int:
        """The latest time that it may be for the store: what has not come by then has not come."""
        return self.now() + self.error


def _machine_time() -> int:
    return time.time_ns() // 1_000
