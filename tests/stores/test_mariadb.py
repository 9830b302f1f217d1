"""What is particular to the store on MariaDB and MySQL: costs, packets, locks, a failover, errors, settings, TLS."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import asyncmy
import pytest
import trustme
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from memoryd_server.stores.base import (
    Change,
    Committed,
    Due,
    Known,
    RunChange,
    RunQuery,
    SessionQuery,
    StoreMisconfigured,
    StoreUnavailable,
    Tail,
)
from memoryd_server.stores.records import Folding, RunHead, RunLink, RunStatus, SessionKey, Usability
from memoryd_server.stores.registry import create_store
from memoryd_server.stores.sql.mariadb import MariaDBStore
from memoryd_server.stores.sql.mariadb_connection import MariaDBConnection
from memoryd_server.stores.sql.mariadb_texts import in_packets, literal
from tests.databases.kinds import MARIADB
from tests.databases.plugin import StartDatabaseServer
from tests.databases.shared import new_database
from tests.databases.sql import execute
from tests.stores.builders import (
    BOTH,
    TIME,
    USABLE,
    Session,
    birth,
    born,
    call,
    change_of,
    lookup,
    message,
    orphan,
    run_state,
    step,
    summaries,
    summary,
)
from tests.stores.counting_proxy import counting_proxy

pytestmark = MARIADB.mark

KEY = SessionKey("tenant", "agent", "session")
PLENTY = 1 << 20


@pytest.fixture
def url() -> Iterator[str]:
    with new_database(MARIADB) as url:
        yield url


async def opened(url: str) -> MariaDBStore:
    store = create_store("test", None, url)
    assert isinstance(store, MariaDBStore)
    await store.open()
    return store


@pytest.fixture
async def store(url: str) -> AsyncIterator[MariaDBStore]:
    store = await opened(url)
    yield store
    await store.close()


@pytest.fixture
def session(store: MariaDBStore) -> Session:
    return Session(store, KEY)


async def run(store: MariaDBStore, *texts: str) -> None:
    """Runs statements on the connection that the store would use next."""
    await store._with_connection(lambda connection: connection.run(*(text.encode() for text in texts)))


async def fetch(store: MariaDBStore, sql: str) -> Sequence[tuple[Any, ...]]:
    return await store._with_connection(lambda connection: connection.fetch(sql))


async def give_birth(store: MariaDBStore, *births: Change) -> None:
    for some in batched(births, 20):
        assert await store.commit(some) == [Committed()] * len(some)


def batched(changes: Sequence[Change], size: int) -> Iterator[Sequence[Change]]:
    return (changes[start : start + size] for start in range(0, len(changes), size))


WINDOWS = (
    Tail(USABLE, 20, opening=True, body_bytes=PLENTY),
    Tail(BOTH, 20),
    Tail(USABLE, 100_000, 200, opening=True, body_bytes=1500),
    Tail(USABLE, 20, opening=True, body_bytes=PLENTY, summary=True),
)


class TestCost:
    """(invariant 17)"""

    async def rows_read(self, store: MariaDBStore, work: Callable[[MariaDBStore], Awaitable[object]]) -> int:
        """By the server's own count. Sorts are counted, too: of each a row for each row that is sorted."""
        await run(store, "FLUSH STATUS")
        await work(store)
        counted = "variable_name LIKE 'Handler\\_read\\_%' OR variable_name IN ('Sort_rows', 'Created_tmp_disk_tables')"
        return sum(int(value) for _, value in await fetch(store, f"SHOW SESSION STATUS WHERE {counted}"))

    @pytest.mark.parametrize("is_known", [True, False], ids=["known", "new to the server"])
    @pytest.mark.parametrize("tail", WINDOWS, ids=str)
    async def test_of_a_load_does_not_grow_with_the_history_nor_with_what_it_skips(
        self, store: MariaDBStore, tail: Tail, is_known: bool
    ) -> None:
        short, long, orphans = (Session(store, KEY._replace(session_id=name)) for name in ("s", "l", "o"))
        await short.commit(*map(message, range(1, 101)), opening_to=1)
        await long.commit(*map(message, range(1, 10_001)), opening_to=1)
        await orphans.commit(*map(message, range(1, 101)), opening_to=1)
        await orphans.commit(*map(orphan, range(101, 5_101)))
        await orphans.commit(*(call(seq, usability=Usability.OPEN) for seq in range(5_101, 10_101)))
        costs = []
        for each in (short, long, orphans):
            await store.load(each.key, tail)
            if not is_known:
                store._known.drop(each.key)
            costs.append(await self.rows_read(store, lambda store, key=each.key: store.load(key, tail)))  # type: ignore[misc]
        assert costs[0] == costs[1] < 500
        # Windows with open groups look at as many of these as of the others.
        assert costs[2] <= 2 * costs[0]

    async def test_of_a_load_does_not_grow_with_other_sessions(self, store: MariaDBStore, session: Session) -> None:
        await session.commit(*map(message, range(1, 101)))
        await session.tail()
        before = await self.rows_read(store, lambda store: store.load(KEY, WINDOWS[0]))
        await give_birth(store, *(birth(KEY._replace(session_id=f"{n}"), message(1)) for n in range(200)))
        assert await self.rows_read(store, lambda store: store.load(KEY, WINDOWS[0])) == before

    async def test_of_a_load_does_not_grow_with_the_summaries(self, store: MariaDBStore, session: Session) -> None:
        """(invariant 10)"""
        await session.commit(*map(message, range(1, 101)), opening_to=1)
        costs = []
        for numbers in ((1,), range(2, 17)):
            await session.commit(**summaries(*numbers))
            await store.load(KEY, WINDOWS[-1])
            costs.append(await self.rows_read(store, lambda store: store.load(KEY, WINDOWS[-1])))
            loaded = await store.load(KEY, WINDOWS[-1])
            assert loaded is not None
            assert loaded.summary == summary(numbers[-1])
        assert costs[0] == costs[1]

    async def test_of_a_commit_of_a_summary_does_not_grow_with_the_history(self, store: MariaDBStore) -> None:
        """(invariant 10)"""
        costs = []
        for length in (100, 10_000):
            session = Session(store, KEY._replace(session_id=f"{length}"))
            await session.commit(*map(message, range(1, length + 1)))
            await session.commit(**summaries(1))
            replace_it = lambda _, each=session: each.commit(**summaries(2), dropped_summaries=(1,))  # noqa: E731
            costs.append(await self.rows_read(store, replace_it))
        assert costs[0] == costs[1] < 20

    async def test_of_a_page_of_folds_does_not_grow_with_the_agent_s_sessions(self, store: MariaDBStore) -> None:
        keys = [KEY._replace(session_id=f"{number}") for number in range(200)]
        folding = [Folding(wanted=1 + number if number % 2 else 0) for number in range(200)]
        await give_birth(store, *(birth(key, folding=each) for key, each in zip(keys, folding, strict=True)))
        costs, after = [], ""
        for _ in range(9):
            folds = partial(store.list_folds, KEY.tenant, KEY.agent, 1_000, 10, after)
            costs.append(await self.rows_read(store, lambda _, folds=folds: folds()))  # type: ignore[misc]
            after = (await folds()).after
            assert after
        assert max(costs) <= 25

    async def test_of_steps_in_reading_order_does_not_grow_with_the_history(self, store: MariaDBStore) -> None:
        costs = []
        for length in (100, 10_000):
            session = Session(store, KEY._replace(session_id=f"{length}"))
            record = await session.commit(*map(message, range(1, length + 1)))
            step = partial(store.list_in_reading_order, session.key, record.incarnation, 50, length, 20)
            costs.append(await self.rows_read(store, lambda _, step=step: step()))  # type: ignore[misc]
        assert costs[0] == costs[1] < 50

    async def test_of_an_append_does_not_grow_with_the_history(self, store: MariaDBStore) -> None:
        costs = []
        for length in (100, 10_000):
            session = Session(store, KEY._replace(session_id=f"{length}"))
            await session.commit(*map(message, range(1, length + 1)), lookups=[lookup("a")])
            await session.commit()
            append = lambda _, each=session, seq=length: each.commit(  # noqa: E731
                message(seq + 1), completed=[seq], lookups=[lookup("b")]
            )
            costs.append(await self.rows_read(store, append))
        assert costs[0] == costs[1] < 20

    @pytest.mark.parametrize(
        ("agent", "user_id"), [(None, None), ("agent", None), (None, "user"), ("agent", "user")], ids=str
    )
    async def test_of_a_page_of_sessions_does_not_grow_with_those_before_it(
        self, store: MariaDBStore, agent: str | None, user_id: str | None
    ) -> None:
        keys = [KEY._replace(session_id=f"{number}") for number in range(200)]
        await give_birth(store, *(birth(key, user_id="user", activity=number) for number, key in enumerate(keys)))
        costs, after = [], ""
        for _ in range(15):
            query = SessionQuery(KEY.tenant, agent, user_id, 10, after)
            costs.append(await self.rows_read(store, lambda store, query=query: store.list_sessions(query)))  # type: ignore[misc]
            after = (await store.list_sessions(query)).after
        assert max(costs) <= 25

    async def test_of_lists_of_runs_does_not_grow_with_the_agent_s_runs(self, store: MariaDBStore) -> None:
        costs: list[int] = []
        for agent, count in (("few", 20), ("many", 400)):
            for number in range(0, count, 20):
                key = SessionKey(KEY.tenant, agent, f"{number}")
                run = partial(run_state, RunStatus.COMPLETED, ended=TIME) if number % 40 else run_state
                begun = [RunChange(f"{each}", run(), RunHead(TIME + each)) for each in range(number, number + 20)]
                await give_birth(store, birth(key, changed_runs=begun))
            running = frozenset({RunStatus.RUNNING})
            reads = (
                partial(store.list_runs, RunQuery(KEY.tenant, agent, None, frozenset(), 10)),
                partial(store.list_runs, RunQuery(KEY.tenant, agent, None, running, 10)),
                partial(store.list_runs, RunQuery(KEY.tenant, agent, "0", frozenset(), 10)),
                partial(store.list_claimable, KEY.tenant, agent, TIME, 10),
                partial(store.load_claimable, KEY.tenant, agent, TIME, 4),
                partial(store.list_ended_runs, KEY.tenant, agent, TIME + 1, 10),
            )
            costs += [await self.rows_read(store, lambda _, read=read: read()) for read in reads]  # type: ignore[misc]
        assert max(costs) <= 30

    async def test_of_a_page_of_due_sessions_does_not_grow_with_those_before_it(self, store: MariaDBStore) -> None:
        keys = [KEY._replace(session_id=f"{number}") for number in range(200)]
        await give_birth(store, *(birth(key, ttl=1, activity=number) for number, key in enumerate(keys)))
        costs, after = [], ""
        for _ in range(15):
            due = partial(store.list_due, Due.EXPIRY, 1_000, 10, after)
            costs.append(await self.rows_read(store, lambda _, due=due: due()))  # type: ignore[misc]
            after = (await due()).after
        assert max(costs) <= 25

    async def test_of_a_step_does_not_grow_with_the_runs_and_their_steps(self, store: MariaDBStore) -> None:
        costs = []
        for count in (2, 200):
            session = Session(store, KEY._replace(session_id=f"{count}"))
            state = run_state(until=TIME)
            await session.commit(
                changed_runs=[RunChange(f"{each}", state, RunHead(TIME)) for each in range(count)],
                new_steps=[step("1", number) for number in range(1, count)],
                runs=(RunLink("1", state),),
            )
            await session.commit()
            next_state = run_state(version=2, until=TIME + 9, updated=TIME + 8)
            commit_step = partial(
                session.commit,
                *(message(1), message(2)),
                changed_runs=[RunChange("1", next_state, None)],
                new_steps=[step("1", count)],
                runs=(RunLink("1", next_state),),
            )
            costs.append(await self.rows_read(store, lambda _, commit_step=commit_step: commit_step()))  # type: ignore[misc]
        assert costs[0] == costs[1] < 10


