"""Tenants are strangers to each other: with one's token nothing of the other's is read, changed, counted or told apart
from what does not exist (invariant 5), by any method.

Each method is called twice with the stranger's token: with names that the owner uses, and with names that nobody uses.
The answers must be the same but for the names, and the owner must find everything as it was.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from memoryd.v1 import agent_service_pb2 as agents
from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import memory_context_service_pb2 as memory
from memoryd.v1 import run_service_pb2 as runs
from memoryd.v1 import session_pb2 as session
from memoryd.v1 import store_service_pb2 as stores
from memoryd.v1 import summary_service_pb2 as summaries
from memoryd.v1 import window_service_pb2 as window
from memoryd_server.app import METHODS
from memoryd_server.credentials import token_editing
from tests.adapters import EACH_ATOMIC_ADAPTER
from tests.servers import ServerProcess
from tests.service import memory_calls as files
from tests.service import run_calls
from tests.service.wire import Stubs, calls, refusal_of, refused, seqs, text

MARKER: Final = "only-the-owner-knows"
"""In all that the owner stores."""

DAY: Final = "2026-01-02"

STREAM_SECONDS: Final = 2
"""How long a stream without an end is listened to: longer than a server takes to look for news."""


@dataclass(frozen=True)
class Tenants:
    """A server with two tenants, and the stubs of each."""

    owner: Stubs
    stranger: Stubs


@pytest.fixture(scope="module", params=EACH_ATOMIC_ADAPTER)
def tenants(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    """A server on a store of each adapter in turn."""
    directory = tmp_path_factory.mktemp("tenants")
    path = directory / "tokens.toml"
    owner, stranger = (token_editing.create(path, tenant, "")[0] for tenant in ("owner", "stranger"))
    with ExitStack() as running:
        url = running.enter_context(request.param.emptied(directory))
        flags = ("--store", f"default={url}", "--tokenizer", "estimate", "--tokens-file", str(path))
        server = ServerProcess(*flags, log=directory / "server.log")
        running.callback(server.close)
        yield Tenants(
            running.enter_context(Stubs(server.address, token=owner)),
            running.enter_context(Stubs(server.address, token=stranger)),
        )


@dataclass(frozen=True)
class Names:
    """What a session and all that belongs to it are called."""

    agent: str
    session_id: str
    user_id: str
    message_id: str
    request_id: str
    run_id: str

    @property
    def key(self) -> session.SessionKey:
        return session.SessionKey(agent=self.agent, session_id=self.session_id)

    @property
    def run(self) -> runs.RunKey:
        return run_calls.run_of(self.key, self.run_id)

    @property
    def other(self) -> session.SessionKey:
        """Another session of the agent, which nobody has."""
        return session.SessionKey(agent=self.agent, session_id=f"{self.session_id}-other")


_numbers = itertools.count(1)


def new_names() -> Names:
    """Names that nobody uses; all of one length, so that answers that quote them have one too."""
    number = f"{next(_numbers):06}"
    return Names(*(f"{kind}{number}" for kind in ("agent", "session", "user", "message", "request", "run")))


def owned(owner: Stubs, names: Names) -> Names:
    """Gives the owner a session with these names, in which everything is used that a session can have."""
    create = history.SessionSettings(user_id=names.user_id, labels={"label": MARKER})
    messages = [text(MARKER, id=names.message_id), calls("call"), *(text(f"{MARKER} {n}") for n in range(8))]
    owner.append(names.key, *messages, create=create, request_id=names.request_id)
    settings = agents.Agent(agent=names.agent)
    settings.policy.window.limit = 7
    settings.policy.summary.summarizer = "client"
    settings.load_memory = True
    owner.agents.UpdateAgent(agents.UpdateAgentRequest(agent=settings))
    owner.commit(owner.lease(names.key), MARKER)
    owner.append(names.key, *(text(f"{MARKER} {n}") for n in range(8, 10)))
    fence = run_calls.create(owner, names.run, metadata=MARKER, holder=MARKER).fence
    run_calls.step(owner, names.run, fence, 1, MARKER.encode(), content_type=MARKER)
    run_calls.create(owner, run_calls.run_of(names.key, "queued"), metadata=MARKER, queued=True)
    for of in (files.user(names.user_id), files.project(names.user_id)):
        files.add(owner, of, f"- {MARKER}", author=MARKER, request_id=names.request_id)
        files.log(owner, of, MARKER, date=DAY, request_id=names.request_id)
    return names


@pytest.fixture
def names(tenants: Tenants) -> Names:
    """The names of a session of the owner's."""
    return owned(tenants.owner, new_names())


