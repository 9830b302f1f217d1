"""`sweep` and `erase`: what nobody can reach any more goes, and nothing else (invariants 2 and 11)."""

from __future__ import annotations

import pytest

from memoryd_server import limits
from memoryd_server.stores.base import Committed, Deleted, Known, Loaded, Store
from memoryd_server.stores.records import AgentRecord, LookupKind, RemovedRange, SessionKey, Usability
from tests.stores.builders import (
    EVERY,
    TIME,
    Session,
    birth,
    call,
    erased,
    event,
    listed,
    lookup,
    message,
    orphan,
    result,
    swept,
)
from tests.stores.conftest import NewSession

AFTER_PURGE = limits.PURGE_DELAY_SECONDS + 60
AFTER_LOOKUPS = limits.LOOKUP_SECONDS + 60
AFTER_EVENTS = limits.EVENT_SECONDS + 60
ALWAYS = 400 * 24 * 60 * 60
"""A year and more: when everything is due that ever will be."""


async def fill(session: Session, user_id: str = "user", prefix: str = "") -> None:
    """Gives the session three messages, one event of now and two look-ups."""
    now = await session.store.now()
    await session.commit(
        message(1), call(2, usability=Usability.OPEN), orphan(3), user_id=user_id, lookups=[lookup(f"{prefix}a")]
    )
    await session.commit(events=[event(2, created=now)], lookups=[lookup(f"{prefix}b", LookupKind.REQUEST)])


FILLING = Deleted(messages=3, events=1, lookups=2, sessions=1)


@pytest.fixture
async def filled(session: Session) -> Session:
    """A session that lives and holds something of every kind."""
    await fill(session)
    return session


