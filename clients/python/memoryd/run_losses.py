"""How runs are lost, and how exceptions end them: what becomes of an error, in words and in status."""

from typing import Final

import grpc

from memoryd.errors import MemorydError, NotFound, RunEnded, RunLeaseLost, StepMismatch, SummarizerFailed
from memoryd.outages import PASSING
from memoryd.v1 import run_service_pb2 as pb

LOSSES: Final = (RunLeaseLost, RunEnded, NotFound)
"""Errors that say that the run is not this holder's any more, or is gone."""
_REASON_BYTES: Final = 4_096
"""The most of a reason that the server takes."""


def reason_of(error: BaseException) -> str:
    """`TypeName: message` of an exception, cut to what a reason may hold, as UTF-8 can say it; without the message
    where the exception cannot tell it.
    """
    try:
        message = str(error)
    except Exception:
        message = ""
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return text.encode(errors="replace")[:_REASON_BYTES].decode(errors="ignore")


def interrupts(error: BaseException) -> bool:
    """Whether an exception says nothing of the work itself, which another worker is to go on with: it is no Exception
    (a cancellation, KeyboardInterrupt), or it is memoryd's own of an outage, other than of a summarizer. Of a group:
    whether all of it does.
    """
    if not isinstance(error, Exception):
        return True
    if isinstance(error, ExceptionGroup):
        return all(map(interrupts, error.exceptions))
    return isinstance(error, PASSING) and not isinstance(error, SummarizerFailed)


def loss(run: pb.RunKey, failure: MemorydError | None, otherwise: str) -> RunLeaseLost:
    """The error of a holder that lost its run: it tells what the server's answer told, or `otherwise`."""
    names = _names(run)
    error = RunLeaseLost(otherwise, code=grpc.StatusCode.FAILED_PRECONDITION, reason="LEASE_LOST", metadata=names)
    if isinstance(failure, LOSSES):
        error = RunLeaseLost(
            _message(run.run_id, failure), code=error.code, reason=failure.reason, metadata=names | failure.metadata
        )
    error.__cause__ = failure
    return error


def not_given_back(run: pb.RunKey, steps: int) -> StepMismatch:
    """The error of a holder whose step was there already, without the status that was to come with it."""
    return StepMismatch(
        f"the run {run.run_id!r} is RUNNING still, and held: its step {steps} was committed before, without the new "
        "status. Set the status without a payload and messages, or with those of another step",
        code=grpc.StatusCode.ABORTED,
        reason="STEP_MISMATCH",
        metadata=_names(run) | {"number": str(steps), "step_count": str(steps)},
    )


def _names(run: pb.RunKey) -> dict[str, str]:
    return {"agent": run.session.agent, "session_id": run.session.session_id, "run_id": run.run_id}


def _message(id: str, failure: MemorydError) -> str:
    match failure:
        case RunLeaseLost():
            return failure.message
        case RunEnded():
            return (
                f"the run {id!r} is not held any more: it has ended as {failure.status.name}. Nothing was written: "
                "stop working at it"
            )
        case _:
            return f"the run {id!r} is not held any more: {failure.message}"
