"""`memoryd sweep`: what is over goes at once, on every store, beside servers too (invariant 15 for runs)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memoryd import FOREVER, MemoryClient, RunInfo, SessionSettings, user
from memoryd_server import limits
from memoryd_server.cli import progress
from memoryd_server.stores.records import SessionKey
from tests.adapters import EACH_SHARED_ADAPTER, Adapter
from tests.cli.commands import Here, wait_for
from tests.conftest import StartServer
from tests.servers import ServerProcess
from tests.stores.damage import damage_record


@pytest.fixture(params=EACH_SHARED_ADAPTER)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Data of each adapter that holds nothing."""
    adapter: Adapter = request.param
    with adapter.emptied(tmp_path) as url:
        yield url


@pytest.fixture
def server(start_server: StartServer, tmp_path: Path) -> ServerProcess:
    """A server on the file that the commands of this module sweep."""
    return start_server("--data-dir", str(tmp_path))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is deleted or ended some time later is so at once, in this process."""
    monkeypatch.setattr(limits, "PURGE_DELAY_SECONDS", 0)
    monkeypatch.setattr(limits, "RUN_ABANDON_SECONDS", 0)


def swept(here: Here, *arguments: str, **extra: str) -> dict[str, Any]:
    """Sweeps one store, which must succeed. Returns: what it said."""
    line: dict[str, Any] = json.loads(here.ok("sweep", "--json", *arguments, address="", **extra))
    return line


def runs_of(client: MemoryClient, agent: str) -> list[RunInfo]:
    return list(client.runs(agent=agent))


def leave_something(client: MemoryClient, agent: str) -> None:
    """A run that ended, one that waits, and messages that were taken away."""
    session = client.session(agent=agent, id="s")
    with client.run(session, "ended") as run:
        run.step("1", messages=[user("a"), user("b")])
        run.step("2")
    client.enqueue_run(session, "waiting")
    session.append(user("c"))
    session.rewind(2)


def test_a_sweep_beside_a_server_does_what_servers_do_and_only_that(
    here: Here, start_server: StartServer, url: str
) -> None:
    """Ended runs go with their steps, and their messages stay; unfinished runs are kept whatever the retention."""
    server = start_server("--store", f"main={url}")
    with MemoryClient(server.address) as client:
        leave_something(client, "worker")
        named = {"MEMORYD_STORES__MAIN__URL": url}
        assert swept(here, "--run-retention", "none", **named)["deleted"]["runs"] == 0
        said: list[dict[str, Any]] = []

        def is_due() -> bool:
            said.append(swept(here, "--run-retention", "1s", **named))
            return bool(said[-1]["deleted"]["runs"])

        wait_for(is_due)
        assert {**said[-1], "deleted": None} == {
            "store": "main",
            "run_retention": {"seconds": 1, "source": "flag"},
            "expired_sessions": 0,
            "abandoned_runs": 0,
            "deleted": None,
            "failures": 0,
        }
        assert (said[-1]["deleted"]["runs"], said[-1]["deleted"]["steps"]) == (1, 2)
        assert [run.id for run in runs_of(client, "worker")] == ["waiting"]
        assert [message.text for message in client.session(agent="worker", id="s").messages()] == ["a", "b"]
        with client.claim(client.session(agent="worker", id="s"), "waiting") as run:
            run.step("still")


def test_a_dry_run_counts_what_is_due_on_every_store_and_changes_nothing(
    here: Here, start_server: StartServer, url: str
) -> None:
    server = start_server("--store", f"main={url}")
    named = {"MEMORYD_STORES__MAIN__URL": url}
    with MemoryClient(server.address) as client:
        for agent in ("kept", "worker"):
            leave_something(client, agent)
        client.agent("kept").update(run_retention=FOREVER)
        assert swept(here, "--dry-run", **named) == {
            "store": "main",
            "run_retention": {"seconds": 30 * 24 * 3600, "source": "default"},
            "due": {
                "expired_sessions": 0,
                "sessions_with_abandoned_runs": 0,
                "sessions_with_removed_messages": 0,
                "runs": [],
            },
            "failures": 0,
        }
        due: list[dict[str, Any]] = []

        def is_due() -> bool:
            due.append(swept(here, "--dry-run", "--run-retention", "1s", **named)["due"])
            return bool(due[-1]["runs"])

        wait_for(is_due)
        assert due[-1]["runs"] == [
            {"tenant": "default", "agent": "worker", "run_retention_seconds": 1, "count": 1, "is_all": True}
        ]
        assert {run.id for run in runs_of(client, "worker")} == {"ended", "waiting"}
        deleted = swept(here, "--run-retention", "1s", **named)["deleted"]
        assert deleted["runs"] == 1


def test_a_dry_run_says_which_retention_holds_and_where_it_comes_from(
    here: Here, server: ServerProcess, tmp_path: Path, at_once: None
) -> None:
    """Also a sweep does, before anything is deleted, with --json too."""
    with MemoryClient(server.address) as client:
        leave_something(client, "worker")
        client.session(agent="worker", id="short").append(user("d"), create=SessionSettings(ttl=timedelta(seconds=1)))
        client.agent("worker").update(run_retention=timedelta(seconds=1))
    server.kill()
    folder = ("--data-dir", str(tmp_path))
    done: list[Any] = []

    def is_all_due() -> bool:
        done.append(here.memoryd("sweep", "--dry-run", *folder, MEMORYD_RUN_RETENTION="12h"))
        return "1 session that expired" in done[-1].stdout and "1 run of agent worker" in done[-1].stdout

    wait_for(is_all_due)
    assert done[-1].stdout == (
        "Store default: due are 1 session that expired, 1 session with runs that nobody claimed, 1 session with "
        "messages that were taken away, 1 run of agent worker that ended more than 1 second ago. Nothing was changed.\n"
    )
    assert "runs are kept for 12 hours after they ended (run_retention: environment)" in done[-1].stderr
    for arguments in ((), ("--json",)):
        real = here.memoryd("sweep", *arguments, *folder, "--run-retention", "none")
        assert real.returncode == 0, real.stderr
        assert "runs are kept for ever after they ended (run_retention: flag)" in real.stderr
    rest = here.ok("sweep", "--dry-run", *folder, address="")
    assert rest == "Store default: nothing is due.\n"


def test_all_that_is_over_is_told_in_one_sentence(
    here: Here, server: ServerProcess, tmp_path: Path, at_once: None
) -> None:
    with MemoryClient(server.address) as client:
        leave_something(client, "worker")
        client.session(agent="worker", id="short").append(user("d"), create=SessionSettings(ttl=timedelta(seconds=1)))
    server.kill()
    said: list[str] = []

    def is_nothing_left() -> bool:
        said.append(here.ok("sweep", "--data-dir", str(tmp_path), address=""))
        return any("expired" in sentence for sentence in said) and "nothing was due, in " in said[-1]

    wait_for(is_nothing_left)
    everything = "".join(said)
    assert said[0].startswith("Store default: ended ")
    assert "; deleted " in said[0]
    assert "1 run that nobody claimed" in everything
    assert "1 session that expired" in everything
    assert "1 message" in everything
    server.restart()
    with MemoryClient(server.address) as client:
        abandoned = client.get_run(client.session(agent="worker", id="s"), "waiting")
        assert (abandoned.status, abandoned.ended is not None) == ("abandoned", True)


def test_an_agents_own_retention_goes_before_that_of_the_command(
    here: Here, server: ServerProcess, tmp_path: Path
) -> None:
    with MemoryClient(server.address) as client:
        for agent in ("kept", "other"):
            leave_something(client, agent)
        client.agent("kept").update(run_retention=FOREVER)
        wait_for(lambda: swept(here, "--data-dir", str(tmp_path), "--run-retention", "1s")["deleted"]["runs"])
        assert {run.id for run in runs_of(client, "kept")} == {"waiting", "ended"}
        assert {run.id for run in runs_of(client, "other")} == {"waiting"}


def test_a_store_of_one_process_is_passed_over_and_refused_by_name(here: Here, tmp_path: Path) -> None:
    settings = {"MEMORYD_STORES__SCRATCH__URL": "memory://", "MEMORYD_DEFAULT_STORE": "scratch"}
    named = here.memoryd("sweep", "--store", "scratch", **settings)
    assert named.returncode == 2
    assert "store 'scratch' cannot be swept from outside: its server does that" in named.stderr
    alone = here.memoryd("sweep", **settings)
    assert alone.returncode == 2
    assert "the settings name no store that can be swept" in alone.stderr
    file = tmp_path / "there.db"
    sqlite3.connect(file).close()
    beside = here.memoryd("sweep", MEMORYD_STORES__THERE__URL=f"sqlite:///{file}", **settings)
    assert beside.returncode == 0, beside.stderr
    assert beside.stdout.startswith("Store there: nothing was due")
    assert "store 'scratch' cannot be swept from outside" in beside.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--data-dir", "{}"], "store 'default' is empty: there is no file {}/memoryd.db"),
        (["--store", "main", "--data-dir", "{}"], "there is no store 'main' in the settings, which name default"),
        (["--store", "sqlite:///{}/x.db"], "is empty: there is no file {}/x.db"),
        (["--run-retention", "soon"], "for example 30d or 12h; none keeps all"),
        (["--config", "{}/x.toml"], "{}/x.toml cannot be read"),
    ],
)
def test_a_wrong_setting_is_named_and_makes_no_file(
    here: Here, tmp_path: Path, arguments: list[str], told: str
) -> None:
    done = here.memoryd("sweep", *(argument.format(tmp_path) for argument in arguments))
    assert done.returncode == 2
    assert told.format(tmp_path) in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_away_stops_nothing_at_the_others(here: Here, tmp_path: Path) -> None:
    file = tmp_path / "there.db"
    sqlite3.connect(file).close()
    done = here.memoryd(
        "sweep",
        MEMORYD_STORES__AWAY__URL="redis://:hunter2@127.0.0.1:1/0",
        MEMORYD_STORES__THERE__URL=f"sqlite:///{file}",
    )
    assert done.returncode == 1
    assert done.stdout.startswith("Store there: nothing was due")
    assert "store 'away'" in done.stderr
    assert "Repeat the command, and it goes on with what is left" in done.stderr
    assert "hunter2" not in done.stderr


def test_a_dry_run_tells_that_it_could_not_read_all(here: Here, server: ServerProcess, tmp_path: Path) -> None:
    """What it counted is then no promise, and a script must not take it for one."""
    with MemoryClient(server.address) as client:
        client.agent("bad").update(run_retention=FOREVER)
        client.enqueue_run(client.session(agent="worker", id="s"), "r")
    server.kill()
    with closing(sqlite3.connect(tmp_path / "memoryd.db", isolation_level=None)) as connection:
        damage = "UPDATE memoryd_agents SET settings = '{' WHERE CAST(agent AS TEXT) = 'bad'"
        assert connection.execute(damage).rowcount == 1
    done = here.memoryd("sweep", "--dry-run", "--data-dir", str(tmp_path))
    assert done.returncode == 1
    assert done.stdout == "Store default: nothing is due.\n"
    assert "store default: 1 thing could not be read, as told above." in done.stderr
    assert "could not read the settings of all agents of a tenant" in done.stderr


def test_what_fails_at_one_session_is_told_and_stops_nothing(
    here: Here, server: ServerProcess, tmp_path: Path, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    with MemoryClient(server.address) as client:
        for name in ("good", "bad"):
            client.enqueue_run(client.session(agent="worker", id=name), "r")
    server.kill()
    damage_record(f"sqlite:///{tmp_path}/memoryd.db", SessionKey("default", "worker", "bad"))
    dry = here.memoryd("sweep", "--dry-run", "--data-dir", str(tmp_path))
    assert "due are 2 sessions with runs that nobody claimed" in dry.stdout
    done = here.memoryd("sweep", "--data-dir", str(tmp_path))
    assert done.returncode == 1
    assert "1 run that nobody claimed" in done.stdout
    assert "sweeping default: 1 ended or deleted" in done.stderr
    assert "store default: 1 thing could not be done, as told above. Repeat the command" in done.stderr
