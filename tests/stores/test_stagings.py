"""Stagings: what a session is born with, collected piece by piece and invisible until its birth (invariant 11)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from memoryd_server.stores.base import (
    Change,
    Committed,
    Conflict,
    Deleted,
    Due,
    Known,
    Loaded,
    Lost,
    Outcome,
    StagingLost,
    Store,
    Taken,
)
from memoryd_server.stores.records import (
    AgentRecord,
    Lookup,
    LookupKind,
    Redaction,
    SessionKey,
    StoredMessage,
    Usability,
)
from tests.adapters import EACH_SHARED_ADAPTER
from tests.stores.builders import (
    EVERY,
    TIME,
    Session,
    birth,
    born,
    call,
    change_of,
    death,
    due_sessions,
    erased,
    event,
    grown,
    listed,
    lookup,
    message,
    new_record,
    orphan,
    result,
    seqs,
    swept,
)
from tests.stores.conftest import NewSession, OpenStore

on_shared_stores = pytest.mark.parametrize("adapter", EACH_SHARED_ADAPTER, indirect=True)

KEY = SessionKey("tenant", "agent", "fork")
HOUR = 60 * 60


class Staging:
    """A staging of a store, as a test fills and adopts it."""

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name
        self.staged: dict[int, StoredMessage] = {}

    async def add(self, *messages: StoredMessage, lookups: Sequence[Lookup] = ()) -> None:
        """Adds to it; it is due an hour from now."""
        await self.store.stage(self.name, messages, lookups, await self.store.now() + HOUR * 1_000_000)
        self.staged.update((each.seq, each) for each in messages)

    def adoption(self, key: SessionKey, *messages: StoredMessage, **fields: Any) -> Change:
        """The change that makes it a session, whose record counts all of its messages."""
        counts = grown(new_record(), [*self.staged.values(), *messages])
        return birth(key, *messages, staging=self.name, **{**counts, **fields})

    async def adopt(self, key: SessionKey, *messages: StoredMessage, **fields: Any) -> Outcome:
        """Commits that change."""
        [outcome] = await self.store.commit([self.adoption(key, *messages, **fields)])
        return outcome


async def begin(store: Store, user_id: str = "", tenant: str = "tenant") -> Staging:
    """A new staging, due an hour from now."""
    due = await store.now() + HOUR * 1_000_000
    return Staging(store, await store.begin_staging(tenant, user_id, due))


@pytest.fixture
async def staging(store: Store) -> Staging:
    """An empty staging."""
    return await begin(store)


class TestStaged:
    async def test_is_in_no_list_of_sessions_nor_of_agents(self, store: Store) -> None:
        staging = await begin(store, user_id="user")
        await staging.add(message(1), lookups=[lookup("a")])
        for conditions in ({}, {"user_id": "user"}, {"agent": ""}, {"agent": staging.name}):
            assert await listed(store, **conditions) == []
        assert list(await store.list_agents("tenant", "", 10)) == []
        assert await due_sessions(store, Due.EXPIRY) == await due_sessions(store, Due.PURGE) == []

    async def test_is_no_session_by_any_name(self, store: Store, staging: Staging) -> None:
        await staging.add(message(1), lookups=[lookup("a")])
        for key in (KEY, SessionKey("tenant", "", staging.name), SessionKey("tenant", "agent", staging.name)):
            assert await store.load(key) is None
            assert await store.find(key, LookupKind.MESSAGE, ["a"]) == []

    async def test_is_invisible_beside_the_sessions_of_its_tenant(
        self, store: Store, staging: Staging, session: Session
    ) -> None:
        record = await session.commit(message(1), lookups=[lookup("a")], user_id="user")
        await staging.add(message(2, id="staged"), lookups=[lookup("b")])
        assert await store.load(session.key) == Loaded(record)
        assert await session.stored() == [message(1)]
        assert await store.find(session.key, LookupKind.MESSAGE, ["b"]) == []
        assert await listed(store) == ["session"]

    async def test_names_differ(self, store: Store) -> None:
        names = {(await begin(store)).name for _ in range(20)}
        assert len(names) == 20
        assert "" not in names

    async def test_takes_nothing_from_a_session_that_is_born_under_the_name_meanwhile(
        self, store: Store, staging: Staging
    ) -> None:
        await staging.add(message(1, id="staged"), lookups=[lookup("a")])
        session = Session(store, KEY)
        await session.commit(message(1, id="born"), lookups=[lookup("a")])
        assert [stored.id for stored in await session.stored()] == ["born"]


class TestAdoption:
    async def test_makes_it_all_the_sessions_at_once(self, store: Store, staging: Staging) -> None:
        sent = [
            message(3, id="a", undo='{"u":1}', redaction=Redaction(5, "reason"), content=None, metadata="\x00"),
            call(4, usability=Usability.OPEN),
            orphan(5),
            message(7, name="name", extra="é"),
        ]
        await staging.add(*sent[:2], lookups=[lookup("a")])
        await staging.add(*sent[2:], lookups=[lookup("b"), lookup("a", LookupKind.REQUEST)])
        change = staging.adoption(KEY, first_seq=3, user_id="user")
        assert await store.commit([change]) == [Committed()]
        session = Session(store, KEY)
        loaded = await session.load(usabilities=EVERY, body_bytes=1 << 20)
        assert (loaded.record, list(loaded.tail)) == (born(change), sent[::-1])
        assert await session.stored() == sent
        assert await store.read(KEY, born(change).incarnation, [7, 3]) == (born(change), [sent[3], sent[0]])
        assert seqs(await store.list_unusable(KEY, [Usability.OPEN, Usability.ORPHAN], 10)) == [5, 4]
        found = await store.find(KEY, LookupKind.MESSAGE, ["a", "b"])
        assert sorted(found, key=lambda found: found.id) == [lookup("a"), lookup("b")]
        assert await store.find(KEY, LookupKind.REQUEST, ["a"]) == [lookup("a", LookupKind.REQUEST)]

    async def test_brings_the_session_into_lists(self, store: Store, staging: Staging) -> None:
        await staging.add(message(1))
        assert await staging.adopt(KEY, user_id="user", activity=500, ttl=100) == Committed()
        for conditions in ({}, {"agent": "agent"}, {"user_id": "user"}):
            assert await listed(store, **conditions) == ["fork"]
        assert await due_sessions(store, Due.EXPIRY, 601) == [KEY]
        assert await store.load_agent("tenant", "agent") == AgentRecord("tenant", "agent")

    async def test_brings_rows_of_its_own(self, store: Store, staging: Staging) -> None:
        await staging.add(message(1), lookups=[lookup("staged")])
        change = staging.adoption(KEY, message(2), lookups=[lookup("own")], events=[event(1)])
        assert await store.commit([change]) == [Committed()]
        assert await Session(store, KEY).stored() == [message(1), message(2)]
        found = await store.find(KEY, LookupKind.MESSAGE, ["staged", "own"])
        assert sorted(each.id for each in found) == ["own", "staged"]
        page = await store.list_events(KEY, born(change).incarnation, 0, 10)
        assert page is not None
        assert list(page.events) == [event(1)]

    async def test_makes_its_ids_known(self, store: Store, staging: Staging) -> None:
        """(invariant 2)"""
        await staging.add(message(1), lookups=[lookup("staged", digest=b"first")])
        change = staging.adoption(KEY, lookups=[lookup("own")])
        assert await store.commit([change]) == [Committed()]
        for known in (lookup("staged", digest=b"first"), lookup("own")):
            again = change_of(KEY, born(change), message(2), lookups=[lookup(known.id, digest=b"other")])
            assert await store.commit([again]) == [Known([known])]

    async def test_leaves_a_session_like_any_other(self, store: Store, staging: Staging) -> None:
        await staging.add(message(1), call(2, usability=Usability.OPEN), lookups=[lookup("a")])
        session = Session(store, KEY)
        await session.commit(staging=staging.name, **grown(new_record(), staging.staged.values()))
        await session.commit(result(3, 2), completed=[2], lookups=[lookup("b")])
        assert await session.tail() == [3, 2, 1]
        record = await session.remove(1, 1)
        assert await store.purge(KEY, record.incarnation, 1, 1, 10) == 1
        await session.be_reborn(message(1, id="new"))
        assert [stored.id for stored in await session.stored()] == ["new"]
        assert await store.find(KEY, LookupKind.MESSAGE, ["a"]) == [lookup("a")]

    async def test_of_nothing_makes_an_empty_session(self, store: Store, staging: Staging) -> None:
        change = staging.adoption(KEY)
        assert await store.commit([change]) == [Committed()]
        assert await store.load(KEY) == Loaded(born(change))
        assert await Session(store, KEY).stored() == []

    async def test_of_a_thousand_messages(self, store: Store, staging: Staging) -> None:
        sent = [message(seq) for seq in range(1, 1001)]
        for first in range(0, 1000, 250):
            batch = sent[first : first + 250]
            await staging.add(*batch, lookups=[lookup(each.id) for each in batch])
        assert await staging.adopt(KEY) == Committed()
        assert await Session(store, KEY).stored() == sent
        ids = [each.id for each in sent]
        assert len(await store.find(KEY, LookupKind.MESSAGE, ids)) == 1000

    async def test_is_one_change_among_others_of_a_call(self, store: Store, new_session: NewSession) -> None:
        first, second = await begin(store), await begin(store)
        await first.add(message(1, id="first"))
        await second.add(message(1, id="second"))
        other = new_session("other")
        adopted = first.adoption(KEY)
        changes = [
            adopted,
            birth(other.key, message(1, id="other")),
            second.adoption(KEY._replace(session_id="another")),
            change_of(KEY, born(adopted), message(2, id="newer")),
        ]
        assert await store.commit(changes) == [Committed()] * 4
        assert [stored.id for stored in await Session(store, KEY).stored()] == ["first", "newer"]
        assert [stored.id for stored in await other.stored()] == ["other"]
        another = Session(store, KEY._replace(session_id="another"))
        assert [stored.id for stored in await another.stored()] == ["second"]

    async def test_happens_once(self, store: Store, staging: Staging) -> None:
        await staging.add(message(1))
        assert await staging.adopt(KEY) == Committed()
        assert await staging.adopt(KEY._replace(session_id="second")) == Lost()
        assert await staging.adopt(KEY) == Conflict()
        assert await listed(store) == ["fork"]

    async def test_ends_the_staging(self, store: Store, staging: Staging) -> None:
        await staging.add(message(1))
        assert await staging.adopt(KEY) == Committed()
        with pytest.raises(StagingLost):
            await staging.add(message(2), lookups=[lookup("a")])
        await store.end_staging(staging.name)
        assert await Session(store, KEY).stored() == [message(1)]
        assert await store.find(KEY, LookupKind.MESSAGE, ["a"]) == []

    async def test_saves_it_from_sweeps(self, store: Store, staging: Staging) -> None:
        await staging.add(message(1), lookups=[lookup("a")])
        change = staging.adoption(KEY)
        assert await store.commit([change]) == [Committed()]
        await store.end_staging(staging.name)
        assert await swept(store, 48 * HOUR) == Deleted()
        assert await store.load(KEY) == Loaded(born(change))
        assert await Session(store, KEY).stored() == [message(1)]
        assert await store.find(KEY, LookupKind.MESSAGE, ["a"]) == [lookup("a")]

    async def test_saves_it_from_the_erasure_that_it_was_subject_to(self, store: Store) -> None:
        """It is then a living session, which ends by a commit before it is erased."""
        staging = await begin(store, user_id="user")
        await staging.add(message(1))
        assert await staging.adopt(KEY, user_id="user") == Committed()
        assert await erased(store, "user") == Deleted()
        assert await Session(store, KEY).stored() == [message(1)]


class TestAddingAgain:
    async def test_what_is_there_changes_nothing(self, store: Store, staging: Staging) -> None:
        sent = [message(1), message(2)]
        for _ in range(2):
            await staging.add(*sent, lookups=[lookup("a")])
        await staging.add(message(2), message(3), lookups=[lookup("a"), lookup("b")])
        assert await staging.adopt(KEY) == Committed()
        assert await Session(store, KEY).stored() == [message(1), message(2), message(3)]
        found = await store.find(KEY, LookupKind.MESSAGE, ["a", "b"])
        assert sorted(each.id for each in found) == ["a", "b"]

    async def test_nothing_adds_nothing(self, store: Store, staging: Staging) -> None:
        await staging.add()
        await staging.add(message(1))
        await staging.add()
        assert await staging.adopt(KEY) == Committed()
        assert await Session(store, KEY).stored() == [message(1)]


class TestSeveralStagings:
    async def test_hold_what_each_was_given(self, store: Store) -> None:
        stagings = [await begin(store, user_id="user") for _ in range(3)]
        for seq in (1, 2):
            for number, staging in enumerate(stagings):
                await staging.add(message(seq, id=f"{number}-{seq}"), lookups=[lookup("a", digest=b"%d" % number)])
        for number, staging in enumerate(stagings):
            assert await staging.adopt(KEY._replace(session_id=f"{number}")) == Committed()
        for number in range(3):
            session = Session(store, KEY._replace(session_id=f"{number}"))
            assert [stored.id for stored in await session.stored()] == [f"{number}-1", f"{number}-2"]
            assert await store.find(session.key, LookupKind.MESSAGE, ["a"]) == [lookup("a", digest=b"%d" % number)]

    async def test_for_one_name_leave_the_second_as_it_is(self, store: Store) -> None:
        first, second = await begin(store), await begin(store)
        await first.add(message(1, id="first"))
        await second.add(message(1, id="second"))
        assert await first.adopt(KEY) == Committed()
        assert await second.adopt(KEY) == Conflict()
        other = KEY._replace(session_id="other")
        assert await second.adopt(other) == Committed()
        assert [stored.id for stored in await Session(store, KEY).stored()] == ["first"]
        assert [stored.id for stored in await Session(store, other).stored()] == ["second"]

    async def test_for_one_name_in_one_call(self, store: Store) -> None:
        first, second = await begin(store), await begin(store)
        for staging in (first, second):
            await staging.add(message(1))
        assert await store.commit([first.adoption(KEY), second.adoption(KEY)]) == [Committed(), Conflict()]
        assert await second.adopt(KEY._replace(session_id="other")) == Committed()


async def end(staging: Staging) -> None:
    await staging.store.end_staging(staging.name)


async def sweep(staging: Staging) -> None:
    await swept(staging.store, 2 * HOUR)


async def end_and_sweep(staging: Staging) -> None:
    await staging.store.end_staging(staging.name)
    await swept(staging.store, 0)


async def erase(staging: Staging) -> None:
    await erased(staging.store, "user")


@pytest.mark.parametrize("lose", [end, sweep, end_and_sweep, erase])
class TestLost:
    @pytest.fixture
    async def staging(self, store: Store) -> Staging:
        staging = await begin(store, user_id="user")
        await staging.add(message(1), message(2), lookups=[lookup("a")])
        return staging

    async def test_takes_no_more(self, staging: Staging, lose: Callable[[Staging], Awaitable[None]]) -> None:
        await lose(staging)
        with pytest.raises(StagingLost):
            await staging.add(message(3))
        with pytest.raises(StagingLost):
            await staging.add()

    async def test_becomes_no_session(
        self, staging: Staging, store: Store, lose: Callable[[Staging], Awaitable[None]]
    ) -> None:
        await lose(staging)
        assert await staging.adopt(KEY, message(3), lookups=[lookup("b")]) == Lost()
        assert await store.load(KEY) is None
        assert await listed(store) == []
        for id_ in ("a", "b"):
            assert await store.find(KEY, LookupKind.MESSAGE, [id_]) == []

    async def test_refuses_what_comes_behind_its_adoption(
        self, staging: Staging, store: Store, lose: Callable[[Staging], Awaitable[None]]
    ) -> None:
        await lose(staging)
        adoption = staging.adoption(KEY)
        assert await store.commit([adoption, change_of(KEY, born(adoption), message(3))]) == [Lost(), Conflict()]
        assert await store.load(KEY) is None

    async def test_leaves_its_name_to_others(
        self, staging: Staging, store: Store, lose: Callable[[Staging], Awaitable[None]]
    ) -> None:
        await lose(staging)
        assert await staging.adopt(KEY) == Lost()
        other = await begin(store)
        await other.add(message(1, id="other"))
        assert await other.adopt(KEY) == Committed()
        assert [stored.id for stored in await Session(store, KEY).stored()] == ["other"]

    async def test_can_be_ended_again(self, staging: Staging, lose: Callable[[Staging], Awaitable[None]]) -> None:
        await lose(staging)
        await end(staging)
        assert await staging.adopt(KEY) == Lost()


class TestRefused:
    """The staging stays as it is, and becomes a session of another name."""

    @pytest.fixture
    async def staging(self, store: Store) -> Staging:
        staging = await begin(store)
        await staging.add(message(1, id="staged"), lookups=[lookup("a")])
        return staging

    async def assert_whole(self, staging: Staging) -> None:
        await staging.add(message(2, id="staged later"))
        other = KEY._replace(session_id="other")
        assert await staging.adopt(other) == Committed()
        assert [stored.id for stored in await Session(staging.store, other).stored()] == ["staged", "staged later"]
        assert await staging.store.find(other, LookupKind.MESSAGE, ["a"]) == [lookup("a")]

    async def test_by_a_living_session(self, staging: Staging, store: Store) -> None:
        living = Session(store, KEY)
        record = await living.commit(message(1, id="living"))
        assert await staging.adopt(KEY) == Conflict()
        assert await store.load(KEY) == Loaded(record)
        assert [stored.id for stored in await living.stored()] == ["living"]
        assert await store.find(KEY, LookupKind.MESSAGE, ["a"]) == []
        await self.assert_whole(staging)

    async def test_by_a_dead_name(self, staging: Staging, store: Store) -> None:
        dead = Session(store, KEY)
        await dead.commit(message(1, id="dead"), lookups=[lookup("old")])
        await dead.die()
        assert await staging.adopt(KEY, lookups=[lookup("own")]) == Taken()
        assert await store.load(KEY) is None
        assert await store.find(KEY, LookupKind.MESSAGE, ["a", "old", "own"]) == [lookup("old")]
        await self.assert_whole(staging)

    async def test_by_a_dead_name_that_never_held_anything(self, staging: Staging, store: Store) -> None:
        dead = Session(store, KEY)
        await dead.commit()
        await dead.die()
        assert await staging.adopt(KEY) == Taken()
        await self.assert_whole(staging)

    async def test_by_a_dead_name_of_which_only_look_ups_are_left(self, staging: Staging, store: Store) -> None:
        dead = Session(store, KEY)
        await dead.commit(message(1), lookups=[lookup("old")])
        await dead.die()
        assert (await swept(store, 120)).messages == 1
        assert await staging.adopt(KEY) == Taken()
        await self.assert_whole(staging)

    async def test_by_an_id_that_is_known(self, staging: Staging, store: Store) -> None:
        """(invariant 2: a replay of the call that gave birth to the session hears its first answer)"""
        living = Session(store, KEY)
        await living.commit(message(1), lookups=[lookup("request", LookupKind.REQUEST)])
        known = Known([lookup("request", LookupKind.REQUEST)])
        assert await staging.adopt(KEY, lookups=[lookup("request", LookupKind.REQUEST, b"other")]) == known
        await living.die()
        assert await staging.adopt(KEY, lookups=[lookup("request", LookupKind.REQUEST, b"other")]) == known
        await self.assert_whole(staging)

    async def test_behind_the_death_of_the_session_in_the_same_call(self, staging: Staging, store: Store) -> None:
        record = await Session(store, KEY).commit(message(1))
        adoption = staging.adoption(KEY)
        changes = [death(KEY, record), adoption, change_of(KEY, born(adoption), message(2))]
        assert await store.commit(changes) == [Committed(), Taken(), Conflict()]
        assert await store.load(KEY) is None
        await self.assert_whole(staging)

    async def test_behind_a_refused_change_of_the_session(self, staging: Staging, store: Store) -> None:
        changes = [change_of(KEY, new_record(), message(1)), staging.adoption(KEY)]
        assert await store.commit(changes) == [Conflict(), Conflict()]
        assert await store.load(KEY) is None
        await self.assert_whole(staging)


class TestDue:
    async def test_is_put_off_by_every_addition(self, store: Store) -> None:
        now = await store.now()
        staging = Staging(store, await store.begin_staging("tenant", "", now - 1))
        await staging.add(message(1))
        assert await swept(store, 0) == Deleted()
        assert await staging.adopt(KEY) == Committed()
        assert await Session(store, KEY).stored() == [message(1)]

    async def test_is_when_a_sweep_takes_it(self, store: Store) -> None:
        now = await store.now()
        early = Staging(store, await store.begin_staging("tenant", "", now + 1))
        late = Staging(store, await store.begin_staging("tenant", "", now + 1))
        await early.add(message(1), lookups=[lookup("a")])
        await store.stage(late.name, [message(1)], [lookup("a")], now + 3 * HOUR * 1_000_000)
        deleted = await swept(store, 2 * HOUR)
        assert (deleted.messages, deleted.lookups) == (1, 1)
        assert await early.adopt(KEY) == Lost()
        assert await late.adopt(KEY) == Committed()


@on_shared_stores
class TestSeveralServers:
    async def test_collect_for_one_staging(self, open_store: OpenStore) -> None:
        first, second = await open_store(), await open_store()
        staging = await begin(first)
        await staging.add(message(1))
        elsewhere = Staging(second, staging.name)
        await elsewhere.add(message(2), lookups=[lookup("a")])
        assert await elsewhere.adopt(KEY, last_seq=2) == Committed()
        assert await Session(first, KEY).stored() == [message(1), message(2)]
        assert await staging.adopt(KEY._replace(session_id="other")) == Lost()

    async def test_adopt_one_staging_once(self, open_store: OpenStore) -> None:
        servers = [await open_store() for _ in range(4)]
        staging = await begin(servers[0])
        await staging.add(message(1))
        keys = [KEY._replace(session_id=f"{number}") for number in range(4)]
        outcomes = await asyncio.gather(
            *(Staging(server, staging.name).adopt(key, last_seq=1) for server, key in zip(servers, keys, strict=True))
        )
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Committed", "Lost", "Lost", "Lost"]
        winner = keys[outcomes.index(Committed())]
        for server in servers:
            assert await listed(server) == [winner.session_id]
            assert await Session(server, winner).stored() == [message(1)]

    async def test_adopt_for_one_name_once(self, open_store: OpenStore) -> None:
        servers = [await open_store() for _ in range(4)]
        stagings = [await begin(server) for server in servers]
        for number, staging in enumerate(stagings):
            await staging.add(message(1, id=f"by-{number}"))
        outcomes = await asyncio.gather(*(staging.adopt(KEY) for staging in stagings))
        assert outcomes.count(Committed()) == 1
        assert outcomes.count(Conflict()) == 3
        winner = outcomes.index(Committed())
        for server in servers:
            assert [stored.id for stored in await Session(server, KEY).stored()] == [f"by-{winner}"]
        for number, staging in enumerate(stagings):
            if number != winner:
                assert await staging.adopt(KEY._replace(session_id=f"{number}")) == Committed()

    async def test_adopt_or_give_birth_to_one_name(self, open_store: OpenStore) -> None:
        servers = [await open_store() for _ in range(2)]
        for number in range(10):
            key = KEY._replace(session_id=f"{number}")
            staging = await begin(servers[0])
            await staging.add(message(1, id="staged"))
            adopted, [given] = await asyncio.gather(
                staging.adopt(key), servers[1].commit([birth(key, message(1, id="born"))])
            )
            assert {adopted, given} == {Committed(), Conflict()}
            ids = [stored.id for stored in await Session(servers[1], key).stored()]
            assert ids == (["staged"] if adopted == Committed() else ["born"])

    async def test_what_is_erased_while_another_server_collects_is_gone_as_a_whole(self, open_store: OpenStore) -> None:
        """(invariant 11)"""
        ours, theirs = await open_store(), await open_store()
        for number in range(10):
            key = KEY._replace(session_id=f"{number}")
            staging = await begin(ours, user_id="user")
            await staging.add(message(1))

            async def collect(staging: Staging = staging, key: SessionKey = key) -> Outcome:
                try:
                    await staging.add(message(2), lookups=[lookup("a")])
                except StagingLost:
                    return Lost()
                return await staging.adopt(key)

            outcome, _ = await asyncio.gather(collect(), erased(theirs, "user"))
            assert outcome in (Committed(), Lost())
            if outcome == Committed():
                assert await Session(theirs, key).stored() == [message(1), message(2)]
            else:
                assert await theirs.load(key) is None
                assert await erased(theirs, "user") == Deleted()

    async def test_a_staging_outlives_the_server_that_began_it(self, open_store: OpenStore) -> None:
        first = await open_store()
        staging = await begin(first)
        await staging.add(message(1, created=TIME), lookups=[lookup("a")])
        await first.close()
        second = await open_store()
        assert await Staging(second, staging.name).adopt(KEY, last_seq=1) == Committed()
        assert await Session(second, KEY).stored() == [message(1, created=TIME)]
        assert await second.find(KEY, LookupKind.MESSAGE, ["a"]) == [lookup("a")]
