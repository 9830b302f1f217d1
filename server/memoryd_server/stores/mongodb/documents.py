"""Documents of the collections as the contract's records, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from bson import Binary

from memoryd_server.stores.mongodb.layout import (
    Leaving,
    Pile,
    file_id,
    file_version_id,
    lookup_id,
    numbered_id,
    place_at,
    run_id_of,
    step_id,
)
from memoryd_server.stores.records import (
    AgentRecord,
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
    RunHead,
    RunState,
    RunStatus,
    SessionKey,
    StoredFile,
    StoredMessage,
    StoredRun,
    StoredStep,
    Usability,
    decode_policy,
    decode_run_head,
    decode_run_state,
    decode_settings,
    encode_policy,
    encode_record,
    encode_run_head,
    encode_run_state,
    encode_settings,
)

Document = dict[str, Any]

KEY_FIELDS: Final = SessionKey._fields
"""Of a session: what it is named by."""

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

RUN_FIELDS: Final = ("_id", "run", "head", "state", "born", "written", "leaving")
"""Of a run: what it is made of, and how what is carried is told from what is stored."""

HIDDEN_RUN: Final[Document] = {
    **dict.fromkeys(("tenant", "agent", "session", "begun", "status", "claimable_at", "ended", "head", "state")),
    "leaving": int(Leaving.STEPS),
}
"""Of a run that is deleted: it is in no list, and nothing of what was said of it is left."""

FILE_VERSION_FIELDS: Final = FileVersion.__struct_fields__
"""Of a memory file: what is told of its current version."""

FILE_FIELDS: Final = ("_id", "incarnation", *FILE_VERSION_FIELDS, "content", "requests")
"""Of a memory file: all of it that is current."""

TOLD_FIELDS: Final = ("incarnation", *FILE_VERSION_FIELDS, "earlier")
"""Of a memory file: what is told of its versions."""

_REPLACED_FIELDS: Final = ("tokens", "size", "name", "content", "metadata", "extra", "redaction")
_USABILITIES: Final = tuple(Usability)
_ROLES: Final = (None, *Role)


def key_of(document: Document) -> SessionKey:
    """The key in a session's document with KEY_FIELDS."""
    return SessionKey(*(document[name] for name in KEY_FIELDS))


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


def run_of(document: Document) -> StoredRun:
    """The run in a document with RUN_FIELDS."""
    return StoredRun(document["run"], decode_run_head(document["head"]), decode_run_state(document["state"]))


def document_of_run(
    key: SessionKey, home: str, life: int, run_id: str, head: RunHead, state: RunState, born: int, version: int
) -> Document:
    """The document of a run that one version of the record began, and a version changed last."""
    tenant, agent, session_id = key
    id_ = run_id_of(home, life, run_id)
    return {
        "_id": id_,
        "home": home,
        "life": life,
        "run": run_id,
        "tenant": tenant,
        "agent": agent,
        "session": session_id,
        "born": born,
        "begun": place_at(head.created, id_),
        **fields_of_run_head(head),
        **fields_of_run_state(id_, state, version),
        "leaving": None,
        "hidden_at": None,
    }


def fields_of_run_head(head: RunHead) -> Document:
    """What changes in a run's document with its head."""
    return {"head": encode_run_head(head)}


def fields_of_run_state(id_: str, state: RunState, version: int) -> Document:
    """What changes in the run's document of an `_id` with its state, which a version of the record brought."""
    return {
        "status": int(state.status),
        "claimable_at": state.claimable_at,
        "ended": place_at(state.ended, id_) if state.ended else None,
        "state": encode_run_state(state),
        "written": version,
    }


def step_of(document: Document) -> StoredStep:
    """The step in a whole document."""
    return StoredStep(
        document["run"],
        int(document["number"]),
        bytes(document["payload"]),
        document["content_type"],
        int(document["created"]),
        int(document["fence"]),
        RunStatus(document["status"]),
        int(document["first_seq"]),
        int(document["messages"]),
    )


def document_of_step(home: str, life: int, step: StoredStep, version: int) -> Document:
    """The document of a step that a version of the record brought."""
    return {
        "_id": step_id(home, life, step.run_id, step.number, version),
        "home": home,
        "life": life,
        "run": step.run_id,
        "number": step.number,
        "written": version,
        "size": len(step.payload),
        "payload": Binary(step.payload),
        "content_type": step.content_type,
        "created": step.created,
        "fence": step.fence,
        "status": int(step.status),
        "first_seq": step.first_seq,
        "messages": step.messages,
    }


def agent_of(document: Document) -> AgentRecord:
    """The agent in a document."""
    return AgentRecord(
        document["tenant"],
        document["agent"],
        document["version"],
        document["updated"],
        decode_policy(document["policy"]),
        # The version before knew none.
        decode_settings(document.get("settings") or "{}"),
    )


def fields_of_agent(record: AgentRecord) -> Document:
    """What a document holds of an agent's settings."""
    return {
        "version": record.version,
        "updated": record.updated,
        "policy": encode_policy(record.policy),
        "settings": encode_settings(record.settings),
    }


def file_of(key: FileKey, document: Document) -> StoredFile:
    """The memory file in a document with FILE_FIELDS."""
    return StoredFile(
        key,
        document["incarnation"],
        file_version_of(document),
        bytes(document["content"]),
        document["requests"],
    )


def file_version_of(document: Document) -> FileVersion:
    """What a document with FILE_VERSION_FIELDS tells of a version."""
    number, digest, size, author, created = (document[name] for name in FILE_VERSION_FIELDS)
    return FileVersion(int(number), digest, size, author, int(created))


def file_versions_of(document: Document) -> list[FileVersion]:
    """What a document with TOLD_FIELDS tells of the versions of a memory file, oldest first."""
    return [*map(file_version_of, document["earlier"]), file_version_of(document)]


def document_of_file(file: StoredFile) -> Document:
    """The document of a memory file that begins."""
    key = file.key
    return {"_id": file_id(key), **fields_of_owner(key.owner), "name": key.name, **fields_of_file(file, ())}


def fields_of_file(file: StoredFile, earlier: Sequence[FileVersion]) -> Document:
    """What changes in the document of a memory file with a new version; `earlier`: those that stay, oldest first."""
    return {
        "incarnation": file.incarnation,
        **msgspec.structs.asdict(file.version),
        "content": Binary(file.content),
        "requests": file.requests,
        "earlier": [msgspec.structs.asdict(version) for version in earlier],
    }


def document_of_file_version(owner: FileOwner, incarnation: str, version: int, content: bytes) -> Document:
    """The document of an earlier version of a memory file."""
    return {
        "_id": file_version_id(incarnation, version),
        **fields_of_owner(owner),
        "incarnation": incarnation,
        "content": Binary(content),
    }


def fields_of_owner(owner: FileOwner) -> Document:
    """Whose a memory file, or a version of one, is."""
    return {"tenant": owner.tenant, "tier": int(owner.tier), "owner": owner.id}


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
        "abandon_at": record.abandon_at,
        "claimable_at": min(
            (link.state.claimable_at for link in record.runs if link.state.claimable_at is not None), default=None
        ),
        "record": encode_record(record).decode(),
    }
