"""What is particular to the SQLite store: durability, several processes, plans and costs, errors, threads."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.dialects import sqlite

from memoryd_server.stores.base import (
    Change,
    MessageQuery,
    RunChange,
    SessionQuery,
    StoreMisconfigured,
    StoreUnavailable,
    Tail,
)
from memoryd_server.stores.records import (
    Entry,
    LookupKind,
    Record,
    RemovedRange,
    RunHead,
    RunLink,
    SessionKey,
    Usability,
)
from memoryd_server.stores.registry import create_store
from memoryd_server.stores.sql import wal, writer
from memoryd_server.stores.sql.compiling import ListStatement
from memoryd_server.stores.sql.reader import Reader
from memoryd_server.stores.sql.reads import Reads
from memoryd_server.stores.sql.reads import Session as SessionRow
from memoryd_server.stores.sql.rows import Codec
from memoryd_server.stores.sql.schema import REVISION, metadata
from memoryd_server.stores.sql.sqlite import READERS, SQLiteStore
from memoryd_server.stores.sql.statements import Statements
from memoryd_server.stores.sql.steps import Plan
from memoryd_server.stores.sql.writer import Writer
from tests.stores import contender
from tests.stores.builders import (
    BOTH,
    TIME,
    USABLE,
    Session,
    birth,
    change_of,
    link,
    lookup,
    message,
    orphan,
    run_state,
    seqs,
    step,
    summaries,
    summary,
)

KEY = SessionKey("tenant", "agent", "session")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memoryd.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    store = open_store(path)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def session(store: SQLiteStore) -> Session:
    return Session(store, KEY)


@pytest.fixture
def connection(store: SQLiteStore, path: Path) -> Iterator[sqlite3.Connection]:
    """A connection of the test's own to the store's file."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=0)
    connection.execute("SELECT * FROM memoryd_meta").fetchall()  # It knows the schema from here on.
    yield connection
    connection.close()


@pytest.fixture
def reader(connection: sqlite3.Connection) -> Reader:
    return Reader(connection, statements())


def open_store(path: Path) -> SQLiteStore:
    store = create_store("test", "sqlite", f"sqlite:///{path}")
    assert isinstance(store, SQLiteStore)
    return store


def statements() -> Statements:
    return Statements(sqlite.dialect())


class TestDurability:
    async def test_every_commit_is_synced_to_the_disk(self, store: SQLiteStore) -> None:
        """WAL with synchronous = FULL: one fsync of the log in each commit."""

        def settings(writer: Writer) -> list[object]:
            names = ("journal_mode", "synchronous", "fullfsync", "checkpoint_fullfsync")
            return [writer._execute(f"PRAGMA {name}").fetchone()[0] for name in names]

        full = 2
        assert await store._writer.run(settings) == ["wal", full, 1, 1]

    async def test_says_so(self, path: Path) -> None:
        store = open_store(path)
        info = await store.open()
        await store.close()
        assert (info.type, info.durable) == ("sqlite", True)
        assert [(power.name, power.supported) for power in info.capabilities] == [
            ("shared", True),
            ("durable", True),
        ]

    async def test_closing_leaves_one_plain_file(self, path: Path) -> None:
        store = open_store(path)
        await store.open()
        await Session(store, KEY).commit(message(1))
        await store.close()
        assert [file.name for file in path.parent.iterdir()] == [path.name]

    async def test_a_process_that_ends_without_closing_loses_nothing(self, path: Path) -> None:
        """Its log is taken up by the next one."""
        script = f"""
import asyncio, os
from memoryd_server.stores.registry import create_store
from tests.stores.builders import Session, message
from tests.stores.test_sqlite import KEY

async def main():
    store = create_store("test", "sqlite", {f"sqlite:///{path}"!r})
    await store.open()
    await Session(store, KEY).commit(*map(message, range(1, 101)))
    os._exit(1)

asyncio.run(main())
"""
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, cwd=ROOT)
        assert await process.wait() == 1
        store = open_store(path)
        await store.open()
        assert seqs(await Session(store, KEY).stored()) == [*range(1, 101)]
        await store.close()


class TestSecret:
    async def test_is_made_once_for_the_life_of_the_file(self, path: Path, tmp_path: Path) -> None:
        secrets = []
        for file in (path, path, tmp_path / "other.db"):
            store = open_store(file)
            secrets.append((await store.open()).secret)
            await store.close()
        assert secrets[0] == secrets[1] != secrets[2]
        assert {len(secret) for secret in secrets} == {32}


