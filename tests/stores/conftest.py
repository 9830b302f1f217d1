"""A store of each adapter in turn."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from memoryd_server.stores.base import Store
from memoryd_server.stores.records import SessionKey
from memoryd_server.stores.registry import create_store
from tests.adapters import EACH_ADAPTER, Adapter
from tests.stores.builders import Session

OpenStore = Callable[[], Awaitable[Store]]
NewSession = Callable[..., Session]


@pytest.fixture(params=EACH_ADAPTER)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    """Each adapter in turn; a test that needs servers on one database asks for EACH_SHARED_ADAPTER."""
    found: Adapter = request.param
    return found


@pytest.fixture
def anew() -> bool:
    """Whether the test's data is to be new, without any tables; by its own fixture or parameter, a test says so."""
    return False


@pytest.fixture
def store_url(adapter: Adapter, anew: bool, tmp_path: Path) -> Iterator[str]:
    """Where the test's data is, empty at first."""
    with adapter.data(tmp_path) if anew else adapter.emptied(tmp_path) as url:
        yield url


@pytest.fixture
async def open_store(adapter: Adapter, store_url: str) -> AsyncIterator[OpenStore]:
    """Opens stores on the test's data: each is a server of its own."""
    async with AsyncExitStack() as opened:

        async def open_one() -> Store:
            store = create_store("test", adapter.type, store_url)
            await store.open()
            opened.push_async_callback(store.close)
            return store

        yield open_one


@pytest.fixture
async def store(open_store: OpenStore) -> Store:
    """An empty store."""
    return await open_store()


@pytest.fixture
def new_session(store: Store) -> NewSession:
    """Makes sessions that are not born yet."""
    numbers = itertools.count(1)

    def make(session_id: str | None = None, agent: str = "agent", tenant: str = "tenant") -> Session:
        return Session(store, SessionKey(tenant, agent, session_id or f"session-{next(numbers)}"))

    return make


@pytest.fixture
def session(new_session: NewSession) -> Session:
    """A session that is not born yet."""
    return new_session("session")
