"""Once `EraseUser` has answered, the database's tables hold no byte of what the user owned, and all that others own."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask

from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import message_pb2 as pb
from memoryd.v1 import run_service_pb2 as runs
from memoryd.v1 import session_pb2 as session
from tests.adapters import EACH_QUICK_ADAPTER, EACH_QUICK_SHARED_ADAPTER, EACH_SHARED_ADAPTER, Adapter
from tests.conftest import StartServer
from tests.servers import ServerProcess
from tests.service import memory_calls as files
from tests.service import run_calls
from tests.service.database_scan import Contents, size_of
from tests.service.test_rebirth import fork, rewind, said, wait_for, wait_until_gone
from tests.service.wire import Stubs, new_key, refusal_of, refused, text

MARKER: Final = "Pl4ntedM4rker"
USER: Final = f"user {MARKER}"
OTHERS: Final = (USER.swapcase(), "somebody else", "")
"""Users of other sessions; the last one is nobody."""

OWNERS_OF_OTHERS: Final = (files.user(OTHERS[0]), files.user(f"{OTHERS[1]} "), files.project("atlas"))

BATCH: Final = 256
FILLING: Final = "x" * 200
"""Of each message of a long session, and of nothing else."""


@dataclass(frozen=True)
class Database:
    """A database, with a server on it whose addresses may change."""

    url: str
    server: ServerProcess
    start: Callable[[], ServerProcess]


@pytest.fixture(params=EACH_SHARED_ADAPTER)
def database(request: pytest.FixtureRequest, start_server: StartServer, tmp_path: Path) -> Iterator[Database]:
    """An empty database of each adapter that has one."""
    adapter: Adapter = request.param
    with adapter.emptied(tmp_path) as url:

        def start() -> ServerProcess:
            return start_server("--store", f"default={url}", "--tokenizer", "estimate")

        yield Database(url, start(), start)


@pytest.fixture
def on_database(database: Database) -> Iterator[Stubs]:
    with Stubs(database.server.address) as stubs:
        yield stubs


def erase(stubs: Stubs, user_id: str = USER) -> history.EraseUserResponse:
    return stubs.histories.EraseUser(history.EraseUserRequest(user_id=user_id), timeout=60)


def owned(user_id: str = USER, **fields: Any) -> history.SessionSettings:
    return history.SessionSettings(user_id=user_id, **fields)


class Planting:
    """Marks each field of all that a user can hold with a word of its own."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.marks: dict[str, str] = {}

    def mark(self, what: str) -> str:
        """A text for a field."""
        mark = f"{MARKER}x{next(self._numbers)}x"
        self.marks[what] = mark
        return mark

    def key(self, what: str) -> session.SessionKey:
        return session.SessionKey(agent="agent", session_id=self.mark(f"session id of {what}"))

    def message(self, what: str) -> pb.Message:
        """A message with every kind of part that a model may say."""
        parts = [
            pb.Part(text=self.mark(f"text of {what}")),
            pb.Part(
                reasoning=pb.Reasoning(
                    text=self.mark(f"thought of {what}"), signature=self.mark(f"signature of {what}")
                )
            ),
            pb.Part(refusal=self.mark(f"refusal of {what}")),
            pb.Part(data=self.mark(f"data of {what}")),
            pb.Part(media=pb.Media(type=self.mark(f"media type of {what}"), uri=self.mark(f"URI of {what}"))),
            pb.Part(media=pb.Media(data=b"\xff\0" + self.mark(f"bytes of {what}").encode() + b"\xfe")),
            pb.Part(
                tool_call=pb.ToolCall(
                    id=self.mark(f"call of {what}"),
                    name=self.mark(f"tool of {what}"),
                    arguments=self.mark(f"arguments of {what}"),
                )
            ),
        ]
        return pb.Message(
            id=self.mark(f"id of {what}"),
            role=pb.ROLE_ASSISTANT,
            name=self.mark(f"name of {what}"),
            content=pb.Content(parts=parts),
            run_id=self.mark(f"run of {what}"),
            metadata=self.mark(f"metadata of {what}"),
            extra=self.mark(f"extra of {what}"),
        )

    def result(self, what: str, call_id: str) -> pb.Message:
        result = pb.ToolResult(
            call_id=call_id,
            name=self.mark(f"tool's name in {what}"),
            parts=[pb.Part(text=self.mark(f"result in {what}")), pb.Part(data=self.mark(f"data of result in {what}"))],
        )
        return pb.Message(
            id=self.mark(f"id of {what}"), role=pb.ROLE_TOOL, content=pb.Content(parts=[pb.Part(tool_result=result)])
        )

    def missing(self, url: str) -> set[str]:
        """What the database does not hold."""
        found = Contents(url)
        return {what for what, mark in self.marks.items() if not found.holds(mark.encode())}


