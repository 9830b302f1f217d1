"""What a window must be, worked out anew from the history that it was cut from (invariants 6 to 8).

Nothing here is shared with the server: calls and results are paired by walking the whole history, and what fits is
found by adding up. `check_window` compares a window with that; `check_openai` and `check_anthropic` check what the
converters make of it against the rules by which model providers refuse a request.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from memoryd import Message, Role, Text, ToolResult, Window

MOST_OPEN_CALLS: Final = 256
INTERRUPTED_METADATA: Final = '{"type":"interrupted_result"}'


@dataclass(eq=False)
class Group:
    """A head with the messages that answer its calls, or a message by itself."""

    head: Message
    answers: list[tuple[int, Message]] = field(default_factory=list)
    """For each answering message, the index of the first call that it answers; the messages as windows show them."""
    waiting: set[int] = field(default_factory=set)

    @property
    def messages(self) -> list[Message]:
        """In reading order."""
        return [self.head, *(message for _, message in sorted(self.answers, key=lambda it: (it[0], it[1].seq)))]

    @property
    def is_open(self) -> bool:
        return bool(self.waiting)


@dataclass
class History:
    """A history, paired."""

    groups: list[Group]
    """All groups and single messages that windows may show, open ones included, by the seq of their heads."""
    orphans: list[Message]
    messages: Sequence[Message]

    @property
    def open_messages(self) -> list[Message]:
        """The stored messages of groups with an unanswered call."""
        return [message for group in self.groups if group.is_open for message in group.messages if message.seq]


def pair(messages: Sequence[Message]) -> History:
    """Pairs by position: a call arms its id, the next result with that id consumes it."""
    armed: dict[str, list[tuple[Group, int]]] = {}
    order: list[tuple[Group, int, str]] = []
    groups: list[Group] = []
    orphans: list[Message] = []
    for message in messages:
        if message.tool_calls:
            group = Group(message, waiting=set(range(len(message.tool_calls))))
            groups.append(group)
            for index, call in enumerate(message.tool_calls):
                if armed.get(call.id) and armed[call.id][0][0] is not group:
                    order = [entry for entry in order if entry[2] != call.id]
                    del armed[call.id]
                armed.setdefault(call.id, []).append((group, index))
                order.append((group, index, call.id))
                if len(order) > MOST_OPEN_CALLS:
                    oldest, oldest_index, id_ = order.pop(0)
                    armed[id_].remove((oldest, oldest_index))
        elif message.tool_results:
            if _answer(message, armed, order):
                continue
            if message.role is Role.USER and any(not isinstance(part, ToolResult) for part in message.content or ()):
                groups.append(Group(_without_results(message, set())))
            else:
                orphans.append(message)
        else:
            groups.append(Group(message))
    return History(groups, orphans, messages)


def _answer(message: Message, armed: dict[str, list[tuple[Group, int]]], order: list[tuple[Group, int, str]]) -> bool:
    """Lets a message's results consume their calls, those of one group only. Returns: whether there was any."""
    group: Group | None = None
    taken: dict[int, int] = {}
    for place, result in enumerate(message.tool_results):
        candidates = armed.get(result.call_id) or []
        if candidates and (group is None or candidates[0][0] is group):
            group, index = candidates.pop(0)
            order.remove((group, index, result.call_id))
            group.waiting.discard(index)
            taken[place] = index
    if group is None:
        return False
    group.answers.append((min(taken.values()), _without_results(message, set(taken))))
    return True


def _without_results(message: Message, kept: set[int]) -> Message:
    """A message as windows show it: only with the results that answer a call of its group."""
    places = itertools.count()
    parts = [part for part in message.content or () if not isinstance(part, ToolResult) or next(places) in kept]
    return replace(message, content=tuple(parts))


def made_up_results(history: Sequence[Message], whole: Window) -> dict[tuple[int, int], Message]:
    """The results that a window over the whole history, cut with SYNTHESIZE, holds for unanswered calls: by the seq of
    the head and the index of the call."""
    made_up: dict[tuple[int, int], Message] = {}
    waiting = {group.head.seq: sorted(group.waiting) for group in pair(history).groups if group.is_open}
    head = 0
    for message in whole.messages:
        if message.tool_calls:
            head = message.seq
        elif not message.seq:
            assert is_interrupted(message)
            made_up[head, waiting[head].pop(0)] = message
    assert not any(waiting.values())
    return made_up


def is_interrupted(message: Message) -> bool:
    """Whether a message is a result that a window made up for a call without one."""
    (result,) = message.tool_results
    return message.seq == 0 and message.metadata == INTERRUPTED_METADATA and result.is_error and bool(result.text)


