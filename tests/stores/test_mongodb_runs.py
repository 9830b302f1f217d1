"""Runs on MongoDB: what a commit leaves of them to be written out, servers that end in the middle of that or of a
deletion, and what lists and steps cost (design section 5; invariant 15)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any, Final

import msgspec
import pytest

from memoryd_server import limits
from memoryd_server.stores.base import (
    Change,
    Committed,
    Conflict,
    Deleted,
    Due,
    RunChange,
    RunName,
    RunQuery,
    Store,
)
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.mongodb.layout import CARRIED_RUNS, HISTORY, RUNS, SESSIONS, STEPS, CarriedRuns, Leaving
from memoryd_server.stores.mongodb.location import locate
from memoryd_server.stores.mongodb.sessions import Session as StoredSession
from memoryd_server.stores.mongodb.store import MongoDBStore
from memoryd_server.stores.records import (
    LookupKind,
    Record,
    RunHead,
    RunLink,
    RunState,
    RunStatus,
    SessionKey,
    StoredStep,
)
from tests.stores.builders import (
    TIME,
    Session,
    birth,
    born,
    change_of,
    death,
    due_sessions,
    erased,
    lookup,
    message,
    rebirth,
    run_state,
    step,
    swept,
)
from tests.stores.mongodb_commands import Recorder
from tests.stores.mongodb_places import EACH_PLACE, Place, documents
from tests.stores.mongodb_servers import Doomed, server
from tests.stores.test_runs import ANYTHING, Runs

KEY: Final = SessionKey("tenant", "agent", "session")
USER: Final = "user"
RUN_IDS: Final = ("run", "other", "done", "new")
LATER: Final = TIME + 1_000_000
MOST_COMMANDS: Final = 12
"""More than any of these changes takes."""


@pytest.fixture(params=EACH_PLACE)
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.param
    return found


@pytest.fixture
def url(place: Place) -> Iterator[str]:
    with place.new_database() as url:
        yield url


def run_change(
    record: Record | None, states: dict[str, RunState], heads: dict[str, RunHead], *rest: Any, **fields: Any
) -> Change:
    """A change that brings states and heads of runs, one of which ends or begins or goes on."""
    changes = [RunChange(run_id, state, heads.get(run_id)) for run_id, state in states.items()]
    links = {link.token: link.state for link in record.runs} if record else {}
    unfinished = {run_id: state for run_id, state in (links | states).items() if not state.ended}
    fields |= {
        "changed_runs": changes,
        "runs": tuple(RunLink(run_id, state) for run_id, state in unfinished.items()),
    }
    return birth(KEY, *rest, **fields) if record is None else change_of(KEY, record, *rest, **fields)


def successor(state: RunState, **fields: Any) -> RunState:
    return msgspec.structs.replace(state, version=state.version + 1, **fields)


FIRST: Final = {
    "run": run_state(steps=1, until=TIME + 50),
    "other": run_state(RunStatus.INTERRUPTED, updated=TIME + 30),
    "done": run_state(RunStatus.COMPLETED, ended=TIME + 1),
}
BEGINNING: Final = run_change(
    None,
    FIRST,
    {run_id: RunHead(TIME + number, f"holder of {run_id}") for number, run_id in enumerate(FIRST)},
    message(1),
    new_steps=[step("run", 1, payload=b"first")],
    lookups=[lookup("a")],
    user_id=USER,
)
STEP: Final = run_change(
    born(BEGINNING),
    {"run": successor(FIRST["run"], steps=2, until=TIME + 20, updated=TIME + 2)},
    {},
    *(message(2), message(3)),
    new_steps=[step("run", 2, payload=b"second")],
    lookups=[lookup("b")],
)
END: Final = run_change(
    born(BEGINNING),
    {"run": successor(FIRST["run"], status=RunStatus.FAILED, steps=2, until=0, ended=TIME + 9, updated=TIME + 9)},
    {"run": RunHead(TIME, "holder of run", "it failed")},
    message(2),
    new_steps=[step("run", 2, payload=b"the last")],
    lookups=[lookup("b")],
)
START: Final = run_change(
    born(BEGINNING),
    {"new": run_state(until=TIME + 10), "other": successor(FIRST["other"], status=RunStatus.RUNNING, until=TIME + 99)},
    {"new": RunHead(TIME + 70, "holder of new", metadata="\0")},
    new_steps=[step("new", 1)],
    lookups=[lookup("b")],
)
CHANGES: Final = pytest.mark.parametrize("change", [STEP, END, START], ids=["a step", "an end", "a beginning"])


def later_than(change: Change) -> Change:
    """What the next writer makes."""
    state = {link.token: link.state for link in born(change).runs}["other"]
    gone_on = {"other": successor(state, status=RunStatus.CANCELLED, ended=TIME + 80, until=0)}
    return run_change(born(change), gone_on, {}, new_steps=[step("other", 1)], lookups=[lookup("later")])


async def _run(store: Store, run_id: str) -> Any:
    return await store.load_run(KEY, run_id)


async def _steps(store: Store, run_id: str) -> Any:
    loaded = await store.load(KEY)
    page = loaded and await store.list_steps(KEY, loaded.record.incarnation, run_id, 0, 10, 1 << 20)
    return page and (list(page.steps), page.more)


async def _list(store: Store, *statuses: RunStatus, session_id: str | None = None) -> Any:
    found: list[Any] = []
    after = ""
    while True:
        page = await store.list_runs(RunQuery("tenant", "agent", session_id, frozenset(statuses), 2, after))
        found += page.runs
        after = page.after
        if not after:
            return found


READS: Final[dict[str, Callable[[Store], Awaitable[Any]]]] = {
    **{f"the run {run_id}": partial(_run, run_id=run_id) for run_id in RUN_IDS},
    **{f"the steps of {run_id}": partial(_steps, run_id=run_id) for run_id in RUN_IDS},
    "what can be claimed": lambda store: store.list_claimable("tenant", "agent", LATER, 10),
    "what can be claimed soon": lambda store: store.list_claimable("tenant", "agent", TIME + 25, 10),
    "the first that can be claimed": lambda store: store.list_claimable("tenant", "agent", LATER, 1),
    "the same as a whole": lambda store: store.load_claimable("tenant", "agent", LATER, 1),
    "due": lambda store: due_sessions(store, Due.ABANDONMENT, LATER),
    # Those that follow write out what they find.
    "what has ended": lambda store: store.list_ended_runs("tenant", "agent", LATER, 10),
    "runs": _list,
    "runs of the session": partial(_list, session_id=KEY.session_id),
    **{f"runs that are {status.name}": lambda store, status=status: _list(store, status) for status in RunStatus},  # type: ignore[misc]
    "ids": lambda store: store.find(KEY, LookupKind.MESSAGE, ["a", "b", "later"]),
}


async def state(store: Store) -> dict[str, Any]:
    """All that callers can learn of the session and its runs."""
    loaded = await store.load(KEY)
    told = {name: _plain(await read(store)) for name, read in READS.items()}
    messages = list(await Session(store, KEY, loaded.record).stored()) if loaded else []
    return {"record": loaded and loaded.record, "messages": messages, **told}


def _plain(told: Any) -> Any:
    return sorted(told, key=repr) if isinstance(told, list) and told and hasattr(told[0], "digest") else told


async def expected(*changes: Change) -> dict[str, Any]:
    """What the reference tells once the changes are made."""
    store = InMemoryStore()
    await store.open()
    for change in changes:
        assert await store.commit([change]) == [Committed()]
    return await state(store)


class TestServerEnds:
    """At each step of a commit: it is made whole or not at all, for whoever comes next."""

    @CHANGES
    @pytest.mark.parametrize("commands", range(8))
    async def test_between_its_commands(self, url: str, change: Change, commands: int) -> None:
        await self.end_and_check(url, change, commands, None)

    @CHANGES
    @pytest.mark.parametrize("parts", range(7))
    async def test_within_what_it_writes_out(self, url: str, change: Change, parts: int) -> None:
        await self.end_and_check(url, change, MOST_COMMANDS, parts)

    async def end_and_check(self, url: str, change: Change, commands: int, parts: int | None) -> None:
        async with server(url) as store:
            assert await store.commit([BEGINNING]) == [Committed()]
            await Doomed(store, commands, parts).do(store.commit([change]))
        [document] = documents(url, SESSIONS)
        is_made = document["version"] == 2
        assert is_made or (commands < 3 and parts is None)
        made = [BEGINNING, *([change] if is_made else [])]
        later = later_than(change) if is_made else change
        async with server(url) as store:
            assert await state(store) == await expected(*made)
        async with server(url) as store:
            assert await store.commit([later]) == [Committed()]
        async with server(url) as store:
            assert await state(store) == await expected(*made, later)
        assert documents(url, SESSIONS, **{CARRIED_RUNS: int(CarriedRuns.PLACES)}) == []

    @CHANGES
    async def test_and_the_next_writer_comes_first(self, url: str, change: Change) -> None:
        later = later_than(change)
        async with server(url) as store:
            await store.commit([BEGINNING])
            await Doomed(store, MOST_COMMANDS, 0).do(store.commit([change]))
        async with server(url) as store:
            assert await store.commit([later]) == [Committed()]
            assert await state(store) == await expected(BEGINNING, change, later)

    @CHANGES
    @pytest.mark.parametrize("read", READS)
    async def test_and_nobody_else_has_read(self, url: str, change: Change, read: str) -> None:
        """Each read finds by itself what is not written out."""
        async with server(url) as store:
            await store.commit([BEGINNING])
            await Doomed(store, MOST_COMMANDS, 0).do(store.commit([change]))
        async with server(url) as store:
            assert _plain(await READS[read](store)) == (await expected(BEGINNING, change))[read]

    @pytest.mark.parametrize("commands", range(8))
    async def test_as_the_session_begins(self, url: str, commands: int) -> None:
        async with server(url) as store:
            await Doomed(store, commands, 0 if commands == 7 else None).do(store.commit([BEGINNING]))
        async with server(url) as store:
            made = [BEGINNING] if documents(url, SESSIONS) else []
            assert await state(store) == await expected(*made)

    @CHANGES
    async def test_and_helpers_write_the_same_at_once(self, url: str, change: Change) -> None:
        async with server(url) as store:
            await store.commit([BEGINNING])
            await Doomed(store, MOST_COMMANDS, 1).do(store.commit([change]))
        async with server(url) as first, server(url) as second:
            sessions = [await store._sessions.read(KEY) for store in (first, second)]
            for store, found in zip((first, second, first, second), (*sessions, *sessions), strict=True):
                assert found is not None
                await store._sessions.write_out(KEY, found.place, found.pending)
            assert await state(first) == await state(second) == await expected(BEGINNING, change)

    @pytest.mark.parametrize("commands", range(12))
    @pytest.mark.parametrize("way", ["death", "rebirth"])
    async def test_as_a_life_ends(self, url: str, commands: int, way: str) -> None:
        """Its runs are in no list from then on, and an erasure finds them."""
        again = {"run": run_state(steps=0)}
        change = (
            death(KEY, born(STEP))
            if way == "death"
            else rebirth(
                KEY,
                born(STEP),
                user_id="another",
                changed_runs=[RunChange("run", again["run"], RunHead(TIME + 60))],
                runs=(RunLink("run", again["run"]),),
            )
        )
        async with server(url) as store:
            await store.commit([BEGINNING])
            await store.commit([STEP])
            await Doomed(store, commands).do(store.commit([change]))
        async with server(url) as store:
            [document] = documents(url, SESSIONS)
            if document["life"] == 1 and document["incarnation"] is not None:
                assert await state(store) == await expected(BEGINNING, STEP)
                assert await store.commit([change]) == [Committed()]
            assert await state(store) == await expected(BEGINNING, STEP, change)
            deleted = await erased(store, USER, limit=2)
            assert (deleted.runs, deleted.steps) == (3, 2)
        assert documents(url, RUNS, life=1) == documents(url, STEPS) == []


class TestLateHelper:
    """It writes out what it read long ago. Nothing that came later changes by that."""

    @asynccontextmanager
    async def reading(self, url: str, *made: Change) -> AsyncIterator[tuple[MongoDBStore, MongoDBStore, StoredSession]]:
        """A helper that has read the last of the changes, which was not written out; and another server."""
        async with server(url) as store:
            for change in made[:-1]:
                assert await store.commit([change]) == [Committed()]
            await Doomed(store, MOST_COMMANDS, 0).do(store.commit(made[-1:]))
        async with server(url) as helper, server(url) as other:
            read = await helper._sessions.read(KEY)
            assert read is not None
            assert read.pending
            yield helper, other, read

    @CHANGES
    async def test_brings_no_older_state_back(self, url: str, change: Change) -> None:
        later = [later_than(change)]
        async with self.reading(url, BEGINNING, change) as (helper, other, read):
            await self.commit(other, later)
            await helper._sessions.settle(read)
            assert await state(helper) == await state(other) == await expected(BEGINNING, change, *later)

    @pytest.mark.parametrize("is_swept", [False, True])
    async def test_brings_no_deleted_run_back(self, url: str, is_swept: bool) -> None:
        """Neither does the session, which carried it. An end, and a run of which all came at once."""
        at_once = run_change(
            born(END),
            {"new": run_state(RunStatus.COMPLETED, ended=TIME + 9)},
            {"new": RunHead(TIME)},
            new_steps=[step("new", 1)],
        )
        for made, run_id in ((END, "run"), (at_once, "new")):
            async with self.reading(url, *self.before(made)) as (helper, other, read):
                await self.delete(other, run_id, born(made))
                if not is_swept:
                    await helper._sessions.settle(read)
                await swept(other, limits.PURGE_DELAY_SECONDS + 10)
                assert documents(url, STEPS, run=run_id) == documents(url, RUNS, run=run_id) == []
            async with server(url) as store:
                assert await _run(store, run_id) == (born(made), None)
                assert run_id not in [
                    run.id for _, run in (*await _list(store), *await _list(store, session_id=KEY[2]))
                ]
                assert run_id not in [name.run_id for name in await READS["what has ended"](store)]
                assert await store.commit([death(KEY, born(made))]) == [Committed()]
                await erased(store, USER)

    async def test_leaves_nothing_of_a_deleted_run_that_lasts(self, url: str) -> None:
        async with self.reading(url, BEGINNING, END) as (helper, other, read):
            await self.delete(other, "run", born(END))
            assert documents(url, STEPS) == []
            await helper._sessions.settle(read)
            assert await _run(other, "run") == (born(END), None)
            assert await swept(other, limits.PURGE_DELAY_SECONDS - 10) == Deleted()
            assert await swept(other, limits.PURGE_DELAY_SECONDS + 10) == Deleted()
            assert documents(url, STEPS) == documents(url, RUNS, run="run") == []

    async def test_brings_no_step_to_the_run_that_has_its_name_now(self, url: str) -> None:
        again = run_change(born(END), {"run": run_state(steps=0)}, {"run": RunHead(TIME + 60, "another")})
        gone_on = run_change(
            born(again),
            {"run": run_state(version=2, steps=1)},
            {},
            new_steps=[step("run", 1, payload=b"its own")],
        )
        async with self.reading(url, BEGINNING, END) as (helper, other, read):
            await self.delete(other, "run", born(END))
            await self.commit(other, [again])
            await helper._sessions.settle(read)
            assert await _steps(helper, "run") == await _steps(other, "run") == ([], False)
            await self.commit(other, [gone_on])
            await swept(other, limits.PURGE_DELAY_SECONDS + 10)
            assert await _steps(other, "run") == ([step("run", 1, payload=b"its own")], False)
            record, run = await _run(other, "run")
            assert (record, run.head, run.state) == (
                born(gone_on),
                RunHead(TIME + 60, "another"),
                run_state(version=2, steps=1),
            )

    @CHANGES
    async def test_of_what_was_erased_leaves_what_the_next_sweep_finds(self, url: str, change: Change) -> None:
        async with self.reading(url, BEGINNING, change) as (helper, other, read):
            await self.commit(other, [death(KEY, born(change))])
            assert (await erased(other, USER)).runs >= 3
            assert documents(url, RUNS) == documents(url, STEPS) == []
            await helper._sessions.settle(read)
            assert documents(url, STEPS) != []
            assert (await swept(other, 2 * limits.PURGE_DELAY_SECONDS)).steps > 0
            for collection in (HISTORY, RUNS, STEPS, SESSIONS):
                assert documents(url, collection) == []

    def before(self, change: Change) -> Sequence[Change]:
        return [BEGINNING, END] if change is END else [BEGINNING, END, change]

    async def commit(self, store: Store, changes: Sequence[Change]) -> None:
        for change in changes:
            assert await store.commit([change]) == [Committed()]

    async def delete(self, store: Store, run_id: str, record: Record) -> None:
        while await store.delete_run(RunName(KEY, record.incarnation, run_id), 2):
            pass


class TestDeletion:
    @pytest.mark.parametrize("commands", range(10))
    async def test_by_a_server_that_ends_is_gone_on_with(self, url: str, commands: int) -> None:
        """The run is there whole, or for nobody any more."""
        name = RunName(KEY, born(END).incarnation, "run")
        async with server(url) as store:
            await store.commit([BEGINNING])
            await store.commit([END])
        async with server(url) as store:
            await Doomed(store, commands).do(store.delete_run(name, 2))
        async with server(url) as store:
            told = await state(store)
            if told["the run run"][1] is not None:
                assert told == await expected(BEGINNING, END)
                assert await store.delete_run(name, 1) == 1
            again = run_change(born(END), {"run": run_state()}, {"run": RunHead(TIME)})
            if documents(url, RUNS, run="run", leaving=int(Leaving.STEPS)):
                assert await store.commit([again]) == [Conflict()]
            await swept(store, 0)
            assert documents(url, STEPS) == []
            assert await store.delete_run(name, 2) == 0
            assert await store.commit([again]) == [Committed()]
            assert [run.id for _, run in await _list(store)] == ["done", "other", "run"]
            assert await _steps(store, "run") == ([], False)

    async def test_meanwhile_a_page_of_its_steps_is_whole_or_none(self, url: str) -> None:
        name = RunName(KEY, born(END).incarnation, "run")
        for where, method in (("_sessions", "read"), ("_runs", "_find"), ("_database", "find")):
            async with server(url) as reader, server(url) as writer:
                await writer.commit([BEGINNING])
                await writer.commit([END])
                original = getattr(getattr(reader, where), method)

                async def call_(
                    *args: Any,
                    of: Any = (reader, where, method),
                    original: Any = original,
                    writer: Store = writer,
                    **kwargs: Any,
                ) -> Any:
                    found = await original(*args, **kwargs)
                    if of[2] != "find" or args[0] == STEPS:
                        setattr(getattr(of[0], of[1]), of[2], original)
                        await writer.delete_run(name, 2)
                    return found

                setattr(getattr(reader, where), method, call_)
                page = await reader.list_steps(KEY, name.incarnation, "run", 0, 10, 1 << 20)
                assert page is None or [each.number for each in page.steps] == [1, 2]
                await writer.commit([death(KEY, born(END))])
                await erased(writer, USER)

    async def test_leaves_nothing_of_what_was_said(self, url: str) -> None:
        async with server(url) as store:
            await store.commit([BEGINNING])
            await store.commit([END])
            while await store.delete_run(RunName(KEY, born(END).incarnation, "run"), 2):
                pass
            told = str([documents(url, each) for each in (SESSIONS, RUNS, STEPS)])
            assert "it failed" not in told
            assert "the last" not in told
            assert "holder of done" in told


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def store(url: str, recorder: Recorder) -> AsyncIterator[MongoDBStore]:
    store = MongoDBStore(locate(url), event_listeners=[recorder])
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def runs(store: MongoDBStore) -> Runs:
    """Those of a session that is born."""
    session = Session(store, KEY)
    await session.commit(message(1))
    return Runs(session)


class TestCommands:
    async def names(self, recorder: Recorder, work: Awaitable[object]) -> list[str]:
        with recorder.during() as sent:
            await work
        return [f"{command.name} {command.collection}" for command in sent]

    async def test_a_step_waits_for_as_many_as_an_append(self, recorder: Recorder, runs: Runs) -> None:
        """What it brings is written out at once, and nothing is read of it."""
        await runs.begin("run", until=TIME)
        for number in (1, 2):
            work = runs.change("run", step("run", number), messages=(message(number + 1),), steps=number)
            first, *others = await self.names(recorder, work)
            assert first == "update sessions"
            assert sorted(others) == ["insert history", "insert steps", "update runs"]

    async def test_a_renewal_takes_two(self, recorder: Recorder, runs: Runs) -> None:
        await runs.begin("run", until=TIME)
        assert await self.names(recorder, runs.change("run", until=LATER)) == ["update sessions", "update runs"]

    async def test_what_moves_a_run_between_lists_takes_one_more(self, recorder: Recorder, runs: Runs) -> None:
        await runs.begin("run", until=TIME)
        for fields in ({"status": RunStatus.INTERRUPTED}, {"status": RunStatus.COMPLETED, "ended": TIME}):
            names = await self.names(recorder, runs.change("run", **fields))
            assert names == ["update sessions", "update runs", "update sessions"]

    async def test_a_list_of_many_costs_what_it_answers(
        self, recorder: Recorder, runs: Runs, store: MongoDBStore
    ) -> None:
        for number in range(40):
            await runs.begin(f"{number}", RunStatus.COMPLETED, ended=TIME + number, head=RunHead(TIME + number))
        for number in range(3):
            await runs.begin(f"unfinished {number}", until=TIME + number)
        lists: dict[int, Awaitable[object]] = {
            5: store.list_runs(RunQuery("tenant", "agent", None, ANYTHING, 3)),
            4: store.list_ended_runs("tenant", "agent", LATER, 3),
            3: store.list_claimable("tenant", "agent", LATER, 3),
            2: store.load_run(KEY, "39"),
        }
        for most, work in lists.items():
            with recorder.during() as sent:
                await work
            assert len(sent) <= most
            assert sum(command.documents for command in sent) <= 10

    async def test_a_page_of_steps_reads_no_payload_beyond_it(
        self, recorder: Recorder, runs: Runs, store: MongoDBStore
    ) -> None:
        await runs.begin("run")
        for number in range(1, 21):
            await runs.change("run", step("run", number, payload=b"x" * 100), steps=number)
        assert runs.session.record is not None
        with recorder.during() as sent:
            page = await store.list_steps(KEY, runs.session.record.incarnation, "run", 0, 20, 350)
        assert page is not None
        assert [each.number for each in page.steps] == [1, 2, 3]
        assert [command.collection for command in sent] == [SESSIONS, RUNS, STEPS, STEPS]
        assert sent[-1].documents == 3


class TestLargeChanges:
    async def test_a_step_of_two_mebibytes_comes_with_a_whole_append(self, runs: Runs, url: str) -> None:
        """The document that carries both is no larger than it may be, and small again afterwards."""
        await runs.begin("run")
        size = limits.MAX_APPEND_BYTES // 2
        sent = [message(seq, size=size, content='[{"text":"' + "\\u0000" * size + '"}]') for seq in (2, 3)]
        large = step("run", 1, payload=_incompressible(limits.MAX_STEP_BYTES))
        await runs.change("run", large, messages=tuple(sent), steps=1)
        assert (await runs.session.stored())[1:] == sent
        assert await _steps_of(runs, "run") == [large]
        [document] = documents(url, SESSIONS)
        assert document["redo"] is None

    async def test_steps_that_rest_on_each_other_are_made_by_more_than_one_compare_and_set(
        self, runs: Runs, recorder: Recorder, store: MongoDBStore
    ) -> None:
        await runs.begin("run")
        record, run = runs.session.record, runs.runs["run"].state
        steps, changes = [], []
        for number in range(1, 6):
            run = successor(run, steps=number)
            steps.append(step("run", number, payload=_incompressible(limits.MAX_STEP_BYTES)))
            changes.append(run_change(record, {"run": run}, {}, new_steps=steps[-1:]))
            record = born(changes[-1])
        assert await store.commit(changes) == [Committed()] * 5
        runs.session.record = record
        assert await _steps_of(runs, "run") == steps


async def _steps_of(runs: Runs, run_id: str) -> list[StoredStep]:
    assert runs.session.record is not None
    page = await runs.session.store.list_steps(KEY, runs.session.record.incarnation, run_id, 0, 100, 1 << 30)
    assert page is not None
    return list(page.steps)


def _incompressible(size: int) -> bytes:
    return Random(7).randbytes(size)
