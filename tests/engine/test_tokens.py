"""Token counts (invariant 8)."""

from __future__ import annotations

import time
from typing import Final

import pytest
import quicktok
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server.engine import tokens
from memoryd_server.engine.content import (
    Data,
    Media,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from memoryd_server.engine.tokens import CL100K_BASE, ESTIMATE, MESSAGE_TOKENS, O200K_BASE, counter, message_tokens
from tests.engine import reference

KNOWN_COUNTS: Final = {
    "": (0, 0),
    " ": (1, 1),
    "hello world": (2, 2),
    "Hello, world!": (4, 4),
    "tiktoken is great!": (6, 6),
    "antidisestablishmentarianism": (6, 6),
    "2 + 2 = 4": (7, 7),
    "1234567": (3, 3),
    "お誕生日おめでとう": (8, 9),
    "日本語": (2, 4),
    "😀": (1, 2),
    "The quick brown fox jumps over the lazy dog.": (10, 10),
    "<|endoftext|>": (7, 7),
}
"""Texts with their counts in o200k_base and cl100k_base, as OpenAI's own tokenizer gives them."""


@pytest.mark.parametrize(("text", "counts"), KNOWN_COUNTS.items())
def test_known_texts_have_their_known_counts(text: str, counts: tuple[int, int]) -> None:
    """(invariant 8)"""
    assert (counter(O200K_BASE)(text), counter(CL100K_BASE)(text)) == counts


_fragments = st.sampled_from(
    [
        "<|endoftext|>",
        "<|im_start|>",
        "<|fim_prefix|>",
        "日本語",
        "🧑‍🚀",
        "\r\n",
        "   ",
        "\0",
        "def f(x):",
        "'ll",
        "1234",
        "ß",
    ]
)


@pytest.mark.parametrize("vocabulary", [O200K_BASE, CL100K_BASE])
@given(st.lists(st.one_of(st.text(max_size=30), _fragments), max_size=12).map("".join))
@settings(max_examples=200)
def test_a_count_is_the_length_of_the_encoding(vocabulary: str, text: str) -> None:
    """Markers of the vocabulary are plain text (invariant 8)."""
    assert counter(vocabulary)(text) == len(quicktok.get_encoding(vocabulary).encode_ordinary(text))


@pytest.mark.parametrize("vocabulary", [O200K_BASE, CL100K_BASE])
@pytest.mark.parametrize("marker", ["<|endoftext|>", "<|endofprompt|>", "<|fim_middle|>"])
def test_markers_of_the_vocabulary_are_plain_text(vocabulary: str, marker: str) -> None:
    """(invariant 8)"""
    count = counter(vocabulary)
    assert count(marker) > 1
    assert count(f"before {marker} after") > count("before  after") + 1


@pytest.mark.parametrize("vocabulary", tokens.TOKENIZERS)
@pytest.mark.parametrize("unit", ["a", "a ", " ", "\n", "1", "日", "🧑‍🚀", "ab", "=", "\0"])
def test_a_mebibyte_of_anything_is_counted_in_a_moment(vocabulary: str, unit: str) -> None:
    """Slow tokenizers need minutes for a text without breaks."""
    text = unit * (1_048_576 // len(unit.encode()))
    start = time.monotonic()
    assert counter(vocabulary)(text) > 0
    assert time.monotonic() - start < 10


_text = st.text(max_size=20)
_simple_parts = st.one_of(
    _text.map(Text), _text.map(Refusal), _text.map(Data), st.builds(Media, _text, st.none(), st.binary(max_size=9))
)
_parts: st.SearchStrategy[Part] = st.one_of(
    _simple_parts,
    st.builds(Reasoning, _text, _text),
    st.builds(ToolCall, _text, _text, _text),
    st.builds(ToolResult, _text, _text, st.booleans(), st.lists(_simple_parts, max_size=3).map(tuple)),
)


@given(st.sampled_from(tokens.TOKENIZERS), st.one_of(st.none(), _text), st.lists(_parts, max_size=5))
@settings(max_examples=200)
def test_counts_add_up_over_the_parts_of_a_message(vocabulary: str, name: str | None, parts: list[Part]) -> None:
    """And cover text, tool names, arguments and ids, and a fixed overhead a message (invariant 8)."""
    count = counter(vocabulary)
    whole = message_tokens(count, name, parts)
    each = [message_tokens(count, None, [part]) - MESSAGE_TOKENS for part in parts]
    assert whole == MESSAGE_TOKENS + (count(name) if name else 0) + sum(each)
    assert whole == reference.price_in_tokens(count, name, parts)


def test_binary_parts_have_a_bounded_price_each() -> None:
    """Whatever their size (invariant 8)."""
    small = message_tokens(tokens.estimate, None, [Media("image/png", data=b"x")])
    large = message_tokens(tokens.estimate, None, [Media("image/png", data=b"x" * 1_000_000)])
    assert small == large
    assert message_tokens(tokens.estimate, None, [Media(uri="a"), Media(uri="b")]) == 2 * (small - 4) + 4


def test_a_signature_has_no_price() -> None:
    """It is the provider's, and opaque (`Reasoning.signature`)."""
    assert message_tokens(tokens.estimate, None, [Reasoning("why", "s" * 4_000)]) == message_tokens(
        tokens.estimate, None, [Reasoning("why")]
    )


@given(st.text())
@settings(max_examples=200)
def test_the_estimate_is_a_token_for_four_ascii_characters_and_one_for_every_other(text: str) -> None:
    """Rounded up, as `Tokenizer` documents it."""
    ascii_characters = sum(ord(character) < 128 for character in text)
    assert counter(ESTIMATE)(text) == -(-ascii_characters // 4) + len(text) - ascii_characters


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("日本語", 3), ("abc日", 2), ("🧑‍🚀", 3)]
)
def test_estimates(text: str, expected: int) -> None:
    assert counter(ESTIMATE)(text) == expected


@pytest.mark.parametrize("name", ["", "O200K_BASE", "gpt-4o", "p50k_base"])
def test_other_vocabularies_are_unknown(name: str) -> None:
    with pytest.raises(KeyError):
        counter(name)
