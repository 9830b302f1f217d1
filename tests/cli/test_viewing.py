"""`memoryd sessions`, `history` and `window` against a real server."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from memoryd import MemoryClient, SessionSettings, system, user
from memoryd_server.cli.demonstration import conversation
from tests.cli.commands import Here, memoryd
from tests.servers import ServerProcess


@pytest.fixture
def talk(client: MemoryClient, agent: str) -> str:
    """The name of an agent with a session `talk`, and with an empty one."""
    session = client.session(agent=agent, id="talk")
    session.append_all(conversation(), create=SessionSettings(user_id="ada"))
    empty = client.session(agent=agent, id="empty")
    empty.append(user("x"))
    empty.clear()
    return agent


def test_sessions_are_listed_with_their_counts(here: Here, server: ServerProcess, talk: str) -> None:
    lines = here.ok("sessions", "--agent", talk, "--user", "ada", address=server.address).splitlines()
    assert lines[0].split() == ["Session", "Agent", "User", "Messages", "Tokens", "Last", "activity"]
    assert lines[1].split()[0] == "talk"
    assert " 16 (1 open) " in lines[1]
    listed = here.ok("sessions", "-a", talk, "--json", address=server.address).splitlines()
    assert {json.loads(text)["session_id"] for text in listed} == {"talk", "empty"}


def test_sessions_are_listed_with_their_end(
    here: Here, server: ServerProcess, client: MemoryClient, agent: str
) -> None:
    """Only where one of them has an end."""
    session = client.session(agent=agent, id="ends")
    session.append(user("x"), create=SessionSettings(ttl=timedelta(days=3)))
    client.session(agent=agent, id="stays").append(user("x"))
    end = session.info().expire_time
    assert end is not None
    stays, ends = here.ok("sessions", "-a", agent, address=server.address, COLUMNS="200").splitlines()[1:]
    assert ends.endswith(f"  {end.astimezone():%Y-%m-%d %H:%M}")
    assert stays.split()[-2:] == ends.split()[-4:-2]
    values = [
        json.loads(text) for text in here.ok("sessions", "-a", agent, "--json", address=server.address).splitlines()
    ]
    assert [(value.get("ttl"), value.get("expire_time")) for value in values] == [
        (None, None),
        (259_200.0, end.isoformat()),
    ]


def test_more_sessions_than_asked_for_are_announced(
    here: Here, server: ServerProcess, client: MemoryClient, agent: str
) -> None:
    for number in range(3):
        client.session(agent=agent, id=f"s{number}").append(user("x"))
    done = here.memoryd("sessions", "-a", agent, "--limit", "2", address=server.address)
    assert [text.split()[0] for text in done.stdout.splitlines() if text.startswith("s")] == ["s2", "s1"]
    assert done.stderr == "there are more than these 2; --limit 10 shows more of them\n"


def test_no_sessions_are_said_to_be_none(here: Here, server: ServerProcess, agent: str) -> None:
    done = here.memoryd("sessions", "-a", agent, address=server.address)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith(f"no sessions of agent {agent}. ")


def test_a_history_is_shown_in_order(here: Here, server: ServerProcess, talk: str) -> None:
    lines = here.ok("history", "talk", "-a", talk, address=server.address).splitlines()
    assert lines[0].startswith(f"Session talk of agent {talk[:30]}")
    shown = lines[3:]
    assert [int(text.split()[0]) for text in shown] == list(range(1, 17))
    assert "こんにちは! How is the weather in 東京" in shown[1]
    assert "← get_weather: " in shown[4]
    assert all(len(text) <= 80 for text in shown)


@pytest.mark.parametrize(
    ("options", "seqs", "hint"),
    [
        (["-n", "3"], [14, 15, 16], "--from-seq 1 shows the first"),
        (["-n", "3", "--from-seq", "5"], [5, 6, 7], "--from-seq 8 goes on"),
        (["--from-seq", "15"], [15, 16], ""),
        (["-n", "2", "--to-seq", "6"], [5, 6], "--from-seq 1 shows the first"),
        (["-n", "2", "--all"], list(range(1, 17)), ""),
    ],
)
def test_parts_of_a_history_can_be_asked_for(
    here: Here, server: ServerProcess, talk: str, options: list[str], seqs: list[int], hint: str
) -> None:
    done = here.memoryd("history", "talk", "-a", talk, *options, address=server.address)
    assert [int(text.split()[0]) for text in done.stdout.splitlines()[3:]] == seqs
    assert (hint in done.stderr) if hint else (done.stderr == "")


@pytest.mark.parametrize("options", [[], ["--from-seq", "1"], ["-n", "2"], ["-n", "3", "--from-seq", "1"]])
def test_what_a_rewind_or_a_clear_took_is_not_said_to_follow(
    here: Here, server: ServerProcess, client: MemoryClient, agent: str, options: list[str]
) -> None:
    session = client.session(agent=agent, id="s")
    session.append(user("cleared"))
    session.clear()
    session.append(user("stays"), user("stays, too"), user("taken away"))
    session.rewind(3)
    done = here.memoryd("history", "s", "-a", agent, *options, address=server.address)
    assert [int(text.split()[0]) for text in done.stdout.splitlines()[3:]] == [2, 3]
    assert done.stderr == ""


def test_a_history_is_json_for_programs(here: Here, server: ServerProcess, client: MemoryClient, talk: str) -> None:
    lines = here.ok("history", "talk", "-a", talk, "--json", address=server.address).splitlines()
    assert all(text.isascii() for text in lines)
    messages = [json.loads(text) for text in lines]
    assert messages[2]["content"][1] == {
        "type": "tool_call",
        "id": "call_2",
        "name": "get_weather",
        "arguments": '{"city":"Oslo"}',
    }
    assert [message["id"] for message in messages] == [
        message.id for message in client.session(agent=talk, id="talk").messages()
    ]


def test_whole_messages_can_be_shown(here: Here, server: ServerProcess, client: MemoryClient, agent: str) -> None:
    client.session(agent=agent, id="s").append(user("first line\n\tsecond line\x1b[31m\r\nthird"))
    shown = here.ok("history", "s", "--full", "-a", agent, address=server.address)
    assert "\nfirst line\n    second line␛[31m\nthird\n" in shown


def test_content_and_names_never_reach_the_terminal_raw(
    here: Here, server: ServerProcess, client: MemoryClient, agent: str
) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m"
    session = client.session(agent=agent + evil, id=f"s{evil}")
    session.append(system(evil), user(evil, name=evil), create=SessionSettings(user_id=f"u{evil}"))
    for command in (
        ["sessions", "-a", session.agent],
        ["history", session.id, "-a", session.agent],
        ["history", session.id, "-a", session.agent, "--full"],
        ["history", session.id, "-a", session.agent, "--json"],
        ["window", session.id, "-a", session.agent, "--limit", "5"],
        ["window", session.id, "-a", session.agent, "--limit", "5", "--json"],
        ["history", "nix", "-a", session.agent],
        ["window", session.id, "-a", session.agent, "--limit", "0"],
    ):
        done = here.memoryd(*command, address=server.address)
        for character in "\x1b\x07\u202e\x9b":
            assert character not in done.stdout + done.stderr, command


def test_a_window_is_drawn_in_its_history(here: Here, server: ServerProcess, talk: str) -> None:
    drawn = here.ok("window", "talk", "-a", talk, "--limit", "8", address=server.address)
    lines = drawn.splitlines()
    assert [text[0] for text in lines[2:18]] == list("P·······○┃┃┃┃┃┃┃")
    assert "P pinned  ┃ in window  · does not fit  ○ open call" in lines
    assert "Limit     8 messages  ████████████████████ 100 % used" in lines
    assert "Left out  7 messages that do not fit" in lines


def test_a_window_is_cut_as_asked(here: Here, server: ServerProcess, talk: str) -> None:
    options = ["--tokens", "100000", "--open-calls", "synthesize", "--no-pin"]
    lines = here.ok("window", "talk", "-a", talk, *options, address=server.address).splitlines()
    assert [text[0] for text in lines[2:19]] == list("┃┃┃┃┃┃┃┃┃+┃┃┃┃┃┃┃")
    assert "[read after 3]" in lines[7]
    value = json.loads(here.ok("window", "talk", "-a", talk, *options, "--json", address=server.address))
    assert len(value["messages"]) == value["stats"]["window_message_count"] == 17
    assert value["stats"]["mode"] == "tokens"
    front = here.ok("window", "talk", "-a", talk, "-n", "3", "--start-with-user", address=server.address)
    assert [text[0] for text in front.splitlines()[2:] if text.startswith(("P", "┃"))] == ["P", "┃", "P"]


def test_an_empty_history_has_an_empty_window(here: Here, server: ServerProcess, talk: str) -> None:
    drawn = here.ok("window", "empty", "-a", talk, address=server.address)
    assert "no messages" in drawn
    assert "Left out  nothing" in drawn
    history = here.memoryd("history", "empty", "-a", talk, address=server.address)
    assert history.stderr == "no messages\n"


def test_a_window_has_one_limit(here: Here, server: ServerProcess, talk: str) -> None:
    done = here.memoryd("window", "talk", "-a", talk, "-n", "5", "-t", "5", address=server.address)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--limit" in done.stderr


NINES = "9" * 23


@pytest.mark.parametrize(
    ("arguments", "option", "allowed"),
    [
        (["window", "x", "--tokens", NINES], "'--tokens' / '-t'", "1 to 100,000,000"),
        (["window", "x", "--tokens", "-1"], "'--tokens' / '-t'", "1 to 100,000,000"),
        (["window", "x", "--limit", NINES], "'--limit' / '-n'", "1 to 100,000"),
        (["window", "x", "--limit", "0"], "'--limit' / '-n'", "1 to 100,000"),
        (["history", "x", "--limit", NINES], "'--limit' / '-n'", "1 to 1,000,000,000"),
        (["history", "x", "--from-seq", NINES], "'--from-seq'", "1 to 9,223,372,036,854,775,807"),
        (["history", "x", "--to-seq", NINES], "'--to-seq'", "1 to 9,223,372,036,854,775,807"),
        (["sessions", "--limit", NINES], "'--limit' / '-n'", "1 to 1,000,000,000"),
        (["rewind", "x", "--to-seq", "-1"], "'--to-seq'", "0 to 9,223,372,036,854,775,807"),
        (["fork", "x", "--through-seq", "0"], "'--through-seq'", "1 to 9,223,372,036,854,775,807"),
        (["redact", "x", NINES], "'SEQ'", "1 to 9,223,372,036,854,775,807"),
        (["import", "x", "--ttl", "0s"], "'--ttl'", "1 second to 100 years"),
        (["import", "x", "--ttl", f"{NINES}d"], "'--ttl'", "1 second to 100 years"),
    ],
)
def test_an_impossible_number_is_a_usage_error(here: Here, arguments: list[str], option: str, allowed: str) -> None:
    done = here.memoryd(*arguments, address="127.0.0.1:9")
    assert (done.returncode, done.stdout) == (2, "")
    said = " ".join(done.stderr.replace("│", " ").split())
    assert f"Invalid value for {option}: it can be {allowed} " in said


def test_the_largest_numbers_are_taken(here: Here, server: ServerProcess, talk: str) -> None:
    here.ok("window", "talk", "-a", talk, "--limit", "100000", address=server.address)
    here.ok("window", "talk", "-a", talk, "--tokens", "100000000", address=server.address)
    many, last = "1000000000", str(2**63 - 1)
    here.ok("history", "talk", "-a", talk, "-n", many, "--from-seq", "1", "--to-seq", last, address=server.address)
    here.ok("history", "talk", "-a", talk, "-n", many, "--from-seq", last, address=server.address)
    here.ok("sessions", "-a", talk, "--limit", many, address=server.address)


def test_the_agent_of_a_session_is_found_while_there_is_only_one(
    here: Here, server: ServerProcess, client: MemoryClient, agent: str
) -> None:
    client.session(agent=agent, id=f"only {agent}").append(user("x"))
    assert here.ok("history", f"only {agent}", address=server.address).splitlines()[-1].endswith(" x")
    client.session(agent=f"{agent}-2", id=f"only {agent}").append(user("y"))
    several = here.memoryd("history", f"only {agent}", address=server.address)
    assert several.returncode == 2
    assert several.stderr.splitlines()[1:] == [f"  --agent {agent}", f"  --agent {agent}-2"]
    none = here.memoryd("window", "nobody has this", address=server.address)
    assert none.returncode == 1
    assert none.stderr == "memoryd: there is no session nobody has this; `memoryd sessions` lists what there is\n"
    wrong = here.memoryd("window", f"only {agent}", "-a", "someone else", address=server.address)
    assert wrong.returncode == 1
    assert wrong.stderr.startswith(f"memoryd: agent someone else has no session only {agent}; ")


@pytest.mark.parametrize("command", [["sessions"], ["history", "x"], ["window", "x"], ["import", "-", "-a", "x"]])
def test_a_server_that_is_not_there_is_named_in_one_sentence(command: list[str]) -> None:
    done = memoryd(*command, address="127.0.0.1:9", stdin='{"messages": [{"role": "user", "content": "x"}]}')
    assert done.returncode == 1
    assert done.stderr.startswith("memoryd: no server answers at 127.0.0.1:9. Start one with `memoryd serve`")
    assert "Traceback" not in done.stderr
