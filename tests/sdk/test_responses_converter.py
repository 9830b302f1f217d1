"""Items of OpenAI's Responses go there and back without loss (design section 3: conversion loses nothing)."""

import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from openai.types.responses import Response

from memoryd import (
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    from_openai,
    from_openai_responses,
    to_anthropic,
    to_openai,
    to_openai_responses,
    user,
)
from tests.sdk import anthropic_shapes, openai_shapes
from tests.sdk.conversions import exact, kept_twice, shortened, stored, window_of
from tests.sdk.responses_strategies import item_lists
from tests.sdk.test_responses_fixtures import READ

TURN: list[dict[str, Any]] = [
    {"role": "developer", "content": "You are a travel agent."},
    {"role": "user", "content": "Weather in Oslo and Rome?"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Let me see.", "annotations": [], "logprobs": []}],
    },
    {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "f", "arguments": "{}", "status": "completed"},
    {"type": "function_call", "id": "fc_2", "call_id": "b", "name": "f", "arguments": "{}", "status": "completed"},
    {"type": "function_call_output", "call_id": "a", "output": "4 C"},
    {"type": "function_call_output", "call_id": "b", "output": "12 C"},
    {
        "type": "message",
        "id": "msg_2",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "4 and 12.", "annotations": [], "logprobs": []}],
    },
]
LONG = "0123456789" * 100
COMPUTER = {"type": "computer_call", "id": "cu_1", "call_id": "c", "pending_safety_checks": []}


@settings(max_examples=300)
@given(item_lists())
def test_any_items_come_back_equal(items: list[dict[str, Any]]) -> None:
    assert exact(to_openai_responses(from_openai_responses(items))) == exact(items)
    assert exact(to_openai_responses(stored(from_openai_responses(items)))) == exact(items)


@settings(max_examples=200)
@given(item_lists())
def test_items_of_a_window_are_a_windows_items_again(items: list[dict[str, Any]]) -> None:
    """What a window gives needs no further change."""
    shown = to_openai_responses(window_of(stored(from_openai_responses(items))))
    assert exact(to_openai_responses(window_of(from_openai_responses(shown)))) == exact(shown)


def test_all_shapes_together_come_back_in_order() -> None:
    items = [item for case in READ.values() for item in case["items"]]
    assert exact(to_openai_responses(stored(from_openai_responses(items)))) == exact(items)
    assert exact(to_openai_responses(stored(from_openai_responses(items[::-1])))) == exact(items[::-1])


def test_numbers_come_back_as_they_were() -> None:
    items: list[dict[str, Any]] = [
        {"type": "hologram", "n": [2**70, 1, 1.0, 1e300, -0.0, 1e-7, True, None, "1"]},
        {"role": "user", "content": "a", "n": [2**70, 1.0]},
    ]
    assert exact(to_openai_responses(stored(from_openai_responses(items)))) == exact(items)


def test_what_the_model_says_in_a_row_is_one_message_and_each_output_one_of_its_own() -> None:
    messages = from_openai_responses(TURN)
    assert [message.role for message in messages] == [
        *(Role.DEVELOPER, Role.USER, Role.ASSISTANT),
        *(Role.TOOL, Role.TOOL, Role.ASSISTANT),
    ]
    assert messages[2].content == (
        Reasoning(signature="x"),
        Text("Let me see."),
        ToolCall("a", "f", "{}"),
        ToolCall("b", "f", "{}"),
    )
    assert [message.extra != "" for message in messages] == [False, False, True, False, False, True]
    assert to_openai_responses(window_of(stored(messages))) == TURN


def test_text_alone_is_a_users_message() -> None:
    assert from_openai_responses("Hello!") == [user("Hello!")]
    assert to_openai_responses(from_openai_responses("Hello!")) == [{"role": "user", "content": "Hello!"}]


def test_messages_get_ids_of_their_own() -> None:
    messages = from_openai_responses([{"role": "user", "content": "yes"}] * 2)
    assert messages[0] == messages[1]
    assert messages[0].id != messages[1].id


@pytest.mark.parametrize("item", TURN)
def test_no_item_is_kept_twice(item: dict[str, Any]) -> None:
    (message,) = from_openai_responses([item])
    assert not kept_twice(message, item)


def test_content_is_stored_once_and_shortened_texts_stay_shortened() -> None:
    answer = {**TURN[3], "content": [{**TURN[3]["content"][0], "text": LONG}]}
    result = {"type": "function_call_output", "call_id": "a", "output": LONG, "id": "x"}
    messages = from_openai_responses([answer, {**TURN[4], "arguments": LONG}, result])
    assert all(len(message.extra) < 400 for message in messages)
    first, _, last = to_openai_responses(map(shortened, messages))
    assert first["content"] == [{**TURN[3]["content"][0], "text": "012[shortened]"}]
    assert last == {**result, "output": "012[shortened]"}


