"""Names that are alike, and name different things (invariant 5)."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Callable
from functools import partial
from typing import Final

import pytest

from memoryd.v1 import agent_service_pb2 as agents
from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import message_pb2 as pb
from memoryd.v1 import session_pb2 as session
from tests.service import memory_calls as files
from tests.service import run_calls
from tests.service.wire import Stubs, calls, new_key, refused, results, seqs, text

ALIKE: Final = [
    "cafe",
    "Cafe",
    "CAFE",
    unicodedata.normalize("NFC", "café"),
    unicodedata.normalize("NFD", "café"),
    "ｃａｆｅ",
    "cafe ",
    "cafe  ",
    " cafe",
    "cafe\t",
    "cafe\n",
    "cafe\u00a0",
    "cafe\u200b",
    "cafe:",
    "cafe:cafe",
    "cafe/",
    "cafe/cafe",
    "cafe/../cafe",
    "*",
    "caf*",
    "%",
    "caf%",
    "caf_",
    "_afe",
    "{cafe}",
    "{}",
    "cafe\\",
    "cafe'",
    'cafe"',
    "cafe--",
    "cafe|",
    "cafe\x01",
    "\ufeffcafe",
    "ß",
    "ss",
    "ı",
    "i",
    "İ",
    "1",
    "01",
    "1.0",
    "null",
    "a" * 255,
    "a" * 256,
    "é" * 128,
]


def key(agent: str, session_id: str) -> session.SessionKey:
    return session.SessionKey(agent=agent, session_id=session_id)


def said(messages: list[pb.Message]) -> list[str]:
    return [message.content.parts[0].text for message in messages]


def test_the_names_differ() -> None:
    assert len(set(ALIKE)) == len(ALIKE)


@pytest.fixture
def keys(stubs: Stubs, agent: str) -> list[session.SessionKey]:
    """Sessions of one agent with all names, each with one message that tells its name."""
    keys = [key(agent, name) for name in ALIKE]
    for each in keys:
        stubs.append(each, text(each.session_id, id="same", name="same", run_id="same"), request_id="same")
    return keys


class TestSessions:
    """That each append began a session of its own shows that no id look-up crossed: all ids are the same."""

    def test_keep_their_messages_apart(self, stubs: Stubs, keys: list[session.SessionKey]) -> None:
        for each in keys:
            assert said(stubs.messages(each)) == [each.session_id]
            assert said(list(stubs.load(each).messages)) == [each.session_id]
            by_id = stubs.histories.GetMessage(history.GetMessageRequest(session=each, id="same")).message
            assert said([by_id]) == [each.session_id]
            assert stubs.session(each).key == each

    def test_keep_replays_apart(self, stubs: Stubs, keys: list[session.SessionKey]) -> None:
        for each in keys:
            replay = text(each.session_id, id="same", name="same", run_id="same")
            assert seqs(stubs.append(each, replay, request_id="same")) == [1]
            assert refused(partial(stubs.append, each, text("other", id="same"))).reason == "MESSAGE_ID_CONFLICT"
            assert len(stubs.messages(each)) == 1

    def test_are_listed_each_once(self, stubs: Stubs, keys: list[session.SessionKey]) -> None:
        request = history.ListSessionsRequest(agent=keys[0].agent, page_size=7)
        found: list[str] = []
        while True:
            answer = stubs.histories.ListSessions(request)
            found += [each.key.session_id for each in answer.sessions]
            request.page_token = answer.next_page_token
            if not request.page_token:
                break
        assert found == ALIKE[::-1]

    def test_are_cleared_one_by_one(self, stubs: Stubs, keys: list[session.SessionKey]) -> None:
        cleared = keys[::3]
        for each in cleared:
            assert stubs.clear(each) == 1
        for each in keys:
            assert said(stubs.messages(each)) == ([] if each in cleared else [each.session_id])

    def test_are_rewound_one_by_one(self, stubs: Stubs, keys: list[session.SessionKey]) -> None:
        rewound = keys[::3]
        for each in rewound:
            request = history.RewindSessionRequest(session=each, to_seq=0, request_id="rewind")
            assert stubs.histories.RewindSession(request).removed_message_count == 1
        for each in keys:
            assert said(stubs.messages(each)) == ([] if each in rewound else [each.session_id])

    def test_are_redacted_one_by_one(self, stubs: Stubs, keys: list[session.SessionKey]) -> None:
        redacted = keys[::3]
        for each in redacted:
            stubs.histories.RedactMessage(history.RedactMessageRequest(session=each, id="same"))
        for each in keys:
            assert said(stubs.messages(each)) == ["[REDACTED]" if each in redacted else each.session_id]

    def test_are_forked_one_by_one(self, stubs: Stubs, keys: list[session.SessionKey]) -> None:
        """Each to its own name at another agent; as onto a name in use, once more onto that."""
        forks = [key(f"{each.agent} forks", each.session_id) for each in keys]
        for source, target in zip(keys, forks, strict=True):
            request = history.ForkSessionRequest(source=source, target=target)
            assert stubs.histories.ForkSession(request).copied_message_count == 1
            assert refused(partial(stubs.histories.ForkSession, request)).reason == "SESSION_EXISTS"
        for each in forks:
            assert said(stubs.messages(each)) == [each.session_id]
            replay = text(each.session_id, id="same", name="same", run_id="same")
            assert seqs(stubs.append(each, replay)) == [1]

    def test_keep_watches_apart(self, stubs: Stubs, keys: list[session.SessionKey]) -> None:
        tokens = []
        for each in keys:
            answers = stubs.histories.WatchMessages(history.WatchMessagesRequest(session=each, after_seq=0), timeout=30)
            events = [event for answer in itertools.islice(answers, 2) for event in answer.events]
            assert said([event.message for event in events]) == [each.session_id]
            tokens.append(events[0].resume_token)
            answers.cancel()
        for mine, token in zip(keys, tokens[1:] + tokens[:1], strict=True):
            request = history.WatchMessagesRequest(session=mine, resume_token=token)
            stream = stubs.histories.WatchMessages(request, timeout=30)
            assert refused(partial(next, stream)).reason == "RESUME_TOKEN_INVALID"

    def test_wake_no_watch_of_another(self, stubs: Stubs, keys: list[session.SessionKey]) -> None:
        watched, others = keys[0], keys[1:]
        answers = stubs.histories.WatchMessages(history.WatchMessagesRequest(session=watched), timeout=30)
        next(answers)
        for each in others:
            stubs.append(each, text("theirs"))
        stubs.append(watched, text("its own"))
        (event,) = next(answer for answer in answers if answer.events).events
        assert said([event.message]) == ["its own"]

    def test_are_updated_one_by_one(self, stubs: Stubs, keys: list[session.SessionKey]) -> None:
        updated = keys[::3]
        for each in updated:
            changed = session.Session(key=each, labels={"of": each.session_id.strip() or "white space"})
            stubs.histories.UpdateSession(history.UpdateSessionRequest(session=changed))
        for each in keys:
            labels = {"of": each.session_id.strip() or "white space"} if each in updated else {}
            assert dict(stubs.session(each).labels) == labels

    def test_keep_calls_apart(self, stubs: Stubs, keys: list[session.SessionKey]) -> None:
        first, second = keys[:2]
        stubs.append(first, calls("a"))
        stubs.append(second, results("a"))

        assert stubs.session(first).open_call_count == 1
        assert stubs.session(second).orphan_message_count == 1

    def test_keep_page_tokens_apart(self, stubs: Stubs, keys: list[session.SessionKey]) -> None:
        tokens = []
        for each in keys[:6]:
            stubs.append(each, text("more"))
            request = history.ListMessagesRequest(session=each, page_size=1)
            tokens.append((each, stubs.histories.ListMessages(request).next_page_token))
        for (mine, _), (other, token) in itertools.permutations(tokens, 2):
            request = history.ListMessagesRequest(session=mine, page_size=1, page_token=token)
            assert refused(partial(stubs.histories.ListMessages, request)).reason == "PAGE_TOKEN_INVALID"
            assert mine != other

    def test_with_other_names_are_not_found(self, stubs: Stubs, keys: list[session.SessionKey]) -> None:
        for name in ("cafE", "cafe   ", "a" * 254, "%%", "**", "c_fe"):
            looks: list[Callable[[session.SessionKey], object]] = [stubs.messages, stubs.load, stubs.session]
            for look in looks:
                refusal = refused(partial(look, key(keys[0].agent, name)))
                assert refusal.reason == "SESSION_NOT_FOUND"
                assert refusal.metadata["session_id"] == name
            assert stubs.clear(key(keys[0].agent, name)) == 0


class TestAgents:
    @pytest.fixture
    def names(self, stubs: Stubs, agent: str) -> list[str]:
        """Agents with all names, each with one message that tells its name in a session of the same name."""
        names = [f"{agent} {name}" for name in ALIKE if len(name.encode()) < 100]
        for name in names:
            stubs.append(key(name, "same"), text(name, id="same"), create=history.SessionSettings(user_id=f"u {name}"))
        return names

    def test_keep_their_sessions_apart(self, stubs: Stubs, names: list[str]) -> None:
        for name in names:
            assert said(stubs.messages(key(name, "same"))) == [name]
            assert said(list(stubs.load(key(name, "same")).messages)) == [name]
            by_agent = stubs.histories.ListSessions(history.ListSessionsRequest(agent=name)).sessions
            by_user = stubs.histories.ListSessions(history.ListSessionsRequest(user_id=f"u {name}")).sessions
            assert [each.key.agent for each in by_agent] == [each.key.agent for each in by_user] == [name]

    def test_are_cleared_one_by_one(self, stubs: Stubs, names: list[str]) -> None:
        cleared = names[::3]
        for name in cleared:
            answer = stubs.histories.ClearAgentHistory(history.ClearAgentHistoryRequest(agent=name))
            assert (answer.cleared_session_count, answer.cleared_message_count) == (1, 1)
        for name in names:
            assert said(stubs.messages(key(name, "same"))) == ([] if name in cleared else [name])

    def test_keep_their_settings_apart(self, stubs: Stubs, names: list[str]) -> None:
        for limit, name in enumerate(names, 1):
            changed = agents.Agent(agent=name)
            changed.policy.window.limit = limit
            stubs.agents.UpdateAgent(agents.UpdateAgentRequest(agent=changed))
        for limit, name in enumerate(names, 1):
            found = stubs.agents.GetAgent(agents.GetAgentRequest(agent=name)).agent
            assert (found.agent, found.policy.window.limit) == (name, limit)
            assert stubs.load(key(name, "same")).stats.limit == limit

    def test_and_session_ids_do_not_run_together(self, stubs: Stubs, agent: str) -> None:
        """No separator joins the parts of a key."""
        pairs = [
            (f"{agent}{left}", right)
            for separator in (":", "/", "|", "\x1f", " ", "{}", ".")
            for left, right in (("", f"b{separator}c"), (f"{separator}b", "c"), (f"{separator}b{separator}", "c"))
        ]
        names = [*pairs, *((f"{agent}{separator}", "b") for separator in ":/|"), (agent, ":b"), (agent, "/b")]
        for number, (name, session_id) in enumerate(dict.fromkeys(names)):
            stubs.append(key(name, session_id), text(f"{number}", id="same"))
        for number, (name, session_id) in enumerate(dict.fromkeys(names)):
            assert said(stubs.messages(key(name, session_id))) == [f"{number}"]


class TestUsers:
    @pytest.fixture
    def names(self, stubs: Stubs, agent: str) -> list[str]:
        """Users with all names, each with one session that tells the name."""
        names = [f"{agent} {name}" for name in ALIKE if len(name.encode()) < 100]
        for number, name in enumerate(names):
            stubs.append(key(agent, f"{number}"), text(name), create=history.SessionSettings(user_id=name))
        return names

    def test_keep_their_sessions_apart(self, stubs: Stubs, names: list[str]) -> None:
        for number, name in enumerate(names):
            found = stubs.histories.ListSessions(history.ListSessionsRequest(user_id=name)).sessions
            assert [(each.user_id, each.key.session_id) for each in found] == [(name, f"{number}")]

    def test_are_erased_one_by_one(self, stubs: Stubs, agent: str, names: list[str]) -> None:
        erased = names[::3]
        for name in erased:
            answer = stubs.histories.EraseUser(history.EraseUserRequest(user_id=name))
            assert (answer.erased_session_count, answer.erased_message_count) == (1, 1)
        left = stubs.histories.ListSessions(history.ListSessionsRequest(agent=agent, page_size=1_000)).sessions
        assert {each.user_id for each in left} == set(names) - set(erased)
        for number, name in enumerate(names):
            if name not in erased:
                assert said(stubs.messages(key(agent, f"{number}"))) == [name]

    def test_of_other_names_own_nothing(self, stubs: Stubs, agent: str, names: list[str]) -> None:
        for name in ("cafE", "cafe   ", "%%", "**", "c_fe"):
            request = history.EraseUserRequest(user_id=f"{agent} {name}")
            assert stubs.histories.EraseUser(request) == history.EraseUserResponse()
        found = stubs.histories.ListSessions(history.ListSessionsRequest(agent=agent, page_size=1_000)).sessions
        assert len(found) == len(names)


class TestMemory:
    def test_of_each_owner_is_its_own(self, stubs: Stubs, agent: str) -> None:
        """Of both tiers: read, listed, rendered, deleted and erased one by one."""
        names = [f"{agent} {name}" for name in ALIKE if len(name.encode()) < 100]
        for name in names:
            files.put(stubs, files.user(name), f"of {name!a}".encode())
            files.put(stubs, files.project(name), f"project {name!a}".encode(), "2026-01-02.md")
        deleted, erased = names[::8], names[4::8]
        for name in deleted:
            assert files.delete(stubs, files.user(name))
        for name in erased:
            erasure = stubs.histories.EraseUser(history.EraseUserRequest(user_id=name))
            assert erasure.erased_memory_file_count == 1
        gone = {*deleted, *erased}
        for name in names:
            assert files.content_of(stubs, files.project(name), "2026-01-02.md") == f"project {name!a}".encode()
            assert files.listed(stubs, files.user(name)) == ([] if name in gone else [files.INDEX])
            block = files.render(stubs, files.Source(stored=name), files.Source(stored=name)).block
            assert (f"of {name!a}\n" in block) == (name not in gone)


class TestRuns:
    def test_keep_their_steps_and_messages_apart(self, stubs: Stubs, agent: str) -> None:
        """All of one session, with one step each that says the run's name."""
        session_ = new_key(agent)
        runs = [run_calls.run_of(session_, name) for name in ALIKE]
        for run in runs:
            fence = run_calls.create(stubs, run, metadata=run.run_id).fence
            run_calls.step(stubs, run, fence, 1, run.run_id.encode(), text(run.run_id), status=run_calls.COMPLETED)
        assert [run.metadata for run in run_calls.runs(stubs, agent)] == ALIKE[::-1]
        assert [message.run_id for message in stubs.messages(session_)] == ALIKE
        for run in runs[::3]:
            assert run_calls.delete(stubs, run)
        for run in runs:
            if run in runs[::3]:
                assert refused(partial(run_calls.get, stubs, run)).reason == "RUN_NOT_FOUND"
            else:
                assert run_calls.get(stubs, run).metadata == run.run_id
                assert [step.payload for step in run_calls.steps(stubs, run)] == [run.run_id.encode()]

    def test_of_agents_are_claimed_by_their_own(self, stubs: Stubs, agent: str) -> None:
        names = [f"{agent} {name}" for name in ALIKE if len(name.encode()) < 100]
        for name in names[::2]:
            run_calls.create(stubs, run_calls.run_of(key(name, "s")), queued=True)
        for name in names:
            claimed = run_calls.claim(stubs, name)
            assert claimed.HasField("run") == (name in names[::2])
            assert not claimed.HasField("run") or claimed.run.key.session.agent == name