class TestCommits:
    """Many changes in one text are each made or refused by itself."""

    async def test_a_session_that_another_server_gave_a_new_life_is_a_conflict(
        self, store: MariaDBStore, session: Session, url: str
    ) -> None:
        """What this server knows of the session is of its earlier life."""
        record = await session.commit(message(1))
        await session.tail()
        neighbour = await opened(url)
        reborn = birth(KEY, message(1, content="new"))
        assert await neighbour.commit([Change(KEY, record, reborn.record, reborn.messages)]) == [Committed()]
        outcomes = await store.commit([change_of(KEY, record, message(2))])
        assert [type(outcome).__name__ for outcome in outcomes] == ["Conflict"]
        loaded = await store.load(KEY, Tail(USABLE, 5, body_bytes=PLENTY))
        assert loaded is not None
        assert [*loaded.tail] == [message(1, content="new")]
        assert await store.commit([change_of(KEY, born(reborn), message(2))]) == [Committed()]
        await neighbour.close()

    async def test_what_exceeds_a_packet_of_the_database_is_sent_in_several(
        self, store: MariaDBStore, session: Session
    ) -> None:
        """A text of control characters takes six times as much as JSON, and more as a statement."""
        content = '[{"text":"' + r"\u0001" * (PLENTY // 2) + '"}]'
        await session.commit()
        await session.commit()
        stored = [message(seq, content=content, size=PLENTY // 2) for seq in range(1, 8)]
        await session.commit(*stored, lookups=[lookup("1")])
        assert await session.stored() == stored
        with_known_id = change_of(KEY, session.record, *(message(seq, content=content) for seq in range(8, 15)))  # type: ignore[arg-type]
        assert await store.commit(
            [Change(KEY, session.record, with_known_id.record, with_known_id.messages, lookups=[lookup("1")])]
        ) == [Known([lookup("1")])]
        assert len(await session.stored()) == 7

    def test_packets_hold_as_many_statements_as_fit(self) -> None:
        assert in_packets([b"a" * 4, b"b" * 4, b"c" * 20, b"d"], 10) == [[b"a" * 4, b"b" * 4], [b"c" * 20], [b"d"]]


class TestOutage:
    async def test_a_lock_that_another_connection_keeps_is_waited_for_for_a_while(
        self, store: MariaDBStore, session: Session, other: Any
    ) -> None:
        record = await session.commit(message(1))
        await run(store, "SET innodb_lock_wait_timeout = 0")
        await other.query("BEGIN")
        await other.query("SELECT * FROM memoryd_sessions FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="held the session for long"):
            await store.commit([change_of(KEY, record, message(2))])
        await other.rollback()
        await session.commit(message(2))
        assert await session.tail() == [2, 1]

    async def test_a_server_that_takes_no_writes_is_left_for_the_one_that_does(
        self, start_database_server: StartDatabaseServer
    ) -> None:
        """After a failover the name of the server leads to another one, the old connections to the old one."""
        server = start_database_server(MARIADB)
        with server.new_database() as url:
            execute(
                url, "CREATE USER memoryd", "GRANT ALL ON *.* TO memoryd", "REVOKE READ ONLY ADMIN ON *.* FROM memoryd"
            )
            async with counting_proxy(url.replace("root", "memoryd")) as (proxy, through):
                store = await opened(through)
                session = Session(store, KEY)
                await session.commit(message(1))
                made = proxy.connections
                execute(url, "SET GLOBAL read_only = 1")
                with pytest.raises(StoreUnavailable, match="primary server"):
                    await session.commit(message(2))
                execute(url, "SET GLOBAL read_only = 0")
                await session.commit(message(2))
                assert proxy.connections > made
                await store.close()


@pytest.fixture
async def other(url: str) -> AsyncIterator[Any]:
    """A connection of somebody else."""
    of = make_url(url)
    driver = await asyncmy.connect(host=of.host, port=of.port, user=of.username, database=of.database, autocommit=True)
    yield driver
    await driver.ensure_closed()


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - another process makes it so
            await asyncio.sleep(0.01)


def sessions_are_free(url: str) -> bool:
    """Whether no transaction holds a lock on a session."""
    try:
        execute(url, "SELECT 1 FROM memoryd_sessions FOR UPDATE NOWAIT")
    except DBAPIError:
        return False
    return True


class TestCancellation:
    """A cancelled call leaks nothing and leaves no partial write (invariant 16)."""

    async def test_in_a_transaction_ends_it(self, store: MariaDBStore, session: Session, url: str, other: Any) -> None:
        await session.commit(message(1))
        await other.query("BEGIN")
        await other.query("SELECT * FROM memoryd_sessions FOR UPDATE")
        assert session.record is not None
        running = asyncio.create_task(store.commit([change_of(KEY, session.record, message(2), reopened=[1])]))
        database = url.rpartition("/")[2]
        waiting = (
            f"SELECT 1 FROM information_schema.processlist WHERE db = '{database}' AND RIGHT(info, 10) = 'FOR UPDATE'"
        )
        await until(lambda: execute(url, waiting))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await other.rollback()
        await until(lambda: sessions_are_free(url))
        assert await session.tail() == [1]


class TestErrors:
    @pytest.mark.parametrize(
        ("change", "error", "text"),
        [
            (lambda url: f"{url}_missing", StoreMisconfigured, "Create the database"),
            (lambda url: url.rpartition(":")[0] + ":1/nothing", StoreUnavailable, "MariaDB .* cannot be reached"),
            (lambda url: url.replace("root", "nobody:sesame"), StoreMisconfigured, "right password"),
            (lambda url: f"{url}?isolation=none", StoreMisconfigured, "sets isolation, which memoryd does not know"),
            (lambda url: f"{url}?charset=latin1", StoreMisconfigured, "speaks utf8mb4 alone"),
            (lambda url: f"{url}?ssl_ca=/no/such/file", StoreMisconfigured, "cannot be used"),
        ],
        ids=["no database", "no server", "no such user", "unknown option", "character set", "no certificate"],
    )
    async def test_what_keeps_a_store_from_opening_is_said(
        self, url: str, change: Callable[[str], str], error: type[Exception], text: str
    ) -> None:
        with pytest.raises(error, match=text) as raised:
            await create_store("test", None, change(url)).open()
        assert "sesame" not in str(raised.value)


class TestSettings:
    async def test_of_the_server_change_no_meaning(self, start_database_server: StartDatabaseServer) -> None:
        server = start_database_server(MARIADB)
        with server.new_database() as url:
            execute(
                url,
                "SET GLOBAL sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,PAD_CHAR_TO_FULL_LENGTH'",
                "SET GLOBAL sql_select_limit = 1, GLOBAL sql_safe_updates = 1, GLOBAL completion_type = 1",
                "SET GLOBAL tx_isolation = 'SERIALIZABLE', GLOBAL time_zone = '+05:30'",
                "SET GLOBAL init_connect = 'SET NAMES latin1', GLOBAL autocommit = 0",
            )
            store = await opened(url)
            session = Session(store, KEY)
            stored = [message(seq, metadata="it's a \\ \" \0 \x1a \n 😀 é") for seq in range(1, 4)]
            await session.commit()
            await session.commit()
            await session.commit(*stored)
            assert await session.stored() == stored
            assert await session.tail() == [3, 2, 1]
            neighbour = await opened(url)
            assert await Session(neighbour, KEY).stored() == stored
            await neighbour.close()
            await run(store, "SET GLOBAL completion_type = 0, GLOBAL autocommit = 1, GLOBAL sql_select_limit = DEFAULT")
            await store.close()

    @pytest.mark.parametrize(
        ("setting", "text"),
        [
            ("innodb_flush_log_at_trx_commit = 2", "innodb_flush_log_at_trx_commit to 1"),
            ("innodb_flush_log_at_trx_commit = 1", ""),
        ],
    )
    async def test_that_may_lose_commits_are_told(
        self, start_database_server: StartDatabaseServer, setting: str, text: str
    ) -> None:
        server = start_database_server(MARIADB)
        with server.new_database() as url:
            execute(url, f"SET GLOBAL {setting}")
            store = create_store("test", None, url)
            info = await store.open()
            await store.close()
            capability = next(each for each in info.capabilities if each.name == "durable")
            assert info.durable == capability.supported == (not text)
            assert text in capability.reason

    async def test_of_a_packet_that_no_message_fits_into_are_refused(
        self, start_database_server: StartDatabaseServer
    ) -> None:
        server = start_database_server(MARIADB)
        with server.new_database() as url:
            execute(url, "SET GLOBAL max_allowed_packet = 1048576")
            with pytest.raises(StoreMisconfigured, match="max_allowed_packet"):
                await create_store("test", None, url).open()

    async def test_tables_are_utf8mb4_whatever_the_default_is(self, store: MariaDBStore, url: str) -> None:
        charsets = execute(
            url,
            "SELECT DISTINCT character_set_name FROM information_schema.columns WHERE table_schema = DATABASE()"
            " AND character_set_name IS NOT NULL AND table_name <> 'memoryd_schema'",
        )
        assert charsets == [("utf8mb4",)]


class TestLiterals:
    @pytest.mark.parametrize(
        "value",
        [None, 0, -(2**63), "", "it's", "\\", "\\'; DROP TABLE x; --", '\0\x1a\n\r"%?', "😀 é", b"", bytes(range(256))],
    )
    async def test_come_back_as_they_were(self, store: MariaDBStore, value: object) -> None:
        async def echo(connection: MariaDBConnection) -> object:
            await connection.run(b"SET @value = " + literal(value))
            ((found,),) = await connection.fetch("SELECT @value")
            return found

        found = await store._with_connection(echo)
        assert found == value or (isinstance(value, bytes) and isinstance(found, bytes) and found == value)


@pytest.fixture
def readable_directory() -> Iterator[Path]:
    """A directory that the user of the database server can read."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


class _MariaDBWithTLS(type(MARIADB)):  # type: ignore[misc]
    """A server that lets nobody in without TLS."""

    options: Sequence[str] = ()

    def serve_command(self, *arguments: Any) -> list[str]:
        return [*super().serve_command(*arguments), *self.options]


class TestTLS:
    async def test_verifies_the_server_by_the_given_authority(
        self, start_database_server: StartDatabaseServer, readable_directory: Path
    ) -> None:
        directory = readable_directory
        authority, other_authority = trustme.CA(), trustme.CA()
        certificate = authority.issue_cert("127.0.0.1")
        files = {name: directory / f"{name}.pem" for name in ("ca", "other", "cert", "key")}
        authority.cert_pem.write_to_path(files["ca"])
        other_authority.cert_pem.write_to_path(files["other"])
        certificate.cert_chain_pems[0].write_to_path(files["cert"])
        certificate.private_key_pem.write_to_path(files["key"])
        for path in files.values():
            path.chmod(0o644)
        kind = _MariaDBWithTLS()
        kind.options = [f"--ssl-cert={files['cert']}", f"--ssl-key={files['key']}"]
        server = start_database_server(kind)
        with server.new_database() as url:
            execute(url, "CREATE USER secure REQUIRE SSL", "GRANT ALL ON *.* TO secure")
            secure = url.replace("root", "secure")
            with pytest.raises(StoreMisconfigured):
                await create_store("test", None, secure).open()
            with pytest.raises(StoreMisconfigured, match="TLS with the database failed"):
                await create_store("test", None, f"{secure}?ssl_ca={files['other']}").open()
            store = await opened(f"{secure}?ssl_ca={files['ca']}")
            session = Session(store, KEY)
            await session.commit(message(1))
            assert await session.stored() == [message(1)]
            await store.close()
