"""What commands print for programs: JSON, one value a line, in ASCII, so that no terminal sees a control code."""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import typer

from memoryd import (
    Data,
    Media,
    MemoryFileInfo,
    Message,
    Part,
    Reasoning,
    Refusal,
    RunInfo,
    RunStep,
    SessionInfo,
    StoreInfo,
    Summary,
    Text,
    ToolCall,
    ToolResult,
    WatchEvent,
    Window,
)


def print_line(value: Mapping[str, Any]) -> None:
    """Prints one JSON object on one line."""
    typer.echo(json.dumps(value))


def message_json(message: Message) -> dict[str, Any]:
    """A message with the field names of the API; each part has its kind as `type`. Empty fields are left out."""
    value: dict[str, Any] = {
        "seq": message.seq,
        "id": message.id,
        "role": message.role,
        "name": message.name,
        "create_time": _time(message.create_time),
        "token_count": message.token_count,
        "run_id": message.run_id or None,
        "metadata": message.metadata or None,
        "extra": message.extra or None,
    }
    if message.redaction is not None:
        value["redaction"] = {
            "redact_time": _time(message.redaction.redact_time),
            "reason": message.redaction.reason,
        }
    given = {name: field for name, field in value.items() if field is not None}
    return given | {"content": None if message.content is None else _parts(message.content)}


def _parts(parts: Iterable[Part]) -> list[dict[str, Any]]:
    return [_part(part) for part in parts]


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Reasoning(text, signature):
            return {"type": "reasoning", "text": text, "signature": signature}
        case Refusal(text):
            return {"type": "refusal", "text": text}
        case Media(type, uri, data, size):
            source = {"uri": uri} if data is None else {"data": base64.b64encode(data).decode()}
            return {"type": "media", "media_type": type, **source, "size": size}
        case Data(text):
            return {"type": "data", "json": text}
        case ToolCall(id, name, arguments):
            return {"type": "tool_call", "id": id, "name": name, "arguments": arguments}
        case ToolResult(call_id, name, is_error, parts):
            return {
                "type": "tool_result",
                "call_id": call_id,
                "name": name,
                "is_error": is_error,
                "parts": _parts(parts),
            }


def session_json(session: SessionInfo) -> dict[str, Any]:
    """A session's settings and counts."""
    value: dict[str, Any] = _plain(asdict(session))
    return value


def store_json(store: StoreInfo) -> dict[str, Any]:
    """A store, and what it lacks."""
    value: dict[str, Any] = _plain(asdict(store))
    return value


def summary_json(summary: Summary) -> dict[str, Any]:
    """A summary, and how it was made."""
    value: dict[str, Any] = _plain(asdict(summary))
    return value


def memory_file_json(file: MemoryFileInfo) -> dict[str, Any]:
    """What is told of a memory file, without its content."""
    return {
        "name": file.name,
        "version": file.version,
        "etag": file.etag,
        "size": file.size,
        "author": file.author,
        "create_time": _time(file.create_time),
    }


def run_json(run: RunInfo) -> dict[str, Any]:
    """A run, without its steps. Empty fields are left out where they are times."""
    value: dict[str, Any] = _plain(asdict(run))
    return value


def run_step_json(step: RunStep) -> dict[str, Any]:
    """A step with its payload: as text where it is UTF-8, else in Base64."""
    return {
        "number": step.number,
        "content_type": step.content_type,
        "size": len(step.payload),
        "create_time": _time(step.create_time),
        "first_seq": step.first_seq,
        "message_count": step.message_count,
    } | bytes_json("payload", step.payload)


def bytes_json(name: str, value: bytes) -> dict[str, str]:
    """Bytes as a field of text, or of Base64 where they are none: JSON holds text alone."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def event_json(event: WatchEvent) -> dict[str, Any]:
    """An event of a watch."""
    message = None if event.message is None else message_json(event.message)
    value: dict[str, Any] = {
        "kind": event.kind,
        "from_seq": event.from_seq,
        "to_seq": event.to_seq,
        "message": message,
        "event_time": _time(event.event_time),
        "resume_token": event.resume_token,
    }
    return {name: field for name, field in value.items() if field is not None}


def window_json(window: Window) -> dict[str, Any]:
    """A window's messages and stats."""
    return {"messages": [message_json(message) for message in window], "stats": _plain(asdict(window.stats))}


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {key: _plain(item) for key, item in value.items() if item is not None}
        case list() | tuple():
            return [_plain(item) for item in value]
        case datetime():
            return _time(value)
        case timedelta():
            return value.total_seconds()
        case bytes():
            return value.hex()
        case _:
            return value


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
