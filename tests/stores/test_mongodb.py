"""What is particular to the MongoDB store: its commands and indexes, its URL, its drivers and errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from memoryd_server import limits
from memoryd_server.stores.base import (
    Committed,
    Deleted,
    Due,
    MessageQuery,
    RunQuery,
    SessionQuery,
    StoreMisconfigured,
    StoreUnavailable,
    Tail,
    Version,
)
from memoryd_server.stores.mongodb.database import CONNECTIONS
from memoryd_server.stores.mongodb.layout import (
    AGENTS,
    CARRIED_RUNS,
    DEFAULT_PREFIX,
    ENDED_FILES,
    FILE_VERSIONS,
    FILES,
    FORMAT,
    INDEXES,
    META,
    RUNS,
    SESSIONS,
    STEPS,
    SUMMARIES,
)
from memoryd_server.stores.mongodb.location import locate
from memoryd_server.stores.mongodb.openings import MAX_OPENING_BYTES
from memoryd_server.stores.mongodb.store import MongoDBStore
from memoryd_server.stores.records import (
    AgentRecord,
    FileOwner,
    Folding,
    LookupKind,
    RemovedRange,
    Role,
    RunHead,
    RunStatus,
    SessionKey,
    StoredMessage,
    Tier,
    Usability,
)
from memoryd_server.stores.registry import create_store
from tests.databases.mongodb import database_at
from tests.stores.builders import (
    BOTH,
    EVERY,
    TIME,
    USABLE,
    Session,
    birth,
    born,
    call,
    change_of,
    event,
    link,
    lookup,
    message,
    new_incarnation,
    orphan,
    result,
    step,
    summaries,
    summary,
    swept,
)
from tests.stores.mongodb_commands import Command, Recorder, unindexed, unrouted
from tests.stores.mongodb_places import EACH_PLACE, Place, documents
from tests.stores.test_files import File
from tests.stores.test_runs import ANYTHING, Runs

KEY = SessionKey("tenant", "agent", "session")
PLENTY = 1 << 20


@pytest.fixture(params=EACH_PLACE)
def place(request: pytest.FixtureRequest) -> Place:
    """Each server and each driver in turn."""
    found: Place = request.param
    return found


@pytest.fixture
def url(place: Place) -> Iterator[str]:
    with place.new_database() as url:
        yield url


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def store(url: str, recorder: Recorder) -> AsyncIterator[MongoDBStore]:
    store = MongoDBStore(locate(url), event_listeners=[recorder])
    await store.open()
    recorder.commands.clear()
    yield store
    await store.close()


@pytest.fixture
def session(store: MongoDBStore) -> Session:
    return Session(store, KEY)


async def commands_of(recorder: Recorder, call_: Callable[[], Awaitable[object]]) -> list[Command]:
    with recorder.during() as sent:
        await call_()
    return sent


def names(commands: list[Command]) -> list[str]:
    return [f"{command.name} {command.collection}" for command in commands]


def histories(session: Session, count: int, **fields: Any) -> Awaitable[Any]:
    """Commits messages as one append."""
    assert session.record is None
    return session.commit(*(message(seq, **fields) for seq in range(1, count + 1)))


class TestCommandsOfACall:
    """(design section 5)"""

    async def test_a_warm_append_takes_three(self, recorder: Recorder, session: Session) -> None:
        await session.commit(call(1, usability=Usability.OPEN), open_messages=1, lookups=[lookup("1")])
        for batch, completed in (([message(2)], []), ([result(3, 1), message(4)], [1])):
            append = partial(session.commit, *batch, completed=completed, lookups=[lookup(each.id) for each in batch])
            sent = await commands_of(recorder, append)
            assert len(sent) == 3
            assert names(sent)[:2] == ["find history", "update sessions"]
            assert sent[2].collection == "history"

    async def test_so_does_one_that_carries_a_whole_append(self, recorder: Recorder, session: Session) -> None:
        await session.commit()
        count = limits.MAX_APPEND_MESSAGES
        batch = [message(seq) for seq in range(1, count + 1)]
        lookups = [lookup(each.id) for each in batch]
        assert len(await commands_of(recorder, lambda: session.commit(*batch, lookups=lookups))) == 3

    async def test_appends_that_rest_on_each_other_share_their_commands(
        self, recorder: Recorder, store: MongoDBStore, session: Session
    ) -> None:
        record = await session.commit()
        changes = []
        for seq in range(1, 21):
            changes.append(change_of(KEY, record, message(seq), lookups=[lookup(f"{seq}")]))
            assert changes[-1].record is not None
            record = changes[-1].record
        assert len(await commands_of(recorder, lambda: store.commit(changes))) == 3
        assert len(await session.stored()) == 20

    @pytest.mark.parametrize(
        "tail",
        [
            Tail(USABLE, 20, opening=True, body_bytes=PLENTY),
            Tail(BOTH, 20, opening=True, body_bytes=PLENTY),
            Tail(USABLE, 20, opening=True),
        ],
        ids=str,
    )
    async def test_a_load_by_count_takes_two_and_reads_little_beside_its_window(
        self, recorder: Recorder, store: MongoDBStore, session: Session, tail: Tail
    ) -> None:
        await session.commit(*map(message, range(1, 101)), opening_to=2)
        await session.commit(*map(message, range(101, 201)))
        sent = await commands_of(recorder, lambda: store.load(KEY, tail))
        assert len(sent) <= (2 if tail.body_bytes else 3)
        assert sum(command.documents for command in sent) <= 20 + 20

    async def test_a_load_with_a_small_opening_takes_two(
        self, recorder: Recorder, store: MongoDBStore, session: Session
    ) -> None:
        first, second = (message(seq, role=Role.SYSTEM) for seq in (1, 2))
        await session.commit(first, opening_to=1)
        await session.commit(second, opening_to=2)
        await session.commit(*map(message, range(3, 201)))
        sent = await commands_of(recorder, lambda: store.load(KEY, Tail(USABLE, 20, opening=True, body_bytes=PLENTY)))
        assert names(sent) == ["find sessions", "find history"]
        loaded = await store.load(KEY, Tail(USABLE, 20, opening=True, body_bytes=PLENTY))
        assert loaded is not None
        assert list(loaded.opening) == [first, second]

    @pytest.mark.parametrize("length", [1, 100], ids="{} tokens a message".format)
    async def test_a_load_by_tokens_takes_three_and_reads_the_bodies_of_its_window_alone(
        self, recorder: Recorder, store: MongoDBStore, session: Session, length: int
    ) -> None:
        await histories(session, 500, tokens=length)
        tail = Tail(USABLE, 100_000, 100 * length, body_bytes=PLENTY)
        sent = await commands_of(recorder, lambda: store.load(KEY, tail))
        assert names(sent) == ["find sessions", "find history", "find history"]
        walk, bodies = sent[1:]
        assert set(walk.body["projection"]) - {"_id"} <= set(INDEXES["history"]["in_reading_order"])
        assert bodies.documents == 100

    async def test_a_load_by_tokens_of_messages_that_are_not_alike_takes_four(
        self, recorder: Recorder, store: MongoDBStore, session: Session
    ) -> None:
        await session.commit(message(1, tokens=100_000), *(message(seq, tokens=1) for seq in range(2, 200)))
        tail = Tail(USABLE, 100_000, 60, body_bytes=PLENTY)
        assert len(await commands_of(recorder, lambda: store.load(KEY, tail))) == 4

    @pytest.mark.parametrize(("tokens", "plain"), [(None, 2), (100, 3)], ids=["by count", "by tokens"])
    async def test_a_load_takes_one_more_for_the_summary_that_there_is_and_that_is_asked_for(
        self, recorder: Recorder, store: MongoDBStore, session: Session, tokens: int | None, plain: int
    ) -> None:
        await histories(session, 100)
        bare = Tail(USABLE, 20, tokens, body_bytes=PLENTY)
        tail = Tail(USABLE, 20, tokens, body_bytes=PLENTY, summary=True)
        assert len(await commands_of(recorder, lambda: store.load(KEY, tail))) == plain
        await session.commit(**summaries(1, 2))
        assert len(await commands_of(recorder, lambda: store.load(KEY, bare))) == plain
        sent = await commands_of(recorder, lambda: store.load(KEY, tail))
        assert sorted(names(sent)) == ["find history"] * (plain - 1) + ["find sessions", "find summaries"]
        assert sum(command.documents for command in sent if command.collection == SUMMARIES) == 1

    async def test_a_summary_takes_three_however_much_it_covers(self, recorder: Recorder, session: Session) -> None:
        await histories(session, 500)
        await session.commit(events=[event(2)], **summaries(1))
        for number in (2, 3):
            fold = partial(
                session.commit,
                events=[event(number + 1)],
                new_summaries=[summary(number)],
                dropped_summaries=[number - 1],
                summaries=(link(number),),
            )
            first, *others = names(await commands_of(recorder, fold))
            assert first == "update sessions"
            # At once.
            assert sorted(others) == ["insert events", "update summaries"]

    async def test_what_a_fold_reads_costs_what_it_answers(
        self, recorder: Recorder, store: MongoDBStore, session: Session
    ) -> None:
        await histories(session, 200)
        record = await session.commit(**summaries(*range(1, 17)))
        groups = partial(store.list_in_reading_order, KEY, record.incarnation, 50, 200, 10)
        sent = await commands_of(recorder, groups)
        assert names(sent) == ["find sessions", "find history", "find sessions"]
        assert sum(command.documents for command in sent) == 12
        sent = await commands_of(recorder, lambda: store.read_summaries(KEY, record.incarnation, [16]))
        assert names(sent) == ["find sessions", "find summaries"]
        assert sum(command.documents for command in sent) == 2

    async def test_a_record_takes_one(self, recorder: Recorder, store: MongoDBStore, session: Session) -> None:
        await session.commit(message(1))
        assert len(await commands_of(recorder, lambda: store.load(KEY))) == 1

    @pytest.mark.parametrize("many", [Usability.ORPHAN, Usability.OPEN])
    async def test_what_a_window_cannot_use_costs_it_nothing(
        self, recorder: Recorder, store: MongoDBStore, session: Session, many: Usability
    ) -> None:
        """(invariant 17)"""
        useless = [orphan(seq) if many is Usability.ORPHAN else call(seq, usability=many) for seq in range(6, 206)]
        counts = {"orphan_messages": 200} if many is Usability.ORPHAN else {"open_messages": 200}
        await session.commit(*map(message, range(1, 6)), *useless, **counts)
        sent = await commands_of(recorder, lambda: store.load(KEY, Tail(USABLE, 5, body_bytes=PLENTY)))
        assert len(sent) == 2
        assert sum(command.documents for command in sent) <= 6

    async def test_another_servers_change_is_added_to_what_a_load_reads_for_no_command_more(
        self, recorder: Recorder, store: MongoDBStore, url: str
    ) -> None:
        other = MongoDBStore(locate(url))
        await other.open()
        await Session(other, KEY).commit(message(1), message(2), **summaries(1))
        await other.close()
        sent = await commands_of(recorder, lambda: store.load(KEY, Tail(USABLE, 20, body_bytes=PLENTY, summary=True)))
        assert names(sent) == ["find sessions", "find history"]


async def everything(store: MongoDBStore) -> None:
    """Calls all that the contract has, on sessions that have what there is."""
    session = Session(store, KEY)
    await session.commit(message(1), call(2, usability=Usability.OPEN), orphan(3), lookups=[lookup("a")], user_id="u")
    await session.commit(result(4, 2), completed=[2], events=[event(2)], lookups=[lookup("r", LookupKind.REQUEST)])
    await session.commit(reopened=[2], replaced=[message(1, content="new")], **summaries(1, 2))
    await session.commit(new_summaries=[summary(3)], dropped_summaries=[1], summaries=(link(2), link(3)))
    record = await session.commit(removed=(RemovedRange(3, 4, TIME),), activity=TIME + 1, ttl=5)
    for descending in (False, True):
        for filters in ({}, {"roles": frozenset({Role.USER})}, {"run_id": "run"}, {"from_time": 1, "to_time": 2}):
            for size in (PLENTY, 10):
                query = MessageQuery(1, 10, descending, 5, size, **filters)
                await store.list_messages(KEY, query)
    for tokens in (None, 5):
        for usabilities in (USABLE, EVERY):
            for size in (0, 10, PLENTY):
                await store.load(KEY, Tail(usabilities, 3, tokens, opening=True, summary=True, body_bytes=size))
    await store.read(KEY, record.incarnation, [1, 2])
    await store.list_entries(KEY, record.incarnation, 1, 9, 5)
    await store.list_in_reading_order(KEY, record.incarnation, 1, 9, 5)
    await store.read_summaries(KEY, record.incarnation, [1, 2, 3])
    await store.list_unusable(KEY, EVERY, 5)
    await store.list_events(KEY, record.incarnation, 0, 5)
    await store.find(KEY, LookupKind.MESSAGE, ["a"])
    await store.list_lookups(KEY, 1)
    await store.list_lookups(KEY, 1, (await store.list_lookups(KEY, 1)).after)
    await store.purge(KEY, record.incarnation, 3, 4, 10)
    await store.load_agent("tenant", "agent")
    await store.save_agent(AgentRecord("tenant", "agent", 1))
    await store.list_agents("tenant", "", 5)
    await store.list_tenants("", 5)
    await store.lease("sweep", "one", 1)
    await store.lease("sweep", "two", 1)
    await store.adopt_secret(b"secret")
    await store.adopted_secrets()
    await store.ping()
    other = Session(store, KEY._replace(session_id="other"))
    await other.commit(message(1), user_id="u", lookups=[lookup("a")])
    for user_id in (None, "u"):
        for agent in (None, "agent"):
            after = (await store.list_sessions(SessionQuery("tenant", agent, user_id, 1))).after
            await store.list_sessions(SessionQuery("tenant", agent, user_id, 1, after))
    for due in Due:
        for each in (session, other):
            await each.commit(removed=(RemovedRange(1, 1, TIME),), ttl=5)
        await store.list_due(due, 1 << 62, 1, (await store.list_due(due, 1 << 62, 1)).after)
    for each in (session, other):
        await each.commit(folding=Folding(wanted=TIME))
    await store.list_folds("tenant", "agent", 1 << 62, 1, (await store.list_folds("tenant", "agent", 1 << 62, 1)).after)
    due_at = await store.now() + 1_000_000
    staging = await store.begin_staging("tenant", "u", due_at)
    await store.stage(staging, [message(1)], [lookup("s")], due_at)
    fork = Session(store, KEY._replace(session_id="fork"))
    await fork.commit(staging=staging, last_seq=1)
    await store.end_staging(await store.begin_staging("tenant", "u", due_at))
    await fork.be_reborn(message(1))
    for each in (session, other, fork):
        await each.die()
    await other.commit(message(1))
    await use_files(store)
    await use_runs(store)
    while (await store.erase("tenant", "u", 2)).total:
        pass
    now = await store.now()
    for later in (limits.PURGE_DELAY_SECONDS + 1, limits.LOOKUP_SECONDS + 61):
        while (await store.sweep(now + later * 1_000_000, 2)).total:
            pass


async def use_runs(store: MongoDBStore) -> None:
    """Calls all that the contract has for runs, and leaves some of a dead session, and one that is half deleted."""
    runs, dead = Runs(Session(store, KEY)), Runs(Session(store, KEY._replace(session_id="dead")))
    for each in (runs, dead):
        for run_id in ("a", "b", "c"):
            await each.begin(run_id)
            await each.change(run_id, step(run_id, 1), step(run_id, 2), messages=(), steps=2, until=1)
    await runs.change("a", status=RunStatus.INTERRUPTED, head=RunHead(TIME, "holder"))
    for run_id in ("b", "c"):
        await runs.change(run_id, status=RunStatus.COMPLETED, ended=TIME)
    assert runs.session.record is not None
    for after, size in ((0, PLENTY), (1, 1)):
        await store.list_steps(KEY, runs.session.record.incarnation, "a", after, 1, size)
        await store.list_steps(KEY, runs.session.record.incarnation, "a", after + 1, 1, size)
    for run_id in ("a", "none"):
        await store.load_run(KEY, run_id)
    for session_id in (None, KEY.session_id):
        for statuses in (
            ANYTHING,
            frozenset({RunStatus.INTERRUPTED}),
            frozenset({RunStatus.COMPLETED, RunStatus.FAILED}),
        ):
            query = RunQuery("tenant", "agent", session_id, statuses, 1)
            await store.list_runs(replace(query, after=(await store.list_runs(query)).after))
    await dead.session.die()
    for limit in (1, 2, 9):
        await store.list_claimable("tenant", "agent", TIME + 1, limit)
        await store.list_ended_runs("tenant", "agent", TIME + 1, limit)
    for _ in range(4):
        await store.delete_run(runs.name("b"), 1)
    await store.delete_run(runs.name("c"), 1)
    await runs.session.commit(user_id="u")
    await runs.session.die()


async def use_files(store: MongoDBStore) -> None:
    """Calls all that the contract has for memory files, and leaves one."""
    owner = FileOwner("tenant", Tier.USER, "u")
    kept, deleted = File(store, owner), File(store, owner, "2026-01-01.md")
    for file in (kept, deleted):
        for number in range(limits.MAX_FILE_VERSIONS + 1):
            await file.save(b"%d" % number)
    assert not await store.save_file(kept.next(b"late"), Version(new_incarnation(), 1))
    await store.load_files([kept.key, deleted.key])
    await store.load_file_version(kept.key, limits.MAX_FILE_VERSIONS)
    await store.list_file_versions(kept.key)
    for before in ("", "MEMORY.md"):
        await store.list_files(owner, before, 1)
    for after in (None, owner):
        await store.list_file_owners("tenant", after, 1)
    await store.list_file_tenants("", 5)
    assert deleted.expected is not None
    assert await store.delete_file(deleted.key, deleted.expected)


class TestIndexes:
    async def test_every_filter_is_a_prefix_of_one(self, recorder: Recorder, store: MongoDBStore) -> None:
        await everything(store)
        assert len(recorder.commands) > 200
        assert [problem for command in recorder.commands for problem in unindexed(command)] == []

    async def test_all_of_them_are_there(self, store: MongoDBStore, url: str) -> None:
        with database_at(url.partition("?")[0]) as database:
            for collection, indexes in INDEXES.items():
                found = database[DEFAULT_PREFIX + collection].index_information().values()
                assert {tuple(field for field, _ in each["key"]) for each in found} >= set(indexes.values())

    async def test_what_is_asked_of_a_session_is_asked_of_one_shard(
        self, recorder: Recorder, store: MongoDBStore, session: Session
    ) -> None:
        """(design section 8)"""
        await session.commit(message(1), call(2, usability=Usability.OPEN), lookups=[lookup("a")], events=[event(1)])
        record = await session.commit(result(3, 2), completed=[2], replaced=[message(1)], lookups=[lookup("b")])
        record = await session.commit(**summaries(1, 2))
        record = await session.commit(dropped_summaries=[1], summaries=(link(2),))
        runs = Runs(session)
        await runs.begin("run")
        await runs.change("run", step("run", 1), steps=1, status=RunStatus.COMPLETED, ended=TIME)
        assert session.record is not None
        await store.list_steps(KEY, session.record.incarnation, "run", 0, 5, PLENTY)
        await store.list_runs(RunQuery("tenant", "agent", KEY.session_id, ANYTHING, 5))
        await store.load_run(KEY, "none")
        while await store.delete_run(runs.name("run"), 1):
            pass
        await session.tail(body_bytes=PLENTY, tokens=5, summary=True)
        await store.read_summaries(KEY, record.incarnation, [1, 2])
        await store.list_in_reading_order(KEY, record.incarnation, 1, 9, 5)
        await session.page()
        await store.list_events(KEY, record.incarnation, 0, 5)
        await store.find(KEY, LookupKind.MESSAGE, ["a"])
        assert [problem for command in recorder.commands for problem in unrouted(command)] == []
        of_sessions = [command for command in recorder.commands if command.collection == SESSIONS]
        assert all("_id" in each for command in of_sessions for each in command.filters)

    async def test_opening_a_database_that_has_them_makes_none(self, store: MongoDBStore, url: str) -> None:
        seen: list[str] = []

        class Names(Recorder):
            def started(self, event: Any) -> None:
                seen.append(event.command_name)

        again = MongoDBStore(locate(url), event_listeners=[Names()])
        await again.open()
        await again.close()
        assert "createIndexes" not in seen


class TestOpenings:
    """The copy of the opening in a session's document is never another one than what is stored."""

    @pytest.fixture
    async def opened(self, session: Session) -> Session:
        await session.commit(*(message(seq, role=Role.SYSTEM) for seq in (1, 2)), message(3), opening_to=2)
        return session

    async def opening(self, session: Session) -> list[StoredMessage]:
        loaded = await session.load(opening=True, messages=10, body_bytes=PLENTY)
        return list(loaded.opening)  # type: ignore[arg-type]

    async def test_after_a_redaction(self, opened: Session) -> None:
        await opened.commit(replaced=[message(1, role=Role.SYSTEM, content="gone")])
        assert [each.content for each in await self.opening(opened)] == ["gone", message(2).content]

    async def test_after_a_clear(self, opened: Session) -> None:
        await opened.commit(first_seq=4, opening_to=0, removed=(RemovedRange(1, 3, TIME),))
        assert await self.opening(opened) == []
        await opened.commit(message(4, role=Role.SYSTEM), message(5), opening_to=4)
        assert await self.opening(opened) == [message(4, role=Role.SYSTEM)]

    async def test_after_a_rewind(self, opened: Session) -> None:
        await opened.commit(opening_to=1, removed=(RemovedRange(2, 3, TIME),))
        assert await self.opening(opened) == [message(1, role=Role.SYSTEM)]

    async def test_after_a_rebirth(self, opened: Session) -> None:
        await opened.be_reborn(message(1, id="new"), opening_to=1)
        assert await self.opening(opened) == [message(1, id="new")]

    async def test_of_what_is_large(self, session: Session) -> None:
        large = message(1, role=Role.SYSTEM, size=MAX_OPENING_BYTES, content="x" * MAX_OPENING_BYTES)
        await session.commit(large, message(2, role=Role.SYSTEM), message(3), opening_to=2)
        assert await self.opening(session) == [large, message(2, role=Role.SYSTEM)]

    async def test_holds_nothing_of_what_was_taken_away(self, opened: Session, url: str) -> None:
        """(invariant 11)"""
        await opened.commit(replaced=[message(1, content="gone")])
        [document] = documents(url, SESSIONS)
        assert b"message 1" not in repr(document).encode()


