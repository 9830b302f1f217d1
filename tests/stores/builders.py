"""Builders of what the store tests commit and ask for."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from memoryd_server.stores.base import (
    Change,
    Committed,
    Deleted,
    Due,
    Loaded,
    MessagePage,
    MessageQuery,
    SessionQuery,
    Store,
    Tail,
)
from memoryd_server.stores.records import (
    Covered,
    Entry,
    Event,
    EventKind,
    Lookup,
    LookupKind,
    OpenCall,
    OpenGroup,
    OpenState,
    Record,
    RemovedRange,
    Role,
    RunState,
    RunStatus,
    SessionKey,
    StoredMessage,
    StoredStep,
    StoredSummary,
    SummaryLink,
    Usability,
    encode_open,
    replace,
)
from memoryd_server.stores.walk import bare

TIME = 1_700_000_000_000_000
"""Some microsecond."""

BOTH = (Usability.USABLE, Usability.OPEN)
USABLE = (Usability.USABLE,)
EVERY = tuple(Usability)


def message(seq: int, **fields: Any) -> StoredMessage:
    """A message with the given seq; what is not given makes a plain one of 10 tokens and 100 bytes."""
    return StoredMessage(
        **{
            "seq": seq,
            "head": seq,
            "position": 0,
            "usability": Usability.USABLE,
            "role": Role.USER,
            "tokens": 10,
            "size": 100,
            "calls": 0,
            "answers": (),
            "prior_user": 0,
            "id": f"message-{seq}",
            "name": None,
            "content": f'[{{"text":"message {seq}"}}]',
            "run_id": "",
            "metadata": "",
            "extra": "",
            "created": TIME + seq,
            **fields,
        }
    )


def call(seq: int, calls: int = 1, **fields: Any) -> StoredMessage:
    """An assistant message with calls: the head of a group, usable unless told otherwise."""
    return message(seq, **{"role": Role.ASSISTANT, "calls": calls, **fields})


def result(seq: int, head: int, index: int = 0, **fields: Any) -> StoredMessage:
    """The answer to a call of the group with the given head."""
    return message(seq, **{"role": Role.TOOL, "head": head, "position": 1 + index, "answers": (index,), **fields})


def orphan(seq: int, **fields: Any) -> StoredMessage:
    """A result without a call."""
    return message(seq, **{"role": Role.TOOL, "usability": Usability.ORPHAN, "answers": (-1,), **fields})


def lookup(id_: str, kind: LookupKind = LookupKind.MESSAGE, digest: bytes = b"digest") -> Lookup:
    return Lookup(kind, id_, digest, f'["answer to {id_}"]', TIME)


def summary(number: int, **fields: Any) -> StoredSummary:
    """A summary; what is not given makes a plain one of one message."""
    return StoredSummary(
        **{
            "number": number,
            "previous": number - 1,
            "text": f"summary {number}",
            "from_seq": number,
            "to_seq": number,
            "messages": 1,
            "summarizer": "extractive",
            "model": "extractive-1",
            "created": TIME,
            "duration": 1_000,
            "input_tokens": 10,
            "output_tokens": 5,
            **fields,
        }
    )


def link(number: int, **fields: Any) -> SummaryLink:
    """What the record knows of a summary of the first messages."""
    return SummaryLink(
        **{
            "number": number,
            "from_seq": 1,
            "to_head": number,
            "to_seq": number,
            "pinned_to": 0,
            "tokens": 10,
            "size": 100,
            "messages": number,
            "stored": Covered(number, 10 * number, 100 * number),
            **fields,
        }
    )


def summaries(*numbers: int) -> dict[str, Any]:
    """The fields of a commit after which a session has these summaries, all of them new."""
    return {
        "new_summaries": tuple(map(summary, numbers)),
        "summaries": tuple(map(link, numbers)),
        "last_summary": max(numbers),
    }


def run_state(status: RunStatus = RunStatus.RUNNING, **fields: Any) -> RunState:
    """The state of a run; what is not given makes one that has just begun."""
    return RunState(**{"status": status, "version": 1, "fence": 1, "steps": 0, "updated": TIME, **fields})


def step(run_id: str, number: int, **fields: Any) -> StoredStep:
    """A step of a run; what is not given makes a small one."""
    return StoredStep(
        **{
            "run_id": run_id,
            "number": number,
            "payload": b"step %d" % number,
            "content_type": "text/plain",
            "created": TIME + number,
            "fence": (1 << 40) + number,
            "status": RunStatus.AWAITING_BUDGET,
            "first_seq": (1 << 41) + number,
            "messages": number,
            **fields,
        }
    )


def new_incarnation() -> str:
    return secrets.token_hex(16)


def new_record(**fields: Any) -> Record:
    """The record of a session at its birth."""
    return Record(
        **{
            "incarnation": new_incarnation(),
            "version": 1,
            "tokenizer": "o200k_base",
            "created": TIME,
            "activity": TIME,
            **fields,
        }
    )


def open_calls(calls: int, first: int = 1) -> dict[str, Any]:
    """The fields of a record with so many calls that wait for results, one a message from `first` on."""
    heads = range(first, first + calls)
    waiting = tuple(OpenCall(f"=call-{head:028}", head, (0,)) for head in heads)
    groups = tuple(OpenGroup(head, 1, 10, 1, lost=False) for head in heads)
    return {"open": encode_open(OpenState(waiting, groups)), "open_call_count": calls}


def event(number: int, **fields: Any) -> Event:
    """What happened with the commit that made the given version of the record; what is not given makes a clear."""
    return Event(
        **{
            "number": number,
            "kind": EventKind.CLEARED,
            "after_seq": 1,
            "from_seq": 1,
            "to_seq": 1,
            "messages": 1,
            "epoch": 2,
            "created": TIME + number,
            **fields,
        }
    )


ROWS = (
    "replaced",
    "completed",
    "reopened",
    "events",
    "new_summaries",
    "dropped_summaries",
    "changed_runs",
    "new_steps",
    "staging",
    "lookups",
)
"""What a change may hold beside the record and new messages."""


def birth(key: SessionKey, *messages: StoredMessage, **fields: Any) -> Change:
    """The change that makes a session; fields are those of a change (`ROWS`) and of its record."""
    return _begin(key, None, messages, fields)


def rebirth(key: SessionKey, record: Record, *messages: StoredMessage, **fields: Any) -> Change:
    """The change that ends the life with the given record and begins the next."""
    return _begin(key, record, messages, fields)


def death(key: SessionKey, record: Record) -> Change:
    """The change that ends the life with the given record."""
    return Change(key, record, None)


def change_of(key: SessionKey, record: Record, *messages: StoredMessage, **fields: Any) -> Change:
    """A change that rests on the given record; fields are those of a change (`ROWS`) and of its new record."""
    rows, changed = _parted(fields)
    successor = replace(record, **{"version": record.version + 1, **grown(record, messages), **changed})
    return Change(key, record, successor, messages, **rows)


def _begin(
    key: SessionKey, previous: Record | None, messages: Sequence[StoredMessage], fields: dict[str, Any]
) -> Change:
    rows, changed = _parted(fields)
    record = new_record(**{**grown(Record("", 0, "", 0, 0), messages), **changed})
    return Change(key, previous, record, messages, **rows)


def _parted(fields: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    rows = {name: value for name, value in fields.items() if name in ROWS}
    return rows, {name: value for name, value in fields.items() if name not in ROWS}


def born(change: Change) -> Record:
    """The record that a change makes."""
    assert change.record is not None
    return change.record


def grown(record: Record, messages: Collection[StoredMessage]) -> dict[str, Any]:
    """What the record counts once it has these messages too."""
    return {
        "last_seq": max([record.last_seq, *(m.seq for m in messages)]),
        "largest": max([record.largest, *(m.size for m in messages)]),
        "messages": record.messages + len(messages),
        "tokens": record.tokens + sum(m.tokens for m in messages),
        "bytes": record.bytes + sum(m.size for m in messages),
    }


@dataclass
class Session:
    """A session of a store, as a test makes and changes it."""

    store: Store
    key: SessionKey
    record: Record | None = None

    async def commit(self, *messages: StoredMessage, **fields: Any) -> Record:
        """Commits the session's birth or its next change, which must succeed."""
        if self.record is None:
            return await self._make(birth(self.key, *messages, **fields))
        return await self._make(change_of(self.key, self.record, *messages, **fields))

    async def be_reborn(self, *messages: StoredMessage, **fields: Any) -> Record:
        """Commits the end of the session's life and the begin of its next one."""
        assert self.record is not None
        return await self._make(rebirth(self.key, self.record, *messages, **fields))

    async def die(self) -> Record:
        """Commits the end of the session's life. Returns: the record that it had."""
        assert self.record is not None
        last, self.record = self.record, None
        assert await self.store.commit([death(self.key, last)]) == [Committed()]
        return last

    async def _make(self, change: Change) -> Record:
        assert await self.store.commit([change]) == [Committed()]
        self.record = born(change)
        return self.record

    async def remove(self, from_seq: int, to_seq: int, removed_at: int = TIME) -> Record:
        """Takes messages away, without purging them."""
        assert self.record is not None
        return await self.commit(removed=(*self.record.removed, RemovedRange(from_seq, to_seq, removed_at)))

    async def load(self, **arguments: Any) -> Loaded:
        """Loads a tail: by default, all that is usable, bare."""
        tail = Tail(**{"usabilities": USABLE, "messages": 1_000_000, **arguments})
        loaded = await self.store.load(self.key, tail)
        assert loaded is not None
        return loaded

    async def tail(self, **arguments: Any) -> list[int]:
        """The seqs of a loaded tail."""
        return seqs((await self.load(**arguments)).tail)

    async def opening(self, **arguments: Any) -> list[int]:
        """The seqs of a loaded opening."""
        return seqs((await self.load(opening=True, **arguments)).opening)

    async def page(self, **arguments: Any) -> MessagePage:
        """A page of messages: by default, of all of them."""
        query = MessageQuery(
            **{
                "from_seq": 1,
                "to_seq": 1_000_000_000,
                "descending": False,
                "limit": 1_000_000,
                "bytes": 1 << 40,
                **arguments,
            }
        )
        page = await self.store.list_messages(self.key, query)
        assert page is not None
        return page

    async def stored(self) -> Sequence[StoredMessage]:
        """All messages that are not removed, by seq."""
        return (await self.page()).messages


