"""Fixtures of the command line's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memoryd import MemoryClient
from tests.cli.commands import Here
from tests.servers import ServerProcess


@pytest.fixture
def client(server: ServerProcess) -> Iterator[MemoryClient]:
    """A client of the server."""
    with MemoryClient(server.address) as client:
        yield client


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """Runs commands in this process."""
    return Here(monkeypatch, capsys)
