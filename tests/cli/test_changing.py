"""`memoryd fork`, `rewind`, `redact` and `erase` against a real server."""

from __future__ import annotations

import json

import pytest

from memoryd import MemoryClient, Session, SessionNotFound, SessionSettings, user
from memoryd_server.cli.demonstration import conversation
from tests.cli.commands import Here, at_a_terminal, memoryd
from tests.conftest import StartServer
from tests.servers import ServerProcess

CTRL_C = "\x03"
DESTRUCTIVE = {
    "rewind": ["rewind", "talk", "--to-seq", "12"],
    "redact": ["redact", "talk", "2"],
    "erase": ["erase"],
}


@pytest.fixture
def talk(client: MemoryClient, agent: str) -> Session:
    """A session `talk` with 16 messages, of a user who is named like its agent."""
    session = client.session(agent=agent, id="talk")
    session.append_all(conversation(), create=SessionSettings(user_id=agent))
    return session


def arguments(command: str, talk: Session) -> list[str]:
    """A destructive command on the session, or on its user."""
    return [*DESTRUCTIVE[command], *([talk.agent] if command == "erase" else ["-a", talk.agent])]


def state(session: Session) -> list[object]:
    return [(message.seq, message.content) for message in session.messages(view="all")]


def test_a_session_is_forked(here: Here, server: ServerProcess, client: MemoryClient, talk: Session) -> None:
    said = here.ok("fork", "talk", "copy", "-a", talk.agent, address=server.address)
    assert said.splitlines()[
        0
    ] == f"Copied 16 messages of session talk of agent {talk.agent} into session copy of agent " + (f"{talk.agent}.")
    assert "memoryd history copy --agent " in said
    assert state(client.session(agent=talk.agent, id="copy")) == state(talk)
    options = ["--to-agent", f"{talk.agent}-2", "--through-seq", "3", "--json"]
    copied = json.loads(here.ok("fork", "talk", "-a", talk.agent, *options, address=server.address))
    assert (copied["agent"], copied["message_count"]) == (f"{talk.agent}-2", 3)
    assert state(client.session(agent=copied["agent"], id=copied["session_id"])) == state(talk)[:3]
    taken = here.memoryd("fork", "talk", "copy", "-a", talk.agent, address=server.address)
    assert (taken.returncode, taken.stdout) == (1, "")
    assert "copy" in taken.stderr


def test_a_rewind_says_what_goes_and_takes_it(here: Here, server: ServerProcess, talk: Session) -> None:
    done = here.memoryd("rewind", "talk", "--to-seq", "6", "-a", talk.agent, "--yes", address=server.address)
    assert done.returncode == 0
    assert done.stderr.startswith(
        f"This takes away 10 of the 16 messages of session talk of agent {talk.agent}, for good:"
    )
    shown = done.stderr.splitlines()
    assert [int(text.split()[0]) for text in shown if text.split()[0].isdigit()] == [7, 8, 9, 14, 15, 16]
    assert "… 4 more messages …" in done.stderr
    assert done.stdout.startswith("Took away 10 messages.")
    assert [message.seq for message in talk.messages()] == [1, 2, 3, 4, 5, 6]


def test_a_rewind_tells_of_calls_that_wait_again(here: Here, server: ServerProcess, talk: Session) -> None:
    waiting = here.ok("rewind", "talk", "--to-seq", "3", "-a", talk.agent, "-y", address=server.address)
    assert waiting == "Took away 13 messages. 2 calls wait for results now.\n"
    nothing = here.ok("rewind", "talk", "--to-seq", "3", "-a", talk.agent, address=server.address)
    assert nothing == f"session talk of agent {talk.agent} has no messages after seq 3. Nothing was taken away.\n"
    here.ok("rewind", "talk", "--to-seq", "0", "-a", talk.agent, "-y", address=server.address)
    assert state(talk) == []


def test_a_redaction_shows_its_message_and_takes_what_it_says(here: Here, server: ServerProcess, talk: Session) -> None:
    done = here.memoryd(
        "redact", "talk", "2", "-a", talk.agent, "--reason", "a \u202ename", "-y", address=server.address
    )
    assert done.returncode == 0
    assert "こんにちは" in done.stderr
    assert done.stdout == f"Redacted message 2 of session talk of agent {talk.agent}.\n"
    message = talk.message(seq=2)
    assert message.text == "[REDACTED]"
    again = here.ok("redact", "talk", "--id", message.id, "-a", talk.agent, address=server.address)
    assert again.startswith(f"Message 2 of session talk of agent {talk.agent} was redacted already, at ")
    assert "\u202e" not in again
    assert "(redacted: a " in here.ok("history", "talk", "-a", talk.agent, address=server.address)
    missing = here.memoryd("redact", "talk", "99", "-a", talk.agent, "-y", address=server.address)
    assert missing.returncode == 1
    assert missing.stderr.startswith(f"memoryd: session talk of agent {talk.agent} has no message 99; ")


@pytest.mark.parametrize("given", [[], ["2", "--id", "x"]])
def test_a_redaction_is_of_one_message(here: Here, given: list[str]) -> None:
    done = here.memoryd("redact", "talk", *given, address="127.0.0.1:9")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "memoryd: say which message: give either its SEQ or --id\n"


