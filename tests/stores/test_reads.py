"""`read`, `list_messages`, `list_entries`, `list_unusable` and `find`."""

from __future__ import annotations

from typing import Any

import pytest

from memoryd_server.stores.base import MessageQuery, Store
from memoryd_server.stores.records import Entry, LookupKind, Role, SessionKey, Usability
from memoryd_server.stores.walk import bare
from tests.stores.builders import Session, call, lookup, message, new_incarnation, orphan, result, seqs, undoable
from tests.stores.conftest import NewSession

UNKNOWN = SessionKey("tenant", "agent", "unknown")
SKIPPED = (Usability.OPEN, Usability.ORPHAN)


class TestRead:
    async def test_answers_in_the_order_asked_for_with_the_record(self, session: Session, store: Store) -> None:
        record = await session.commit(*(message(seq) for seq in range(1, 8)))
        asked = [5, 1, 7, 2]
        assert await store.read(session.key, record.incarnation, asked) == (record, [message(seq) for seq in asked])

    async def test_passes_over_what_is_not_there(self, session: Session, store: Store) -> None:
        record = await session.commit(message(1), message(3))
        read = await store.read(session.key, record.incarnation, [4, 3, 2, 1, 0, -1])
        assert read == (record, [message(3), message(1)])

    async def test_passes_over_what_is_removed(self, session: Session, store: Store) -> None:
        await session.commit(*(message(seq) for seq in range(1, 8)))
        await session.remove(4, 5)
        record = await session.commit(first_seq=3)
        read = await store.read(session.key, record.incarnation, range(1, 8))
        assert read == (record, [message(3), message(6), message(7)])

    async def test_answers_open_messages_and_orphans_too(self, session: Session, store: Store) -> None:
        messages = [call(1, usability=Usability.OPEN), orphan(2)]
        record = await session.commit(*messages)
        assert await store.read(session.key, record.incarnation, [1, 2]) == (record, messages)

    @pytest.mark.parametrize("count", [0, 1, 2, 5, 255, 256, 257, 1000])
    async def test_answers_any_number(self, session: Session, store: Store, count: int) -> None:
        record = await session.commit(*(message(seq) for seq in range(1, 1001)))
        asked = range(count, 0, -1)
        read = await store.read(session.key, record.incarnation, asked)
        assert read == (record, [message(seq) for seq in asked])

    async def test_knows_no_other_life_of_the_session(self, session: Session, store: Store) -> None:
        await session.commit(message(1))
        assert await store.read(session.key, new_incarnation(), [1]) is None

    async def test_knows_no_session_that_is_not_there(self, store: Store) -> None:
        assert await store.read(UNKNOWN, new_incarnation(), [1]) is None


