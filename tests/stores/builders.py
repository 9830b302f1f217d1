"""Builders of what the store tests commit and ask for."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from memoryd_server.stores.base import Change, Committed, Loaded, MessagePage, MessageQuery, Store, Tail
from memoryd_server.stores.records import (
    Entry,
    Lookup,
    LookupKind,
    Record,
    RemovedRange,
    Role,
    SessionKey,
    StoredMessage,
    Usability,
    replace,
)

TIME = 1_700_000_000_000_000
"""Some microsecond."""

BOTH = (Usability.USABLE, Usability.OPEN)
USABLE = (Usability.USABLE,)


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


def birth(key: SessionKey, *messages: StoredMessage, lookups: Sequence[Lookup] = (), **fields: Any) -> Change:
    """The change that makes a session."""
    return Change(
        key, None, new_record(**{**_grown(Record("", 0, "", 0, 0), messages), **fields}), messages, (), lookups
    )


def change_of(
    key: SessionKey,
    record: Record,
    *messages: StoredMessage,
    completed: Sequence[int] = (),
    lookups: Sequence[Lookup] = (),
    **fields: Any,
) -> Change:
    """A change that rests on the given record."""
    successor = replace(record, **{"version": record.version + 1, **_grown(record, messages), **fields})
    return Change(key, record, successor, messages, completed, lookups)


def _grown(record: Record, messages: Sequence[StoredMessage]) -> dict[str, Any]:
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

    async def commit(self, *messages: StoredMessage, **arguments: Any) -> Record:
        """Commits the session's birth or its next change, which must succeed."""
        change = (
            birth(self.key, *messages, **arguments)
            if self.record is None
            else change_of(self.key, self.record, *messages, **arguments)
        )
        assert await self.store.commit([change]) == [Committed()]
        self.record = change.record
        return change.record

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
