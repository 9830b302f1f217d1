"""Rows of the tables as the contract's records, and back."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from memoryd_server.stores.records import (
    AgentRecord,
    Entry,
    Lookup,
    LookupKind,
    Role,
    StoredMessage,
    Usability,
    decode_policy,
    encode_policy,
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
MESSAGE_COLUMNS: Final = (*ENTRY_COLUMNS, "created", "id", "name", "run_id", "content", "metadata", "extra")
LOOKUP_COLUMNS: Final = ("kind", "id", "created", "digest", "answer")
AGENT_COLUMNS: Final = ("tenant", "agent", "version", "updated", "policy")

_USABILITIES: Final = tuple(Usability)
_ROLES: Final = (None, *Role)


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
        id=id_,
        name=name,
        content=content,
        run_id=run_id or "",
        metadata=metadata or "",
        extra=extra or "",
        created=created,
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
    )


def lookup_of(row: Row) -> Lookup:
    """The look-up in a row of LOOKUP_COLUMNS."""
    kind, id_, created, digest, answer = row
    return Lookup(LookupKind(kind), id_, digest, answer, created)


def row_of_lookup(session: int, lookup: Lookup) -> Row:
    """The row of the table of look-ups."""
    return session, int(lookup.kind), lookup.id, lookup.created, lookup.digest, lookup.answer


def agent_of(row: Row) -> AgentRecord:
    """The agent in a row of AGENT_COLUMNS."""
    tenant, agent, version, updated, policy = row
    return AgentRecord(tenant, agent, version, updated, decode_policy(policy))


def row_of_agent(record: AgentRecord) -> Row:
    """The row of the table of agents."""
    return record.tenant, record.agent, record.version, record.updated, encode_policy(record.policy)
