"""`load` with a tail: the newest usable messages in reading order, the opening, and when bodies come along."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.stores.base import Change, Committed, Loaded, Store, Tail
from memoryd_server.stores.records import Entry, Record, RemovedRange, Role, SessionKey, StoredMessage, Usability
from memoryd_server.stores.registry import create_store
from memoryd_server.stores.walk import bare
from tests.adapters import EACH_ADAPTER, Adapter
from tests.stores.builders import BOTH, TIME, USABLE, Session, call, message, new_record, orphan, result, seqs
from tests.stores.conftest import NewSession

PLENTY = 1 << 30


class TestOrder:
    async def test_newest_first(self, session: Session) -> None:
        await session.commit(*(message(seq) for seq in range(1, 6)))
        assert await session.tail() == [5, 4, 3, 2, 1]

    async def test_a_group_stands_at_the_place_of_its_head(self, session: Session) -> None:
        """(invariant 6)"""
        await session.commit(call(1, calls=2), message(2), result(3, 1, index=1), message(4), result(5, 1, index=0))
        assert await session.tail() == [4, 2, 3, 5, 1]

    async def test_a_group_that_is_completed_late_goes_to_its_place(self, session: Session) -> None:
        opened = Usability.OPEN
        await session.commit(message(1), call(2, usability=opened), message(3), message(4))
        assert await session.tail() == [4, 3, 1]
        await session.commit(result(5, 2), completed=[2])
        assert await session.tail() == [4, 3, 5, 2, 1]
        assert await session.tail(messages=3) == [4, 3, 5]

    async def test_a_message_that_answers_several_calls_stands_at_the_first(self, session: Session) -> None:
        await session.commit(call(1, calls=3), result(2, 1, index=2), result(3, 1, index=0, answers=(0, 1)))
        assert await session.tail() == [2, 3, 1]

    async def test_two_messages_at_one_place_stand_by_seq(self, session: Session) -> None:
        await session.commit(call(1), result(2, 1), result(3, 1))
        assert await session.tail() == [3, 2, 1]


class TestUsability:
    async def test_only_what_is_asked_for_is_walked(self, session: Session) -> None:
        opened = Usability.OPEN
        await session.commit(message(1), orphan(2), call(3, usability=opened), message(4), orphan(5))
        assert await session.tail(usabilities=USABLE) == [4, 1]
        assert await session.tail(usabilities=BOTH) == [4, 3, 1]
        assert await session.tail(usabilities=[Usability.OPEN]) == [3]

    async def test_usable_and_open_messages_come_in_one_order(self, session: Session) -> None:
        opened = Usability.OPEN
        await session.commit(
            call(1, calls=2, usability=opened),
            message(2),
            call(3, usability=opened),
            result(4, 1, index=1, usability=opened),
            message(5),
        )
        assert await session.tail(usabilities=BOTH) == [5, 3, 2, 4, 1]
        assert await session.tail(usabilities=BOTH, messages=3) == [5, 3, 2]

    async def test_bounds_count_only_what_is_walked(self, session: Session) -> None:
        await session.commit(message(1), message(2), *(orphan(seq) for seq in range(3, 40)), message(40))
        assert await session.tail(messages=2) == [40, 2]
        assert await session.tail(tokens=20) == [40, 2]


class TestBounds:
    @pytest.mark.parametrize(("bound", "expected"), [(1, 1), (2, 2), (9, 9), (10, 10), (11, 10)])
    async def test_messages(self, session: Session, bound: int, expected: int) -> None:
        await session.commit(*(message(seq) for seq in range(1, 11)))
        assert await session.tail(messages=bound) == [*range(10, 10 - expected, -1)]

    @pytest.mark.parametrize(("bound", "expected"), [(1, 1), (10, 1), (11, 2), (20, 2), (99, 10), (100, 10), (101, 10)])
    async def test_tokens_end_with_the_message_that_reaches_them(
        self, session: Session, bound: int, expected: int
    ) -> None:
        await session.commit(*(message(seq, tokens=10) for seq in range(1, 11)))
        assert await session.tail(tokens=bound) == [*range(10, 10 - expected, -1)]

    @pytest.mark.parametrize(("messages", "tokens", "expected"), [(2, 100, 2), (9, 15, 2), (3, 30, 3)])
    async def test_the_first_bound_that_is_reached_counts(
        self, session: Session, messages: int, tokens: int, expected: int
    ) -> None:
        await session.commit(*(message(seq, tokens=10) for seq in range(1, 11)))
        assert len(await session.tail(messages=messages, tokens=tokens)) == expected

    @pytest.mark.parametrize("bound", [{"messages": 1}, {"messages": 3}, {"tokens": 1}, {"tokens": 25}])
    async def test_the_newest_group_comes_whole(self, session: Session, bound: dict[str, int]) -> None:
        await session.commit(message(1), call(2, calls=3), *(result(3 + index, 2, index) for index in range(3)))
        assert await session.tail(**bound) == [5, 4, 3, 2]

    async def test_and_nothing_after_it_once_the_bound_is_reached(self, session: Session) -> None:
        await session.commit(message(1), call(2), result(3, 2))
        assert await session.tail(messages=2) == [3, 2]
        assert await session.tail(messages=3) == [3, 2, 1]

    async def test_an_older_group_is_cut_where_the_bound_is(self, session: Session) -> None:
        await session.commit(message(1), call(2, calls=2), result(3, 2, 0), result(4, 2, 1), message(5))
        assert await session.tail(messages=3) == [5, 4, 3]

    async def test_messages_without_tokens_do_not_end_the_walk(self, session: Session) -> None:
        await session.commit(message(1, tokens=5), *(message(seq, tokens=0) for seq in range(2, 9)))
        assert await session.tail(tokens=1) == [*range(8, 0, -1)]


class TestRemoved:
    async def test_nothing_below_first_seq_comes(self, session: Session) -> None:
        await session.commit(*(message(seq) for seq in range(1, 7)))
        await session.commit(first_seq=4)
        assert await session.tail() == [6, 5, 4]

    async def test_nothing_of_a_removed_range_comes(self, session: Session) -> None:
        await session.commit(*(message(seq) for seq in range(1, 10)))
        await session.remove(3, 4)
        await session.remove(7, 9)
        await session.commit(message(10))
        assert await session.tail() == [10, 6, 5, 2, 1]
        assert await session.tail(messages=3) == [10, 6, 5]

    async def test_ranges_may_touch_overlap_and_come_in_any_order(self, session: Session) -> None:
        await session.commit(*(message(seq) for seq in range(1, 13)))
        for removed in ((9, 10), (2, 4), (3, 5), (6, 6), (11, 11)):
            await session.remove(*removed)
        assert await session.tail() == [12, 8, 7, 1]

    async def test_a_cleared_history_is_empty_and_later_messages_come(self, session: Session) -> None:
        await session.commit(*(message(seq) for seq in range(1, 5)))
        await session.commit(first_seq=5, removed=(RemovedRange(1, 4, 1),))
        assert await session.tail() == []
        await session.commit(message(5))
        assert await session.tail() == [5]

    async def test_a_removed_result_of_a_group_does_not_come(self, session: Session) -> None:
        await session.commit(call(1, calls=2), result(2, 1, 0), result(3, 1, 1), message(4))
        await session.remove(3, 3)
        assert await session.tail() == [4, 2, 1]

    async def test_a_message_whose_head_is_removed_is_passed_over(self, session: Session) -> None:
        await session.commit(message(1), call(2), message(3), result(4, 2), message(5))
        await session.remove(2, 3)
        assert await session.tail() == [5, 1]
        await session.commit(first_seq=3)
        assert await session.tail() == [5]

    async def test_purging_changes_nothing_that_is_seen(self, session: Session, store: Store) -> None:
        await session.commit(*(message(seq) for seq in range(1, 10)))
        record = await session.remove(3, 6)
        before = await session.load(body_bytes=PLENTY, opening=True)
        while await store.purge(session.key, record.incarnation, 3, 6, 2):
            assert await session.load(body_bytes=PLENTY, opening=True) == before


class TestOpening:
    async def test_is_not_loaded_unless_asked_for(self, session: Session) -> None:
        await session.commit(message(1, role=Role.SYSTEM), message(2), opening_to=1)
        assert list((await session.load()).opening) == []

    async def test_ends_at_opening_to_in_order(self, session: Session) -> None:
        await session.commit(*(message(seq) for seq in range(1, 10)), opening_to=3)
        assert await session.opening() == [1, 2, 3]

    async def test_is_empty_where_the_history_opens_with_something_else(self, session: Session) -> None:
        await session.commit(message(1), opening_to=0)
        assert await session.opening() == []

    async def test_begins_at_first_seq(self, session: Session) -> None:
        await session.commit(*(message(seq) for seq in range(1, 10)), opening_to=2)
        await session.commit(first_seq=5, opening_to=6)
        assert await session.opening() == [5, 6]
        await session.commit(first_seq=7)
        assert await session.opening() == []

    async def test_holds_nothing_that_is_removed(self, session: Session) -> None:
        await session.commit(*(message(seq) for seq in range(1, 6)), opening_to=5)
        await session.remove(2, 3)
        assert await session.opening() == [1, 4, 5]

    @pytest.mark.parametrize(("bound", "expected"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (9, 5), (10, 5), (11, 5)])
    async def test_ends_with_the_message_that_brings_it_to_half_the_messages(
        self, session: Session, bound: int, expected: int
    ) -> None:
        await session.commit(*(message(seq) for seq in range(1, 8)), opening_to=5)
        assert await session.opening(messages=bound) == [*range(1, expected + 1)]

    @pytest.mark.parametrize(("bound", "expected"), [(1, 1), (20, 1), (21, 2), (40, 2), (41, 3), (100, 5), (999, 5)])
    async def test_or_to_half_the_tokens_or_beyond(self, session: Session, bound: int, expected: int) -> None:
        await session.commit(*(message(seq, tokens=10) for seq in range(1, 8)), opening_to=5)
        assert await session.opening(tokens=bound) == [*range(1, expected + 1)]

    async def test_is_bounded_for_itself_and_the_tail_may_hold_the_same(self, session: Session) -> None:
        await session.commit(*(message(seq) for seq in range(1, 5)), opening_to=2)
        loaded = await session.load(messages=4, opening=True)
        assert (seqs(loaded.tail), seqs(loaded.opening)) == ([4, 3, 2, 1], [1, 2])


class TestBodies:
    SIZES = (100, 300, 50, 200, 400)

    @pytest.fixture
    async def session(self, session: Session) -> Session:
        messages = [message(seq, size=size) for seq, size in enumerate(self.SIZES, 1)]
        await session.commit(*messages, opening_to=2)
        return session

    @pytest.mark.parametrize(
        ("bounds", "size"),
        [
            ({"messages": 1}, 400),
            ({"messages": 3}, 650),
            ({"messages": 99}, 1050),
            ({"tokens": 25}, 650),
            ({"messages": 1, "opening": True}, 500),
            ({"messages": 3, "opening": True}, 1050),
            ({"messages": 99, "opening": True}, 1050),
            ({"tokens": 25, "opening": True}, 1050),
            ({"usabilities": BOTH, "messages": 3}, 650),
        ],
    )
    async def test_come_along_exactly_when_their_sizes_together_fit(
        self, session: Session, bounds: dict[str, int], size: int
    ) -> None:
        stored = {message.seq: message for message in await session.stored()}
        fitting = await session.load(**bounds, body_bytes=size)
        oversized = await session.load(**bounds, body_bytes=size - 1)
        for bodies, bares in ((fitting.tail, oversized.tail), (fitting.opening, oversized.opening)):
            assert list(bodies) == [stored[entry.seq] for entry in bodies]
            assert list(bares) == [bare(stored[entry.seq]) for entry in bodies]

    async def test_do_not_come_without_being_asked_for(self, session: Session) -> None:
        loaded = await session.load(opening=True)
        assert {type(entry) for entry in (*loaded.tail, *loaded.opening)} == {Entry}

    async def test_of_a_newest_group_that_exceeds_the_bound_come_whole_or_not_at_all(
        self, new_session: NewSession
    ) -> None:
        session = new_session()
        await session.commit(call(1, calls=9, size=10), *(result(2 + index, 1, index, size=10) for index in range(9)))
        assert (await session.load(messages=1, body_bytes=100)).tail == (await session.stored())[::-1]
        bares = (await session.load(messages=1, body_bytes=99)).tail
        assert {type(entry) for entry in bares} == {Entry}
        assert len(bares) == 10

    async def test_of_an_empty_tail_are_none(self, session: Session) -> None:
        loaded = await session.load(usabilities=[Usability.ORPHAN], body_bytes=0)
        assert list(loaded.tail) == []


async def test_an_unknown_session_has_no_tail(store: Store) -> None:
    key = SessionKey("tenant", "agent", "unknown")
    assert await store.load(key, Tail(BOTH, 10, opening=True, body_bytes=PLENTY)) is None


# The contract's sentences once more, as plainly as can be, for histories that nobody would think of.


@dataclass(frozen=True)
class History:
    record: Record
    messages: tuple[StoredMessage, ...]


@st.composite
def histories(draw: st.DrawFn) -> History:
    length = draw(st.integers(1, 25))
    messages = [
        message(
            seq,
            head=draw(st.sampled_from([seq, seq, draw(st.integers(1, seq))])),
            position=draw(st.integers(0, 2)),
            usability=draw(st.sampled_from(Usability)),
            tokens=draw(st.integers(0, 4)),
            size=draw(st.integers(1, 4)),
        )
        for seq in range(1, length + 1)
    ]
    seq = st.integers(1, length + 1)
    removed = draw(st.lists(st.tuples(seq, seq).map(sorted), max_size=3))
    record = new_record(
        last_seq=length,
        largest=max(message.size for message in messages),
        bytes=sum(message.size for message in messages),
        first_seq=draw(st.sampled_from([1, draw(seq)])),
        opening_to=draw(st.integers(0, length)),
        removed=tuple(RemovedRange(low, high, TIME) for low, high in removed),
    )
    return History(record, tuple(messages))


tails = st.builds(
    Tail,
    usabilities=st.sets(st.sampled_from(Usability), min_size=1).map(tuple),
    messages=st.integers(1, 30),
    tokens=st.none() | st.integers(1, 50),
    opening=st.booleans(),
    body_bytes=st.integers(0, 60),
)


def expected(history: History, tail: Tail) -> Loaded:
    def is_visible(seq: int) -> bool:
        gone = any(removed.from_seq <= seq <= removed.to_seq for removed in history.record.removed)
        return seq >= history.record.first_seq and not gone

    def reaches(taken: list[StoredMessage], divisor: int) -> bool:
        tokens = sum(message.tokens for message in taken)
        return len(taken) * divisor >= tail.messages or (tail.tokens is not None and tokens * divisor >= tail.tokens)

    walk = sorted(
        (m for m in history.messages if m.usability in tail.usabilities and is_visible(m.seq) and is_visible(m.head)),
        key=lambda message: (message.head, message.position, message.seq),
        reverse=True,
    )
    newest: list[StoredMessage] = []
    while len(newest) < len(walk) and not (reaches(newest, 1) and walk[len(newest)].head != walk[0].head):
        newest.append(walk[len(newest)])

    run = [m for m in history.messages if is_visible(m.seq) and m.seq <= history.record.opening_to]
    opening: list[StoredMessage] = []
    while tail.opening and len(opening) < len(run) and not (opening and reaches(opening, 2)):
        opening.append(run[len(opening)])

    if sum({m.seq: m.size for m in (*newest, *opening)}.values()) > tail.body_bytes:
        return Loaded(history.record, list(map(bare, newest)), list(map(bare, opening)))
    return Loaded(history.record, newest, opening)


@pytest.mark.parametrize("adapter", EACH_ADAPTER)
def test_any_tail_of_any_history_is_what_the_contract_says(adapter: Adapter, tmp_path: Path) -> None:
    async def load(history: History, tail: Tail) -> Loaded:
        key = SessionKey("tenant", "agent", f"session-{next(numbers)}")
        assert await store.commit([Change(key, None, history.record, history.messages)]) == [Committed()]
        loaded = await store.load(key, tail)
        assert loaded is not None
        return Loaded(loaded.record, list(loaded.tail), list(loaded.opening))

    @given(histories(), tails)
    def check(history: History, tail: Tail) -> None:
        assert runner.run(load(history, tail)) == expected(history, tail)

    numbers = itertools.count()
    with adapter.emptied(tmp_path) as url, asyncio.Runner() as runner:
        store = create_store("test", adapter.type, url)
        runner.run(store.open())
        try:
            check()
        finally:
            runner.run(store.close())
