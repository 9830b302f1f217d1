"""Runs that nobody claims end, and those that ended long ago are deleted, by their end alone (invariant 15)."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from memoryd_server import limits
from memoryd_server.engine import agents, histories, run_changes, sweeping
from memoryd_server.engine.agents import AgentUpdate
from memoryd_server.engine.changes import SessionSettings
from memoryd_server.engine.run_access import RunView
from memoryd_server.engine.run_changes import Fence
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.sweeping import Sweeper, SweepReport
from memoryd_server.stores.base import Deleted, StoreUnavailable
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.records import RunStatus, SessionKey
from tests.adapters import ADAPTERS, EACH_ADAPTER, EACH_SHARED_ADAPTER, SQLITE_FILE, Adapter
from tests.engine.messages import KEY, user
from tests.engine.run_servers import DAY, SECOND, Worker, name_of, servers_on
from tests.engine.sessions import runtime_on
from tests.stores.damage import damage_record

HOUR = 3600 * SECOND
SQLITE = next(adapter for adapter in ADAPTERS if adapter.name == "sqlite")


@contextmanager
def ago(server: Runtime, microseconds: int) -> Iterator[None]:
    """Has the server believe that it is so long ago."""
    server.clock._offset -= microseconds
    try:
        yield
    finally:
        server.clock._offset += microseconds


@pytest.fixture(params=EACH_ADAPTER)
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Runtime]:
    """A server on each store in turn."""
    async with servers_on(request.param, tmp_path) as [server]:
        yield server


@pytest.fixture
def worker(server: Runtime) -> Worker:
    return Worker(server)


async def sweep(server: Runtime) -> SweepReport:
    """A round by hand."""
    report = await Sweeper(server, alone=False).sweep()
    assert report is not None
    return report


async def begin(worker: Worker, run_id: str, begun: int) -> RunView:
    """A queued run that began so long ago."""
    with ago(worker.server, begun):
        return await worker.create(run_id, queued=True)


async def work(worker: Worker, run_id: str, begun: int, ended: int, steps: int = 1) -> RunView:
    """A run that began and ended so long ago."""
    await begin(worker, run_id, begun)
    with ago(worker.server, ended):
        run = await worker.take(run_id)
        for number in range(1, steps + 1):
            await worker.step(run, number, user("hi"))
        return await worker.finish(run)


@pytest.fixture(params=["Pacific/Kiritimati", "Pacific/Pago_Pago"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A time zone in which it is tomorrow, or yesterday, for this process."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", request.param)
        time.tzset()
        assert abs(time.timezone) >= 11 * 3600
        yield request.param
    time.tzset()


@pytest.mark.usefixtures("zone")
async def test_retention_counts_from_the_end_in_any_time_zone(worker: Worker) -> None:
    """30 days, to the hour: whatever the process believes about local time."""
    await work(worker, "of last year", 400 * DAY, DAY)
    await work(worker, "29 days 23 hours", 30 * DAY, 30 * DAY - HOUR)
    await work(worker, "30 days 1 hour", 30 * DAY + HOUR, 30 * DAY + HOUR)
    gone = await work(worker, "31 days", 400 * DAY, 31 * DAY, steps=3)
    assert await sweep(worker.server) == SweepReport(0, 0, Deleted(runs=2, steps=4), 0)
    assert await worker.listed() == ["29 days 23 hours", "of last year"]
    assert [len(await worker.steps(run)) for run in await worker.listed()] == [1, 1]
    store, record = worker.server.store, await worker.record()
    assert await store.list_steps(KEY, record.incarnation, gone.run.id, 0, 10, 1 << 20) is None
    assert record.messages == 6
    assert await sweep(worker.server) == SweepReport(0, 0, Deleted(), 0)


async def test_unfinished_runs_are_kept_however_old_and_end_when_they_were_left_alone(worker: Worker) -> None:
    server = worker.server
    await begin(worker, "left alone", 100 * DAY)
    await begin(worker, "claimed since", 100 * DAY)
    await begin(worker, "changed since", 100 * DAY)
    await begin(worker, "29 days", 29 * DAY)
    with ago(server, 100 * DAY):
        held = await worker.create("held")
        await server.committer.run(
            KEY,
            lambda record, _known: run_changes.plan_renew(
                record, held.key, Fence.parse(held.fence), 100 * DAY + HOUR, server.clock
            ),
        )  # As every ten seconds since.
        await worker.create("an orphan")
    with ago(server, 3 * DAY):
        await worker.update(await worker.get("changed since"), RunStatus.AWAITING_BUDGET, by_etag=True)
        await worker.take("claimed since")
    assert await sweep(server) == SweepReport(0, 2, Deleted(), 0)
    left = await worker.get("left alone")
    assert (left.run.state.status, left.run.head.reason) == (RunStatus.ABANDONED, "nobody claimed it for 30 days")
    assert (await worker.get("an orphan")).run.state.status is RunStatus.ABANDONED
    unfinished = ["held", "29 days", "changed since", "claimed since"]
    assert sorted(await worker.listed(RunStatus.RUNNING, RunStatus.INTERRUPTED, RunStatus.AWAITING_BUDGET)) == sorted(
        unfinished
    )
    assert len((await worker.record()).runs) == 4
    await worker.step(held, 1)
    assert await sweep(server) == SweepReport(0, 0, Deleted(), 0)


async def test_one_that_was_left_alone_is_found_behind_many_that_have_ended(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_UNFINISHED_RUNS", 2)
    await begin(worker, "left alone", 100 * DAY)
    for number in range(5):
        await work(worker, f"{number}", DAY, DAY)
    assert (await sweep(worker.server)).abandoned == 1


async def test_a_session_expires_once_its_runs_were_abandoned(worker: Worker) -> None:
    """(invariant 18)"""
    with ago(worker.server, 100 * DAY):
        await worker.create("run", queued=True, ttl=HOUR)
    assert (await sweep(worker.server)).expired == 0
    assert (await worker.record()).runs == ()
    with ago(worker.server, -2 * HOUR):
        assert await worker.server.sessions.load(KEY) is None


async def test_each_agent_has_its_own_retention(worker: Worker) -> None:
    """`none` (0) keeps all; a tenant's agent is not another tenant's."""
    server, days = worker.server, {"agent": None, "keeps": 0, "short": 2 * DAY, "long": 300 * DAY}
    workers = {name: Worker(server, KEY._replace(agent=name)) for name in days}
    workers["foreign"] = Worker(server, SessionKey("tenant", "short", "session"))
    for name, retention in days.items():
        await agents.update(server, KEY.tenant, name, AgentUpdate(run_retention=retention))
    for each in workers.values():
        for ended in (1, 10, 40, 350):
            await work(each, f"{ended}", 400 * DAY, ended * DAY)
    assert (await sweep(server)).deleted == Deleted(runs=8, steps=8)
    assert {name: await each.listed() for name, each in workers.items()} == {
        "agent": ["10", "1"],
        "keeps": ["350", "40", "10", "1"],
        "short": ["1"],
        "long": ["40", "10", "1"],
        "foreign": ["10", "1"],
    }


@pytest.mark.parametrize("retention", [0, 5 * DAY])
async def test_the_servers_retention_holds_where_an_agent_has_none(tmp_path: Path, retention: int) -> None:
    async with servers_on(SQLITE, tmp_path, run_retention=retention) as [server]:
        worker = Worker(server)
        for ended in (1, 6, 400):
            await work(worker, f"{ended}", 401 * DAY, ended * DAY)
        own = Worker(server, KEY._replace(agent="own"))
        await agents.update(server, KEY.tenant, "own", AgentUpdate(run_retention=300 * DAY))
        for ended in (6, 400):
            await work(own, f"{ended}", 401 * DAY, ended * DAY)
        assert (await sweep(server)).deleted.runs == (3 if retention else 1)
        assert await worker.listed() == (["1"] if retention else ["400", "6", "1"])
        assert await own.listed() == ["6"]


async def test_what_a_killed_server_had_begun_to_delete_the_next_one_finishes(worker: Worker) -> None:
    ended = await work(worker, "run", 50 * DAY, 40 * DAY, steps=5)
    whole = await work(worker, "other", 50 * DAY, 40 * DAY, steps=2)
    assert await worker.server.store.delete_run(name_of(ended), 2) == 2
    assert await worker.listed() == [whole.run.id]
    deleted = (await sweep(worker.server)).deleted
    assert deleted.runs + deleted.steps == (1 + 5 + 1 + 2) - 2
    assert await worker.listed() == []
    assert (await sweep(worker.server)).deleted == Deleted()
    again = await worker.create("run")
    assert (again.run.state.steps, await worker.steps("run")) == (0, [])


async def test_long_runs_are_deleted_a_batch_at_a_time(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PURGE_BATCH", 2)
    for number in range(3):
        await work(worker, f"{number}", 50 * DAY, 40 * DAY, steps=4)
    assert (await sweep(worker.server)).deleted == Deleted(runs=3, steps=12)


@pytest.mark.parametrize("adapter", EACH_SHARED_ADAPTER)
async def test_one_server_at_a_time_sweeps(adapter: Adapter, tmp_path: Path) -> None:
    async with servers_on(adapter, tmp_path, 2) as [here, there]:
        first, second = Sweeper(here), Sweeper(there)
        assert await first.sweep() == SweepReport(0, 0, Deleted(), 0)
        worker = Worker(there)
        await work(worker, "run", 50 * DAY, 40 * DAY)
        await begin(worker, "left alone", 40 * DAY)
        assert await second.sweep() is None
        assert await worker.listed() == ["left alone", "run"]
        assert (await worker.get("left alone")).run.state.status is RunStatus.INTERRUPTED
        assert await Sweeper(there, alone=False).sweep() == SweepReport(0, 1, Deleted(runs=1, steps=1), 0)


async def test_a_report_counts_each_thing_once(tmp_path: Path) -> None:
    async with servers_on(SQLITE, tmp_path) as [server]:
        with ago(server, 2 * DAY):
            settings = SessionSettings(ttl=DAY)
            for number in range(3):
                key = KEY._replace(session_id=f"expired {number}")
                await histories.append(server, histories.Append(key, [user("hi")], settings=settings))
        worker = Worker(server)
        await work(worker, "ended", 40 * DAY, 35 * DAY, steps=2)
        with ago(server, HOUR):
            await histories.clear(server, KEY)
        for number in range(4):
            await begin(Worker(server, KEY._replace(session_id=f"{number % 2}")), f"{number}", 40 * DAY)
        report = await sweep(server)
        assert (report.expired, report.abandoned, report.failures) == (3, 4, 0)
        assert report.deleted == Deleted(runs=1, steps=2, messages=2)
        assert await sweep(server) == SweepReport(0, 0, Deleted(), 0)


class TestDamage:
    """A sweep never stops at one bad row."""

    @pytest.fixture
    async def worker(self, tmp_path: Path) -> AsyncIterator[Worker]:
        async with servers_on(SQLITE, tmp_path) as [server]:
            yield Worker(server)

    @staticmethod
    def _execute(directory: Path, statement: str) -> None:
        with closing(sqlite3.connect(directory / SQLITE_FILE, isolation_level=None)) as connection:
            assert connection.execute(statement).rowcount == 1

    @pytest.mark.parametrize("column", ["state", "head"])
    async def test_an_ended_run_that_nobody_can_read_is_deleted_with_the_others(
        self, worker: Worker, tmp_path: Path, column: str
    ) -> None:
        for name in ("a", "bad", "c"):
            await work(worker, name, 50 * DAY, 40 * DAY)
        self._execute(tmp_path, f"UPDATE memoryd_runs SET {column} = '{{' WHERE CAST(id AS TEXT) = 'bad'")
        assert await sweep(worker.server) == SweepReport(0, 0, Deleted(runs=3, steps=3), 0)

    async def test_runs_of_a_session_that_nobody_can_read_stop_no_other(self, worker: Worker, tmp_path: Path) -> None:
        others = [Worker(worker.server, KEY._replace(session_id=name)) for name in ("a", "bad", "c")]
        for each in others:
            await work(each, "ended", 50 * DAY, 40 * DAY)
            await begin(each, "left alone", 40 * DAY)
            worker.server.committer.records.drop(each.session)
        damage_record(f"sqlite:///{tmp_path / SQLITE_FILE}", others[1].session)
        report = await sweep(worker.server)
        assert (report.abandoned, report.deleted.runs, report.failures) == (2, 3, 1)
        for each in (others[0], others[2]):
            assert await each.listed() == ["left alone"]
            assert (await each.get("left alone")).run.state.status is RunStatus.ABANDONED

    async def test_an_unfinished_run_that_nobody_can_read_stops_no_other_session(
        self, worker: Worker, tmp_path: Path
    ) -> None:
        for name in ("a", "bad", "c"):
            await begin(Worker(worker.server, KEY._replace(session_id=name)), name, 40 * DAY)
        self._execute(tmp_path, "UPDATE memoryd_runs SET head = '{' WHERE CAST(id AS TEXT) = 'bad'")
        report = await sweep(worker.server)
        assert (report.abandoned, report.failures) == (2, 1)

    @pytest.mark.parametrize("part", ["head", "state", "record"])
    async def test_what_nobody_can_read_keeps_no_worker_from_the_other_runs(
        self, worker: Worker, tmp_path: Path, part: str
    ) -> None:
        """Although it waits longest."""
        for name in ("bad", "b", "c"):
            queue = Worker(worker.server, KEY._replace(session_id=name))
            await queue.create(name, queued=True)
            worker.server.committer.records.drop(queue.session)
        if part == "record":
            damage_record(f"sqlite:///{tmp_path / SQLITE_FILE}", KEY._replace(session_id="bad"))
        else:
            self._execute(tmp_path, f"UPDATE memoryd_runs SET {part} = '{{' WHERE CAST(id AS TEXT) = 'bad'")
        claims = [await worker.claim() for _ in range(3)]
        assert sorted(view.run.id for view in claims if view is not None) == ["b", "c"]

    async def test_settings_of_an_agent_that_nobody_can_read_keep_none_that_come_before(
        self, worker: Worker, tmp_path: Path
    ) -> None:
        """Nor another tenant's, nor what else is due; its own runs are kept, since nobody knows for how long."""
        server = worker.server
        for key in (("default", "a"), ("default", "bad"), ("tenant", "c")):
            await work(Worker(server, SessionKey(*key, "session")), "run", 50 * DAY, 40 * DAY)
        await agents.update(server, KEY.tenant, "bad", AgentUpdate(run_retention=DAY))
        half = await work(worker, "half", 2 * DAY, DAY, steps=3)
        assert await server.store.delete_run(name_of(half), 2) == 2
        self._execute(tmp_path, "UPDATE memoryd_agents SET settings = '{' WHERE CAST(agent AS TEXT) = 'bad'")
        report = await sweep(server)
        assert (report.deleted, report.failures) == (Deleted(runs=3, steps=3), 1)


