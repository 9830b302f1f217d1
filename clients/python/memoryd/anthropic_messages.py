"""Anthropic's Messages API, there and back without loss."""

from collections.abc import Iterable, Mapping
from typing import Any, NotRequired, TypedDict

from memoryd.messages import Message


class AnthropicPrompt(TypedDict):
    """The two arguments of Anthropic's `messages.create` that hold a conversation."""

    system: NotRequired[str | list[dict[str, Any]]]
    """The system prompt; absent when there is none."""
    messages: list[dict[str, Any]]


def from_anthropic(
    messages: Iterable[Mapping[str, Any]], system: str | Iterable[Mapping[str, Any]] | None = None
) -> list[Message]:
    """Messages from Anthropic ones; a system prompt becomes a SYSTEM message in front."""
    raise NotImplementedError


def to_anthropic(messages: Iterable[Message]) -> AnthropicPrompt:
    """The arguments for Anthropic's `messages.create`: `client.messages.create(…, **to_anthropic(window))`."""
    raise NotImplementedError
