"""OpenAI's chat-completions messages, there and back without loss."""

from collections.abc import Iterable, Mapping
from typing import Any

from memoryd.messages import Message


def from_openai(messages: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Messages from chat-completions ones. Each gets a new id; `dataclasses.replace(message, id=…)` gives another."""
    raise NotImplementedError


def to_openai(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Chat-completions messages from messages: `to_openai(from_openai(x)) == x`. Takes a Window as well."""
    raise NotImplementedError