class TestSeveralProcesses:
    async def test_open_one_new_file_at_once_and_share_it(self, path: Path) -> None:
        url = f"sqlite:///{path}"
        processes = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.stores.contender", url, name), cwd=ROOT, stdout=subprocess.PIPE
            )
            for name in ("one", "two", "three")
        ]
        outputs = [await process.communicate() for process in processes]
        assert [process.returncode for process in processes] == [0, 0, 0]
        answers = [json.loads(output) for output, _ in outputs]
        assert len({answer["secret"] for answer in answers}) == 1

        store = open_store(path)
        info = await store.open()
        stored = await Session(store, contender.SESSION).stored()
        assert info.secret.hex() == answers[0]["secret"]
        assert seqs(stored) == [*range(1, 3 * contender.APPENDS + 1)]
        assert {message.id for message in stored} == {
            f"{name}-{number}" for name in ("one", "two", "three") for number in range(contender.APPENDS)
        }
        await store.close()


class TestSchema:
    def test_is_what_the_migrations_make(self, store: SQLiteStore, path: Path) -> None:
        from alembic.autogenerate import compare_metadata
        from alembic.migration import MigrationContext

        engine = create_engine(f"sqlite:///{path}")
        with engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"version_table": "memoryd_schema"})
            assert context.get_current_revision() == REVISION
            assert compare_metadata(context, metadata) == []
        engine.dispose()

    def test_has_the_table_options_of_the_migrations(self, connection: sqlite3.Connection) -> None:
        """What `compare_metadata` does not see."""
        declared = sqlite3.connect(":memory:")
        engine = create_engine("sqlite://", creator=lambda: declared)
        metadata.create_all(engine)

        def texts(connection: sqlite3.Connection) -> dict[str, str]:
            rows = connection.execute(
                "SELECT name, sql FROM sqlite_master WHERE name LIKE 'memoryd_%' AND sql NOT NULL"
            )
            return {name: re.sub(r"\s+", " ", sql) for name, sql in rows if name != "memoryd_schema"}

        assert texts(connection) == texts(declared)
        engine.dispose()
        declared.close()

    async def test_of_a_newer_memoryd_is_refused(self, store: SQLiteStore, path: Path) -> None:
        await store.close()
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE memoryd_schema SET version_num = '9999'")
        connection.close()
        with pytest.raises(StoreMisconfigured, match=r"schema 9999, which is newer .* Upgrade memoryd"):
            await open_store(path).open()

    async def test_stands_beside_other_tables(self, path: Path) -> None:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE messages (a)")
            connection.execute("CREATE TABLE alembic_version (version_num)")
            connection.execute("INSERT INTO alembic_version VALUES ('of another application')")
        connection.close()
        store = open_store(path)
        await store.open()
        await Session(store, KEY).commit(message(1))
        await store.close()


def _texts() -> dict[str, str]:
    texts: dict[str, str] = {}
    of_files = {f"{name} of files": text for name, text in vars(statements().files).items()}
    of_runs = {f"{name} of runs": text for name, text in vars(statements().runs).items()}
    for name, statement in {**vars(statements()), **of_files, **of_runs}.items():
        if isinstance(statement, str):
            texts[name] = statement
        elif isinstance(statement, ListStatement):
            texts |= {f"{name} of {size}": text for size, text in statement.variants}
        elif isinstance(statement, dict):
            texts |= {f"{name} {variant}": text for variant, text in statement.items()}
    return texts


