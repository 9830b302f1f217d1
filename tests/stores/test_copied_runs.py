"""Sessions and runs that come from another store with a past: whatever their versions are, they are stored as ever
(`Change.record`, `RunChange.is_first`).
"""

from __future__ import annotations

import pytest

from memoryd_server.stores.base import Change, Committed, Conflict, RunChange, Store
from memoryd_server.stores.records import RunHead, RunLink, RunStatus, StoredRun, replace
from tests.stores.builders import TIME, Session, birth, change_of, event, message, run_state, step
from tests.stores.test_runs import PLENTY, claimable, ended, ids

AHEAD = 1 << 33

HELD = StoredRun(
    "held",
    RunHead(TIME, holder="worker", metadata="m\0"),
    run_state(version=9, fence=AHEAD, steps=2, until=TIME + 1_000, recoveries=2),
)
OVER = StoredRun(
    "over",
    RunHead(TIME + 1, reason="done"),
    run_state(RunStatus.COMPLETED, version=7, fence=3, steps=1, ended=TIME + 50),
)
STEPS = (step("held", 1), step("held", 2), step("over", 1))
ARRIVING = tuple(RunChange(run.id, run.state, run.head, is_first=True) for run in (HELD, OVER))
LINKS = (RunLink("held", HELD.state),)


async def see_both(store: Store, session: Session) -> None:
    """Both runs are there, with their steps and in all lists."""
    assert session.record is not None
    for run in (HELD, OVER):
        assert await store.load_run(session.key, run.id) == (session.record, run)
        page = await store.list_steps(session.key, session.record.incarnation, run.id, 0, 100, PLENTY)
        assert page is not None
        assert list(page.steps) == [each for each in STEPS if each.run_id == run.id]
    assert await ids(store) == ["over", "held"]
    assert await claimable(store, TIME + 1_001) == ["held"]
    assert await claimable(store, TIME + 1_000) == []
    assert await ended(store, TIME + 51) == ["over"]


async def test_runs_come_with_a_birth(store: Store, session: Session) -> None:
    session.record = (await _made(store, _birth(session, changed_runs=ARRIVING, new_steps=STEPS, runs=LINKS))).record
    await see_both(store, session)


async def test_runs_come_with_the_adoption_of_a_staging(store: Store, session: Session) -> None:
    staging = await store.begin_staging("tenant", "", TIME + 10**15)
    await store.stage(staging, [message(1)], [], TIME + 10**15)
    change = _birth(session, changed_runs=ARRIVING, new_steps=STEPS, runs=LINKS, staging=staging)
    session.record = (await _made(store, change)).record
    await see_both(store, session)
    assert await session.tail() == [1]


async def test_runs_come_with_a_later_change_and_the_version_may_leap(store: Store, session: Session) -> None:
    before = await session.commit(message(1))
    change = change_of(session.key, before, changed_runs=ARRIVING, new_steps=STEPS, runs=LINKS)
    assert change.record is not None
    leap = Change(
        session.key,
        before,
        replace(change.record, version=AHEAD),
        changed_runs=ARRIVING,
        new_steps=STEPS,
        events=(event(AHEAD),),
    )
    session.record = (await _made(store, leap)).record
    await see_both(store, session)
    after = await session.commit(message(2))
    assert after.version == AHEAD + 1
    assert await session.tail() == [2, 1]
    page = await store.list_events(session.key, after.incarnation, 0, 10)
    assert page is not None
    assert [each.number for each in page.events] == [AHEAD]


async def test_a_run_that_came_goes_on_at_any_version_and_ends(store: Store, session: Session) -> None:
    arriving = RunChange("held", run_state(until=TIME + 10), RunHead(TIME), is_first=True)
    links = (RunLink("held", arriving.state),)
    session.record = (await _made(store, _birth(session, changed_runs=(arriving,), runs=links))).record
    for version in (1, 5):
        state = run_state(version=version, fence=AHEAD, until=TIME + 1_000)
        going_on = RunChange("held", state, HELD.head, is_first=False)
        await session.commit(changed_runs=(going_on,), runs=(RunLink("held", state),))
        assert await store.load_run(session.key, "held") == (session.record, StoredRun("held", HELD.head, state))
    over = run_state(RunStatus.FAILED, version=3, ended=TIME + 9)
    await session.commit(changed_runs=(RunChange("held", over, None, is_first=False),), runs=())
    assert await ended(store, TIME + 10) == ["held"]


@pytest.mark.parametrize("version", [1, 7])
async def test_a_run_that_is_stored_does_not_come_again(store: Store, session: Session, version: int) -> None:
    session.record = (await _made(store, _birth(session, changed_runs=ARRIVING, new_steps=STEPS, runs=LINKS))).record
    assert session.record is not None
    again = RunChange("over", run_state(RunStatus.FAILED, version=version, ended=TIME), RunHead(TIME), is_first=True)
    change = change_of(session.key, session.record, changed_runs=(again,), runs=LINKS)
    assert await store.commit([change]) == [Conflict()]
    await see_both(store, session)


def _birth(session: Session, **fields: object) -> Change:
    """A birth at a version far ahead."""
    messages = () if "staging" in fields else (message(1),)
    change = birth(session.key, *messages, **fields)
    assert change.record is not None
    return Change(
        session.key,
        None,
        replace(change.record, version=AHEAD, last_seq=1),
        messages=change.messages,
        changed_runs=change.changed_runs,
        new_steps=change.new_steps,
        staging=change.staging,
    )


async def _made(store: Store, change: Change) -> Change:
    assert await store.commit([change]) == [Committed()]
    return change