def plant(stubs: Stubs, planting: Planting) -> int:
    """Has the user own all that a user can own. Returns: how many sessions."""
    plain = planting.key("a plain session")
    call = planting.message("a message")
    labels = {planting.mark("label"): planting.mark("value of a label")}
    stubs.append(plain, call, request_id=planting.mark("request id"), create=owned(labels=labels))
    stubs.append(plain, planting.result("an answer", call.content.parts[-1].tool_call.id))
    stubs.append(plain, planting.message("an open call"))
    stubs.append(plain, text(planting.mark("text without id")))

    cleared = planting.key("a cleared session")
    stubs.append(cleared, planting.message("a cleared message"), create=owned())
    request = history.ClearHistoryRequest(session=cleared, request_id=planting.mark("request id of a clear"))
    stubs.histories.ClearHistory(request)

    rewound = planting.key("a rewound session")
    stubs.append(rewound, text("stays"), planting.message("a rewound message"), create=owned())
    rewind(stubs, rewound, 1, request_id=planting.mark("request id of a rewind"))

    redacted = planting.key("a redacted session")
    stubs.append(redacted, text("gone", id=planting.mark("id of a redacted message")), create=owned())
    redaction = history.RedactMessageRequest(session=redacted, seq=1, reason=planting.mark("reason"))
    stubs.histories.RedactMessage(redaction)

    forked = planting.key("a fork")
    fork(stubs, plain, forked, request_id=planting.mark("request id of a fork"))

    came = planting.key("a session that came to the user")
    stubs.append(came, planting.message("a message from before the user"), create=owned("somebody"))
    give_to(stubs, came, USER)

    expired = planting.key("an expired session")
    stubs.append(expired, planting.message("an expired message"), create=owned(ttl=Duration(seconds=1)))
    plant_memory(stubs, planting)
    plant_runs(stubs, planting, plain)
    wait_until_gone(stubs, expired)
    return 7


def plant_memory(stubs: Stubs, planting: Planting) -> None:
    """Two memory files, one of them with an earlier version."""
    owner = files.user(USER)
    for version in ("first", "second"):
        content = f"- {planting.mark(f'entry of the {version} version')}\n\xff".encode("latin-1")
        files.put(stubs, owner, content, author=planting.mark(f"author of the {version} version"))
    files.add(stubs, owner, planting.mark("added entry"), author=planting.mark("author of entries"), request_id=MARKER)
    files.log(stubs, owner, planting.mark("log"), date="2026-01-02", author=planting.mark("author of a log"))


def plant_runs(stubs: Stubs, planting: Planting, key: session.SessionKey) -> None:
    """A run that has ended, one that is held, and one that waits."""
    for status in (run_calls.COMPLETED, run_calls.RUNNING, run_calls.AWAITING_APPROVAL):
        what = f"run of status {status}"
        run = run_calls.run_of(key, planting.mark(f"run id of the {what}"))
        names = {field: planting.mark(f"{field} of the {what}") for field in ("holder", "metadata")}
        run_calls.create(stubs, run, queued=True, metadata=names["metadata"])
        request_id = planting.mark(f"mark of a claim of the {what}")
        fence = run_calls.claim(stubs, run, holder=names["holder"], request_id=request_id).fence
        for number in (1, 2):
            payload = b"\xff\0" + planting.mark(f"payload {number} of the {what}").encode() + b"\xfe"
            type_ = planting.mark(f"content type {number} of the {what}")
            fields: dict[str, Any] = {"content_type": type_}
            if number == 2 and status is not run_calls.RUNNING:
                fields |= {"status": status, "status_reason": planting.mark(f"reason of the {what}")}
            run_calls.step(stubs, run, fence, number, payload, **fields)


