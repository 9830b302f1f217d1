"""Who waits for sessions to change: this server's commits wake watchers at once; for those of others they look by
themselves.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from memoryd_server.stores.records import SessionKey


class WatchedSessions:
    """The watchers of a store's sessions in this server."""

    def __init__(self) -> None:
        self._watchers: defaultdict[SessionKey, set[asyncio.Event]] = defaultdict(set)
        self.count = 0

    def wake(self, key: SessionKey) -> None:
        """Wakes those who wait for the session."""
        for changed in self._watchers.get(key, ()):
            changed.set()

    @contextmanager
    def watching(self, key: SessionKey) -> Iterator[asyncio.Event]:
        """An event that is set whenever this server has changed the session; its user clears it."""
        changed = asyncio.Event()
        self._watchers[key].add(changed)
        self.count += 1
        try:
            yield changed
        finally:
            self.count -= 1
            self._watchers[key].discard(changed)
            if not self._watchers[key]:
                del self._watchers[key]
