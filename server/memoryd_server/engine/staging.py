"""What forks and copies of sessions share: both read a history page by page, and stage it where nobody sees it before
it is complete.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import msgspec

from memoryd_server import limits
from memoryd_server.engine import replay
from memoryd_server.engine.runtime import Runtime
from memoryd_server.stores.base import HistoryStore, MessagePage, MessageQuery
from memoryd_server.stores.records import (
    Lookup,
    LookupKind,
    Record,
    SessionKey,
    StoredMessage,
    StoredSummary,
    SummaryLink,
    Usability,
)


class SourceChanged(Exception):
    """The session is gone, is another one of its name, or lost messages since it was looked at."""


class Reads(Protocol):
    """Where a history is read: a store, or what a caller may see of it."""

    async def list_messages(self, key: SessionKey, query: MessageQuery) -> MessagePage | None:
        """See `HistoryStore.list_messages`."""

    async def read_summaries(
        self, key: SessionKey, incarnation: str, numbers: Sequence[int]
    ) -> tuple[Record, Sequence[StoredSummary]] | None:
        """See `HistoryStore.read_summaries`."""


@dataclass(slots=True)
class Staging:
    """A staging of a store."""

    runtime: Runtime
    name: str
    adopted: bool = False
    """Whether it is a session's now."""

    async def add(self, messages: Sequence[StoredMessage], lookups: Sequence[Lookup] = ()) -> None:
        """Adds to it. Raises: StagingLost, StoreUnavailable."""
        await self.runtime.store.stage(self.name, messages, lookups, _due(self.runtime))


@asynccontextmanager
async def staging(runtime: Runtime, tenant: str, user_id: str) -> AsyncIterator[Staging]:
    """A new staging, which is given up at the end unless it became a session's. Raises: StoreUnavailable."""
    staged = Staging(runtime, await runtime.store.begin_staging(tenant, user_id, _due(runtime)))
    try:
        yield staged
    finally:
        if not staged.adopted:
            await runtime.store.end_staging(staged.name)


def _due(runtime: Runtime) -> int:
    return runtime.clock.now() + limits.STAGING_SECONDS * 1_000_000


async def history(
    reads: Reads,
    key: SessionKey,
    source: Record,
    from_seq: int,
    to_seq: int,
    limit: int | None = None,
    open_heads: frozenset[int] | None = None,
) -> AsyncIterator[Sequence[StoredMessage]]:
    """Pages of a session's messages as they were when its record was `source`, although it may go on meanwhile.

    `limit`: the most messages of a page; by default `limits.STAGING_BATCH`. `open_heads`: the groups that waited for an
    answer then; by default those of the record.

    Raises: SourceChanged, StoreUnavailable.
    """
    if open_heads is None:
        open_heads = frozenset(group.head for group in source.open_state.groups)
    low = max(from_seq, source.first_seq)
    while low <= to_seq:
        query = MessageQuery(
            low, to_seq, descending=False, limit=limit or limits.STAGING_BATCH, bytes=limits.MAX_GROUP_COMMIT_BYTES
        )
        page = await reads.list_messages(key, query)
        if page is None or not is_same_history(page.record, source):
            raise SourceChanged
        if page.messages:
            yield [_reopened(message) if message.head in open_heads else message for message in page.messages]
        if not page.more:
            return
        low = page.messages[-1].seq + 1


async def read_summaries(
    reads: Reads, key: SessionKey, source: Record, links: Sequence[SummaryLink]
) -> Sequence[StoredSummary]:
    """Summaries of a session as it was when its record was `source`. Raises: SourceChanged, StoreUnavailable."""
    if not links:
        return ()
    read = await reads.read_summaries(key, source.incarnation, [link.number for link in links])
    if read is None or not is_same_history(read[0], source) or len(read[1]) != len(links):
        raise SourceChanged
    return read[1]


def _reopened(message: StoredMessage) -> StoredMessage:
    if message.usability is Usability.OPEN:
        return message
    return msgspec.structs.replace(message, usability=Usability.OPEN)


def is_same_history(record: Record, other: Record) -> bool:
    """Whether one of the records is a later state of the other, and nothing was taken away in between."""
    return (record.incarnation, record.epoch) == (other.incarnation, other.epoch)


async def message_lookups(store: HistoryStore, key: SessionKey, messages: Sequence[StoredMessage]) -> Sequence[Lookup]:
    """The look-ups of messages: ids find them in a copy, and a repeated append to it is recognized. None of another
    message with the same id, which an earlier life had. Raises: StoreUnavailable.
    """
    seq_of = {message.id: message.seq for message in messages}
    found = await store.find(key, LookupKind.MESSAGE, list(seq_of))
    return [
        lookup for lookup in found if any(appended.seq == seq_of[lookup.id] for appended in replay.answer_of(lookup))
    ]