def give_to(stubs: Stubs, key: session.SessionKey, user_id: str) -> None:
    changed = session.Session(key=key, user_id=user_id)
    request = history.UpdateSessionRequest(session=changed, update_mask=FieldMask(paths=["user_id"]))
    stubs.histories.UpdateSession(request)


def plant_others(stubs: Stubs) -> None:
    """What must stay: sessions of other users, one that left the user, one that begins where the user's expired; memory
    of others, and of a project of the user's name."""
    for number, user_id in enumerate(OTHERS):
        key = session.SessionKey(agent="agent", session_id=f"of another {number}")
        stubs.append(key, text("theirs", id="t"), text("redacted"), request_id="r", create=owned(user_id))
        stubs.append(key, text("taken away"))
        rewind(stubs, key, 2)
        stubs.histories.RedactMessage(history.RedactMessageRequest(session=key, seq=2, reason="theirs"))
        run = run_calls.run_of(key, "theirs")
        run_calls.step(stubs, run, run_calls.create(stubs, run, metadata="theirs").fence, 1, b"theirs")
    for owner in OWNERS_OF_OTHERS:
        files.add(stubs, owner, "- theirs")
        files.log(stubs, owner, "theirs", date="2026-01-02")
    left = session.SessionKey(agent="agent", session_id="of another, once the user's")
    stubs.append(left, text("theirs now"), create=owned())
    give_to(stubs, left, "somebody else")


def of_others(stubs: Stubs) -> dict[str, tuple[session.Session, list[pb.Message]]]:
    """All sessions that are not the user's, with their messages."""
    found = stubs.histories.ListSessions(history.ListSessionsRequest(agent="agent", page_size=1_000)).sessions
    return {each.key.session_id: (each, stubs.messages(each.key)) for each in found if each.user_id != USER}


def runs_of_others(stubs: Stubs) -> list[runs.Run]:
    """All runs that are not the user's."""
    return [run for run in run_calls.runs(stubs, "agent") if MARKER not in run.key.session.session_id]


def memory_of_others(stubs: Stubs) -> list[bytes]:
    """All memory files that are not the user's."""
    return [
        files.content_of(stubs, owner, name) for owner in OWNERS_OF_OTHERS for name in (files.INDEX, "2026-01-02.md")
    ]


def test_not_a_byte_is_left(database: Database, on_database: Stubs) -> None:
    planting = Planting()
    plant_others(on_database)
    sessions = plant(on_database, planting)
    others, their_runs = of_others(on_database), runs_of_others(on_database)
    assert len(others) == len(OTHERS) + 1
    assert len(their_runs) == len(OTHERS)
    # The scan finds each field: what it does not find afterwards is gone.
    assert planting.missing(database.url) == set()

    erased = erase(on_database)
    assert Contents(database.url).places_of(MARKER.encode()) == []
    # What expired, was cleared or was rewound may have been swept already.
    assert sessions - 1 <= erased.erased_session_count <= sessions
    assert 11 <= erased.erased_message_count <= 14
    assert erased.erased_memory_file_count == 2
    assert (erased.erased_run_count, erased.erased_run_step_count) == (3, 6)
    assert run_calls.runs(on_database, "agent") == runs_of_others(on_database) == their_runs
    assert files.listed(on_database, files.user(USER)) == []
    assert memory_of_others(on_database) == [b"- theirs\n", b"theirs\n"] * len(OWNERS_OF_OTHERS)
    assert erased.erased_lookup_count >= len([what for what in planting.marks if what.startswith(("id ", "request "))])
    assert of_others(on_database) == others
    on_database.append(session.SessionKey(agent="agent", session_id="of another 0"), text("goes on"))
    assert erase(on_database) == history.EraseUserResponse()


def test_what_an_earlier_life_held_goes_and_the_next_life_of_another_stays(
    database: Database, on_database: Stubs
) -> None:
    planting = Planting()
    key = session.SessionKey(agent="agent", session_id="shared name")
    on_database.append(
        key,
        planting.message("an expired message"),
        create=owned(ttl=Duration(seconds=1)),
        request_id=planting.mark("id"),
    )
    wait_until_gone(on_database, key)
    on_database.append(key, text("of the next life", id="n"), create=owned("somebody else"))

    erased = erase(on_database)
    assert (erased.erased_session_count, erased.erased_message_count) == (0, 1)
    content = [what for what in planting.marks if not what.startswith("id")]
    assert planting.missing(database.url) >= set(content)
    assert said(on_database, key) == ["of the next life"]
    assert on_database.session(key).user_id == "somebody else"


