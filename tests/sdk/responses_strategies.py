"""Hypothesis strategies for items of OpenAI's Responses: the shapes that have a meaning, and around them any JSON."""

import json
from typing import Any

from hypothesis import strategies as st

from tests.sdk.json_strategies import base64_texts, json_values, objects, texts

Item = dict[str, Any]

_CALL_IDS = st.sampled_from(["a", "b", "", "\ud800"])
_URLS = st.one_of(texts, base64_texts.map(lambda data: f"data:image/png;base64,{data}"), st.just("data:\ud800;base64,"))
_BLOCKS = st.one_of(
    objects(
        {"type": st.sampled_from(["input_text", "output_text", "summary_text", "reasoning_text"])}, {"text": texts}
    ),
    objects({"type": st.just("output_text"), "text": texts}, {"annotations": st.lists(json_values, max_size=2)}),
    objects({"type": st.just("refusal")}, {"refusal": texts}),
    objects(
        {"type": st.just("input_image")},
        {"image_url": _URLS, "file_id": texts, "detail": st.sampled_from(["auto", "low"])},
    ),
    objects({"type": st.just("input_file")}, {"file_data": _URLS, "file_url": texts, "file_id": texts}),
    json_values,
)
_CONTENT = st.none() | texts | st.lists(_BLOCKS, max_size=3)
_MESSAGES = st.builds(
    lambda item, content, kind: {**item, **content, **kind},
    objects({"role": st.sampled_from(["system", "developer", "user", "assistant"])}, {"status": texts, "id": texts}),
    st.fixed_dictionaries({}, optional={"content": _CONTENT}),
    st.sampled_from([{}, {"type": "message"}]),
).map(lambda item: item if item.get("type", "message") == "message" else {**item, "type": "message"})
_REASONING = objects(
    {"type": st.just("reasoning")},
    {
        "summary": st.lists(_BLOCKS, max_size=3),
        "content": st.lists(_BLOCKS, max_size=2),
        "encrypted_content": st.none() | texts,
    },
)
_CALLS = objects(
    {"type": st.sampled_from(["function_call", "custom_tool_call", "computer_call", "mcp_call", "web_search_call"])},
    {"call_id": _CALL_IDS, "name": texts, "arguments": texts, "input": texts},
)
_OUTPUTS = objects(
    {
        "type": st.sampled_from(
            ["function_call_output", "custom_tool_call_output", "computer_call_output", "local_shell_call_output"]
        )
    },
    {"call_id": _CALL_IDS, "output": _CONTENT},
)
_OTHERS = objects(
    {"type": st.sampled_from(["item_reference", "mcp_approval_response", "compaction", "program_output"]) | texts},
    {"call_id": _CALL_IDS, "id": texts},
).filter(lambda item: item["type"] != "message")


def item_lists() -> st.SearchStrategy[list[Item]]:
    """Lists of items, in orders that the API would give and in others."""
    items = st.one_of(_MESSAGES, _REASONING, _CALLS, _OUTPUTS, _OTHERS)
    return st.lists(items.filter(_is_json), max_size=5)


def _is_json(item: Item) -> bool:
    """Whether JSON has all numbers of an item: it has no infinities, which the strategies for JSON are free to give."""
    return "Infinity" not in json.dumps(item)