class TestDroppedSummaries:
    """What they leave holds their place against whoever writes them out late, and does not stay."""

    async def test_leave_no_text(self, session: Session, url: str) -> None:
        """(invariant 11)"""
        await session.commit(message(1), **summaries(1, 2))
        await session.commit(dropped_summaries=[1], summaries=(link(2),))
        for collection in (SESSIONS, SUMMARIES):
            assert "summary 1" not in str(documents(url, collection))

    async def test_leave_none_when_they_come_and_go_at_once(
        self, store: MongoDBStore, session: Session, url: str
    ) -> None:
        made = birth(KEY, message(1), **summaries(1))
        dropped = change_of(KEY, born(made), dropped_summaries=[1], summaries=())
        assert await store.commit([made, dropped]) == [Committed(), Committed()]
        assert not any(b"summary 1" in (each["redo"] or b"") for each in documents(url, SESSIONS))
        assert "summary 1" not in str(documents(url, SUMMARIES))

    async def test_are_gone_with_the_next_sweep_once_nobody_can_be_writing_them(
        self, store: MongoDBStore, session: Session, url: str
    ) -> None:
        await session.commit(message(1), **summaries(1, 2, 3))
        await session.commit(dropped_summaries=[1, 2], summaries=(link(3),))
        assert await swept(store, limits.PURGE_DELAY_SECONDS - 10) == Deleted()
        assert len(documents(url, SUMMARIES)) == 3
        assert await swept(store, limits.PURGE_DELAY_SECONDS + 10) == Deleted()
        assert [each["number"] for each in documents(url, SUMMARIES)] == [3]

    async def test_count_for_nothing_where_a_life_is_deleted(self, store: MongoDBStore, session: Session) -> None:
        await session.commit(message(1), **summaries(1, 2, 3))
        await session.commit(dropped_summaries=[1, 2], summaries=(link(3),))
        await session.die()
        assert await swept(store, limits.PURGE_DELAY_SECONDS + 10) == Deleted(messages=1, summaries=1)


