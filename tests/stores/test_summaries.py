"""Summaries in the store contract: their rows live and die with their commits (invariants 5, 10, 11 and 17)."""

from __future__ import annotations

import pytest

from memoryd_server import limits
from memoryd_server.stores.base import Change, Committed, Conflict, Deleted, Known, Store
from memoryd_server.stores.records import Folding, RemovedRange, SessionKey, StoredSummary, Usability
from tests.stores.builders import (
    Session,
    birth,
    born,
    call,
    change_of,
    erased,
    link,
    lookup,
    message,
    orphan,
    rebirth,
    result,
    seqs,
    summaries,
    summary,
    swept,
)
from tests.stores.conftest import NewSession

AFTER_PURGE = limits.PURGE_DELAY_SECONDS + 60


async def stored(session: Session, *numbers: int) -> list[StoredSummary]:
    """The summaries of a living session that are there."""
    assert session.record is not None
    read = await session.store.read_summaries(session.key, session.record.incarnation, numbers)
    assert read is not None
    assert read[0] == session.record
    return list(read[1])


class TestACommit:
    async def test_adds_a_summary(self, session: Session) -> None:
        await session.commit(message(1))
        await session.commit(**summaries(1))
        assert await stored(session, 1, 2) == [summary(1)]

    async def test_drops_summaries_with_the_same_change_that_adds_one(self, session: Session) -> None:
        await session.commit(message(1), **summaries(1, 2))
        await session.commit(new_summaries=(summary(3),), summaries=(link(2), link(3)), dropped_summaries=(1,))
        assert await stored(session, 3, 1, 2) == [summary(3), summary(2)]

    async def test_that_conflicts_changes_no_summary(self, session: Session, store: Store) -> None:
        stale = await session.commit(message(1), **summaries(1))
        await session.commit()
        late = change_of(session.key, stale, new_summaries=(summary(2),), summaries=(link(2),), dropped_summaries=(1,))
        assert await store.commit([late]) == [Conflict()]
        assert await stored(session, 1, 2) == [summary(1)]

    async def test_with_a_known_id_changes_no_summary(self, session: Session, store: Store) -> None:
        record = await session.commit(message(1), lookups=[lookup("a")], **summaries(1))
        late = change_of(
            session.key, record, lookups=[lookup("a")], new_summaries=(summary(2),), dropped_summaries=(1,)
        )
        assert await store.commit([late]) == [Known([lookup("a")])]
        assert await stored(session, 1, 2) == [summary(1)]

    async def test_carries_messages_and_summary_of_one_session_in_their_order(
        self, session: Session, store: Store
    ) -> None:
        first = birth(session.key, message(1), **summaries(1))
        second = change_of(session.key, born(first), message(2), **summaries(2) | {"dropped_summaries": (1,)})
        assert await store.commit([first, second]) == [Committed(), Committed()]
        session.record = born(second)
        assert await stored(session, 1, 2) == [summary(2)]

    async def test_drops_what_is_not_there_without_a_word(self, session: Session) -> None:
        await session.commit(message(1), **summaries(1))
        await session.commit(summaries=(), dropped_summaries=(1, 7))
        assert await stored(session, 1, 7) == []

    async def test_gives_a_session_from_a_staging_its_summaries(self, session: Session, store: Store) -> None:
        staging = await store.begin_staging("tenant", "", await store.now() + 60_000_000)
        await store.stage(staging, [message(1)], [], await store.now() + 60_000_000)
        change = birth(session.key, staging=staging, last_seq=1, messages=1, **summaries(1, 2))
        assert await store.commit([change]) == [Committed()]
        session.record = born(change)
        assert await stored(session, 2, 1) == [summary(2), summary(1)]
        assert seqs(await session.stored()) == [1]

    @pytest.mark.parametrize("characters", [1, 100_000, 1_000_000])
    async def test_takes_a_text_of_any_length(self, session: Session, characters: int) -> None:
        long = summary(1, text="ä" * characters)
        await session.commit(message(1), new_summaries=(long,), summaries=(link(1),))
        assert await stored(session, 1) == [long]


