"""`memoryd runs`: looking at runs, and letting them go on or ending them, against a real server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

import pytest

from memoryd import MemoryClient, Run, RunEnded, RunInfo, RunLeaseLost, RunStatus, Session, assistant, user
from memoryd_server.cli.run_retention import length
from memoryd_server.cli.run_view import age
from memoryd_server.cli.runs import Status
from tests.cli.commands import Here, at_a_terminal, environment, memoryd
from tests.servers import MEMORYD, ServerProcess

EVIL = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m"
DANGEROUS = "\x1b\x07\u202e\x9b"


@pytest.fixture
def server(in_memory_server: ServerProcess) -> ServerProcess:
    """The commands are the same on every store."""
    return in_memory_server


@pytest.fixture
def session(client: MemoryClient, agent: str) -> Session:
    """A session of the test's own, with an id that no other agent has."""
    session = client.session(agent=agent, id=f"s-{agent}")
    session.append(user("hi"))
    return session


@pytest.fixture
def held(client: MemoryClient, session: Session) -> Iterator[Run]:
    """A run that is held, and whose lease lasts longer than the test."""
    with suppress(RunLeaseLost, RunEnded), client.run(session, "held", holder="worker-1", lease=600.0) as run:
        yield run


def waiting(client: MemoryClient, session: Session, id: str = "r") -> RunInfo:
    """A run with two steps that waits for approval."""
    with client.run(session, id, metadata='{"goal": "Oslo"}') as run:
        run.step("found", messages=[assistant("a flight"), assistant("a seat")])
        run.pause(RunStatus.AWAITING_APPROVAL, {"price": 180}, reason="it costs 180 EUR")
    return client.get_run(session, id)


def folded(text: str) -> str:
    return " ".join(text.split())


def test_the_statuses_that_can_be_asked_for_are_those_of_the_sdk() -> None:
    assert [status.value for status in Status] == [status.value for status in RunStatus][1:]


def test_runs_of_an_agent_are_listed_newest_first_with_how_they_stand(
    here: Here, client: MemoryClient, session: Session, server: ServerProcess, held: Run
) -> None:
    waiting(client, session)
    client.enqueue_run(client.session(agent=session.agent, id="another"), "queued")
    rows = here.ok("runs", "list", "--agent", session.agent, address=server.address, COLUMNS="200").splitlines()
    assert rows[0].split() == ["Run", "Session", "Status", "Steps", "Holder", "Lease", "Age"]
    assert [row.split()[0] for row in rows[1:]] == ["queued", "r", "held"]
    assert rows[1].split()[1:4] == ["another", "interrupted", "0"]
    assert "awaiting approval" in rows[2]
    assert rows[3].split()[1:5] == [session.id, "running", "0", "worker-1"]
    assert rows[3].split()[5:7] in (["9", "min"], ["10", "min"])


@pytest.mark.parametrize("columns", ["40", "80"])
def test_no_name_is_broken_in_a_list(
    here: Here, client: MemoryClient, agent: str, server: ServerProcess, columns: str
) -> None:
    """They are copied into the next command, and searched for with grep."""
    session = client.session(agent=agent, id="5f0c9d5e6b7a4f3c8d2e1a0b9c8d7e6f")
    with client.run(session, "ab" * 16, holder="worker-1 of a machine whose name is long.example.com"):
        rows = here.ok("runs", "list", "--agent", agent, address=server.address, COLUMNS=columns).splitlines()
    assert len(rows) == 2
    assert rows[1].split()[:2] == ["ab" * 16, session.id]
    assert "worker-1 of a machine whose name is long.example.com" in rows[1]


