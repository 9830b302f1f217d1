"""Shortening the newest group to a token limit (invariants 7 and 8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server.engine import tokens
from memoryd_server.engine.content import (
    Data,
    Part,
    Reasoning,
    Refusal,
    SimplePart,
    Text,
    ToolCall,
    ToolResult,
    decode_parts,
    encode_parts,
)
from memoryd_server.engine.shortening import marker, shorten
from memoryd_server.engine.tokens import CL100K_BASE, ESTIMATE, O200K_BASE, Count
from memoryd_server.stores.records import Role, StoredMessage, Usability, WindowMode, WindowOptions
from tests.engine import reference
from tests.engine.messages import assistant, calls, results, spoken, system, user
from tests.engine.providers import assert_acceptable
from tests.engine.sessions import conversation

LEAST_KEPT: Final = 8
"""Tokens that a cut text keeps beside its marker, or it is not cut at all."""


def stored(seq: int, role: Role, *parts: Part, count: Count) -> StoredMessage:
    """A message as a load brings it."""
    price = reference.price_in_tokens(count, None, parts)
    content = encode_parts(parts)
    return StoredMessage(
        seq, 1, seq - 1, Usability.USABLE, role, price, len(content), 0, (), 0,
        id=f"message-{seq}", name=None, content=content, run_id="", metadata="", extra="", created=0,
    )  # fmt: skip


def texts_of(parts: Sequence[Part]) -> Iterator[str]:
    """What may be cut: plain texts, those in tool results included."""
    for part in parts:
        if isinstance(part, Text):
            yield part.text
        elif isinstance(part, ToolResult):
            yield from texts_of(part.parts)


def _without_texts(parts: Sequence[Part]) -> list[Part]:
    def blank(part: SimplePart) -> SimplePart:
        return Text("") if isinstance(part, Text) else part

    return [
        ToolResult(part.call_id, part.name, part.is_error, tuple(map(blank, part.parts)))
        if isinstance(part, ToolResult)
        else Text("")
        if isinstance(part, Text)
        else part
        for part in parts
    ]


_words = st.sampled_from(
    ["word ", "12345 ", "日本語", "🧑‍🚀", "é", "\n\n", "    ", "<|endoftext|>", "\0", "Ünïcödé ", "x" * 40, "🇯🇵"]
)
_long_texts = st.lists(_words, max_size=60).map("".join)
_contents = st.lists(
    st.one_of(
        _long_texts.map(Text),
        _long_texts.map(Text),
        st.builds(Reasoning, _long_texts, st.just("signature")),
        st.just(Refusal("I cannot do that " * 4)),
        st.just(ToolCall("call-1", "search", '{"q": "' + "long " * 10 + '"}')),
        st.builds(
            ToolResult,
            st.just("call-1"),
            parts=st.lists(st.one_of(_long_texts.map(Text), st.just(Data('{"rows": [1, 2, 3]}'))), max_size=2).map(
                tuple
            ),
        ),
    ),
    max_size=3,
)


@given(
    st.sampled_from([ESTIMATE, O200K_BASE, CL100K_BASE]),
    st.lists(_contents, min_size=1, max_size=4),
    st.one_of(st.integers(0, 120), st.integers(0, 600)),
)
@settings(max_examples=250)
def test_a_shortened_group_fits_and_only_long_plain_texts_were_cut(
    tokenizer: str, contents: list[list[Part]], budget: int
) -> None:
    """(invariants 7 and 8)"""
    count = tokens.counter(tokenizer)
    group = [stored(seq, Role.ASSISTANT, *parts, count=count) for seq, parts in enumerate(contents, 1)]
    shortened = shorten(group, budget, count)
    prices = [count(text) for parts in contents for text in texts_of(parts)]
    fixed = sum(message.tokens for message in group) - sum(prices)
    marks = [count(marker(message.seq)) + LEAST_KEPT for message in group]
    if shortened is None:
        assert fixed + sum(min(price, *marks) for price in prices) > budget
        return
    assert sum(message.tokens for message in shortened) <= budget
    cut: list[int] = []
    kept: list[int] = []
    for old, new in zip(group, shortened, strict=True):
        parts = decode_parts(new.content or "")
        assert new.tokens == reference.price_in_tokens(count, None, parts)
        assert _without_texts(parts) == _without_texts(decode_parts(old.content or ""))
        assert (new.seq, new.id, new.role, new.head, new.position) == (
            old.seq,
            old.id,
            old.role,
            old.head,
            old.position,
        )
        for before, after in zip(texts_of(decode_parts(old.content or "")), texts_of(parts), strict=True):
            after.encode()  # Whole characters only.
            if before == after:
                kept.append(count(before))
                continue
            beginning, end = after.split(marker(new.seq))
            assert before.startswith(beginning)
            assert before.endswith(end)
            assert len(beginning) + len(end) < len(before)
            assert abs(len(beginning) - len(end)) <= 1
            cut.append(count(before))
            assert count(after) < count(before)
    assert not cut or max(kept, default=0) < min(cut), "the longest texts go first"


def test_the_longest_texts_are_cut_first() -> None:
    """What is short stays as it is."""
    count = tokens.estimate
    group = [
        stored(1, Role.ASSISTANT, Text("short"), count=count),
        stored(2, Role.TOOL, ToolResult("a", parts=(Text("w" * 4_000),)), count=count),
        stored(3, Role.TOOL, ToolResult("b", parts=(Text("w" * 400),)), count=count),
    ]
    shortened = shorten(group, 400, count)
    assert shortened is not None
    assert shortened[0] is group[0]
    assert shortened[2] is group[2]
    assert sum(message.tokens for message in shortened) == pytest.approx(400, abs=2)
    (text,) = texts_of(decode_parts(shortened[1].content or ""))
    assert "seq 2" in text
    assert text.startswith("w" * 400)
    assert text.endswith("w" * 400)


@pytest.mark.parametrize("tokenizer", [ESTIMATE, O200K_BASE, CL100K_BASE])
def test_a_cut_text_uses_the_room_that_it_has(tokenizer: str) -> None:
    """Not much more is cut than must be."""
    count = tokens.counter(tokenizer)
    group = [stored(1, Role.USER, Text("The quick brown fox jumps over the lazy dog. " * 200), count=count)]
    for budget in (60, 100, 500, 1_500):
        shortened = shorten(group, budget, count)
        assert shortened is not None
        assert budget - 3 <= shortened[0].tokens <= budget


def test_nothing_is_cut_where_it_could_not_help() -> None:
    """Calls, reasoning, refusals and data are never cut: the group counts as one that cannot fit (invariant 7)."""
    count = tokens.estimate
    for part in (
        ToolCall("a", "write", "x" * 4_000),
        Reasoning("x" * 4_000, "signature"),
        Refusal("x" * 4_000),
        ToolResult("a", parts=(Data("1" * 4_000),)),
    ):
        group = [stored(1, Role.ASSISTANT, part, Text("y" * 4_000), count=count)]
        assert shorten(group, 900, count) is None


def test_a_text_that_would_be_little_more_than_its_marker_is_not_cut() -> None:
    count = tokens.estimate
    group = [stored(1, Role.USER, Text("y" * 4_000), count=count)]
    least = 4 + count(marker(1)) + LEAST_KEPT
    assert shorten(group, least - 1, count) is None
    assert shorten(group, least, count) is not None


def test_a_group_that_fits_is_left_as_it_is() -> None:
    count = tokens.estimate
    group = [stored(1, Role.USER, Text("y" * 400), count=count)]
    assert shorten(group, group[0].tokens, count) == group


def test_a_huge_text_is_cut_in_a_moment() -> None:
    """1 MiB without a break, which slow tokenizers hang on."""
    count = tokens.counter(O200K_BASE)
    group = [stored(1, Role.USER, Text("a" * 1_048_576), count=count)]
    shortened = shorten(group, 1_000, count)
    assert shortened is not None
    assert shortened[0].tokens <= 1_000
    assert shortened[0].size < group[0].size


async def test_a_window_tells_which_seqs_are_shortened_and_the_store_keeps_the_whole() -> None:
    """(invariant 7)"""
    session = await conversation(
        system("rules"), user("look"), calls("a", "b"), results("b"), results("a", text="long " * 900)
    )
    messages, stats = await session.window(WindowOptions(WindowMode.TOKENS, 200))
    assert_acceptable(messages)
    assert [message.seq for message in messages] == [1, 3, 5, 4]
    assert list(stats.shortened) == [5]
    assert not stats.over_limit
    assert stats.window_tokens == sum(message.tokens for message in messages) <= 200
    assert "read message seq 5 in full" in (messages[2].content or "")
    assert (await session.stored())[4].tokens > 900


async def test_what_cannot_be_shortened_to_fit_is_shown_whole() -> None:
    """(invariant 7)"""
    session = await conversation(user("look"), spoken(Role.ASSISTANT, ToolCall("a", "t", "x" * 4_000)), results("a"))
    messages, stats = await session.window(WindowOptions(WindowMode.TOKENS, 200))
    assert [message.seq for message in messages] == [2, 3]
    assert stats.over_limit
    assert list(stats.shortened) == []


async def test_pins_take_their_room_before_the_group_is_shortened() -> None:
    """Order of claims: pins, then the newest group (invariant 7)."""
    session = await conversation(system("rule " * 60), user("long " * 900))
    messages, stats = await session.window(WindowOptions(WindowMode.TOKENS, 200))
    assert [message.seq for message in messages] == [1, 2]
    assert stats.pins == 1
    assert stats.window_tokens <= 200
    assert stats.used_percent <= 100


async def test_only_the_newest_group_is_shortened() -> None:
    """An older one that does not fit ends the window instead (invariant 7)."""
    session = await conversation(user("long " * 900), assistant("short"))
    messages, stats = await session.window(WindowOptions(WindowMode.TOKENS, 200))
    assert [message.seq for message in messages] == [2]
    assert list(stats.shortened) == []
