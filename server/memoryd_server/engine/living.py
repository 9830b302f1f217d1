"""Reads of sessions as callers may see them: an expired one is gone, swept or not (invariant 18)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from memoryd_server.engine.changes import is_expired
from memoryd_server.engine.clock import StoreClock
from memoryd_server.stores.base import (
    EventPage,
    Loaded,
    MessagePage,
    MessageQuery,
    RunPage,
    RunQuery,
    SessionPage,
    SessionQuery,
    Store,
    Tail,
)
from memoryd_server.stores.records import Entry, Record, SessionKey, StoredMessage, StoredRun, StoredSummary


class LivingSessions:
    """The reads of a store with the same answers, but for expired sessions, of which there is nothing."""

    def __init__(self, store: Store, clock: StoreClock) -> None:
        self._store = store
        self._clock = clock

    def sees(self, record: Record) -> bool:
        """Whether a session lives, by the store's clock."""
        return not record.ttl or not is_expired(record, self._clock.surely())

    def grows(self, record: Record) -> bool:
        """Whether a session may be changed: not when its time may be over, since another server, whose clock is a
        little ahead, may have told that it is gone.
        """
        return not record.ttl or not is_expired(record, self._clock.perhaps())

    async def load(self, key: SessionKey, tail: Tail | None = None) -> Loaded | None:
        loaded = await self._store.load(key, tail)
        return loaded if loaded is not None and self.sees(loaded.record) else None

    async def read(
        self, key: SessionKey, incarnation: str, seqs: Sequence[int]
    ) -> tuple[Record, Sequence[StoredMessage]] | None:
        read = await self._store.read(key, incarnation, seqs)
        return read if read is not None and self.sees(read[0]) else None

    async def list_messages(self, key: SessionKey, query: MessageQuery) -> MessagePage | None:
        page = await self._store.list_messages(key, query)
        return page if page is not None and self.sees(page.record) else None

    async def list_entries(
        self, key: SessionKey, incarnation: str, from_seq: int, to_seq: int, limit: int
    ) -> tuple[Record, Sequence[Entry]] | None:
        read = await self._store.list_entries(key, incarnation, from_seq, to_seq, limit)
        return read if read is not None and self.sees(read[0]) else None

    async def list_in_reading_order(
        self, key: SessionKey, incarnation: str, from_head: int, to_head: int, limit: int
    ) -> tuple[Record, Sequence[Entry]] | None:
        read = await self._store.list_in_reading_order(key, incarnation, from_head, to_head, limit)
        return read if read is not None and self.sees(read[0]) else None

    async def read_summaries(
        self, key: SessionKey, incarnation: str, numbers: Sequence[int]
    ) -> tuple[Record, Sequence[StoredSummary]] | None:
        read = await self._store.read_summaries(key, incarnation, numbers)
        return read if read is not None and self.sees(read[0]) else None

    async def list_events(self, key: SessionKey, incarnation: str, after: int, limit: int) -> EventPage | None:
        page = await self._store.list_events(key, incarnation, after, limit)
        return page if page is not None and self.sees(page.record) else None

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        """A page may hold fewer sessions than asked for, and still have a next one."""
        page = await self._store.list_sessions(query)
        return SessionPage([(key, record) for key, record in page.sessions if self.sees(record)], page.after)

    async def load_run(self, key: SessionKey, run_id: str) -> tuple[Record, StoredRun | None] | None:
        found = await self._store.load_run(key, run_id)
        return found if found is not None and self.sees(found[0]) else None

    async def list_runs(self, query: RunQuery) -> tuple[RunPage, Mapping[SessionKey, Record]]:
        """A page of runs, and the records of their sessions. It may hold fewer runs than asked for, and still have a
        next one.
        """
        page = await self._store.list_runs(query)
        keys = list(dict.fromkeys(key for key, _ in page.runs))
        loaded = await asyncio.gather(*map(self.load, keys))
        records = {key: found.record for key, found in zip(keys, loaded, strict=True) if found is not None}
        return RunPage([(key, run) for key, run in page.runs if key in records], page.after), records
