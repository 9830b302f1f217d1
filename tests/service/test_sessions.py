"""Sessions: their settings, their updates, their lists."""

from __future__ import annotations

import time

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import policy_pb2 as policies
from memoryd.v1 import session_pb2 as session
from tests.service.wire import Stubs, new_key, seqs, text

TOKENS_2000 = policies.Policy(
    window=policies.WindowOptions(mode=policies.WINDOW_MODE_TOKENS, limit=2_000, pin_system=False)
)


def update(stubs: Stubs, changed: session.Session, *paths: str) -> session.Session:
    request = history.UpdateSessionRequest(session=changed, update_mask=FieldMask(paths=paths))
    return stubs.histories.UpdateSession(request).session


@pytest.fixture
def key(stubs: Stubs, agent: str) -> session.SessionKey:
    """A session of ada's with two labels and a policy."""
    key = new_key(agent)
    settings = history.SessionSettings(user_id="ada", labels={"a": "1", "b": ""}, policy=TOKENS_2000)
    stubs.append(key, text("one"), create=settings)
    return key


class TestSettings:
    def test_are_given_by_the_append_that_begins_the_session(self, stubs: Stubs, key: session.SessionKey) -> None:
        found = stubs.session(key)

        assert found.user_id == "ada"
        assert dict(found.labels) == {"a": "1", "b": ""}
        assert found.policy == TOKENS_2000

    def test_are_not_given_by_a_later_append(self, stubs: Stubs, key: session.SessionKey) -> None:
        before = stubs.session(key)
        stubs.append(key, text("two"), create=history.SessionSettings(user_id="bob", labels={"c": "2"}))
        after = stubs.session(key)

        assert (after.user_id, after.labels, after.policy) == (before.user_id, before.labels, before.policy)
        assert after.etag == before.etag

    @pytest.mark.parametrize(
        ("tokenizer", "price"),
        [
            # "tokenization is 記憶" in each vocabulary, and 4 for the message.
            (session.TOKENIZER_ESTIMATE, 4 + 4 + 2),
            (session.TOKENIZER_O200K_BASE, None),
            (session.TOKENIZER_CL100K_BASE, None),
        ],
    )
    def test_fix_the_vocabulary(
        self, stubs: Stubs, agent: str, tokenizer: session.Tokenizer.ValueType, price: int | None
    ) -> None:
        """Token counts are of the vocabulary that the session began with, whatever a later append says (8)."""
        key = new_key(agent)
        (first,) = stubs.append(key, text("tokenization is 記憶"), create=history.SessionSettings(tokenizer=tokenizer))
        others = [other for other in session.Tokenizer.values() if other]
        for other in others:
            settings = history.SessionSettings(tokenizer=other)
            (later,) = stubs.append(key, text("tokenization is 記憶"), create=settings)
            assert later.token_count == first.token_count

        assert price is None or first.token_count == price
        assert stubs.session(key).tokenizer == tokenizer
        assert stubs.session(key).token_count == first.token_count * (1 + len(others))


class TestUpdates:
    @pytest.mark.parametrize("paths", [("user_id",), ("labels",), ("policy",), ("user_id", "labels")])
    def test_change_what_the_mask_names(self, stubs: Stubs, key: session.SessionKey, paths: tuple[str, ...]) -> None:
        policy = policies.Policy(window=policies.WindowOptions(limit=5))
        before = stubs.session(key)
        wanted = session.Session(key=key, user_id="bob", labels={"c": "3"}, policy=policy)
        after = update(stubs, wanted, *paths)

        for name in ("user_id", "labels", "policy"):
            source = wanted if name in paths else before
            assert getattr(after, name) == getattr(source, name)
        assert after.etag != before.etag
        assert stubs.session(key) == after

    def test_without_a_mask_change_what_is_set(self, stubs: Stubs, key: session.SessionKey) -> None:
        after = update(stubs, session.Session(key=key, user_id="bob"))

        assert after.user_id == "bob"
        assert dict(after.labels) == {"a": "1", "b": ""}
        assert after.policy == TOKENS_2000

    def test_of_all_empty_what_is_not_set(self, stubs: Stubs, key: session.SessionKey) -> None:
        after = update(stubs, session.Session(key=key), "*")

        assert after.user_id == ""
        assert dict(after.labels) == {}
        assert after.policy == policies.Policy()

    def test_reach_single_fields_of_the_policy(self, stubs: Stubs, key: session.SessionKey) -> None:
        policy = policies.Policy(window=policies.WindowOptions(limit=7))
        limited = update(stubs, session.Session(key=key, policy=policy), "policy.window.limit")
        assert limited.policy.window.limit == 7
        assert limited.policy.window.mode == policies.WINDOW_MODE_TOKENS
        assert limited.policy.window.HasField("pin_system")

        unset = update(stubs, session.Session(key=key, policy=policy), "policy.window.pin_system")
        assert not unset.policy.window.HasField("pin_system")
        assert unset.policy.window.limit == 7

        whole = update(stubs, session.Session(key=key, policy=policy), "policy.window")
        assert whole.policy == policy

    def test_with_the_current_etag_are_made(self, stubs: Stubs, key: session.SessionKey) -> None:
        etag = stubs.session(key).etag
        changed = update(stubs, session.Session(key=key, user_id="bob", etag=etag), "user_id")
        again = update(stubs, session.Session(key=key, user_id="eve", etag=changed.etag), "user_id")

        assert again.user_id == "eve"

    def test_leave_messages_and_seqs_alone(self, stubs: Stubs, key: session.SessionKey) -> None:
        before = stubs.messages(key)
        update(stubs, session.Session(key=key, user_id="bob"), "user_id")

        assert stubs.messages(key) == before
        assert seqs(stubs.append(key, text("two"))) == [2]

    def test_that_change_nothing_keep_the_etag(self, stubs: Stubs, key: session.SessionKey) -> None:
        before = stubs.session(key)
        assert update(stubs, session.Session(key=key, user_id="ada"), "user_id") == before

    def test_shape_the_windows_that_follow(self, stubs: Stubs, key: session.SessionKey) -> None:
        stubs.append(key, text("two"), text("three"))
        assert stubs.load(key).stats.mode == policies.WINDOW_MODE_TOKENS
        policy = policies.Policy(window=policies.WindowOptions(mode=policies.WINDOW_MODE_MESSAGES, limit=2))
        update(stubs, session.Session(key=key, policy=policy), "policy")

        assert seqs(stubs.load(key).messages) == [2, 3]
        assert seqs(stubs.load(key, limit=1).messages) == [3]


