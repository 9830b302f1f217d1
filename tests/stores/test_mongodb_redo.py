"""What a commit on MongoDB leaves to be written out: a server that ends at any step of that, and one that comes late
(design section 5; invariants 2, 3 and 11)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import pytest

from memoryd_server import limits
from memoryd_server.stores.base import (
    Change,
    Committed,
    Deleted,
    Known,
    MessageQuery,
    Store,
    StoreUnavailable,
    Tail,
)
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.mongodb import redo
from memoryd_server.stores.mongodb.clock import Clock
from memoryd_server.stores.mongodb.layout import EVENTS, HISTORY, LEFTOVERS, SESSIONS, SUMMARIES
from memoryd_server.stores.mongodb.leftovers import ADOPTION_SECONDS
from memoryd_server.stores.mongodb.redo import HELP_SECONDS
from memoryd_server.stores.mongodb.sessions import Session as StoredSession
from memoryd_server.stores.mongodb.store import MongoDBStore
from memoryd_server.stores.records import AgentRecord, LookupKind, RemovedRange, SessionKey, Usability
from tests.stores.builders import (
    EVERY,
    TIME,
    USABLE,
    Session,
    birth,
    born,
    call,
    change_of,
    death,
    erased,
    event,
    grown,
    link,
    listed,
    lookup,
    message,
    new_record,
    orphan,
    rebirth,
    result,
    summaries,
    summary,
    swept,
)
from tests.stores.mongodb_places import EACH_PLACE, Place, documents
from tests.stores.mongodb_servers import Doomed, server

KEY: Final = SessionKey("tenant", "agent", "session")
USER: Final = "user"
IDS: Final = ("a", "b", "c", "d", "later")
NUMBERS: Final = range(1, 10)
"""Of summaries."""
MOST_STEPS: Final = 12
"""More commands than any of these changes takes."""


@pytest.fixture(params=EACH_PLACE)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    place: Place = request.param
    with place.new_database() as url:
        yield url


def later(clock: Clock, seconds: int) -> Callable[[], Awaitable[int]]:
    """The clock's `now`, so many seconds on."""
    now = clock.now

    async def now_later() -> int:
        return await now() + seconds * 1_000_000

    return now_later


async def state(store: Store) -> dict[str, Any]:
    """All that callers can learn of the session."""
    loaded = await store.load(KEY)
    found = {"ids": sorted(each.id for each in await store.find(KEY, LookupKind.MESSAGE, IDS))}
    if loaded is None:
        return found
    session = Session(store, KEY, loaded.record)
    page = await store.list_events(KEY, loaded.record.incarnation, 0, 100)
    assert page is not None
    groups = await store.list_in_reading_order(KEY, loaded.record.incarnation, 1, 100, 100)
    assert groups is not None
    known = await store.read_summaries(KEY, loaded.record.incarnation, NUMBERS)
    assert known is not None
    return found | {
        "record": loaded.record,
        "stored": list(await session.stored()),
        "usable": list((await session.load(body_bytes=1 << 20)).tail),
        "usable by tokens": list((await session.load(body_bytes=1 << 20, tokens=25)).tail),
        "every": list((await session.load(usabilities=EVERY)).tail),
        "open": list(await store.list_unusable(KEY, [Usability.OPEN], 100)),
        "groups": list(groups[1]),
        "events": list(page.events),
        "summary": (await session.load(summary=True)).summary,
        "summaries": list(known[1]),
        "lookups": sorted(each.id for each in (await store.list_lookups(KEY, 100)).lookups),
    }


async def first_read(store: Store) -> dict[str, Any]:
    """What one load tells, before anything else has helped."""
    loaded = await Session(store, KEY).load(body_bytes=1 << 20, summary=True)
    return {"record": loaded.record, "usable": list(loaded.tail), "summary": loaded.summary}


BEGINNING: Final = birth(
    KEY,
    *(message(1), call(2, usability=Usability.OPEN), call(3), result(4, 3), message(5)),
    lookups=[lookup("a")],
    user_id=USER,
    **summaries(1, 2),
)
CHANGE: Final = change_of(
    KEY,
    born(BEGINNING),
    *(message(6), result(7, 2), orphan(8)),
    replaced=[message(1, content="new", metadata="new")],
    completed=[2],
    reopened=[3],
    removed=(RemovedRange(4, 5, TIME),),
    events=[event(2)],
    lookups=[lookup("b"), lookup("c")],
    new_summaries=[summary(3)],
    dropped_summaries=[1],
    summaries=(link(2), link(3)),
)
APPEND: Final = change_of(
    KEY,
    born(BEGINNING),
    *(message(6), message(7)),
    lookups=[lookup("b"), lookup("c")],
    new_summaries=[summary(3)],
    summaries=(link(1), link(2), link(3)),
)


