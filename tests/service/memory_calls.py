"""Calls of MemoryContextService as tests make them, on the bare stubs."""

from __future__ import annotations

from typing import Any

from memoryd.v1 import memory_context_service_pb2 as memory
from tests.service.wire import Stubs

INDEX = "MEMORY.md"

Source = memory.MemorySource


def user(id_: str) -> memory.MemoryOwner:
    return memory.MemoryOwner(user_id=id_)


def project(id_: str) -> memory.MemoryOwner:
    return memory.MemoryOwner(project_id=id_)


def put(stubs: Stubs, owner: memory.MemoryOwner, content: bytes, name: str = INDEX, **fields: Any) -> memory.MemoryFile:
    request = memory.PutMemoryFileRequest(owner=owner, name=name, content=content, **fields)
    return stubs.memory.PutMemoryFile(request, timeout=30).file


def get(stubs: Stubs, owner: memory.MemoryOwner, name: str = INDEX, version: int = 0) -> memory.GetMemoryFileResponse:
    return stubs.memory.GetMemoryFile(memory.GetMemoryFileRequest(owner=owner, name=name, version=version), timeout=30)


def content_of(stubs: Stubs, owner: memory.MemoryOwner, name: str = INDEX, version: int = 0) -> bytes:
    return get(stubs, owner, name, version).content


def delete(stubs: Stubs, owner: memory.MemoryOwner, name: str = INDEX, **fields: Any) -> bool:
    return stubs.memory.DeleteMemoryFile(
        memory.DeleteMemoryFileRequest(owner=owner, name=name, **fields), timeout=30
    ).deleted


def versions(stubs: Stubs, owner: memory.MemoryOwner, name: str = INDEX) -> list[memory.MemoryFile]:
    request = memory.ListMemoryFileVersionsRequest(owner=owner, name=name)
    return list(stubs.memory.ListMemoryFileVersions(request, timeout=30).versions)


def add(stubs: Stubs, owner: memory.MemoryOwner, *entries: str, **fields: Any) -> memory.AddMemoryEntriesResponse:
    request = memory.AddMemoryEntriesRequest(owner=owner, entries=entries, **fields)
    return stubs.memory.AddMemoryEntries(request, timeout=30)


def log(stubs: Stubs, owner: memory.MemoryOwner, said: str, **fields: Any) -> memory.MemoryFile:
    request = memory.AppendDailyLogRequest(owner=owner, text=said, **fields)
    return stubs.memory.AppendDailyLog(request, timeout=30).file


def pages(stubs: Stubs, owner: memory.MemoryOwner, page_size: int = 0) -> list[list[memory.MemoryFile]]:
    """All pages of an owner's files."""
    request = memory.ListMemoryFilesRequest(owner=owner, page_size=page_size)
    found: list[list[memory.MemoryFile]] = []
    while True:
        answer = stubs.memory.ListMemoryFiles(request, timeout=30)
        found.append(list(answer.files))
        request.page_token = answer.next_page_token
        if not request.page_token:
            return found


def listed(stubs: Stubs, owner: memory.MemoryOwner) -> list[str]:
    """The names of an owner's files."""
    return [file.name for page in pages(stubs, owner) for file in page]


def render(
    stubs: Stubs, user: Source | None = None, project: Source | None = None, **fields: Any
) -> memory.RenderMemoryContextResponse:
    request = memory.RenderMemoryContextRequest(user=user, project=project, **fields)
    return stubs.memory.RenderMemoryContext(request, timeout=30)
