"""Windows against the reference (invariants 6 and 7, and what `WindowStats` tells)."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server.engine import policies, tokens
from memoryd_server.engine.content import Text, ToolCall, ToolResult, decode_parts, encode_parts
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.windows import INTERRUPTED_METADATA, INTERRUPTED_TEXT, WindowStats
from memoryd_server.stores.records import (
    OpenCalls,
    Oversize,
    Role,
    StoredMessage,
    Usability,
    WindowMode,
    WindowOptions,
)
from tests.engine import reference
from tests.engine.messages import (
    KEY,
    assistant,
    calls,
    developer,
    histories,
    results,
    spoken,
    system,
    user,
    user_results,
)
from tests.engine.providers import assert_acceptable
from tests.engine.reference import Interrupted, Message, TooSmall
from tests.engine.sessions import Conversation, conversation

FLAGS = tuple(itertools.product((True, False), (True, False), OpenCalls))
"""Every choice of pin_system, start_with_user and open_calls."""


def by_messages(limit: int) -> Iterable[WindowOptions]:
    """Every choice of options under a limit of messages."""
    for pin, front, open_calls in FLAGS:
        yield WindowOptions(WindowMode.MESSAGES, limit, pin, front, open_calls)


def by_tokens(limit: int) -> Iterable[WindowOptions]:
    """Every choice of options under a limit of tokens."""
    for (pin, front, open_calls), oversize in itertools.product(FLAGS, Oversize):
        yield WindowOptions(WindowMode.TOKENS, limit, pin, front, open_calls, oversize)


def _interrupted_tokens(call: ToolCall) -> int:
    return reference.price_in_tokens(tokens.estimate, None, (_interrupted(call),))


def _interrupted(call: ToolCall) -> ToolResult:
    return ToolResult(call.id, call.name, is_error=True, parts=(Text(INTERRUPTED_TEXT),))


def _parts_as_shown(message: Message) -> str | None:
    """Without the results that answer no call of the message's group."""
    answers = iter(message.answers)
    return encode_parts(
        [part for part in message.parts if not isinstance(part, ToolResult) or next(answers) != reference.NO_CALL]
    )


async def check(session: Conversation, history: reference.History, options: WindowOptions) -> None:
    """One window: against the reference, against what providers ask, and its stats against a count of everything."""
    settings = policies.resolve(options)
    expected = reference.window(history, settings, _interrupted_tokens)
    if isinstance(expected, TooSmall):
        with pytest.raises(RequestError) as refused:
            await session.window(options)
        assert refused.value.reason == Reason.WINDOW_TOO_SMALL
        assert refused.value.metadata == {"limit": str(settings.limit), "needed": str(expected.needed)}
        return
    messages, stats = await session.window(options, explain=True)
    keep = settings.open_calls == OpenCalls.KEEP
    assert_acceptable(messages, open_calls_allowed=keep)
    assert [message.seq for message in messages] == [
        shown.seq if isinstance(shown, Message) else 0 for shown in expected.shown
    ]
    _check_contents(messages, expected, history, stats)
    _check_limit(messages, expected, settings, stats)
    _check_stats(messages, expected, history, settings, stats)


def _check_contents(
    messages: Sequence[StoredMessage], expected: reference.Window, history: reference.History, stats: WindowStats
) -> None:
    by_seq = {message.seq: message for message in history.messages}
    for message, shown in zip(messages, expected.shown, strict=True):
        if isinstance(shown, Interrupted):
            call = [part for part in by_seq[shown.head].parts if isinstance(part, ToolCall)][shown.index]
            assert (message.role, message.content, message.metadata, message.tokens) == (
                Role.TOOL,
                encode_parts((_interrupted(call),)),
                INTERRUPTED_METADATA,
                shown.tokens,
            )
        elif shown.seq not in stats.shortened:
            assert message.role == shown.role
            assert message.tokens == shown.tokens
            assert (message.content or "[]") == _parts_as_shown(shown)


