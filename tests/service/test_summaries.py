"""Summaries through the whole server (invariants 9 and 10): what falls out of the window is folded in, never lost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from memoryd import AsyncMemoryClient, from_openai, to_anthropic, to_openai
from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import policy_pb2 as policies
from memoryd.v1 import session_pb2 as session
from memoryd.v1 import summary_service_pb2 as pb
from memoryd.v1 import window_service_pb2 as window
from memoryd_server.credentials import token_editing
from tests.conftest import StartServer
from tests.servers import ServerProcess
from tests.service.conversations import OPENAI
from tests.service.summarized import (
    CURRENT,
    DELETE,
    HEADING,
    KEEP,
    PENDING,
    check_reference,
    converse,
    load,
    set_policy,
    texts,
    wait_until,
    waiting,
)
from tests.service.test_windows import TRANSCRIPTS
from tests.service.window_rules import check_anthropic, check_openai
from tests.service.wire import STORE_METADATA, Stubs, new_key, refused, seqs, text


@pytest.fixture
def key(agent: str) -> session.SessionKey:
    return new_key(agent)


@pytest.mark.parametrize("retention", [KEEP, DELETE], ids=["keep", "delete"])
def test_early_facts_are_in_the_summary_when_they_left_the_window(
    stubs: Stubs, key: session.SessionKey, retention: policies.Retention.ValueType
) -> None:
    converse(stubs, key, retention)
    check_reference(stubs, key, retention)


WINDOW: Final = 12
STEP: Final = 7
RECORDED: Final = 8
"""Recorded conversations that are folded: more take seconds and find nothing else."""


async def check_while_it_grows(client: AsyncMemoryClient, stubs: Stubs, agent: str, turns: list[Any]) -> None:
    """Appends a conversation in pieces under a policy with summaries: all its windows are what providers accept, and
    nothing is lost."""
    conversation = from_openai(turns)
    key = new_key(agent)
    session_ = client.session(agent=agent, id=key.session_id)
    for first in range(0, len(conversation), STEP):
        await session_.append_all(conversation[first : first + STEP])
        if not first:
            set_policy(stubs, key, "extractive", limit=WINDOW, keep=6)
        found = await session_.window()
        assert len(found) <= WINDOW or found.stats.over_limit
        check_openai(to_openai(found))
        check_anthropic(to_anthropic(found.messages)["messages"])
        assert load(stubs, key).stats.uncovered_message_count == 0
    assert stubs.chain(key)
    assert to_openai([message async for message in session_.messages(view="all")]) == turns


async def test_conversations_fold_while_their_windows_stay_valid(
    any_server: ServerProcess, stubs: Stubs, agent: str
) -> None:
    """What is rare in the wild, and recorded conversations where they are at hand."""
    conversations = [turns for turns in OPENAI.values() if len(turns) > WINDOW]
    if TRANSCRIPTS.exists():
        lines = TRANSCRIPTS.read_text("utf-8").splitlines()[:RECORDED]
        recorded = (json.loads(line)["messages"] for line in lines)
        conversations += [turns for turns in recorded if len(turns) > WINDOW]
    async with AsyncMemoryClient(any_server.address) as client:
        for turns in conversations:
            await check_while_it_grows(client, stubs, agent, turns)
    assert conversations


class TestTheChain:
    """What each summary knows of itself, and how it is taken back."""

    @pytest.fixture
    def key(self, stubs: Stubs, agent: str) -> session.SessionKey:
        """A session with two summaries: of the messages 1 to 3, then of 4 and 5."""
        key = new_key(agent)
        stubs.append(key, *(text(f"Fact {number} of Atlas.") for number in range(1, 7)))
        set_policy(stubs, key, "extractive")
        load(stubs, key)
        stubs.append(key, text("Fact 7 of Atlas."), text("Fact 8 of Atlas."))
        load(stubs, key)
        return key

    def test_knows_its_provenance(self, stubs: Stubs, key: session.SessionKey) -> None:
        second, first = stubs.chain(key)
        assert (first.from_seq, first.to_seq, first.message_count) == (1, 3, 3)
        assert (second.from_seq, second.to_seq, second.message_count) == (4, 5, 2)
        assert (second.covered_from_seq, second.covered_message_count) == (1, 5)
        assert (first.previous_id, second.previous_id) == ("", first.id)
        assert (first.current, second.current) == (False, True)
        for summary in (first, second):
            assert summary.summarizer == "extractive"
            assert summary.model
            assert summary.input_token_count > 0
            assert 0 < summary.output_token_count <= 1_000
            assert summary.create_time.seconds > 0
            assert summary.duration.ToMicroseconds() > 0
        for id_, expected in (("", second), (second.id, second), (first.id, first)):
            assert stubs.summaries.GetSummary(pb.GetSummaryRequest(session=key, summary_id=id_)).summary == expected

    def test_is_taken_back_one_by_one(self, stubs: Stubs, key: session.SessionKey) -> None:
        """A repeated call takes back no other, and nothing is folded before the next append."""
        second, first = stubs.chain(key)
        not_current = refused(lambda: revert(stubs, key, first.id))
        assert (not_current.code, not_current.reason) == (grpc.StatusCode.ABORTED, "ETAG_MISMATCH")
        assert not_current.metadata["etag"] == second.id

        assert revert(stubs, key, second.id).summary.id == first.id
        assert refused(lambda: revert(stubs, key, second.id)).reason == "SUMMARY_NOT_FOUND"
        assert load(stubs, key).stats.summary_id == first.id
        assert not revert(stubs, key, first.id).HasField("summary")
        assert texts(load(stubs, key)) == [f"Fact {number} of Atlas." for number in range(5, 9)]

        stubs.append(key, text("Fact 9 of Atlas."))
        assert load(stubs, key).stats.summary_state == CURRENT
        assert stubs.chain(key)[0].covered_message_count == 6

    def test_of_removed_messages_stays(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        converse(stubs, key, DELETE)
        summary = stubs.chain(key)[0]
        refusal = refused(lambda: revert(stubs, key, summary.id))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "ORIGINALS_REMOVED")
        assert (refusal.metadata["summary_id"], refusal.metadata["to_seq"]) == (summary.id, "5")

    def test_is_folded_on_at_once_where_a_caller_asks(self, stubs: Stubs, key: session.SessionKey) -> None:
        """Although the window is not full: what exceeds `keep`."""
        set_policy(stubs, key, "extractive", limit=100, keep=2)
        answer = stubs.summaries.Summarize(pb.SummarizeRequest(session=key), timeout=30)
        assert answer.folded_message_count == 1
        assert answer.summary.covered_message_count == 6
        again = stubs.summaries.Summarize(pb.SummarizeRequest(session=key), timeout=30)
        assert again.folded_message_count == 0
        assert again.summary == answer.summary


def revert(stubs: Stubs, key: session.SessionKey, id_: str) -> pb.RevertSummaryResponse:
    return stubs.summaries.RevertSummary(pb.RevertSummaryRequest(session=key, summary_id=id_), timeout=30)


class TestTasks:
    """The agent's own model makes the summaries."""

    def test_are_leased_and_committed(self, stubs: Stubs, agent: str) -> None:
        key = waiting(stubs, agent)
        task = stubs.lease(key)
        assert task.session == key
        assert seqs(task.messages) == [1, 2, 3]
        assert "Fact 2 of Atlas." in task.input
        assert task.instructions
        assert task.previous_summary == ""
        assert 0 < task.target_tokens <= task.max_tokens <= 1_000
        summary = stubs.commit(task, "Three facts.", model="mine")
        assert (summary.text, summary.summarizer, summary.model) == ("Three facts.", "client", "mine")
        assert stubs.commit(task, "Another text.", model="other") == summary
        assert texts(load(stubs, key))[0] == f"{HEADING}Three facts."

        stubs.append(key, text("Fact 7 of Atlas."))
        load(stubs, key)
        task = stubs.lease(key)
        assert task.previous_summary == "Three facts."
        assert "Three facts." in task.input
        assert seqs(task.messages) == [4]

    def test_of_an_agent_go_to_one_caller_each_the_longest_waiting_first(self, stubs: Stubs, agent: str) -> None:
        keys = [waiting(stubs, agent) for _ in range(3)]
        request = pb.LeaseSummaryTaskRequest(agent=agent)
        with ThreadPoolExecutor(4) as threads:
            answers = list(threads.map(lambda _: stubs.summaries.LeaseSummaryTask(request, timeout=30), range(4)))
        leased = [answer.task.session.session_id for answer in answers if answer.HasField("task")]
        assert sorted(leased) == sorted(key.session_id for key in keys)
        assert not stubs.summaries.LeaseSummaryTask(request, timeout=30).HasField("task")

    def test_of_a_client_that_dies_go_to_another_one(self, stubs: Stubs, agent: str) -> None:
        """And what the first one brings after all is void."""
        key = waiting(stubs, agent)
        first = stubs.lease(key, lease_duration=Duration(seconds=1))
        leased: list[pb.SummaryTask] = []

        def lease_again() -> bool:
            answer = stubs.summaries.LeaseSummaryTask(pb.LeaseSummaryTaskRequest(agent=agent), timeout=30)
            leased.extend([answer.task] if answer.HasField("task") else [])
            return bool(leased)

        wait_until(lease_again)
        assert leased[0].session == key
        assert leased[0].attempts == 1
        assert refused(lambda: stubs.commit(first, "Too late.")).reason == "SUMMARY_TASK_VOID"
        assert stubs.commit(leased[0], "In time.").text == "In time."
        assert [summary.text for summary in stubs.chain(key)] == ["In time."]

    def test_that_are_abandoned_are_free_at_once(self, stubs: Stubs, agent: str) -> None:
        key = waiting(stubs, agent)
        first = stubs.lease(key)
        stubs.abandon(first)
        second = stubs.lease(key)
        assert second.task_token != first.task_token
        stubs.abandon(first)  # Its lease is over: this is nobody's any more.
        assert refused(lambda: stubs.commit(first, "Late.")).reason == "SUMMARY_TASK_VOID"
        assert stubs.commit(second, "Three facts.").current

    def test_whose_model_failed_wait(self, stubs: Stubs, agent: str) -> None:
        key = waiting(stubs, agent)
        stubs.abandon(stubs.lease(key), failed=True)
        for request in (pb.LeaseSummaryTaskRequest(session=key), pb.LeaseSummaryTaskRequest(agent=agent)):
            assert not stubs.summaries.LeaseSummaryTask(request, timeout=30).HasField("task")
        stats = load(stubs, key).stats
        assert (stats.summary_state, stats.summary_failure) == (window.SUMMARY_STATE_FAILED, "abandoned")

    @pytest.mark.parametrize("change", ["clear", "rewind", "redact"])
    def test_are_void_when_the_history_changes_where_they_lie(self, stubs: Stubs, agent: str, change: str) -> None:
        """A clear stays cleared: the late summary brings nothing back."""
        key = waiting(stubs, agent)
        task = stubs.lease(key)
        if change == "clear":
            stubs.clear(key)
        elif change == "rewind":
            stubs.histories.RewindSession(history.RewindSessionRequest(session=key, to_seq=2), timeout=30)
        else:
            stubs.histories.RedactMessage(history.RedactMessageRequest(session=key, seq=2), timeout=30)
        refusal = refused(lambda: stubs.commit(task, "Three facts."))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "SUMMARY_TASK_VOID")
        assert stubs.chain(key) == []

    def test_go_on_while_messages_are_appended(self, stubs: Stubs, agent: str) -> None:
        key = waiting(stubs, agent)
        task = stubs.lease(key)
        stubs.append(key, text("Fact 7 of Atlas."), text("Fact 8 of Atlas."))
        stubs.commit(task, "Three facts.")
        assert seqs(stubs.messages(key, view=history.MESSAGE_VIEW_ALL)) == [1, 2, 3, 4, 5, 6, 7, 8]
        assert load(stubs, key).stats.summary_state == PENDING

    def test_hold_texts_in_any_script(self, stubs: Stubs, agent: str) -> None:
        key = waiting(stubs, agent)
        said = "アトラス — Łódź ✈️ \u202e \x7f"
        assert stubs.commit(stubs.lease(key), said).text == said
        assert texts(load(stubs, key))[0] == HEADING + said

    def test_are_cut_at_a_sentence_where_the_model_says_too_much(self, stubs: Stubs, agent: str) -> None:
        key = waiting(stubs, agent, max_tokens=64)
        said = stubs.commit(stubs.lease(key), "Atlas ships on Friday. " * 200).text
        assert said.endswith("Friday.")
        assert stubs.chain(key)[0].output_token_count <= 64


