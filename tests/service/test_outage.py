"""A database that goes away in the middle of load and comes back: callers are told to come again, memoryd goes on by
itself, and what was acknowledged is there, once (invariants 2, 3, 12 and 16)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from memoryd.v1 import memory_context_service_pb2 as memory
from memoryd.v1 import store_service_pb2 as stores
from tests.adapters import ADAPTERS
from tests.conftest import StartServer
from tests.databases.kind import Kind
from tests.databases.plugin import StartDatabaseServer, on
from tests.databases.servers import OwnServer
from tests.servers import MEMORYD, memoryd_environment
from tests.service import memory_calls as files
from tests.service.load import CALL_SECONDS, CALLS, Load, check_failures, check_stored
from tests.service.test_rebirth import wait_for
from tests.service.wire import Stubs, refused

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
OWNER: Final = files.user("ana")
OUTAGES: Final = {"stopped": stopped, "killed": killed, "hanging": OwnServer.hanging}


def health_of(stubs: Stubs) -> int:
    health: Any = health_pb2_grpc.HealthStub(stubs.channel)
    return int(health.Check(health_pb2.HealthCheckRequest(), timeout=CALL_SECONDS).status)


def is_reachable(stubs: Stubs) -> bool:
    return stubs.stores.GetStore(stores.GetStoreRequest(), timeout=CALL_SECONDS).store.reachable


def check_memory_call_without_a_store(stubs: Stubs, call: Callable[[Stubs, memory.MemoryOwner], object]) -> None:
    """Files are never taken for missing or empty (invariant 12)."""
    refusal = refused(lambda: call(stubs, OWNER))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")


def check_rendering_without_a_store(stubs: Stubs) -> None:
    """Of memory that is rendered, the store's part is left out, and that is told."""
    answer = files.render(stubs, files.Source(stored=OWNER.user_id), files.Source(text="- inline"))
    assert answer.user.state == memory.MEMORY_TIER_STATE_UNREADABLE
    assert answer.warnings == ["User memory could not be read: the store did not answer"]
    assert answer.project.state == memory.MEMORY_TIER_STATE_LOADED
    assert "- inline" in answer.block


def check_another_does_not_start(url: str) -> None:
    """A server that finds its database away says so, and ends rather than wait: whoever started it starts it again."""
    scheme, _, rest = url.partition("://")
    user, _, address = rest.rpartition("@")
    with_password = f"{scheme}://{user or 'somebody'}:hunter2@{address}"
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


@pytest.mark.parametrize("outage", OUTAGES)
@on_each_kind
def test_an_outage_is_told_and_survived_and_lets_no_other_server_start(
    start_database_server: StartDatabaseServer, start_server: StartServer, kind: Kind, outage: str
) -> None:
    """What is asked meanwhile is asked at once: each answer may take as long as the database has to give one."""
    database_server = start_database_server(kind)
    with database_server.new_database() as url, ThreadPoolExecutor() as threads:
        server = start_server("--store", f"default={url}", "--tokenizer", "estimate")
        load = Load([server.address])
        with Stubs(server.address) as stubs:
            files.put(stubs, OWNER, b"- kept\n")
            with load.running():
                wait_for(load.answered_anew())
                assert not load.failures
                with OUTAGES[outage](database_server):
                    checks = [
                        *(
                            threads.submit(check_memory_call_without_a_store, stubs, call)
                            for call in (files.get, files.pages, partial(files.put, content=b"- new\n"))
                        ),
                        threads.submit(check_rendering_without_a_store, stubs),
                        threads.submit(check_another_does_not_start, url),
                    ]
                    wait_for(lambda: all(load.failed(call) >= 2 for call in CALLS))
                    assert health_of(stubs) == health_pb2.HealthCheckResponse.NOT_SERVING
                    assert not is_reachable(stubs)
                    for check in checks:
                        check.result()
                wait_for(load.answered_anew())
                wait_for(lambda: health_of(stubs) == health_pb2.HealthCheckResponse.SERVING)
                assert is_reachable(stubs)

            check_failures(load)
            check_stored(stubs, load)
            assert files.render(stubs, files.Source(stored=OWNER.user_id)).user.kept_line_count == 1
            assert files.content_of(stubs, OWNER) in (b"- kept\n", b"- new\n")