class TestSweep:
    async def test_of_an_empty_store_deletes_nothing(self, store: Store) -> None:
        assert await store.sweep(await store.now() + ALWAYS * 1_000_000, 1000) == Deleted()

    async def test_takes_what_a_dead_life_held_after_the_delay(self, filled: Session, store: Store) -> None:
        await filled.die()
        assert await swept(store, AFTER_PURGE) == Deleted(messages=3, events=1)
        assert await swept(store, AFTER_PURGE) == Deleted()

    async def test_waits_for_calls_that_began_before_the_death(self, filled: Session, store: Store) -> None:
        await filled.die()
        assert await swept(store, limits.PURGE_DELAY_SECONDS - 60) == Deleted()
        assert (await swept(store, AFTER_PURGE)).messages == 3

    async def test_leaves_the_ids_of_a_dead_name(self, filled: Session, store: Store) -> None:
        """(invariant 2)"""
        await filled.die()
        await swept(store, limits.LOOKUP_SECONDS - 60)
        assert await store.find(filled.key, LookupKind.MESSAGE, ["a"]) == [lookup("a")]
        assert await store.commit([birth(filled.key, lookups=[lookup("a")])]) == [Known([lookup("a")])]

    async def test_takes_the_ids_and_the_name_a_day_after_the_death(self, filled: Session, store: Store) -> None:
        await filled.die()
        assert await swept(store, AFTER_LOOKUPS) == FILLING
        assert await store.find(filled.key, LookupKind.MESSAGE, ["a"]) == []
        assert await store.find(filled.key, LookupKind.REQUEST, ["b"]) == []

    async def test_takes_the_ids_of_a_name_that_was_swept_before(self, filled: Session, store: Store) -> None:
        await filled.die()
        await swept(store, AFTER_PURGE)
        assert await swept(store, AFTER_LOOKUPS) == Deleted(lookups=2, sessions=1)

    async def test_takes_the_name_of_a_life_that_held_nothing(self, session: Session, store: Store) -> None:
        await session.commit()
        await session.die()
        assert await swept(store, AFTER_PURGE) == Deleted()
        assert await swept(store, AFTER_LOOKUPS) == Deleted(sessions=1)
        assert await swept(store, ALWAYS) == Deleted()

    async def test_leaves_the_name_free_for_any_birth(self, filled: Session, store: Store) -> None:
        await filled.die()
        await swept(store, AFTER_LOOKUPS)
        await filled.commit(message(1, id="new"), lookups=[lookup("a", digest=b"new")])
        assert [stored.id for stored in await filled.stored()] == ["new"]
        assert await store.find(filled.key, LookupKind.MESSAGE, ["a"]) == [lookup("a", digest=b"new")]
        assert await listed(store) == ["session"]

    async def test_leaves_the_name_free_for_a_fork(self, filled: Session, store: Store) -> None:
        await filled.die()
        await swept(store, AFTER_LOOKUPS)
        due = await store.now() + 600_000_000
        staging = await store.begin_staging("tenant", "user", due)
        await store.stage(staging, [message(1, id="fork")], [lookup("a", digest=b"fork")], due)
        adoption = birth(filled.key, staging=staging, last_seq=1)
        assert await store.commit([adoption]) == [Committed()]
        assert [stored.id for stored in await filled.stored()] == ["fork"]
        assert await store.find(filled.key, LookupKind.MESSAGE, ["a"]) == [lookup("a", digest=b"fork")]

    async def test_leaves_the_agent_known(self, filled: Session, store: Store) -> None:
        await filled.die()
        await swept(store, ALWAYS)
        assert await store.load_agent("tenant", "agent") == AgentRecord("tenant", "agent")

    @pytest.mark.parametrize("seconds", [0, AFTER_PURGE, limits.EVENT_SECONDS - 60])
    async def test_never_touches_the_living(self, filled: Session, store: Store, seconds: int) -> None:
        record = await filled.commit(result(4, 2), completed=[2], activity=1, ttl=1)
        stored = await filled.stored()
        assert await swept(store, seconds) == Deleted()
        assert await store.load(filled.key) == Loaded(record)
        assert await filled.stored() == stored
        page = await store.list_events(filled.key, record.incarnation, 0, 10)
        assert page is not None
        assert [found.number for found in page.events] == [2]

    async def test_of_the_living_takes_old_events_alone(self, filled: Session, store: Store) -> None:
        stored = await filled.stored()
        assert await swept(store, ALWAYS) == Deleted(events=1)
        assert await store.load(filled.key) == Loaded(filled.record)  # type: ignore[arg-type]
        assert await filled.stored() == stored
        assert await filled.tail(usabilities=EVERY) == [3, 2, 1]
        assert await store.find(filled.key, LookupKind.MESSAGE, ["a"]) == [lookup("a")]
        assert await store.find(filled.key, LookupKind.REQUEST, ["b"]) == [lookup("b", LookupKind.REQUEST)]

    async def test_leaves_removed_messages_to_the_purge(self, filled: Session, store: Store) -> None:
        await filled.commit(removed=(RemovedRange(1, 2, TIME),), first_seq=3)
        await swept(store, ALWAYS)
        await filled.commit(removed=(), first_seq=1)
        assert [stored.seq for stored in await filled.stored()] == [1, 2, 3]

    async def test_takes_earlier_lives_and_leaves_the_living_one(self, filled: Session, store: Store) -> None:
        for number in range(3):
            await filled.be_reborn(message(1, id=f"life {number}"), user_id="user", lookups=[lookup(f"{number}")])
        record = await filled.commit(message(2, id="newer"))
        assert await swept(store, AFTER_PURGE) == Deleted(messages=5, events=1)
        assert await swept(store, ALWAYS) == Deleted()
        assert await store.load(filled.key) == Loaded(record)
        assert [stored.id for stored in await filled.stored()] == ["life 2", "newer"]
        assert await filled.tail() == [2, 1]
        found = await store.find(filled.key, LookupKind.MESSAGE, ["a", "0", "1", "2"])
        assert sorted(each.id for each in found) == ["0", "1", "2", "a"]

    async def test_counts_the_day_from_the_last_death(self, filled: Session, store: Store) -> None:
        await filled.die()
        await filled.commit(message(1), lookups=[lookup("c")])
        await swept(store, ALWAYS)
        assert await store.find(filled.key, LookupKind.MESSAGE, ["a"]) == [lookup("a")]
        await filled.die()
        assert await swept(store, limits.LOOKUP_SECONDS - 60) == Deleted(messages=1)
        found = await store.find(filled.key, LookupKind.MESSAGE, ["a", "c"])
        assert sorted(each.id for each in found) == ["a", "c"]
        assert await swept(store, AFTER_LOOKUPS) == Deleted(lookups=3, sessions=1)

    async def test_takes_nothing_of_another_session(self, new_session: NewSession, store: Store) -> None:
        dead = new_session("session")
        others = [new_session("other"), new_session("session", agent="b"), new_session("session", tenant="b")]
        for each in (dead, *others):
            await each.commit(message(1), lookups=[lookup("a")])
        await dead.die()
        assert await swept(store, ALWAYS) == Deleted(messages=1, lookups=1, sessions=1)
        for other in others:
            assert await other.stored() == [message(1)]
            assert await store.find(other.key, LookupKind.MESSAGE, ["a"]) == [lookup("a")]

    @pytest.mark.parametrize("limit", [1, 3, 7])
    async def test_goes_in_bounded_steps_until_nothing_is_left(
        self, new_session: NewSession, store: Store, limit: int
    ) -> None:
        sessions = [new_session() for _ in range(5)]
        for session in sessions:
            await fill(session)
            await session.die()
        living = new_session("living")
        await fill(living)
        now = await store.now() + (AFTER_LOOKUPS - 3600) * 1_000_000
        steps: list[Deleted] = []
        for seconds in (AFTER_PURGE, AFTER_LOOKUPS):
            now = await store.now() + seconds * 1_000_000
            while (deleted := await store.sweep(now, limit)).total:
                steps.append(deleted)
        # Up to about the limit: a step may end what it began of one session.
        assert max(step.total for step in steps) <= limit + FILLING.total
        total = sum(steps, Deleted())
        assert (total.messages, total.lookups, total.sessions) == (15, 10, 5)
        assert await living.tail(usabilities=EVERY) == [3, 2, 1]

    async def test_of_a_long_life_is_bounded(self, session: Session, store: Store) -> None:
        await session.commit(*(message(seq) for seq in range(1, 1001)), lookups=[lookup(f"{n}") for n in range(1000)])
        await session.die()
        now = await store.now() + AFTER_LOOKUPS * 1_000_000
        steps = []
        while (deleted := await store.sweep(now, 100)).total:
            steps.append(deleted)
        assert max(step.total for step in steps) <= 200
        assert sum(steps, Deleted()) == Deleted(messages=1000, lookups=1000, sessions=1)

    async def test_takes_stagings_that_are_due(self, store: Store) -> None:
        now = await store.now()
        for due in (now - 1, now + 3_600_000_000):
            staging = await store.begin_staging("tenant", "user", now)
            await store.stage(staging, [message(1), message(2)], [lookup("a")], due)
        assert await swept(store, 0) == Deleted(messages=2, lookups=1)
        assert await swept(store, 7200) == Deleted(messages=2, lookups=1)
        assert await swept(store, ALWAYS) == Deleted()


