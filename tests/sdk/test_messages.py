"""Messages, the functions that make them, and their way to the API's types and back."""

import dataclasses
import re
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd import (
    AnswerUnreadable,
    Data,
    Media,
    Message,
    Part,
    Reasoning,
    Redaction,
    Refusal,
    ResultPart,
    Role,
    Text,
    ToolCall,
    ToolResult,
    assistant,
    batches,
    call,
    developer,
    message_from_proto,
    message_to_proto,
    new_id,
    system,
    tool,
    user,
)
from memoryd.batches import BATCH_BYTES, BATCH_MESSAGES
from memoryd.v1 import message_pb2

texts = st.text(max_size=20)
media: st.SearchStrategy[Media] = st.one_of(
    st.builds(Media, texts, uri=texts, size=st.integers(0, 2**63 - 1)),
    st.builds(Media, texts, data=st.binary(max_size=20)),
)
result_parts: st.SearchStrategy[ResultPart] = st.one_of(
    st.builds(Text, texts), st.builds(Refusal, texts), st.builds(Data, texts), media
)
parts: st.SearchStrategy[Part] = st.one_of(
    result_parts,
    st.builds(Reasoning, texts, texts),
    st.builds(ToolCall, texts, texts, texts),
    st.builds(ToolResult, texts, texts, st.booleans(), st.lists(result_parts, max_size=3).map(tuple)),
)
moments = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
messages = st.builds(
    Message,
    role=st.sampled_from(Role),
    content=st.none() | st.lists(parts, max_size=4).map(tuple),
    name=st.none() | texts,
    run_id=texts,
    metadata=texts,
    extra=texts,
    id=st.text(min_size=1, max_size=20),
    seq=st.integers(0, 2**63 - 1),
    create_time=st.none() | moments,
    token_count=st.integers(0, 2**63 - 1),
    redaction=st.none() | st.builds(Redaction, moments, texts),
)


@settings(max_examples=300)
@given(messages)
def test_a_message_comes_back_from_the_wire_as_it_was(message: Message) -> None:
    """Fidelity (invariant 4): absent and empty differ, and every field has its place."""
    wire = message_to_proto(message).SerializeToString()
    back = message_from_proto(message_pb2.Message.FromString(wire))
    assert dataclasses.asdict(back) == dataclasses.asdict(message)


def test_absent_and_empty_differ() -> None:
    assert user(None) != user([])
    assert user([]) != user("")
    assert user("a") != user("a", name="")
    assert not message_to_proto(user(None)).HasField("content")
    assert message_to_proto(user([])).HasField("content")
    assert message_to_proto(user("a", name="")).HasField("name")


def test_what_the_functions_make() -> None:
    assert system("a") == Message(role=Role.SYSTEM, content=(Text("a"),))
    assert developer([Text("a")], name="b") == Message(role=Role.DEVELOPER, content=(Text("a"),), name="b")
    assert user([Text("a"), Data("1")]) == Message(role=Role.USER, content=(Text("a"), Data("1")))
    assert assistant() == Message(role=Role.ASSISTANT)
    assert assistant("a", tool_calls=[ToolCall("1", "f")]) == Message(
        role=Role.ASSISTANT, content=(Text("a"), ToolCall("1", "f"))
    )
    assert assistant(tool_calls=iter([ToolCall("1", "f")])).content == (ToolCall("1", "f"),)
    assert assistant([]).content == ()
    assert tool("1", "a") == Message(role=Role.TOOL, content=(ToolResult("1", parts=(Text("a"),)),))
    assert tool("1", [Data("2")], name="f", is_error=True).content == (ToolResult("1", "f", True, (Data("2"),)),)
    assert user("a", metadata={"ä": [1, 2**70, None]}).metadata == '{"ä":[1,1180591620717411303424,null]}'
    assert user("a", metadata='{ "a": 1 }').metadata == '{ "a": 1 }'


def test_what_calls_are_made() -> None:
    assert call("f", {"a": "ä\ud83d"}, id="1") == ToolCall("1", "f", '{"a":"ä\\ud83d"}')
    assert call("f", '{"a": tru', id="").arguments == '{"a": tru'
    assert call("f").arguments == "{}"
    assert call("f").id != call("f").id


