"""Folds histories in the background: one fold a session at a time, across servers (invariant 10).

Within a server, loads that find that a session must be folded share one task. Across servers, the lease in the record
decides; who does not get it waits until it is over, and looks again. A lease is short and renewed while its holder
works, so that the folds of a killed server are soon free.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from memoryd_server import limits
from memoryd_server.engine import folding, instruments, summary_changes, summary_texts
from memoryd_server.engine.changes import StaleRead
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.folding import Task
from memoryd_server.engine.policies import FoldSettings, fold_settings
from memoryd_server.engine.summary_changes import LeaseTaken, LeaseVoid
from memoryd_server.stores.base import StoreUnavailable
from memoryd_server.stores.records import Folding, Record, SessionKey
from memoryd_server.summarizers.base import CLIENT, EXTRACTIVE, FailureReason, Summarizer, SummarizerError
from memoryd_server.summarizers.extractive import ExtractiveSummarizer

if TYPE_CHECKING:
    from memoryd_server.engine.runtime import Runtime

CONCURRENT_FOLDS: Final = 4
"""Folds that a server works on at once in one store: bounds its memory and the calls to a model's endpoint."""

_POLL_SECONDS: Final = 0.1
"""How often one looks whether the fold of another server has ended."""

_ATTEMPTS: Final = 5
"""How often a fold is planned anew because the session changed under it, before it is left to the next load."""

_SETTLED: Final = 4_096
"""Sessions of which it is remembered that nothing of them can be folded as they are."""

_RELEASE_SECONDS: Final = 2.0
"""How long a fold that is cancelled may take to give its lease up."""

_NON_RETRYABLE_SECONDS: Final = 600.0
"""The least pause after a failure that somebody has to do something about."""

_log: Final = structlog.stdlib.get_logger("memoryd.folds")


class Summarizers:
    """The summarizers of a server, by name. All its stores share them."""

    def __init__(self, configured: Mapping[str, Summarizer] | None = None) -> None:
        self._by_name: dict[str, Summarizer] = {EXTRACTIVE: ExtractiveSummarizer(), **(configured or {})}

    @property
    def names(self) -> Sequence[str]:
        """What policies may name: those of the server, and the agent's own model."""
        return (*self._by_name, CLIENT)

    def get(self, name: str) -> Summarizer:
        """Raises: SummarizerError MISCONFIGURED when the server has none of this name."""
        found = self._by_name.get(name)
        if found is None:
            raise SummarizerError(
                FailureReason.MISCONFIGURED,
                f"this server has no summarizer {name!r}: set it up, or name another one in the policy",
                is_retryable=False,
            )
        return found

    async def close(self) -> None:
        """Ends the connections of all of them."""
        for summarizer in self._by_name.values():
            await summarizer.close()


@dataclass(slots=True)
class Folds:
    """What a round of folds of one session has done."""

    messages: int = 0
    """How many were folded."""
    error: SummarizerError | None = None
    """Why it came to an end before all was folded."""


@dataclass(frozen=True, slots=True)
class _Round:
    """A task that is under way."""

    task: asyncio.Task[Folds]
    although_it_fits: bool


