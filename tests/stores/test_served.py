"""What the stores on SQL servers do alike: round trips, commits, outages, cancellation, connections, errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest
from asyncmy.errors import IntegrityError
from asyncpg.exceptions import UniqueViolationError
from sqlalchemy import make_url

from memoryd_server.stores.base import Change, Committed, Known, StoreUnavailable, Tail
from memoryd_server.stores.records import SessionKey, Usability
from memoryd_server.stores.registry import create_store
from memoryd_server.stores.sql import mariadb, postgresql, served
from memoryd_server.stores.sql.served import ServedStore
from tests.databases.kinds import MARIADB, POSTGRESQL
from tests.databases.plugin import ON_EACH_SQL_KIND, StartDatabaseServer
from tests.databases.shared import new_database
from tests.databases.sql import SqlKind, execute
from tests.stores.builders import BOTH, USABLE, Session, birth, call, change_of, lookup, message, result
from tests.stores.counting_proxy import CountingProxy, counting_proxy

KEY = SessionKey("tenant", "agent", "session")
PLENTY = 1 << 20
MODULES = {POSTGRESQL: postgresql, MARIADB: mariadb}


@pytest.fixture(params=ON_EACH_SQL_KIND)
def kind(request: pytest.FixtureRequest) -> SqlKind:
    """Each kind of SQL server in turn."""
    found: SqlKind = request.param
    return found


@pytest.fixture
def url(kind: SqlKind) -> Iterator[str]:
    with new_database(kind) as url:
        yield url


async def opened(url: str) -> ServedStore[Any]:
    store = create_store("test", None, url)
    assert isinstance(store, ServedStore)
    await store.open()
    return store


@pytest.fixture
async def store(url: str) -> AsyncIterator[ServedStore[Any]]:
    store = await opened(url)
    yield store
    await store.close()


@pytest.fixture
def session(store: ServedStore[Any]) -> Session:
    return Session(store, KEY)


class TestRoundTrips:
    """(design section 5)"""

    @pytest.fixture
    async def proxy(self, url: str) -> AsyncIterator[CountingProxy]:
        async with counting_proxy(url) as (proxy, through):
            self.store = await opened(through)
            self.session = Session(self.store, KEY)
            yield proxy
            await self.store.close()

    async def trips(self, proxy: CountingProxy, call: Callable[[], Awaitable[object]]) -> int:
        """Of a call whose like was made before on the same connection."""
        await call()
        before = proxy.round_trips
        await call()
        return proxy.round_trips - before

    @pytest.mark.parametrize(
        "tail",
        [
            None,
            Tail(USABLE, 20, opening=True, body_bytes=PLENTY),
            Tail(USABLE, 20),
            Tail(BOTH, 20, opening=True, body_bytes=PLENTY),
            Tail(BOTH, 100_000, 200, opening=True, body_bytes=PLENTY),
            Tail(BOTH, 100_000, 200, opening=True, body_bytes=10),
        ],
        ids=str,
    )
    async def test_a_load_takes_one(self, proxy: CountingProxy, tail: Tail | None) -> None:
        await self.session.commit(*(message(seq) for seq in range(1, 101)), opening_to=2)
        assert await self.trips(proxy, lambda: self.store.load(KEY, tail)) == 1

    async def test_a_load_of_a_session_that_is_new_to_the_server_takes_one(
        self, proxy: CountingProxy, store: ServedStore[Any]
    ) -> None:
        keys = iter([KEY._replace(session_id=f"{number}") for number in range(2)])
        for number in range(2):
            await Session(store, KEY._replace(session_id=f"{number}")).commit(*map(message, range(1, 31)), opening_to=1)
        tail = Tail(USABLE, 20, opening=True, body_bytes=PLENTY)
        assert await self.trips(proxy, lambda: self.store.load(next(keys), tail)) == 1

    async def test_a_load_beside_a_large_message_takes_one(self, proxy: CountingProxy) -> None:
        """What its largest message would take does not fit, what the window takes does."""
        await self.session.commit(message(1, size=PLENTY), *map(message, range(2, 101)), opening_to=1)
        tail = Tail(USABLE, 20, body_bytes=PLENTY)
        assert await self.trips(proxy, lambda: self.store.load(KEY, tail)) == 1
        loaded = await self.store.load(KEY, tail)
        assert loaded is not None
        assert [*loaded.tail] == [*map(message, range(100, 80, -1))]

    async def test_a_warm_append_takes_one(self, proxy: CountingProxy) -> None:
        await self.session.commit(call(1, usability=Usability.OPEN), lookups=[lookup("1")])
        await self.session.commit()

        async def append() -> None:
            assert self.session.record is not None
            seq = self.session.record.last_seq + 1
            await self.session.commit(message(seq), completed=[1], lookups=[lookup(f"{seq}")])

        assert await self.trips(proxy, append) == 1

    async def test_appends_to_many_sessions_and_chains_of_them_take_one(self, proxy: CountingProxy) -> None:
        sessions = [Session(self.store, KEY._replace(session_id=f"{number}")) for number in range(20)]
        for each in sessions:
            await each.commit(message(1))
            await self.store.load(each.key, Tail(USABLE, 1))

        async def append() -> None:
            changes = []
            for each in sessions:
                for _ in range(3):
                    assert each.record is not None
                    seq = each.record.last_seq + 1
                    changes.append(change_of(each.key, each.record, message(seq), lookups=[lookup(f"{seq}")]))
                    each.record = changes[-1].record
            assert await self.store.commit(changes) == [Committed()] * 60

        assert await self.trips(proxy, append) == 1

    @pytest.mark.parametrize("length", [1, 100], ids="{} tokens a message".format)
    async def test_a_window_of_tokens_is_guessed_from_the_last_one(self, proxy: CountingProxy, length: int) -> None:
        await self.session.commit(*(message(seq, tokens=length) for seq in range(1, 1_001)))
        tail = Tail(USABLE, 100_000, 500 * length, body_bytes=PLENTY)
        assert await self.trips(proxy, lambda: self.store.load(KEY, tail)) == 1
        loaded = await self.store.load(KEY, tail)
        assert loaded is not None
        assert len(loaded.tail) == 500

    @pytest.mark.parametrize("kind", [pytest.param(POSTGRESQL, marks=POSTGRESQL.mark)], indirect=True)
    async def test_a_birth_takes_one(self, proxy: CountingProxy) -> None:
        numbers = iter(range(9))

        async def be_born() -> None:
            session = Session(self.store, KEY._replace(session_id=f"{next(numbers)}"))
            await session.commit(message(1), message(2), lookups=[lookup("1")])

        assert await self.trips(proxy, be_born) == 1

    async def test_a_page_takes_four(self, proxy: CountingProxy) -> None:
        """Its record and its messages, in a transaction."""
        await self.session.commit(*(message(seq) for seq in range(1, 101)))
        assert await self.trips(proxy, self.session.page) == 4


class TestCommits:
    """Many changes at once are each made or refused by itself."""

    async def test_one_of_an_old_version_and_one_that_is_known_leave_the_others(self, store: ServedStore[Any]) -> None:
        sessions = [Session(store, KEY._replace(session_id=name)) for name in ("fine", "old", "known", "unborn")]
        records = [await each.commit(message(1), lookups=[lookup("1")]) for each in sessions[:3]]
        for each in sessions[:3]:
            await each.tail()
        await sessions[1].commit(message(2))
        changes = [
            change_of(sessions[0].key, records[0], message(2), lookups=[lookup("2")]),
            change_of(sessions[1].key, records[1], message(2), lookups=[lookup("2")]),
            change_of(sessions[2].key, records[2], message(2), lookups=[lookup("2"), lookup("1")]),
            birth(sessions[3].key, message(1)),
        ]
        outcomes = await store.commit(changes)
        assert [type(outcome).__name__ for outcome in outcomes] == ["Committed", "Conflict", "Known", "Committed"]
        assert outcomes[2] == Known([lookup("1")])
        assert [len(await each.stored()) for each in sessions] == [2, 2, 1, 1]

    async def test_servers_with_the_same_sessions_do_not_lock_each_other_out(
        self, store: ServedStore[Any], url: str
    ) -> None:
        keys = [KEY._replace(session_id=f"{number}") for number in range(10)]
        neighbour = await opened(url)
        made = 0
        for _ in range(10):
            records = {}
            for key in keys:
                loaded = await store.load(key)
                records[key] = loaded.record if loaded else None

            def changes(order: Sequence[SessionKey], records: dict[SessionKey, Any] = records) -> list[Change]:
                return [
                    birth(key, message(1)) if records[key] is None else change_of(key, records[key], message(seq))
                    for key in order
                    for seq in [records[key].last_seq + 1 if records[key] else 1]
                ]

            outcomes = await asyncio.gather(store.commit(changes(keys)), neighbour.commit(changes(keys[::-1])))
            made += sum(outcome == Committed() for outcome in [*outcomes[0], *outcomes[1]])
        assert made == 100
        await neighbour.close()

    async def test_a_chain_completes_groups_that_it_brings(self, store: ServedStore[Any], session: Session) -> None:
        record = await session.commit(call(1, usability=Usability.OPEN))
        first = change_of(KEY, record, result(2, 1), call(3, usability=Usability.OPEN), completed=[1])
        assert first.record is not None
        second = change_of(KEY, first.record, result(4, 3), completed=[3])
        assert await store.commit([first, second]) == [Committed(), Committed()]
        assert await session.tail() == [4, 3, 2, 1]

    async def test_a_chain_that_repeats_an_id_of_its_own_stops_there(
        self, store: ServedStore[Any], session: Session
    ) -> None:
        record = await session.commit(message(1))
        chain: list[Change] = []
        for seq, id_ in ((2, "a"), (3, "a"), (4, "b")):
            chain.append(change_of(KEY, record, message(seq), lookups=[lookup(id_)]))
            assert chain[-1].record is not None
            record = chain[-1].record
        outcomes = await store.commit(chain)
        assert [type(outcome).__name__ for outcome in outcomes] == ["Committed", "Known", "Conflict"]
        assert await session.tail() == [2, 1]


class TestOutage:
    async def test_calls_in_between_fail_and_everything_works_again_without_a_restart(
        self, kind: SqlKind, start_database_server: StartDatabaseServer
    ) -> None:
        server = start_database_server(kind)
        with server.new_database() as url:
            store = await opened(url)
            session = Session(store, KEY)
            await session.commit(message(1), lookups=[lookup("1")])
            for end, seq in ((server.kill, 2), (server.stop, 3)):
                end()
                for work in (lambda: store.load(KEY), lambda: store.commit([birth(KEY)]), store.ping, store.now):
                    with pytest.raises(StoreUnavailable, match="Repeat the call"):
                        await asyncio.wait_for(work(), 10)
                server.start()
                await session.commit(message(seq), lookups=[lookup(f"{seq}")])
                assert await session.tail() == [*range(seq, 0, -1)]
            assert store.pool_status().in_use == 0
            await store.close()

    async def test_a_read_on_connections_that_a_restart_ended_does_not_fail(
        self, kind: SqlKind, start_database_server: StartDatabaseServer
    ) -> None:
        server = start_database_server(kind)
        with server.new_database() as url:
            store = await opened(url)
            await Session(store, KEY).commit(message(1))
            await asyncio.gather(*(store.ping() for _ in range(5)))
            server.kill()
            server.start()
            assert await store.load(KEY) is not None
            await store.close()

    async def test_a_silent_database_is_given_up_soon_and_used_again_when_it_speaks(
        self, kind: SqlKind, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with counting_proxy(url) as (proxy, through):
            store = await opened(through)
            session = Session(store, KEY)
            record = await session.commit(message(1))
            monkeypatch.setattr(served, "ANSWER_SECONDS", 0.3)
            monkeypatch.setattr(MODULES[kind], "CONNECT_SECONDS", 0.2)
            proxy.fall_silent()
            calls = [store.load(KEY, Tail(USABLE, 5)) for _ in range(30)]
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(error) for error in errors} == {StoreUnavailable}
            with pytest.raises(StoreUnavailable, match="did not answer within"):
                await store.commit([change_of(KEY, record, message(2))])
            proxy.speak()
            monkeypatch.undo()
            assert (await store.load(KEY)) is not None
            assert store.pool_status().in_use == store.pool_status().waiting == 0
            await store.close()

    async def test_a_database_that_was_made_anew_is_told_and_used_when_its_tables_are_there(
        self, kind: SqlKind, store: ServedStore[Any], url: str
    ) -> None:
        await store.ping()
        address = make_url(url)
        drop = f"DROP DATABASE {address.database}" + (" WITH (FORCE)" if kind is POSTGRESQL else "")
        administrator = kind.local_url([address.port or 0])
        execute(administrator, drop, kind.create_statement(str(address.database)))
        for work in (store.ping, store.ping, lambda: store.load(KEY), lambda: store.commit([birth(KEY)])):
            with pytest.raises(StoreUnavailable, match="tables of memoryd are gone"):
                await work()
        other = await opened(url)
        await other.close()
        await store.ping()
        assert await store.commit([birth(KEY)]) == [Committed()]

    @pytest.mark.parametrize("module", MODULES.values(), ids=lambda module: module.__name__.rpartition(".")[2])
    def test_calls_wait_long_enough_to_be_told_what_is_wrong(self, module: Any) -> None:
        assert served.LOCK_SECONDS < served.ANSWER_SECONDS
        assert module.CONNECT_SECONDS < served.ANSWER_SECONDS


class TestCancellation:
    """A cancelled call leaks nothing and leaves no partial write (invariant 16)."""

    async def test_of_200_calls_leaves_the_connections_whole(self, store: ServedStore[Any], session: Session) -> None:
        await session.commit(*map(message, range(1, 201)))
        await session.tail()
        for number in range(200):
            assert session.record is not None
            change = change_of(KEY, session.record, message(201), message(202), lookups=[lookup("a")])
            calls = [
                asyncio.create_task(store.load(KEY, Tail(USABLE, 50, body_bytes=PLENTY))),
                asyncio.create_task(store.commit([change]) if number % 10 == 0 else store.ping()),
            ]
            for _ in range(number % 7):
                await asyncio.sleep(0)
            for each in calls:
                each.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.gather(*(store.ping() for _ in range(50)))
        status = store.pool_status()
        assert (status.in_use, status.waiting) == (0, 0)
        assert await session.tail(messages=2) in ([200, 199], [202, 201])


class TestConnections:
    async def test_are_made_when_they_are_needed_and_are_bounded(self, url: str) -> None:
        async with counting_proxy(url) as (proxy, through):
            store = await opened(through)
            for _ in range(5):
                await store.ping()
            few = proxy.connections
            await asyncio.gather(*(store.load(KEY) for _ in range(200)))
            assert few <= 3
            assert proxy.connections <= few + served.CONNECTIONS
            await store.close()

    async def test_a_closed_store_is_unavailable(self, store: ServedStore[Any]) -> None:
        await store.close()
        for work in (store.ping(), store.load(KEY), store.commit([birth(KEY)])):
            with pytest.raises(StoreUnavailable, match="closed"):
                await work


async def test_a_fault_of_ours_surfaces_as_it_is(store: ServedStore[Any], session: Session) -> None:
    await session.commit(message(1))
    with pytest.raises((UniqueViolationError, IntegrityError)):
        await session.commit(message(1))
    assert await session.stored() == [message(1)]
    await session.commit(message(2))
