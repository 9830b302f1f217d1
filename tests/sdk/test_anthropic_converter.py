"""Messages of Anthropic's API go there and back without loss (design section 3: conversion loses nothing)."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd import (
    Data,
    Media,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    assistant,
    call,
    developer,
    from_anthropic,
    system,
    to_anthropic,
    tool,
    user,
)
from tests.sdk.anthropic_shapes import (
    CACHED,
    CONVERSATION,
    PNG,
    SHAPES,
    SYSTEMS,
    by_assistant,
    by_user,
    result,
    text,
    thinking,
    use,
)
from tests.sdk.conversions import exact, kept_twice, shortened, stored, window_of
from tests.sdk.json_strategies import anthropic_messages


@pytest.mark.parametrize("source", SHAPES.values(), ids=SHAPES)
def test_every_shape_comes_back_equal(source: dict[str, Any]) -> None:
    assert exact(to_anthropic(from_anthropic([source]))) == exact({"messages": [source]})


@pytest.mark.parametrize("source", SHAPES.values(), ids=SHAPES)
def test_every_shape_comes_back_equal_after_it_was_stored(source: dict[str, Any]) -> None:
    assert exact(to_anthropic(stored(from_anthropic([source])))) == exact({"messages": [source]})


@pytest.mark.parametrize("prompt", SYSTEMS.values(), ids=SYSTEMS)
def test_every_system_prompt_comes_back_equal(prompt: Any) -> None:
    conversation = {"system": prompt, "messages": [{"role": "user", "content": "Hello!"}]}
    assert exact(to_anthropic(stored(from_anthropic(**conversation)))) == exact(conversation)


@pytest.mark.parametrize("source", SHAPES.values(), ids=SHAPES)
def test_no_shape_is_kept_twice(source: dict[str, Any]) -> None:
    (message,) = from_anthropic([source])
    assert not kept_twice(message, source)


def test_all_shapes_together_come_back_in_order() -> None:
    conversation: dict[str, Any] = {"system": "Be brief.", "messages": list(SHAPES.values())}
    assert exact(to_anthropic(stored(from_anthropic(**conversation)))) == exact(conversation)


@settings(max_examples=300)
@given(st.lists(anthropic_messages(), max_size=4))
def test_any_conversation_comes_back_equal(sources: list[dict[str, Any]]) -> None:
    assert exact(to_anthropic(stored(from_anthropic(sources)))) == exact({"messages": sources})


def test_plain_conversations_need_hardly_any_extra() -> None:
    messages = stored(from_anthropic(**CONVERSATION))
    assert to_anthropic(messages) == CONVERSATION
    assert [message.extra for message in messages] == [
        "",
        "",
        "",
        '{"anthropic":{"parts":{"1":{"content":"list"}},"results":[0,1]}}',
        "",
    ]


def test_content_is_stored_once() -> None:
    """Long texts, inputs and media stand in the parts only, never in `extra` again."""
    long = "0123456789" * 100
    sources = [
        by_assistant(text(long, **CACHED), thinking(long), {"type": "redacted_thinking", "data": "x"}),
        by_assistant(use(input={"a": long}, **CACHED), use(input=[long])),
        by_user(
            result(content=[text(long, **CACHED)]), result(content=[{"type": "hologram", "a": long}], is_error=False)
        ),
        by_user(
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": long}, "title": None}
        ),
    ]
    for message in from_anthropic(sources):
        assert message.extra
        assert len(message.extra) < 250
    assert to_anthropic(from_anthropic(sources)) == {"messages": sources}


def test_shortened_texts_stay_shortened() -> None:
    """A window may have shortened texts; `extra` never brings the long ones back."""
    long = "0123456789" * 10
    sources = [
        by_user(text(long, **CACHED)),
        by_user(result(content=[text(long, **CACHED)], is_error=False), text(long)),
    ]
    assert to_anthropic(map(shortened, from_anthropic(sources))) == {
        "messages": [
            by_user(text("012[shortened]", **CACHED)),
            by_user(result(content=[text("012[shortened]", **CACHED)], is_error=False), text("012[shortened]")),
        ]
    }


def test_results_that_a_window_left_out_take_their_notes_along() -> None:
    """A window shows a USER message without the results whose calls are gone (invariant 6); the rest stays itself."""
    source = by_user(
        result("a", content="1", is_error=False, **CACHED),
        text("Go on.", **CACHED),
        result("b", content=[text("2")], is_error=False),
        {"type": "hologram"},
    )
    (message,) = from_anthropic([source])
    assert message.content is not None
    for left, expected in (
        ([0, 1, 2, 3], source),
        ([1, 3], by_user(text("Go on.", **CACHED), {"type": "hologram"})),
        ([1, 2, 3], by_user(text("Go on.", **CACHED), result("b", content="2"), {"type": "hologram"})),
    ):
        shown = replace(message, content=tuple(message.content[index] for index in left))
        assert to_anthropic([shown]) == {"messages": [expected]}


def test_what_is_read_into_which_fields() -> None:
    assert from_anthropic(
        [
            {"role": "user", "content": "Weather?"},
            by_assistant(thinking("hm", "s"), text("Let me see."), use("a", "weather", {"city": "Oslo", "n": 2**70})),
            by_user(result("a", content="12 C", is_error=True), text("Go on.")),
        ],
        system="Be brief.",
    ) == [
        system("Be brief."),
        user("Weather?"),
        assistant(
            [Reasoning("hm", "s"), Text("Let me see."), ToolCall("a", "weather", f'{{"city":"Oslo","n":{2**70}}}')],
        ),
        user([ToolResult("a", is_error=True, parts=(Text("12 C"),)), Text("Go on.")]),
    ]


def test_messages_made_by_hand() -> None:
    weather = call("weather", {"city": "Oslo"}, id="c")
    assert to_anthropic(
        [
            system("Be brief."),
            developer([Text("Be kind."), Data('{"b": 1}')]),
            user("Weather?", name="ada"),
            assistant("", tool_calls=[weather, call("rain", '{"a', id="d"), call("wind", "", id="e")]),
            tool("c", [Text("12 C"), Media("image/png", data=b"\x89PNG\r\n\x1a\n")]),
            tool("d", "no such tool", is_error=True, name="rain"),
            tool("e", []),
            user([Text("Go on."), Media("audio/wav", data=b"1234"), Media("application/pdf", uri="https://e.com/a")]),
            assistant([Reasoning("not signed"), Text("Warm.")]),
            assistant(""),
            assistant(None),
            system("Be brief again."),
        ]
    ) == {
        "system": [text("Be brief."), text("Be kind."), text('{"b": 1}')],
        "messages": [
            {"role": "user", "content": "Weather?"},
            by_assistant(
                use("c", "weather", {"city": "Oslo"}), use("d", "rain", {"arguments": '{"a'}), use("e", "wind")
            ),
            by_user(
                result(
                    "c",
                    content=[
                        text("12 C"),
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                    ],
                ),
                result("d", content="no such tool", is_error=True),
                result("e"),
            ),
            by_user(
                text("Go on."),
                text("[audio/wav, 4 bytes]"),
                {"type": "document", "source": {"type": "url", "url": "https://e.com/a"}},
            ),
            by_assistant(text("Warm.")),
            {"role": "user", "content": "Be brief again."},
        ],
    }


def test_a_synthesized_result_joins_the_results_beside_it() -> None:
    """All results of a turn have to be in the one user message that follows it, in front of what else it says."""
    (answers,) = from_anthropic([by_user(result("a", content="1", **CACHED), text("Go on."))])
    synthesized = Message(role=Role.TOOL, content=(ToolResult("b", parts=(Text("[interrupted]"),)),), id="", seq=0)
    joined = by_user(result("a", content="1", **CACHED), result("b", content="[interrupted]"), text("Go on."))
    assert to_anthropic([answers, synthesized]) == {"messages": [joined]}
    joined = by_user(result("b", content="[interrupted]"), result("a", content="1", **CACHED), text("Go on."))
    assert to_anthropic([synthesized, answers]) == {"messages": [joined]}


TURNS = {
    "a text between": [by_user(result("a", content="1"), text("One.")), by_user(result("b", content="2"))],
    "a text in front": [by_user(text("One."), result("a", content="1")), by_user(result("b", content="2"))],
    "a text behind": [by_user(result("a", content="1")), by_user(result("b", content="2"), text("One."))],
    "one message": [by_user(result("a", content="1"), text("One."), result("b", content="2"))],
}


@pytest.mark.parametrize("answers", TURNS.values(), ids=TURNS)
def test_a_window_has_the_results_of_a_turn_in_one_message(answers: list[dict[str, Any]]) -> None:
    """Anthropic refuses a turn whose results are not all in front of the next message. A list stays as it was read."""
    conversation = [by_assistant(use("a"), use("b")), *answers, {"role": "assistant", "content": "Done."}]
    valid = [
        conversation[0],
        by_user(result("a", content="1"), result("b", content="2"), text("One.")),
        conversation[-1],
    ]
    messages = stored(from_anthropic(conversation))
    assert to_anthropic(messages) == {"messages": conversation}
    assert to_anthropic(window_of(messages)) == {"messages": valid}
    made_by_hand = [replace(message, extra="") for message in messages]
    assert to_anthropic(made_by_hand) == {"messages": valid}
    assert to_anthropic(window_of(made_by_hand)) == {"messages": valid}


def test_results_of_several_turns_stay_apart() -> None:
    conversation = [
        by_assistant(use("a")),
        by_user(result("a", content="1"), text("One.")),
        by_assistant(use("b")),
        by_user(result("b", content="2")),
        by_user(text("Go on.")),
    ]
    messages = from_anthropic(conversation)
    assert {message.extra for message in messages[:-1]} == {""}
    assert to_anthropic(window_of(messages)) == {"messages": conversation}


@given(st.lists(st.sampled_from([message for answers in TURNS.values() for message in answers])))
@settings(max_examples=50, deadline=None)
def test_results_in_any_order_come_back_equal(sources: list[dict[str, Any]]) -> None:
    assert to_anthropic(stored(from_anthropic(sources))) == {"messages": sources}


def test_an_empty_prompt_has_no_system() -> None:
    assert to_anthropic([]) == {"messages": []}
    assert "system" not in to_anthropic([system("")])


def test_arguments_beyond_python_are_kept_as_text() -> None:
    """What Python's JSON refuses does not make a whole window unreadable."""
    for arguments in ("[" * 100_000, '{"a": ' + "9" * 5_000 + "}", "nonsense"):
        prompt = to_anthropic([assistant(tool_calls=[ToolCall("a", "f", arguments)])])
        assert prompt["messages"][0]["content"][0]["input"] == {"arguments": arguments}


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (None, "messages[1] is not an object"),
        ({"role": "tool", "content": "a"}, "messages[1] has the role 'tool'; it can be one of user, assistant"),
        ({"role": "user", "content": {"type": "text"}}, "messages[1] has content of type dict"),
        (by_user({"type": "x", "data": b"1"}), "messages[1] holds what JSON cannot"),
        (by_assistant(use(input={"a": {1}})), "messages[1] holds what JSON cannot"),
    ],
)
def test_what_is_no_message_is_named(source: Any, complaint: str) -> None:
    with pytest.raises(ValueError) as error:
        from_anthropic([{"role": "user", "content": "a"}, source])
    assert complaint in str(error.value)


def test_a_system_prompt_of_another_type_is_named() -> None:
    with pytest.raises(ValueError, match="system has content of type int"):
        from_anthropic([], system=json.loads("7"))
