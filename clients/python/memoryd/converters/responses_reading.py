"""From items of OpenAI's Responses to our messages."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memoryd.converters.media import ANY_IMAGE, data_url_media
from memoryd.converters.responses_pairing import call_id_of
from memoryd.converters.responses_writing import (
    CUSTOM,
    FORMAT,
    ITEM,
    MESSAGE,
    OTHER,
    REASONING,
    Source,
    content_form,
    media_block,
    output_form,
    written_by_itself,
    written_item,
)
from memoryd.converters.source_form import NATIVE, Form, difference, kept, object_of, write_form
from memoryd.jsontext import json_text
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

_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.DEVELOPER,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
}

_MODELS_OUTPUTS = ("program_output",)
"""Outputs that the API makes itself, of items that are no calls: they are of the model's turn, as those are."""


@dataclass(frozen=True, slots=True)
class _Read:
    """An item as it was read: whose it is, its parts, and what is noted about it."""

    role: Role
    parts: tuple[Part, ...]
    form: Form


def read_items(items: Iterable[Any]) -> list[Message]:
    """Our messages of items. ValueError, naming the item, for what is none.

    What the model says in a row (reasoning, text, calls) becomes one message, so that no window parts reasoning from
    what follows from it.
    """
    turns: list[list[tuple[_Read, Source]]] = []
    for index, given in enumerate(items):
        read, source = _item(given, f"items[{index}]")
        if turns and read.role is Role.ASSISTANT and turns[-1][0][0].role is Role.ASSISTANT:
            turns[-1].append((read, source))
        else:
            turns.append([(read, source)])
    return [_message(turn) for turn in turns]


def _message(turn: Sequence[tuple[_Read, Source]]) -> Message:
    role = turn[0][0].role
    content = tuple(part for read, _ in turn for part in read.parts)
    if difference([source for _, source in turn], written_by_itself(role, content)) is None:
        return Message(role=role, content=content)
    items = [read.form if len(read.parts) == 1 else {"n": len(read.parts)} | read.form for read, _ in turn]
    return Message(role=role, content=content, extra=write_form({"items": items}, FORMAT))


