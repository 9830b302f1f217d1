"""A copy holds the runs of its source with their steps, and whoever holds one in the source does not hold it in the
copy: nothing is done twice (invariant 15).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server import limits
from memoryd_server.engine import (
    agents,
    clock,
    copying,
    histories,
    pacing,
    run_claims,
    run_copying,
    run_pages,
    run_steps,
    runs,
    tokens,
)
from memoryd_server.engine.agents import AgentUpdate
from memoryd_server.engine.changes import SessionSettings
from memoryd_server.engine.copied_versions import as_copied, settled_state
from memoryd_server.engine.copying import Tally
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.histories import Append
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.run_access import RunView
from memoryd_server.engine.run_claims import Claim
from memoryd_server.engine.run_copying import FOR_EVER
from memoryd_server.engine.run_errors import RunKey
from memoryd_server.engine.run_pages import list_runs, list_steps
from memoryd_server.engine.run_steps import StepCommit
from memoryd_server.engine.runs import Creation, Update
from memoryd_server.engine.runtime import Defaults, Runtime
from memoryd_server.engine.sweeping import Sweeper
from memoryd_server.stores.base import Change, Committed, Outcome, RunName, RunPage, RunQuery, StoreUnavailable
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.records import RunStatus, SessionKey, StoredRun, StoredStep
from memoryd_server.stores.registry import create_store
from tests.adapters import EACH_ADAPTER, Adapter
from tests.engine.messages import KEY, calls, results, user
from tests.engine.run_worlds import MOST_RECOVERIES, Time, World
from tests.engine.sessions import TIME
from tests.engine.test_copying import EVERYTHING, InterruptedStore, Witness, copied, differences, opened

SECOND = 1_000_000
RUN = RunKey(KEY, "run")


@pytest.fixture
async def source() -> Runtime:
    return await opened()


@pytest.fixture
async def target() -> Runtime:
    return await opened()


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """The time of both stores, which the test moves."""
    time = Time()
    monkeypatch.setattr(clock, "_machine_time", time)

    async def now(_store: InMemoryStore) -> int:
        return time.now

    monkeypatch.setattr(InMemoryStore, "now", now)
    return time


# What is done with runs


async def begin(runtime: Runtime, key: RunKey = RUN, **fields: Any) -> RunView:
    return await runs.create(runtime, Creation(key, **fields))


async def step(
    runtime: Runtime, by: RunView, number: int, *messages: IncomingMessage, payload: bytes = b"", **fields: Any
) -> None:
    payload = payload or b"step %d" % number
    await run_steps.commit(runtime, StepCommit(by.key, by.fence, number, payload, "text", messages, **fields))


async def finish(runtime: Runtime, by: RunView, status: RunStatus = RunStatus.COMPLETED) -> None:
    await runs.update(runtime, Update(by.key, by.fence, status=status, reason="done"))


async def claim(runtime: Runtime, key: RunKey = RUN, **fields: Any) -> RunView:
    view = await run_claims.claim(runtime, key.session.tenant, Claim(**fields), key=key)
    assert view is not None
    return view


async def refused(call: Awaitable[Any]) -> Reason:
    """Why a call is refused."""
    with pytest.raises(RequestError) as refusal:
        await call
    return refusal.value.reason


async def stored(runtime: Runtime, key: SessionKey = KEY) -> list[tuple[StoredRun, list[StoredStep]]]:
    """The runs of a session with their steps, but for who holds them."""
    loaded = await runtime.store.load(key)
    if loaded is None:
        return []
    incarnation = loaded.record.incarnation
    found = []
    async for page in list_runs(runtime.store, key):
        for run in page:
            pages = list_steps(runtime.store, key, incarnation, run, most_bytes=limits.MAX_STEP_BYTES)
            steps = [step async for some in pages for step in some]
            found.append((msgspec.structs.replace(run, state=settled_state(run.state)), steps))
    return sorted(found, key=lambda each: each[0].id)


async def assert_same(source: Runtime, target: Runtime, key: SessionKey = KEY) -> None:
    assert await stored(target, key) == await stored(source, key)
    here, there = await source.store.load(key), await target.store.load(key)
    assert (here is None) == (there is None)
    if here is not None and there is not None:
        links = [[(link.token, settled_state(link.state)) for link in each.record.runs] for each in (here, there)]
        assert links[0] == links[1]
        assert here.record.open_state == there.record.open_state
        assert here.record.expires_at == there.record.expires_at


@contextmanager
def in_small_pieces() -> Iterator[None]:
    """Copies as large runs are copied: in many commits, and many pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_copying, "BATCH_BYTES", 20)
        patch.setattr(run_copying, "BATCH_ROWS", 3)
        patch.setattr(run_pages, "PAGE_RUNS", 2)
        patch.setattr(run_pages, "PAGE_STEPS", 2)
        yield


