"""MemoryContextService."""

from __future__ import annotations

from typing import Final

from memoryd.v1 import memory_context_service_pb2 as pb
from memoryd.v1 import memory_context_service_pb2_grpc
from memoryd_server.engine import memory_contexts, memory_files
from memoryd_server.engine.errors import field_required
from memoryd_server.engine.memory_guide import INDEX
from memoryd_server.engine.memory_writes import Write
from memoryd_server.engine.rendering import TierStatus
from memoryd_server.engine.stores import Stores
from memoryd_server.interceptors.wrapping import Context
from memoryd_server.services.calls import deadline_of, runtime_of, tenant
from memoryd_server.services.message_codec import encode_time
from memoryd_server.stores.records import FileKey, FileOwner, FileVersion, Tier

_TIERS: Final = {"user_id": Tier.USER, "project_id": Tier.PROJECT}


class MemoryContextService(memory_context_service_pb2_grpc.MemoryContextServiceServicer):
    """Renders memory and keeps memory files."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def RenderMemoryContext(
        self, request: pb.RenderMemoryContextRequest, context: Context
    ) -> pb.RenderMemoryContextResponse:
        del context
        sources = {}
        if request.HasField("user"):
            sources[Tier.USER] = _decode_source(request.user)
        if request.HasField("project"):
            sources[Tier.PROJECT] = _decode_source(request.project)
        wanted = memory_contexts.ContextRequest(request.agent, sources, request.budget, request.style)
        rendered = await memory_contexts.render_context(runtime_of(self._stores), tenant(), wanted)
        if rendered is None:
            return pb.RenderMemoryContextResponse(state=pb.MEMORY_CONTEXT_STATE_DISABLED)
        response = pb.RenderMemoryContextResponse(
            state=pb.MEMORY_CONTEXT_STATE_ENABLED,
            block=rendered.block,
            instructions=rendered.instructions,
            warnings=rendered.warnings,
        )
        _encode_status(rendered.statuses[Tier.USER], response.user)
        _encode_status(rendered.statuses[Tier.PROJECT], response.project)
        for tool in rendered.tools:
            response.tools.add(name=tool.name, description=tool.description, input_schema=tool.input_schema)
        return response

    async def GetMemoryFile(self, request: pb.GetMemoryFileRequest, context: Context) -> pb.GetMemoryFileResponse:
        del context
        file = await memory_files.get(
            runtime_of(self._stores), _decode_key(request.owner, request.name), request.version
        )
        response = pb.GetMemoryFileResponse(content=file.content)
        _encode_file(request.name, file.version, response.file)
        return response

    async def PutMemoryFile(self, request: pb.PutMemoryFileRequest, context: Context) -> pb.PutMemoryFileResponse:
        version = await memory_files.put(
            runtime_of(self._stores),
            _decode_write(request, request.name),
            request.content,
            etag=request.etag,
            create_only=request.create_only,
            deadline=deadline_of(context),
        )
        response = pb.PutMemoryFileResponse()
        _encode_file(request.name, version, response.file)
        return response

    async def ListMemoryFiles(self, request: pb.ListMemoryFilesRequest, context: Context) -> pb.ListMemoryFilesResponse:
        del context
        files, next_page_token = await memory_files.list_(
            runtime_of(self._stores), _decode_owner(request.owner), request.page_size, request.page_token
        )
        response = pb.ListMemoryFilesResponse(next_page_token=next_page_token)
        for name, version in files:
            _encode_file(name, version, response.files.add())
        return response

    async def DeleteMemoryFile(
        self, request: pb.DeleteMemoryFileRequest, context: Context
    ) -> pb.DeleteMemoryFileResponse:
        deleted = await memory_files.delete(
            runtime_of(self._stores),
            _decode_key(request.owner, request.name),
            etag=request.etag,
            deadline=deadline_of(context),
        )
        return pb.DeleteMemoryFileResponse(deleted=deleted)

    async def ListMemoryFileVersions(
        self, request: pb.ListMemoryFileVersionsRequest, context: Context
    ) -> pb.ListMemoryFileVersionsResponse:
        del context
        response = pb.ListMemoryFileVersionsResponse()
        key = _decode_key(request.owner, request.name)
        for version in await memory_files.list_versions(runtime_of(self._stores), key):
            _encode_file(request.name, version, response.versions.add())
        return response

    async def AddMemoryEntries(
        self, request: pb.AddMemoryEntriesRequest, context: Context
    ) -> pb.AddMemoryEntriesResponse:
        written = await memory_files.add_entries(
            runtime_of(self._stores),
            _decode_write(request, INDEX),
            list(request.entries),
            deadline=deadline_of(context),
        )
        response = pb.AddMemoryEntriesResponse(
            added_count=written.added, skipped_count=len(request.entries) - written.added
        )
        _encode_file(INDEX, written.version, response.file)
        return response

    async def AppendDailyLog(self, request: pb.AppendDailyLogRequest, context: Context) -> pb.AppendDailyLogResponse:
        name, version = await memory_files.append_log(
            runtime_of(self._stores),
            _decode_write(request, ""),
            request.text,
            day=request.date,
            time_zone=request.time_zone,
            deadline=deadline_of(context),
        )
        response = pb.AppendDailyLogResponse()
        _encode_file(name, version, response.file)
        return response


def _decode_source(source: pb.MemorySource) -> memory_contexts.TierSource:
    match source.WhichOneof("source"):
        case "stored":
            return memory_contexts.TierSource(source.stored, source.label)
        case "text":
            return memory_contexts.TierSource(None, source.label, source.text)
        case "data":
            return memory_contexts.TierSource(None, source.label, source.data)
        case "unreadable":
            return memory_contexts.TierSource(None, source.label, None, source.unreadable or "for an unknown reason")
    return memory_contexts.TierSource(None, source.label)


def _decode_owner(owner: pb.MemoryOwner) -> FileOwner:
    of = owner.WhichOneof("owner")
    if of is None:
        raise field_required("owner", "a user_id or a project_id")
    return FileOwner(tenant(), _TIERS[of], owner.user_id if of == "user_id" else owner.project_id)


def _decode_key(owner: pb.MemoryOwner, name: str) -> FileKey:
    return FileKey(_decode_owner(owner), name)


def _decode_write(
    request: pb.PutMemoryFileRequest | pb.AddMemoryEntriesRequest | pb.AppendDailyLogRequest, name: str
) -> Write:
    return Write(_decode_key(request.owner, name), request.author, request.allow_secrets, request.request_id)


def _encode_status(status: TierStatus, into: pb.MemoryTierStatus) -> None:
    into.state = pb.MemoryTierState.ValueType(status.state)
    into.kept_line_count = status.kept
    into.dropped_line_count = status.dropped


def _encode_file(name: str, version: FileVersion, into: pb.MemoryFile) -> None:
    into.name = name
    into.version = version.version
    into.etag = memory_files.etag_of(version)
    into.size = version.size
    into.author = version.author
    encode_time(version.created, into.create_time)
