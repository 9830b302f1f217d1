"""`memoryd copy`: between stores of any type, as a person runs it, whatever comes in between."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from memoryd import (
    MemoryClient,
    Message,
    MessageIdConflict,
    RunNotClaimable,
    RunStatus,
    SessionSettings,
    from_openai,
    user,
)
from tests.adapters import EACH_SHARED_ADAPTER, Adapter
from tests.cli.commands import Here, environment, memoryd, started, wait_for, write_lines
from tests.cli.test_import import line, talk
from tests.conftest import StartServer
from tests.servers import MEMORYD, ServerProcess
from tests.service import conversations
from tests.service import memory_calls as files
from tests.service.wire import Stubs

NewData = Callable[..., str]


@pytest.fixture
def new_data(tmp_path: Path) -> Iterator[NewData]:
    """Gives URLs of data that holds nothing: of an adapter, or of a SQLite file."""
    with ExitStack() as opened:

        def make(adapter: Adapter | None = None, name: str = "memoryd") -> str:
            if adapter is None:
                return f"sqlite:///{tmp_path}/{name}.db"
            directory = tmp_path / name
            directory.mkdir()
            return opened.enter_context(adapter.emptied(directory))

        yield make


each_store = pytest.mark.parametrize("adapter", EACH_SHARED_ADAPTER)


def named(source: str, target: str) -> dict[str, str]:
    """The settings that name two stores."""
    return {"MEMORYD_STORES__HERE__URL": source, "MEMORYD_STORES__THERE__URL": target}


Copy = Callable[..., subprocess.CompletedProcess[str]]
Copied = Callable[..., str]


@pytest.fixture
def copy(here: Here) -> Copy:
    """Copies between URLs that the settings name."""

    def copy(source: str, target: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return here.memoryd("copy", "--from", "here", "--to", "there", *arguments, **named(source, target))

    return copy


@pytest.fixture
def copied(copy: Copy) -> Copied:
    """Copies, after which all must be the same. Returns: what was said."""

    def copied(source: str, target: str, *arguments: str) -> str:
        done = copy(source, target, *arguments)
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("All are the same in both stores.\n")
        return done.stdout

    return copied


def said(text: str, id_: str) -> Message:
    """A message of a user, with an id of its own."""
    return replace(user(text), id=id_)


def talk_about_everything(client: MemoryClient) -> None:
    """Sessions in which all has happened that a session can see."""
    for name, messages in conversations.OPENAI.items():
        session = client.session(agent="assistant", id=name)
        session.append(*from_openai(messages), create=SessionSettings(user_id="ada", labels={"about": name}))
    long = client.session(agent="assistant", id="long")
    for start in range(0, 600, 200):
        long.append(*(said(f"message {number}", f"m{number}") for number in range(start, start + 200)))
    changed = client.session(agent="other", id="changed")
    changed.append(*(said(f"{number}", f"{number}") for number in range(10)))
    changed.rewind(7)
    changed.redact(seq=3, reason="a password")
    changed.append(said("after", "after"))
    work(client)
    cleared = client.session(agent="other", id="cleared")
    cleared.append(user("gone"))
    cleared.clear()


def work(client: MemoryClient) -> None:
    """Runs of every kind that nobody holds."""
    session = client.session(agent="other", id="worked")
    with client.run(session, "ended", metadata="\0{}") as run:
        for number in range(4):
            run.step({"number": number}, messages=[said(f"step {number}", f"s{number}")])
        run.step(b"\xff" * (3 << 19), content_type="application/octet-stream")
    with client.run(session, "waiting") as run:
        run.pause(RunStatus.AWAITING_APPROVAL, "may I?", reason="it costs")
    client.enqueue_run(session, "queued", metadata="later")


OWNERS = (files.user("ada"), files.project("atlas"))


def remember_everything(stubs: Stubs) -> None:
    """Memory files, some with earlier versions."""
    for owner in OWNERS:
        files.put(stubs, owner, b"\xef\xbb\xbf- one\r\n\xff\0", author="ada")
        files.add(stubs, owner, "- two", author="bob", request_id="add")
        files.log(stubs, owner, "hello", date="2026-01-31", request_id="log")


def memory_facts(stubs: Stubs) -> list[Any]:
    """All that a client reads of memory files, each version with its author, time and content."""
    return [
        (owner, version, files.content_of(stubs, owner, file.name, version.version))
        for owner in OWNERS
        for page in files.pages(stubs, owner)
        for file in page
        for version in files.versions(stubs, owner, file.name)
    ]


def facts(client: MemoryClient) -> dict[tuple[str, str], Any]:
    """All that a client reads of all sessions."""
    found = {}
    for agent in ("assistant", "other"):
        for info in client.sessions(agent=agent):
            session = client.session(agent=agent, id=info.session_id)
            window = session.window(messages=20)
            found[agent, info.session_id] = (
                info,
                list(session.messages(page_size=1_000)),
                window.messages,
                window.stats,
                [(run, list(client.run_steps(session, run.id))) for run in client.runs(session=session)],
            )
    return found


@dataclass(frozen=True)
class Everything:
    """A store with all that a store can hold, on which a server runs, and what a client reads there."""

    url: str
    sessions: dict[tuple[str, str], Any]
    memory: list[Any]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everything]:
    """For tests that leave it as it is."""
    with served_file(tmp_path_factory) as (url, server):
        with MemoryClient(server.address) as client, Stubs(server.address) as stubs:
            talk_about_everything(client)
            remember_everything(stubs)
            found = Everything(url, facts(client), memory_facts(stubs))
        yield found


@contextmanager
def served_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ServerProcess]]:
    """The URL of a new SQLite file, and a server on it."""
    directory = tmp_path_factory.mktemp("source")
    url = f"sqlite:///{directory}/memoryd.db"
    server = ServerProcess("--store", f"default={url}", "--tokenizer", "estimate", log=directory / "server.log")
    try:
        yield url, server
    finally:
        server.close()


@each_store
def test_there_and_back_all_is_the_same(
    start_server: StartServer,
    everything: Everything,
    new_data: NewData,
    copy: Copy,
    copied: Copied,
    adapter: Adapter,
) -> None:
    """While servers run on the stores (invariants 1, 2, 4 and 11)."""
    first, there, last = everything.url, new_data(adapter, "there"), new_data(name="last")
    expected, remembered = everything.sessions, everything.memory
    assert len(remembered) == 2 * (2 + 1)
    told = copied(first, there)
    assert re.match(rf"{len(expected)} sessions with [\d,]+ messages compared: {len(expected)} copied, in", told)
    assert "\n3 runs with 6 steps compared.\n4 memory files compared: 4 copied.\n" in told
    copied(there, last)
    for url in (there, last):
        server = start_server("--store", f"default={url}")
        with MemoryClient(server.address) as client, Stubs(server.address) as stubs:
            assert facts(client) == expected
            assert memory_facts(stubs) == remembered
            for owner in OWNERS:
                assert files.add(stubs, owner, "- two", request_id="add").added_count == 1
                assert files.log(stubs, owner, "hello", date="2026-01-31", request_id="log").version == 1
            assert memory_facts(stubs) == remembered
            long = client.session(agent="assistant", id="long")
            # What is repeated is recognized, and what is new goes on behind it.
            assert [message.seq for message in long.append(said("message 7", "m7"))] == [8]
            with pytest.raises(MessageIdConflict):
                long.append(said("another", "m7"))
            assert [message.seq for message in long.append(said("new", "new"))] == [601]
    again = copy(first, there)
    assert again.returncode == 1
    assert "session 'long' of agent 'assistant'" in again.stderr


@each_store
def test_a_run_that_a_worker_holds_goes_on_in_the_copy_once_its_lease_is_over(
    start_server: StartServer, new_data: NewData, adapter: Adapter, copy: Copy, copied: Copied
) -> None:
    """The worker writes to the source alone, and another one goes on behind the last step that was copied (invariant
    15).
    """
    source, target = new_data(), new_data(adapter, "there")
    here, there = (start_server("--store", f"default={url}") for url in (source, target))
    with MemoryClient(here.address) as on_source, MemoryClient(there.address) as on_target:
        session = on_source.session(agent="assistant", id="worked")
        copy_of_session = on_target.session(agent="assistant", id="worked")
        with on_source.run(session, "held", lease=6) as run:
            run.step("first", messages=[said("done", "done")])
            assert "\n1 run with 1 step compared.\n" in copied(source, target)
            with pytest.raises(RunNotClaimable), on_target.claim(copy_of_session, "held"):
                raise AssertionError("two hold it")
            run.step("second")
            for claimed in on_target.claims("assistant", poll=0.1):
                with claimed:
                    last = claimed.resume()
                    assert last is not None
                    assert (claimed.id, last.text) == ("held", "first")
                    claimed.step("second of another worker")
                break
            assert run.is_held
        assert on_source.get_run(session, "held").steps == 2
        assert on_target.get_run(copy_of_session, "held").status == RunStatus.COMPLETED
    done = copy(source, target)
    assert done.returncode == 1
    assert "it was changed in the target since it was copied" in " ".join(done.stderr.split())


@each_store
def test_a_killed_copy_goes_on_where_it_stopped(
    start_server: StartServer, new_data: NewData, adapter: Adapter, tmp_path: Path, copied: Copied
) -> None:
    """Nothing is missing and nothing is there twice after kill -9 in the middle (invariants 2 and 3)."""
    source, target = new_data(), new_data(adapter, "there")
    here = start_server("--store", f"default={source}")
    there = start_server("--store", f"default={target}")
    # What stands in for MongoDB takes its time.
    count = 30 if adapter.type == "mongodb" else 120
    path = write_lines(tmp_path / "talks.jsonl", (line(f"s{n}", talk(20 + n % 40)) for n in range(count)))
    assert memoryd("import", str(path), "-a", "assistant", address=here.address).returncode == 0
    with MemoryClient(here.address) as client:
        long = client.session(agent="assistant", id="long")
        for start in range(0, 500, 250):
            long.append(*(user(f"message {number}") for number in range(start, start + 250)))
    with Stubs(here.address) as stubs:
        remember_everything(stubs)
        remembered = memory_facts(stubs)
    copying = subprocess.Popen(
        [MEMORYD, "copy", "--from", source, "--to", target],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with MemoryClient(there.address) as client:
        wait_for(lambda: len(list(islice(client.sessions(agent="assistant"), 5))) == 5)
        copying.send_signal(signal.SIGKILL)
        assert copying.wait() == -signal.SIGKILL
        copied(source, target)
        expected = {f"s{number}": 20 + number % 40 for number in range(count)} | {"long": 500}
        assert {info.session_id: info.message_count for info in client.sessions(agent="assistant")} == expected
    with Stubs(there.address) as stubs:
        assert memory_facts(stubs) == remembered


def test_a_source_in_use_is_copied_again_when_it_is_not(
    start_server: StartServer, new_data: NewData, copied: Copied
) -> None:
    source, target = new_data(), new_data(name="there")
    server = start_server("--store", f"default={source}")
    with MemoryClient(server.address) as client:
        talk_about_everything(client)
        copied(source, target)
        changed = client.session(agent="other", id="changed")
        changed.redact(seq=4)
        changed.append(user("more"))
        client.session(agent="assistant", id="long").clear()
        assert "messages compared: 2 brought up to date, " in copied(source, target)
        expected = facts(client)
    server = start_server("--store", f"default={target}")
    with MemoryClient(server.address) as client:
        assert facts(client) == expected


def test_what_differs_is_listed_and_the_status_says_so(
    start_server: StartServer, new_data: NewData, copy: Copy, copied: Copied
) -> None:
    source, target = new_data(), new_data(name="there")
    server = start_server("--store", f"default={source}")
    with MemoryClient(server.address) as client:
        for session_id in ("same", "changed\x1b[2J\n"):
            client.session(agent="assistant", id=session_id).append(user("hi"))
    copied(source, target)
    other = start_server("--store", f"default={target}")
    with MemoryClient(other.address) as client:
        client.session(agent="assistant", id="changed\x1b[2J\n").append(user("there"))
    done = copy(source, target)
    assert done.returncode == 1
    assert done.stdout.startswith("2 sessions with 2 messages compared: 1 there already, 1 different, in ")
    assert "different: session 'changed" in done.stderr
    assert "it was changed in the target since it was copied" in done.stderr
    assert done.stderr.endswith("memoryd: 1 session is not the same in both stores, as listed.\n")
    assert "\x1b" not in done.stderr
    assert "'same'" not in done.stderr


def test_memory_files_are_copied_repeated_and_listed_where_they_differ(
    start_server: StartServer, new_data: NewData, copy: Copy, copied: Copied
) -> None:
    source, target = new_data(), new_data(name="there")
    here, there = (start_server("--store", f"default={url}") for url in (source, target))
    with Stubs(here.address) as on_source, Stubs(there.address) as on_target:
        remember_everything(on_source)
        assert "4 memory files compared: 4 copied.\n" in copied(source, target)
        files.log(on_source, OWNERS[0], "more", date="2026-01-31")
        assert "4 memory files compared: 1 copied, 3 there already.\n" in copied(source, target)
        assert memory_facts(on_target) == memory_facts(on_source)

        files.add(on_target, OWNERS[1], "- of the target")
        done = copy(source, target)
        assert done.returncode == 1
        assert "3 memory files compared: 3 there already.\n" in done.stdout
        told = " ".join(done.stderr.split())
        assert "different: memory file MEMORY.md of project 'atlas' in tenant 'default': it was changed in" in told
        assert told.endswith("memoryd: 1 memory file is not the same in both stores, as listed.")
        assert b"- of the target" in files.content_of(on_target, OWNERS[1])


def test_memory_files_of_one_user_alone_are_copied(
    start_server: StartServer, new_data: NewData, copied: Copied
) -> None:
    """With an agent named none is: they belong to no agent."""
    source, target = new_data(), new_data(name="there")
    here = start_server("--store", f"default={source}")
    with Stubs(here.address) as on_source:
        remember_everything(on_source)
    assert "2 memory files compared: 2 copied.\n" in copied(source, target, "--user", "ada")
    there = start_server("--store", f"default={target}")
    with Stubs(there.address) as on_target:
        assert {owner.user_id for owner, _, _ in memory_facts(on_target)} == {"ada"}


def test_one_agent_or_one_user_alone_is_copied(start_server: StartServer, new_data: NewData, copied: Copied) -> None:
    source, target = new_data(), new_data(name="there")
    server = start_server("--store", f"default={source}")
    with MemoryClient(server.address) as client:
        for agent, user_id in (("a", "ada"), ("b", "ada"), ("b", "bob")):
            session = client.session(agent=agent, id=f"{agent} {user_id}")
            session.append(user("hi"), create=SessionSettings(user_id=user_id))
    assert copied(source, target, "--agent", "b", "--user", "ada").startswith(
        "1 session with 1 message compared: 1 copied, in"
    )
    told = copied(source, target, "--user", "ada")
    assert told.startswith("2 sessions with 2 messages compared: 1 copied, 1 there already, in")
    told = copied(source, target, "--agent", "a", "-a", "b")
    assert told.startswith("3 sessions with 3 messages compared: 1 copied, 2 there already, in")


class TestNamesThatMatchNothing:
    """A typing error does not pass for a copy of nothing."""

    @pytest.fixture(scope="class")
    @classmethod
    def source(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
        with served_file(tmp_path_factory) as (url, server):
            with MemoryClient(server.address) as client:
                for agent, user_id in (("a", "ada"), ("b", "bob")):
                    session = client.session(agent=agent, id="s")
                    session.append(user("hi"), create=SessionSettings(user_id=user_id))
            yield url

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            (["--agent", "nosuch"], "agent 'nosuch'"),
            (["--user", "nosuch"], "user 'nosuch'"),
            (["--tenant", "nosuch"], "tenant 'nosuch'"),
            (["--tenant", "nosuch", "--agent", "A"], "tenant 'nosuch' and agent 'A'"),
            (["--agent", "a", "--user", "bob"], "agent 'a' and user 'bob'"),
        ],
    )
    def test_are_named_and_the_status_says_so(
        self, source: str, new_data: NewData, here: Here, arguments: list[str], named: str
    ) -> None:
        target = new_data(name="there")
        done = here.memoryd("copy", "--from", source, "--to", target, *arguments)
        assert done.returncode == 3
        assert f"nothing in the source matches {named}" in done.stderr.replace("\n", " ")
        assert "nothing was copied" in done.stderr.replace("\n", " ")
        assert "All are the same" not in done.stdout

    def test_do_not_keep_the_others_back(self, source: str, new_data: NewData, here: Here) -> None:
        done = here.memoryd(
            "copy", "--from", source, "--to", new_data(name="there"), "--agent", "a", "--agent", "nosuch"
        )
        assert done.returncode == 3
        assert done.stdout.startswith("1 session with 1 message compared: 1 copied, in")
        assert "matches agent 'nosuch'" in done.stderr
        assert "agent 'a'" not in done.stderr

    def test_are_none_in_a_store_that_is_empty(self, start_server: StartServer, new_data: NewData, here: Here) -> None:
        source = new_data()
        start_server("--store", f"default={source}")
        done = here.memoryd("copy", "--from", source, "--to", new_data(name="there"))
        assert done.returncode == 0
        assert done.stdout == "The source has no session.\nAll are the same in both stores.\n"


def test_ctrl_c_ends_it_in_order_and_says_how_to_go_on(
    start_server: StartServer, new_data: NewData, tmp_path: Path, copied: Copied
) -> None:
    source, target = new_data(), new_data(name="there")
    server = start_server("--store", f"default={source}")
    path = write_lines(tmp_path / "talks.jsonl", (line(f"s{number}", talk(100)) for number in range(300)))
    assert memoryd("import", str(path), "-a", "assistant", address=server.address).returncode == 0
    copying = started("copy", "--from", source, "--to", target)
    # Its file is there once it is open.
    wait_for((tmp_path / "there.db").exists)
    copying.send_signal(signal.SIGINT)
    _, told = copying.communicate()
    assert copying.returncode == 130
    assert "memoryd: interrupted.\n" in told
    assert told.endswith("Repeat the command, and it goes on where it stopped.\n")
    assert "Traceback" not in told
    copied(source, target)


def test_a_database_that_goes_away_ends_it_with_a_sentence(here: Here, new_data: NewData, tmp_path: Path) -> None:
    source = new_data()
    unreachable = "postgresql://ada:secret@127.0.0.1:1/memory"
    (tmp_path / "memoryd.db").touch()
    done = here.memoryd("copy", "--from", source, "--to", unreachable)
    assert done.returncode == 1
    assert "does not answer" in done.stderr
    assert "Repeat the call" not in done.stderr
    assert "Nothing was copied. Repeat the command" in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.parametrize(
    ("source", "target", "told"),
    [
        ("here", "here", "--from and --to are the same store"),
        ("here", "nowhere", "there is no store 'nowhere' in the settings, which name here, there"),
        ("sqlite:///missing.db", "there", "is empty: there is no file missing.db"),
        ("memory://", "there", "cannot be copied. The data lives in the memory of one server process."),
        ("here", "memory://", "cannot be copied. The data lives in the memory of one server process."),
        ("here", "oracle://there", "there is no URL scheme 'oracle'"),
        ("here", "postgresql://ada:secret@localhost", "names no database"),
    ],
)
def test_a_store_that_cannot_be_meant_is_told_with_what_to_do(
    here: Here, new_data: NewData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, target: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "memoryd.db").touch()
    settings = named(new_data(), new_data(name="there"))
    done = here.memoryd("copy", "--from", source, "--to", target, **settings)
    assert done.returncode == 2
    assert told in done.stderr
    assert "secret" not in done.stderr
    assert not (tmp_path / "missing.db").exists()


@pytest.mark.parametrize("option", ["--from", "--to"])
def test_a_second_store_is_not_taken_for_the_first(here: Here, option: str) -> None:
    done = here.memoryd("copy", "--from", "a", "--to", "b", option, "c")
    assert done.returncode == 2
    assert f"'{option}': it is given more than once" in done.stderr


@pytest.mark.parametrize("option", ["--agent", "--user", "--tenant"])
def test_an_empty_name_never_means_all(here: Here, option: str) -> None:
    done = here.memoryd("copy", "--from", "a", "--to", "b", option, "")
    assert done.returncode == 2
    assert f"{option} is empty, and never means all of them" in done.stderr


def test_the_store_of_a_data_directory_is_named_default(
    start_server: StartServer, new_data: NewData, tmp_path: Path
) -> None:
    server = start_server("--data-dir", str(tmp_path / "memory"))
    with MemoryClient(server.address) as client:
        client.session(agent="assistant", id="s").append(user("hi"))
    done = memoryd("copy", "--from", "default", "--to", new_data(name="there"), "--data-dir", str(tmp_path / "memory"))
    assert done.returncode == 0, done.stderr
    into = memoryd("copy", "--from", new_data(name="there"), "--to", "default", "--data-dir", str(tmp_path / "new"))
    assert into.returncode == 0, into.stderr
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
