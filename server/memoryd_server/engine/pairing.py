"""Tool groups, settled at append (invariants 6 and 17).

Calls and results are paired by position: a call arms its id, the next result with that id consumes it, and an id that a
later message arms again replaces the older call, which then never gets its answer. Calls of one message that share an
id (some providers send empty ids) are answered in their order. A message belongs to the group of the first call that it
answers; its results for calls of other groups, or of none, count as results without a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

import msgspec

from memoryd_server import limits
from memoryd_server.engine.content import Part, ToolCall, ToolResult
from memoryd_server.stores.records import OpenCall, OpenGroup, Record, Role, Usability, replace

_PLAIN_TOKEN_BYTES: Final = 48
"""Call ids up to this length (encoded) stand in the record as they are, longer ones as a digest, so that 256 open
calls fit.
"""


def call_token(call_id: str) -> str:
    """What stands for a call id in the record: no two ids share a token."""
    if len(msgspec.json.encode(call_id)) <= _PLAIN_TOKEN_BYTES:
        return "=" + call_id
    return "#" + blake2b(call_id.encode(), digest_size=24).hexdigest()


@dataclass(frozen=True, slots=True)
class Candidate:
    """What pairing needs to know of a message that is about to be stored."""

    role: Role
    parts: Sequence[Part]
    tokens: int
    size: int


@dataclass(slots=True)
class Placement:
    """Where a message stands: the fields of `Entry` that pairing settles."""

    seq: int
    head: int
    position: int
    usability: Usability
    calls: int
    answers: tuple[int, ...]
    prior_user: int


@dataclass(slots=True)
class _Group:
    messages: int
    tokens: int
    waiting: int
    lost: bool


@dataclass(slots=True)
class _Ledger:
    """The open calls while a batch is placed. Of one token, all calls that wait are of one message."""

    calls: dict[str, list[OpenCall]] = field(default_factory=dict)
    groups: dict[int, _Group] = field(default_factory=dict)
    count: int = 0

    @classmethod
    def of(cls, record: Record) -> _Ledger:
        ledger = cls(count=len(record.open_calls))
        for call in record.open_calls:
            ledger.calls.setdefault(call.token, []).append(call)
        for group in record.open_groups:
            ledger.groups[group.head] = _Group(group.messages, group.tokens, group.waiting, group.lost)
        return ledger

    def arm(self, call: OpenCall) -> None:
        older = self.calls.get(call.token)
        if older is not None and older[0].head != call.head:
            for lost in self.calls.pop(call.token):
                self._lose(lost)
        self.calls.setdefault(call.token, []).append(call)
        self.count += 1
        if self.count > limits.MAX_OPEN_CALLS:
            oldest = min((calls[0] for calls in self.calls.values()), key=lambda call: (call.head, call.index))
            self._take(oldest)
            self._lose(oldest, counted=False)

    def consume(self, call_id: str, head: int | None) -> OpenCall | None:
        calls = self.calls.get(call_token(call_id))
        if not calls or (head is not None and calls[0].head != head):
            return None
        call = calls[0]
        self._take(call)
        self.groups[call.head].waiting -= 1
        return call

    def _take(self, call: OpenCall) -> None:
        calls = self.calls[call.token]
        calls.remove(call)
        if not calls:
            del self.calls[call.token]
        self.count -= 1

    def _lose(self, call: OpenCall, *, counted: bool = True) -> None:
        self.count -= counted
        group = self.groups[call.head]
        group.waiting -= 1
        group.lost = True

    def open_calls(self) -> tuple[OpenCall, ...]:
        calls = [call for calls in self.calls.values() for call in calls]
        return tuple(sorted(calls, key=lambda call: (call.head, call.index)))

    def open_groups(self) -> tuple[OpenGroup, ...]:
        return tuple(
            OpenGroup(head, group.messages, group.tokens, group.waiting, group.lost)
            for head, group in sorted(self.groups.items())
            if group.waiting
        )


def place(record: Record, batch: Sequence[Candidate]) -> tuple[Record, list[Placement], tuple[int, ...]]:
    """Places a batch behind a session's history.

    Returns: the record with its counts, open calls, opening and last user brought forward (version and times as they
    were); a placement for each message; the heads of groups whose stored messages become usable.
    """
    first = record.last_seq + 1
    placements: list[Placement] = []
    completed: list[int] = []
    ledger: _Ledger | None = None
    opening_to, last_user = record.opening_to, record.last_user
    tokens, size, largest = record.tokens, record.bytes, record.largest
    open_messages, orphan_messages = record.open_messages, record.orphan_messages

    for seq, message in enumerate(batch, first):
        calls = [part.id for part in message.parts if isinstance(part, ToolCall)]
        results = [part.call_id for part in message.parts if isinstance(part, ToolResult)]
        placed = Placement(seq, seq, 0, Usability.USABLE, len(calls), (), last_user)
        placements.append(placed)
        tokens += message.tokens
        size += message.size
        largest = max(largest, message.size)
        if message.role in (Role.SYSTEM, Role.DEVELOPER) and seq in (record.first_seq, opening_to + 1):
            opening_to = seq

        if calls or results:
            ledger = ledger or _Ledger.of(record)
        if calls and ledger:
            ledger.groups[seq] = _Group(0, 0, len(calls), lost=False)
            for index, call_id in enumerate(calls):
                ledger.arm(OpenCall(call_token(call_id), seq, index))
        elif results and ledger:
            _answer(ledger, placed, results)
            if placed.head == seq and not (message.role == Role.USER and len(results) < len(message.parts)):
                placed.usability = Usability.ORPHAN
                orphan_messages += 1

        group = ledger.groups.get(placed.head) if ledger else None
        if group:
            placed.usability = Usability.OPEN
            group.messages += 1
            group.tokens += message.tokens
            open_messages += 1
            if not group.waiting and not group.lost and ledger:
                del ledger.groups[placed.head]
                open_messages -= group.messages
                for member in placements:
                    if member.head == placed.head:
                        member.usability = Usability.USABLE
                if placed.head < first:
                    completed.append(placed.head)
        elif message.role == Role.USER and placed.usability == Usability.USABLE:
            last_user = seq

    return (
        replace(
            record,
            last_seq=record.last_seq + len(batch),
            opening_to=opening_to,
            last_user=last_user,
            messages=record.messages + len(batch),
            tokens=tokens,
            bytes=size,
            open_messages=open_messages,
            orphan_messages=orphan_messages,
            largest=largest,
            open_calls=ledger.open_calls() if ledger else record.open_calls,
            open_groups=ledger.open_groups() if ledger else record.open_groups,
        ),
        placements,
        tuple(completed),
    )


def _answer(ledger: _Ledger, placed: Placement, results: Sequence[str]) -> None:
    answers: list[int] = []
    head: int | None = None
    for call_id in results:
        call = ledger.consume(call_id, head)
        if call is not None:
            head = call.head
        answers.append(-1 if call is None else call.index)
    placed.answers = tuple(answers)
    if head is not None:
        placed.head = head
        placed.position = 1 + min(answer for answer in answers if answer >= 0)
