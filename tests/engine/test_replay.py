"""Idempotent appends (invariant 2): what a replay answers, planned on a record and the look-ups that are known."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server.engine import changes, replay
from memoryd_server.engine.content import Data, Text, ToolCall, encode_content
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.replay import message_digests
from memoryd_server.stores.records import Lookup, LookupKind, Record, Role
from tests.engine.messages import KEY, spoken, user
from tests.engine.sessions import SECRET, TIME, append_input, plan


class Appends:
    """Appends to one session whose look-ups a store remembers."""

    def __init__(self) -> None:
        self.record: Record | None = None
        self.remembered: dict[tuple[LookupKind, str], Lookup] = {}
        self.stored = 0

    def append(
        self,
        *messages: IncomingMessage,
        request_id: str = "",
        expected_last_seq: int | None = None,
    ) -> Sequence[replay.Appended]:
        wanted = append_input(
            messages, request_id=request_id, expected_last_seq=expected_last_seq, made=f"made-{self.stored}"
        )
        ids = [(LookupKind.MESSAGE, id_) for id_ in wanted.new_ids]
        ids += [(LookupKind.REQUEST, request_id)] if request_id else []
        known = [self.remembered[id_] for id_ in ids if id_ in self.remembered]
        change, answer = plan(wanted, self.record, known)
        if change is not None:
            self.record = change.record
            self.stored += len(change.messages)
            self.remembered.update(((lookup.kind, lookup.id), lookup) for lookup in change.lookups)
        return answer

    def clear(self) -> None:
        change, _ = changes.plan_clear(self.record, KEY, TIME)
        assert change is not None
        self.record = change.record

    def refuses(self, reason: Reason, *messages: IncomingMessage, **arguments: object) -> dict[str, str]:
        """The metadata of a refusal; nothing may be written."""
        before = self.record, dict(self.remembered)
        with pytest.raises(RequestError) as refused:
            self.append(*messages, **arguments)  # type: ignore[arg-type]
        assert refused.value.reason == reason
        assert (self.record, self.remembered) == before
        return refused.value.metadata


ONE, TWO, THREE = user("1", id="one"), user("2", id="two"), user("3", id="three")


def test_a_repeated_append_gets_its_first_answer_and_stores_nothing() -> None:
    """(invariant 2)"""
    appends = Appends()
    first = appends.append(ONE, TWO)
    assert [(appended.id, appended.seq) for appended in first] == [("one", 1), ("two", 2)]
    assert list(appends.append(ONE, TWO)) == list(first)
    assert appends.stored == 2


def test_the_first_answer_stays_when_the_history_has_gone_on() -> None:
    """(invariant 2)"""
    appends = Appends()
    first = appends.append(ONE)
    appends.append(TWO)
    assert list(appends.append(ONE)) == list(first)


def test_a_replay_may_gather_messages_of_several_appends() -> None:
    """All ids of the batch are known with equal content (invariant 2)."""
    appends = Appends()
    answers = [*appends.append(ONE), *appends.append(TWO), *appends.append(THREE)]
    assert list(appends.append(THREE, ONE)) == [answers[2], answers[0]]


@pytest.mark.parametrize(
    "other",
    [
        user("1!", id="one"),
        spoken(Role.ASSISTANT, Text("1"), id="one"),
        spoken(Role.USER, Text("1"), id="one", name=""),
        spoken(Role.USER, Text("1"), Text(""), id="one"),
        spoken(Role.USER, id="one"),
        spoken(Role.USER, id="one", absent=True),
    ],
)
def test_a_known_id_with_other_content_is_a_conflict(other: IncomingMessage) -> None:
    """(invariant 2)"""
    appends = Appends()
    appends.append(ONE, TWO)
    assert appends.refuses(Reason.MESSAGE_ID_CONFLICT, other) == {"message_id": "one"}
    assert appends.refuses(Reason.MESSAGE_ID_CONFLICT, TWO, other) == {"message_id": "one"}


def test_a_batch_of_which_only_some_ids_are_known_is_a_conflict() -> None:
    """(invariant 2)"""
    appends = Appends()
    appends.append(ONE)
    assert appends.refuses(Reason.MESSAGE_ID_CONFLICT, ONE, TWO) == {"message_id": "one"}
    assert appends.refuses(Reason.MESSAGE_ID_CONFLICT, TWO, ONE) == {"message_id": "one"}
    assert appends.refuses(Reason.MESSAGE_ID_CONFLICT, ONE, user("no id")) == {"message_id": "one"}
    assert appends.stored == 1


def test_the_same_text_twice_is_two_messages() -> None:
    """Content is never the key (invariant 2)."""
    appends = Appends()
    appends.append(user("yes", id="a"))
    appends.append(user("yes", id="b"))
    appends.append(user("yes"))
    appends.append(user("yes"))
    assert appends.stored == 4


def test_a_request_id_makes_messages_without_ids_safe_to_repeat() -> None:
    """(invariant 2)"""
    appends = Appends()
    first = appends.append(user("yes"), user("no"), request_id="request")
    assert list(appends.append(user("yes"), user("no"), request_id="request")) == list(first)
    assert appends.stored == 2
    appends.append(user("yes"), user("no"), request_id="another")
    assert appends.stored == 4


@pytest.mark.parametrize(
    "others", [[user("no")], [user("yes"), user("yes")], [user("yes", id="one")], [spoken(Role.USER)]]
)
def test_a_known_request_id_with_other_messages_is_a_conflict(others: list[IncomingMessage]) -> None:
    """(invariant 2)"""
    appends = Appends()
    appends.append(user("yes"), request_id="request")
    assert appends.refuses(Reason.REQUEST_ID_CONFLICT, *others, request_id="request") == {"request_id": "request"}


def test_known_messages_under_a_new_request_id_are_a_replay() -> None:
    """The ids of the messages tell it (invariant 2)."""
    appends = Appends()
    first = appends.append(ONE, request_id="request")
    assert list(appends.append(ONE, request_id="another")) == list(first)
    assert list(appends.append(ONE)) == list(first)
    assert appends.stored == 1


def test_a_request_id_and_a_message_id_never_meet() -> None:
    """They are ids of different things."""
    appends = Appends()
    appends.append(user("1", id="same"))
    appends.append(user("2", id="other"), request_id="same")
    assert appends.stored == 2


def test_a_replay_is_told_before_the_expected_seq_is_looked_at() -> None:
    """(invariant 2)"""
    appends = Appends()
    first = appends.append(ONE, expected_last_seq=0, request_id="request")
    assert list(appends.append(ONE, expected_last_seq=0)) == list(first)
    assert list(appends.append(ONE, expected_last_seq=7, request_id="request")) == list(first)
    assert appends.refuses(Reason.MESSAGE_ID_CONFLICT, ONE, TWO, expected_last_seq=0) == {"message_id": "one"}


@pytest.mark.parametrize("expected", [0, 1, 3, 2**62])
def test_another_last_seq_than_expected_is_a_mismatch(expected: int) -> None:
    appends = Appends()
    appends.append(ONE, TWO)
    metadata = appends.refuses(Reason.LAST_SEQ_MISMATCH, THREE, expected_last_seq=expected)
    assert metadata == {"expected": str(expected), "actual": "2"}
    appends.append(THREE, expected_last_seq=2)


def test_a_session_that_does_not_exist_has_the_last_seq_0() -> None:
    appends = Appends()
    assert appends.refuses(Reason.LAST_SEQ_MISMATCH, ONE, expected_last_seq=1) == {"expected": "1", "actual": "0"}
    assert appends.append(ONE, expected_last_seq=0)[0].seq == 1


def test_a_replay_after_a_clear_restores_nothing() -> None:
    """The look-up outlives the messages (invariants 2 and 11)."""
    appends = Appends()
    first = appends.append(ONE, request_id="request")
    appends.clear()
    assert list(appends.append(ONE)) == list(first)
    assert list(appends.append(ONE, request_id="request")) == list(first)
    assert appends.record is not None
    assert appends.record.messages == 0
    assert appends.append(TWO)[0].seq == 2


def test_ids_differ_in_every_byte() -> None:
    """Case, accents, spaces and Unicode form all distinguish (invariant 5)."""
    appends = Appends()
    ids = ["id", "ID", "id ", " id", "i\u0301d", "\u00edd", "id%", "id_", "id*", "{id}", "id:", "id/"]
    for number, id_ in enumerate(ids, 1):
        assert appends.append(user("same", id=id_))[0].seq == number


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["x", "y"])), min_size=1, max_size=8))
@settings(max_examples=150)
def test_ids_are_given_once_whatever_is_sent(sent: list[tuple[str, str]]) -> None:
    """Of any run of single appends, the first content of an id is stored, and nothing else (invariant 2)."""
    appends = Appends()
    first: dict[str, tuple[str, int]] = {}
    for id_, text in sent:
        if id_ not in first:
            first[id_] = text, len(first) + 1
        if first[id_][0] == text:
            assert appends.append(user(text, id=id_))[0].seq == first[id_][1]
        else:
            appends.refuses(Reason.MESSAGE_ID_CONFLICT, user(text, id=id_))
    assert appends.stored == len(first)


def digest_of(secret: bytes, message: IncomingMessage) -> bytes:
    return message_digests((secret,), message, encode_content(message.parts))[0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (spoken(Role.USER, Text("ab"), Text("c")), spoken(Role.USER, Text("a"), Text("bc"))),
        (spoken(Role.USER, Text("1")), spoken(Role.USER, Data("1"))),
        (spoken(Role.USER), spoken(Role.USER, absent=True)),
        (spoken(Role.USER, Text("a"), name="b"), spoken(Role.USER, Text("a"), name="c")),
        (spoken(Role.ASSISTANT, ToolCall("a", "b", "c")), spoken(Role.ASSISTANT, ToolCall("a", "bc", ""))),
        (spoken(Role.USER, Text("é")), spoken(Role.USER, Text("e\u0301"))),
        (spoken(Role.USER, Text("a")), spoken(Role.USER, Text("a\0"))),
    ],
)
def test_messages_that_differ_have_different_digests(one: IncomingMessage, other: IncomingMessage) -> None:
    """(invariant 2)"""
    assert digest_of(SECRET, one) != digest_of(SECRET, other)
    assert digest_of(SECRET, one) != digest_of(SECRET[::-1], one)


@pytest.mark.parametrize("field", ["metadata", "extra", "run_id"])
def test_every_field_counts_in_the_digest(field: str) -> None:
    """It is of the message as received (invariant 2)."""
    other = msgspec.structs.replace(user("hi"), **{field: "x"})
    assert digest_of(SECRET, other) != digest_of(SECRET, user("hi"))
