"""Calls of RunService as tests make them, on the bare stubs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask

from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import message_pb2 as messages
from memoryd.v1 import run_service_pb2 as pb
from memoryd.v1 import session_pb2 as session
from tests.service.wire import Stubs

RUNNING: Final = pb.RUN_STATUS_RUNNING
INTERRUPTED: Final = pb.RUN_STATUS_INTERRUPTED
AWAITING_APPROVAL: Final = pb.RUN_STATUS_AWAITING_APPROVAL
AWAITING_BUDGET: Final = pb.RUN_STATUS_AWAITING_BUDGET
COMPLETED: Final = pb.RUN_STATUS_COMPLETED
FAILED: Final = pb.RUN_STATUS_FAILED
CANCELLED: Final = pb.RUN_STATUS_CANCELLED

UNFINISHED: Final = (RUNNING, INTERRUPTED, AWAITING_APPROVAL, AWAITING_BUDGET)

SHORTEST: Final = Duration(seconds=1)
"""A lease that a test can wait for."""
LONG: Final = Duration(seconds=600)
"""A lease that no test outlives."""

Status: TypeAlias = pb.RunStatus.ValueType


def run_of(key: session.SessionKey, run_id: str = "run") -> pb.RunKey:
    return pb.RunKey(session=key, run_id=run_id)


def create(stubs: Stubs, run: pb.RunKey, **fields: Any) -> pb.CreateRunResponse:
    """Begins a run, with a long lease unless the fields say otherwise."""
    request = pb.CreateRunRequest(run=run, **{"lease_duration": LONG} | fields)
    return stubs.runs.CreateRun(request, timeout=30)


def get(stubs: Stubs, run: pb.RunKey) -> pb.Run:
    return stubs.runs.GetRun(pb.GetRunRequest(run=run), timeout=30).run


def claim(stubs: Stubs, of: pb.RunKey | str, **fields: Any) -> pb.ClaimRunResponse:
    """Claims a run by its name, or any one of an agent."""
    named: dict[str, Any] = {"agent": of} if isinstance(of, str) else {"run": of}
    request = pb.ClaimRunRequest(**{"lease_duration": LONG} | named | fields)
    return stubs.runs.ClaimRun(request, timeout=30)


def step(
    stubs: Stubs, run: pb.RunKey, fence: str, number: int, payload: bytes = b"", *said: messages.Message, **fields: Any
) -> pb.CommitRunStepResponse:
    request = pb.CommitRunStepRequest(run=run, fence=fence, number=number, payload=payload, messages=said, **fields)
    return stubs.runs.CommitRunStep(request, timeout=30)


def renew(stubs: Stubs, run: pb.RunKey, fence: str, **fields: Any) -> pb.RenewRunLeaseResponse:
    request = pb.RenewRunLeaseRequest(run=run, fence=fence, **{"lease_duration": LONG} | fields)
    return stubs.runs.RenewRunLease(request, timeout=30)


def release(stubs: Stubs, run: pb.RunKey, fence: str, **fields: Any) -> pb.Run:
    return stubs.runs.ReleaseRun(pb.ReleaseRunRequest(run=run, fence=fence, **fields), timeout=30).run


def update(stubs: Stubs, changed: pb.Run, *paths: str, fence: str = "") -> pb.Run:
    """Changes what the paths name; without any, what is set."""
    request = pb.UpdateRunRequest(run=changed, update_mask=FieldMask(paths=paths), fence=fence)
    return stubs.runs.UpdateRun(request, timeout=30).run


def delete(stubs: Stubs, run: pb.RunKey) -> bool:
    return stubs.runs.DeleteRun(pb.DeleteRunRequest(run=run), timeout=30).deleted


def step_pages(stubs: Stubs, run: pb.RunKey, after: int = 0, page_size: int = 0) -> list[list[pb.RunStep]]:
    """All pages of a run's steps."""
    request = pb.ListRunStepsRequest(run=run, after_number=after, page_size=page_size)
    pages: list[list[pb.RunStep]] = []
    while True:
        answer = stubs.runs.ListRunSteps(request, timeout=30)
        pages.append(list(answer.steps))
        request.page_token = answer.next_page_token
        if not request.page_token:
            return pages


def steps(stubs: Stubs, run: pb.RunKey, after: int = 0) -> list[pb.RunStep]:
    return [each for page in step_pages(stubs, run, after) for each in page]


def run_pages(
    stubs: Stubs, of: session.SessionKey | str, statuses: Sequence[Status] = (), page_size: int = 0
) -> list[list[pb.Run]]:
    """All pages of the runs of a session or of an agent."""
    named: dict[str, Any] = {"agent": of} if isinstance(of, str) else {"session": of}
    request = pb.ListRunsRequest(**named, statuses=statuses, page_size=page_size)
    pages: list[list[pb.Run]] = []
    while True:
        answer = stubs.runs.ListRuns(request, timeout=30)
        pages.append(list(answer.runs))
        request.page_token = answer.next_page_token
        if not request.page_token:
            return pages


def runs(stubs: Stubs, of: session.SessionKey | str, *statuses: Status) -> list[pb.Run]:
    return [each for page in run_pages(stubs, of, statuses) for each in page]


def all_of(stubs: Stubs, key: session.SessionKey) -> list[bytes]:
    """All that can be read of a session and its runs, byte for byte: what a refused call must leave as it is."""
    found = runs(stubs, key)
    told = [stubs.session(key), *found, *(each for run in found for each in steps(stubs, run.key))]
    told += stubs.messages(key, view=history.MESSAGE_VIEW_ALL, page_size=1_000)
    return [each.SerializeToString(deterministic=True) for each in told]