class TestErase:
    async def test_of_an_unknown_user_deletes_nothing(self, filled: Session, store: Store) -> None:
        await filled.die()
        for user_id in ("User", "user ", "use", "%", "another"):
            assert await store.erase("tenant", user_id, 1000) == Deleted()
        assert await erased(store, "user") == FILLING

    async def test_takes_all_of_a_dead_session_at_once(self, filled: Session, store: Store) -> None:
        """Without the delay of a sweep, ids included."""
        await filled.die()
        assert await erased(store, "user") == FILLING
        assert await store.load(filled.key) is None
        assert await store.find(filled.key, LookupKind.MESSAGE, ["a"]) == []
        assert await store.find(filled.key, LookupKind.REQUEST, ["b"]) == []

    async def test_leaves_nothing_to_erase_or_sweep(self, filled: Session, store: Store) -> None:
        await filled.die()
        await erased(store, "user")
        assert await store.erase("tenant", "user", 1000) == Deleted()
        assert await swept(store, ALWAYS) == Deleted()

    async def test_takes_what_a_sweep_left(self, filled: Session, store: Store) -> None:
        await filled.die()
        await swept(store, AFTER_PURGE)
        assert await erased(store, "user") == Deleted(lookups=2, sessions=1)
        assert await swept(store, ALWAYS) == Deleted()

    async def test_never_touches_the_living(self, filled: Session, store: Store) -> None:
        """A session ends by a commit before it is erased."""
        stored = await filled.stored()
        assert await erased(store, "user") == Deleted()
        assert await store.load(filled.key) == Loaded(filled.record)  # type: ignore[arg-type]
        assert await filled.stored() == stored
        assert await listed(store, user_id="user") == ["session"]

    async def test_touches_no_other_user_tenant_or_session(self, new_session: NewSession, store: Store) -> None:
        sessions = {
            name: new_session(f"session of {name}", tenant=tenant, agent=agent)
            for name, tenant, agent in (
                ("erased", "tenant", "agent"),
                ("erased too", "tenant", "another"),
                ("user", "tenant", "agent"),
                ("nobody", "tenant", "agent"),
                ("tenant", "other", "agent"),
                ("living", "tenant", "agent"),
            )
        }
        users = {"user": "User", "nobody": ""}
        for name, session in sessions.items():
            await fill(session, users.get(name, "user"))
            if name != "living":
                await session.die()
        assert await erased(store, "user") == FILLING + FILLING
        for name, session in sessions.items():
            found = await store.find(session.key, LookupKind.MESSAGE, ["a"])
            assert found == ([] if name.startswith("erased") else [lookup("a")])
        assert await erased(store, "User") == await erased(store, "user", tenant="other") == FILLING
        assert await sessions["living"].tail(usabilities=EVERY) == [3, 2, 1]

    async def test_leaves_the_name_free(self, filled: Session, store: Store) -> None:
        await filled.die()
        await erased(store, "user")
        await filled.commit(message(1, id="new"), lookups=[lookup("a", digest=b"new")])
        assert [stored.id for stored in await filled.stored()] == ["new"]
        assert await listed(store) == ["session"]

    async def test_leaves_the_name_free_for_a_fork(self, filled: Session, store: Store) -> None:
        await filled.die()
        await erased(store, "user")
        due = await store.now() + 600_000_000
        staging = await store.begin_staging("tenant", "", due)
        await store.stage(staging, [message(1, id="fork")], [], due)
        assert await store.commit([birth(filled.key, staging=staging, last_seq=1)]) == [Committed()]
        assert [stored.id for stored in await filled.stored()] == ["fork"]

    async def test_of_a_session_that_changed_hands_goes_by_the_last_user(self, filled: Session, store: Store) -> None:
        await filled.commit(user_id="another")
        await filled.die()
        assert await erased(store, "user") == Deleted()
        assert await erased(store, "another") == FILLING

    @pytest.mark.parametrize("way", ["rebirth", "death and birth"])
    async def test_takes_an_earlier_life_of_a_name_that_lives_on(self, filled: Session, store: Store, way: str) -> None:
        """Whoever has it now, and its ids with it."""
        if way == "death and birth":
            await filled.die()
            record = await filled.commit(message(1, id="new"), user_id="another", lookups=[lookup("new")])
        else:
            record = await filled.be_reborn(message(1, id="new"), user_id="another", lookups=[lookup("new")])
        assert await erased(store, "user") == Deleted(messages=3, events=1, lookups=2)
        assert await store.load(filled.key) == Loaded(record)
        assert [stored.id for stored in await filled.stored()] == ["new"]
        assert await store.find(filled.key, LookupKind.MESSAGE, ["a", "new"]) == [lookup("new")]
        assert await erased(store, "another") == Deleted()

    async def test_takes_an_earlier_life_of_the_user_who_has_it_still(self, filled: Session, store: Store) -> None:
        record = await filled.be_reborn(message(1, id="new"), user_id="user", lookups=[lookup("new")])
        assert await erased(store, "user") == Deleted(messages=3, events=1, lookups=2)
        assert await store.load(filled.key) == Loaded(record)
        assert await store.find(filled.key, LookupKind.MESSAGE, ["a", "new"]) == [lookup("new")]
        assert await filled.tail() == [1]

    async def test_of_lives_with_several_users_takes_each_ones_own(self, filled: Session, store: Store) -> None:
        await filled.be_reborn(message(1), message(2), user_id="second", lookups=[lookup("of second")])
        await filled.be_reborn(message(1), user_id="third", lookups=[lookup("of third")])
        await filled.die()
        ids = ["a", "of second", "of third"]
        assert await erased(store, "second") == Deleted(messages=2, lookups=1)
        assert sorted(each.id for each in await store.find(filled.key, LookupKind.MESSAGE, ids)) == ["a", "of third"]
        deleted = await erased(store, "third")
        assert (deleted.messages, deleted.lookups) == (1, 1)
        assert await store.find(filled.key, LookupKind.MESSAGE, ids) == [lookup("a")]
        deleted += await erased(store, "user")
        assert deleted == Deleted(messages=4, events=1, lookups=3, sessions=1)
        assert await store.find(filled.key, LookupKind.MESSAGE, ids) == []
        assert await swept(store, ALWAYS) == Deleted()

    async def test_of_an_earlier_life_that_was_swept_takes_its_ids(self, filled: Session, store: Store) -> None:
        """They outlive a sweep, not an erasure."""
        await filled.be_reborn(message(1), user_id="another", lookups=[lookup("new")])
        await swept(store, AFTER_PURGE)
        assert await store.find(filled.key, LookupKind.MESSAGE, ["a", "new"]) != [lookup("new")]
        assert await erased(store, "user") == Deleted(lookups=2)
        assert await store.find(filled.key, LookupKind.MESSAGE, ["a", "new"]) == [lookup("new")]

    async def test_takes_the_users_stagings(self, store: Store) -> None:
        due = await store.now() + 3_600_000_000
        for tenant, user_id in (("tenant", "user"), ("tenant", "user"), ("tenant", "another"), ("other", "user")):
            staging = await store.begin_staging(tenant, user_id, due)
            await store.stage(staging, [message(1), message(2)], [lookup("a")], due)
        assert await erased(store, "user") == Deleted(messages=4, lookups=2)
        assert await erased(store, "user") == Deleted()
        assert await erased(store, "another") == await erased(store, "user", "other") == Deleted(messages=2, lookups=1)

    async def test_counts_what_it_has_begun_with_though_a_sweep_comes_between(self, store: Store) -> None:
        due = await store.now() + 3_600_000_000
        staging = await store.begin_staging("tenant", "user", due)
        await store.stage(staging, [message(seq) for seq in range(1, 7)], [], due)
        begun = await store.erase("tenant", "user", 2)
        assert begun.messages >= 2
        assert await store.sweep(await store.now(), 100) == Deleted()
        assert begun + await erased(store, "user") == Deleted(messages=6)

    async def test_takes_a_staging_that_holds_nothing_yet(self, store: Store) -> None:
        due = await store.now() + 3_600_000_000
        staging = await store.begin_staging("tenant", "user", due)
        await erased(store, "user")
        key = SessionKey("tenant", "agent", "fork")
        assert await store.commit([birth(key, staging=staging)]) != [Committed()]

    @pytest.mark.parametrize("limit", [1, 3, 7])
    async def test_goes_in_bounded_steps_until_nothing_is_left(
        self, new_session: NewSession, store: Store, limit: int
    ) -> None:
        for number in range(5):
            session = new_session()
            await fill(session)
            if number % 2:
                await session.be_reborn(user_id="another")
            else:
                await session.die()
        steps = []
        while (deleted := await store.erase("tenant", "user", limit)).total:
            steps.append(deleted)
        assert max(step.total for step in steps) <= limit + FILLING.total
        assert sum(steps, Deleted()) == Deleted(messages=15, events=5, lookups=10, sessions=3)

    async def test_of_a_long_life_is_bounded(self, session: Session, store: Store) -> None:
        messages = [message(seq) for seq in range(1, 1001)]
        await session.commit(*messages, lookups=[lookup(f"{n}") for n in range(1000)], user_id="user")
        await session.die()
        steps = []
        while (deleted := await store.erase("tenant", "user", 100)).total:
            steps.append(deleted)
        assert max(step.total for step in steps) <= 200
        assert sum(steps, Deleted()) == Deleted(messages=1000, lookups=1000, sessions=1)
