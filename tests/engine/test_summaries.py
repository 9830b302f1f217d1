"""What becomes of a summary that fails, is late or is made twice: nothing is lost or half done (invariant 10)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from memoryd_server import limits
from memoryd_server.engine import agents, folder, folding, forking, loading, summaries, summary_changes
from memoryd_server.engine.agents import AgentUpdate
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.folder import settings_of, take_lease
from memoryd_server.engine.forking import Fork
from memoryd_server.engine.loading import WindowRequest
from memoryd_server.engine.policies import PolicyUpdate
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.summary_changes import LeaseTaken, LeaseVoid
from memoryd_server.engine.windows import SummaryState
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.records import Policy, SummaryPolicy, WindowMode, WindowOptions
from memoryd_server.summarizers.base import FailureReason, SummarizerError
from tests.engine.folded_sessions import (
    Behaviour,
    FoldedSession,
    Held,
    KnowingSummarizer,
    answering,
    folding_policy,
    pass_time,
    raising,
    server_on,
)
from tests.engine.messages import KEY, calls, results, user

POLICY = folding_policy(4, keep=1)
"""Five messages are one too many: then one stays raw, and the next two are not too many."""


async def begin(policy: Policy = POLICY, messages: int = 5) -> FoldedSession:
    """A session that is about to be folded: a call that nobody answered, and what the user said since."""
    summarizer = KnowingSummarizer()
    session = FoldedSession(server_on(InMemoryStore(), summarizer), summarizer, policy)
    await session.append(calls("a"), *(user(str(number)) for number in range(messages)))
    return session


def other_server(session: FoldedSession) -> Runtime:
    """Another server on the session's store."""
    return server_on(session.runtime.store, session.summarizer)


