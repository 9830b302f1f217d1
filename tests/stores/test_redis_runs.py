"""Runs on Redis: where they stand, what calls take and touch, what becomes of list entries that tell of none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from redis import Redis as Client

from memoryd_server import limits
from memoryd_server.stores.base import Committed, Conflict, Deleted, RunChange, RunName, RunQuery
from memoryd_server.stores.records import RunHead, RunLink, RunStatus, SessionKey
from memoryd_server.stores.redis.keys import joined
from memoryd_server.stores.redis.members import run_list
from memoryd_server.stores.redis.runs import StaleEntry
from memoryd_server.stores.redis.store import RedisStore
from tests.databases.kinds import REDIS
from tests.databases.redis import connected, keys
from tests.databases.servers import OwnServer
from tests.databases.shared import new_database
from tests.stores.builders import TIME, Session, change_of, death, erased, message, run_state, step, swept
from tests.stores.counting_proxy import CountingProxy, counting_proxy
from tests.stores.redis_servers import add_members, calls_of, info_of, keys_of, members_of, opened
from tests.stores.test_runs import ANYTHING, HOUR, Runs, claimable, ended, ids

pytestmark = REDIS.mark

KEY = SessionKey("tenant", "agent", "session")
PLENTY = 1 << 20
LISTS = (b"R", b"A")
"""What members of lists of runs, and of sessions with unfinished ones, begin with."""


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


@pytest.fixture
def runs(session: Session) -> Runs:
    """The runs of a session that is not born yet."""
    return Runs(session)


def done(run_id: str, at: int = TIME) -> RunChange:
    """The change that makes a run that has ended."""
    return RunChange(run_id, run_state(RunStatus.COMPLETED, ended=at), RunHead(at))


def lists(client: Client, url: str) -> list[bytes]:
    """The members of all lists that tell of runs."""
    members = [each for partition in keys_of(url).partitions for each in members_of(client, partition)]
    return [member for member in members if member.startswith(LISTS)]


class TestPlaces:
    async def test_of_runs_and_steps_are_in_the_keys_of_their_session(self, runs: Runs, url: str) -> None:
        await runs.begin("run")
        for number in range(1, 4):
            await runs.change("run", step("run", number), steps=number)
        name = keys_of(url).session(KEY)
        assert {found.decode() for _, found in keys(url) if b"{meta}" not in found and b":h" in found} == {name.hash}
        with connected(url) as client:
            life = bytes([0, 0, 0, 1])
            fields: Any = client.hkeys(name.hash)
            steps = {life + b"t\0\x03run" + number.to_bytes(8, "big") for number in (1, 2, 3)}
            assert {each for each in fields if each.startswith(life)} == {life + b"rrun", life + b"hrun", *steps}
            assert len(members_of(client, name.order)) == 4

    async def test_in_lists_are_those_of_the_present(self, runs: Runs, url: str) -> None:
        """All, by status, claimable and ended: whatever becomes of a run, nothing of what it was stays."""
        with connected(url) as client:

            def kinds() -> list[bytes]:
                return sorted(member[17:18] if member[:1] == b"R" else member[:1] for member in lists(client, url))

            await runs.begin("run", until=TIME + HOUR)
            assert kinds() == [b"\0", b"\1", b"A", b"C"]
            await runs.change("run", until=TIME + 2 * HOUR)
            assert kinds() == [b"\0", b"\1", b"A", b"C"]
            await runs.change("run", status=RunStatus.AWAITING_APPROVAL, until=0)
            assert kinds() == [b"\0", b"\3", b"A"]
            await runs.change("run", status=RunStatus.INTERRUPTED, updated=TIME + 1)
            assert kinds() == [b"\0", b"\2", b"A", b"C"]
            await runs.change("run", status=RunStatus.FAILED, ended=TIME + 2)
            assert kinds() == [b"\0", b"\7", b"E"]
            await runs.session.store.delete_run(runs.name("run"), 10)
            assert kinds() == []

    async def test_in_lists_go_with_the_life(self, runs: Runs, url: str) -> None:
        await runs.begin("run")
        await runs.begin("done", RunStatus.COMPLETED, ended=TIME)
        with connected(url) as client:
            assert lists(client, url)
            await runs.session.die()
            assert lists(client, url) == []

    async def test_hold_nothing_of_a_run_that_was_deleted_half_way_and_then_erased(
        self, session: Session, url: str
    ) -> None:
        """Not even its id."""
        record = await session.commit(
            user_id="user", changed_runs=(done("secret"),), new_steps=[step("secret", number) for number in (1, 2, 3)]
        )
        name = RunName(KEY, record.incarnation, "secret")
        assert await session.store.delete_run(name, 2) == 2
        await session.die()
        with connected(url) as client:
            partition = keys_of(url).session(KEY).partition
            assert any(b"secret" in member for member in members_of(client, partition))
            assert await erased(session.store, "user", limit=1) == Deleted(steps=2, sessions=1)
            assert not any(b"secret" in member for member in members_of(client, partition))


class TestRoundTrips:
    """(design section 5)"""

    @pytest.fixture
    async def proxy(self, url: str) -> AsyncIterator[CountingProxy]:
        async with counting_proxy(url) as (proxy, through):
            self.store = await opened(through)
            self.runs = Runs(Session(self.store, KEY))
            yield proxy
            await self.store.close()

    async def trips(self, proxy: CountingProxy, call: Callable[[], Awaitable[object]]) -> int:
        """Of a call whose like was made before."""
        await call()
        before = proxy.round_trips
        await call()
        return proxy.round_trips - before

    async def test_of_changes_and_of_reads_of_a_session_are_one(self, proxy: CountingProxy) -> None:
        runs = self.runs
        await runs.begin("run")

        async def commit_step() -> None:
            assert runs.session.record is not None
            number, seq = runs.runs["run"].state.steps + 1, runs.session.record.last_seq + 1
            await runs.change(
                "run", step("run", number), messages=(message(seq), message(seq + 1)), steps=number, updated=TIME + seq
            )

        assert runs.session.record is not None
        incarnation = runs.session.record.incarnation
        of_session = RunQuery("tenant", "agent", "session", frozenset({RunStatus.RUNNING}), 10)
        calls: list[Callable[[], Awaitable[object]]] = [
            commit_step,
            lambda: runs.change("run", until=TIME + runs.runs["run"].state.version),
            lambda: self.store.load_run(KEY, "run"),
            lambda: self.store.load_claimable("tenant", "agent", TIME, 4),
            lambda: self.store.list_steps(KEY, incarnation, "run", 0, 10, PLENTY),
            lambda: self.store.list_runs(of_session),
            lambda: self.store.delete_run(RunName(KEY, incarnation, "run"), 10),
        ]
        assert [await self.trips(proxy, call) for call in calls] == [1] * len(calls)

    async def test_of_a_page_of_an_agent_are_two(self, proxy: CountingProxy) -> None:
        for number in range(30):
            runs = Runs(Session(self.store, KEY._replace(session_id=f"{number}")))
            await runs.begin("run")
            await runs.begin("done", RunStatus.COMPLETED, ended=TIME)
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: self.store.list_runs(RunQuery("tenant", "agent", None, ANYTHING, 20)),
            lambda: self.store.list_runs(RunQuery("tenant", "agent", None, frozenset({RunStatus.RUNNING}), 20)),
            lambda: self.store.list_claimable("tenant", "agent", TIME, 1),
            lambda: self.store.list_claimable("tenant", "agent", TIME, 20),
            lambda: self.store.list_ended_runs("tenant", "agent", TIME + 1, 20),
        ]
        assert [await self.trips(proxy, call) for call in calls] == [2] * len(calls)


async def test_the_first_that_can_be_claimed_are_the_first_of_the_list(store: RedisStore) -> None:
    """A script of its own finds them, also among runs of one time, and of ids of which one begins another."""
    waiting = {}
    for number in range(40):
        runs = Runs(Session(store, KEY._replace(session_id=f"{number}")))
        for run_id in ("run", "run \xff", "run 2", "run"[: 1 + number % 3] + "s"):
            await runs.begin(run_id, RunStatus.INTERRUPTED, updated=TIME + 256 ** (number % 5) * 255)
        waiting[runs.session.key] = runs
    listed = await store.list_claimable("tenant", "agent", 1 << 55, 1_000)
    assert len(listed) == 4 * 40
    for place, name in enumerate(listed[:60]):
        some = listed[place : place + 1 + place % 4]
        whole = [(each.key, waiting[each.key].session.record, waiting[each.key].runs[each.run_id]) for each in some]
        assert await store._runs.load_claimable("tenant", "agent", 1 << 55, len(some)) == whole
        await waiting[name.key].change(name.run_id, status=RunStatus.CANCELLED, ended=TIME)


async def test_costs_are_the_same_whatever_else_there_is() -> None:
    """Of runs and of steps: nothing but what is answered is read, and no step is written twice."""
    with OwnServer(REDIS) as server, server.new_database() as url, connected(url) as client:
        store = await opened(url)
        costs, traffic = [], []
        for agent, others, steps in (("few", 20, 5), ("many", 2_000, 2_000)):
            runs = Runs(Session(store, KEY._replace(agent=agent)))
            await runs.begin("run", RunStatus.INTERRUPTED)
            for first in range(0, others, 20):
                await runs.session.commit(
                    changed_runs=[done(f"{number}", TIME + number) for number in range(first, first + 20)]
                )
            for first in range(1, steps, 200):
                numbers = range(first, min(first + 200, steps))
                await runs.change("run", *(step("run", number) for number in numbers), steps=numbers[-1])
            costs.append([await touched(client, work) for work in works_of(runs)])
            traffic.append(sum([await bytes_of(client, work) for work in works_of(runs)]))
        assert costs[0] == costs[1]
        assert traffic[1] < traffic[0] * 1.1
        await store.close()


def works_of(runs: Runs) -> list[Callable[[], Awaitable[object]]]:
    """A call of each kind about a session with a run `run` and others that ended."""
    store, key = runs.session.store, runs.session.key
    assert runs.session.record is not None
    incarnation = runs.session.record.incarnation

    async def commit_step() -> None:
        number = runs.runs["run"].state.steps + 1
        await runs.change("run", step("run", number), steps=number, updated=TIME + number)

    return [
        commit_step,
        lambda: runs.change("run", recoveries=runs.runs["run"].state.recoveries + 1),
        lambda: store.load_run(key, "run"),
        lambda: store.list_steps(key, incarnation, "run", 2, 2, PLENTY),
        lambda: store.list_runs(RunQuery("tenant", key.agent, key.session_id, ANYTHING, 5)),
        lambda: store.list_runs(RunQuery("tenant", key.agent, None, frozenset({RunStatus.INTERRUPTED}), 5)),
        lambda: store.list_claimable("tenant", key.agent, TIME + HOUR, 5),
        lambda: store.load_claimable("tenant", key.agent, TIME + HOUR, 4),
        lambda: store.list_ended_runs("tenant", key.agent, TIME + HOUR, 5),
    ]


async def touched(client: Client, work: Callable[[], Awaitable[object]]) -> dict[str, int]:
    """The commands of a call and of its scripts."""
    await work()
    client.config_resetstat()
    await work()
    return {name: calls for name, calls in calls_of(client).items() if not name.startswith(("info", "config"))}


async def bytes_of(client: Client, work: Callable[[], Awaitable[object]]) -> int:
    """What the server receives and sends for twenty calls."""
    names = ("total_net_input_bytes", "total_net_output_bytes")
    before = info_of(client, "stats")
    for _ in range(20):
        await work()
    after = info_of(client, "stats")
    return sum(after[name] - before[name] for name in names)


class TestStaleEntries:
    async def test_of_runs_that_never_were_disturb_no_list(self, runs: Runs, store: RedisStore, url: str) -> None:
        await runs.begin("run")
        await runs.begin("done", RunStatus.COMPLETED, ended=TIME)
        partition = keys_of(url).session(KEY).partition
        with connected(url) as client:
            for member in lists(client, url):
                if member.startswith(b"R"):
                    place, rest = member[:26], member[26:]
                    strangers = [
                        place + bytes([byte]) * 24 + rest[24:] + b"%d" % number
                        for byte in (0, 254)
                        for number in range(5)
                    ]
                    of_others = [place + rest + b"%d" % number for number in range(5)]
                    of_another_life = place + rest[:24] + bytes(4) + rest[28:]
                    other_times = [member[:18] + bytes([0, byte]) + member[20:] for byte in (0, 255)]
                    kind = member[17:18]
                    moved = other_times if kind in (b"C", b"E") else []
                    add_members(client, partition, [*strangers, *of_others, of_another_life, *moved])
        for page in (1, 2, 100):
            assert sorted(await ids(store, page)) == ["done", "run"]
            assert await ids(store, page, statuses=frozenset({RunStatus.RUNNING})) == ["run"]
            assert await ids(store, page, statuses=frozenset({RunStatus.RUNNING, RunStatus.FAILED})) == ["run"]
            assert await claimable(store, 1 << 55, page) == ["run"]
            assert await ended(store, 1 << 55, page) == ["done"]

    @pytest.mark.parametrize("stale", range(4))
    async def test_before_the_first_that_can_be_claimed_are_passed_over(
        self, runs: Runs, store: RedisStore, url: str, stale: int
    ) -> None:
        """Of another time, of another session, of another life, of another id."""
        await runs.begin("run", RunStatus.INTERRUPTED, updated=TIME)
        with connected(url) as client:
            [member] = [each for each in lists(client, url) if each[17:18] == b"C"]
            place, digest, rest = member[:18] + bytes(8), member[26:50], member[50:]
            strangers = [digest + rest, bytes(24) + rest, digest + bytes(4) + rest[4:], digest + rest + b"2"]
            add_members(client, keys_of(url).session(KEY).partition, [place + strangers[stale]])
        with pytest.raises(StaleEntry):
            await store._runs.load_claimable("tenant", "agent", TIME + HOUR, 4)
        found = await store.load_claimable("tenant", "agent", TIME + HOUR, 4)
        assert found == [(KEY, runs.session.record, runs.runs["run"])]

    async def test_of_another_agent_are_none_of_this_one(self, runs: Runs, store: RedisStore, url: str) -> None:
        """(invariant 5)"""
        await runs.begin("run")
        with connected(url) as client:
            [member] = [each for each in lists(client, url) if each[17:18] == b"C"]
            foreign = Runs(Session(store, KEY._replace(agent="another")))
            await foreign.begin("foreign", RunStatus.AWAITING_BUDGET)
            add_members(client, keys_of(url).session(KEY).partition, [of_another(member)])
        assert await claimable(store, TIME, agent="another") == []
        assert await ids(store, agent="another") == ["foreign"]

    async def test_of_more_runs_than_a_death_takes_out_are_passed_over_and_go_with_their_rows(
        self, session: Session, store: RedisStore, url: str
    ) -> None:
        count = 10_300
        for first in range(0, count, 500):
            numbers = range(first, min(first + 500, count))
            await session.commit(changed_runs=[done(f"{number}", TIME + number) for number in numbers])
        other = Runs(Session(store, KEY._replace(session_id="other")))
        await other.begin("other", RunStatus.COMPLETED, ended=TIME + HOUR)
        await session.die()
        with connected(url) as client:
            assert len(lists(client, url)) == 3 * 300 + 3
            assert await ids(store, 2) == await ended(store, TIME + 2 * HOUR, 1) == ["other"]
            assert await swept(store, limits.PURGE_DELAY_SECONDS + 1) == Deleted(runs=count)
            assert len(lists(client, url)) == 3


def of_another(member: bytes) -> bytes:
    """The same in the list of the agent `another`."""
    return run_list("tenant", "another", member[17:18]) + member[18:]


class TestConflicts:
    async def test_tell_that_a_run_is_there_is_gone_or_is_being_deleted(self, runs: Runs, store: RedisStore) -> None:
        """What a commit could not see in the record: deletions leave it as it is."""
        await runs.begin("there")
        await runs.begin("gone", RunStatus.COMPLETED, ended=TIME)
        await runs.begin("leaving")
        await runs.change("leaving", step("leaving", 1), step("leaving", 2), steps=2)
        await runs.change("leaving", status=RunStatus.COMPLETED, ended=TIME)
        assert await store.delete_run(runs.name("gone"), 10) == 1
        assert await store.delete_run(runs.name("leaving"), 1) == 1
        record = runs.session.record
        assert record is not None
        late = run_state(RunStatus.COMPLETED, version=2, ended=TIME)
        for change in (
            RunChange("there", run_state(), RunHead(TIME)),
            RunChange("leaving", run_state(), RunHead(TIME)),
            RunChange("gone", late, None),
            RunChange("gone", late, RunHead(TIME)),
        ):
            fresh = RunChange("fresh", run_state(), RunHead(TIME))
            made = change_of(KEY, record, message(1), changed_runs=(fresh, change))
            assert await store.commit([made]) == [Conflict()]
        assert await ids(store) == ["there"]
        assert await store.delete_run(runs.name("leaving"), 10) == 2
        await runs.begin("again")
        assert sorted(await ids(store)) == ["again", "there"]

    async def test_of_ids_with_another_life_there_are_none(self, session: Session, store: RedisStore) -> None:
        await session.commit(changed_runs=(done("run"),), new_steps=(step("run", 1),))
        await session.be_reborn(changed_runs=(RunChange("run", run_state(), RunHead(TIME)),))
        assert session.record is not None
        page = await store.list_steps(KEY, session.record.incarnation, "run", 0, 10, PLENTY)
        assert page is not None
        assert list(page.steps) == []


async def test_another_session_with_the_same_digest_is_left_alone(runs: Runs, store: RedisStore, url: str) -> None:
    """(invariant 5)"""
    await runs.begin("done", RunStatus.COMPLETED, ended=TIME)
    record = runs.session.record
    assert record is not None
    with connected(url) as client:
        client.hset(keys_of(url).session(KEY).hash, "key", joined("tenant", "agent", "another"))
    works: list[Callable[[], Awaitable[object]]] = [
        lambda: store.load_run(KEY, "done"),
        lambda: store.list_steps(KEY, record.incarnation, "done", 0, 10, PLENTY),
        lambda: store.list_runs(RunQuery("tenant", "agent", "session", ANYTHING, 10)),
        lambda: store.delete_run(runs.name("done"), 10),
        lambda: store.commit([death(KEY, record)]),
    ]
    for work in works:
        with pytest.raises(Exception, match="another session has this digest"):
            await work()


async def test_many_runs_of_a_session_are_found_by_status(session: Session, store: RedisStore) -> None:
    """However many others stand between them: no script looks at more than some."""
    links = []
    for first in range(0, 2_400, 400):
        waiting = RunChange(f"waiting {first}", run_state(RunStatus.AWAITING_BUDGET), RunHead(TIME + first))
        links.append(RunLink(waiting.run_id, waiting.state))
        others = [done(f"{number}", TIME + number) for number in range(first, first + 400)]
        await session.commit(changed_runs=(*others, waiting), runs=tuple(links))
    expected = [f"waiting {first}" for first in range(2_000, -1, -400)]
    for page in (1, 4, 100):
        assert await ids(store, page, session_id="session", statuses=frozenset({RunStatus.AWAITING_BUDGET})) == expected
    assert len(await ids(store, 1_000, session_id="session")) == 2_406


async def test_deletion_goes_on_in_parts_beside_what_begins(runs: Runs, store: RedisStore) -> None:
    """A sweep takes what callers left, and nothing of runs whose ids begin likewise."""
    for run_id in ("a", "ab", "a\x01"):
        await runs.begin(run_id)
        await runs.change(run_id, *(step(run_id, number) for number in range(1, 6)), steps=5)
    await runs.change("a", status=RunStatus.COMPLETED, ended=TIME)
    assert await store.delete_run(runs.name("a"), 2) == 2
    assert await swept(store, 0, limit=3) == Deleted(steps=4)
    assert runs.session.record is not None
    for run_id in ("ab", "a\x01"):
        page = await store.list_steps(KEY, runs.session.record.incarnation, run_id, 0, 10, PLENTY)
        assert page is not None
        assert len(page.steps) == 5
    state = run_state(version=3, steps=5)
    change = change_of(KEY, runs.session.record, changed_runs=(RunChange("ab", state, None),))
    assert await store.commit([change]) == [Committed()]