Call = Callable[[Stubs, Names], Any]

FENCE: Final = "0" * 16 + "-" + "0" * 32
"""As one looks; nobody's."""


def claim_any_or_named(stubs: Stubs, names: Names) -> runs.ClaimRunResponse:
    claimed = run_calls.claim(stubs, names.agent)
    return claimed if claimed.HasField("run") else run_calls.claim(stubs, names.run)


CASES: Final[dict[str, Call]] = {
    "HistoryService/AppendMessages": lambda stubs, names: stubs.histories.AppendMessages(
        history.AppendMessagesRequest(
            session=names.key, messages=[text("mine", id=names.message_id)], request_id=names.request_id
        )
    ),
    "HistoryService/ListMessages": lambda stubs, names: stubs.histories.ListMessages(
        history.ListMessagesRequest(session=names.key, view=history.MESSAGE_VIEW_ALL)
    ),
    "HistoryService/GetMessage": lambda stubs, names: stubs.histories.GetMessage(
        history.GetMessageRequest(session=names.key, id=names.message_id)
    ),
    "HistoryService/GetSession": lambda stubs, names: stubs.histories.GetSession(
        history.GetSessionRequest(session=names.key)
    ),
    "HistoryService/ListSessions": lambda stubs, names: [
        stubs.histories.ListSessions(history.ListSessionsRequest(agent=agent, user_id=user_id))
        for agent, user_id in ((names.agent, ""), ("", names.user_id), (names.agent, names.user_id))
    ],
    "HistoryService/UpdateSession": lambda stubs, names: stubs.histories.UpdateSession(
        history.UpdateSessionRequest(session=session.Session(key=names.key, user_id="mine"))
    ),
    "HistoryService/ClearHistory": lambda stubs, names: stubs.histories.ClearHistory(
        history.ClearHistoryRequest(session=names.key)
    ),
    "HistoryService/ClearAgentHistory": lambda stubs, names: stubs.histories.ClearAgentHistory(
        history.ClearAgentHistoryRequest(agent=names.agent)
    ),
    "HistoryService/RedactMessage": lambda stubs, names: stubs.histories.RedactMessage(
        history.RedactMessageRequest(session=names.key, id=names.message_id)
    ),
    "HistoryService/RewindSession": lambda stubs, names: stubs.histories.RewindSession(
        history.RewindSessionRequest(session=names.key, to_seq=0)
    ),
    "HistoryService/ForkSession": lambda stubs, names: stubs.histories.ForkSession(
        history.ForkSessionRequest(source=names.key, target=names.other)
    ),
    "HistoryService/EraseUser": lambda stubs, names: stubs.histories.EraseUser(
        history.EraseUserRequest(user_id=names.user_id)
    ),
    "HistoryService/WatchMessages": lambda stubs, names: listened(
        stubs.histories.WatchMessages(
            history.WatchMessagesRequest(session=names.key, after_seq=0), timeout=STREAM_SECONDS
        )
    ),
    "WindowService/LoadWindow": lambda stubs, names: stubs.windows.LoadWindow(
        window.LoadWindowRequest(session=names.key, explain=True)
    ),
    "WindowService/StreamWindow": lambda stubs, names: list(
        stubs.windows.StreamWindow(window.StreamWindowRequest(session=names.key, explain=True))
    ),
    "AgentService/GetAgent": lambda stubs, names: stubs.agents.GetAgent(agents.GetAgentRequest(agent=names.agent)),
    "AgentService/UpdateAgent": lambda stubs, names: stubs.agents.UpdateAgent(
        agents.UpdateAgentRequest(agent=agents.Agent(agent=names.agent))
    ),
    "AgentService/ListAgents": lambda stubs, names: [
        agent
        for agent in stubs.agents.ListAgents(agents.ListAgentsRequest(page_size=1_000)).agents
        if agent.agent == names.agent
    ],
    "SummaryService/Summarize": lambda stubs, names: stubs.summaries.Summarize(
        summaries.SummarizeRequest(session=names.key)
    ),
    "SummaryService/GetSummary": lambda stubs, names: stubs.summaries.GetSummary(
        summaries.GetSummaryRequest(session=names.key)
    ),
    "SummaryService/ListSummaries": lambda stubs, names: stubs.summaries.ListSummaries(
        summaries.ListSummariesRequest(session=names.key)
    ),
    "SummaryService/RevertSummary": lambda stubs, names: stubs.summaries.RevertSummary(
        summaries.RevertSummaryRequest(session=names.key, summary_id="any")
    ),
    "SummaryService/LeaseSummaryTask": lambda stubs, names: [
        stubs.summaries.LeaseSummaryTask(request)
        for request in (
            summaries.LeaseSummaryTaskRequest(agent=names.agent),
            summaries.LeaseSummaryTaskRequest(session=names.key),
        )
    ],
    "SummaryService/CommitSummary": lambda stubs, names: stubs.summaries.CommitSummary(
        summaries.CommitSummaryRequest(session=names.key, task_token="any", text="mine")
    ),
    "SummaryService/AbandonSummaryTask": lambda stubs, names: stubs.summaries.AbandonSummaryTask(
        summaries.AbandonSummaryTaskRequest(session=names.key, task_token="any")
    ),
    "MemoryContextService/RenderMemoryContext": lambda stubs, names: [
        files.render(stubs, files.Source(stored=names.user_id), files.Source(stored=names.user_id), agent=agent)
        for agent in ("", names.agent)
    ],
    "MemoryContextService/GetMemoryFile": lambda stubs, names: files.get(stubs, files.user(names.user_id)),
    "MemoryContextService/PutMemoryFile": lambda stubs, names: files.put(
        stubs, files.user(names.user_id), b"mine", request_id=names.request_id
    ),
    "MemoryContextService/ListMemoryFiles": lambda stubs, names: [
        file for page in files.pages(stubs, files.project(names.user_id)) for file in page
    ],
    "MemoryContextService/DeleteMemoryFile": lambda stubs, names: stubs.memory.DeleteMemoryFile(
        memory.DeleteMemoryFileRequest(owner=files.user(names.user_id), name=files.INDEX)
    ),
    "MemoryContextService/ListMemoryFileVersions": lambda stubs, names: files.versions(
        stubs, files.user(names.user_id)
    ),
    "MemoryContextService/AddMemoryEntries": lambda stubs, names: files.add(
        stubs, files.user(names.user_id), "- mine", request_id=names.request_id
    ),
    "MemoryContextService/AppendDailyLog": lambda stubs, names: files.log(
        stubs, files.project(names.user_id), "mine", date=DAY, request_id=names.request_id
    ),
    "RunService/CreateRun": lambda stubs, names: run_calls.create(stubs, names.run, queued=True),
    "RunService/GetRun": lambda stubs, names: run_calls.get(stubs, names.run),
    "RunService/ListRuns": lambda stubs, names: [
        *run_calls.runs(stubs, names.agent),
        *run_calls.runs(stubs, names.key, run_calls.RUNNING, run_calls.INTERRUPTED),
    ],
    "RunService/CommitRunStep": lambda stubs, names: run_calls.step(
        stubs, names.run, FENCE, 1, b"mine", status=run_calls.COMPLETED
    ),
    "RunService/ListRunSteps": lambda stubs, names: run_calls.steps(stubs, names.run),
    "RunService/UpdateRun": lambda stubs, names: run_calls.update(
        stubs, runs.Run(key=names.run, status=run_calls.CANCELLED), fence=FENCE
    ),
    "RunService/ClaimRun": claim_any_or_named,
    "RunService/RenewRunLease": lambda stubs, names: run_calls.renew(stubs, names.run, FENCE),
    "RunService/ReleaseRun": lambda stubs, names: run_calls.release(stubs, names.run, FENCE),
    "RunService/DeleteRun": lambda stubs, names: stubs.runs.DeleteRun(runs.DeleteRunRequest(run=names.run)),
    "StoreService/GetStore": lambda stubs, names: stubs.stores.GetStore(stores.GetStoreRequest()),
    "StoreService/ListStores": lambda stubs, names: stubs.stores.ListStores(stores.ListStoresRequest()),
}