class TestLists:
    def sessions(self, stubs: Stubs, **fields: object) -> list[session.Session]:
        found: list[session.Session] = []
        token = ""
        while True:
            request = history.ListSessionsRequest(page_token=token, **fields)  # type: ignore[arg-type]
            answer = stubs.histories.ListSessions(request)
            found += answer.sessions
            token = answer.next_page_token
            if not token:
                return found

    def names(self, stubs: Stubs, **fields: object) -> list[str]:
        return [found.key.session_id for found in self.sessions(stubs, **fields)]

    def test_show_the_newest_first(self, stubs: Stubs, agent: str) -> None:
        keys = [new_key(agent) for _ in range(7)]
        for key in keys:
            stubs.append(key, text("one"))
        expected = [key.session_id for key in reversed(keys)]

        assert self.names(stubs, agent=agent) == expected
        assert self.names(stubs, agent=agent, page_size=3) == expected
        assert self.names(stubs, agent=agent, page_size=7) == expected
        assert self.names(stubs, agent=agent, page_size=1) == expected

    def test_show_what_the_session_itself_shows(self, stubs: Stubs, key: session.SessionKey) -> None:
        stubs.append(key, text("two"))
        assert self.sessions(stubs, agent=key.agent) == [stubs.session(key)]

    def test_move_a_session_to_the_front_when_it_takes_an_append(self, stubs: Stubs, agent: str) -> None:
        """The order may lag a second, so that this appends until the session has moved."""
        old, new = new_key(agent), new_key(agent)
        stubs.append(old, text("one"))
        stubs.append(new, text("one"))
        end = time.monotonic() + 20
        while self.names(stubs, agent=agent) != [old.session_id, new.session_id]:
            assert time.monotonic() < end, "the session never moved"
            stubs.append(old, text("more"))

        assert stubs.session(old).activity_time.ToNanoseconds() > stubs.session(new).activity_time.ToNanoseconds()

    def test_are_of_an_agent_of_a_user_or_of_all(self, stubs: Stubs, agent: str) -> None:
        ada, bob = f"ada of {agent}", f"bob of {agent}"
        for name, user in (("1", ada), ("2", bob), ("3", ada), ("4", "")):
            key = session.SessionKey(agent=agent, session_id=name)
            stubs.append(key, text("one"), create=history.SessionSettings(user_id=user))
        other = session.SessionKey(agent=agent + "-other", session_id="5")
        stubs.append(other, text("one"), create=history.SessionSettings(user_id=ada))

        assert self.names(stubs, agent=agent) == ["4", "3", "2", "1"]
        assert self.names(stubs, user_id=ada) == ["5", "3", "1"]
        assert self.names(stubs, user_id=ada, page_size=2) == ["5", "3", "1"]
        assert self.names(stubs, agent=agent, user_id=ada) == ["3", "1"]
        assert self.names(stubs, agent=agent, user_id=ada, page_size=1) == ["3", "1"]
        assert self.names(stubs, agent=agent, user_id="nobody") == []
        everything = [found.key for found in self.sessions(stubs, page_size=1_000)]
        assert other in everything
        assert session.SessionKey(agent=agent, session_id="4") in everything

    def test_follow_a_change_of_user(self, stubs: Stubs, agent: str) -> None:
        ada, bob = f"ada of {agent}", f"bob of {agent}"
        key = new_key(agent)
        stubs.append(key, text("one"), create=history.SessionSettings(user_id=ada))
        update(stubs, session.Session(key=key, user_id=bob), "user_id")

        assert self.names(stubs, user_id=ada) == []
        assert self.names(stubs, user_id=bob) == [key.session_id]
        update(stubs, session.Session(key=key), "user_id")
        assert self.names(stubs, user_id=bob) == []
        assert self.names(stubs, agent=agent) == [key.session_id]

    def test_keep_cleared_sessions_where_they_are(self, stubs: Stubs, agent: str) -> None:
        old, new = new_key(agent), new_key(agent)
        stubs.append(old, text("one"))
        stubs.append(new, text("one"))
        stubs.clear(old)

        assert self.names(stubs, agent=agent) == [new.session_id, old.session_id]
        assert self.sessions(stubs, agent=agent)[1].message_count == 0
