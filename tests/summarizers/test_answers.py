from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.engine.tokens import estimate
from memoryd_server.summarizers import sentences
from memoryd_server.summarizers.answers import ELLIPSIS, accept, shorten
from memoryd_server.summarizers.base import FailureReason, SummarizerError


@pytest.mark.parametrize(
    "empty",
    ["", " ", "\n\t\r\n", "\u200b", "\u3000\u00a0", "\ufeff", "\u2066\u2069", "<think>Hm.</think>\n", "<think>Hm"],
)
def test_an_empty_or_white_answer_is_none(empty: str) -> None:
    """(invariant 10)"""
    with pytest.raises(SummarizerError) as raised:
        accept(empty, 100, estimate)
    assert raised.value.reason is FailureReason.EMPTY_ANSWER
    assert raised.value.is_retryable


@pytest.mark.parametrize(
    "text",
    ["Error: the import failed with HTTP 500, and Ada will mend it.", "None", "…", "x", "<think of it> as a tag"],
)
def test_any_other_text_is_an_answer(text: str) -> None:
    """(invariant 10)"""
    assert accept(text, 100, estimate) == text


def test_white_space_and_thoughts_around_an_answer_go() -> None:
    assert accept("\n<think>They want\nAtlas.</think>\n\n The project is Atlas. \n", 100, estimate) == (
        "The project is Atlas."
    )


def test_the_line_that_marks_summaries_is_none_of_the_answer() -> None:
    """Models that have seen it in a window begin with it."""
    assert accept("[CONVERSATION SUMMARY]\nThe project is Atlas.", 100, estimate) == "The project is Atlas."
    with pytest.raises(SummarizerError):
        accept(" [CONVERSATION SUMMARY] \n", 100, estimate)


def test_a_longer_answer_is_shortened_at_a_sentence() -> None:
    """(design section 6)"""
    text = "It is called Atlas. It ships on May 3.5 at 9 a.m. sharp. The team is Ada, Grace and Linus."
    assert accept(text, estimate(text) - 1, estimate) == "It is called Atlas. It ships on May 3.5 at 9 a.m. sharp."
    assert accept("项目叫阿特拉斯。星期五上线。团队有三个人。", 14, estimate) == "项目叫阿特拉斯。星期五上线。"
    assert accept("- Atlas\n- Friday\n- Ada, Grace and Linus", 5, estimate) == "- Atlas\n- Friday"


def test_what_the_model_left_unfinished_goes() -> None:
    assert accept("It is called Atlas. It ships on Fri", 100, estimate, is_cut=True) == "It is called Atlas."
    assert accept("It is called Atlas.", 100, estimate, is_cut=True) == "It is called Atlas."
    assert accept("It is called Atl", 100, estimate, is_cut=True) == "It is called Atl", "else nothing were left"


def test_a_sentence_that_is_too_long_alone_is_cut_with_a_mark() -> None:
    short = accept("word " * 1_000, 50, estimate)
    assert short.endswith(ELLIPSIS)
    assert 40 <= estimate(short) <= 50


@given(st.text(min_size=1), st.integers(1, 30))
def test_shortening_keeps_a_beginning_within_the_limit(text: str, limit: int) -> None:
    short = shorten(text, limit, estimate)
    assert estimate(short) <= limit
    assert text.startswith(short.removesuffix(ELLIPSIS))


@given(st.text(alphabet="ab. !?\"“”'(1\n\r\u2028。、🙂é"))
def test_sentences_joined_are_the_text(text: str) -> None:
    assert "".join(sentences.split(text)) == text


def test_sentences_end_where_those_of_any_language_do() -> None:
    assert sentences.split("项目叫阿特拉斯。星期五上线！") == ["项目叫阿特拉斯。", "星期五上线！"]
    assert sentences.split("नाम राम है। बजट 5000 है।") == ["नाम राम है। ", "बजट 5000 है।"]
    assert sentences.split("Am 3. Mai geht es los. Mr. Smith paid $1.50. No end") == [
        "Am 3. Mai geht es los. ",
        "Mr. Smith paid $1.50. ",
        "No end",
    ]


def test_splitting_is_linear_in_quotation_marks_that_never_close() -> None:
    """100 times as much would take a quadratic splitter 10,000 times as long: a minute."""
    text = "“a. " * 300_000
    assert "".join(sentences.split(text)) == text
