"""Deaths and rebirths: nothing of an earlier life is ever taken for the new one."""

from __future__ import annotations

import asyncio

import pytest

from memoryd_server.stores.base import Change, Committed, Conflict, Due, Known, Loaded, MessageQuery, Store, Tail
from memoryd_server.stores.records import (
    AgentRecord,
    LookupKind,
    Record,
    RemovedRange,
    RunLink,
    SessionKey,
    StoredMessage,
    Usability,
    replace,
)
from tests.adapters import EACH_SHARED_ADAPTER
from tests.stores.builders import (
    BOTH,
    EVERY,
    TIME,
    Session,
    birth,
    born,
    call,
    change_of,
    death,
    due_sessions,
    event,
    listed,
    lookup,
    message,
    new_record,
    orphan,
    rebirth,
    result,
    run_state,
    seqs,
)
from tests.stores.conftest import NewSession, OpenStore

on_shared_stores = pytest.mark.parametrize("adapter", EACH_SHARED_ADAPTER, indirect=True)

KEY = SessionKey("tenant", "agent", "session")
TTL = 1_000_000


def full_life() -> list[StoredMessage]:
    """Messages of every usability, seqs 1 to 5."""
    return [message(1), call(2, usability=Usability.OPEN), orphan(3), message(4), message(5)]


@pytest.fixture
async def living(session: Session) -> Session:
    """A session that every list and read knows something of."""
    await session.commit(*full_life(), lookups=[lookup("old")], user_id="user", ttl=TTL)
    await session.commit(events=[event(2)], removed=(RemovedRange(5, 5, TIME),), opening_to=1)
    return session


class TestDeath:
    async def test_ends_the_session_for_every_read(self, living: Session, store: Store) -> None:
        """(invariant 18)"""
        incarnation = (await living.die()).incarnation
        assert await store.load(living.key) is None
        assert await store.load(living.key, Tail(BOTH, 10, opening=True, body_bytes=1 << 20)) is None
        assert await store.read(living.key, incarnation, [1, 2, 3]) is None
        assert await store.list_messages(living.key, MessageQuery(1, 10, False, 10, 1 << 20)) is None
        assert await store.list_entries(living.key, incarnation, 1, 10, 10) is None
        assert list(await store.list_unusable(living.key, EVERY, 10)) == []
        assert await store.list_events(living.key, incarnation, 0, 10) is None

    @pytest.mark.parametrize("conditions", [{}, {"agent": "agent"}, {"user_id": "user"}])
    async def test_takes_the_session_out_of_lists_at_once(
        self, living: Session, store: Store, conditions: dict[str, str]
    ) -> None:
        assert await listed(store, **conditions) == ["session"]
        await living.die()
        assert await listed(store, **conditions) == []

    @pytest.mark.parametrize("due", Due)
    async def test_leaves_nothing_due(self, living: Session, store: Store, due: Due) -> None:
        if due is Due.ABANDONMENT:
            await living.commit(runs=(RunLink("run", run_state()),))
        assert await due_sessions(store, due) == [living.key]
        await living.die()
        assert await due_sessions(store, due) == []

    async def test_leaves_nothing_to_purge(self, living: Session, store: Store) -> None:
        incarnation = (await living.die()).incarnation
        assert await store.purge(living.key, incarnation, 5, 5, 10) == 0

    async def test_leaves_the_agent_known(self, living: Session, store: Store) -> None:
        await living.die()
        assert await store.load_agent("tenant", "agent") == AgentRecord("tenant", "agent")

    async def test_touches_no_other_session(self, new_session: NewSession, store: Store) -> None:
        dying = new_session("session")
        others = [new_session("other"), new_session("session", agent="other"), new_session("session", tenant="other")]
        for each in (dying, *others):
            await each.commit(message(1), user_id="user", events=[event(1)], lookups=[lookup("a")], ttl=TTL)
        await dying.die()
        for other in others:
            loaded = await other.load(body_bytes=1 << 20)
            assert (loaded.record, loaded.tail) == (other.record, [message(1)])
        assert sorted(await due_sessions(store, Due.EXPIRY)) == sorted(other.key for other in others)

    @pytest.mark.parametrize("wrong", [{"version": 1}, {"version": 3}, {"incarnation": "0" * 32}])
    async def test_is_refused_on_another_state(self, living: Session, store: Store, wrong: dict[str, object]) -> None:
        assert living.record is not None
        assert await store.commit([death(living.key, replace(living.record, **wrong))]) == [Conflict()]
        assert await store.load(living.key) == Loaded(living.record)
        assert await living.tail() == [4, 1]

    async def test_of_the_dead_is_refused(self, living: Session, store: Store) -> None:
        last = await living.die()
        assert await store.commit([death(living.key, last)]) == [Conflict()]

    async def test_of_what_never_lived_is_refused(self, store: Store) -> None:
        assert await store.commit([death(KEY, new_record())]) == [Conflict()]

    async def test_refuses_every_change_that_rests_on_the_dead_life(self, living: Session, store: Store) -> None:
        last = await living.die()
        assert await store.commit([change_of(living.key, last, message(6), lookups=[lookup("new")])]) == [Conflict()]
        assert await store.commit([rebirth(living.key, last, message(1), lookups=[lookup("new")])]) == [Conflict()]
        assert await store.load(living.key) is None
        assert await store.find(living.key, LookupKind.MESSAGE, ["new"]) == []

    async def test_of_several_sessions_is_answered_for_each(self, new_session: NewSession, store: Store) -> None:
        sessions = [new_session() for _ in range(20)]
        records = [await session.commit(message(1), lookups=[lookup("a")]) for session in sessions]
        stale = [replace(record, version=1 + number % 2) for number, record in enumerate(records)]
        outcomes = await store.commit(
            [death(session.key, record) for session, record in zip(sessions, stale, strict=True)]
        )
        assert outcomes == [Committed(), Conflict()] * 10
        assert sorted(await listed(store)) == sorted(session.key.session_id for session in sessions[1::2])

    @on_shared_stores
    async def test_is_seen_by_other_servers_and_after_a_restart(self, open_store: OpenStore) -> None:
        first, second = await open_store(), await open_store()
        session = Session(first, KEY)
        await session.commit(message(1), lookups=[lookup("a")])
        assert await second.load(KEY) == Loaded(session.record)  # type: ignore[arg-type]
        await session.die()
        await first.close()
        for server in (second, await open_store()):
            assert await server.load(KEY) is None
            assert await server.find(KEY, LookupKind.MESSAGE, ["a"]) == [lookup("a")]