def _check_limit(
    messages: Sequence[StoredMessage],
    expected: reference.Window,
    settings: policies.WindowSettings,
    stats: WindowStats,
) -> None:
    by_tokens = settings.mode == WindowMode.TOKENS
    used = sum(message.tokens for message in messages) if by_tokens else len(messages)
    assert stats.over_limit == (used > settings.limit)
    assert stats.used_percent == pytest.approx(100 * used / settings.limit)
    if not expected.exceeds:
        assert not stats.over_limit
        assert not stats.shortened
        return
    assert stats.over_limit or stats.shortened
    if not by_tokens or settings.oversize == Oversize.RETURN:
        assert stats.over_limit
    if stats.shortened:
        assert settings.oversize == Oversize.SHORTEN
        newest = {message.seq for message in messages[len(expected.pins) :]}
        assert set(stats.shortened) <= newest


def _check_stats(
    messages: Sequence[StoredMessage],
    expected: reference.Window,
    history: reference.History,
    settings: policies.WindowSettings,
    stats: WindowStats,
) -> None:
    usabilities = {message.seq: history.usability(message) for message in history.messages}
    shown = {message.seq for message in expected.stored}
    omit = settings.open_calls == OpenCalls.OMIT
    orphans = [seq for seq, usability in usabilities.items() if usability == Usability.ORPHAN]
    left_open = [seq for seq, usability in usabilities.items() if omit and usability == Usability.OPEN]
    over_limit = [message for message in history.messages if message.seq not in shown | set(orphans) | set(left_open)]
    left = stats.left_out
    assert left.orphan_count == len(orphans)
    assert left.open_count == len(left_open)
    assert left.limit_count == stats.uncovered == len(over_limit)
    assert len(shown) + left.limit_count + left.orphan_count + left.open_count == stats.history_messages
    if over_limit:
        assert history.first_seq <= left.limit_from_seq <= min(message.head for message in over_limit)
        assert max(message.head for message in over_limit) <= left.limit_to_seq <= history.messages[-1].seq
    else:
        assert (left.limit_from_seq, left.limit_to_seq) == (0, 0)
    assert stats.history_messages == len(history.messages)
    assert stats.history_tokens == sum(message.tokens for message in history.messages)
    assert stats.window_messages == len(messages)
    assert stats.window_tokens == sum(message.tokens for message in messages)
    assert (stats.settings.mode, stats.settings.limit) == (settings.mode, settings.limit)
    assert stats.pins == len(expected.pins)
    assert stats.last_seq == history.messages[-1].seq
    assert stats.first_seq == next((message.seq for message in messages[stats.pins :]), 0)
    assert {(entry.seq, entry.usability) for entry in stats.explained} == {
        (seq, usabilities[seq]) for seq in [*orphans, *left_open]
    }
    heads = [entry.head for entry in stats.explained]
    assert heads == sorted(heads, reverse=True)