ENDLESS: Final = {"HistoryService/WatchMessages"}


def listened(stream: Any) -> list[Any]:
    """What a stream without an end tells within its deadline."""
    told: list[Any] = []
    try:
        told.extend(stream)
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
            raise
    return told


def answer(stubs: Stubs, call: Call, names: Names) -> str:
    """What a call is told, with the names and the moment taken out: what may differ between names alone."""
    try:
        told = plain(call(stubs, names))
    except grpc.RpcError as error:
        refusal = refusal_of(error)
        metadata = {name: value for name, value in refusal.metadata.items() if name != "correlation_id"}
        told = [refusal.code.name, refusal.reason, refusal.text, metadata]
    text_ = json.dumps(told, sort_keys=True)
    for field, name in vars(names).items():
        text_ = text_.replace(name, f"<{field}>")
    return text_


def answers(stubs: Stubs, method: str, *names: Names) -> list[str]:
    """What a call is told with each of some names. Streams without an end are listened to at the same time."""
    call = CASES[method]
    with ThreadPoolExecutor(len(names) if method in ENDLESS else 1) as threads:
        return [*threads.map(lambda each: answer(stubs, call, each), names)]


def plain(told: Any) -> Any:
    if isinstance(told, list):
        return [plain(each) for each in told]
    assert isinstance(told, Message)
    return without_moment(MessageToDict(told, always_print_fields_with_no_presence=True))


