"""A copy asks a store for as much at once as it answers soon."""

from __future__ import annotations

import asyncio

import pytest

from memoryd_server.engine import pacing
from memoryd_server.engine.pacing import MOST_AT_ONCE, TRIES, Pace, Turns, Unanswered, patiently
from memoryd_server.stores.base import StoreUnavailable


class Answers:
    """Counts calls, and fails the first of them."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.calls = 0
        self.under_way = 0
        self.most = 0

    async def __call__(self) -> int:
        self.calls += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        if self.calls <= self.failures:
            raise StoreUnavailable("away")
        return self.calls


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "FIRST_PAUSE_SECONDS", 0.0001)


def new_pace(*, wants_more: bool = True) -> Pace:
    return Pace(wants_more=lambda: wants_more, changed=lambda: None)


async def ask(pace: Pace, answers: Answers, times: int) -> None:
    await asyncio.gather(*(pace.ask(answers, repeatable=True) for _ in range(times)))


async def test_it_begins_with_one_and_grows_while_answers_come_soon() -> None:
    pace, answers = new_pace(), Answers()
    assert pace.width == 1
    await ask(pace, answers, 1)
    assert (pace.width, answers.most) == (2, 1)
    await ask(pace, answers, 500)
    assert pace.width == answers.most == MOST_AT_ONCE
    pace.begin_anew()
    assert pace.width == 1


async def test_it_does_not_grow_where_nobody_wants_more() -> None:
    """So that what was never tried is not taken for possible."""
    pace, answers = new_pace(wants_more=False), Answers()
    for _ in range(50):
        await ask(pace, answers, 1)
    assert pace.width == 1


async def test_it_shrinks_when_answers_come_late(monkeypatch: pytest.MonkeyPatch) -> None:
    pace, answers = new_pace(), Answers()
    await ask(pace, answers, 500)
    monkeypatch.setattr(pacing, "SOON_SECONDS", -1.0)
    for expected in (32, 16, 8, 4, 2, 1, 1):
        await ask(pace, answers, 1)
        assert pace.width == expected


async def test_it_shrinks_once_for_all_that_was_asked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    pace, answers = new_pace(), Answers()
    await ask(pace, answers, 500)
    monkeypatch.setattr(pacing, "SOON_SECONDS", -1.0)
    await ask(pace, answers, MOST_AT_ONCE)
    assert pace.width == MOST_AT_ONCE // 2


async def test_it_shrinks_to_a_quarter_when_an_answer_is_missing_and_grows_by_one_a_round_then() -> None:
    pace, answers = new_pace(), Answers()
    await ask(pace, answers, 500)
    answers.failures = answers.calls + 1
    await ask(pace, answers, 1)
    assert pace.width == MOST_AT_ONCE // 4
    await ask(pace, answers, 16)
    assert pace.width == MOST_AT_ONCE // 4 + 1


async def test_a_call_is_made_again_until_it_is_answered_or_was_made_often() -> None:
    pace = new_pace()
    assert await pace.ask(Answers(TRIES - 1), repeatable=True) == TRIES
    answers = Answers(TRIES)
    with pytest.raises(Unanswered, match="away"):
        await pace.ask(answers, repeatable=True)
    assert answers.calls == TRIES
    answers = Answers(1)
    with pytest.raises(StoreUnavailable):
        await pace.ask(answers, repeatable=False)
    assert answers.calls == 1


async def test_what_is_no_outage_is_not_tried_again() -> None:
    calls = 0

    async def fail() -> None:
        nonlocal calls
        calls += 1
        raise ValueError

    with pytest.raises(ValueError):
        await patiently(fail)
    assert calls == 1


async def test_who_is_cancelled_while_he_waits_or_works_gives_his_turn_to_the_next() -> None:
    turns = Turns(1)
    order: list[str] = []

    async def work(name: str, seconds: float) -> None:
        async with turns:
            order.append(name)
            await asyncio.sleep(seconds)

    first = asyncio.create_task(work("first", 60))
    second, third = asyncio.create_task(work("second", 60)), asyncio.create_task(work("third", 0))
    await asyncio.sleep(0)
    assert turns.are_awaited
    second.cancel()
    first.cancel()
    await third
    assert order == ["first", "third"]
    async with turns:
        assert not turns.are_awaited
