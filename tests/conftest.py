"""Fixtures of all tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.servers import ServerProcess

# Fixed seeds: a failure repeats on every machine. `print_blob` prints what reproduces it.
settings.register_profile(
    "memoryd", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("memoryd")

StartServer = Callable[..., ServerProcess]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server on a SQLite file, shared by the tests of a worker: each uses agents of its own."""
    directory = tmp_path_factory.mktemp("server")
    process = ServerProcess("--data-dir", str(directory), log=directory / "server.log")
    yield process
    process.close()


@pytest.fixture(scope="session")
def in_memory_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server on the in-memory store, shared likewise."""
    directory = tmp_path_factory.mktemp("in-memory-server")
    process = ServerProcess("--store", "default=memory://", log=directory / "server.log")
    yield process
    process.close()


@pytest.fixture(params=["sqlite", "in_memory"])
def any_server(request: pytest.FixtureRequest) -> ServerProcess:
    """A server on each store in turn."""
    name = {"sqlite": "server", "in_memory": "in_memory_server"}[request.param]
    found: ServerProcess = request.getfixturevalue(name)
    return found


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Starts servers of a test's own: `start_server("--data-dir", …, environment={…})`."""
    started: list[ServerProcess] = []
    numbers = itertools.count(1)

    def start(*arguments: str, **options: object) -> ServerProcess:
        process = ServerProcess(*arguments, log=tmp_path / f"server-{next(numbers)}.log", **options)  # type: ignore[arg-type]
        started.append(process)
        return process

    yield start
    for process in started:
        process.close()


_agents = itertools.count(1)


@pytest.fixture
def agent(request: pytest.FixtureRequest) -> str:
    """An agent that no other test uses."""
    return f"{request.node.name[:80]}-{next(_agents)}"
