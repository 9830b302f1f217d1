"""Summaries through the clients, on a real server; each test holds for the sync and for the async client."""

import asyncio
import functools
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from memoryd import (
    AsyncMemoryClient,
    AsyncSession,
    EtagMismatch,
    FieldInvalid,
    MemoryClient,
    OriginalsRemoved,
    Policy,
    Retention,
    Role,
    SessionNotFound,
    SummariesDisabled,
    SummarizerDiffers,
    SummaryNotFound,
    SummaryPolicy,
    SummaryState,
    SummaryTaskVoid,
    WatchEventKind,
    WindowMode,
    WindowOptions,
    WindowStats,
    assistant,
    user,
)
from tests.sdk.conftest import Connect
from tests.servers import ServerProcess
from tests.service.in_process import until
from tests.service.lossy_proxy import LossyProxy

TURNS = (
    user("My project is called Atlas."),
    assistant("Noted: Atlas."),
    user("It ships on Friday."),
    assistant("Noted: Friday."),
    user("The team is Ada, Grace and Linus."),
    assistant("Noted: the team."),
    user("What is it called, and when does it ship?"),
)

PATIENCE = 30.0
"""Seconds after which what has not happened counts as never happening."""


@pytest.fixture
def server(in_memory_server: ServerProcess) -> ServerProcess:
    """The engine is the same on every store; what each store keeps of it, the tests of stores say."""
    return in_memory_server


def folding(summarizer: str, **policy: object) -> Policy:
    """A window of four messages, and summaries."""
    summary = SummaryPolicy(summarizer=summarizer, **policy)  # type: ignore[arg-type]
    return Policy(window=WindowOptions(mode=WindowMode.MESSAGES, limit=4), summary=summary)


async def begun(
    memory: AsyncMemoryClient, agent: str, summarizer: str = "extractive", **policy: object
) -> AsyncSession:
    """A session whose history is longer than its window; with the summarizer `client`, it has a task."""
    session = memory.session(agent=agent)
    await session.append(*(type(turn)(role=turn.role, content=turn.content) for turn in TURNS))
    await session.update(policy=folding(summarizer, **policy))
    if summarizer == "client":
        assert (await session.window()).stats.summary_state is SummaryState.PENDING
    return session


async def until_state(session: AsyncSession, state: SummaryState) -> WindowStats:
    """Loads windows until one has a summary in this state; gives its stats."""
    begun = time.monotonic()
    while (stats := (await session.window()).stats).summary_state is not state:
        assert time.monotonic() - begun < PATIENCE
        await asyncio.sleep(0.01)
    return stats


async def test_a_policy_comes_back_as_stored(memory: AsyncMemoryClient, agent: str) -> None:
    whole = SummaryPolicy(
        enabled=True, summarizer="client", max_tokens=500, keep=2, retention=Retention.DELETE, wait=False
    )
    defaults = SummaryPolicy(enabled=True, retention=Retention.KEEP, wait=True)
    for given, stored in (
        (whole, whole),
        (SummaryPolicy(), defaults),
        (SummaryPolicy(enabled=False), replace(defaults, enabled=False)),
        (None, None),
    ):
        info = await memory.agent(agent).update(policy=Policy(summary=given))
        assert info.policy.summary == stored
    with pytest.raises(FieldInvalid):
        await memory.agent(agent).update(policy=folding("nobody"))


async def test_early_facts_leave_the_window_and_are_still_in_it(memory: AsyncMemoryClient, agent: str) -> None:
    """Invariant 9. The window is the summary and the newest messages; the view `all` still lists every message."""
    session = await begun(memory, agent)
    window = await session.window()
    summary, *rest = window.messages
    assert summary.text.startswith("[CONVERSATION SUMMARY]\n")
    assert "Atlas" in summary.text
    assert "Friday" in summary.text
    assert (summary.role, summary.seq, summary.id) == (Role.USER, 0, window.stats.summary_id)
    assert [message.seq for message in rest] == [5, 6, 7]
    assert window.stats.summary_state is SummaryState.CURRENT
    assert window.stats.summary_failure == ""
    assert window.stats.uncovered_message_count == 0
    assert [message.seq async for message in session.messages()] == [0, 5, 6, 7]
    assert [message.seq async for message in session.messages(view="all")] == [1, 2, 3, 4, 5, 6, 7]
    plain = await session.window(summary=False)
    assert [message.seq for message in plain] == [4, 5, 6, 7]
    assert plain.stats.summary_id == ""