class Folder:
    """Makes the summaries of one store that are left to the server."""

    def __init__(self, runtime: Runtime, summarizers: Summarizers) -> None:
        self._runtime = runtime
        self._summarizers = summarizers
        self._rounds: dict[SessionKey, _Round] = {}
        self._slots = asyncio.Semaphore(CONCURRENT_FOLDS)
        self._settled: OrderedDict[SessionKey, tuple[str, int, FoldSettings]] = OrderedDict()

    def is_due(self, key: SessionKey, record: Record, settings: FoldSettings) -> bool:
        """Whether a session has to be folded, as far as its record tells."""
        if not folding.may_exceed(record, settings):
            return False
        return self._settled.get(key) != (record.incarnation, record.version, settings)

    async def fold_for_load(
        self, key: SessionKey, record: Record, settings: FoldSettings, waits: bool, deadline: float | None
    ) -> bool:
        """Has a session folded that a load found to be due, and waits for it as long as it may.

        Returns: whether something may have changed meanwhile.
        Raises: StoreUnavailable.
        """
        now = self._runtime.clock.now()
        if settings.is_left_to_clients:
            if record.folding.wanted:
                return False
            await self._runtime.committer.run(
                key, lambda current, _known: summary_changes.plan_want(current, key, now), deadline=deadline
            )
            return False
        if record.folding.retry_at > now:
            return False
        round_ = self._begin(key, although_it_fits=False)
        ends = time.monotonic() + limits.SUMMARY_WAIT_SECONDS
        if deadline is not None:
            ends = min(ends, deadline - 1)
        patience = ends - time.monotonic()
        if not waits or patience <= 0:
            return False
        await asyncio.wait({round_.task}, timeout=patience)
        return True

    async def fold_now(self, key: SessionKey, deadline: float | None) -> Folds:
        """Folds what exceeds `keep`, and waits for it.

        Raises: RequestError (SESSION_NOT_FOUND, SUMMARY_UNDER_WAY when the deadline comes first), StoreUnavailable.
        """
        while True:
            round_ = self._begin(key, although_it_fits=True)
            patience = None if deadline is None else max(0.0, deadline - 0.1 - time.monotonic())
            done, _ = await asyncio.wait({round_.task}, timeout=patience)
            if not done:
                raise RequestError(
                    Reason.SUMMARY_UNDER_WAY,
                    f"the summary of session {key.session_id!r} of agent {key.agent!r} is still being made: it goes "
                    "on, and a later call finds it",
                    retry_after=1.0,
                    agent=key.agent,
                    session_id=key.session_id,
                )
            if round_.although_it_fits:
                return round_.task.result()

    def _begin(self, key: SessionKey, *, although_it_fits: bool) -> _Round:
        """The round of folds of a session that is under way; a new one where there is none."""
        found = self._rounds.get(key)
        if found is not None:
            return found
        task = asyncio.create_task(self._fold_all(key, although_it_fits=although_it_fits), name="fold")
        round_ = self._rounds[key] = _Round(task, although_it_fits)
        task.add_done_callback(lambda ended: self._end(key, ended))
        return round_

    def _end(self, key: SessionKey, task: asyncio.Task[Folds]) -> None:
        del self._rounds[key]
        if task.cancelled():
            return
        error = task.exception()
        if error is None or isinstance(error, (RequestError, StaleRead)):
            return  # The session is gone, or changes all the time: the next load sees to it.
        if isinstance(error, StoreUnavailable):
            _log.warning("a fold met a store that does not answer", cause=str(error))
        else:
            _log.error("a fold failed", exc_info=error)

    async def close(self) -> None:
        """Cancels what is under way, and gives the leases up."""
        tasks = [round_.task for round_ in self._rounds.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _fold_all(self, key: SessionKey, *, although_it_fits: bool) -> Folds:
        """Folds until nothing has to be folded any more, or a fold fails."""
        folds = Folds()
        attempts = 0
        async with self._slots:
            while True:
                settings = await self._settings(key)
                if settings is None or settings.is_left_to_clients:
                    return folds
                try:
                    task = await folding.read_task(
                        self._runtime.sessions, key, settings, although_it_fits=although_it_fits
                    )
                    if task is None:
                        await self._settle(key, settings)
                        return folds
                    folds.messages += await self._fold(key, settings, task)
                    attempts = 0
                except (StaleRead, LeaseVoid):
                    attempts += 1
                    if attempts == _ATTEMPTS:
                        raise StaleRead from None
                    await asyncio.sleep(_POLL_SECONDS * attempts / _ATTEMPTS)
                except LeaseTaken as taken:
                    await self._wait_for_others(key, taken.until)
                except SummarizerError as error:
                    folds.error = error
                    return folds

    async def _settings(self, key: SessionKey) -> FoldSettings | None:
        loaded = await self._runtime.sessions.load(key)
        if loaded is None:
            return None
        return await settings_of(self._runtime, key, loaded.record)

    async def _settle(self, key: SessionKey, settings: FoldSettings) -> None:
        """Remembers that nothing of a session can be folded as it is."""
        loaded = await self._runtime.sessions.load(key)
        if loaded is None or await folding.read_task(self._runtime.sessions, key, settings) is not None:
            return
        self._settled[key] = (loaded.record.incarnation, loaded.record.version, settings)
        self._settled.move_to_end(key)
        if len(self._settled) > _SETTLED:
            self._settled.popitem(last=False)

    async def _wait_for_others(self, key: SessionKey, until: int) -> None:
        while self._runtime.clock.now() < until:
            await asyncio.sleep(_POLL_SECONDS)
            loaded = await self._runtime.sessions.load(key)
            if loaded is None or not loaded.record.folding.lease:
                return
            until = loaded.record.folding.until

    async def _fold(self, key: SessionKey, settings: FoldSettings, task: Task) -> int:
        """Makes one summary. Returns: how many messages it took in.

        Raises: StaleRead, LeaseTaken, LeaseVoid, SummarizerError, StoreUnavailable.
        """
        lease = uuid.uuid4().hex
        begun = time.monotonic()
        await take_lease(self._runtime, key, task, lease, settings.summarizer, limits.FOLD_LEASE_SECONDS)
        outcome, count = FailureReason.INTERNAL.value, 0
        self._runtime.instruments.fold_began()
        try:
            async with self._renewing(key, lease):
                made = await summary_texts.summarize(self._summarizers.get(settings.summarizer), task, settings)
            now = self._runtime.clock.now()
            await self._runtime.committer.run(
                key, lambda record, _known: summary_changes.plan_commit(record, key, lease, made, now)
            )
            outcome, count = instruments.COMMITTED, task.fold.covers.messages
        except SummarizerError as error:
            outcome = error.reason.value
            await self._fail(key, lease, error)
            raise
        except asyncio.CancelledError:
            outcome = instruments.CANCELLED
            await self._give_up(key, lease)
            raise
        except (LeaseVoid, RequestError):
            outcome = instruments.VOID
            raise
        except StoreUnavailable:
            outcome = instruments.UNAVAILABLE
            raise
        finally:
            self._runtime.instruments.fold_ended(outcome, time.monotonic() - begun, count)
        _log.info("summarized", store=self._runtime.name, messages=count, summarizer=made.summarizer)
        return count

    @asynccontextmanager
    async def _renewing(self, key: SessionKey, lease: str) -> AsyncIterator[None]:
        """Keeps a lease while its work goes on. Raises: LeaseVoid, and the work is cancelled, when it is void."""
        void = False
        work = asyncio.current_task()
        assert work is not None

        async def renew() -> None:
            nonlocal void
            while True:
                await asyncio.sleep(limits.FOLD_LEASE_SECONDS / 3)
                try:
                    await self._renew(key, lease)
                except LeaseVoid:
                    void = True
                    work.cancel()
                    return
                except (RequestError, StoreUnavailable) as error:
                    _log.warning("the lease of a fold was not renewed", cause=str(error))

        renewal = asyncio.create_task(renew())
        try:
            yield
        except asyncio.CancelledError:
            if void and work.uncancel() == 0:
                raise LeaseVoid from None
            raise
        finally:
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)

    async def _renew(self, key: SessionKey, lease: str) -> None:
        until = self._runtime.clock.now() + limits.FOLD_LEASE_SECONDS * 1_000_000
        await self._runtime.committer.run(
            key, lambda record, _known: summary_changes.plan_renew(record, key, lease, until)
        )

    async def _fail(self, key: SessionKey, lease: str, error: SummarizerError) -> None:
        _log.warning(
            "a summary was not made",
            store=self._runtime.name,
            reason=error.reason.value,
            cause=error.text,
        )
        now = self._runtime.clock.now()
        pause = max(error.retry_after or 0.0, 0.0 if error.is_retryable else _NON_RETRYABLE_SECONDS)
        with contextlib.suppress(LeaseVoid):
            await self._runtime.committer.run(
                key,
                lambda record, _known: summary_changes.plan_fail(record, key, lease, error.reason.value, pause, now),
            )

    async def _give_up(self, key: SessionKey, lease: str) -> None:
        """Gives a lease up when the server drains; one that cannot be ends by itself."""
        with contextlib.suppress(LeaseVoid, RequestError, StoreUnavailable, TimeoutError):
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._runtime.committer.run(
                    key, lambda record, _known: summary_changes.plan_release(record, key, lease)
                )


async def settings_of(runtime: Runtime, key: SessionKey, record: Record) -> FoldSettings | None:
    """How the stored policies fold a session; None when they do not. Raises: RequestError, StoreUnavailable."""
    agent = (await runtime.agents.get(key.tenant, key.agent)).policy
    return fold_settings(runtime.defaults.summarizer, record.policy, agent, runtime.defaults.policy)


async def take_lease(
    runtime: Runtime, key: SessionKey, task: Task, lease: str, summarizer: str, seconds: float
) -> Record:
    """Leases a task. Returns: the record with the lease.

    Raises: RequestError SESSION_NOT_FOUND, StaleRead, LeaseTaken, StoreUnavailable.
    """
    now = runtime.clock.now()
    wanted = Folding(lease=lease, until=now + int(seconds * 1_000_000), summarizer=summarizer)
    return await runtime.committer.run(
        key, lambda record, _known: summary_changes.plan_lease(record, key, task.fold, wanted, now)
    )
