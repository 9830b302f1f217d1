"""Whether a session is like one in which other messages were never appended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.stores.records import OpenCalls, Record, StoredMessage, WindowOptions
from tests.engine.sessions import Conversation, conversation


def _session_facts(record: Record, rank: dict[int, int]) -> tuple[Any, ...]:
    """What a record says of its history, seqs told by their rank among what it holds."""
    state = record.open_state
    return (
        record.messages,
        record.tokens,
        record.bytes,
        record.open_messages,
        record.orphan_messages,
        record.open_call_count,
        rank.get(record.opening_to, 0),
        rank.get(record.last_user, 0),
        # Within a message, the order of its open calls means nothing.
        sorted((rank[call.head], call.indexes, call.token) for call in state.calls),
        [(rank[group.head], *tuple(getattr(group, name) for name in _GROUP_FIELDS)) for group in state.groups],
    )


_OPTIONS: Final = (
    WindowOptions(limit=3),
    WindowOptions(open_calls=OpenCalls.KEEP),
    WindowOptions(limit=5, start_with_user=True),
)
_GROUP_FIELDS: Final = ("messages", "tokens", "waiting", "lost")


def _message_facts(message: StoredMessage, rank: dict[int, int]) -> tuple[Any, ...]:
    return (
        rank[message.seq],
        rank[message.head],
        message.position,
        message.usability,
        message.calls,
        message.answers,
        rank.get(message.prior_user, 0),
        message.content,
    )


async def assert_like_fresh(session: Conversation, kept: Sequence[tuple[int, IncomingMessage]]) -> None:
    """The session is like one in which only `kept`, by seq, was ever appended."""
    fresh = await conversation(*(message for _, message in kept))
    stored = await session.stored()
    rank = {seq: place for place, (seq, _) in enumerate(kept, 1)}
    assert [message.seq for message in stored] == list(rank)
    assert session.record is not None
    if not kept:
        assert session.record.messages == session.record.tokens == session.record.open_call_count == 0
        return
    assert fresh.record is not None
    straight = {place: place for place in rank.values()}
    assert _session_facts(session.record, rank) == _session_facts(fresh.record, straight)
    assert [_message_facts(message, rank) for message in stored] == [
        _message_facts(message, straight) for message in await fresh.stored()
    ]
    for options in (
        WindowOptions(limit=3),
        WindowOptions(open_calls=OpenCalls.KEEP),
        WindowOptions(limit=5, start_with_user=True),
    ):
        window, _ = await session.window(options)
        expected, _ = await fresh.window(options)
        assert [rank[message.seq] for message in window] == [message.seq for message in expected]
