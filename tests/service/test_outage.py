"""A database that goes away in the middle of load and comes back: callers are told to come again, memoryd goes on by
itself, and what was acknowledged is there, once (invariants 2, 3, 12 and 16)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from memoryd.v1 import store_service_pb2 as stores
from tests.adapters import ADAPTERS
from tests.conftest import StartServer
from tests.databases.kind import Kind
from tests.databases.plugin import StartDatabaseServer, on
from tests.databases.servers import OwnServer
from tests.servers import MEMORYD, memoryd_environment
from tests.service.load import CALL_SECONDS, CALLS, Load, check_failures, check_stored
from tests.service.test_rebirth import wait_for
from tests.service.wire import Stubs

START_SECONDS: Final = 60


@contextmanager
def stopped(server: OwnServer) -> Iterator[None]:
    server.stop()
    yield
    server.start()


@contextmanager
def killed(server: OwnServer) -> Iterator[None]:
    server.kill()
    yield
    server.start()


on_each_kind: Final = pytest.mark.parametrize(
    "kind", on(adapter.database for adapter in ADAPTERS if adapter.database and adapter.is_atomic)
)
OUTAGES: Final = {"stopped": stopped, "killed": killed, "hanging": OwnServer.hanging}


def health_of(stubs: Stubs) -> int:
    health: Any = health_pb2_grpc.HealthStub(stubs.channel)
    return int(health.Check(health_pb2.HealthCheckRequest(), timeout=CALL_SECONDS).status)


def is_reachable(stubs: Stubs) -> bool:
    return stubs.stores.GetStore(stores.GetStoreRequest(), timeout=CALL_SECONDS).store.reachable


@pytest.mark.parametrize("outage", OUTAGES)
@on_each_kind
def test_an_outage_is_told_and_survived(
    start_database_server: StartDatabaseServer, start_server: StartServer, kind: Kind, outage: str
) -> None:
    database_server = start_database_server(kind)
    with database_server.new_database() as url:
        server = start_server("--store", f"default={url}", "--tokenizer", "estimate")
        load = Load([server.address])
        with Stubs(server.address) as stubs:
            with load.running():
                wait_for(load.answered_anew())
                assert not load.failures
                with OUTAGES[outage](database_server):
                    wait_for(lambda: all(load.failed(call) >= 2 for call in CALLS))
                    assert health_of(stubs) == health_pb2.HealthCheckResponse.NOT_SERVING
                    assert not is_reachable(stubs)
                wait_for(load.answered_anew())
                wait_for(lambda: health_of(stubs) == health_pb2.HealthCheckResponse.SERVING)
                assert is_reachable(stubs)

            check_failures(load)
            check_stored(stubs, load)


@pytest.mark.parametrize("outage", OUTAGES)
@on_each_kind
def test_a_server_whose_database_is_away_says_so_and_does_not_start(
    start_database_server: StartDatabaseServer, kind: Kind, outage: str
) -> None:
    """It ends rather than wait: whoever started it starts it again."""
    database_server = start_database_server(kind)
    with database_server.new_database() as url:
        scheme, _, rest = url.partition("://")
        user, _, address = rest.rpartition("@")
        with_password = f"{scheme}://{user or 'somebody'}:hunter2@{address}"
        with OUTAGES[outage](database_server):
            ended = subprocess.run(
                [MEMORYD, "serve", "--listen", "127.0.0.1:0", "--store", f"default={with_password}"],
                env=memoryd_environment(),
                capture_output=True,
                text=True,
                timeout=START_SECONDS,
                check=False,
            )
    assert ended.returncode == 2
    assert "memoryd cannot start: store 'default'" in ended.stderr
    assert "does not answer" in ended.stderr
    assert "hunter2" not in ended.stderr
    assert "Traceback" not in ended.stderr
