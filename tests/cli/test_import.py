"""`memoryd import`: every transcript exactly once, whatever comes in between."""

from __future__ import annotations

import json
import signal
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from memoryd import MemoryClient, SessionNotFound, StoredMemory, to_anthropic, to_openai, user
from tests.cli.commands import memoryd, memoryd_ok, started, wait_for, write_lines
from tests.conftest import StartServer
from tests.servers import ServerProcess
from tests.service import conversations

TRANSCRIPTS = Path(__file__).parents[3] / "shared" / "data" / "airline_transcripts.jsonl"


def line(session_id: str, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"session_id": session_id, "messages": messages, **more}


def talk(messages: int, *, about: str = "x") -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[number % 2], "content": f"{about} {number}"} for number in range(messages)]


def stored(client: MemoryClient, agent: str, session_id: str) -> list[dict[str, Any]]:
    return to_openai(client.session(agent=agent, id=session_id).messages(page_size=1_000))


def sessions(client: MemoryClient, agent: str) -> set[str]:
    return {info.session_id for info in client.sessions(agent=agent, page_size=1_000)}


def test_imported_histories_equal_their_transcripts(
    server: ServerProcess, client: MemoryClient, agent: str, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "talks.jsonl", (line(name, it) for name, it in conversations.OPENAI.items()))
    said = memoryd_ok("import", str(path), "--agent", agent, "--user", "ada", address=server.address)
    count = sum(map(len, conversations.OPENAI.values()))
    assert said.startswith(f"{len(conversations.OPENAI)} sessions: {count} messages stored, in ")
    assert "memoryd window " in said
    for name, messages in conversations.OPENAI.items():
        assert stored(client, agent, name) == messages
        assert client.session(agent=agent, id=name).info().user_id == "ada"


def test_an_import_tells_of_memory_that_is_not_stored(
    server: ServerProcess, client: MemoryClient, agent: str, tmp_path: Path
) -> None:
    """What a server leaves out is never left out in silence; a repetition leaves out nothing."""
    client.files(user=agent).put("- likes tea\n")
    block = client.render_context(user=StoredMemory(user=agent)).block
    roles = ["system", "developer", "user", "system"]
    contents = [*[f"Be brief.\n\n{block}\n\nAnswer in verse."] * 3, "Be long."]
    prompts = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
    path = write_lines(tmp_path / "t.jsonl", [line("a", prompts), line("b", talk(2)), line("c", prompts[2:])])
    command = ["import", str(path), "-a", agent]
    said = memoryd_ok(*command, address=server.address)
    assert "\nMemory that had been rendered into prompts was cut out of 2 messages.\n" in said
    assert [message["content"] for message in stored(client, agent, "a")] == [
        *["Be brief.\n\nAnswer in verse."] * 2,
        *contents[2:],
    ]
    again = memoryd_ok(*command, address=server.address)
    assert again.startswith("3 sessions: 0 messages stored, 8 were there already")
    assert " cut out " not in again
    write_lines(path, [line("d", prompts[:1]), "nonsense"])
    stopped = memoryd(*command, address=server.address)
    assert (
        "1 new message stored. Memory that had been rendered into prompts was cut out of 1 message. " in stopped.stderr
    )


def test_imported_sessions_can_expire(server: ServerProcess, client: MemoryClient, agent: str, tmp_path: Path) -> None:
    """Those that the import begins; the others stay as they are."""
    client.session(agent=agent, id="old").append(user("x"))
    client.session(agent=agent, id="old").clear()
    path = write_lines(tmp_path / "talks.jsonl", [line("new", talk(2)), line("old", talk(2))])
    memoryd_ok("import", str(path), "-a", agent, "--ttl", "1d 12h", address=server.address)
    assert client.session(agent=agent, id="new").info().ttl == timedelta(days=1, hours=12)
    assert client.session(agent=agent, id="old").info().ttl is None


