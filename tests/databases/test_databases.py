"""The database servers of the tests."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from redis.exceptions import MovedError
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from tests.databases import mongodb, redis, servers
from tests.databases.cluster import OwnCluster
from tests.databases.kind import Kind, addresses, is_open
from tests.databases.kinds import (
    KINDS,
    MARIADB,
    MONGODB,
    MONGODB_CONCURRENT,
    POSTGRESQL,
    REDIS,
    REDIS_CLUSTER,
)
from tests.databases.plugin import ON_EACH_KIND, ON_EACH_SQL_KIND, StartDatabaseServer, on
from tests.databases.redis import Redis
from tests.databases.shared import emptied_database, new_database, nodes_in, of_this_run
from tests.databases.sql import SqlKind, execute, with_driver

ROOT: Final = Path(__file__).parents[2]
WAIT_SECONDS: Final = 120

on_each_kind = pytest.mark.parametrize("kind", ON_EACH_KIND)


NUMBERS: Final = list(range(20))
"""Enough that each master of a cluster gets some."""


def add(kind: Kind, url: str, *numbers: int) -> None:
    """Stores numbers in a database."""
    if isinstance(kind, SqlKind):
        inserts = [f"INSERT INTO t VALUES ({number})" for number in numbers]
        execute(url, "CREATE TABLE IF NOT EXISTS t (number INTEGER)", *inserts)
    elif isinstance(kind, Redis):
        with redis.masters(url) as masters:
            for number, master in itertools.product(numbers, masters):
                with suppress(MovedError):
                    master.set(f"{redis.prefix_of(url)}{number}", "")
                    assert not redis.is_cluster(master) or master.wait(1, WAIT_SECONDS * 1_000)
    else:
        with mongodb.database_at(url) as database:
            database["t"].insert_many([{"number": number} for number in numbers])


def stored(kind: Kind, url: str) -> list[int]:
    """The numbers in a database."""
    if isinstance(kind, SqlKind):
        return [number for (number,) in execute(url, "SELECT number FROM t ORDER BY number")]
    if isinstance(kind, Redis):
        return sorted(int(key.removeprefix(redis.prefix_of(url).encode())) for _, key in redis.keys(url))
    with mongodb.database_at(url) as database:
        return sorted(each["number"] for each in database["t"].find())


@on_each_kind
class TestANewDatabase:
    def test_is_empty_whatever_others_hold(self, kind: Kind) -> None:
        with new_database(kind) as first, new_database(kind) as second:
            add(kind, first, *NUMBERS)
            add(kind, second, 100)
            assert stored(kind, first) == NUMBERS
            assert stored(kind, second) == [100]

    def test_is_gone_at_the_end(self, kind: Kind) -> None:
        with new_database(kind) as url:
            add(kind, url, *NUMBERS)
        if isinstance(kind, SqlKind):
            with pytest.raises(DBAPIError):
                stored(kind, url)
        else:
            assert stored(kind, url) == []


@pytest.mark.parametrize("kind", ON_EACH_SQL_KIND)
async def test_a_database_goes_with_connections_that_are_in_the_middle_of_something(kind: SqlKind) -> None:
    with new_database(kind) as url:
        add(kind, url, 1)
        engine = create_async_engine(with_driver(url))
        connection = await engine.connect()
        await connection.execute(text("INSERT INTO t VALUES (2)"))
    with pytest.raises(DBAPIError):
        stored(kind, url)
    await connection.invalidate()
    await connection.close()
    await engine.dispose()


@pytest.mark.parametrize("kind", on([REDIS, REDIS_CLUSTER, MONGODB, MONGODB_CONCURRENT]))
def test_an_emptied_database_holds_nothing_and_is_used_again(kind: Kind) -> None:
    with emptied_database(kind) as url:
        add(kind, url, *NUMBERS)
    with emptied_database(kind) as again:
        assert again == url
        assert stored(kind, again) == []


@POSTGRESQL.mark
def test_a_database_on_postgresql_sorts_as_people_read() -> None:
    """What needs the order of bytes must say so itself."""
    with new_database(POSTGRESQL) as url:
        assert execute(url, "SELECT name FROM (VALUES ('B'), ('a')) names (name) ORDER BY name") == [("a",), ("B",)]


@MARIADB.mark
def test_a_database_on_mariadb_cannot_hold_all_characters_by_default() -> None:
    """What needs them must say so itself."""
    with new_database(MARIADB) as url:
        assert execute(url, "SELECT @@character_set_database") == [("latin1",)]


@on_each_kind
class TestAServerOfATestsOwn:
    def test_keeps_what_was_committed_when_it_is_killed_or_stopped(
        self, kind: Kind, start_database_server: StartDatabaseServer
    ) -> None:
        server = start_database_server(kind)
        with server.new_database() as url:
            for number, end in enumerate((server.kill, server.stop), 1):
                add(kind, url, number)
                end()
                assert not server.answers()
                server.start()
                assert stored(kind, url) == [*range(1, number + 1)]

    def test_ends_with_the_process_that_started_it(self, kind: Kind) -> None:
        program = (
            "import sys; from tests.databases import kinds, servers\n"
            f"with servers.OwnServer(kinds.{kind.name.upper()}) as server:\n"
            "    print(server.url(''), server.nodes[0].directory.parent, flush=True); sys.stdin.read()"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with process:
            assert process.stdout is not None
            url, directory = process.stdout.readline().split()
            assert answers(url)
            process.kill()
        until(lambda: not answers(url))
        until(lambda: not Path(directory).exists())


class TestAClusterOfATestsOwn:
    @pytest.fixture
    def url(self, redis_cluster: OwnCluster) -> Iterator[str]:
        with redis_cluster.new_database() as url:
            add(REDIS_CLUSTER, url, *NUMBERS)
            yield url

    def test_has_three_masters_with_a_replica_each(self, redis_cluster: OwnCluster) -> None:
        masters = redis_cluster.masters()
        assert len(masters) == 3
        assert {*masters, *map(redis_cluster.replica_of, masters)} == set(redis_cluster.nodes)

    def test_promotes_the_replica_of_a_master_that_is_killed_and_takes_that_back_as_a_replica(
        self, redis_cluster: OwnCluster, url: str
    ) -> None:
        master = redis_cluster.master_of(0)
        replica = redis_cluster.replica_of(master)
        master.kill()
        redis_cluster.wait_until_promoted(replica)
        assert redis_cluster.master_of(0) is replica
        assert stored(REDIS_CLUSTER, url) == NUMBERS
        master.start()
        redis_cluster.wait_until_whole()
        assert redis_cluster.replica_of(replica) is master

    def test_promotes_a_replica_when_it_is_told_to(self, redis_cluster: OwnCluster, url: str) -> None:
        master = redis_cluster.master_of(0)
        replica = redis_cluster.replica_of(master)
        redis_cluster.promote(replica)
        assert redis_cluster.master_of(0) is replica
        redis_cluster.wait_until_whole()
        assert stored(REDIS_CLUSTER, url) == NUMBERS

    def test_moves_a_slot_with_its_keys(self, redis_cluster: OwnCluster, url: str) -> None:
        source, target, _ = redis_cluster.masters()
        (slot, *_) = redis_cluster.slots_with_keys(source)
        assert redis_cluster.move_slot(slot, target) > 0
        assert redis_cluster.master_of(slot) is target
        assert slot not in redis_cluster.slots_with_keys(source)
        assert slot in redis_cluster.slots_with_keys(target)
        redis_cluster.wait_until_whole()
        assert stored(REDIS_CLUSTER, url) == NUMBERS


class TestARun:
    """Runs of pytest in processes of their own, as developers start them."""

    def test_shares_one_server_of_each_kind_and_leaves_nothing_behind(self, tmp_path: Path) -> None:
        found = tmp_path / "found"
        run = start_run(
            tmp_path,
            f"""
            @pytest.mark.parametrize("number", range(4))
            @pytest.mark.parametrize("kind", KINDS)
            def test(kind, number):
                with new_database(kind) as url, open({str(found)!r}, "a") as file:
                    print(addresses(url), shared.of_this_run().directory, sep=";", file=file)
            """,
            *("-n", "2"),
        )
        assert f"{4 * len(KINDS)} passed" in finished(run)
        servers = {tuple(line.split(";")) for line in found.read_text().splitlines()}
        assert len(servers) == len(KINDS)
        assert not any(Path(directory).exists() for _, directory in servers)

    def test_that_is_killed_leaves_no_server_behind(self, tmp_path: Path) -> None:
        found = tmp_path / "found"
        run = start_run(
            tmp_path,
            f"""
            def test():
                with ExitStack() as databases:
                    urls = [databases.enter_context(new_database(kind)) for kind in KINDS]
                    open({str(found)!r}, "w").write(" ".join([str(shared.of_this_run().directory), *urls]))
                    os.kill(os.getpid(), 9)
            """,
        )
        finished(run)
        assert run.returncode == -signal.SIGKILL
        directory, *urls = found.read_text().split()
        until(lambda: not any(map(answers, urls)))
        until(lambda: not any(nodes_in(Path(directory))))
        shutil.rmtree(directory)

    @pytest.mark.parametrize(("ci", "outcome"), [("", "2 skipped"), ("true", "2 failed")])
    def test_names_what_is_missing_and_fails_for_it_in_ci(self, ci: str, outcome: str, tmp_path: Path) -> None:
        output = finished(start_run(tmp_path, WITHOUT_POSTGRESQL, CI=ci))
        assert outcome in output
        assert output.count("Not run for want of PostgreSQL: 1") == 2
        assert "PostgreSQL is missing. On Debian or Ubuntu: apt-get install postgresql." in output
        assert "PostgreSQL is not installed, which tests that stop it need." in output

    @POSTGRESQL.mark
    def test_uses_the_server_that_the_environment_names_and_hides_that_from_memoryd(self, tmp_path: Path) -> None:
        url = of_this_run().server(POSTGRESQL).url("postgres")
        output = finished(
            start_run(tmp_path, WITHOUT_POSTGRESQL, "-n", "1", CI="", MEMORYD_TEST_POSTGRESQL_URL=url, EXPECTED_URL=url)
        )
        assert "1 passed, 1 skipped" in output


WITHOUT_POSTGRESQL: Final = """
    type(POSTGRESQL).programs = lambda self: None
    type(POSTGRESQL).compose_url = "postgresql://memoryd:memoryd@127.0.0.1:1/postgres"

    @POSTGRESQL.mark
    def test():
        with new_database(POSTGRESQL) as url:
            assert make_url(url).port == make_url(os.environ["EXPECTED_URL"]).port
            assert not any(name.startswith("MEMORYD_TEST") for name in os.environ)

    def test_that_stops_it(start_database_server):
        start_database_server(POSTGRESQL)
