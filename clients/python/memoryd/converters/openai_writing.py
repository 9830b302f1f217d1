"""From our messages to OpenAI's chat-completions ones."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from memoryd.converters.media import base64_text, data_url, is_url, mention
from memoryd.converters.source_form import NATIVE, Form, noted, patched, read_form
from memoryd.jsontext import UNREADABLE, json_value
from memoryd.messages import Data, Media, Message, Part, Reasoning, Refusal, Role, Text, ToolCall, ToolResult

FORMAT = "openai"

AUDIO_TYPES = {"mp3": "audio/mpeg", "wav": "audio/wav"}
_AUDIO_FORMATS = {type_: format_ for format_, type_ in AUDIO_TYPES.items()}

Source = dict[str, Any]


def write_messages(messages: Iterable[Message]) -> list[Source]:
    """The OpenAI messages of ours.

    What a message says beside its results waits for the results that follow: they stand directly behind their calls.
    """
    sources: list[Source] = []
    waiting: list[Source] = []
    for message in messages:
        said = write_message(message, read_form(message.extra, FORMAT))
        results = len(message.tool_results) or int(message.role is Role.TOOL)
        if results:
            sources += said[:results]
            waiting += said[results:]
        elif said:
            sources += waiting + said
            waiting = []
    return sources + waiting


def write_message(message: Message, form: Form) -> list[Source]:
    """The OpenAI messages of ours: one as a rule, several when it answers several calls."""
    sources = written(message, form)
    if len(sources) == 1 and "patch" in form:
        return [patched(sources[0], form["patch"])]
    return sources


def written(message: Message, form: Form) -> list[Source]:
    """What is written before the form's patch."""
    results = message.tool_results
    if not results and message.role is not Role.TOOL:
        if (
            message.content
            and not form.get("reasoning")
            and all(isinstance(part, Reasoning) for part in message.content)
        ):
            return []
        return [_spoken(message.role, message.name, message.content, form)]
    rest = tuple(part for part in message.content or () if not isinstance(part, ToolResult))
    sources = [_result(result, form) for result in results]
    if not results:
        # A tool's message without a result: nothing to name a call by, but what it says is kept in its place.
        said = tuple(part for part in rest if isinstance(part, Text | Refusal | Media | Data))
        sources.append(_result(ToolResult("", parts=said), form))
    elif rest:
        sources.append(_spoken(Role.USER, message.name, rest, {}))
    return sources


def spoken_content_form(said: Sequence[Part], *, alone: bool) -> str:
    """How content is written by itself; `alone` tells that the message is there and has nothing else."""
    if not said:
        return "list" if alone else "null"
    return "text" if len(said) == 1 and isinstance(said[0], Text) else "list"


def result_content_form(parts: Sequence[Part]) -> str:
    """How a tool's content is written by itself."""
    return spoken_content_form(parts, alone=True) if parts else "text"


def _spoken(role: Role, name: str | None, content: tuple[Part, ...] | None, form: Form) -> Source:
    parts = content or ()
    source: Source = {"role": role.value}
    said = [(index, part) for index, part in enumerate(parts) if not isinstance(part, Reasoning | ToolCall)]
    refusal = None
    if role is Role.ASSISTANT and said and form.get("refusal") != "part" and isinstance(said[-1][1], Refusal):
        refusal = said.pop()[1]
    _set_content(
        source,
        [_block(part, _tag(form, index), by_user=role is Role.USER) for index, part in said],
        spoken_content_form([part for _, part in said], alone=content is not None and len(said) == len(parts)),
        form,
    )
    if name is not None:
        source["name"] = name
    if form.get("reasoning"):
        source["reasoning_content"] = "".join(part.text for part in parts if isinstance(part, Reasoning))
    if isinstance(refusal, Refusal):
        source["refusal"] = refusal.text
    calls = [part for part in parts if isinstance(part, ToolCall)]
    if calls and form.get("function_call"):
        legacy = calls.pop()
        source["function_call"] = {"name": legacy.name, "arguments": legacy.arguments}
    if calls:
        forms = noted(form, "calls")
        source["tool_calls"] = [_call(call, forms.get(str(index))) for index, call in enumerate(calls)]
    return source


def _result(result: ToolResult, form: Form) -> Source:
    source: Source = {"role": "function"} if form.get("function") else {"role": "tool", "tool_call_id": result.call_id}
    if result.name or form.get("function"):
        source["name"] = result.name
    blocks = [_block(part, _tag(form, index), by_user=False) for index, part in enumerate(result.parts)]
    _set_content(source, blocks, result_content_form(result.parts), form)
    return source


def _tag(form: Form, index: int) -> Any:
    return noted(form, "parts").get(str(index))


def _set_content(source: Source, blocks: list[Any], by_itself: str, form: Form) -> None:
    actual = form.get("content", by_itself)
    if blocks and actual in ("missing", "null"):
        actual = by_itself
    match actual:
        case "missing":
            pass
        case "null":
            source["content"] = None
        case "text":
            source["content"] = text_of_blocks(blocks)
        case _:
            source["content"] = blocks


def text_of_blocks(blocks: Iterable[Any]) -> str:
    """The texts of blocks, one after another."""
    return "".join(str(block.get("text", "")) for block in blocks if isinstance(block, Mapping))


def _block(part: Part, tag: Any, *, by_user: bool) -> Any:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Refusal(text):
            return {"type": "refusal", "refusal": text}
        case Media():
            return (media_block(part) if by_user or tag == NATIVE else None) or {"type": "text", "text": mention(part)}
        case Data(json):
            value = json_value(json) if tag == NATIVE else UNREADABLE
            return {"type": "text", "text": json} if value is UNREADABLE else value
        case _:
            raise TypeError(f"{type(part).__name__} is no part of what a message says")


def media_block(media: Media) -> Source | None:
    """The content part of media; None where chat completions have none, as for a document by URL."""
    image = media.type.startswith("image/")
    if media.data is None:
        reference = media.uri or ""
        if not is_url(reference):
            return {"type": "file", "file": {"file_id": reference}}
        return {"type": "image_url", "image_url": {"url": reference}} if image else None
    if image:
        return {"type": "image_url", "image_url": {"url": data_url(media.type, media.data)}}
    if media.type.startswith("audio/"):
        audio = _AUDIO_FORMATS.get(media.type, media.type.removeprefix("audio/"))
        return {"type": "input_audio", "input_audio": {"data": base64_text(media.data), "format": audio}}
    return {"type": "file", "file": {"file_data": data_url(media.type, media.data)}}


def _call(call: ToolCall, call_form: Any) -> Any:
    if call_form == "custom":
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    value = json_value(call.arguments) if call_form in ("object", "other") else UNREADABLE
    if call_form == "other" and value is not UNREADABLE:
        return value
    arguments = call.arguments if value is UNREADABLE else value
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
