"""Summaries that an agent's own model makes: leased, committed once, void when the history changed under them
(invariants 5, 10 and 11).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from memoryd_server import limits
from memoryd_server.engine import summaries
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.summaries import LeasedTask, SummaryView
from memoryd_server.engine.windows import SummaryState
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.records import Policy, Retention
from memoryd_server.summarizers.base import CLIENT
from tests.engine.folded_sessions import FoldedSession, KnowingSummarizer, folding_policy, pass_time, server_on
from tests.engine.messages import KEY, calls, results, user

POLICY = folding_policy(4, keep=1, summarizer=CLIENT)


async def begin(
    policy: Policy = POLICY,
    *,
    agent: str = KEY.agent,
    session_id: str = KEY.session_id,
    beside: FoldedSession | None = None,
) -> FoldedSession:
    """A session that waits for a client; a load has found it so."""
    summarizer = beside.summarizer if beside else KnowingSummarizer()
    runtime = beside.runtime if beside else server_on(InMemoryStore(), summarizer)
    session = FoldedSession(runtime, summarizer, policy, KEY._replace(agent=agent, session_id=session_id))
    await session.append(calls("a"), *(user(str(number)) for number in range(5)))
    _, stats = await session.load()
    assert stats.summary_state is SummaryState.PENDING
    return session


async def lease(session: FoldedSession, *, by_agent: bool = True, tenant: str = KEY.tenant) -> LeasedTask | None:
    """The next task of the agent, or of the session alone."""
    if by_agent:
        return await summaries.lease_task(session.runtime, tenant=tenant, agent=session.key.agent)
    return await summaries.lease_task(session.runtime, key=session.key)


async def leased(session: FoldedSession) -> LeasedTask:
    """A task that is there."""
    task = await lease(session)
    assert task is not None
    return task


async def commit(session: FoldedSession, task: LeasedTask, text: str = "client's summary") -> SummaryView:
    """Commits a task; the summarizer knows what the client's text stands for."""
    earlier = session.summarizer.given.get(task.previous, frozenset())
    view = await summaries.commit_task(session.runtime, task.key, task.token, text, "model")
    session.summarizer.given[text] = earlier | {message.seq for message in task.messages}
    return view


@pytest.mark.parametrize("by_agent", [True, False])
async def test_a_client_is_given_what_is_to_be_folded_and_commits_its_summary(by_agent: bool) -> None:
    session = await begin()
    task = await lease(session, by_agent=by_agent)
    assert task is not None
    assert (task.key, task.previous, [message.seq for message in task.messages]) == (session.key, "", [1, 2, 3, 4, 5])
    assert await lease(session, by_agent=by_agent) is None
    view = await commit(session, task)
    assert (view.is_current, view.summary.summarizer, view.summary.model) == (True, CLIENT, "model")
    assert (await session.check_window()).summary_state is SummaryState.CURRENT
    await session.check()
    assert await lease(session) is None
    await session.append(user("more"), user("and more"), user("and more"))
    await session.load()
    task = await leased(session)
    assert (task.previous, [message.seq for message in task.messages]) == ("client's summary", [6, 7, 8])
    await commit(session, task, "the next")
    await session.check()
    assert session.summarizer.requests == []


async def test_a_repeated_commit_gets_the_first_answer() -> None:
    """Idempotence (invariant 2)."""
    session = await begin()
    task = await leased(session)
    first = await commit(session, task)
    again = await summaries.commit_task(session.runtime, session.key, task.token, "another text", "model")
    assert (again.id, again.summary.text) == (first.id, first.summary.text)
    assert len(await session.chain()) == 1


async def test_tasks_are_those_of_the_agent_and_tenant_that_ask() -> None:
    """Every lease and token carries the full key (invariant 5)."""
    session = await begin()
    other = await begin(agent="other", beside=session)
    assert await lease(session, tenant="another") is None
    task = await leased(other)
    assert task.key == other.key
    with pytest.raises(RequestError) as refused:
        await summaries.commit_task(session.runtime, session.key, task.token, "text", "model")
    assert refused.value.reason == Reason.FIELD_INVALID
    with pytest.raises(RequestError):
        await summaries.commit_task(session.runtime, other.key._replace(tenant="another"), task.token, "text", "model")
    assert (await leased(session)).key == session.key


async def test_the_sessions_of_an_agent_are_leased_one_after_the_other() -> None:
    sessions = [await begin()]
    sessions += [await begin(session_id=f"session-{number}", beside=sessions[0]) for number in range(3)]
    keys = [(await leased(sessions[0])).key for _ in sessions]
    assert keys == [session.key for session in sessions]
    assert await lease(sessions[0]) is None


Act = Callable[[FoldedSession], Awaitable[object]]

