"""Chat-completions messages of every shape that is met in the wild, one by one and as conversations."""

from pathlib import Path
from typing import Any

TRANSCRIPTS = Path(__file__).parents[3] / "shared" / "data" / "airline_transcripts.jsonl"
"""Fifty conversations of an airline's agent, one a line; tests use them where they are."""

PNG = "iVBORw0KGgo="
WAV = "UklGRg=="


def function_call(id: str, name: str = "search", arguments: str = "{}") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def said(content: Any, role: str = "user", **keys: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **keys}


def calling(*calls: Any, **keys: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **keys}


IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
TEXT = {"type": "text", "text": "look"}

SHAPES: dict[str, dict[str, Any]] = {
    **{f"{role} with text": said("Hello!", role) for role in ("system", "developer", "user", "assistant")},
    **{f"{role} with a name": said("Hello!", role, name="ada") for role in ("system", "user", "assistant")},
    "an empty name": said("Hello!", name=""),
    "a null name": said("Hello!", name=None),
    "a name that is a number": said("Hello!", name=7),
    "null content": said(None),
    "no content key": {"role": "user"},
    "no content key, but a name": {"role": "user", "name": "ada"},
    "empty text": said(""),
    "no parts": said([]),
    "white space": said(" \r\n\t"),
    "U+0000, emoji, CJK, right-to-left": said("a\x00b 🙂 👩‍👩‍👧 日本語 שלום"),
    "half of a surrogate pair": said("a \ud83d b"),
    "half of a surrogate pair in a part": said([{"type": "text", "text": "\udc00"}, TEXT]),
    "one text part": said([TEXT]),
    "several text parts": said([TEXT, {"type": "text", "text": ""}, TEXT]),
    "a text part with more keys": said([{**TEXT, "cache_control": {"type": "ephemeral"}}]),
    "a text part whose text is null": said([{"type": "text", "text": None}]),
    "an image by URL": said([TEXT, IMAGE]),
    "an image with detail": said([{"type": "image_url", "image_url": {"url": "https://e.com/a", "detail": "low"}}]),
    "an image in place": said([{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}]),
    "an image in place, not padded": said(
        [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw"}}]
    ),
    "an image in place with parameters": said(
        [{"type": "image_url", "image_url": {"url": f"data:image/png;name=a;base64,{PNG}"}}]
    ),
    "an image in place that is text": said([{"type": "image_url", "image_url": {"url": "data:image/svg+xml,<svg/>"}}]),
    "an image that is no image": said([{"type": "image_url", "image_url": {"url": f"data:text/plain;base64,{PNG}"}}]),
    "an image by path": said([{"type": "image_url", "image_url": {"url": "cat.png"}}]),
    "an image with an empty URL": said([{"type": "image_url", "image_url": {"url": ""}}]),
    "an image URL that is text": said([{"type": "image_url", "image_url": "https://example.com/cat.png"}]),
    "an image URL with half of a surrogate pair": said([{"type": "image_url", "image_url": {"url": "https://\ud800"}}]),
    "an image in place of half of a surrogate pair": said(
        [{"type": "image_url", "image_url": {"url": f"data:image/\ud800;base64,{PNG}"}}]
    ),
    "sound, half of a surrogate pair": said(
        [{"type": "input_audio", "input_audio": {"data": WAV, "format": "\ud800"}}]
    ),
    "sound, wav": said([{"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}}]),
    "sound, mp3": said([{"type": "input_audio", "input_audio": {"data": WAV, "format": "mp3"}}]),
    "sound, mpeg": said([{"type": "input_audio", "input_audio": {"data": WAV, "format": "mpeg"}}]),
    "sound, an empty format": said([{"type": "input_audio", "input_audio": {"data": WAV, "format": ""}}]),
    "sound that is no base64": said([{"type": "input_audio", "input_audio": {"data": "~~~", "format": "wav"}}]),
    "a file in place": said(
        [{"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PNG}", "filename": "a.pdf"}}]
    ),
    "a file in place that is an image": said([{"type": "file", "file": {"file_data": f"data:image/png;base64,{PNG}"}}]),
    "a file in place without a data URL": said([{"type": "file", "file": {"file_data": PNG, "filename": "a.pdf"}}]),
    "a file by id": said([{"type": "file", "file": {"file_id": "file-abc123"}}]),
    "a file by id and in place": said(
        [{"type": "file", "file": {"file_id": "file-abc", "file_data": f"data:application/pdf;base64,{PNG}"}}]
    ),
    "a file id like a URL": said([{"type": "file", "file": {"file_id": "urn:file"}}]),
    "an empty file": said([{"type": "file", "file": {}}]),
    "parts of unknown types": said([{"type": "video_url", "video_url": {"url": "https://e.com"}}, TEXT, {"kind": 1}]),
    "parts that are no objects": said(["text", 1, None, ["a"], 1.5, True]),
    "numbers in an unknown part": said([{"type": "n", "values": [2**70, 1, 1.0, 1e300, -0.0, True, None, "1"]}]),
    "unknown keys": said("Hello!", id="msg_1", metadata={"a": [1, {"b": None}]}, weight=0),
    "a call": calling(function_call("call_1")),
    "parallel calls": calling(function_call("call_1"), function_call("call_2", "book", '{"seat": "12A"}')),
    "one id for two calls": calling(function_call("call_1"), function_call("call_1")),
    "an empty call id": calling(function_call("")),
    "no call id": calling({"type": "function", "function": {"name": "f", "arguments": "{}"}}),
    "a null call id": calling({**function_call(""), "id": None}),
    "a call without its type": calling({"id": "call_1", "function": {"name": "f", "arguments": "{}"}}),
    "a call with more keys": calling({**function_call("call_1"), "index": 0}),
    "text and a call": said("Let me see.", "assistant", tool_calls=[function_call("call_1")]),
    "empty text and a call": said("", "assistant", tool_calls=[function_call("call_1")]),
    "no parts and a call": said([], "assistant", tool_calls=[function_call("call_1")]),
    "one text part and a call": said([TEXT], "assistant", tool_calls=[function_call("call_1")]),
    "text parts and a call": said([TEXT, TEXT], "assistant", tool_calls=[function_call("call_1")]),
    "a call without a content key": {"role": "assistant", "tool_calls": [function_call("call_1")]},
    "no calls": said("Hello!", "assistant", tool_calls=[]),
    "null calls": said("Hello!", "assistant", tool_calls=None),
    "calls that are no array": said("Hello!", "assistant", tool_calls={"a": 1}),
    "null content and no calls": said(None, "assistant", tool_calls=[]),
    "arguments that are empty": calling(function_call("call_1", arguments="")),
    "arguments that are invalid JSON": calling(function_call("call_1", arguments='{"a": tru')),
    "arguments with white space": calling(function_call("call_1", arguments='{ "a" : 1 }\n')),
    "arguments with a key twice": calling(function_call("call_1", arguments='{"a": 1, "a": 2}')),
    "arguments with a large integer": calling(function_call("call_1", arguments='{"a": 123456789012345678901}')),
    "arguments with an escaped surrogate": calling(function_call("call_1", arguments='{"a": "\\ud83d"}')),
    "arguments with half of a surrogate pair": calling(function_call("call_1", arguments='{"a": "\ud83d"}')),
    "arguments that are an array": calling(function_call("call_1", arguments="[1, 2]")),
    "arguments that are an object": calling(
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    ),
    "arguments that are null": calling({"id": "c", "type": "function", "function": {"name": "f", "arguments": None}}),
    "no arguments": calling({"id": "c", "type": "function", "function": {"name": "f"}}),
    "a call without a name": calling({"id": "c", "type": "function", "function": {"arguments": "{}"}}),
    "a custom call": calling({"id": "c", "type": "custom", "custom": {"name": "shell", "input": "ls -la"}}),
    "a custom call among functions'": calling(
        function_call("a"),
        {"id": "c", "type": "custom", "custom": {"name": "shell", "input": "{}"}},
        function_call("b"),
    ),
    "a call of an unknown type": calling({"id": "c", "type": "web", "query": "weather"}),
    "a call of no type": calling({"id": "c"}),
    "calls that are no objects": calling("call", 7, None),
    "calls of a user": said("Hello!", tool_calls=[function_call("call_1")]),
    "a legacy call": said(None, "assistant", function_call={"name": "f", "arguments": "{}"}),
    "a legacy call with invalid arguments": said("", "assistant", function_call={"name": "f", "arguments": "{"}),
    "a legacy call beside calls": calling(function_call("a"), function_call={"name": "f", "arguments": "{}"}),
    "a null legacy call": said("Hello!", "assistant", function_call=None),
    "a refusal": said(None, "assistant", refusal="I cannot help with that."),
    "an empty refusal": said(None, "assistant", refusal=""),
    "a null refusal": said("Hello!", "assistant", refusal=None),
    "text and a refusal": said("Well.", "assistant", refusal="No."),
    "a refusal part": said([{"type": "refusal", "refusal": "No."}], "assistant"),
    "text and a refusal part": said([TEXT, {"type": "refusal", "refusal": "No."}], "assistant"),
    "a refusal part, then text": said([{"type": "refusal", "refusal": "No."}, TEXT], "assistant"),
    "a refusal part and a refusal": said([{"type": "refusal", "refusal": "No."}], "assistant", refusal="No!"),
    "a refusal part and a call": said(
        [{"type": "refusal", "refusal": "No."}], "assistant", tool_calls=[function_call("call_1")]
    ),
    "a refusal part of a user": said([{"type": "refusal", "refusal": "No."}]),
    "reasoning": said("4", "assistant", reasoning_content="2 and 2 is 4"),
    "reasoning alone": said(None, "assistant", reasoning_content="hm"),
    "reasoning alone, without a content key": {"role": "assistant", "reasoning_content": "hm"},
    "empty reasoning": said("4", "assistant", reasoning_content=""),
    "null reasoning": said("4", "assistant", reasoning_content=None),
    "reasoning before a call": calling(function_call("call_1"), reasoning_content="I need a tool"),
    "reasoning before parts": said([TEXT, IMAGE, {"type": "x"}], "assistant", reasoning_content="hm"),
    "sound by id": said(None, "assistant", audio={"id": "audio_1"}),
    "an answer as the API gives it": said(
        "4", "assistant", refusal=None, annotations=[], audio=None, function_call=None, tool_calls=None
    ),
    "annotations": said(
        "See [1].", "assistant", annotations=[{"type": "url_citation", "url_citation": {"url": "https://e.com"}}]
    ),
    "an image of an assistant": said([TEXT, IMAGE], "assistant"),
    "a result": said("12 C", "tool", tool_call_id="call_1"),
    "a result with a name": said("12 C", "tool", tool_call_id="call_1", name="get_weather"),
    "a result with an empty name": said("12 C", "tool", tool_call_id="call_1", name=""),
    "a result that is empty": said("", "tool", tool_call_id="call_1", name="get_weather"),
    "a result that is null": said(None, "tool", tool_call_id="call_1"),
    "a result without content": {"role": "tool", "tool_call_id": "call_1"},
    "a result of parts": said([TEXT, TEXT], "tool", tool_call_id="call_1"),
    "a result of one part": said([TEXT], "tool", tool_call_id="call_1"),
    "a result of no parts": said([], "tool", tool_call_id="call_1"),
    "a result with an image": said([IMAGE, TEXT], "tool", tool_call_id="call_1"),
    "a result with unknown parts": said([{"type": "json", "json": {"a": 1}}, 3], "tool", tool_call_id="call_1"),
    "a result with a refusal": said([{"type": "refusal", "refusal": "No."}], "tool", tool_call_id="call_1"),
    "a result with an empty call id": said("12 C", "tool", tool_call_id=""),
    "a result without a call id": said("12 C", "tool"),
    "a result with a null call id": said("12 C", "tool", tool_call_id=None),
    "a result with more keys": said("12 C", "tool", tool_call_id="call_1", is_error=True),
    "a legacy result": said("12 C", "function", name="get_weather"),
    "a legacy result with null": said(None, "function", name="get_weather"),
    "a legacy result without a name": said("12 C", "function"),
}

CONVERSATION: list[dict[str, Any]] = [
    said("You are a travel agent.", "system"),
    said("Book me a flight to Oslo, 12A. 请快一点 🙂", name="mia"),
    said(
        "Let me see.",
        "assistant",
        tool_calls=[function_call("a", "flights", '{"to":"Oslo"}'), function_call("b", "seats")],
    ),
    said('["SK1"]', "tool", tool_call_id="a", name="flights"),
    said("", "tool", tool_call_id="b"),
    calling(function_call("a", "book", '{"seat": tru')),
    said("Error: invalid JSON", "tool", tool_call_id="a"),
    said("I could not book it.", "assistant"),
]