def budgets(history: reference.History, most: int) -> list[int]:
    """Token limits where something changes: around the sums from either end, and where pins take half the limit."""
    prices = [message.tokens for message in history.messages]
    sums = {*itertools.accumulate(prices), *itertools.accumulate(reversed(prices))}
    opening = {2 * total for total in itertools.accumulate(message.tokens for message in history.opening)}
    edges = sorted({limit for total in sums | opening for limit in (total - 1, total, total + 1) if limit >= 1})
    step = max(1, -(-len(edges) // most))
    return sorted({1, *edges[::step], sum(prices) + 1})


@given(histories(12))
@settings(max_examples=120)
async def test_every_limit_of_messages_gives_the_window_that_the_invariants_describe(
    sent: list[IncomingMessage],
) -> None:
    """(invariants 6 and 7)"""
    session = await conversation(*sent)
    if session.record is None:
        return
    history = session.reference()
    for limit in range(1, len(sent) + 2):
        for options in by_messages(limit):
            await check(session, history, options)


@given(histories(9))
@settings(max_examples=100)
async def test_token_limits_give_the_window_that_the_invariants_describe(sent: list[IncomingMessage]) -> None:
    """(invariants 6, 7 and 8)"""
    session = await conversation(*sent)
    if session.record is None:
        return
    history = session.reference()
    for limit in budgets(history, most=8):
        for options in by_tokens(limit):
            await check(session, history, options)


@given(histories(6), histories(8), st.integers(1, 10))
@settings(max_examples=100)
async def test_a_cleared_history_gives_windows_of_what_came_after(
    before: list[IncomingMessage], after: list[IncomingMessage], limit: int
) -> None:
    """(invariants 6 and 11)"""
    session = await conversation(*before)
    await session.clear()
    for message in after:
        await session.append(message)
    if not after:
        return
    for options in [*by_messages(limit), *by_tokens(20 * limit)]:
        await check(session, session.reference(), options)


HARD_CASES: list[IncomingMessage] = [
    system("You are terse."),
    developer("Answer in JSON. " * 6),
    user("Plan a trip, 東京 🗼"),
    calls("a", "b", "", text="looking"),
    results("b", text="second " * 30),
    user("and be quick"),
    results("a"),
    results(""),
    assistant("done " * 20),
    results("a"),
    calls("a"),
    calls("a", "c"),
    user_results("c", text="and a word"),
    spoken(Role.ASSISTANT, absent=True),
    results("a", "unknown"),
    system("The rules changed."),
    calls("", ""),
    results("", "zz"),
    user_results("zz", text="what was that"),
    calls("late"),
    assistant("meanwhile " * 10),
    calls("x", "y"),
    results("y", "x", text="both " * 15),
    results("late", text="at last"),
    calls("outer"),
    calls("inner"),
    results("inner"),
    results("outer"),
    user("thanks"),
]
"""Parallel calls, reused and empty ids, results out of order and several in one message, interrupted calls, a note
between call and result, late completions, interleaved groups, instructions in the middle, null content, orphans."""


async def test_the_hard_cases_at_every_limit_of_messages() -> None:
    """(invariants 6 and 7)"""
    session = await conversation(*HARD_CASES)
    history = session.reference()
    for limit in range(1, len(HARD_CASES) + 2):
        for options in by_messages(limit):
            await check(session, history, options)


async def test_the_hard_cases_at_many_limits_of_tokens() -> None:
    """(invariants 6, 7 and 8)"""
    session = await conversation(*HARD_CASES)
    history = session.reference()
    for limit in budgets(history, most=60):
        for options in by_tokens(limit):
            await check(session, history, options)


async def test_the_hard_cases_while_they_grow() -> None:
    """(invariants 6 and 7)"""
    session = Conversation()
    for message in HARD_CASES:
        await session.append(message)
        history = session.reference()
        for limit in (1, 4, 9):
            for options in [*by_messages(limit), *by_tokens(25 * limit)]:
                await check(session, history, options)


@given(histories(14), st.integers(1, 300))
@settings(max_examples=100)
async def test_a_streamed_window_is_the_same_window(sent: list[IncomingMessage], limit: int) -> None:
    """Its plan is made without bodies, and asks for those that it needs."""
    session = await conversation(*sent)
    if session.record is None:
        return
    for options in [*by_messages(1 + limit // 20), *by_tokens(limit)]:
        assert await _or_refusal(session.streamed(options)) == await _or_refusal(session.window(options))


async def _or_refusal(
    window: Awaitable[tuple[Sequence[StoredMessage], WindowStats]],
) -> tuple[Sequence[StoredMessage], WindowStats] | Reason:
    try:
        return await window
    except RequestError as error:
        return error.reason


@given(histories(12))
@settings(max_examples=120)
async def test_a_larger_limit_of_messages_never_shows_less(sent: list[IncomingMessage]) -> None:
    """(invariant 7)"""
    session = await conversation(*sent)
    if session.record is None:
        return
    for pin, open_calls in itertools.product((True, False), OpenCalls):
        shown: set[int] = set()
        for limit in range(1, len(sent) + 2):
            options = WindowOptions(WindowMode.MESSAGES, limit, pin, start_with_user=False, open_calls=open_calls)
            messages, _ = await session.window(options)
            larger = {message.seq for message in messages}
            assert shown <= larger
            shown = larger


@given(histories(12))
@settings(max_examples=100)
async def test_a_larger_limit_of_tokens_never_shows_less_as_long_as_it_pins_the_same(
    sent: list[IncomingMessage],
) -> None:
    """Pins claim their room first: a limit that has room for one more of them may show fewer other messages
    (invariant 7)."""
    session = await conversation(*sent)
    if session.record is None:
        return
    history = session.reference()
    for pin, open_calls in itertools.product((True, False), OpenCalls):
        shown: dict[int, set[int]] = {}
        for limit in budgets(history, most=30):
            options = WindowOptions(WindowMode.TOKENS, limit, pin, start_with_user=False, open_calls=open_calls)
            messages, stats = await session.window(options)
            larger = {message.seq for message in messages}
            assert shown.get(stats.pins, set()) <= larger
            shown[stats.pins] = larger


@given(histories(10), st.integers(1, 12))
@settings(max_examples=80)
async def test_a_history_with_a_legal_group_never_gives_an_empty_window(
    sent: list[IncomingMessage], limit: int
) -> None:
    """(invariant 7)"""
    session = await conversation(*sent)
    if session.record is None:
        return
    usable = any(message.usability == Usability.USABLE for message in await session.stored())
    for options in [*by_messages(limit), *by_tokens(limit)]:
        if options.oversize != Oversize.FAIL:
            messages, _ = await session.window(options)
            assert bool(messages) or not (usable or (options.open_calls != OpenCalls.OMIT and _shows_open(session)))


def _shows_open(session: Conversation) -> bool:
    assert session.record is not None
    return session.record.open_messages > 0


async def test_what_is_left_out_does_not_end_the_window() -> None:
    """An orphan and an interrupted call in between (invariant 6)."""
    session = await conversation(user("1"), calls("never"), results("lost"), user("4"))
    messages, _ = await session.window(WindowOptions(limit=10))
    assert [message.seq for message in messages] == [1, 4]


async def test_a_group_is_never_split_even_where_half_of_it_would_fit() -> None:
    """(invariant 6)"""
    session = await conversation(user("1"), calls("a", "b"), results("a"), results("b"), user("5"))
    messages, stats = await session.window(WindowOptions(limit=3))
    assert [message.seq for message in messages] == [5]
    assert (stats.left_out.limit_count, stats.left_out.limit_from_seq, stats.left_out.limit_to_seq) == (4, 1, 4)


async def test_the_first_group_that_does_not_fit_ends_the_window() -> None:
    """A smaller one behind it is not shown (invariant 7)."""
    session = await conversation(user("1"), calls("a"), results("a"), user("4"))
    messages, _ = await session.window(WindowOptions(limit=2))
    assert [message.seq for message in messages] == [4]


async def test_only_the_newest_group_may_exceed_the_limit() -> None:
    """(invariant 7)"""
    session = await conversation(user("1"), calls("a", "b"), results("a"), results("b"))
    messages, stats = await session.window(WindowOptions(limit=1))
    assert [message.seq for message in messages] == [2, 3, 4]
    assert stats.over_limit
    assert stats.used_percent == 300


async def test_pins_take_at_most_half_the_limit_and_the_rest_are_ordinary_messages() -> None:
    """(invariant 7)"""
    session = await conversation(system("1"), developer("2"), system("3"), user("4"), user("5"))
    messages, stats = await session.window(WindowOptions(limit=4))
    assert [message.seq for message in messages] == [1, 2, 4, 5]
    assert stats.pins == 2
    messages, stats = await session.window(WindowOptions(limit=3))
    assert [message.seq for message in messages] == [1, 4, 5]
    assert stats.pins == 1


async def test_a_window_that_would_begin_with_the_model_gets_the_user_message_before_it_in_front() -> None:
    """Its oldest groups make room (invariant 6)."""
    session = await conversation(user("1"), assistant("2"), assistant("3"), assistant("4"))
    messages, stats = await session.window(WindowOptions(limit=3, start_with_user=True))
    assert [message.seq for message in messages] == [1, 3, 4]
    assert stats.first_seq == 1


async def test_making_room_may_let_the_window_begin_with_a_user_message_by_itself() -> None:
    """Nothing is then added (invariant 6)."""
    session = await conversation(user("1"), assistant("2"), user("3"), assistant("4"))
    messages, _ = await session.window(WindowOptions(limit=3, start_with_user=True))
    assert [message.seq for message in messages] == [3, 4]


@pytest.mark.parametrize("oversize", [Oversize.SHORTEN, Oversize.RETURN])
async def test_results_without_call_leave_a_message_whether_or_not_it_is_shortened(oversize: Oversize) -> None:
    """The result that answers its call stays (invariants 6 and 7)."""
    lost, answer = ToolResult("lost", parts=(Text("short"),)), ToolResult("a", parts=(Text("word " * 200),))
    session = await conversation(calls("a"), spoken(Role.TOOL, lost, answer))
    messages, stats = await session.window(WindowOptions(WindowMode.TOKENS, 120, oversize=oversize))
    assert_acceptable(messages)
    assert [part.call_id for part in decode_parts(messages[1].content or "") if isinstance(part, ToolResult)] == ["a"]
    assert stats.over_limit == (oversize == Oversize.RETURN)


async def test_an_answered_call_makes_its_group_appear_where_the_call_stands() -> None:
    """Also when another message was stored between them (invariant 6)."""
    session = await conversation(calls("a", "b"), user("a note"), results("b"))
    assert [message.seq for message in (await session.window(WindowOptions()))[0]] == [2]
    await session.append(results("a"))
    assert [message.seq for message in (await session.window(WindowOptions()))[0]] == [1, 4, 3, 2]


async def test_interrupted_calls_get_marked_results_in_the_order_of_the_calls() -> None:
    """Such a result is stored nowhere, has no seq, and counts (invariant 6)."""
    session = await conversation(calls("a", "b", "c"), results("b"))
    messages, stats = await session.window(WindowOptions(open_calls=OpenCalls.SYNTHESIZE))
    assert [message.seq for message in messages] == [1, 0, 2, 0]
    assert [part.call_id for message in messages[1:] for part in decode_parts(message.content or "")] == list("abc")  # type: ignore[union-attr]
    assert stats.window_messages == 4
    assert (await session.stored())[-1].seq == 2


async def test_explain_lists_at_most_100_messages_newest_first() -> None:
    session = Conversation()
    for _ in range(3):
        await session.append(*(results(f"lost-{number}") for number in range(50)))
    await session.append(user("here"))
    _, stats = await session.window(WindowOptions(), explain=True)
    assert [entry.seq for entry in stats.explained] == list(range(150, 50, -1))
    assert stats.left_out.orphan_count == 150
    _, stats = await session.window(WindowOptions())
    assert list(stats.explained) == []


@pytest.mark.parametrize("limit", [0, -1, -(2**63)])
@pytest.mark.parametrize("mode", WindowMode)
async def test_a_limit_below_1_is_refused(mode: WindowMode, limit: int) -> None:
    """(invariant 7)"""
    session = await conversation(user("hi"))
    with pytest.raises(RequestError) as refused:
        await session.window(WindowOptions(mode, limit))
    assert refused.value.reason == Reason.FIELD_INVALID
    assert refused.value.metadata["field"] == "options.limit"


async def test_a_session_that_does_not_exist_has_no_window() -> None:
    """(invariant 12)"""
    with pytest.raises(RequestError) as refused:
        await Conversation().window(WindowOptions())
    assert refused.value.reason == Reason.SESSION_NOT_FOUND
    assert refused.value.metadata == {"agent": KEY.agent, "session_id": KEY.session_id}


async def test_an_empty_history_has_an_empty_window() -> None:
    session = await conversation(user("hi"))
    await session.clear()
    messages, stats = await session.window(WindowOptions(), explain=True)
    assert list(messages) == []
    assert (stats.history_messages, stats.window_messages, stats.first_seq, stats.last_seq) == (0, 0, 0, 1)
    assert stats.left_out.limit_count == 0
