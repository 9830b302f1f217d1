"""From our messages to Anthropic's."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from memoryd.converters.media import base64_text, is_url, mention
from memoryd.converters.openai_writing import text_of_blocks
from memoryd.converters.source_form import NATIVE, Form, aligned, noted, patched, read_form
from memoryd.jsontext import UNREADABLE, json_value
from memoryd.messages import Data, Media, Message, Part, Reasoning, Refusal, Role, Text, ToolCall, ToolResult

FORMAT = "anthropic"
_RESPONSES = "openai_responses"
"""The format whose reasoning has signatures that only OpenAI reads."""

REDACTED = "redacted"
"""Marks reasoning that Anthropic gave in encrypted form only."""
AS_IS = "as_is"
"""Marks a call whose input is not an object."""
APART = "apart"
"""Marks a message with results right behind another one, which Anthropic would want as one message."""
MIXED = "mixed"
"""Marks a message with results behind something else, which Anthropic would want first."""

Source = dict[str, Any]

_ROLES = {
    Role.SYSTEM: "system",
    Role.DEVELOPER: "system",
    Role.USER: "user",
    Role.ASSISTANT: "assistant",
    Role.TOOL: "user",
}


def write_messages(messages: Iterable[Message], *, as_born: bool) -> tuple[str | list[Any] | None, list[Source]]:
    """The system prompt (None without one) and the messages.

    Anthropic wants the results of a turn's calls in one message, before anything else that it says. With `as_born`, a
    conversation that came from Anthropic otherwise stays as it came.
    """
    opening: list[Source] = []
    turns: list[Source] = []
    for message in messages:
        form = aligned(read_form(message.extra, FORMAT), message.content or ())
        before = written(message, form)
        if before is None:
            continue
        source = patched(before, noted(form, "patch"))
        if message.role not in (Role.SYSTEM, Role.DEVELOPER) or form.get("inline"):
            if not (as_born and form.get(MIXED)):
                source = _results_first(source)
            if turns and answers(turns[-1]) and answers(source) and not (as_born and form.get(APART)):
                turns[-1] = _joined(turns[-1], source)
            else:
                turns.append(source)
        elif not turns:
            opening.append(source)
        else:
            turns.append(source | {"role": "user"})
    return _system(opening), turns


def answers(source: Mapping[str, Any]) -> bool:
    """Whether a message of Anthropic's holds results of calls."""
    content = source.get("content")
    return source.get("role") == "user" and isinstance(content, list) and any(map(_is_result, content))


def is_mixed(source: Mapping[str, Any]) -> bool:
    """Whether a message of Anthropic's holds results behind something else."""
    return answers(source) and _results_first(source)["content"] != source["content"]


def _system(opening: Sequence[Source]) -> str | list[Any] | None:
    contents = [source["content"] for source in opening]
    if len(contents) < 2:
        return contents[0] if contents else None
    return [block for content in contents for block in _as_blocks(content)]


def _joined(first: Source, second: Source) -> Source:
    return _results_first(first | second | {"content": [*first["content"], *second["content"]]})


def _results_first(source: Mapping[str, Any]) -> Source:
    if not answers(source):
        return dict(source)
    return dict(source) | {"content": sorted(source["content"], key=lambda block: not _is_result(block))}


def _is_result(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _as_blocks(content: str | list[Any]) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def content_form(parts: Sequence[Part]) -> str:
    """How a message's content is written by itself."""
    return "text" if len(parts) == 1 and isinstance(parts[0], Text) else "list"


def result_content_form(parts: Sequence[Part]) -> str:
    """How a result's content is written by itself."""
    return content_form(parts) if parts else "missing"


def written(message: Message, form: Form) -> Source | None:
    """What is written before the form's patch; None for a message that says nothing that Anthropic takes."""
    parts = message.content or ()
    blocks = _blocks(parts, noted(form, "parts"), by_responses=_is_of_responses(message))
    if not blocks and "content" not in form:
        return None
    return {"role": _ROLES[message.role]} | _content(blocks, form.get("content"), content_form(parts))


def _is_of_responses(message: Message) -> bool:
    """Whether the signatures of a message's reasoning are OpenAI's, which Anthropic refuses."""
    forms = json_value(message.extra) if message.extra else None
    return isinstance(forms, dict) and _RESPONSES in forms and FORMAT not in forms


def _blocks(parts: Iterable[Part], tags: Mapping[str, Any], *, by_responses: bool = False) -> list[Any]:
    tagged = [(part, tags.get(str(index))) for index, part in enumerate(parts)]
    return [_block(part, tag) for part, tag in tagged if tag or not _is_refused(part, by_responses=by_responses)]


def _is_refused(part: Part, *, by_responses: bool) -> bool:
    """Whether Anthropic refuses the block of a part: empty text, and thinking without its own signature."""
    match part:
        case Text("") | Refusal("") | Reasoning(_, ""):
            return True
        case Reasoning():
            return by_responses
        case _:
            return False


def _content(blocks: list[Any], actual: Any, by_itself: str) -> Source:
    if actual is None or (blocks and actual in ("missing", "null")):
        actual = by_itself
    match actual:
        case "missing":
            return {}
        case "null":
            return {"content": None}
        case "text":
            return {"content": text_of_blocks(blocks)}
        case _:
            return {"content": blocks}


def _block(part: Part, tag: Any) -> Any:
    match part:
        case Text(text) | Refusal(text):
            return {"type": "text", "text": text}
        case Reasoning(_, signature) if tag == REDACTED:
            return {"type": "redacted_thinking", "data": signature}
        case Reasoning(text, signature):
            return {"type": "thinking", "thinking": text, "signature": signature}
        case Media():
            return media_block(part) or {"type": "text", "text": mention(part)}
        case Data(json):
            value = json_value(json) if tag == NATIVE else UNREADABLE
            return {"type": "text", "text": json} if value is UNREADABLE else value
        case ToolCall(call_id, name, arguments):
            return {"type": "tool_use", "id": call_id, "name": name, "input": _input(arguments, tag)}
        case ToolResult():
            return _result(part, tag if isinstance(tag, dict) else {})


def _input(arguments: str, tag: Any) -> Any:
    value = json_value(arguments) if arguments else {}
    if isinstance(value, dict) or (tag == AS_IS and value is not UNREADABLE):
        return value
    return {"arguments": arguments}


def _result(result: ToolResult, form: Form) -> Source:
    source: Source = {"type": "tool_result", "tool_use_id": result.call_id}
    by_itself = result_content_form(result.parts)
    if by_itself == "text" and "content" not in form:
        source["content"] = result.text
    else:
        source |= _content(_blocks(result.parts, noted(form, "parts")), form.get("content"), by_itself)
    return source | {"is_error": True} if result.is_error else source


def media_block(media: Media) -> Source | None:
    """The block of media; None where Anthropic has none, as for sound."""
    image = media.type.startswith("image/")
    if media.data is None:
        reference = media.uri or ""
        source = {"type": "url", "url": reference} if is_url(reference) else {"type": "file", "file_id": reference}
        return {"type": "image" if image else "document", "source": source}
    if image or media.type == "application/pdf":
        source = {"type": "base64", "media_type": media.type, "data": base64_text(media.data)}
        return {"type": "image" if image else "document", "source": source}
    return None
