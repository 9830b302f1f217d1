"""What the operations on memory files do; plans as in `memoryd.plans`."""

import datetime
from collections.abc import Sequence

from memoryd.arguments import integer, string
from memoryd.decoding import memory_file_from_proto, memory_file_info_from_proto
from memoryd.memories import AddedEntries, MemoryFile, MemoryFileInfo
from memoryd.methods import (
    ADD_MEMORY_ENTRIES,
    APPEND_DAILY_LOG,
    DELETE_MEMORY_FILE,
    GET_MEMORY_FILE,
    LIST_MEMORY_FILE_VERSIONS,
    PUT_MEMORY_FILE,
)
from memoryd.plans import Plan, call, marked
from memoryd.v1 import memory_context_service_pb2 as pb

_NAME = "MEMORY.md"
_ENTRY = "- prefers uv over pip"


def owner(*, user: str | None, project: str | None) -> pb.MemoryOwner:
    """The owner of memory files."""
    if (user is None) == (project is None):
        raise ValueError("memory files have one owner: give either user or project")
    if user is not None:
        return pb.MemoryOwner(user_id=string(user, "user", "ana"))
    return pb.MemoryOwner(project_id=string(project or "", "project", "atlas"))


def get(owner: pb.MemoryOwner, name: str, *, version: int | None = None) -> Plan[MemoryFile]:
    """Reads a file."""
    request = pb.GetMemoryFileRequest(
        owner=owner,
        name=string(name, "name", _NAME),
        version=0 if version is None else integer(version, "version", "1 or more"),
    )
    return memory_file_from_proto((yield from call(GET_MEMORY_FILE, request)))


def put(
    owner: pb.MemoryOwner,
    content: str | bytes,
    name: str,
    *,
    etag: str | None,
    create_only: bool,
    author: str,
    allow_secrets: bool = False,
    request_id: str | None = None,
) -> Plan[MemoryFileInfo]:
    """Replaces a file, or makes it."""
    request = pb.PutMemoryFileRequest(
        owner=owner,
        name=string(name, "name", _NAME),
        content=content if isinstance(content, bytes) else string(content, "content", _ENTRY).encode(),
        author=string(author, "author", "ana"),
        etag=_etag(etag),
        create_only=create_only,
        allow_secrets=allow_secrets,
        request_id=marked(request_id),
    )
    return memory_file_info_from_proto((yield from call(PUT_MEMORY_FILE, request)).file)


def delete(owner: pb.MemoryOwner, name: str, *, etag: str | None) -> Plan[bool]:
    """Deletes a file."""
    request = pb.DeleteMemoryFileRequest(owner=owner, name=string(name, "name", _NAME), etag=_etag(etag))
    return (yield from call(DELETE_MEMORY_FILE, request)).deleted


def versions(owner: pb.MemoryOwner, name: str) -> Plan[list[MemoryFileInfo]]:
    """Lists the versions of a file."""
    request = pb.ListMemoryFileVersionsRequest(owner=owner, name=string(name, "name", _NAME))
    response = yield from call(LIST_MEMORY_FILE_VERSIONS, request)
    return list(map(memory_file_info_from_proto, response.versions))


def add(
    owner: pb.MemoryOwner,
    entries: str | Sequence[str],
    *,
    author: str,
    allow_secrets: bool = False,
    request_id: str | None = None,
) -> Plan[AddedEntries]:
    """Adds lines to an index."""
    lines = [entries] if isinstance(entries, str) else entries
    request = pb.AddMemoryEntriesRequest(
        owner=owner,
        entries=[string(line, "an entry", _ENTRY) for line in lines],
        author=string(author, "author", "ana"),
        allow_secrets=allow_secrets,
        request_id=marked(request_id),
    )
    response = yield from call(ADD_MEMORY_ENTRIES, request)
    return AddedEntries(
        file=memory_file_info_from_proto(response.file), added=response.added_count, skipped=response.skipped_count
    )


def log(
    owner: pb.MemoryOwner,
    text: str,
    *,
    date: str | datetime.date | None,
    time_zone: str = "",
    author: str,
    allow_secrets: bool = False,
    request_id: str | None = None,
) -> Plan[MemoryFileInfo]:
    """Adds text to a daily log."""
    request = pb.AppendDailyLogRequest(
        owner=owner,
        text=string(text, "text", "The API moved to cursor-based pagination."),
        date=_day(date),
        time_zone=string(time_zone, "time_zone", "Europe/Berlin"),
        author=string(author, "author", "ana"),
        allow_secrets=allow_secrets,
        request_id=marked(request_id),
    )
    return memory_file_info_from_proto((yield from call(APPEND_DAILY_LOG, request)).file)


def _day(date: str | datetime.date | None) -> str:
    if date is None:
        return ""
    if isinstance(date, datetime.date):
        return date.isoformat()[:10]  # A datetime is a date, too.
    return string(date, "date", "2026-07-25")


def _etag(etag: str | None) -> str:
    return string(etag or "", "etag", "what a file's etag holds")
