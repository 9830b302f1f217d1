"""The prefix digest: of windows with equal digests, the longer begins with the shorter's bytes (design section 3)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server.engine.errors import RequestError
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.windows import WindowStats
from memoryd_server.stores.records import OpenCalls, Oversize, StoredMessage, WindowMode, WindowOptions
from tests.engine.messages import assistant, calls, developer, histories, results, system, user
from tests.engine.sessions import Conversation, conversation
from tests.engine.test_windows import FLAGS, HARD_CASES

OnWire = tuple[object, ...]


def _on_wire(messages: Sequence[StoredMessage]) -> list[OnWire]:
    """All that a caller gets of the messages."""
    return [
        (m.seq, m.id, m.role, m.name, m.content, m.run_id, m.metadata, m.extra, m.created, m.tokens) for m in messages
    ]


@dataclass
class _Seen:
    """The longest window of each digest so far."""

    longest: dict[bytes, list[OnWire]] = field(default_factory=dict)

    def add(self, messages: Sequence[StoredMessage], stats: WindowStats) -> None:
        window = _on_wire(messages)
        known = self.longest.get(stats.prefix_digest, [])
        shorter, longer = sorted((window, known), key=len)
        assert longer[: len(shorter)] == shorter, f"equal digests, but {longer} does not begin with {shorter}"
        self.longest[stats.prefix_digest] = longer


async def _load_all(session: Conversation, seen: _Seen, limits: Sequence[WindowOptions]) -> None:
    for limit, (pin, front, open_calls) in itertools.product(limits, FLAGS):
        options = WindowOptions(limit.mode, limit.limit, pin, front, open_calls, limit.oversize)
        try:
            messages, stats = await session.window(options)
        except RequestError:
            continue
        seen.add(messages, stats)


_limits = st.one_of(
    st.builds(WindowOptions, st.just(WindowMode.MESSAGES), st.integers(1, 16)),
    st.builds(
        WindowOptions,
        st.just(WindowMode.TOKENS),
        st.one_of(st.integers(1, 100), st.integers(1, 800)),
        oversize=st.sampled_from(Oversize),
    ),
)


@given(histories(14), st.lists(_limits, min_size=3, max_size=5))
@settings(max_examples=80)
async def test_equal_digests_mean_that_the_longer_window_begins_with_the_shorter(
    sent: list[IncomingMessage], limits: Sequence[WindowOptions]
) -> None:
    """Of one growing history, at any two moments, under any two limits and options."""
    session, seen = Conversation(), _Seen()
    for message in sent:
        await session.append(message)
        await _load_all(session, seen, limits)
    await session.clear()
    for message in sent[:4]:
        await session.append(message)
        await _load_all(session, seen, limits)


async def test_equal_digests_in_the_hard_cases() -> None:
    """As above, over every limit of messages and many of tokens."""
    session, seen = Conversation(), _Seen()
    limits = [WindowOptions(WindowMode.MESSAGES, limit) for limit in (1, 2, 3, 5, 8, 13, 26)]
    limits += [WindowOptions(WindowMode.TOKENS, limit, oversize=Oversize.SHORTEN) for limit in (40, 90, 200, 400)]
    for message in HARD_CASES:
        await session.append(message)
        await _load_all(session, seen, limits)


@given(histories(14), st.integers(1, 16), st.booleans())
@settings(max_examples=120)
async def test_the_digest_stays_while_an_append_only_lengthens_the_window(
    sent: list[IncomingMessage], limit: int, pin: bool
) -> None:
    """Otherwise it would tell nothing: a window that begins with the one before keeps its digest."""
    session = Conversation()
    options = WindowOptions(WindowMode.MESSAGES, limit, pin, start_with_user=False, open_calls=OpenCalls.OMIT)
    before: tuple[list[OnWire], WindowStats] | None = None
    for message in sent:
        await session.append(message)
        messages, stats = await session.window(options)
        window = _on_wire(messages)
        if before is not None and before[1].first_seq and before[1].pins == stats.pins:
            begins_alike = window[: len(before[0])] == before[0]
            assert (stats.prefix_digest == before[1].prefix_digest) == begins_alike
        before = window, stats


@pytest.mark.parametrize("open_calls", OpenCalls)
@pytest.mark.parametrize("mode", WindowMode)
async def test_plain_turns_and_finished_tool_calls_keep_the_digest(mode: WindowMode, open_calls: OpenCalls) -> None:
    """What an agent's prompt cache lives from."""
    session = await conversation(system("rules"), user("go"))
    options = WindowOptions(mode, 10_000, open_calls=open_calls)
    _, stats = await session.window(options)
    turns = [[assistant("on it")], [calls("a", "b"), results("b"), results("a")], [assistant("done"), user("thanks")]]
    for turn in turns:
        await session.append(*turn)
        assert (await session.window(options))[1].prefix_digest == stats.prefix_digest


async def _digest(session: Conversation, options: WindowOptions = WindowOptions()) -> bytes:
    return (await session.window(options))[1].prefix_digest


async def test_a_group_that_is_completed_behind_a_note_changes_the_digest_once() -> None:
    session = await conversation(user("go"), calls("a"), user("a note"))
    before = await _digest(session)
    await session.append(results("a"))
    after = await _digest(session)
    assert after != before
    await session.append(assistant("done"))
    assert await _digest(session) == after


async def test_a_window_whose_start_moves_has_another_digest() -> None:
    session = await conversation(user("1"), assistant("2"), user("3"))
    options = WindowOptions(limit=3)
    before = await _digest(session, options)
    await session.append(assistant("4"))
    assert await _digest(session, options) != before


async def test_a_clear_changes_the_digest() -> None:
    session = await conversation(user("1"))
    before = await _digest(session)
    await session.clear()
    assert await _digest(session) != before


async def test_pins_shape_the_digest() -> None:
    session = await conversation(system("1"), developer("2"), user("3"), user("4"))
    assert await _digest(session, WindowOptions(limit=4)) == await _digest(session, WindowOptions(limit=5))
    assert await _digest(session, WindowOptions(limit=3)) != await _digest(session, WindowOptions(limit=4))


async def test_two_sessions_never_share_a_digest() -> None:
    """A digest is of one life of one session."""
    assert await _digest(await conversation(user("1"))) != await _digest(await conversation(user("1")))
