"""Messages, what they are made of, and the functions that make them.

>>> from memoryd import assistant, call, system, tool, user
>>> weather = call("get_weather", {"city": "Oslo"})
>>> conversation = [
...     system("You are a helpful assistant."),
...     user("How is the weather in Oslo?"),
...     assistant(tool_calls=[weather]),
...     tool(weather.id, "4 degrees, light rain"),
...     assistant("It is 4 degrees in Oslo, with light rain."),
... ]
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from memoryd.arguments import as_json, kind_of
from memoryd.ids import new_id


class Role(StrEnum):
    """Who speaks in a message."""

    SYSTEM = "system"
    """Instructions of the application. SYSTEM and DEVELOPER messages that open a history are pinned in windows."""
    DEVELOPER = "developer"
    """Instructions of the developer, as newer OpenAI models call the system role."""
    USER = "user"
    """The person, or whatever takes the person's part."""
    ASSISTANT = "assistant"
    """The model."""
    TOOL = "tool"
    """The results of tool calls."""


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text. May hold any character, U+0000 included."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The model's thinking."""

    text: str = ""
    """The thinking as text; empty when the provider shows only a signature."""
    signature: str = ""
    """The provider's opaque proof of the thinking, or its encrypted form. Not counted in tokens."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The model's refusal to answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Media:
    """An image, a sound, a file: by reference (`uri`) or in place (`data`), never both.

    Raises ValueError when both or none of the two are given.
    """

    type: str = ""
    """The IANA media type, for example `image/png`; empty when it is not known."""
    uri: str | None = None
    """A reference that the server never follows: a URL or a provider's file id."""
    data: bytes | None = None
    """The bytes themselves. They count towards the message's 2 MiB."""
    size: int = 0
    """The size in bytes as the caller knows it; 0 when unknown."""

    def __post_init__(self) -> None:
        if (self.uri is None) == (self.data is None):
            raise ValueError("a Media part needs exactly one of uri and data")