def test_runs_are_listed_by_session_status_and_number(
    here: Here, client: MemoryClient, session: Session, server: ServerProcess
) -> None:
    waiting(client, session)
    for number in range(3):
        client.enqueue_run(session, f"q{number}")
    address = server.address

    def ids(*arguments: str) -> list[str]:
        return [
            json.loads(line)["id"]
            for line in here.ok("runs", "list", "--json", *arguments, address=address).split("\n")
            if line
        ]

    assert ids("--session", session.id) == ["q2", "q1", "q0", "r"]
    assert ids("--session", session.id, "--agent", session.agent, "--status", "awaiting_approval") == ["r"]
    assert ids("-a", session.agent, "--status", "AWAITING_APPROVAL", "--status", "completed") == ["r"]
    assert ids("-a", session.agent, "-n", "2") == ["q2", "q1"]
    few = here.memoryd("runs", "list", "-a", session.agent, "-n", "2", address=address)
    assert "there are more than these 2" in few.stderr
    none = here.memoryd("runs", "list", "-a", session.agent, "--status", "awaiting_budget", address=address)
    assert (none.returncode, none.stdout) == (0, "")
    assert "that are awaiting budget" in none.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "whose runs? Give --agent NAME, or --session ID"),
        (("--agent", "a", "--status", "done"), "'--status': 'done' is not one of"),
        (("--agent", ""), "'--agent' / '-a': it is empty"),
        (("--session", ""), "'--session': it is empty"),
        (("--agent", "a", "--limit", "0"), "it can be 1 to"),
    ],
)
def test_a_list_of_nobodys_runs_says_what_to_give(here: Here, arguments: tuple[str, ...], told: str) -> None:
    done = here.memoryd("runs", "list", *arguments, COLUMNS="200")
    assert done.returncode == 2
    assert told in done.stderr


def test_a_run_is_shown_with_its_steps_and_the_way_on(
    here: Here, client: MemoryClient, session: Session, server: ServerProcess
) -> None:
    waiting(client, session)
    shown = here.memoryd("runs", "show", session.id, "r", address=server.address, COLUMNS="200")
    text = folded(shown.stdout)
    for part in (
        f"Run r of session {session.id} of agent {session.agent}",
        "Status awaiting approval: it costs 180 EUR",
        'Metadata {"goal": "Oslo"}',
        "5 bytes seq 2-3 found",
        '{"price":180}',
    ):
        assert part in text
    assert "Held by" not in text
    assert f"`memoryd runs approve {session.id} r --agent {session.agent}` lets it go on" in folded(shown.stderr)
    value = json.loads(here.ok("runs", "show", session.id, "r", "--json", address=server.address))
    assert (value["run"]["status"], value["run"]["steps"]) == ("awaiting_approval", 2)
    assert [(step["number"], step["payload"]) for step in value["steps"]] == [(1, "found"), (2, '{"price":180}')]
    assert [(step["first_seq"], step["message_count"]) for step in value["steps"]] == [(2, 2), (0, 0)]
    last = here.ok("runs", "show", session.id, "r", "-n", "1", address=server.address)
    assert "… 1 earlier step: --all shows every one" in last
    assert "found" not in last


def test_nothing_of_a_run_can_command_a_terminal(
    here: Here, client: MemoryClient, session: Session, server: ServerProcess
) -> None:
    id_ = f"r{EVIL}"
    with client.run(session, id_, metadata=EVIL, holder=EVIL) as run:
        run.step(f"first\n{EVIL}", content_type=EVIL)
        run.step(b"\xff\x1b[2J", content_type=EVIL)
        run.step()
        run.finish(RunStatus.BLOCKED, reason=EVIL)
    address = server.address
    for arguments in (
        ("list", "--session", session.id),
        ("show", session.id, id_),
        ("show", session.id, id_, "--full"),
        ("show", session.id, id_, "--json"),
        ("list", "--session", session.id, "--json"),
        ("approve", session.id, id_),
        ("cancel", session.id, id_, "--yes"),
        ("show", session.id, f"{EVIL}?"),
        ("delete", session.id, id_, "--yes"),
    ):
        done = here.memoryd("runs", *arguments, address=address)
        assert not set(DANGEROUS) & set(done.stdout + done.stderr), arguments