class TestListMessages:
    @pytest.fixture
    async def session(self, session: Session) -> Session:
        """12 messages: roles in turn, three runs, sizes 1 to 12."""
        roles = [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL]
        await session.commit(
            *(
                message(seq, role=roles[seq % 4], run_id=f"run-{seq % 3}" if seq % 3 else "", size=seq, created=seq)
                for seq in range(1, 13)
            )
        )
        return session

    async def test_answers_whole_messages_with_the_record(self, session: Session, store: Store) -> None:
        page = await session.page()
        assert page.record == session.record
        assert page.messages[0] == message(1, role=Role.USER, run_id="run-1", size=1, created=1)
        assert (seqs(page.messages), page.more) == ([*range(1, 13)], False)

    async def test_goes_backwards(self, session: Session) -> None:
        assert seqs((await session.page(descending=True)).messages) == [*range(12, 0, -1)]

    @pytest.mark.parametrize("descending", [False, True])
    @pytest.mark.parametrize(
        ("conditions", "expected"),
        [
            ({"from_seq": 3, "to_seq": 5}, [3, 4, 5]),
            ({"from_seq": 12}, [12]),
            ({"from_seq": 13}, []),
            ({"from_seq": 6, "to_seq": 5}, []),
            ({"roles": frozenset([Role.USER])}, [1, 5, 9]),
            ({"roles": frozenset([Role.SYSTEM, Role.TOOL])}, [3, 4, 7, 8, 11, 12]),
            ({"roles": frozenset(Role)}, [*range(1, 13)]),
            ({"roles": frozenset([Role.DEVELOPER])}, []),
            ({"run_id": "run-1"}, [1, 4, 7, 10]),
            ({"run_id": "RUN-1"}, []),
            ({"run_id": "run-%"}, []),
            ({"from_time": 5}, [*range(5, 13)]),
            ({"to_time": 5}, [1, 2, 3, 4]),
            ({"from_time": 5, "to_time": 6}, [5]),
            ({"from_time": 6, "to_time": 5}, []),
            ({"from_seq": 2, "to_seq": 9, "roles": frozenset([Role.USER]), "run_id": "run-2", "from_time": 2}, [5]),
        ],
    )
    async def test_all_conditions_hold_together(
        self, session: Session, conditions: dict[str, Any], expected: list[int], descending: bool
    ) -> None:
        page = await session.page(**conditions, descending=descending)
        assert seqs(page.messages) == (expected[::-1] if descending else expected)
        assert not page.more

    @pytest.mark.parametrize(("limit", "more"), [(1, True), (11, True), (12, False), (13, False)])
    async def test_limit(self, session: Session, limit: int, more: bool) -> None:
        page = await session.page(limit=limit)
        assert (seqs(page.messages), page.more) == ([*range(1, min(limit, 12) + 1)], more)

    @pytest.mark.parametrize(
        ("size", "expected", "more"),
        [(1, [1], True), (3, [1, 2], True), (5, [1, 2], True), (6, [1, 2, 3], True), (78, [*range(1, 13)], False)],
    )
    async def test_bytes(self, session: Session, size: int, expected: list[int], more: bool) -> None:
        page = await session.page(bytes=size)
        assert (seqs(page.messages), page.more) == (expected, more)

    async def test_one_message_comes_however_large(self, session: Session) -> None:
        page = await session.page(bytes=1, from_seq=12)
        assert (seqs(page.messages), page.more) == ([12], False)

    async def test_limit_and_bytes_count_only_what_matches(self, session: Session) -> None:
        page = await session.page(roles=frozenset([Role.USER]), limit=2)
        assert (seqs(page.messages), page.more) == ([1, 5], True)
        page = await session.page(roles=frozenset([Role.USER]), bytes=6)
        assert (seqs(page.messages), page.more) == ([1, 5], True)

    @pytest.mark.parametrize("descending", [False, True])
    async def test_pages_join_up(self, session: Session, descending: bool) -> None:
        listed: list[int] = []
        bounds: dict[str, int] = {}
        while True:
            page = await session.page(**bounds, limit=3, bytes=20, descending=descending)
            listed += seqs(page.messages)
            if not page.more:
                break
            bounds = {"to_seq": listed[-1] - 1} if descending else {"from_seq": listed[-1] + 1}
        assert listed == ([*range(12, 0, -1)] if descending else [*range(1, 13)])

    @pytest.mark.parametrize("descending", [False, True])
    async def test_nothing_that_is_removed_comes(self, session: Session, descending: bool) -> None:
        await session.remove(5, 7)
        await session.remove(11, 12)
        await session.commit(first_seq=3)
        expected = [3, 4, 8, 9, 10]
        page = await session.page(descending=descending)
        assert seqs(page.messages) == (expected[::-1] if descending else expected)
        assert seqs((await session.page(from_seq=6, to_seq=9, descending=descending)).messages) in ([8, 9], [9, 8])

    async def test_open_messages_and_orphans_come_by_seq_too(self, new_session: NewSession) -> None:
        session = new_session()
        await session.commit(call(1, usability=Usability.OPEN), orphan(2), message(3))
        await session.commit(result(4, 1), completed=[1])
        assert seqs(await session.stored()) == [1, 2, 3, 4]

    async def test_knows_no_session_that_is_not_there(self, store: Store) -> None:
        assert await store.list_messages(UNKNOWN, MessageQuery(1, 10, False, 10, 1000)) is None


