"""What invariants 6 to 8 say, written down a second time: over the whole list of messages, without index, cost or tail.

It shares nothing with the engine but the types of messages and options: a disagreement is a bug in one of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from memoryd_server.engine.content import (
    Data,
    Media,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.policies import WindowSettings
from memoryd_server.stores.records import OpenCalls, Oversize, Role, Usability, WindowMode

NO_CALL: Final = -1
INSTRUCTIONS: Final = (Role.SYSTEM, Role.DEVELOPER)


def price_in_tokens(count: Callable[[str], int], name: str | None, parts: Sequence[Part]) -> int:
    """Text, tool names, arguments and ids, a bounded price for each binary part, a fixed overhead (invariant 8)."""
    return 4 + (count(name) if name else 0) + sum(_part_tokens(count, part) for part in parts)


def _part_tokens(count: Callable[[str], int], part: Part) -> int:
    if isinstance(part, Media):
        return 1_000
    if isinstance(part, ToolCall):
        return count(part.id) + count(part.name) + count(part.arguments)
    if isinstance(part, ToolResult):
        return count(part.call_id) + count(part.name) + sum(_part_tokens(count, inner) for inner in part.parts)
    if isinstance(part, Data):
        return count(part.json)
    assert isinstance(part, Text | Reasoning | Refusal)
    return count(part.text)


@dataclass(frozen=True)
class _Call:
    head: int
    index: int
    id: str


@dataclass
class Message:
    """A message of the history with all that follows from the messages before it."""

    seq: int
    role: Role
    parts: Sequence[Part]
    size: int
    tokens: int
    calls: list[_Call]
    answers: tuple[int, ...] = ()
    head: int = 0
    prior_user: int = 0

    @property
    def position(self) -> int:
        """The place in its group: heads first, then by the first of the calls that it answers."""
        return 1 + min(answer for answer in self.answers if answer != NO_CALL) if self.head != self.seq else 0

    @property
    def is_instruction(self) -> bool:
        return self.role in INSTRUCTIONS


@dataclass
class History:
    """A history after pairing by position."""

    messages: list[Message]
    waiting: list[_Call] = field(default_factory=list)
    """Calls that the next result with their id would answer, oldest first."""
    unanswered: set[int] = field(default_factory=set)
    """Heads of groups with an unanswered call, whether or not it can still be answered."""
    first_seq: int = 1

    def usability(self, message: Message) -> Usability:
        if message.head in self.unanswered:
            return Usability.OPEN
        return Usability.ORPHAN if self.is_orphan(message) else Usability.USABLE

    def is_orphan(self, message: Message) -> bool:
        """Results without calls: not shown, unless a user's own words stand beside them."""
        if not message.answers or message.head != message.seq:
            return False
        return message.role != Role.USER or len(message.parts) == len(message.answers)

    def is_user_turn(self, message: Message) -> bool:
        """A usable USER message outside of groups."""
        return message.role == Role.USER and message.head == message.seq and not self.is_orphan(message)

    @property
    def opening(self) -> list[Message]:
        """The SYSTEM and DEVELOPER messages that open the history."""
        opening: list[Message] = []
        for message in self.messages:
            if not message.is_instruction:
                break
            opening.append(message)
        return opening


def pair(
    history: Sequence[IncomingMessage],
    tokens: Sequence[int],
    *,
    first_seq: int = 1,
    most_open: int = 256,
) -> History:
    """Pairing is by position: a call arms its id (a re-armed id replaces the older call), the next result with that id
    consumes it. A message that answers several calls belongs to the group of the first; calls of one message that share
    an id are answered in order; beyond `most_open` the oldest open call closes."""
    armed: list[_Call] = []
    answered: set[_Call] = set()
    closed: set[_Call] = set()

    def waiting() -> list[_Call]:
        newest = {call.id: call.head for call in armed}
        return [call for call in armed if call not in answered and call not in closed and newest[call.id] == call.head]

    paired = History([], first_seq=first_seq)
    for seq, (incoming, price) in enumerate(zip(history, tokens, strict=True), first_seq):
        parts = incoming.parts or ()
        call_ids = [part.id for part in parts if isinstance(part, ToolCall)]
        message = Message(
            seq,
            Role(incoming.role),
            parts,
            incoming.size,
            price,
            calls=[_Call(seq, index, call_id) for index, call_id in enumerate(call_ids)],
            head=seq,
            prior_user=max((earlier.seq for earlier in paired.messages if paired.is_user_turn(earlier)), default=0),
        )
        for call in message.calls:
            armed.append(call)
            if len(waiting()) > most_open:
                closed.add(waiting()[0])
        for call_id in [part.call_id for part in parts if isinstance(part, ToolResult)]:
            candidates = [call for call in waiting() if call.id == call_id and message.head in (seq, call.head)]
            if candidates:
                answered.add(candidates[0])
                message.head = candidates[0].head
            message.answers += (candidates[0].index if candidates else NO_CALL,)
        paired.messages.append(message)
    paired.waiting = waiting()
    paired.unanswered = {call.head for call in armed if call not in answered}
    return paired