def test_anthropic_transcripts_are_imported_as_well(
    server: ServerProcess, client: MemoryClient, agent: str, tmp_path: Path
) -> None:
    path = write_lines(
        tmp_path / "talks.jsonl",
        (line(name, it, system=f"About {name}.") for name, it in conversations.ANTHROPIC.items()),
    )
    memoryd_ok("import", "--format", "anthropic", str(path), "-a", agent, address=server.address)
    for name, messages in conversations.ANTHROPIC.items():
        prompt = to_anthropic(client.session(agent=agent, id=name).messages())
        assert prompt == {"system": f"About {name}.", "messages": messages}


@pytest.mark.skipif(not TRANSCRIPTS.exists(), reason="the transcripts are not beside this repository")
def test_the_airline_transcripts_come_back_equal(server: ServerProcess, client: MemoryClient, agent: str) -> None:
    memoryd_ok("import", str(TRANSCRIPTS), "--agent", agent, address=server.address)
    transcripts = [json.loads(text) for text in TRANSCRIPTS.read_text("utf-8").splitlines()]
    assert sessions(client, agent) == {transcript["session_id"] for transcript in transcripts}
    for transcript in transcripts:
        assert stored(client, agent, transcript["session_id"]) == transcript["messages"]


def test_the_agent_is_named_after_the_file_and_the_session_after_its_line(
    server: ServerProcess, client: MemoryClient, agent: str, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / f"{agent}.jsonl", [talk(2), "", talk(3), {"messages": []}])
    said = memoryd_ok("import", str(path), address=server.address)
    assert "1 line without messages passed over." in said
    assert sessions(client, agent) == {f"{agent}-1", f"{agent}-3"}


def test_transcripts_come_from_standard_input_too(server: ServerProcess, client: MemoryClient, agent: str) -> None:
    memoryd_ok("import", "-", "--agent", agent, address=server.address, stdin=json.dumps(line("piped", talk(2))))
    assert stored(client, agent, "piped") == talk(2)
    nameless = memoryd("import", "-", address=server.address)
    assert (nameless.returncode, "--agent" in nameless.stderr) == (2, True)


def test_the_same_file_twice_is_stored_once(
    server: ServerProcess, client: MemoryClient, agent: str, tmp_path: Path
) -> None:
    """Also messages that say the same are kept apart, and known by their place (invariant 2)."""
    path = write_lines(tmp_path / "t.jsonl", [line("yes", [*talk(1), *talk(1), *talk(1)]), line("long", talk(600))])
    memoryd_ok("import", str(path), "-a", agent, address=server.address)
    again = memoryd_ok("import", str(path), "-a", agent, address=server.address)
    assert again.startswith("2 sessions: 0 messages stored, 603 were there already, in ")
    assert stored(client, agent, "yes") == [*talk(1), *talk(1), *talk(1)]
    assert stored(client, agent, "long") == talk(600)


def test_files_and_transcripts_may_grow(
    server: ServerProcess, client: MemoryClient, agent: str, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "t.jsonl", [line("a", talk(3)), line("b", talk(270))])
    memoryd_ok("import", str(path), "-a", agent, address=server.address)
    write_lines(path, [line("a", talk(5)), line("b", talk(700)), line("c", talk(2)), line("a", talk(8))])
    said = memoryd_ok("import", str(path), "-a", agent, address=server.address)
    assert said.startswith("4 sessions: 437 messages stored, 278 were there already, in ")
    for session_id, messages in (("a", 8), ("b", 700), ("c", 2)):
        assert stored(client, agent, session_id) == talk(messages)


def test_a_transcript_that_is_shorter_than_what_is_stored_changes_nothing(
    server: ServerProcess, client: MemoryClient, agent: str, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "t.jsonl", [line("a", talk(9))])
    memoryd_ok("import", str(path), "-a", agent, address=server.address)
    client.session(agent=agent, id="a").append(user("live"))
    write_lines(path, [line("a", talk(4))])
    said = memoryd_ok("import", str(path), "-a", agent, address=server.address)
    assert said.startswith("1 session: 0 messages stored, 4 were there already")
    assert len(stored(client, agent, "a")) == 10


