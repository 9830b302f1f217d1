"""Sessions that were erased or that expired, and begin again: nothing of an earlier life is accepted, nothing of it is
seen (invariants 2, 5 and 18), whatever another server remembers of it."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import message_pb2 as pb
from memoryd.v1 import session_pb2 as session
from tests.service.wire import Stubs, calls, new_key, refused, results, seqs, text

GONE_SECONDS: Final = 30
"""How long to wait for a session with the shortest ttl to expire: a second, on an idle machine."""

SESSION_RPCS: Final[dict[str, Callable[[Stubs, session.SessionKey], object]]] = {
    "ListMessages": lambda stubs, key: stubs.messages(key),
    "GetMessage": lambda stubs, key: stubs.histories.GetMessage(history.GetMessageRequest(session=key, seq=1)),
    "GetSession": lambda stubs, key: stubs.session(key),
    "UpdateSession": lambda stubs, key: stubs.histories.UpdateSession(
        history.UpdateSessionRequest(session=session.Session(key=key, user_id="somebody"))
    ),
    "RedactMessage": lambda stubs, key: stubs.histories.RedactMessage(history.RedactMessageRequest(session=key, seq=1)),
    "RewindSession": lambda stubs, key: rewind(stubs, key, 0),
    "ForkSession": lambda stubs, key: fork(stubs, key, new_key(key.agent)),
    "WatchMessages": lambda stubs, key: next(watch(stubs, key)),
    "LoadWindow": lambda stubs, key: stubs.load(key),
    "StreamWindow": lambda stubs, key: stubs.stream(key),
}


def rewind(stubs: Stubs, key: session.SessionKey, to_seq: int, **fields: str) -> history.RewindSessionResponse:
    request = history.RewindSessionRequest(session=key, to_seq=to_seq, **fields)  # type: ignore[arg-type]
    return stubs.histories.RewindSession(request, timeout=30)


def fork(
    stubs: Stubs, source: session.SessionKey, target: session.SessionKey, **fields: str
) -> history.ForkSessionResponse:
    request = history.ForkSessionRequest(source=source, target=target, **fields)  # type: ignore[arg-type]
    return stubs.histories.ForkSession(request, timeout=30)


def watch(stubs: Stubs, key: session.SessionKey, token: str = "") -> Iterator[history.WatchMessagesResponse]:
    request = history.WatchMessagesRequest(session=key, resume_token=token)
    stream: Iterator[history.WatchMessagesResponse] = stubs.histories.WatchMessages(request, timeout=60)
    return stream


@dataclass(frozen=True)
class Life:
    """A session that lived and died. The other server has worked at it, so that it remembers its record."""

    key: session.SessionKey
    death: str
    user_id: str
    end: Callable[[], None]


@pytest.fixture(params=["erased", "expired"])
def life(request: pytest.FixtureRequest, here: Stubs, there: Stubs, agent: str) -> Life:
    """A session that has begun and has not died yet: `end` has it die."""
    key = new_key(agent)
    user_id = f"user of {agent}"
    settings = history.SessionSettings(user_id=user_id, labels={"of": "the earlier life"})
    settings.policy.window.limit = 7
    if request.param == "expired":
        settings.ttl.CopyFrom(Duration(seconds=1))

    def end() -> None:
        if request.param == "erased":
            erased = here.histories.EraseUser(history.EraseUserRequest(user_id=user_id), timeout=30)
            assert erased.erased_session_count == 1
        else:
            wait_until_gone(here, key)

    here.append(key, text("old one", id="a"), create=settings)
    there.append(key, text("old two", id="b"), request_id="r")
    return Life(key, request.param, user_id, end)


def wait_until_gone(stubs: Stubs, key: session.SessionKey) -> None:
    deadline = time.monotonic() + GONE_SECONDS
    while is_there(stubs, key):
        assert time.monotonic() < deadline, "the session never expired"
        time.sleep(0.02)


def is_there(stubs: Stubs, key: session.SessionKey) -> bool:
    try:
        stubs.session(key)
    except grpc.RpcError:
        assert refused(lambda: stubs.session(key)).reason == "SESSION_NOT_FOUND"
        return False
    return True


class TestADeadSession:
    def test_is_found_by_no_call(self, here: Stubs, there: Stubs, life: Life) -> None:
        life.end()
        for stubs, rpc in itertools.product((here, there), SESSION_RPCS):
            refusal = refused(lambda stubs=stubs, rpc=rpc: SESSION_RPCS[rpc](stubs, life.key))  # type: ignore[misc]
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"), rpc
        for stubs in (here, there):
            assert stubs.clear(life.key) == 0
            request = history.ClearAgentHistoryRequest(agent=life.key.agent)
            assert stubs.histories.ClearAgentHistory(request).cleared_message_count == 0
            of_agent = history.ListSessionsRequest(agent=life.key.agent)
            of_user = history.ListSessionsRequest(user_id=life.user_id)
            assert not stubs.histories.ListSessions(of_agent).sessions
            assert not stubs.histories.ListSessions(of_user).sessions

    def test_has_no_last_seq_that_an_append_could_expect(self, there: Stubs, life: Life) -> None:
        life.end()
        refusal = refused(lambda: there.append(life.key, text("new"), expected_last_seq=2))
        assert (refusal.reason, refusal.metadata["actual"]) == ("LAST_SEQ_MISMATCH", "0")
        assert seqs(there.append(life.key, text("new"), expected_last_seq=0)) == [1]


class TestTheNextLife:
    def test_begins_at_seq_1_at_the_server_that_remembers_the_earlier_one(
        self, here: Stubs, there: Stubs, life: Life
    ) -> None:
        life.end()
        assert seqs(there.append(life.key, text("new one"))) == [1]
        assert seqs(here.append(life.key, text("new two"))) == [2]

        for stubs in (here, there):
            assert said(stubs, life.key) == ["new one", "new two"]
            assert [message.content.parts[0].text for message in stubs.load(life.key).messages] == [
                "new one",
                "new two",
            ]
            assert stubs.session(life.key).message_count == 2

    def test_begins_once_when_both_servers_begin_it_at_once(self, here: Stubs, there: Stubs, life: Life) -> None:
        life.end()
        with ThreadPoolExecutor(8) as threads:
            given = threads.map(lambda stubs: seqs(stubs.append(life.key, text("new"))), (here, there) * 4)
        assert sorted(itertools.chain.from_iterable(given)) == list(range(1, 9))
        assert seqs(here.messages(life.key)) == list(range(1, 9))

    def test_has_no_settings_of_the_earlier_one(self, here: Stubs, there: Stubs, life: Life) -> None:
        life.end()
        there.append(life.key, text("new"))
        found = here.session(life.key)
        assert (found.user_id, dict(found.labels), found.HasField("ttl")) == ("", {}, False)
        assert there.load(life.key).stats.limit == 10_000
        assert not here.histories.ListSessions(history.ListSessionsRequest(user_id=life.user_id)).sessions

    def test_answers_no_calls_of_the_earlier_one(self, here: Stubs, there: Stubs, life: Life) -> None:
        there.append(life.key, calls("c"))
        life.end()
        there.append(life.key, results("c"))
        found = here.session(life.key)
        assert (found.orphan_message_count, found.open_call_count) == (1, 0)

    def test_holds_no_messages_with_ids_of_the_earlier_one(self, here: Stubs, there: Stubs, life: Life) -> None:
        life.end()
        there.append(life.key, text("new"))
        for stubs, id_ in itertools.product((here, there), "ab"):
            by_id = history.GetMessageRequest(session=life.key, id=id_)
            assert refused(partial(stubs.histories.GetMessage, by_id)).reason == "MESSAGE_NOT_FOUND"
            redaction = history.RedactMessageRequest(session=life.key, id=id_)
            assert refused(partial(stubs.histories.RedactMessage, redaction)).reason == "MESSAGE_NOT_FOUND"

    def test_takes_no_page_token_of_the_earlier_one(self, here: Stubs, there: Stubs, life: Life) -> None:
        request = history.ListMessagesRequest(session=life.key, page_size=1)
        request.page_token = here.histories.ListMessages(request).next_page_token
        life.end()
        there.append(life.key, *(text("new") for _ in range(3)))
        for stubs in (here, there):
            assert refused(partial(stubs.histories.ListMessages, request)).reason == "PAGE_TOKEN_INVALID"

    def test_takes_no_etag_of_the_earlier_one(self, here: Stubs, there: Stubs, life: Life) -> None:
        changed = session.Session(key=life.key, user_id="somebody", etag=there.session(life.key).etag)
        life.end()
        here.append(life.key, text("new"))
        update = history.UpdateSessionRequest(session=changed)
        assert refused(lambda: there.histories.UpdateSession(update)).reason == "ETAG_MISMATCH"
        assert here.session(life.key).user_id == ""

    def test_is_rewound_redacted_and_cleared_without_the_earlier_one(
        self, here: Stubs, there: Stubs, life: Life
    ) -> None:
        life.end()
        there.append(life.key, text("new one"), text("new two"), text("new three"))
        assert rewind(here, life.key, 2).removed_message_count == 1
        redaction = history.RedactMessageRequest(session=life.key, seq=1)
        there.histories.RedactMessage(redaction)
        assert said(here, life.key) == ["[REDACTED]", "new two"]
        assert here.clear(life.key) == 2
        assert seqs(there.append(life.key, text("new four"))) == [4]


class TestWatches:
    def test_end_with_the_session(self, there: Stubs, life: Life) -> None:
        stream = watch(there, life.key)
        assert not next(stream).events
        life.end()
        assert refused(lambda: list(stream)).reason == "SESSION_NOT_FOUND"

    def test_resume_in_the_next_life_by_reading_anew(self, here: Stubs, there: Stubs, life: Life) -> None:
        token = next(watch(there, life.key)).resume_token
        life.end()
        assert refused(lambda: list(watch(there, life.key, token))).reason == "SESSION_NOT_FOUND"
        here.append(life.key, text("new one"))
        streams = [watch(stubs, life.key, token) for stubs in (here, there)]
        for stream in streams:
            assert [event.kind for event in next_events(stream)] == [history.WATCH_EVENT_KIND_RESYNC]
        here.append(life.key, text("new two"))
        for stream in streams:
            (event,) = next_events(stream)
            assert (event.kind, event.from_seq) == (history.WATCH_EVENT_KIND_APPENDED, 2)
            assert event.message.content.parts[0].text == "new two"


def next_events(stream: Iterator[history.WatchMessagesResponse]) -> list[history.WatchEvent]:
    return list(next(answer for answer in stream if answer.events).events)


class TestReplays:
    """An append of an expired life gives its first answer and stores nothing: a retry may come late (invariant 2). One
    of an erased life is new, since nothing is known of it any more."""

    @pytest.mark.parametrize("reborn", [False, True], ids=["before the next life", "in the next life"])
    def test_of_appends(self, here: Stubs, there: Stubs, life: Life, reborn: bool) -> None:
        by_id = here.append(life.key, text("old one", id="a"))
        by_request = here.append(life.key, text("old two", id="b"), request_id="r")
        life.end()
        if reborn:
            there.append(life.key, text("new"))
        replays = [
            there.append(life.key, text("old one", id="a")),
            there.append(life.key, text("old two", id="b"), request_id="r"),
        ]
        new = ["new"] if reborn else []
        if life.death == "expired":
            assert replays == [by_id, by_request]
            assert said(here, life.key) == new if reborn else not is_there(here, life.key)
        else:
            assert [seqs(replay) for replay in replays] == [[len(new) + 1], [len(new) + 2]]
            assert said(here, life.key) == [*new, "old one", "old two"]

    def test_with_other_content(self, there: Stubs, life: Life) -> None:
        life.end()
        other = partial(there.append, life.key, text("other", id="a"))
        if life.death == "expired":
            assert refused(other).reason == "MESSAGE_ID_CONFLICT"
        else:
            assert seqs(other()) == [1]

    def test_of_clears_and_rewinds(self, here: Stubs, there: Stubs, life: Life) -> None:
        clear = history.ClearHistoryRequest(session=life.key, request_id="clear")
        assert rewind(there, life.key, 1, request_id="rewind").removed_message_count == 1
        assert here.histories.ClearHistory(clear).cleared_message_count == 1
        life.end()
        here.append(life.key, text("new one"), text("new two"), text("new three"))
        rewound = rewind(there, life.key, 1, request_id="rewind").removed_message_count
        cleared = there.histories.ClearHistory(clear).cleared_message_count
        if life.death == "expired":
            assert (rewound, cleared) == (1, 1)
            assert said(here, life.key) == ["new one", "new two", "new three"]
        else:
            assert (rewound, cleared) == (2, 1)
            assert said(here, life.key) == []

    def test_of_forks(self, here: Stubs, there: Stubs, life: Life) -> None:
        """The fork has the user and the ttl of its source."""
        target = new_key(life.key.agent)
        first = fork(here, life.key, target, request_id="fork")
        assert (first.copied_message_count, first.last_seq) == (2, 2)
        if life.death == "expired":
            life.end()
            wait_until_gone(here, target)
            assert fork(there, life.key, target, request_id="fork") == first
            assert not is_there(here, target)
        else:
            here.histories.EraseUser(history.EraseUserRequest(user_id=life.user_id))
            again = partial(fork, there, life.key, target, request_id="fork")
            assert refused(again).reason == "SESSION_NOT_FOUND"


class TestTheNameOfADeadSession:
    def test_is_no_target_of_a_fork_while_its_ids_are_remembered(self, here: Stubs, there: Stubs, life: Life) -> None:
        source = new_key(life.key.agent)
        there.append(source, text("of the source", id="s"))
        life.end()
        if life.death == "expired":
            assert refused(lambda: fork(there, source, life.key)).reason == "SESSION_EXISTS"
            assert not is_there(here, life.key)
        else:
            fork(there, source, life.key)
            assert said(here, life.key) == ["of the source"]

    def test_is_the_name_of_one_session_when_it_is_forked_and_appended_to_at_once(
        self, here: Stubs, there: Stubs, agent: str
    ) -> None:
        """Either the fork comes first and the append goes to it, or the append begins the session."""
        source = new_key(agent)
        there.append(source, text("copied"))
        for _ in range(10):
            target = new_key(agent)
            with ThreadPoolExecutor(2) as threads:
                forking = threads.submit(fork, here, source, target)
                appended = threads.submit(there.append, target, text("appended")).result()
            if forking.exception() is None:
                assert (seqs(appended), said(here, target)) == ([2], ["copied", "appended"])
            else:
                assert refused(forking.result).reason == "SESSION_EXISTS"
                assert (seqs(appended), said(here, target)) == ([1], ["appended"])


@dataclass
class Writer:
    """Appends one message after the other until it is stopped, and notes when each was sent and answered."""

    stubs: Stubs
    key: session.SessionKey
    name: str
    stop: threading.Event
    answered: list[tuple[float, float, int, str]] = field(default_factory=list)

    def run(self) -> None:
        for number in itertools.count():
            if self.stop.is_set():
                return
            word = f"{self.name}{number}"
            begun = time.monotonic()
            (message,) = self.stubs.append(self.key, text(word, id=word))
            self.answered.append((begun, time.monotonic(), message.seq, word))


def test_appends_under_way_while_a_session_is_erased_are_of_one_life(here: Stubs, there: Stubs, agent: str) -> None:
    """Each is gone with the earlier life or stored in the next one, which begins at seq 1 and has no gap."""
    key, user_id = new_key(agent), f"user of {agent}"
    here.append(key, text("first"), create=history.SessionSettings(user_id=user_id))
    stop = threading.Event()
    writers = [Writer(stubs, key, name, stop) for stubs, name in zip((here, there) * 2, "abcd", strict=True)]
    with ThreadPoolExecutor(len(writers)) as threads:
        running = [threads.submit(writer.run) for writer in writers]
        try:
            wait_for(lambda: any_ended(running) or all(len(writer.answered) >= 10 for writer in writers))
            begun = time.monotonic()
            here.histories.EraseUser(history.EraseUserRequest(user_id=user_id), timeout=30)
            ended = time.monotonic()
            enough = {writer.name: len(writer.answered) + 10 for writer in writers}
            wait_for(lambda: any_ended(running) or all(len(each.answered) >= enough[each.name] for each in writers))
        finally:
            stop.set()
        for each in running:
            each.result()

    stored = {message.content.parts[0].text: message.seq for message in there.messages(key, page_size=1_000)}
    assert list(stored.values()) == list(range(1, len(stored) + 1))
    for sent, answered, seq, word in itertools.chain.from_iterable(writer.answered for writer in writers):
        if sent > ended:
            assert stored[word] == seq
        elif answered < begun:
            assert word not in stored
        else:
            assert stored.get(word, seq) == seq


def any_ended(running: Iterable[Future[None]]) -> bool:
    """Whether a writer stopped before it was told to: its failure says why."""
    return any(each.done() for each in running)


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Returns when the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.005)


def said(stubs: Stubs, key: session.SessionKey) -> list[str]:
    return texts(stubs.messages(key, page_size=1_000))


def texts(messages: Iterable[pb.Message]) -> list[str]:
    return [message.content.parts[0].text for message in messages]
