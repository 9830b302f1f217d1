"""Changes as what the script `commit` is given, and its outcomes."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

from memoryd_server import limits
from memoryd_server.stores.base import Change, Committed, Conflict, Known, Lost, Outcome, Taken
from memoryd_server.stores.records import (
    Event,
    Lookup,
    Record,
    StoredMessage,
    decode_record,
    encode_record,
    encode_summary,
    replace,
)
from memoryd_server.stores.redis import codec, members
from memoryd_server.stores.redis.keys import Keys, SessionName
from memoryd_server.stores.redis.members import number
from memoryd_server.stores.redis.run_values import values_of_run, values_of_step
from memoryd_server.stores.redis.scripts import COMMIT, Call, Value
from memoryd_server.stores.walk import visible_segments

_SIZES: Final = struct.Struct(">12I")
_CHANGES, _BEGINS, _ENDS, _ADOPTS = range(4)
_EVENT_MICROSECONDS: Final = limits.EVENT_SECONDS * 1_000_000
_COMMITTED: Final = Committed()


def commit_call(keys: Keys, changes: Sequence[Change], *, confirms: bool, staging_partition: str = "") -> Call:
    """The call that makes changes of one session.

    Args:
        confirms: See the script.
        staging_partition: Where the staging is that the first change adopts; "" for where it began.
    """
    key = changes[0].key
    name = keys.session(key)
    names: tuple[str, ...] = (name.hash, name.order, name.partition)
    staging = bytes.fromhex(next((change.staging for change in changes if change.staging), ""))
    if staging:
        place = keys.staging(staging, staging_partition or None)
        names += (place.hash, place.order, place.partition)
    planned = [value for change in changes for value in _plan(change, name)]
    return COMMIT(*names, values=(name.key, name.digest, staging, int(confirms), *planned))


def outcomes_of(changes: Sequence[Change], replies: Sequence[Any]) -> list[Outcome]:
    """The outcomes of changes of one session."""
    return [_outcome(change, reply) for change, reply in zip(changes, replies, strict=True)]


def _plan(change: Change, name: SessionName) -> list[Value]:
    """What the script is given of a change, in its order."""
    previous, record = change.previous, change.record
    begins = record is not None and (previous is None or previous.incarnation != record.incarnation)
    is_shown_anew = record is not None and (begins or previous is None or _visible(previous) != _visible(record))
    touches = (
        is_shown_anew
        or change.completed
        or change.reopened
        or change.replaced
        or any(message.head != message.seq for message in change.messages)
    )
    if record is None:
        kind = _ENDS
    elif begins:
        kind = _ADOPTS if change.staging else _BEGINS
    else:
        kind = _CHANGES
    fields: list[Value] = []
    if record is not None:
        if is_shown_anew:
            fields += _hints(record)
        current = _current_summary(record)
        if current != (b"" if begins or previous is None else _current_summary(previous)):
            fields += ("summary", current)
    listed, unlisted = _moved(change, name)
    lists: tuple[Sequence[Value], ...] = (
        fields,
        messages_of(change.messages),
        lookups_of(change.lookups),
        [number(head) for head in change.completed],
        [number(head) for head in change.reopened],
        [value for message in change.replaced for value in _replaced(message)],
        [value for event in change.events for value in _event(event)],
        _summaries(change),
        [value for run in change.changed_runs for value in values_of_run(change.key, run)],
        [value for step in change.new_steps for value in values_of_step(step)],
        listed,
        unlisted,
    )
    values: list[Value] = [
        *((previous.incarnation, previous.version) if previous else ("", "")),
        kind,
        members.of_user(change.key.tenant, previous.user_id) if previous else b"",
        int(bool(touches)),
        *((encode_record(record), record.incarnation, record.version) if record else ("", "", "")),
        _SIZES.pack(*map(len, lists)),
    ]
    for each in lists:
        values += each
    return values


def _moved(change: Change, name: SessionName) -> tuple[list[bytes], list[bytes]]:
    """What a change adds to its partition, and what it takes from there: mostly nothing."""
    previous, record = change.previous, change.record
    told = members.of_session
    if previous is not None and record is not None and _place(previous) == _place(record):
        told = members.dues_of_session
    before = told(change.key, name, previous) if previous else set()
    after = told(change.key, name, record) if record else set()
    return [*(after - before)], [*(before - after)]


def _place(record: Record) -> tuple[object, ...]:
    """What lists of sessions know of a record."""
    return record.activity, record.user_id


def messages_of(messages: Iterable[StoredMessage]) -> list[bytes]:
    """Three values a message, as scripts take them."""
    values: list[bytes] = []
    for message in messages:
        values += (codec.entry_by_seq(message), codec.body_of(message), message.undo.encode())
    return values


def lookups_of(lookups: Iterable[Lookup]) -> list[bytes]:
    """Two values a look-up, as scripts take them."""
    values: list[bytes] = []
    for lookup in lookups:
        values += (codec.lookup_name(lookup.kind, lookup.id), codec.lookup_value(lookup))
    return values


def _replaced(message: StoredMessage) -> tuple[bytes, bytes, bytes]:
    return number(message.seq), codec.counts_of(message), codec.replaced_body_of(message)


def _event(event: Event) -> tuple[bytes, bytes, bytes]:
    return number(event.number), codec.event_value(event), number(event.created + _EVENT_MICROSECONDS + 1)


def _summaries(change: Change) -> list[bytes]:
    values: list[bytes] = []
    for summary in change.new_summaries:
        values += (number(summary.number), encode_summary(summary))
    for dropped in change.dropped_summaries:
        values += (number(dropped), b"")
    return values


def _current_summary(record: Record) -> bytes:
    """The number of the current summary; empty for none."""
    return b"" if record.summary is None else number(record.summary.number)


def _visible(record: Record) -> tuple[object, ...]:
    """What `_hints` tell."""
    return record.first_seq, record.opening_to, record.removed


def _hints(record: Record) -> tuple[Value, ...]:
    """What scripts must know of a record, as names and values."""
    if not record.removed:
        visible = number(record.first_seq) + number(sys.maxsize)
    else:
        # What will be appended is visible, too.
        segments = visible_segments(replace(record, last_seq=sys.maxsize))
        visible = b"".join(number(seq) for segment in segments for seq in segment)
    return "vis", visible, "open", number(record.opening_to)


def _outcome(change: Change, reply: Sequence[Any]) -> Outcome:
    kind, *rest = reply
    if kind == b"C":
        return _COMMITTED
    if kind == b"X":
        return Conflict(decode_record(rest[0]) if rest and rest[0] else None)
    if kind == b"K":
        lookups = [change.lookups[place - 1] for place in rest[::2]]
        return Known(
            [
                codec.of_lookup(codec.lookup_name(lookup.kind, lookup.id), value)
                for lookup, value in zip(lookups, rest[1::2], strict=True)
            ]
        )
    return Lost() if kind == b"L" else Taken()
