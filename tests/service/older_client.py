"""A client of another version: it has the code that was generated from that version's API, and nothing else of memoryd.

    python older_client.py ADDRESS AGENT

It calls every method that its API has, checks the answers, and prints the methods' names, one a line. What it uses of
them, every API has that was ever released; runs are left out where the API has none. AGENT is an agent with settings,
and with a session `shared`, both of a newer client: what the API does not know of them must survive. All else that it
uses is its own.
"""

import importlib
import importlib.util
import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf.field_mask_pb2 import FieldMask
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from memoryd.v1 import agent_service_pb2 as agents
from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import memory_context_service_pb2 as memory
from memoryd.v1 import message_pb2 as pb
from memoryd.v1 import policy_pb2 as policies
from memoryd.v1 import session_pb2 as sessions
from memoryd.v1 import store_service_pb2 as stores
from memoryd.v1 import summary_service_pb2 as summaries
from memoryd.v1 import window_service_pb2 as window

SECONDS = 30
APPENDED, SUMMARIZED, REDACTED, CLEARED, REWOUND = range(1, 6)
"""WatchEventKind by number: a newer server's kinds have no name here."""

METHODS: list[str] = []
"""The methods that were called."""

ADDRESS, AGENT = sys.argv[1:]


class Recorder(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        METHODS.append(client_call_details.method)
        return continuation(client_call_details, request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        METHODS.append(client_call_details.method)
        return continuation(client_call_details, request)


CHANNEL = grpc.intercept_channel(
    grpc.insecure_channel(ADDRESS, options=[("grpc.enable_http_proxy", 0)]),
    Recorder(),
)


def service(name: str, module: str) -> Any:
    """The bare stub of a service."""
    return getattr(importlib.import_module(f"memoryd.v1.{module}_service_pb2_grpc"), f"{name}ServiceStub")(CHANNEL)


HISTORIES = service("History", "history")
WINDOWS = service("Window", "window")
SUMMARIES = service("Summary", "summary")
MEMORY = service("MemoryContext", "memory_context")
AGENTS = service("Agent", "agent")
STORES = service("Store", "store")


def key(session_id: str) -> sessions.SessionKey:
    return sessions.SessionKey(agent=AGENT, session_id=session_id)


def text(said: str, **fields: Any) -> pb.Message:
    return pb.Message(role=pb.ROLE_USER, content=pb.Content(parts=[pb.Part(text=said)]), **fields)


def texts(messages: Any) -> list[str]:
    return [message.content.parts[0].text for message in messages]


def append(session: sessions.SessionKey, *said: str, **fields: Any) -> list[int]:
    request = history.AppendMessagesRequest(session=session, messages=[text(each) for each in said], **fields)
    return [message.seq for message in HISTORIES.AppendMessages(request, timeout=SECONDS).messages]


def only_known(message: Any) -> Any:
    """The message as a language sends it back that drops what it does not know."""
    message.DiscardUnknownFields()
    return message


@contextmanager
def refused(code: grpc.StatusCode, reason: str) -> Iterator[None]:
    """The calls inside must end with this error, whose reason an older client may not know."""
    try:
        yield
    except grpc.RpcError as error:
        failed: Any = error
        status = Status.FromString(dict(failed.trailing_metadata())["grpc-status-details-bin"])
        info = ErrorInfo()
        assert any(detail.Unpack(info) for detail in status.details)
        assert (failed.code(), info.reason, info.domain) == (code, reason, "memoryd")
    else:
        raise AssertionError("the call was not refused")


def keep_a_history() -> None:
    mine = key("mine")
    with refused(grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"):
        HISTORIES.GetSession(history.GetSessionRequest(session=mine), timeout=SECONDS)
    create = history.SessionSettings(user_id="ann", labels={"a": "1"})
    assert append(mine, "one", "two", request_id="r", create=create) == [1, 2]
    assert append(mine, "one", "two", request_id="r", create=create) == [1, 2]
    watch = HISTORIES.WatchMessages(history.WatchMessagesRequest(session=mine, after_seq=0), timeout=SECONDS)
    events = itertools.chain.from_iterable(answer.events for answer in watch)
    assert append(mine, "three", "four") == [3, 4]

    redacted = HISTORIES.RedactMessage(history.RedactMessageRequest(session=mine, seq=2), timeout=SECONDS).message
    assert redacted.seq == 2
    rewind = history.RewindSessionRequest(session=mine, to_seq=3, request_id="rewind")
    assert HISTORIES.RewindSession(rewind, timeout=SECONDS).removed_message_count == 1
    fork = history.ForkSessionRequest(source=mine, target=key("fork"), request_id="fork")
    assert HISTORIES.ForkSession(fork, timeout=SECONDS).last_seq >= 3

    page = HISTORIES.ListMessages(history.ListMessagesRequest(session=mine, page_size=2), timeout=SECONDS)
    assert [message.seq for message in page.messages] == [1, 2]
    rest = history.ListMessagesRequest(session=mine, page_size=2, page_token=page.next_page_token)
    assert texts(HISTORIES.ListMessages(rest, timeout=SECONDS).messages) == ["three"]
    got = HISTORIES.GetMessage(history.GetMessageRequest(session=mine, seq=1), timeout=SECONDS).message
    assert texts([got]) == ["one"]
    loaded = WINDOWS.LoadWindow(
        window.LoadWindowRequest(session=mine, options=policies.WindowOptions(limit=2)), timeout=SECONDS
    )
    assert [message.seq for message in loaded.messages] == [2, 3]
    assert loaded.stats.history_message_count == 3
    stream = list(WINDOWS.StreamWindow(window.StreamWindowRequest(session=mine), timeout=SECONDS))
    assert [message.seq for answer in stream for message in answer.messages] == [1, 2, 3]
    assert stream[-1].stats.window_message_count == 3

    twin = sessions.SessionKey(agent=f"{AGENT}'s twin", session_id="s")
    append(twin, "one")
    of_agent = HISTORIES.ClearAgentHistory(history.ClearAgentHistoryRequest(agent=twin.agent), timeout=SECONDS)
    assert of_agent.cleared_message_count == 1
    cleared = HISTORIES.ClearHistory(history.ClearHistoryRequest(session=mine), timeout=SECONDS)
    assert cleared.cleared_message_count == 3
    kinds = [next(events).kind for _ in range(7)]
    assert kinds == [APPENDED] * 4 + [REDACTED, REWOUND, CLEARED], kinds
    watch.cancel()


def summarize() -> None:
    """With a model of its own, and by the server."""
    policy = policies.Policy(
        window=policies.WindowOptions(mode=policies.WINDOW_MODE_MESSAGES, limit=2),
        summary=policies.SummaryPolicy(enabled=True, summarizer="client", keep=1),
    )
    own = key("summarized")
    append(own, *map(str, range(8)), create=history.SessionSettings(policy=policy))
    WINDOWS.LoadWindow(window.LoadWindowRequest(session=own), timeout=SECONDS)
    given_up = lease_task(own)
    abandon = summaries.AbandonSummaryTaskRequest(session=own, task_token=given_up.task_token)
    SUMMARIES.AbandonSummaryTask(abandon, timeout=SECONDS)
    commit = summaries.CommitSummaryRequest(session=own, task_token=lease_task(own).task_token, text="digits")
    SUMMARIES.CommitSummary(commit, timeout=SECONDS)
    found = SUMMARIES.GetSummary(summaries.GetSummaryRequest(session=own), timeout=SECONDS).summary
    assert (found.text, found.from_seq) == ("digits", 1)
    listed = SUMMARIES.ListSummaries(summaries.ListSummariesRequest(session=own), timeout=SECONDS).summaries
    assert [each.id for each in listed] == [found.id]
    SUMMARIES.RevertSummary(summaries.RevertSummaryRequest(session=own, summary_id=found.id), timeout=SECONDS)

    policy.summary.summarizer = "extractive"
    changed = sessions.Session(key=own, policy=policy)
    HISTORIES.UpdateSession(history.UpdateSessionRequest(session=changed), timeout=SECONDS)
    made = SUMMARIES.Summarize(summaries.SummarizeRequest(session=own), timeout=SECONDS)
    assert made.folded_message_count == 7
    shown = WINDOWS.LoadWindow(window.LoadWindowRequest(session=own), timeout=SECONDS)
    assert shown.stats.summary_id == made.summary.id


def lease_task(session: sessions.SessionKey) -> summaries.SummaryTask:
    lease = summaries.LeaseSummaryTaskRequest(session=session)
    task: summaries.SummaryTask = SUMMARIES.LeaseSummaryTask(lease, timeout=SECONDS).task
    assert texts(task.messages)[0] == "0"
    return task


def keep_memory() -> None:
    owner = memory.MemoryOwner(user_id=f"{AGENT}'s user")
    put = memory.PutMemoryFileRequest(owner=owner, name="MEMORY.md", content=b"- likes tea\n")
    first = MEMORY.PutMemoryFile(put, timeout=SECONDS).file
    got = MEMORY.GetMemoryFile(memory.GetMemoryFileRequest(owner=owner, name="MEMORY.md"), timeout=SECONDS)
    assert (got.content, got.file.etag) == (b"- likes tea\n", first.etag)
    again = memory.PutMemoryFileRequest(
        owner=owner, name=got.file.name, content=got.content + b"- and cake\n", etag=got.file.etag
    )
    assert MEMORY.PutMemoryFile(again, timeout=SECONDS).file.version == 2
    with refused(grpc.StatusCode.ABORTED, "ETAG_MISMATCH"):
        MEMORY.PutMemoryFile(
            memory.PutMemoryFileRequest(owner=owner, name=got.file.name, content=b"x", etag=first.etag),
            timeout=SECONDS,
        )
    added = MEMORY.AddMemoryEntries(
        memory.AddMemoryEntriesRequest(owner=owner, entries=["and cake", "lives in Oslo"]), timeout=SECONDS
    )
    assert added.file.version == 3
    MEMORY.AppendDailyLog(memory.AppendDailyLogRequest(owner=owner, text="met Bob", date="2026-11-30"), timeout=SECONDS)
    listed = MEMORY.ListMemoryFiles(memory.ListMemoryFilesRequest(owner=owner), timeout=SECONDS).files
    assert len(listed) == 2
    versions = memory.ListMemoryFileVersionsRequest(owner=owner, name="MEMORY.md")
    assert [each.version for each in MEMORY.ListMemoryFileVersions(versions, timeout=SECONDS).versions] == [3, 2, 1]
    rendered = MEMORY.RenderMemoryContext(
        memory.RenderMemoryContextRequest(user=memory.MemorySource(stored=owner.user_id)), timeout=SECONDS
    )
    assert "likes tea" in rendered.block
    assert "lives in Oslo" in rendered.block
    delete = memory.DeleteMemoryFileRequest(owner=owner, name="MEMORY.md")
    assert MEMORY.DeleteMemoryFile(delete, timeout=SECONDS).deleted
    erased = HISTORIES.EraseUser(history.EraseUserRequest(user_id=owner.user_id), timeout=SECONDS)
    assert erased.erased_memory_file_count == 1


def change_what_is_shared() -> None:
    """The session and the agent of a newer client, sent back with all that this API knows of them, and nothing else.

    Without a mask the policy is left out: one that is given replaces the stored one as a whole (AIP-134).
    """
    shared = HISTORIES.GetSession(history.GetSessionRequest(session=key("shared")), timeout=SECONDS).session
    for user_id, mask in (("bob", FieldMask(paths=["user_id"])), ("eve", None)):
        only_known(shared).user_id = user_id
        if mask is None:
            shared.ClearField("policy")
        request = history.UpdateSessionRequest(session=shared, update_mask=mask)
        shared = HISTORIES.UpdateSession(request, timeout=SECONDS).session
        assert shared.user_id == user_id
    listed = HISTORIES.ListSessions(history.ListSessionsRequest(agent=AGENT, user_id="eve"), timeout=SECONDS).sessions
    assert [found.key.session_id for found in listed] == ["shared"]

    agent = AGENTS.GetAgent(agents.GetAgentRequest(agent=AGENT), timeout=SECONDS).agent
    for limit, paths in ((7, ["policy.window"]), (8, ["policy.window.limit"])):
        only_known(agent).policy.window.limit = limit
        change = agents.UpdateAgentRequest(agent=agent, update_mask=FieldMask(paths=paths))
        agent = AGENTS.UpdateAgent(change, timeout=SECONDS).agent
        assert agent.policy.window.limit == limit
    every = AGENTS.ListAgents(agents.ListAgentsRequest(page_size=1_000), timeout=SECONDS).agents
    assert AGENT in {found.agent for found in every}


def ask_for_stores() -> None:
    (store,) = STORES.ListStores(stores.ListStoresRequest(), timeout=SECONDS).stores
    assert store.reachable
    assert STORES.GetStore(stores.GetStoreRequest(name=store.name), timeout=SECONDS).store.type == store.type


def run() -> None:
    """From its begin to its end: held, given back, claimed, and ended from outside."""
    runs: Any = importlib.import_module("memoryd.v1.run_service_pb2")
    stub = service("Run", "run")
    run_key = runs.RunKey(session=key("runs"), run_id="r")
    begun = stub.CreateRun(runs.CreateRunRequest(run=run_key, holder="me"), timeout=SECONDS)
    step = runs.CommitRunStepRequest(run=run_key, fence=begun.fence, number=1, payload=b"p", messages=[text("did it")])
    assert [message.seq for message in stub.CommitRunStep(step, timeout=SECONDS).messages] == [1]
    stub.RenewRunLease(runs.RenewRunLeaseRequest(run=run_key, fence=begun.fence), timeout=SECONDS)
    released = stub.ReleaseRun(runs.ReleaseRunRequest(run=run_key, fence=begun.fence), timeout=SECONDS).run
    assert released.status == runs.RUN_STATUS_INTERRUPTED
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "LEASE_LOST"):
        stub.RenewRunLease(runs.RenewRunLeaseRequest(run=run_key, fence=begun.fence), timeout=SECONDS)
    claimed = stub.ClaimRun(runs.ClaimRunRequest(run=run_key, holder="other"), timeout=SECONDS)
    assert claimed.run.status == runs.RUN_STATUS_RUNNING
    ended = runs.Run(key=run_key, status=runs.RUN_STATUS_CANCELLED)
    stub.UpdateRun(runs.UpdateRunRequest(run=ended, fence=claimed.fence), timeout=SECONDS)
    found = stub.GetRun(runs.GetRunRequest(run=run_key), timeout=SECONDS).run
    assert (found.status, found.step_count) == (runs.RUN_STATUS_CANCELLED, 1)
    (kept,) = stub.ListRunSteps(runs.ListRunStepsRequest(run=run_key), timeout=SECONDS).steps
    assert kept.payload == b"p"
    listed = stub.ListRuns(runs.ListRunsRequest(session=run_key.session), timeout=SECONDS).runs
    assert [each.key.run_id for each in listed] == ["r"]
    assert stub.DeleteRun(runs.DeleteRunRequest(run=run_key), timeout=SECONDS).deleted


def main() -> None:
    keep_a_history()
    summarize()
    keep_memory()
    ask_for_stores()
    change_what_is_shared()
    if importlib.util.find_spec("memoryd.v1.run_service_pb2"):
        run()
    CHANNEL.close()
    sys.stdout.write("\n".join(METHODS))


main()
