"""Appending to histories and reading them back."""

from __future__ import annotations

import itertools

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import message_pb2 as pb
from memoryd.v1 import session_pb2 as session
from tests.service.wire import Stubs, as_sent, calls, new_key, results, seqs, text

ASCENDING = history.LIST_ORDER_ASCENDING
DESCENDING = history.LIST_ORDER_DESCENDING


def test_an_append_answers_each_message_with_its_place(stubs: Stubs, agent: str) -> None:
    key = new_key(agent)
    first = stubs.append(key, text("one", id="a"), text("two", id="b"))
    second = stubs.append(key, text("three", id="c"))

    assert [(message.id, message.seq) for message in first + second] == [("a", 1), ("b", 2), ("c", 3)]
    listed = stubs.messages(key)
    for appended, stored in zip(first + second, listed, strict=True):
        assert appended.create_time == stored.create_time
        assert appended.token_count == stored.token_count > 0


def test_messages_without_an_id_get_one_each(stubs: Stubs, agent: str) -> None:
    key = new_key(agent)
    ids = [message.id for message in stubs.append(key, text("yes"), text("yes"))]

    assert len(set(ids)) == 2
    assert all(ids)
    assert [message.id for message in stubs.messages(key)] == ids


def test_equal_messages_are_all_kept(stubs: Stubs, agent: str) -> None:
    """Content is never the key of idempotence: "yes" twice is legitimate (invariant 2)."""
    key = new_key(agent)
    stubs.append(key, text("yes", id="1"))
    stubs.append(key, text("yes", id="2"))

    assert seqs(stubs.messages(key)) == [1, 2]


def test_what_only_the_server_gives_is_ignored_when_it_is_sent(stubs: Stubs, agent: str) -> None:
    key = new_key(agent)
    stubs.append(key, text("one", seq=77, token_count=-5, create_time=Timestamp(seconds=1)))
    (stored,) = stubs.messages(key)

    assert stored.seq == 1
    assert stored.token_count > 0
    assert stored.create_time.seconds > 1_700_000_000


def test_fifty_messages_of_one_moment_come_back_as_sent(stubs: Stubs, agent: str) -> None:
    """seq alone orders (invariant 1)."""
    key = new_key(agent)
    sent = [text(f"message {number}", id=f"{number * 7919 % 50}") for number in range(50)]
    stubs.append(key, *sent)
    listed = stubs.messages(key, page_size=7)

    assert len({message.create_time.ToNanoseconds() for message in listed}) == 1
    assert seqs(listed) == list(range(1, 51))
    assert [as_sent(message) for message in listed] == sent
    assert stubs.messages(key, order=DESCENDING, page_size=7) == listed[::-1]
    assert list(stubs.load(key).messages) == listed


def test_a_message_is_read_by_seq_and_by_id(stubs: Stubs, agent: str) -> None:
    key = new_key(agent)
    stubs.append(key, text("one", id="a"), text("two", id="b"))
    by_seq = stubs.histories.GetMessage(history.GetMessageRequest(session=key, seq=2)).message
    by_id = stubs.histories.GetMessage(history.GetMessageRequest(session=key, id="b")).message

    assert by_seq == by_id == stubs.messages(key)[1]


def test_a_session_tells_its_counts(stubs: Stubs, agent: str) -> None:
    key = new_key(agent)
    appended = stubs.append(
        key, text("go"), calls("a", "b"), results("a"), results("nobody"), text("still waiting", pb.ROLE_ASSISTANT)
    )
    found = stubs.session(key)

    assert found.key == key
    assert found.message_count == found.last_seq == 5
    assert found.token_count == sum(message.token_count for message in appended)
    assert found.open_message_count == 2  # the calls, and the one result
    assert found.open_call_count == 1
    assert found.orphan_message_count == 1
    assert found.tokenizer == session.TOKENIZER_O200K_BASE
    assert found.create_time == appended[0].create_time
    assert not found.user_id
    assert not found.labels