def without_moment(value: Any) -> Any:
    """Without times, and without what is random."""
    if isinstance(value, list):
        return [without_moment(each) for each in value]
    if not isinstance(value, dict):
        return value
    moment = re.compile(r"(etag|fence|resumeToken|.*Time|.*Digest)\Z")
    return {name: without_moment(each) for name, each in value.items() if not moment.match(name)}


READS: Final = (
    "HistoryService/ListMessages",
    "HistoryService/GetMessage",
    "HistoryService/GetSession",
    "HistoryService/ListSessions",
    "WindowService/LoadWindow",
    "WindowService/StreamWindow",
    "AgentService/GetAgent",
    "AgentService/ListAgents",
    "SummaryService/GetSummary",
    "SummaryService/ListSummaries",
    "MemoryContextService/RenderMemoryContext",
    "MemoryContextService/GetMemoryFile",
    "MemoryContextService/ListMemoryFiles",
    "MemoryContextService/ListMemoryFileVersions",
    "RunService/GetRun",
    "RunService/ListRuns",
    "RunService/ListRunSteps",
)


def all_of(owner: Stubs, names: Names) -> list[bytes]:
    """All that the owner can read with these names, byte for byte."""
    told: list[bytes] = []
    for method in READS:
        answers = CASES[method](owner, names)
        told += [
            each.SerializeToString(deterministic=True) for each in (answers if isinstance(answers, list) else [answers])
        ]
    return told


def test_every_method_has_a_case() -> None:
    ours = {method.removeprefix("/memoryd.v1.") for method in METHODS if method.startswith("/memoryd.")}
    assert set(CASES) == ours


@pytest.mark.parametrize("method", CASES)
def test_what_is_anothers_is_as_if_it_did_not_exist(tenants: Tenants, names: Names, method: str) -> None:
    before = all_of(tenants.owner, names)
    assert any(MARKER.encode() in each for each in before)

    told, of_nobody = answers(tenants.stranger, method, names, new_names())
    assert told == of_nobody

    assert MARKER not in told
    assert all_of(tenants.owner, names) == before


