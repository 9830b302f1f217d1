"""Runs and their steps: rows of a session's life that its commits change (design sections 1 and 5, invariant 15)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
import pytest

from memoryd_server import limits
from memoryd_server.stores.base import (
    Change,
    Committed,
    Conflict,
    Deleted,
    Due,
    RunChange,
    RunName,
    RunQuery,
    Store,
)
from memoryd_server.stores.records import (
    Record,
    RunHead,
    RunLink,
    RunState,
    RunStatus,
    SessionKey,
    StoredMessage,
    StoredRun,
    StoredStep,
)
from tests.adapters import EACH_SHARED_ADAPTER
from tests.stores.builders import TIME, Session, born, change_of, death, due_sessions, message, run_state, step
from tests.stores.conftest import NewSession, OpenStore
from tests.stores.damage import damage_record

HOUR = 3_600_000_000
PLENTY = 1 << 30
ANYTHING = frozenset[RunStatus]()


@dataclass
class Runs:
    """The runs of a session under test, and what they are expected to be."""

    session: Session
    runs: dict[str, StoredRun] = field(default_factory=dict)

    async def begin(self, run_id: str, status: RunStatus = RunStatus.RUNNING, **fields: Any) -> StoredRun:
        """Commits a run's beginning. `head` is its head; other fields are those of its state."""
        head = fields.pop("head", RunHead(TIME))
        change = RunChange(run_id, run_state(status, **fields), head)
        return await self._save(change, StoredRun(run_id, head, change.state))

    async def change(
        self, run_id: str, *steps: StoredStep, messages: tuple[StoredMessage, ...] = (), **fields: Any
    ) -> StoredRun:
        """Commits a run's next state, and its new steps."""
        before = self.runs[run_id]
        head = fields.pop("head", None)
        version = before.state.version + 1
        state = msgspec.structs.replace(before.state, **{"version": version, **fields})
        return await self._save(RunChange(run_id, state, head), before, *steps, messages=messages)

    async def _save(
        self, change: RunChange, before: StoredRun, *steps: StoredStep, messages: tuple[StoredMessage, ...] = ()
    ) -> StoredRun:
        run = StoredRun(change.run_id, change.head or before.head, change.state)
        self.runs[run.id] = run
        await self.session.commit(*messages, changed_runs=(change,), new_steps=steps, runs=self.links)
        return run

    @property
    def links(self) -> tuple[RunLink, ...]:
        """What the session's record holds."""
        return tuple(RunLink(run.id[:32], run.state) for run in self.runs.values() if not run.state.ended)

    async def load(self, run_id: str) -> StoredRun | None:
        """The run as it is stored."""
        loaded = await self.session.store.load_run(self.session.key, run_id)
        assert loaded is not None
        assert loaded[0] == self.session.record
        return loaded[1]

    def name(self, run_id: str) -> RunName:
        """What lists call the run."""
        assert self.session.record is not None
        return RunName(self.session.key, self.session.record.incarnation, run_id)


@pytest.fixture
def runs(session: Session) -> Runs:
    """The runs of a session that is not born yet."""
    return Runs(session)


async def ids(store: Store, page: int = 100, **conditions: Any) -> list[str]:
    """The runs that a query finds, read in pages."""
    found: list[str] = []
    after = ""
    while True:
        query = RunQuery(
            **{
                "tenant": "tenant",
                "agent": "agent",
                "session_id": None,
                "statuses": ANYTHING,
                "limit": page,
                "after": after,
                **conditions,
            }
        )
        answer = await store.list_runs(query)
        assert len(answer.runs) <= page
        found.extend(run.id for _, run in answer.runs)
        after = answer.after
        if not after:
            return found


async def claimable(store: Store, before: int, limit: int = 100, agent: str = "agent") -> list[str]:
    """The runs that can be claimed. The first of them come whole, too."""
    names = await store.list_claimable("tenant", agent, before, max(3, limit))
    for count in (1, 3):
        first = await store.load_claimable("tenant", agent, before, count)
        assert bool(first) == bool(names)
        assert len(first) <= count
        assert first == await whole(store, names[: len(first)])
    names = await store.list_claimable("tenant", agent, before, limit)
    return [name.run_id for name in names]