def test_a_killed_import_goes_on_where_it_stopped(
    server: ServerProcess, client: MemoryClient, agent: str, tmp_path: Path
) -> None:
    """Nothing is missing and nothing is there twice after kill -9 in the middle (invariants 2 and 3)."""
    transcripts = {f"s{number}": talk(20 + number, about=f"s{number}") for number in range(0, 300, 2)}
    path = write_lines(tmp_path / "t.jsonl", (line(name, it) for name, it in transcripts.items()))
    importing = started("import", str(path), "-a", agent, address=server.address)
    wait_for(lambda: len(list(islice(client.sessions(agent=agent), 20))) == 20)
    importing.kill()
    importing.communicate()
    assert importing.returncode == -signal.SIGKILL
    assert len(sessions(client, agent)) < len(transcripts)
    said = memoryd_ok("import", str(path), "-a", agent, address=server.address)
    assert " were there already" in said
    assert sessions(client, agent) == set(transcripts)
    for name, messages in transcripts.items():
        assert stored(client, agent, name) == messages


def test_ctrl_c_says_how_to_go_on(server: ServerProcess, client: MemoryClient, agent: str, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "t.jsonl", (line(f"s{number}", talk(60)) for number in range(300)))
    importing = started("import", str(path), "-a", agent, address=server.address)
    wait_for(lambda: list(islice(client.sessions(agent=agent), 1)))
    importing.send_signal(signal.SIGINT)
    _, told = importing.communicate()
    assert importing.returncode == 130
    assert told.startswith("memoryd: interrupted.\n")
    assert "Repeat the command, and it goes on where it stopped." in told


def test_a_server_that_dies_ends_the_import_and_a_repetition_completes_it(
    start_server: StartServer, agent: str, tmp_path: Path
) -> None:
    server = start_server("--data-dir", str(tmp_path))
    transcripts = {f"s{number}": talk(40, about=f"s{number}") for number in range(250)}
    path = write_lines(tmp_path / "t.jsonl", (line(name, it) for name, it in transcripts.items()))
    importing = started("import", str(path), "-a", agent, address=server.address)
    with MemoryClient(server.address) as client:
        wait_for(lambda: list(islice(client.sessions(agent=agent), 1)))
    server.kill()
    _, told = importing.communicate()
    assert importing.returncode == 1
    assert told.startswith(f"memoryd: no server answers at {server.address}.")
    assert "Traceback" not in told
    server.restart()
    memoryd_ok("import", str(path), "-a", agent, address=server.address)
    with MemoryClient(server.address) as client:
        assert sessions(client, agent) == set(transcripts)
        for name, messages in transcripts.items():
            assert stored(client, agent, name) == messages


def test_two_imports_of_one_file_at_once_store_it_once(
    server: ServerProcess, client: MemoryClient, agent: str, tmp_path: Path
) -> None:
    transcripts = {f"s{number}": talk(300, about=f"s{number}") for number in range(12)}
    path = write_lines(tmp_path / "t.jsonl", (line(name, it) for name, it in transcripts.items()))
    imports = [started("import", str(path), "-a", agent, address=server.address) for _ in range(2)]
    for one in imports:
        _, told = one.communicate()
        assert one.returncode == 0, told
    for name, messages in transcripts.items():
        assert stored(client, agent, name) == messages


def test_a_bad_line_stops_the_import_after_what_came_before(
    server: ServerProcess, client: MemoryClient, agent: str, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "t.jsonl", [line("a", talk(2)), line("b", talk(2)), '{"session_id": ', line("c", [])])
    done = memoryd("import", str(path), "-a", agent, address=server.address)
    assert done.returncode == 1
    assert done.stderr.startswith(f"memoryd: {path}:3:16: is not JSON: Expecting value\n2 sessions done, ")
    assert "--skip-bad" in done.stderr
    assert sessions(client, agent) == {"a", "b"}


def test_bad_lines_can_be_passed_over(server: ServerProcess, client: MemoryClient, agent: str, tmp_path: Path) -> None:
    lines = ["nonsense", line("a", talk(2)), line("b", [{"role": "robot", "content": ""}]), line("c", talk(1))]
    path = write_lines(tmp_path / "t.jsonl", lines)
    done = memoryd("import", str(path), "-a", agent, "--skip-bad", address=server.address)
    assert done.returncode == 0
    assert f"skipped: {path}:1:1: is not JSON" in done.stderr
    assert f"skipped: {path}:3: messages[0] has the role 'robot'" in done.stderr
    assert "2 bad lines skipped." in done.stdout
    assert sessions(client, agent) == {"a", "c"}


