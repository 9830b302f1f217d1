"""A pool of connections that calls share, for drivers whose own pool cannot be waited for with patience.

asyncmy's pool connects while it holds its lock: one server that does not answer would make every call wait for it,
those for which a connection is free included.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, Generic, Protocol, TypeVar

from memoryd_server.stores.base import PoolStatus, StoreUnavailable

IDLE_SECONDS: Final = 300.0
"""A connection that was idle for longer is not used again: a firewall between may have forgotten it."""


class Poolable(Protocol):
    """A connection."""

    @property
    def is_usable(self) -> bool:
        """Whether another call may have it: it is connected, and nothing of the call before is under way."""

    def abort(self) -> None:
        """Closes it at once, whatever is under way."""

    async def close(self) -> None:
        """Ends it in order. Raises nothing."""


Connection = TypeVar("Connection", bound=Poolable)


class ConnectionPool(Generic[Connection]):
    """Up to `size` connections, made when they are needed. Of those that are free, the one used last goes first."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], size: int) -> None:
        self._connect = connect
        self._size = size
        self._free: list[tuple[Connection, float]] = []
        self._used: set[Connection] = set()
        self._connecting = 0
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        self._closed = False

    def status(self) -> PoolStatus:
        waiting = sum(not turn.done() for turn in [*self._waiting])  # A copy, since other threads ask too.
        return PoolStatus(size=self._size, in_use=len(self._used) + self._connecting, waiting=waiting)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for the time of the block. What the block leaves unusable is closed.

        Raises: StoreUnavailable after `close`; what connecting raises.
        """
        connection = await self._acquire()
        try:
            yield connection
        finally:
            self._release(connection)

    def drop_free(self) -> None:
        """Closes the connections that nobody uses: they lead to where nobody wants to go any more."""
        for connection, _ in self._free:
            connection.abort()
        self._free.clear()

    async def close(self) -> None:
        """Closes the free connections now, the others when they come back."""
        self._closed = True
        while self._waiting:
            self._wake(None)
        free = [connection for connection, _ in self._free]
        self._free.clear()
        await asyncio.gather(*(connection.close() for connection in free))

    async def _acquire(self) -> Connection:
        while not self._closed:
            while self._free:
                connection, since = self._free.pop()
                if connection.is_usable and time.monotonic() - since < IDLE_SECONDS:
                    self._used.add(connection)
                    return connection
                connection.abort()
            if len(self._used) + self._connecting < self._size:
                return await self._open()
            handed = await self._wait()
            if handed is not None:
                return handed
        raise StoreUnavailable("The store is closed.")

    async def _open(self) -> Connection:
        self._connecting += 1
        try:
            connection = await self._connect()
        except BaseException:
            self._connecting -= 1
            self._wake(None)
            raise
        self._connecting -= 1
        self._used.add(connection)
        return connection

    async def _wait(self) -> Connection | None:
        """Waits for a connection, or for the room to open one (None)."""
        turn: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except BaseException:
            # Whoever is cancelled in his turn passes it on.
            if turn.done() and not turn.cancelled():
                handed = turn.result()
                if handed is None:
                    self._wake(None)
                else:
                    self._release(handed)
            raise

    def _release(self, connection: Connection) -> None:
        if self._closed or not connection.is_usable:
            connection.abort()
            self._used.discard(connection)
            self._wake(None)
        elif not self._wake(connection):
            self._used.discard(connection)
            self._free.append((connection, time.monotonic()))

    def _wake(self, connection: Connection | None) -> bool:
        """Gives the one who waits longest his turn, with a connection or with the room for one."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return True
        return False