class TestFilters:
    def test_of_runs_are_exact(self, stubs: Stubs, agent: str) -> None:
        one = key(agent, "s")
        stubs.append(one, *(text(name, run_id=name) for name in ALIKE))
        for name in ALIKE:
            assert said(stubs.messages(one, filter=history.MessageFilter(run_id=name))) == [name]

    def test_of_ids_are_exact(self, stubs: Stubs, agent: str) -> None:
        one = key(agent, "s")
        stubs.append(one, *(text(name, id=name) for name in ALIKE))
        for name in ALIKE:
            found = stubs.histories.GetMessage(history.GetMessageRequest(session=one, id=name)).message
            assert said([found]) == [name]
        refusal = refused(lambda: stubs.histories.GetMessage(history.GetMessageRequest(session=one, id="cafE")))
        assert (refusal.reason, refusal.metadata["message"]) == ("MESSAGE_NOT_FOUND", "cafE")

    def test_of_call_ids_are_exact(self, stubs: Stubs, agent: str) -> None:
        one = key(agent, "s")
        stubs.append(one, calls(*ALIKE))
        stubs.append(one, *(results(name, said=name) for name in reversed(ALIKE)))
        shown = stubs.load(one).messages

        answered = [message.content.parts[0].tool_result.call_id for message in shown[1:]]
        assert answered == ALIKE