async def begin_again(session: Session, way: str, *messages: StoredMessage, **fields: object) -> Record:
    """Ends a life and begins the next, in one of the ways that there are. Returns: the record of the new one."""
    if way == "rebirth":
        return await session.be_reborn(*messages, **fields)
    if way == "death and birth":
        await session.die()
        return await session.commit(*messages, **fields)
    assert session.record is not None
    changes = [death(session.key, session.record), birth(session.key, *messages, **fields)]
    assert await session.store.commit(changes) == [Committed(), Committed()]
    session.record = born(changes[1])
    return session.record


@pytest.mark.parametrize("way", ["rebirth", "death and birth", "death and birth in one call"])
class TestNewLife:
    async def test_shows_nothing_of_the_old_one(self, living: Session, store: Store, way: str) -> None:
        record = await begin_again(living, way)
        loaded = await living.load(usabilities=EVERY, opening=True, body_bytes=1 << 20)
        assert (loaded.record, list(loaded.tail), list(loaded.opening)) == (record, [], [])
        assert await store.read(living.key, record.incarnation, range(1, 10)) == (record, [])
        assert await living.stored() == []
        assert await store.list_entries(living.key, record.incarnation, 1, 10, 10) == (record, [])
        assert list(await store.list_unusable(living.key, EVERY, 10)) == []
        page = await store.list_events(living.key, record.incarnation, 0, 10)
        assert page is not None
        assert (page.record, list(page.events)) == (record, [])

    async def test_begins_at_seq_1_with_messages_of_its_own(self, living: Session, store: Store, way: str) -> None:
        """(invariant 18)"""
        new = [
            message(1, id="new 1", content="new"),
            message(2, id="new 2", content="new"),
            message(3, id="new 3", content="new"),
        ]
        record = await begin_again(living, way, *new, opening_to=2)
        assert await living.stored() == new
        loaded = await living.load(usabilities=EVERY, opening=True, body_bytes=1 << 20)
        assert (loaded.record, list(loaded.tail), list(loaded.opening)) == (record, new[::-1], new[:2])
        assert await store.read(living.key, record.incarnation, [5, 4, 3, 2, 1]) == (record, new[::-1])

    async def test_grows_over_the_seqs_of_the_old_one(self, living: Session, way: str) -> None:
        await begin_again(living, way, message(1, id="new 1"))
        for seq in range(2, 8):
            await living.commit(message(seq, id=f"new {seq}"))
        assert [stored.id for stored in await living.stored()] == [f"new {seq}" for seq in range(1, 8)]
        assert await living.tail(usabilities=EVERY) == [7, 6, 5, 4, 3, 2, 1]

    async def test_completes_groups_of_its_own_only(self, living: Session, store: Store, way: str) -> None:
        await begin_again(living, way, message(1), call(2, id="new", usability=Usability.OPEN))
        await living.commit(result(3, 2), completed=[2])
        assert await living.tail() == [3, 2, 1]
        assert list(await store.list_unusable(living.key, EVERY, 10)) != []
        assert seqs(await store.list_unusable(living.key, [Usability.OPEN], 10)) == []

    async def test_has_events_of_its_own(self, living: Session, store: Store, way: str) -> None:
        record = await begin_again(living, way, message(1))
        record = await living.commit(events=[event(2, messages=7)])
        page = await store.list_events(living.key, record.incarnation, 0, 10)
        assert page is not None
        assert list(page.events) == [event(2, messages=7)]

    async def test_is_closed_to_the_incarnation_of_the_old_one(self, living: Session, store: Store, way: str) -> None:
        assert living.record is not None
        old = living.record.incarnation
        await begin_again(living, way, message(1), events=[event(1)], removed=(RemovedRange(1, 1, TIME),))
        assert await store.read(living.key, old, [1]) is None
        assert await store.list_entries(living.key, old, 1, 10, 10) is None
        assert await store.list_events(living.key, old, 0, 10) is None
        assert await store.purge(living.key, old, 1, 1, 10) == 0

    async def test_refuses_what_rests_on_the_old_one(self, living: Session, store: Store, way: str) -> None:
        """Versions of the two lives meet: the incarnation tells them apart."""
        old = living.record
        assert old is not None
        await begin_again(living, way, message(1))
        record = await living.commit(message(2))
        assert record.version == old.version
        changes: list[Change] = [
            change_of(living.key, old, message(6)),
            rebirth(living.key, old),
            death(living.key, old),
        ]
        for change in changes:
            assert await store.commit([change]) == [Conflict()]
        assert await store.load(living.key) == Loaded(record)
        assert await living.tail() == [2, 1]

    async def test_refuses_a_birth(self, living: Session, store: Store, way: str) -> None:
        record = await begin_again(living, way)
        assert await store.commit([birth(living.key)]) == [Conflict()]
        assert await store.load(living.key) == Loaded(record)

    async def test_stands_in_lists_once_under_its_own_user(self, living: Session, store: Store, way: str) -> None:
        record = await begin_again(living, way, user_id="another", activity=TIME + 7)
        assert await listed(store) == await listed(store, agent="agent") == ["session"]
        assert await listed(store, user_id="user") == []
        assert await listed(store, user_id="another") == ["session"]
        loaded = await store.load(living.key)
        assert loaded == Loaded(record)

    async def test_is_due_by_its_own_times(self, living: Session, store: Store, way: str) -> None:
        await begin_again(living, way)
        assert await due_sessions(store, Due.PURGE) == await due_sessions(store, Due.EXPIRY) == []
        await begin_again(living, way, message(1), removed=(RemovedRange(1, 1, 500),), activity=600, ttl=100)
        assert await due_sessions(store, Due.PURGE, 500) == await due_sessions(store, Due.EXPIRY, 700) == []
        assert await due_sessions(store, Due.PURGE, 501) == await due_sessions(store, Due.EXPIRY, 701) == [living.key]

    async def test_purges_messages_of_its_own_only(self, living: Session, store: Store, way: str) -> None:
        await begin_again(living, way, message(1, id="new 1"), message(2, id="new 2"))
        record = await living.remove(1, 1)
        assert await store.purge(living.key, record.incarnation, 1, 10, 10) == 2

    async def test_knows_the_ids_of_the_old_one(self, living: Session, store: Store, way: str) -> None:
        """A replay never restores anything (invariant 2)."""
        record = await begin_again(living, way, message(1), lookups=[lookup("new")])
        assert await store.find(living.key, LookupKind.MESSAGE, ["old"]) == [lookup("old")]
        replay = change_of(living.key, record, message(2), lookups=[lookup("old", digest=b"other")])
        assert await store.commit([replay]) == [Known([lookup("old")])]
        replay = change_of(living.key, record, message(2), lookups=[lookup("new")])
        assert await store.commit([replay]) == [Known([lookup("new")])]
        assert await living.tail() == [1]

    async def test_after_life_goes_on_so(self, living: Session, store: Store, way: str) -> None:
        incarnations = set()
        for number in range(5):
            record = await begin_again(living, way, message(1, id=f"life {number}"), lookups=[lookup(f"{number}")])
            incarnations.add(record.incarnation)
            assert [stored.id for stored in await living.stored()] == [f"life {number}"]
        assert len(incarnations) == 5
        ids = [f"{number}" for number in range(5)]
        found = await store.find(living.key, LookupKind.MESSAGE, ids)
        assert sorted(each.id for each in found) == ids

    async def test_is_seen_alone_by_its_numbers(self, living: Session, store: Store, way: str) -> None:
        """The counts of a record decide what a load reads: those of the old one must not."""
        big = message(1, size=1 << 20, content="x" * 1000)
        await begin_again(living, way, big)
        assert (await living.load(body_bytes=1 << 20)).tail == [big]
        await begin_again(living, way, message(1, size=10))
        assert (await living.load(body_bytes=10)).tail == [message(1, size=10)]


