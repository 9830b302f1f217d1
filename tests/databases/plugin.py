"""Database servers in pytest: started for the tests that are marked to need them, named at the end where missing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.mark import ParameterSet

from tests.databases import shared
from tests.databases.cluster import OwnCluster
from tests.databases.kind import Kind
from tests.databases.kinds import KINDS, REDIS_CLUSTER, SQL_KINDS
from tests.databases.servers import OwnServer
from tests.databases.shared import SharedServers, SharedServersHolder

StartDatabaseServer = Callable[[Kind], OwnServer]


def on(kinds: Iterable[Kind]) -> list[ParameterSet]:
    """Parameters of a test that is about each of some kinds of database servers."""
    return [pytest.param(kind, id=kind.name, marks=kind.mark) for kind in kinds]


ON_EACH_KIND: Final = on(KINDS)
ON_EACH_SQL_KIND: Final = on(SQL_KINDS)

_WORKER_INPUT: Final = "memoryd_databases"


def pytest_configure(config: pytest.Config) -> None:
    for kind in KINDS:
        config.addinivalue_line("markers", f"{kind.name}: needs {kind.title}")
    worker_input = getattr(config, "workerinput", None)
    if worker_input is None:
        holder = SharedServersHolder()
        config.add_cleanup(holder.close)
        shared.use(holder)
    else:
        directory, given_urls = worker_input[_WORKER_INPUT]
        shared.use(SharedServers(Path(directory), given_urls))
    config.add_cleanup(shared.of_this_run().drop_used)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    servers = shared.of_this_run()
    node.workerinput[_WORKER_INPUT] = (str(servers.directory), dict(servers.given_urls))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Starts what the chosen tests need, so that it is ready when they come to it."""
    if session.config.option.collectonly:
        return
    for kind in KINDS:
        if any(item.get_closest_marker(kind.name) for item in session.items):
            shared.of_this_run().start(kind)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names the databases for want of which tests were skipped or failed."""
    stats = terminalreporter.stats
    told = [str(report.longrepr) for outcome in ("skipped", "failed", "error") for report in stats.get(outcome, ())]
    for kind, to_be_stopped in itertools.product(KINDS, (False, True)):
        reason = shared.of_this_run().missing(kind, to_be_stopped=to_be_stopped)
        if reason and (count := sum(reason in text for text in told)):
            terminalreporter.section(f"Not run for want of {kind.title}: {count}", yellow=True)
            terminalreporter.line(reason)


@pytest.fixture
def start_database_server() -> Iterator[StartDatabaseServer]:
    """Starts database servers of a test's own, to be stopped, killed and started again."""
    with ExitStack() as started:

        def start(kind: Kind) -> OwnServer:
            shared.of_this_run().require(kind, to_be_stopped=True)
            return started.enter_context(OwnServer(kind))

        yield start


@pytest.fixture
def redis_cluster() -> Iterator[OwnCluster]:
    """A Redis Cluster of a test's own."""
    shared.of_this_run().require(REDIS_CLUSTER, to_be_stopped=True)
    with OwnCluster() as cluster:
        yield cluster
