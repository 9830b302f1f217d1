"""What a model provider asks of a list of messages, told from the messages alone."""

from __future__ import annotations

from collections.abc import Sequence

from memoryd_server.engine.content import ToolCall, ToolResult, decode_parts
from memoryd_server.stores.records import StoredMessage


def assert_acceptable(messages: Sequence[StoredMessage], *, open_calls_allowed: bool = False) -> None:
    """Calls are answered by the messages directly behind them, in the order of the calls; there are no other results.

    With `open_calls_allowed`, calls may lack their answers.
    """
    waiting: list[str | None] = []
    reached = 0
    for message in messages:
        parts = decode_parts(message.content or "[]")
        results = [part.call_id for part in parts if isinstance(part, ToolResult)]
        if not results:
            assert open_calls_allowed or not any(call is not None for call in waiting), "a call has no answer"
            waiting = [part.id for part in parts if isinstance(part, ToolCall)]
            reached = 0
            continue
        places = []
        for call_id in results:
            assert call_id in waiting, f"seq {message.seq} answers {call_id!r}, which is no call directly before it"
            places.append(waiting.index(call_id))
            waiting[places[-1]] = None
        assert min(places) >= reached, f"seq {message.seq} does not follow the order of the calls"
        reached = min(places)
    assert open_calls_allowed or not any(call is not None for call in waiting), "the last calls have no answers"