async def whole(store: Store, names: Sequence[RunName]) -> list[tuple[SessionKey, Record, StoredRun]]:
    """What is stored of some runs."""
    runs = []
    for name in names:
        loaded = await store.load_run(name.key, name.run_id)
        assert loaded is not None
        record, run = loaded
        assert record.incarnation == name.incarnation
        assert run is not None
        runs.append((name.key, record, run))
    return runs


async def due(store: Store, kind: Due, before: int) -> list[str]:
    """The sessions that are due."""
    return [key.session_id for key in await due_sessions(store, kind, before)]


async def ended(store: Store, before: int, limit: int = 100) -> list[str]:
    """The runs that ended before a time."""
    return [name.run_id for name in await store.list_ended_runs("tenant", "agent", before, limit)]


async def numbers(
    runs: Runs, run_id: str, after: int = 0, limit: int = 100, bytes: int = 1 << 20
) -> tuple[list[int], bool]:
    """The steps of a page, and whether there are more."""
    assert runs.session.record is not None
    page = await runs.session.store.list_steps(
        runs.session.key, runs.session.record.incarnation, run_id, after, limit, bytes
    )
    assert page is not None
    return [step.number for step in page.steps], page.more


async def steps_of(runs: Runs, run_id: str) -> list[StoredStep]:
    """All steps of a run, whole."""
    assert runs.session.record is not None
    page = await runs.session.store.list_steps(
        runs.session.key, runs.session.record.incarnation, run_id, 0, 100, PLENTY
    )
    assert page is not None
    return list(page.steps)


async def begin_whole(runs: Runs, commit: Callable[..., Awaitable[Record]] | None = None) -> None:
    """Commits at once what may come with a run's beginning."""
    run = StoredRun("run", RunHead(TIME, "worker", metadata="m"), run_state(fence=1, steps=1, until=TIME + HOUR))
    runs.runs = {run.id: run}
    await (commit or runs.session.commit)(
        *(message(1), message(2)),
        changed_runs=(RunChange(run.id, run.state, run.head),),
        new_steps=(step("run", 1),),
        runs=runs.links,
    )


async def see_whole(runs: Runs, steps: list[StoredStep]) -> None:
    """Checks that the session has that run alone, and the messages."""
    assert await runs.load("run") == runs.runs["run"]
    assert await steps_of(runs, "run") == steps
    assert await runs.session.tail() == [2, 1]
    store = runs.session.store
    assert await ids(store) == await claimable(store, TIME + 2 * HOUR) == ["run"]
    assert await ended(store, TIME + 2 * HOUR) == []


async def leave_half_way(runs: Runs, store: Store) -> None:
    """Ends a run of five steps, and deletes a part of it."""
    await runs.begin("run")
    await runs.change("run", *(step("run", number) for number in range(1, 6)), steps=5)
    await runs.change("run", status=RunStatus.COMPLETED, ended=TIME)
    assert await store.delete_run(runs.name("run"), 2) == 2
    del runs.runs["run"]


def beginning_again(session: Session) -> Change:
    """A change that begins a run, and does other things."""
    assert session.record is not None
    state = run_state(fence=session.record.version + 1)
    return change_of(
        *(session.key, session.record, message(1)),
        changed_runs=(RunChange("other", state, RunHead(TIME)), RunChange("run", state, RunHead(TIME))),
        runs=(RunLink("other", state), RunLink("run", state)),
    )