def later_than(change: Change) -> Change:
    """What the next writer makes."""
    return change_of(KEY, born(change), message(9), completed=[3], lookups=[lookup("later")])


async def expected(*changes: Change) -> dict[str, Any]:
    """What the reference tells once the changes are made."""
    store = InMemoryStore()
    await store.open()
    for change in changes:
        assert await store.commit([change]) == [Committed()]
    return await state(store)


@pytest.mark.parametrize("change", [CHANGE, APPEND], ids=["of all kinds", "of what is new"])
class TestServerEnds:
    """At each step of a commit: it is made whole or not at all, for whoever comes next."""

    @pytest.mark.parametrize("commands", range(6))
    async def test_between_its_commands(self, url: str, change: Change, commands: int) -> None:
        await self.end_and_check(url, change, commands, None)

    @pytest.mark.parametrize("parts", range(14))
    async def test_within_what_it_writes_out(self, url: str, change: Change, parts: int) -> None:
        await self.end_and_check(url, change, MOST_STEPS, parts)

    async def end_and_check(self, url: str, change: Change, commands: int, parts: int | None) -> None:
        async with server(url) as store:
            assert await store.commit([BEGINNING]) == [Committed()]
            doomed = Doomed(store, commands, parts)
            await doomed.do(store.commit([change]))
        [document] = documents(url, SESSIONS)
        is_made = document["version"] == 2
        assert is_made or (commands < 2 and parts is None)
        whole = await expected(BEGINNING, change) if is_made else await expected(BEGINNING)
        later = later_than(change) if is_made else change
        after = await expected(BEGINNING, *([change] if is_made else []), later)
        # The next reader: by a load, and by what else there is.
        async with server(url) as store:
            assert await first_read(store) == {name: whole[name] for name in ("record", "usable", "summary")}
        async with server(url) as store:
            assert [each.id for each in await store.find(KEY, LookupKind.MESSAGE, IDS)] != []
            replay = replace(later, lookups=[*later.lookups, lookup("a")])
            assert await store.commit([replay]) == [Known([lookup("a")])]
            assert await state(store) == whole
        # The next writer, and who reads what it leaves.
        async with server(url) as store:
            assert await store.commit([later]) == [Committed()]
        async with server(url) as store:
            assert await state(store) == after

    async def test_and_the_next_writer_comes_first(self, url: str, change: Change) -> None:
        for parts in range(6):
            async with server(url) as store:
                await store.commit([BEGINNING])
                await Doomed(store, MOST_STEPS, parts).do(store.commit([change]))
            later = later_than(change)
            async with server(url) as store:
                assert await store.commit([later]) == [Committed()]
            async with server(url) as store:
                assert await state(store) == await expected(BEGINNING, change, later)
                assert await store.commit([death(KEY, born(later))]) == [Committed()]
                await erased(store, USER)

    async def test_and_the_next_call_is_a_replay(self, url: str, change: Change) -> None:
        """(invariant 2)"""
        async with server(url) as store:
            await store.commit([BEGINNING])
            await Doomed(store, MOST_STEPS, 0).do(store.commit([change]))
        async with server(url) as store:
            [outcome] = await store.commit([change])
            assert isinstance(outcome, Known)
            assert sorted(each.id for each in outcome.lookups) == ["b", "c"]

    async def test_and_helpers_write_the_same_at_once(self, url: str, change: Change) -> None:
        async with server(url) as store:
            await store.commit([BEGINNING])
            await Doomed(store, MOST_STEPS, 1).do(store.commit([change]))
        async with server(url) as first, server(url) as second:
            sessions = [await store._sessions.read(KEY) for store in (first, second)]
            for store, found in zip((first, second, first, second), (*sessions, *sessions), strict=True):
                assert found is not None
                await store._sessions.write_out(KEY, found.place, found.pending)
            assert await state(first) == await state(second) == await expected(BEGINNING, change)


