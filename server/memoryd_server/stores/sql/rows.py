"""Rows of the tables as the contract's records, and back."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Any, Final

import msgspec

from memoryd_server.stores.records import (
    AgentRecord,
    Entry,
    Event,
    EventKind,
    Lookup,
    LookupKind,
    Record,
    Redaction,
    Role,
    SessionKey,
    StoredMessage,
    Usability,
    decode_policy,
    encode_policy,
    encode_record,
)

Row = tuple[Any, ...]

ENTRY_COLUMNS: Final = (
    "seq",
    "head",
    "position",
    "usability",
    "role",
    "tokens",
    "size",
    "calls",
    "answers",
    "prior_user",
)
# What rewinding needs stands behind the bodies in a row: walks do not read it.
UNDOABLE_ENTRY_COLUMNS: Final = (*ENTRY_COLUMNS, "undo")
BODY_COLUMNS: Final = ("content", "metadata", "extra")
REPLACED_COLUMNS: Final = ("tokens", "size", "name", *BODY_COLUMNS, "redaction")
MESSAGE_COLUMNS: Final = (*ENTRY_COLUMNS, "created", "id", "name", "run_id", *BODY_COLUMNS, "undo", "redaction")
STORED_COLUMNS: Final = ("session", "life", *MESSAGE_COLUMNS)
LOOKUP_COLUMNS: Final = ("kind", "id", "created", "digest", "answer")
STORED_LOOKUP_COLUMNS: Final = ("session", *LOOKUP_COLUMNS, "life")
AGENT_COLUMNS: Final = ("tenant", "agent", "version", "updated", "policy")
EVENT_COLUMNS: Final = ("number", "kind", "after_seq", "from_seq", "to_seq", "messages", "epoch", "created")
# Of the table of sessions: what changes with every record, and what indexes know of it besides.
HINT_COLUMNS: Final = ("first_seq", "opening_to", "bytes", "largest")
CHANGING_COLUMNS: Final = ("version", "record", *HINT_COLUMNS)
RECORD_COLUMNS: Final = (
    *("incarnation", "version", "activity", "user_id", "removed_at", "record"),
    *(*HINT_COLUMNS, "expires_at"),
)


class LeftoverKind(IntEnum):
    """What a row of the table of leftovers is about."""

    LIFE = 0
    """A dead life: its messages, events and look-ups."""
    STAGING = 1
    """A staging that may yet become a session's: a hidden row of the table of sessions belongs to it."""
    ABANDONED = 2
    """What was staged and never will be a session's: messages and look-ups."""
    SWEPT = 3
    """A dead life of which at most look-ups are left, which hold as long as the name does."""


_USABILITIES: Final = tuple(Usability)
_ROLES: Final = (None, *Role)
_REDACTION_DECODER: Final = msgspec.json.Decoder(Redaction)


