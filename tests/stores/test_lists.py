"""Lists of sessions, of what is due, of agents and of tenants, and purges."""

from __future__ import annotations

from typing import Any

import pytest

from memoryd_server import limits
from memoryd_server.stores.base import Conflict, Due, Loaded, SessionQuery, Store
from memoryd_server.stores.records import (
    AgentRecord,
    OpenCalls,
    Oversize,
    Policy,
    RemovedRange,
    RunLink,
    SessionKey,
    WindowMode,
    WindowOptions,
    replace,
)
from tests.adapters import EACH_SHARED_ADAPTER
from tests.stores.builders import TIME, Session, change_of, due_sessions, listed, message, new_incarnation, run_state
from tests.stores.conftest import NewSession
from tests.stores.damage import damage_record


class TestListSessions:
    async def test_newest_activity_first(self, new_session: NewSession, store: Store) -> None:
        for session_id, activity in (("b", 20), ("a", 30), ("c", 10)):
            await new_session(session_id).commit(activity=activity)
        assert await listed(store) == ["a", "b", "c"]

    async def test_answers_keys_and_records_of_the_moment(self, session: Session, store: Store) -> None:
        await session.commit()
        record = await session.commit(message(1), labels={"a": "b"})
        page = await store.list_sessions(SessionQuery("tenant", "agent", None, 10))
        assert (list(page.sessions), page.after) == ([(session.key, record)], "")

    async def test_activity_moves_a_session(self, new_session: NewSession, store: Store) -> None:
        sessions = [new_session(session_id) for session_id in "abc"]
        for activity, session in enumerate(sessions):
            await session.commit(activity=activity, user_id="user")
        await sessions[0].commit(activity=9)
        for conditions in ({}, {"agent": "agent"}, {"user_id": "user"}):
            assert await listed(store, **conditions) == ["a", "c", "b"]

    async def test_of_an_agent_of_a_user_of_both_or_of_the_tenant(self, new_session: NewSession, store: Store) -> None:
        for number, (agent, user) in enumerate([("x", "u"), ("y", "u"), ("x", "v"), ("x", ""), ("y", "v")]):
            await new_session(f"{number}", agent=agent).commit(activity=number, user_id=user)
        await new_session("foreign", agent="x", tenant="other").commit(user_id="u")
        assert await listed(store) == ["4", "3", "2", "1", "0"]
        assert await listed(store, agent="x") == ["3", "2", "0"]
        assert await listed(store, user_id="u") == ["1", "0"]
        assert await listed(store, agent="x", user_id="u") == ["0"]
        assert await listed(store, agent="z") == await listed(store, user_id="w") == []
        assert await listed(store, tenant="other") == ["foreign"]

    @pytest.mark.parametrize("page_size", [1, 2, 3, 7, 8])
    @pytest.mark.parametrize(
        "conditions", [{}, {"agent": "agent"}, {"user_id": "user"}, {"agent": "agent", "user_id": "user"}]
    )
    async def test_pages_join_up_where_activities_are_equal_too(
        self, new_session: NewSession, store: Store, page_size: int, conditions: dict[str, str]
    ) -> None:
        for number in range(7):
            await new_session(f"{number}").commit(activity=TIME + number // 3, user_id="user")
            await new_session(f"{number}", agent="another").commit(activity=TIME + number // 3, user_id="another")
        whole = await listed(store, **conditions)
        assert await listed(store, page_size, **conditions) == whole
        assert sorted(set(whole)) == [str(number) for number in range(7)]
        assert [int(session_id) // 3 for session_id in whole] == sorted(
            (int(session_id) // 3 for session_id in whole), reverse=True
        )

    async def test_a_session_that_is_born_meanwhile_disturbs_no_page(
        self, new_session: NewSession, store: Store
    ) -> None:
        for number in range(4):
            await new_session(f"{number}").commit(activity=number)
        first = await store.list_sessions(SessionQuery("tenant", None, None, 2))
        await new_session("new").commit(activity=9)
        second = await store.list_sessions(SessionQuery("tenant", None, None, 2, first.after))
        ids = [key.session_id for key, _ in (*first.sessions, *second.sessions)]
        assert (ids, second.after) == (["3", "2", "1", "0"], "")

    async def test_a_change_of_user_moves_a_session(self, session: Session, store: Store) -> None:
        await session.commit()
        assert await listed(store, user_id="a") == []
        await session.commit(user_id="a")
        assert await listed(store, user_id="a") == ["session"]
        await session.commit(user_id="b")
        assert await listed(store, user_id="a") == []
        assert await listed(store, user_id="b") == ["session"]
        await session.commit(user_id="")
        assert await listed(store, user_id="b") == []
        assert await listed(store, agent="agent") == ["session"]

    async def test_a_cleared_session_stays_in_lists(self, session: Session, store: Store) -> None:
        await session.commit(message(1))
        await session.commit(first_seq=2, removed=(RemovedRange(1, 1, TIME),))
        assert await listed(store) == ["session"]


def times(due: Due, at: int) -> dict[str, Any]:
    """The fields of a record that make a session due at the given time."""
    if due is Due.PURGE:
        return {"removed": (RemovedRange(1, 1, at),)}
    if due is Due.ABANDONMENT:
        return {"runs": (RunLink("run", run_state(updated=at)),)}
    return {"activity": at - 100, "appended": at - 100, "ttl": 100}


@pytest.mark.parametrize("due", Due)
class TestListDue:
    async def test_before_a_time_which_is_excluded_itself(self, session: Session, store: Store, due: Due) -> None:
        await session.commit(message(1), **times(due, 500))
        assert await due_sessions(store, due, 500) == []
        assert await due_sessions(store, due, 501) == [session.key]

    async def test_the_longest_due_first(self, new_session: NewSession, store: Store, due: Due) -> None:
        for session_id, at in (("b", 700), ("d", 900), ("a", 600), ("c", 800)):
            await new_session(session_id).commit(**times(due, at))
        assert [key.session_id for key in await due_sessions(store, due)] == ["a", "b", "c", "d"]
        assert [key.session_id for key in await due_sessions(store, due, 801)] == ["a", "b", "c"]
        page = await store.list_due(due, 1000, 2)
        assert [key.session_id for key in page.keys] == ["a", "b"]

    async def test_of_all_tenants(self, new_session: NewSession, store: Store, due: Due) -> None:
        for number, tenant in enumerate(["a", "A", "b"]):
            await new_session("session", tenant=tenant).commit(**times(due, 500 + number))
        assert [key.tenant for key in await due_sessions(store, due)] == ["a", "A", "b"]

    @pytest.mark.parametrize("page_size", [1, 2, 3, 7, 8])
    async def test_pages_join_up_where_times_are_equal_too(
        self, new_session: NewSession, store: Store, due: Due, page_size: int
    ) -> None:
        for number in range(7):
            await new_session(f"{number}").commit(**times(due, 500 + number // 3))
        whole = await due_sessions(store, due)
        assert sorted(key.session_id for key in whole) == [str(number) for number in range(7)]
        assert [int(key.session_id) // 3 for key in whole] == [0, 0, 0, 1, 1, 1, 2]
        assert await due_sessions(store, due, page_size=page_size) == whole

    async def test_what_is_settled_meanwhile_disturbs_no_page(
        self, new_session: NewSession, store: Store, due: Due
    ) -> None:
        sessions = [new_session(f"{number}") for number in range(6)]
        for session in sessions:
            await session.commit(**times(due, 500))
        first = await store.list_due(due, 1000, 3)
        for session in sessions:
            if session.key in first.keys[1:]:
                await session.die()
        second = await store.list_due(due, 1000, 3, first.after)
        assert sorted([*first.keys, *second.keys]) == [session.key for session in sessions]
        assert second.after == ""

    async def test_no_session_that_has_no_such_time(self, session: Session, store: Store, due: Due) -> None:
        await session.commit(message(1))
        assert await due_sessions(store, due) == []

    async def test_every_change_moves_the_session(self, session: Session, store: Store, due: Due) -> None:
        await session.commit(message(1))
        await session.commit(**times(due, 500))
        assert await due_sessions(store, due, 501) == [session.key]
        await session.commit(**times(due, 700))
        assert await due_sessions(store, due, 700) == []
        assert await due_sessions(store, due, 701) == [session.key]
        await session.commit(**times(due, 600))
        assert await due_sessions(store, due, 601) == [session.key]
        await session.commit(removed=(), ttl=0, runs=())
        assert await due_sessions(store, due) == []

    async def test_a_change_of_something_else_leaves_it_in_its_place(
        self, session: Session, store: Store, due: Due
    ) -> None:
        await session.commit(**times(due, 500))
        await session.commit(message(1), message(2), user_id="user", labels={"a": "b"})
        await session.commit(user_id="")
        assert await due_sessions(store, due, 500) == []
        assert await due_sessions(store, due, 501) == [session.key]

    async def test_a_refused_change_moves_nothing(self, session: Session, store: Store, due: Due) -> None:
        record = await session.commit(**times(due, 500))
        stale = change_of(session.key, replace(record, version=7), **times(due, 900))
        assert await store.commit([stale]) == [Conflict()]
        assert await due_sessions(store, due, 501) == [session.key]

    @pytest.mark.parametrize("adapter", EACH_SHARED_ADAPTER, indirect=True)
    async def test_a_damaged_record_stands_in_nobodys_way(
        self, store_url: str, new_session: NewSession, store: Store, due: Due
    ) -> None:
        sessions = [new_session(f"{number}") for number in range(3)]
        for number, session in enumerate(sessions):
            await session.commit(message(1), **times(due, 500 + number))
        damage_record(store_url, sessions[1].key)
        assert await due_sessions(store, due) == [session.key for session in sessions]
        assert await due_sessions(store, due, page_size=1) == [session.key for session in sessions]


class TestPurgeDue:
    async def test_the_earliest_range_counts(self, session: Session, store: Store) -> None:
        await session.commit(message(1), message(2))
        await session.commit(removed=(RemovedRange(1, 1, 200), RemovedRange(2, 2, 100)))
        assert await due_sessions(store, Due.PURGE, 101) == [session.key]
        await session.commit(removed=(RemovedRange(1, 1, 200),))
        assert await due_sessions(store, Due.PURGE, 101) == []
        await session.commit(removed=())
        assert await due_sessions(store, Due.PURGE, 1000) == []

    async def test_is_not_expiry(self, new_session: NewSession, store: Store) -> None:
        purged, expiring, both = new_session(), new_session(), new_session()
        await purged.commit(**times(Due.PURGE, 500))
        await expiring.commit(**times(Due.EXPIRY, 500))
        await both.commit(**times(Due.PURGE, 600), **times(Due.EXPIRY, 700))
        assert await due_sessions(store, Due.PURGE) == [purged.key, both.key]
        assert await due_sessions(store, Due.EXPIRY) == [expiring.key, both.key]
        assert await due_sessions(store, Due.EXPIRY, 601) == [expiring.key]


class TestExpiryDue:
    async def test_follows_activity(self, session: Session, store: Store) -> None:
        """(invariant 18: idle time since the last append)"""
        await session.commit(activity=100, appended=100, ttl=50)
        await session.commit(message(1), activity=300, appended=300)
        assert await due_sessions(store, Due.EXPIRY, 350) == []
        assert await due_sessions(store, Due.EXPIRY, 351) == [session.key]

    async def test_may_be_early_by_the_lag_and_is_never_late(self, session: Session, store: Store) -> None:
        """An append that leaves `activity` as it is need not move the index."""
        lag = limits.ACTIVITY_LAG_SECONDS * 1_000_000
        at = 10 * lag
        await session.commit(activity=at, appended=at, ttl=at)
        record = await session.commit(message(1), activity=at, appended=at + lag - 1)
        assert record.expires_at is not None
        assert await due_sessions(store, Due.EXPIRY, record.expires_at - lag) == []
        assert await due_sessions(store, Due.EXPIRY, record.expires_at + 1) == [session.key]

    async def test_a_record_of_an_older_server_counts_from_its_activity(self, session: Session, store: Store) -> None:
        await session.commit(activity=100, ttl=50)
        assert await due_sessions(store, Due.EXPIRY, 150) == []
        assert await due_sessions(store, Due.EXPIRY, 151) == [session.key]

    async def test_an_expired_session_is_answered_until_a_commit_ends_it(self, session: Session, store: Store) -> None:
        record = await session.commit(message(1), activity=1, appended=1, ttl=1)
        assert await store.load(session.key) == Loaded(record)
        assert await session.tail() == [1]
        assert await listed(store) == ["session"]


class TestAgents:
    async def test_an_unknown_agent_has_no_settings(self, store: Store) -> None:
        assert await store.load_agent("tenant", "agent") is None
        assert list(await store.list_agents("tenant", "", 10)) == []

    async def test_a_birth_makes_the_agent_known(self, session: Session, store: Store) -> None:
        await session.commit()
        assert await store.load_agent("tenant", "agent") == AgentRecord("tenant", "agent")
        assert list(await store.list_agents("tenant", "", 10)) == [AgentRecord("tenant", "agent")]

    async def test_a_refused_change_does_not(self, session: Session, store: Store) -> None:
        record = await session.commit()
        refused = change_of(SessionKey("tenant", "ghost", "session"), record)
        assert await store.commit([refused]) == [Conflict()]
        assert await store.load_agent("tenant", "ghost") is None

    async def test_settings_come_back(self, store: Store) -> None:
        policy = Policy(WindowOptions(WindowMode.TOKENS, 4000, False, True, OpenCalls.SYNTHESIZE, Oversize.FAIL))
        record = AgentRecord("tenant", "agent", 1, TIME, policy)
        assert await store.save_agent(record)
        assert await store.load_agent("tenant", "agent") == record
        assert list(await store.list_agents("tenant", "", 10)) == [record]

    async def test_are_saved_by_compare_and_set(self, store: Store) -> None:
        first = AgentRecord("tenant", "agent", 1, TIME)
        assert not await store.save_agent(AgentRecord("tenant", "agent", 2, TIME))
        assert await store.load_agent("tenant", "agent") is None
        assert await store.save_agent(first)
        assert not await store.save_agent(AgentRecord("tenant", "agent", 1, TIME + 1))
        assert not await store.save_agent(AgentRecord("tenant", "agent", 3, TIME + 1))
        assert await store.load_agent("tenant", "agent") == first
        second = AgentRecord("tenant", "agent", 2, TIME + 1)
        assert await store.save_agent(second)
        assert await store.load_agent("tenant", "agent") == second

    async def test_of_an_agent_that_had_a_session_first(self, session: Session, store: Store) -> None:
        await session.commit()
        record = AgentRecord("tenant", "agent", 1, TIME)
        assert await store.save_agent(record)
        assert await store.load_agent("tenant", "agent") == record

    async def test_stay_when_a_session_is_born_later(self, session: Session, store: Store) -> None:
        record = AgentRecord("tenant", "agent", 1, TIME)
        await store.save_agent(record)
        await session.commit()
        assert await store.load_agent("tenant", "agent") == record

    async def test_are_listed_by_the_bytes_of_their_names(self, store: Store) -> None:
        names = ["a", "B", "ab", "é", "e", "Z", "\U0001f600", "\uffff", "a b", "a ", "%"]
        for name in names:
            await store.save_agent(AgentRecord("tenant", name, 1, TIME))
        await store.save_agent(AgentRecord("other", "a", 1, TIME))
        in_order = sorted(names, key=str.encode)
        found: list[str] = []
        while page := await store.list_agents("tenant", found[-1] if found else "", 3):
            assert len(page) <= 3
            found += [record.agent for record in page]
        assert found == in_order
        assert [record.agent for record in await store.list_agents("tenant", "a", 2)] == ["a ", "a b"]


class TestTenants:
    async def test_are_those_with_agents(self, new_session: NewSession, store: Store) -> None:
        assert list(await store.list_tenants("", 10)) == []
        await new_session(tenant="with a session").commit()
        await store.save_agent(AgentRecord("with settings", "agent", 1, TIME))
        await store.begin_staging("with a staging", "", 1 << 60)
        assert list(await store.list_tenants("", 10)) == ["with a session", "with settings"]

    async def test_stay_when_their_sessions_are_gone(self, session: Session, store: Store) -> None:
        """Their agents do."""
        await session.commit()
        await session.die()
        assert list(await store.list_tenants("", 10)) == ["tenant"]

    async def test_asking_for_one_makes_none(self, store: Store) -> None:
        assert await store.load_agent("tenant", "agent") is None
        assert not await store.save_agent(AgentRecord("tenant", "agent", 7, TIME))
        assert list(await store.list_tenants("", 10)) == []

    async def test_are_listed_by_the_bytes_of_their_names(self, store: Store) -> None:
        names = ["a", "B", "ab", "é", "e", "Z", "\U0001f600", "\uffff", "a b", "a ", "%"]
        for name in names:
            for agent in ("one", "two"):
                await store.save_agent(AgentRecord(name, agent, 1, TIME))
        found: list[str] = []
        while page := await store.list_tenants(found[-1] if found else "", 3):
            assert len(page) <= 3
            found += page
        assert found == sorted(names, key=str.encode)


class TestPurge:
    async def test_deletes_in_batches_until_the_range_is_empty(self, session: Session, store: Store) -> None:
        await session.commit(*(message(seq) for seq in range(1, 11)))
        record = await session.remove(3, 8)
        deleted = [await store.purge(session.key, record.incarnation, 3, 8, 4) for _ in range(3)]
        assert deleted == [4, 2, 0]
        # Nothing else is gone, and the record is as it was.
        assert await session.tail() == [10, 9, 2, 1]
        await session.commit(removed=())
        assert [stored.seq for stored in await session.stored()] == [1, 2, 9, 10]

    async def test_touches_no_other_session_and_no_other_life(self, new_session: NewSession, store: Store) -> None:
        session, other = new_session(), new_session()
        for each in (session, other):
            await each.commit(message(1))
        record = await session.remove(1, 1)
        assert await store.purge(session.key, new_incarnation(), 1, 1, 10) == 0
        assert await store.purge(SessionKey("tenant", "agent", "unknown"), record.incarnation, 1, 1, 10) == 0
        assert await store.purge(session.key, record.incarnation, 1, 1, 10) == 1
        assert await other.tail() == [1]

    async def test_takes_the_indexes_along(self, session: Session, store: Store) -> None:
        """A seq is never used again, yet a purged one would come to light if anything of it were left."""
        await session.commit(*(message(seq) for seq in range(1, 6)))
        record = await session.remove(2, 4)
        await store.purge(session.key, record.incarnation, 2, 4, 10)
        await session.commit(removed=())
        assert await session.tail() == [5, 1]
        assert (await session.load(body_bytes=1 << 20)).tail == [message(5), message(1)]


async def test_now_is_the_time_in_microseconds(store: Store) -> None:
    first, second = await store.now(), await store.now()
    assert TIME < first <= second


async def test_a_store_that_is_open_answers(store: Store) -> None:
    await store.ping()