FAILURES: dict[str, tuple[Behaviour, FailureReason]] = {
    "it does not answer": (
        raising(SummarizerError(FailureReason.UNREACHABLE, "down", is_retryable=True)),
        FailureReason.UNREACHABLE,
    ),
    "it has a fault": (raising(ZeroDivisionError("a secret")), FailureReason.INTERNAL),
    "it says nothing": (answering(""), FailureReason.EMPTY_ANSWER),
    "it answers white space": (answering(" \n\t\u200b"), FailureReason.EMPTY_ANSWER),
    "it only thinks": (answering("<think>What a talk."), FailureReason.EMPTY_ANSWER),
    "it calls a tool": (
        raising(SummarizerError(FailureReason.NO_TEXT, "a call", is_retryable=True)),
        FailureReason.NO_TEXT,
    ),
    "it takes too long": (Held(), FailureReason.TIMEOUT),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failure_changes_nothing_and_is_tried_again_later(
    failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing changes, stats say why, and it is retried with backoff (invariant 10)."""
    behaviour, reason = FAILURES[failure]
    session = await begin()
    session.summarizer.behaviours.append(behaviour)
    with monkeypatch.context() as patched:
        patched.setattr(limits, "FOLD_SECONDS", 0.01 if reason is FailureReason.TIMEOUT else 60)
        stats = await session.check_window()
    assert (stats.summary_state, stats.summary_failure) == (SummaryState.FAILED, reason.value)
    assert (stats.uncovered, await session.summarized()) == (1, frozenset())
    await session.check()
    for _ in range(3):
        assert (await session.check_window()).summary_state is SummaryState.FAILED
    assert len(session.summarizer.requests) == 1
    pass_time(limits.FOLD_BACKOFF_SECONDS + 1, session.runtime)
    stats = await session.check_window()
    assert (stats.summary_state, stats.summary_failure, stats.uncovered) == (SummaryState.CURRENT, "", 0)
    await session.check()


async def test_attempts_are_ever_farther_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    session = await begin()
    failure = raising(SummarizerError(FailureReason.OVERLOADED, "later", is_retryable=True))
    pauses: list[int] = []
    for attempt in range(1, 15):
        session.summarizer.behaviours.append(failure)
        before = session.runtime.clock.now()
        await session.load()
        current = (await session.record()).folding
        assert (current.attempts, len(session.summarizer.requests)) == (attempt, attempt)
        pauses.append((current.retry_at - before) // 1_000_000)
        pass_time(pauses[-1] + 1, session.runtime)
    assert pauses[:4] == [5, 10, 20, 40]
    assert pauses[-1] == limits.MAX_FOLD_BACKOFF_SECONDS
    await session.load()
    assert (await session.record()).folding.attempts == 0


@pytest.mark.parametrize(
    ("error", "least"),
    [
        (SummarizerError(FailureReason.OVERLOADED, "later", is_retryable=True, retry_after=77.0), 77),
        (SummarizerError(FailureReason.MISCONFIGURED, "a wrong key", is_retryable=False), 600),
    ],
    ids=["it says when", "somebody has to change a setting"],
)
async def test_a_pause_is_as_long_as_the_failure_asks_for(error: SummarizerError, least: int) -> None:
    session = await begin()
    session.summarizer.behaviours.append(raising(error))
    before = session.runtime.clock.now()
    await session.load()
    assert (await session.record()).folding.retry_at >= before + least * 1_000_000


async def test_an_explicit_call_does_not_wait_for_the_pause_and_tells_why_it_failed() -> None:
    session = await begin()
    failure = raising(SummarizerError(FailureReason.UNREACHABLE, "the endpoint is down", is_retryable=True))
    session.summarizer.behaviours.append(failure)
    await session.load()
    session.summarizer.behaviours.append(failure)
    with pytest.raises(RequestError) as refused:
        await summaries.summarize(session.runtime, session.key)
    assert refused.value.reason == Reason.SUMMARIZER_FAILED
    assert refused.value.metadata["failure"] == "unreachable"
    view, folded = await summaries.summarize(session.runtime, session.key)
    assert view is not None
    assert (view.is_current, folded) == (True, 5)
    await session.check()


async def test_a_text_that_mentions_an_error_is_a_summary() -> None:
    session = await begin()
    text = "Error: 429 Too Many Requests. The build failed with a traceback, and Ada will look into it."
    session.summarizer.behaviours.append(answering(text))
    _, stats = await session.load()
    assert stats.summary_state is SummaryState.CURRENT
    assert [summary.text for summary in await session.chain()] == [text]


async def test_a_summary_that_is_too_long_ends_with_a_sentence() -> None:
    session = await begin(folding_policy(4, max_tokens=64))
    session.summarizer.behaviours.append(answering("Atlas ships on Friday. " * 40))
    window, stats = await session.load()
    (summary,) = await session.chain()
    assert summary.text.endswith("Friday.")
    assert 40 < window[0].tokens <= 64
    assert stats.summary_state is SummaryState.CURRENT


async def test_a_server_that_drains_gives_the_fold_up_for_the_next() -> None:
    session = await begin()
    held = Held()
    session.summarizer.behaviours.append(held)
    loading = asyncio.create_task(session.load())
    await held.begun.wait()
    assert (await session.record()).folding.lease
    await session.runtime.folder.close()
    await loading
    assert (await session.record()).folding.lease == ""
    await session.check()
    session.runtime = other_server(session)
    stats = await session.check_window()
    assert (stats.summary_state, len(session.summarizer.requests)) == (SummaryState.CURRENT, 2)
    await session.check()


async def test_a_load_that_is_cancelled_leaves_the_fold_under_way() -> None:
    session = await begin()
    held = Held()
    session.summarizer.behaviours.append(held)
    loading = asyncio.create_task(session.load())
    await held.begun.wait()
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    held.let_go.set()
    stats = await session.check_window()
    assert (stats.summary_state, len(session.summarizer.requests)) == (SummaryState.CURRENT, 1)


async def test_a_load_that_does_not_wait_is_told_that_a_summary_is_under_way() -> None:
    session = await begin()
    held = Held()
    session.summarizer.behaviours.append(held)
    window, stats = await session.load(wait=False)
    assert (stats.summary_state, stats.summary_id, len(window)) == (SummaryState.PENDING, "", 4)
    held.let_go.set()
    assert (await session.check_window()).summary_state is SummaryState.CURRENT


async def _lease_of_a_killed_server(session: FoldedSession) -> None:
    dead = other_server(session)
    settings = await settings_of(dead, session.key, await session.record())
    assert settings is not None
    task = await folding.read_task(dead.sessions, session.key, settings)
    assert task is not None
    await take_lease(dead, session.key, task, "dead", "extractive", limits.FOLD_LEASE_SECONDS)


async def test_what_a_killed_server_had_begun_is_free_once_its_lease_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the store's clock; until then nobody else makes it (invariant 10)."""
    monkeypatch.setattr(folder, "_POLL_SECONDS", 0.001)
    session = await begin()
    await _lease_of_a_killed_server(session)
    with pytest.raises(LeaseTaken):
        await _lease_of_a_killed_server(session)
    _, stats = await session.load(wait=False)
    assert (stats.summary_state, session.summarizer.requests) == (SummaryState.PENDING, [])
    await session.check()
    pass_time(limits.FOLD_LEASE_SECONDS + 1, session.runtime)
    stats = await session.check_window()
    assert (stats.summary_state, len(session.summarizer.requests)) == (SummaryState.CURRENT, 1)
    await session.check()


async def test_a_server_whose_lease_was_taken_over_commits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_POLL_SECONDS", 0.001)
    session = await begin()
    held = Held()
    session.summarizer.behaviours.append(held)
    slow = asyncio.create_task(session.load())
    await held.begun.wait()
    other = other_server(session)
    pass_time(limits.FOLD_LEASE_SECONDS + 1, other)
    assert (await session.check_window(on=other)).summary_state is SummaryState.CURRENT
    held.let_go.set()
    _, stats = await slow
    assert stats.summary_state is SummaryState.CURRENT
    assert len(await session.chain()) == 1
    await session.check()


async def test_a_lease_is_renewed_while_its_holder_works(monkeypatch: pytest.MonkeyPatch) -> None:
    session = await begin()
    held = Held()
    session.summarizer.behaviours.append(held)
    monkeypatch.setattr(limits, "FOLD_LEASE_SECONDS", 0.03)
    slow = asyncio.create_task(session.load())
    await held.begun.wait()
    first = (await session.record()).folding
    async with asyncio.timeout(20):
        while (await session.record()).folding.until == first.until:  # noqa: ASYNC110 - the record tells, no event
            await asyncio.sleep(0.01)
    assert (await session.record()).folding.lease == first.lease
    held.let_go.set()
    await slow
    assert await session.summarized() == {1, 2, 3, 4, 5}


async def test_a_fold_whose_lease_is_void_stops_its_summarizer(monkeypatch: pytest.MonkeyPatch) -> None:
    session = await begin()
    monkeypatch.setattr(limits, "FOLD_LEASE_SECONDS", 0.03)
    stopped = asyncio.Event()

    async def until_stopped(request: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
            raise

    begun = asyncio.Event()
    session.summarizer.behaviours.append(until_stopped)
    slow = asyncio.create_task(session.load())
    await begun.wait()
    await session.clear()
    async with asyncio.timeout(20):
        await stopped.wait()
        await slow
    await session.check()
    assert (await session.record()).summaries == ()


Act = Callable[[FoldedSession], Awaitable[object]]


async def _fork(session: FoldedSession) -> None:
    target = KEY._replace(session_id="fork")
    await forking.fork(session.runtime, Fork(session.key, target))
    fork = FoldedSession(session.runtime, session.summarizer, session.policy, target, set(session.living))
    await fork.check()


MEANWHILE: dict[str, tuple[Act, int, set[int]]] = {
    "an append": (lambda session: session.append(user("more")), 1, {1, 2, 3, 4, 5}),
    "an answer to a call that is folded": (lambda session: session.append(results("a")), 2, {1, 2, 3, 4, 5, 7}),
    "a clear": (lambda session: session.clear(), 1, set()),
    "a rewind that leaves little": (lambda session: session.rewind(3), 1, set()),
    "a redaction of what is folded": (lambda session: session.redact(2), 2, {1, 2, 3, 4, 5}),
    "a redaction of what is not": (lambda session: session.redact(6), 2, {1, 2, 3, 4, 5}),
    "a fork": (_fork, 1, {1, 2, 3, 4, 5}),
    "another load": (lambda session: session.load(wait=False), 1, {1, 2, 3, 4, 5}),
    "a load from another server": (
        lambda session: session.load(wait=False, on=other_server(session)),
        1,
        {1, 2, 3, 4, 5},
    ),
}


@pytest.mark.parametrize("meanwhile", MEANWHILE)
async def test_what_happens_while_a_summary_is_made_survives_it(
    meanwhile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appends survive; a clear, rewind, redaction or an answer discards the summary; one is made at a time, across
    servers (invariant 10).
    """
    monkeypatch.setattr(folder, "_POLL_SECONDS", 0.001)
    act, requests, folded = MEANWHILE[meanwhile]
    session = await begin()
    held = Held()
    session.summarizer.behaviours.append(held)
    loading = asyncio.create_task(session.load())
    await held.begun.wait()
    await act(session)
    await session.check()
    held.let_go.set()
    await loading
    await session.check_window()
    await session.check()
    assert len(session.summarizer.requests) == requests
    assert await session.summarized() == folded


async def test_two_servers_that_find_a_session_full_ask_for_one_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_POLL_SECONDS", 0.001)
    session = await begin()
    servers = [session.runtime, *(other_server(session) for _ in range(3))]
    loads = await asyncio.gather(*(session.load(on=server) for server in servers for _ in range(3)))
    assert {stats.summary_state for _, stats in loads} == {SummaryState.CURRENT}
    assert len(session.summarizer.requests) == 1
    await session.check()


async def test_a_late_commit_of_a_cleared_session_is_void() -> None:
    session = await begin()
    await _lease_of_a_killed_server(session)
    await session.clear()
    await session.append(user("new"))
    with pytest.raises(LeaseVoid):
        summary_changes.plan_renew(await session.record(), session.key, "dead", 1)


async def test_servers_that_fold_in_turn_know_of_each_other() -> None:
    """What one of them remembers of the record is no ground for a refusal."""
    session = await begin(folding_policy(4))
    here, there = session.runtime, other_server(session)
    for number in range(6):
        loading_one = there if number % 2 else here
        await session.append(user("more"), user("and more"))
        stats = await session.check_window(on=loading_one)
        assert (stats.summary_state, stats.uncovered) == (SummaryState.CURRENT, 0)
    _, folded = await summaries.summarize(there, KEY)
    assert folded == 0
    (newest, *_) = await summaries.list_(there, KEY)
    reverted = await summaries.revert(there, KEY, newest.id)
    assert reverted is not None
    assert reverted.id == newest.previous_id
    await session.append(user("more"))
    assert (await session.check_window(on=there)).summary_state == SummaryState.CURRENT


@pytest.mark.parametrize("window", [WindowOptions(limit=1), WindowOptions(WindowMode.TOKENS, 100)])
async def test_a_stored_limit_without_room_for_a_summary_folds_nothing(window: WindowOptions) -> None:
    """It may come from the session, and the summaries from its agent: a load is not to fail for that."""
    session = await begin()
    await session.adopt(Policy(window))
    policy = PolicyUpdate(Policy(summary=SummaryPolicy()), whole=True)
    await agents.update(session.runtime, KEY.tenant, KEY.agent, AgentUpdate(policy))
    _, stats = await loading.load(session.runtime, WindowRequest(KEY))
    assert (stats.summary_state, stats.summary_id) == (SummaryState.NONE, "")
    with pytest.raises(RequestError) as refused:
        await loading.load(session.runtime, WindowRequest(KEY, summary=True))
    assert "`summary`: false" in refused.value.text


async def test_a_fork_of_all_keeps_that_a_summary_was_taken_back() -> None:
    """Folding goes on with the next append, there as here (design section 6)."""
    session = await begin(folding_policy(4))
    await session.load()
    await session.revert()
    target = KEY._replace(session_id="fork")
    await forking.fork(session.runtime, Fork(KEY, target))
    for key in (KEY, target):
        _, stats = await loading.load(session.runtime, WindowRequest(key))
        assert stats.summary_id == ""
