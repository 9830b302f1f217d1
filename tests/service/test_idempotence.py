"""Replayed appends return the first answer and store nothing (invariant 2); conditions on the last seq."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from memoryd import MemoryClient, MessageIdConflict, user
from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import message_pb2 as pb
from memoryd.v1 import session_pb2 as session
from tests.service.wire import Refusal, Stubs, as_sent, calls, new_key, refused, results, seqs, text


@pytest.fixture
def key(agent: str) -> session.SessionKey:
    return new_key(agent)


def _append(key: session.SessionKey, *messages: pb.Message, **fields: int) -> history.AppendMessagesRequest:
    return history.AppendMessagesRequest(session=key, messages=messages, **fields)  # type: ignore[arg-type]


class TestReplays:
    def test_by_message_ids_return_the_first_answer(self, stubs: Stubs, key: session.SessionKey) -> None:
        batch = (text("one", id="a"), text("two", id="b"))
        first = stubs.append(key, *batch)
        stubs.append(key, text("meanwhile"))

        assert stubs.append(key, *batch) == first
        assert seqs(stubs.messages(key)) == [1, 2, 3]

    def test_by_request_id_return_the_first_answer(self, stubs: Stubs, key: session.SessionKey) -> None:
        """Messages without ids get theirs from the server once."""
        first = stubs.append(key, text("one"), text("two"), request_id="r")

        assert stubs.append(key, text("one"), text("two"), request_id="r") == first
        assert [message.id for message in stubs.messages(key)] == [message.id for message in first]

    def test_are_recognized_before_the_expected_seq_is_checked(self, stubs: Stubs, key: session.SessionKey) -> None:
        first = stubs.append(key, text("one", id="a"), expected_last_seq=0)
        stubs.append(key, text("two", id="b"), expected_last_seq=1)

        assert stubs.append(key, text("one", id="a"), expected_last_seq=0) == first
        assert stubs.append(key, text("one", id="a"), expected_last_seq=77) == first

    def test_may_come_in_another_cut(self, stubs: Stubs, key: session.SessionKey) -> None:
        """A client that repeats some of what it sent, in its order or another, is told where each message is."""
        one, two, three = stubs.append(key, *(text(said, id=said) for said in ("one", "two", "three")))

        assert stubs.append(key, text("two", id="two")) == [two]
        assert stubs.append(key, text("three", id="three"), text("one", id="one")) == [three, one]

    @pytest.mark.parametrize("with_request_id", [False, True])
    def test_after_a_clear_restore_nothing(self, stubs: Stubs, key: session.SessionKey, with_request_id: bool) -> None:
        """The look-up outlives a clear (invariant 2)."""
        request_id = "r" if with_request_id else ""
        message = text("one") if with_request_id else text("one", id="a")
        first = stubs.append(key, message, request_id=request_id)
        stubs.clear(key)

        assert stubs.append(key, message, request_id=request_id) == first
        assert stubs.messages(key) == []
        assert stubs.session(key).message_count == 0
        assert seqs(stubs.append(key, text("new"))) == [2]

    def test_are_recognized_within_one_burst(self, stubs: Stubs, key: session.SessionKey) -> None:
        """Twenty tries of one append at once store it once."""
        request = [stubs.histories.AppendMessages.future(_append(key, text("one", id="a"))) for _ in range(20)]
        answers = [future.result().messages for future in request]

        assert all(answer == answers[0] for answer in answers)
        assert seqs(stubs.messages(key)) == [1]

    def test_of_the_sdks_messages_are_stored_once(self, client: MemoryClient, agent: str) -> None:
        session_ = client.session(agent=agent)
        hello = user("Hello!")
        first = session_.append(hello)

        assert session_.append(hello) == first
        with pytest.raises(MessageIdConflict):
            session_.append(hello, user("More."))
        assert [message.text for message in session_.messages()] == ["Hello!"]


class TestScope:
    def test_ids_are_of_a_session(self, stubs: Stubs, agent: str) -> None:
        first, second = new_key(agent), new_key(agent)
        stubs.append(first, text("one", id="a"), request_id="r")
        stubs.append(second, text("two", id="a"), request_id="r")

        assert as_sent(stubs.messages(second)[0]) == text("two", id="a")

    def test_message_and_request_ids_are_apart(self, stubs: Stubs, key: session.SessionKey) -> None:
        stubs.append(key, text("one", id="same"), request_id="other")
        stubs.append(key, text("two", id="other"), request_id="same")

        assert seqs(stubs.messages(key)) == [1, 2]


CHANGES = {
    "the text": lambda message: message.content.parts[0].__setattr__("text", "another"),
    "an added part": lambda message: message.content.parts.add(text=""),
    "absent content": lambda message: message.ClearField("content"),
    "the role": lambda message: message.__setattr__("role", pb.ROLE_ASSISTANT),
    "a name": lambda message: message.__setattr__("name", ""),
    "the run": lambda message: message.__setattr__("run_id", "r"),
    "the metadata": lambda message: message.__setattr__("metadata", "{} "),
    "the extra": lambda message: message.__setattr__("extra", "{} "),
}


class TestConflicts:
    def check(self, refusal: Refusal, reason: str, **metadata: str) -> None:
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.ALREADY_EXISTS, reason)
        assert metadata.items() <= refusal.metadata.items()
        assert "nothing was written" in refusal.text

    @pytest.mark.parametrize("change", CHANGES)
    def test_known_ids_with_other_content(self, stubs: Stubs, key: session.SessionKey, change: str) -> None:
        original = text("one", id="a", metadata="{}", extra="{}")
        stubs.append(key, original)
        changed = pb.Message()
        changed.CopyFrom(original)
        CHANGES[change](changed)

        refusal = refused(lambda: stubs.append(key, changed))
        self.check(refusal, "MESSAGE_ID_CONFLICT", message_id="a")
        assert [as_sent(message) for message in stubs.messages(key)] == [original]

    def test_batches_that_are_known_in_part(self, stubs: Stubs, key: session.SessionKey) -> None:
        stubs.append(key, text("one", id="a"))
        refusal = refused(lambda: stubs.append(key, text("one", id="a"), text("two", id="b")))

        self.check(refusal, "MESSAGE_ID_CONFLICT", message_id="a")
        assert seqs(stubs.messages(key)) == [1]
        # Nothing of the refused batch is remembered.
        assert seqs(stubs.append(key, text("two", id="b"))) == [2]

    def test_batches_with_a_known_id_and_one_to_be_made(self, stubs: Stubs, key: session.SessionKey) -> None:
        stubs.append(key, text("one", id="a"))
        refusal = refused(lambda: stubs.append(key, text("one", id="a"), text("two")))

        self.check(refusal, "MESSAGE_ID_CONFLICT", message_id="a")
        assert seqs(stubs.messages(key)) == [1]

    @pytest.mark.parametrize("again", [[text("two")], [text("one"), text("two")], [text("one", id="a")]])
    def test_known_request_ids_with_other_messages(
        self, stubs: Stubs, key: session.SessionKey, again: list[pb.Message]
    ) -> None:
        stubs.append(key, text("one"), request_id="r")
        refusal = refused(lambda: stubs.append(key, *again, request_id="r"))

        self.check(refusal, "REQUEST_ID_CONFLICT", request_id="r")
        assert seqs(stubs.messages(key)) == [1]


class TestExpectedLastSeq:
    def test_of_zero_begins_a_session(self, stubs: Stubs, key: session.SessionKey) -> None:
        assert seqs(stubs.append(key, text("one"), expected_last_seq=0)) == [1]

        refusal = refused(lambda: stubs.append(key, text("one"), expected_last_seq=0))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "LAST_SEQ_MISMATCH")
        assert (refusal.metadata["expected"], refusal.metadata["actual"]) == ("0", "1")
        assert seqs(stubs.messages(key)) == [1]

    def test_of_a_session_that_does_not_exist(self, stubs: Stubs, key: session.SessionKey) -> None:
        refusal = refused(lambda: stubs.append(key, text("one"), expected_last_seq=1))

        assert (refusal.metadata["expected"], refusal.metadata["actual"]) == ("1", "0")
        assert refused(lambda: stubs.session(key)).reason == "SESSION_NOT_FOUND"

    def test_lets_one_of_many_win(self, stubs: Stubs, key: session.SessionKey) -> None:
        stubs.append(key, text("one"))
        tries = [
            stubs.histories.AppendMessages.future(_append(key, text(f"try {number}"), expected_last_seq=1))
            for number in range(20)
        ]
        failures: list[Any] = [future.exception() for future in tries]

        assert sum(failure is None for failure in failures) == 1
        assert all(failure is None or failure.code() == grpc.StatusCode.ABORTED for failure in failures)
        assert seqs(stubs.messages(key)) == [1, 2]

    def test_goes_on_after_a_clear(self, stubs: Stubs, key: session.SessionKey) -> None:
        stubs.append(key, text("one"), text("two"))
        stubs.clear(key)

        assert refused(lambda: stubs.append(key, text("three"), expected_last_seq=0)).reason == "LAST_SEQ_MISMATCH"
        assert seqs(stubs.append(key, text("three"), expected_last_seq=2)) == [3]

    def test_is_what_a_window_tells(self, stubs: Stubs, key: session.SessionKey) -> None:
        stubs.append(key, text("go"), calls("a"))
        last_seq = stubs.load(key).stats.last_seq

        assert last_seq == 2
        assert seqs(stubs.append(key, results("a"), expected_last_seq=last_seq)) == [3]
