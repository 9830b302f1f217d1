"""Rows of the tables as the contract's records, and back."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Any, Final

import msgspec

from memoryd_server.limits import KIB
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
    StoredSummary,
    Usability,
    decode_policy,
    decode_record,
    encode_policy,
    encode_record,
    encode_summary,
    replace,
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
SUMMARY_COLUMNS: Final = ("session", "life", "number", "summary")
EVENT_COLUMNS: Final = ("number", "kind", "after_seq", "from_seq", "to_seq", "messages", "epoch", "created")
# Of the table of sessions: what changes with every record, and what seldom does.
HINT_COLUMNS: Final = ("first_seq", "opening_to", "bytes", "largest")
CHANGING_COLUMNS: Final = ("version", "record", *HINT_COLUMNS)
# Those that a change may set which only adds to a session, and all.
ADDITION_COLUMNS: Final = (
    *("incarnation", "version", "activity", "user_id", "removed_at", "record"),
    *(*HINT_COLUMNS, "expires_at", "open_calls"),
)
RECORD_COLUMNS: Final = (*ADDITION_COLUMNS, "fold_at")

LONG_OPEN_CALLS: Final = KIB
"""Open calls that are longer, encoded, stand in a column of their own, which most changes need not write anew: a record
that holds them would be so long that PostgreSQL stores it outside of its row, piece by piece.
"""

_APART: Final = msgspec.Raw(b"0")
"""What a record holds instead of them. A server of an older schema takes it for none: it fails where it looks for open
calls, and the negative version refuses its changes.
"""


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


def row_of_summary(session: int, life: int, summary: StoredSummary) -> Row:
    """The row of the table of summaries."""
    return session, life, summary.number, encode_summary(summary).decode()


def record_of(text: str, open_calls: str | None) -> Record:
    """The record in the columns `record` and `open_calls`."""
    record = decode_record(text)
    return replace(record, open=msgspec.Raw(open_calls)) if open_calls else record


def open_apart(record: Record) -> msgspec.Raw | None:
    """The open calls that stand apart from the record; None where they are in it."""
    return record.open if len(record.open) > LONG_OPEN_CALLS else None


def stored_version(record: Record) -> int:
    """The value of the column `version`. It is negative where a server of an older schema would not see all of the
    record, and write it anew without that: its compare-and-set fails.
    """
    is_plain = open_apart(record) is None and not record.summaries and record.fold_at is None
    return record.version if is_plain else -record.version


def seldom_changing(record: Record) -> tuple[object, ...]:
    """What is beyond CHANGING_COLUMNS: what indexes over sessions hold of a record, and the open calls that stand apart
    from it.
    """
    return (*_indexed(record), record.fold_at, open_apart(record))


def changing(record: Record) -> Row:
    """The values of CHANGING_COLUMNS."""
    return stored_version(record), _text_of_record(record), *_hints(record)


def row_of_record(record: Record) -> Row:
    """The values of RECORD_COLUMNS."""
    return (*row_of_addition(record), record.fold_at)


def row_of_addition(record: Record) -> Row:
    """The values of ADDITION_COLUMNS."""
    activity, user_id, removed_at, expires_at = _indexed(record)
    apart = open_apart(record)
    return (
        *(record.incarnation, stored_version(record), activity, user_id, removed_at),
        *(_text_of_record(record), *_hints(record), expires_at),
        "" if apart is None else bytes(apart).decode(),
    )


def _indexed(record: Record) -> tuple[int, str | None, int | None, int | None]:
    """The columns activity, user_id, removed_at and expires_at."""
    return record.activity, record.user_id or None, record.purge_at, record.expiry_listed_at


def _text_of_record(record: Record) -> str:
    if open_apart(record) is not None:
        record = replace(record, open=_APART)
    return encode_record(record).decode()


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