class TestPlans:
    """Every statement is led by an index (invariant 17)."""

    @pytest.mark.parametrize("text", _texts().values(), ids=_texts().keys())
    def test_no_statement_scans_a_table_or_sorts(self, connection: sqlite3.Connection, text: str) -> None:
        # A scan on the condition that nought is one is planned, but never begun.
        is_begun = "WHERE 0 = 1" not in text
        for planned in self.plan(connection, text):
            assert not is_begun or not re.search(r"SCAN memoryd_|TEMP B-TREE|AUTOMATIC", planned), planned

    @pytest.mark.parametrize(
        ("name", "step"),
        [
            ("session", "USING INDEX sqlite_autoindex_memoryd_sessions_1 (tenant=? AND agent=? AND session_id=?)"),
            ("update_record", "USING INTEGER PRIMARY KEY (rowid=?)"),
            ("list_sessions_of_tenant", "memoryd_sessions_of_tenant (tenant=? AND activity<?)"),
            ("list_sessions_of_agent", "memoryd_sessions_of_agent (tenant=? AND agent=? AND activity<?)"),
            ("list_sessions_of_user", "memoryd_sessions_of_user (tenant=? AND user_id=? AND activity<?)"),
            (
                "list_sessions_of_user_and_agent",
                "memoryd_sessions_of_user (tenant=? AND user_id=? AND activity<?)",
            ),
            ("list_purgeable", "memoryd_sessions_purgeable (removed_at>? AND removed_at<?)"),
            ("list_expiring", "memoryd_sessions_expiring (expires_at>? AND expires_at<?)"),
            ("list_folds", "memoryd_sessions_foldable (tenant=? AND agent=? AND fold_at>? AND fold_at<?)"),
            (
                "entries_forwards",
                "memoryd_messages_in_reading_order (session=? AND life=? AND usability=? AND head>? AND head<?)",
            ),
            ("summaries_by_number of 1", "USING PRIMARY KEY (session=? AND life=? AND number=?)"),
            ("delete_summary", "USING PRIMARY KEY (session=? AND life=? AND number=?)"),
            ("delete_summaries", "USING PRIMARY KEY (session=? AND life=? AND number<?)"),
            (
                "messages_backwards",
                "memoryd_messages_in_reading_order (session=? AND life=? AND usability=? AND head>? AND head<?)",
            ),
            (
                "entries_backwards",
                "memoryd_messages_in_reading_order (session=? AND life=? AND usability=? AND head>? AND head<?)",
            ),
            (
                "complete_group",
                "memoryd_messages_in_reading_order (session=? AND life=? AND usability=? AND head=?)",
            ),
            ("messages", "USING PRIMARY KEY (session=? AND life=? AND seq>? AND seq<?)"),
            ("purge", "USING PRIMARY KEY (session=? AND life=? AND seq>? AND seq<?)"),
            ("messages_by_seq of 16", "USING PRIMARY KEY (session=? AND life=? AND seq=?)"),
            ("lookups_by_id of 1", "USING PRIMARY KEY (session=? AND kind=? AND id=?)"),
            ("list_agents", "USING PRIMARY KEY (tenant=? AND agent>?)"),
            ("list_of_owner of files", "memoryd_files USING PRIMARY KEY (tenant=? AND tier=? AND owner=? AND name<?)"),
            ("versions of files", "USING PRIMARY KEY (tenant=? AND tier=? AND owner=? AND name=?)"),
            ("list_abandoned", "memoryd_sessions_abandoned (abandon_at>? AND abandon_at<?)"),
            ("load of runs", "memoryd_runs USING PRIMARY KEY (session=? AND life=? AND id=?) LEFT-JOIN"),
            ("list_of_agent of runs", "memoryd_runs_of_agent (tenant=? AND agent=? AND (created,session,id)<(?,?,?))"),
            (
                "list_by_status of runs",
                "memoryd_runs_by_status (tenant=? AND agent=? AND status=? AND (created,session,id)<(?,?,?))",
            ),
            ("list_of_session of runs", "memoryd_runs_of_session (session=? AND life=? AND (created,id)<(?,?))"),
            ("list_claimable of runs", "memoryd_runs_claimable (tenant=? AND agent=? AND claimable_at<?)"),
            ("load_claimable of runs", "memoryd_runs_claimable (tenant=? AND agent=? AND claimable_at<?)"),
            ("list_ended of runs", "memoryd_runs_ended (tenant=? AND agent=? AND ended<?)"),
            ("list_leaving of runs", "memoryd_runs_ended (tenant=? AND agent=? AND ended>?)"),
            ("advance of runs", "memoryd_runs USING PRIMARY KEY (session=? AND life=? AND id=?)"),
            ("steps of runs", "USING PRIMARY KEY (session=? AND life=? AND run_id=? AND number>? AND number<?)"),
            ("delete_steps_of_runs_before of runs", "USING PRIMARY KEY (session=? AND life=? AND run_id<?)"),
            ("list_owners of files", "USING PRIMARY KEY (tenant=? AND tier=? AND owner>?)"),
        ],
    )
    def test_the_index_is_the_one_made_for_it(self, connection: sqlite3.Connection, name: str, step: str) -> None:
        assert any(planned.endswith(step) for planned in self.plan(connection, _texts()[name]))

    def test_each_of_some_files_is_looked_up_by_its_key(self, connection: sqlite3.Connection) -> None:
        steps = [each for each in self.plan(connection, statements().files.load(3)) if "memoryd_" in each]
        key = "USING PRIMARY KEY (tenant=? AND tier=? AND owner=? AND name=?"
        assert (
            steps
            == [
                f"SEARCH memoryd_files {key})",
                f"SEARCH memoryd_file_versions {key} AND version=?)",
            ]
            * 3
        )

    def plan(self, connection: sqlite3.Connection, text: str) -> list[str]:
        parameters = [1] * text.count("?")
        return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", parameters)]


def steps(connection: sqlite3.Connection, call: Callable[[], object]) -> int:
    """The instructions of SQLite's virtual machine that a call takes: a cost that is the same on every machine."""
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    connection.set_progress_handler(count, 1)
    try:
        call()
    finally:
        connection.set_progress_handler(None, 1)
    return taken


def cost_of_commit(writer: Writer, change: Change) -> int:
    return steps(writer._connection, lambda: writer.commit([change]))


