"""From our messages to items of OpenAI's Responses."""

from collections.abc import Iterable, Sequence
from typing import Any

from memoryd.converters.media import data_url, is_url, mention
from memoryd.converters.openai_writing import text_of_blocks
from memoryd.converters.responses_pairing import paired
from memoryd.converters.source_form import NATIVE, Form, noted, patched, read_form
from memoryd.jsontext import UNREADABLE, json_value
from memoryd.messages import (
    Data,
    Media,
    Message,
    Part,
    Reasoning,
    Refusal,
    ResultPart,
    Role,
    Text,
    ToolCall,
    ToolResult,
)

FORMAT = "openai_responses"

ITEM = "item"
"""Marks an item that is kept as JSON, since our messages have no part for it."""
OTHER = "other"
"""Marks a call, or an output, whose whole item is kept as JSON."""
CUSTOM = "custom"
"""Marks a call of a custom tool, whose input is text, or its output."""
MESSAGE = "message"
"""Marks an item that is a message, although it has no part to tell it by."""
REASONING = "reasoning"
"""Marks reasoning. Without the mark it is another provider's, and left out."""

Source = dict[str, Any]


def write_messages(messages: Iterable[Message], *, as_born: bool) -> list[Source]:
    """The items of our messages. With `as_born` they stay as they came, whether or not the API would take them."""
    items = [item for message in messages for item in _items(message)]
    return items if as_born else paired(items)


def _items(message: Message) -> list[Source]:
    parts = message.content or ()
    forms = read_form(message.extra, FORMAT).get("items")
    if isinstance(forms, list) and _is_form_of(forms, parts):
        return _written(message.role, parts, forms)
    return written_by_itself(message.role, parts)


def _is_form_of(forms: Sequence[Any], parts: Sequence[Part]) -> bool:
    """Whether notes about items fit the parts: a redaction may have taken these away."""
    left = parts
    for form in forms:
        if not isinstance(form, dict):
            return False
        count = _part_count(form)
        first = left[0] if left else None
        fits = {REASONING: isinstance(first, Reasoning), ITEM: isinstance(first, Data)}
        if count > len(left) or not fits.get(str(form.get("kind")), True):
            return False
        left = left[count:]
    return not left


def _part_count(form: Form) -> int:
    count = form.get("n")
    return count if isinstance(count, int) else 1


def _written(role: Role, parts: Sequence[Part], forms: Iterable[Form]) -> list[Source]:
    """The items of a message whose form notes where each begins."""
    items: list[Source] = []
    left = parts
    for form in forms:
        count = _part_count(form)
        items.append(patched(written_item(role, left[:count], form), noted(form, "patch")))
        left = left[count:]
    return items


def written_item(role: Role, parts: Sequence[Part], form: Form) -> Source:
    """One item, before its patch."""
    kind = form.get("kind")
    match parts[0] if parts and kind != MESSAGE else None:
        case Data(json) if kind == ITEM and isinstance(value := json_value(json), dict):
            return value
        case Reasoning():
            return _reasoning([part for part in parts if isinstance(part, Reasoning)], form)
        case ToolCall() as call:
            return _call(call, kind)
        case ToolResult() as result:
            return _output(result, form)
        case _:
            return _spoken(role, parts, form)


def written_by_itself(role: Role, parts: Sequence[Part]) -> list[Source]:
    """The items of a message that did not come from the Responses."""
    if role is Role.ASSISTANT:
        items: list[Source] = []
        said: list[Part] = []
        for part in parts:
            if isinstance(part, ToolCall):
                items += [*_said(role, said), _call(part, None)]
                said = []
            else:
                said.append(part)
        return items + _said(role, said)
    outputs = [_output(part, {}) for part in parts if isinstance(part, ToolResult)]
    return outputs + _said(Role.USER if outputs or role is Role.TOOL else role, parts)


def _said(role: Role, parts: Iterable[Part]) -> list[Source]:
    """The message of what is said: none where nothing is. Reasoning of other providers is left out, and empty texts."""
    said = [part for part in _speech(parts) if not (isinstance(part, Text | Refusal) and part.text == "")]
    return [_spoken(role, said, {})] if said else []


