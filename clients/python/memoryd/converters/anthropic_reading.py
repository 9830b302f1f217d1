"""From Anthropic's messages to ours."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from memoryd.converters.anthropic_writing import (
    APART,
    AS_IS,
    FORMAT,
    MIXED,
    REDACTED,
    answers,
    content_form,
    is_mixed,
    media_block,
    result_content_form,
    written,
)
from memoryd.converters.media import ANY_IMAGE, base64_bytes
from memoryd.converters.source_form import NATIVE, Form, difference, kept, object_of, write_form
from memoryd.jsontext import json_text
from memoryd.messages import Data, Media, Message, Part, Reasoning, ResultPart, Role, Text, ToolCall, ToolResult

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}

Tag = str | Form | None
"""What the source form notes about a part."""


def read_system(system: Any) -> Message:
    """The SYSTEM message of a system prompt. ValueError for what is none."""
    return _read({"role": "system", "content": system}, "system", {})


def read_messages(sources: Iterable[Any]) -> list[Message]:
    """Our messages of Anthropic's. ValueError, naming the message, for what is none."""
    messages: list[Message] = []
    behind_results = False
    for index, given in enumerate(sources):
        where = f"messages[{index}]"
        source = object_of(given)
        if source is None:
            raise ValueError(f"{where} is not an object; a message is like {{'role': 'user', 'content': 'Hello!'}}")
        with_results = answers(source)
        marks = {
            "inline": source.get("role") == "system",
            APART: behind_results and with_results,
            MIXED: is_mixed(source),
        }
        messages.append(_read(source, where, {mark: True for mark, holds in marks.items() if holds}))
        behind_results = with_results
    return messages


def _read(source: Mapping[str, Any], where: str, form: Form) -> Message:
    role = _ROLES.get(str(source.get("role")))
    if role is None:
        raise ValueError(f"{where} has the role {source.get('role')!r}; it can be one of {', '.join(_ROLES)}")
    content = source.get("content")
    if not (content is None or isinstance(content, str | list)):
        raise ValueError(f"{where} has content of type {type(content).__name__}; it can be text or an array")
    try:
        parts, tags = _parts(content, role)
        if tags:
            form["parts"] = tags
        actual = _content_form(source)
        if actual != content_form(parts) or not parts:
            form["content"] = actual
        message = Message(role=role, content=None if content is None else parts)
        # What the parts and the form do not say of the source is in its difference from what would be written.
        if patch := difference(source, written(message, form)):
            form["patch"] = patch
        places = [index for index, part in enumerate(parts) if isinstance(part, ToolResult)]
        if places and form:
            form["results"] = places
        return replace(message, extra=write_form(form, FORMAT))
    except TypeError as error:
        raise ValueError(f"{where} holds what JSON cannot ({error}); give plain data, as model_dump() does") from error


def _content_form(source: Mapping[str, Any]) -> str:
    match source:
        case {"content": str()}:
            return "text"
        case {"content": list()}:
            return "list"
        case {"content": None}:
            return "null"
        case _:
            return "missing"


def _parts(content: Any, role: Role) -> tuple[tuple[Part, ...], Form]:
    """The parts of a message's content, and what is noted about them."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or ()
    read = [_part(block, role) for block in blocks]
    return tuple(part for part, _ in read), {str(index): tag for index, (_, tag) in enumerate(read) if tag}


def _part(block: Any, role: Role) -> tuple[Part, Tag]:
    match block:
        case {"type": "thinking", "thinking": str(text), **rest}:
            signature = kept(rest.get("signature"))
            return Reasoning(kept(text), signature), None if signature else NATIVE
        case {"type": "redacted_thinking", "data": str(data)}:
            return Reasoning(signature=kept(data)), REDACTED
        case {"type": "tool_use", "name": str(name), **rest} if role is Role.ASSISTANT:
            arguments = json_text(rest["input"]) if "input" in rest else ""
            call = ToolCall(kept(rest.get("id")), kept(name), arguments)
            return call, None if isinstance(rest.get("input", {}), dict) else AS_IS
        case {"type": "tool_result", **rest} if role is Role.USER and isinstance(
            rest.get("content"), str | list | None
        ):
            return _result(block)
        case _:
            return _result_part(block)


def _result(block: Mapping[str, Any]) -> tuple[ToolResult, Tag]:
    content = block.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or ()
    read = [_result_part(inner) for inner in blocks]
    parts = tuple(part for part, _ in read)
    form: Form = {}
    if tags := {str(index): tag for index, (_, tag) in enumerate(read) if tag}:
        form["parts"] = tags
    actual = _content_form(block)
    if actual != result_content_form(parts):
        form["content"] = actual
    elif actual == "text":
        # Text alone is written as it is, empty or not.
        form.pop("parts", None)
    return ToolResult(kept(block.get("tool_use_id")), is_error=block.get("is_error") is True, parts=parts), form or None


def _result_part(block: Any) -> tuple[ResultPart, Tag]:
    match block:
        case {"type": "text", "text": str(text)}:
            part = Text(kept(text))
            return part, None if part.text else NATIVE
        case _:
            # JSON is kept for what our Media would not give back as it was.
            media = _media(block)
            return (Data(json_text(block)), NATIVE) if media is None else (media, None)


def _media(block: Any) -> Media | None:
    media: Media | None
    match block:
        case {
            "type": "image" | "document" as kind,
            "source": {"type": "base64", "media_type": str(type_), "data": str(text)},
        }:
            data = base64_bytes(text)
            media = None if data is None else Media(kept(type_), data=data)
            source = {"type": "base64", "media_type": type_, "data": text}
        case {"type": "image" | "document" as kind, "source": {"type": "url", "url": str(url)}}:
            media = Media(ANY_IMAGE if kind == "image" else "", kept(url))
            source = {"type": "url", "url": url}
        case {"type": "image" | "document" as kind, "source": {"type": "file", "file_id": str(file_id)}}:
            media = Media(ANY_IMAGE if kind == "image" else "", kept(file_id))
            source = {"type": "file", "file_id": file_id}
        case _:
            return None
    core = {"type": kind, "source": source}
    return media if media is not None and media.uri != "" and media_block(media) == core else None
