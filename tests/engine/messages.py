"""Builders of the messages that engine tests append, and Hypothesis strategies of whole histories."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from hypothesis import strategies as st

from memoryd_server.engine.content import Data, Media, Part, Reasoning, Refusal, SimplePart, Text, ToolCall, ToolResult
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.stores.records import Role, SessionKey

KEY: Final = SessionKey("default", "agent", "session")


def spoken(role: Role, *parts: Part, id: str = "", name: str | None = None, absent: bool = False) -> IncomingMessage:
    """A message as a caller sends it; `absent` leaves the content out instead of empty."""
    size = 64 + sum(len(repr(part)) for part in parts)
    return IncomingMessage(id, role, name, None if absent else parts, "", "", "", size)


def system(text: str, id: str = "") -> IncomingMessage:
    return spoken(Role.SYSTEM, Text(text), id=id)


def developer(text: str, id: str = "") -> IncomingMessage:
    return spoken(Role.DEVELOPER, Text(text), id=id)


def user(text: str, id: str = "") -> IncomingMessage:
    return spoken(Role.USER, Text(text), id=id)


def assistant(text: str, id: str = "") -> IncomingMessage:
    return spoken(Role.ASSISTANT, Text(text), id=id)


def calls(*call_ids: str, text: str = "") -> IncomingMessage:
    """An assistant message that makes calls."""
    parts: list[Part] = [Text(text)] if text else []
    parts += [ToolCall(call_id, f"tool_{index}", '{"n": 1}') for index, call_id in enumerate(call_ids)]
    return spoken(Role.ASSISTANT, *parts)


def results(*call_ids: str, text: str = "done") -> IncomingMessage:
    """A tool message that answers calls."""
    return spoken(Role.TOOL, *(ToolResult(call_id, "tool", parts=(Text(text),)) for call_id in call_ids))


def user_results(*call_ids: str, text: str = "") -> IncomingMessage:
    """A user message that carries results, as some providers send them, perhaps with words of its own behind."""
    parts: list[Part] = [ToolResult(call_id, parts=(Text("done"),)) for call_id in call_ids]
    return spoken(Role.USER, *parts, *([Text(text)] if text else []))


_CALL_IDS: Final = ("", "a", "b", "c")
"""So few that ids are reused all the time."""

texts: Final = st.one_of(
    st.sampled_from(["", "yes", "a plain sentence of some length", "日本語のテキスト", "🧑‍🚀 in orbit", "x" * 90]),
    st.integers(1, 60).map(lambda words: "word " * words),
)

_simple_parts: Final = st.one_of(
    texts.map(Text),
    st.just(Refusal("no")),
    st.just(Data('{"n": 12345678901234567890}')),
    st.just(Media("image/png", uri="https://example.com/a.png")),
)


def _call_ids(most: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(_CALL_IDS), min_size=1, max_size=most)


@st.composite
def _calling(draw: st.DrawFn) -> IncomingMessage:
    before: list[Part] = draw(st.sampled_from([[], [Text("let me see")], [Reasoning("thinking", "signature")]]))
    names, arguments = st.sampled_from(["look_up", "計算"]), st.sampled_from(["{}", "{bad"])
    made = [ToolCall(call_id, draw(names), draw(arguments)) for call_id in draw(_call_ids(3))]
    return spoken(Role.ASSISTANT, *before, *made)


@st.composite
def _answering(draw: st.DrawFn) -> IncomingMessage:
    role = draw(st.sampled_from([Role.TOOL, Role.TOOL, Role.TOOL, Role.USER]))
    parts: list[Part] = []
    for call_id in draw(_call_ids(3)):
        inner: tuple[SimplePart, ...] = tuple(draw(st.lists(_simple_parts, max_size=2)))
        parts.append(ToolResult(call_id, "", draw(st.booleans()), inner))
    if draw(st.integers(0, 3)) == 0:
        parts.insert(draw(st.integers(0, len(parts))), Text("and a note"))
    return spoken(role, *parts)


plain_messages: Final = st.one_of(
    st.builds(spoken, st.sampled_from([Role.USER, Role.ASSISTANT]), texts.map(Text)),
    st.builds(spoken, st.sampled_from([Role.SYSTEM, Role.DEVELOPER]), texts.map(Text)),
    st.just(spoken(Role.ASSISTANT, absent=True)),
    st.just(spoken(Role.USER)),
)

any_messages: Final = st.one_of(_calling(), _answering(), _answering(), plain_messages)

openings: Final = st.lists(
    st.builds(spoken, st.sampled_from([Role.SYSTEM, Role.DEVELOPER]), texts.map(Text)), max_size=3
)


def histories(most: int = 14) -> st.SearchStrategy[list[IncomingMessage]]:
    """Random histories: parallel calls, reused and empty ids, results out of order, several in one message, orphans,
    notes between call and result, late completions, instructions at the beginning and in the middle."""
    return st.builds(lambda opening, rest: opening + rest, openings, st.lists(any_messages, max_size=most))


@st.composite
def batches(draw: st.DrawFn, messages: list[IncomingMessage]) -> list[list[IncomingMessage]]:
    """The same messages, cut into appends at random places."""
    cuts = draw(st.sets(st.integers(1, max(1, len(messages) - 1)), max_size=6))
    edges = [0, *sorted(cut for cut in cuts if cut < len(messages)), len(messages)]
    return [messages[low:high] for low, high in pairwise(edges) if low < high]
