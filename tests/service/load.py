"""Calls of all kinds, made one after the other while something happens to the database, and what must hold of their
answers (invariants 2, 3, 12 and 16)."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import grpc

from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import session_pb2 as session
from memoryd.v1 import window_service_pb2 as window
from memoryd.v1.policy_pb2 import WindowOptions
from tests.service.test_rebirth import wait_for
from tests.service.wire import Refusal, Stubs, refusal_of, seqs, text

CALL_SECONDS: Final = 10
"""The deadline of each call. What ends later is told by gRPC itself, without reason and hint."""
SLACK_SECONDS: Final = 2
"""What a busy machine may add."""

PAUSE_SECONDS: Final = 0.005
"""How long a caller waits after a failure. Without, those that are refused at once leave a machine no time to bring
back what is away."""

BATCH: Final = 2
ANEW: Final = 3
"""How many answers to each call show that it works."""


@dataclass(frozen=True)
class Failure:
    call: str
    refusal: Refusal
    seconds: float


@dataclass
class Load:
    """Callers of all kinds, each of which goes on until it is stopped, whatever it is told."""

    addresses: Sequence[str]
    """Of the servers, which have one database."""
    writers: int = 3
    """How many sessions are appended to without pause."""
    stop: threading.Event = field(default_factory=threading.Event)
    answered: Counter[str] = field(default_factory=Counter)
    """How many calls were answered, by kind."""
    failures: list[Failure] = field(default_factory=list)
    acknowledged: dict[str, int] = field(default_factory=dict)
    """The seq of each message whose append was answered, by its id."""

    @contextmanager
    def running(self) -> Iterator[None]:
        callers: list[Callable[[Stubs], None]] = [
            *(partial(self._write, key(f"of writer {number}")) for number in range(self.writers)),
            *(partial(self._read, call) for call in READS),
            self._begin_sessions,
        ]
        with ThreadPoolExecutor(len(callers)) as threads:
            calling = [
                threads.submit(self._call, caller, address)
                for caller, address in zip(callers, itertools.cycle(self.addresses), strict=False)
            ]
            try:
                yield
            finally:
                self.stop.set()
            for each in calling:
                each.result()

    def answered_anew(self, *calls: str) -> Callable[[], bool]:
        """Whether some calls (by default, all) have been answered since now."""
        enough = {call: self.answered[call] + ANEW for call in calls or CALLS}
        return lambda: all(self.answered[call] >= least for call, least in enough.items())

    def _call(self, caller: Callable[[Stubs], None], address: str) -> None:
        with Stubs(address) as stubs:
            caller(stubs)

    def _write(self, to: session.SessionKey, stubs: Stubs) -> None:
        for number in self._until_stopped():
            self._append(APPEND, stubs, to, f"{to.session_id}, {number}")

    def _begin_sessions(self, stubs: Stubs) -> None:
        for number in self._until_stopped():
            self._append(BEGIN, stubs, key(f"new {number}"), f"new {number}")

    def _read(self, call: str, stubs: Stubs) -> None:
        """A read that cannot be made is an error: what is answered is never less than what was acknowledged."""
        of = key("of writer 0")
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
            self.stop.wait(PAUSE_SECONDS)
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


def check_failures(load: Load) -> None:
    """Every call ended in time, and those that failed say that the database is away, and when to come again."""
    told = {(each.refusal.code, each.refusal.reason) for each in load.failures}
    assert told <= {(grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")}, told
    assert all((each.refusal.retry_seconds or 0) > 0 for each in load.failures)
    assert max((each.seconds for each in load.failures), default=0) < CALL_SECONDS + SLACK_SECONDS


def check_stored(stubs: Stubs, load: Load) -> None:
    """Every batch was repeated until it was answered: all of them are stored, once, in the order and the places that
    were told."""
    request = history.ListSessionsRequest(agent="agent", page_size=1_000)
    stored: dict[str, int] = {}
    order = {id_: place for place, id_ in enumerate([*load.acknowledged])}
    while True:
        page = stubs.histories.ListSessions(request)
        for each in page.sessions:
            listed = stubs.messages(each.key, page_size=1_000)
            assert seqs(listed) == list(range(1, each.message_count + 1))
            assert not stored.keys() & {message.id for message in listed}
            stored |= {message.id: message.seq for message in listed}
            places = [order[message.id] for message in listed]
            assert places == sorted(places)
        request.page_token = page.next_page_token
        if not request.page_token:
            break
    missing = load.acknowledged.keys() - stored.keys()
    print(f"missing: {len(missing)} of {len(load.acknowledged)} messages; calls that failed: {len(load.failures)}")
    assert stored == load.acknowledged