class TestServerEndsInALife:
    """Births, rebirths, deaths and adoptions: lists and erasures miss nothing, whichever step was the last."""

    @pytest.mark.parametrize("commands", range(6))
    async def test_as_it_begins(self, url: str, commands: int) -> None:
        async with server(url) as store:
            await Doomed(store, commands).do(store.commit([BEGINNING]))
        async with server(url) as store:
            is_born = await store.load(KEY) is not None
            assert is_born == bool(documents(url, SESSIONS))
            assert await listed(store) == await listed(store, user_id=USER) == (["session"] if is_born else [])
            assert list(await store.list_agents("tenant", "", 9)) == (
                [AgentRecord("tenant", "agent")] if is_born else []
            )
            if is_born:
                assert await state(store) == await expected(BEGINNING)
            else:
                assert await store.commit([BEGINNING]) == [Committed()]

    @pytest.mark.parametrize("commands", range(13))
    @pytest.mark.parametrize("way", ["death", "rebirth"])
    async def test_as_it_ends(self, url: str, commands: int, way: str) -> None:
        change = (
            death(KEY, born(BEGINNING))
            if way == "death"
            else rebirth(KEY, born(BEGINNING), message(1, id="new"), user_id="another", lookups=[lookup("b")])
        )
        async with server(url) as store:
            await store.commit([BEGINNING])
            await Doomed(store, commands).do(store.commit([change]))
        [document] = documents(url, SESSIONS)
        has_ended = document["life"] > 1 or document["incarnation"] is None
        async with server(url) as store:
            if not has_ended:
                assert await state(store) == await expected(BEGINNING)
                assert (await erased(store, USER)).total == 0
                assert await store.commit([change]) == [Committed()]
            assert await state(store) == await expected(BEGINNING, change)
            deleted = await erased(store, USER)
            assert deleted == Deleted(messages=5, lookups=1, summaries=2, sessions=int(way == "death"))
        assert documents(url, HISTORY, life=1) == documents(url, SUMMARIES, life=1) == []
        assert not any(USER in each.values() for each in (*documents(url, SESSIONS), *documents(url, LEFTOVERS)))

    @pytest.mark.parametrize("commands", range(10))
    async def test_as_it_is_adopted(self, url: str, commands: int, monkeypatch: pytest.MonkeyPatch) -> None:
        staged = [message(1), message(2)]
        async with server(url) as store:
            due = await store.now() + 3_600_000_000
            staging = await store.begin_staging("tenant", USER, due)
            await store.stage(staging, staged, [lookup("a")], due)
            adoption = birth(
                KEY, message(3), staging=staging, lookups=[lookup("b")], **grown(new_record(), [*staged, message(3)])
            )
            await Doomed(store, commands).do(store.commit([adoption]))
        async with server(url) as store:
            is_born = await store.load(KEY) is not None
            monkeypatch.setattr(store._clock, "now", later(store._clock, ADOPTION_SECONDS))
            await swept(store, 2 * 3600)
            assert (await store.load(KEY) is not None) == is_born
            if is_born:
                assert [each.seq for each in await Session(store, KEY).stored()] == [1, 2, 3]
                assert (await state(store))["ids"] == ["a", "b"]
            else:
                assert documents(url, HISTORY) == []
            assert documents(url, LEFTOVERS) == []

    async def test_nobody_takes_away_what_is_being_adopted(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its time is counted by the store's clock: a sweep for a later time leaves it, as an erasure does."""
        async with server(url) as store, server(url) as other:
            due = await store.now() + 3_600_000_000
            staging = await store.begin_staging("tenant", USER, due)
            await store.stage(staging, [message(1)], [], due)
            claim = store._leftovers.claim

            async def claim_as_others_sweep(staging: str, key: SessionKey) -> bool:
                is_claimed = await claim(staging, key)
                assert await swept(other, 2 * 3600) == await erased(other, USER) == Deleted()
                return is_claimed

            monkeypatch.setattr(store._leftovers, "claim", claim_as_others_sweep)
            adoption = birth(KEY, staging=staging, **grown(new_record(), [message(1)]))
            assert await store.commit([adoption]) == [Committed()]
            assert [each.seq for each in await Session(store, KEY).stored()] == [1]

    async def test_as_a_staging_is_erased_in_steps(self, url: str) -> None:
        """A step's server may end: the next one finds what is left, and sweeps need not help."""
        async with server(url) as store:
            due = await store.now() + 3_600_000_000
            staging = await store.begin_staging("tenant", USER, due)
            await store.stage(staging, [message(seq) for seq in range(1, 11)], [lookup("a")], due)
            assert (await store.erase("tenant", USER, 3)).messages == 3
            assert await store.sweep(await store.now() + limits.PURGE_DELAY_SECONDS * 1_000_000, 100) == Deleted()
            assert await erased(store, USER, limit=3) == Deleted(messages=7, lookups=1)
        assert documents(url, HISTORY) == []

    async def test_as_others_erase_the_same(self, url: str) -> None:
        """Who finds documents that another server deletes first knows nothing of those behind them."""
        async with server(url) as store, server(url) as other:
            life = birth(KEY, lookups=[lookup(f"{number}") for number in range(30)], user_id=USER)
            await store.commit([life, death(KEY, born(life))])
            find = store._database.find

            async def find_late(collection: str, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
                found = await find(collection, *args, **kwargs)
                if collection == HISTORY and found:
                    store._database.find = find  # type: ignore[method-assign]
                    await other.erase("tenant", USER, 20)
                return found

            store._database.find = find_late  # type: ignore[method-assign]
            await store.erase("tenant", USER, 20)
            await erased(store, USER)
        assert documents(url, HISTORY) == documents(url, SESSIONS) == []

    @pytest.mark.parametrize("commands", range(3))
    async def test_as_a_staging_is_added_to(self, url: str, commands: int) -> None:
        """What was added in part does not become a session's."""
        async with server(url) as store:
            due = await store.now() + 3_600_000_000
            staging = await store.begin_staging("tenant", USER, due)
            await Doomed(store, commands, 1 if commands == 2 else None).do(
                store.stage(staging, [message(1), message(2)], [], due)
            )
        async with server(url) as store:
            [outcome] = await store.commit([birth(KEY, staging=staging)])
            stored = await Session(store, KEY).stored() if outcome == Committed() else None
            assert stored in (None, [])
            assert (stored is None) == (commands > 0)


async def pending(store: MongoDBStore) -> StoredSession:
    """The session as a helper reads it that has not begun to help."""
    found = await store._sessions.read(KEY)
    assert found is not None
    assert found.pending
    return found


class TestLateHelper:
    """It writes out what it read long ago. Nothing that came later changes by that."""

    @asynccontextmanager
    async def reading(self, url: str, *made: Change) -> AsyncIterator[tuple[MongoDBStore, MongoDBStore, StoredSession]]:
        """A helper that has read the last of the changes, which was not written out; and another server."""
        async with server(url) as store:
            for change in made[:-1]:
                assert await store.commit([change]) == [Committed()]
            await Doomed(store, MOST_STEPS, 0).do(store.commit(made[-1:]))
        async with server(url) as helper, server(url) as other:
            yield helper, other, await pending(helper)

    async def check(self, url: str, made: Sequence[Change], later: Sequence[Change]) -> None:
        async with self.reading(url, *made) as (helper, other, read):
            for change in later:
                assert await other.commit([change]) == [Committed()]
            await helper._sessions.settle(read)
            whole = await expected(*made, *later)
            assert await state(other) == whole
            assert await state(helper) == whole

    async def test_brings_no_redacted_body_back(self, url: str) -> None:
        """(invariant 11)"""
        redacted = change_of(KEY, born(APPEND), replaced=[message(6, content="gone"), message(7, content="gone")])
        await self.check(url, [BEGINNING, APPEND], [redacted])

    async def test_brings_no_older_body_back(self, url: str) -> None:
        first = change_of(KEY, born(BEGINNING), replaced=[message(1, content="first", name="name")])
        second = change_of(KEY, born(first), replaced=[message(1, content="second")])
        await self.check(url, [BEGINNING, first], [second])

    async def test_brings_no_summary_back(self, url: str) -> None:
        """(invariant 11)"""
        made = change_of(
            KEY, born(BEGINNING), new_summaries=[summary(3)], summaries=(link(1), link(2), link(3)), last_summary=3
        )
        taken_back = change_of(KEY, born(made), dropped_summaries=[3], summaries=(link(1), link(2)))
        # Without the last one, who reads the state would drop it again.
        await self.check(url, [BEGINNING, made], [taken_back, change_of(KEY, born(taken_back))])
        assert "summary 3" not in str(documents(url, SUMMARIES))

    async def test_completes_no_group_that_was_reopened(self, url: str) -> None:
        completed = change_of(KEY, born(BEGINNING), result(6, 2), completed=[2])
        reopened = change_of(KEY, born(completed), reopened=[2], removed=(RemovedRange(6, 6, TIME),))
        await self.check(url, [BEGINNING, completed], [reopened])

    async def test_reopens_no_group_that_was_completed(self, url: str) -> None:
        reopened = change_of(KEY, born(BEGINNING), reopened=[3], removed=(RemovedRange(4, 5, TIME),))
        completed = change_of(KEY, born(reopened), result(6, 3), completed=[3])
        await self.check(url, [BEGINNING, reopened], [completed])

    async def test_turns_nothing_that_joined_the_group_later(self, url: str) -> None:
        completed = change_of(KEY, born(BEGINNING), result(6, 2), completed=[2])
        joined = change_of(KEY, born(completed), result(7, 2, 1, usability=Usability.OPEN))
        await self.check(url, [BEGINNING, completed], [joined])

    async def test_brings_nothing_into_the_next_life(self, url: str) -> None:
        again = rebirth(KEY, born(CHANGE), message(1, id="new"), call(2, usability=Usability.OPEN), call(3))
        await self.check(url, [BEGINNING, CHANGE], [again])

    async def test_that_comes_too_late_writes_nothing(self, url: str) -> None:
        async with self.reading(url, BEGINNING, CHANGE) as (helper, _, read):
            before = documents(url, HISTORY)
            with pytest.raises(StoreUnavailable):
                await helper._sessions.settle(replace(read, read_at=read.read_at - HELP_SECONDS - 1))
            assert documents(url, HISTORY) == before

    def test_stops_long_before_a_purge_begins(self) -> None:
        assert 2 * HELP_SECONDS <= limits.PURGE_DELAY_SECONDS

    @pytest.mark.parametrize("change", [CHANGE, APPEND], ids=["of all kinds", "of what is new"])
    async def test_of_what_was_erased_leaves_what_the_next_sweep_finds(self, url: str, change: Change) -> None:
        """An erasure looks once more when nobody can be writing any more (design section 5)."""
        async with self.reading(url, BEGINNING, change) as (helper, other, read):
            assert await other.commit([death(KEY, born(change))]) == [Committed()]
            assert (await erased(other, USER)).messages > 0
            assert documents(url, HISTORY) == []
            await helper._sessions.settle(read)
            assert documents(url, HISTORY) != []
            assert await state(other) == {"ids": []}
            assert (await swept(other, 2 * limits.PURGE_DELAY_SECONDS)).messages > 0
            for collection in (HISTORY, EVENTS, SUMMARIES, SESSIONS, LEFTOVERS):
                assert documents(url, collection) == []

    async def test_of_what_was_erased_brings_nothing_to_the_names_next_session(self, url: str) -> None:
        async with self.reading(url, BEGINNING, APPEND) as (helper, other, read):
            await other.commit([death(KEY, born(APPEND))])
            await erased(other, USER)
            anew = birth(KEY, message(1, id="new"), lookups=[lookup("b", digest=b"new")])
            assert await other.commit([anew]) == [Committed()]
            await helper._sessions.settle(read)
            assert await state(other) == await expected(anew)
            assert await other.find(KEY, LookupKind.MESSAGE, ["b"]) == [lookup("b", digest=b"new")]

    async def test_of_a_staging_that_was_erased_leaves_what_the_next_sweep_finds(self, url: str) -> None:
        async with server(url) as store, server(url) as other:
            due = await store.now() + 3_600_000_000
            staging = await store.begin_staging("tenant", USER, due)
            await store.stage(staging, [message(1)], [], due)
            assert (await erased(other, USER)).messages == 1
            late = redo.staged_documents(staging, 1, [message(2)], [lookup("a")])
            await store._database.add(HISTORY, late)
            assert (await swept(other, 2 * limits.PURGE_DELAY_SECONDS)) == Deleted(messages=1, lookups=1)
            assert documents(url, HISTORY) == documents(url, LEFTOVERS) == []


WINDOWS: Final[dict[str, dict[str, Any]]] = {
    "by count": {"messages": 4, "body_bytes": 1 << 20, "summary": True},
    "all": {"messages": 100, "body_bytes": 1 << 20, "opening": True},
    "by tokens": {"messages": 100, "tokens": 30, "body_bytes": 1 << 20, "summary": True},
    "bare": {"messages": 4},
}
LONG: Final = birth(
    KEY,
    *(message(seq) for seq in range(1, 22)),
    *(call(22, calls=2), result(23, 22), message(24), result(25, 22, 1), call(26, usability=Usability.OPEN)),
    *(message(27), message(28)),
    open_messages=1,
    opening_to=2,
    user_id=USER,
    **summaries(1, 2),
)
MEANWHILE: Final[dict[str, Change]] = {
    "an append": change_of(KEY, born(LONG), *(message(seq) for seq in range(29, 40))),
    "a completion": change_of(KEY, born(LONG), result(29, 26), completed=[26], open_messages=0),
    "a rewind": change_of(KEY, born(LONG), reopened=[22], removed=(RemovedRange(25, 28, TIME),), epoch=2, messages=24),
    "a redaction": change_of(KEY, born(LONG), replaced=[message(27, content="gone")], epoch=2),
    "a clear": change_of(KEY, born(LONG), first_seq=29, removed=(RemovedRange(1, 28, TIME),), epoch=2, messages=0),
    "a summary": change_of(
        KEY, born(LONG), new_summaries=[summary(3)], dropped_summaries=[1, 2], summaries=(link(3),), last_summary=3
    ),
    "a summary taken back": change_of(KEY, born(LONG), dropped_summaries=[2], summaries=(link(1),)),
    "a death": death(KEY, born(LONG)),
    "a rebirth": rebirth(KEY, born(LONG), message(1, id="new"), user_id=USER),
}

_QUERY: Final = MessageQuery(from_seq=1, to_seq=99, descending=False, limit=99, bytes=1 << 20)
_LIFE: Final = born(LONG).incarnation
READS: Final[dict[str, Callable[[Store], Awaitable[Any]]]] = {
    "a page": lambda store: store.list_messages(KEY, _QUERY),
    "groups": lambda store: store.list_in_reading_order(KEY, _LIFE, 1, 99, 99),
    "summaries": lambda store: store.read_summaries(KEY, _LIFE, NUMBERS),
}


class TestReadsOfOneMoment:
    """What changes between the commands of a load is in the answer as a whole, or not at all."""

    @pytest.mark.parametrize("window", WINDOWS)
    @pytest.mark.parametrize("change", MEANWHILE)
    @pytest.mark.parametrize("after", ["the record", "the walk"])
    async def test_a_load(self, url: str, window: str, change: str, after: str) -> None:
        tail = WINDOWS[window]
        async with server(url) as reader, server(url) as writer:
            await writer.commit([LONG])
            before = await self.loaded(reader, tail)

            async def interfere() -> None:
                assert await writer.commit([MEANWHILE[change]]) == [Committed()]
                # As an erasure goes on: some of a dead life is deleted, then all.
                await writer.erase("tenant", USER, 3)

            self.interfere_after(reader, after, interfere)
            answer = await self.loaded(reader, tail)
            assert answer in (before, await self.loaded(writer, tail))
            await erased(writer, USER)
            assert await self.loaded(reader, tail) == await self.loaded(writer, tail)

    async def loaded(self, store: Store, tail: dict[str, Any]) -> tuple[Any, ...] | None:
        loaded = await store.load(KEY, Tail(usabilities=USABLE, **tail))
        return None if loaded is None else (loaded.record, list(loaded.tail), list(loaded.opening), loaded.summary)

    def interfere_after(self, store: MongoDBStore, what: str, interfere: Callable[[], Awaitable[None]]) -> None:
        """Has others come between the commands of the next load."""
        where, name = (store._sessions, "read") if what == "the record" else (store._loads, "_walk")
        original = getattr(where, name)

        async def call_(*args: Any, **kwargs: Any) -> Any:
            found = await original(*args, **kwargs)
            setattr(where, name, original)
            await interfere()
            return found

        setattr(where, name, call_)

    @pytest.mark.parametrize("read", READS)
    @pytest.mark.parametrize("change", MEANWHILE)
    async def test_another_read(self, url: str, read: str, change: str) -> None:
        async with server(url) as reader, server(url) as writer:
            await writer.commit([LONG])
            before = await READS[read](reader)

            async def interfere() -> None:
                assert await writer.commit([MEANWHILE[change]]) == [Committed()]
                await writer.erase("tenant", USER, 3)

            self.interfere_after(reader, "the record", interfere)
            assert await READS[read](reader) in (before, await READS[read](writer))