class _Failing(InMemoryStore):
    """A store in which one run cannot be deleted."""

    error: Exception = ValueError("a fault")

    async def delete_run(self, name: object, limit: int) -> int:
        if getattr(name, "run_id", "") == "bad":
            raise self.error
        return await super().delete_run(name, limit)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [ValueError("a fault"), StoreUnavailable("away")])
async def test_a_run_that_cannot_be_deleted_stops_no_other(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """More than one page of them."""
    caplog.set_level(logging.CRITICAL)
    store = _Failing()
    store.error = error
    worker = Worker(runtime_on(store))
    await work(worker, "bad", 50 * DAY, 41 * DAY)
    for number in range(120):
        await work(Worker(worker.server, KEY._replace(session_id=f"{number}")), f"{number}", 50 * DAY, 40 * DAY)
    report = await sweep(worker.server)
    assert report.deleted == Deleted(runs=120, steps=120)
    assert report.failures >= 1
    assert await worker.listed() == ["bad"]


async def test_the_next_server_goes_on_once_the_lease_of_one_that_died_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = InMemoryStore()
    dead, living = Sweeper(runtime_on(store)), Sweeper(runtime_on(store))
    assert await dead.sweep() is not None
    await work(Worker(runtime_on(store)), "run", 50 * DAY, 40 * DAY)
    assert await living.sweep() is None
    monkeypatch.setattr(sweeping, "LEASE_SECONDS", 0)
    await dead.sweep()
    assert await living.sweep() == SweepReport(0, 0, Deleted(runs=1, steps=1), 0)
