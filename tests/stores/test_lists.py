"""Lists of sessions and of agents, and what is to be purged."""

from __future__ import annotations

from typing import Any

import pytest

from memoryd_server.stores.base import Conflict, SessionQuery, Store
from memoryd_server.stores.records import (
    AgentRecord,
    OpenCalls,
    Oversize,
    Policy,
    RemovedRange,
    SessionKey,
    WindowMode,
    WindowOptions,
)
from tests.stores.builders import TIME, Session, change_of, message, new_incarnation
from tests.stores.conftest import NewSession


async def listed(store: Store, page_size: Any = 1000, **conditions: Any) -> list[str]:
    """The ids of all listed sessions, page by page."""
    query = {"tenant": "tenant", "agent": None, "user_id": None, **conditions}
    ids: list[str] = []
    after = ""
    while True:
        page = await store.list_sessions(SessionQuery(**query, limit=page_size, after=after))
        assert len(page.sessions) <= page_size
        ids += [key.session_id for key, _ in page.sessions]
        after = page.after
        if not after:
            return ids
        assert len(page.sessions) == page_size


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


class TestPurge:
    async def test_what_is_removed_makes_a_session_purgeable(self, new_session: NewSession, store: Store) -> None:
        early, late, none = new_session(), new_session(tenant="other"), new_session()
        for session in (early, late, none):
            await session.commit(message(1), message(2))
        await late.remove(1, 1, removed_at=200)
        await early.remove(1, 1, removed_at=100)
        assert list(await store.list_purgeable(100, 10)) == []
        assert list(await store.list_purgeable(101, 10)) == [early.key]
        assert sorted(await store.list_purgeable(201, 10)) == sorted([early.key, late.key])
        assert len(await store.list_purgeable(201, 1)) == 1

    async def test_the_earliest_range_counts(self, session: Session, store: Store) -> None:
        await session.commit(message(1), message(2))
        await session.commit(removed=(RemovedRange(1, 1, 200), RemovedRange(2, 2, 100)))
        assert list(await store.list_purgeable(101, 10)) == [session.key]
        await session.commit(removed=(RemovedRange(1, 1, 200),))
        assert list(await store.list_purgeable(101, 10)) == []
        await session.commit(removed=())
        assert list(await store.list_purgeable(1000, 10)) == []

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