class TestDataOfTheVersionBefore:
    """It knew neither summaries nor what is left to clients, nor memory files, settings beside policies and runs."""

    async def test_is_served_and_goes_on(self, session: Session, url: str) -> None:
        await session.commit(message(1))
        with database_at(url.partition("?")[0]) as database:
            sessions = database[DEFAULT_PREFIX + SESSIONS]
            gone = ("fold_at", "abandon_at", "claimable_at", CARRIED_RUNS)
            sessions.update_many({}, {"$unset": dict.fromkeys(gone, "")})
            for index in ("folding", "abandoned", "claimable", "unlisted"):
                sessions.drop_index(index)
            for collection in (SUMMARIES, FILES, FILE_VERSIONS, ENDED_FILES, RUNS, STEPS):
                database.drop_collection(DEFAULT_PREFIX + collection)
            database[DEFAULT_PREFIX + AGENTS].update_many({}, {"$unset": {"settings": ""}})
        store = MongoDBStore(locate(url))
        await store.open()
        assert session.record is not None
        assert list((await store.list_folds("tenant", "agent", 1 << 62, 5)).keys) == []
        assert await store.read_summaries(KEY, session.record.incarnation, [1]) == (session.record, [])
        later = Session(store, KEY, session.record)
        await later.commit(message(2), folding=Folding(wanted=TIME), **summaries(1))
        assert list((await store.list_folds("tenant", "agent", 1 << 62, 5)).keys) == [KEY]
        loaded = await later.load(summary=True)
        assert (loaded.summary, [each.seq for each in loaded.tail]) == (summary(1), [2, 1])
        assert await store.load_agent("tenant", "agent") == AgentRecord("tenant", "agent")
        runs = Runs(later)
        assert await runs.load("run") is None
        assert await store.list_claimable("tenant", "agent", TIME, 5) == []
        await runs.begin("run")
        assert await store.list_claimable("tenant", "agent", TIME, 5) == [runs.name("run")]
        assert [key for key, _ in (await store.list_runs(RunQuery("tenant", "agent", None, ANYTHING, 5))).runs] == [KEY]
        assert await File(store).save(b"a") in await store.load_files([File(store).key])
        await store.close()