class TestPages:
    @pytest.fixture
    def key(self, stubs: Stubs, agent: str) -> session.SessionKey:
        key = new_key(agent)
        stubs.append(key, *(text(f"message {number}") for number in range(1, 131)))
        return key

    def test_hold_a_hundred_by_default(self, stubs: Stubs, key: session.SessionKey) -> None:
        assert [len(page) for page in stubs.pages(key)] == [100, 30]

    @pytest.mark.parametrize(("page_size", "lengths"), [(1_000, [130]), (65, [65, 65]), (129, [129, 1]), (130, [130])])
    def test_hold_what_is_asked_for(
        self, stubs: Stubs, key: session.SessionKey, page_size: int, lengths: list[int]
    ) -> None:
        assert [len(page) for page in stubs.pages(key, page_size=page_size)] == lengths

    @pytest.mark.parametrize("order", [ASCENDING, DESCENDING])
    def test_join_without_gap_or_repeat(
        self, stubs: Stubs, key: session.SessionKey, order: history.ListOrder.ValueType
    ) -> None:
        expected = list(range(1, 131)) if order == ASCENDING else list(range(130, 0, -1))

        assert seqs(stubs.messages(key, page_size=1, order=order)) == expected
        assert seqs(stubs.messages(key, page_size=9, order=order)) == expected

    def test_may_change_their_size_on_the_way(self, stubs: Stubs, key: session.SessionKey) -> None:
        found: list[int] = []
        token = ""
        for page_size in itertools.cycle([1, 50, 3]):
            request = history.ListMessagesRequest(session=key, page_size=page_size, page_token=token)
            answer = stubs.histories.ListMessages(request)
            found += seqs(answer.messages)
            token = answer.next_page_token
            if not token:
                break

        assert found == list(range(1, 131))

    def test_go_on_over_what_is_appended_meanwhile(self, stubs: Stubs, key: session.SessionKey) -> None:
        first = stubs.histories.ListMessages(history.ListMessagesRequest(session=key))
        stubs.append(key, text("late"))
        second = stubs.histories.ListMessages(
            history.ListMessagesRequest(session=key, page_token=first.next_page_token)
        )

        assert seqs(second.messages) == list(range(101, 132))
        assert not second.next_page_token

    def test_end_when_the_rest_is_cleared(self, stubs: Stubs, key: session.SessionKey) -> None:
        first = stubs.histories.ListMessages(history.ListMessagesRequest(session=key))
        stubs.clear(key)
        stubs.append(key, text("anew"))
        second = stubs.histories.ListMessages(
            history.ListMessagesRequest(session=key, page_token=first.next_page_token)
        )

        assert seqs(second.messages) == [131]

    def test_are_bounded_by_bytes(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        for _ in range(3):
            stubs.append(key, text("x" * 1_500_000), text("y" * 1_500_000))

        assert [len(page) for page in stubs.pages(key, page_size=6)] == [2, 2, 2]
        assert [len(page) for page in stubs.pages(key, page_size=6, order=DESCENDING)] == [2, 2, 2]


class TestFilters:
    @pytest.fixture
    def key(self, stubs: Stubs, agent: str) -> session.SessionKey:
        """1 system, 2 user, 3 assistant (run r1), 4 tool (r1), 5 user, 6 assistant (r2)."""
        key = new_key(agent)
        stubs.append(key, text("rules", pb.ROLE_SYSTEM), text("go"))
        stubs.append(key, calls("a", run_id="r1"), results("a", run_id="r1"))
        stubs.append(key, text("more"), text("done", pb.ROLE_ASSISTANT, run_id="r2"))
        return key

    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            (history.MessageFilter(), [1, 2, 3, 4, 5, 6]),
            (history.MessageFilter(roles=[pb.ROLE_USER]), [2, 5]),
            (history.MessageFilter(roles=[pb.ROLE_ASSISTANT, pb.ROLE_TOOL]), [3, 4, 6]),
            (history.MessageFilter(roles=[pb.ROLE_DEVELOPER]), []),
            (history.MessageFilter(run_id="r1"), [3, 4]),
            (history.MessageFilter(run_id="R1"), []),
            (history.MessageFilter(roles=[pb.ROLE_ASSISTANT], run_id="r1"), [3]),
            (history.MessageFilter(from_seq=3), [3, 4, 5, 6]),
            (history.MessageFilter(to_seq=2), [1, 2]),
            (history.MessageFilter(from_seq=3, to_seq=3), [3]),
            (history.MessageFilter(from_seq=5, to_seq=4), []),
            (history.MessageFilter(from_seq=7), []),
            (history.MessageFilter(to_seq=2**63 - 1), [1, 2, 3, 4, 5, 6]),
            (history.MessageFilter(from_seq=2, to_seq=5, roles=[pb.ROLE_USER]), [2, 5]),
        ],
    )
    def test_choose_messages(
        self, stubs: Stubs, key: session.SessionKey, condition: history.MessageFilter, expected: list[int]
    ) -> None:
        assert seqs(stubs.messages(key, filter=condition)) == expected
        assert seqs(stubs.messages(key, filter=condition, page_size=1)) == expected
        assert seqs(stubs.messages(key, filter=condition, page_size=1, order=DESCENDING)) == expected[::-1]

    def test_choose_by_time(self, stubs: Stubs, key: session.SessionKey) -> None:
        third = stubs.messages(key)[2].create_time
        fifth = stubs.messages(key)[4].create_time

        assert seqs(stubs.messages(key, filter=history.MessageFilter(from_time=third))) == [3, 4, 5, 6]
        assert seqs(stubs.messages(key, filter=history.MessageFilter(to_time=third))) == [1, 2]
        between = history.MessageFilter(from_time=third, to_time=fifth)
        assert seqs(stubs.messages(key, filter=between)) == [3, 4]
        assert seqs(stubs.messages(key, filter=between, order=DESCENDING, page_size=1)) == [4, 3]

    @pytest.mark.parametrize("view", [history.MESSAGE_VIEW_ACTIVE, history.MESSAGE_VIEW_ALL])
    def test_views_agree_without_a_summary(
        self, stubs: Stubs, key: session.SessionKey, view: history.MessageView.ValueType
    ) -> None:
        assert seqs(stubs.messages(key, view=view)) == [1, 2, 3, 4, 5, 6]