@dataclass(frozen=True, slots=True)
class Data:
    """Structured data as JSON text, kept byte for byte."""

    json: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool by the model. Only in messages of role ASSISTANT."""

    id: str
    """The id that the call's result names. May be empty, as some providers send it."""
    name: str
    arguments: str = ""
    """The arguments as the model wrote them: JSON text as a rule, but invalid JSON is kept too."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The answer to a tool call. In messages of role TOOL or USER."""

    call_id: str
    """The id of the call that this answers: the newest unanswered call with this id."""
    name: str = ""
    """The tool's name, where the provider repeats it."""
    is_error: bool = False
    """Whether the tool failed."""
    parts: tuple["ResultPart", ...] = ()
    """What the tool said."""

    @property
    def text(self) -> str:
        """The texts of the result, one after another."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


ResultPart = Text | Refusal | Media | Data
"""What a tool result may hold."""

Part = Text | Reasoning | Refusal | Media | Data | ToolCall | ToolResult
"""What a message may hold."""


@dataclass(frozen=True, slots=True)
class Redaction:
    """The trace that a redaction leaves in a message."""

    redact_time: datetime
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One immutable entry of a history.

    A message gets its `id` when it is made, so appending the same object again, after a lost answer for instance,
    stores it once. To say the same thing twice, make two messages. Two messages are equal when they say the same: `id`
    and what the server adds (`seq`, `create_time`, `token_count`, `redaction`) are not compared.
    """

    role: Role
    content: tuple[Part, ...] | None = None
    """The parts in order. None (a provider's null content) and empty differ, and both come back as sent."""
    name: str | None = None
    """The speaker's name. None and empty differ. At most 256 bytes."""
    run_id: str = ""
    """The run that made the message; empty outside of runs."""
    metadata: str = ""
    """JSON text of your own data about the message, kept byte for byte and never read by the server. At most 64 KiB."""
    extra: str = ""
    """JSON text of what a provider's format holds beyond these fields; the converters write and read it."""
    id: str = field(default_factory=new_id, compare=False)
    """Unique in the session: 1 to 256 bytes of UTF-8 without U+0000."""
    seq: int = field(default=0, compare=False)
    """The message's place in its session, from 1. Given by the server; 0 on a message that is not stored."""
    create_time: datetime | None = field(default=None, compare=False)
    """When the server stored the message, in UTC."""
    token_count: int = field(default=0, compare=False)
    """The message's price in tokens of the session's tokenizer. Given by the server."""
    redaction: Redaction | None = field(default=None, compare=False)
    """Set when the message's content was taken away on request."""

    @property
    def text(self) -> str:
        """The texts of the message, one after another; those inside of tool results are left out."""
        return "".join(part.text for part in self.content or () if isinstance(part, Text))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls of the message, in order."""
        return tuple(part for part in self.content or () if isinstance(part, ToolCall))

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """The results of the message, in order."""
        return tuple(part for part in self.content or () if isinstance(part, ToolResult))


def system(
    content: str | Sequence[Part] | None, *, name: str | None = None, metadata: Mapping[str, object] | str = ""
) -> Message:
    """Makes a message of role SYSTEM. `content` is text, a sequence of parts, or None for absent content."""
    return _message(Role.SYSTEM, content, name, metadata)


def developer(
    content: str | Sequence[Part] | None, *, name: str | None = None, metadata: Mapping[str, object] | str = ""
) -> Message:
    """Makes a message of role DEVELOPER. `content` is text, a sequence of parts, or None for absent content."""
    return _message(Role.DEVELOPER, content, name, metadata)


def user(
    content: str | Sequence[Part] | None, *, name: str | None = None, metadata: Mapping[str, object] | str = ""
) -> Message:
    """Makes a message of role USER. `content` is text, a sequence of parts, or None for absent content."""
    return _message(Role.USER, content, name, metadata)


def assistant(
    content: str | Sequence[Part] | None = None,
    *,
    tool_calls: Iterable[ToolCall] = (),
    name: str | None = None,
    metadata: Mapping[str, object] | str = "",
) -> Message:
    """Makes a message of role ASSISTANT.

    `content` is text, a sequence of parts, or None for absent content; the calls follow it. Where thinking, text and
    calls mix, give all of them in `content`.
    """
    calls: tuple[ToolCall, ...] = _listed(
        tool_calls, "tool_calls", "a list, for example [call('get_weather', {'city': 'Oslo'})]"
    )
    parts = _parts(content)
    return _message(Role.ASSISTANT, (*(parts or ()), *calls) if calls else parts, name, metadata)


def tool(
    call_id: str,
    content: str | Sequence[ResultPart],
    *,
    name: str = "",
    is_error: bool = False,
    metadata: Mapping[str, object] | str = "",
) -> Message:
    """Makes a message of role TOOL that answers the call with the id `call_id`. `name` is the tool's name."""
    parts: tuple[ResultPart, ...] = (
        (Text(content),)
        if isinstance(content, str)
        else _listed(content, "content", "the result as text, or a list of parts such as [Text('4 degrees')]")
    )
    return _message(Role.TOOL, (ToolResult(call_id, name, is_error, parts),), None, metadata)


def call(name: str, arguments: Mapping[str, object] | str = "{}", *, id: str | None = None) -> ToolCall:
    """Makes a tool call, with an id when none is given. A mapping of arguments becomes JSON text; text stays."""
    return ToolCall(f"call_{new_id()}" if id is None else id, name, _json_text(arguments, "arguments"))


def _message(
    role: Role, content: str | Sequence[Part] | None, name: str | None, metadata: Mapping[str, object] | str
) -> Message:
    return Message(role=role, content=_parts(content), name=name, metadata=_json_text(metadata, "metadata"))


def _parts(content: str | Sequence[Part] | None) -> tuple[Part, ...] | None:
    if isinstance(content, str):
        return (Text(content),)
    if content is None:
        return None
    return _listed(content, "content", "text, or a list of parts such as [Text('Hello!')]")


def _listed(items: Any, argument: str, wanted: str) -> tuple[Any, ...]:
    """The items as a tuple. TypeError as in `_listing`."""
    return tuple(_listing(items, argument, wanted))


def several(messages: Message | Iterable[Message]) -> Iterable[Message]:
    """What a caller gives as `messages`: one message, or any number, not read yet. TypeError for what is neither."""
    if isinstance(messages, Message):
        return (messages,)
    return _listing(messages, "messages", "a list of messages, for example [user('Hello!')]")


def _listing(items: Any, argument: str, wanted: str) -> Iterable[Any]:
    """The items. TypeError for what is no list of them: a mapping and bytes can be iterated over too."""
    if not isinstance(items, Iterable) or isinstance(items, str | bytes | Mapping):
        raise TypeError(f"{argument} is {kind_of(items)}; give {wanted}")
    listing: Iterable[Any] = items
    return listing


def _json_text(value: Mapping[str, object] | str, argument: str) -> str:
    if isinstance(value, str):
        return value
    return as_json(value, argument, "a mapping of what JSON can say, or JSON as text")