class TestLargeChanges:
    async def test_a_session_carries_little_once_they_are_written_out(self, session: Session, url: str) -> None:
        await session.commit(*(message(seq, size=1 << 16, content="x" * (1 << 16)) for seq in range(1, 4)))
        [document] = documents(url, SESSIONS)
        assert document["redo"] is None
        assert len(await session.stored()) == 3

    async def test_nor_a_long_summary(self, session: Session, url: str) -> None:
        await session.commit(message(1), new_summaries=[summary(1, text="x" * (1 << 17))], summaries=(link(1),))
        [document] = documents(url, SESSIONS)
        assert document["redo"] is None
        assert (await session.load(summary=True)).summary == summary(1, text="x" * (1 << 17))

    async def test_an_append_whose_json_is_longer_than_a_document_may_be_is_kept_whole(self, session: Session) -> None:
        """Escapes make six characters of one: 3.5 MiB of them do not fit into one document as they are."""
        size = limits.MAX_APPEND_BYTES // 2
        sent = [message(seq, size=size, content='[{"text":"' + "\\u0000" * size + '"}]') for seq in (1, 2)]
        await session.commit(*sent)
        assert await session.stored() == sent

    @pytest.mark.parametrize("text", ["\0", "😀"], ids=ascii)
    async def test_a_long_summary_comes_with_a_whole_append(self, session: Session, text: str) -> None:
        size = limits.MAX_APPEND_BYTES
        sent = message(1, size=size, content='["' + "x" * size + '"]')
        made = summary(1, text=text * 1_000_000)
        await session.commit(sent, new_summaries=[made], summaries=(link(1),))
        loaded = await session.load(summary=True, body_bytes=2 * size)
        assert (loaded.summary, list(loaded.tail)) == (made, [sent])


