"""Memory in the sync client: rendered for a prompt, as tools for the model, and its files in the store.

>>> from memoryd import MemoryClient, ProjectFiles, UserFiles
>>> with MemoryClient("127.0.0.1:7600") as memory:
...     context = memory.render_context(user=UserFiles(), project=ProjectFiles("."))
...     system_prompt = "You are a travel agent. " + context.prompt
"""

import builtins
import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memoryd import memory_plans, paging
from memoryd.channel import Metadata
from memoryd.connections import Connection
from memoryd.memories import AddedEntries, MemoryFile, MemoryFileInfo
from memoryd.memory_contexts import RenderedMemory, Rendering
from memoryd.memory_sources import INDEX
from memoryd.memory_tools import ToolSet
from memoryd.v1.memory_context_service_pb2 import MemoryOwner, RenderMemoryContextResponse


class MemoryTools(ToolSet):
    """The tools with which a model reads and keeps memory in the store. Made by `MemoryClient.render_context`.

    >>> for called in answer.choices[0].message.tool_calls or ():
    ...     if called.function.name in context.tools.names:
    ...         result = context.tools.call(called.function.name, called.function.arguments)
    ...         messages.append({"role": "tool", "tool_call_id": called.id, "content": result})

    They are false when there are none. All calls go to the store that the client used when memory was rendered.
    """

    def __init__(
        self,
        connection: Connection,
        metadata: Metadata,
        rendering: Rendering,
        response: RenderMemoryContextResponse,
    ) -> None:
        super().__init__(response.tools, rendering.owners, rendering.agent)
        self._connection = connection
        self._metadata = metadata

    def call(self, name: str, arguments: Mapping[str, Any] | str, *, timeout: float | None = None) -> str:
        """Carries a call of the model out, and gives the answer for it: the content of a tool result.

        What the model did wrong is in the answer, which then begins with `Error:`; so is a credential, told by line and
        kind. What fails for other reasons raises: an Unavailable, say.

        Args:
            name: The name of the tool.
            arguments: What the model gave: JSON text (OpenAI) or the object (Anthropic).
            timeout: The seconds that it may take, retries included; None for the client's.
        """
        return self._connection.run(self._called(name, arguments), timeout, self._metadata)


class MemoryContext(RenderedMemory):
    """Memory for a prompt. Made by `MemoryClient.render_context`."""

    def __init__(
        self,
        connection: Connection,
        metadata: Metadata,
        rendering: Rendering,
        response: RenderMemoryContextResponse,
    ) -> None:
        super().__init__(response)
        self.tools = MemoryTools(connection, metadata, rendering, response)
        """The tools that the instructions name, where the store holds a tier; none where files are."""


class MemoryFiles:
    """The memory files of one owner in the store. Made by `MemoryClient.files`; nothing of it needs to exist.

    A file is `MEMORY.md` (the index, which is rendered) or the log of a day, `YYYY-MM-DD.md`. Each write makes a new
    version, of which the last 50 are kept.

    >>> files = memory.files(user="ana")
    >>> files.add(["- prefers uv over pip", "- lives in Oslo"]).added
    2
    >>> files.log("Moved the API to cursor-based pagination.", time_zone="Europe/Oslo").name
    '2026-07-25.md'

    A text that holds a credential is SecretFound, with its line and kind, and not written; `allow_secrets` overrides
    that where it is none. All writes but `delete` are tried again by themselves, and made once.
    """

    def __init__(self, connection: Connection, owner: MemoryOwner) -> None:
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

    def get(self, name: str = INDEX, version: int | None = None, *, timeout: float | None = None) -> MemoryFile:
        """Reads a file, as it is now or as it was at a version. MemoryFileNotFound without it."""
        return self._connection.run(memory_plans.get(self._owner, name, version=version), timeout)

    def put(
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
        """Replaces a file, or makes it. Nothing is written when it has this content already.

        Args:
            content: The whole file, at most 1 MiB. Bytes are kept as they are.
            name: Which file.
            etag: Replace it only if it is still the one with this etag (from `get`, say), else EtagMismatch.
            create_only: Make it only if there is none, else EtagMismatch. Not together with an etag.
            author: Who writes it, at most 256 bytes; told in the versions.
            allow_secrets: Store text in which credentials were found.
            request_id: A mark of this request, at most 256 bytes: a repeat with it writes nothing, and the first answer
                comes again. Without one, the SDK makes one for each call.
            timeout: The seconds that it may take, retries included; None for the client's.
        """
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
        return self._connection.run(plan, timeout)

    def list(self, *, page_size: int = 0, timeout: float | None = None) -> Iterator[MemoryFileInfo]:
        """Lists the files: the index, then the newest logs. Reads page after page."""
        return self._connection.iterate(paging.memory_file_pages(self._owner, page_size=page_size), timeout)

    def versions(self, name: str = INDEX, *, timeout: float | None = None) -> builtins.list[MemoryFileInfo]:
        """Lists the versions of a file that are kept, at most 50, newest first. MemoryFileNotFound without the file."""
        return self._connection.run(memory_plans.versions(self._owner, name), timeout)

    def delete(self, name: str, etag: str | None = None, *, timeout: float | None = None) -> bool:
        """Deletes a file with all its versions, for good, and tells whether there was one. Not tried again by itself.

        With an etag only if it is still the one that has it, else EtagMismatch.
        """
        return self._connection.run(memory_plans.delete(self._owner, name, etag=etag), timeout)

    def add(
        self,
        entries: str | Sequence[str],
        author: str = "",
        allow_secrets: bool = False,
        *,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AddedEntries:
        """Adds lines at the end of the index, all or none, and makes it if there is none. Lines that it holds already
        are skipped.

        Calls at once do not overwrite each other. MemoryFileFull when it would be over 1 MiB.

        Args:
            entries: One line, or 1 to 256, as they shall stand in the file, each at most 4 KiB.
            author: Who writes them, at most 256 bytes; told in the versions.
            allow_secrets: Store entries in which credentials were found.
            request_id: As in `put`.
            timeout: The seconds that it may take, retries included; None for the client's.
        """
        plan = memory_plans.add(self._owner, entries, author=author, allow_secrets=allow_secrets, request_id=request_id)
        return self._connection.run(plan, timeout)

    def log(
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
        """Adds text at the end of a daily log, and makes it if there is none; gives that file.

        Calls at once do not overwrite each other. MemoryFileFull when it would be over 1 MiB.

        Args:
            text: Any number of lines.
            date: The day, as `YYYY-MM-DD` or as a date. None for today in the time zone.
            time_zone: Which day is today, by the name of a zone such as `Europe/Berlin`; empty for UTC. Not together
                with a date.
            author: Who writes it, at most 256 bytes; told in the versions.
            allow_secrets: Store a text in which credentials were found.
            request_id: As in `put`.
            timeout: The seconds that it may take, retries included; None for the client's.
        """
        plan = memory_plans.log(
            self._owner,
            text,
            date=date,
            time_zone=time_zone,
            author=author,
            allow_secrets=allow_secrets,
            request_id=request_id,
        )
        return self._connection.run(plan, timeout)
