"""What only a cluster has: sessions and stagings on several nodes, replicas to wait for, and slots that move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from redis.crc import key_slot

from memoryd_server.stores.base import (
    Change,
    Committed,
    Conflict,
    Known,
    Lost,
    StoreMisconfigured,
    StoreUnavailable,
    Tail,
)
from memoryd_server.stores.records import FileOwner, LookupKind, RunStatus, SessionKey, Tier, Usability
from memoryd_server.stores.redis.cluster import Cluster
from memoryd_server.stores.redis.keys import PARTITIONS_OF_A_SERVER, Keys
from memoryd_server.stores.redis.stagings import PART
from memoryd_server.stores.redis.store import RedisStore
from tests.databases.cluster import OwnCluster
from tests.databases.kinds import REDIS_CLUSTER
from tests.databases.redis import keys, prefix_of
from tests.databases.shared import new_database
from tests.stores.builders import (
    BOTH,
    TIME,
    Session,
    birth,
    born,
    call,
    change_of,
    erased,
    grown,
    listed,
    lookup,
    message,
    new_record,
    orphan,
    result,
    swept,
)
from tests.stores.redis_servers import keys_of, opened, with_options
from tests.stores.test_files import INDEX, OWNER, File, owners
from tests.stores.test_runs import Runs, claimable, ended, ids

pytestmark = REDIS_CLUSTER.mark

KEY = SessionKey("tenant", "agent", "session")
FAR = 10 * 24 * 3600 * 1_000_000


@pytest.fixture
def url() -> Iterator[str]:
    with new_database(REDIS_CLUSTER) as url:
        yield url


@pytest.fixture
async def store(url: str) -> AsyncIterator[RedisStore]:
    store = await opened(url)
    yield store
    await store.close()


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[OwnCluster]:
    """A cluster whose shape tests change."""
    with OwnCluster() as cluster:
        yield cluster


class TestShape:
    async def test_is_found_from_any_node(self, store: RedisStore, url: str) -> None:
        """(design section 8: a cluster is recognized by itself)"""
        assert isinstance(store._nodes, Cluster)
        assert len(store._nodes.primaries()) == 3
        assert (store.commit_limits.sessions, store.commit_limits.concurrency > 4) == (1, True)
        hosts = url.partition("//")[2].partition("/")[0]
        for host in hosts.split(","):
            other = await opened(url.replace(hosts, f"127.0.0.1:1,{host}"))
            assert isinstance(other._nodes, Cluster)
            await other.close()

    async def test_tells_what_a_failover_may_lose(self, url: str) -> None:
        store = await opened(url)
        await store.close()
        info = await store.open()
        assert info.durable
        [power] = [power for power in info.capabilities if power.name == "lossless_failover"]
        assert not power.supported
        assert "another replica than that one" in power.reason
        await store.close()

    async def test_tells_likewise_when_it_waits_for_no_replica(self, url: str) -> None:
        store = await opened(f"{url}&replicas=0")
        await store.close()
        info = await store.open()
        [power] = [power for power in info.capabilities if power.name == "lossless_failover"]
        assert "before any replica has it" in power.reason
        await store.close()

    async def test_has_one_database(self, url: str) -> None:
        with pytest.raises(StoreMisconfigured, match=r"no database of the number.*a cluster has number 0 alone"):
            await opened(f"{url}&db=3")

    async def test_has_sessions_on_every_node(self, store: RedisStore, url: str) -> None:
        sessions = [Session(store, KEY._replace(session_id=f"{number}")) for number in range(60)]
        for each in sessions:
            await each.commit(message(1), user_id="user")
        slots = [key_slot(Keys(prefix_of(url)).session(each.key).hash.encode()) for each in sessions]
        assert {slot * 3 // 16_384 for slot in slots} == {0, 1, 2}
        assert sorted(await listed(store, user_id="user")) == sorted(each.key.session_id for each in sessions)

    async def test_has_data_of_one_server_on_one_node(self, url: str) -> None:
        """Data keeps its partition wherever it is moved."""
        await (await opened(url)).close()
        meta = Keys(prefix_of(url)).meta.encode()
        for client, found in [*keys(url)]:
            if found == meta:
                client.hset(found, "partitions", PARTITIONS_OF_A_SERVER)
        store = await opened(url)
        for number in range(10):
            runs = Runs(Session(store, KEY._replace(session_id=f"{number}")))
            await runs.begin("run", RunStatus.INTERRUPTED, updated=TIME + number)
        slots = {key_slot(found) for _, found in keys(url) if found.endswith((b":h", b":z", b"{0}"))}
        assert slots == {key_slot(keys_of(url).partitions[0].encode())}
        assert len(await listed(store)) == 10
        first = await store.load_claimable("tenant", "agent", TIME + 10, 4)
        assert [found.key.session_id for found in first] == ["0", "1", "2", "3"]
        assert len(await store.list_claimable("tenant", "agent", TIME + 10, 100)) == 10
        await store.close()

    async def test_has_memory_files_on_every_node(self, store: RedisStore, url: str) -> None:
        """Those of one owner on one, and each list is of all nodes."""
        mine = [FileOwner("tenant", Tier.USER, f"{number:02}") for number in range(40)]
        files = [File(store, owner, name) for owner in mine for name in ("1", "2")]
        saved = [await file.save(file.owner.id.encode()) for file in files]
        names = [Keys(prefix_of(url)).file_owner(owner) for owner in mine]
        assert {key_slot(name.hash.encode()) * 3 // 16_384 for name in names} == {0, 1, 2}
        assert list(await store.load_files([file.key for file in files])) == saved
        assert await owners(store, page=7) == mine
        assert list(await store.list_file_tenants("", 10)) == ["tenant"]
        assert [(await erased(store, owner.id, limit=1)).files for owner in mine] == [2] * 40
        assert await owners(store) == []

    async def test_has_runs_on_every_node(self, store: RedisStore) -> None:
        """Those of one session on one, and each list of an agent is of all nodes."""
        names = []
        for number in range(60):
            runs = Runs(Session(store, KEY._replace(session_id=f"{number}")))
            await runs.begin(f"idle {number:02}", RunStatus.INTERRUPTED, updated=TIME + number)
            await runs.begin(f"done {number:02}", RunStatus.COMPLETED, ended=TIME + number)
            names.append(runs.name(f"done {number:02}"))
        numbers = range(60)
        for page in (1, 7, 100):
            assert await claimable(store, TIME + 100, page) == [f"idle {number:02}" for number in numbers[:page]]
            assert await ended(store, TIME + 100, page) == [f"done {number:02}" for number in numbers[:page]]
        assert len(await ids(store, 7)) == 120
        assert [await store.delete_run(name, 10) for name in names] == [1] * 60
        assert sorted(await ids(store, 7)) == [f"idle {number:02}" for number in numbers]

    async def test_of_one_store_serves_many_sessions_in_one_commit(self, store: RedisStore) -> None:
        """The engine commits one session at a time here; whoever does otherwise is answered all the same."""
        changes: list[Change] = []
        for number in range(30):
            first = birth(KEY._replace(session_id=f"{number}"), message(1))
            changes += [first, change_of(first.key, born(first), message(2))]
        assert await store.commit(changes) == [Committed()] * 60
        assert len(await listed(store)) == 30


class TestStagings:
    """They begin in some partition, and become sessions in another."""

    async def staged(self, store: RedisStore, number: int, user_id: str = "user") -> tuple[str, Session]:
        """A staging of several parts with something of every kind."""
        due = await store.now() + FAR
        staging = await store.begin_staging("tenant", user_id, due)
        sent = [message(1), call(2, undo='{"a":1}'), result(3, 2), call(4, usability=Usability.OPEN), orphan(5)]
        sent += [message(seq, content="x" * 1_000) for seq in range(6, 2 * PART)]
        for first in range(0, len(sent), 50):
            part = sent[first : first + 50]
            await store.stage(staging, part, [lookup(each.id) for each in part], due)
        session = Session(store, KEY._replace(session_id=f"{number}"))
        session.record = new_record(**grown(new_record(), sent), user_id=user_id)
        return staging, session

    async def test_are_adopted_whole_wherever_they_began(self, store: RedisStore) -> None:
        for number in range(5):
            staging, session = await self.staged(store, number)
            expected = session.record
            assert expected is not None
            adoption = Change(session.key, None, expected, staging=staging)
            assert await store.commit([adoption]) == [Committed()]
            loaded = await session.load(usabilities=BOTH, body_bytes=1 << 20)
            assert [each.seq for each in loaded.tail] == [seq for seq in range(2 * PART - 1, 0, -1) if seq != 5]
            entries = await store.list_entries(session.key, expected.incarnation, 2, 2, 1)
            assert entries is not None
            assert entries[1][0].undo == '{"a":1}'
            found = await store.find(session.key, LookupKind.MESSAGE, [f"message-{seq}" for seq in range(2 * PART)])
            assert len(found) == 2 * PART - 1
        # Nothing of them is left anywhere else.
        assert (await erased(store, "user")).total == 0
        assert (await swept(store, FAR / 500_000)).total == 0

    async def test_that_are_refused_stay_whole_for_another_name(self, store: RedisStore) -> None:
        staging, session = await self.staged(store, 0)
        assert session.record is not None
        await Session(store, KEY).commit(message(1), lookups=[lookup("known")])
        refused = Change(KEY, None, session.record, staging=staging)
        assert await store.commit([refused]) == [Conflict()]
        known = Change(KEY, None, session.record, staging=staging, lookups=[lookup("known")])
        assert await store.commit([known]) == [Known([lookup("known")])]
        assert await store.commit([Change(session.key, None, session.record, staging=staging)]) == [Committed()]
        assert len(await session.stored()) == 2 * PART - 1

    async def test_that_a_server_died_with_while_it_brought_them_are_swept(
        self, store: RedisStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What it had brought, and what is where it began (invariant 3)."""
        staging, session = await self.staged(store, 0)
        while Keys("").staging(bytes.fromhex(staging)).partition == Keys("").session(session.key).partition:
            staging, session = await self.staged(store, 0)  # pragma: no cover - one in 128 times
        assert session.record is not None
        change, changes = store._nodes.change, 0

        async def broken_off(*calls: object) -> object:
            nonlocal changes
            changes += 1
            if changes == 8:
                raise StoreUnavailable("the server is gone")
            return await change(*calls)  # type: ignore[arg-type]

        adoption = Change(session.key, None, session.record, staging=staging)
        monkeypatch.setattr(store._nodes, "change", broken_off)
        with pytest.raises(StoreUnavailable, match="the server is gone"):
            await store.commit([adoption])
        monkeypatch.undo()
        assert await store.load(session.key) is None
        assert await store.commit([adoption]) == [Lost()]
        deleted = await erased(store, "user")
        assert deleted.messages + deleted.lookups > 2 * (2 * PART - 1)
        assert (await swept(store, FAR / 500_000)).total == 0