class TestURL:
    @pytest.mark.parametrize("text", ["mongodb://host", "mongodb://host/", "mongodb://a,b:1/?w=majority"])
    def test_names_its_database(self, text: str) -> None:
        with pytest.raises(StoreMisconfigured, match=r"names no database.*MONGODB_DB_NAME"):
            create_store("test", None, text)

    def test_may_name_driver_and_prefix_which_the_driver_does_not_see(self) -> None:
        found = locate("mongodb://u:p%40@a,b:1/db?driver=pymongo&tls=true&collection_prefix=my%5F")
        assert found.url == "mongodb://u:p%40@a,b:1/db?tls=true"
        assert (found.database, found.prefix, found.driver, found.risk) == ("db", "my_", "pymongo", "")

    def test_takes_motor_and_our_prefix_by_default(self) -> None:
        found = locate("mongodb://host/db")
        assert (found.url, found.prefix, found.driver) == ("mongodb://host/db", "memoryd_", "motor")

    @pytest.mark.parametrize(
        ("option", "text"),
        [
            ("driver=mongoengine", "motor or pymongo"),
            ("collection_prefix=$x", "collection_prefix"),
            ("collection_prefix=", "collection_prefix"),
            ("readPreference=secondary", "readpreference=secondary"),
            ("readConcernLevel=local", "readconcernlevel=local"),
            ("w=0", "w=0"),
            ("j=false", "the option 'j'"),
            ("pasword=secret", "the option 'pasword'"),
            ("retryWrites=banana", "the option 'retryWrites'"),
        ],
    )
    def test_says_what_cannot_be(self, option: str, text: str) -> None:
        with pytest.raises(StoreMisconfigured, match=text.replace("$", r"\$")):
            create_store("test", "mongodb", f"mongodb://host/db?{option}")

    def test_shows_nothing_of_a_password_that_is_not_encoded(self) -> None:
        with pytest.raises(StoreMisconfigured, match="Percent-encode") as raised:
            create_store("test", "mongodb", "mongodb://user:top/secret@host/db")
        assert "secret" not in str(raised.value)

    @pytest.mark.parametrize("option", ["w=1", "journal=false"])
    def test_that_waits_for_less_than_a_majority_makes_no_durable_store(self, option: str) -> None:
        assert option in locate(f"mongodb://host/db?{option}").risk

    async def test_with_a_weak_write_concern_is_told_and_obeyed(self, url: str, recorder: Recorder) -> None:
        store = MongoDBStore(locate(f"{url}&w=1"), event_listeners=[recorder])
        info = await store.open()
        assert not info.durable
        assert "w=1" in next(each.reason for each in info.capabilities if each.name == "durable")
        await Session(store, KEY).commit()
        await store.close()
        assert all(each.body["writeConcern"]["w"] == 1 for each in recorder.commands if each.name != "find")

    async def test_prefixes_every_collection(self, url: str) -> None:
        stores = [MongoDBStore(locate(f"{url}&collection_prefix={prefix}")) for prefix in ("a_", "b_")]
        for store in stores:
            await store.open()
        await Session(stores[0], KEY).commit(message(1))
        assert await stores[1].load(KEY) is None
        for store in stores:
            await store.close()
        with database_at(url.partition("?")[0]) as database:
            assert {name[:2] for name in database.list_collection_names()} == {"a_", "b_"}


