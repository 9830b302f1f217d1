"""Fixtures of the SDK's tests."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import cast

import pytest

from memoryd import AsyncMemoryClient, MemoryClient
from tests.sdk.awaited import Awaited
from tests.sdk.scripted_server import ScriptedServer
from tests.servers import ServerProcess

Connect = Callable[..., AsyncMemoryClient]


@pytest.fixture(params=["sync", "async"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Makes clients, sync ones and async ones in turn, all to be used as async ones."""
    made: list[AsyncMemoryClient] = []

    def make(address: str, **options: object) -> AsyncMemoryClient:
        if request.param == "async":
            client = AsyncMemoryClient(address, **options)  # type: ignore[arg-type]
        else:
            client = cast(AsyncMemoryClient, Awaited(MemoryClient(address, **options)))  # type: ignore[arg-type]
        made.append(client)
        return client

    yield make
    for client in made:
        await client.close()


@pytest.fixture
def memory(connect: Connect, server: ServerProcess) -> AsyncMemoryClient:
    """A client of a real server, sync and async in turn."""
    return connect(server.address)


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    """A server whose answers the test writes."""
    server = ScriptedServer()
    yield server
    server.stop()