class TestCommits:
    async def test_a_run_begins(self, runs: Runs) -> None:
        head = RunHead(TIME + 1, "worker 1", "because", '{"a":"\0"}')
        run = await runs.begin("run", until=TIME + HOUR, head=head)
        assert await runs.load("run") == run

    async def test_with_the_birth_of_its_session_and_with_messages(self, runs: Runs, session: Session) -> None:
        assert session.record is None
        await runs.begin("run")
        await runs.change("run", step("run", 1), messages=(message(1), message(2)), steps=1)
        assert session.record is not None
        assert session.record.last_seq == 2
        read = await session.store.read(session.key, session.record.incarnation, [1, 2])
        assert read is not None
        assert [stored.seq for stored in read[1]] == [1, 2]
        assert await numbers(runs, "run") == ([1], False)

    async def test_a_birth_may_begin_a_run_with_messages_and_a_step(self, runs: Runs, session: Session) -> None:
        assert session.record is None
        await begin_whole(runs)
        await see_whole(runs, [step("run", 1)])

    async def test_a_rebirth_may_begin_a_run_of_which_the_life_before_had_one(
        self, runs: Runs, session: Session
    ) -> None:
        """(invariant 15)"""
        await runs.begin("run")
        await runs.change("run", step("run", 1, payload=b"of the life before"), step("run", 2), steps=2)
        await begin_whole(runs, session.be_reborn)
        await see_whole(runs, [step("run", 1)])

    async def test_a_rebirth_may_begin_a_run_that_the_life_before_was_deleting(
        self, runs: Runs, session: Session, store: Store
    ) -> None:
        await leave_half_way(runs, store)
        await begin_whole(runs, session.be_reborn)
        await see_whole(runs, [step("run", 1)])

    @pytest.mark.parametrize("ended", [0, TIME], ids=["unfinished", "ended"])
    async def test_a_run_that_is_stored_does_not_begin_again(
        self, runs: Runs, session: Session, store: Store, ended: int
    ) -> None:
        """(invariant 15: two servers begin it, and both saw that there was none)"""
        run = await runs.begin("run", RunStatus.COMPLETED if ended else RunStatus.RUNNING, ended=ended)
        run = await runs.change("run", step("run", 1), steps=1)
        assert await store.commit([beginning_again(session)]) == [Conflict()]
        assert await runs.load("run") == run
        assert await steps_of(runs, "run") == [step("run", 1)]
        assert await runs.load("other") is None
        assert await session.tail() == []

    async def test_a_run_does_not_begin_while_one_of_its_id_is_deleted(
        self, runs: Runs, session: Session, store: Store
    ) -> None:
        """Else its steps would stand beside those that are left, and be deleted with them."""
        await leave_half_way(runs, store)
        outcomes = await store.commit(
            [beginning_again(session), change_of(session.key, born(beginning_again(session)))]
        )
        assert outcomes == [Conflict()] * 2
        assert await runs.load("run") is await runs.load("other") is None
        assert await session.tail() == []
        while await store.delete_run(runs.name("run"), 2):
            pass
        again = beginning_again(session)
        assert await store.commit([again]) == [Committed()]
        session.record = again.record
        assert await steps_of(runs, "run") == []

    async def test_a_refusal_of_a_run_leaves_other_sessions_of_the_call_alone(
        self, runs: Runs, session: Session, new_session: NewSession, store: Store
    ) -> None:
        await leave_half_way(runs, store)
        other = Runs(new_session("other"))
        await other.begin("run")
        assert other.session.record is not None
        state = run_state(version=2)
        change = change_of(
            *(other.session.key, other.session.record),
            changed_runs=(RunChange("run", state, None),),
            runs=(RunLink("run", state),),
        )
        assert await store.commit([beginning_again(session), change]) == [Conflict(), Committed()]

    async def test_a_change_keeps_the_head_unless_it_brings_one(self, runs: Runs) -> None:
        await runs.begin("run", head=RunHead(TIME, "worker 1", metadata="m"))
        run = await runs.change("run", fence=2, until=TIME + HOUR, recoveries=1, updated=TIME + 5)
        assert await runs.load("run") == run
        assert run.head.holder == "worker 1"
        run = await runs.change("run", head=RunHead(TIME, "worker 2", "why"), status=RunStatus.FAILED, ended=TIME + 9)
        assert await runs.load("run") == run

    async def test_states_of_unfinished_runs_are_part_of_the_record(self, runs: Runs, session: Session) -> None:
        for number in range(limits.MAX_UNFINISHED_RUNS):
            await runs.begin(f"run {number}")
        loaded = await session.store.load(session.key)
        assert loaded is not None
        assert loaded.record.runs == runs.links
        assert len(loaded.record.runs) == limits.MAX_UNFINISHED_RUNS

    async def test_ids_and_payloads_are_exact(self, runs: Runs) -> None:
        """(invariants 4 and 5)"""
        names = ["run", "Run", "run ", "r\u00fcn", "ru\u0308n", "%", "_", "a:b", "\x01", "\U0001f600" * 64, "x" * 256]
        payloads = [b"", b"\0", bytes(range(256)), "\u2028\U0001f600".encode(), b"\xff\xfe", b"{}"]
        for number, name in enumerate(names):
            payload = payloads[number % len(payloads)]
            await runs.begin(name)
            await runs.change(name, step(name, 1, payload=payload, content_type=f"type/{number}; a=\0"), steps=1)
        for number, name in enumerate(names):
            assert await runs.load(name) == runs.runs[name]
            assert runs.session.record is not None
            page = await runs.session.store.list_steps(
                runs.session.key, runs.session.record.incarnation, name, 0, 10, 1 << 20
            )
            assert page is not None
            expected = step(name, 1, payload=payloads[number % len(payloads)], content_type=f"type/{number}; a=\0")
            assert list(page.steps) == [expected]

    async def test_a_refused_one_changes_nothing(self, runs: Runs, session: Session) -> None:
        run = await runs.begin("run")
        record = session.record
        assert record is not None
        changes = [
            change_of(
                session.key,
                msgspec.structs.replace(record, version=record.version + 5),
                message(1),
                changed_runs=(
                    RunChange("run", run_state(version=2, fence=9), None),
                    RunChange("new", run_state(), RunHead(1)),
                ),
                new_steps=(step("run", 1),),
            )
        ]
        assert await session.store.commit(changes) == [Conflict()]
        assert await runs.load("run") == run
        assert await runs.load("new") is None
        assert await numbers(runs, "run") == ([], False)
        assert await ids(session.store) == ["run"]

    async def test_of_one_session_in_one_call_rest_on_each_other(self, runs: Runs, session: Session) -> None:
        await runs.begin("run")
        record = session.record
        assert record is not None
        changes: list[Change] = []
        for number in (1, 2, 3):
            state = run_state(version=number + 1, steps=number)
            changes.append(
                change_of(
                    session.key,
                    record,
                    changed_runs=(RunChange("run", state, None),),
                    new_steps=(step("run", number),),
                    runs=(RunLink("run", state),),
                )
            )
            assert changes[-1].record is not None
            record = changes[-1].record
        assert await session.store.commit(changes) == [Committed()] * 3
        session.record = record
        assert await numbers(runs, "run") == ([1, 2, 3], False)
        loaded = await runs.load("run")
        assert loaded is not None
        assert loaded.state.steps == 3

    async def test_of_a_session_that_is_not_there_nothing_is_read(self, store: Store) -> None:
        assert await store.load_run(SessionKey("tenant", "agent", "none"), "run") is None
        assert await store.list_steps(SessionKey("tenant", "agent", "none"), "0" * 32, "run", 0, 10, 10) is None