async def test_a_window_that_is_streamed_has_its_summary_too(memory: AsyncMemoryClient, agent: str) -> None:
    session = await begun(memory, agent)
    for _ in range(3):
        await session.append(user("a large one " * 125_000))
    window = await session.window()
    assert [message.seq for message in window] == [0, 8, 9, 10]
    assert window.messages[0].id == window.stats.summary_id
    assert [message.seq for message in await session.window(summary=False)] == [7, 8, 9, 10]


async def test_a_load_need_not_wait_for_a_summary(memory: AsyncMemoryClient, agent: str) -> None:
    session = await begun(memory, agent)
    at_once = await session.window(wait_for_summary=False)
    assert at_once.stats.summary_state is SummaryState.PENDING
    assert [message.seq for message in at_once] == [4, 5, 6, 7]
    assert at_once.stats.uncovered_message_count == 3
    await until_state(session, SummaryState.CURRENT)


async def test_a_summary_tells_how_it_was_made(memory: AsyncMemoryClient, agent: str) -> None:
    session = await begun(memory, agent, keep=2)
    async with session.watch() as events:
        summarized = await session.summarize()
        event = await anext(events)
    assert event.kind is WatchEventKind.SUMMARIZED
    first = summarized.summary
    assert first is not None
    assert summarized.message_count == first.message_count == first.covered_message_count == 5
    assert (first.from_seq, first.to_seq, first.covered_from_seq, first.previous_id) == (1, 5, 1, "")
    assert (first.summarizer, first.current, first.originals_removed) == ("extractive", True, False)
    assert first.input_token_count > first.output_token_count > 0
    assert first.duration > timedelta()
    assert abs(datetime.now(UTC) - first.create_time) < timedelta(minutes=5)
    assert (await session.summarize()).message_count == 0
    await session.append(assistant("Atlas, on Friday."), user("Thank you."))
    second = (await session.summarize()).summary
    assert second is not None
    assert (second.from_seq, second.to_seq, second.previous_id) == (6, 7, first.id)
    assert (second.covered_from_seq, second.covered_message_count) == (1, 7)
    chain = await session.summaries()
    assert [(summary.id, summary.current) for summary in chain] == [(second.id, True), (first.id, False)]
    assert await session.summary() == second
    assert (await session.summary(first.id)).text == first.text


async def test_a_summary_is_taken_back(memory: AsyncMemoryClient, agent: str) -> None:
    session = await begun(memory, agent, keep=2)
    first = (await session.summarize()).summary
    await session.append(assistant("Atlas, on Friday."), user("Thank you."))
    second = (await session.summarize()).summary
    assert first is not None
    assert second is not None
    with pytest.raises(EtagMismatch) as error:
        await session.revert_summary(first.id)
    assert error.value.etag == second.id
    back = await session.revert_summary(second.id)
    assert back is not None
    assert (back.id, back.current) == (first.id, True)
    assert await session.revert_summary(first.id) is None
    assert [message.seq async for message in session.messages()] == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert await session.summaries() == []
    for missing in (session.summary(), session.summary(first.id), session.revert_summary(first.id)):
        with pytest.raises(SummaryNotFound):
            await missing


async def test_removed_messages_do_not_come_back(memory: AsyncMemoryClient, agent: str) -> None:
    session = await begun(memory, agent, retention=Retention.DELETE)
    window = await session.window()
    assert [message.seq async for message in session.messages(view="all")] == [5, 6, 7]
    assert (await session.summary()).originals_removed
    with pytest.raises(OriginalsRemoved):
        await session.revert_summary(window.stats.summary_id)