def test_an_erasure_says_what_goes_and_leaves_nothing(
    here: Here, server: ServerProcess, client: MemoryClient, talk: Session
) -> None:
    for number in range(8):
        session = client.session(agent=talk.agent, id=f"more{number}")
        session.append(user("x"), create=SessionSettings(user_id=talk.agent))
    client.session(agent=talk.agent, id="other").append(user("x"))
    with client.run(talk) as run:
        run.step("1")
        run.step("2")
    done = here.memoryd("erase", talk.agent, "--yes", address=server.address)
    assert done.returncode == 0
    said = " ".join(done.stderr.split())
    assert f"This deletes all that user {talk.agent} owns, for good: 9 sessions with 24 messages, and what" in said
    assert "more7" in said
    assert "… and 3 more sessions" in said
    assert done.stdout.startswith(f"Erased user {talk.agent}: 9 sessions, 24 messages, 1 run with 2 steps, ")
    assert [info.session_id for info in client.sessions(agent=talk.agent)] == ["other"]
    nothing = here.memoryd("erase", talk.agent, "-y", address=server.address)
    assert f"User {talk.agent} owns no session and no memory file." in " ".join(nothing.stderr.split())
    assert (
        nothing.stdout == f"Erased user {talk.agent}: 0 sessions, 0 messages, 0 look-ups and 0 memory files deleted.\n"
    )


def test_an_empty_user_is_never_everybody(here: Here) -> None:
    done = here.memoryd("erase", "", "--yes", address="127.0.0.1:9")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "memoryd: the user is empty, and never means everybody: give a user's id\n"


def test_an_erasure_names_the_stores_that_it_leaves_alone(here: Here, start_server: StartServer) -> None:
    server = start_server("--store", "first=memory://", "--store", "second=memory://", "--default-store", "second")
    done = here.memoryd("erase", "mia", "--yes", address=server.address)
    said = " ".join(done.stderr.split())
    assert "Only store second is looked at. The server has others, each for a command of its own: --store first" in said


@pytest.mark.parametrize("command", DESTRUCTIVE)
def test_without_a_terminal_and_yes_nothing_is_changed(command: str, server: ServerProcess, talk: Session) -> None:
    """What would go is told all the same."""
    before = state(talk)
    done = memoryd(*arguments(command, talk), address=server.address)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("This ")
    assert done.stderr.endswith(
        "memoryd: nothing was changed: there is no terminal to ask on; repeat the command with --yes\n"
    )
    assert state(talk) == before


@pytest.mark.parametrize(("typed", "status"), [("n\n", 1), ("\n", 1), (CTRL_C, 130)], ids=["no", "no answer", "Ctrl-C"])
@pytest.mark.parametrize("command", DESTRUCTIVE)
def test_without_a_yes_nothing_is_changed(
    command: str, typed: str, status: int, server: ServerProcess, talk: Session
) -> None:
    before = state(talk)
    done = at_a_terminal(*arguments(command, talk), address=server.address, typed=typed)
    assert (done.returncode, done.stdout) == (status, "")
    assert "[y/N]" in done.stderr
    assert done.stderr.endswith("memoryd: nothing was changed\n")
    assert state(talk) == before


@pytest.mark.parametrize("command", DESTRUCTIVE)
def test_a_yes_is_enough(command: str, server: ServerProcess, talk: Session) -> None:
    before = state(talk)
    done = at_a_terminal(*arguments(command, talk), address=server.address, typed="y\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout
    if command == "erase":
        with pytest.raises(SessionNotFound):
            talk.info()
    else:
        assert state(talk) != before


def test_what_came_while_a_person_thought_stays(
    here: Here, server: ServerProcess, talk: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what was shown is taken away: a message that came meanwhile makes the rewind fail."""

    def answer_late(question: str, *, yes: bool) -> None:
        talk.append(user("wait!"))

    monkeypatch.setattr("memoryd_server.cli.alterations.confirm", answer_late)
    done = here.memoryd("rewind", "talk", "--to-seq", "12", "-a", talk.agent, address=server.address)
    assert (done.returncode, done.stdout) == (1, "")
    assert "took more messages meanwhile. Nothing was taken away" in " ".join(done.stderr.split())
    assert talk.info().message_count == 17


def test_content_and_names_never_reach_the_terminal_raw(
    here: Here, server: ServerProcess, client: MemoryClient, agent: str
) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m"
    session = client.session(agent=agent + evil, id=f"s{evil}")
    session.append(user(evil, name=evil), user(evil), create=SessionSettings(user_id=f"u{evil}"))
    for command in (
        ["fork", session.id, f"t{evil}", "-a", session.agent],
        ["fork", session.id, f"t{evil}", "-a", session.agent],
        ["redact", session.id, "1", "-a", session.agent, "-y", "--reason", evil],
        ["redact", session.id, f"--id={evil}", "-a", session.agent],
        ["rewind", session.id, "--to-seq", "1", "-a", session.agent, "-y"],
        ["rewind", session.id, "--to-seq", "1", "-a", session.agent, "-y"],
        ["erase", f"u{evil}", "-y"],
    ):
        done = here.memoryd(*command, address=server.address)
        for character in "\x1b\x07\u202e\x9b":
            assert character not in done.stdout + done.stderr, command


@pytest.mark.parametrize(
    "command", [["fork", "x"], ["rewind", "x", "--to-seq", "1"], ["redact", "x", "1"], ["erase", "x"], ["watch", "x"]]
)
def test_a_server_that_is_not_there_is_named_in_one_sentence(here: Here, command: list[str]) -> None:
    done = here.memoryd(*command, address="127.0.0.1:9")
    assert done.returncode == 1
    assert done.stderr.startswith("memoryd: no server answers at 127.0.0.1:9. Start one with `memoryd serve`")
