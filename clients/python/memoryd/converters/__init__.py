"""Converters between memoryd's messages and those of model providers.

The way there and back loses nothing: what a Message has no field for is noted in its `extra`. A message is only read
together with the notes of the format that is written, so a conversation may come from one provider and go on with
another.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NotRequired, TypedDict

from memoryd.arguments import several
from memoryd.converters import (
    anthropic_reading,
    anthropic_writing,
    openai_reading,
    openai_writing,
    responses_reading,
    responses_writing,
)
from memoryd.converters.source_form import Dumpable
from memoryd.messages import Message, user
from memoryd.windows import Window

_MESSAGES = "a list of messages, for example [{'role': 'user', 'content': 'Hello!'}]"
_ITEMS = "text, or a list of items, for example [{'role': 'user', 'content': 'Hello!'}]"


def from_openai(messages: Iterable[Mapping[str, Any] | Dumpable]) -> list[Message]:
    """Makes one message of each chat-completions message: a dict, or an object of the library `openai`.

    Each gets a new id; `dataclasses.replace(message, id=…)` gives it another. Raises ValueError, naming the message,
    for what is not a chat-completions message, and TypeError for what is no list of them.

    >>> from_openai([{"role": "user", "content": "Hello!"}])[0].text
    'Hello!'
    """
    given = several(messages, "messages", _MESSAGES)
    return [openai_reading.read_message(source, f"messages[{index}]") for index, source in enumerate(given)]


def to_openai(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Makes chat-completions messages, ready for `client.chat.completions.create(messages=…)`. Takes a Window too.

    `to_openai(from_openai(x)) == x` for every chat-completions message, also after it was stored. What comes from
    elsewhere is said as well as chat completions can:

    - A message that answers several calls becomes several tool messages. What else it says becomes a user message
      behind them and behind the results that follow, since nothing may stand between a call and its results.
    - Reasoning is left out (with the message, when that is all of it), and so is whether a result is an error.
    - Data becomes text; media become text such as `[image/png, 2048 bytes]` outside of user messages.

    >>> from memoryd import user
    >>> to_openai([user("Hello!")])
    [{'role': 'user', 'content': 'Hello!'}]
    """
    return openai_writing.write_messages(messages)


class AnthropicPrompt(TypedDict):
    """A conversation as Anthropic's `messages.create` takes it: its arguments `system` and `messages`."""

    messages: list[dict[str, Any]]
    system: NotRequired[str | list[dict[str, Any]]]
    """Absent when there is no system prompt."""


def from_anthropic(
    messages: Iterable[Mapping[str, Any] | Dumpable], system: str | list[dict[str, Any]] | None = None
) -> list[Message]:
    """Makes one message of each Anthropic message, and a SYSTEM one of `system`.

    A message is a dict, or an object of the library `anthropic`.

    Each gets a new id; `dataclasses.replace(message, id=…)` gives it another. Raises ValueError, naming the message,
    for what is not a message of Anthropic's.

    >>> [message.role for message in from_anthropic([{"role": "user", "content": "Hello!"}], system="Be brief.")]
    [<Role.SYSTEM: 'system'>, <Role.USER: 'user'>]
    """
    opening = [] if system is None else [anthropic_reading.read_system(system)]
    return opening + anthropic_reading.read_messages(several(messages, "messages", _MESSAGES))


def to_anthropic(messages: Iterable[Message]) -> AnthropicPrompt:
    """Makes the arguments for `client.messages.create(model=…, max_tokens=…, **to_anthropic(window))`.

    Give a model the Window itself, not a list of its messages: only a Window is always made what Anthropic accepts.
    `to_anthropic(from_anthropic(**x)) == x` for every Anthropic conversation, also after it was stored (x without a
    system prompt lacks the key `system`). What comes from elsewhere is said as well as Anthropic can:

    - SYSTEM and DEVELOPER messages that open the conversation are the system prompt; later ones speak as the user.
    - The results of the calls of one turn are joined in one user message, results first, then what else was said beside
      them. In a list, what `from_anthropic` read otherwise stays as it was; in a Window it does not, since Anthropic
      refuses it.
    - Arguments that are not a JSON object become `{"arguments": "…"}`.
    - Names, thinking without a signature of Anthropic's and empty texts are left out, and so is a message that says
      nothing else.
    - Data becomes text, and so do media that Anthropic has no block for, as `[audio/wav, 2048 bytes]`.

    >>> from memoryd import system, user
    >>> to_anthropic([system("Be brief."), user("Hello!")])
    {'messages': [{'role': 'user', 'content': 'Hello!'}], 'system': 'Be brief.'}
    """
    system, sources = anthropic_writing.write_messages(messages, as_born=not isinstance(messages, Window))
    return AnthropicPrompt(messages=sources) if system is None else AnthropicPrompt(messages=sources, system=system)


def from_openai_responses(items: str | Iterable[Mapping[str, Any] | Dumpable]) -> list[Message]:
    """Makes messages of items of OpenAI's Responses: of `response.output`, or of what you gave as `input`.

    An item is a dict, or an object of the library `openai`. What the model says in a row (reasoning, text, calls)
    becomes one message, so that no window parts reasoning from what follows from it. The output of a tool is a message
    of its own. Each gets a new id. Raises ValueError, naming the item, for what is none.

    >>> from_openai_responses("Hello!")[0].text
    'Hello!'
    """
    return [user(items)] if isinstance(items, str) else responses_reading.read_items(several(items, "items", _ITEMS))


def to_openai_responses(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Makes items for `client.responses.create(input=…)`. Takes a Window too.

    Give a model the Window itself, not a list of its messages: only a Window is always made what the API accepts.
    `to_openai_responses(from_openai_responses(x)) == x` for every list of items, also after it was stored: ids, status,
    annotations, encrypted reasoning, and items of tools that nobody knew. What comes from elsewhere is said as well as
    the Responses can:

    - A message that answers several calls becomes several outputs; what else it says becomes a user message behind
      them.
    - Reasoning of other providers, names, empty texts and whether a result is an error are left out, and so is a
      message that says nothing else.
    - Data becomes text; sound, and all media of the assistant, become text such as `[audio/wav, 2048 bytes]`.
    - In a Window, an output is of the type that its call asks for, also where `tool(call.id, "…")` made it. Where that
      needs more than text (a computer's call), the two are said as a function's. Reasoning that nothing follows, and
      outputs and approvals of what the window does not show, are left out.

    >>> from memoryd import user
    >>> to_openai_responses([user("Hello!")])
    [{'role': 'user', 'content': 'Hello!'}]
    """
    return responses_writing.write_messages(messages, as_born=not isinstance(messages, Window))
