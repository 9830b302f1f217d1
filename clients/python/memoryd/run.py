"""Runs in the sync client: held while a `with` lasts, and claimed in a loop.

>>> from memoryd import MemoryClient, RunStatus, assistant
>>> with MemoryClient("127.0.0.1:7600") as memory:
...     session = memory.session(agent="travel", id="user_123")
...     with memory.run(session) as run:
...         run.step({"seat": "12A"}, messages=[assistant("I would book seat 12A.")])
...         run.pause(RunStatus.AWAITING_APPROVAL, reason="books a seat")
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from memoryd.channel import Metadata
from memoryd.connections import Connection
from memoryd.errors import MemorydError
from memoryd.messages import Message
from memoryd.outages import log
from memoryd.plans import Plan
from memoryd.run_claiming import Claiming
from memoryd.run_work import HeldRun, Phase
from memoryd.runs import Payload, RunStatus, RunStep
from memoryd.summary_work import RELEASE_SECONDS
from memoryd.v1 import run_service_pb2 as pb

if TYPE_CHECKING:
    from memoryd.client import Session

Result = TypeVar("Result")


class Run(HeldRun["Session"]):
    """A run that is worked at, as a context manager. Made by `MemoryClient.run`, `MemoryClient.claim` and
    `MemoryClient.claims`.

    Entering it begins or claims the run; within, a thread renews its lease every third of it. It can be entered once,
    or again where that failed. Leaving it records how it went: COMPLETED; FAILED with the exception, which goes on;
    INTERRUPTED for what is no Exception (KeyboardInterrupt, SystemExit) and for an outage of memoryd (Unavailable other
    than SummarizerFailed, DeadlineExceeded, Contention), so that another worker goes on behind the last step. After
    `pause` or `finish` it changes nothing.

    When the lease is lost (another worker claimed the run, somebody changed its status, no renewal got through in time,
    the client was closed), nothing of it can be written any more: the next call of the run raises RunLeaseLost, and so
    does leaving the block as if nothing had happened. `is_held` tells before.
    """

    def __init__(
        self,
        connection: Connection,
        metadata: Metadata,
        session: "Session",
        beginning: pb.CreateRunRequest | pb.ClaimRunRequest,
    ) -> None:
        super().__init__(session, beginning)
        self._connection = connection
        self._metadata = metadata
        self._calls = threading.Lock()
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        self._check_enterable()
        if self._phase is Phase.NEW:
            try:
                self._connection.run(self._begun(), None, self._metadata)
                self._keep_lease()
            except BaseException:
                if self.is_held:
                    self._abandon(failed=False, timeout=RELEASE_SECONDS)
                raise
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if (plan := self._left(error)) is not None:
                self._record(plan, error)
        finally:
            self._stop()

    def step(
        self,
        payload: Payload = b"",
        *,
        messages: Message | Iterable[Message] = (),
        content_type: str | None = None,
        timeout: float | None = None,
    ) -> RunStep:
        """Commits the run's next step and the messages that it produced, all or none, and gives it.

        Tried again by itself, and committed once. When an answer stays out all the same, repeat it with the same
        payload and the same Message objects; another step is StepMismatch then, if the first was committed, and so is
        the same one by `pause` or `finish`: `resume` first. RunLeaseLost when the run is not held any more;
        MessageIdConflict for messages that are stored already.

        Args:
            payload: What a worker needs to go on behind this step, at most 2 MiB: bytes, text, or what JSON can say.
            messages: One, or a list of at most 256, together at most 3.5 MiB. They get the run's id as `run_id`.
            content_type: What the payload is, at most 256 bytes; None for `text/plain; charset=utf-8` of text,
                `application/json` of what became JSON, and nothing of bytes.
            timeout: The seconds that it may take, retries included; None for the client's.
        """
        return self._call(self._stepped(payload, messages, content_type), timeout)

    def pause(
        self,
        status: RunStatus | str,
        payload: Payload = None,
        *,
        reason: str = "",
        messages: Message | Iterable[Message] = (),
        timeout: float | None = None,
    ) -> None:
        """Sets a status with which the run waits, and gives its lease back; leaving the block then changes nothing.

        A payload or messages become a step, in one commit with the status. RunLeaseLost, StepMismatch and
        MessageIdConflict as in `step`; after the latter two the run is held as before.

        Args:
            status: AWAITING_APPROVAL or AWAITING_BUDGET, claimed by name only; or INTERRUPTED, for any worker.
            payload: As in `step`; None for nothing.
            reason: Why, at most 4 KiB.
            messages: As in `step`.
            timeout: The seconds that it may take, retries included; None for the client's.
        """
        self._call(self._paused(status, payload, reason, messages), timeout)

    def finish(
        self,
        status: RunStatus | str = RunStatus.COMPLETED,
        *,
        reason: str = "",
        payload: Payload = None,
        messages: Message | Iterable[Message] = (),
        timeout: float | None = None,
    ) -> None:
        """Ends the run with a status and a reason; leaving the block then changes nothing. Otherwise like `pause`.

        The status is COMPLETED, BLOCKED, FAILED, CANCELLED, TIMEOUT or ABANDONED.
        """
        self._call(self._finished(status, reason, payload, messages), timeout)

    def resume(self, *, timeout: float | None = None) -> RunStep | None:
        """Reads the last step, behind which to go on; None when there is none."""
        return self._call(self._resumed(), timeout)

    def _call(self, plan: Plan[Result], timeout: float | None) -> Result:
        """Carries a plan out, one at a time."""
        with self._calls:
            try:
                return self._connection.run(plan, timeout, self._metadata)
            finally:
                if self._phase is not Phase.HELD:
                    self._stop()

    def _record(self, plan: Plan[None], error: BaseException | None) -> None:
        """Records how the block was left. What fails then does not hide the exception that is on its way."""
        try:
            self._call(plan, self._recording_seconds(error, self._connection.target.timeout))
        except Exception as failure:
            if error is None:
                raise
            log.warning("how %r ended could not be recorded: %s", self, failure)

    def _keep_lease(self) -> None:
        self._connection.leases[self] = self._abandon
        threading.Thread(target=self._keep, name="memoryd-run-lease", daemon=True).start()

    def _keep(self) -> None:
        """Renews the lease until the run is lost or given back."""
        while self._is_to_be_renewed() and not self._stopped.wait(self._seconds_to_renewal()):
            if not self._is_to_be_renewed():
                return
            try:
                self._connection.run(self._renewed(), self._renewal_seconds(), self._metadata)
            except MemorydError as error:
                self._not_renewed(error)
            except Exception:
                if not self._stopped.is_set():
                    raise

    def _stop(self) -> None:
        self._stopped.set()
        self._connection.leases.pop(self, None)

    def _abandon(self, *, failed: bool, timeout: float) -> None:
        """Gives the run back for any worker, if it is held; a lease that cannot be ends by itself."""
        try:
            self._connection.run(self._abandoned(), timeout, self._metadata)
        except MemorydError as error:
            log.warning("%r could not be released: %s", self, error)
        finally:
            self._stop()


class RunClaims(Iterable[Run]):
    """The claimable runs of an agent, to be iterated over. Made by `MemoryClient.claims`.

    Close it, or use it as a context manager; either releases the run that was not entered.
    """

    def __init__(self, connection: Connection, session: "Callable[[str, str], Session]", claiming: Claiming) -> None:
        self._connection = connection
        self._metadata = connection.metadata
        self._session = session
        self._claiming = claiming
        self._run: Run | None = None
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Run]:
        try:
            while (run := self._next()) is not None:
                yield run
                self._leave()
        finally:
            self._leave()

    def close(self) -> None:
        """Ends the iteration. Another thread that waits for the next run finds that there is none."""
        self._closed.set()
        self._leave()

    def _next(self) -> Run | None:
        while not self._closed.is_set():
            try:
                run = self._claim()
            except MemorydError as error:
                if not (self._closed.is_set() or self._connection.closed):
                    self._claiming.outage.failed(error)
            else:
                self._claiming.outage.answered()
                self._run = run
                if self._closed.is_set():
                    self._leave()
                elif run is not None:
                    return run
            self._closed.wait(self._claiming.pause())
        return None

    def _claim(self) -> Run | None:
        if (claimed := self._connection.run(self._claiming.claimed(), None, self._metadata)) is None:
            return None
        request, response, since = claimed
        key = request.run.session
        run = Run(self._connection, self._metadata, self._session(key.agent, key.session_id), request)
        run._take_hold(response, since)
        run._keep_lease()
        return run

    def _leave(self) -> None:
        """Releases the run that the loop has left, if it was not entered."""
        run, self._run = self._run, None
        if run is not None and not run._entered and not self._connection.closed:
            run._abandon(failed=False, timeout=RELEASE_SECONDS)