def summarize(stubs: Stubs, key: session.SessionKey) -> object:
    return stubs.summaries.Summarize(pb.SummarizeRequest(session=key), timeout=30)


def get(stubs: Stubs, key: session.SessionKey) -> object:
    return stubs.summaries.GetSummary(pb.GetSummaryRequest(session=key), timeout=30)


def list_(stubs: Stubs, key: session.SessionKey) -> object:
    return stubs.chain(key)


def revert_any(stubs: Stubs, key: session.SessionKey) -> object:
    return revert(stubs, key, "any")


def lease(stubs: Stubs, key: session.SessionKey) -> object:
    return stubs.summaries.LeaseSummaryTask(pb.LeaseSummaryTaskRequest(session=key), timeout=30)


def call_with(stubs: Stubs, request: Any) -> object:
    """Makes the call of SummaryService that a request is for."""
    method = type(request).__name__.removesuffix("Request")
    return getattr(stubs.summaries, method)(request, timeout=30)


Request = Callable[[session.SessionKey, pb.SummaryTask], Any]


def committing(**fields: Any) -> Request:
    """A commit of the task, with other fields."""
    return lambda key, task: pb.CommitSummaryRequest(
        **{"session": key, "task_token": task.task_token, "text": "Three facts.", **fields}
    )


