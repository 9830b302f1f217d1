"""Failures of the server itself, and what ties an answer to the log (invariants 12 and 16)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
import structlog
from structlog.testing import capture_logs

from memoryd.v1 import agent_service_pb2 as agents
from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import memory_context_service_pb2 as memory
from memoryd.v1 import run_service_pb2 as runs
from memoryd.v1 import session_pb2 as session
from memoryd.v1 import store_service_pb2 as stores
from memoryd.v1 import window_service_pb2 as window
from memoryd_server.stores.base import Change, Conflict, Outcome, StoreUnavailable
from tests.conftest import StartServer
from tests.servers import ServerProcess
from tests.service.in_process import AsyncStubs, HookedStore, failing, gathered, serving
from tests.service.wire import CORRELATION_METADATA, Stubs, new_key, refused, seqs, text

KEY: Final = session.SessionKey(agent="a", session_id="s")
RUN: Final = runs.RunKey(session=KEY, run_id="r")
FENCE: Final = "0" * 16 + "-" + "0" * 32
OWNER: Final = memory.MemoryOwner(user_id="u")
SECRET: Final = "password=hunter2"


Method = Callable[[AsyncStubs], Awaitable[object]]

METHODS: Final[dict[str, Method]] = {
    "AppendMessages": lambda stubs: stubs.histories.AppendMessages(
        history.AppendMessagesRequest(session=KEY, messages=[text("two", id="two")])
    ),
    "ListMessages": lambda stubs: stubs.histories.ListMessages(history.ListMessagesRequest(session=KEY)),
    "GetMessage": lambda stubs: stubs.histories.GetMessage(history.GetMessageRequest(session=KEY, seq=1)),
    "GetSession": lambda stubs: stubs.histories.GetSession(history.GetSessionRequest(session=KEY)),
    "ListSessions": lambda stubs: stubs.histories.ListSessions(history.ListSessionsRequest()),
    "UpdateSession": lambda stubs: stubs.histories.UpdateSession(
        history.UpdateSessionRequest(session=session.Session(key=KEY, user_id="u"))
    ),
    "ClearHistory": lambda stubs: stubs.histories.ClearHistory(history.ClearHistoryRequest(session=KEY)),
    "ClearAgentHistory": lambda stubs: stubs.histories.ClearAgentHistory(history.ClearAgentHistoryRequest(agent="a")),
    "LoadWindow": lambda stubs: stubs.windows.LoadWindow(window.LoadWindowRequest(session=KEY)),
    "StreamWindow": lambda stubs: gathered(stubs.windows.StreamWindow(window.StreamWindowRequest(session=KEY))),
    "GetAgent": lambda stubs: stubs.agents.GetAgent(agents.GetAgentRequest(agent="a")),
    "UpdateAgent": lambda stubs: stubs.agents.UpdateAgent(agents.UpdateAgentRequest(agent=agents.Agent(agent="a"))),
    "ListAgents": lambda stubs: stubs.agents.ListAgents(agents.ListAgentsRequest()),
    "CreateRun": lambda stubs: stubs.runs.CreateRun(runs.CreateRunRequest(run=RUN)),
    "GetRun": lambda stubs: stubs.runs.GetRun(runs.GetRunRequest(run=RUN)),
    "ListRuns": lambda stubs: stubs.runs.ListRuns(runs.ListRunsRequest(agent="a")),
    "CommitRunStep": lambda stubs: stubs.runs.CommitRunStep(runs.CommitRunStepRequest(run=RUN, fence=FENCE, number=1)),
    "ListRunSteps": lambda stubs: stubs.runs.ListRunSteps(runs.ListRunStepsRequest(run=RUN)),
    "UpdateRun": lambda stubs: stubs.runs.UpdateRun(runs.UpdateRunRequest(run=runs.Run(key=RUN), fence=FENCE)),
    "ClaimRun": lambda stubs: stubs.runs.ClaimRun(runs.ClaimRunRequest(agent="a")),
    "RenewRunLease": lambda stubs: stubs.runs.RenewRunLease(runs.RenewRunLeaseRequest(run=RUN, fence=FENCE)),
    "ReleaseRun": lambda stubs: stubs.runs.ReleaseRun(runs.ReleaseRunRequest(run=RUN, fence=FENCE)),
    "DeleteRun": lambda stubs: stubs.runs.DeleteRun(runs.DeleteRunRequest(run=RUN)),
    "GetMemoryFile": lambda stubs: stubs.memory.GetMemoryFile(
        memory.GetMemoryFileRequest(owner=OWNER, name="MEMORY.md")
    ),
    "PutMemoryFile": lambda stubs: stubs.memory.PutMemoryFile(
        memory.PutMemoryFileRequest(owner=OWNER, name="MEMORY.md")
    ),
    "ListMemoryFiles": lambda stubs: stubs.memory.ListMemoryFiles(memory.ListMemoryFilesRequest(owner=OWNER)),
    "DeleteMemoryFile": lambda stubs: stubs.memory.DeleteMemoryFile(
        memory.DeleteMemoryFileRequest(owner=OWNER, name="MEMORY.md")
    ),
    "ListMemoryFileVersions": lambda stubs: stubs.memory.ListMemoryFileVersions(
        memory.ListMemoryFileVersionsRequest(owner=OWNER, name="MEMORY.md")
    ),
    "AddMemoryEntries": lambda stubs: stubs.memory.AddMemoryEntries(
        memory.AddMemoryEntriesRequest(owner=OWNER, entries=["- one"])
    ),
    "AppendDailyLog": lambda stubs: stubs.memory.AppendDailyLog(memory.AppendDailyLogRequest(owner=OWNER, text="one")),
    "RenderMemoryContext": lambda stubs: stubs.memory.RenderMemoryContext(memory.RenderMemoryContextRequest(agent="a")),
}


class TestFailuresInside:
    @pytest.fixture
    def store(self) -> HookedStore:
        return HookedStore()

    @pytest.fixture
    async def stubs(self, store: HookedStore) -> AsyncIterator[AsyncStubs]:
        """A server on the store, with one session."""
        async with serving(store) as (_, stubs):
            await stubs.histories.AppendMessages(
                history.AppendMessagesRequest(session=KEY, messages=[text("one", id="one")])
            )
            yield stubs

    def fail(self, store: HookedStore, failure: BaseException) -> None:
        async def before(method: str) -> None:
            del method
            raise failure

        store.before = before

    @pytest.mark.parametrize("method", METHODS)
    async def test_unknown_exceptions_are_internal_and_keep_their_text(
        self, stubs: AsyncStubs, store: HookedStore, method: str
    ) -> None:
        """Their text is only in the log, under the correlation id (invariant 12)."""
        self.fail(store, RuntimeError(SECRET))
        with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as logged:
            refusal = await failing(METHODS[method](stubs))

        assert (refusal.code, refusal.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
        assert "hunter2" not in str(refusal)
        assert "RuntimeError" not in str(refusal)
        assert "correlation id" in refusal.text
        (entry,) = [entry for entry in logged if entry.get("exc_info")]
        assert entry["log_level"] == "error"
        assert entry["correlation_id"] == refusal.correlation_id

    @pytest.mark.parametrize("method", METHODS)
    async def test_a_store_that_does_not_answer_is_unavailable_with_a_time_to_retry(
        self, stubs: AsyncStubs, store: HookedStore, method: str
    ) -> None:
        self.fail(store, StoreUnavailable("the disk is full"))
        refusal = await failing(METHODS[method](stubs))

        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
        assert "the disk is full" in refusal.text
        assert refusal.metadata["store"]
        assert refusal.retry_seconds is not None
        assert refusal.retry_seconds > 0

    @pytest.mark.parametrize("method", METHODS)
    async def test_an_inner_cancellation_gives_a_status(
        self, stubs: AsyncStubs, store: HookedStore, method: str
    ) -> None:
        """Without one of ours, the caller would wait for its deadline (invariant 16)."""
        self.fail(store, asyncio.CancelledError())
        async with asyncio.timeout(10):
            refusal = await failing(METHODS[method](stubs))

        assert (refusal.code, refusal.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")

    async def test_the_server_serves_on(self, stubs: AsyncStubs, store: HookedStore) -> None:
        """After each kind of failure, what was asked for works, and nothing was written by what failed."""
        healthy = store.before
        for failure in (RuntimeError(SECRET), StoreUnavailable("away"), asyncio.CancelledError()):
            self.fail(store, failure)
            await failing(METHODS["AppendMessages"](stubs))
            store.before = healthy
            listed = await stubs.histories.ListMessages(history.ListMessagesRequest(session=KEY))
            assert seqs(listed.messages) == [1]
        answer: Any = await METHODS["AppendMessages"](stubs)
        assert seqs(answer.messages) == [2]

    @pytest.mark.parametrize("failure", [RuntimeError(SECRET), StoreUnavailable("away"), asyncio.CancelledError()])
    async def test_a_commit_whose_answer_is_lost_is_found_by_its_ids(
        self, stubs: AsyncStubs, store: HookedStore, failure: BaseException
    ) -> None:
        """The store made the change and then failed: what the server remembers of the session is void, a retry gets the
        first answer, and another append goes on behind it (invariants 2 and 3)."""

        async def fail() -> None:
            raise failure

        async def succeed() -> None:
            pass

        store.after_commit = fail
        await failing(METHODS["AppendMessages"](stubs))
        store.after_commit = succeed
        later = await stubs.histories.AppendMessages(
            history.AppendMessagesRequest(session=KEY, messages=[text("three", id="three")])
        )
        retried: Any = await METHODS["AppendMessages"](stubs)

        assert seqs(later.messages) == [3]
        assert seqs(retried.messages) == [2]
        listed = await stubs.histories.ListMessages(history.ListMessagesRequest(session=KEY))
        assert [message.id for message in listed.messages] == ["one", "two", "three"]

    async def test_a_store_that_is_away_is_told_as_unreachable(self, stubs: AsyncStubs, store: HookedStore) -> None:
        self.fail(store, StoreUnavailable("away"))
        found = await stubs.stores.GetStore(stores.GetStoreRequest())

        assert not found.store.reachable


class LosingStore(HookedStore):
    """Refuses every commit, as if others were always faster."""

    async def commit(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        return [Conflict() for _ in changes]


async def test_contention_ends_with_the_deadline() -> None:
    """A change is tried again until the call's deadline, and then told with a time to retry (design section 5)."""
    async with serving(LosingStore()) as (_, stubs):
        request = history.AppendMessagesRequest(session=KEY, messages=[text("one")])
        started = time.monotonic()
        refusal = await failing(stubs.histories.AppendMessages(request, timeout=1.5))

        assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "CONTENTION")
        assert refusal.retry_seconds is not None
        assert "nothing was written" in refusal.text
        assert time.monotonic() - started < 1.5


