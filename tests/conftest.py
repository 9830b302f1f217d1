"""Fixtures of all tests."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from tests.adapters import ADAPTERS, EACH_ATOMIC_ADAPTER
from tests.files_in_memory import keep_files_in_memory
from tests.servers import ServerProcess

pytest_plugins = ["tests.databases.plugin", "tests.summarizers.plugin"]

SHOWN_LOG_CHARACTERS: Final = 8_000
"""Of the errors in each server's log, beside a test that fails."""
_LOGGED_ERROR: Final = re.compile(r"^\S+ \[(?:error|critical).*\n(?:(?!\S+ \[\w).*\n)*", re.MULTILINE)
"""With its traceback: all lines up to that of the next entry."""

# Fixed seeds: a failure repeats on every machine. `print_blob` prints what reproduces it.
settings.register_profile(
    "memoryd", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("memoryd")

# Where the environment says so, Python keeps no compiled modules: then each of the hundreds of processes that the tests
# start compiles all that it imports, which takes longer than its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

keep_files_in_memory()


ON_THE_LOOP_OF_SERVERS: Final = ("engine", "service", "stores", "summarizers")
"""Folders whose coroutines run on the event loop that memoryd runs on: it breaks off connections in other ways than
that of the standard library, on which users of the SDK mostly are."""


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    return (
        {"uvloop": uvloop.new_event_loop} if folder in ON_THE_LOOP_OF_SERVERS else {"asyncio": asyncio.new_event_loop}
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: a fifth of the time, a test waits for a disk, a clock or another process."""
    return (os.cpu_count() or 1) + 1


StartServer = Callable[..., ServerProcess]
ServerOn = Callable[[str], ServerProcess]


@pytest.fixture(scope="session")
def server_on(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerOn]:
    """Servers on a store of each adapter, by its name, each shared by the tests of a worker: these use agents of their
    own."""
    adapters = {adapter.name: adapter for adapter in ADAPTERS}
    with ExitStack() as running:

        @cache
        def start(name: str) -> ServerProcess:
            directory = tmp_path_factory.mktemp(f"server-on-{name}")
            url = running.enter_context(adapters[name].data(directory))
            process = ServerProcess("--store", f"default={url}", log=directory / "server.log")
            running.callback(process.close)
            return process

        yield start


@pytest.fixture(scope="session")
def server(server_on: ServerOn) -> ServerProcess:
    """The server on a SQLite file, for what does not depend on the store."""
    return server_on("sqlite")


@pytest.fixture(scope="session")
def in_memory_server(server_on: ServerOn) -> ServerProcess:
    """The server on the in-memory store."""
    return server_on("in_memory")


@pytest.fixture(params=EACH_ATOMIC_ADAPTER)
def any_server(request: pytest.FixtureRequest, server_on: ServerOn) -> ServerProcess:
    """A server on each adapter in turn."""
    return server_on(request.param.name)


def logged_errors(log: str) -> str:
    return "".join(_LOGGED_ERROR.findall(log))


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Starts servers of a test's own: `start_server("--data-dir", …, environment={…})`.

    Where a test sets flags alone, and names no tokenizer, tokens are estimated: to read the vocabulary of the default
    tokenizer takes as long as all else of a start.
    """
    started: list[ServerProcess] = []
    numbers = itertools.count(1)

    def start(*arguments: str, **options: object) -> ServerProcess:
        if not {"--tokenizer", "--config"} & {*arguments} and "environment" not in options:
            arguments = (*arguments, "--tokenizer", "estimate")
        process = ServerProcess(*arguments, log=tmp_path / f"server-{next(numbers)}.log", **options)  # type: ignore[arg-type]
        started.append(process)
        return process

    yield start
    for process in started:
        process.close()
        # Shown with a test that fails: a fault that comes once in a hundred runs leaves nothing else behind.
        print(logged_errors(process.log_text())[-SHOWN_LOG_CHARACTERS:], file=sys.stderr)


_agents = itertools.count(1)


@pytest.fixture
def agent(request: pytest.FixtureRequest) -> str:
    """An agent that no other test uses."""
    return f"{request.node.name[:80]}-{next(_agents)}"