class TestSteps:
    async def test_come_back_as_they_were_committed(self, runs: Runs) -> None:
        """(invariant 15: by its fence a step tells under which claim it was committed)"""
        await runs.begin("run")
        one = step("run", 1, fence=1, status=RunStatus.ABANDONED)
        two = step("run", 2, fence=(1 << 62) + 1, status=RunStatus.RUNNING, first_seq=0, messages=0)
        await runs.change("run", one, steps=1)
        await runs.change("run", two, fence=two.fence, steps=2)
        run = await runs.change("run", step("run", 3, fence=0), steps=3)
        assert await steps_of(runs, "run") == [one, two, step("run", 3, fence=0)]
        assert await runs.load("run") == run
        assert run.state.fence == two.fence

    async def test_come_by_number_in_pages(self, runs: Runs) -> None:
        await runs.begin("run")
        await runs.begin("other")
        for number in range(1, 8):
            await runs.change("run", step("run", number), steps=number)
        await runs.change("other", step("other", 1), steps=1)
        assert await numbers(runs, "run") == ([1, 2, 3, 4, 5, 6, 7], False)
        assert await numbers(runs, "run", limit=3) == ([1, 2, 3], True)
        assert await numbers(runs, "run", after=3, limit=4) == ([4, 5, 6, 7], False)
        assert await numbers(runs, "run", after=7) == ([], False)
        assert await numbers(runs, "other") == ([1], False)

    async def test_are_bounded_by_bytes_but_one_comes(self, runs: Runs) -> None:
        await runs.begin("run")
        for number, size in enumerate((100, 100, 100, 1_000, 10), start=1):
            await runs.change("run", step("run", number, payload=b"x" * size), steps=number)
        assert await numbers(runs, "run", bytes=250) == ([1, 2], True)
        assert await numbers(runs, "run", bytes=300) == ([1, 2, 3], True)
        assert await numbers(runs, "run", after=3, bytes=50) == ([4], True)
        assert await numbers(runs, "run", after=3, bytes=1_010) == ([4, 5], False)

    async def test_of_two_mebibytes(self, runs: Runs) -> None:
        await runs.begin("run")
        payload = bytes(range(256)) * (limits.MAX_STEP_BYTES // 256)
        await runs.change("run", step("run", 1, payload=payload), steps=1)
        assert runs.session.record is not None
        page = await runs.session.store.list_steps(
            runs.session.key, runs.session.record.incarnation, "run", 0, 10, 1 << 30
        )
        assert page is not None
        assert page.steps[0].payload == payload

    async def test_of_another_life_or_no_run_are_none(self, runs: Runs, session: Session) -> None:
        await runs.begin("run")
        assert session.record is not None
        assert await session.store.list_steps(session.key, "0" * 32, "run", 0, 10, 10) is None
        assert await session.store.list_steps(session.key, session.record.incarnation, "none", 0, 10, 10) is None


class TestLists:
    async def test_newest_first_by_session_by_agent_and_by_status(self, new_session: NewSession, store: Store) -> None:
        one, two = Runs(new_session("one")), Runs(new_session("two"))
        foreign = Runs(new_session("one", agent="another"))
        for number in range(6):
            owner = (one, two)[number % 2]
            status = RunStatus.AWAITING_APPROVAL if number % 3 == 0 else RunStatus.INTERRUPTED
            await owner.begin(f"run {number}", status, head=RunHead(TIME + number))
        await foreign.begin("foreign", head=RunHead(TIME + 9))
        for page in (1, 2, 100):
            assert await ids(store, page) == [f"run {number}" for number in (5, 4, 3, 2, 1, 0)]
            assert await ids(store, page, session_id="two") == ["run 5", "run 3", "run 1"]
            waiting = frozenset({RunStatus.AWAITING_APPROVAL})
            assert await ids(store, page, statuses=waiting) == ["run 3", "run 0"]
            assert await ids(store, page, statuses=waiting, session_id="one") == ["run 0"]
            both = waiting | {RunStatus.INTERRUPTED}
            assert await ids(store, page, statuses=both) == await ids(store)
        assert await ids(store, statuses=frozenset({RunStatus.FAILED})) == []
        assert await ids(store, agent="another") == ["foreign"]
        assert await ids(store, tenant="other") == await ids(store, session_id="none") == []

    async def test_pages_join_up_where_times_are_equal(self, new_session: NewSession, store: Store) -> None:
        for session_id in ("a", "b", "c"):
            runs = Runs(new_session(session_id))
            for number in range(3):
                await runs.begin(f"{session_id}{number}")
        whole = await ids(store)
        assert sorted(whole) == [f"{session_id}{number}" for session_id in "abc" for number in range(3)]
        for page in (1, 2, 4):
            assert await ids(store, page) == whole

    async def test_tell_runs_as_they_are_now(self, runs: Runs, store: Store) -> None:
        await runs.begin("run")
        run = await runs.change("run", status=RunStatus.COMPLETED, ended=TIME + 7)
        page = await store.list_runs(RunQuery("tenant", "agent", None, ANYTHING, 10))
        assert list(page.runs) == [(runs.session.key, run)]
        assert await ids(store, statuses=frozenset({RunStatus.RUNNING})) == []

    async def test_claimable_ones_come_longest_waiting_first(self, runs: Runs, store: Store) -> None:
        """INTERRUPTED, or RUNNING with its lease over (design section 3)."""
        await runs.begin("leased", until=TIME + 30)
        await runs.begin("late", until=TIME + 10)
        await runs.begin("idle", RunStatus.INTERRUPTED, updated=TIME + 20)
        await runs.begin("awaits", RunStatus.AWAITING_APPROVAL)
        await runs.begin("budget", RunStatus.AWAITING_BUDGET)
        await runs.begin("done", RunStatus.COMPLETED, ended=TIME)
        assert await claimable(store, TIME + 10) == []
        assert await claimable(store, TIME + 11) == ["late"]
        assert await claimable(store, TIME + 100) == ["late", "idle", "leased"]
        assert await claimable(store, TIME + 100, limit=2) == ["late", "idle"]
        assert await claimable(store, TIME + 100, agent="another") == []
        (name, *_) = await store.list_claimable("tenant", "agent", TIME + 100, 1)
        assert name == runs.name("late")

    @pytest.mark.parametrize("seed", [1, 2, 3])
    async def test_the_first_claimable_ones_come_whole_whatever_becomes_of_runs(
        self, new_session: NewSession, store: Store, seed: int
    ) -> None:
        random = Random(seed)
        sessions = [Runs(new_session(f"{number}")) for number in range(3)]
        for number in range(50):
            runs = random.choice(sessions)
            times: dict[str, Any] = {
                "until": TIME + random.randrange(1, 10_000),
                "updated": TIME + random.randrange(1, 10_000),
            }
            unfinished = [run_id for run_id, run in runs.runs.items() if not run.state.ended]
            act = random.choice(["begin", "begin", "interrupt", "renew", "wait", "end", "die", "be reborn"])
            if act in ("die", "be reborn") and runs.session.record is not None and random.random() < 0.4:
                await (runs.session.die() if act == "die" else runs.session.be_reborn())
                runs.runs = {}
            elif act in ("interrupt", "renew", "wait", "end") and unfinished:
                statuses = {"renew": RunStatus.RUNNING, "wait": RunStatus.AWAITING_BUDGET, "end": RunStatus.FAILED}
                status = statuses.get(act, RunStatus.INTERRUPTED)
                ended = TIME if act == "end" else 0
                await runs.change(random.choice(unfinished), status=status, ended=ended, **times)
            else:
                await runs.begin(f"run {number}", random.choice([RunStatus.RUNNING, RunStatus.INTERRUPTED]), **times)
            waiting = [
                (run.state.claimable_at, runs.session.key, runs.session.record, run)
                for runs in sessions
                for run in runs.runs.values()
                if run.state.claimable_at is not None
            ]
            await claimable(store, TIME + 5_000)
            found = await store.load_claimable("tenant", "agent", TIME + HOUR, 3)
            waited = [run.state.claimable_at for *_, run in found]
            assert all((time, *each) in waiting for time, each in zip(waited, found, strict=True))
            assert waited == sorted(time for time, *_ in waiting)[: len(found)]
            assert bool(found) == bool(waiting)
        assert len(await claimable(store, TIME + HOUR)) > 3

    @pytest.mark.parametrize("adapter", EACH_SHARED_ADAPTER, indirect=True)
    async def test_damaged_records_of_others_do_not_stand_in_the_way_of_the_first_claimable_one(
        self, store_url: str, new_session: NewSession, store: Store
    ) -> None:
        first, damaged = Runs(new_session("first")), Runs(new_session("damaged"))
        await damaged.begin("later", RunStatus.INTERRUPTED, updated=TIME + 2)
        await first.begin("run", RunStatus.INTERRUPTED, updated=TIME + 1)
        damage_record(store_url, damaged.session.key)
        found = await store.load_claimable("tenant", "agent", TIME + HOUR, 4)
        assert found == [(first.session.key, first.session.record, first.runs["run"])]

    async def test_a_renewed_or_ended_one_moves(self, runs: Runs, store: Store) -> None:
        await runs.begin("a", until=TIME + 10)
        await runs.begin("b", until=TIME + 20)
        await runs.change("a", until=TIME + 30)
        assert await claimable(store, TIME + 100) == ["b", "a"]
        await runs.change("b", status=RunStatus.CANCELLED, until=0, ended=TIME + 50)
        assert await claimable(store, TIME + 100) == ["a"]
        assert await ended(store, TIME + 51) == ["b"]

    async def test_ended_ones_come_longest_ended_first(self, runs: Runs, store: Store) -> None:
        for number, at in enumerate((30, 10, 20)):
            await runs.begin(f"run {number}", RunStatus.COMPLETED, ended=TIME + at)
        await runs.begin("unfinished", updated=1)
        assert await ended(store, TIME + 30) == ["run 1", "run 2"]
        assert await ended(store, TIME + 31, limit=1) == ["run 1"]
        assert await ended(store, TIME + 31) == ["run 1", "run 2", "run 0"]

    async def test_sessions_with_an_unfinished_run_are_due_by_its_last_change(
        self, new_session: NewSession, store: Store
    ) -> None:
        """(design section 4, invariant 18: a run that nobody claimed for 30 days is abandoned)"""
        old, new = Runs(new_session("old")), Runs(new_session("new"))
        await new.begin("run", updated=TIME + 20)
        await old.begin("run", updated=TIME + 10)
        await old.begin("other", updated=TIME + 30)
        assert await due_sessions(store, Due.ABANDONMENT, TIME + 10) == []
        assert await due(store, Due.ABANDONMENT, TIME + 21) == ["old", "new"]
        await old.change("run", updated=TIME + 40)
        await new.change("run", status=RunStatus.COMPLETED, ended=TIME + 50)
        assert await due(store, Due.ABANDONMENT, TIME + 100) == ["old"]
        assert await due_sessions(store, Due.ABANDONMENT, TIME + 30) == []

    async def test_a_session_with_an_unfinished_run_is_not_due_to_expire(self, runs: Runs, store: Store) -> None:
        """(invariant 18)"""
        await runs.session.commit(ttl=1_000_000)
        later = TIME + HOUR
        assert await due(store, Due.EXPIRY, later) == ["session"]
        await runs.begin("run")
        assert await due_sessions(store, Due.EXPIRY, later) == []
        await runs.change("run", status=RunStatus.COMPLETED, ended=TIME)
        assert await due(store, Due.EXPIRY, later) == ["session"]


class TestDeletion:
    async def test_hides_a_run_at_once_and_takes_its_steps_in_turns(self, runs: Runs, store: Store) -> None:
        await runs.begin("run")
        await runs.begin("other")
        for number in range(1, 8):
            await runs.change("run", step("run", number), steps=number)
        await runs.change("other", step("other", 1), steps=1)
        await runs.change("run", status=RunStatus.COMPLETED, ended=TIME)
        deleted = [await store.delete_run(runs.name("run"), 3)]
        assert await runs.load("run") is None
        assert await ids(store) == ["other"]
        assert await ended(store, TIME + 1) == []
        while count := await store.delete_run(runs.name("run"), 3):
            deleted.append(count)
        assert sum(deleted) == 8
        assert max(deleted) <= 3
        assert await numbers(runs, "other") == ([1], False)
        del runs.runs["run"]
        await runs.begin("run")
        assert await numbers(runs, "run") == ([], False)

    async def test_leaves_unfinished_runs_and_other_lives_alone(self, runs: Runs, store: Store) -> None:
        """(invariant 15)"""
        run = await runs.begin("run")
        assert await store.delete_run(runs.name("run"), 10) == 0
        await runs.begin("done", RunStatus.COMPLETED, ended=TIME)
        assert await store.delete_run(RunName(runs.session.key, "0" * 32, "done"), 10) == 0
        assert await store.delete_run(runs.name("none"), 10) == 0
        assert await runs.load("run") == run
        assert await ids(store) == ["run", "done"] or await ids(store) == ["done", "run"]

    async def test_left_half_way_is_ended_by_a_sweep(self, runs: Runs, store: Store) -> None:
        await runs.begin("run")
        for number in range(1, 6):
            await runs.change("run", step("run", number), steps=number)
        await runs.change("run", status=RunStatus.COMPLETED, ended=TIME)
        first = await store.delete_run(runs.name("run"), 2)
        swept = Deleted()
        while (deleted := await store.sweep(await store.now(), 2)).total:
            swept += deleted
        assert first + swept.runs + swept.steps == 6
        assert await store.delete_run(runs.name("run"), 10) == 0


class TestLives:
    async def test_runs_end_with_their_session(self, runs: Runs, session: Session) -> None:
        store = session.store
        await runs.begin("run")
        await runs.change("run", step("run", 1), steps=1)
        await runs.begin("done", RunStatus.COMPLETED, ended=TIME)
        assert session.record is not None
        assert await store.commit([death(session.key, session.record)]) == [Committed()]
        assert await store.load_run(session.key, "run") is None
        assert await ids(store) == await claimable(store, TIME + HOUR) == await ended(store, TIME + HOUR) == []
        assert await due_sessions(store, Due.ABANDONMENT, TIME + HOUR) == []
        session.record = None
        await session.commit()
        assert await runs.load("run") is None
        assert await ids(store) == []

    async def test_a_sweep_deletes_what_a_dead_life_left(self, runs: Runs, session: Session) -> None:
        store = session.store
        await runs.begin("run")
        for number in range(1, 4):
            await runs.change("run", step("run", number), steps=number)
        assert session.record is not None
        await store.commit([death(session.key, session.record)])
        now = await store.now() + (limits.PURGE_DELAY_SECONDS + 1) * 1_000_000
        swept = Deleted()
        while (deleted := await store.sweep(now, 2)).total:
            swept += deleted
        assert (swept.runs, swept.steps) == (1, 3)

    async def test_an_erasure_deletes_the_runs_of_a_user(
        self, runs: Runs, session: Session, new_session: NewSession
    ) -> None:
        """(design section 3, EraseUser)"""
        store = session.store
        await session.commit(user_id="user")
        await runs.begin("run")
        await runs.change("run", step("run", 1, payload=b"something secret"), steps=1)
        kept = Runs(new_session("kept"))
        await kept.session.commit(user_id="other")
        await kept.begin("kept")
        assert session.record is not None
        await store.commit([death(session.key, session.record)])
        erased = Deleted()
        while (deleted := await store.erase("tenant", "user", 2)).total:
            erased += deleted
        assert (erased.runs, erased.steps) == (1, 1)
        assert await ids(store) == ["kept"]


@pytest.mark.parametrize("adapter", EACH_SHARED_ADAPTER, indirect=True)
async def test_another_server_sees_runs_and_claims_by_compare_and_set(open_store: OpenStore) -> None:
    one, two = await open_store(), await open_store()
    key = SessionKey("tenant", "agent", "session")
    runs = Runs(Session(one, key))
    run = await runs.begin("run", RunStatus.INTERRUPTED)
    (name,) = await two.list_claimable("tenant", "agent", TIME + HOUR, 10)
    loaded = await two.load_run(name.key, name.run_id)
    assert loaded is not None
    record, seen = loaded
    assert seen == run

    def claim(holder: str) -> Change:
        state = run_state(version=2, fence=2, until=TIME + HOUR)
        change = RunChange("run", state, RunHead(TIME, holder))
        return change_of(key, record, changed_runs=(change,), runs=(RunLink("run", state),))

    outcomes = [*(await two.commit([claim("two")])), *(await one.commit([claim("one")]))]
    assert [type(outcome) for outcome in outcomes] == [Committed, Conflict]
    again = await one.load_run(key, "run")
    assert again is not None
    assert again[1] is not None
    assert again[1].head.holder == "two"


def test_a_record_with_runs_is_small() -> None:
    """64 unfinished runs take some kilobytes of a record of at most 64 KiB."""
    state = RunState(RunStatus.RUNNING, 10**9, 10**6, 10**9, 2**52, 2**52, 3, 0)
    links = tuple(RunLink("x" * 32, state) for _ in range(limits.MAX_UNFINISHED_RUNS))
    assert len(msgspec.json.encode(links)) < 9 * 1024
    assert Record("", 0, "", 0, 0, runs=links).abandon_at == 2**52
