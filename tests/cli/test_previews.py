"""Messages in one line."""

from __future__ import annotations

from datetime import UTC, datetime

from memoryd import (
    Data,
    Media,
    Message,
    Reasoning,
    Redaction,
    Refusal,
    Role,
    Text,
    ToolResult,
    assistant,
    call,
    tool,
    user,
)
from memoryd_server.cli.groups import Pairing
from memoryd_server.cli.previews import preview, whole


def test_every_kind_of_part_is_shown_as_what_it_is() -> None:
    message = assistant(
        [
            Reasoning("hmm", "signature"),
            Text("two\nlines"),
            Refusal("not this"),
            Media("image/png", data=b"x" * 2_000),
            Media(uri="https://example.com/a"),
            Data('{"a":1}'),
            call("look", '{"at":"left"}'),
        ]
    )
    assert preview(message).plain == (
        "(thinking) hmm  two lines  refused: not this  [image/png, 2.0 kB]  [media, https://example.com/a]  "
        '{"a":1}  → look({"at":"left"})'
    )
    assert "two\nlines\nrefused" in whole(message).plain


def test_results_name_their_tool_and_say_when_it_failed() -> None:
    results = user([ToolResult("1", "", False, (Text("ok"),)), ToolResult("2", "own", True, ()), Text("and now?")])
    assert preview(results, ["look", "ignored"]).plain == "← look: ok  ← failed: own: (empty)  and now?"


def test_absent_empty_and_redacted_content_differ() -> None:
    redacted = Message(role=Role.USER, content=(), redaction=Redaction(datetime.now(UTC), "asked\x1b for"))
    assert preview(assistant(None)).plain == "(no content)"
    assert preview(assistant([])).plain == "(empty)"
    assert preview(redacted).plain == "(redacted: asked␛ for)"


def test_a_name_stands_in_front() -> None:
    assert preview(user("Hi", name="a\x07da")).plain == "a␇da: Hi"


def test_messages_of_many_parts_are_cut() -> None:
    assert preview(user([Text("x")] * 15)).plain.endswith("x  … 3 more parts")


def numbered(*messages: Message) -> list[Message]:
    from dataclasses import replace

    return [replace(message, seq=seq) for seq, message in enumerate(messages, 1)]


def test_results_are_paired_with_calls_by_position() -> None:
    """A call arms its id, the next result with that id consumes it (invariant 6)."""
    pairing = Pairing()
    placed = [
        pairing.place(message)
        for message in numbered(
            assistant(tool_calls=[call("first", id="a"), call("second", id="a"), call("third", id="b")]),
            tool("b", "3"),
            user([ToolResult("a"), ToolResult("a"), ToolResult("a")]),
            assistant(tool_calls=[call("fourth", id="a")]),
            assistant(tool_calls=[call("fifth", id="a")]),
            tool("a", "5"),
            tool("a", "nobody asked"),
        )
    ]
    assert [(place.head, place.tools) for place in placed] == [
        (1, ()),
        (1, ("third",)),
        (1, ("first", "second", "")),
        (4, ()),
        (5, ()),
        (5, ("fifth",)),
        (None, ("",)),
    ]
    assert pairing.unanswered() == {}