@pytest.mark.parametrize("database", EACH_QUICK_SHARED_ADAPTER, indirect=True)
def test_a_fork_that_died_half_way_goes_too(database: Database, on_database: Stubs) -> None:
    """Its server is killed while it copies. The copies are nobody's session, and the user's all the same."""
    source = session.SessionKey(agent="agent", session_id=f"source {MARKER}")
    for _ in range(40):
        on_database.append(source, *(text(f"{MARKER} {FILLING}") for _ in range(BATCH)), create=owned())
    stored = Contents(database.url).count_of(FILLING.encode())
    size = size_of(database.url)
    mortal = database.start()
    with Stubs(mortal.address) as stubs, ThreadPoolExecutor(1) as threads:
        forking = threads.submit(fork, stubs, source, session.SessionKey(agent="agent", session_id=f"fork {MARKER}"))
        wait_for(lambda: size_of(database.url) >= size + BATCH or forking.done())
        mortal.kill()
        assert isinstance(forking.exception(), grpc.RpcError)
    copied = Contents(database.url).count_of(FILLING.encode()) - stored
    assert 0 < copied < stored

    erased = erase(on_database)
    assert Contents(database.url).places_of(MARKER.encode()) == []
    assert (erased.erased_session_count, erased.erased_message_count) == (1, stored + copied)


def test_appends_that_go_on_are_erased_or_come_later(database: Database, on_database: Stubs) -> None:
    """Whatever was answered before a call that succeeds is gone then; what comes later stays, until the next. Where the
    user's sessions keep beginning anew, the call may be given up in time."""
    stop = threading.Event()
    answered: dict[str, tuple[float, float]] = {}
    writers = 3

    def write(writer: int) -> None:
        with Stubs(database.server.address) as stubs:
            for number in itertools.count():
                if stop.is_set():
                    return
                id_ = f"{MARKER} {writer} {number}"
                # Of one session of the writer, and of new ones.
                key = session.SessionKey(agent="agent", session_id=id_ if number % 2 else f"session of {writer}")
                begun = time.monotonic()
                stubs.append(key, text(id_, id=id_), create=owned())
                answered[id_] = begun, time.monotonic()

    gone_before = here_after = 0.0
    with ThreadPoolExecutor(writers) as threads:
        writing = [threads.submit(write, writer) for writer in range(writers)]
        try:
            for least in (20, 40):
                wait_for(lambda least=least: len(answered) >= least)  # type: ignore[misc]
                begun = time.monotonic()
                gone_before = begun if erased(on_database) else gone_before
                here_after = time.monotonic()
            more = len(answered) + 20
            wait_for(lambda: len(answered) >= more)
        finally:
            stop.set()
        for each in writing:
            each.result()

    stored = {word for key in keys_of(on_database, USER) for word in said(on_database, key)}
    for id_, (sent, heard) in answered.items():
        assert id_ not in stored or heard > gone_before
        assert id_ in stored or sent < here_after
    assert erased(on_database)
    assert Contents(database.url).places_of(MARKER.encode()) == []


def erased(stubs: Stubs) -> bool:
    """Erases the user. Returns: False when the user's sessions kept beginning anew until the call was given up."""
    try:
        stubs.histories.EraseUser(history.EraseUserRequest(user_id=USER), timeout=60)
    except grpc.RpcError as error:
        refusal = refusal_of(error)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "CONTENTION")
        return False
    return True