def _item(given: Any, where: str) -> tuple[_Read, Source]:
    found = object_of(given)
    if found is None:
        raise ValueError(f"{where} is not an object; an item is like {{'role': 'user', 'content': 'Hello!'}}")
    try:
        # Plain data from here on, and none that the SDKs of other languages could not read.
        source: Source = json.loads(json_text(dict(found), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{where} holds what JSON cannot ({error}); give plain data, as model_dump() does") from error
    read = _read(source, where)
    if read.form.get("kind") in (ITEM, OTHER):
        return read, source
    if patch := difference(source, written_item(read.role, read.parts, read.form)):
        read.form["patch"] = patch
    return read, source


def _read(source: Source, where: str) -> _Read:
    kind = source.get("type")
    if kind == MESSAGE or ("type" not in source and "role" in source):
        return _spoken(source, where)
    if not isinstance(kind, str):
        raise ValueError(
            f"{where} has neither a type nor a role; a message is like {{'role': 'user', 'content': 'Hello!'}}"
        )
    call_id = call_id_of(source)
    if isinstance(call_id, str) and kind.endswith("_output") and kind not in _MODELS_OUTPUTS:
        return _output(source, kind, call_id)
    if isinstance(call_id, str) and kind.endswith("_call"):
        return _call(source, kind, call_id)
    reasoning = _reasoning(source) if kind == REASONING else None
    if reasoning is not None:
        return reasoning
    # An approval is what the person says; all else that has no part of its own is of the model's turn.
    role = Role.USER if kind == "mcp_approval_response" else Role.ASSISTANT
    return _Read(role, (Data(json_text(source)),), {"kind": ITEM})


def _spoken(source: Source, where: str) -> _Read:
    role = _ROLES.get(str(source.get("role")))
    if role is None:
        raise ValueError(f"{where} has the role {source.get('role')!r}; it can be one of {', '.join(_ROLES)}")
    content = source.get("content")
    if not (content is None or isinstance(content, str | list)):
        raise ValueError(f"{where} has content of type {type(content).__name__}; it can be text or an array")
    parts, form = _content(content, by_assistant=role is Role.ASSISTANT)
    actual = _content_form(source, "content")
    if actual != content_form(parts):
        form["content"] = actual
    if not parts:
        # Nothing else would tell that it is a message.
        form["kind"] = MESSAGE
    return _Read(role, parts, form)


def _content_form(source: Source, key: str) -> str:
    match source.get(key, ...):
        case str():
            return "text"
        case list():
            return "list"
        case None:
            return "null"
        case _:
            return "missing"


def _content(content: Any, *, by_assistant: bool) -> tuple[tuple[ResultPart, ...], Form]:
    """The parts of a message's content, or of a tool's output, and what is noted about them."""
    if isinstance(content, str):
        return (Text(kept(content)),), {}
    parts = tuple(_part(block, by_assistant=by_assistant) for block in content or ())
    native = {str(index): NATIVE for index, part in enumerate(parts) if isinstance(part, Data)}
    return parts, {"parts": native} if native else {}


def _part(block: Any, *, by_assistant: bool) -> ResultPart:
    match block:
        case {"type": "output_text", "text": str(text)} if by_assistant:
            return Text(kept(text))
        case {"type": "input_text", "text": str(text)} if not by_assistant:
            return Text(kept(text))
        case {"type": "refusal", "refusal": str(text)} if by_assistant:
            return Refusal(kept(text))
        case _:
            # JSON is kept for what our Media would not give back as it was.
            media = None if by_assistant else _media(block)
            return Data(json_text(block)) if media is None else media


def _media(block: Any) -> Media | None:
    media: Media | None
    match block:
        case {"type": "input_image", "image_url": str(url)}:
            media = data_url_media(url) or Media(ANY_IMAGE, kept(url))
            core = {"type": "input_image", "image_url": url, "detail": "auto"}
        case {"type": "input_image", "file_id": str(file_id)}:
            media = Media(ANY_IMAGE, kept(file_id))
            core = {"type": "input_image", "file_id": file_id, "detail": "auto"}
        case {"type": "input_file", "file_data": str(url)}:
            media = data_url_media(url)
            core = {"type": "input_file", "file_data": url}
        case {"type": "input_file", "file_url": str(url)}:
            media = Media(uri=kept(url))
            core = {"type": "input_file", "file_url": url}
        case {"type": "input_file", "file_id": str(file_id)}:
            media = Media(uri=kept(file_id))
            core = {"type": "input_file", "file_id": file_id}
        case _:
            return None
    return media if media is not None and media.uri != "" and media_block(media) == core else None


def _reasoning(source: Source) -> _Read | None:
    summary = _texts(source.get("summary"), "summary_text")
    content = _texts(source.get("content"), "reasoning_text")
    if summary is None and content is None:
        return None
    signature = kept(source.get("encrypted_content"))
    texts = [*(summary or ()), *(content or ())] or [""]
    parts = tuple(Reasoning(text, "" if index else signature) for index, text in enumerate(texts))
    form: Form = {"kind": REASONING}
    if content:
        form["raw"] = len(content)
    return _Read(Role.ASSISTANT, parts, form)


def _texts(blocks: Any, kind: str) -> list[str] | None:
    """The texts of blocks of one type; None for what is no list. What is another block is told by the patch."""
    if not isinstance(blocks, list):
        return None
    of_kind = [block for block in blocks if isinstance(block, Mapping) and block.get("type") == kind]
    return [kept(block["text"]) for block in of_kind if isinstance(block.get("text"), str)]


def _call(source: Source, kind: str, call_id: str) -> _Read:
    form: Form = {}
    match source:
        case {"type": "function_call", "name": str(name), "arguments": str(arguments)}:
            call = ToolCall(kept(call_id), kept(name), kept(arguments))
        case {"type": "custom_tool_call", "name": str(name), "input": str(text)}:
            call = ToolCall(kept(call_id), kept(name), kept(text))
            form["kind"] = CUSTOM
        case _:
            call = ToolCall(kept(call_id), kept(kind), json_text(source))
            form["kind"] = OTHER
    return _Read(Role.ASSISTANT, (call,), form)


def _output(source: Source, kind: str, call_id: str) -> _Read:
    output = source.get("output")
    if kind in ("function_call_output", "custom_tool_call_output") and isinstance(output, str | list | None):
        parts, form = _content(output, by_assistant=False)
        actual = _content_form(source, "output")
        if actual != output_form(parts):
            form["content"] = actual
        if kind == "custom_tool_call_output":
            form["kind"] = CUSTOM
    else:
        parts, form = (Data(json_text(source)),), {"kind": OTHER}
    return _Read(Role.TOOL, (ToolResult(kept(call_id), parts=parts),), form)