class TestReplicas:
    """(design section 8: an answer waits for one replica)"""

    async def test_have_what_was_answered(self, own_cluster: OwnCluster) -> None:
        with own_cluster.new_database() as url:
            store = await opened(url)
            session = Session(store, KEY)
            await session.commit(message(1))
            name = Keys(prefix_of(url)).session(KEY)
            replica = own_cluster.replica_of(own_cluster.master_of(key_slot(name.hash.encode())))
            with own_cluster.client(replica) as client:
                client.readonly()
                for seq in range(2, 52):
                    record = await session.commit(message(seq))
                    assert client.hget(name.hash, "ver") == str(record.version).encode()
            await store.close()

    async def test_have_the_file_that_was_answered(self, own_cluster: OwnCluster) -> None:
        with own_cluster.new_database() as url:
            store = await opened(url)
            file = File(store)
            await file.save(b"x")
            owner = Keys(prefix_of(url)).file_owner(OWNER)
            hash_ = Keys(prefix_of(url)).file(owner, INDEX)
            replica = own_cluster.replica_of(own_cluster.master_of(key_slot(hash_.encode())))
            with own_cluster.client(replica) as client:
                client.readonly()
                for _ in range(50):
                    saved = await file.save(b"x")
                    assert client.hget(hash_, "ver") == saved.version.version.to_bytes(8, "big")
                assert file.expected is not None
                assert await store.delete_file(file.key, file.expected)
                assert client.exists(hash_, owner.hash) == 0
            await store.close()

    async def test_that_are_away_make_a_change_unknown_and_leave_reads_as_they_are(
        self, own_cluster: OwnCluster
    ) -> None:
        with own_cluster.new_database() as url:
            store = await opened(url)
            session = Session(store, KEY)
            record = await session.commit(message(1), lookups=[lookup("1")])
            slot = key_slot(Keys(prefix_of(url)).session(KEY).hash.encode())
            replica = own_cluster.replica_of(own_cluster.master_of(slot))
            replica.stop()
            change = change_of(KEY, record, message(2), lookups=[lookup("2")])
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="0 of 1 replicas confirmed"):
                    await store.commit([change])
            with pytest.raises(StoreUnavailable, match="0 of 1 replicas confirmed"):
                await store.find(KEY, LookupKind.MESSAGE, ["2"])
            assert await session.tail() == [2, 1]
            careless = await opened(with_options(url, replicas=0))
            assert await careless.commit([change]) == [Known([lookup("2")])]
            await careless.close()
            replica.start()
            own_cluster.wait_until_whole()
            assert await store.commit([change]) == [Known([lookup("2")])]
            await store.close()


