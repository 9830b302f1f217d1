"""Redaction takes away what a message said, and keeps its slot, role and call ids (invariant 11)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd.v1 import message_pb2
from memoryd_server import limits
from memoryd_server.engine import histories, redacting, tokens
from memoryd_server.engine.content import Media, Part, Reasoning, Refusal, Text, ToolCall, ToolResult, decode_parts
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.redacting import REDACTED, redacted_message, redacted_parts
from memoryd_server.services.message_codec import encode_message
from memoryd_server.stores.records import EventKind, Redaction, WindowOptions
from tests.engine.messages import KEY, assistant, calls, results, user
from tests.engine.messages import histories as message_histories
from tests.engine.reference import price_in_tokens
from tests.engine.sessions import TIME, conversation


@pytest.mark.parametrize(
    ("parts", "left"),
    [
        ((), ()),
        ((Text("secret"), Refusal("secret")), (Text(REDACTED),)),
        ((Media("image/png", data=b"secret"),), (Text(REDACTED),)),
        ((Reasoning("secret", "signature"),), (Text(REDACTED),)),
        ((Reasoning("secret"), Text("secret")), (Text(REDACTED),)),
        ((Reasoning("secret"), ToolCall("id", "tool", '{"a": "secret"}')), (ToolCall("id", "tool", "{}"),)),
        ((Text("secret"), ToolCall("id", "tool", "secret")), (Text(REDACTED), ToolCall("id", "tool", "{}"))),
        ((ToolResult("id", "tool", True, (Text("secret"),)),), (ToolResult("id", "tool", True, (Text(REDACTED),)),)),
    ],
)
def test_calls_and_results_stay_and_one_text_stands_for_the_rest(
    parts: tuple[Part, ...], left: tuple[Part, ...]
) -> None:
    assert redacted_parts(parts) == left


@given(message_histories(6), st.text(max_size=60))
async def test_a_redacted_message_is_priced_and_sized_as_what_it_became(
    sent: list[IncomingMessage], reason: str
) -> None:
    """Token counts are exact (invariant 8), and pages are bounded by sizes that are never too small."""
    session = await conversation(*sent)
    for message in await session.stored():
        redacted = redacted_message(message, Redaction(TIME, reason), tokens.estimate)
        parts = decode_parts(redacted.content) if redacted.content is not None else ()
        assert redacted.tokens == price_in_tokens(tokens.estimate, None, parts)
        encoded = message_pb2.Message()
        encode_message(redacted, encoded)
        assert encoded.ByteSize() <= redacted.size
        assert (redacted.seq, redacted.head, redacted.position, redacted.usability) == (
            message.seq,
            message.head,
            message.position,
            message.usability,
        )
        assert (redacted.name, redacted.metadata, redacted.extra) == (None, "", "")


async def test_the_stored_message_is_replaced_and_counts_follow() -> None:
    session = await conversation(user("a secret of many words"), assistant("hello"))
    before = session.record
    assert before is not None
    message = await redacting.redact(session.runtime, KEY, "asked for", seq=1, id_=None)
    assert message.content == f'[{{"type":"text","text":"{REDACTED}"}}]'
    stored = await session.stored()
    assert stored[0] == message
    record = await histories.get_session(session.runtime, KEY)
    assert record.tokens == sum(message.tokens for message in stored)
    assert record.bytes == sum(message.size for message in stored)
    assert record.epoch == before.epoch + 1
    page = await session.store.list_events(KEY, record.incarnation, 0, 9)
    assert page is not None
    assert [(event.kind, event.from_seq, event.to_seq) for event in page.events] == [(EventKind.REDACTED, 1, 1)]


async def test_groups_stay_whole() -> None:
    """Windows stay valid (invariant 6)."""
    session = await conversation(user("hi"), calls("a", "b"), results("a", "b"))
    for seq in (2, 3):
        await redacting.redact(session.runtime, KEY, "", seq=seq, id_=None)
    window, _ = await session.window(WindowOptions())
    assert [message.seq for message in window] == [1, 2, 3]


async def test_a_redacted_message_stays_as_it_is() -> None:
    session = await conversation(user("secret"))
    first = await redacting.redact(session.runtime, KEY, "first", seq=1, id_=None)
    version = (await histories.get_session(session.runtime, KEY)).version
    assert await redacting.redact(session.runtime, KEY, "second", seq=1, id_=None) == first
    assert (await histories.get_session(session.runtime, KEY)).version == version


async def test_a_replayed_append_restores_nothing() -> None:
    """(invariant 2)"""
    session = await conversation()
    append = histories.Append(KEY, [user("secret", id="message")])
    first = await histories.append(session.runtime, append)
    await redacting.redact(session.runtime, KEY, "", seq=None, id_="message")
    assert await histories.append(session.runtime, append) == first
    message = await histories.get_message(session.runtime, KEY, seq=1, id_=None)
    assert "secret" not in (message.content or "")


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("two\nlines", Reason.FIELD_INVALID),
        ("\0", Reason.FIELD_INVALID),
        ("é" * (limits.MAX_REASON_BYTES // 2 + 1), Reason.FIELD_TOO_LARGE),
    ],
)
async def test_the_reason_is_one_short_line(reason: str, error: Reason) -> None:
    session = await conversation(user("secret"))
    with pytest.raises(RequestError) as refused:
        await redacting.redact(session.runtime, KEY, reason, seq=1, id_=None)
    assert (refused.value.reason, refused.value.metadata["field"]) == (error, "reason")


async def test_what_is_not_there_is_not_found() -> None:
    session = await conversation(user("secret"))
    await session.clear()
    for seq in (1, 2):
        with pytest.raises(RequestError) as refused:
            await redacting.redact(session.runtime, KEY, "", seq=seq, id_=None)
        assert refused.value.reason == Reason.MESSAGE_NOT_FOUND
