"""OpenAI's chat-completions messages go there and back without loss (design section 3: conversion loses nothing)."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from openai.types.chat import ChatCompletionMessage

from memoryd import (
    Data,
    Media,
    Message,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
    assistant,
    call,
    developer,
    from_openai,
    system,
    to_openai,
    tool,
    user,
)
from tests.sdk.conversions import exact, kept_twice, shortened, stored
from tests.sdk.json_strategies import openai_messages
from tests.sdk.openai_shapes import CONVERSATION, IMAGE, PNG, SHAPES, TRANSCRIPTS, calling, function_call, said


@pytest.mark.parametrize("source", SHAPES.values(), ids=SHAPES)
def test_every_shape_comes_back_equal(source: dict[str, Any]) -> None:
    assert exact(to_openai(from_openai([source]))) == exact([source])


@pytest.mark.parametrize("source", SHAPES.values(), ids=SHAPES)
def test_every_shape_comes_back_equal_after_it_was_stored(source: dict[str, Any]) -> None:
    assert exact(to_openai(stored(from_openai([source])))) == exact([source])


@pytest.mark.parametrize("source", SHAPES.values(), ids=SHAPES)
def test_no_shape_is_kept_twice(source: dict[str, Any]) -> None:
    (message,) = from_openai([source])
    assert not kept_twice(message, source)


def test_all_shapes_together_come_back_in_order() -> None:
    sources = list(SHAPES.values())
    assert exact(to_openai(stored(from_openai(sources)))) == exact(sources)


@settings(max_examples=500)
@given(openai_messages())
def test_any_message_comes_back_equal(source: dict[str, Any]) -> None:
    assert exact(to_openai(stored(from_openai([source])))) == exact([source])


def test_objects_of_the_library_openai_are_what_the_api_said() -> None:
    said_by_the_api = {
        **SHAPES["an answer as the API gives it"],
        "tool_calls": [function_call("call_1"), {"id": "c", "type": "hologram", "x": [1, None]}],
        "reasoning_content": "2 and 2 is 4",
    }
    answer = ChatCompletionMessage.construct(**said_by_the_api)
    assert exact(to_openai(from_openai([said("2 + 2?"), answer]))) == exact([said("2 + 2?"), said_by_the_api])


def test_plain_conversations_need_no_extra() -> None:
    assert to_openai(stored(from_openai(CONVERSATION))) == CONVERSATION
    assert [message.extra for message in from_openai(CONVERSATION)] == [""] * len(CONVERSATION)


@pytest.mark.skipif(not TRANSCRIPTS.exists(), reason="the transcripts are not here")
def test_real_transcripts_come_back_equal_and_need_no_extra() -> None:
    with TRANSCRIPTS.open(encoding="utf-8") as lines:
        conversations = [json.loads(line)["messages"] for line in lines]
    assert len(conversations) == 50
    for conversation in conversations:
        messages = stored(from_openai(conversation))
        assert to_openai(messages) == conversation
        assert {message.extra for message in messages} == {""}


def test_content_is_stored_once() -> None:
    """Long texts, arguments and media stand in the parts only, never in `extra` again."""
    long = "0123456789" * 100
    sources = [
        said(
            [{"type": "text", "text": long, "x": 1}, IMAGE, {"type": "thing", "value": long}], "assistant", refusal=long
        ),
        calling(
            function_call("a", arguments=long), {"id": "b", "type": "custom", "custom": {"name": "f", "input": long}}
        ),
        calling(
            {"id": "c", "type": "web", "query": long}, {"id": "d", "function": {"name": "f", "arguments": {"a": long}}}
        ),
        said([{"type": "text", "text": long}], "tool", tool_call_id="a", name=None),
        said(long, "assistant", reasoning_content=long, function_call={"name": "f", "arguments": long}, id=None),
        said([{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * 1000}", "detail": "low"}}]),
    ]
    for message in from_openai(sources):
        assert message.extra
        assert len(message.extra) < 200
    assert to_openai(from_openai(sources)) == sources


def test_shortened_texts_stay_shortened() -> None:
    """A window may have shortened texts; `extra` never brings the long ones back."""
    long = "0123456789" * 10
    sources = [
        said([{"type": "text", "text": long, "x": 1}]),
        said(
            [{"type": "text", "text": long}, {"type": "text", "text": long, "x": 1}],
            "tool",
            tool_call_id="a",
            name=None,
        ),
    ]
    assert to_openai(map(shortened, from_openai(sources))) == [
        said([{"type": "text", "text": "012[shortened]", "x": 1}]),
        said(
            [{"type": "text", "text": "012[shortened]"}, {"type": "text", "text": "012[shortened]", "x": 1}],
            "tool",
            tool_call_id="a",
            name=None,
        ),
    ]


def test_a_synthesized_result_is_a_tool_message() -> None:
    synthesized = Message(role=Role.TOOL, content=(ToolResult("a", parts=(Text("[interrupted]"),)),), id="", seq=0)
    assert to_openai([synthesized]) == [said("[interrupted]", "tool", tool_call_id="a")]


def test_messages_get_ids_of_their_own() -> None:
    messages = from_openai([said("yes"), said("yes")])
    assert messages[0] == messages[1]
    assert messages[0].id != messages[1].id


def test_what_is_read_into_which_fields() -> None:
    assert from_openai(
        [
            said("Be brief.", "system", name="boss"),
            said("Be kind.", "developer"),
            said([{"type": "text", "text": "a"}, IMAGE]),
            said("Hm.", "assistant", refusal="No.", reasoning_content="2+2", tool_calls=[function_call("c", "f", "{")]),
            said("12 C", "tool", tool_call_id="c", name="f"),
            said("12 C", "function", name="f"),
        ]
    ) == [
        system("Be brief.", name="boss"),
        developer("Be kind."),
        user([Text("a"), Media("image/*", "https://example.com/cat.png")]),
        Message(
            role=Role.ASSISTANT,
            content=(Reasoning("2+2"), Text("Hm."), Refusal("No."), ToolCall("c", "f", "{")),
            extra='{"openai":{"reasoning":true}}',
        ),
        tool("c", "12 C", name="f"),
        Message(
            role=Role.TOOL, content=(ToolResult("", "f", parts=(Text("12 C"),)),), extra='{"openai":{"function":true}}'
        ),
    ]


def test_images_in_place_are_bytes() -> None:
    (message,) = from_openai([SHAPES["an image in place"]])
    assert message.content == (Media("image/png", data=b"\x89PNG\r\n\x1a\n"),)


def test_messages_made_by_hand() -> None:
    weather = call("weather", {"city": "Oslo"}, id="c")
    assert to_openai(
        [
            system("Be brief."),
            user(None),
            user(
                [
                    Text("a"),
                    Data('{"b": 1}'),
                    Media("image/png", data=b"\x89PNG\r\n\x1a\n"),
                    Media(uri="https://e.com/a.pdf"),
                ]
            ),
            assistant("Let me see.", tool_calls=[weather]),
            tool("c", [Text("12 C"), Media("image/png", data=b"1234")]),
            assistant(tool_calls=[weather]),
            tool("c", []),
            assistant([Reasoning("hm"), Text("Warm.")]),
            assistant([Reasoning("hm")]),
        ]
    ) == [
        said("Be brief.", "system"),
        said(None),
        said(
            [
                {"type": "text", "text": "a"},
                {"type": "text", "text": '{"b": 1}'},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
                {"type": "text", "text": "[file: https://e.com/a.pdf]"},
            ]
        ),
        said("Let me see.", "assistant", tool_calls=[function_call("c", "weather", '{"city":"Oslo"}')]),
        said(
            [{"type": "text", "text": "12 C"}, {"type": "text", "text": "[image/png, 4 bytes]"}],
            "tool",
            tool_call_id="c",
        ),
        calling(function_call("c", "weather", '{"city":"Oslo"}')),
        said("", "tool", tool_call_id="c"),
        said("Warm.", "assistant"),
    ]


def test_a_message_with_several_results_becomes_several() -> None:
    answers = Message(
        role=Role.USER,
        content=(
            Text("Here:"),
            ToolResult("a", parts=(Text("1"),)),
            ToolResult("b", "f", True, (Text("2"),)),
            Text("Go on."),
        ),
    )
    assert to_openai([answers]) == [
        said("1", "tool", tool_call_id="a"),
        said("2", "tool", tool_call_id="b", name="f"),
        said([{"type": "text", "text": "Here:"}, {"type": "text", "text": "Go on."}]),
    ]


def test_nothing_stands_between_a_call_and_its_results() -> None:
    """OpenAI refuses calls whose results do not all follow directly: what else the answers say waits until then."""
    one, two = call("f", id="a"), call("f", id="b")
    first = user([ToolResult("a", parts=(Text("1"),)), Text("One is done.")])
    first_turned = user([Text("One is done."), ToolResult("a", parts=(Text("1"),))])
    second = user([ToolResult("b", parts=(Text("2"),)), Text("Two is done.")])
    for answers in ([first, second], [first_turned, second]):
        assert to_openai([assistant(tool_calls=[one, two]), *answers, user("Go on.")]) == [
            calling(function_call("a", "f"), function_call("b", "f")),
            said("1", "tool", tool_call_id="a"),
            said("2", "tool", tool_call_id="b"),
            said("One is done."),
            said("Two is done."),
            said("Go on."),
        ]
    unspoken = assistant([Reasoning("hm")])
    for between in ([], [unspoken]):
        assert to_openai([assistant(tool_calls=[one, two]), first, *between, tool("b", "2"), assistant("Done.")]) == [
            calling(function_call("a", "f"), function_call("b", "f")),
            said("1", "tool", tool_call_id="a"),
            said("2", "tool", tool_call_id="b"),
            said("One is done."),
            said("Done.", "assistant"),
        ]
    assert to_openai([first]) == [said("1", "tool", tool_call_id="a"), said("One is done.")]


def test_a_tools_message_without_a_result_keeps_its_place() -> None:
    assert to_openai([Message(role=Role.TOOL, content=(Text("lost"),)), Message(role=Role.TOOL)]) == [
        said("lost", "tool", tool_call_id=""),
        said("", "tool", tool_call_id=""),
    ]


@pytest.mark.parametrize(
    "extra",
    [
        "",
        "{",
        "[]",
        "null",
        '{"openai":7}',
        '{"openai":{"parts":[1],"calls":3,"content":[],"patch":{"in":5,"set":6}}}',
        '{"openai":{"patch":7}}',
        '{"openai":{"patch":{"in":{"tool_calls":8},"del":9}}}',
    ],
)
def test_an_extra_that_says_nothing_is_passed_over(extra: str) -> None:
    (message,) = from_openai([said("Hello!", "assistant", tool_calls=[function_call("a")])])
    spoiled = Message(role=message.role, content=message.content, extra=extra)
    assert to_openai([spoiled])[0]["tool_calls"] == [function_call("a")]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("text", "messages[1] is not an object"),
        ({"content": "a"}, "messages[1] has the role None; it can be one of system, developer, user"),
        (said("a", "critic"), "messages[1] has the role 'critic'"),
        ({"role": ["user"], "content": "a"}, "messages[1] has the role ['user']"),
        (said({"text": "a"}), "messages[1] has content of type dict"),
        (said(7), "messages[1] has content of type int"),
        (said("a", date=PNG.encode()), "messages[1] holds what JSON cannot"),
        (said([{"type": "x", "data": b"1"}]), "messages[1] holds what JSON cannot"),
    ],
)
def test_what_is_no_message_is_named(source: Any, complaint: str) -> None:
    with pytest.raises(ValueError) as error:
        from_openai([said("a"), source])
    assert complaint in str(error.value)