class TestConcerns:
    async def test_writes_wait_for_the_journals_of_a_majority_and_reads_are_of_it(
        self, recorder: Recorder, session: Session
    ) -> None:
        await session.commit(message(1), lookups=[lookup("a")])
        await session.tail()
        for command in recorder.commands:
            if command.name == "find":
                assert command.body["readConcern"] == {"level": "majority"}
            else:
                concern = command.body["writeConcern"]
                assert (concern["w"], concern["j"]) == ("majority", True)

    async def test_no_write_is_sent_again_by_the_driver(self, recorder: Recorder, session: Session) -> None:
        await session.commit(message(1))
        assert not any("txnNumber" in command.body for command in recorder.commands)


class TestFormat:
    async def test_of_a_newer_version_is_refused(self, store: MongoDBStore, url: str) -> None:
        with database_at(url.partition("?")[0]) as database:
            database[DEFAULT_PREFIX + META].update_one({"_id": "format"}, {"$set": {"value": FORMAT + 1}})
        again = MongoDBStore(locate(url))
        with pytest.raises(StoreMisconfigured, match="newer version of memoryd"):
            await again.open()

    async def test_a_database_that_was_dropped_is_told(self, store: MongoDBStore, url: str) -> None:
        with database_at(url.partition("?")[0]) as database:
            database.client.drop_database(database.name)
        with pytest.raises(StoreUnavailable, match="are gone"):
            await store.ping()


