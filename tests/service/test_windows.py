"""Windows of real and of odd conversations, at every limit (invariants 6 to 8)."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from memoryd import (
    AsyncMemoryClient,
    AsyncSession,
    Message,
    Window,
    from_anthropic,
    from_openai,
    to_anthropic,
    to_openai,
)
from tests.servers import ServerProcess
from tests.service.conversations import ANTHROPIC, OPENAI
from tests.service.window_rules import check_anthropic, check_openai, check_window, made_up_results

TOKEN_BUDGETS: Final = 20
CONCURRENT_LOADS: Final = 16

TRANSCRIPTS: Final = Path(__file__).parents[3] / "shared" / "data" / "airline_transcripts.jsonl"


@pytest.fixture
async def client(any_server: ServerProcess) -> AsyncIterator[AsyncMemoryClient]:
    async with AsyncMemoryClient(any_server.address) as client:
        yield client


async def stored(session: AsyncSession) -> list[Message]:
    return [message async for message in session.messages()]


def token_budgets(history: Sequence[Message], count: int = TOKEN_BUDGETS) -> list[int]:
    """Budgets spread over the range from one token to more than the history has."""
    total = sum(message.token_count for message in history)
    return sorted({1 + round(step * total / (count - 1)) for step in range(count)})


async def windows(session: AsyncSession, limits: Sequence[dict[str, Any]], **options: Any) -> list[Window]:
    """A window for each limit, some at a time."""
    slots = asyncio.Semaphore(CONCURRENT_LOADS)

    async def load(limit: dict[str, Any]) -> Window:
        async with slots:
            return await session.window(**limit, **options)

    return list(await asyncio.gather(*map(load, limits)))


async def check_every_limit(session: AsyncSession, history: Sequence[Message], **options: Any) -> None:
    limits: list[dict[str, Any]] = [{"messages": limit} for limit in range(1, len(history) + 2)]
    limits += [{"tokens": budget} for budget in token_budgets(history)]
    found = await windows(session, limits, **options)
    keeps = options.get("open_calls") == "keep"
    made_up = None
    if options.get("open_calls") == "synthesize":
        made_up = made_up_results(history, await session.window(messages=100_000, **options))
    for limit, window in zip(limits, found, strict=True):
        check_window(history, window, made_up=made_up, **limit, **options)
        if not keeps:
            check_openai(to_openai(window))
            check_anthropic(to_anthropic(window.messages)["messages"])
    check_prefixes(found)


def check_prefixes(found: Sequence[Window]) -> None:
    """Of two windows with equal digests, the longer one begins with the shorter one's messages, byte for byte."""
    by_digest = sorted(found, key=lambda window: (window.stats.prefix_digest, len(window)))
    pairs = [
        (shorter, longer)
        for shorter, longer in itertools.pairwise(by_digest)
        if shorter.stats.prefix_digest == longer.stats.prefix_digest
    ]
    assert pairs, "no two windows have equal digests"
    for shorter, longer in pairs:
        assert longer.messages[: len(shorter)] == shorter.messages


async def test_the_airline_transcripts_come_back_and_give_valid_windows(client: AsyncMemoryClient, agent: str) -> None:
    """Every limit from 1 to length + 1 and 20 token budgets of 50 recorded conversations (invariants 4, 6, 7, 8)."""
    if not TRANSCRIPTS.exists():
        pytest.skip("the transcripts are not at hand; the bundled conversations are tested all the same")
    lines = [json.loads(line) for line in TRANSCRIPTS.read_text("utf-8").splitlines()]
    assert len(lines) == 50
    for line in lines:
        session = client.session(agent=agent, id=line["session_id"])
        await session.append_all(from_openai(line["messages"]))
        history = await stored(session)
        assert to_openai(history) == line["messages"]
        await check_every_limit(session, history)


@pytest.mark.parametrize("name", OPENAI)
async def test_odd_conversations_come_back_and_give_valid_windows(
    client: AsyncMemoryClient, agent: str, name: str
) -> None:
    """The same for what is rare in the wild, with every choice of options (invariants 4, 6, 7, 8)."""
    session = client.session(agent=agent)
    await session.append_all(from_openai(OPENAI[name]))
    history = await stored(session)
    assert to_openai(history) == OPENAI[name]
    for open_calls, pin_system, start_with_user in itertools.product(
        ("omit", "synthesize", "keep"), (True, False), (False, True)
    ):
        await check_every_limit(
            session, history, open_calls=open_calls, pin_system=pin_system, start_with_user=start_with_user
        )


@pytest.mark.parametrize("name", ANTHROPIC)
async def test_several_results_in_one_message(client: AsyncMemoryClient, agent: str, name: str) -> None:
    """A message that answers several calls belongs to the group of the first; strays are left out (invariant 6)."""
    session = client.session(agent=agent)
    await session.append_all(from_anthropic(ANTHROPIC[name]))
    history = await stored(session)
    assert to_anthropic(history)["messages"] == ANTHROPIC[name]
    for open_calls, start_with_user in itertools.product(("omit", "synthesize", "keep"), (False, True)):
        await check_every_limit(session, history, open_calls=open_calls, start_with_user=start_with_user)


@pytest.mark.parametrize("name", OPENAI)
async def test_windows_keep_their_rules_while_the_history_grows(
    client: AsyncMemoryClient, agent: str, name: str
) -> None:
    """Message by message: a group is shown once its last call is answered, and a digest that stays promises that the
    bytes before stay (invariants 6 and 7)."""
    session = client.session(agent=agent)
    found: list[Window] = []
    for message in from_openai(OPENAI[name]):
        await session.append(message)
        history = await stored(session)
        limits: list[dict[str, Any]] = [{"messages": limit} for limit in (1, 2, 3, 5, 8, 1_000)]
        limits += [{"tokens": 60}, {"tokens": 100_000}]
        grown = await windows(session, limits)
        for limit, window in zip(limits, grown, strict=True):
            check_window(history, window, **limit)
        found += grown
    check_prefixes(found)
