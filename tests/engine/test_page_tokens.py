"""Page tokens: bound to store and query, and anything else is PAGE_TOKEN_INVALID (design section 3)."""

from __future__ import annotations

import base64
import secrets

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server.engine import page_tokens
from memoryd_server.engine.errors import Reason, RequestError

SECRET = b"\x01" * 32
QUERY = ("ListMessages", "default", "agent", "session", 1, [1, 2], None)


class Position(msgspec.Struct, frozen=True, array_like=True):
    """Where a page begins."""

    incarnation: str
    seq: int


POSITION = Position("0123456789abcdef" * 2, 42)


def _is_refused(token: str, query: tuple[object, ...] = QUERY, secret: bytes = SECRET) -> bool:
    try:
        page_tokens.read(secret, query, token, Position)
    except RequestError as error:
        return error.reason == Reason.PAGE_TOKEN_INVALID and error.metadata == {"field": "page_token"}
    return False


@given(st.binary(min_size=32, max_size=32), st.text(), st.integers(0, 2**63 - 1), st.lists(st.text(), max_size=4))
@settings(max_examples=200)
def test_a_token_brings_back_its_position(secret: bytes, incarnation: str, seq: int, names: list[str]) -> None:
    position, query = Position(incarnation, seq), ("List", *names)
    token = page_tokens.make(secret, query, position)
    if len(token) <= 4_096:
        assert page_tokens.read(secret, query, token, Position) == position


def test_a_token_is_plain_text_for_urls_and_logs() -> None:
    token = page_tokens.make(SECRET, QUERY, POSITION)
    assert token.isascii()
    assert set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_a_token_damaged_at_any_place_is_refused() -> None:
    token = page_tokens.make(SECRET, QUERY, POSITION)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/= \n\0é"
    for place in range(len(token)):
        for other in alphabet:
            if other != token[place]:
                assert _is_refused(token[:place] + other + token[place + 1 :]), (place, other)
        assert _is_refused(token[:place])
        assert _is_refused(token[:place] + token[place + 1 :])
        assert _is_refused(token + token[: place + 1])


@pytest.mark.parametrize("length", range(10))
def test_a_token_has_one_spelling(length: int) -> None:
    """Whatever the length of what is in it."""
    token = page_tokens.make(SECRET, QUERY, Position("x" * length, 1))
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/="
    assert not _is_refused(token)
    assert all(_is_refused(token[:-1] + other) for other in alphabet if other != token[-1])
    assert all(_is_refused(token + padding) for padding in ("=", "==", "===", "A"))
    assert _is_refused(token.replace("-", "+").replace("_", "/")) or not {"-", "_"} & set(token)


@pytest.mark.parametrize(
    "query",
    [
        ("ListSessions", *QUERY[1:]),
        ("ListMessages", "other tenant", *QUERY[2:]),
        ("ListMessages", "default", "agent", "other session", *QUERY[4:]),
        ("ListMessages", "default", "agentsession", "", *QUERY[4:]),
        (*QUERY[:-1], 0),
        QUERY[:-1],
        (),
    ],
)
def test_a_token_of_another_query_is_refused(query: tuple[object, ...]) -> None:
    """(invariant 5)"""
    assert _is_refused(page_tokens.make(SECRET, query, POSITION))


def test_a_token_of_another_store_is_refused() -> None:
    assert _is_refused(page_tokens.make(b"\x02" * 32, QUERY, POSITION))


@given(
    st.one_of(
        st.text(),
        st.text(st.characters(categories=["Cs", "L"])),
        st.binary().map(lambda raw: base64.urlsafe_b64encode(raw).decode()),
        st.from_regex(r"[A-Za-z0-9_-]{20,80}={0,2}", fullmatch=True),
    )
)
@settings(max_examples=400)
def test_whatever_is_sent_as_token_is_refused_as_such(token: str) -> None:
    """Never another error (invariant 12)."""
    assert _is_refused(token)


def test_an_endless_token_is_refused() -> None:
    assert _is_refused("A" * 100_000)
    assert _is_refused(page_tokens.make(SECRET, QUERY, Position("x" * 10_000, 1)))


def test_a_refusal_says_what_to_do() -> None:
    with pytest.raises(RequestError, match="start again without a token"):
        page_tokens.read(SECRET, QUERY, secrets.token_urlsafe(40), Position)
