"""Hypothesis strategies for providers' messages: the shapes that have a meaning, and around them any JSON at all."""

from typing import Any

from hypothesis import strategies as st

from memoryd.converters.media import base64_text

texts = st.text(st.characters(), max_size=12) | st.sampled_from(
    ["", " ", "\x00", "\ud800", "{", "data:,", "https://e.com"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
json_values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
base64_texts = st.binary(max_size=12).map(base64_text)
more_keys = st.dictionaries(
    st.sampled_from(["id", "type", "cache_control", "index", "name", "x"]), json_values, max_size=2
)


def sometimes(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly what the strategy gives, now and then any JSON."""
    return st.one_of(strategy, strategy, strategy, json_values)


def objects(
    required: dict[str, st.SearchStrategy[Any]], optional: dict[str, st.SearchStrategy[Any]]
) -> st.SearchStrategy[Any]:
    """Objects with some keys, now and then of other types, and now and then with unknown ones."""
    keys = {key: sometimes(value) for key, value in optional.items()}
    known = st.fixed_dictionaries(required, optional=keys)
    return st.one_of(known, known, st.builds(lambda given, more: {**more, **given}, known, more_keys))


def openai_messages() -> st.SearchStrategy[dict[str, Any]]:
    """Chat-completions messages."""
    urls = st.one_of(texts, base64_texts.map(lambda data: f"data:image/png;base64,{data}"))
    parts = st.one_of(
        objects({"type": st.just("text")}, {"text": texts}),
        objects({"type": st.just("refusal")}, {"refusal": texts}),
        objects({"type": st.just("image_url")}, {"image_url": objects({}, {"url": urls, "detail": texts})}),
        objects(
            {"type": st.just("input_audio")},
            {"input_audio": objects({}, {"data": base64_texts, "format": st.sampled_from(["wav", "mp3", "mpeg"])})},
        ),
        objects(
            {"type": st.just("file")}, {"file": objects({}, {"file_data": urls, "file_id": texts, "filename": texts})}
        ),
        json_values,
    )
    content = st.none() | texts | st.lists(parts, max_size=3)
    functions = objects({}, {"name": texts, "arguments": texts})
    calls = objects(
        {},
        {
            "id": texts,
            "type": st.sampled_from(["function", "custom", "x"]),
            "function": functions,
            "custom": objects({}, {"name": texts, "input": texts}),
        },
    )
    spoken = objects(
        {"role": st.sampled_from(["system", "developer", "user", "assistant"])},
        {
            "name": texts,
            "tool_calls": st.lists(calls, max_size=3),
            "function_call": functions,
            "refusal": texts,
            "reasoning_content": texts,
        },
    )
    results = objects({"role": st.sampled_from(["tool", "function"])}, {"tool_call_id": texts, "name": texts})
    return st.builds(
        lambda message, content: {**message, **content},
        spoken | results,
        st.fixed_dictionaries({}, optional={"content": content}),
    )


def anthropic_messages() -> st.SearchStrategy[dict[str, Any]]:
    """Messages of Anthropic's API."""
    sources = objects(
        {"type": st.sampled_from(["base64", "url", "file", "text"])},
        {
            "media_type": st.sampled_from(["image/png", "application/pdf", "text/plain"]),
            "data": base64_texts,
            "url": texts,
            "file_id": texts,
        },
    )
    simple = st.one_of(
        objects({"type": st.just("text")}, {"text": texts, "citations": st.none()}),
        objects({"type": st.sampled_from(["image", "document"])}, {"source": sources, "title": texts}),
        json_values,
    )
    blocks = st.one_of(
        simple,
        objects({"type": st.just("thinking")}, {"thinking": texts, "signature": texts}),
        objects({"type": st.just("redacted_thinking")}, {"data": texts}),
        objects(
            {"type": st.just("tool_use")}, {"id": texts, "name": texts, "input": st.dictionaries(texts, json_values)}
        ),
        objects(
            {"type": st.just("tool_result")},
            {"tool_use_id": texts, "content": texts | st.lists(simple, max_size=3), "is_error": st.booleans()},
        ),
    )
    content = st.none() | texts | st.lists(blocks, max_size=4)
    return st.builds(
        lambda message, content: {**message, **content},
        objects({"role": st.sampled_from(["user", "assistant", "system"])}, {"model": texts}),
        st.fixed_dictionaries({}, optional={"content": content}),
    )
