"""Documents of the collections as the contract's records, and back."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from bson import Binary

from memoryd_server.stores.mongodb.layout import Pile, lookup_id, numbered_id
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
    StoredMessage,
    Usability,
    decode_policy,
    encode_policy,
    encode_record,
)

Document = dict[str, Any]

WALK_FIELDS: Final = ("head", "position", "seq", "tokens", "size")
"""Of a message: what the index in reading order holds, so that reading them reads no document."""

STAMP_FIELDS: Final = ("written", "turned")
"""The versions of the record that last gave a message its body and its usability."""

ENTRY_FIELDS: Final = (
    *WALK_FIELDS,
    *("pile", "role", "calls", "answers", "prior_user"),
    *STAMP_FIELDS,
)
UNDOABLE_ENTRY_FIELDS: Final = (*ENTRY_FIELDS, "undo")

DROPPED_AT: Final = "dropped_at"
"""Of a summary: when it was dropped, by the database's clock; null until then."""

_REPLACED_FIELDS: Final = ("tokens", "size", "name", "content", "metadata", "extra", "redaction")
_USABILITIES: Final = tuple(Usability)
_ROLES: Final = (None, *Role)


def entry_of(document: Document) -> Entry:
    """The entry in a document with ENTRY_FIELDS."""
    return Entry(
        document["seq"],
        document["head"],
        document["position"],
        _USABILITIES[document["pile"]],
        _ROLES[document["role"]],
        document["tokens"],
        document["size"],
        document["calls"],
        tuple(document.get("answers") or ()),
        document["prior_user"],
        document.get("undo") or "",
    )


def message_of(document: Document) -> StoredMessage:
    """The message in a whole document."""
    redaction = document.get("redaction")
    return StoredMessage(
        document["seq"],
        document["head"],
        document["position"],
        _USABILITIES[document["pile"]],
        _ROLES[document["role"]],
        document["tokens"],
        document["size"],
        document["calls"],
        tuple(document.get("answers") or ()),
        document["prior_user"],
        document.get("undo") or "",
        id=document["id"],
        name=document.get("name"),
        content=document.get("content"),
        run_id=document.get("run_id") or "",
        metadata=document.get("metadata") or "",
        extra=document.get("extra") or "",
        # Of the driver's own type for large integers otherwise, which nothing encodes.
        created=int(document["created"]),
        redaction=Redaction(int(redaction["at"]), redaction["reason"]) if redaction else None,
    )


def document_of_message(home: str, life: int, message: StoredMessage, version: int) -> Document:
    """The document of a message that the given version of the record brought. What is empty is left out."""
    redaction = message.redaction
    optional = {
        "answers": list(message.answers),
        "run_id": message.run_id,
        "metadata": message.metadata,
        "extra": message.extra,
        "undo": message.undo,
        "redaction": redaction and {"at": redaction.at, "reason": redaction.reason},
    }
    return {
        "_id": numbered_id(home, life, message.seq),
        "home": home,
        "life": life,
        "pile": int(message.usability),
        "head": message.head,
        "position": message.position,
        "seq": message.seq,
        "tokens": message.tokens,
        "size": message.size,
        "role": int(message.role),
        "calls": message.calls,
        "prior_user": message.prior_user,
        "created": message.created,
        "id": message.id,
        "name": message.name,
        "content": message.content,
        **{name: value for name, value in optional.items() if value},
        "written": version,
        "turned": version,
    }


def replacement_of(message: StoredMessage, version: int) -> Document:
    """The update that gives a stored message another body."""
    document = document_of_message("", 0, message, version)
    kept = {name: document[name] for name in _REPLACED_FIELDS if name in document}
    update: Document = {"$set": {**kept, "written": version}}
    gone = {name: "" for name in _REPLACED_FIELDS if name not in document}
    return {**update, "$unset": gone} if gone else update


def lookup_of(document: Document) -> Lookup:
    """The look-up in a document."""
    return Lookup(
        LookupKind(document["kind"]),
        document["id"],
        bytes(document["digest"]),
        document["answer"],
        int(document["created"]),
    )


def document_of_lookup(home: str, life: int, lookup: Lookup) -> Document:
    """The document of a look-up that the given life brought."""
    return {
        "_id": lookup_id(home, lookup.kind, lookup.id),
        "home": home,
        "life": life,
        "pile": int(Pile.LOOKUP),
        "kind": int(lookup.kind),
        "id": lookup.id,
        "created": lookup.created,
        "digest": Binary(lookup.digest),
        "answer": lookup.answer,
    }


def event_of(document: Document) -> Event:
    """The event in a document."""
    number, _, *values = (document[name] for name in Event.__struct_fields__)
    return Event(number, EventKind(document["kind"]), *values)


def document_of_event(home: str, life: int, event: Event) -> Document:
    """The document of an event."""
    fields = {**msgspec.structs.asdict(event), "kind": int(event.kind)}
    return {"_id": numbered_id(home, life, event.number), "home": home, "life": life, **fields}


def summary_text_of(document: Document) -> tuple[int, str]:
    """The number of a summary, and its JSON text; empty when it is dropped."""
    return document["number"], document.get("summary") or ""


def document_of_summary(home: str, life: int, number: int, text: str) -> Document:
    """The document of a summary, given its JSON text."""
    return {
        "_id": numbered_id(home, life, number),
        "home": home,
        "life": life,
        "number": number,
        "summary": text,
        DROPPED_AT: None,
    }


def agent_of(document: Document) -> AgentRecord:
    """The agent in a document."""
    return AgentRecord(
        document["tenant"],
        document["agent"],
        document["version"],
        document["updated"],
        decode_policy(document["policy"]),
    )


def fields_of_agent(record: AgentRecord) -> Document:
    """What a document holds of an agent's settings."""
    return {"version": record.version, "updated": record.updated, "policy": encode_policy(record.policy)}


def fields_of_record(record: Record) -> Document:
    """What a document of a session holds of its record, and what indexes know of it besides."""
    return {
        "incarnation": record.incarnation,
        "version": record.version,
        "epoch": record.epoch,
        "activity": record.activity,
        "user_id": record.user_id or None,
        "removed_at": record.purge_at,
        "expires_at": record.expiry_listed_at,
        "fold_at": record.fold_at,
        "record": encode_record(record).decode(),
    }
