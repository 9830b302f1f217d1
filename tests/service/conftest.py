"""Fixtures of the service's tests: stubs and SDK clients on the servers of `tests/conftest.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memoryd import MemoryClient
from tests.servers import ServerProcess
from tests.service.wire import Stubs


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
