"""Runs in the async client: the same names and arguments as in `memoryd.run`, where they are described.

async with AsyncMemoryClient("127.0.0.1:7600") as memory:
    async for run in memory.claims("travel"):
        try:
            async with run:
                last = await run.resume()
                await run.step({"seat": "12A"}, messages=[assistant("Booked: seat 12A.")])
        except Exception:
            logging.exception("the work at %r failed", run)
"""

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from memoryd.channel import Metadata
from memoryd.connections import AsyncConnection
from memoryd.errors import MemorydError
from memoryd.messages import Message
from memoryd.outages import log
from memoryd.plans import Plan
from memoryd.run_claiming import Claiming
from memoryd.run_work import DRAIN_SECONDS, HeldRun, Phase
from memoryd.runs import Payload, RunStatus, RunStep
from memoryd.summary_work import RELEASE_SECONDS
from memoryd.v1 import run_service_pb2 as pb

if TYPE_CHECKING:
    from memoryd.aio import AsyncSession

Result = TypeVar("Result")


class AsyncRun(HeldRun["AsyncSession"]):
    """A run that is worked at, as an async context manager. Made by `AsyncMemoryClient.run`, `AsyncMemoryClient.claim`
    and `AsyncMemoryClient.claims`.

    Entering it begins or claims the run; within, its lease is renewed every third of it. It can be entered once,
    or again where that failed. Leaving it records how it went: COMPLETED; FAILED with the exception, which goes on;
    INTERRUPTED for what is no Exception (a cancellation above all) and for an outage of memoryd (Unavailable other than
    SummarizerFailed, DeadlineExceeded, Contention), so that another worker goes on behind the last step. That is
    written although the task is cancelled, within 10 seconds. After `pause` or `finish` it changes nothing.

    When the lease is lost (another worker claimed the run, somebody changed its status, no renewal got through in time,
    the client was closed), nothing of it can be written any more: the task inside the block is cancelled, and the block
    raises RunLeaseLost.
    """

    def __init__(
        self,
        connection: AsyncConnection,
        metadata: Metadata,
        session: "AsyncSession",
        beginning: pb.CreateRunRequest | pb.ClaimRunRequest,
    ) -> None:
        super().__init__(session, beginning)
        self._connection = connection
        self._metadata = metadata
        self._calls = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None
        self._body: asyncio.Task[Any] | None = None
        self._cancelled_before = 0
        self._has_cancelled = False

    async def __aenter__(self) -> Self:
        self._check_enterable()
        if self._phase is Phase.NEW:
            try:
                await _carried_through(self._begin(), RELEASE_SECONDS)
            except BaseException:
                await _carried_through(self._abandon(failed=False, timeout=RELEASE_SECONDS), RELEASE_SECONDS)
                raise
        self._entered = True
        self._body = asyncio.current_task()
        self._cancelled_before = 0 if self._body is None else self._body.cancelling()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        body, self._body = self._body, None
        try:
            if self._has_cancelled and body is not None:
                is_cancelled_by_others = body.uncancel() > self._cancelled_before
                if isinstance(error, asyncio.CancelledError) and not is_cancelled_by_others:
                    raise self._loss()
            if (plan := self._left(error)) is not None:
                await _carried_through(self._record(plan, error), DRAIN_SECONDS)
        finally:
            self._stop()

    async def step(
        self,
        payload: Payload = b"",
        *,
        messages: Message | Iterable[Message] = (),
        content_type: str | None = None,
        timeout: float | None = None,
    ) -> RunStep:
        """Commits the run's next step and the messages that it produced, all or none. Like `Run.step`."""
        return await self._call(self._stepped(payload, messages, content_type), timeout)

    async def pause(
        self,
        status: RunStatus | str,
        payload: Payload = None,
        *,
        reason: str = "",
        messages: Message | Iterable[Message] = (),
        timeout: float | None = None,
    ) -> None:
        """Sets a status with which the run waits, and gives its lease back. Like `Run.pause`."""
        await self._call(self._paused(status, payload, reason, messages), timeout)

    async def finish(
        self,
        status: RunStatus | str = RunStatus.COMPLETED,
        *,
        reason: str = "",
        payload: Payload = None,
        messages: Message | Iterable[Message] = (),
        timeout: float | None = None,
    ) -> None:
        """Ends the run with a status and a reason. Like `Run.finish`."""
        await self._call(self._finished(status, reason, payload, messages), timeout)

    async def resume(self, *, timeout: float | None = None) -> RunStep | None:
        """Reads the last step, behind which to go on; None when there is none."""
        return await self._call(self._resumed(), timeout)

    async def _begin(self) -> None:
        await self._connection.run(self._begun(), None, self._metadata)
        self._keep_lease()

    async def _call(self, plan: Plan[Result], timeout: float | None) -> Result:
        """Carries a plan out, one at a time."""
        async with self._calls:
            try:
                return await self._connection.run(plan, timeout, self._metadata)
            finally:
                if self._phase is not Phase.HELD:
                    self._stop()
                    if self._phase is Phase.LOST and asyncio.current_task() is not self._body:
                        self._cancel_body()

    async def _record(self, plan: Plan[None], error: BaseException | None) -> None:
        """Records how the block was left. What fails then does not hide the exception that is on its way."""
        try:
            await self._call(plan, self._recording_seconds(error, self._connection.target.timeout))
        except Exception as failure:
            if error is None:
                raise
            log.warning("how %r ended could not be recorded: %s", self, failure)

    def _keep_lease(self) -> None:
        self._connection.leases[self] = self._abandon
        self._keeper = asyncio.create_task(self._keep(), name="memoryd-run-lease")

    async def _keep(self) -> None:
        """Renews the lease until the run is lost or given back."""
        while self._is_to_be_renewed():
            await asyncio.sleep(self._seconds_to_renewal())
            if self._is_to_be_renewed():
                try:
                    await self._connection.run(self._renewed(), self._renewal_seconds(), self._metadata)
                except MemorydError as error:
                    self._not_renewed(error)
        if self._phase is Phase.LOST:
            self._cancel_body()

    def _cancel_body(self) -> None:
        if self._body is not None and not self._has_cancelled:
            self._has_cancelled = True
            self._body.cancel()

    def _stop(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
        self._connection.leases.pop(self, None)

    async def _abandon(self, *, failed: bool, timeout: float) -> None:
        """Gives the run back for any worker, if it is held; a lease that cannot be ends by itself."""
        try:
            await self._connection.run(self._abandoned(), timeout, self._metadata)
        except MemorydError as error:
            log.warning("%r could not be released: %s", self, error)
        finally:
            self._stop()
            if asyncio.current_task() is not self._body:
                self._cancel_body()


class AsyncRunClaims(AsyncIterable[AsyncRun]):
    """The claimable runs of an agent, to be iterated over. Made by `AsyncMemoryClient.claims`.

    Otherwise like `memoryd.RunClaims`; for one task of asyncio at a time. A run may also be entered by a task that the
    loop's body makes for it, if that is the first thing that the task does.
    """

    def __init__(
        self, connection: AsyncConnection, session: "Callable[[str, str], AsyncSession]", claiming: Claiming
    ) -> None:
        self._connection = connection
        self._metadata = connection.metadata
        self._session = session
        self._claiming = claiming
        self._run: AsyncRun | None = None
        self._closed = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[AsyncRun]:
        try:
            while (run := await self._next()) is not None:
                yield run
                await asyncio.sleep(0)  # So that a task that was made for the run enters it.
                await self._leave()
        finally:
            await self._leave()

    async def close(self) -> None:
        """Ends the iteration. Another task of asyncio that waits for the next run finds that there is none."""
        self._closed.set()
        await self._leave()

    async def _next(self) -> AsyncRun | None:
        while not self._closed.is_set():
            try:
                # A run that was claimed when this task is cancelled has to be known, to be released.
                await _carried_through(self._claim(), RELEASE_SECONDS)
            except MemorydError as error:
                if not (self._closed.is_set() or self._connection.closed):
                    self._claiming.outage.failed(error)
            else:
                self._claiming.outage.answered()
                if self._closed.is_set():
                    await self._leave()
                elif self._run is not None:
                    return self._run
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), self._claiming.pause())
        return None

    async def _claim(self) -> None:
        if (claimed := await self._connection.run(self._claiming.claimed(), None, self._metadata)) is None:
            return
        request, response, since = claimed
        key = request.run.session
        run = AsyncRun(self._connection, self._metadata, self._session(key.agent, key.session_id), request)
        run._take_hold(response, since)
        run._keep_lease()
        self._run = run

    async def _leave(self) -> None:
        """Releases the run that the loop has left, if it was not entered."""
        run, self._run = self._run, None
        if run is not None and not run._entered and not self._connection.closed:
            await _carried_through(run._abandon(failed=False, timeout=RELEASE_SECONDS), RELEASE_SECONDS)


async def _carried_through(work: Coroutine[Any, Any, Result], grace: float) -> Result:
    """Carries work through even if this task is cancelled, which then waits for it at most `grace` seconds."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    end = 0.0
    while not task.done():
        try:
            await asyncio.wait({task}, timeout=None if cancelled is None else max(0.0, end - time.monotonic()))
        except asyncio.CancelledError as error:
            if cancelled is None:
                cancelled, end = error, time.monotonic() + grace
        if cancelled is not None and time.monotonic() >= end:
            task.cancel()
    if cancelled is not None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.debug("what a cancelled task waited for failed: %s", failure)
        raise cancelled
    return task.result()