@pytest.mark.parametrize("method", CASES)
def test_what_has_the_same_names_is_each_tenants_own(tenants: Tenants, names: Names, method: str) -> None:
    """A stranger with a session of the same names finds, changes and counts it alone, as with names of its own."""
    mine = new_names()
    for each in (names, mine):
        create = history.SessionSettings(user_id=each.user_id)
        tenants.stranger.append(each.key, text("mine", id=each.message_id), create=create)
        files.add(tenants.stranger, files.user(each.user_id), "- of mine")
        run_calls.create(tenants.stranger, each.run, queued=True)
    before = all_of(tenants.owner, names)

    told, of_mine = answers(tenants.stranger, method, names, mine)
    assert told == of_mine

    assert MARKER not in told
    assert all_of(tenants.owner, names) == before


class TestTokensOfPlaces:
    """Page and resume tokens give no access: another tenant's are what a made-up one is."""

    @pytest.fixture
    def names(self, tenants: Tenants, names: Names) -> Names:
        """Names that both tenants use."""
        create = history.SessionSettings(user_id=names.user_id)
        messages = [text(f"mine {number}") for number in range(3)]
        tenants.stranger.append(names.key, *messages, create=create)
        tenants.stranger.append(names.other, text("mine"), create=create)
        tenants.owner.append(names.other, text(MARKER), create=create)
        return names

    def refused_alike(self, list_: Callable[[Stubs, str], Any], tenants: Tenants) -> None:
        token = list_(tenants.owner, "").next_page_token
        assert token
        assert list_(tenants.stranger, "").next_page_token
        foreign = refused(lambda: list_(tenants.stranger, token))
        made_up = refused(lambda: list_(tenants.stranger, token[::-1]))
        assert foreign.reason == made_up.reason == "PAGE_TOKEN_INVALID"
        assert foreign.text == made_up.text

    def test_of_messages(self, tenants: Tenants, names: Names) -> None:
        self.refused_alike(
            lambda stubs, token: stubs.histories.ListMessages(
                history.ListMessagesRequest(session=names.key, page_size=1, page_token=token)
            ),
            tenants,
        )

    def test_of_sessions(self, tenants: Tenants, names: Names) -> None:
        self.refused_alike(
            lambda stubs, token: stubs.histories.ListSessions(
                history.ListSessionsRequest(agent=names.agent, page_size=1, page_token=token)
            ),
            tenants,
        )

    def test_of_agents(self, tenants: Tenants, names: Names) -> None:
        del names
        for stubs in (tenants.owner, tenants.stranger):
            for _ in range(2):
                CASES["AgentService/UpdateAgent"](stubs, new_names())
        self.refused_alike(
            lambda stubs, token: stubs.agents.ListAgents(agents.ListAgentsRequest(page_size=1, page_token=token)),
            tenants,
        )

    def test_of_memory_files(self, tenants: Tenants, names: Names) -> None:
        owner = files.user(names.user_id)
        for name in (files.INDEX, f"{DAY}.md"):
            files.put(tenants.stranger, owner, b"mine", name)
        self.refused_alike(
            lambda stubs, token: stubs.memory.ListMemoryFiles(
                memory.ListMemoryFilesRequest(owner=owner, page_size=1, page_token=token)
            ),
            tenants,
        )

    def test_of_runs(self, tenants: Tenants, names: Names) -> None:
        for number in range(2):
            run_calls.create(tenants.stranger, run_calls.run_of(names.key, f"{number}"), queued=True)
        self.refused_alike(
            lambda stubs, token: stubs.runs.ListRuns(
                runs.ListRunsRequest(agent=names.agent, page_size=1, page_token=token)
            ),
            tenants,
        )

    def test_of_steps(self, tenants: Tenants, names: Names) -> None:
        run = run_calls.run_of(names.key, "of both")
        for stubs in (tenants.owner, tenants.stranger):
            fence = run_calls.create(stubs, run).fence
            for number in (1, 2):
                run_calls.step(stubs, run, fence, number)
        self.refused_alike(
            lambda stubs, token: stubs.runs.ListRunSteps(
                runs.ListRunStepsRequest(run=run, page_size=1, page_token=token)
            ),
            tenants,
        )

    def test_of_watches(self, tenants: Tenants, names: Names) -> None:
        def watch(stubs: Stubs, **fields: Any) -> Any:
            request = history.WatchMessagesRequest(session=names.key, **fields)
            return stubs.histories.WatchMessages(request, timeout=STREAM_SECONDS)

        stream = watch(tenants.owner, after_seq=0)
        token = next(each.resume_token for each in stream if each.events)
        stream.cancel()

        def told(resume_token: str) -> str:
            return answer(tenants.stranger, lambda stubs, _: listened(watch(stubs, resume_token=resume_token)), names)

        with ThreadPoolExecutor(2) as threads:
            foreign, made_up = threads.map(told, (token, token[::-1]))
        assert foreign == made_up
        assert MARKER not in foreign


