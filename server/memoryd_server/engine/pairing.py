"""Tool groups, settled at append (invariants 6 and 17).

Calls and results are paired by position: a call arms its id, the next result with that id consumes it, and an id that a
later message arms again replaces the older call, which then never gets its answer. Calls of one message that share an
id (some providers send empty ids) are answered in their order. A message belongs to the group of the first call that it
answers; its results for calls of other groups, or of none, count as results without a call.

Each message keeps what it changed of the calls and groups before it, so that a rewind restores them exactly: afterwards
everything is as if what was taken away had never been appended (invariant 11).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from memoryd_server import limits
from memoryd_server.engine.content import Part, ToolCall, ToolResult
from memoryd_server.engine.record_tokens import id_token
from memoryd_server.stores.records import (
    Entry,
    OpenCall,
    OpenGroup,
    OpenState,
    Record,
    Role,
    Usability,
    encode_open,
    replace,
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """What pairing needs to know of a message that is about to be stored."""

    role: Role
    parts: Sequence[Part]
    tokens: int
    size: int
    run_id: str = ""


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
    undo: str = ""


class _Undo(msgspec.Struct, array_like=True):
    """The calls and groups of earlier messages that a message changed, as they were before it."""

    calls: list[OpenCall] = msgspec.field(default_factory=list)
    groups: list[OpenGroup] = msgspec.field(default_factory=list)


_UNDO_ENCODER: Final = msgspec.json.Encoder()
_UNDO_DECODER: Final = msgspec.json.Decoder(_Undo)


@dataclass(slots=True)
class _Ledger:
    """The open calls while a batch is placed, and their groups; both oldest first, as dicts keep their order."""

    calls: dict[str, OpenCall]
    groups: dict[int, OpenGroup]
    count: int
    calls_before: dict[str, OpenCall] = field(default_factory=dict)
    groups_before: dict[int, OpenGroup] = field(default_factory=dict)
    """What the present message changed, as it was before."""

    @classmethod
    def of(cls, record: Record) -> _Ledger:
        state = record.open_state
        return cls(
            {call.token: call for call in state.calls},
            {group.head: group for group in state.groups},
            record.open_call_count,
        )

    def arm(self, head: int, call_ids: Sequence[str], run: str) -> None:
        """Has the calls of a message wait. What older messages wait for under the same ids is lost."""
        self.groups[head] = OpenGroup(head, 0, 0, len(call_ids), lost=False, run=run)
        for index, call_id in enumerate(call_ids):
            token = id_token(call_id)
            waiting = self.calls.get(token)
            if waiting is not None and waiting.head == head:
                self.calls[token] = OpenCall(token, head, (*waiting.indexes, index))
            else:
                if waiting is not None:
                    self._keep_call(waiting)
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
        call = self.calls.get(id_token(call_id))
        if call is None or (head is not None and call.head != head):
            return None
        self._take_first(call)
        group = self._keep_group(call.head)
        self.groups[call.head] = msgspec.structs.replace(group, waiting=group.waiting - 1)
        return call

    def _keep_call(self, call: OpenCall) -> None:
        self.calls_before.setdefault(call.token, call)

    def _keep_group(self, head: int) -> OpenGroup:
        group = self.groups[head]
        self.groups_before.setdefault(head, group)
        return group

    def take_undo(self, seq: int) -> str:
        """What undoes the present message, and begins the next one."""
        calls = [call for call in self.calls_before.values() if call.head != seq]
        groups = [group for group in self.groups_before.values() if group.head != seq]
        self.calls_before.clear()
        self.groups_before.clear()
        return _UNDO_ENCODER.encode(_Undo(calls, groups)).decode() if calls or groups else ""

    def _take_first(self, call: OpenCall) -> None:
        self._keep_call(call)
        self.count -= 1
        if len(call.indexes) == 1:
            del self.calls[call.token]
        else:
            self.calls[call.token] = OpenCall(call.token, call.head, call.indexes[1:])

    def _lose(self, head: int, calls: int, *, taken: bool = False) -> None:
        if not taken:
            self.count -= calls
        group = self._keep_group(head)
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
    opening_to, last_user, newest = record.opening_to, record.last_user, record.newest_seq
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
        if message.role in (Role.SYSTEM, Role.DEVELOPER) and (seq == record.first_seq or newest == opening_to):
            opening_to = seq
        newest = seq

        if calls or results:
            ledger = ledger or _Ledger.of(record)
        if calls and ledger:
            ledger.arm(seq, calls, _owner(record, message))
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
        if ledger and (calls or results):
            placed.undo = ledger.take_undo(seq)

    return (
        replace(
            record,
            last_seq=record.last_seq + len(batch),
            rewound_to=0 if batch else record.rewound_to,
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


def _owner(record: Record, message: Candidate) -> str:
    """The token of the unfinished run that a message is of; empty when it is of none."""
    if not message.run_id or not record.runs:
        return ""
    token = id_token(message.run_id)
    return token if any(link.token == token for link in record.runs) else ""


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


def rewind(
    record: Record,
    taken: Sequence[Entry],
    kept_seq: int,
    members: Mapping[int, Sequence[Entry]],
    closed: Sequence[OpenState] = (),
    covered_to: int = 0,
) -> tuple[Record, tuple[int, ...]]:
    """Takes the newest messages away again.

    Args:
        record: The record that holds them.
        taken: All messages of the history behind `kept_seq`, newest first; at least one.
        kept_seq: The newest message that stays.
        members: For each head of `unrecorded_heads`, the messages of its group that stay.
        closed: What summaries had closed that are taken away with the messages, as `reopen` asks for it.
        covered_to: The head up to which a summary that stays stands for groups: no call of theirs waits again.

    Returns: the record with its counts, open calls, opening and last user as they were (version, times and removed
    ranges as given); the heads of groups whose messages are no longer usable.
    """
    state = record.open_state
    calls = {call.token: call for call in state.calls}
    groups = {group.head: group for group in state.groups}
    for entry in taken:
        if entry.calls:
            calls = {token: call for token, call in calls.items() if call.head != entry.seq}
            groups.pop(entry.seq, None)
        if entry.undo:
            undo = _UNDO_DECODER.decode(entry.undo)
            calls.update((call.token, call) for call in undo.calls)
            groups.update((group.head, group) for group in undo.groups)
    reopened = {
        entry.head: len(members[entry.head]) if entry.head in members else groups[entry.head].messages
        for entry in taken
        if entry.head <= kept_seq and entry.usability == Usability.USABLE
    }
    calls = {token: call for token, call in calls.items() if call.head > covered_to}
    groups = {head: group for head, group in groups.items() if head > covered_to}
    _reopen(calls, groups, closed, kept_seq)
    of_usability = [entry.usability for entry in taken]
    return (
        replace(
            record,
            rewound_to=kept_seq,
            opening_to=min(record.opening_to, kept_seq),
            last_user=taken[-1].prior_user,
            messages=record.messages - len(taken),
            tokens=record.tokens - sum(entry.tokens for entry in taken),
            bytes=record.bytes - sum(entry.size for entry in taken),
            open_messages=record.open_messages - of_usability.count(Usability.OPEN) + sum(reopened.values()),
            orphan_messages=record.orphan_messages - of_usability.count(Usability.ORPHAN),
            **_open_fields(calls, groups),
        ),
        tuple(sorted(reopened)),
    )


def reopen(record: Record, closed: Sequence[OpenState]) -> Record:
    """The record in which calls wait again that summaries had closed as interrupted (invariant 10).

    `closed`: what each of these summaries closed. A call whose id was armed again since stays lost, as everywhere.
    """
    if not any(state.groups for state in closed):
        return record
    state = record.open_state
    calls = {call.token: call for call in state.calls}
    groups = {group.head: group for group in state.groups}
    _reopen(calls, groups, closed, record.newest_seq)
    return replace(record, **_open_fields(calls, groups))


def _reopen(
    calls: dict[str, OpenCall], groups: dict[int, OpenGroup], closed: Sequence[OpenState], kept_seq: int
) -> None:
    for state in closed:
        for call in state.calls:
            if call.head <= kept_seq:
                calls.setdefault(call.token, call)
    while sum(len(call.indexes) for call in calls.values()) > limits.MAX_OPEN_CALLS:
        del calls[min(calls.values(), key=lambda call: (call.head, call.indexes)).token]
    for group in (group for state in closed for group in state.groups if group.head <= kept_seq):
        before = groups.get(group.head, group)
        waiting = sum(len(call.indexes) for call in calls.values() if call.head == group.head)
        groups[group.head] = msgspec.structs.replace(
            before, waiting=waiting, lost=before.lost or waiting < before.waiting
        )


def _open_fields(calls: Mapping[str, OpenCall], groups: Mapping[int, OpenGroup]) -> dict[str, Any]:
    """The fields of a record that tell what waits."""
    state = OpenState(
        tuple(sorted(calls.values(), key=lambda call: (call.head, call.indexes))),
        tuple(group for _, group in sorted(groups.items()) if group.waiting),
    )
    return {"open_call_count": sum(len(call.indexes) for call in calls.values()), "open": encode_open(state)}


def unrecorded_heads(taken: Iterable[Entry], kept_seq: int) -> tuple[int, ...]:
    """Heads of complete groups that a rewind cuts although a server that kept no undo stored their answers. Their calls
    then stay without an answer.
    """
    return tuple(
        sorted(
            {
                entry.head
                for entry in taken
                if entry.head <= kept_seq and entry.usability == Usability.USABLE and not entry.undo
            }
        )
    )