_EXAMPLES = {"in_memory": 40, "sqlite": 15, "mongodb": 3}
"""Lives; the servers that stand in for MongoDB are slow."""


@pytest.mark.parametrize("adapter", EACH_ADAPTER)
def test_a_copy_has_all_runs_whatever_was_done_to_them_and_no_fence_of_its_source_holds_there(
    adapter: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From one store into another and on into a third, while the first goes on between two copies."""
    time = Time()
    monkeypatch.setattr(clock, "_machine_time", time)
    numbers = itertools.count(1)

    async def live(first: Runtime, middle: Runtime, data: st.DataObject) -> None:
        key = SessionKey("default", f"agent-{next(numbers)}", "session")
        scope = copying.Scope(agents=frozenset({key.agent}))
        last = await opened()
        world = World(first, data, time, key)
        with in_small_pieces() if data.draw(st.booleans()) else nullcontext():
            for _ in range(2):
                await world.live(data.draw(st.integers(1, 15)))
                await copied(first, middle, scope)
                await assert_same(first, middle, key)
            await copied(middle, last, scope)
            await assert_same(first, last, key)
        for there in (middle, last):
            await refuses_all(there, world)
            again = await copied(first, there, scope)
            assert (again.new, again.updated) == (0, 0)

    with adapter.emptied(tmp_path) as url, asyncio.Runner() as runner:

        async def start() -> tuple[Runtime, Runtime]:
            store = create_store("test", adapter.type, url)
            defaults = Defaults(tokenizer=tokens.ESTIMATE, run_recoveries=MOST_RECOVERIES)
            first = Runtime("first", memory := InMemoryStore(), await memory.open(), defaults)
            return first, Runtime("middle", store, await store.open(), defaults)

        first, middle = runner.run(start())

        @given(st.data())
        @settings(max_examples=_EXAMPLES.get(adapter.name, 6))
        def lives(data: st.DataObject) -> None:
            runner.run(live(first, middle, data))

        try:
            lives()
        finally:
            runner.run(middle.close())


async def refuses_all(there: Runtime, world: World) -> None:
    """A copy refuses what the holders of the source's runs would write to it, also while their leases last."""
    for fence, id_ in itertools.product(world.fences, world.runs):
        key = RunKey(world.key, id_)
        assert await refused(run_claims.renew(there, key, fence)) in (Reason.LEASE_LOST, Reason.RUN_ENDED)
        number = len(world.runs[id_].steps) + 1
        new = run_steps.commit(there, StepCommit(key, fence, number, b"late"))
        assert await refused(new) in (Reason.LEASE_LOST, Reason.RUN_ENDED)


class TestLeases:
    """Of runs that somebody holds in the source."""

    async def test_hold_in_the_copy_until_they_are_over_for_nobody(
        self, time: Time, source: Runtime, target: Runtime
    ) -> None:
        held = await begin(source, lease=10 * SECOND, holder="worker")
        await step(source, held, 1)
        await copied(source, target)
        there = await runs.get(target, RUN)
        assert (there.run.head.holder, there.run.state.until) == ("worker", TIME + 10 * SECOND)
        assert await refused(claim(target)) == Reason.RUN_NOT_CLAIMABLE
        assert await refused(run_claims.renew(target, RUN, held.fence)) == Reason.LEASE_LOST
        assert await refused(step(target, held, 2)) == Reason.LEASE_LOST
        assert await refused(runs.release(target, RUN, held.fence)) == Reason.LEASE_LOST
        await step(source, held, 2)
        time.now += 10 * SECOND
        claimed = await claim(target)
        assert (claimed.run.state.steps, claimed.run.state.recoveries) == (1, 1)
        await step(target, claimed, 2)

    async def test_of_the_source_have_lesser_fences_for_ever(
        self, time: Time, source: Runtime, target: Runtime
    ) -> None:
        """What is claimed there after the copy was made is not told from earlier claims by its number alone: whoever
        orders writes by fences refuses it.
        """
        fences = [(await begin(source, lease=SECOND)).fence]
        await copied(source, target)
        time.now += 2 * SECOND
        for _ in range(5):
            again = await claim(source, lease=SECOND)
            fences.append(again.fence)
            await runs.release(source, RUN, again.fence)
        there = await claim(target, lease=SECOND)
        assert fences == sorted(fences)
        assert all(fence < there.fence for fence in fences)
        for fence in fences:
            assert await refused(run_claims.renew(target, RUN, fence)) == Reason.LEASE_LOST
        assert await refused(run_claims.renew(source, RUN, there.fence)) == Reason.LEASE_LOST

    async def test_a_copy_back_gives_greater_fences_than_the_copy_did(
        self, time: Time, source: Runtime, target: Runtime
    ) -> None:
        first = await begin(source, lease=SECOND)
        await copied(source, target)
        time.now += 2 * SECOND
        second = await claim(target, lease=SECOND)
        await copied(target, source)
        await assert_same(target, source)
        assert await refused(run_claims.renew(source, RUN, second.fence)) == Reason.LEASE_LOST
        time.now += 2 * SECOND
        third = await claim(source, lease=SECOND)
        assert first.fence < second.fence < third.fence

    async def test_a_repeated_step_of_the_source_gets_its_first_answer(self, source: Runtime, target: Runtime) -> None:
        held = await begin(source)
        await step(source, held, 1, user("said", id="said"))
        await copied(source, target)
        await step(target, held, 1, user("said", id="said"))
        assert await refused(step(target, held, 1, payload=b"other")) == Reason.STEP_MISMATCH

    async def test_what_nobody_holds_is_claimed_at_once(self, source: Runtime, target: Runtime) -> None:
        await begin(source, is_queued=True)
        waiting = await begin(source, RunKey(KEY, "waiting"))
        await step(source, waiting, 1, status=int(RunStatus.AWAITING_APPROVAL), reason="may I?")
        await copied(source, target)
        there = await runs.get(target, waiting.key)
        assert there.etag == (await runs.get(source, waiting.key)).etag
        assert (await claim(target)).run.state.recoveries == 0
        assert (await claim(target, waiting.key)).run.state.steps == 1

    async def test_keep_the_session_of_the_copy_from_expiring(
        self, time: Time, source: Runtime, target: Runtime
    ) -> None:
        """(invariant 18)"""
        held = await begin(source, lease=3_600 * SECOND, settings=SessionSettings(ttl=SECOND))
        await step(source, held, 1, user("hi"))
        time.now += 60 * SECOND
        await copied(source, target)
        report = await Sweeper(target, alone=False).sweep()
        assert report is not None
        assert report.expired == 0
        await finish(source, held)
        await copied(source, target)
        await assert_same(source, target)
        loaded = await target.store.load(KEY)
        assert loaded is not None
        assert loaded.record.expires_at == time.now + SECOND


class TestASecondCopy:
    async def test_brings_what_came_since(self, source: Runtime, target: Runtime) -> None:
        held = await begin(source, metadata="first")
        ended = await begin(source, RunKey(KEY, "ended"))
        await step(source, held, 1, user("1"))
        await copied(source, target)
        await step(source, held, 2, user("2"), calls("call"))
        await runs.update(source, Update(RUN, held.fence, metadata="second"))
        await finish(source, ended)
        await begin(source, RunKey(KEY, "new"), is_queued=True)
        tally = await copied(source, target)
        assert (tally.new, tally.updated, tally.written, tally.written_steps) == (0, 1, 2, 1)
        await assert_same(source, target)
        tally = await copied(source, target)
        assert (tally.known, tally.written_steps, tally.runs, tally.steps) == (1, 0, 3, 2)

    async def test_deletes_what_the_source_deleted(self, source: Runtime, target: Runtime) -> None:
        for name in ("ended", "deleted", "begun anew"):
            view = await begin(source, RunKey(KEY, name))
            await step(source, view, 1)
            if name == "ended":
                await finish(source, view)
        await copied(source, target)
        for name in ("ended", "deleted", "begun anew"):
            key = RunKey(KEY, name)
            if name != "ended":
                await runs.update(source, Update(key, etag=(await runs.get(source, key)).etag, status=8))
            await runs.delete(source, key)
        again = await begin(source, RunKey(KEY, "begun anew"))
        await step(source, again, 1, payload=b"another")
        tally = await copied(source, target)
        assert tally.updated == 1
        await assert_same(source, target)
        assert [run.id for run, _ in await stored(target)] == ["begun anew"]

    async def test_begins_again_what_was_deleted_in_the_target_half_way(self, source: Runtime, target: Runtime) -> None:
        """As by an earlier copy that was killed there."""
        view = await begin(source)
        for number in range(1, 4):
            await step(source, view, number)
        await finish(source, view)
        await copied(source, target)
        name = RunName(KEY, view.incarnation, RUN.run_id)
        assert await target.store.delete_run(name, 1)
        await copied(source, target)
        await assert_same(source, target)

    async def test_leaves_the_owners_of_open_calls_as_they_are_in_the_source(
        self, source: Runtime, target: Runtime
    ) -> None:
        """(invariant 10) Although their runs began, and ended, after the first copy."""
        await histories.append(source, Append(KEY, [user("hi")]))
        await copied(source, target)
        for name in ("goes on", "ends"):
            view = await begin(source, RunKey(KEY, name))
            await step(source, view, 1, user("go"), calls(f"call of {name}"))
            if name == "ends":
                await finish(source, view)
        await copied(source, target)
        await assert_same(source, target)
        await histories.append(source, Append(KEY, [results("call of goes on")]))
        await copied(source, target)
        await assert_same(source, target)


async def claimed_there(target: Runtime) -> None:
    await claim(target)


async def stepped_there(target: Runtime) -> None:
    await step(target, await claim(target), 2)


async def cancelled_there(target: Runtime) -> None:
    await runs.update(target, Update(RUN, etag=(await runs.get(target, RUN)).etag, status=int(RunStatus.CANCELLED)))


async def begun_there(target: Runtime) -> None:
    await begin(target, RunKey(KEY, "own"), is_queued=True)


async def ended_there(target: Runtime) -> None:
    await finish(target, await begin(target, RunKey(KEY, "own")))


class TestDifferences:
    @pytest.mark.parametrize("goes_on", [False, True])
    @pytest.mark.parametrize(
        "change",
        [claimed_there, stepped_there, cancelled_there, begun_there, ended_there],
        ids=lambda each: each.__name__,
    )
    async def test_what_others_changed_in_the_target_is_listed_and_left_alone(
        self, source: Runtime, target: Runtime, change: Callable[[Runtime], Awaitable[None]], goes_on: bool
    ) -> None:
        held = await begin(source)
        await step(source, held, 1)
        await runs.release(source, RUN, held.fence)
        await copied(source, target)
        await change(target)
        if goes_on:
            again = await claim(source)
            for number in (2, 3):
                await step(source, again, number, payload=b"of the source")
        before = await stored(target)
        (difference,) = await differences(source, target)
        assert (difference.tenant, difference.agent, difference.session_id) == KEY
        assert "changed in the target" in difference.what
        assert await stored(target) == before

    async def test_runs_that_the_other_store_may_have_deleted_are_listed_on_the_way_back(
        self, source: Runtime, target: Runtime
    ) -> None:
        """Nobody knows whether they began after the copy was made."""
        await histories.append(source, Append(KEY, [user("hi")]))
        await copied(source, target)
        await finish(source, await begin(source))
        before = await stored(source)
        (difference,) = await differences(target, source)
        assert "'run'" in difference.what
        assert "delete it in the target" in difference.advice
        assert await stored(source) == before

    async def test_a_byte_of_a_step_that_differs_is_found(self, source: Runtime, target: Runtime) -> None:
        view = await begin(source)
        await step(source, view, 1)
        await finish(source, view)
        await copied(source, target)
        store = target.store
        assert isinstance(store, InMemoryStore)
        living = store._sessions[KEY].living
        assert living is not None
        there = living.runs.steps["run"][1]
        living.runs.steps["run"][1] = msgspec.structs.replace(there, payload=b"step 2")
        (difference,) = await differences(source, target)
        assert difference.what == "its runs differ"


class StepCounter(InMemoryStore):
    """Knows how much a commit brings at most."""

    def __init__(self) -> None:
        super().__init__()
        self.most_bytes = 0
        self.most_rows = 0

    async def commit(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        for change in changes:
            self.most_bytes = max(self.most_bytes, sum(len(step.payload) for step in change.new_steps))
            self.most_rows = max(self.most_rows, len(change.new_steps) + len(change.changed_runs))
        return await super().commit(changes)


class TestBatches:
    async def test_are_bounded_by_bytes(self, source: Runtime) -> None:
        store = StepCounter()
        target = await opened(store)
        view = await begin(source)
        for number in range(1, 4):
            await step(source, view, number, payload=b"x" * limits.MAX_STEP_BYTES)
        for number in range(4, 30):
            await step(source, view, number, payload=b"x" * 100_000)
        await copied(source, target)
        await assert_same(source, target)
        assert store.most_bytes == limits.MAX_STEP_BYTES

    async def test_hold_many_small_runs(self, source: Runtime) -> None:
        store = StepCounter()
        target = await opened(store)
        for number in range(300):
            view = await begin(source, RunKey(KEY, f"{number}"))
            await step(source, view, 1)
            await finish(source, view)
        tally = await copied(source, target)
        await assert_same(source, target)
        assert (tally.runs, tally.steps, tally.written_steps) == (300, 300, 300)
        assert 100 < store.most_rows <= run_copying.BATCH_ROWS + 1


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 14))
async def test_a_copy_that_fails_at_any_write_shows_no_run_in_part_to_workers_and_is_completed_by_a_repetition(
    time: Time, source: Runtime, monkeypatch: pytest.MonkeyPatch, at: int, after: bool
) -> None:
    """Whoever took up a run in part would do its last steps again, however long its lease has been over."""
    monkeypatch.setattr(pacing, "TRIES", 1)
    store = InterruptedStore()
    target = await opened(store)
    unfinished = await begin(source, lease=SECOND)
    for number in range(1, 6):
        await step(source, unfinished, number, user(f"{number}"))
    queued = await begin(source, RunKey(KEY, "queued"))
    for number in range(1, 4):
        await step(source, queued, number)
    await runs.release(source, queued.key, queued.fence)
    ended = await begin(source, RunKey(KEY, "ended"))
    for number in range(1, 5):
        await step(source, ended, number)
    await finish(source, ended)
    expected = {run.id: run.state.steps for run, _ in await stored(source)}
    store.at, store.after = at, after
    with in_small_pieces(), suppress(StoreUnavailable):
        await copying.copy(source, target, EVERYTHING, Tally(), Witness())
    time.now += 1_000 * SECOND
    store.at = 0
    for id_, steps in expected.items():
        with suppress(RequestError):
            view = await runs.get(target, RunKey(KEY, id_))
            is_whole = view.run.state.steps == steps and view.run.state.until != FOR_EVER
            if not view.run.state.status.is_final and not is_whole:
                assert await refused(claim(target, view.key)) == Reason.RUN_NOT_CLAIMABLE
                assert view.run.head.holder == run_copying.HOLDER
    await copied(source, target)
    await assert_same(source, target)
    assert (await claim(target)).run.state.steps == 5