@pytest.mark.parametrize("is_there", [False, True], ids=["without such a run", "with a run of the same name"])
def test_anothers_fence_and_etag_are_as_if_they_were_made_up(tenants: Tenants, names: Names, is_there: bool) -> None:
    """Who came to know them writes nothing with them, and is told nothing by them."""
    run = run_calls.run_of(names.key, "of the owner")
    begun = run_calls.create(tenants.owner, run)
    if is_there:
        run_calls.create(tenants.stranger, run)
    before = all_of(tenants.owner, names)
    for call in (
        lambda stubs, fence: run_calls.step(stubs, run, fence, 1),
        lambda stubs, fence: run_calls.renew(stubs, run, fence),
        lambda stubs, fence: run_calls.release(stubs, run, fence),
        lambda stubs, fence: run_calls.update(stubs, runs.Run(key=run, metadata="mine"), fence=fence),
    ):
        foreign, made_up = (
            refused(lambda call=call, fence=fence: call(tenants.stranger, fence))  # type: ignore[misc]
            for fence in (begun.fence, FENCE)
        )
        assert (foreign.reason, foreign.text) == (made_up.reason, made_up.text)
        assert foreign.reason == ("LEASE_LOST" if is_there else "SESSION_NOT_FOUND")
    changed = runs.Run(key=run, status=run_calls.CANCELLED, etag=begun.run.etag)
    refusal = refused(lambda: run_calls.update(tenants.stranger, changed))
    assert refusal.reason == ("ETAG_MISMATCH" if is_there else "SESSION_NOT_FOUND")
    assert begun.run.etag not in refusal.text
    assert all_of(tenants.owner, names) == before


def test_a_watch_hears_of_its_own_tenant_alone(tenants: Tenants, names: Names) -> None:
    tenants.stranger.append(names.key, text("mine 1"))
    request = history.WatchMessagesRequest(session=names.key, after_seq=0)
    stream = tenants.stranger.histories.WatchMessages(request, timeout=60)
    heard = (event for each in stream for event in each.events)
    assert next(heard).message.content.parts[0].text == "mine 1"
    tenants.owner.append(names.key, text(f"{MARKER} more"))
    tenants.owner.clear(names.key)
    tenants.stranger.append(names.key, text("mine 2"))
    assert next(heard).message.content.parts[0].text == "mine 2"
    stream.cancel()


def test_lists_without_a_name_hold_ones_own(tenants: Tenants, names: Names) -> None:
    mine = replace(new_names(), user_id=names.user_id)
    tenants.stranger.append(mine.key, text("mine"))
    listed = tenants.stranger.histories.ListSessions(history.ListSessionsRequest(page_size=1_000)).sessions
    assert names.agent not in {each.key.agent for each in listed}
    assert mine.agent in {each.key.agent for each in listed}
    named = tenants.stranger.agents.ListAgents(agents.ListAgentsRequest(page_size=1_000)).agents
    assert names.agent not in {each.agent for each in named}


def test_what_a_tenant_appends_begins_a_session_of_its_own(tenants: Tenants, names: Names) -> None:
    """Also with ids that the other tenant has used."""
    appended = tenants.stranger.append(names.key, text("mine", id=names.message_id), request_id=names.request_id)
    assert seqs(appended) == [1]
    assert seqs(tenants.stranger.messages(names.key)) == [1]
    assert len(tenants.owner.messages(names.key, view=history.MESSAGE_VIEW_ALL)) == 12