class TestIdsOutliveDeath:
    """(invariant 2)"""

    async def test_and_are_found(self, living: Session, store: Store) -> None:
        await living.die()
        assert await store.find(living.key, LookupKind.MESSAGE, ["old", "new"]) == [lookup("old")]

    async def test_and_refuse_a_birth_that_brings_them_again(self, living: Session, store: Store) -> None:
        await living.die()
        replay = birth(living.key, message(1), lookups=[lookup("old", digest=b"other"), lookup("new")])
        assert await store.commit([replay]) == [Known([lookup("old")])]
        assert await store.load(living.key) is None
        assert await store.find(living.key, LookupKind.MESSAGE, ["new"]) == []
        assert await listed(store) == []

    async def test_and_refuse_a_rebirth_that_brings_them_again(self, living: Session, store: Store) -> None:
        assert living.record is not None
        replay = rebirth(living.key, living.record, message(1), lookups=[lookup("old", digest=b"other")])
        assert await store.commit([replay]) == [Known([lookup("old")])]
        assert await store.load(living.key) == Loaded(living.record)
        assert await living.tail() == [4, 1]

    async def test_and_are_told_rather_than_a_conflict(self, living: Session, store: Store) -> None:
        last = await living.die()
        for change in (
            change_of(living.key, last, message(6), lookups=[lookup("old")]),
            rebirth(living.key, last, lookups=[lookup("old")]),
        ):
            assert await store.commit([change]) == [Known([lookup("old")])]

    async def test_and_are_the_names_not_another_sessions(self, living: Session, new_session: NewSession) -> None:
        await living.die()
        for other in (new_session("other"), new_session("session", agent="b"), new_session("session", tenant="b")):
            await other.commit(message(1), lookups=[lookup("old")])