class TestClearing:
    """Clearing touches exactly what is named; seqs go on (invariant 11)."""

    def test_takes_the_messages_and_keeps_the_settings(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        settings = history.SessionSettings(user_id="ada", labels={"topic": "travel"})
        stubs.append(key, text("one", id="a"), text("two"), create=settings)
        before = stubs.session(key)

        assert stubs.clear(key) == 2
        after = stubs.session(key)
        assert stubs.messages(key) == []
        assert stubs.load(key).messages == []
        assert (after.user_id, dict(after.labels), after.etag) == ("ada", {"topic": "travel"}, before.etag)
        assert (after.message_count, after.token_count, after.last_seq) == (0, 0, 2)
        assert after.create_time == before.create_time

    def test_lets_later_seqs_go_on(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(key, text("one"), text("two"))
        stubs.clear(key)

        assert seqs(stubs.append(key, text("three"))) == [3]
        assert seqs(stubs.messages(key)) == [3]
        assert seqs(stubs.messages(key, order=DESCENDING)) == [3]
        assert seqs(stubs.load(key).messages) == [3]
        assert stubs.session(key).message_count == 1

    def test_of_nothing_removes_nothing(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        assert stubs.clear(key) == 0
        stubs.append(key, text("one"))
        assert stubs.clear(key) == 1
        assert stubs.clear(key) == 0
        assert seqs(stubs.append(key, text("two"))) == [2]

    def test_forgets_calls_that_wait(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(key, text("go"), calls("a"))
        stubs.clear(key)
        stubs.append(key, results("a"), text("go"))

        found = stubs.session(key)
        assert (found.open_call_count, found.open_message_count, found.orphan_message_count) == (0, 0, 1)
        assert seqs(stubs.load(key).messages) == [4]

    def test_many_times_keeps_every_part_apart(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        for round_ in range(5):
            stubs.append(key, text("one"), calls("a"), results("a"))
            assert seqs(stubs.messages(key)) == [3 * round_ + 1, 3 * round_ + 2, 3 * round_ + 3]
            assert seqs(stubs.load(key).messages) == seqs(stubs.messages(key))
            assert stubs.clear(key) == 3
        assert stubs.messages(key) == []

    def test_an_agent_takes_all_its_sessions_and_no_other(self, stubs: Stubs, agent: str) -> None:
        mine = [new_key(agent) for _ in range(3)]
        other = new_key(agent + "-other")
        for key in (*mine, other):
            stubs.append(key, text("one"), text("two"))
        stubs.clear(mine[0])

        answer = stubs.histories.ClearAgentHistory(history.ClearAgentHistoryRequest(agent=agent))
        assert (answer.cleared_session_count, answer.cleared_message_count) == (2, 4)
        assert [stubs.messages(key) for key in mine] == [[], [], []]
        assert seqs(stubs.messages(other)) == [1, 2]

        again = stubs.histories.ClearAgentHistory(history.ClearAgentHistoryRequest(agent=agent))
        assert (again.cleared_session_count, again.cleared_message_count) == (0, 0)

    def test_an_unknown_agent_removes_nothing(self, stubs: Stubs, agent: str) -> None:
        answer = stubs.histories.ClearAgentHistory(history.ClearAgentHistoryRequest(agent=agent))
        assert (answer.cleared_session_count, answer.cleared_message_count) == (0, 0)
