"""Redaction: takes a message's content away, and keeps its slot, role and call ids (invariant 11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from memoryd_server import limits
from memoryd_server.engine import changes, tokens
from memoryd_server.engine.content import Part, Reasoning, Text, ToolCall, ToolResult, decode_parts, encode_content
from memoryd_server.engine.errors import field_invalid
from memoryd_server.engine.histories import find_message
from memoryd_server.engine.incoming import check_text
from memoryd_server.engine.rewinding import read_summaries
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.steadiness import until_steady
from memoryd_server.stores.records import Redaction, SessionKey, StoredMessage

REDACTED: Final = "[REDACTED]"
"""What stands for texts, thoughts, media and data: providers refuse messages that say nothing."""

NO_ARGUMENTS: Final = "{}"
"""What stands for the arguments of a call: providers ask for JSON."""

_MESSAGE_BYTES: Final = 128
"""More than all of an encoded message but its texts and parts."""

_PART_BYTES: Final = 48
"""More than all of an encoded part but its texts, and REDACTED."""


async def redact(
    runtime: Runtime,
    key: SessionKey,
    reason: str,
    *,
    seq: int | None,
    id_: str | None,
    deadline: float | None = None,
) -> StoredMessage:
    """Redacts a message; one that is redacted already stays as it is.

    Returns: the message as it is then.
    Raises: RequestError (field errors, SESSION_NOT_FOUND, MESSAGE_NOT_FOUND, CONTENTION), StoreUnavailable.
    """
    check_text("reason", reason, limits.MAX_REASON_BYTES)
    if reason and reason.splitlines() != [reason]:
        raise field_invalid("reason", "it is one line")

    async def attempt() -> StoredMessage:
        record, message = await find_message(runtime, key, seq=seq, id_=id_)
        if message.redaction is not None:
            return message
        runtime.committer.records.put(key, record)
        count = await tokens.ready_counter(record.tokenizer)
        redacted = redacted_message(message, Redaction(runtime.clock.now(), reason), count)
        withdrawn = await read_summaries(runtime, key, record, changes.withdrawn_by_redaction(record, message))
        closed = [summary.closed_state for summary in withdrawn]
        return await runtime.committer.run(
            key,
            lambda current, _known: changes.plan_redact(current, key, record, message, redacted, closed),
            deadline=deadline,
        )

    return await until_steady(key, attempt, deadline)


def redacted_message(message: StoredMessage, redaction: Redaction, count: tokens.Count) -> StoredMessage:
    """The message without what it said."""
    parts = None if message.content is None else redacted_parts(decode_parts(message.content))
    return msgspec.structs.replace(
        message,
        name=None,
        content=encode_content(parts),
        metadata="",
        extra="",
        redaction=redaction,
        tokens=tokens.message_tokens(count, None, parts or ()),
        size=_size(message, redaction, parts or ()),
    )


def redacted_parts(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Calls and results without what they carried; one text in the place of all else. Thoughts beside other parts leave
    nothing: without their signature, a provider would not take them.
    """
    kept: list[Part] = []
    spoke = False
    for part in parts:
        match part:
            case ToolCall():
                kept.append(ToolCall(part.id, part.name, NO_ARGUMENTS))
            case ToolResult():
                kept.append(ToolResult(part.call_id, part.name, part.is_error, (Text(REDACTED),)))
            case _ if not spoke:
                spoke = True
                kept.append(Text(REDACTED))
    if spoke and len(kept) > 1 and not any(_speaks(part) for part in parts):
        kept.remove(Text(REDACTED))
    return tuple(kept)


def _speaks(part: Part) -> bool:
    return not isinstance(part, (ToolCall, ToolResult, Reasoning))


def _size(message: StoredMessage, redaction: Redaction, parts: Sequence[Part]) -> int:
    """No less than the encoded message has."""
    size = _MESSAGE_BYTES + sum(len(text.encode()) for text in (message.id, message.run_id, redaction.reason))
    for part in parts:
        size += _PART_BYTES
        match part:
            case ToolCall():
                size += len(part.id.encode()) + len(part.name.encode())
            case ToolResult():
                size += len(part.call_id.encode()) + len(part.name.encode()) + _PART_BYTES
    return size
