"""What the operations on runs do; plans as in `memoryd.plans`.

A run's claim by name and its end are repeated here and not by the connection, since each must be looked at in between:
by reading the run, whose own tries bring the pauses.
"""

from collections.abc import Iterable
from typing import Final

from google.protobuf.field_mask_pb2 import FieldMask

from memoryd.arguments import as_json, string
from memoryd.decoding import run_info_from_proto
from memoryd.encoding import duration, message_to_proto, session_settings_to_proto
from memoryd.enums import RUN_STATUS
from memoryd.errors import RunEnded, RunLeaseLost, Unavailable
from memoryd.histories import SessionSettings
from memoryd.messages import Message
from memoryd.methods import (
    CLAIM_RUN,
    COMMIT_RUN_STEP,
    CREATE_RUN,
    DELETE_RUN,
    GET_RUN,
    RELEASE_RUN,
    RENEW_RUN_LEASE,
    UPDATE_RUN,
)
from memoryd.plans import Plan, call, paths
from memoryd.runs import Payload, RunInfo, RunStatus
from memoryd.v1 import run_service_pb2 as pb
from memoryd.v1.session_pb2 import SessionKey

TRIES: Final = 3
"""How often a run is claimed by name, or ended, while the server is unavailable. Before each further try the run is
read, which is tried again by itself, with pauses."""
_METADATA: Final = '{"goal": "book a flight"}'
_HOLDER: Final = "worker-7"


def run_key(session: SessionKey, id: str, argument: str = "id") -> pb.RunKey:
    """The key of a run. TypeError and ValueError as in `arguments`; ValueError for an empty id, in whose place the
    server would make one that the caller does not know.
    """
    if not string(id, argument, "run-7"):
        raise ValueError(f"{argument} is empty; give the run's id, for example 'run-7'")
    return pb.RunKey(session=session, run_id=id)


def creation(
    run: pb.RunKey, *, metadata: str, holder: str, lease: float, create: SessionSettings | None
) -> pb.CreateRunRequest:
    """The request for a run that its maker holds."""
    return pb.CreateRunRequest(
        run=run,
        metadata=string(metadata, "metadata", _METADATA),
        holder=string(holder, "holder", _HOLDER),
        lease_duration=duration(lease, "lease"),
        create=None if create is None else session_settings_to_proto(create),
    )


def claim(of: pb.RunKey | str, *, holder: str, lease: float, request_id: str = "") -> pb.ClaimRunRequest:
    """The request for a named run, or for any claimable one of an agent."""
    request = pb.ClaimRunRequest(
        holder=string(holder, "holder", _HOLDER), lease_duration=duration(lease, "lease"), request_id=request_id
    )
    if isinstance(of, pb.RunKey):
        request.run.CopyFrom(of)
    else:
        request.agent = string(of, "agent", "assistant")
    return request


def created(request: pb.CreateRunRequest) -> Plan[pb.CreateRunResponse]:
    """Begins a run, held by the caller."""
    return (yield from call(CREATE_RUN, request))


def claimed_by_name(request: pb.ClaimRunRequest) -> Plan[pb.ClaimRunResponse]:
    """Claims a named run. A try whose answer was lost is recognized by the request id."""
    tries_left = TRIES
    while True:
        tries_left -= 1
        try:
            return (yield from call(CLAIM_RUN, request))
        except Unavailable:
            if tries_left == 0:
                raise
        yield from call(GET_RUN, pb.GetRunRequest(run=request.run))


def claimed_of_agent(request: pb.ClaimRunRequest) -> Plan[pb.ClaimRunResponse]:
    """Claims any run of an agent; the answer has none when there is none to claim."""
    return (yield from call(CLAIM_RUN, request))


def enqueue(run: pb.RunKey, *, metadata: str, create: SessionSettings | None) -> Plan[RunInfo]:
    """Begins a run for any worker to claim."""
    request = pb.CreateRunRequest(
        run=run,
        metadata=string(metadata, "metadata", _METADATA),
        queued=True,
        create=None if create is None else session_settings_to_proto(create),
    )
    return run_info_from_proto((yield from call(CREATE_RUN, request)).run)


def get(run: pb.RunKey) -> Plan[RunInfo]:
    """Reads a run."""
    return run_info_from_proto((yield from call(GET_RUN, pb.GetRunRequest(run=run))).run)


