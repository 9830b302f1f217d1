"""SummaryService."""

from __future__ import annotations

from memoryd.v1 import summary_service_pb2 as pb
from memoryd.v1 import summary_service_pb2_grpc
from memoryd_server.engine import summaries
from memoryd_server.engine.errors import field_required
from memoryd_server.engine.stores import Stores
from memoryd_server.engine.summaries import LeasedTask, SummaryView
from memoryd_server.interceptors.wrapping import Context
from memoryd_server.services.calls import deadline_of, runtime_of, tenant
from memoryd_server.services.message_codec import encode_messages, encode_time
from memoryd_server.services.session_codec import decode_key


class SummaryService(summary_service_pb2_grpc.SummaryServiceServicer):
    """Makes, reads and takes back summaries, and leases them to agents' own models."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def Summarize(self, request: pb.SummarizeRequest, context: Context) -> pb.SummarizeResponse:
        view, folded = await summaries.summarize(
            runtime_of(self._stores), decode_key(request.session), deadline=deadline_of(context)
        )
        response = pb.SummarizeResponse(folded_message_count=folded)
        if view is not None:
            _encode(view, response.summary)
        return response

    async def GetSummary(self, request: pb.GetSummaryRequest, context: Context) -> pb.GetSummaryResponse:
        del context
        response = pb.GetSummaryResponse()
        view = await summaries.get(runtime_of(self._stores), decode_key(request.session), request.summary_id)
        _encode(view, response.summary)
        return response

    async def ListSummaries(self, request: pb.ListSummariesRequest, context: Context) -> pb.ListSummariesResponse:
        del context
        response = pb.ListSummariesResponse()
        for view in await summaries.list_(runtime_of(self._stores), decode_key(request.session)):
            _encode(view, response.summaries.add())
        return response

    async def RevertSummary(self, request: pb.RevertSummaryRequest, context: Context) -> pb.RevertSummaryResponse:
        view = await summaries.revert(
            runtime_of(self._stores), decode_key(request.session), request.summary_id, deadline=deadline_of(context)
        )
        response = pb.RevertSummaryResponse()
        if view is not None:
            _encode(view, response.summary)
        return response

    async def LeaseSummaryTask(
        self, request: pb.LeaseSummaryTaskRequest, context: Context
    ) -> pb.LeaseSummaryTaskResponse:
        of = request.WhichOneof("of")
        if of is None:
            raise field_required("of", "the session, or the agent, whose task is asked for")
        task = await summaries.lease_task(
            runtime_of(self._stores),
            key=decode_key(request.session) if of == "session" else None,
            tenant=tenant(),
            agent=request.agent,
            seconds=request.lease_duration.ToMilliseconds() / 1_000 if request.HasField("lease_duration") else None,
            deadline=deadline_of(context),
        )
        response = pb.LeaseSummaryTaskResponse()
        if task is not None:
            await _encode_task(task, response.task)
        return response

    async def CommitSummary(self, request: pb.CommitSummaryRequest, context: Context) -> pb.CommitSummaryResponse:
        view = await summaries.commit_task(
            runtime_of(self._stores),
            decode_key(request.session),
            request.task_token,
            request.text,
            request.model,
            deadline=deadline_of(context),
        )
        response = pb.CommitSummaryResponse()
        _encode(view, response.summary)
        return response

    async def AbandonSummaryTask(
        self, request: pb.AbandonSummaryTaskRequest, context: Context
    ) -> pb.AbandonSummaryTaskResponse:
        await summaries.abandon_task(
            runtime_of(self._stores),
            decode_key(request.session),
            request.task_token,
            failed=request.failed,
            deadline=deadline_of(context),
        )
        return pb.AbandonSummaryTaskResponse()


def _encode(view: SummaryView, into: pb.Summary) -> None:
    summary, link = view.summary, view.link
    into.id = view.id
    into.text = summary.text
    into.previous_id = view.previous_id
    into.from_seq = summary.from_seq
    into.to_seq = summary.to_seq
    into.message_count = summary.messages
    into.covered_from_seq = link.from_seq
    into.covered_message_count = link.messages
    into.summarizer = summary.summarizer
    into.model = summary.model
    into.input_token_count = summary.input_tokens
    into.output_token_count = summary.output_tokens
    encode_time(summary.created, into.create_time)
    into.duration.FromMicroseconds(summary.duration)
    into.current = view.is_current
    into.originals_removed = link.is_final


async def _encode_task(task: LeasedTask, into: pb.SummaryTask) -> None:
    into.session.agent = task.key.agent
    into.session.session_id = task.key.session_id
    into.task_token = task.token
    into.previous_summary = task.previous
    await encode_messages(task.messages, into.messages)
    into.instructions = task.instructions
    into.input = task.input
    into.target_tokens = task.target_tokens
    into.max_tokens = task.target_tokens
    encode_time(task.expires, into.expire_time)
    into.attempts = task.attempts
