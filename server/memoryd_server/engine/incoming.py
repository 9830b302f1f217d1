"""Messages as a caller sends them, and what they must be like (design section 3, Limits)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from memoryd_server import limits
from memoryd_server.engine.content import Media, Part, ToolCall, ToolResult
from memoryd_server.engine.errors import RequestError, field_invalid, field_required, field_too_large
from memoryd_server.stores.records import Role, SessionKey


class IncomingMessage(msgspec.Struct, frozen=True):
    """A message to append."""

    id: str
    """Empty when the server shall make one."""
    role: int
    name: str | None
    parts: tuple[Part, ...] | None
    run_id: str
    metadata: str
    extra: str
    size: int
    """Bytes of the encoded protocol message, with room for what the server adds."""
    memory_removed: bool = False
    """Whether rendered memory was cut out of it (`memory_blocks`)."""


def check_text(field: str, value: str, limit: int, *, required: bool = False, what: str = "a name") -> None:
    """A key or name: at most `limit` bytes of UTF-8, without U+0000."""
    if not value:
        if required:
            raise field_required(field, f"{what} of 1 to {limit} bytes")
        return
    if len(value) * 4 > limit and (size := len(value.encode())) > limit:
        raise field_too_large(field, size, limit, "bytes", "use a shorter one")
    if "\0" in value:
        raise field_invalid(field, "it holds the character U+0000; leave that out")


def check_key(key: SessionKey, field: str = "session") -> None:
    """The name of a session."""
    check_text(f"{field}.agent", key.agent, limits.MAX_ID_BYTES, required=True, what="the agent's name")
    check_text(f"{field}.session_id", key.session_id, limits.MAX_ID_BYTES, required=True, what="the session's id")


def check_agent(agent: str, field: str = "agent") -> None:
    """The name of an agent; an empty one is never "all"."""
    check_text(field, agent, limits.MAX_ID_BYTES, required=True, what="the agent's name")


def check_labels(field: str, labels: Mapping[str, str]) -> None:
    """Labels: few, short, one line each."""
    if len(labels) > limits.MAX_LABELS:
        raise field_too_large(field, len(labels), limits.MAX_LABELS, "labels", "use fewer")
    for name, value in labels.items():
        check_text(f"{field}[{name!r}]", name, limits.MAX_LABEL_BYTES, required=True, what="a key")
        check_text(f"{field}[{name!r}]", value, limits.MAX_LABEL_BYTES)
        if any(text and text.splitlines() != [text] for text in (name, value)):
            raise field_invalid(f"{field}[{name!r}]", "keys and values of labels are one line each")


def check_ttl(field: str, microseconds: int) -> None:
    """A session's time to live; 0 for ever."""
    least, most = limits.MIN_TTL_SECONDS, limits.MAX_TTL_SECONDS
    if microseconds and not least * 1_000_000 <= microseconds <= most * 1_000_000:
        raise field_invalid(field, f"it is {least} to {most:,} seconds; leave it out for a session without an end")


def check_batch(messages: Sequence[IncomingMessage], carrier: str = "append") -> None:
    """The messages that a call brings at once. `carrier`: what people call that which carries them."""
    if not messages:
        raise field_required("messages", f"1 to {limits.MAX_APPEND_MESSAGES} messages")
    if len(messages) > limits.MAX_APPEND_MESSAGES:
        raise field_too_large(
            "messages", len(messages), limits.MAX_APPEND_MESSAGES, "messages", f"send them in several {carrier}s"
        )
    ids: set[str] = set()
    total = 0
    for index, message in enumerate(messages):
        _check_message(f"messages[{index}]", message)
        total += message.size
        if message.id:
            if message.id in ids:
                raise field_invalid(f"messages[{index}].id", f"another message of this {carrier} has the same id")
            ids.add(message.id)
    if total > limits.MAX_APPEND_BYTES:
        raise field_too_large("messages", total, limits.MAX_APPEND_BYTES, "bytes", f"send them in several {carrier}s")


def _check_message(field: str, message: IncomingMessage) -> None:
    if message.size > limits.MAX_MESSAGE_BYTES:
        raise field_too_large(
            field, message.size, limits.MAX_MESSAGE_BYTES, "bytes", "keep large content elsewhere and send its URI"
        )
    check_text(f"{field}.id", message.id, limits.MAX_ID_BYTES)
    check_text(f"{field}.run_id", message.run_id, limits.MAX_ID_BYTES)
    if message.name is not None:
        check_text(f"{field}.name", message.name, limits.MAX_NAME_BYTES)
    if len(message.metadata) > limits.MAX_METADATA_BYTES // 4:
        size = len(message.metadata.encode())
        if size > limits.MAX_METADATA_BYTES:
            raise field_too_large(f"{field}.metadata", size, limits.MAX_METADATA_BYTES, "bytes", "store a reference")
    if message.role not in Role.__members__.values():
        roles = ", ".join(role.name for role in Role)
        raise field_invalid(f"{field}.role", f"{message.role} is not a role; use one of {roles}")
    has_result = False
    for index, part in enumerate(message.parts or ()):
        place = f"{field}.content.parts[{index}]"
        match part:
            case ToolCall():
                if message.role != Role.ASSISTANT:
                    raise field_invalid(f"{place}.tool_call", "only ASSISTANT messages make calls")
                check_text(f"{place}.tool_call.id", part.id, limits.MAX_ID_BYTES)
            case ToolResult():
                has_result = True
                if message.role not in (Role.TOOL, Role.USER):
                    raise field_invalid(f"{place}.tool_result", "only TOOL and USER messages carry results")
                check_text(f"{place}.tool_result.call_id", part.call_id, limits.MAX_ID_BYTES)
                for inner_index, inner in enumerate(part.parts):
                    if isinstance(inner, Media):
                        _check_media(f"{place}.tool_result.parts[{inner_index}].media", inner)
            case Media():
                _check_media(f"{place}.media", part)
    if message.role == Role.TOOL and not has_result:
        raise field_invalid(f"{field}.content", "a TOOL message needs a tool_result part that names its call")


def _check_media(field: str, media: Media) -> None:
    if media.uri is None and media.data is None:
        raise field_required(field, "a uri or data")
    if media.size < 0:
        raise field_invalid(f"{field}.size", "a size is 0 or more bytes")


__all__ = [
    "IncomingMessage",
    "RequestError",
    "check_agent",
    "check_batch",
    "check_key",
    "check_labels",
    "check_text",
    "check_ttl",
]
