"""`commit`: each change whole or not at all, on the state that it rests on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from memoryd_server.stores.base import Change, Committed, Conflict, Known, Loaded, Store
from memoryd_server.stores.records import (
    LookupKind,
    Record,
    Redaction,
    RemovedRange,
    SessionKey,
    Usability,
    replace,
)
from memoryd_server.stores.walk import bare
from tests.adapters import EACH_SHARED_ADAPTER
from tests.stores.builders import (
    BOTH,
    TIME,
    Session,
    birth,
    born,
    call,
    change_of,
    lookup,
    message,
    new_incarnation,
    new_record,
    orphan,
    result,
    seqs,
    undoable,
)
from tests.stores.conftest import NewSession, OpenStore

on_shared_stores = pytest.mark.parametrize("adapter", EACH_SHARED_ADAPTER, indirect=True)

KEY = SessionKey("tenant", "agent", "session")


class TestBirth:
    async def test_what_was_never_born_is_not_there(self, store: Store) -> None:
        assert await store.load(KEY) is None

    async def test_makes_the_session_with_its_messages(self, store: Store) -> None:
        change = birth(KEY, message(1), message(2))
        assert await store.commit([change]) == [Committed()]
        assert await store.load(KEY) == Loaded(born(change))
        assert await Session(store, KEY).stored() == [message(1), message(2)]

    async def test_makes_a_session_without_messages(self, store: Store) -> None:
        change = birth(KEY)
        assert await store.commit([change]) == [Committed()]
        assert await store.load(KEY) == Loaded(born(change))

    async def test_is_refused_when_the_session_is_there(self, session: Session, store: Store) -> None:
        record = await session.commit(message(1))
        assert await store.commit([birth(session.key, message(1, content="other"))]) == [Conflict()]
        assert await store.load(session.key) == Loaded(record)
        assert await session.stored() == [message(1)]

    async def test_of_two_in_one_call_the_first_wins(self, store: Store) -> None:
        first, second = birth(KEY, message(1)), birth(KEY, message(1, content="other"))
        assert await store.commit([first, second]) == [Committed(), Conflict()]
        assert await store.load(KEY) == Loaded(born(first))

    @on_shared_stores
    async def test_of_many_at_once_by_several_servers_one_wins(self, open_store: OpenStore) -> None:
        servers = [await open_store() for _ in range(4)]
        changes = [birth(KEY, message(1, id=f"by-{number}")) for number in range(len(servers))]
        outcomes = await asyncio.gather(
            *(server.commit([change]) for server, change in zip(servers, changes, strict=True))
        )
        assert [outcome for [outcome] in outcomes].count(Committed()) == 1
        assert [outcome for [outcome] in outcomes].count(Conflict()) == 3
        winner = changes[outcomes.index([Committed()])]
        for server in servers:
            assert await server.load(KEY) == Loaded(born(winner))


class TestCompareAndSet:
    async def test_replaces_the_record(self, session: Session, store: Store) -> None:
        earlier = await session.commit(labels={"a": "b"})
        changed = await session.commit(labels={"c": "d"}, activity=TIME + 5)
        assert changed.version == earlier.version + 1
        assert await store.load(session.key) == Loaded(changed)

    @pytest.mark.parametrize(
        "wrong",
        [
            lambda record: replace(record, version=record.version - 1),
            lambda record: replace(record, version=record.version + 1),
            lambda record: replace(record, incarnation=new_incarnation()),
            lambda record: None,
        ],
        ids=["an older version", "a newer version", "another life", "no session"],
    )
    async def test_refuses_what_rests_on_another_state(
        self, session: Session, store: Store, wrong: Callable[[Record], Record | None]
    ) -> None:
        await session.commit(message(1))
        record = await session.commit(message(2))
        change = change_of(session.key, record, message(3), lookups=[lookup("new")])
        refused = Change(change.key, wrong(record), change.record, change.messages, lookups=change.lookups)
        [outcome] = await store.commit([refused])
        assert isinstance(outcome, Conflict)
        assert outcome.record in (None, record)
        assert await store.load(session.key) == Loaded(record)
        assert seqs(await session.stored()) == [1, 2]
        assert await store.find(session.key, LookupKind.MESSAGE, ["new"]) == []

    async def test_refuses_a_change_of_a_session_that_is_not_there(self, store: Store) -> None:
        orphaned = change_of(KEY, new_record(), message(1), lookups=[lookup("m")])
        assert await store.commit([orphaned]) == [Conflict()]
        assert await store.load(KEY) is None
        assert await store.find(KEY, LookupKind.MESSAGE, ["m"]) == []

    @on_shared_stores
    async def test_of_changes_on_one_state_by_several_servers_one_is_made(self, open_store: OpenStore) -> None:
        servers = [await open_store() for _ in range(4)]
        record = born(begun := birth(KEY))
        await servers[0].commit([begun])
        changes = [change_of(KEY, record, message(1, id=f"by-{number}")) for number in range(len(servers))]
        outcomes = await asyncio.gather(
            *(server.commit([change]) for server, change in zip(servers, changes, strict=True))
        )
        assert [outcome for [outcome] in outcomes].count(Committed()) == 1
        assert [outcome for [outcome] in outcomes].count(Conflict()) == 3
        winner = changes[outcomes.index([Committed()])]
        assert await Session(servers[-1], KEY).stored() == list(winner.messages)


class TestSeveralChanges:
    async def test_are_made_in_their_order_each_on_the_one_before(self, store: Store) -> None:
        first = birth(KEY, message(1))
        second = change_of(KEY, born(first), message(2), user_id="user")
        third = change_of(KEY, born(second), message(3))
        assert await store.commit([first, second, third]) == [Committed(), Committed(), Committed()]
        assert await store.load(KEY) == Loaded(born(third))
        assert seqs(await Session(store, KEY).stored()) == [1, 2, 3]

    async def test_a_change_on_a_refused_one_is_refused_too(self, session: Session, store: Store) -> None:
        record = await session.commit()
        refused = replace(record, version=7)
        stale = change_of(session.key, refused, message(1))
        on_it = change_of(session.key, born(stale), message(2))
        assert await store.commit([stale, on_it]) == [Conflict(), Conflict()]
        assert await session.stored() == []

    @pytest.mark.parametrize("theirs", [1, 2], ids=["one message of theirs", "two messages of theirs"])
    async def test_a_change_on_a_refused_one_is_refused_where_another_server_made_the_version_that_it_expects(
        self, session: Session, store: Store, theirs: int
    ) -> None:
        """It rests on a record that never was: making it would contradict what is stored (invariant 3)."""
        record = await session.commit()
        ours = change_of(session.key, record, message(1, id="ours"))
        on_it = change_of(session.key, born(ours), message(2, id="ours too"))
        made = await session.commit(*(message(seq, id=f"theirs {seq}") for seq in range(1, theirs + 1)))
        assert made.version == born(ours).version
        assert await store.commit([ours, on_it]) == [Conflict(), Conflict()]
        assert await store.load(session.key) == Loaded(made)
        assert [stored.id for stored in await session.stored()] == [f"theirs {seq}" for seq in range(1, theirs + 1)]

    async def test_of_many_sessions_are_answered_each_by_itself(self, new_session: NewSession, store: Store) -> None:
        sessions = [new_session() for _ in range(40)]
        records = [await session.commit(message(1), lookups=[lookup("first")]) for session in sessions]
        changes = []
        for number, (session, record) in enumerate(zip(sessions, records, strict=True)):
            stale = replace(record, version=9) if number % 3 == 1 else record
            replayed = [lookup("first")] if number % 3 == 2 else []
            changes.append(change_of(session.key, stale, message(2), lookups=[lookup("second"), *replayed]))
        expected = [Committed(), Conflict(), Known([lookup("first")])]
        assert await store.commit(changes) == [expected[number % 3] for number in range(40)]
        for number, session in enumerate(sessions):
            assert seqs(await session.stored()) == ([1, 2] if number % 3 == 0 else [1])
            found = await store.find(session.key, LookupKind.MESSAGE, ["second"])
            assert found == ([lookup("second")] if number % 3 == 0 else [])

    async def test_none_are_none(self, store: Store) -> None:
        assert await store.commit([]) == []


class TestKnown:
    """Ids that were seen before (invariant 2)."""

    async def test_tells_the_look_ups_as_first_stored(self, session: Session, store: Store) -> None:
        record = await session.commit(message(1), lookups=[lookup("a", digest=b"first")])
        again = change_of(session.key, record, message(2), lookups=[lookup("a", digest=b"second")])
        assert await store.commit([again]) == [Known([lookup("a", digest=b"first")])]
        assert await store.load(session.key) == Loaded(record)
        assert await session.stored() == [message(1)]
        assert await store.find(session.key, LookupKind.MESSAGE, ["a"]) == [lookup("a", digest=b"first")]

    async def test_tells_all_that_were_there_and_stores_none_that_was_not(self, session: Session, store: Store) -> None:
        ids = [f"m{number}" for number in range(300)]
        record = await session.commit(lookups=[*map(lookup, ids), lookup("r", LookupKind.REQUEST)])
        mixed = [lookup("new"), *map(lookup, reversed(ids)), lookup("r", LookupKind.REQUEST)]
        [outcome] = await store.commit([change_of(session.key, record, lookups=mixed)])
        assert isinstance(outcome, Known)
        known = sorted(outcome.lookups, key=lambda known: (known.kind, known.id))
        assert known == [*map(lookup, sorted(ids)), lookup("r", LookupKind.REQUEST)]
        assert await store.find(session.key, LookupKind.MESSAGE, ["new"]) == []

    async def test_is_told_rather_than_a_conflict(self, session: Session, store: Store) -> None:
        first = await session.commit(lookups=[lookup("a")])
        await session.commit()
        assert await store.commit([change_of(session.key, first, lookups=[lookup("a")])]) == [Known([lookup("a")])]
        assert await store.commit([birth(session.key, lookups=[lookup("a")])]) == [Known([lookup("a")])]

    async def test_is_seen_in_the_same_call(self, store: Store) -> None:
        first = birth(KEY, message(1), lookups=[lookup("a")])
        second = change_of(KEY, born(first), message(2), lookups=[lookup("a")])
        assert await store.commit([first, second]) == [Committed(), Known([lookup("a")])]
        assert seqs(await Session(store, KEY).stored()) == [1]

    async def test_a_message_id_is_not_a_request_id(self, session: Session, store: Store) -> None:
        record = await session.commit(lookups=[lookup("a", LookupKind.MESSAGE)])
        same_text = change_of(session.key, record, lookups=[lookup("a", LookupKind.REQUEST)])
        assert await store.commit([same_text]) == [Committed()]

    async def test_the_scope_is_the_session(self, new_session: NewSession) -> None:
        for session in (new_session("s"), new_session("s", agent="other"), new_session("s", tenant="other")):
            await session.commit(message(1), lookups=[lookup("a")])

    async def test_look_ups_outlive_what_is_removed_and_purged(self, session: Session, store: Store) -> None:
        await session.commit(message(1), lookups=[lookup("a")])
        record = await session.remove(1, 1)
        assert await store.purge(session.key, record.incarnation, 1, 1, 10) == 1
        again = change_of(session.key, record, message(2), lookups=[lookup("a")])
        assert await store.commit([again]) == [Known([lookup("a")])]

    async def test_refuses_what_comes_behind_in_the_same_call(self, session: Session, store: Store) -> None:
        record = await session.commit(lookups=[lookup("a")])
        replay = change_of(session.key, record, message(1), lookups=[lookup("a")])
        behind = change_of(session.key, born(replay), message(2), lookups=[lookup("b")])
        replay_behind = change_of(session.key, born(behind), message(3), lookups=[lookup("a")])
        outcomes = await store.commit([replay, behind, replay_behind])
        assert outcomes[:2] == [Known([lookup("a")]), Conflict()]
        assert isinstance(outcomes[2], Conflict | Known)
        assert await store.load(session.key) == Loaded(record)
        assert await store.find(session.key, LookupKind.MESSAGE, ["b"]) == []

    @on_shared_stores
    async def test_is_told_rather_than_a_conflict_of_what_another_server_made(self, open_store: OpenStore) -> None:
        """A replay that reaches another server than the first call hears the first answer, whatever came between."""
        ours, theirs = await open_store(), await open_store()
        first = birth(KEY, message(1), lookups=[lookup("a")])
        assert await ours.commit([first]) == [Committed()]
        later = change_of(KEY, born(first), message(2), lookups=[lookup("b")])
        assert await theirs.commit([later]) == [Committed()]
        assert await theirs.commit([birth(KEY, message(1), lookups=[lookup("a")])]) == [Known([lookup("a")])]
        assert await ours.commit([change_of(KEY, born(first), message(2), lookups=[lookup("b")])]) == [
            Known([lookup("b")])
        ]
        assert await ours.commit([change_of(KEY, born(first), message(2), lookups=[lookup("c")])]) == [Conflict()]

    @on_shared_stores
    async def test_of_one_call_that_reaches_many_servers_at_once_one_is_made(self, open_store: OpenStore) -> None:
        servers = [await open_store() for _ in range(4)]
        record = await Session(servers[0], KEY).commit()
        for number in range(5):
            change = change_of(KEY, record, message(number + 1), lookups=[lookup(f"{number}")])
            outcomes = [outcome for [outcome] in await asyncio.gather(*(each.commit([change]) for each in servers))]
            assert outcomes.count(Committed()) == 1
            # Who loses a race may not see yet what the winner made, but it does when it asks again.
            assert all(isinstance(outcome, Committed | Conflict | Known) for outcome in outcomes)
            for server in servers:
                assert await server.commit([change]) == [Known([lookup(f"{number}")])]
            record = born(change)
        assert seqs(await Session(servers[0], KEY, record).stored()) == [1, 2, 3, 4, 5]


class TestCompleted:
    async def test_messages_of_the_same_change_are_stored_as_they_are(self, session: Session) -> None:
        await session.commit(call(1, usability=Usability.OPEN))
        await session.commit(result(2, 1, usability=Usability.OPEN), completed=[1])
        assert await session.tail() == [1]
        assert await session.tail(usabilities=[Usability.OPEN]) == [2]

    async def test_the_open_messages_of_a_group_become_usable(self, session: Session) -> None:
        opened = Usability.OPEN
        await session.commit(message(1), call(2, calls=2, usability=opened), result(3, 2, 1, usability=opened))
        await session.commit(message(4))
        assert await session.tail() == [4, 1]
        await session.commit(result(5, 2, 0), completed=[2])
        assert await session.tail() == [4, 3, 5, 2, 1]
        assert {stored.usability for stored in await session.stored()} == {Usability.USABLE}

    async def test_only_of_that_group_and_session(self, new_session: NewSession) -> None:
        session, other = new_session(), new_session()
        for each in (session, other):
            await each.commit(call(1, usability=Usability.OPEN), call(2, usability=Usability.OPEN), orphan(3))
        await session.commit(result(4, 2), completed=[2])
        assert await session.tail() == [4, 2]
        assert await session.tail(usabilities=BOTH) == [4, 2, 1]
        assert await other.tail() == []

    async def test_several_groups_at_once(self, session: Session) -> None:
        await session.commit(*(call(seq, usability=Usability.OPEN) for seq in (1, 2, 3)))
        await session.commit(result(4, 1), result(5, 3), completed=[1, 3])
        assert await session.tail() == [5, 3, 4, 1]

    async def test_orphans_with_the_groups_head_stay_orphans(self, session: Session) -> None:
        await session.commit(call(1, usability=Usability.OPEN))
        await session.commit(result(2, 1), orphan(3, head=1, position=1), completed=[1])
        assert await session.tail() == [2, 1]

    async def test_a_refused_change_completes_nothing(self, session: Session, store: Store) -> None:
        record = await session.commit(call(1, usability=Usability.OPEN))
        stale = replace(record, version=9)
        assert await store.commit([change_of(session.key, stale, result(2, 1), completed=[1])]) == [Conflict()]
        assert await session.tail() == []


class TestReopened:
    """A rewind takes the answer to a call away: its group is open again (invariant 11)."""

    @pytest.fixture
    async def session(self, session: Session) -> Session:
        """A completed group of 2, 3 and 5 among others."""
        opened = Usability.OPEN
        await session.commit(message(1), call(2, calls=2, usability=opened), result(3, 2, 0, usability=opened))
        await session.commit(message(4))
        await session.commit(result(5, 2, 1), completed=[2])
        return session

    async def test_the_usable_messages_of_a_group_become_open(self, session: Session, store: Store) -> None:
        await session.commit(reopened=[2], removed=(RemovedRange(5, 5, TIME),))
        assert await session.tail() == [4, 1]
        assert await session.tail(usabilities=BOTH) == [4, 3, 2, 1]
        assert seqs(await store.list_unusable(session.key, [Usability.OPEN], 10)) == [3, 2]
        usabilities = {stored.seq: stored.usability for stored in await session.stored()}
        assert usabilities == {
            1: Usability.USABLE,
            2: Usability.OPEN,
            3: Usability.OPEN,
            4: Usability.USABLE,
        }

    async def test_and_can_be_completed_again(self, session: Session, store: Store) -> None:
        for seq in range(6, 12, 2):
            record = await session.commit(reopened=[2], removed=(RemovedRange(5, seq - 1, TIME),))
            await store.purge(session.key, record.incarnation, 5, seq - 1, 100)
            await session.commit(removed=())
            assert await session.tail() == [4, 1]
            await session.commit(result(seq, 2, 1), completed=[2])
            assert await session.tail() == [4, seq, 3, 2, 1]
            assert list(await store.list_unusable(session.key, [Usability.OPEN], 10)) == []

    async def test_only_of_that_group_and_session(self, new_session: NewSession) -> None:
        session, other = new_session(), new_session()
        for each in (session, other):
            await each.commit(call(1), call(2), result(3, 1), result(4, 2), message(5), orphan(6, head=2))
        await session.commit(reopened=[2])
        assert await session.tail() == [5, 3, 1]
        assert await session.tail(usabilities=[Usability.OPEN]) == [4, 2]
        assert await session.tail(usabilities=[Usability.ORPHAN]) == [6]
        assert await other.tail() == [5, 4, 2, 3, 1]

    async def test_several_groups_at_once_while_another_is_completed(self, session: Session) -> None:
        await session.commit(call(6), result(7, 6), call(8, usability=Usability.OPEN))
        await session.commit(result(9, 8), completed=[8], reopened=[2, 6])
        assert await session.tail() == [9, 8, 4, 1]
        assert await session.tail(usabilities=[Usability.OPEN]) == [7, 6, 5, 3, 2]

    async def test_a_refused_change_reopens_nothing(self, session: Session, store: Store) -> None:
        assert session.record is not None
        stale = change_of(session.key, replace(session.record, version=9), reopened=[2])
        assert await store.commit([stale]) == [Conflict()]
        assert await session.tail() == [4, 5, 3, 2, 1]


class TestReplaced:
    """A redaction takes content away and keeps the slot (invariant 11)."""

    @pytest.fixture
    async def session(self, session: Session) -> Session:
        """Three messages, the second in the midst of an open group, with a value of its own in every field."""
        full = result(
            2,
            1,
            0,
            usability=Usability.OPEN,
            prior_user=1,
            undo='{"undo":1}',
            id="id",
            name="name",
            content="secret",
            run_id="run",
            metadata="secret",
            extra="secret",
            created=TIME + 77,
            tokens=50,
            size=500,
        )
        await session.commit(call(1, calls=2, usability=Usability.OPEN), full, message(3))
        return session

    async def test_gets_another_body_in_its_place(self, session: Session, store: Store) -> None:
        [_, before, _] = await session.stored()
        redaction = Redaction(TIME + 99, "asked for by the user")
        body = {
            "name": None,
            "content": None,
            "metadata": "",
            "extra": "",
            "redaction": redaction,
            "tokens": 3,
            "size": 30,
        }
        # What is not of the body is as it was stored, whatever the change says.
        given = message(2, **body, id="other", run_id="other", created=1, usability=Usability.ORPHAN, undo="other")
        record = await session.commit(replaced=[given])
        after = msgspec.structs.replace(before, **body)
        assert (await session.stored())[1] == after
        assert await store.read(session.key, record.incarnation, [2]) == (record, [after])
        loaded = await session.load(usabilities=[Usability.OPEN], body_bytes=1 << 20)
        assert loaded.tail[0] == after
        assert list(await store.list_unusable(session.key, [Usability.OPEN], 1)) == [bare(after)]
        assert await store.list_entries(session.key, record.incarnation, 2, 2, 1) == (record, [undoable(after)])

    async def test_leaves_the_others_as_they_are(self, session: Session, new_session: NewSession) -> None:
        other = new_session("other")
        await other.commit(message(1), message(2), message(3))
        [first, _, third] = await session.stored()
        await session.commit(replaced=[message(2, content="new")])
        stored = await session.stored()
        assert [stored[0], stored[2]] == [first, third]
        assert await other.stored() == [message(1), message(2), message(3)]

    async def test_keeps_its_place_in_reading_order(self, session: Session) -> None:
        await session.commit(replaced=[message(2, content="new"), call(1, content="new")])
        assert await session.tail(usabilities=BOTH) == [3, 2, 1]
        await session.commit(result(4, 1, 1), completed=[1])
        assert await session.tail() == [3, 4, 2, 1]

    async def test_counts_by_its_new_tokens_and_size(self, session: Session) -> None:
        await session.commit(replaced=[message(3, tokens=1_000, size=5)])
        assert await session.tail(usabilities=BOTH, tokens=1_000) == [3]
        loaded = await session.load(usabilities=[Usability.USABLE], body_bytes=5)
        assert loaded.tail == [message(3, tokens=1_000, size=5)]
        await session.commit(replaced=[message(3, tokens=0, size=5)])
        assert await session.tail(usabilities=BOTH, tokens=1) == [3, 2]

    async def test_can_be_replaced_again_and_come_back(self, session: Session) -> None:
        for number in range(3):
            body = {"content": f"body {number}", "redaction": Redaction(number, f"{number}")}
            await session.commit(replaced=[message(3, **body)])
            assert (await session.stored())[2] == message(3, **body)
        await session.commit(replaced=[message(3)])
        assert (await session.stored())[2] == message(3)

    async def test_many_at_once_beside_new_ones(self, session: Session) -> None:
        await session.commit(*(message(seq) for seq in range(4, 304)))
        bodies = [message(seq, content=f"new {seq}") for seq in range(4, 304)]
        await session.commit(message(304), replaced=bodies)
        assert (await session.stored())[3:] == [*bodies, message(304)]

    async def test_a_refused_change_replaces_nothing(self, session: Session, store: Store) -> None:
        stored = await session.stored()
        assert session.record is not None
        stale = replace(session.record, version=9)
        assert await store.commit([change_of(session.key, stale, replaced=[message(3, content="new")])]) == [Conflict()]
        assert await session.stored() == stored

    async def test_is_not_what_an_earlier_life_held(self, session: Session) -> None:
        await session.be_reborn(message(1), message(2), message(3))
        await session.commit(replaced=[message(2, content="new")])
        assert await session.stored() == [message(1), message(2, content="new"), message(3)]


class TestDurability:
    @on_shared_stores
    async def test_a_commit_is_seen_by_every_later_read_of_any_server(self, open_store: OpenStore) -> None:
        first, second = await open_store(), await open_store()
        session = Session(first, KEY)
        for seq in range(1, 20):
            record = await session.commit(message(seq))
            loaded = await Session(second, KEY).load(messages=1, body_bytes=1000)
            assert (loaded.record, loaded.tail) == (record, [message(seq)])

    @on_shared_stores
    async def test_everything_is_there_after_a_restart(self, open_store: OpenStore) -> None:
        store = await open_store()
        session = Session(store, KEY)
        await session.commit(message(1), call(2, usability=Usability.OPEN), lookups=[lookup("a")])
        record = await session.commit(result(3, 2), completed=[2], user_id="user")
        stored = await session.stored()
        await store.close()
        reopened = Session(await open_store(), KEY)
        assert await reopened.store.load(KEY) == Loaded(record)
        assert await reopened.stored() == stored
        assert await reopened.tail() == [3, 2, 1]
        assert await reopened.store.find(KEY, LookupKind.MESSAGE, ["a"]) == [lookup("a")]

    async def test_50_messages_with_one_timestamp_come_back_as_sent(self, session: Session) -> None:
        """(invariant 1)"""
        sent = [message(seq, created=TIME) for seq in range(1, 51)]
        await session.commit(*sent)
        assert await session.stored() == sent
        assert (await session.load(body_bytes=1 << 20)).tail == sent[::-1]

    @on_shared_stores
    async def test_and_so_they_do_after_a_restart(self, open_store: OpenStore) -> None:
        """(invariant 1)"""
        sent = [message(seq, created=TIME) for seq in range(1, 51)]
        store = await open_store()
        await Session(store, KEY).commit(*sent)
        await store.close()
        assert await Session(await open_store(), KEY).stored() == sent
