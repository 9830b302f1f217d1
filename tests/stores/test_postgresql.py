"""What is particular to the PostgreSQL store: plans and costs, locks, errors, texts."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import asyncpg
import pytest
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg

from memoryd_server.limits import MAX_OPEN_CALLS
from memoryd_server.stores.base import StoreMisconfigured, StoreUnavailable, Tail
from memoryd_server.stores.records import Folding, SessionKey, Usability
from memoryd_server.stores.registry import create_store
from memoryd_server.stores.sql import served
from memoryd_server.stores.sql.compiling import ListStatement
from memoryd_server.stores.sql.postgresql import (
    SETTINGS,
    PostgreSQLCodec,
    PostgreSQLConnection,
    PostgreSQLStore,
    from_storable,
    to_storable,
)
from memoryd_server.stores.sql.postgresql_files import SaveFileStatements
from memoryd_server.stores.sql.statements import Statements
from memoryd_server.stores.sql.tails import Asked
from tests.databases.kinds import POSTGRESQL
from tests.databases.shared import new_database
from tests.databases.sql import execute
from tests.stores.builders import (
    BOTH,
    USABLE,
    Session,
    birth,
    call,
    change_of,
    lookup,
    message,
    open_calls,
    orphan,
    result,
    summaries,
)

pytestmark = POSTGRESQL.mark

KEY = SessionKey("tenant", "agent", "session")
PLENTY = 1 << 20


@pytest.fixture
def url() -> Iterator[str]:
    with new_database(POSTGRESQL) as url:
        yield url


async def opened(url: str) -> PostgreSQLStore:
    store = create_store("test", None, url)
    assert isinstance(store, PostgreSQLStore)
    await store.open()
    return store


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgreSQLStore]:
    store = await opened(url)
    yield store
    await store.close()


@pytest.fixture
def session(store: PostgreSQLStore) -> Session:
    return Session(store, KEY)


async def explain(
    store: PostgreSQLStore, sql: str, parameters: Sequence[object], *, run: bool = True
) -> list[dict[str, Any]]:
    """The nodes of the plan that a statement has for whatever parameters, run with these and taken back again."""

    def literal(value: object, in_array: bool = False) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, list | tuple | zip):
            return f"'{{{','.join(literal(each, in_array=True) for each in value)}}}'"
        if isinstance(value, bytes):
            value = rf"\\x{value.hex()}" if in_array else rf"\x{value.hex()}"
        if isinstance(value, str):
            quoted = value.replace("'", "''")
            return f'"{quoted.replace(chr(34), chr(92) + chr(34))}"' if in_array else f"'{quoted}'"
        return str(value)

    async def explained_by(connection: PostgreSQLConnection) -> str:
        driver = connection.driver
        await driver.execute(f"BEGIN; PREPARE explained AS {sql}")
        arguments = f"({', '.join(map(literal, parameters))})" if parameters else ""
        try:
            options = f"ANALYZE {'ON' if run else 'OFF'}, FORMAT JSON"
            explained: str = await driver.fetchval(f"EXPLAIN ({options}) EXECUTE explained {arguments}")
        finally:
            await driver.execute("ROLLBACK; DEALLOCATE explained")
        return explained

    def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield plan
        for part in plan.get("Plans", ()):
            yield from nodes(part)

    [explained] = json.loads(await store._with_connection(explained_by))
    return list(nodes(explained["Plan"]))


def rows_read(nodes: Sequence[dict[str, Any]]) -> int:
    """The rows of tables that a plan looked at, filtered ones included."""
    of_tables = [node for node in nodes if "Relation Name" in node and "Scan" in node["Node Type"]]
    return sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"] for node in of_tables
    )


def deepen(url: str, *tables: str) -> None:
    """Makes the indexes of tables, other than those of keys, as deep as they are with ten times as many rows."""
    names = ", ".join(f"'{table}'::regclass" for table in tables)
    rows = execute(
        url,
        f"SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid IN ({names}) AND NOT indisunique",
    )
    for (index,) in rows:
        execute(url, f"ALTER INDEX {index} SET (fillfactor = 10)", f"REINDEX INDEX {index}")


MANY = (
    """
    INSERT INTO memoryd_sessions (
        id, tenant, agent, session_id, life, incarnation, version, activity, user_id, removed_at, record, first_seq,
        opening_to, expires_at, fold_at, abandon_at
    ) SELECT n, 'tenant', 'agent', n, 1, n, 1, n, n % 50, n, '', 1, 1, n, n, n FROM generate_series(1, 3000) n
    """,
    """
    INSERT INTO memoryd_messages (
        session, life, seq, head, position, usability, role, tokens, size, calls, prior_user, created, id
    ) SELECT n, 1, 1, 1, 0, 0, 1, 10, 100, 0, 0, n, n FROM generate_series(1, 3000) n
    """,
    """
    INSERT INTO memoryd_lookups (session, kind, id, created, digest, answer, life)
    SELECT n, 1, n, n, '', '', 1 FROM generate_series(1, 3000) n
    """,
    """
    INSERT INTO memoryd_dead_names (session, life, tenant, agent, session_id, died_at)
    SELECT n, 1, 'tenant', 'agent', n, n FROM generate_series(3001, 6000) n
    """,
    """
    INSERT INTO memoryd_leftovers (session, life, kind, tenant, user_id, due)
    SELECT n, 1, 0, 'tenant', n % 50, n FROM generate_series(3001, 6000) n
    """,
    """
    INSERT INTO memoryd_events (
        session, life, number, kind, after_seq, from_seq, to_seq, messages, epoch, created
    ) SELECT n, 1, 1, 1, 1, 1, 1, 1, 1, n FROM generate_series(1, 3000) n
    """,
    """
    INSERT INTO memoryd_summaries (session, life, number, summary)
    SELECT n, 1, 1, '' FROM generate_series(1, 3000) n
    """,
    """
    INSERT INTO memoryd_runs (session, life, id, tenant, agent, created, status, claimable_at, ended, state, head)
    SELECT n, 1, n, 'tenant', 'agent', n, n % 10, n, n, '', '' FROM generate_series(1, 3000) n
    """,
    """
    INSERT INTO memoryd_run_steps (
        session, life, run_id, number, size, created, fence, status, first_seq, messages, content_type, payload
    ) SELECT n, 1, n, 1, 1, n, 1, 1, 0, 0, '', '' FROM generate_series(1, 3000) n
    """,
)
"""Statements that make short sessions of one agent, and what is left of dead ones."""

WINDOWS = (
    Tail(USABLE, 20, opening=True, body_bytes=PLENTY),
    Tail(BOTH, 20),
    Tail(USABLE, 100_000, 200, opening=True, body_bytes=1500),
    Tail(USABLE, 20, opening=True, body_bytes=PLENTY, summary=True),
)


class TestCost:
    """(invariant 17)"""

    async def load_plan(self, store: PostgreSQLStore, key: SessionKey, tail: Tail) -> list[dict[str, Any]]:
        most = tail.messages if tail.tokens is None else tail.tokens // 10 + 1
        asked = Asked(key, tuple(tail.usabilities), most, 10, tail.body_bytes, tail.summary)
        step = next(store._reads._load_statements.rows(asked))
        return await explain(store, step.sql, step.parameters)  # type: ignore[union-attr]

    @pytest.mark.parametrize("tail", WINDOWS, ids=str)
    async def test_of_a_load_does_not_grow_with_the_history_nor_with_what_it_skips(
        self, store: PostgreSQLStore, tail: Tail
    ) -> None:
        short, long, orphans = (Session(store, KEY._replace(session_id=name)) for name in ("s", "l", "o"))
        await short.commit(*map(message, range(1, 101)), opening_to=1)
        await long.commit(*map(message, range(1, 10_001)), opening_to=1)
        await orphans.commit(*map(message, range(1, 101)), opening_to=1)
        await orphans.commit(*map(orphan, range(101, 5_101)))
        costs = [rows_read(await self.load_plan(store, each.key, tail)) for each in (short, long, orphans)]
        assert costs[0] == costs[1] == costs[2] < 60

    async def test_of_a_load_and_of_a_group_is_the_same_without_statistics_however_deep_the_index_is(
        self, store: PostgreSQLStore, url: str
    ) -> None:
        """The database expects one row then, and nothing but the order speaks against the primary key."""
        execute(url, "ALTER TABLE memoryd_messages SET (autovacuum_enabled = off)")
        short, long = (Session(store, KEY._replace(session_id=name)) for name in ("s", "l"))
        for session, length in ((short, 300), (long, 9_900)):
            for first in range(1, length, 300):
                seqs = range(first, first + 300, 3)
                turns = ((message(seq), call(seq + 1), result(seq + 2, seq + 1)) for seq in seqs)
                await session.commit(*chain.from_iterable(turns), opening_to=1)
            await session.commit(call(length + 1_000, usability=Usability.OPEN))
        deepen(url, "memoryd_messages")

        costs = []
        for session in (short, long):
            assert session.record is not None
            of_loads = [rows_read(await self.load_plan(store, session.key, tail)) for tail in WINDOWS]
            last = session.record.last_seq
            append = store._append.fetch([change_of(session.key, session.record, message(last + 1), completed=[last])])
            costs.append([*of_loads, rows_read(await explain(store, append.sql, append.parameters))])
        assert costs[0] == costs[1]
        assert max(costs[0]) < 60

    async def test_of_a_load_does_not_grow_with_other_sessions(self, store: PostgreSQLStore, session: Session) -> None:
        await session.commit(*map(message, range(1, 101)))
        before = rows_read(await self.load_plan(store, KEY, WINDOWS[0]))
        await store.commit([birth(KEY._replace(session_id=f"{n}"), message(1)) for n in range(500)])
        assert rows_read(await self.load_plan(store, KEY, WINDOWS[0])) == before

    async def test_of_a_load_with_a_summary_is_one_row_more_however_many_there_are(
        self, store: PostgreSQLStore, session: Session
    ) -> None:
        """(invariant 10)"""
        without, with_summary = WINDOWS[0], WINDOWS[-1]
        await session.commit(*map(message, range(1, 101)), opening_to=1)
        before = rows_read(await self.load_plan(store, KEY, without))
        assert rows_read(await self.load_plan(store, KEY, with_summary)) == before
        for numbers in ((1,), range(2, 17)):
            await session.commit(**summaries(*numbers))
            assert rows_read(await self.load_plan(store, KEY, with_summary)) == before + 1
            assert rows_read(await self.load_plan(store, KEY, without)) == before

    async def test_of_a_page_of_folds_does_not_grow_with_the_agent_s_sessions(self, store: PostgreSQLStore) -> None:
        keys = [KEY._replace(session_id=f"{number}") for number in range(500)]
        folding = [Folding(wanted=number if number % 25 == 0 else 0) for number in range(500)]
        await store.commit([birth(key, folding=each) for key, each in zip(keys, folding, strict=True)])
        parameters = (KEY.tenant, KEY.agent, 1 << 62, 0, 0, 11)
        assert rows_read(await explain(store, store._writes._sql.list_folds, parameters)) == 11

    @pytest.mark.parametrize("analyzed", [False, True])
    async def test_no_statement_scans_a_table_or_sorts(
        self, store: PostgreSQLStore, session: Session, url: str, analyzed: bool
    ) -> None:
        """Neither on a database that knows nothing of its tables, nor on one that knows how small they are."""
        record = await session.commit(*map(message, range(1, 31)), opening_to=5)
        if analyzed:
            execute(url, "ANALYZE")
        plans = [await self.load_plan(store, KEY, tail) for tail in WINDOWS]
        append = store._append.fetch(
            [change_of(KEY, record, message(31, metadata='{"a": 1}'), completed=[1], lookups=[lookup("31")])]
        )
        plans.append(await explain(store, append.sql, append.parameters))
        for node in (node for plan in plans for node in plan):
            assert node["Node Type"] not in {"Seq Scan", "Bitmap Heap Scan", "Sort", "Hash Join", "Merge Join"}, node

    async def test_of_an_append_does_not_grow_with_the_history(self, store: PostgreSQLStore) -> None:
        costs = []
        for length in (100, 10_000):
            session = Session(store, KEY._replace(session_id=f"{length}"))
            record = await session.commit(*map(message, range(1, length + 1)), lookups=[lookup("a")])
            append = store._append.fetch(
                [change_of(session.key, record, message(length + 1), completed=[length], lookups=[lookup("b")])]
            )
            costs.append(rows_read(await explain(store, append.sql, append.parameters)))
        assert costs[0] == costs[1] < 10

    @pytest.mark.parametrize("messages", [1, 2])
    async def test_of_an_append_does_not_grow_with_open_calls(
        self, store: PostgreSQLStore, session: Session, url: str, messages: int
    ) -> None:
        """What is stored outside of a row is only written when it changes."""
        [(outside,)] = execute(
            url, "SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'memoryd_sessions'::regclass"
        )

        def values_outside() -> set[int]:
            return {number for (number,) in execute(url, f"SELECT chunk_id FROM {outside}")}

        await session.commit(message(1), **open_calls(MAX_OPEN_CALLS))
        written = values_outside()
        assert len(written) == 1
        await session.commit(*map(message, range(2, 2 + messages)), lookups=[lookup("2")])
        assert values_outside() == written
        await session.commit(*map(message, range(10, 10 + messages)), **open_calls(MAX_OPEN_CALLS - 1))
        assert values_outside().isdisjoint(written)

    async def test_of_completing_a_group_does_not_grow_with_open_ones(self, store: PostgreSQLStore) -> None:
        session = Session(store, KEY)
        record = await session.commit(*(call(seq, usability=Usability.OPEN) for seq in range(1, 2_001)))
        append = store._append.fetch([change_of(KEY, record, message(2_001), completed=[7])])
        assert rows_read(await explain(store, append.sql, append.parameters)) < 10


def _texts() -> dict[str, str]:
    statements = Statements(PGDialect_asyncpg())  # type: ignore[no-untyped-call]
    texts: dict[str, str] = {}
    of_files = {f"{name} of files": text for name, text in vars(statements.files).items()}
    of_runs = {f"{name} of runs": text for name, text in vars(statements.runs).items()}
    of_saving = {f"{name} of saving": text for name, text in vars(SaveFileStatements(PostgreSQLCodec())).items()}
    for name, statement in {**vars(statements), **of_files, **of_runs, **of_saving}.items():
        if isinstance(statement, str):
            texts[name] = statement
        elif isinstance(statement, ListStatement):
            texts[name] = statement.variants[0][1]
        elif isinstance(statement, dict):
            texts |= {f"{name} {variant}": text for variant, text in statement.items()}
    return texts


class TestPlans:
    """Every statement is led by the index that was made for it, also on a database that knows nothing of its tables."""

    async def plan(self, store: PostgreSQLStore, sql: str) -> list[dict[str, Any]]:
        count = len(set(re.findall(r"\$\d+", sql)))
        return await explain(store, sql, [None] * count, run=False)

    async def test_no_statement_scans_a_table_nor_an_index(self, store: PostgreSQLStore) -> None:
        for name, text in _texts().items():
            for node in await self.plan(store, text):
                assert node["Node Type"] not in {"Seq Scan", "Bitmap Heap Scan", "Hash Join", "Merge Join"}, name
                assert "Index Name" not in node or "Index Cond" in node or "One-Time Filter" in node, name

    async def test_none_sorts_but_the_sweeps(self, store: PostgreSQLStore) -> None:
        sorting = {
            name
            for name, text in _texts().items()
            if any("Sort" in node["Node Type"] for node in await self.plan(store, text))
        }
        assert sorting <= {"list_purgeable", "list_expiring", "list_abandoned", "dead_name", "dead_session"}

    @pytest.mark.parametrize(
        ("name", "index"),
        [
            ("session", "memoryd_sessions_key"),
            ("session_state", "memoryd_sessions_key"),
            ("list_sessions_of_tenant", "memoryd_sessions_of_tenant"),
            ("list_sessions_of_agent", "memoryd_sessions_of_agent"),
            ("list_sessions_of_user", "memoryd_sessions_of_user"),
            ("list_sessions_of_user_and_agent", "memoryd_sessions_of_user"),
            ("list_purgeable", "memoryd_sessions_purgeable"),
            ("list_expiring", "memoryd_sessions_expiring"),
            ("list_folds", "memoryd_sessions_foldable"),
            ("entries_backwards", "memoryd_messages_in_reading_order"),
            ("entries_forwards", "memoryd_messages_in_reading_order"),
            ("dead_name", "memoryd_dead_names_key"),
            ("dead_session", "memoryd_dead_names_key"),
            ("messages_by_seq", "memoryd_messages_pkey"),
            ("matching_messages (True, False)", "memoryd_messages_pkey"),
            ("purge", "memoryd_messages_pkey"),
            ("lookups_by_id", "memoryd_lookups_pkey"),
            ("events_after", "memoryd_events_pkey"),
            ("summaries_by_number", "memoryd_summaries_pkey"),
            ("delete_summaries", "memoryd_summaries_pkey"),
            ("due_leftovers", "memoryd_leftovers_due"),
            ("list_agents", "memoryd_agents_pkey"),
            ("list_abandoned", "memoryd_sessions_abandoned"),
            ("list_of_session of runs", "memoryd_runs_of_session"),
            ("list_leaving of runs", "memoryd_runs_ended"),
            ("steps of runs", "memoryd_run_steps_pkey"),
            ("delete_steps_of_runs_before of runs", "memoryd_run_steps_pkey"),
            ("delete_first of runs", "memoryd_runs_pkey"),
        ],
    )
    async def test_the_index_is_the_one_made_for_it(self, store: PostgreSQLStore, name: str, index: str) -> None:
        assert [node["Index Name"] for node in await self.plan(store, _texts()[name]) if "Index Name" in node] == [
            index
        ]

    @pytest.mark.parametrize(
        ("name", "index"),
        [
            ("list_of_agent", "memoryd_runs_of_agent"),
            ("list_by_status", "memoryd_runs_by_status"),
            ("list_claimable", "memoryd_runs_claimable"),
            ("load_claimable", "memoryd_runs_claimable"),
            ("list_ended", "memoryd_runs_ended"),
        ],
    )
    async def test_lists_of_runs_look_sessions_up(self, store: PostgreSQLStore, name: str, index: str) -> None:
        plan = await self.plan(store, _texts()[f"{name} of runs"])
        assert [node["Index Name"] for node in plan if "Index Name" in node] == [index, "memoryd_sessions_pkey"]

    @pytest.mark.parametrize("analyzed", [False, True])
    async def test_every_plan_stays_the_same_with_many_rows_and_deep_indexes(self, url: str, analyzed: bool) -> None:
        """Nor do statistics change one that tell of short sessions."""

        async def plans() -> dict[str, list[tuple[object, object]]]:
            store = await opened(url)
            texts = _texts() | {"append": store._append.sql, "append of one": store._append.sql_of_one}
            texts["append with runs"] = store._append.sql_with_runs
            for summary in (False, True):
                step = next(store._reads._load_statements.rows(Asked(KEY, BOTH, 20, 10, PLENTY, summary)))
                texts[f"load {summary}"] = step.sql
            found = {
                name: [(node["Node Type"], node.get("Index Name")) for node in await self.plan(store, text)]
                for name, text in texts.items()
            }
            await store.close()
            return found

        before = await plans()
        tables = [name for (name,) in execute(url, "SELECT tablename FROM pg_tables WHERE tablename LIKE 'memoryd%'")]
        execute(url, *(f"ALTER TABLE {table} SET (autovacuum_enabled = off)" for table in tables), *MANY)
        deepen(url, *tables)
        if analyzed:
            execute(url, "ANALYZE")
        assert await plans() == before

    async def test_so_are_those_of_a_group_a_load_and_an_append(self, store: PostgreSQLStore) -> None:
        for name in ("complete_group", "reopen_group"):
            assert [node["Index Name"] for node in await self.plan(store, _texts()[name]) if "Index Name" in node] == [
                "memoryd_messages_in_reading_order",
                "memoryd_messages_pkey",
            ]
        for summary in (False, True):
            step = next(store._reads._load_statements.rows(Asked(KEY, BOTH, 20, 10, PLENTY, summary)))
            assert [node["Index Name"] for node in await self.plan(store, step.sql) if "Index Name" in node] == [
                "memoryd_sessions_key",
                "memoryd_messages_in_reading_order",
                "memoryd_messages_pkey",
                *(["memoryd_summaries_pkey"] if summary else []),
            ]
        for text, others in (
            (store._append.sql, {"memoryd_lookups_pkey", "memoryd_messages_in_reading_order"}),
            (
                store._append.sql_with_runs,
                {"memoryd_lookups_pkey", "memoryd_messages_in_reading_order", "memoryd_runs_pkey"},
            ),
            (store._append.sql_of_one, set()),
            (store._append.sql_of_one_lookup, set()),
        ):
            indexes = {node["Index Name"] for node in await self.plan(store, text) if "Index Name" in node}
            assert indexes == {"memoryd_sessions_key"} | others


class TestOutage:
    async def test_a_transaction_of_a_server_that_was_cut_off_does_not_hold_others_up_for_ever(
        self, store: PostgreSQLStore
    ) -> None:
        timeout = await store._with_connection(
            lambda connection: connection.driver.fetchval("SHOW idle_in_transaction_session_timeout")
        )
        assert timeout == SETTINGS["idle_in_transaction_session_timeout"] == "10s"

    async def test_a_lock_that_another_connection_keeps_is_waited_for_for_a_while(
        self, store: PostgreSQLStore, session: Session, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        record = await session.commit(message(1))
        await store._with_connection(lambda connection: connection.driver.execute("SET lock_timeout = '50ms'"))
        monkeypatch.setattr(served, "ATTEMPTS", 1)
        other = await asyncpg.connect(url)
        await other.execute("BEGIN; SELECT * FROM memoryd_sessions FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="kept a lock for long"):
            await store.commit([change_of(KEY, record, message(2))])
        await other.execute("ROLLBACK")
        await other.close()
        await session.commit(message(2))
        assert await session.tail() == [2, 1]


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - another process makes it so
            await asyncio.sleep(0.01)


class TestCancellation:
    """A cancelled call leaks nothing and leaves no partial write (invariant 16)."""

    async def test_in_a_transaction_ends_it(self, store: PostgreSQLStore, session: Session, url: str) -> None:
        await session.commit(message(1))
        other = await asyncpg.connect(url)
        await other.execute("BEGIN; SELECT * FROM memoryd_sessions FOR UPDATE")
        assert session.record is not None
        change = change_of(KEY, session.record, message(2), reopened=[1])
        running = asyncio.create_task(store.commit([change]))
        await until(lambda: execute(url, "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await other.execute("ROLLBACK")
        await other.close()
        await until(lambda: not execute(url, "SELECT 1 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"))
        assert await session.tail() == [1]


class TestErrors:
    async def test_texts_hold_neither_keys_nor_values_nor_credentials(self, url: str) -> None:
        for bad in (url.replace("://", "://user:sesame@").replace("user:sesame@postgres@", "nobody:sesame@"),):
            with pytest.raises((StoreMisconfigured, StoreUnavailable)) as raised:
                await create_store("test", None, bad).open()
            assert "sesame" not in str(raised.value)

    @pytest.mark.parametrize(
        ("change", "error", "text"),
        [
            (lambda url: f"{url}_missing", StoreMisconfigured, "no database of that name"),
            (lambda url: url.rpartition(":")[0] + ":1/nothing", StoreUnavailable, "cannot be reached"),
            (lambda url: f"{url}?sslmode=perhaps", StoreMisconfigured, "an option or a value"),
            (lambda url: f"{url}?colour=green", StoreMisconfigured, "an option or a value"),
            (lambda url: f"{url}?sslmode=require", StoreMisconfigured, "TLS"),
        ],
        ids=["no database", "no server", "no such mode", "no such option", "no TLS"],
    )
    async def test_what_keeps_a_store_from_opening_is_said(
        self, url: str, change: Callable[[str], str], error: type[Exception], text: str
    ) -> None:
        with pytest.raises(error, match=text):
            await create_store("test", None, change(url)).open()

    async def test_a_user_without_a_schema_is_told_what_to_grant(self, url: str) -> None:
        database = url.rpartition("/")[2]
        execute(
            url,
            f"CREATE ROLE {database} LOGIN",
            "REVOKE ALL ON SCHEMA public FROM public",
        )
        try:
            with pytest.raises(StoreMisconfigured, match="USAGE and CREATE on the schema public"):
                await create_store("test", None, url.replace("postgres@", f"{database}@")).open()
        finally:
            execute(url, f"DROP ROLE {database}")

    async def test_a_database_that_cannot_hold_every_text_is_refused(self, url: str) -> None:
        execute(
            url,
            "CREATE DATABASE memoryd_latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'",
        )
        try:
            with pytest.raises(StoreMisconfigured, match=r"encoding LATIN1.*ENCODING 'UTF8'"):
                await create_store("test", None, url.rpartition("/")[0] + "/memoryd_latin").open()
        finally:
            execute(url, "DROP DATABASE memoryd_latin")


class TestDurability:
    async def test_is_told_as_the_database_is_set(self, url: str) -> None:
        database = url.rpartition("/")[2]
        execute(url, f"ALTER DATABASE {database} SET synchronous_commit = off")
        store = create_store("test", None, url)
        info = await store.open()
        await store.close()
        capability = next(each for each in info.capabilities if each.name == "durable")
        assert (info.durable, capability.supported) == (False, False)
        assert "synchronous_commit = off" in capability.reason


class TestFreeTexts:
    """PostgreSQL holds no U+0000."""

    @pytest.mark.parametrize("text", ["", "plain", "\0", "\x1a", "\x1a0", "\x1a1\0", "a\0b\x1ac\x1a\0", "\0" * 9])
    def test_are_stored_reversibly(self, text: str) -> None:
        assert "\0" not in to_storable(text)
        assert from_storable(to_storable(text)) == text

    async def test_are_plain_in_the_table(self, session: Session, url: str) -> None:
        await session.commit(message(1, metadata='{"a": "ü"}', content='[{"text": "hello"}]'))
        assert [tuple(row) for row in execute(url, "SELECT content, metadata FROM memoryd_messages")] == [
            ('[{"text": "hello"}]', '{"a": "ü"}')
        ]