def test_the_way_on_names_a_run_as_it_is_whatever_its_id_holds(
    here: Here, client: MemoryClient, session: Session, server: ServerProcess
) -> None:
    waiting(client, session, f"r  {EVIL}'s")
    hint = here.memoryd("runs", "show", session.id, f"r  {EVIL}'s", address=server.address, COLUMNS="400").stderr
    command = hint.split("`")[1]
    done = subprocess.run(
        ["bash", "-c", f'memoryd() {{ "{MEMORYD}" "$@"; }}; {command}'],
        env=environment(server.address),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert client.get_run(session, f"r  {EVIL}'s").status is RunStatus.INTERRUPTED


def test_a_payload_that_is_no_text_is_told_as_what_it_is(
    here: Here, client: MemoryClient, session: Session, server: ServerProcess
) -> None:
    with client.run(session, "r") as run:
        run.step(b"\xff\x00", content_type="image/png")
        run.step("one\ntwo")
    shown = here.ok("runs", "show", session.id, "r", "--full", address=server.address)
    assert "(image/png)" in shown
    assert "\n  one\n  two\n" in shown
    value = json.loads(here.ok("runs", "show", session.id, "r", "--json", address=server.address))
    assert value["steps"][0]["payload_base64"] == "/wA="


def test_an_approved_run_is_claimed_by_any_worker_with_what_it_is_to_know(
    here: Here, client: MemoryClient, session: Session, server: ServerProcess
) -> None:
    waiting(client, session)
    said = here.ok(
        "runs",
        "approve",
        session.id,
        "r",
        "--note",
        "up to 200",
        "--metadata",
        '{"limit": 200}',
        address=server.address,
    )
    assert f"Approved run r of session {session.id} of agent {session.agent}: any worker may claim it now" in folded(
        said
    )
    approved = client.get_run(session, "r")
    assert approved.status is RunStatus.INTERRUPTED
    assert approved.reason.endswith(": up to 200")
    for run in client.claims(session.agent):
        with run:
            last = run.resume()
            assert last is not None
            assert (run.id, run.metadata, last.json()) == ("r", '{"limit": 200}', {"price": 180})
        break
    assert client.get_run(session, "r").status is RunStatus.COMPLETED


def test_only_a_run_that_waits_is_approved(
    here: Here, client: MemoryClient, session: Session, server: ServerProcess, held: Run
) -> None:
    client.enqueue_run(session, "queued")
    with client.run(session, "done"):
        pass
    for id_, told in (
        ("queued", "needs no approval: any worker may claim it already"),
        ("held", "does not wait for approval: it is running"),
        ("done", "does not wait for approval: it is completed"),
        ("none", f"has no run none; `memoryd runs list --session {session.id} --agent {session.agent}` lists"),
    ):
        before = list(client.runs(session=session))
        done = here.memoryd("runs", "approve", session.id, id_, address=server.address)
        assert done.returncode == 1
        assert told in done.stderr
        assert list(client.runs(session=session)) == before


def test_of_two_approvals_at_once_one_is_made(client: MemoryClient, session: Session, server: ServerProcess) -> None:
    """The etag lets a status be set only where it is known."""
    waiting(client, session)
    with ThreadPoolExecutor(2) as both:
        ends = [
            both.submit(memoryd, "runs", "approve", session.id, "r", "--note", note, address=server.address)
            for note in ("one", "two")
        ]
        done = sorted((end.result() for end in ends), key=lambda one: one.returncode)
    assert [one.returncode for one in done] == [0, 1], done
    assert "Nothing was changed" in done[1].stderr
    assert client.get_run(session, "r").reason.rpartition(" ")[2] in done[0].args


def test_a_cancelled_run_is_taken_from_its_worker(
    here: Here, client: MemoryClient, session: Session, server: ServerProcess, held: Run
) -> None:
    refused = here.memoryd("runs", "cancel", session.id, "held", address=server.address)
    assert refused.returncode == 2
    assert "repeat the command with --yes" in refused.stderr
    said = here.memoryd("runs", "cancel", session.id, "held", "-y", "--reason", "off", address=server.address)
    assert said.returncode == 0
    assert "Held by    worker-1" in said.stderr
    assert "Cancelled run held" in said.stdout
    cancelled = client.get_run(session, "held")
    assert (cancelled.status, cancelled.reason.endswith("off")) == (RunStatus.CANCELLED, True)
    with pytest.raises((RunEnded, RunLeaseLost)):
        held.step("late")
    again = here.memoryd("runs", "cancel", session.id, "held", "-y", address=server.address)
    assert again.returncode == 1
    assert "has ended already: it is cancelled" in again.stderr


def test_a_run_that_goes_on_while_a_person_thinks_is_cancelled_all_the_same(
    client: MemoryClient, session: Session, server: ServerProcess, held: Run
) -> None:
    done = at_a_terminal(
        "runs", "cancel", session.id, "held", address=server.address, typed="y\n", meanwhile=lambda: held.step("more")
    )
    assert done.returncode == 0, done.stderr
    cancelled = client.get_run(session, "held")
    assert (cancelled.status, cancelled.steps) == (RunStatus.CANCELLED, 1)


def test_a_run_that_ends_while_a_person_thinks_stays_as_it_ended(
    client: MemoryClient, session: Session, server: ServerProcess, held: Run
) -> None:
    done = at_a_terminal(
        "runs", "cancel", session.id, "held", address=server.address, typed="y\n", meanwhile=held.finish
    )
    assert done.returncode == 1
    assert "has ended already: it is completed. Nothing was changed" in folded(done.stderr)
    assert client.get_run(session, "held").status is RunStatus.COMPLETED


def test_a_no_changes_nothing(client: MemoryClient, session: Session, server: ServerProcess, held: Run) -> None:
    done = at_a_terminal("runs", "cancel", session.id, "held", address=server.address, typed="n\n")
    assert done.returncode == 1
    assert "nothing was changed" in done.stderr
    assert client.get_run(session, "held").status is RunStatus.RUNNING


def test_a_run_that_has_ended_is_deleted_and_another_is_not(
    here: Here, client: MemoryClient, session: Session, server: ServerProcess
) -> None:
    waiting(client, session)
    address = server.address
    unfinished = here.memoryd("runs", "delete", session.id, "r", "--yes", address=address)
    assert unfinished.returncode == 1
    assert f"`memoryd runs cancel {session.id} r --agent {session.agent}` ends it" in unfinished.stderr
    here.ok("runs", "cancel", session.id, "r", "--yes", address=address)
    said = here.ok("runs", "delete", session.id, "r", "--yes", address=address)
    assert "with 2 steps. Its messages stay." in folded(said)
    assert list(client.runs(session=session)) == []
    assert [message.text for message in session.messages()] == ["hi", "a flight", "a seat"]
    gone = here.memoryd("runs", "delete", session.id, "r", "--yes", address=address)
    assert gone.returncode == 1
    assert "has no run r" in gone.stderr


def test_a_run_that_somebody_else_deletes_meanwhile_is_told_as_that(
    client: MemoryClient, session: Session, server: ServerProcess
) -> None:
    with client.run(session, "r"):
        pass
    done = at_a_terminal(
        "runs",
        "delete",
        session.id,
        "r",
        address=server.address,
        typed="y\n",
        meanwhile=lambda: client.delete_run(session, "r"),
    )
    assert done.returncode == 1
    assert "was deleted by somebody else meanwhile" in folded(done.stderr)


def test_the_retention_of_an_agent_is_shown_and_set(
    here: Here, client: MemoryClient, agent: str, server: ServerProcess
) -> None:
    def told(*time: str) -> str:
        return here.ok("runs", "retention", agent, *time, address=server.address)

    assert "as long as the servers' settings say (run_retention, 30 days by default)" in told()
    assert "are kept for 1 day 12 hours. Servers go by it within 10 minutes." in folded(told("1d 12h"))
    assert client.agent(agent).info().run_retention == timedelta(days=1, hours=12)
    assert json.loads(told("--json")) == {"agent": agent, "run_retention_seconds": 129_600.0}
    assert "are kept for ever" in told("none")
    assert client.agent(agent).info().run_retention == timedelta()
    told("default")
    assert client.agent(agent).info().run_retention is None
    for wrong in ("5y", "0s", "-1d", "-5", "200000w"):
        done = here.memoryd("runs", "retention", agent, wrong, address=server.address)
        assert done.returncode == 2
        assert "none keeps all, default is the servers'" in done.stderr
    assert client.agent(agent).info().run_retention is None
    more = here.memoryd("runs", "retention", agent, "1d", "-5d", address=server.address)
    assert more.returncode == 2
    assert "unexpected extra argument(s) (-5d)" in folded(more.stderr)
    for arguments in (("",), ("", "5d")):
        done = here.memoryd("runs", "retention", *arguments, address=server.address)
        assert done.returncode == 2
        assert "'AGENT': it is empty" in folded(done.stderr)


@pytest.mark.parametrize(
    ("seconds", "told"), [(-5, "0 s"), (59.9, "59 s"), (60, "1 min"), (7_199, "1 h"), (48 * 3600, "2 d")]
)
def test_an_age_has_one_unit(seconds: float, told: str) -> None:
    assert age(seconds) == told


@pytest.mark.parametrize(
    ("seconds", "told"), [(1, "1 second"), (86_400, "1 day"), (90_061, "1 day 1 hour 1 minute 1 second")]
)
def test_a_length_of_time_has_its_units(seconds: int, told: str) -> None:
    assert length(timedelta(seconds=seconds)) == told