"""


def start_run(directory: Path, tests: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Starts pytest on tests."""
    file = directory / "test_inner.py"
    file.write_text(
        "import os\nimport pytest\nfrom contextlib import ExitStack\nfrom sqlalchemy import make_url\n"
        "from tests.databases import shared\nfrom tests.databases.kind import addresses\n"
        "from tests.databases.kinds import *\nfrom tests.databases.shared import new_database\n"
        + textwrap.dedent(tests)
    )
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "tests.databases.plugin"),
            *("-p", "no:cacheprovider", "--rootdir", str(directory), *arguments, str(file)),
        ],
        env=inherited | {"PYTHONPATH": str(ROOT)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(run: subprocess.Popen[str]) -> str:
    """What a run has printed, once it has ended."""
    output, _ = run.communicate(timeout=WAIT_SECONDS)
    print(output)
    return output


def answers(url: str) -> bool:
    """Whether anything takes connections at the addresses of a URL."""
    return any(map(is_open, addresses(url)))


def until(condition: Callable[[], bool]) -> None:
    """Returns when a condition holds."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_port_that_was_given_out_is_given_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens on it, as while its server is stopped."""
    [taken] = servers.free_ports(1)
    candidates = itertools.chain([taken], servers.PORTS)
    monkeypatch.setattr(random.SystemRandom, "choice", lambda *_: next(candidates))
    assert taken not in servers.free_ports(1)