class TestALoad:
    async def test_brings_the_current_summary_of_the_record_s_moment(self, session: Session) -> None:
        await session.commit(message(1), message(2), message(3), **summaries(1, 2))
        loaded = await session.load(summary=True)
        assert loaded.summary == summary(2)
        assert seqs(loaded.tail) == [3, 2, 1]

    async def test_brings_none_unasked(self, session: Session) -> None:
        await session.commit(message(1), **summaries(1))
        assert (await session.load()).summary is None

    async def test_brings_none_where_there_is_none(self, session: Session) -> None:
        await session.commit(message(1))
        assert (await session.load(summary=True)).summary is None
        await session.commit(**summaries(1))
        await session.commit(summaries=(), dropped_summaries=(1,))
        assert (await session.load(summary=True)).summary is None

    async def test_brings_it_beside_opening_and_bodies(self, session: Session) -> None:
        await session.commit(message(1), message(2), opening_to=1, **summaries(1))
        loaded = await session.load(summary=True, opening=True, body_bytes=1_000)
        assert (loaded.summary, list(loaded.opening), list(loaded.tail)) == (
            summary(1),
            [message(1)],
            [message(2), message(1)],
        )

    async def test_brings_it_where_nothing_else_is_left(self, session: Session) -> None:
        await session.commit(message(1), first_seq=2, **summaries(1))
        loaded = await session.load(summary=True)
        assert (loaded.summary, loaded.tail) == (summary(1), [])


class TestLives:
    async def test_each_has_its_own(self, session: Session, store: Store) -> None:
        """(invariant 5)"""
        first = await session.commit(message(1), **summaries(1))
        await session.be_reborn(message(1))
        assert await stored(session, 1) == []
        assert await store.read_summaries(session.key, first.incarnation, [1]) is None
        assert (await session.load(summary=True)).summary is None

    async def test_a_rebirth_brings_its_own(self, session: Session, store: Store) -> None:
        first = await session.commit(message(1), **summaries(1))
        again = rebirth(session.key, first, message(1), new_summaries=(summary(1, text="new"),), summaries=(link(1),))
        assert await store.commit([again]) == [Committed()]
        session.record = born(again)
        assert await stored(session, 1) == [summary(1, text="new")]
        assert await swept(store, AFTER_PURGE) == Deleted(messages=1, summaries=1)
        assert await stored(session, 1) == [summary(1, text="new")]

    async def test_nothing_is_told_of_an_unknown_or_dead_session(self, session: Session, store: Store) -> None:
        assert await store.read_summaries(session.key, "0" * 32, [1]) is None
        dead = await session.commit(message(1), **summaries(1))
        await session.die()
        assert await store.read_summaries(session.key, dead.incarnation, [1]) is None

    async def test_sessions_do_not_share_them(self, session: Session, new_session: NewSession) -> None:
        """(invariant 5)"""
        other = new_session("other")
        await session.commit(message(1), **summaries(1))
        await other.commit(message(1), new_summaries=(summary(1, text="other"),), summaries=(link(1),))
        await session.commit(summaries=(), dropped_summaries=(1,))
        assert await stored(session, 1) == []
        assert await stored(other, 1) == [summary(1, text="other")]


class TestDeletion:
    async def test_a_sweep_takes_those_of_a_dead_life(self, session: Session, store: Store) -> None:
        await session.commit(message(1), **summaries(1, 2, 3))
        await session.die()
        assert await swept(store, limits.PURGE_DELAY_SECONDS - 60) == Deleted()
        assert await swept(store, AFTER_PURGE, limit=2) == Deleted(messages=1, summaries=3)
        assert await swept(store, AFTER_PURGE) == Deleted()

    async def test_an_erasure_takes_those_of_the_user_s_dead_lives_alone(
        self, session: Session, new_session: NewSession, store: Store
    ) -> None:
        other = new_session("other")
        await session.commit(message(1), user_id="user", **summaries(1, 2))
        await other.commit(message(1), user_id="another", **summaries(1))
        await session.die()
        assert await erased(store, "user", limit=1) == Deleted(messages=1, summaries=2, sessions=1)
        assert await erased(store, "user") == Deleted()
        assert await stored(other, 1) == [summary(1)]