def keys_of(stubs: Stubs, user_id: str) -> list[session.SessionKey]:
    """The sessions of a user."""
    request = history.ListSessionsRequest(user_id=user_id, page_size=1_000)
    keys: list[session.SessionKey] = []
    while True:
        page = stubs.histories.ListSessions(request)
        keys += [each.key for each in page.sessions]
        request.page_token = page.next_page_token
        if not request.page_token:
            return keys


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.03, 0.1])
def test_a_fork_under_way_is_stopped_or_erased(here: Stubs, there: Stubs, agent: str, delay: float) -> None:
    """It never comes to life once the erasure has answered."""
    source, target, user_id = new_key(agent), new_key(agent), f"user of {agent}"
    for number in range(8):
        here.append(source, *(text(f"{number}/{place}") for place in range(256)), create=owned(user_id))
    with ThreadPoolExecutor(1) as threads:
        forking = threads.submit(fork, there, source, target)
        time.sleep(delay)
        erase(here, user_id)
        failed = forking.exception()
    if failed is not None:
        assert refused(forking.result).reason in {"FORK_INTERRUPTED", "SESSION_NOT_FOUND"}
    for stubs, key in itertools.product((here, there), (source, target)):
        assert refused(lambda stubs=stubs, key=key: stubs.session(key)).reason == "SESSION_NOT_FOUND"  # type: ignore[misc]
    assert not here.histories.ListSessions(history.ListSessionsRequest(user_id=user_id)).sessions
    assert erase(there, user_id) == history.EraseUserResponse()


class TestOnEveryStore:
    def test_nobody_is_not_a_user(self, stubs: Stubs, agent: str) -> None:
        """An empty name is never "all", nor those without a user."""
        key = new_key(agent)
        stubs.append(key, text("of nobody"))
        refusal = refused(lambda: erase(stubs, ""))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_REQUIRED")
        assert refusal.text == "user_id is empty: give the user's id of 1 to 256 bytes"
        assert said(stubs, key) == ["of nobody"]

    def test_a_user_who_owns_nothing_answers_0(self, stubs: Stubs, agent: str) -> None:
        assert erase(stubs, f"nobody knows {agent}") == history.EraseUserResponse()

    def test_a_projects_memory_is_nobodys(self, stubs: Stubs, agent: str) -> None:
        """A project of the user's name stays; a user who has memory alone is erased as any other."""
        files.put(stubs, files.project(agent), b"- of the project\n")
        files.log(stubs, files.user(agent), "of the user", date="2026-01-02")
        assert erase(stubs, agent) == history.EraseUserResponse(erased_memory_file_count=1)
        assert erase(stubs, agent) == history.EraseUserResponse()
        assert files.listed(stubs, files.user(agent)) == []
        assert files.content_of(stubs, files.project(agent)) == b"- of the project\n"
        assert files.log(stubs, files.user(agent), "a new life", date="2026-01-02").version == 1

    def test_counts_what_it_deletes(self, stubs: Stubs, agent: str) -> None:
        user_id = f"user of {agent}"
        for number in range(3):
            key = new_key(agent)
            stubs.append(key, text("one", id="a"), text("two"), request_id="r", create=owned(user_id))
            if number:
                stubs.clear(key)
        erased = erase(stubs, user_id)
        assert (erased.erased_session_count, erased.erased_message_count, erased.erased_lookup_count) == (3, 6, 9)
        assert erase(stubs, user_id) == history.EraseUserResponse()
        assert not stubs.histories.ListSessions(history.ListSessionsRequest(agent=agent)).sessions

    @pytest.mark.parametrize("any_server", EACH_QUICK_ADAPTER, indirect=True)
    def test_many_small_sessions_are_deleted(self, stubs: Stubs, agent: str) -> None:
        """In more than one transaction: none of them may outlast the time that the database is given."""
        user_id = f"user of {agent}"
        with ThreadPoolExecutor(8) as threads:
            keys = [new_key(agent) for _ in range(250)]
            list(threads.map(lambda key: stubs.append(key, text("one"), create=owned(user_id)), keys))
        erased = erase(stubs, user_id)
        assert (erased.erased_session_count, erased.erased_message_count, erased.erased_lookup_count) == (250, 250, 250)
        assert erase(stubs, user_id) == history.EraseUserResponse()

    def test_more_than_one_batch_is_deleted(self, stubs: Stubs, agent: str) -> None:
        user_id = f"user of {agent}"
        keys = [new_key(agent) for _ in range(2)]
        for key, _ in itertools.product(keys, range(5)):
            stubs.append(key, *(text(f"{place}") for place in range(256)), create=owned(user_id))
        erased = erase(stubs, user_id)
        assert (erased.erased_session_count, erased.erased_message_count) == (2, 2_560)
        assert erase(stubs, user_id) == history.EraseUserResponse()
