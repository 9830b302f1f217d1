"""The adapters, and a store of each in turn: a new adapter needs one entry here to pass the whole suite."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from memoryd_server.stores.base import Store
from memoryd_server.stores.records import SessionKey
from memoryd_server.stores.registry import create_store
from tests.stores.builders import Session


@dataclass(frozen=True)
class Adapter:
    """A kind of store under test."""

    type: str
    url: Callable[[Path], str]
    """Where the data of a test is, given a directory of its own."""
    shared: bool
    """Whether several stores on one URL are one: how tests play several servers, and a restart."""


ADAPTERS = (
    Adapter("in_memory", url=lambda _: "memory://", shared=False),
    Adapter("sqlite", url=lambda directory: f"sqlite:///{directory}/memoryd.db", shared=True),
)
SHARED_ADAPTERS = tuple(adapter for adapter in ADAPTERS if adapter.shared)

OpenStore = Callable[[], Awaitable[Store]]
NewSession = Callable[..., Session]


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.type)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    """Each adapter in turn; a test that needs servers on one database asks for SHARED_ADAPTERS."""
    found: Adapter = request.param
    return found


@pytest.fixture
async def open_store(adapter: Adapter, tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Opens stores on the test's data: each is a server of its own."""
    async with AsyncExitStack() as opened:

        async def open_one() -> Store:
            store = create_store("test", adapter.type, adapter.url(tmp_path))
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