WINDOWS = (
    Tail(USABLE, 20, opening=True, body_bytes=1 << 20),
    Tail(USABLE, 20),
    Tail(USABLE, 100_000, 200, opening=True, body_bytes=1 << 20),
    Tail(USABLE, 100_000, 200, opening=True, body_bytes=1500),
)


class TestCost:
    """(invariant 17)"""

    @pytest.mark.parametrize("tail", WINDOWS, ids=str)
    async def test_of_a_tail_does_not_grow_with_the_history(
        self, store: SQLiteStore, connection: sqlite3.Connection, reader: Reader, tail: Tail
    ) -> None:
        short, long = Session(store, KEY._replace(session_id="s")), Session(store, KEY._replace(session_id="l"))
        await short.commit(*map(message, range(1, 101)), opening_to=1)
        await long.commit(*map(message, range(1, 10_001)), opening_to=1)
        costs = [steps(connection, partial(reader.load, each.key, tail)) for each in (short, long)]
        assert costs[0] == costs[1]

    @pytest.mark.parametrize("tail", WINDOWS, ids=str)
    @pytest.mark.parametrize("skipped", [Usability.ORPHAN, Usability.OPEN])
    async def test_of_a_tail_does_not_grow_with_what_it_skips(
        self, store: SQLiteStore, connection: sqlite3.Connection, reader: Reader, tail: Tail, skipped: Usability
    ) -> None:
        plain, ending = Session(store, KEY._replace(session_id="p")), Session(store, KEY._replace(session_id="e"))
        for each in (plain, ending):
            await each.commit(*map(message, range(1, 101)), opening_to=1)
        await ending.commit(*(message(seq, usability=skipped) for seq in range(101, 5_101)))
        costs = [steps(connection, partial(reader.load, each.key, tail)) for each in (plain, ending)]
        assert costs[0] == costs[1]

    async def test_of_a_tail_with_open_groups_is_that_of_both_walks(
        self, store: SQLiteStore, connection: sqlite3.Connection, reader: Reader
    ) -> None:
        session = Session(store, KEY)
        await session.commit(*map(message, range(1, 101)))
        opened = (message(seq, usability=Usability.OPEN) for seq in range(101, 5_101))
        await session.commit(*opened)
        cost = steps(connection, lambda: reader.load(KEY, Tail(BOTH, 20)))
        assert cost < 3 * steps(connection, lambda: reader.load(KEY, Tail(USABLE, 20)))

    async def test_of_a_tail_does_not_grow_with_what_is_removed(
        self, store: SQLiteStore, connection: sqlite3.Connection, reader: Reader
    ) -> None:
        session = Session(store, KEY)
        await session.commit(*map(message, range(1, 5_111)))
        await session.commit(first_seq=101, removed=(RemovedRange(1, 100, TIME), RemovedRange(111, 5_100, TIME)))
        cost = steps(connection, lambda: reader.load(KEY, Tail(USABLE, 20)))
        assert await session.tail(messages=20) == [*range(5_110, 5_100, -1), *range(110, 100, -1)]
        other = Session(store, KEY._replace(session_id="other"))
        await other.commit(*map(message, range(1, 101)))
        assert cost < 1.5 * steps(connection, lambda: reader.load(other.key, Tail(USABLE, 20)))

    async def test_of_lists_does_not_grow_with_other_sessions(
        self, store: SQLiteStore, connection: sqlite3.Connection, reader: Reader
    ) -> None:
        await store.commit([birth(KEY._replace(session_id=f"{n}"), user_id="u", activity=n) for n in range(20)])
        of = ((None, None), ("agent", None), (None, "u"), ("agent", "u"))
        queries = [SessionQuery("tenant", agent, user_id, 5) for agent, user_id in of]
        calls = [partial(reader.run, partial(Reads.list_sessions, query=query)) for query in queries]
        before = [steps(connection, call) for call in calls]
        await store.commit([birth(KEY._replace(session_id=f"more-{n}"), user_id=f"u-{n}") for n in range(2_000)])
        after = [steps(connection, call) for call in calls]
        assert after == before

    async def test_of_listing_the_unusable_is_that_of_the_answer(
        self, store: SQLiteStore, connection: sqlite3.Connection, reader: Reader
    ) -> None:
        session = Session(store, KEY)
        await session.commit(*map(orphan, range(1, 31)))
        list_some = partial(reader.run, lambda reads: reads.list_unusable(KEY, [Usability.ORPHAN], 10))
        cost = steps(connection, list_some)
        await session.commit(*map(message, range(31, 5_000)), *map(orphan, range(5_000, 6_000)))
        assert (
            steps(connection, lambda: reader.run(lambda reads: reads.list_unusable(KEY, [Usability.ORPHAN], 10)))
            == cost
        )

    async def test_of_a_commit_does_not_grow_with_the_history(self, store: SQLiteStore) -> None:
        costs = []
        for length in (100, 10_000):
            session = Session(store, KEY._replace(session_id=f"{length}"))
            record = await session.commit(*map(message, range(1, length + 1)), lookups=[lookup("a")])
            change = change_of(session.key, record, message(length + 1), lookups=[lookup("b")])
            costs.append(await store._writer.run(cost_of_commit, change))
        assert costs[0] == costs[1]

    async def test_of_a_step_of_a_run_does_not_grow_with_runs_nor_steps(
        self, store: SQLiteStore, connection: sqlite3.Connection, reader: Reader
    ) -> None:
        """Nor do those of its claim: to find it among many, and to read it."""
        costs = []
        for count in (100, 5_000):
            session = Session(store, SessionKey("tenant", f"agent-{count}", "session"))
            begun = [RunChange(f"{number}", run_state(until=TIME), RunHead(TIME)) for number in range(count)]
            taken = [step("1", number) for number in range(1, count)]
            record = await session.commit(changed_runs=begun, new_steps=taken)
            state = run_state(version=2, until=TIME + 9, steps=count)
            change = change_of(
                session.key,
                record,
                message(1),
                changed_runs=[RunChange("1", state, None)],
                new_steps=[step("1", count)],
                runs=(RunLink("1", state),),
            )
            costs.append(
                [
                    steps(connection, partial(reader.list_claimable, "tenant", session.key.agent, TIME + 1, 5)),
                    steps(connection, partial(reader.load_claimable, "tenant", session.key.agent, TIME + 1, 4)),
                    steps(connection, partial(reader.load_run, session.key, "1")),
                    await store._writer.run(cost_of_commit, change),
                ]
            )
        assert costs[0] == costs[1]

    async def test_of_a_summary_does_not_grow_with_what_it_covers(
        self, store: SQLiteStore, connection: sqlite3.Connection, reader: Reader
    ) -> None:
        """(invariant 10)"""
        commits, loads = [], []
        for length in (100, 10_000):
            session = Session(store, KEY._replace(session_id=f"{length}"))
            await session.commit(*map(message, range(1, length + 1)))
            record = await session.commit(**summaries(1))
            change = change_of(
                session.key,
                record,
                new_summaries=(summary(2),),
                dropped_summaries=(1,),
                summaries=(link(2, to_head=length, to_seq=length),),
            )
            commits.append(await store._writer.run(cost_of_commit, change))
            loads.append(steps(connection, partial(reader.load, session.key, Tail(USABLE, 20, summary=True))))
        assert commits[0] == commits[1]
        assert loads[0] == loads[1]

    async def test_of_a_load_is_what_it_was_where_there_is_no_summary(
        self, store: SQLiteStore, session: Session, connection: sqlite3.Connection, reader: Reader
    ) -> None:
        await session.commit(*map(message, range(1, 101)))
        costs = [
            steps(connection, partial(reader.load, KEY, Tail(USABLE, 20, summary=asked))) for asked in (False, True)
        ]
        assert costs[0] == costs[1]

    async def test_of_a_step_in_reading_order_is_that_of_the_answer(
        self, store: SQLiteStore, connection: sqlite3.Connection, reader: Reader
    ) -> None:
        session = Session(store, KEY)
        record = await session.commit(*map(message, range(1, 2_001)), *map(orphan, range(2_001, 4_001)))

        def cost(from_head: int) -> int:
            plan = partial(
                Reads.list_in_reading_order,
                key=KEY,
                incarnation=record.incarnation,
                from_head=from_head,
                to_head=4_000,
                limit=10,
            )
            return steps(connection, partial(reader.run, plan))

        assert cost(1) < 3 * cost(3_900)
        assert cost(1) == cost(1_001)

    async def test_an_append_touches_no_index_of_sessions_unless_activity_moves(self, store: SQLiteStore) -> None:
        """Lists may lag a second so that most appends are spared this."""
        record = await Session(store, KEY).commit(message(1))
        costs = []
        for activity in (TIME, TIME + 1, TIME + 1):
            change = change_of(KEY, record, activity=activity)
            costs.append(await store._writer.run(cost_of_commit, change))
            assert change.record is not None
            record = change.record
        assert costs[0] == costs[2] < costs[1]


