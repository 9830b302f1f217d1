"""Converters between memoryd's messages and those of model providers.

The way there and back loses nothing: what a Message has no field for is noted in its `extra`. A message is only read
together with the notes of the format that is written, so a conversation may come from one provider and go on with
another.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NotRequired, TypedDict

from memoryd.converters import anthropic_reading, anthropic_writing, openai_reading, openai_writing
from memoryd.messages import Message
from memoryd.windows import Window


def from_openai(messages: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Makes one message of each chat-completions message (a dict, as `model_dump()` gives it).

    Each gets a new id; `dataclasses.replace(message, id=…)` gives it another. Raises ValueError, naming the message,
    for what is not a chat-completions message.

    >>> from_openai([{"role": "user", "content": "Hello!"}])[0].text
    'Hello!'
    """
    return [openai_reading.read_message(source, f"messages[{index}]") for index, source in enumerate(messages)]


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
    messages: Iterable[Mapping[str, Any]], system: str | list[dict[str, Any]] | None = None
) -> list[Message]:
    """Makes one message of each Anthropic message (a dict, as `model_dump()` gives it), and a SYSTEM one of `system`.

    Each gets a new id; `dataclasses.replace(message, id=…)` gives it another. Raises ValueError, naming the message,
    for what is not a message of Anthropic's.

    >>> [message.role for message in from_anthropic([{"role": "user", "content": "Hello!"}], system="Be brief.")]
    [<Role.SYSTEM: 'system'>, <Role.USER: 'user'>]
    """
    opening = [] if system is None else [anthropic_reading.read_system(system)]
    return opening + anthropic_reading.read_messages(messages)


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
    - Names, thinking without a signature and empty texts are left out, and so is a message that says nothing else.
    - Data becomes text, and so do media that Anthropic has no block for, as `[audio/wav, 2048 bytes]`.

    >>> from memoryd import system, user
    >>> to_anthropic([system("Be brief."), user("Hello!")])
    {'messages': [{'role': 'user', 'content': 'Hello!'}], 'system': 'Be brief.'}
    """
    system, sources = anthropic_writing.write_messages(messages, as_born=not isinstance(messages, Window))
    return AnthropicPrompt(messages=sources) if system is None else AnthropicPrompt(messages=sources, system=system)
