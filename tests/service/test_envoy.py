"""Two servers on one database behind a real Envoy, upgraded one after the other under load: no call fails (invariant
16), and what was appended is stored once, in its order (invariants 2 and 3)."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from memoryd.v1 import history_service_pb2 as history
from memoryd.v1.policy_pb2 import WINDOW_MODE_MESSAGES, WindowOptions
from memoryd.v1.session_pb2 import Session, SessionKey
from memoryd.v1.window_service_pb2 import LoadWindowRequest
from tests.adapters import ADAPTERS, Adapter, parameters
from tests.conformance import conformance_pb2 as pb
from tests.conformance.drivers import LANGUAGES, Driver, Language, require
from tests.conftest import StartServer
from tests.databases.servers import free_ports
from tests.service.envoy import Envoy
from tests.service.test_rebirth import wait_for
from tests.service.wire import Stubs, seqs, text

CALLERS: Final = 6
WINDOW: Final = 5
NEWEST: Final = WindowOptions(mode=WINDOW_MODE_MESSAGES, limit=WINDOW)
ANEW: Final = 5
"""How many answers to each caller show that all goes on."""

DRAIN_DELAY: Final = "2"
"""Two intervals of the example's health checks."""


class Caller(Protocol):
    """A client on one address, which several threads use at once. What fails raises."""

    def append(self, session_id: str, id_: str) -> int:
        """Appends a message with an id. Returns: its seq."""

    def load_window(self, session_id: str) -> list[str]:
        """The ids of the newest messages of a session, WINDOW at most."""


Connect = Callable[[str, str, Path], AbstractContextManager[Caller]]
"""Given the address, the agent of all sessions, and a file for what it has to say to people."""


@dataclass(frozen=True)
class StubCaller:
    """Bare stubs on a channel that tries nothing again. It also makes a call that nobody may repeat unasked."""

    stubs: Stubs
    agent: str

    def append(self, session_id: str, id_: str) -> int:
        key = SessionKey(agent=self.agent, session_id=session_id)
        (appended,) = self.stubs.append(key, text(id_, id=id_))
        changed = Session(key=key, user_id=f"user of {id_}")
        request = history.UpdateSessionRequest(session=changed, update_mask=FieldMask(paths=["user_id"]))
        assert self.stubs.histories.UpdateSession(request, timeout=30).session.user_id == changed.user_id
        return appended.seq

    def load_window(self, session_id: str) -> list[str]:
        key = SessionKey(agent=self.agent, session_id=session_id)
        return [message.id for message in self.stubs.load(key, limit=WINDOW).messages]


@contextmanager
def bare_stubs(address: str, agent: str, log: Path) -> Iterator[Caller]:
    del log
    with Stubs(address, ("grpc.enable_retries", 0)) as stubs:
        yield StubCaller(stubs, agent)


@dataclass(frozen=True)
class SdkCaller:
    """The SDK of a language, by its driver."""

    driver: Driver
    agent: str

    def append(self, session_id: str, id_: str) -> int:
        request = history.AppendMessagesRequest(session=self._key(session_id), messages=[text(id_, id=id_)])
        (appended,) = self.driver.call(pb.Command(append=request)).appended.messages
        return appended.seq

    def load_window(self, session_id: str) -> list[str]:
        request = LoadWindowRequest(session=self._key(session_id), options=NEWEST)
        return [message.id for message in self.driver.call(pb.Command(load_window=request)).window.messages]

    def _key(self, session_id: str) -> SessionKey:
        return SessionKey(agent=self.agent, session_id=session_id)


@contextmanager
def sdk(language: Language, address: str, agent: str, log: Path) -> Iterator[Caller]:
    require(language)
    driver = Driver(language, log)
    try:
        driver.connect(address)
        yield SdkCaller(driver, agent)
    finally:
        status = driver.close()
    assert status == 0


CONNECTS: Final[dict[str, Connect]] = {
    "bare stubs": bare_stubs,
    **{language.name: partial(sdk, language) for language in LANGUAGES},
}


@dataclass
class Load:
    """Callers that never pause, each with a session of its own."""

    caller: Caller
    stop: threading.Event = field(default_factory=threading.Event)
    appended: dict[str, list[str]] = field(default_factory=lambda: {f"s{number}": [] for number in range(CALLERS)})
    """The ids of the messages whose append was answered, by session."""
    failures: list[str] = field(default_factory=list)
    answered: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def running(self) -> Iterator[None]:
        with ThreadPoolExecutor(CALLERS) as threads:
            calling = [threads.submit(self._call, *each) for each in self.appended.items()]
            try:
                yield
            finally:
                self.stop.set()
            for each in calling:
                each.result()

    def wait_for_answers(self) -> None:
        """Returns when every caller was answered anew, or any call failed."""
        enough = {session: self.answered[session] + ANEW for session in self.appended}
        self.wait_for(lambda: all(self.answered[session] >= least for session, least in enough.items()))

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Returns when the condition holds, or any call failed."""
        wait_for(lambda: bool(self.failures) or condition())

    def _call(self, session: str, appended: list[str]) -> None:
        for number in itertools.count(1):
            if self.stop.is_set():
                return
            id_ = f"{session}/{number}"
            try:
                assert self.caller.append(session, id_) == number
                appended.append(id_)
                assert self.caller.load_window(session) == appended[-WINDOW:]
            except Exception as error:
                self.failures.append(f"{id_}: {error!r}")
                return
            self.answered[session] += 1


def have_been_sent_calls(envoy: Envoy) -> Callable[[], bool]:
    """Whether both servers have been sent calls since now."""
    before = envoy.calls_sent()
    return lambda: all(sent > before[port] for port, sent in envoy.calls_sent().items())


@pytest.mark.parametrize("adapter", parameters(each for each in ADAPTERS if each.name == "postgresql"))
@pytest.mark.parametrize("connect", CONNECTS.values(), ids=CONNECTS)
def test_no_call_fails_while_servers_are_upgraded_one_after_the_other(
    connect: Connect, adapter: Adapter, start_server: StartServer, tmp_path: Path, agent: str
) -> None:
    """Each is drained, ends, and starts again on its port, while all callers go on."""
    ports = first, second = free_ports(2)
    with adapter.emptied(tmp_path) as url:
        servers = {
            port: start_server(
                "--listen", f"127.0.0.1:{port}", "--store", f"default={url}", "--drain-delay-seconds", DRAIN_DELAY
            )
            for port in ports
        }
        with (
            Envoy((first, second), tmp_path) as envoy,
            connect(envoy.address, agent, tmp_path / "caller.log") as caller,
        ):
            load = Load(caller)
            with load.running():
                load.wait_for_answers()
                for server in servers.values():
                    assert server.stop() == 0
                    load.wait_for_answers()
                    server.restart()
                    envoy.wait_until_healthy()
                    load.wait_for(have_been_sent_calls(envoy))
            assert load.failures == []

        with Stubs(servers[first].address) as stubs:
            for session, appended in load.appended.items():
                stored = stubs.messages(SessionKey(agent=agent, session_id=session), page_size=1_000)
                assert [message.id for message in stored] == appended
                assert seqs(stored) == list(range(1, len(appended) + 1))
