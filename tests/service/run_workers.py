"""Workers at runs that die at planned points, and others that take over: each behind a proxy that can lose answers.

A worker does what a client would: it repeats a call of which it heard nothing, at the other server if need be, and lets
go of a run whose lease it lost. What a step does depends on its run and its number alone, so that it is known what must
be stored in the end, whoever did it.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

import grpc
import grpc.aio

from memoryd.v1 import message_pb2 as messages
from memoryd.v1 import run_service_pb2 as pb
from tests.servers import ServerProcess
from tests.service.in_process import AsyncStubs, connect
from tests.service.lossy_proxy import LossyProxy
from tests.service.run_calls import COMPLETED, SHORTEST, UNFINISHED
from tests.service.wire import refusal_of, text

CALL_SECONDS: Final = 10
PAUSE_SECONDS: Final = 0.02
"""Between two looks at what others do."""

AGAIN: Final = frozenset({"CONTENTION", "STORE_UNAVAILABLE", "SERVER_DRAINING"})
LOST: Final = frozenset({"LEASE_LOST", "RUN_ENDED"})


class Trouble(Enum):
    """What happens to a worker."""

    DIES_CLAIMED = auto()
    """Right after its claim."""
    DIES_IN_STEP = auto()
    """While the server is at its step: the call is cancelled, and nobody repeats it."""
    DIES_UNANSWERED = auto()
    """After the commit, before the answer."""
    HEARS_NOTHING = auto()
    """Likewise, but it lives, and repeats the call at the other server."""


@dataclass(frozen=True)
class Fate:
    """What happens to one worker at a run."""

    trouble: Trouble
    steps: int
    """How many it commits before."""


def fates_of(seed: int, runs: Sequence[str], steps: int) -> dict[str, list[Fate]]:
    """What happens to the first workers at each run, in their order; the later ones are left alone."""
    dice = random.Random(seed)
    troubles = list(Trouble)
    return {run: [Fate(dice.choice(troubles), dice.randrange(steps)) for _ in range(dice.randrange(3))] for run in runs}


def payload_of(run: str, number: int) -> bytes:
    return f"{run}: step {number}".encode()


def messages_of(run: str, number: int) -> list[messages.Message]:
    """None, one or two."""
    return [text(f"{run}: message {place} of step {number}") for place in range(number % 3)]


class Died(Exception):
    """The worker is no more."""


class Lost(Exception):
    """The worker holds the run no more."""


@dataclass
class Plant:
    """Two servers, and the workers of an agent at its runs."""

    agent: str
    servers: Sequence[ServerProcess]
    steps: int
    """Of each run."""
    fates: dict[str, list[Fate]]
    dice: random.Random
    committed: int = 0
    """Steps of which a worker has heard."""
    troubles: list[Trouble] = field(default_factory=list)
    """What happened."""
    proxies: list[tuple[LossyProxy, int]] = field(default_factory=list)
    """Each with the server that it leads to."""

    def lead_anew(self) -> None:
        """Has all proxies lead to where the servers are now."""
        for proxy, server in self.proxies:
            proxy.target = self.servers[server].address

    @asynccontextmanager
    async def line_to(self, server: int) -> AsyncIterator[tuple[LossyProxy, AsyncStubs]]:
        """A connection of a worker's own."""
        async with (
            LossyProxy.run(self.servers[server].address) as proxy,
            connect(proxy.address) as channel,
        ):
            self.proxies.append((proxy, server))
            yield proxy, AsyncStubs(channel)

    async def work(self, name: str, server: int) -> None:
        """Goes on until all runs have ended. Each claim is a worker of its own."""
        async with AsyncExitStack() as lines:
            proxy, near = await lines.enter_async_context(self.line_to(server))
            _, far = await lines.enter_async_context(self.line_to(1 - server))
            for number in itertools.count():
                request = pb.ClaimRunRequest(agent=self.agent, holder=f"{name}/{number}", lease_duration=SHORTEST)
                with suppress(Lost, Died):
                    claimed = await repeated(near.runs.ClaimRun, request)
                    if claimed.HasField("run"):
                        await Worker(self, claimed, proxy, near, far).take_steps()
                        continue
                if not await self.unfinished(far):
                    return
                await asyncio.sleep(PAUSE_SECONDS)

    async def unfinished(self, stubs: AsyncStubs) -> bool:
        request = pb.ListRunsRequest(agent=self.agent, statuses=UNFINISHED, page_size=1)
        return bool((await repeated(stubs.runs.ListRuns, request)).runs)


class Worker:
    """Holds a run until it is completed, or until its fate."""

    def __init__(
        self, plant: Plant, claimed: pb.ClaimRunResponse, proxy: LossyProxy, near: AsyncStubs, far: AsyncStubs
    ) -> None:
        self._plant = plant
        self._run = claimed.run.key
        self._fence = claimed.fence
        self._first = claimed.run.step_count + 1
        self._proxy, self._near, self._far = proxy, near, far
        fates = plant.fates[self._run.run_id]
        self._fate = fates.pop(0) if fates else None

    async def take_steps(self) -> None:
        """Raises: Died, Lost."""
        plant = self._plant
        for number in range(self._first, plant.steps + 1):
            request = self._step(number)
            if self._fate is not None and number - self._first >= min(self._fate.steps, plant.steps - self._first):
                await self._suffer(self._fate.trouble, request)
                self._fate = None
            else:
                await repeated(self._near.runs.CommitRunStep, request)
            plant.committed += 1

    def _step(self, number: int) -> pb.CommitRunStepRequest:
        run_id = self._run.run_id
        return pb.CommitRunStepRequest(
            run=self._run,
            fence=self._fence,
            number=number,
            payload=payload_of(run_id, number),
            messages=messages_of(run_id, number),
            status=COMPLETED if number == self._plant.steps else pb.RUN_STATUS_UNSPECIFIED,
            lease_duration=SHORTEST,
        )

    async def _suffer(self, trouble: Trouble, request: pb.CommitRunStepRequest) -> None:
        self._plant.troubles.append(trouble)
        if trouble is Trouble.DIES_CLAIMED:
            raise Died
        call = asyncio.ensure_future(self._try(request))
        if trouble is Trouble.DIES_IN_STEP:
            for _ in range(self._plant.dice.randrange(60)):
                await asyncio.sleep(0)
            call.cancel()
            with suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
                await call
            raise Died
        self._proxy.losing = True
        try:
            while not call.done():
                if await self._is_done(request.number):
                    break
        finally:
            self._proxy.losing = False
            self._proxy.cut()
            with suppress(grpc.aio.AioRpcError):
                await call
        if trouble is Trouble.DIES_UNANSWERED:
            raise Died
        await repeated(self._far.runs.CommitRunStep, request)

    async def _try(self, request: pb.CommitRunStepRequest) -> pb.CommitRunStepResponse:
        answer: pb.CommitRunStepResponse = await self._near.runs.CommitRunStep(request, timeout=CALL_SECONDS)
        return answer

    async def _is_done(self, number: int) -> bool:
        """Whether the step is committed, by this worker or by another one that took over."""
        run = (await repeated(self._far.runs.GetRun, pb.GetRunRequest(run=self._run))).run
        return bool(run.step_count >= number)


async def repeated(method: Callable[..., Awaitable[Any]], request: Any) -> Any:
    """The answer to a call that is repeated until there is one. Raises: Lost."""
    while True:
        try:
            return await method(request, timeout=CALL_SECONDS, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            refusal = refusal_of(error)
            if refusal.reason in LOST:
                raise Lost from error
            if refusal.reason not in AGAIN:
                raise
