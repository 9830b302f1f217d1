"""Tool groups, settled at append (invariants 6 and 17).

Calls and results are paired by position: a call arms its id, the next result with that id consumes it, and an id that a
later message arms again replaces the older call, which then never gets its answer. Calls of one message that share an
id (some providers send empty ids) are answered in their order. A message belongs to the group of the first call that it
answers; its results for calls of other groups, or of none, count as results without a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import msgspec

from memoryd_server import limits
from memoryd_server.engine.content import Part, ToolCall, ToolResult
from memoryd_server.stores.records import OpenCall, OpenGroup, OpenState, Record, Role, Usability, encode_open, replace

_PLAIN_TOKEN_BYTES: Final = 34
"""Call ids up to this length (encoded) stand in the record as they are, longer ones as a digest, so that 256 open
calls fit.
"""


def call_token(call_id: str) -> str:
    """What stands for a call id in the record: no two ids share a token."""
    if len(msgspec.json.encode(call_id)) <= _PLAIN_TOKEN_BYTES:
        return "=" + call_id
    return "#" + blake2b(call_id.encode(), digest_size=16).hexdigest()


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
class _Ledger:
    """The open calls while a batch is placed, and their groups; both oldest first, as dicts keep their order."""

    calls: dict[str, OpenCall]
    groups: dict[int, OpenGroup]
    count: int

    @classmethod
    def of(cls, record: Record) -> _Ledger:
        state = record.open_state
        return cls(
            {call.token: call for call in state.calls},
            {group.head: group for group in state.groups},
            record.open_call_count,
        )

    def arm(self, head: int, call_ids: Sequence[str]) -> None:
        """Has the calls of a message wait. What older messages wait for under the same ids is lost."""
        self.groups[head] = OpenGroup(head, 0, 0, len(call_ids), lost=False)
        for index, call_id in enumerate(call_ids):
            token = call_token(call_id)
            waiting = self.calls.get(token)
            if waiting is not None and waiting.head == head:
                self.calls[token] = OpenCall(token, head, (*waiting.indexes, index))
            else:
                if waiting is not None:
                    del self.calls[token]
                    self._lose(waiting.head, len(waiting.indexes))
                self.calls[token] = OpenCall(token, head, (index,))
            self.count += 1
            if self.count > limits.MAX_OPEN_CALLS:
                first_head = next(iter(self.calls.values())).head
                waiting_there = (call for call in self.calls.values() if call.head == first_head)
                oldest = min(waiting_there, key=lambda call: call.indexes)
                self._take_first(oldest)
                self._lose(oldest.head, 1, taken=True)

    def consume(self, call_id: str, head: int | None) -> OpenCall | None:
        """Answers a call with this id; with `head`, only one of that group.

        Returns: the call as it waited, its first index being the one that is answered; None when there is none.
        """
        call = self.calls.get(call_token(call_id))
        if call is None or (head is not None and call.head != head):
            return None
        self._take_first(call)
        group = self.groups[call.head]
        self.groups[call.head] = msgspec.structs.replace(group, waiting=group.waiting - 1)
        return call

    def _take_first(self, call: OpenCall) -> None:
        self.count -= 1
        if len(call.indexes) == 1:
            del self.calls[call.token]
        else:
            self.calls[call.token] = OpenCall(call.token, call.head, call.indexes[1:])

    def _lose(self, head: int, calls: int, *, taken: bool = False) -> None:
        if not taken:
            self.count -= calls
        group = self.groups[head]
        self.groups[head] = msgspec.structs.replace(group, waiting=group.waiting - calls, lost=True)

    def state(self) -> OpenState:
        """What later appends must know: a group that waits for nothing any more stays open for ever."""
        return OpenState(tuple(self.calls.values()), tuple(group for group in self.groups.values() if group.waiting))


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
            ledger.arm(seq, calls)
        elif results and ledger:
            _answer(ledger, placed, results)
            if placed.head == seq and not (message.role == Role.USER and len(results) < len(message.parts)):
                placed.usability = Usability.ORPHAN
                orphan_messages += 1

        group = ledger.groups.get(placed.head) if ledger else None
        if ledger and group:
            placed.usability = Usability.OPEN
            group = msgspec.structs.replace(group, messages=group.messages + 1, tokens=group.tokens + message.tokens)
            ledger.groups[placed.head] = group
            open_messages += 1
            if not group.waiting and not group.lost:
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
            open_call_count=ledger.count if ledger else record.open_call_count,
            open=encode_open(ledger.state()) if ledger else record.open,
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
        answers.append(-1 if call is None else call.indexes[0])
    placed.answers = tuple(answers)
    if head is not None:
        placed.head = head
        placed.position = 1 + min(answer for answer in answers if answer >= 0)