@dataclass(frozen=True)
class Interrupted:
    """A synthesized answer to a call that has none."""

    head: int
    index: int
    tokens: int


Shown = Message | Interrupted


@dataclass(frozen=True)
class TooSmall:
    """The window is refused with WINDOW_TOO_SMALL."""

    needed: int


@dataclass
class Window:
    """A window as the invariants describe it, before any shortening."""

    pins: list[Message]
    front: Message | None
    groups: list[list[Shown]]
    """Oldest first."""
    exceeds: bool
    """Whether the newest group alone exceeds what the pins leave."""

    @property
    def shown(self) -> list[Shown]:
        front = [] if self.front is None else [self.front]
        return [*self.pins, *front, *(message for group in self.groups for message in group)]

    @property
    def stored(self) -> list[Message]:
        return [message for message in self.shown if isinstance(message, Message)]


def window(
    history: History, settings: WindowSettings, interrupted_tokens: Callable[[ToolCall], int]
) -> Window | TooSmall:
    """Cuts a window, claim by claim: pins, the newest group, older groups, the user message in front."""

    def price(messages: Sequence[Shown]) -> int:
        return sum(message.tokens for message in messages) if settings.mode == WindowMode.TOKENS else len(messages)

    pins: list[Message] = []
    if settings.pin_system:
        for message in history.opening:
            if price([*pins, message]) > settings.limit / 2:
                break
            pins.append(message)

    groups = _groups(history, settings, interrupted_tokens, {message.seq for message in pins})
    if not groups:
        return Window(pins, None, [], exceeds=False)
    if price([*pins, *groups[-1]]) > settings.limit:
        if settings.mode == WindowMode.TOKENS and settings.oversize == Oversize.FAIL:
            return TooSmall(price([*pins, *groups[-1]]))
        return Window(pins, None, groups[-1:], exceeds=True)

    fitting = [
        count
        for count in range(1, len(groups) + 1)
        if all(price(_flat(pins, groups[-shorter:])) <= settings.limit for shorter in range(1, count + 1))
    ]
    plain = Window(pins, None, groups[-max(fitting) :], exceeds=False)
    if not settings.start_with_user:
        return plain
    by_seq = {message.seq: message for message in history.messages}
    for count in reversed(fitting):
        candidate = groups[-count:]
        first = candidate[0][0]
        assert isinstance(first, Message)
        if first.role == Role.USER or not first.prior_user:
            return Window(pins, None, candidate, exceeds=False)
        front = by_seq[first.prior_user]
        if price([*_flat(pins, candidate), front]) <= settings.limit:
            return Window(pins, front, candidate, exceeds=False)
    return plain


def _flat(pins: Sequence[Message], groups: Sequence[Sequence[Shown]]) -> list[Shown]:
    return [*pins, *(message for group in groups for message in group)]


def _groups(
    history: History, settings: WindowSettings, interrupted_tokens: Callable[[ToolCall], int], pinned: set[int]
) -> list[list[Shown]]:
    """What a window may take, whole or not at all, oldest first."""
    groups: list[list[Shown]] = []
    for head in history.messages:
        if head.head != head.seq or head.seq in pinned or history.is_orphan(head):
            continue
        if head.seq in history.unanswered and settings.open_calls == OpenCalls.OMIT:
            continue
        members: list[tuple[int, Shown]] = [
            (message.position, message) for message in history.messages if message.head == head.seq
        ]
        if settings.open_calls == OpenCalls.SYNTHESIZE:
            given = {answer for message in history.messages if message.head == head.seq for answer in message.answers}
            made = [part for part in head.parts if isinstance(part, ToolCall)]
            members += [
                (1 + call.index, Interrupted(head.seq, call.index, interrupted_tokens(made[call.index])))
                for call in head.calls
                if call.index not in given
            ]
        groups.append([message for _, message in sorted(members, key=lambda member: member[0])])
    return groups