def seqs(entries: Iterable[Entry]) -> list[int]:
    return [entry.seq for entry in entries]


async def listed(store: Store, page_size: Any = 1000, **conditions: Any) -> list[str]:
    """The ids of all listed sessions, page by page."""
    query = {"tenant": "tenant", "agent": None, "user_id": None, **conditions}
    ids: list[str] = []
    after = ""
    while True:
        page = await store.list_sessions(SessionQuery(**query, limit=page_size, after=after))
        assert len(page.sessions) <= page_size
        ids += [key.session_id for key, _ in page.sessions]
        after = page.after
        if not after:
            return ids
        assert len(page.sessions) == page_size


async def due_sessions(store: Store, due: Due, before: int = 1 << 62, page_size: int = 1000) -> list[SessionKey]:
    """The keys of all sessions that are due, page by page."""
    keys: list[SessionKey] = []
    after = ""
    while True:
        page = await store.list_due(due, before, page_size, after)
        assert len(page.keys) <= page_size
        keys += page.keys
        after = page.after
        if not after:
            return keys
        assert len(page.keys) == page_size


async def swept(store: Store, seconds: float, limit: int = 1000) -> Deleted:
    """What sweeps delete, until one finds nothing, as if so many seconds had gone by."""
    now = await store.now() + int(seconds * 1_000_000)
    total = Deleted()
    while (deleted := await store.sweep(now, limit)).total:
        total += deleted
    return total


async def erased(store: Store, user_id: str, tenant: str = "tenant", limit: int = 1000) -> Deleted:
    """What erasing deletes, until it finds nothing."""
    total = Deleted()
    while (deleted := await store.erase(tenant, user_id, limit)).total:
        total += deleted
    return total


def undoable(stored: StoredMessage) -> Entry:
    """The entry of a message as `list_entries` answers it."""
    return msgspec.structs.replace(bare(stored), undo=stored.undo)