async def test_what_the_policy_does_not_ask_for_is_refused(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    with pytest.raises(SessionNotFound):
        await session.summarize()
    await session.append(*TURNS)
    with pytest.raises(SummariesDisabled):
        await session.summarize()
    with pytest.raises(SummariesDisabled):
        await session.summarize_with(str.upper, wait=False)
    other = await begun(memory, agent)
    with pytest.raises(SummarizerDiffers):
        await other.summarize_with(str.upper, wait=False)
    mine = await begun(memory, agent, "client")
    with pytest.raises(SummarizerDiffers):
        await mine.summarize()


async def test_an_agents_own_model_makes_the_summary(memory: AsyncMemoryClient, agent: str) -> None:
    session = await begun(memory, agent, "client")
    made = []
    async for task in memory.summary_tasks(agent=agent, wait=False, lease_for=30):
        assert (task.agent, task.session_id, task.previous, task.attempts) == (agent, session.id, "", 0)
        assert [message.text for message in task.messages] == [turn.text for turn in TURNS[:4]]
        assert task.prompt.startswith(task.instructions)
        assert task.prompt.endswith(task.input)
        assert "Atlas" in task.input
        assert 0 < task.target_tokens <= task.max_tokens
        assert timedelta() < task.expires - datetime.now(UTC) <= timedelta(seconds=31)
        summary = await task.commit("Atlas ships on Friday.", "mine-1")
        assert await task.commit("Something else.") == summary
        made.append(summary)
    (summary,) = made
    assert (summary.text, summary.summarizer, summary.model) == ("Atlas ships on Friday.", "client", "mine-1")
    window = await session.window()
    assert window.messages[0].text == "[CONVERSATION SUMMARY]\nAtlas ships on Friday."

    await session.append(assistant("Atlas, on Friday."), user("Thank you."))
    await session.window()
    async for task in session.summary_tasks(wait=False):
        assert task.previous == "Atlas ships on Friday."
        await task.commit("Atlas ships on Friday, made by Ada, Grace and Linus.")
    assert [each.previous_id for each in await session.summaries()] == [summary.id, ""]


@pytest.mark.parametrize("kind", ["plain", "async", "partial"])
async def test_a_function_summarizes_an_agents_sessions(
    memory: AsyncMemoryClient, server: ServerProcess, agent: str, kind: str
) -> None:
    sessions = [await begun(memory, agent, "client") for _ in range(3)]

    def plain(prompt: str) -> str:
        return "Atlas ships on Friday." if "Atlas" in prompt else "Nothing."

    async def asynchronous(prompt: str) -> str:
        return plain(prompt)

    if kind == "plain":
        assert await memory.summarize_with(plain, agent=agent, model="mine-1", wait=False) == 3
    else:
        function = asynchronous if kind == "async" else functools.partial(asynchronous)
        async with AsyncMemoryClient(server.address) as client:
            assert await client.summarize_with(function, agent=agent, model="mine-1", wait=False) == 3
    for session in sessions:
        summary = await session.summary()
        assert (summary.text, summary.model) == ("Atlas ships on Friday.", "mine-1")


@pytest.mark.parametrize("answer", ["", " \n", None, RuntimeError("no model")])
async def test_a_model_that_fails_changes_nothing(
    memory: AsyncMemoryClient, agent: str, answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    """Its task waits before it is tried again, so that a broken model is not asked in a loop (invariant 10)."""
    session = await begun(memory, agent, "client")
    prompts: list[str] = []

    def broken(prompt: str) -> str:
        prompts.append(prompt)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    with caplog.at_level(logging.WARNING, "memoryd"):
        assert await memory.summarize_with(broken, agent=agent, wait=False) == 0
    assert len(prompts) == 1
    assert "was not summarized" in caplog.text
    stats = (await session.window()).stats
    assert (stats.summary_state, stats.summary_failure, stats.summary_id) == (SummaryState.FAILED, "abandoned", "")


async def test_a_task_that_is_left_is_free_for_others_at_once(memory: AsyncMemoryClient, agent: str) -> None:
    session = await begun(memory, agent, "client")
    for _ in range(2):
        async with session.summary_tasks(wait=False) as tasks:
            async for task in tasks:
                assert task.attempts == 0
                break
    async for task in session.summary_tasks(wait=False):
        await task.abandon()
        break
    assert await session.summarize_with(lambda _: "Atlas.", wait=False) == 1


@pytest.mark.parametrize("entered", [True, False])
async def test_a_task_whose_turn_raises_waits(memory: AsyncMemoryClient, agent: str, entered: bool) -> None:
    session = await begun(memory, agent, "client")
    tasks = session.summary_tasks(wait=False)

    async def work() -> None:
        async for _task in tasks:
            raise ValueError("no model")

    async def entered_work() -> None:
        async with tasks:
            await work()

    with pytest.raises(ValueError, match="no model"):
        await (entered_work() if entered else work())
    stats = await until_state(session, SummaryState.FAILED)
    assert stats.summary_failure == "abandoned"
    assert await session.summarize_with(lambda _: "Atlas.", wait=False) == 0


async def test_a_cancelled_worker_leaves_its_task_to_others(server: ServerProcess, agent: str) -> None:
    async with AsyncMemoryClient(server.address) as memory:
        session = await begun(memory, agent, "client")
        asked = asyncio.Event()

        async def never(prompt: str) -> str:
            asked.set()
            await asyncio.Event().wait()
            return prompt

        worker = asyncio.create_task(memory.summarize_with(never, agent=agent))
        await asked.wait()
        worker.cancel()
        with pytest.raises(asyncio.CancelledError):
            await worker
        assert await session.summarize_with(lambda _: "Atlas.", wait=False) == 1


async def test_a_client_that_is_closed_gives_its_tasks_back(
    memory: AsyncMemoryClient, connect: Connect, server: ServerProcess, agent: str
) -> None:
    session = await begun(memory, agent, "client")
    async with connect(server.address) as other:
        async for _task in other.summary_tasks(agent=agent):
            await other.close()
            break
    assert await session.summarize_with(lambda _: "Atlas.", wait=False) == 1


async def test_a_worker_waits_for_tasks(memory: AsyncMemoryClient, server: ServerProcess, agent: str) -> None:
    """Whoever serves tasks is there before there are any."""
    async with AsyncMemoryClient(server.address) as client:
        worker = asyncio.create_task(client.summarize_with(lambda _: "Atlas.", agent=agent))
        session = await begun(memory, agent, "client")
        await until_state(session, SummaryState.CURRENT)
        worker.cancel()
        with pytest.raises(asyncio.CancelledError):
            await worker


async def test_a_task_is_void_once_its_messages_are_gone(memory: AsyncMemoryClient, agent: str) -> None:
    """A clear stays cleared (invariant 10)."""
    session = await begun(memory, agent, "client")
    async for task in session.summary_tasks(wait=False):
        await session.clear()
        with pytest.raises(SummaryTaskVoid):
            await task.commit("Atlas.")
        assert task.settled
    assert await session.summaries() == []


async def test_a_worker_goes_on_when_its_server_answers_again(
    memory: AsyncMemoryClient, server: ServerProcess, agent: str, caplog: pytest.LogCaptureFixture
) -> None:
    session = await begun(memory, agent, "client")
    with caplog.at_level(logging.INFO, "memoryd"):
        async with LossyProxy.run(server.address) as proxy, AsyncMemoryClient(proxy.address) as client:
            worker = asyncio.create_task(client.summarize_with(lambda _: "Atlas.", agent=agent))
            await until_state(session, SummaryState.CURRENT)
            proxy.target = "127.0.0.1:1"
            proxy.cut()
            await until(lambda: "no summary task can be leased" in caplog.text)
            proxy.target = server.address
            await session.append(assistant("Atlas, on Friday."))
            await until_state(session, SummaryState.PENDING)
            await until_state(session, SummaryState.CURRENT)
            worker.cancel()
            with pytest.raises(asyncio.CancelledError):
                await worker
    assert "summary tasks are served again" in caplog.text


def test_a_sync_worker_is_ended_by_another_thread(server: ServerProcess, agent: str) -> None:
    with MemoryClient(server.address) as memory:
        tasks = memory.summary_tasks(agent=agent)

        async def ended() -> Sequence[object]:
            waiting = asyncio.create_task(asyncio.to_thread(lambda: list(tasks)))
            await asyncio.sleep(0)
            tasks.close()
            async with asyncio.timeout(10):
                return await waiting

        assert asyncio.run(ended()) == []
