"""Memory in the async client: the same names and arguments as in `memoryd.memory`, where they are described.

async with AsyncMemoryClient("127.0.0.1:7600") as memory:
    context = await memory.render_context(user=UserFiles(), project=ProjectFiles("."))
    system_prompt = "You are a travel agent. " + context.prompt
"""

import builtins
import datetime
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from memoryd import memory_plans, paging
from memoryd.channel import Metadata
from memoryd.connections import AsyncConnection
from memoryd.memories import AddedEntries, MemoryFile, MemoryFileInfo
from memoryd.memory_contexts import RenderedMemory, Rendering
from memoryd.memory_sources import INDEX
from memoryd.memory_tools import ToolSet
from memoryd.v1.memory_context_service_pb2 import MemoryOwner, RenderMemoryContextResponse


class AsyncMemoryTools(ToolSet):
    """The tools with which a model reads and keeps memory in the store. Made by `AsyncMemoryClient.render_context`.

    Otherwise like `memoryd.MemoryTools`.
    """

    def __init__(
        self,
        connection: AsyncConnection,
        metadata: Metadata,
        rendering: Rendering,
        response: RenderMemoryContextResponse,
    ) -> None:
        super().__init__(response.tools, rendering.owners, rendering.agent)
        self._connection = connection
        self._metadata = metadata

    async def call(self, name: str, arguments: Mapping[str, Any] | str, *, timeout: float | None = None) -> str:
        """Carries a call of the model out, and gives the answer for it. Like `MemoryTools.call`."""
        return await self._connection.run(self._called(name, arguments), timeout, self._metadata)


class AsyncMemoryContext(RenderedMemory):
    """Memory for a prompt. Made by `AsyncMemoryClient.render_context`."""

    def __init__(
        self,
        connection: AsyncConnection,
        metadata: Metadata,
        rendering: Rendering,
        response: RenderMemoryContextResponse,
    ) -> None:
        super().__init__(response)
        self.tools = AsyncMemoryTools(connection, metadata, rendering, response)
        """The tools that the instructions name, where the store holds a tier; none where files are."""


class AsyncMemoryFiles:
    """The memory files of one owner in the store. Made by `AsyncMemoryClient.files`.

    Otherwise like `memoryd.MemoryFiles`.
    """

    def __init__(self, connection: AsyncConnection, owner: MemoryOwner) -> None:
        self._connection = connection
        self._owner = owner

    @property
    def user(self) -> str | None:
        """The user whose files they are; None for those of a project."""
        return self._owner.user_id if self._owner.HasField("user_id") else None

    @property
    def project(self) -> str | None:
        """The project whose files they are; None for those of a user."""
        return self._owner.project_id if self._owner.HasField("project_id") else None

    def __repr__(self) -> str:
        owner = f"project={self.project!r}" if self.user is None else f"user={self.user!r}"
        return f"{type(self).__name__}({owner})"

    async def get(self, name: str = INDEX, version: int | None = None, *, timeout: float | None = None) -> MemoryFile:
        """Reads a file, as it is now or as it was at a version. MemoryFileNotFound without it."""
        return await self._connection.run(memory_plans.get(self._owner, name, version=version), timeout)

    async def put(
        self,
        content: str | bytes,
        name: str = INDEX,
        *,
        etag: str | None = None,
        create_only: bool = False,
        author: str = "",
        allow_secrets: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> MemoryFileInfo:
        """Replaces a file, or makes it. Like `MemoryFiles.put`."""
        plan = memory_plans.put(
            self._owner,
            content,
            name,
            etag=etag,
            create_only=create_only,
            author=author,
            allow_secrets=allow_secrets,
            request_id=request_id,
        )
        return await self._connection.run(plan, timeout)

    def list(self, *, page_size: int = 0, timeout: float | None = None) -> AsyncIterator[MemoryFileInfo]:
        """Lists the files: the index, then the newest logs. Reads page after page."""
        return self._connection.iterate(paging.memory_file_pages(self._owner, page_size=page_size), timeout)

    async def versions(self, name: str = INDEX, *, timeout: float | None = None) -> builtins.list[MemoryFileInfo]:
        """Lists the versions of a file that are kept, at most 50, newest first. MemoryFileNotFound without the file."""
        return await self._connection.run(memory_plans.versions(self._owner, name), timeout)

    async def delete(self, name: str, etag: str | None = None, *, timeout: float | None = None) -> bool:
        """Deletes a file with all its versions, for good. Like `MemoryFiles.delete`."""
        return await self._connection.run(memory_plans.delete(self._owner, name, etag=etag), timeout)

    async def add(
        self,
        entries: str | Sequence[str],
        author: str = "",
        allow_secrets: bool = False,
        *,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AddedEntries:
        """Adds lines at the end of the index, all or none. Like `MemoryFiles.add`."""
        plan = memory_plans.add(self._owner, entries, author=author, allow_secrets=allow_secrets, request_id=request_id)
        return await self._connection.run(plan, timeout)

    async def log(
        self,
        text: str,
        date: str | datetime.date | None = None,
        time_zone: str = "",
        author: str = "",
        allow_secrets: bool = False,
        *,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> MemoryFileInfo:
        """Adds text at the end of a daily log, and gives that file. Like `MemoryFiles.log`."""
        plan = memory_plans.log(
            self._owner,
            text,
            date=date,
            time_zone=time_zone,
            author=author,
            allow_secrets=allow_secrets,
            request_id=request_id,
        )
        return await self._connection.run(plan, timeout)
