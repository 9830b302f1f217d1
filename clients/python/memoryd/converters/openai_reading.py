"""From OpenAI's chat-completions messages to ours."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from memoryd.converters.media import ANY_IMAGE, base64_bytes, data_url_media
from memoryd.converters.openai_writing import (
    AUDIO_TYPES,
    FORMAT,
    media_block,
    result_content_form,
    spoken_content_form,
    written,
)
from memoryd.converters.source_form import NATIVE, Form, difference, kept, object_of, write_form
from memoryd.jsontext import encodable, json_text
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
    "tool": Role.TOOL,
    "function": Role.TOOL,
}


def read_message(source: Any, where: str) -> Message:
    """Our message of an OpenAI one. ValueError, with `where`, for what is none."""
    source = object_of(source)
    if source is None:
        raise ValueError(f"{where} is not an object; a message is like {{'role': 'user', 'content': 'Hello!'}}")
    role = _ROLES.get(str(source.get("role")))
    if role is None:
        raise ValueError(f"{where} has the role {source.get('role')!r}; it can be one of {', '.join(_ROLES)}")
    content = source.get("content")
    if not (content is None or isinstance(content, str | list)):
        raise ValueError(f"{where} has content of type {type(content).__name__}; it can be text, an array or null")
    form: Form = {}
    try:
        if role is Role.TOOL:
            message = Message(role=role, content=(_result(source, form),))
        else:
            name = source.get("name")
            message = Message(
                role=role,
                name=kept(name) if isinstance(name, str) else None,
                content=_spoken(source, role, form),
            )
        # What the parts and the form do not say of the source is in its difference from what would be written.
        (before,) = written(message, form)
        if patch := difference(source, before):
            form["patch"] = patch
        return replace(message, extra=write_form(form, FORMAT))
    except TypeError as error:
        raise ValueError(f"{where} holds what JSON cannot ({error}); give plain data, as model_dump() does") from error


def _spoken(source: Mapping[str, Any], role: Role, form: Form) -> tuple[Part, ...] | None:
    """The parts of a message that is not a tool's: reasoning, content, refusal, calls."""
    content = source.get("content")
    by_assistant = role is Role.ASSISTANT
    reasoning = _reasoning(source, form) if by_assistant else ()
    refusal = _refusal(source) if by_assistant else ()
    calls = _calls(source, form) if by_assistant else ()
    said = _said(content, form, first=len(reasoning), by_user=role is Role.USER)
    if by_assistant and not refusal and said and isinstance(said[-1], Refusal):
        form["refusal"] = "part"
    parts = (*reasoning, *said, *refusal, *calls)
    present = bool(parts) or isinstance(content, list)
    _note_content_form(source, spoken_content_form(said, alone=present and len(parts) == len(said)), form)
    return parts if present else None


def _reasoning(source: Mapping[str, Any], form: Form) -> tuple[Reasoning, ...]:
    text = source.get("reasoning_content")
    if not isinstance(text, str):
        return ()
    form["reasoning"] = True
    return (Reasoning(kept(text)),)


def _refusal(source: Mapping[str, Any]) -> tuple[Refusal, ...]:
    text = source.get("refusal")
    return (Refusal(kept(text)),) if isinstance(text, str) else ()


def _calls(source: Mapping[str, Any], form: Form) -> tuple[ToolCall, ...]:
    entries = source.get("tool_calls")
    read = [_call(entry) for entry in entries] if isinstance(entries, list) else []
    if forms := {str(index): call_form for index, (_, call_form) in enumerate(read) if call_form}:
        form["calls"] = forms
    calls = [call for call, _ in read]
    match source.get("function_call"):
        case {"name": str(name), "arguments": str(arguments)}:
            form["function_call"] = True
            calls.append(ToolCall("", kept(name), kept(arguments)))
    return tuple(calls)


def _call(entry: Any) -> tuple[ToolCall, str | None]:
    """A call and its form: None for a function's, `object` where its arguments are not text, `custom`, or `other`."""
    call_id = kept(entry.get("id")) if isinstance(entry, Mapping) else ""
    match entry:
        case {"type": "custom", "custom": {"name": str(name), "input": str(text)}}:
            return ToolCall(call_id, kept(name), kept(text)), "custom"
        case {"function": {"name": str(name), "arguments": dict(arguments)}}:
            return ToolCall(call_id, kept(name), json_text(arguments)), "object"
        case {"function": {"name": str(name), **rest}}:
            return ToolCall(call_id, kept(name), kept(rest.get("arguments"))), None
        case {"type": str(kind)}:
            return ToolCall(call_id, kept(kind), json_text(entry)), "other"
        case _:
            return ToolCall(call_id, "unknown", json_text(entry)), "other"


def _result(source: Mapping[str, Any], form: Form) -> ToolResult:
    """The result in a message of role tool or function."""
    if source["role"] == "function":
        form["function"] = True
    parts = _said(source.get("content"), form, first=0, by_user=False)
    _note_content_form(source, result_content_form(parts), form)
    return ToolResult(kept(source.get("tool_call_id")), kept(source.get("name")), parts=parts)


def _note_content_form(source: Mapping[str, Any], by_itself: str, form: Form) -> None:
    match source:
        case {"content": str()}:
            actual = "text"
        case {"content": list()}:
            actual = "list"
        case {"content": None}:
            actual = "null"
        case _:
            actual = "missing"
    if actual != by_itself:
        form["content"] = actual


def _said(content: Any, form: Form, *, first: int, by_user: bool) -> tuple[ResultPart, ...]:
    """The parts of a message's content. The form notes those, counted from `first`, that only OpenAI says so."""
    if isinstance(content, str):
        return (Text(kept(content)),)
    parts = tuple(map(_part, content or ()))
    native = {
        str(index): NATIVE
        for index, part in enumerate(parts, first)
        if isinstance(part, Data) or (isinstance(part, Media) and not by_user)
    }
    if native:
        form["parts"] = native
    return parts


def _part(block: Any) -> ResultPart:
    match block:
        case {"type": "text", "text": str(text)}:
            return Text(kept(text))
        case {"type": "refusal", "refusal": str(text)}:
            return Refusal(kept(text))
        case _:
            # JSON is kept for what our Media would not give back as it was.
            return _media(block) or Data(json_text(block))


def _media(block: Any) -> Media | None:
    media: Media | None
    match block:
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            media = data_url_media(url) or Media(ANY_IMAGE, kept(url))
            core: Form = {"type": "image_url", "image_url": {"url": url}}
        case {"type": "input_audio", "input_audio": {"data": str(text), "format": str(audio)}}:
            data = base64_bytes(text)
            type_ = AUDIO_TYPES.get(audio, f"audio/{audio}")
            media = None if data is None or not encodable(type_) else Media(type_, data=data)
            core = {"type": "input_audio", "input_audio": {"data": text, "format": audio}}
        case {"type": "file", "file": {"file_data": str(url)}}:
            media = data_url_media(url)
            core = {"type": "file", "file": {"file_data": url}}
        case {"type": "file", "file": {"file_id": str(file_id)}}:
            media = Media(uri=kept(file_id))
            core = {"type": "file", "file": {"file_id": file_id}}
        case _:
            return None
    return media if media is not None and media.uri != "" and media_block(media) == core else None
