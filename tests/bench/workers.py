"""Workers of runs: the requests of the calls for runs that are measured, and all that must come before these."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
from google.protobuf.duration_pb2 import Duration

from memoryd.v1.run_service_pb2 import (
    RUN_STATUS_AWAITING_APPROVAL,
    RUN_STATUS_COMPLETED,
    RUN_STATUS_INTERRUPTED,
    RUN_STATUS_RUNNING,
    ClaimRunRequest,
    CommitRunStepRequest,
    CreateRunRequest,
    ListRunsRequest,
    RenewRunLeaseRequest,
    Run,
    RunKey,
    UpdateRunRequest,
)
from memoryd.v1.run_service_pb2_grpc import RunServiceStub
from memoryd.v1.session_pb2 import SessionKey
from tests.bench.histories import Writer
from tests.bench.runs import CLAIMS_IN_A_ROW, PAYLOAD, QUEUED, held_run

_HOLDER: Final = "worker-1"
_LEASE: Final = Duration(seconds=3_600)
"""So long that no lease ends while others take their turns."""
_A_FENCE: Final = f"{0:016x}-{0:032x}"
"""As long as any."""
_SHORT: Final = 100
"""Steps of a run that is short. A worker ends it then and begins another, so that short ones stay short."""

_claims: Final[defaultdict[str, itertools.count[int]]] = defaultdict(itertools.count)
"""Counts the claims of each agent's runs, by all callers."""


def claim(session: SessionKey, _: Writer | None = None) -> ClaimRunRequest:
    """Claims any run of the session's agent."""
    return ClaimRunRequest(agent=session.agent, holder=_HOLDER, lease_duration=_LEASE)


def step(session: SessionKey, _: Writer | None = None) -> CommitRunStepRequest:
    """Commits a step without messages, of no real claim."""
    return _step(held_run(session), _A_FENCE, 1)


def step_with_message(session: SessionKey, writer: Writer) -> CommitRunStepRequest:
    """Likewise, with a message."""
    return _step(held_run(session), _A_FENCE, 1, writer)


def renewal(session: SessionKey, _: Writer | None = None) -> RenewRunLeaseRequest:
    """Renews a lease, of no real claim."""
    return RenewRunLeaseRequest(run=held_run(session), fence=_A_FENCE, lease_duration=_LEASE)


def _step(run: RunKey, fence: str, number: int, writer: Writer | None = None) -> CommitRunStepRequest:
    return CommitRunStepRequest(
        run=run,
        fence=fence,
        number=number,
        payload=PAYLOAD,
        content_type="text/plain",
        messages=[writer.plain()] if writer else (),
        lease_duration=_LEASE,
    )


def claims(channel: grpc.aio.Channel, session: SessionKey, _: Writer) -> Callable[[], Awaitable[ClaimRunRequest]]:
    """Makes claims of the runs of an agent. What was claimed is given back now and then, behind all others."""
    runs: Any = RunServiceStub(channel)

    async def next_claim() -> ClaimRunRequest:
        if next(_claims[session.agent]) % CLAIMS_IN_A_ROW == 0:
            listed = await runs.ListRuns(ListRunsRequest(agent=session.agent, statuses=[RUN_STATUS_RUNNING]))
            for run in listed.runs:
                if run.key.run_id == QUEUED:
                    given_back = Run(key=run.key, etag=run.etag, status=RUN_STATUS_INTERRUPTED)
                    await runs.UpdateRun(UpdateRunRequest(run=given_back))
        return claim(session)

    return next_claim


def steps(channel: grpc.aio.Channel, session: SessionKey, _: Writer) -> Callable[[], Awaitable[CommitRunStepRequest]]:
    """Makes the next steps of the session's run."""
    worker = _Worker(channel, session)
    return worker.next_step


def steps_with_message(
    channel: grpc.aio.Channel, session: SessionKey, writer: Writer
) -> Callable[[], Awaitable[CommitRunStepRequest]]:
    """Likewise, each with a message."""
    worker = _Worker(channel, session, writer)
    return worker.next_step


def renewals(
    channel: grpc.aio.Channel, session: SessionKey, _: Writer
) -> Callable[[], Awaitable[RenewRunLeaseRequest]]:
    """Makes renewals of the lease of the session's run."""
    worker = _Worker(channel, session)
    return worker.next_renewal


class _Worker:
    """Holds the run of a session, from its first request on, whoever held it before."""

    def __init__(self, channel: grpc.aio.Channel, session: SessionKey, writer: Writer | None = None) -> None:
        """`writer`: who makes the messages of steps; None for steps without."""
        self._runs: Any = RunServiceStub(channel)
        self._session = session
        self._writer = writer
        self._run = RunKey()
        self._fence = ""
        self._steps = 0

    async def next_step(self) -> CommitRunStepRequest:
        if not self._fence:
            await self._take()
        elif self._steps == _SHORT:
            await self._begin_another()
        self._steps += 1
        return _step(self._run, self._fence, self._steps, self._writer)

    async def next_renewal(self) -> RenewRunLeaseRequest:
        if not self._fence:
            await self._take()
        return RenewRunLeaseRequest(run=self._run, fence=self._fence, lease_duration=_LEASE)

    async def _take(self) -> None:
        unfinished = [RUN_STATUS_RUNNING, RUN_STATUS_AWAITING_APPROVAL]
        [run] = (await self._runs.ListRuns(ListRunsRequest(session=self._session, statuses=unfinished))).runs
        if run.status == RUN_STATUS_RUNNING:
            paused = Run(key=run.key, etag=run.etag, status=RUN_STATUS_AWAITING_APPROVAL)
            await self._runs.UpdateRun(UpdateRunRequest(run=paused))
        self._hold(await self._runs.ClaimRun(ClaimRunRequest(run=run.key, holder=_HOLDER, lease_duration=_LEASE)))

    async def _begin_another(self) -> None:
        ended = Run(key=self._run, status=RUN_STATUS_COMPLETED)
        await self._runs.UpdateRun(UpdateRunRequest(run=ended, fence=self._fence))
        another = RunKey(session=self._session)
        self._hold(await self._runs.CreateRun(CreateRunRequest(run=another, holder=_HOLDER, lease_duration=_LEASE)))

    def _hold(self, answer: Any) -> None:
        self._run, self._fence, self._steps = answer.run.key, answer.fence, answer.run.step_count
