"""`list_events`: what happened to a history, for those who watch it."""

from __future__ import annotations

import pytest

from memoryd_server import limits
from memoryd_server.stores.base import Committed, Conflict, Deleted, Known, Store
from memoryd_server.stores.records import Event, EventKind, SessionKey, replace
from tests.stores.builders import Session, birth, born, change_of, event, lookup, message, new_incarnation, swept
from tests.stores.conftest import NewSession

KEY = SessionKey("tenant", "agent", "session")


async def events(session: Session, after: int = 0, limit: int = 1000) -> list[Event]:
    """The session's events, which come with its record."""
    assert session.record is not None
    page = await session.store.list_events(session.key, session.record.incarnation, after, limit)
    assert page is not None
    assert page.record == session.record
    return list(page.events)


@pytest.fixture
async def eventful(session: Session) -> Session:
    """A session with events 3, 5, 7, 9 and 11."""
    await session.commit(message(1))
    for version in range(2, 13):
        await session.commit(events=[event(version)] if version % 2 and version > 1 else ())
    return session


class TestListEvents:
    async def test_by_number(self, eventful: Session) -> None:
        assert await events(eventful) == [event(number) for number in (3, 5, 7, 9, 11)]

    @pytest.mark.parametrize(
        ("after", "expected"),
        [(0, [3, 5, 7, 9, 11]), (2, [3, 5, 7, 9, 11]), (3, [5, 7, 9, 11]), (8, [9, 11]), (11, []), (12, []), (99, [])],
    )
    async def test_after_a_number_which_is_excluded_itself(
        self, eventful: Session, after: int, expected: list[int]
    ) -> None:
        assert [found.number for found in await events(eventful, after)] == expected

    @pytest.mark.parametrize("limit", [1, 2, 4, 5, 6])
    async def test_the_oldest_up_to_the_limit(self, eventful: Session, limit: int) -> None:
        assert [found.number for found in await events(eventful, limit=limit)] == [3, 5, 7, 9, 11][:limit]

    @pytest.mark.parametrize("limit", [1, 2, 3])
    async def test_pages_join_up(self, eventful: Session, limit: int) -> None:
        numbers: list[int] = []
        while page := await events(eventful, numbers[-1] if numbers else 0, limit):
            numbers += [found.number for found in page]
        assert numbers == [3, 5, 7, 9, 11]

    async def test_by_number_whatever_their_times(self, session: Session) -> None:
        """Clocks order nothing (invariant 1)."""
        now = await session.store.now()
        await session.commit()
        for version in range(2, 6):
            await session.commit(events=[event(version, created=now - version)])
        assert [found.number for found in await events(session)] == [2, 3, 4, 5]

    async def test_of_a_session_without_events_are_none(self, session: Session) -> None:
        await session.commit(message(1))
        assert await events(session) == []

    async def test_knows_no_other_life_and_no_session_that_is_not_there(self, eventful: Session, store: Store) -> None:
        assert await store.list_events(eventful.key, new_incarnation(), 0, 10) is None
        assert await store.list_events(SessionKey("tenant", "agent", "unknown"), new_incarnation(), 0, 10) is None

    async def test_touches_no_other_session(self, new_session: NewSession) -> None:
        sessions = [new_session("s"), new_session("s", agent="b"), new_session("s", tenant="b"), new_session("t")]
        for number, session in enumerate(sessions):
            await session.commit(events=[event(1, messages=number)])
        for number, session in enumerate(sessions):
            assert await events(session) == [event(1, messages=number)]


class TestEvents:
    @pytest.mark.parametrize("kind", EventKind)
    async def test_come_back_as_they_were(self, session: Session, kind: EventKind) -> None:
        """(invariant 4)"""
        sent = Event(
            number=1,
            kind=kind,
            after_seq=(1 << 53) + 1,
            from_seq=(1 << 53) + 3,
            to_seq=(1 << 53) + 2,
            messages=(1 << 31) + 1,
            epoch=(1 << 31) + 2,
            created=(1 << 60) + 1,
        )
        await session.commit(events=[sent])
        [found] = await events(session)
        assert found == sent
        assert type(found.kind) is EventKind

    async def test_are_made_with_the_change_that_tells_of_them(self, session: Session) -> None:
        await session.commit(message(1), events=[event(1)])
        await session.commit(message(2), events=[event(2)], lookups=[lookup("a")])
        assert await events(session) == [event(1), event(2)]

    async def test_of_a_refused_change_are_not_made(self, session: Session, store: Store) -> None:
        record = await session.commit(message(1), lookups=[lookup("a")])
        stale = change_of(session.key, replace(record, version=7), events=[event(8)])
        known = change_of(session.key, record, events=[event(2)], lookups=[lookup("a")])
        assert await store.commit([stale]) == [Conflict()]
        assert await store.commit([known]) == [Known([lookup("a")])]
        assert await events(session) == []

    async def test_of_several_changes_of_one_call(self, store: Store) -> None:
        first = birth(KEY, message(1))
        second = change_of(KEY, born(first), events=[event(2)])
        third = change_of(KEY, born(second), events=[event(3)])
        assert await store.commit([first, second, third]) == [Committed()] * 3
        assert await events(Session(store, KEY, born(third))) == [event(2), event(3)]

    async def test_stay_when_messages_go(self, session: Session, store: Store) -> None:
        await session.commit(message(1), message(2))
        await session.commit(events=[event(2)])
        record = await session.remove(1, 2)
        await store.purge(session.key, record.incarnation, 1, 2, 10)
        assert await events(session) == [event(2)]


class TestSwept:
    async def test_after_a_day(self, session: Session, store: Store) -> None:
        now = await store.now()
        await session.commit(events=[event(1, created=now)])
        assert await swept(store, limits.EVENT_SECONDS - 60) == Deleted()
        assert await events(session) == [event(1, created=now)]
        assert await swept(store, limits.EVENT_SECONDS + 60) == Deleted(events=1)
        assert await events(session) == []

    async def test_each_by_its_own_time(self, new_session: NewSession, store: Store) -> None:
        now = await store.now()
        ages = (0, 3 * 3600, 1 * 3600, 30 * 3600, 25 * 3600)
        sessions = [new_session(), new_session()]
        for session in sessions:
            await session.commit()
            for version, age in enumerate(ages, 2):
                await session.commit(events=[event(version, created=now - age * 1_000_000)])
        assert await swept(store, 0, limit=1) == Deleted(events=4)
        for session in sessions:
            assert [found.number for found in await events(session)] == [2, 3, 4]
        assert await swept(store, 22 * 3600) == Deleted(events=2)
        for session in sessions:
            assert [found.number for found in await events(session)] == [2, 4]

    async def test_in_bounded_steps(self, session: Session, store: Store) -> None:
        await session.commit()
        for version in range(2, 32):
            await session.commit(events=[event(version)])
        now = await store.now()
        steps = []
        while (deleted := await store.sweep(now, 4)).total:
            steps.append(deleted.events)
        assert sum(steps) == 30
        assert max(steps) <= 8

    async def test_and_the_next_goes_on_from_there(self, session: Session, store: Store) -> None:
        await session.commit(events=[event(1)])
        await swept(store, 0)
        await session.commit(events=[event(2, created=await store.now())])
        assert [found.number for found in await events(session)] == [2]
