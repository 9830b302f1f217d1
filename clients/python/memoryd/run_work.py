"""Runs that are worked at, free of any way to make calls: what a holder knows of its run and its lease, and what
becomes of them.
"""

import os
import random
import socket
import time
from collections.abc import Iterable
from enum import Enum
from typing import Final, Generic, TypeVar

from memoryd import run_plans
from memoryd.decoding import run_step_from_proto
from memoryd.enums import RUN_STATUS
from memoryd.errors import MemorydError, RunLeaseLost
from memoryd.messages import Message, several
from memoryd.paging import run_step_pages
from memoryd.plans import Plan
from memoryd.run_losses import LOSSES, interrupts, loss, not_given_back, reason_of
from memoryd.runs import Payload, RunStatus, RunStep
from memoryd.v1 import run_service_pb2 as pb

DEFAULT_LEASE: Final = 30.0
"""Seconds for which a run is held unless its lease is renewed."""
DRAIN_SECONDS: Final = 10.0
"""What recording how a run stands may take while an exception or a cancellation waits for it; otherwise its lease ends
by itself."""
_LEAST_SECONDS: Final = 0.001
"""What recording may take when the lease is over: it fails then, with DeadlineExceeded or by the server's word."""
_LONGEST_RETRY: Final = 1.0
"""Seconds, at most, before a renewal that failed is tried again; a tenth of the lease where that is less."""
_HOLDER_BYTES: Final = 256
"""The most of a holder's name that the server takes."""

_AWAITING: Final = (RunStatus.AWAITING_APPROVAL, RunStatus.AWAITING_BUDGET, RunStatus.INTERRUPTED)
_ENDED: Final = (
    RunStatus.COMPLETED,
    RunStatus.BLOCKED,
    RunStatus.FAILED,
    RunStatus.CANCELLED,
    RunStatus.TIMEOUT,
    RunStatus.ABANDONED,
)

Result = TypeVar("Result")
SomeSession = TypeVar("SomeSession")


class Phase(Enum):
    """How a run stands to its holder."""

    NEW = "new"
    """It is not begun or claimed yet."""
    HELD = "held"
    """It is held, as far as is known."""
    GIVEN_BACK = "given back"
    """It was paused, ended or left by this holder."""
    RELEASED = "released"
    """It was left to others without this holder's doing: its client was closed, or nobody entered it."""
    LOST = "lost"
    """It is not this holder's any more."""


def holder_name(given: str | None) -> str:
    """Who holds a run, for people to read: machine and process where the caller names nobody."""
    return f"{socket.gethostname()}:{os.getpid()}"[-_HOLDER_BYTES:] if given is None else given


