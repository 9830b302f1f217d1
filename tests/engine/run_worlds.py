"""One session with several runs, beside a naive model of what the API promises about them (invariant 15)."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import pytest
from hypothesis import strategies as st

from memoryd_server import limits
from memoryd_server.engine import histories, run_claims, run_steps, run_sweeping, runs
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.run_access import RunView
from memoryd_server.engine.run_changes import CommittedStep, Fence, NotUnfinished, plan_claim, plan_renew
from memoryd_server.engine.run_claims import Claim
from memoryd_server.engine.run_errors import RunKey
from memoryd_server.engine.run_steps import StepCommit
from memoryd_server.engine.runs import Creation, Update
from memoryd_server.engine.runtime import Runtime
from memoryd_server.stores.records import Record, RunStatus, SessionKey, StoredRun
from tests.engine.messages import user
from tests.engine.sessions import TIME

Answer = TypeVar("Answer")

SECOND: Final = 1_000_000
MOST_RUNS: Final = 4
"""What a test makes of `limits.MAX_UNFINISHED_RUNS`."""
MOST_RECOVERIES: Final = 2
IDS: Final = ("a", "b", "c", "d", "e", "f")
WAITING: Final = (RunStatus.INTERRUPTED, RunStatus.AWAITING_APPROVAL, RunStatus.AWAITING_BUDGET)
CALLS: Final = (
    *("_create", "_step", "_step", "_step", "_update", "_release", "_delete"),
    *("_claim", "_claim_any", "_renew", "_abandon", "_append"),
)
ENDS: Final = tuple(status for status in RunStatus if status.is_final)


class Time:
    """The time of the machine, which a test moves; the clock of the store may be wrong by some of it."""

    def __init__(self) -> None:
        self.now = TIME

    def __call__(self) -> int:
        return self.now


@dataclass
class Step:
    """A committed step, as the model knows it."""

    fence: str
    said: tuple[Any, ...]
    answer: CommittedStep


@dataclass
class Run:
    """A run as somebody who has only read the API would write it down."""

    begun: tuple[Any, ...]
    """What the request said that began it."""
    status: RunStatus
    metadata: str
    holder: str
    fence: str
    until: int
    created: int
    updated: int
    is_as_begun: bool = True
    reason: str = ""
    claim: str = ""
    recoveries: int = 0
    ended: int = 0
    steps: list[Step] = field(default_factory=list)
    etags: list[str] = field(default_factory=list)
    """All that it had, the last being its own."""

    def can_write(self, fence: str, perhaps: int) -> bool:
        return self.status is RunStatus.RUNNING and fence == self.fence and perhaps < self.until

    def becomes(self, status: RunStatus, now: int) -> None:
        self.is_as_begun = False
        self.status = status
        self.updated = now
        if status is not RunStatus.RUNNING:
            self.until = 0
        if status.is_final:
            self.ended = now


@dataclass
class World:
    """The session as the engine has it, and the model."""

    runtime: Runtime
    data: st.DataObject
    time: Time
    key: SessionKey
    runs: dict[str, Run] = field(default_factory=dict)
    fences: list[str] = field(default_factory=list)
    """All that were ever answered for claims, in their order."""
    is_born: bool = False
    version: int = 0
    active: int = 0
    """When the session last took an append or a step, or a run of it ended."""
    messages: int = 0
    knows: bool = False
    """Whether it has a message of the id `known`."""
    changes: int = 0
    """How many commits the present call is to make."""

    async def live(self, calls: int) -> None:
        """Makes calls, each perhaps twice, and compares everything after each."""
        for _ in range(calls):
            self.time.now += 1  # No two changes have one time, so that the longest waiting one is always one.
            if self._draw(st.integers(0, 3)) == 0:
                self.time.now += self._draw(st.sampled_from([1, 2, 5, 8, 12])) * SECOND // 2
                self.runtime.clock.error = self._draw(st.sampled_from([0, 1, 10, 400_000, 3 * SECOND]))
            self.changes = 0
            await getattr(self, self._draw(st.sampled_from(CALLS)))()
            await self._check()

    def _draw(self, strategy: st.SearchStrategy[Answer]) -> Answer:
        return self.data.draw(strategy)

    @property
    def _now(self) -> int:
        return self.runtime.clock.now()

    @property
    def _unfinished(self) -> dict[str, Run]:
        return {id_: run for id_, run in self.runs.items() if not run.ended}

    def _some_fence(self, run: Run | None) -> str:
        """Mostly that of the run's last claim."""
        if run is not None and run.fence and self._draw(st.integers(0, 4)):
            return run.fence
        return self._draw(st.sampled_from([*self.fences, str(Fence(7, "0" * 32))]))

    def _lease(self) -> int:
        return self._draw(st.sampled_from([1, 3, 4])) * SECOND

    async def _expect(self, call: Awaitable[Answer], reason: Reason | None) -> Answer | None:
        """What a call answers; None where it is to be refused."""
        if reason is None:
            return await call
        with pytest.raises(RequestError) as refused:
            await call
        assert refused.value.reason == reason
        return None

    def _missing(self) -> Reason:
        return Reason.RUN_NOT_FOUND if self.is_born else Reason.SESSION_NOT_FOUND

    def _changed(self, view: RunView, run: Run) -> None:
        """A call has changed a run."""
        self.changes += 1
        run.etags.append(view.etag)

    def _claimed(self, fence: str) -> str:
        """A fence that is new and greater than all before, byte by byte."""
        assert all(fence > earlier for earlier in self.fences)
        self.fences.append(fence)
        return fence

    async def _create(self) -> None:
        id_ = self._draw(st.sampled_from(IDS))
        queued, metadata = self._draw(st.booleans()), self._draw(st.sampled_from(["", "m"]))
        holder, lease = self._draw(st.sampled_from(["", "h"])), self._lease()
        request = Creation(RunKey(self.key, id_), metadata, queued, holder, lease)
        said = (queued, metadata, "" if queued else holder)
        for _ in range(2):
            run = self.runs.get(id_)
            reason = None
            if run is not None and not (run.is_as_begun and run.begun == said):
                reason = Reason.RUN_EXISTS
            elif run is None and len(self._unfinished) >= MOST_RUNS:
                reason = Reason.TOO_MANY_RUNS
            view = await self._expect(runs.create(self.runtime, request), reason)
            if view is not None and run is None:
                self.is_born = True
                now = self._now
                status, until = (RunStatus.INTERRUPTED, 0) if queued else (RunStatus.RUNNING, now + lease)
                fence = "" if queued else self._claimed(view.fence)
                run = self.runs[id_] = Run(said, status, metadata, said[2], fence, until, now, now)
                self._changed(view, run)
            if view is not None:
                assert run is not None
                assert (view.fence, view.etag) == (run.fence if not queued else "", run.etags[-1])

    async def _step(self) -> None:
        if not self.runs:
            return
        id_ = self._draw(st.sampled_from(sorted(self.runs)))
        run = self.runs[id_]
        number = max(1, len(run.steps) + self._draw(st.sampled_from([1, 1, 1, 1, 0, -1, 2])))
        fence = self._some_fence(run)
        status = self._draw(st.sampled_from([RunStatus.RUNNING] * 4 + [*WAITING, RunStatus.COMPLETED]))
        why = "" if status is RunStatus.RUNNING else "why"
        lease = self._draw(st.sampled_from([None, 3 * SECOND]))
        payload = self._draw(st.sampled_from([b"", b"p"]))
        ids = self._draw(st.sampled_from([(), ("",), ("", ""), (f"{id_}-{number}-{fence}",), ("known", "")]))
        sent: list[IncomingMessage] = [user(f"text {index}", id=each) for index, each in enumerate(ids)]
        said = (payload, ids, status)
        request = StepCommit(RunKey(self.key, id_), fence, number, payload, "t", sent, int(status), why, lease)
        for _ in range(2):
            reason, is_new = self._step_reason(run, number, fence, said), number == len(run.steps) + 1
            answer = await self._expect(run_steps.commit(self.runtime, request), reason)
            if answer is None:
                continue
            if is_new:
                run.steps.append(Step(fence, said, answer))
                until = self._now + lease if lease else run.until
                run.becomes(status, self._now)
                run.until = until if status is RunStatus.RUNNING else 0
                run.reason = why
                run.etags.append(answer.etag)
                self.changes += 1
                self.active = self._now
                seqs = [message.seq for message in answer.messages]
                assert seqs == list(range(self.messages + 1, self.messages + 1 + len(ids)))
                self.messages += len(ids)
                self.knows |= "known" in ids
            first = run.steps[number - 1].answer
            assert (answer.messages, answer.created) == (first.messages, first.created)
            assert (answer.state.status, answer.state.until, answer.etag) == (run.status, run.until, run.etags[-1])

    def _step_reason(self, run: Run, number: int, fence: str, said: tuple[Any, ...]) -> Reason | None:
        if not fence.endswith(self.fences[0][-32:] if self.fences else "none"):
            return Reason.LEASE_LOST
        if number <= len(run.steps):
            step = run.steps[number - 1]
            if step.fence == fence:
                return None if step.said == said else Reason.STEP_MISMATCH
            if run.ended:
                return Reason.RUN_ENDED
            return Reason.STEP_MISMATCH if fence == run.fence else Reason.LEASE_LOST
        if run.ended:
            return Reason.RUN_ENDED
        if not run.can_write(fence, self.runtime.clock.perhaps()):
            return Reason.LEASE_LOST
        if number != len(run.steps) + 1:
            return Reason.STEP_MISMATCH
        return Reason.MESSAGE_ID_CONFLICT if self.knows and "known" in said[1] else None

    async def _update(self) -> None:
        id_ = self._draw(st.sampled_from(IDS))
        run = self.runs.get(id_)
        by_fence = bool(self.fences) and self._draw(st.booleans())
        statuses = [None, None, *WAITING, *ENDS[:3], *([RunStatus.RUNNING] if by_fence else [])]
        status = self._draw(st.sampled_from(statuses))
        why, metadata = self._draw(st.sampled_from([None, "r"])), self._draw(st.sampled_from([None, "", "m", "n"]))
        fence = self._some_fence(run) if by_fence else ""
        etags = run.etags[-3:] if run else ["etag"]
        etag = "" if by_fence else self._draw(st.sampled_from([*etags, etags[-1], etags[-1], "another"]))
        await self._change(id_, Update(RunKey(self.key, id_), fence, etag, status, why, metadata))

    async def _release(self) -> None:
        if not self.fences:
            return
        id_ = self._draw(st.sampled_from(IDS))
        fence = self._some_fence(self.runs.get(id_))
        wanted = Update(RunKey(self.key, id_), fence, "", RunStatus.INTERRUPTED, "given up")
        await self._change(id_, wanted, releases=True)

    async def _change(self, id_: str, wanted: Update, *, releases: bool = False) -> None:
        for _ in range(2):
            run = self.runs.get(id_)
            reason, values = self._update_reason(run, wanted)
            if releases:
                call = runs.release(self.runtime, wanted.key, wanted.fence, wanted.reason or "")
            else:
                call = runs.update(self.runtime, wanted)
            view = await self._expect(call, reason)
            if view is None:
                continue
            assert run is not None
            status, why, metadata = values
            if (run.status, run.reason, run.metadata) != values:
                until = run.until
                run.becomes(status, self._now)
                run.until = until if status is RunStatus.RUNNING else 0
                run.reason, run.metadata = why, metadata
                self._changed(view, run)
                if run.ended:
                    self.active = self._now
            assert view.etag == run.etags[-1]

    def _update_reason(self, run: Run | None, wanted: Update) -> tuple[Reason | None, tuple[RunStatus, str, str]]:
        if run is None:
            return self._missing(), (RunStatus.RUNNING, "", "")
        status = run.status if wanted.status is None else RunStatus(wanted.status)
        why = run.reason if status is run.status else ""
        values = status, why if wanted.reason is None else wanted.reason, run.metadata
        values = *values[:2], run.metadata if wanted.metadata is None else wanted.metadata
        is_said = (run.status, run.reason, run.metadata) == values
        is_repeated = is_said and wanted.etag and run.etags[-2:-1] == [wanted.etag]
        if run.ended:
            is_own = is_repeated or (is_said and wanted.fence and wanted.fence == run.fence)
            return None if is_own and wanted.status is not None else Reason.RUN_ENDED, values
        # A run that is RUNNING has no reason.
        invalid = Reason.FIELD_INVALID if status is RunStatus.RUNNING and values[1] else None
        if wanted.fence:
            if run.can_write(wanted.fence, self.runtime.clock.perhaps()):
                return invalid, values
            gave_up = is_said and wanted.fence == run.fence and run.status is wanted.status
            return None if gave_up and run.status is not RunStatus.RUNNING else Reason.LEASE_LOST, values
        if is_repeated or wanted.etag == run.etags[-1]:
            return invalid, values
        return Reason.ETAG_MISMATCH, values

    async def _claim(self) -> None:
        id_ = self._draw(st.sampled_from(IDS))
        key, mark = RunKey(self.key, id_), self._draw(st.sampled_from(["", "one", "two"]))
        how = Claim(self._draw(st.sampled_from(["", "h"])), self._lease(), mark)
        for _ in range(2 if mark else 1):
            run, reason = self.runs.get(id_), None
            is_first, is_over = False, False
            if run is None:
                reason = self._missing()
            elif run.ended:
                reason = Reason.RUN_ENDED
            elif run.status is RunStatus.RUNNING and run.until > self.runtime.clock.surely():
                is_first = bool(mark) and run.claim == mark and run.can_write(run.fence, self.runtime.clock.perhaps())
                reason = None if is_first else Reason.RUN_NOT_CLAIMABLE
            elif run.status is RunStatus.RUNNING and run.recoveries >= MOST_RECOVERIES:
                reason, is_over = Reason.RUN_ENDED, True
            view = await self._expect(run_claims.claim(self.runtime, self.key.tenant, how, key=key), reason)
            if run is not None and is_over:
                await self._failed(id_, run)
            if view is not None and run is not None:
                if not is_first:
                    self._taken(view, run, how)
                assert (view.fence, view.etag) == (run.fence, run.etags[-1])

    async def _claim_any(self) -> None:
        how = Claim(self._draw(st.sampled_from(["", "h"])), self._lease(), "")
        waits = [
            (run.until if run.status is RunStatus.RUNNING else run.updated, id_)
            for id_, run in self._unfinished.items()
            if run.status is RunStatus.INTERRUPTED
            or (run.status is RunStatus.RUNNING and run.until <= self.runtime.clock.surely())
        ]
        # What a clock that may be ahead has set is not yet in the past for one that may be behind.
        waits = [(at, id_) for at, id_ in waits if at <= self.runtime.clock.surely()]
        view = await run_claims.claim(self.runtime, self.key.tenant, how, agent=self.key.agent)
        for _, id_ in sorted(waits):
            run = self.runs[id_]
            if run.status is RunStatus.RUNNING and run.recoveries >= MOST_RECOVERIES:
                await self._failed(id_, run)
            else:
                assert view is not None
                assert view.key == RunKey(self.key, id_), "the longest waiting one"
                self._taken(view, run, how)
                return
        assert view is None

    async def _failed(self, id_: str, run: Run) -> None:
        run.becomes(RunStatus.FAILED, self._now)
        view = await runs.get(self.runtime, RunKey(self.key, id_))
        assert f"recovered {MOST_RECOVERIES} times" in view.run.head.reason
        run.reason = view.run.head.reason
        self.active = self._now
        self._changed(view, run)

    def _taken(self, view: RunView, run: Run, how: Claim) -> None:
        run.recoveries += run.status is RunStatus.RUNNING
        run.becomes(RunStatus.RUNNING, self._now)
        assert how.lease is not None
        run.until = self._now + how.lease
        run.reason, run.holder, run.claim = "", how.holder, how.request_id
        run.fence = self._claimed(view.fence)
        self._changed(view, run)

    async def _renew(self) -> None:
        if not self.fences:
            return
        id_ = self._draw(st.sampled_from(IDS))
        run, lease = self.runs.get(id_), self._lease()
        fence, reason = self._some_fence(run), None
        if not fence.endswith(self.fences[0][-32:]):
            reason = Reason.LEASE_LOST
        elif run is None:
            reason = self._missing()
        elif run.ended:
            reason = Reason.RUN_ENDED
        elif not run.can_write(fence, self.runtime.clock.perhaps()):
            reason = Reason.LEASE_LOST
        until = await self._expect(runs_renew(self.runtime, RunKey(self.key, id_), fence, lease), reason)
        if until is not None:
            assert run is not None
            assert until == self._now + lease
            run.until, run.is_as_begun = until, False
            self._changed(await runs.get(self.runtime, RunKey(self.key, id_)), run)

    async def _delete(self) -> None:
        id_ = self._draw(st.sampled_from(IDS))
        run = self.runs.get(id_)
        reason = Reason.RUN_UNFINISHED if run is not None and not run.ended else None
        deleted = await self._expect(runs.delete(self.runtime, RunKey(self.key, id_)), reason)
        if reason is None:
            assert deleted is (self.runs.pop(id_, None) is not None)
            assert not await runs.delete(self.runtime, RunKey(self.key, id_))

    async def _abandon(self) -> None:
        before = self._now - self._draw(st.sampled_from([3, 6])) * SECOND
        surely = self.runtime.clock.surely()
        left = {
            id_: run
            for id_, run in self._unfinished.items()
            if run.updated < before and not (run.status is RunStatus.RUNNING and run.until > surely)
        }
        assert await run_sweeping.abandon(self.runtime, self.key, before) == len(left)
        assert await run_sweeping.abandon(self.runtime, self.key, before) == 0
        for id_, run in left.items():
            run.becomes(RunStatus.ABANDONED, self._now)
            run.reason = f"nobody claimed it for {limits.RUN_ABANDON_SECONDS // 86_400} days"
            self._changed(await runs.get(self.runtime, RunKey(self.key, id_)), run)
            self.active = self._now

    async def _append(self) -> None:
        id_ = "" if self.knows else "known"
        self.knows = True
        await histories.append(self.runtime, histories.Append(self.key, [user("hi", id=id_)]))
        self.is_born = True
        self.messages += 1
        self.changes += 1
        self.active = self._now

    async def _check(self) -> None:
        """Everything is as the model says."""
        loaded = await self.runtime.store.load(self.key)
        if loaded is None:
            assert not self.is_born
            return
        record = loaded.record
        stored = {}
        for id_ in IDS:
            found = await self.runtime.store.load_run(self.key, id_)
            assert found is not None
            if found[1] is not None:
                stored[id_] = found[1]
        assert set(stored) == set(self.runs)
        for id_, run in self.runs.items():
            _check_run(run, stored[id_])
            await self._check_steps(record, id_, run)
        assert record.version == self.version + self.changes
        self.version = record.version
        if record.version > 1 or not self.runs:
            assert self.active in (record.appended, 0)
        self.active = record.appended
        assert 0 <= record.appended - record.activity < limits.ACTIVITY_LAG_SECONDS * SECOND
        assert record.last_seq == record.messages == self.messages
        assert [link.state for link in record.runs] == [stored[id_].state for id_ in self._unfinished]
        self._check_holders(record, stored)

    async def _check_steps(self, record: Record, id_: str, run: Run) -> None:
        page = await self.runtime.store.list_steps(self.key, record.incarnation, id_, 0, 1_000, 1 << 20)
        assert page is not None
        kept = [
            (step.number, str(Fence(step.fence, record.incarnation)), step.payload, step.status) for step in page.steps
        ]
        assert kept == [(number, step.fence, step.said[0], step.said[2]) for number, step in enumerate(run.steps, 1)]
        for step, known in zip(page.steps, run.steps, strict=True):
            seqs = [message.seq for message in known.answer.messages]
            assert (step.first_seq, step.messages) == (seqs[0] if seqs else 0, len(seqs))

    def _check_holders(self, record: Record, stored: dict[str, StoredRun]) -> None:
        """Whatever clocks two servers have: while one lets somebody write, none lets anybody else claim."""
        clock = self.runtime.clock
        for id_, run in self._unfinished.items():
            key = RunKey(self.key, id_)
            writers = [fence for fence in self.fences if _may_write(record, key, fence, clock)]
            assert len(writers) <= 1
            if run.status is not RunStatus.RUNNING:
                assert not writers
                continue
            can_be_claimed = _may_claim(record, key, stored[id_], clock)
            assert not (writers and can_be_claimed)
            if clock.surely() < run.until <= clock.perhaps():
                assert not writers
                assert not can_be_claimed
            error, machine = clock.error, self.time.now
            try:
                for true_time in (run.until - 1, run.until):
                    allowed = [False, False]
                    for wrong in (-3 * SECOND, -1, 0, 1, 3 * SECOND):  # A clock's reading, within its error.
                        for more in (0, 1, SECOND):
                            self.time.now += true_time + wrong - clock.now()
                            clock.error = abs(wrong) + more
                            allowed[0] |= _may_write(record, key, run.fence, clock)
                            allowed[1] |= _may_claim(record, key, stored[id_], clock)
                    assert allowed == [true_time < run.until, true_time >= run.until]
            finally:
                clock.error, self.time.now = error, machine


runs_renew = run_claims.renew


def _check_run(run: Run, stored: StoredRun) -> None:
    state, head = stored.state, stored.head
    assert (state.status, head.reason, head.metadata, head.holder) == (
        run.status,
        run.reason,
        run.metadata,
        run.holder,
    )
    assert (state.steps, state.recoveries, state.until) == (len(run.steps), run.recoveries, run.until)
    assert (head.created, state.updated, state.ended) == (run.created, run.updated, run.ended)
    assert state.version == len(run.etags) == len({*run.etags}), "every change counts, and makes a new etag"


def _may_write(record: Record, key: RunKey, fence: str, clock: Any) -> bool:
    try:
        plan_renew(record, key, Fence.parse(fence), SECOND, clock)
    except (RequestError, NotUnfinished):
        return False
    return True


def _may_claim(record: Record, key: RunKey, run: StoredRun, clock: Any) -> bool:
    try:
        plan_claim(record, key, run, "h", SECOND, "", MOST_RECOVERIES, clock, queued_only=False)
    except RequestError:
        return False
    return True
