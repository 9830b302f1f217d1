"""Rows of the tables as the contract's records, and back."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Any, Final

import msgspec

from memoryd_server.limits import KIB
from memoryd_server.stores.base import RunChange
from memoryd_server.stores.records import (
    AgentRecord,
    AgentSettings,
    Entry,
    Event,
    EventKind,
    FileKey,
    FileOwner,
    FileVersion,
    Lookup,
    LookupKind,
    Record,
    Redaction,
    Role,
    RunStatus,
    SessionKey,
    StoredMessage,
    StoredStep,
    StoredSummary,
    Tier,
    Usability,
    decode_policy,
    decode_record,
    decode_settings,
    encode_policy,
    encode_record,
    encode_run_head,
    encode_run_state,
    encode_settings,
    encode_summary,
    replace,
)

Row = tuple[Any, ...]

KEY: Final = ("tenant", "agent", "session_id")
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
AGENT_COLUMNS: Final = ("tenant", "agent", "version", "updated", "policy", "settings")
SUMMARY_COLUMNS: Final = ("session", "life", "number", "summary")
EVENT_COLUMNS: Final = ("number", "kind", "after_seq", "from_seq", "to_seq", "messages", "epoch", "created")
# Of runs: what their lists and every change of them know.
RUN_STATE_COLUMNS: Final = ("status", "claimable_at", "ended", "state")
RUN_COLUMNS: Final = ("session", "life", "id", "tenant", "agent", "created", *RUN_STATE_COLUMNS, "head")
STEP_COLUMNS: Final = (
    "run_id",
    "number",
    "created",
    "fence",
    "status",
    "first_seq",
    "messages",
    "content_type",
    "payload",
)
STORED_STEP_COLUMNS: Final = ("session", "life", *STEP_COLUMNS[:2], "size", *STEP_COLUMNS[2:])
FILE_KEY_COLUMNS: Final = ("tenant", "tier", "owner", "name")
FILE_VERSION_COLUMNS: Final = ("version", "digest", "size", "author", "created")
# Of the table of sessions: what changes with every record, what does with each step of a run, and what seldom does.
HINT_COLUMNS: Final = ("first_seq", "opening_to", "bytes", "largest")
CHANGING_COLUMNS: Final = ("version", "record", *HINT_COLUMNS)
RUNNING_COLUMNS: Final = (*CHANGING_COLUMNS, "abandon_at")
# Those that a change may set which only adds to a session, and all.
_ALWAYS_SET: Final = (
    *("incarnation", "version", "activity", "user_id", "removed_at", "record"),
    *(*HINT_COLUMNS, "expires_at"),
)
ADDITION_COLUMNS: Final = (*_ALWAYS_SET, "abandon_at", "open_calls")
RECORD_COLUMNS: Final = (*_ALWAYS_SET, "open_calls", "fold_at", "abandon_at")

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
_TIERS: Final = (None, *Tier)
_NO_SETTINGS: Final = AgentSettings()
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
    tenant, agent, version, updated, policy, settings = row
    return AgentRecord(
        tenant,
        agent,
        version,
        updated,
        decode_policy(policy),
        decode_settings(settings) if settings else _NO_SETTINGS,
    )


def row_of_agent(record: AgentRecord) -> Row:
    """The row of the table of agents."""
    settings = None if record.settings == _NO_SETTINGS else encode_settings(record.settings)
    return record.tenant, record.agent, record.version, record.updated, encode_policy(record.policy), settings


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


def row_of_run(session: int, life: int, key: SessionKey, change: RunChange) -> Row:
    """The row of the table of runs of one that begins: RUN_COLUMNS."""
    assert change.head is not None
    return (
        *(session, life, change.run_id, key.tenant, key.agent, change.head.created),
        *(*row_of_run_state(change), encode_run_head(change.head)),
    )


def row_of_run_state(change: RunChange) -> Row:
    """The values of RUN_STATE_COLUMNS."""
    state = change.state
    return int(state.status), state.claimable_at, state.ended or None, encode_run_state(state)


def step_of(row: Row) -> StoredStep:
    """The step in a row of STEP_COLUMNS."""
    run_id, number, created, fence, status, first_seq, messages, content_type, payload = row
    return StoredStep(run_id, number, payload, content_type, created, fence, RunStatus(status), first_seq, messages)


def row_of_step(session: int, life: int, step: StoredStep) -> Row:
    """The row of the table of steps: STORED_STEP_COLUMNS."""
    return (
        *(session, life, step.run_id, step.number, len(step.payload), step.created),
        *(step.fence, int(step.status), step.first_seq, step.messages, step.content_type, step.payload),
    )


def file_key_of(row: Row) -> FileKey:
    """The key in a row of FILE_KEY_COLUMNS."""
    tenant, tier, owner, name = row
    return FileKey(FileOwner(tenant, _TIERS[tier], owner), name)


def row_of_file_key(key: FileKey) -> Row:
    """The values of FILE_KEY_COLUMNS."""
    tenant, tier, owner = key.owner
    return tenant, int(tier), owner, key.name


def file_version_of(row: Row) -> FileVersion:
    """The version in a row of FILE_VERSION_COLUMNS."""
    return FileVersion(*row)


def row_of_file_version(version: FileVersion) -> Row:
    """The values of FILE_VERSION_COLUMNS."""
    return version.version, version.digest, version.size, version.author, version.created


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
    is_plain = open_apart(record) is None and not record.summaries and record.fold_at is None and not record.runs
    return record.version if is_plain else -record.version


def changed_columns(previous: Record, record: Record) -> tuple[tuple[str, ...], Row]:
    """The fewest of CHANGING_COLUMNS, RUNNING_COLUMNS and RECORD_COLUMNS that hold all in which the row of the one
    record differs from that of the other, and their values.
    """
    if _seldom_changing(previous) != _seldom_changing(record):
        return RECORD_COLUMNS, row_of_record(record)
    changing = (stored_version(record), _text_of_record(record), *_hints(record))
    if previous.abandon_at != record.abandon_at:
        return RUNNING_COLUMNS, (*changing, record.abandon_at)
    return CHANGING_COLUMNS, changing


def _seldom_changing(record: Record) -> tuple[object, ...]:
    """What is beyond RUNNING_COLUMNS: what indexes over sessions hold of a record, and the open calls that stand apart
    from it.
    """
    return (*_indexed(record), record.fold_at, open_apart(record))


def row_of_record(record: Record) -> Row:
    """The values of RECORD_COLUMNS."""
    *row, abandon_at, open_calls = row_of_addition(record)
    return *row, open_calls, record.fold_at, abandon_at


def row_of_addition(record: Record) -> Row:
    """The values of ADDITION_COLUMNS."""
    activity, user_id, removed_at, expires_at = _indexed(record)
    apart = open_apart(record)
    return (
        *(record.incarnation, stored_version(record), activity, user_id, removed_at),
        *(_text_of_record(record), *_hints(record), expires_at, record.abandon_at),
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
    `metadata` and `extra` of messages, `content_type` of steps and `author` of file versions may hold any character,
    U+0000 included, all others may not.
    """

    entry = staticmethod(entry_of)
    message = staticmethod(message_of)
    row_of_message = staticmethod(row_of_message)
    lookup = staticmethod(lookup_of)
    row_of_lookup = staticmethod(row_of_lookup)
    agent = staticmethod(agent_of)
    step = staticmethod(step_of)
    row_of_step = staticmethod(row_of_step)
    file_key = staticmethod(file_key_of)
    file_version = staticmethod(file_version_of)
    row_of_file_version = staticmethod(row_of_file_version)

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