class TestListEntries:
    @pytest.fixture
    async def session(self, session: Session) -> Session:
        """10 messages: a group of 2 and 6, an open call, an orphan."""
        await session.commit(
            message(1, undo="of 1"),
            call(2, undo='{"of":2}'),
            call(3, usability=Usability.OPEN),
            orphan(4, undo="of 4"),
            message(5),
            result(6, 2, undo="of 6"),
            *(message(seq) for seq in range(7, 11)),
        )
        return session

    async def entries(self, session: Session, from_seq: int, to_seq: int, limit: int = 1000) -> list[Entry]:
        assert session.record is not None
        found = await session.store.list_entries(session.key, session.record.incarnation, from_seq, to_seq, limit)
        assert found is not None
        assert found[0] == session.record
        return list(found[1])

    async def test_answers_bare_entries_newest_first_by_seq(self, session: Session) -> None:
        """Not in reading order: a rewind takes away what came last."""
        entries = await self.entries(session, 1, 10)
        assert entries == [undoable(stored) for stored in reversed(await session.stored())]
        assert {type(entry) for entry in entries} == {Entry}
        assert [entry.undo for entry in entries if entry.undo] == ["of 6", "of 4", '{"of":2}', "of 1"]

    @pytest.mark.parametrize(
        ("from_seq", "to_seq", "expected"),
        [
            (3, 5, [5, 4, 3]),
            (10, 10, [10]),
            (9, 1 << 40, [10, 9]),
            (-5, 2, [2, 1]),
            (11, 20, []),
            (6, 5, []),
        ],
    )
    async def test_both_ends_are_included(
        self, session: Session, from_seq: int, to_seq: int, expected: list[int]
    ) -> None:
        assert seqs(await self.entries(session, from_seq, to_seq)) == expected

    @pytest.mark.parametrize("limit", [1, 2, 9, 10, 11])
    async def test_the_newest_up_to_the_limit(self, session: Session, limit: int) -> None:
        assert seqs(await self.entries(session, 1, 10, limit)) == [*range(10, 0, -1)][:limit]

    async def test_pages_join_up(self, session: Session) -> None:
        listed: list[int] = []
        while page := await self.entries(session, 1, listed[-1] - 1 if listed else 10, 3):
            listed += seqs(page)
        assert listed == [*range(10, 0, -1)]

    async def test_nothing_that_is_removed_comes(self, session: Session) -> None:
        await session.remove(4, 5)
        await session.remove(9, 10)
        await session.commit(first_seq=2)
        assert seqs(await self.entries(session, 1, 10)) == [8, 7, 6, 3, 2]
        assert seqs(await self.entries(session, 1, 10, 4)) == [8, 7, 6, 3]
        assert seqs(await self.entries(session, 4, 5)) == []

    async def test_shows_usabilities_as_they_are(self, session: Session) -> None:
        await session.commit(result(11, 3), completed=[3])
        entries = await self.entries(session, 3, 11)
        assert [entry.seq for entry in entries if entry.usability != Usability.USABLE] == [4]

    async def test_knows_no_other_life_of_the_session(self, session: Session, store: Store) -> None:
        assert await store.list_entries(session.key, new_incarnation(), 1, 10, 10) is None

    async def test_knows_no_session_that_is_not_there(self, store: Store) -> None:
        assert await store.list_entries(UNKNOWN, new_incarnation(), 1, 10, 10) is None


class TestListUnusable:
    async def test_newest_first_bare(self, session: Session, store: Store) -> None:
        messages = [message(1), orphan(2), call(3, usability=Usability.OPEN), message(4), orphan(5)]
        await session.commit(*messages)
        expected = [bare(messages[seq - 1]) for seq in (5, 3, 2)]
        assert list(await store.list_unusable(session.key, SKIPPED, 10)) == expected
        assert list(await store.list_unusable(session.key, SKIPPED, 2)) == expected[:2]

    async def test_only_what_is_asked_for(self, session: Session, store: Store) -> None:
        await session.commit(orphan(1), call(2, usability=Usability.OPEN), orphan(3))
        assert seqs(await store.list_unusable(session.key, [Usability.OPEN], 10)) == [2]
        assert seqs(await store.list_unusable(session.key, [Usability.ORPHAN], 10)) == [3, 1]

    async def test_groups_stand_together_by_their_heads(self, session: Session, store: Store) -> None:
        opened = Usability.OPEN
        await session.commit(
            call(1, calls=2, usability=opened), orphan(2), result(3, 1, index=1, usability=opened), orphan(4)
        )
        assert seqs(await store.list_unusable(session.key, SKIPPED, 10)) == [4, 2, 3, 1]

    async def test_nothing_that_is_removed_or_completed(self, session: Session, store: Store) -> None:
        await session.commit(*(orphan(seq) for seq in range(1, 6)), call(6, usability=Usability.OPEN))
        await session.remove(4, 4)
        await session.commit(result(7, 6), first_seq=2, completed=[6])
        assert seqs(await store.list_unusable(session.key, SKIPPED, 10)) == [5, 3, 2]

    async def test_of_an_unknown_session_is_empty(self, store: Store) -> None:
        assert list(await store.list_unusable(UNKNOWN, SKIPPED, 10)) == []


class TestFind:
    async def test_answers_those_that_are_there(self, session: Session, store: Store) -> None:
        ids = [f"m{number}" for number in range(600)]
        await session.commit(lookups=[*map(lookup, ids), lookup("m1", LookupKind.REQUEST, digest=b"\x00\xff")])
        found = await store.find(session.key, LookupKind.MESSAGE, [*ids, "m600", "M1", "m1 "])
        assert sorted(found, key=lambda found: found.id) == [lookup(id_) for id_ in sorted(ids)]
        assert await store.find(session.key, LookupKind.REQUEST, ["m1"]) == [
            lookup("m1", LookupKind.REQUEST, digest=b"\x00\xff")
        ]

    async def test_answers_each_once(self, session: Session, store: Store) -> None:
        await session.commit(lookups=[lookup("a")])
        assert await store.find(session.key, LookupKind.MESSAGE, ["a", "b", "a"]) == [lookup("a")]

    async def test_nothing_for_nothing(self, session: Session, store: Store) -> None:
        await session.commit(lookups=[lookup("a")])
        assert list(await store.find(session.key, LookupKind.MESSAGE, [])) == []
        assert list(await store.find(UNKNOWN, LookupKind.MESSAGE, ["a"])) == []
