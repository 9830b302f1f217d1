"""Connections that break at any byte: a call is made or says that the store is unavailable, and never that memoryd
is at fault (invariant 12)."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

import pytest
from sqlalchemy import make_url

from memoryd_server.stores.base import StoreUnavailable, Tail
from memoryd_server.stores.records import SessionKey
from memoryd_server.stores.registry import create_store
from tests.adapters import ADAPTERS, Adapter, parameters
from tests.databases.kinds import MONGODB_CONCURRENT, REDIS_CLUSTER
from tests.stores.builders import USABLE, Session, lookup, message
from tests.stores.counting_proxy import counting_proxy

SEED: Final = 1
CALLS: Final = 300
CALLS_ON_MONGODB: Final = 20
"""Its driver looks for half a second at least before it takes a server for found again."""
CUTS: Final = (60, 600, 6_000)
"""Bytes within which a connection breaks: the hand-shake, an answer's head, a whole answer."""
RESETS: Final = 50
CALL_SECONDS: Final = 30
PLENTY: Final = 1 << 20

BEHIND_ONE_ADDRESS: Final = parameters(
    adapter for adapter in ADAPTERS if adapter.database not in {None, REDIS_CLUSTER, MONGODB_CONCURRENT}
)
"""One of each driver. A cluster's servers tell each other's addresses, which lead past a proxy."""


async def append(session: Session, count: int) -> None:
    """Appends to what is stored, so that whatever became of the append before is known."""
    loaded = await session.store.load(session.key)
    session.record = loaded.record if loaded else None
    first = session.record.last_seq + 1 if session.record else 1
    await session.commit(*map(message, range(first, first + count)), lookups=[lookup(f"{first}")])


@pytest.mark.parametrize("adapter", BEHIND_ONE_ADDRESS)
async def test_a_call_whose_connection_breaks_is_made_or_tells_of_the_store(adapter: Adapter, store_url: str) -> None:
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    async with counting_proxy(store_url) as (proxy, through):
        store = create_store("test", adapter.type, through)
        await store.open()
        count = CALLS_ON_MONGODB if adapter.type == "mongodb" else CALLS
        for number in range(count):
            session = Session(store, SessionKey("tenant", "agent", f"session-{number // 10}"))
            calls: list[Callable[[], Awaitable[object]]] = [
                partial(append, session, 1),
                partial(append, session, 20),
                partial(store.load, session.key),
                partial(store.load, session.key, Tail(USABLE, 20, opening=True, body_bytes=PLENTY)),
                store.ping,
            ]
            proxy.cut_after(
                chance.randint(1, chance.choice(CUTS)),
                asked=chance.random() < 0.5,
                reset=chance.random() < 0.5,
                # While none can be made, a call on MongoDB looks for a server for many seconds.
                once=adapter.type == "mongodb" or chance.random() < 0.5,
            )
            if chance.random() < 0.2:
                proxy.cut()
            async with asyncio.timeout(CALL_SECONDS):
                with suppress(StoreUnavailable):
                    await chance.choice(calls)()
        proxy.mend()
        async with asyncio.timeout(CALL_SECONDS):
            await append(Session(store, SessionKey("tenant", "agent", "session-0")), 1)
        await store.close()
        assert proxy.cuts > count / 4


@contextmanager
def resetting_server() -> Iterator[int]:
    """Accepts connections and breaks them off at once. Yields: its port."""

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as thread:
        thread.submit(accept)
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("adapter", BEHIND_ONE_ADDRESS)
async def test_a_server_that_breaks_new_connections_off_is_unavailable(adapter: Adapter, store_url: str) -> None:
    """As one does that is killed while it has connections that it did not take up."""
    with resetting_server() as port:
        url = make_url(store_url).set(host="127.0.0.1", port=port).render_as_string(hide_password=False)
        for _ in range(1 if adapter.type == "mongodb" else RESETS):
            with pytest.raises(StoreUnavailable):
                await create_store("test", adapter.type, url).open()