class TestChains:
    async def test_a_whole_life_in_one_call(self, store: Store) -> None:
        first = birth(KEY, message(1), lookups=[lookup("a")])
        second = change_of(KEY, born(first), message(2), events=[event(2)])
        again = birth(KEY, message(1, id="new"), lookups=[lookup("b")])
        third = change_of(KEY, born(again), message(2, id="newer"))
        changes = [first, second, death(KEY, born(second)), again, third]
        assert await store.commit(changes) == [Committed()] * 5
        assert await store.load(KEY) == Loaded(born(third))
        assert [stored.id for stored in await Session(store, KEY).stored()] == ["new", "newer"]
        found = await store.find(KEY, LookupKind.MESSAGE, ["a", "b"])
        assert sorted(each.id for each in found) == ["a", "b"]

    async def test_a_birth_behind_a_refused_death_is_refused(self, living: Session, store: Store) -> None:
        assert living.record is not None
        stale = replace(living.record, version=1)
        assert await store.commit([death(living.key, stale), birth(living.key)]) == [Conflict(), Conflict()]
        assert await store.load(living.key) == Loaded(living.record)

    async def test_a_birth_behind_a_refused_death_is_refused_where_another_server_ended_the_life(
        self, living: Session, store: Store
    ) -> None:
        last = await living.die()
        assert await store.commit([death(living.key, last), birth(living.key)]) == [Conflict(), Conflict()]
        assert await store.load(living.key) is None

    async def test_ids_of_the_ended_life_are_known_in_the_same_call(self, store: Store) -> None:
        first = birth(KEY, message(1), lookups=[lookup("a")])
        again = birth(KEY, message(1), lookups=[lookup("a")])
        outcomes = await store.commit([first, death(KEY, born(first)), again])
        assert outcomes == [Committed(), Committed(), Known([lookup("a")])]
        assert await store.load(KEY) is None

    async def test_a_rebirth_on_a_change_of_the_same_call(self, living: Session, store: Store) -> None:
        assert living.record is not None
        changed = change_of(living.key, living.record, message(6))
        again = rebirth(living.key, born(changed), message(1, id="new"))
        grown = change_of(living.key, born(again), message(2, id="newer"))
        assert await store.commit([changed, again, grown]) == [Committed()] * 3
        assert [stored.id for stored in await living.stored()] == ["new", "newer"]
        assert await store.load(living.key) == Loaded(born(grown))