@lru_cache(maxsize=1024)
def _answers_of(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def entry_of(row: Row) -> Entry:
    """The entry in a row of ENTRY_COLUMNS."""
    seq, head, position, usability, role, tokens, size, calls, answers, prior_user = row
    return Entry(
        seq,
        head,
        position,
        _USABILITIES[usability],
        _ROLES[role],
        tokens,
        size,
        calls,
        _answers_of(answers) if answers else (),
        prior_user,
    )


def message_of(row: Row) -> StoredMessage:
    """The message in a row of MESSAGE_COLUMNS."""
    (
        seq,
        head,
        position,
        usability,
        role,
        tokens,
        size,
        calls,
        answers,
        prior_user,
        created,
        id_,
        name,
        run_id,
        content,
        metadata,
        extra,
        undo,
        redaction,
    ) = row
    return StoredMessage(
        seq,
        head,
        position,
        _USABILITIES[usability],
        _ROLES[role],
        tokens,
        size,
        calls,
        _answers_of(answers) if answers else (),
        prior_user,
        undo or "",
        id=id_,
        name=name,
        content=content,
        run_id=run_id or "",
        metadata=metadata or "",
        extra=extra or "",
        created=created,
        redaction=_REDACTION_DECODER.decode(redaction) if redaction else None,
    )


def row_of_message(session: int, life: int, message: StoredMessage) -> Row:
    """The row of the table of messages."""
    return (
        session,
        life,
        message.seq,
        message.head,
        message.position,
        int(message.usability),
        int(message.role),
        message.tokens,
        message.size,
        message.calls,
        ",".join(map(str, message.answers)) or None,
        message.prior_user,
        message.created,
        message.id,
        message.name,
        message.run_id or None,
        message.content,
        message.metadata or None,
        message.extra or None,
        message.undo or None,
        _text_of_redaction(message.redaction),
    )


def _text_of_redaction(redaction: Redaction | None) -> str | None:
    return None if redaction is None else msgspec.json.encode(redaction).decode()


def lookup_of(row: Row) -> Lookup:
    """The look-up in a row of LOOKUP_COLUMNS."""
    kind, id_, created, digest, answer = row
    return Lookup(LookupKind(kind), id_, digest, answer, created)


def row_of_lookup(session: int, life: int, lookup: Lookup) -> Row:
    """The row of the table of look-ups."""
    return session, int(lookup.kind), lookup.id, lookup.created, lookup.digest, lookup.answer, life


def agent_of(row: Row) -> AgentRecord:
    """The agent in a row of AGENT_COLUMNS."""
    tenant, agent, version, updated, policy = row
    return AgentRecord(tenant, agent, version, updated, decode_policy(policy))


def row_of_agent(record: AgentRecord) -> Row:
    """The row of the table of agents."""
    return record.tenant, record.agent, record.version, record.updated, encode_policy(record.policy)


def event_of(row: Row) -> Event:
    """The event in a row of EVENT_COLUMNS."""
    number, kind, *values = row
    return Event(number, EventKind(kind), *values)


def row_of_event(session: int, life: int, event: Event) -> Row:
    """The row of the table of events."""
    return (
        session,
        life,
        event.number,
        int(event.kind),
        event.after_seq,
        event.from_seq,
        event.to_seq,
        event.messages,
        event.epoch,
        event.created,
    )


def indexed(record: Record) -> tuple[int, str | None, int | None, int | None]:
    """What indexes over sessions hold of a record: activity, user_id, removed_at and expires_at."""
    return record.activity, record.user_id or None, record.purge_at, record.expiry_listed_at


def changing(record: Record) -> tuple[int, str, int, int, int, int]:
    """The values of CHANGING_COLUMNS."""
    return record.version, encode_record(record).decode(), *_hints(record)


def row_of_record(record: Record) -> Row:
    """The values of RECORD_COLUMNS."""
    activity, user_id, removed_at, expires_at = indexed(record)
    return (
        *(record.incarnation, record.version, activity, user_id, removed_at),
        *(encode_record(record).decode(), *_hints(record), expires_at),
    )


def _hints(record: Record) -> tuple[int, int, int, int]:
    return record.first_seq, record.opening_to, record.bytes, record.largest


class Codec:
    """Rows as records and back, where the database gives and takes every value as it is.

    An adapter whose database does not overrides what differs: keys and ids are of the type `types.exact`; the columns
    `metadata` and `extra` of messages may hold any character, U+0000 included, all others may not.
    """

    entry = staticmethod(entry_of)
    message = staticmethod(message_of)
    row_of_message = staticmethod(row_of_message)
    lookup = staticmethod(lookup_of)
    row_of_lookup = staticmethod(row_of_lookup)
    agent = staticmethod(agent_of)

    def text(self, value: Any) -> str:
        """The text of a value of the type `types.exact`."""
        text: str = value
        return text

    def key(self, row: Row) -> SessionKey:
        """The key in a row of KEY columns."""
        return SessionKey(*row)

    def undoable_entry(self, row: Row) -> Entry:
        """The entry in a row of UNDOABLE_ENTRY_COLUMNS."""
        entry = self.entry(row[:-1])
        return msgspec.structs.replace(entry, undo=row[-1]) if row[-1] else entry

    def replaced(self, message: StoredMessage) -> Row:
        """The values of REPLACED_COLUMNS."""
        row = dict(zip(STORED_COLUMNS, self.row_of_message(0, 0, message), strict=True))
        return tuple(row[name] for name in REPLACED_COLUMNS)
