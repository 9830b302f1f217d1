"""RunService."""

from __future__ import annotations

from typing import Final

from google.protobuf.duration_pb2 import Duration

from memoryd.v1 import run_service_pb2 as pb
from memoryd.v1 import run_service_pb2_grpc
from memoryd_server.engine import run_claims, run_steps, runs
from memoryd_server.engine.errors import field_required
from memoryd_server.engine.run_access import RunView
from memoryd_server.engine.run_claims import Claim
from memoryd_server.engine.run_errors import RunKey
from memoryd_server.engine.stores import Stores
from memoryd_server.interceptors.wrapping import Context
from memoryd_server.services.calls import deadline_of, runtime_of, tenant
from memoryd_server.services.message_codec import decode_duration, decode_messages, encode_appended, encode_time
from memoryd_server.services.policy_codec import mask_paths
from memoryd_server.services.session_codec import decode_key, decode_settings
from memoryd_server.stores.records import StoredStep

_STATUS: Final = "status"
_REASON: Final = "status_reason"
_METADATA: Final = "metadata"


class RunService(run_service_pb2_grpc.RunServiceServicer):
    """Keeps runs, and who holds them."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def CreateRun(self, request: pb.CreateRunRequest, context: Context) -> pb.CreateRunResponse:
        creation = runs.Creation(
            key=_decode_run(request.run),
            metadata=request.metadata,
            is_queued=request.queued,
            holder=request.holder,
            lease=_decode_lease(request),
            settings=decode_settings(request.create),
        )
        view = await runs.create(runtime_of(self._stores), creation, deadline=deadline_of(context))
        response = pb.CreateRunResponse(fence=view.fence)
        _encode(view, response.run)
        return response

    async def GetRun(self, request: pb.GetRunRequest, context: Context) -> pb.GetRunResponse:
        del context
        response = pb.GetRunResponse()
        _encode(await runs.get(runtime_of(self._stores), _decode_run(request.run)), response.run)
        return response

    async def ListRuns(self, request: pb.ListRunsRequest, context: Context) -> pb.ListRunsResponse:
        del context
        of = request.WhichOneof("of")
        if of is None:
            raise field_required("of", "the session, or the agent, whose runs are asked for")
        views, next_page_token = await runs.list_(
            runtime_of(self._stores),
            tenant(),
            session=decode_key(request.session) if of == "session" else None,
            agent=request.agent,
            statuses=request.statuses,
            page_size=request.page_size,
            page_token=request.page_token,
        )
        response = pb.ListRunsResponse(next_page_token=next_page_token)
        for view in views:
            _encode(view, response.runs.add())
        return response

    async def CommitRunStep(self, request: pb.CommitRunStepRequest, context: Context) -> pb.CommitRunStepResponse:
        commit = run_steps.StepCommit(
            key=_decode_run(request.run),
            fence=request.fence,
            number=request.number,
            payload=request.payload,
            content_type=request.content_type,
            messages=decode_messages(request.messages),
            status=request.status,
            reason=request.status_reason,
            lease=_decode_lease(request),
        )
        step = await run_steps.commit(runtime_of(self._stores), commit, deadline=deadline_of(context))
        response = pb.CommitRunStepResponse(etag=step.etag)
        response.status = step.state.status  # type: ignore[assignment]  # The values are the same.
        encode_appended(step.messages, response.messages)
        encode_time(step.created, response.create_time)
        if step.state.until:
            encode_time(step.state.until, response.lease_expire_time)
        return response

    async def ListRunSteps(self, request: pb.ListRunStepsRequest, context: Context) -> pb.ListRunStepsResponse:
        del context
        steps, next_page_token = await run_steps.list_(
            runtime_of(self._stores),
            _decode_run(request.run),
            request.after_number,
            request.page_size,
            request.page_token,
        )
        response = pb.ListRunStepsResponse(next_page_token=next_page_token)
        for step in steps:
            _encode_step(step, response.steps.add())
        return response

    async def UpdateRun(self, request: pb.UpdateRunRequest, context: Context) -> pb.UpdateRunResponse:
        run = request.run
        has = {_STATUS: bool(run.status), _REASON: bool(run.status_reason), _METADATA: run.HasField(_METADATA)}
        paths = mask_paths(request.update_mask.paths, [path for path in has if has[path]], tuple(has))
        update = runs.Update(
            key=_decode_run(run.key),
            fence=request.fence,
            etag=run.etag,
            status=run.status if _STATUS in paths else None,
            reason=run.status_reason if _REASON in paths else None,
            metadata=run.metadata if _METADATA in paths else None,
        )
        view = await runs.update(runtime_of(self._stores), update, deadline=deadline_of(context))
        response = pb.UpdateRunResponse()
        _encode(view, response.run)
        return response

    async def ClaimRun(self, request: pb.ClaimRunRequest, context: Context) -> pb.ClaimRunResponse:
        of = request.WhichOneof("of")
        if of is None:
            raise field_required("of", "the run to claim, or the agent of which to claim any")
        view = await run_claims.claim(
            runtime_of(self._stores),
            tenant(),
            Claim(request.holder, _decode_lease(request), request.request_id),
            key=_decode_run(request.run) if of == "run" else None,
            agent=request.agent,
            deadline=deadline_of(context),
        )
        response = pb.ClaimRunResponse()
        if view is not None:
            response.fence = view.fence
            _encode(view, response.run)
        return response

    async def RenewRunLease(self, request: pb.RenewRunLeaseRequest, context: Context) -> pb.RenewRunLeaseResponse:
        until = await run_claims.renew(
            runtime_of(self._stores),
            _decode_run(request.run),
            request.fence,
            _decode_lease(request),
            deadline=deadline_of(context),
        )
        response = pb.RenewRunLeaseResponse()
        encode_time(until, response.lease_expire_time)
        return response

    async def ReleaseRun(self, request: pb.ReleaseRunRequest, context: Context) -> pb.ReleaseRunResponse:
        view = await runs.release(
            runtime_of(self._stores),
            _decode_run(request.run),
            request.fence,
            request.status_reason,
            deadline=deadline_of(context),
        )
        response = pb.ReleaseRunResponse()
        _encode(view, response.run)
        return response

    async def DeleteRun(self, request: pb.DeleteRunRequest, context: Context) -> pb.DeleteRunResponse:
        del context
        return pb.DeleteRunResponse(deleted=await runs.delete(runtime_of(self._stores), _decode_run(request.run)))


def _decode_run(run: pb.RunKey) -> RunKey:
    return RunKey(decode_key(run.session), run.run_id)


def _decode_lease(
    request: pb.CreateRunRequest | pb.CommitRunStepRequest | pb.ClaimRunRequest | pb.RenewRunLeaseRequest,
) -> int | None:
    if not request.HasField("lease_duration"):
        return None
    duration: Duration = request.lease_duration
    return decode_duration("lease_duration", duration)


def _encode(view: RunView, into: pb.Run) -> None:
    head, state = view.run.head, view.run.state
    into.key.session.agent = view.key.session.agent
    into.key.session.session_id = view.key.session.session_id
    into.key.run_id = view.key.run_id
    into.status = state.status  # type: ignore[assignment]  # The values are the same.
    into.status_reason = head.reason
    into.metadata = head.metadata
    into.holder = head.holder
    into.step_count = state.steps
    into.recovery_count = state.recoveries
    if state.until:
        encode_time(state.until, into.lease_expire_time)
    encode_time(head.created, into.create_time)
    encode_time(state.updated, into.update_time)
    if state.ended:
        encode_time(state.ended, into.end_time)
    into.etag = view.etag


def _encode_step(step: StoredStep, into: pb.RunStep) -> None:
    into.number = step.number
    into.payload = step.payload
    into.content_type = step.content_type
    encode_time(step.created, into.create_time)
    into.status = step.status  # type: ignore[assignment]  # The values are the same.
    into.first_seq = step.first_seq
    into.message_count = step.messages