def test_what_a_message_says_is_at_hand() -> None:
    first, second = ToolCall("1", "f"), ToolCall("2", "f")
    message = assistant([Text("a"), first, Text("b"), Reasoning("c")], tool_calls=[second])
    assert (message.text, message.tool_calls, message.tool_results) == ("ab", (first, second), ())
    (result,) = tool("1", [Text("a"), Data("{}"), Text("b")]).tool_results
    assert result.text == "ab"
    assert (user(None).text, user(None).tool_calls, tool("1", "a").text) == ("", (), "")


def test_messages_are_equal_when_they_say_the_same() -> None:
    """A stored message equals the one that was sent, whatever the server added."""
    sent = user("a")
    stored = dataclasses.replace(sent, seq=7, token_count=5, create_time=datetime.now(UTC))
    assert stored == sent == user("a")
    assert stored.id == sent.id != user("a").id
    assert len({sent, stored, user("a"), user("b")}) == 2


def test_messages_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        user("a").role = Role.SYSTEM  # type: ignore[misc]


@pytest.mark.parametrize("wrong", [{}, {"uri": "a", "data": b"b"}])
def test_media_have_one_source(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="exactly one of uri and data"):
        Media("image/png", **wrong)  # type: ignore[arg-type]


def test_ids_are_uuids_in_the_order_of_time() -> None:
    earliest = time.time_ns() // 1_000_000
    ids = [new_id() for _ in range(1000)]
    latest = time.time_ns() // 1_000_000
    assert len(set(ids)) == 1000
    for made in ids:
        assert re.fullmatch("[0-9a-f]{32}", made)
        assert (uuid.UUID(made).version, uuid.UUID(made).variant) == (7, uuid.RFC_4122)
        assert earliest <= int(made[:12], 16) <= latest
    assert [made[:12] for made in ids] == sorted(made[:12] for made in ids)


def test_times_keep_their_moment() -> None:
    in_rome = datetime(2026, 11, 29, 12, 0, 0, 123456, timezone(timedelta(hours=1)))
    message = dataclasses.replace(user("a"), create_time=in_rome)
    back = message_from_proto(message_to_proto(message)).create_time
    assert back == in_rome
    assert back is not None
    assert back.tzinfo is UTC


def test_half_of_a_surrogate_pair_is_named() -> None:
    message = tool("1", "a\udc00")
    with pytest.raises(ValueError, match=rf"message {message.id} holds half of a surrogate pair \(U\+DC00\)"):
        message_to_proto(message)


def test_what_is_no_message_is_named() -> None:
    with pytest.raises(TypeError, match=r"list is no Message: give user\('Hello!'\)"):
        message_to_proto([user("a")])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"str is no part of a message: give Text\('Hello!'\)"):
        message_to_proto(user(["a"]))  # type: ignore[list-item]


def test_an_unspecified_role_is_unreadable() -> None:
    with pytest.raises(AnswerUnreadable, match="the role 0 of message m"):
        message_from_proto(message_pb2.Message(id="m"))


def test_batches_fit_into_one_append() -> None:
    sent = [user(str(number)) for number in range(BATCH_MESSAGES + 1)]
    sent += [user("x" * (BATCH_BYTES // 2)), user("x" * (BATCH_BYTES // 2)), user("x" * 2 * BATCH_BYTES), user("a")]
    cut = list(batches(iter(sent)))
    assert [message for batch in cut for message in batch] == sent
    assert [len(batch) for batch in cut] == [256, 2, 1, 1, 1]
    for batch in cut:
        size = sum(message_to_proto(message).ByteSize() for message in batch)
        assert size <= BATCH_BYTES or len(batch) == 1
    assert list(batches([])) == []


def test_batches_read_their_input_lazily() -> None:
    read: list[Message] = []

    def endless() -> Iterator[Message]:
        while True:
            read.append(user("a"))
            yield read[-1]

    assert len(next(batches(endless()))) == BATCH_MESSAGES
    assert len(read) == BATCH_MESSAGES + 1