class TestCancellation:
    """A cancelled call leaks nothing and leaves no partial write (invariant 16)."""

    async def test_of_many_calls_leaves_the_connections_whole(self, store: MongoDBStore, session: Session) -> None:
        await session.commit(*map(message, range(1, 51)))
        for number in range(60):
            assert session.record is not None
            change = change_of(KEY, session.record, message(51), message(52), lookups=[lookup("a")])
            calls = [
                asyncio.create_task(store.load(KEY, Tail(USABLE, 50, body_bytes=PLENTY))),
                asyncio.create_task(store.commit([change]) if number % 10 == 0 else store.ping()),
            ]
            for _ in range(number % 7):
                await asyncio.sleep(0)
            for each in calls:
                each.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.gather(*(store.ping() for _ in range(2 * CONNECTIONS)))
        async with asyncio.timeout(10):  # Commands run to their end, though nobody waits for them any more.
            while store.pool_status().in_use:
                await store.ping()
        status = store.pool_status()
        assert (status.size, status.in_use, status.waiting) == (CONNECTIONS, 0, 0)
        assert await session.tail(messages=2) in ([50, 49], [52, 51])

    async def test_behind_the_compare_and_set_leaves_a_commit_that_is_made(
        self, store: MongoDBStore, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        record = await session.commit()
        reached = asyncio.Event()

        async def hang(*_: object) -> None:
            reached.set()
            await asyncio.Event().wait()

        with monkeypatch.context() as patch:
            patch.setattr(store._sessions, "write_out", hang)
            change = change_of(KEY, record, message(1), lookups=[lookup("a")])
            committing = asyncio.create_task(store.commit([change]))
            await reached.wait()
            committing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await committing
        assert await session.stored() == [message(1)]


async def test_a_closed_store_is_unavailable(store: MongoDBStore) -> None:
    await store.close()
    for work in (store.ping(), store.load(KEY), store.commit([birth(KEY)])):
        with pytest.raises(StoreUnavailable, match="closed"):
            await work


async def test_a_server_that_is_not_there_is_told_soon() -> None:
    store = create_store("test", None, "mongodb://127.0.0.1:9/db")
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await asyncio.wait_for(store.open(), 10)
    await store.close()


async def test_what_is_written_out_later_is_said_in_the_log(
    store: MongoDBStore, session: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer that a client waits for is not made an error by what can be made up for."""

    async def fail(*_: object) -> None:
        raise StoreUnavailable("away")

    caplog.set_level(logging.INFO)
    with monkeypatch.context() as patch:
        patch.setattr(store._sessions, "write_out", fail)
        await session.commit(message(1))
    assert "not yet written out" in caplog.text
    assert await session.stored() == [message(1)]