class HeldRun(Generic[SomeSession]):
    """What both clients' runs hold, and the plans of what they do."""

    def __init__(self, session: SomeSession, beginning: pb.CreateRunRequest | pb.ClaimRunRequest) -> None:
        self.session = session
        """The session whose messages the run produces."""
        self.id = beginning.run.run_id
        """The run's id, unique within its session."""
        self.holder = beginning.holder
        """Who holds it, for people to read."""
        self.metadata = beginning.metadata if isinstance(beginning, pb.CreateRunRequest) else ""
        """The caller's own data; of a claimed run, once it is entered."""
        self.status = RunStatus.UNSPECIFIED
        """How it stood when the server last answered a change by this holder; UNSPECIFIED before it is entered."""
        self.steps = 0
        """How many steps are committed, as far as this holder knows."""
        self.fence = ""
        """Proves that the run is held. Of two fences of a session's life, the later one is greater, so that other
        systems can tell a late write too; a session that begins anew, after an erasure for instance, begins its fences
        anew. Empty before it is entered."""
        self._beginning = beginning
        self._key = beginning.run
        self._lease = beginning.lease_duration.ToTimedelta().total_seconds()
        self._until = 0.0
        self._phase = Phase.NEW
        self._is_giving_back = False
        self._failure: MemorydError | None = None
        self._entered = False

    @property
    def is_held(self) -> bool:
        """Whether the run is still this holder's, by this machine's clock and what the server last answered."""
        return self._phase is Phase.HELD and time.monotonic() < self._until

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(agent={self._key.session.agent!r}, session_id={self._key.session.session_id!r}, "
            f"id={self.id!r}, status={self.status.value!r}, steps={self.steps})"
        )

    def _take_hold(self, response: pb.CreateRunResponse | pb.ClaimRunResponse, since: float) -> None:
        """Takes note of a lease that was asked for at `since`, so that it lasts no longer here than in the store."""
        run = response.run
        self.status = RUN_STATUS.member_or_unspecified(run.status)
        self.steps = run.step_count
        self.metadata = run.metadata
        self.fence = response.fence
        self._until = since + self._lease
        self._phase = Phase.HELD

    def _begun(self) -> Plan[None]:
        since = time.monotonic()
        response: pb.CreateRunResponse | pb.ClaimRunResponse
        if isinstance(self._beginning, pb.CreateRunRequest):
            response = yield from run_plans.created(self._beginning)
        else:
            response = yield from run_plans.claimed_by_name(self._beginning)
        self._take_hold(response, since)

    def _check_enterable(self) -> None:
        if self._entered:
            raise RuntimeError(f"{self!r} was entered before; claim it to go on")
        if self._phase is Phase.RELEASED:
            raise RuntimeError(
                f"{self!r} was released, since it was not entered in its turn of the loop: enter it in the loop's body"
            )
        if self._phase is not Phase.NEW:
            self._check()

    def _check(self) -> None:
        """Raises when the run is not to be worked at."""
        if self._phase is Phase.NEW:
            raise RuntimeError(f"{self!r} is not held yet: enter it first")
        if self._phase is Phase.GIVEN_BACK:
            raise RuntimeError(f"{self!r} was given back; claim it to go on")
        if not self.is_held:
            self._lose(self._failure)
            raise self._loss()

    def _lose(self, failure: MemorydError | None) -> None:
        if self._phase is Phase.HELD:
            self._phase = Phase.LOST
            self._failure = failure

    def _loss(self) -> RunLeaseLost:
        if self._phase is Phase.RELEASED:
            return loss(
                self._key,
                None,
                f"the run {self.id!r} is not held any more: its client was closed, which left it to other workers, and "
                "it is not recorded as completed. Claim it to go on; close the client behind the block",
            )
        return loss(
            self._key,
            self._failure,
            f"the lease of the run {self.id!r} is over: none of its renewals got through within {self._lease:g} s. "
            "Stop working at it; claim it to go on",
        )

    def _while_held(self, plan: Plan[Result]) -> Plan[Result]:
        """Does what only the holder may do. RunLeaseLost from then on, when that is not this one."""
        self._check()
        try:
            return (yield from plan)
        except LOSSES as error:
            self._lose(error)
            raise self._loss() from error

    def _stepped(
        self, payload: Payload, messages: Message | Iterable[Message], content_type: str | None
    ) -> Plan[RunStep]:
        return self._while_held(self._committed(payload, tuple(several(messages)), content_type=content_type))

    def _committed(
        self,
        payload: Payload,
        messages: Iterable[Message],
        *,
        content_type: str | None = None,
        status: RunStatus | None = None,
        reason: str = "",
    ) -> Plan[RunStep]:
        made, self.status = yield from run_plans.step(
            self._key,
            self.fence,
            self.steps + 1,
            payload,
            content_type=content_type,
            messages=messages,
            status=status,
            reason=reason,
        )
        self.steps = made.number
        return run_step_from_proto(made)

    def _resumed(self) -> Plan[RunStep | None]:
        return self._while_held(self._last_step())

    def _last_step(self) -> Plan[RunStep | None]:
        """Reads the last step, also one that was committed by a try whose answer was lost."""
        last: RunStep | None = None
        pages = run_step_pages(self._key, after=max(0, self.steps - 1), page_size=0)
        while pages.left:
            for step in (yield from pages.next_page()):
                last = step
        if last is not None:
            self.steps = last.number
        return last

    def _paused(
        self, status: RunStatus | str, payload: Payload, reason: str, messages: Message | Iterable[Message]
    ) -> Plan[None]:
        chosen = RUN_STATUS.chosen(status, "status")
        if chosen not in _AWAITING:
            raise ValueError(f"status is {chosen.value!r}, with which no run waits; `finish` ends it")
        return self._with_status(chosen, payload, reason, messages)

    def _finished(
        self, status: RunStatus | str, reason: str, payload: Payload, messages: Message | Iterable[Message]
    ) -> Plan[None]:
        chosen = RUN_STATUS.chosen(status, "status")
        if chosen not in _ENDED:
            raise ValueError(f"status is {chosen.value!r}, with which no run ends; `pause` gives it back unfinished")
        return self._with_status(chosen, payload, reason, messages)

    def _with_status(
        self, status: RunStatus, payload: Payload, reason: str, messages: Message | Iterable[Message]
    ) -> Plan[None]:
        """Sets the status, in the commit of a step where there is something to keep in one."""
        produced = tuple(several(messages))
        if payload is None and not produced:
            yield from self._given_back(self._settled(run_plans.settle(self._key, self.fence, status, reason)))
        else:
            content = b"" if payload is None else payload
            yield from self._given_back(self._committed(content, produced, status=status, reason=reason))

    def _released(self, reason: str) -> Plan[None]:
        yield from self._given_back(self._settled(run_plans.release(self._key, self.fence, reason)))

    def _settled(self, plan: Plan[RunStatus]) -> Plan[None]:
        self.status = yield from plan

    def _given_back(self, plan: Plan[object]) -> Plan[None]:
        """Gives the lease back with what the plan does, unless the answer tells that the run is this holder's still."""
        self._is_giving_back = True
        try:
            yield from self._while_held(plan)
            if self.status is RunStatus.RUNNING and (yield from self._is_still_this_holders()):
                raise not_given_back(self._key, self.steps)
        finally:
            self._is_giving_back = False
        self._phase = Phase.GIVEN_BACK

    def _is_still_this_holders(self) -> Plan[bool]:
        """Whether a run is RUNNING because it was not given back, and not by another's claim after it was."""
        try:
            yield from self._renewed()
        except LOSSES:
            return False
        return True

    def _abandoned(self) -> Plan[None]:
        """Leaves a held run to other workers. It is not held from then on, also where the server does not hear of that:
        nobody renews the lease any more.
        """
        is_held = self._phase is Phase.HELD
        if is_held:
            try:
                yield from self._released("")
                self._phase = Phase.RELEASED
            finally:
                if self._phase is Phase.HELD:
                    self._phase = Phase.RELEASED

    def _left(self, error: BaseException | None) -> Plan[None] | None:
        """Records how its block was left. None when there is nothing to record. Raises RunLeaseLost for a block that
        was left as if nothing had happened although the run was lost, or released when its client was closed.
        """
        if error is None and self._phase in (Phase.LOST, Phase.RELEASED):
            raise self._loss()
        if self._phase is not Phase.HELD:
            return None
        if error is None:
            return self._with_status(RunStatus.COMPLETED, None, "", ())
        if interrupts(error):
            return self._released(reason_of(error))
        return self._with_status(RunStatus.FAILED, None, reason_of(error), ())

    def _recording_seconds(self, error: BaseException | None, timeout: float) -> float:
        """What recording may take: no longer than the lease lasts, where an exception is on its way."""
        if error is None:
            return timeout
        return max(_LEAST_SECONDS, min(timeout, DRAIN_SECONDS, self._until - time.monotonic()))

    def _renewed(self) -> Plan[None]:
        since = time.monotonic()
        yield from run_plans.renew(self._key, self.fence, self._lease)
        self._until = since + self._lease
        self._failure = None

    def _not_renewed(self, error: MemorydError) -> None:
        """Takes note of a renewal that failed. While the run is given back, that may be why."""
        if isinstance(error, LOSSES) and not self._is_giving_back:
            self._lose(error)
        elif self._phase is Phase.HELD:
            self._failure = error

    def _is_to_be_renewed(self) -> bool:
        """Whether the run is held; it is lost once its lease is over."""
        if self._phase is Phase.HELD and not self._is_giving_back and time.monotonic() >= self._until:
            self._lose(self._failure)
        return self._phase is Phase.HELD

    def _seconds_to_renewal(self) -> float:
        """The pause before the next renewal: a third of the lease, or less after one that failed."""
        left = self._until - time.monotonic()
        again = min(_LONGEST_RETRY, self._lease / 10) * random.uniform(0.5, 1)
        if left <= 0:
            return again
        return min(left, max(0.0, left - self._lease * 2 / 3) if self._failure is None else again)

    def _renewal_seconds(self) -> float:
        """What one renewal may take, so that there is time for another."""
        left = self._until - time.monotonic()
        return self._lease / 3 if left <= 0 else min(left, self._lease / 3)