def test_what_the_server_refuses_is_named_by_its_line(
    server: ServerProcess, client: MemoryClient, agent: str, tmp_path: Path
) -> None:
    huge = [*talk(260), {"role": "user", "content": "x" * (3 << 20)}, *talk(2)]
    path = write_lines(tmp_path / "t.jsonl", [line("fine", talk(2)), line("huge", huge), line("n" * 300, talk(1))])
    done = memoryd("import", str(path), "-a", agent, "--skip-bad", address=server.address)
    assert done.returncode == 0
    assert f"skipped: {path}:2: messages[260] " in done.stderr
    assert f"skipped: {path}:3: session.session_id " in done.stderr
    assert stored(client, agent, "fine") == talk(2)
    assert stored(client, agent, "huge") == talk(260)[: len(stored(client, agent, "huge"))]


def test_a_session_with_other_messages_is_left_alone(
    server: ServerProcess, client: MemoryClient, agent: str, tmp_path: Path
) -> None:
    client.session(agent=agent, id="live").append(user("I was here first."))
    path = write_lines(tmp_path / "t.jsonl", [line("went on", talk(2)), line("edited", talk(3))])
    memoryd_ok("import", str(path), "-a", agent, address=server.address)
    client.session(agent=agent, id="went on").append(user("and on"))
    edited = [*talk(1), {"role": "user", "content": "changed"}, *talk(3)]
    write_lines(path, [line("live", talk(2)), line("went on", talk(4)), line("edited", edited)])
    done = memoryd("import", str(path), "-a", agent, "--skip-bad", address=server.address)
    assert f"{path}:1: session 'live' of agent '{agent}' already holds other messages" in done.stderr
    assert (
        f"{path}:2: session 'went on' of agent '{agent}' went on with other messages after the first 2" in done.stderr
    )
    assert f"{path}:3: messages[1] is not what session 'edited' of agent '{agent}' holds there" in done.stderr
    assert len(stored(client, agent, "live")) == 1
    assert len(stored(client, agent, "went on")) == 3
    assert stored(client, agent, "edited") == talk(3)


def test_a_cleared_session_can_be_imported_again(
    server: ServerProcess, client: MemoryClient, agent: str, tmp_path: Path
) -> None:
    """A replay never restores anything (invariant 2), so an import after a clear is none: it has ids of its own."""
    path = write_lines(tmp_path / "t.jsonl", [line("a", talk(5))])
    memoryd_ok("import", str(path), "-a", agent, address=server.address)
    for total in (5, 5, 9):
        if total == 5:
            client.session(agent=agent, id="a").clear()
        write_lines(path, [line("a", talk(total))])
        memoryd_ok("import", str(path), "-a", agent, address=server.address)
        assert stored(client, agent, "a") == talk(total)
    again = memoryd_ok("import", str(path), "-a", agent, address=server.address)
    assert again.startswith("1 session: 0 messages stored, 9 were there already")


def test_a_file_that_is_not_there_is_named(server: ServerProcess, agent: str, tmp_path: Path) -> None:
    done = memoryd("import", str(tmp_path / "none.jsonl"), "-a", agent, address=server.address)
    assert done.returncode == 1
    assert (
        done.stderr
        == f"memoryd: {tmp_path}/none.jsonl cannot be read: No such file or directory.\nNothing was stored.\n"
    )


def test_the_store_can_be_chosen(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server("--store", "main=memory://", "--store", "other=memory://", "--default-store", "main")
    path = write_lines(tmp_path / "t.jsonl", [line("a", talk(2))])
    memoryd_ok("import", str(path), "--store", "other", address=server.address)
    with MemoryClient(server.address, store="other") as other, MemoryClient(server.address) as main:
        assert stored(other, "t", "a") == talk(2)
        with pytest.raises(SessionNotFound):
            main.session(agent="t", id="a").info()
    unknown = memoryd("import", str(path), "--store", "nix", address=server.address)
    assert unknown.returncode == 1
    assert "main" in unknown.stderr
    assert "other" in unknown.stderr
