"""HistoryService."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from memoryd.v1 import history_service_pb2 as pb
from memoryd.v1 import history_service_pb2_grpc
from memoryd_server.engine import erasing, forking, histories, redacting, rewinding, watching
from memoryd_server.engine.stores import Stores
from memoryd_server.interceptors.wrapping import Context
from memoryd_server.services.calls import deadline_of, runtime_of, tenant
from memoryd_server.services.message_codec import (
    decode_messages,
    decode_time,
    encode_appended,
    encode_message,
    encode_messages,
)
from memoryd_server.services.session_codec import decode_key, decode_settings, decode_update, encode_session
from memoryd_server.services.watch_codec import encode_happening


class HistoryService(history_service_pb2_grpc.HistoryServiceServicer):
    """Keeps conversations."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def AppendMessages(self, request: pb.AppendMessagesRequest, context: Context) -> pb.AppendMessagesResponse:
        append = histories.Append(
            key=decode_key(request.session),
            messages=decode_messages(request.messages),
            request_id=request.request_id,
            expected_last_seq=request.expected_last_seq if request.HasField("expected_last_seq") else None,
            settings=decode_settings(request.create),
        )
        appended = await histories.append(runtime_of(self._stores), append, deadline=deadline_of(context))
        response = pb.AppendMessagesResponse()
        encode_appended(appended, response.messages)
        return response

    async def ListMessages(self, request: pb.ListMessagesRequest, context: Context) -> pb.ListMessagesResponse:
        del context
        wanted = request.filter
        messages, next_page_token = await histories.list_messages(
            runtime_of(self._stores),
            histories.MessageList(
                key=decode_key(request.session),
                page_size=request.page_size,
                page_token=request.page_token,
                order=request.order,
                view=request.view,
                roles=frozenset(wanted.roles),
                run_id=wanted.run_id,
                from_seq=wanted.from_seq,
                to_seq=wanted.to_seq,
                from_time=decode_time("filter.from_time", wanted.from_time) if wanted.HasField("from_time") else None,
                to_time=decode_time("filter.to_time", wanted.to_time) if wanted.HasField("to_time") else None,
            ),
        )
        response = pb.ListMessagesResponse(next_page_token=next_page_token)
        await encode_messages(messages, response.messages)
        return response

    async def GetMessage(self, request: pb.GetMessageRequest, context: Context) -> pb.GetMessageResponse:
        del context
        by = request.WhichOneof("by")
        message = await histories.get_message(
            runtime_of(self._stores),
            decode_key(request.session),
            seq=request.seq if by == "seq" else None,
            id_=request.id if by == "id" else None,
        )
        response = pb.GetMessageResponse()
        encode_message(message, response.message)
        return response

    async def GetSession(self, request: pb.GetSessionRequest, context: Context) -> pb.GetSessionResponse:
        del context
        key = decode_key(request.session)
        record = await histories.get_session(runtime_of(self._stores), key)
        response = pb.GetSessionResponse()
        encode_session(key, record, response.session)
        return response

    async def ListSessions(self, request: pb.ListSessionsRequest, context: Context) -> pb.ListSessionsResponse:
        del context
        sessions, next_page_token = await histories.list_sessions(
            runtime_of(self._stores), tenant(), request.agent, request.user_id, request.page_size, request.page_token
        )
        response = pb.ListSessionsResponse(next_page_token=next_page_token)
        for key, record in sessions:
            encode_session(key, record, response.sessions.add())
        return response

    async def UpdateSession(self, request: pb.UpdateSessionRequest, context: Context) -> pb.UpdateSessionResponse:
        key = decode_key(request.session.key)
        record = await histories.update_session(
            runtime_of(self._stores), key, decode_update(request), deadline=deadline_of(context)
        )
        response = pb.UpdateSessionResponse()
        encode_session(key, record, response.session)
        return response

    async def ClearHistory(self, request: pb.ClearHistoryRequest, context: Context) -> pb.ClearHistoryResponse:
        count = await histories.clear(
            runtime_of(self._stores), decode_key(request.session), request.request_id, deadline=deadline_of(context)
        )
        return pb.ClearHistoryResponse(cleared_message_count=count)

    async def ClearAgentHistory(
        self, request: pb.ClearAgentHistoryRequest, context: Context
    ) -> pb.ClearAgentHistoryResponse:
        sessions, messages = await histories.clear_agent(
            runtime_of(self._stores), tenant(), request.agent, deadline=deadline_of(context)
        )
        return pb.ClearAgentHistoryResponse(cleared_session_count=sessions, cleared_message_count=messages)

    async def RedactMessage(self, request: pb.RedactMessageRequest, context: Context) -> pb.RedactMessageResponse:
        by = request.WhichOneof("by")
        message = await redacting.redact(
            runtime_of(self._stores),
            decode_key(request.session),
            request.reason,
            seq=request.seq if by == "seq" else None,
            id_=request.id if by == "id" else None,
            deadline=deadline_of(context),
        )
        response = pb.RedactMessageResponse()
        encode_message(message, response.message)
        return response

    async def RewindSession(self, request: pb.RewindSessionRequest, context: Context) -> pb.RewindSessionResponse:
        removed, open_calls = await rewinding.rewind(
            runtime_of(self._stores),
            decode_key(request.session),
            request.to_seq if request.HasField("to_seq") else None,
            request.expected_last_seq if request.HasField("expected_last_seq") else None,
            request.request_id,
            deadline=deadline_of(context),
        )
        return pb.RewindSessionResponse(removed_message_count=removed, open_call_count=open_calls)

    async def ForkSession(self, request: pb.ForkSessionRequest, context: Context) -> pb.ForkSessionResponse:
        fork = forking.Fork(
            source=decode_key(request.source),
            target=decode_key(request.target),
            through_seq=request.through_seq if request.HasField("through_seq") else None,
            request_id=request.request_id,
        )
        copied, last_seq = await forking.fork(runtime_of(self._stores), fork, deadline=deadline_of(context))
        return pb.ForkSessionResponse(copied_message_count=copied, last_seq=last_seq)

    async def EraseUser(self, request: pb.EraseUserRequest, context: Context) -> pb.EraseUserResponse:
        erased = await erasing.erase_user(
            runtime_of(self._stores), tenant(), request.user_id, deadline=deadline_of(context)
        )
        return pb.EraseUserResponse(
            erased_session_count=erased.sessions,
            erased_message_count=erased.rows.messages,
            erased_lookup_count=erased.rows.lookups,
            erased_memory_file_count=erased.rows.files,
            erased_run_count=erased.rows.runs,
            erased_run_step_count=erased.rows.steps,
        )

    async def WatchMessages(
        self, request: pb.WatchMessagesRequest, context: Context
    ) -> AsyncIterator[pb.WatchMessagesResponse]:
        del context
        answers = watching.watch(
            runtime_of(self._stores),
            decode_key(request.session),
            request.resume_token,
            request.after_seq if request.HasField("after_seq") else None,
        )
        async with aclosing(answers):
            async for answer in answers:
                response = pb.WatchMessagesResponse(resume_token=answer.resume_token)
                for happening in answer.happenings:
                    encode_happening(happening, response.events.add())
                yield response
