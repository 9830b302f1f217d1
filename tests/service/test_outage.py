"""A database that goes away in the middle of load and comes back: callers are told to come again, memoryd goes on by
itself, and what was acknowledged is there, once (invariants 2, 3, 12 and 16)."""

from __future__ import annotations

import itertools
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import session_pb2 as session
from memoryd.v1 import store_service_pb2 as stores
from memoryd.v1 import window_service_pb2 as window
from memoryd.v1.policy_pb2 import WindowOptions
from tests.adapters import ADAPTERS
from tests.conftest import StartServer
from tests.databases.kind import Kind
from tests.databases.plugin import StartDatabaseServer, on
from tests.databases.servers import OwnServer
from tests.servers import MEMORYD, memoryd_environment
from tests.service.test_rebirth import wait_for
from tests.service.wire import Refusal, Stubs, refusal_of, seqs, text

CALL_SECONDS: Final = 10
"""The deadline of each call. What ends later is told by gRPC itself, without reason and hint."""
SLACK_SECONDS: Final = 2
"""What a busy machine may add."""
START_SECONDS: Final = 60

WRITERS: Final = 3
BATCH: Final = 2


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


@dataclass(frozen=True)
class Failure:
    call: str
    refusal: Refusal
    seconds: float


@dataclass
class Load:
    """Callers of all kinds, each of which goes on until it is stopped, whatever it is told."""

    address: str
    stop: threading.Event = field(default_factory=threading.Event)
    answered: Counter[str] = field(default_factory=Counter)
    """How many calls were answered, by kind."""
    failures: list[Failure] = field(default_factory=list)
    acknowledged: dict[str, int] = field(default_factory=dict)
    """The seq of each message whose append was answered, by its id."""

    @contextmanager
    def running(self) -> Iterator[None]:
        with ThreadPoolExecutor(WRITERS + len(READS) + 1) as threads:
            callers = [threads.submit(self._write, key(f"of writer {number}")) for number in range(WRITERS)]
            callers += [threads.submit(self._read, call) for call in READS]
            callers.append(threads.submit(self._begin_sessions))
            try:
                yield
            finally:
                self.stop.set()
            for each in callers:
                each.result()

    def _write(self, to: session.SessionKey) -> None:
        with Stubs(self.address) as stubs:
            for number in self._until_stopped():
                self._append(APPEND, stubs, to, f"{to.session_id}, {number}")

    def _begin_sessions(self) -> None:
        with Stubs(self.address) as stubs:
            for number in self._until_stopped():
                self._append(BEGIN, stubs, key(f"new {number}"), f"new {number}")

    def _read(self, call: str) -> None:
        """A read that cannot be made is an error: what is answered is never less than what was acknowledged."""
        of = key("of writer 0")
        with Stubs(self.address) as stubs:
            wait_for(lambda: self.answered[of.session_id] > 0)
            for _ in self._until_stopped():
                least = self.answered[of.session_id] * BATCH
                found = self._attempt(call, partial(READS[call], stubs, of))
                assert found is None or found >= least

    def _until_stopped(self) -> Iterator[int]:
        return itertools.takewhile(lambda _: not self.stop.is_set(), itertools.count())

    def _append(self, call: str, stubs: Stubs, to: session.SessionKey, name: str) -> None:
        """Appends a batch, and repeats it until it is answered."""
        ids = [f"{name}/{place}" for place in range(BATCH)]
        request = history.AppendMessagesRequest(session=to, messages=[text(id_, id=id_) for id_ in ids])
        append = partial(stubs.histories.AppendMessages, request, timeout=CALL_SECONDS)
        while (answer := self._attempt(call, append)) is None:
            if self.stop.is_set():
                return
        assert [message.id for message in answer.messages] == ids
        self.acknowledged.update((message.id, message.seq) for message in answer.messages)
        self.answered[to.session_id] += 1

    def _attempt(self, call: str, make: Callable[[], Any]) -> Any:
        begun = time.monotonic()
        try:
            answer = make()
        except grpc.RpcError as error:
            self.failures.append(Failure(call, refusal_of(error), time.monotonic() - begun))
            return None
        self.answered[call] += 1
        return answer

    def failed(self, call: str) -> int:
        return sum(each.call == call for each in list(self.failures))


APPEND: Final = "append"
BEGIN: Final = "begin a session"
READS: Final[dict[str, Callable[[Stubs, session.SessionKey], int]]] = {
    "get the session": lambda stubs, of: (
        stubs.histories.GetSession(history.GetSessionRequest(session=of), timeout=CALL_SECONDS).session.message_count
    ),
    "load a window": lambda stubs, of: (
        stubs.windows.LoadWindow(
            window.LoadWindowRequest(session=of, options=WindowOptions(limit=5)), timeout=CALL_SECONDS
        ).stats.history_message_count
    ),
    "list messages": lambda stubs, of: (
        stubs.histories.ListMessages(
            history.ListMessagesRequest(session=of, page_size=5, order=history.LIST_ORDER_DESCENDING),
            timeout=CALL_SECONDS,
        )
        .messages[0]
        .seq
    ),
    "list sessions": lambda stubs, of: (
        1_000_000
        * len(
            stubs.histories.ListSessions(
                history.ListSessionsRequest(agent=of.agent, page_size=1), timeout=CALL_SECONDS
            ).sessions
        )
    ),
}
CALLS: Final = (APPEND, BEGIN, *READS)


def key(session_id: str) -> session.SessionKey:
    return session.SessionKey(agent="agent", session_id=session_id)


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
        load = Load(server.address)

        def answered_anew() -> Callable[[], bool]:
            enough = {call: load.answered[call] + 3 for call in CALLS}
            return lambda: all(load.answered[call] >= enough[call] for call in CALLS)

        with Stubs(server.address) as stubs:
            with load.running():
                wait_for(answered_anew())
                assert not load.failures
                with OUTAGES[outage](database_server):
                    wait_for(lambda: all(load.failed(call) >= 2 for call in CALLS))
                    assert health_of(stubs) == health_pb2.HealthCheckResponse.NOT_SERVING
                    assert not is_reachable(stubs)
                wait_for(answered_anew())
                wait_for(lambda: health_of(stubs) == health_pb2.HealthCheckResponse.SERVING)
                assert is_reachable(stubs)

            told = {(each.refusal.code, each.refusal.reason) for each in load.failures}
            assert told == {(grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")}
            assert all((each.refusal.retry_seconds or 0) > 0 for each in load.failures)
            assert max(each.seconds for each in load.failures) < CALL_SECONDS + SLACK_SECONDS
            check_stored(stubs, load)


def check_stored(stubs: Stubs, load: Load) -> None:
    """Every batch was repeated until it was answered: all of them are stored, once, in the places that were told."""
    request = history.ListSessionsRequest(agent="agent", page_size=1_000)
    stored: dict[str, int] = {}
    while True:
        page = stubs.histories.ListSessions(request)
        for each in page.sessions:
            listed = stubs.messages(each.key, page_size=1_000)
            assert seqs(listed) == list(range(1, each.message_count + 1))
            assert not stored.keys() & {message.id for message in listed}
            stored |= {message.id: message.seq for message in listed}
        request.page_token = page.next_page_token
        if not request.page_token:
            break
    assert stored == load.acknowledged


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
