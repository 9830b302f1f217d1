"""`memoryd summaries`, `summarize` and `revert-summary` against a real server."""

from __future__ import annotations

import json

import pytest

from memoryd import (
    MemoryClient,
    Policy,
    Retention,
    Session,
    SessionSettings,
    SummariesDisabled,
    SummaryPolicy,
    WindowMode,
    WindowOptions,
    assistant,
    user,
)
from memoryd_server.cli.demonstration import conversation, early_facts
from tests.cli.commands import Here, at_a_terminal
from tests.servers import ServerProcess


@pytest.fixture
def facts(client: MemoryClient, agent: str) -> Session:
    """A session `facts` of 7 messages, with a window of 4, of which two stay raw when it is folded."""
    policy = Policy(window=WindowOptions(mode=WindowMode.MESSAGES, limit=4), summary=SummaryPolicy(keep=2))
    session = client.session(agent=agent, id="facts")
    session.append(*early_facts(), create=SessionSettings(policy=policy))
    return session


def test_a_session_is_summarized_and_its_summaries_shown(here: Here, server: ServerProcess, facts: Session) -> None:
    of = ["facts", "-a", facts.agent]
    none = here.memoryd("summaries", *of, address=server.address)
    assert (none.stdout, none.stderr) == ("", f"session facts of agent {facts.agent} has no summary\n")
    said = here.ok("summarize", *of, address=server.address)
    assert said.startswith(f"Summarized 5 messages of session facts of agent {facts.agent}:")
    assert "My project is called Atlas." in said
    again = here.ok("summarize", *of, address=server.address)
    assert again.endswith("has no more messages than its policy keeps as they are. Nothing was done.\n")

    facts.append(assistant("Atlas, on Friday."), user("Thank you."))
    done = json.loads(here.ok("summarize", *of, "--json", address=server.address))
    assert done["folded_message_count"] == 2
    shown = here.ok("summaries", *of, address=server.address)
    first, second = (summary.id for summary in reversed(facts.summaries()))
    assert shown.index(f"○ {first}\n") < shown.index(f"● {second} current\n")
    for told in (
        "Takes in   seq 1-5, 5 messages\n",
        "Takes in   seq 6-7, 2 messages and the summary before it: 7 messages in all\n",
        "Made by    extractive with ",
        "Originals  kept\n",
        "\n  user: It ships on Friday.\n",
    ):
        assert told in shown
    lines = here.ok("summaries", *of, "--json", address=server.address).splitlines()
    newest, oldest = map(json.loads, lines)
    assert (newest["id"], newest["current"], newest["previous_id"]) == (second, True, first)
    assert (oldest["id"], oldest["from_seq"], oldest["to_seq"], oldest["covered_message_count"]) == (first, 1, 5, 5)
    assert newest == done["summary"]


def test_a_summary_is_taken_back(here: Here, server: ServerProcess, facts: Session) -> None:
    of = ["facts", "-a", facts.agent]
    empty = here.memoryd("revert-summary", *of, "--yes", address=server.address)
    assert (empty.returncode, empty.stderr) == (1, f"memoryd: session facts of agent {facts.agent} has no summary\n")
    facts.summarize()
    asked = here.memoryd("revert-summary", *of, address=server.address)
    assert asked.returncode == 2
    assert "repeat the command with --yes" in asked.stderr
    assert len(facts.summaries()) == 1
    done = here.memoryd("revert-summary", *of, "--yes", address=server.address)
    assert "5 messages that it took in are shown again:" in done.stderr
    assert "My project is called Atlas." in done.stderr
    assert done.stdout.endswith("it has none now. Nothing is summarized before its next message.\n")
    assert facts.summaries() == []


@pytest.mark.parametrize(("typed", "left"), [("y\n", 0), ("n\n", 1)])
def test_a_person_is_asked_first(server: ServerProcess, facts: Session, typed: str, left: int) -> None:
    facts.summarize()
    at_a_terminal("revert-summary", "facts", "-a", facts.agent, address=server.address, typed=typed)
    assert len(facts.summaries()) == left


def test_what_cannot_be_is_told_in_a_sentence(
    here: Here, server: ServerProcess, client: MemoryClient, agent: str
) -> None:
    session = client.session(agent=agent, id="plain")
    session.append_all(conversation())
    refused = here.memoryd("summarize", "plain", "-a", agent, address=server.address)
    with pytest.raises(SummariesDisabled) as error:
        session.summarize()
    assert (refused.returncode, refused.stderr) == (1, f"memoryd: {error.value.message}\n")
    window = WindowOptions(mode=WindowMode.MESSAGES, limit=4)
    session.update(policy=Policy(window=window, summary=SummaryPolicy(retention=Retention.DELETE)))
    session.window()
    assert "Originals  removed\n" in here.ok("summaries", "plain", "-a", agent, address=server.address)
    gone = here.memoryd("revert-summary", "plain", "-a", agent, "--yes", address=server.address)
    assert gone.returncode == 1
    assert "removed" in gone.stderr


def test_a_drawn_window_shows_its_summary(here: Here, server: ServerProcess, facts: Session) -> None:
    of = ["facts", "-a", facts.agent]
    lines = here.ok("window", *of, address=server.address).splitlines()
    assert [line[0] for line in lines[2:10]] == list("┆┆┆┆┆S┃┃")
    assert "┃ in window  S summary  ┆ in the summary" in lines
    assert "Left out  nothing" in lines
    plain = here.ok("window", *of, "--no-summary", address=server.address).splitlines()
    assert [line[0] for line in plain[2:9]] == list("···┃┃┃┃")


def test_a_summary_cannot_reach_the_terminal(
    here: Here, server: ServerProcess, client: MemoryClient, agent: str
) -> None:
    """Whatever a model wrote: no control code, and no text that hides another."""
    client.agent(agent).update(
        policy=Policy(
            window=WindowOptions(mode=WindowMode.MESSAGES, limit=4), summary=SummaryPolicy(summarizer="client", keep=2)
        )
    )
    session = client.session(agent=agent, id="nasty")
    session.append(*early_facts())
    session.window()
    nasty = "\x1b[2J\x07\u202e\x9b31m"
    for task in session.summary_tasks(wait=False):
        task.commit(f"Atlas {nasty} ships.", model=f"m{nasty}")
    for command in (["summaries"], ["summaries", "--json"], ["window"], ["revert-summary", "--yes"]):
        done = here.memoryd(command[0], "nasty", "-a", agent, *command[1:], address=server.address)
        assert done.returncode == 0
        for character in "\x1b\x07\u202e\x9b":
            assert character not in done.stdout + done.stderr, command
