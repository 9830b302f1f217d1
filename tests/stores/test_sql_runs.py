"""Runs on SQL databases: how many round trips their commits take, and how chains of their changes become one change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from memoryd_server.stores.base import Change, Committed, RunChange, Store
from memoryd_server.stores.records import RunHead, RunLink, RunState, SessionKey
from memoryd_server.stores.registry import create_store
from memoryd_server.stores.sql.appends import merge_appends
from tests.adapters import EACH_SQL_ADAPTER, SQL_ADAPTERS, Adapter, parameters
from tests.stores.builders import TIME, Session, birth, change_of, lookup, message, run_state, step
from tests.stores.counting_proxy import counting_proxy

KEY = SessionKey("tenant", "agent", "session")


def changing(state: RunState, head: RunHead | None = None, run_id: str = "run") -> dict[str, Any]:
    """What a change holds that brings a session's one run into a state."""
    links = () if state.ended else (RunLink(run_id, state),)
    return {"changed_runs": (RunChange(run_id, state, head),), "runs": links}


@pytest.mark.parametrize("adapter", parameters(each for each in SQL_ADAPTERS if each.database), indirect=True)
async def test_a_step_takes_no_more_round_trips_than_an_append(adapter: Adapter, store_url: str) -> None:
    async with counting_proxy(store_url) as (proxy, through):
        store = create_store("test", adapter.type, through)
        await store.open()
        session = Session(store, KEY)

        async def trips(call: Callable[[], Awaitable[object]]) -> int:
            before = proxy.round_trips
            await call()
            return proxy.round_trips - before

        await session.commit(message(1), lookups=[lookup("1")])
        await session.commit(**changing(run_state(), RunHead(TIME)))
        appends, steps = [], []
        for number in (1, 2, 3):
            seq = 3 * number
            state = run_state(version=1 + number, until=TIME + number, updated=TIME + number)
            appends.append(await trips(lambda: session.commit(message(seq), lookups=[lookup(f"{seq}")])))  # noqa: B023
            steps.append(
                await trips(
                    lambda: session.commit(
                        *(message(seq + 1), message(seq + 2)),  # noqa: B023
                        lookups=[lookup(f"{seq + 1}")],  # noqa: B023
                        new_steps=[step("run", number)],  # noqa: B023
                        **changing(state),  # noqa: B023
                    )
                )
            )
        await store.close()
    assert steps[-1] == appends[-1] == 1


@pytest.mark.parametrize("adapter", parameters(each for each in SQL_ADAPTERS if each.database), indirect=True)
async def test_the_first_claimable_runs_take_one_round_trip(adapter: Adapter, store_url: str) -> None:
    async with counting_proxy(store_url) as (proxy, through):
        store = create_store("test", adapter.type, through)
        await store.open()
        record = await Session(store, KEY).commit(**changing(run_state(until=TIME), RunHead(TIME)))
        trips = []
        for _ in range(3):
            before = proxy.round_trips
            [found] = await store.load_claimable(KEY.tenant, KEY.agent, TIME + 1, 4)
            assert (found.key, found.record) == (KEY, record)
            trips.append(proxy.round_trips - before)
        await store.close()
    assert trips[-1] == 1


class TestChains:
    """Changes of one session that wait together are one change, for databases that are told everything at once."""

    @pytest.fixture
    def change(self) -> Change:
        return birth(KEY, message(1))

    def chain(self, first: Change, *states: RunState) -> list[Change]:
        """Changes of a run, each of which rests on the one before it and adds a step."""
        changes: list[Change] = []
        record = first.record
        for number, state in enumerate(states, 1):
            assert record is not None
            head = RunHead(TIME, f"holder {number}") if number == 2 or state.version == 1 else None
            changes.append(change_of(KEY, record, new_steps=[step("run", number)], **changing(state, head)))
            record = changes[-1].record
        return changes

    def test_bring_a_run_into_its_last_state(self, change: Change) -> None:
        merged = merge_appends(self.chain(change, *(run_state(version=version) for version in (2, 3, 4))))
        assert merged is not None
        assert list(merged.changed_runs) == [RunChange("run", run_state(version=4), RunHead(TIME, "holder 2"))]
        assert [each.number for each in merged.new_steps] == [1, 2, 3]

    def test_are_not_merged_when_a_run_begins_and_changes(self, change: Change) -> None:
        """One statement would not find what it inserts itself."""
        assert merge_appends(self.chain(change, run_state(), run_state(version=2))) is None

    @pytest.mark.parametrize("adapter", EACH_SQL_ADAPTER, indirect=True)
    @pytest.mark.parametrize("begins", [True, False])
    async def test_leave_the_same_rows_however_they_are_made(self, store: Store, begins: bool) -> None:
        session = Session(store, KEY)
        await session.commit(message(1), **({} if begins else changing(run_state(), RunHead(TIME))))
        assert session.record is not None
        states = [run_state(version=version, until=TIME + version) for version in range(1, 5)]
        first = birth(KEY)
        chain = self.chain(Change(KEY, None, session.record, first.messages), *(states if begins else states[1:]))
        assert await store.commit(chain) == [Committed()] * len(chain)
        loaded = await store.load_run(KEY, "run")
        assert loaded is not None
        record, run = loaded
        assert record == chain[-1].record
        assert run is not None
        assert (run.state, run.head.holder) == (states[-1], "holder 2")
        page = await store.list_steps(KEY, record.incarnation, "run", 0, 10, 1 << 20)
        assert page is not None
        assert [each.number for each in page.steps] == list(range(1, len(chain) + 1))
