"""Windows made by hand, for drawings that need no server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from memoryd import (
    LeftOut,
    LeftOutMessage,
    LeftOutReason,
    Message,
    SummaryState,
    Window,
    WindowMode,
    WindowStats,
    user,
)


def stored(*messages: Message, tokens: int = 10) -> list[Message]:
    """The messages as a history holds them: each with its seq and a price."""
    return [replace(message, seq=seq, token_count=tokens) for seq, message in enumerate(messages, 1)]


SUMMARY_ID: Final = "summary-1"


def summary_of(from_seq: int, to_seq: int) -> Message:
    """The message that stands for a range of seqs, as windows hold it."""
    metadata = json.dumps({"type": "history_summary", "from_seq": from_seq, "to_seq": to_seq})
    message = user("[CONVERSATION SUMMARY]\nEarly facts.", metadata=metadata)
    return replace(message, id=SUMMARY_ID, token_count=20)


def window_of(
    history: Sequence[Message],
    shown: Sequence[int | Message],
    *,
    limit: int,
    pinned: int = 0,
    mode: WindowMode = WindowMode.MESSAGES,
    orphans: Sequence[int] = (),
    opened: Sequence[int] = (),
    explained: int = 100,
    shortened: Mapping[int, int] | None = None,
    over_limit: bool = False,
    covered_to: int = 0,
) -> Window:
    """A window of what is `shown`, in reading order: seqs of the history, and messages that were made up.

    `orphans` and `opened` are the seqs that are left out for these reasons, of which `explained` are told; `shortened`
    are seqs with the tokens that they have in the window. With `covered_to`, a summary stands for what follows the pins
    up to that seq.
    """
    by_seq = {message.seq: message for message in history}
    shorter = shortened or {}
    messages = tuple(
        replace(by_seq[entry], token_count=shorter.get(entry, by_seq[entry].token_count))
        if isinstance(entry, int)
        else entry
        for entry in shown
    )
    units = [message.seq for message in messages[pinned:] if message.seq]
    if covered_to:
        messages = (*messages[:pinned], summary_of(pinned + 1, covered_to), *messages[pinned:])
    covered = max(0, covered_to - pinned)
    skipped = sorted([*orphans, *opened], reverse=True)
    limit_count = len(history) - len(units) - pinned - len(skipped) - covered
    tokens = sum(message.token_count for message in messages)
    used = tokens if mode is WindowMode.TOKENS else len(messages)
    return Window(
        messages=messages,
        stats=WindowStats(
            history_message_count=len(history),
            history_token_count=sum(message.token_count for message in history),
            window_message_count=len(messages),
            window_token_count=tokens,
            mode=mode,
            limit=limit,
            limit_used_percent=100 * used / limit,
            left_out=LeftOut(
                limit_count=limit_count,
                limit_from_seq=history[pinned + covered].seq if limit_count else 0,
                limit_to_seq=min(units, default=history[-1].seq + 1) - 1 if limit_count else 0,
                orphan_result_count=len(orphans),
                open_tool_call_count=len(opened),
                messages=tuple(
                    LeftOutMessage(
                        seq=seq,
                        reason=LeftOutReason.ORPHAN_RESULT if seq in orphans else LeftOutReason.OPEN_TOOL_CALL,
                    )
                    for seq in skipped[:explained]
                ),
            ),
            uncovered_message_count=limit_count,
            over_limit=over_limit,
            shortened_seqs=tuple(shorter),
            summary_state=SummaryState.CURRENT if covered_to else SummaryState.NONE,
            summary_id=SUMMARY_ID if covered_to else "",
            summary_failure="",
            prefix_digest=bytes.fromhex("0123456789abcdef" * 4),
            pinned_message_count=pinned,
            last_seq=history[-1].seq,
            first_seq=units[0] if units else 0,
        ),
    )
