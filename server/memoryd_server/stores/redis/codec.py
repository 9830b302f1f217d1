"""Messages, look-ups and events as bytes, and back. `lua/layout.lua` reads the same places.

A message has three parts. Its entry is a member of the session's sorted set, twice: by seq, and in reading order among
those of its usability. Its body is a field of the session's hash; of that, what a redaction replaces comes last, so
that scripts can put another one behind what stays. What rewinding needs (`undo`) is in the body, and again a field of
its own for the few messages that have it, so that entries can be read without bodies.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from memoryd_server.stores.records import (
    Entry,
    Event,
    EventKind,
    Lookup,
    LookupKind,
    Redaction,
    Role,
    StoredMessage,
    Usability,
)

_BY_SEQ: Final = struct.Struct(">QcQIQIBIQQH")
"""seq, usability, head, position, tokens, size, role, calls, prior_user, created, bytes of run_id; behind it run_id
and answers."""
_SEQ_PLACE: Final = 5
"""Where that begins in a member: behind the life (4 bytes) and the letter `s`."""

_READING: Final = struct.Struct(">cQIQQIBIQ")
"""usability, head, position, seq, tokens, size, role, calls, prior_user; behind it answers."""
_READING_PLACE: Final = 4
"""Where that begins in a member: behind the life."""

PLACE: Final = slice(5, 25)
"""Of a member in reading order: where it stands (head, position, seq)."""

_COUNTS: Final = struct.Struct(">QI")
"""tokens, size: what a redaction replaces of an entry."""

_LENGTH: Final = struct.Struct(">I")
_ROLES: Final = (None, *Role)
_USABILITIES: Final = {b"%d" % usability: usability for usability in Usability}
_LETTERS: Final = {usability: letter for letter, usability in _USABILITIES.items()}
_KINDS: Final = {kind: b"%d" % kind for kind in LookupKind}


class _Body(msgspec.Struct, frozen=True, array_like=True, gc=False):
    id: str
    run_id: str
    created: int
    undo: str
    name: str | None
    content: str | None
    metadata: str
    extra: str
    redaction: Redaction | None


_KEPT: Final = 4
"""How many fields of a body a redaction leaves as they are: the first ones."""


class _StoredLookup(msgspec.Struct, frozen=True, array_like=True, gc=False):
    digest: bytes
    answer: str
    created: int


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE_BODY: Final = msgspec.msgpack.Decoder(_Body).decode
_DECODE_LOOKUP: Final = msgspec.msgpack.Decoder(_StoredLookup).decode
_DECODE_EVENT: Final = msgspec.msgpack.Decoder(tuple[int, ...]).decode
_HEADER: Final = _ENCODE((None,) * len(_Body.__struct_fields__))[:1]


@lru_cache(maxsize=1024)
def _answers_of(text: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(text) // 4}i", text)


def entry_by_seq(message: StoredMessage) -> bytes:
    """The member of an entry by seq, without its life and letter."""
    run_id = message.run_id.encode()
    numbers = _BY_SEQ.pack(
        message.seq,
        _LETTERS[message.usability],
        message.head,
        message.position,
        message.tokens,
        message.size,
        message.role,
        message.calls,
        message.prior_user,
        message.created,
        len(run_id),
    )
    return numbers + run_id + struct.pack(f">{len(message.answers)}i", *message.answers)


def of_entry_by_seq(member: bytes) -> Entry:
    """The entry of a member by seq."""
    seq, usability, head, position, tokens, size, role, calls, prior_user, _, length = _BY_SEQ.unpack_from(
        member, _SEQ_PLACE
    )
    return Entry(
        seq,
        head,
        position,
        _USABILITIES[usability],
        _ROLES[role],
        tokens,
        size,
        calls,
        _answers_of(member[_SEQ_PLACE + _BY_SEQ.size + length :]),
        prior_user,
    )


def of_entry(member: bytes) -> Entry:
    """The entry of a member in reading order."""
    usability, head, position, seq, tokens, size, role, calls, prior_user = _READING.unpack_from(member, _READING_PLACE)
    return Entry(
        seq,
        head,
        position,
        _USABILITIES[usability],
        _ROLES[role],
        tokens,
        size,
        calls,
        _answers_of(member[_READING_PLACE + _READING.size :]),
        prior_user,
    )


def with_undo(entry: Entry, undo: bytes | None) -> Entry:
    """The entry with what rewinding needs, where there is something."""
    return msgspec.structs.replace(entry, undo=undo.decode()) if undo else entry


def letter(usability: Usability) -> bytes:
    """What stands for a usability in members."""
    return _LETTERS[usability]


def body_of(message: StoredMessage) -> bytes:
    """The body: the length of what stays, the begin of an array and what stays, what is replaced."""
    kept = _HEADER + _fields(message.id, message.run_id, message.created, message.undo)
    return _LENGTH.pack(len(kept)) + kept + replaced_body_of(message)


def replaced_body_of(message: StoredMessage) -> bytes:
    """The part of the body that a redaction replaces."""
    return _fields(message.name, message.content, message.metadata, message.extra, message.redaction)


def _fields(*values: object) -> bytes:
    return _ENCODE(values)[1:]


def counts_of(message: StoredMessage) -> bytes:
    """The part of an entry that a redaction replaces."""
    return _COUNTS.pack(message.tokens, message.size)


def with_body(entry: Entry, text: bytes) -> StoredMessage:
    """The message of an entry and a body."""
    body = _DECODE_BODY(memoryview(text)[_LENGTH.size :])
    return StoredMessage(
        entry.seq,
        entry.head,
        entry.position,
        entry.usability,
        entry.role,
        entry.tokens,
        entry.size,
        entry.calls,
        entry.answers,
        entry.prior_user,
        body.undo,
        id=body.id,
        name=body.name,
        content=body.content,
        run_id=body.run_id,
        metadata=body.metadata,
        extra=body.extra,
        created=body.created,
        redaction=body.redaction,
    )


def of_message(member: bytes, text: bytes) -> StoredMessage:
    """The message of a member in reading order and a body: at once, since most loads are made of these."""
    usability, head, position, seq, tokens, size, role, calls, prior_user = _READING.unpack_from(member, _READING_PLACE)
    body = _DECODE_BODY(memoryview(text)[_LENGTH.size :])
    return StoredMessage(
        seq,
        head,
        position,
        _USABILITIES[usability],
        _ROLES[role],
        tokens,
        size,
        calls,
        _answers_of(member[_READING_PLACE + _READING.size :]),
        prior_user,
        body.undo,
        id=body.id,
        name=body.name,
        content=body.content,
        run_id=body.run_id,
        metadata=body.metadata,
        extra=body.extra,
        created=body.created,
        redaction=body.redaction,
    )


def lookup_name(kind: LookupKind, id_: str) -> bytes:
    """What stands for an id in a session's look-ups."""
    return _KINDS[kind] + id_.encode()


def lookup_field(name: bytes) -> bytes:
    """The field that has a look-up."""
    return b"\0\0\0\0l" + name


def lookup_value(lookup: Lookup) -> bytes:
    """A look-up without its life and its id."""
    return _ENCODE((lookup.digest, lookup.answer, lookup.created))


def of_lookup(name: bytes, value: bytes) -> Lookup:
    """The look-up of a name and a stored value, which begins with its life."""
    stored = _DECODE_LOOKUP(memoryview(value)[4:])
    return Lookup(LookupKind(int(name[:1])), name[1:].decode(), stored.digest, stored.answer, stored.created)


def event_value(event: Event) -> bytes:
    """An event, its number included."""
    return _ENCODE(msgspec.structs.astuple(event))


def of_events(values: Iterable[bytes]) -> list[Event]:
    """The events of their values."""
    events = []
    for value in values:
        number, kind, *rest = _DECODE_EVENT(value)
        events.append(Event(number, EventKind(kind), *rest))
    return events