async def on_the_go(source: Runtime, kind: str, held: RunView) -> None:
    """What workers may do while their runs are copied."""
    match kind:
        case "steps":
            await step(source, held, 4, user("4"))
        case "ends":
            await finish(source, held)
        case "begins":
            await begin(source, RunKey(KEY, "new"))
        case "deletes":
            assert await runs.delete(source, RunKey(KEY, "ended"))
        case _:
            record = await histories.get_session(source, KEY)
            assert await source.store.commit([Change(KEY, record, None)]) == [Committed()]
            source.committer.records.drop(KEY)
            await begin(source, RunKey(KEY, "of another life"))


@pytest.mark.parametrize("at", range(2, 9))
@pytest.mark.parametrize("kind", ["steps", "ends", "begins", "deletes"])
async def test_runs_that_go_on_while_they_are_copied_are_copied_as_they_are_then(
    source: Runtime, kind: str, at: int
) -> None:
    store = InterruptedStore()
    target = await opened(store)
    ended = await begin(source, RunKey(KEY, "ended"))
    await step(source, ended, 1)
    await finish(source, ended)
    held = await begin(source)
    for number in range(1, 4):
        await step(source, held, number, user(f"{number}"))
    store.at, store.action = at, lambda: on_the_go(source, kind, held)
    with in_small_pieces():
        await copied(source, target)
    await assert_same(source, target)