@on_shared_stores
class TestSeveralServers:
    async def test_of_many_ends_of_one_life_one_is_made(self, open_store: OpenStore) -> None:
        servers = [await open_store() for _ in range(4)]
        record = await Session(servers[0], KEY).commit(message(1))
        changes = [
            death(KEY, record),
            rebirth(KEY, record, message(1, id="reborn")),
            change_of(KEY, record, message(2)),
            rebirth(KEY, record, message(1, id="reborn otherwise")),
        ]
        outcomes = await asyncio.gather(
            *(server.commit([change]) for server, change in zip(servers, changes, strict=True))
        )
        assert sorted(type(outcome).__name__ for [outcome] in outcomes) == [
            "Committed",
            "Conflict",
            "Conflict",
            "Conflict",
        ]
        winner = changes[outcomes.index([Committed()])]
        for server in servers:
            assert await server.load(KEY) == (winner.record and Loaded(winner.record))

    async def test_of_many_births_on_a_dead_name_one_is_made(self, open_store: OpenStore) -> None:
        servers = [await open_store() for _ in range(4)]
        dying = Session(servers[0], KEY)
        await dying.commit(message(1), message(2))
        await dying.die()
        changes = [birth(KEY, message(1, id=f"by-{number}")) for number in range(len(servers))]
        outcomes = await asyncio.gather(
            *(server.commit([change]) for server, change in zip(servers, changes, strict=True))
        )
        assert [outcome for [outcome] in outcomes].count(Committed()) == 1
        assert [outcome for [outcome] in outcomes].count(Conflict()) == 3
        winner = changes[outcomes.index([Committed()])]
        for server in servers:
            assert await server.load(KEY) == Loaded(born(winner))
            assert await Session(server, KEY).stored() == list(winner.messages)

    async def test_a_server_that_knew_the_old_life_takes_nothing_of_it_for_the_new_one(
        self, open_store: OpenStore
    ) -> None:
        ours, theirs = await open_store(), await open_store()
        session = Session(theirs, KEY)
        old = await session.commit(*(message(seq) for seq in range(1, 6)), lookups=[lookup("a")])
        assert await Session(ours, KEY).tail() == [5, 4, 3, 2, 1]
        new = await session.be_reborn(message(1, id="new"))
        assert await ours.commit([change_of(KEY, old, message(6), lookups=[lookup("b")])]) == [Conflict()]
        assert await ours.commit([change_of(KEY, old, message(6), lookups=[lookup("a")])]) == [Known([lookup("a")])]
        assert await ours.read(KEY, old.incarnation, [1]) is None
        assert await ours.read(KEY, new.incarnation, [1, 2]) == (new, [message(1, id="new")])
        assert await ours.commit([change_of(KEY, new, message(2), lookups=[lookup("b")])]) == [Committed()]