class TestBodies:
    """SQLite refuses to read a text over a limit that a test can lower: so no body was read where none was wanted."""

    @pytest.fixture
    async def session(self, session: Session, connection: sqlite3.Connection) -> Session:
        large = "x" * 100_000
        await session.commit(
            *(
                message(seq, content=large if seq == 5 else "small", size=100_000 if seq == 5 else 10)
                for seq in range(1, 10)
            ),
            opening_to=6,
        )
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 50_000)
        return session

    def test_the_limit_shows_what_is_read(self, session: Session, reader: Reader) -> None:
        with pytest.raises(sqlite3.DataError, match="too big"):
            reader.load(session.key, Tail(USABLE, 9, body_bytes=1 << 20))

    @pytest.mark.parametrize("bounds", [(9, None), (100_000, 90), (100_000, 50)], ids=str)
    def test_none_is_read_that_does_not_fit(
        self, session: Session, reader: Reader, bounds: tuple[int, int | None]
    ) -> None:
        loaded = reader.load(session.key, Tail(USABLE, *bounds, opening=True, body_bytes=99_999))
        assert loaded is not None
        assert {type(entry) for entry in (*loaded.tail, *loaded.opening)} == {Entry}

    @pytest.mark.parametrize("bounds", [(4, None), (100_000, 40)], ids=str)
    def test_none_is_read_beyond_the_tail(
        self, session: Session, reader: Reader, bounds: tuple[int, int | None]
    ) -> None:
        loaded = reader.load(session.key, Tail(USABLE, *bounds, body_bytes=99_999))
        assert loaded is not None
        assert [entry.content for entry in loaded.tail] == ["small"] * 4  # type: ignore[attr-defined]

    def test_of_a_page_that_stops_before_it_none_is_read(self, session: Session, reader: Reader) -> None:
        query = MessageQuery(1, 9, descending=False, limit=9, bytes=40)
        page = reader.run(lambda reads: reads.list_messages(session.key, query))
        assert page is not None
        assert (seqs(page.messages), page.more) == ([1, 2, 3, 4], True)

    def test_listing_the_unusable_reads_none(self, session: Session, reader: Reader) -> None:
        entries = reader.run(lambda reads: reads.list_unusable(session.key, [Usability.USABLE], 9))
        assert len(entries) == 9


