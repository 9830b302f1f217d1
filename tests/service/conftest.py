"""Fixtures of the service's tests: stubs and SDK clients on the servers of `tests/conftest.py`, pairs of servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from memoryd import MemoryClient
from tests.adapters import ADAPTERS, EACH_SHARED_ADAPTER
from tests.servers import ServerProcess
from tests.service.wire import Stubs

Addresses = tuple[str, str]


@pytest.fixture
def stubs(any_server: ServerProcess) -> Iterator[Stubs]:
    """Bare stubs on a server of each store in turn."""
    with Stubs(any_server.address) as stubs:
        yield stubs


@pytest.fixture
def sqlite_stubs(server: ServerProcess) -> Iterator[Stubs]:
    """Bare stubs on a server with a SQLite file, for what does not depend on the store."""
    with Stubs(server.address) as stubs:
        yield stubs


@pytest.fixture
def client(any_server: ServerProcess) -> Iterator[MemoryClient]:
    """The SDK's client on a server of each store in turn."""
    with MemoryClient(any_server.address) as client:
        yield client


@pytest.fixture(scope="session")
def pair_on(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Addresses]]:
    """Two servers on one database of a shared adapter, by its name, shared by the tests of a worker likewise."""
    adapters = {adapter.name: adapter for adapter in ADAPTERS}
    with ExitStack() as running:

        @cache
        def start(name: str) -> Addresses:
            directory = tmp_path_factory.mktemp(f"pair-on-{name}")
            store = f"default={running.enter_context(adapters[name].data(directory))}"
            servers = [
                ServerProcess("--store", store, "--tokenizer", "estimate", log=directory / f"server-{number}.log")
                for number in (1, 2)
            ]
            for server in servers:
                running.callback(server.close)
            return servers[0].address, servers[1].address

        yield start


@pytest.fixture(params=EACH_SHARED_ADAPTER)
def pair(request: pytest.FixtureRequest, pair_on: Callable[[str], Addresses]) -> Addresses:
    """The addresses of two servers on one database of each shared adapter in turn."""
    return pair_on(request.param.name)


@pytest.fixture
def here(pair: Addresses) -> Iterator[Stubs]:
    """Bare stubs on the first of the two."""
    with Stubs(pair[0]) as stubs:
        yield stubs


@pytest.fixture
def there(pair: Addresses) -> Iterator[Stubs]:
    """Bare stubs on the second of the two."""
    with Stubs(pair[1]) as stubs:
        yield stubs