class TestReadingOrder:
    async def entries(self, session: Session, from_head: int, to_head: int, limit: int = 100) -> list[int]:
        assert session.record is not None
        read = await session.store.list_in_reading_order(
            session.key, session.record.incarnation, from_head, to_head, limit
        )
        assert read is not None
        assert read[0] == session.record
        return seqs(read[1])

    @pytest.fixture
    async def history(self, session: Session) -> Session:
        """A group that is answered late, an open one, an orphan and plain messages."""
        await session.commit(
            message(1),
            call(2, calls=2),
            message(3),
            result(4, head=2, index=1),
            call(5, usability=Usability.OPEN),
            orphan(6),
            result(7, head=2, index=0),
            message(8),
        )
        return session

    async def test_is_by_head_then_place_in_the_group(self, history: Session) -> None:
        """(invariant 6)"""
        assert await self.entries(history, 1, 100) == [1, 2, 7, 4, 3, 5, 6, 8]

    async def test_is_cut_by_heads(self, history: Session) -> None:
        assert await self.entries(history, 2, 5) == [2, 7, 4, 3, 5]
        assert await self.entries(history, 3, 3) == [3]
        assert await self.entries(history, 4, 4) == []
        assert await self.entries(history, 9, 100) == []

    @pytest.mark.parametrize("limit", range(1, 9))
    async def test_is_cut_by_a_limit(self, history: Session, limit: int) -> None:
        assert await self.entries(history, 1, 100, limit) == [1, 2, 7, 4, 3, 5, 6, 8][:limit]

    async def test_passes_over_what_is_removed(self, history: Session) -> None:
        await history.commit(removed=(RemovedRange(2, 3, 1),))
        assert await self.entries(history, 1, 100) == [1, 5, 6, 8]
        await history.commit(removed=(RemovedRange(7, 7, 1),), first_seq=2)
        assert await self.entries(history, 1, 100) == [2, 4, 3, 5, 6, 8]

    async def test_brings_bare_entries(self, history: Session) -> None:
        assert history.record is not None
        read = await history.store.list_in_reading_order(history.key, history.record.incarnation, 1, 1, 1)
        assert read is not None
        assert not hasattr(read[1][0], "content")

    async def test_is_none_of_an_unknown_session_or_another_life(self, session: Session, store: Store) -> None:
        assert await store.list_in_reading_order(session.key, "0" * 32, 1, 9, 9) is None
        first = await session.commit(message(1))
        await session.be_reborn(message(1))
        assert await store.list_in_reading_order(session.key, first.incarnation, 1, 9, 9) is None

    async def test_goes_through_a_long_history_in_steps(self, session: Session) -> None:
        await session.commit(*map(message, range(1, 301)))
        assert await self.entries(session, 101, 300, limit=50) == [*range(101, 151)]


class TestFolds:
    async def folds(
        self, store: Store, before: int = 1 << 62, agent: str = "agent", tenant: str = "tenant", page_size: int = 1000
    ) -> list[str]:
        ids: list[str] = []
        after = ""
        while True:
            page = await store.list_folds(tenant, agent, before, page_size, after)
            assert len(page.keys) <= page_size
            ids += [key.session_id for key in page.keys]
            after = page.after
            if not after:
                return ids

    async def test_are_listed_by_their_time(self, new_session: NewSession, store: Store) -> None:
        for name, at in (("b", 200), ("c", 300), ("a", 100), ("none", 0)):
            await new_session(name).commit(message(1), folding=Folding(wanted=at))
        assert await self.folds(store) == ["a", "b", "c"]
        assert await self.folds(store, before=300) == ["a", "b"]
        assert await self.folds(store, page_size=1) == ["a", "b", "c"]

    async def test_are_listed_no_earlier_than_they_may_be_leased(self, session: Session, store: Store) -> None:
        await session.commit(message(1), folding=Folding(wanted=100, until=500))
        assert await self.folds(store, before=500) == []
        await session.commit(folding=Folding(wanted=100))
        assert await self.folds(store, before=500) == [session.key.session_id]
        await session.commit(folding=Folding(wanted=100, retry_at=600))
        assert await self.folds(store, before=600) == []
        assert await self.folds(store, before=601) == [session.key.session_id]

    async def test_are_listed_no_longer_when_none_is_wanted(self, session: Session, store: Store) -> None:
        await session.commit(message(1), folding=Folding(wanted=100))
        await session.commit(folding=Folding())
        assert await self.folds(store) == []

    async def test_end_with_the_life(self, session: Session, store: Store) -> None:
        await session.commit(message(1), folding=Folding(wanted=100))
        await session.be_reborn(message(1))
        assert await self.folds(store) == []
        await session.commit(folding=Folding(wanted=100))
        await session.die()
        assert await self.folds(store) == []

    async def test_are_those_of_the_agent_alone(self, store: Store) -> None:
        """(invariant 5)"""
        keys = [SessionKey(tenant, agent, "s") for tenant in ("t", "T") for agent in ("a", "A", "a ")]
        changes: list[Change] = [birth(key, message(1), folding=Folding(wanted=100)) for key in keys]
        assert await store.commit(changes) == [Committed()] * len(keys)
        for key in keys:
            page = await store.list_folds(key.tenant, key.agent, 1 << 62, 10)
            assert (list(page.keys), page.after) == ([key], "")
        assert await self.folds(store, agent="nobody") == []