class TestErrors:
    """Only what comes from outside becomes an error of the contract, with a text that says what to do."""

    @pytest.fixture(autouse=True)
    def impatience(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer, "LOCK_SECONDS", 0.05)

    async def test_a_file_that_another_process_keeps_locked(
        self, session: Session, connection: sqlite3.Connection
    ) -> None:
        await session.commit(message(1))
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match=r"database is locked\. Another process"):
            await session.commit(message(2))
        assert await session.tail() == [1]
        connection.execute("ROLLBACK")
        await session.commit(message(2))
        assert await session.tail() == [2, 1]

    async def test_a_full_disk_leaves_no_part_of_a_batch(self, store: SQLiteStore, session: Session) -> None:
        """(invariant 3)"""
        await session.commit(message(1))
        pages = await store._writer.run(lambda writer: writer._execute("PRAGMA page_count").fetchone()[0])
        await store._writer.run(lambda writer: writer._execute(f"PRAGMA max_page_count = {pages + 5}"))
        batch = [message(seq, content="x" * 10_000) for seq in range(2, 30)]
        with pytest.raises(StoreUnavailable, match=r"full.* make room"):
            await session.commit(*batch)
        assert await session.stored() == [message(1)]
        await store._writer.run(lambda writer: writer._execute("PRAGMA max_page_count = 1000000"))
        await session.commit(*batch)
        assert await session.stored() == [message(1), *batch]

    async def test_a_file_that_cannot_be_written(self, store: SQLiteStore, session: Session) -> None:
        await session.commit(message(1))
        await store._writer.run(lambda writer: writer._execute("PRAGMA query_only = ON"))
        with pytest.raises(StoreUnavailable, match=r"readonly .*Let the user that memoryd runs as write"):
            await session.commit(message(2))
        assert await session.tail() == [1]

    async def test_texts_hold_no_path(self, session: Session, connection: sqlite3.Connection, path: Path) -> None:
        """They reach the caller."""
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable) as raised:
            await session.commit()
        assert path.name not in str(raised.value)

    async def test_a_fault_of_ours_surfaces_as_it_is(self, store: SQLiteStore, session: Session) -> None:
        await session.commit(message(1))
        with pytest.raises(sqlite3.IntegrityError):
            await session.commit(message(1))
        with pytest.raises(sqlite3.OperationalError, match="syntax error"):
            await store._read(lambda reader: reader._execute("SELEKT"))
        # And harms nothing.
        assert await session.stored() == [message(1)]
        await session.commit(message(2))

    async def test_a_closed_store(self, store: SQLiteStore, session: Session) -> None:
        await store.close()
        for call in (store.ping(), store.load(KEY), store.commit([birth(KEY)])):
            with pytest.raises(StoreUnavailable, match="closed"):
                await call
        await store.close()