def check_window(
    history: Sequence[Message],
    window: Window,
    *,
    messages: int | None = None,
    tokens: int | None = None,
    pin_system: bool = True,
    start_with_user: bool = False,
    open_calls: str = "omit",
    made_up: Mapping[tuple[int, int], Message] | None = None,
) -> None:
    """Checks a window that was cut with these options (`oversize` SHORTEN) from this history.

    `made_up`: with SYNTHESIZE, the results of unanswered calls.
    """
    paired = pair(history)
    limit = messages if tokens is None else tokens
    assert limit is not None

    def price(of: Iterable[Message]) -> int:
        return sum(message.token_count if tokens is not None else 1 for message in of)

    pins: list[Message] = []
    if pin_system:
        for message in itertools.takewhile(lambda message: message.role in (Role.SYSTEM, Role.DEVELOPER), history):
            if 2 * price([*pins, message]) > limit:
                break
            pins.append(message)
    pinned = {message.seq for message in pins}
    if open_calls == "synthesize":
        assert made_up is not None
        for group in paired.groups:
            group.answers += [(index, made_up[group.head.seq, index]) for index in group.waiting]
    units = [
        group
        for group in paired.groups
        if group.head.seq not in pinned and not (group.is_open and open_calls == "omit")
    ]
    front, kept = _expected(units, limit - price(pins), price, start_with_user=start_with_user)
    chosen = [message for group in units[len(units) - kept :] for message in group.messages]
    expected = [*pins, *([] if front is None else [front]), *chosen]

    assert [message.seq for message in window] == [message.seq for message in expected]
    for shown, original in zip(window, expected, strict=True):
        if shown.seq in window.stats.shortened_seqs:
            _check_shortened(shown, original)
        else:
            # Whole, and byte for byte that of the history.
            assert shown == original
            assert shown.token_count == original.token_count
        assert shown.id == original.id
    used = price(window)
    assert window.stats.over_limit == (used > limit)
    if window.stats.over_limit or window.stats.shortened_seqs:
        assert kept == 1
        assert price(expected) > limit
    if window.stats.shortened_seqs:
        assert tokens is not None
    # A history with a legal group never gives an empty window (invariant 7).
    assert kept or not units
    _check_stats(paired, window, units, kept, limit=limit, used=used, pins=len(pins), omits=open_calls == "omit")


def _expected(
    units: Sequence[Group], room: int, price: Callable[[Iterable[Message]], int], *, start_with_user: bool
) -> tuple[Message | None, int]:
    """How many of the newest units fit, at least one, and the USER message that stands in front of them."""
    used = 0
    fitting = 0
    for unit in reversed(units):
        used += price(unit.messages)
        if fitting and used > room:
            used -= price(unit.messages)
            break
        fitting += 1
    if not start_with_user or used > room:
        return None, fitting
    kept = fitting
    while kept:
        oldest = units[len(units) - kept]
        earlier = [unit.head for unit in units[: len(units) - kept] if unit.head.role is Role.USER and not unit.answers]
        if oldest.head.role is Role.USER or not earlier:
            return None, kept
        if used + price(earlier[-1:]) <= room:
            return earlier[-1], kept
        used -= price(oldest.messages)
        kept -= 1
    # No room for it even beside the newest group alone: the limit wins.
    return None, fitting


def _check_shortened(shown: Message, original: Message) -> None:
    """Only plain texts are shortened, and they say where to read them in full."""
    assert shown.token_count < original.token_count
    assert f"seq {shown.seq} " in "".join(_texts(shown))
    assert _skeleton(shown) == _skeleton(original)


def _texts(message: Message) -> list[str]:
    inner = [part for result in message.tool_results for part in result.parts]
    return [part.text for part in (*(message.content or ()), *inner) if isinstance(part, Text)]


def _skeleton(message: Message) -> Message:
    """The message without its plain texts: all that shortening must leave alone."""

    def bare(part: Any) -> Any:
        if isinstance(part, ToolResult):
            return replace(part, parts=tuple(bare(inner) for inner in part.parts))
        return Text("") if isinstance(part, Text) else part

    return replace(message, content=tuple(bare(part) for part in message.content or ()))


def _check_stats(
    paired: History,
    window: Window,
    units: Sequence[Group],
    kept: int,
    *,
    limit: int,
    used: int,
    pins: int,
    omits: bool,
) -> None:
    """The stats are those of the window, and what is in it and what was left out add up to the history."""
    stats, left = window.stats, window.stats.left_out
    assert stats.history_message_count == len(paired.messages)
    assert stats.history_token_count == sum(message.token_count for message in paired.messages)
    assert stats.window_message_count == len(window)
    assert stats.window_token_count == sum(message.token_count for message in window)
    assert stats.limit == limit
    assert stats.limit_used_percent == pytest.approx(100 * used / limit)
    assert stats.pinned_message_count == pins
    assert stats.last_seq == paired.messages[-1].seq
    assert stats.first_seq == next((message.seq for message in window.messages[pins:]), 0)
    assert len(stats.prefix_digest) == 32
    assert left.orphan_result_count == len(paired.orphans)
    assert left.open_tool_call_count == (len(paired.open_messages) if omits else 0)
    assert stats.uncovered_message_count == left.limit_count
    shown = {message.seq for message in window if message.seq}
    assert len(shown) + left.limit_count + left.orphan_result_count + left.open_tool_call_count == len(paired.messages)
    unfit = [group.head.seq for group in units[: len(units) - kept] if group.head.seq not in shown]
    if unfit:
        assert left.limit_from_seq <= unfit[0]
        assert unfit[-1] <= left.limit_to_seq < units[len(units) - kept].head.seq
    else:
        assert (left.limit_count, left.limit_from_seq, left.limit_to_seq) == (0, 0, 0)


def check_openai(messages: Sequence[dict[str, Any]]) -> None:
    """Chat completions refuse calls without their results right behind, and results without their calls."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting, "a result without its call"
            waiting.remove(message["tool_call_id"])
        else:
            assert not waiting, f"calls {waiting} have no result"
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
    assert not waiting, f"calls {waiting} have no result"


def check_anthropic(messages: Sequence[dict[str, Any]]) -> None:
    """The Messages API wants each tool_use answered in the next message, which is the user's, and nothing else there
    before the results."""
    waiting: list[str] = []
    for message in messages:
        blocks = [] if isinstance(message["content"], str) else message["content"]
        results = [block for block in blocks if block["type"] == "tool_result"]
        assert sorted(block["tool_use_id"] for block in results) == sorted(waiting)
        assert blocks[: len(results)] == results
        assert message["role"] == "user" or not results
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert not waiting, f"calls {waiting} have no result"