VOIDING: dict[str, Act] = {
    "a clear": lambda session: session.clear(),
    "a rewind": lambda session: session.rewind(3),
    "a redaction of a message in it": lambda session: session.redact(2),
    "an answer to a call in it": lambda session: session.append(results("a")),
}


@pytest.mark.parametrize("what", VOIDING)
async def test_a_task_is_void_once_what_it_holds_has_changed(what: str) -> None:
    session = await begin()
    task = await leased(session)
    await VOIDING[what](session)
    with pytest.raises(RequestError) as refused:
        await commit(session, task)
    assert refused.value.reason == Reason.SUMMARY_TASK_VOID
    assert await session.chain() == []
    await session.check()
    await session.load()
    again = await lease(session)
    if what in {"a clear", "a rewind"}:
        assert again is None
    else:
        assert again is not None
        await commit(session, again)
        await session.check()


async def test_a_task_outlives_appends() -> None:
    session = await begin()
    task = await leased(session)
    await session.append(user("more"), calls("b"), results("b"))
    await commit(session, task)
    await session.check()


async def test_a_task_that_is_given_back_is_leased_again_at_once() -> None:
    session = await begin()
    task = await leased(session)
    await summaries.abandon_task(session.runtime, session.key, task.token, failed=False)
    await summaries.abandon_task(session.runtime, session.key, task.token, failed=False)
    assert (await leased(session)).attempts == 0


async def test_a_task_whose_model_failed_is_leased_again_later() -> None:
    session = await begin()
    task = await leased(session)
    await summaries.abandon_task(session.runtime, session.key, task.token, failed=True)
    assert await lease(session) is None
    _, stats = await session.load()
    assert (stats.summary_state, stats.summary_failure) == (SummaryState.FAILED, "abandoned")
    pass_time(limits.FOLD_BACKOFF_SECONDS + 1, session.runtime)
    assert (await leased(session)).attempts == 1


async def test_a_task_of_which_nobody_hears_again_is_leased_to_the_next() -> None:
    session = await begin()
    lost = await leased(session)
    pass_time(limits.DEFAULT_TASK_LEASE_SECONDS - 1, session.runtime)
    assert await lease(session) is None
    pass_time(2, session.runtime)
    task = await leased(session)
    assert task.attempts == 1
    with pytest.raises(RequestError) as refused:
        await commit(session, lost)
    assert refused.value.reason == Reason.SUMMARY_TASK_VOID
    await commit(session, task)
    await session.check()


@pytest.mark.parametrize("text", ["", " \n", "<think>hm</think>"])
async def test_a_text_that_says_nothing_is_refused_and_the_task_stays_leased(text: str) -> None:
    session = await begin()
    task = await leased(session)
    with pytest.raises(RequestError) as refused:
        await summaries.commit_task(session.runtime, session.key, task.token, text, "model")
    assert refused.value.metadata["field"] == "text"
    await commit(session, task)
    await session.check()


async def test_a_session_is_not_offered_once_it_fits_again() -> None:
    session = await begin()
    await session.adopt(folding_policy(20, summarizer=CLIENT))
    assert await lease(session) is None
    assert (await session.record()).folding.wanted == 0


async def test_a_session_that_the_server_summarizes_now_is_not_offered() -> None:
    session = await begin()
    await session.adopt(folding_policy(4, keep=1))
    assert await lease(session) is None
    with pytest.raises(RequestError) as refused:
        await lease(session, by_agent=False)
    assert refused.value.reason == Reason.SUMMARIZER_DIFFERS
    assert (await session.check_window()).summary_state is SummaryState.CURRENT


async def test_retention_removes_what_a_client_has_summarized() -> None:
    session = await begin(folding_policy(4, keep=1, summarizer=CLIENT, retention=Retention.DELETE))
    await commit(session, await leased(session))
    assert [message.seq for message in await session.stored()] == [6]
    await session.check()


async def test_a_server_does_not_make_the_summary_of_a_clients_session() -> None:
    session = await begin()
    with pytest.raises(RequestError) as refused:
        await summaries.summarize(session.runtime, session.key)
    assert refused.value.reason == Reason.SUMMARIZER_DIFFERS
    await session.adopt(Policy())
    for call in (summaries.summarize(session.runtime, session.key), lease(session, by_agent=False)):
        with pytest.raises(RequestError) as refused:
            await call
        assert refused.value.reason == Reason.SUMMARIES_DISABLED


@pytest.mark.parametrize("seconds", [0.0, -1.0, limits.MAX_TASK_LEASE_SECONDS + 1.0])
async def test_leases_are_of_bounded_length(seconds: float) -> None:
    session = await begin()
    with pytest.raises(RequestError) as refused:
        await summaries.lease_task(session.runtime, key=session.key, seconds=seconds)
    assert refused.value.metadata["field"] == "lease_duration"