class TestOpening:
    """What must be done before a store can be opened is said."""

    @pytest.mark.parametrize(
        ("file", "text"),
        [
            ("no/such/directory/memoryd.db", "Make its directory"),
            ("a-file/memoryd.db", "Make its directory"),
            ("a-directory", "Make its directory, and let the user that memoryd runs as write to it"),
            ("garbage.db", "no SQLite database: give the store another file"),
            ("file:read-only.db?mode=ro&uri=true", "Let the user that memoryd runs as write to the file"),
        ],
    )
    async def test_is_refused_with_the_reason(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "a-file").write_text("")
        (tmp_path / "a-directory").mkdir()
        (tmp_path / "garbage.db").write_text("This is no database. " * 100)
        sqlite3.connect(tmp_path / "read-only.db").execute("CREATE TABLE a (b)").connection.close()
        threads = threading.active_count()
        with pytest.raises(StoreMisconfigured, match=text) as raised:
            await create_store("test", "sqlite", f"sqlite:///{file}").open()
        assert file.partition("?")[0].removeprefix("file:") in str(raised.value)
        assert threading.active_count() == threads

    async def test_can_be_tried_again(self, tmp_path: Path) -> None:
        store = open_store(tmp_path / "later" / "memoryd.db")
        with pytest.raises(StoreMisconfigured):
            await store.open()
        (tmp_path / "later").mkdir()
        await store.open()
        await Session(store, KEY).commit(message(1))
        await store.close()

    async def test_waits_for_a_lock_no_longer_than_a_write(
        self, store: SQLiteStore, connection: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writer, "LOCK_SECONDS", 0.05)
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            await open_store(path).open()


class TestCancellation:
    """A cancelled call leaks nothing and leaves no partial write (invariant 16)."""

    async def test_of_a_commit_under_way_lets_it_end(self, session: Session, connection: sqlite3.Connection) -> None:
        await session.commit(message(1))
        assert session.record is not None
        change = change_of(KEY, session.record, message(2), message(3), lookups=[lookup("a")])
        connection.execute("BEGIN IMMEDIATE")
        running = asyncio.create_task(session.store.commit([change]))
        await asyncio.sleep(0.02)  # It waits for the lock by now; if not, it is not made, which is right as well.
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        connection.execute("ROLLBACK")
        await session.store.commit([])  # What is before it in the queue has ended.
        stored = await session.stored()
        found = await session.store.find(KEY, LookupKind.MESSAGE, ["a"])
        assert (seqs(stored), found) in [([1, 2, 3], [lookup("a")]), ([1], [])]

    async def test_of_a_commit_that_waits_makes_nothing_of_it(self, store: SQLiteStore) -> None:
        release = threading.Event()
        busy = asyncio.create_task(store._writer.run(lambda _: release.wait()))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(store.commit([birth(KEY, message(1))]))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        release.set()
        await busy
        assert await store.commit([]) == []
        assert await store.load(KEY) is None

    async def test_of_200_calls_leaves_threads_and_connections_whole(
        self, store: SQLiteStore, session: Session, connection: sqlite3.Connection
    ) -> None:
        await session.commit(*map(message, range(1, 201)))
        threads = threading.active_count()
        for number in range(200):
            change = change_of(KEY, session.record, message(201))  # type: ignore[arg-type]
            calls = [
                asyncio.create_task(store.load(KEY, Tail(USABLE, 50, body_bytes=1 << 20))),
                asyncio.create_task(store.commit([change]) if number % 10 == 0 else store.ping()),
            ]
            for _ in range(number % 4):
                await asyncio.sleep(0)
            for each in calls:
                each.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        # Every thread is there and answers, none with a call of before.
        await store.commit([])
        all_there = threading.Barrier(READERS)
        await asyncio.gather(*(store._readers.run(lambda _: all_there.wait(timeout=60)) for _ in range(READERS)))
        assert threading.active_count() == threads
        assert await session.tail(messages=2) in ([200, 199], [201, 200])
        # No reader holds a moment of the database, which would keep the log from ever being emptied.
        busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert not busy

    async def test_of_closing_does_not_keep_the_threads(self, path: Path) -> None:
        threads = threading.active_count()
        store = open_store(path)
        await store.open()
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await store.close()
        assert threading.active_count() == threads