def update(run: RunInfo, *, status: RunStatus | str | None, reason: str, metadata: str | None) -> Plan[RunInfo]:
    """Changes what is given, if the run is still as it was read."""
    if not isinstance(run, RunInfo):
        raise TypeError(f"info is of type {type(run).__name__}; give what get_run or runs told")
    chosen = None if status is None else RUN_STATUS.chosen(status, "status")
    given = paths({"status": chosen, "reason": reason or None, "metadata": metadata})
    request = pb.UpdateRunRequest(
        run=pb.Run(
            key=run_key(SessionKey(agent=run.agent, session_id=run.session_id), run.id),
            status=RUN_STATUS.number(chosen or RunStatus.UNSPECIFIED),
            status_reason=string(reason, "reason", "approved by mia"),
            metadata=None if metadata is None else string(metadata, "metadata", _METADATA),
            etag=run.etag,
        ),
        update_mask=FieldMask(paths=["status_reason" if path == "reason" else path for path in given]),
    )
    return run_info_from_proto((yield from call(UPDATE_RUN, request)).run)


def delete(run: pb.RunKey) -> Plan[bool]:
    """Deletes a run that has ended."""
    return (yield from call(DELETE_RUN, pb.DeleteRunRequest(run=run))).deleted


def step(
    run: pb.RunKey,
    fence: str,
    number: int,
    payload: Payload,
    *,
    content_type: str | None = None,
    messages: Iterable[Message],
    status: RunStatus | None = None,
    reason: str = "",
) -> Plan[tuple[pb.RunStep, RunStatus]]:
    """Commits a step, and gives it as it was committed, and how its run stands now."""
    content, its_type = encoded(payload)
    request = pb.CommitRunStepRequest(
        run=run,
        fence=fence,
        number=number,
        payload=content,
        content_type=its_type if content_type is None else string(content_type, "content_type", "application/json"),
        messages=map(message_to_proto, messages),
        status=RUN_STATUS.number(status or RunStatus.UNSPECIFIED),
        status_reason=string(reason, "reason", "the card was declined"),
    )
    response = yield from call(COMMIT_RUN_STEP, request)
    made = pb.RunStep(
        number=number,
        payload=content,
        content_type=request.content_type,
        create_time=response.create_time,
        first_seq=response.messages[0].seq if response.messages else 0,
        message_count=len(response.messages),
        status=response.status,
    )
    return made, RUN_STATUS.member_or_unspecified(response.status)


def encoded(payload: Payload) -> tuple[bytes, str]:
    """The bytes of a payload, and what they are. TypeError and ValueError for what JSON cannot hold."""
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload), ""
    if isinstance(payload, str):
        return string(payload, "payload", "Paris it is.").encode(), "text/plain; charset=utf-8"
    return as_json(payload, "payload", "bytes, text, or what JSON can say").encode(), "application/json"


def settle(run: pb.RunKey, fence: str, status: RunStatus, reason: str) -> Plan[RunStatus]:
    """Gives a held run another status, and its lease back. Tells how it stands then.

    A try whose answer was lost may have done it: the run then has the status already, and a further try is refused.
    """
    request = pb.UpdateRunRequest(
        run=pb.Run(key=run, status=RUN_STATUS.number(status), status_reason=string(reason, "reason", "no more seats")),
        update_mask=FieldMask(paths=["status", "status_reason"]),
        fence=fence,
    )
    tries_left, is_doubtful = TRIES, False
    while True:
        tries_left -= 1
        try:
            response = yield from call(UPDATE_RUN, request)
            return RUN_STATUS.member_or_unspecified(response.run.status)
        except Unavailable:
            if tries_left == 0:
                raise
            if (yield from _stands(request)):
                return status
            is_doubtful = True
        except (RunLeaseLost, RunEnded):
            if is_doubtful and (yield from _stands(request)):
                return status
            raise


def _stands(request: pb.UpdateRunRequest) -> Plan[bool]:
    """Whether a run has the status that an update gives it."""
    found = (yield from call(GET_RUN, pb.GetRunRequest(run=request.run.key))).run
    return (found.status, found.status_reason) == (request.run.status, request.run.status_reason)


def renew(run: pb.RunKey, fence: str, lease: float) -> Plan[None]:
    """Puts off the end of a lease."""
    request = pb.RenewRunLeaseRequest(run=run, fence=fence, lease_duration=duration(lease, "lease"))
    yield from call(RENEW_RUN_LEASE, request)


def release(run: pb.RunKey, fence: str, reason: str) -> Plan[RunStatus]:
    """Gives a run up, for any worker to claim. Tells how it stands then."""
    response = yield from call(RELEASE_RUN, pb.ReleaseRunRequest(run=run, fence=fence, status_reason=reason))
    return RUN_STATUS.member_or_unspecified(response.run.status)
