"""What only Redis has: where keys are, what calls take and touch, what becomes of scripts and of stale entries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from hashlib import sha256
from typing import Any

import pytest
from redis import Redis as Client
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from memoryd_server import limits
from memoryd_server.stores.base import (
    Change,
    Committed,
    Deleted,
    Due,
    MessageQuery,
    RunChange,
    RunName,
    RunQuery,
    SessionQuery,
    Store,
    StoreMisconfigured,
    StoreUnavailable,
    Tail,
    Version,
)
from memoryd_server.stores.records import (
    AgentRecord,
    FileOwner,
    Folding,
    LookupKind,
    RunHead,
    RunLink,
    RunStatus,
    SessionKey,
    StoredMessage,
    Tier,
    Usability,
)
from memoryd_server.stores.redis.keys import (
    FORMAT,
    PARTITIONS,
    PARTITIONS_OF_A_SERVER,
    Keys,
    digest_of,
    joined,
    parted,
    partition_tags,
)
from memoryd_server.stores.redis.members import behind_tenant, folds, of_owner, owner_of, owners_of
from memoryd_server.stores.redis.store import RedisStore
from tests.databases.kinds import REDIS
from tests.databases.redis import connected, keys, prefix_of
from tests.databases.servers import OwnServer
from tests.databases.shared import new_database
from tests.stores.builders import (
    BOTH,
    EVERY,
    TIME,
    USABLE,
    Session,
    birth,
    call,
    change_of,
    erased,
    event,
    link,
    listed,
    lookup,
    message,
    orphan,
    result,
    run_state,
    step,
    summaries,
    summary,
    swept,
)
from tests.stores.counting_proxy import CountingProxy, counting_proxy
from tests.stores.redis_servers import add_members, calls_of, info_of, keys_of, members_of, opened, with_options
from tests.stores.test_files import INDEX, OWNER, File, owners, tenants

pytestmark = REDIS.mark

KEY = SessionKey("tenant", "agent", "session")
PLENTY = 1 << 20
ALWAYS = 400 * 24 * 60 * 60


@pytest.fixture
def url() -> Iterator[str]:
    with new_database(REDIS) as url:
        yield url


@pytest.fixture
async def store(url: str) -> AsyncIterator[RedisStore]:
    store = await opened(url)
    yield store
    await store.close()


@pytest.fixture
def session(store: RedisStore) -> Session:
    return Session(store, KEY)


@pytest.fixture(scope="module")
def own_server() -> Iterator[OwnServer]:
    """A server that nobody else uses, whose counters tell of one test."""
    with OwnServer(REDIS) as server:
        yield server


@pytest.fixture
def own_url(own_server: OwnServer) -> Iterator[str]:
    with own_server.new_database() as url:
        yield url


@pytest.fixture
def client(own_url: str) -> Iterator[Client]:
    with connected(own_url) as client:
        yield client


def two_runs() -> dict[str, Any]:
    """The fields of a commit after which a session has a run that has ended, with a step, and one that has not."""
    changes = (
        RunChange("ended", run_state(RunStatus.COMPLETED, ended=TIME), RunHead(TIME)),
        RunChange("unfinished", run_state(), RunHead(TIME)),
    )
    return {
        "changed_runs": changes,
        "new_steps": (step("ended", 1),),
        "runs": (RunLink("unfinished", run_state()),),
    }


async def fill(session: Session) -> None:
    """Two lives with something of every kind, the first of them dead."""
    for _ in range(2):
        fields: dict[str, Any] = {"user_id": "user", "ttl": 1_000_000, "lookups": [lookup(f"{session.record}")]}
        fields |= {"folding": Folding(wanted=1), **summaries(1, 2), **two_runs()}
        sent = [message(1), call(2, usability=Usability.OPEN, undo="{}"), orphan(3)]
        await (session.be_reborn(*sent, **fields) if session.record else session.commit(*sent, **fields))
        await session.commit(result(4, 2), completed=[2], events=[event(2)])


class TestKeys:
    async def test_of_a_session_and_of_its_lists_are_in_one_slot(self, store: RedisStore, url: str) -> None:
        """So that a commit is one script, on a cluster too (design section 8)."""
        names = ["a", "{b}", "c:d*", "}{", "e\u0301"]
        for name in names:
            await fill(Session(store, SessionKey(name, name, name)))
            await File(store, FileOwner(name, Tier.PROJECT, name), name).save(b"x")
        slots = defaultdict(set)
        for _, found in keys(url):
            tag = found[found.index(b"{") : found.index(b"}") + 1]
            slots[tag].add(key_slot(found))
        assert all(len(found) == 1 for found in slots.values())
        of_sessions = [found for _, found in keys(url) if found.endswith((b":h", b":z"))]
        assert len(of_sessions) == 2 * len(names)
        of_files = [found for _, found in keys(url) if found.endswith((b":f", b":o"))]
        assert len(of_files) == 2 * len(names)

    async def test_of_a_session_are_three_whatever_it_holds(self, session: Session, url: str) -> None:
        await fill(session)
        name = keys_of(url).session(KEY)
        mine = {found.decode() for _, found in keys(url) if key_slot(found) == key_slot(name.hash.encode())}
        assert mine == {name.hash, name.order, name.partition}

    async def test_of_files_are_one_each_and_one_of_their_owner_whatever_they_hold(
        self, store: RedisStore, url: str
    ) -> None:
        for name in (INDEX, "2026-01-01.md"):
            file = File(store, name=name)
            for _ in range(limits.MAX_FILE_VERSIONS + 2):
                await file.save(b"x" * 1_000)
        all_keys = keys_of(url)
        owner = all_keys.file_owner(OWNER)
        mine = {found.decode() for _, found in keys(url) if key_slot(found) == key_slot(owner.hash.encode())}
        hashes = {all_keys.file(owner, name) for name in (INDEX, "2026-01-01.md")}
        assert mine == {owner.hash, owner.partition} | hashes
        with connected(url) as client:
            assert all(client.hlen(each) == 5 + 2 * limits.MAX_FILE_VERSIONS for each in hashes)

    async def test_of_a_session_without_summaries_hold_what_earlier_versions_wrote(
        self, session: Session, url: str
    ) -> None:
        """Their sessions are read as those that never had a summary."""
        await session.commit(message(1))
        name = keys_of(url).session(KEY)
        with connected(url) as client:
            life = bytes([0, 0, 0, 1])
            body = life + b"b" + (1).to_bytes(8, "big")
            fields: Any = client.hkeys(name.hash)
            assert {*fields} == {b"key", b"inc", b"ver", b"rec", b"life", b"vis", b"open", b"shape", body}
            assert {member[:5] for member in members_of(client, name.order)} == {life + b"s", life + b"0"}
            assert {member[:1] for member in members_of(client, name.partition)} == {b"T"}
        assert (await session.load(summary=True)).summary is None

    async def test_of_a_living_name_hold_nothing_of_an_erased_life(self, session: Session, url: str) -> None:
        await fill(session)
        name = keys_of(url).session(KEY)
        dead = bytes([0, 0, 0, 1])
        with connected(url) as client:

            def held() -> list[bytes]:
                fields: Any = client.hkeys(name.hash)
                return [each for each in (*fields, *members_of(client, name.order)) if each.startswith(dead)]

            assert {each[4:5] for each in held()} == {b"b", b"u", b"m", b"r", b"h", b"t", b"s", b"v", b"0", b"2"}
            expected = Deleted(messages=4, events=1, lookups=1, summaries=2, runs=2, steps=1)
            assert await erased(session.store, "user", limit=2) == expected
            assert held() == []
        assert (await session.load(summary=True)).summary == summary(2)

    async def test_hold_nothing_when_all_is_deleted(self, session: Session, store: Store, url: str) -> None:
        before = {found for _, found in keys(url)}
        await fill(session)
        await session.die()
        staging = await store.begin_staging("tenant", "user", 1)
        await store.stage(staging, [message(1)], [lookup("a")], 1)
        for name in (INDEX, "2026-01-01.md"):
            file = File(store, name=name)
            await file.save(b"a")
            await file.save(b"b")
        of_project = File(store, OWNER._replace(tier=Tier.PROJECT))
        await of_project.save(b"a")
        assert of_project.expected is not None
        assert await store.delete_file(of_project.key, of_project.expected)
        await swept(store, ALWAYS)
        assert (await erased(store, "user")).files == 2
        left = {found.rpartition(b":")[2] for _, found in keys(url)} - {found.rpartition(b":")[2] for found in before}
        assert left <= {b"agents", prefix_of(url).encode() + b"{tenants}"} | {b"{tenants}"}

    async def test_of_another_prefix_are_another_store(self, store: RedisStore, session: Session, url: str) -> None:
        await session.commit(message(1))
        other = await opened(url.replace("prefix=", "prefix=other:"))
        assert await other.load(KEY) is None
        assert await listed(other) == []
        file = File(store)
        await file.save(b"x")
        assert (await other.load_files([file.key]), await owners(other)) == ([], [])
        await Session(other, KEY).commit(message(1, id="other"))
        assert [stored.id for stored in await session.stored()] == ["message-1"]
        await other.close()

    def test_of_partitions_are_spread_evenly_over_the_slots_of_a_cluster(self) -> None:
        slots = [key_slot(f"{{{tag}}}".encode()) for tag in partition_tags(PARTITIONS)]
        assert [slot * PARTITIONS // REDIS_CLUSTER_HASH_SLOTS for slot in slots] == [*range(PARTITIONS)]

    def test_are_where_they_were(self) -> None:
        """Data of earlier versions is found under these names alone."""
        tags = sha256(" ".join(partition_tags(PARTITIONS)).encode()).hexdigest()
        name = Keys("memoryd:").session(KEY)
        assert (FORMAT, tags[:16], name.hash) == (
            2,
            "10b3094416dbdb8a",
            "memoryd:{3}:DBvRm1x20rpaTdhSE-JuF1_UUFmsAKJk:h",
        )
        alone = Keys("memoryd:", PARTITIONS_OF_A_SERVER).session(KEY)
        assert alone.hash == "memoryd:{0}:DBvRm1x20rpaTdhSE-JuF1_UUFmsAKJk:h"
        owner = Keys("memoryd:").file_owner(OWNER)
        assert (owner.hash, Keys("memoryd:").file(owner, INDEX)) == (
            "memoryd:{131}:CNDxMbHYtkcbNdRA1msLIpR63pVy1pD3:o",
            "memoryd:{131}:vrrzVU1-ZYOAhxBnyUT_whJs5AhKHW-F:f",
        )

    def test_name_each_text_alone(self) -> None:
        texts = [("a", "b"), ("ab", ""), ("", "ab"), ("a", "b", ""), ("a\0", "b"), ("é", ""), ("e\u0301", "")]
        assert len({digest_of(*each) for each in texts}) == len(texts)
        assert [tuple(parted(joined(*each))) for each in texts] == texts

    def test_of_owners_of_files_sort_as_their_names_do(self) -> None:
        """By tenant, tier and id, each by its bytes, whatever characters they hold."""
        texts = ["a", "a\0", "a\0\0", "a\0\x01", "a\x01", "aa", "\uff41", "\U0001f600"]
        expected = [FileOwner(tenant, tier, id_) for tenant in texts for tier in Tier for id_ in texts]
        members = [of_owner(owner) for owner in expected]
        assert members == sorted(members)
        assert [owner_of(member) for member in members] == expected
        for tenant in texts:
            mine = [owner_of(each) for each in members if owners_of(tenant) <= each < behind_tenant(tenant)]
            assert mine == [owner for owner in expected if owner.tenant == tenant]


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
        """Of a call whose like was made before."""
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
            Tail(BOTH, 900, body_bytes=PLENTY),
            Tail(USABLE, 20, opening=True, summary=True, body_bytes=PLENTY),
        ],
        ids=str,
    )
    async def test_a_load_takes_one(self, proxy: CountingProxy, tail: Tail | None) -> None:
        await self.session.commit(*(message(seq) for seq in range(1, 1_001)), opening_to=2, **summaries(1, 2))
        assert await self.trips(proxy, lambda: self.store.load(KEY, tail)) == 1

    async def test_reads_of_one_session_take_one(self, proxy: CountingProxy) -> None:
        record = await self.session.commit(
            *map(message, range(1, 301)), lookups=[lookup("a")], events=[event(1)], **summaries(1, 2)
        )
        inc = record.incarnation
        reads: list[Callable[[], Awaitable[object]]] = [
            self.session.page,
            lambda: self.store.list_messages(KEY, MessageQuery(1, 300, True, 100, PLENTY, run_id="none")),
            lambda: self.store.read(KEY, inc, range(1, 301)),
            lambda: self.store.list_entries(KEY, inc, 1, 300, 1_000),
            lambda: self.store.list_in_reading_order(KEY, inc, 1, 300, 1_000),
            lambda: self.store.read_summaries(KEY, inc, [1, 2]),
            lambda: self.store.list_unusable(KEY, EVERY, 100),
            lambda: self.store.list_events(KEY, inc, 0, 100),
            lambda: self.store.find(KEY, LookupKind.MESSAGE, ["a", "b"]),
            lambda: self.store.list_lookups(KEY, 100),
        ]
        assert [await self.trips(proxy, read) for read in reads] == [1] * len(reads)

    async def test_a_warm_append_takes_one(self, proxy: CountingProxy) -> None:
        await self.session.commit(call(1, usability=Usability.OPEN), lookups=[lookup("1")])

        async def append() -> None:
            assert self.session.record is not None
            seq = self.session.record.last_seq + 1
            await self.session.commit(message(seq), completed=[1], lookups=[lookup(f"{seq}")], events=[])

        assert await self.trips(proxy, append) == 1

    async def test_every_change_takes_one(self, proxy: CountingProxy) -> None:
        """What moves a session in lists, and what ends it, too."""

        async def fold() -> None:
            assert self.session.record is not None
            number = self.session.record.last_summary + 1
            await self.session.commit(
                new_summaries=(summary(number),),
                dropped_summaries=(number - 1,),
                summaries=(link(number),),
                last_summary=number,
                folding=Folding(wanted=number),
            )

        changes: list[Callable[[], Awaitable[object]]] = [
            fold,
            lambda: self.session.commit(activity=(self.session.record.activity if self.session.record else 0) + 1),
            lambda: self.session.commit(user_id="user", ttl=1),
            lambda: self.session.remove(1, 1),
            lambda: self.session.be_reborn(message(1), lookups=[]),
        ]
        await self.session.commit(message(1))
        assert [await self.trips(proxy, change) for change in changes] == [1] * len(changes)
        before = proxy.round_trips
        await self.session.die()
        await self.session.commit(message(1))
        assert proxy.round_trips - before == 2

    async def test_appends_to_many_sessions_and_chains_of_them_take_one(self, proxy: CountingProxy) -> None:
        sessions = [Session(self.store, KEY._replace(session_id=f"{number}")) for number in range(20)]
        for each in sessions:
            await each.commit(message(1))

        async def append() -> None:
            changes: list[Change] = []
            for each in sessions:
                for _ in range(3):
                    assert each.record is not None
                    seq = each.record.last_seq + 1
                    changes.append(change_of(each.key, each.record, message(seq), lookups=[lookup(f"{seq}")]))
                    each.record = changes[-1].record
            assert await self.store.commit(changes) == [Committed()] * 60

        assert await self.trips(proxy, append) == 1

    async def test_of_files_takes_each_call_one(self, proxy: CountingProxy) -> None:
        """A rendering of memory reads the index of a user and that of a project (design section 7)."""
        files = [File(self.store), File(self.store, FileOwner("tenant", Tier.PROJECT, "project"))]
        for file in files:
            await file.save(b"- prefers uv\n" * 100)
        mine = files[0]
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: self.store.load_files([file.key for file in files]),
            lambda: mine.save(b"x"),
            lambda: self.store.list_files(OWNER, "", 100),
            lambda: self.store.list_file_versions(mine.key),
            lambda: self.store.load_file_version(mine.key, 1),
            lambda: self.store.delete_file(mine.key, Version("another", 1)),
        ]
        assert [await self.trips(proxy, call) for call in calls] == [1] * len(calls)

    async def test_births_of_many_sessions_take_one(self, proxy: CountingProxy) -> None:
        numbers = iter(range(100))

        async def be_born() -> None:
            changes = [birth(KEY._replace(session_id=f"{next(numbers)}"), message(1)) for _ in range(10)]
            assert await self.store.commit(changes) == [Committed()] * 10

        assert await self.trips(proxy, be_born) == 1

    async def test_a_page_of_sessions_takes_two(self, proxy: CountingProxy) -> None:
        for number in range(100):
            await Session(self.store, KEY._replace(session_id=f"{number}")).commit(activity=number)
        pages = (SessionQuery("tenant", None, None, 100), SessionQuery("tenant", "agent", None, 30))
        assert [await self.trips(proxy, lambda page=page: self.store.list_sessions(page)) for page in pages] == [2, 2]  # type: ignore[misc]

    async def test_a_page_of_folds_takes_two(self, proxy: CountingProxy) -> None:
        for number in range(30):
            key = KEY._replace(session_id=f"{number}")
            await Session(self.store, key).commit(folding=Folding(wanted=number + 1))
        assert await self.trips(proxy, lambda: self.store.list_folds("tenant", "agent", 1 << 60, 30)) == 2


class TestCost:
    """(invariant 17)"""

    async def build(self, store: RedisStore, name: str, length: int) -> Session:
        """A session whose every third message is an orphan."""
        session = Session(store, KEY._replace(session_id=name))
        await session.commit(message(1), opening_to=1)
        for first in range(2, length, 250):
            seqs = range(first, min(first + 250, length))
            sent = [orphan(seq) if seq % 3 == 0 else message(seq) for seq in seqs]
            await session.commit(*sent, lookups=[lookup(f"{seq}") for seq in seqs])
        return session

    async def touched(self, client: Client, work: Callable[[], Awaitable[object]]) -> dict[str, int]:
        """The commands of a call and of its scripts."""
        await work()
        client.config_resetstat()
        await work()
        return {name: calls for name, calls in calls_of(client).items() if not name.startswith(("info", "config"))}

    async def test_of_a_load_and_of_an_append_is_that_of_what_they_answer(self, own_url: str, client: Client) -> None:
        """Not that of the history: of equal commands, none answers more than it is asked for."""
        store = await opened(own_url)
        costs = []
        for length in (200, 4_000):
            session = await self.build(store, f"{length}", length)

            async def append(session: Session = session) -> None:
                assert session.record is not None
                seq = session.record.last_seq + 1
                await session.commit(message(seq), lookups=[lookup(f"{seq}")])

            tails = (
                Tail(USABLE, 20, opening=True, body_bytes=PLENTY),
                Tail(BOTH, 100_000, 200, opening=True, body_bytes=PLENTY),
            )
            loads = [lambda tail=tail, key=session.key: store.load(key, tail) for tail in tails]
            works: list[Callable[[], Awaitable[object]]] = [append, *loads]
            costs.append([await self.touched(client, work) for work in works])
        assert costs[0] == costs[1]
        assert all(sum(cost.values()) <= 8 for cost in costs[0])
        await store.close()

    async def test_of_a_summary_is_the_same_whatever_it_covers(self, own_url: str, client: Client) -> None:
        store = await opened(own_url)
        costs = []
        for length in (200, 4_000):
            session = await self.build(store, f"{length}", length)

            async def fold(session: Session = session, length: int = length) -> None:
                assert session.record is not None
                number = session.record.last_summary + 1
                made = link(number, to_head=length - 20, to_seq=length - 20, messages=length - 20)
                await session.commit(
                    new_summaries=(summary(number),),
                    dropped_summaries=(number - 1,),
                    summaries=(made,),
                    last_summary=number,
                )

            async def read_groups(session: Session = session, length: int = length) -> None:
                assert session.record is not None
                inc = session.record.incarnation
                assert await store.list_in_reading_order(session.key, inc, length - 100, length, 50) is not None

            costs.append([await self.touched(client, work) for work in (fold, read_groups)])
        assert costs[0] == costs[1]
        assert all(sum(cost.values()) <= 8 for cost in costs[0])
        await store.close()

    async def test_of_a_load_asked_for_a_summary_is_that_of_any_other_where_there_is_none(
        self, own_url: str, client: Client
    ) -> None:
        store = await opened(own_url)
        session = await self.build(store, "session", 200)
        tail = Tail(USABLE, 20, opening=True, body_bytes=PLENTY)
        asking = Tail(USABLE, 20, opening=True, body_bytes=PLENTY, summary=True)
        plain = await self.touched(client, lambda: store.load(session.key, tail))
        assert await self.touched(client, lambda: store.load(session.key, asking)) == plain
        await session.commit(**summaries(1))
        assert await self.touched(client, lambda: store.load(session.key, tail)) == plain
        assert await self.touched(client, lambda: store.load(session.key, asking)) == {**plain, "hget": 1}
        await session.commit(summaries=(), dropped_summaries=(1,))
        assert await self.touched(client, lambda: store.load(session.key, asking)) == plain
        await store.close()

    async def test_of_a_load_in_bytes_is_that_of_what_it_answers(self, own_url: str, client: Client) -> None:
        store = await opened(own_url)
        sent = []
        for length in (200, 4_000):
            session = await self.build(store, f"{length}", length)
            tail = Tail(USABLE, 20, body_bytes=PLENTY)
            await store.load(session.key, tail)
            before = info_of(client, "stats")["total_net_output_bytes"]
            for _ in range(20):
                await store.load(session.key, tail)
            sent.append(info_of(client, "stats")["total_net_output_bytes"] - before)
        assert sent[1] < sent[0] * 1.1
        await store.close()

    async def test_of_files_is_the_same_whatever_else_there_is(self, own_url: str, client: Client) -> None:
        """Of versions and of other files: nothing but what is answered is read."""
        store = await opened(own_url)
        costs, sent = [], []
        for versions, others in ((2, 3), (limits.MAX_FILE_VERSIONS - 3, 200)):
            owner = FileOwner("tenant", Tier.USER, f"{others}")
            file = File(store, owner)
            for _ in range(versions):
                await file.save(b"x" * 1_000)
            for number in range(others):
                await File(store, owner, f"2026-{number:03}.md").save(b"y" * 1_000)

            async def load(file: File = file) -> None:
                assert await store.load_files([file.key]) == [file.current]

            async def save(file: File = file) -> None:
                await file.save(b"x" * 1_000)

            async def list_some(owner: FileOwner = owner) -> None:
                assert len(await store.list_files(owner, "", 3)) == 3

            costs.append([await self.touched(client, work) for work in (load, save, list_some)])
            before = info_of(client, "stats")["total_net_output_bytes"]
            for _ in range(20):
                await load()
                await list_some()
            sent.append(info_of(client, "stats")["total_net_output_bytes"] - before)
        assert costs[0] == costs[1]
        assert all(sum(cost.values()) <= 9 for cost in costs[0])
        assert sent[1] < sent[0] * 1.1
        await store.close()

    async def test_no_call_looks_for_keys(self, own_url: str, client: Client) -> None:
        """(design section 8: lists are read from an index)"""
        store = await opened(own_url)
        client.config_resetstat()
        session = Session(store, KEY)
        await fill(session)
        assert session.record is not None
        await session.tail()
        await session.page()
        await store.find(KEY, LookupKind.MESSAGE, ["a"])
        await store.list_lookups(KEY, 10)
        for query in (SessionQuery("tenant", None, None, 9), SessionQuery("tenant", "agent", "user", 9)):
            await store.list_sessions(query)
        for due in Due:
            await store.list_due(due, 1 << 60, 10)
        await store.save_agent(AgentRecord("tenant", "agent", 1, 1))
        await store.list_folds("tenant", "agent", 1 << 60, 10)
        await store.read_summaries(KEY, session.record.incarnation, [1, 2])
        await store.list_in_reading_order(KEY, session.record.incarnation, 1, 9, 9)
        await store.load_run(KEY, "ended")
        await store.list_steps(KEY, session.record.incarnation, "ended", 0, 10, PLENTY)
        for session_id in (None, "session"):
            await store.list_runs(RunQuery("tenant", "agent", session_id, frozenset({RunStatus.RUNNING}), 10))
        await store.list_claimable("tenant", "agent", 1 << 60, 10)
        await store.load_claimable("tenant", "agent", 1 << 60, 4)
        await store.list_ended_runs("tenant", "agent", 1 << 60, 10)
        await store.delete_run(RunName(KEY, session.record.incarnation, "ended"), 1)
        await store.list_agents("tenant", "", 10)
        await store.list_tenants("", 10)
        await store.lease("sweep", "holder", 10)
        await store.adopt_secret(b"secret")
        await store.adopted_secrets()
        await store.purge(KEY, session.record.incarnation, 1, 1, 10)
        staging = await store.begin_staging("tenant", "user", 1)
        await store.stage(staging, [message(1)], [lookup("a")], 1)
        await store.end_staging(staging)
        file = File(store)
        await File(store, name="2026-01-01.md").save(b"a")
        await file.save(b"a")
        await file.save(b"b")
        assert file.expected is not None
        await store.load_files([file.key])
        await store.load_file_version(file.key, 1)
        await store.list_file_versions(file.key)
        await store.list_files(OWNER, "", 10)
        await owners(store)
        await tenants(store)
        await store.delete_file(file.key, file.expected)
        await session.die()
        await swept(store, ALWAYS)
        await erased(store, "user")
        used = set(calls_of(client))
        assert not used & {"keys", "scan", "hscan", "zscan", "sscan", "hgetall", "hkeys", "hvals", "sort", "randomkey"}
        await store.close()


class TestScripts:
    async def test_that_the_server_has_forgotten_are_sent_again(self, own_url: str, client: Client) -> None:
        store = await opened(own_url)
        session = Session(store, KEY)
        await session.commit(message(1), lookups=[lookup("a")])
        for seq in (2, 3):
            client.script_flush()
            await session.commit(message(seq), lookups=[lookup(f"{seq}")])
            client.script_flush()
            assert await session.tail() == [*range(seq, 0, -1)]
        others = [Session(store, KEY._replace(session_id=f"{number}")) for number in range(5)]
        client.script_flush()
        assert await store.commit([birth(each.key, message(1)) for each in others]) == [Committed()] * 5
        assert sorted(await listed(store)) == ["0", "1", "2", "3", "4", "session"]
        await store.close()

    async def test_leave_a_session_of_another_name_with_the_same_digest_alone(
        self, store: RedisStore, session: Session, url: str
    ) -> None:
        """Nobody finds such names; were they found, no data would be mixed up (invariant 5)."""
        await session.commit(message(1), lookups=[lookup("a")])
        name = keys_of(url).session(KEY)
        with connected(url) as client:
            client.hset(name.hash, "key", joined("tenant", "agent", "another"))
        assert await store.load(KEY) is None
        assert await store.find(KEY, LookupKind.MESSAGE, ["a"]) == []
        assert session.record is not None
        for work in (
            lambda: store.load(KEY, Tail(USABLE, 1)),
            lambda: store.commit([change_of(KEY, session.record, message(2))]),
            lambda: store.list_lookups(KEY, 1),
        ):
            with pytest.raises(Exception, match="another session has this digest"):
                await work()

    async def test_leave_files_of_another_name_with_the_same_digest_alone(self, store: RedisStore, url: str) -> None:
        """(likewise)"""
        file = File(store)
        await file.save(b"a")
        assert file.expected is not None
        expected, next_one = file.expected, file.next(b"b")
        all_keys = keys_of(url)
        owner = all_keys.file_owner(OWNER)
        of_one: list[Callable[[], Awaitable[object]]] = [
            lambda: store.load_files([file.key]),
            lambda: store.load_file_version(file.key, 1),
            lambda: store.list_file_versions(file.key),
            lambda: store.save_file(next_one, expected),
            lambda: store.delete_file(file.key, expected),
            lambda: store.erase("tenant", "user", 10),
        ]
        with connected(url) as client:
            client.hset(all_keys.file(owner, INDEX), "key", owner.key + joined("ANOTHER.md"))
            for work in of_one:
                with pytest.raises(Exception, match="another file has this digest"):
                    await work()
            client.hset(all_keys.file(owner, INDEX), "key", owner.key + joined(INDEX))
            client.hset(owner.hash, "key", joined("tenant", "1", "another"))
            for work in (*of_one[3:], lambda: store.list_files(OWNER, "", 10)):
                with pytest.raises(Exception, match="another owner of files has this digest"):
                    await work()
            assert await owners(store) == []
            assert client.hget(all_keys.file(owner, INDEX), "ver") == bytes(7) + b"\x01"


class TestStaleEntries:
    """What a crash of the server between two of its commands leaves is passed over, and taken away by a sweep."""

    async def test_of_sessions_that_never_were_disturb_no_list(
        self, store: RedisStore, session: Session, url: str
    ) -> None:
        await session.commit(message(1), user_id="user", ttl=1, folding=Folding(wanted=1))
        partition = keys_of(url).session(KEY).partition
        with connected(url) as client:
            for member in members_of(client, partition):
                unborn = (member[:-24] + member[-24:-23] + bytes([byte]) * 23 for byte in (0, 255))
                add_members(client, partition, unborn)
        for conditions in ({}, {"agent": "agent"}, {"user_id": "user"}):
            assert await listed(store, page_size=1000, **conditions) == ["session"]
        for due in Due:
            page = await store.list_due(due, 1 << 60, 1000)
            assert set(page.keys) <= {KEY}
        assert list((await store.list_folds("tenant", "agent", 1 << 60, 1000)).keys) == [KEY]

    async def test_of_another_agent_are_no_fold_of_this_one(
        self, store: RedisStore, session: Session, url: str
    ) -> None:
        """(invariant 5)"""
        await session.commit(message(1), folding=Folding(wanted=1))
        name = keys_of(url).session(KEY)
        for tenant, agent in (("tenant", "another"), ("another", "agent")):
            with connected(url) as client:
                add_members(client, name.partition, [folds(tenant, agent) + bytes(8) + name.digest])
            page = await store.list_folds(tenant, agent, 1 << 60, 10)
            assert (list(page.keys), page.after) == ([], "")

    async def test_of_what_is_due_are_taken_away(self, store: RedisStore, session: Session, url: str) -> None:
        await fill(session)
        await session.die()
        partition = keys_of(url).session(KEY).partition
        with connected(url) as client:
            due = [member for member in members_of(client, partition) if member.startswith(b"Q")]
            assert {member[9:10] for member in due} == {b"L", b"N", b"V"}
            add_members(client, partition, (member[:11] + b"\xff" * 23 + member[34:] for member in due))
            add_members(client, partition, [b"Q" + bytes(8) + b"S" + b"\xff" * 16])
            await swept(store, ALWAYS)
            await erased(store, "user")
            assert members_of(client, partition) == []

    async def test_of_a_tenant_whose_agent_was_not_written_yet_is_not_listed(
        self, store: RedisStore, session: Session, url: str
    ) -> None:
        with connected(url) as client:
            client.zadd(keys_of(url).tenants, {"another": 0})
        await session.commit()
        assert list(await store.list_tenants("", 10)) == ["tenant"]
        assert list(await store.list_tenants("", 1)) == ["tenant"]

    async def test_of_an_agent_whose_session_was_not_written_stay(self, store: RedisStore, url: str) -> None:
        """An agent is known a moment before its first session, and is never taken away."""
        names, _ = keys_of(url).agents("tenant")
        with connected(url) as client:
            client.zadd(names, {"agent": 0})
        assert await store.load_agent("tenant", "agent") == AgentRecord("tenant", "agent")
        await Session(store, KEY).commit()
        assert list(await store.list_agents("tenant", "", 10)) == [AgentRecord("tenant", "agent")]

    async def test_of_files_that_never_were_disturb_no_list_and_go_with_an_erasure(
        self, store: RedisStore, url: str
    ) -> None:
        """Members are there before what they tell of."""
        saved = await File(store, name="5").save(b"x")
        owner = keys_of(url).file_owner(OWNER)
        strangers = [FileOwner("tenant", tier, f"{number}") for tier in Tier for number in range(5)]
        with connected(url) as client:
            add_members(client, owner.partition, (b"M" + owner.digest + b"%d" % number for number in range(10)))
            for each in (*strangers, FileOwner("another", Tier.USER, "user"), FileOwner("z", Tier.USER, "user")):
                add_members(client, keys_of(url).file_owner(each).partition, [of_owner(each)])
            for limit in (1, 2, 100):
                assert list(await store.list_files(OWNER, "", limit)) == [("5", saved.version)]
                assert list(await store.list_files(OWNER, "5", limit)) == []
                assert list(await store.list_file_owners("tenant", None, limit)) == [OWNER]
                assert list(await store.list_file_tenants("", limit)) == ["tenant"]
            assert list(await store.list_file_owners("another", None, 10)) == []
            assert (await erased(store, "user")).files == 1
            left = members_of(client, owner.partition)
            assert (of_owner(OWNER) in left, [member for member in left if member.startswith(b"M")]) == (False, [])
            stranger = keys_of(url).file_owner(strangers[0])
            assert of_owner(strangers[0]) in members_of(client, stranger.partition)
            assert (await erased(store, strangers[0].id)).total == 0
            assert of_owner(strangers[0]) not in members_of(client, stranger.partition)


class TestData:
    async def test_of_a_newer_format_is_refused(self, store: RedisStore, url: str) -> None:
        await store.ping()
        with connected(url) as client:
            client.hset(keys_of(url).meta, "format", FORMAT + 1)
        with pytest.raises(StoreMisconfigured, match=rf"has the format {FORMAT + 1}, and this version knows {FORMAT}"):
            await opened(url)

    @pytest.mark.parametrize(
        "told", [{"format": 1}, {"format": 2, "partitions": PARTITIONS}], ids=["version 1", "cluster"]
    )
    async def test_in_many_partitions_is_found_on_one_server(self, url: str, told: dict[str, Any]) -> None:
        """Data of earlier versions, and of a cluster: sessions, files, runs, and each list of them in its order."""
        with connected(url) as client:
            for name, value in {**told, "secret": "x" * 32}.items():
                client.hset(Keys(prefix_of(url)).meta, name, value)
        store = await opened(url)
        sessions = [Session(store, KEY._replace(session_id=f"{number:02}")) for number in range(40)]
        for number, each in enumerate(sessions):
            waiting = run_state(RunStatus.INTERRUPTED, updated=TIME + number * 7 % 40)
            await each.commit(
                message(1),
                user_id="user",
                activity=TIME + number,
                changed_runs=(RunChange("run", waiting, RunHead(TIME)),),
                runs=(RunLink("run", waiting),),
            )
        found = {found.decode() for _, found in keys(url)}
        assert {Keys(prefix_of(url)).session(each.key).hash for each in sessions} <= found
        await File(store).save(b"x")
        assert await owners(store) == [OWNER]
        for page in (3, 100):
            assert await listed(store, page) == [each.key.session_id for each in reversed(sessions)]
        names = [name.key for name in await store.list_claimable("tenant", "agent", TIME + 100, 100)]
        assert names == [each.key for each in sorted(sessions, key=lambda each: int(each.key.session_id) * 7 % 40)]
        [first] = await store.load_claimable("tenant", "agent", TIME + 100, 4)
        assert (first.key, first.record) == (KEY._replace(session_id="00"), sessions[0].record)
        for each in sessions:
            await each.die()
        deleted = await erased(store, "user", limit=7)
        assert (deleted.sessions, deleted.runs, deleted.files) == (40, 40, 1)
        await store.close()

    async def test_that_was_flushed_is_missed(self, own_url: str, client: Client) -> None:
        store = await opened(own_url)
        await store.ping()
        client.flushall()
        with pytest.raises(StoreUnavailable, match=r"is gone from Redis.*Restart memoryd"):
            await store.ping()
        await store.close()
        again = await opened(own_url)
        await again.ping()
        await again.close()

    async def test_in_another_database_is_another_store(self, own_url: str) -> None:
        first = await opened(own_url)
        second = await opened(with_options(own_url, db=1))
        await Session(first, KEY).commit(message(1))
        assert await second.load(KEY) is None
        await first.close()
        await second.close()


class TestLongReads:
    """Windows that take several scripts are of one moment, and no script reads more than its part."""

    @pytest.fixture(autouse=True)
    def short_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = "memoryd_server.stores.redis.reads"
        monkeypatch.setattr(f"{module}.ENTRIES_A_SCRIPT", 7)
        monkeypatch.setattr(f"{module}.LOOKS_A_SCRIPT", 5)
        monkeypatch.setattr(f"{module}.BODY_BYTES_A_SCRIPT", 950)

    def history(self) -> list[StoredMessage]:
        sent = [message(seq, role=1) for seq in range(1, 20)]
        sent += [call(20, calls=9), *(result(21 + index, 20, index) for index in range(9))]
        sent += [orphan(seq) if seq % 5 == 0 else message(seq, run_id=f"{seq % 3}") for seq in range(30, 100)]
        sent += [call(100, calls=30), *(result(101 + index, 100, index) for index in range(30))]
        return sent

    @pytest.mark.parametrize(
        "tail",
        [
            Tail(USABLE, 1_000, opening=True, body_bytes=PLENTY),
            Tail(USABLE, 1_000, opening=True),
            Tail(EVERY, 1_000, opening=True, body_bytes=PLENTY),
            Tail(EVERY, 8, body_bytes=PLENTY),
            Tail(BOTH, 60, opening=True, body_bytes=PLENTY),
            Tail(BOTH, 1_000, 600, opening=True, body_bytes=PLENTY),
            Tail(BOTH, 1_000, 1, opening=True, body_bytes=4_000),
            Tail(BOTH, 1_000, opening=True, summary=True),
            Tail(BOTH, 1_000, opening=True, summary=True, body_bytes=PLENTY),
        ],
        ids=str,
    )
    async def test_of_windows_answer_what_one_script_would(
        self, session: Session, tail: Tail, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await session.commit(*self.history(), opening_to=19, **summaries(1, 2))
        await session.remove(40, 60)
        in_parts = await session.store.load(KEY, tail)
        monkeypatch.undo()
        assert in_parts == await session.store.load(KEY, tail)

    @pytest.mark.parametrize("descending", [False, True])
    @pytest.mark.parametrize("limit", [1, 5, 6, 1_000])
    async def test_of_pages_answer_what_one_script_would(
        self, session: Session, descending: bool, limit: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await session.commit(*self.history())
        await session.remove(40, 60)
        queries = [
            MessageQuery(1, 1_000, descending, limit, PLENTY),
            MessageQuery(1, 1_000, descending, limit, PLENTY, run_id="1"),
            MessageQuery(7, 90, descending, limit, 650, roles=frozenset([1, 3])),  # type: ignore[list-item]
            MessageQuery(200, 300, descending, limit, PLENTY),
        ]
        in_parts = [await session.store.list_messages(KEY, query) for query in queries]
        monkeypatch.undo()
        assert in_parts == [await session.store.list_messages(KEY, query) for query in queries]

    async def test_of_messages_answer_what_one_script_would(
        self, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        record = await session.commit(*self.history())
        seqs = [*range(150, 0, -1), 3, 3]
        in_parts = await session.store.read(KEY, record.incarnation, seqs)
        monkeypatch.undo()
        assert in_parts == await session.store.read(KEY, record.incarnation, seqs)

    @pytest.mark.parametrize("limit", [1, 7, 8, 14, 1_000])
    async def test_in_reading_order_answer_what_one_script_would(
        self, session: Session, limit: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        record = await session.commit(*self.history(), call(140, usability=Usability.OPEN))
        record = await session.remove(22, 24)
        record = await session.remove(40, 60)
        ranges = ((1, 1_000), (20, 45), (50, 100), (61, 62), (200, 300))
        reads = [(session.key, record.incarnation, *heads, limit) for heads in ranges]
        in_parts = [await session.store.list_in_reading_order(*read) for read in reads]
        monkeypatch.undo()
        assert in_parts == [await session.store.list_in_reading_order(*read) for read in reads]

    async def test_in_reading_order_end_with_the_life(self, store: RedisStore, session: Session, url: str) -> None:
        record = await session.commit(*self.history())
        run = store._nodes.run
        parts = 0

        async def interrupted(*calls: Any, **arguments: Any) -> Any:
            nonlocal parts
            parts += 1
            if parts == 3:
                store._nodes.run = run  # type: ignore[method-assign]
                await session.be_reborn(message(1))
            return await run(*calls, **arguments)

        store._nodes.run = interrupted  # type: ignore[method-assign]
        assert await store.list_in_reading_order(KEY, record.incarnation, 1, 1_000, 1_000) is None

    @pytest.mark.parametrize("what", ["append", "redact", "complete", "remove", "be reborn", "die"])
    async def test_are_of_one_moment_whatever_happens_in_between(
        self, store: RedisStore, session: Session, url: str, what: str
    ) -> None:
        other = Session(await opened(url), KEY)
        sent = [message(seq) for seq in range(1, 60)]
        await session.commit(*sent, call(60, usability=Usability.OPEN))
        other.record = session.record
        run, parts = store._nodes.run, 0

        async def interrupted(*calls: Any, **arguments: Any) -> Any:
            nonlocal parts
            parts += 1
            if parts == 3:
                await change(other, what)
            return await run(*calls, **arguments)

        store._nodes.run = interrupted  # type: ignore[method-assign]
        loaded = await store.load(KEY, Tail(USABLE, 1_000, body_bytes=PLENTY))
        if loaded is None:
            assert what == "die"
        else:
            store._nodes.run = run  # type: ignore[method-assign]
            seen = {"version": loaded.record.version, "incarnation": loaded.record.incarnation}
            if what == "append":
                assert seen["version"] == 1
                assert [*loaded.tail] == sent[::-1]
            else:
                assert loaded == await store.load(KEY, Tail(USABLE, 1_000, body_bytes=PLENTY))
        assert isinstance(other.store, RedisStore)
        await other.store.close()


async def change(session: Session, what: str) -> None:
    """Changes a session of 59 messages and an open group in some way."""
    match what:
        case "append":
            await session.commit(message(61))
        case "redact":
            await session.commit(replaced=[message(5, content=None, size=7, tokens=1)])
        case "complete":
            await session.commit(result(61, 60), completed=[60])
        case "remove":
            await session.remove(3, 9)
        case "be reborn":
            await session.be_reborn(message(1, id="new"))
        case "die":
            await session.die()


async def test_a_read_of_a_session_that_never_keeps_still_ends(store: RedisStore, session: Session) -> None:
    """(three beginnings, and then one script for all)"""
    await session.commit(*(message(seq) for seq in range(1, 3_001)))
    run = store._nodes.run
    changes = 0

    async def interrupted(*calls: Any, **arguments: Any) -> Any:
        nonlocal changes
        replies = await run(*calls, **arguments)
        if calls[0].command[0] == "EVALSHA" and changes < 50:
            changes += 1
            await session.commit(replaced=[message(1, size=changes)])
        return replies

    store._nodes.run = interrupted  # type: ignore[method-assign]
    loaded = await store.load(KEY, Tail(USABLE, 100_000))
    assert loaded is not None
    assert (len(loaded.tail), loaded.tail[-1].size) == (3_000, loaded.record.version - 1)


async def test_nothing_is_left_to_delete_after_deaths_of_many_users(store: RedisStore) -> None:
    """A walk finds all, part by part."""
    sessions = [Session(store, KEY._replace(session_id=f"{number}")) for number in range(300)]
    for number, each in enumerate(sessions):
        await each.commit(message(1), user_id=f"user {number % 3}")
        await each.die()
    assert await erased(store, "user 1") == Deleted(messages=100, sessions=100)
    assert await swept(store, ALWAYS) == Deleted(messages=200, sessions=200)


async def test_many_files_are_erased_by_scripts_of_some(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """No script keeps the server from others for long."""
    monkeypatch.setattr("memoryd_server.stores.redis.files.FILES_A_SCRIPT", 3)
    for number in range(10):
        await File(store, name=f"{number}").save(b"x")
    assert await store.erase("tenant", "user", 8) == Deleted(files=8)
    assert [name for name, _ in await store.list_files(OWNER, "", 10)] == ["9", "8"]
    assert await owners(store) == [OWNER]
    assert await store.erase("tenant", "user", 8) == Deleted(files=2)
    assert await owners(store) == []


async def test_many_owners_and_tenants_of_files_are_listed_in_pages(store: RedisStore) -> None:
    """A walk finds all, part by part."""
    expected = [FileOwner(f"{tenant}", Tier.USER, f"{number:03}") for tenant in range(3) for number in range(150)]
    for owner in expected:
        await File(store, owner).save(b"x")
    for page in (7, 100, 1_000):
        assert [each for tenant in range(3) for each in await owners(store, f"{tenant}", page)] == expected
    for page in (1, 2, 3, 100):
        assert list(await store.list_file_tenants("", page)) == ["0", "1", "2"][:page]
        assert list(await store.list_file_tenants("1", page)) == ["2"]
