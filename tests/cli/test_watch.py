"""`memoryd watch` against a real server."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memoryd import MemoryClient, Session, SessionSettings, assistant, call, tool, user
from tests.cli.commands import Here, started, wait_for
from tests.conftest import StartServer
from tests.servers import START_SECONDS, ServerProcess


class Watching:
    """A watch in a process of its own, and what it has printed so far."""

    def __init__(self, *arguments: str, address: str) -> None:
        self.process = started("watch", *arguments, address=address)
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def prints(self, text: str) -> None:
        wait_for(lambda: any(text in line for line in self.lines))

    def interrupt(self) -> tuple[int, str]:
        """Ctrl-C. Returns: the exit status, and what was told on standard error."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.end()

    def end(self) -> tuple[int, str]:
        """Waits for the end. Returns: the exit status, and what was told on standard error."""
        assert self.process.stderr is not None
        assert self.process.stdout is not None
        status = self.process.wait(START_SECONDS)
        self._reading.join()
        with self.process.stdout, self.process.stderr as stderr:
            return status, stderr.read()


Watch = Callable[..., Watching]


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Starts watches, and ends those that a test has not."""
    made: list[Watching] = []

    def make(*arguments: str, address: str) -> Watching:
        made.append(Watching(*arguments, address=address))
        return made[-1]

    yield make
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
            each.end()


@pytest.fixture
def talk(client: MemoryClient, agent: str) -> Session:
    session = client.session(agent=agent, id="talk")
    session.append(user("Hello!"), create=SessionSettings(user_id=agent))
    return session


def test_events_are_printed_as_people_read_them(watch: Watch, server: ServerProcess, talk: Session) -> None:
    watching = watch("talk", "-a", talk.agent, "--from-start", address=server.address)
    watching.prints("Hello!")
    weather = call("get_weather", {"city": "Oslo"})
    talk.append(assistant("Let me see.", tool_calls=[weather]), tool(weather.id, "4 degrees"))
    watching.prints("4 degrees")
    talk.redact(seq=1, reason="a \x1b[31mname")
    talk.rewind(2)
    talk.clear()
    watching.prints("cleared")
    status, told = watching.interrupt()
    assert status == 130
    assert told.strip().startswith(f"Go on from here: memoryd watch talk --agent {talk.agent[:10]}")
    assert watching.lines[0].startswith("Session talk of agent ")
    shown = [" ".join(line.split()) for line in watching.lines[3:]]
    assert [text.split()[2] for text in shown[:3]] == ["user", "assistant", "tool"]
    assert "← get_weather: 4 degrees" in shown[2]
    assert [text.partition(" ")[2] for text in shown[3:]] == [
        "redacted: 1 (a ␛[31mname)",
        "rewound: 3 taken away",
        "cleared: 1 to 3 taken away",
    ]


def test_events_are_lines_of_json_for_programs(watch: Watch, server: ServerProcess, talk: Session) -> None:
    watching = watch("talk", "-a", talk.agent, "--from-start", "--json", address=server.address)
    watching.prints("Hello!")
    talk.append(user("b"), user("c"))
    watching.prints('"c"')
    talk.redact(seq=2, reason="why")
    watching.prints('"why"')
    talk.clear()
    watching.prints('"cleared"')
    assert watching.interrupt() == (130, "")
    events = [json.loads(line) for line in watching.lines]
    assert [(event["kind"], event["from_seq"], event["to_seq"]) for event in events] == [
        ("appended", 1, 1),
        ("appended", 2, 2),
        ("appended", 3, 3),
        ("redacted", 2, 2),
        ("cleared", 1, 3),
    ]
    assert events[0]["message"]["content"] == [{"type": "text", "text": "Hello!"}]
    assert events[3]["message"]["redaction"]["reason"] == "why"
    assert all(event["event_time"] and event["resume_token"] for event in events)

    again = watch(
        "talk", "-a", talk.agent, "--json", "--resume-token", events[1]["resume_token"], address=server.address
    )
    again.prints('"cleared"')
    again.interrupt()
    assert [json.loads(line)["from_seq"] for line in again.lines] == [3, 2, 1]


def test_a_watch_ends_when_nobody_reads_it(server: ServerProcess, talk: Session) -> None:
    """Also while nothing happens: `memoryd watch … | head -1` ends with head."""
    process = started("watch", "talk", "-a", talk.agent, "--from-start", "--json", address=server.address)
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout as stdout:
        assert json.loads(stdout.readline())["kind"] == "appended"
    with process.stderr as stderr:
        assert (process.wait(START_SECONDS), stderr.read()) == (0, "")


def test_a_watch_goes_on_when_its_server_does(
    watch: Watch, start_server: StartServer, tmp_path: Path, agent: str, unused_port: int
) -> None:
    server = start_server("--data-dir", str(tmp_path / "data"), "--listen", f"127.0.0.1:{unused_port}")
    with MemoryClient(server.address) as client:
        session = client.session(agent=agent, id="talk")
        session.append(user("before"))
        watching = watch("talk", "-a", agent, "--from-start", address=server.address)
        watching.prints("before")
        server.kill()
        server.restart()
        session.append(user("after"))
        watching.prints("after")
        status, told = watching.interrupt()
    assert status == 130
    assert "the watch of session 'talk' broke off and is resumed" in told
    assert "the watch of session 'talk' goes on" in told
    assert sum("before" in line for line in watching.lines) == 1


@pytest.fixture
def unused_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_an_erased_session_ends_its_watch(
    watch: Watch, server: ServerProcess, client: MemoryClient, talk: Session
) -> None:
    watching = watch("talk", "-a", talk.agent, "--from-start", address=server.address)
    watching.prints("Hello!")
    client.erase_user(talk.agent)
    status, told = watching.end()
    assert status == 1
    assert told == f"memoryd: session talk of agent {talk.agent} is gone: it expired or was erased\n"


def test_a_watch_begins_at_one_place(here: Here) -> None:
    done = here.memoryd("watch", "talk", "--from-start", "--resume-token", "t", address="127.0.0.1:9")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--resume-token" in done.stderr


def test_a_token_of_something_else_is_refused(here: Here, server: ServerProcess, talk: Session) -> None:
    done = here.memoryd("watch", "talk", "-a", talk.agent, "--resume-token", "nonsense", address=server.address)
    assert done.returncode == 1
    assert done.stderr.startswith("memoryd: ")
    assert "Traceback" not in done.stderr
