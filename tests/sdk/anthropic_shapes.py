"""Messages of Anthropic's API of every shape that is met in the wild, one by one and as conversations."""

from typing import Any

PNG = "iVBORw0KGgo="
CACHED: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}


def text(text: str = "look", **keys: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **keys}


def use(id: str = "toolu_1", name: str = "search", input: Any = None, **keys: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {} if input is None else input, **keys}


def result(id: str = "toolu_1", **keys: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, **keys}


def thinking(thinking: str = "hm", signature: str = "sig==") -> dict[str, Any]:
    return {"type": "thinking", "thinking": thinking, "signature": signature}


def by_user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def by_assistant(*blocks: Any, **keys: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks), **keys}


SHAPES: dict[str, dict[str, Any]] = {
    "text of a user": {"role": "user", "content": "Hello!"},
    "text of the assistant": {"role": "assistant", "content": "Hello!"},
    "empty text": {"role": "user", "content": ""},
    "no blocks": by_user(),
    "null content": {"role": "user", "content": None},
    "no content": {"role": "assistant"},
    "U+0000, emoji, CJK": {"role": "user", "content": "a\x00b 🙂 日本語\r\n"},
    "half of a surrogate pair": {"role": "user", "content": "a \ud83d"},
    "half of a surrogate pair in a block": by_user(text("\udc00"), text("\udc00 a")),
    "a system message inside": {"role": "system", "content": "Be brief."},
    "system blocks inside": {"role": "system", "content": [text("Be brief.", **CACHED)]},
    "one text block": by_user(text()),
    "an empty text block": by_user(text("")),
    "text blocks": by_user(text(), text(""), text()),
    "a cached text block": by_user(text(**CACHED)),
    "citations": by_assistant(text(citations=[{"type": "char_location", "cited_text": "x", "start_char_index": 0}])),
    "null citations": by_assistant(text(citations=None)),
    "an answer as the API gives it": by_assistant(
        text(citations=None), id="msg_1", type="message", model="m", stop_reason="end_turn", usage={"input_tokens": 3}
    ),
    "a call": by_assistant(use()),
    "text, then a call": by_assistant(text(), use()),
    "a call, then text": by_assistant(use(), text()),
    "parallel calls": by_assistant(use("toolu_1"), use("toolu_2", input={"a": 1})),
    "thinking between text and calls": by_assistant(
        thinking("first"), text(), thinking("second", "other"), use("toolu_1"), thinking("third"), use("toolu_2")
    ),
    "redacted thinking": by_assistant({"type": "redacted_thinking", "data": "EmwKAh=="}, text()),
    "empty redacted thinking": by_assistant({"type": "redacted_thinking", "data": ""}, text()),
    "thinking without text": by_assistant(thinking(""), text()),
    "thinking with an empty signature": by_assistant(thinking("hm", ""), text()),
    "thinking without a signature": by_assistant({"type": "thinking", "thinking": "hm"}, text()),
    "thinking of a user": by_user(thinking()),
    "input with large integers": by_assistant(use(input={"a": 2**53 + 1, "b": [-(2**70)]})),
    "input with floats": by_assistant(use(input={"a": 1.0, "b": 0.1, "c": 1e300, "d": -0.0})),
    "input that nests": by_assistant(use(input={"a": [{"b": [[], {}, None, True, False, ""]}]})),
    "input with odd texts": by_assistant(use(input={"日本": "🙂\x00\ud83d", "": ""})),
    "input that is an array": by_assistant(use(input=[1, "a"])),
    "input that is text": by_assistant(use(input="text")),
    "input that is a number": by_assistant(use(input=0)),
    "null input": by_assistant({"type": "tool_use", "id": "toolu_1", "name": "f", "input": None}),
    "no input": by_assistant({"type": "tool_use", "id": "toolu_1", "name": "f"}),
    "a call with an empty id": by_assistant(use("")),
    "a call without an id": by_assistant({"type": "tool_use", "name": "f", "input": {}}),
    "a call without a name": by_assistant({"type": "tool_use", "id": "toolu_1", "input": {}}),
    "a cached call": by_assistant(use(**CACHED), use("toolu_2", caller={"type": "direct"})),
    "a call of a user": by_user(use()),
    "a result": by_user(result(content="12 C")),
    "a result without content": by_user(result()),
    "a result that is null": by_user(result(content=None)),
    "a result that is empty": by_user(result(content="")),
    "a result of no blocks": by_user(result(content=[])),
    "a result of one block": by_user(result(content=[text()])),
    "a result of an empty block": by_user(result(content=[text("")])),
    "a result of blocks": by_user(result(content=[text(), text(""), text(**CACHED)])),
    "a result with an image": by_user(
        result(content=[text(), {"type": "image", "source": {"type": "url", "url": "https://e.com/a"}}]),
        result(
            "toolu_2", content=[{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}]
        ),
    ),
    "a result with unknown blocks": by_user(result(content=[{"type": "search_result", "content": [text()]}, "a", 1])),
    "a result that is a number": by_user(result(content=7)),
    "a result with half of a surrogate pair": by_user(result(content="\ud800"), result(content=[text("\ud800")])),
    "an error": by_user(result(content="no such city", is_error=True)),
    "no error": by_user(result(content="12 C", is_error=False)),
    "an error that is null": by_user(result(content="12 C", is_error=None)),
    "several results, then text": by_user(
        result("toolu_1", content="12 C"), result("toolu_2", content="rain", is_error=True), text("Go on."), text()
    ),
    "text before a result": by_user(text(), result(content="12 C")),
    "a cached result": by_user(result(content="12 C", **CACHED)),
    "a result without an id": by_user({"type": "tool_result", "content": "12 C"}),
    "a result of the assistant": by_assistant(result(content="12 C")),
    "an image in place": by_user(
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    ),
    "an image that is no base64": by_user(
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "~~"}}
    ),
    "an image of no image type": by_user(
        {"type": "image", "source": {"type": "base64", "media_type": "text/plain", "data": PNG}}
    ),
    "an image by URL": by_user({"type": "image", "source": {"type": "url", "url": "https://e.com/cat.png"}, **CACHED}),
    "an image by path": by_user({"type": "image", "source": {"type": "url", "url": "cat.png"}}),
    "an image by file id": by_user({"type": "image", "source": {"type": "file", "file_id": "file_011"}}),
    "an image with an empty URL": by_user({"type": "image", "source": {"type": "url", "url": ""}}),
    "a document in place": by_user(
        {
            "type": "document",
            "title": "Terms",
            "context": None,
            "citations": {"enabled": True},
            "source": {"type": "base64", "media_type": "application/pdf", "data": PNG},
        }
    ),
    "a document of text": by_user(
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Terms and conditions"}}
    ),
    "a document of blocks": by_user({"type": "document", "source": {"type": "content", "content": [text()]}}),
    "a document by URL": by_user({"type": "document", "source": {"type": "url", "url": "https://e.com/a.pdf"}}),
    "a document by file id": by_user({"type": "document", "source": {"type": "file", "file_id": "file_011"}}),
    "a document of an image type": by_user(
        {"type": "document", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    ),
    "a server's tool": by_assistant(
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": [
                {"type": "web_search_result", "url": "https://e.com", "encrypted_content": "x", "page_age": None}
            ],
        },
        text(),
    ),
    "unknown blocks": by_assistant({"type": "hologram", "n": [1, 1.0, True]}, {"kind": 1}, "text", 7, None),
    "a null block": by_user(None),
    "unknown keys": {"role": "user", "content": "Hello!", "id": 7, "metadata": {"a": None}},
}

SYSTEMS: dict[str, Any] = {
    "text": "You are a travel agent.",
    "empty text": "",
    "one block": [text("You are a travel agent.")],
    "blocks, cached": [text("You are a travel agent."), text("Be brief.", **CACHED)],
    "no blocks": [],
    "an empty block": [text("")],
    "half of a surrogate pair": "\ud800",
}

CONVERSATION: dict[str, Any] = {
    "system": "You are a travel agent.",
    "messages": [
        {"role": "user", "content": "Weather in Oslo and Rome? 请快一点 🙂"},
        by_assistant(thinking(), text("Let me see."), use("a", "weather", {"city": "Oslo"}), use("b", "weather")),
        by_user(result("a", content="4 C"), result("b", content=[text("no city")], is_error=True), text("Go on.")),
        {"role": "assistant", "content": "4 degrees in Oslo."},
    ],
}
