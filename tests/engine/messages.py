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


_REUSED_IDS: Final = ("", "a", "b")
"""So few that calls are re-armed all the time."""

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

_instructions: Final = st.builds(spoken, st.sampled_from([Role.SYSTEM, Role.DEVELOPER]), texts.map(Text))

_plain: Final = st.one_of(
    st.builds(spoken, st.sampled_from([Role.USER, Role.ASSISTANT]), texts.map(Text)),
    _instructions,
    st.just(spoken(Role.ASSISTANT, absent=True)),
    st.just(spoken(Role.USER)),
)


@st.composite
def _calling(draw: st.DrawFn, call_ids: list[str]) -> IncomingMessage:
    before: list[Part] = draw(st.sampled_from([[], [Text("let me see")], [Reasoning("thinking", "signature")]]))
    names, arguments = st.sampled_from(["look_up", "計算"]), st.sampled_from(["{}", "{bad"])
    return spoken(Role.ASSISTANT, *before, *(ToolCall(call_id, draw(names), draw(arguments)) for call_id in call_ids))


@st.composite
def _answering(draw: st.DrawFn, call_ids: list[str]) -> IncomingMessage:
    parts: list[Part] = []
    for call_id in call_ids:
        inner: tuple[SimplePart, ...] = tuple(draw(st.lists(_simple_parts, max_size=2)))
        parts.append(ToolResult(call_id, "", draw(st.booleans()), inner))
    if draw(st.integers(0, 5)) == 0:
        parts.insert(draw(st.integers(0, len(parts))), Text("and a note"))
    return spoken(draw(st.sampled_from([Role.TOOL, Role.TOOL, Role.USER])), *parts)


_KINDS: Final = ("plain", "calls", "calls", "answers", "answers", "answers", "answers", "stray")


@st.composite
def histories(draw: st.DrawFn, most: int = 14) -> list[IncomingMessage]:
    """Random histories: parallel calls, reused and empty ids, results out of order and late, several in one message,
    notes between call and result, interrupted calls, orphans, instructions at the beginning and in the middle."""
    history = draw(st.lists(_instructions, max_size=2))
    unanswered: list[str] = []
    for number in range(draw(st.integers(most // 2, most - len(history)))):
        kind = draw(st.sampled_from(_KINDS))
        if kind == "calls":
            ids = st.one_of(st.sampled_from(_REUSED_IDS), st.sampled_from([f"call-{number}-0", f"call-{number}-1"]))
            call_ids = draw(st.lists(ids, min_size=1, max_size=3))
            unanswered += call_ids
            history.append(draw(_calling(call_ids)))
        elif kind == "answers" and unanswered:
            answered = draw(st.lists(st.sampled_from(unanswered), min_size=1, max_size=3))
            unanswered = [call_id for call_id in unanswered if call_id not in answered]
            history.append(draw(_answering(answered)))
        elif kind == "stray":
            history.append(draw(_answering([draw(st.sampled_from([*_REUSED_IDS, "lost"]))])))
        else:
            history.append(draw(_plain))
    return history


@st.composite
def batches(draw: st.DrawFn, messages: list[IncomingMessage]) -> list[list[IncomingMessage]]:
    """The same messages, cut into appends at random places."""
    cuts = draw(st.sets(st.integers(1, max(1, len(messages) - 1)), max_size=6))
    edges = [0, *sorted(cut for cut in cuts if cut < len(messages)), len(messages)]
    return [messages[low:high] for low, high in pairwise(edges) if low < high]
