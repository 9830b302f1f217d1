"""A conversation that began with one provider goes on with another, as far as both formats can say it."""

from typing import Any

from memoryd import Message, from_anthropic, from_openai, to_anthropic, to_openai
from tests.sdk import anthropic_shapes, openai_shapes
from tests.sdk.anthropic_shapes import by_assistant, by_user, result, text, thinking, use
from tests.sdk.conversions import stored
from tests.sdk.openai_shapes import calling, function_call, said


def test_from_openai_to_anthropic_and_back() -> None:
    conversation = [
        said("You are a travel agent.", "system"),
        said("Weather in Oslo and Rome? 🙂"),
        said(
            "Let me see.",
            "assistant",
            tool_calls=[function_call("a", "weather", '{"city":"Oslo"}'), function_call("b")],
        ),
        said("4 C", "tool", tool_call_id="a"),
        said("12 C", "tool", tool_call_id="b"),
        said("4 and 12 degrees.", "assistant"),
        calling(function_call("c", "book", '{"seats":[12345678901234567890,1.5]}')),
        said("", "tool", tool_call_id="c"),
        said([openai_shapes.SHAPES["an image in place"]["content"][0], {"type": "text", "text": "There?"}]),
    ]
    prompt = to_anthropic(stored(from_openai(conversation)))
    assert prompt == {
        "system": "You are a travel agent.",
        "messages": [
            {"role": "user", "content": "Weather in Oslo and Rome? 🙂"},
            by_assistant(text("Let me see."), use("a", "weather", {"city": "Oslo"}), use("b")),
            by_user(result("a", content="4 C"), result("b", content="12 C")),
            {"role": "assistant", "content": "4 and 12 degrees."},
            by_assistant(use("c", "book", {"seats": [12345678901234567890, 1.5]})),
            by_user(result("c", content="")),
            by_user(anthropic_shapes.SHAPES["an image in place"]["content"][0], text("There?")),
        ],
    }
    assert to_openai(stored(from_anthropic(**prompt))) == conversation


def test_from_anthropic_to_openai_and_back() -> None:
    conversation: dict[str, Any] = {
        "system": [text("You are"), text("a travel agent.")],
        "messages": [
            {"role": "user", "content": "Weather in Oslo and Rome?"},
            by_assistant(text("Let me see."), use("a", "weather", {"city": "Oslo"}), use("b", "weather", {})),
            by_user(result("a", content="4 C"), result("b", content=[text("12"), text("C")])),
            {"role": "assistant", "content": "4 and 12 degrees."},
        ],
    }
    messages = to_openai(stored(from_anthropic(**conversation)))
    assert messages == [
        said([text("You are"), text("a travel agent.")], "system"),
        said("Weather in Oslo and Rome?"),
        said(
            "Let me see.",
            "assistant",
            tool_calls=[function_call("a", "weather", '{"city":"Oslo"}'), function_call("b", "weather")],
        ),
        said("4 C", "tool", tool_call_id="a"),
        said([text("12"), text("C")], "tool", tool_call_id="b"),
        said("4 and 12 degrees.", "assistant"),
    ]
    assert to_anthropic(stored(from_openai(messages))) == conversation


def test_what_chat_completions_cannot_say_is_left_out_of_them_only() -> None:
    conversation = {
        "messages": [
            by_assistant(thinking(), use("a"), text("after"), {"type": "redacted_thinking", "data": "x"}),
            by_user(result("a", content="no", is_error=True), text("Go on.")),
        ]
    }
    messages = stored(from_anthropic(**conversation))
    assert to_openai(messages) == [
        said("after", "assistant", tool_calls=[function_call("a")]),
        said("no", "tool", tool_call_id="a"),
        said("Go on."),
    ]
    assert to_anthropic(messages) == conversation


def test_each_format_reads_only_its_own_notes() -> None:
    for message in from_openai(list(openai_shapes.SHAPES.values())):
        plain = Message(role=message.role, content=message.content, name=message.name)
        assert to_anthropic([message]) == to_anthropic([plain])
    for message in from_anthropic(list(anthropic_shapes.SHAPES.values())):
        plain = Message(role=message.role, content=message.content, name=message.name)
        assert to_openai([message]) == to_openai([plain])