class TestChangesOfShape:
    """A store follows them without a restart."""

    async def test_a_promoted_replica_is_found(self, own_cluster: OwnCluster) -> None:
        with own_cluster.new_database() as url:
            store = await opened(url)
            session = Session(store, KEY)
            await session.commit(message(1))
            slot = key_slot(Keys(prefix_of(url)).session(KEY).hash.encode())
            own_cluster.promote(own_cluster.replica_of(own_cluster.master_of(slot)))
            own_cluster.wait_until_whole()
            for seq in range(2, 5):
                await session.commit(message(seq), lookups=[lookup(f"{seq}")])
            assert await session.tail() == [4, 3, 2, 1]
            await store.close()

    async def test_a_slot_that_moves_is_followed_in_the_middle_of_calls(self, own_cluster: OwnCluster) -> None:
        """What belongs to a session moves key by key; a call that finds it split waits."""
        with own_cluster.new_database() as url:
            store = await opened(url)
            mine = Keys(prefix_of(url)).session(KEY).partition
            keys = [KEY._replace(session_id=f"{number}") for number in range(2_000)]
            sessions = [Session(store, key) for key in keys if Keys(prefix_of(url)).session(key).partition == mine]
            for each in sessions:
                await each.commit(*map(message, range(1, 50)))
            slot = key_slot(mine.encode())
            moved = asyncio.Event()

            async def append(session: Session) -> int:
                appended = 0
                while not moved.is_set() or not appended:
                    assert session.record is not None
                    seq = session.record.last_seq + 1
                    activity = session.record.activity + 1
                    await session.commit(message(seq), lookups=[lookup(f"{seq}")], activity=activity)
                    loaded = await store.load(session.key, Tail([Usability.USABLE], 2))
                    assert loaded is not None
                    assert [entry.seq for entry in loaded.tail] == [seq, seq - 1]
                    appended += 1
                return appended

            async def move() -> None:
                for _ in range(2):
                    source = own_cluster.master_of(slot)
                    target = next(each for each in own_cluster.masters() if each is not source)
                    assert await asyncio.to_thread(own_cluster.move_slot, slot, target) >= 2 * len(sessions)
                moved.set()

            await asyncio.gather(move(), *(append(each) for each in sessions))
            for each in sessions:
                stored = await each.stored()
                assert each.record is not None
                assert [one.seq for one in stored] == [*range(1, each.record.last_seq + 1)]
            assert sorted(await listed(store)) == sorted(each.key.session_id for each in sessions)
            await store.close()

    async def test_a_slot_with_files_that_moves_is_followed(self, own_cluster: OwnCluster) -> None:
        """What belongs to an owner moves key by key; a call that finds it split waits."""
        with own_cluster.new_database() as url:
            store = await opened(url)
            files = [File(store, name=f"{number:02}") for number in range(20)]
            for file in files:
                await file.save(b"a" * 50_000)
            slot = key_slot(Keys(prefix_of(url)).file_owner(OWNER).hash.encode())
            moved = asyncio.Event()

            async def work(file: File) -> None:
                while not moved.is_set():
                    saved = await file.save(b"b" * 50_000)
                    assert list(await store.load_files([file.key])) == [saved]
                    assert len(await store.list_files(OWNER, "", 100)) >= len(files)
                    assert (await store.list_file_versions(file.key))[0] == saved.version

            async def come_and_go() -> None:
                number = 0
                while not moved.is_set():
                    file = File(store, name=f"new {number}")
                    await file.save(b"c")
                    assert file.expected is not None
                    assert await store.delete_file(file.key, file.expected)
                    number += 1

            async def move() -> None:
                for _ in range(2):
                    source = own_cluster.master_of(slot)
                    target = next(each for each in own_cluster.masters() if each is not source)
                    assert await asyncio.to_thread(own_cluster.move_slot, slot, target) >= len(files)
                moved.set()

            await asyncio.gather(move(), come_and_go(), *(work(file) for file in files[::5]))
            assert list(await store.load_files([file.key for file in files])) == [file.current for file in files]
            assert [name for name, _ in await store.list_files(OWNER, "", 100)] == [file.name for file in files[::-1]]
            assert (await erased(store, "user", limit=7)).files == len(files)
            await store.close()

    async def test_a_node_that_left_is_forgotten(self, own_cluster: OwnCluster) -> None:
        with own_cluster.new_database() as url:
            store = await opened(url)
            assert isinstance(store._nodes, Cluster)
            await store._nodes.look()
            assert store.pool_status().in_use == 0
            await asyncio.gather(*(store.load(KEY._replace(session_id=f"{number}")) for number in range(100)))
            assert store.pool_status().size >= 3 * 16
            await store.close()
