"""From an empty database, from an older schema while a server of it goes on, and without the tables that were left."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, NullPool, create_engine, make_url
from sqlalchemy.ext.asyncio import create_async_engine

from memoryd_server.limits import MAX_OPEN_CALLS
from memoryd_server.stores.base import Conflict, Loaded, RunChange, Store, StoreMisconfigured, StoreUnavailable
from memoryd_server.stores.records import (
    AgentRecord,
    AgentSettings,
    FileKey,
    FileOwner,
    FileVersion,
    Folding,
    LookupKind,
    Record,
    RemovedRange,
    Role,
    RunHead,
    RunLink,
    RunStatus,
    SessionKey,
    StoredFile,
    StoredMessage,
    Tier,
    decode_record,
    encode_record,
    replace,
)
from memoryd_server.stores.registry import create_store
from memoryd_server.stores.sql import migrate
from memoryd_server.stores.sql.migrate import upgrade
from memoryd_server.stores.sql.schema import REVISION_TABLE, metadata
from tests.adapters import EACH_SQL_ADAPTER, Adapter
from tests.databases.sql import execute, with_driver
from tests.stores.builders import (
    TIME,
    USABLE,
    Session,
    birth,
    change_of,
    lookup,
    message,
    new_record,
    open_calls,
    run_state,
    seqs,
    summaries,
    summary,
)
from tests.stores.conftest import OpenStore

pytestmark = pytest.mark.parametrize("adapter", EACH_SQL_ADAPTER, indirect=True)


@pytest.fixture
def anew() -> bool:
    return True


KEY = SessionKey("tenant", "agent", "session")
SERVERS = 10


def run_sql(url: str, *statements: str) -> Sequence[Any]:
    """Runs statements on a database. Returns: the rows of the last one."""
    if not url.startswith("sqlite"):
        return execute(url, *statements)
    connection = sqlite3.connect(make_url(url).database or "", isolation_level=None, timeout=30)
    try:
        for statement in statements[:-1]:
            connection.execute(statement)
        return connection.execute(statements[-1]).fetchall()
    finally:
        connection.close()


async def make_schema(url: str, revision: str) -> None:
    """Makes the schema of an older memoryd, with its own migrations."""
    if url.startswith("sqlite"):
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            upgrade(connection, revision)
        engine.dispose()
        return
    async_engine = create_async_engine(with_driver(url), poolclass=NullPool)
    async with async_engine.begin() as async_connection:
        await async_connection.run_sync(upgrade, revision)
    await async_engine.dispose()


async def take_back(url: str, revision: str) -> None:
    """Takes the newest migrations back, as an administrator does who returns to an older memoryd."""

    def downgrade(connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(Path(migrate.__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.downgrade(config, revision)

    if url.startswith("sqlite"):
        engine = create_engine(url)
        with engine.begin() as connection:
            downgrade(connection)
        engine.dispose()
        return
    async_engine = create_async_engine(with_driver(url), poolclass=NullPool)
    async with async_engine.begin() as async_connection:
        await async_connection.run_sync(downgrade)
    await async_engine.dispose()


class OldServer:
    """What a server of schema 0001 does, with its statements."""

    def __init__(self, url: str) -> None:
        self._url = url

    def read(self) -> tuple[int, Record]:
        [(number, text)] = run_sql(self._url, f"SELECT id, record FROM memoryd_sessions WHERE {self._of_key()}")
        return number, decode_record(text)

    def be_born(self, *messages: StoredMessage) -> None:
        record = new_record(last_seq=messages[-1].seq, messages=len(messages), bytes=10_000, largest=100)
        values = (*KEY, 1, record.incarnation, record.version, record.activity, None, None, encode_record(record))
        columns = "tenant, agent, session_id, life, incarnation, version, activity, user_id, removed_at, record"
        run_sql(self._url, f"INSERT INTO memoryd_sessions ({columns}) VALUES {literals(values)}")
        number, _ = self.read()
        self._insert(number, messages)

    def append(self, *messages: StoredMessage, **fields: Any) -> bool:
        """Returns: whether no other server came between."""
        number, record = self.read()
        # It knows nothing of newer fields, and drops them.
        changed = replace(record, version=record.version + 1, **{"last_seq": messages[-1].seq, **fields})
        run_sql(
            self._url,
            f"UPDATE memoryd_sessions SET version = {changed.version}, record = {literal(encode_record(changed))} "
            f"WHERE id = {number} AND version = {record.version}",
        )
        _, now = self.read()
        if now != changed:
            return False
        self._insert(number, messages)
        return True

    def stored(self) -> list[int]:
        number, record = self.read()
        rows = run_sql(
            self._url,
            f"SELECT seq, content FROM memoryd_messages WHERE session = {number} AND life = 1 AND usability = 0 "
            f"AND head >= {record.first_seq} ORDER BY head, position, seq",
        )
        return [seq for seq, _ in rows]

    def _insert(self, number: int, messages: Sequence[StoredMessage]) -> None:
        columns = (
            "session, life, seq, head, position, usability, role, tokens, size, calls, answers, prior_user, created, "
            "id, name, run_id, content, metadata, extra"
        )
        for each in messages:
            values = (number, 1, each.seq, each.head, 0, 0, int(each.role), each.tokens, each.size, 0, None)
            bodies = (each.prior_user, each.created, each.id, None, None, each.content, None, None)
            run_sql(
                self._url,
                f"INSERT INTO memoryd_messages ({columns}) VALUES {literals((*values, *bodies))}",
                "INSERT INTO memoryd_lookups (session, kind, id, created, digest, answer) "
                f"VALUES {literals((number, 0, each.id, each.created, '', 'null'))}",
            )

    @staticmethod
    def _of_key() -> str:
        return " AND ".join(f"{name} = {literal(value)}" for name, value in KEY._asdict().items())


def literal(value: object) -> str:
    if isinstance(value, bytes):
        value = value.decode()
    return "NULL" if value is None else str(value) if isinstance(value, int) else f"'{value}'"


def literals(values: Sequence[object]) -> str:
    return f"({', '.join(map(literal, values))})"


async def test_ten_servers_start_at_once_on_an_empty_database(adapter: Adapter, store_url: str) -> None:
    stores = [create_store("test", adapter.type, store_url) for _ in range(SERVERS)]
    infos = await asyncio.gather(*(store.open() for store in stores))
    assert len({info.secret for info in infos}) == 1
    await Session(stores[0], KEY).commit(message(1))
    for store in stores:
        assert await store.load(KEY) is not None
        await store.close()


async def test_ten_servers_start_at_once_on_an_older_schema(adapter: Adapter, store_url: str) -> None:
    await make_schema(store_url, "0001")
    old = OldServer(store_url)
    old.be_born(*map(message, range(1, 6)))
    stores = [create_store("test", adapter.type, store_url) for _ in range(SERVERS)]
    await asyncio.gather(*(store.open() for store in stores))
    for store in stores:
        assert seqs(await Session(store, KEY).stored()) == [1, 2, 3, 4, 5]
        await store.close()


async def test_a_server_of_the_older_schema_goes_on_meanwhile(store_url: str, open_store: OpenStore) -> None:
    await make_schema(store_url, "0001")
    old = OldServer(store_url)
    old.be_born(message(1))
    done = threading.Event()
    appended = [1]

    def go_on() -> None:
        while not done.is_set():
            assert old.append(message(appended[-1] + 1))
            appended.append(appended[-1] + 1)

    going_on = asyncio.create_task(asyncio.to_thread(go_on))
    while len(appended) < 3 and not going_on.done():  # noqa: ASYNC110 - a thread appends
        await asyncio.sleep(0.01)
    store = await open_store()
    migrated_at = len(appended)
    while len(appended) < migrated_at + 3 and not going_on.done():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    done.set()
    await going_on
    assert seqs(await Session(store, KEY).stored()) == appended == old.stored()
    known = await store.find(KEY, LookupKind.MESSAGE, [f"message-{seq}" for seq in appended])
    assert len(known) == len(appended)


class TestBothServers:
    """On one database, of the new schema."""

    @pytest.fixture
    async def old(self, store_url: str) -> OldServer:
        await make_schema(store_url, "0001")
        old = OldServer(store_url)
        old.be_born(*map(message, range(1, 6)))
        return old

    @pytest.fixture
    async def store(self, old: OldServer, open_store: OpenStore) -> Store:
        return await open_store()

    @pytest.fixture
    async def session(self, store: Store) -> Session:
        loaded = await store.load(KEY)
        assert loaded is not None
        return Session(store, KEY, loaded.record)

    async def test_see_each_others_messages(self, old: OldServer, store: Store, session: Session) -> None:
        await session.commit(message(6), lookups=[lookup("message-6")])
        assert old.append(message(7))
        assert old.stored() == [1, 2, 3, 4, 5, 6, 7]
        assert await session.tail(messages=3, body_bytes=1 << 20) == [7, 6, 5]
        loaded = await store.load(KEY)
        assert loaded is not None
        session.record = loaded.record
        await session.commit(message(8))
        assert old.stored() == seqs(await session.stored()) == [1, 2, 3, 4, 5, 6, 7, 8]

    async def test_do_not_overwrite_each_other(self, old: OldServer, store: Store, session: Session) -> None:
        assert old.append(message(6))
        assert session.record is not None
        assert await store.commit([change_of(KEY, session.record, message(6))]) == [Conflict()]
        assert old.stored() == [1, 2, 3, 4, 5, 6]

    async def test_what_the_older_one_takes_away_is_not_answered(
        self, old: OldServer, store: Store, session: Session
    ) -> None:
        """It leaves the columns that it does not know as they were."""
        await session.commit(message(6, role=Role.SYSTEM), opening_to=0)
        removed = (RemovedRange(1, 6, 1),)
        assert old.append(message(7, role=Role.SYSTEM), message(8), first_seq=7, opening_to=7, removed=removed)
        loaded = await session.load(messages=5, opening=True, body_bytes=1 << 20)
        assert (seqs(loaded.tail), seqs(loaded.opening)) == ([8, 7], [7])
        assert await session.tail(usabilities=USABLE, tokens=1000) == [8, 7]

    async def test_know_the_open_calls_of_the_older_one(self, old: OldServer, store: Store, session: Session) -> None:
        """However many they are: they move out of the record with the next change."""
        waiting = open_calls(MAX_OPEN_CALLS)
        assert old.append(message(6), **waiting)
        assert (await session.load(messages=1)).record.open == waiting["open"]
        for seq in (7, 8):
            loaded = await store.load(KEY)
            assert loaded is not None
            session.record = loaded.record
            await session.commit(message(seq), lookups=[lookup(f"message-{seq}")])
            assert await store.load(KEY) == Loaded(session.record)
            assert session.record.open == waiting["open"]

    async def test_do_not_lose_open_calls_that_the_older_one_cannot_see(
        self, old: OldServer, store: Store, session: Session
    ) -> None:
        record = await session.commit(message(6), **open_calls(MAX_OPEN_CALLS))
        assert not old.append(message(7))
        with pytest.raises(msgspec.ValidationError):
            _ = old.read()[1].open_state
        assert old.stored() == [1, 2, 3, 4, 5, 6]
        assert await store.load(KEY) == Loaded(record)
        record = await session.commit(message(7), **open_calls(2))
        assert old.append(message(8))
        assert old.read()[1].open_state == record.open_state

    async def test_do_not_lose_summaries_that_the_older_one_does_not_know(
        self, old: OldServer, store: Store, session: Session
    ) -> None:
        """Where originals are removed, they would be all that is left of these."""
        record = await session.commit(message(6), **summaries(1))
        assert not old.append(message(7))
        assert await store.load(KEY) == Loaded(record)
        assert (await session.load(summary=True)).summary == summary(1)
        await session.commit(message(7), lookups=[lookup("message-7")])
        assert not old.append(message(8))
        await session.commit(summaries=(), dropped_summaries=(1,))
        assert old.append(message(8))

    async def test_do_not_forget_that_a_client_is_to_make_a_summary(
        self, old: OldServer, store: Store, session: Session
    ) -> None:
        await session.commit(message(6), folding=Folding(wanted=100))
        assert not old.append(message(7))
        assert (await store.list_folds(KEY.tenant, KEY.agent, 101, 10)).keys == [KEY]
        await session.commit(message(7), folding=Folding())
        assert (await store.list_folds(KEY.tenant, KEY.agent, 101, 10)).keys == []
        assert old.append(message(8))

    async def test_do_not_lose_unfinished_runs_that_the_older_one_does_not_know(
        self, old: OldServer, store: Store, session: Session
    ) -> None:
        await session.commit(message(6), **begun("run"))
        assert not old.append(message(7))
        loaded = await store.load_run(KEY, "run")
        assert loaded is not None
        assert loaded[0] == session.record
        assert loaded[0].runs == begun("run")["runs"]
        ended = RunChange("run", run_state(RunStatus.COMPLETED, version=2, ended=TIME), None)
        await session.commit(message(7), changed_runs=(ended,), runs=())
        assert old.append(message(8))
        assert [name.run_id for name in await store.list_ended_runs("tenant", "agent", TIME + 1, 10)] == ["run"]


def begun(*run_ids: str) -> dict[str, Any]:
    """What a change holds that begins runs."""
    return {
        "changed_runs": tuple(RunChange(run_id, run_state(), RunHead(TIME)) for run_id in run_ids),
        "runs": tuple(RunLink(run_id, run_state()) for run_id in run_ids),
    }


class TestRuns:
    """(schema 0007)"""

    async def test_a_schema_that_is_taken_back_keeps_the_sessions_without_them(
        self, adapter: Adapter, store_url: str, open_store: OpenStore
    ) -> None:
        """An older server goes on with those whose records have nothing else that it does not know."""
        store = await open_store()
        kinds: dict[str, dict[str, Any]] = {
            "plain": {},
            "runs": {},
            "summaries": summaries(1),
            "wanted": {"folding": Folding(wanted=100)},
            "open": open_calls(MAX_OPEN_CALLS),
        }
        records: dict[str, Record] = {}
        for name, fields in kinds.items():
            session = Session(store, KEY._replace(session_id=name))
            runs = {} if name == "plain" else begun("a", 'b","runs":[["')
            labels = {"runs": 'of "runs":[[] \u00e4'}
            records[name] = await session.commit(message(1), labels=labels, **fields, **runs)
        await store.close()
        await take_back(store_url, "0006")
        rows = run_sql(store_url, "SELECT session_id, version FROM memoryd_sessions")
        signs = {name if isinstance(name, str) else name.decode(): version > 0 for name, version in rows}
        assert signs == {"plain": True, "runs": True, "summaries": False, "wanted": False, "open": False}
        again = create_store("test", adapter.type, store_url)
        await again.open()
        try:
            for name, record in records.items():
                key = KEY._replace(session_id=name)
                assert await again.load(key) == Loaded(replace(record, runs=()))
                assert await again.load_run(key, "a") == (replace(record, runs=()), None)
                await Session(again, key, replace(record, runs=())).commit(**begun("a"))
            assert len(await again.list_claimable("tenant", "agent", TIME + 1, 10)) == len(kinds)
        finally:
            await again.close()


class TestMemoryFiles:
    """(schema 0006)"""

    async def test_an_older_server_leaves_the_settings_of_agents_as_they_are(
        self, store_url: str, open_store: OpenStore
    ) -> None:
        await make_schema(store_url, "0005")
        insert = "INSERT INTO memoryd_agents (tenant, agent, version, updated, policy) VALUES "
        run_sql(store_url, insert + literals(("tenant", "before", 1, 5, "{}")), "SELECT 1")
        store = await open_store()
        run_sql(store_url, insert + literals(("tenant", "beside", 1, 5, "{}")), "SELECT 1")
        agents = {name: AgentRecord("tenant", name, 1, 5) for name in ("before", "beside")}
        assert await store.list_agents("tenant", "", 10) == list(agents.values())
        changed = msgspec.structs.replace(agents["before"], version=2, settings=AgentSettings(load_memory=True))
        assert await store.save_agent(changed)
        run_sql(store_url, "UPDATE memoryd_agents SET version = 3, updated = 6 WHERE agent = 'before'", "SELECT 1")
        assert await store.load_agent("tenant", "before") == msgspec.structs.replace(changed, version=3, updated=6)

    async def test_a_schema_that_is_taken_back_keeps_the_rest(
        self, adapter: Adapter, store_url: str, open_store: OpenStore
    ) -> None:
        store = await open_store()
        session = Session(store, KEY)
        await session.commit(message(1))
        key = FileKey(FileOwner("tenant", Tier.USER, "user"), "MEMORY.md")
        file = StoredFile(key, "1" * 32, FileVersion(1, "2" * 64, 1, "", 1), b"a")
        assert await store.save_file(file, None)
        await store.close()
        await take_back(store_url, "0005")
        again = create_store("test", adapter.type, store_url)
        await again.open()
        try:
            assert seqs(await Session(again, KEY, session.record).stored()) == [1]
            assert await again.load_files([key]) == []
            assert await again.save_file(file, None)
        finally:
            await again.close()


async def test_a_newer_schema_is_refused(adapter: Adapter, store_url: str, open_store: OpenStore) -> None:
    await open_store()
    run_sql(store_url, "UPDATE memoryd_schema SET version_num = '9999'", "SELECT 1")
    with pytest.raises(StoreMisconfigured, match=r"schema 9999, which is newer .* Upgrade memoryd"):
        await create_store("test", adapter.type, store_url).open()


TABLES = [table.name for table in metadata.sorted_tables]


@pytest.mark.parametrize("name", [*TABLES, REVISION_TABLE])
async def test_a_table_of_somebody_else_keeps_a_store_from_opening(adapter: Adapter, store_url: str, name: str) -> None:
    run_sql(store_url, f"CREATE TABLE {name} (colour INTEGER)", "SELECT 1")
    with pytest.raises(StoreMisconfigured, match="memoryd did not make"):
        await create_store("test", adapter.type, store_url).open()


async def test_without_one_of_its_tables_a_store_does_not_open(
    adapter: Adapter, store_url: str, open_store: OpenStore
) -> None:
    await open_store()
    run_sql(store_url, "ALTER TABLE memoryd_leases RENAME TO leases", "SELECT 1")
    with pytest.raises(StoreMisconfigured, match="lacks some"):
        await create_store("test", adapter.type, store_url).open()


@pytest.mark.parametrize("name", TABLES)
async def test_a_store_is_not_available_while_one_of_its_tables_is_gone(
    store_url: str, store: Store, name: str
) -> None:
    await Session(store, KEY).commit(message(1))
    run_sql(store_url, f"ALTER TABLE {name} RENAME TO elsewhere", "SELECT 1")
    with pytest.raises(StoreUnavailable, match="tables of memoryd are gone"):
        await store.ping()
    run_sql(store_url, f"ALTER TABLE elsewhere RENAME TO {name}", "SELECT 1")
    await store.ping()
    assert seqs(await Session(store, KEY).stored()) == [1]


async def test_calls_without_the_tables_say_that_they_are_gone(store_url: str, store: Store, session: Session) -> None:
    await session.commit(message(1))
    assert session.record is not None
    run_sql(store_url, *(f"DROP TABLE {name}" for name in [*TABLES, REVISION_TABLE]), "SELECT 1")
    for call in (
        store.load(KEY),
        session.tail(),
        store.commit([change_of(KEY, session.record, message(2))]),
        store.commit([birth(KEY._replace(session_id="other"))]),
        store.begin_staging("tenant", "", 1),
        store.lease("sweep", "one", 1.0),
        store.load_files([FileKey(FileOwner("tenant", Tier.USER, "user"), "MEMORY.md")]),
        store.load_run(KEY, "run"),
    ):
        with pytest.raises(StoreUnavailable, match="restart memoryd to make new ones"):
            await call
