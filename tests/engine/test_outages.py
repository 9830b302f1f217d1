"""What stores tell callers, as people read it who made no call."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import memoryd_server.stores
from memoryd_server.engine.outages import without_repetition

STORES = Path(memoryd_server.stores.__file__).parent


def texts_of_stores() -> Iterator[str]:
    """Every text in the source of the stores that tells to repeat a call."""
    for module in sorted(STORES.rglob("*.py")):
        parts: set[ast.AST] = set()
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts.update(node.values)  # Walked later.
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "5" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
                text = node.value
            else:
                continue
            if "epeat the call" in text:
                yield text


@pytest.mark.parametrize("text", [*dict.fromkeys(texts_of_stores())])
def test_no_store_asks_them_to_repeat_a_call(text: str) -> None:
    left = without_repetition(text)
    assert "epeat the call" not in left
    assert left == "" or left[0].isupper() or left[0] == text[0]
    assert ".." not in left
    assert "  " not in left
    assert not left.endswith((",", ";", ":"))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("It broke. Repeat the call.", "It broke."),
        ("It broke. Repeat the call; if it goes on, look at it.", "It broke. If it goes on, look at it."),
        ("It is full. Repeat the call; raise its limit.", "It is full. Raise its limit."),
        ("It is full. Repeat the call later, or raise its limit.", "It is full. Raise its limit."),
        ("It may have been demoted: repeat the call. Look at it.", "It may have been demoted. Look at it."),
        ("Its disk is full: make room, then repeat the call.", "Its disk is full: make room."),
        ("Repeat the call: it is not ready.", "It is not ready."),
    ],
)
def test_what_else_it_says_is_left(text: str, left: str) -> None:
    assert without_repetition(text) == left