class TestCorrelationIds:
    def test_are_made_for_each_call(self, sqlite_stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        ids = {refused(lambda: sqlite_stubs.session(key)).correlation_id for _ in range(5)}

        assert len(ids) == 5
        assert all(len(id_) == 32 for id_ in ids)

    def test_of_the_caller_are_kept(self, sqlite_stubs: Stubs, agent: str) -> None:
        request = history.GetSessionRequest(session=new_key(agent))
        metadata = ((CORRELATION_METADATA, "caller's own/7"),)
        refusal = refused(lambda: sqlite_stubs.histories.GetSession(request, metadata=metadata))

        assert refusal.correlation_id == "caller's own/7"
        assert refusal.trailing[CORRELATION_METADATA] == "caller's own/7"

    @pytest.mark.parametrize("theirs", ["", "x" * 65])
    def test_that_are_no_ids_are_replaced(self, sqlite_stubs: Stubs, agent: str, theirs: str) -> None:
        request = history.GetSessionRequest(session=new_key(agent))
        metadata = ((CORRELATION_METADATA, theirs),)
        refusal = refused(lambda: sqlite_stubs.histories.GetSession(request, metadata=metadata))

        assert refusal.correlation_id != theirs
        assert len(refusal.correlation_id) == 32

    def test_are_in_the_trailing_metadata_of_good_answers(self, sqlite_stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        metadata = ((CORRELATION_METADATA, "mine"),)
        append = history.AppendMessagesRequest(session=key, messages=[text("one")])
        _, call = sqlite_stubs.histories.AppendMessages.with_call(append, metadata=metadata)
        assert dict(call.trailing_metadata())[CORRELATION_METADATA] == "mine"

        stream: Any = sqlite_stubs.windows.StreamWindow(window.StreamWindowRequest(session=key), metadata=metadata)
        assert list(stream)
        assert dict(stream.trailing_metadata())[CORRELATION_METADATA] == "mine"

    def test_are_in_the_log(self, server: ServerProcess, sqlite_stubs: Stubs, agent: str) -> None:
        refusal = refused(lambda: sqlite_stubs.session(new_key(agent)))
        line = wait_for_line(server, refusal.correlation_id)

        assert "/memoryd.v1.HistoryService/GetSession" in line
        assert "NOT_FOUND" in line

    def test_of_unknown_methods_are_in_the_log(self, server: ServerProcess, sqlite_stubs: Stubs) -> None:
        call: Any = sqlite_stubs.channel.unary_unary("/memoryd.v1.HistoryService/Nothing")
        refusal = refused(lambda: call(b""))
        assert "UNIMPLEMENTED" in wait_for_line(server, refusal.correlation_id)


def wait_for_line(server: ServerProcess, part: str) -> str:
    """The line of the server's log that holds the text; a line may come a moment after its answer."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        for line in server.log_text().splitlines():
            if part in line:
                return line
    raise AssertionError(f"{part} never came into the log")


def test_the_log_holds_no_content(start_server: StartServer, tmp_path: Path, agent: str) -> None:
    """Not even at its most talkative: what people say is not for the log."""
    canary = "canary-4711"
    options = ("--tokenizer", "estimate", "--log-level", "debug", "--log-format", "json")
    server = start_server("--data-dir", str(tmp_path), *options)
    key = new_key(agent)
    with Stubs(server.address) as stubs:
        stubs.append(key, text(canary, id="one", name=canary, metadata=canary, extra=canary))
        stubs.messages(key)
        stubs.load(key)
        stubs.stream(key)
        refused(lambda: stubs.append(key, text(canary + "!", id="one")))
        refused(lambda: stubs.append(key, text(canary, name="x" * 257)))
        last = refused(lambda: stubs.load(key, limit=0))
        wait_for_line(server, last.correlation_id)
    assert "AppendMessages" in server.log_text()
    assert canary not in server.log_text()