def test_objects_of_the_library_openai_are_what_the_api_said() -> None:
    """Without the library's defaults, and with what it does not know; it warns of that, which is nothing to warn of."""
    said = [
        *(item for item in TURN if item.get("type") and not item["type"].endswith("_output")),
        {"type": "hologram", "x": [1, 2.5, None, {"a": True}]},
        COMPUTER | {"action": {"type": "wiggle", "x": "far"}, "status": "unheard"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
    ]
    response = Response.construct(output=said)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        messages = from_openai_responses(response.output)
    assert exact(to_openai_responses(messages)) == exact(said)


def test_objects_and_dicts_may_mix() -> None:
    response = Response.construct(output=TURN[2:6])
    messages = from_openai_responses([*TURN[:2], *response.output, *TURN[6:]])
    assert to_openai_responses(messages) == TURN
    assert [message.content for message in messages] == [message.content for message in from_openai_responses(TURN)]


@pytest.mark.parametrize(
    ("item", "complaint"),
    [
        ("text", "items[1] is not an object; an item is like {'role': 'user', 'content': 'Hello!'}"),
        ({"a": 1}, "items[1] has neither a type nor a role"),
        ({"type": None, "role": "user", "content": "a"}, "items[1] has neither a type nor a role"),
        ({"role": "tool", "content": "a"}, "items[1] has the role 'tool'; it can be one of system, developer, user"),
        ({"role": ["user"], "content": "a"}, "items[1] has the role ['user']"),
        ({"role": "user", "content": {"text": "a"}}, "items[1] has content of type dict"),
        ({"type": "x", "date": b"1"}, "items[1] holds what JSON cannot"),
        ({"role": "user", "content": "a", "x": b"1"}, "items[1] holds what JSON cannot"),
        ({"role": "user", "content": "a", "x": float("nan")}, "items[1] holds what JSON cannot"),
        ({"type": "x", "x": [float("inf")]}, "items[1] holds what JSON cannot"),
    ],
)
def test_what_is_no_item_is_named(item: Any, complaint: str) -> None:
    with pytest.raises(ValueError) as error:
        from_openai_responses([TURN[0], item])
    assert complaint in str(error.value)


def test_what_nests_too_deep_is_named() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match=r"items\[0\] holds what JSON cannot"):
        from_openai_responses([{"type": "x", "deep": deep}])


def test_what_holds_itself_is_named() -> None:
    item: dict[str, Any] = {"type": "x"}
    item["x"] = item
    with pytest.raises(ValueError, match=r"items\[0\] holds what JSON cannot"):
        from_openai_responses([item])


def test_a_conversation_goes_over_to_the_other_formats_and_back() -> None:
    messages = stored(from_openai_responses(TURN))
    chat = to_openai(messages)
    assert chat == [
        openai_shapes.said("You are a travel agent.", "developer"),
        openai_shapes.said("Weather in Oslo and Rome?"),
        openai_shapes.said(
            "Let me see.",
            "assistant",
            tool_calls=[openai_shapes.function_call("a", "f"), openai_shapes.function_call("b", "f")],
        ),
        openai_shapes.said("4 C", "tool", tool_call_id="a"),
        openai_shapes.said("12 C", "tool", tool_call_id="b"),
        openai_shapes.said("4 and 12.", "assistant"),
    ]
    assert to_anthropic(messages) == {
        "system": "You are a travel agent.",
        "messages": [
            {"role": "user", "content": "Weather in Oslo and Rome?"},
            anthropic_shapes.by_assistant(
                anthropic_shapes.text("Let me see."), anthropic_shapes.use("a", "f"), anthropic_shapes.use("b", "f")
            ),
            anthropic_shapes.by_user(
                anthropic_shapes.result("a", content="4 C"), anthropic_shapes.result("b", content="12 C")
            ),
            {"role": "assistant", "content": "4 and 12."},
        ],
    }
    assert to_openai(stored(from_openai_responses(to_openai_responses(stored(from_openai(chat)))))) == chat


def test_anthropic_is_not_shown_what_only_openai_can_read() -> None:
    """A signature of another is refused, and with it the whole prompt."""
    signed = from_openai_responses([{**TURN[2], "summary": [{"type": "summary_text", "text": "hm"}]}, TURN[3]])
    assert to_anthropic(stored(signed)) == {
        "messages": [anthropic_shapes.by_assistant(anthropic_shapes.text("Let me see."))]
    }


def test_each_format_reads_only_its_own_notes() -> None:
    for case in READ.values():
        for message in from_openai_responses(case["items"]):
            thoughtless = tuple(part for part in message.content or () if not isinstance(part, Reasoning))
            plain = Message(role=message.role, content=message.content)
            assert to_openai([message]) == to_openai([plain])
            if thoughtless == message.content:
                assert to_anthropic([message]) == to_anthropic([plain])
    for message in from_openai(list(openai_shapes.SHAPES.values())):
        plain = Message(role=message.role, content=message.content)
        assert to_openai_responses([message]) == to_openai_responses([plain])