def leasing(**duration: int) -> Request:
    return lambda key, _: pb.LeaseSummaryTaskRequest(session=key, lease_duration=Duration(**duration))


def damaged(change: Callable[[str], str]) -> Request:
    return lambda key, task: pb.CommitSummaryRequest(session=key, task_token=change(task.task_token), text="x")


NO_SESSION: Final = session.SessionKey(agent="a")
NO_AGENT: Final = session.SessionKey(session_id="s")
LONG: Final = "x" * 257

FIELD_CASES: Final[dict[str, tuple[Request, str, str]]] = {
    "no session to summarize": (lambda *_: pb.SummarizeRequest(), "FIELD_REQUIRED", "session.agent"),
    "a session without its id": (
        lambda *_: pb.GetSummaryRequest(session=NO_SESSION),
        "FIELD_REQUIRED",
        "session.session_id",
    ),
    "a list without an agent": (
        lambda *_: pb.ListSummariesRequest(session=NO_AGENT),
        "FIELD_REQUIRED",
        "session.agent",
    ),
    "a long id": (
        lambda key, _: pb.GetSummaryRequest(session=key, summary_id=LONG),
        "FIELD_TOO_LARGE",
        "summary_id",
    ),
    "an id with NUL": (
        lambda key, _: pb.GetSummaryRequest(session=key, summary_id="a\0b"),
        "FIELD_INVALID",
        "summary_id",
    ),
    "a revert of nothing": (lambda key, _: pb.RevertSummaryRequest(session=key), "FIELD_REQUIRED", "summary_id"),
    "a revert of a long id": (
        lambda key, _: pb.RevertSummaryRequest(session=key, summary_id=LONG),
        "FIELD_TOO_LARGE",
        "summary_id",
    ),
    "a lease of nobody's": (lambda *_: pb.LeaseSummaryTaskRequest(), "FIELD_REQUIRED", "of"),
    "a lease of no agent's": (lambda *_: pb.LeaseSummaryTaskRequest(agent=""), "FIELD_REQUIRED", "agent"),
    "a lease of a long agent's": (lambda *_: pb.LeaseSummaryTaskRequest(agent=LONG), "FIELD_TOO_LARGE", "agent"),
    "a lease of no time": (leasing(), "FIELD_INVALID", "lease_duration"),
    "a lease of less than a second": (leasing(nanos=999_999_999), "FIELD_INVALID", "lease_duration"),
    "a lease of negative time": (leasing(seconds=-60), "FIELD_INVALID", "lease_duration"),
    "a lease of too much time": (leasing(seconds=601), "FIELD_INVALID", "lease_duration"),
    "a lease of all time": (leasing(seconds=315_576_000_000), "FIELD_INVALID", "lease_duration"),
    "a lease of no time at all": (
        leasing(seconds=(1 << 63) - 1, nanos=(1 << 31) - 1),
        "FIELD_INVALID",
        "lease_duration",
    ),
    "a commit without a token": (committing(task_token=""), "FIELD_REQUIRED", "task_token"),
    "a commit without a text": (committing(text=""), "FIELD_INVALID", "text"),
    "a commit of white space": (committing(text=" \n\t\u3000"), "FIELD_INVALID", "text"),
    "a commit of a huge text": (committing(text="x" * ((1 << 20) + 1)), "FIELD_TOO_LARGE", "text"),
    "a commit of a long model": (committing(model=LONG), "FIELD_TOO_LARGE", "model"),
    "a token without its end": (damaged(lambda token: token[:-1]), "FIELD_INVALID", "task_token"),
    "a token with a changed letter": (
        damaged(lambda token: ("B" if token[0] == "A" else "A") + token[1:]),
        "FIELD_INVALID",
        "task_token",
    ),
    "a token in another script": (committing(task_token="токен"), "FIELD_INVALID", "task_token"),
    "a huge token": (committing(task_token="x" * 1_000_000), "FIELD_INVALID", "task_token"),
    "an abandoned task without a token": (
        lambda key, _: pb.AbandonSummaryTaskRequest(session=key),
        "FIELD_REQUIRED",
        "task_token",
    ),
    "an abandoned task with a made-up token": (
        lambda key, _: pb.AbandonSummaryTaskRequest(session=key, task_token="x"),
        "FIELD_INVALID",
        "task_token",
    ),
}