def _speech(parts: Iterable[Part]) -> list[ResultPart]:
    return [part for part in parts if isinstance(part, Text | Refusal | Media | Data)]


def _spoken(role: Role, parts: Iterable[Part], form: Form) -> Source:
    said = _speech(parts)
    content = _content("content", said, form, content_form(said), by_assistant=role is Role.ASSISTANT)
    return {"role": role.value} | content


def content_form(parts: Sequence[Part]) -> str:
    """How the content of a message is written by itself."""
    return "text" if len(parts) == 1 and isinstance(parts[0], Text) else "list"


def output_form(parts: Sequence[Part]) -> str:
    """How the output of a tool is written by itself."""
    return content_form(parts) if parts else "text"


def _content(key: str, parts: Sequence[ResultPart], form: Form, by_itself: str, *, by_assistant: bool) -> Source:
    tags = noted(form, "parts")
    blocks = [_block(part, tags.get(str(index)), by_assistant=by_assistant) for index, part in enumerate(parts)]
    actual = form.get("content", by_itself)
    if blocks and actual in ("missing", "null"):
        actual = by_itself
    match actual:
        case "missing":
            return {}
        case "null":
            return {key: None}
        case "text":
            return {key: text_of_blocks(blocks)}
        case _:
            return {key: blocks}


def _block(part: ResultPart, tag: Any, *, by_assistant: bool) -> Any:
    text_type = "output_text" if by_assistant else "input_text"
    match part:
        case Text(text):
            return {"type": text_type, "text": text}
        case Refusal(text):
            return {"type": "refusal", "refusal": text} if by_assistant else {"type": text_type, "text": text}
        case Media():
            block = None if by_assistant else media_block(part)
            return {"type": text_type, "text": mention(part)} if block is None else block
        case Data(json):
            value = json_value(json) if tag == NATIVE else UNREADABLE
            return {"type": text_type, "text": json} if value is UNREADABLE else value


def media_block(media: Media) -> Source | None:
    """The block of media; None where the Responses have none, as for sound."""
    reference = media.uri or ""
    if media.type.startswith("image/"):
        if media.data is not None:
            return {"type": "input_image", "image_url": data_url(media.type, media.data), "detail": "auto"}
        place = {"image_url": reference} if is_url(reference) else {"file_id": reference}
        return {"type": "input_image", **place, "detail": "auto"}
    if media.type.startswith("audio/"):
        return None
    if media.data is not None:
        return {"type": "input_file", "file_data": data_url(media.type, media.data)}
    return {"type": "input_file", **({"file_url": reference} if is_url(reference) else {"file_id": reference})}


def _reasoning(parts: Sequence[Reasoning], form: Form) -> Source:
    # The last ones are the thinking itself, where a model shows it; those before are its summary.
    raw = form.get("raw")
    cut = len(parts) - (raw if isinstance(raw, int) else 0)
    summary, content = parts[:cut], parts[cut:]
    item: Source = {"type": "reasoning", "summary": []}
    if not (len(summary) == 1 and summary[0].text == ""):
        item["summary"] = [{"type": "summary_text", "text": part.text} for part in summary]
    if content:
        item["content"] = [{"type": "reasoning_text", "text": part.text} for part in content]
    if parts[0].signature:
        item["encrypted_content"] = parts[0].signature
    return item


def _call(call: ToolCall, kind: Any) -> Source:
    if kind == CUSTOM:
        return {"type": "custom_tool_call", "call_id": call.id, "name": call.name, "input": call.arguments}
    value = json_value(call.arguments) if kind == OTHER else UNREADABLE
    if isinstance(value, dict):
        return value
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}


def _output(result: ToolResult, form: Form) -> Source:
    kind = form.get("kind")
    match result.parts:
        case (Data(json), *_) if kind == OTHER and isinstance(value := json_value(json), dict):
            return value
    return {
        "type": "custom_tool_call_output" if kind == CUSTOM else "function_call_output",
        "call_id": result.call_id,
        **_content("output", result.parts, form, output_form(result.parts), by_assistant=False),
    }