@pytest.mark.parametrize("at", range(2, 9))
async def test_a_copy_never_mixes_runs_of_two_lives(source: Runtime, at: int) -> None:
    """Where the source's session is born anew meanwhile, the copy is of the one life or of the other."""
    store = InterruptedStore()
    target = await opened(store)
    held = await begin(source)
    for number in range(1, 6):
        await step(source, held, number)
    store.at, store.action = at, lambda: on_the_go(source, "is born anew", held)
    with in_small_pieces():
        await copying.copy(source, target, EVERYTHING, Tally(), Witness())
    there = await histories.get_session(target, KEY)
    ids = {run.id for run, _ in await stored(target)}
    assert ids == ({"run"} if there.incarnation == held.incarnation else {"of another life"})


class ListCounter(InMemoryStore):
    """Counts how often it is asked for runs."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str | None] = []

    async def list_runs(self, query: RunQuery) -> RunPage:
        self.asked.append(query.session_id)
        return await super().list_runs(query)


async def test_sessions_of_agents_without_runs_are_not_asked_for_theirs() -> None:
    """An agent is asked about once in each phase of a copy."""
    here, there = ListCounter(), ListCounter()
    source, target = await opened(here), await opened(there)
    for number in range(20):
        await histories.append(source, Append(KEY._replace(session_id=f"{number}"), [user("hi")]))
    await copied(source, target)
    for store in (here, there):
        assert set(store.asked) == {None}
        assert len(store.asked) <= 20  # As many sessions may ask at once as are at work.
    here.asked.clear()
    await copied(source, target)
    assert set(here.asked) == {None}


async def test_runs_of_other_agents_stay_behind(source: Runtime, target: Runtime) -> None:
    other = RunKey(KEY._replace(agent="other"), "run")
    for key in (RUN, other):
        await finish(source, await begin(source, key))
    tally = await copied(source, target, copying.Scope(agents=frozenset({"other"})))
    assert (tally.sessions, tally.runs) == (1, 1)
    assert await stored(target) == []
    await assert_same(source, target, other.session)


async def test_the_retention_of_runs_is_copied_with_the_settings_of_their_agent(
    source: Runtime, target: Runtime
) -> None:
    await agents.update(source, "default", "agent", AgentUpdate(run_retention=7 * 24 * 3_600 * SECOND))
    await copied(source, target)
    there = await target.store.load_agent("default", "agent")
    assert there is not None
    assert there.settings.run_retention == 7 * 24 * 3_600 * SECOND


async def test_a_run_is_copied_under_a_fence_that_nobody_was_given(source: Runtime, target: Runtime) -> None:
    view = await begin(source)
    await copied(source, target)
    here = await histories.get_session(source, KEY)
    there = await histories.get_session(target, KEY)
    assert there.runs[0].state == as_copied(here, view.run.state)
    assert here.version < there.runs[0].state.fence < there.version