class TestRefusals:
    """Each says why and what to do, and nothing is written."""

    def test_of_what_is_not_there(self, sqlite_stubs: Stubs, agent: str) -> None:
        stubs, nobody = sqlite_stubs, new_key(agent)
        key = new_key(agent)
        stubs.append(key, text("Hi!"))
        for call in (summarize, get, list_, revert_any, lease):
            refusal = refused(lambda call=call: call(stubs, nobody))  # type: ignore[misc]
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"), call
        for call in (get, revert_any):
            refusal = refused(lambda call=call: call(stubs, key))  # type: ignore[misc]
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "SUMMARY_NOT_FOUND")
            assert refusal.metadata["session_id"] == key.session_id
        assert stubs.chain(key) == []

    @pytest.mark.parametrize("id_", ["none-such", "Ω", "x" * 256, "../../etc", "0"])
    def test_of_ids_that_name_no_summary(self, sqlite_stubs: Stubs, agent: str, id_: str) -> None:
        stubs, key = sqlite_stubs, new_key(agent)
        converse(stubs, key, KEEP)
        of_another = new_key(agent)
        converse(stubs, of_another, KEEP)
        for other in (id_, stubs.chain(of_another)[0].id):
            request = pb.GetSummaryRequest(session=key, summary_id=other)
            refusal = refused(lambda request=request: stubs.summaries.GetSummary(request))  # type: ignore[misc]
            assert (refusal.reason, refusal.metadata["summary_id"]) == ("SUMMARY_NOT_FOUND", other)
            assert refused(lambda other=other: revert(stubs, key, other)).reason == "SUMMARY_NOT_FOUND"  # type: ignore[misc]
        assert load(stubs, key).stats.summary_state == CURRENT

    def test_without_summaries_in_the_policy(self, sqlite_stubs: Stubs, agent: str) -> None:
        stubs, key = sqlite_stubs, new_key(agent)
        stubs.append(key, text("Hi!"))
        for call in (summarize, lease):
            refusal = refused(lambda call=call: call(stubs, key))  # type: ignore[misc]
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "SUMMARIES_DISABLED")

    def test_of_another_summarizer(self, sqlite_stubs: Stubs, agent: str) -> None:
        stubs, key = sqlite_stubs, new_key(agent)
        stubs.append(key, text("Hi!"))
        for summarizer, call in (("client", summarize), ("extractive", lease)):
            set_policy(stubs, key, summarizer)
            refusal = refused(lambda call=call: call(stubs, key))  # type: ignore[misc]
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "SUMMARIZER_DIFFERS")
            assert refusal.metadata["summarizer"] == summarizer

    @pytest.mark.parametrize("case", FIELD_CASES)
    def test_name_the_field(self, sqlite_stubs: Stubs, agent: str, case: str) -> None:
        stubs = sqlite_stubs
        request, reason, field = FIELD_CASES[case]
        key = waiting(stubs, agent)
        task = stubs.lease(key)
        refusal = refused(lambda: call_with(stubs, request(key, task)))
        assert refusal.code == grpc.StatusCode.INVALID_ARGUMENT
        assert (refusal.reason, refusal.metadata["field"]) == (reason, field)
        assert stubs.chain(key) == []
        assert stubs.commit(task, "It still stands.").current

    @pytest.mark.parametrize("seconds", [1, 600])
    def test_of_durations_begin_beyond_their_bounds(self, sqlite_stubs: Stubs, agent: str, seconds: int) -> None:
        key = waiting(sqlite_stubs, agent)
        task = sqlite_stubs.lease(key, lease_duration=Duration(seconds=seconds))
        assert abs(task.expire_time.seconds - time.time() - seconds) < 30

    def test_of_tasks_of_others(self, sqlite_stubs: Stubs, agent: str) -> None:
        """The token of one session opens no other."""
        stubs = sqlite_stubs
        keys = [waiting(stubs, agent) for _ in range(2)]
        mine, other = (stubs.lease(key) for key in keys)
        mixed = pb.SummaryTask(session=mine.session, task_token=other.task_token)
        for call in (lambda: stubs.commit(mixed, "Mine."), lambda: stubs.abandon(mixed)):
            refusal = refused(call)
            assert (refusal.reason, refusal.metadata["field"]) == ("FIELD_INVALID", "task_token")
        assert stubs.commit(mine, "Mine.").current
        assert stubs.commit(other, "The other's.").current

    def test_of_tasks_of_another_store(self, start_server: StartServer, agent: str) -> None:
        server = start_server(
            *("--store", "one=memory://", "--store", "two=memory://", "--default-store", "one"),
            *("--tokenizer", "estimate"),
        )
        with Stubs(server.address) as stubs:
            key = waiting(stubs, agent)
            task = stubs.lease(key)
            request = pb.CommitSummaryRequest(session=key, task_token=task.task_token, text="Mine.")
            refusal = refused(
                lambda: stubs.summaries.CommitSummary(request, timeout=30, metadata=((STORE_METADATA, "two"),))
            )
            assert (refusal.reason, refusal.metadata["field"]) == ("FIELD_INVALID", "task_token")

    def test_of_tasks_of_another_tenant(self, start_server: StartServer, tmp_path: Path, agent: str) -> None:
        path = tmp_path / "tokens.toml"
        owner, stranger = (token_editing.create(path, tenant, "")[0] for tenant in ("owner", "stranger"))
        server = start_server("--store", "default=memory://", "--tokenizer", "estimate", "--tokens-file", str(path))
        with Stubs(server.address, token=owner) as mine, Stubs(server.address, token=stranger) as theirs:
            key = waiting(mine, agent)
            assert not theirs.summaries.LeaseSummaryTask(pb.LeaseSummaryTaskRequest(agent=agent)).HasField("task")
            task = mine.lease(key)
            theirs.append(key, text("Hi!"))
            refusal = refused(lambda: theirs.commit(task, "Theirs."))
            assert (refusal.reason, refusal.metadata["field"]) == ("FIELD_INVALID", "task_token")
            assert refused(lambda: get(theirs, key)).reason == "SUMMARY_NOT_FOUND"
            assert mine.commit(task, "Mine.").current