class TestLog:
    """The write-ahead log is written back, and does not grow for ever."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(wal, "CHECKPOINT_PAGES", 40)
        monkeypatch.setattr(wal, "LONG_LOG_PAGES", 200)
        monkeypatch.setattr(wal, "READER_WAIT_MILLISECONDS", 1)

    @staticmethod
    def pages(path: Path) -> int:
        return path.with_name(path.name + "-wal").stat().st_size // (wal.PAGE_BYTES + 24)

    async def grow(self, session: Session, commits: int = 100) -> None:
        for _ in range(commits):
            last = session.record.last_seq if session.record else 0
            await session.commit(*(message(seq, content="x" * 3000, size=3000) for seq in range(last + 1, last + 5)))

    async def test_begins_anew_when_nobody_reads(self, session: Session, path: Path) -> None:
        await self.grow(session)
        assert self.pages(path) < 200

    async def test_grows_while_somebody_reads_and_then_no_more(
        self, session: Session, connection: sqlite3.Connection, path: Path
    ) -> None:
        await self.grow(session, 1)
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM memoryd_messages").fetchone()
        await self.grow(session)
        grown = self.pages(path)
        assert grown > 500  # All commits went through all the same.
        connection.execute("COMMIT")
        await self.grow(session)
        assert self.pages(path) < grown + 300

    async def test_is_small_under_unbroken_reading(
        self, session: Session, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Reads that overlap, so that at every moment somebody reads."""
        monkeypatch.setattr(wal, "READER_WAIT_MILLISECONDS", 2_000)
        await self.grow(session, 1)
        done = False

        async def keep_reading() -> None:
            while not done:
                await session.store.load(KEY, Tail(USABLE, 200, body_bytes=1 << 30))

        readers = [asyncio.create_task(keep_reading()) for _ in range(READERS)]
        await self.grow(session, 200)
        done = True
        await asyncio.gather(*readers)
        assert self.pages(path) < 1_000


class InterruptedReader(Reader):
    """Between its first statement and its next one, something else is committed."""

    def __init__(self, connection: sqlite3.Connection, interruption: Callable[[], object]) -> None:
        super().__init__(connection, statements())
        self._interruption = interruption
        self._reads = InterruptedReads(statements(), interruption)

    def _session(self, key: SessionKey) -> SessionRow | None:
        session = super()._session(key)
        self._interruption()
        return session


class InterruptedReads(Reads):
    def __init__(self, statements: Statements, interruption: Callable[[], object]) -> None:
        super().__init__(statements, Codec())
        self._interruption = interruption

    def _session(self, key: SessionKey) -> Plan[SessionRow | None]:
        session = yield from super()._session(key)
        self._interruption()
        return session


PAGE = MessageQuery(1, 9, descending=True, limit=9, bytes=1000)


@pytest.mark.parametrize(
    "read",
    [
        lambda reader, _: seqs(reader.load(KEY, Tail(USABLE, 9)).tail),
        lambda reader, _: seqs(reader.load(KEY, Tail(USABLE, 9, body_bytes=1000)).tail),
        lambda reader, record: seqs(reader.run(lambda reads: reads.read(KEY, record.incarnation, [3, 2, 1]))[1]),
        lambda reader, _: seqs(
            reader.run(lambda reads: reads.list_messages(KEY, MessageQuery(1, 9, True, 9, 1000))).messages
        ),
        lambda reader, _: seqs(reader.run(lambda reads: reads.list_unusable(KEY, USABLE, 9))),
    ],
    ids=["load", "load with bodies", "read", "list_messages", "list_unusable"],
)
async def test_a_read_is_of_one_moment(
    session: Session, path: Path, connection: sqlite3.Connection, read: Callable[[Reader, Record], list[int]]
) -> None:
    record = await session.commit(*map(message, (1, 2, 3)))
    other = Writer(sqlite3.connect(path, isolation_level=None), statements())
    reader = InterruptedReader(
        connection, lambda: other.run(lambda writes: writes.purge(KEY, record.incarnation, 2, 2, 1))
    )
    assert read(reader, record) == [3, 2, 1]
    assert read(reader, record) == [3, 1]
    other.close()


async def test_loads_and_pages_are_of_one_moment_while_a_neighbour_appends(store: SQLiteStore, path: Path) -> None:
    neighbour = open_store(path)
    await neighbour.open()
    session = Session(neighbour, KEY)
    await session.commit(message(1))
    done = False

    async def check() -> int:
        loads = 0
        while not done:
            loaded = await store.load(KEY, Tail(USABLE, 3, body_bytes=1000))
            assert loaded is not None
            last = loaded.record.last_seq
            assert seqs(loaded.tail) == [*range(last, max(0, last - 3), -1)]
            page = await store.list_messages(KEY, MessageQuery(1, 1 << 60, True, 1, 1 << 20))
            assert page is not None
            assert page.messages[0].seq == page.record.last_seq
            loads += 1
        return loads

    checks = [asyncio.create_task(check()) for _ in range(READERS)]
    for seq in range(2, 150):
        await session.commit(message(seq))
    done = True
    assert sum(await asyncio.gather(*checks)) > 10
    await neighbour.close()


async def test_a_long_list_of_ids_is_looked_up_in_parts() -> None:
    runs = list(statements().messages_by_seq.runs(range(600)))
    assert [len(values) for _, values in runs] == [256, 256, 256]
    assert {value for _, values in runs for value in values} == set(range(600))
    assert [sql.count("?") for sql, _ in runs] == [258, 258, 258]
    assert [len(values) for _, values in statements().messages_by_seq.runs([7, 8, 9])] == [4]
    assert list(statements().messages_by_seq.runs([])) == []
