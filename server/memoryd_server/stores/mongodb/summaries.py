"""The documents of summaries, which stand beside the record that knows them.

A summary is one of its session's as long as the record has its number, and no number is used twice in a life: so a
document needs no stamp, and what the record does not know is passed over. One that is dropped leaves its place taken
until nobody can be writing it any more (see `redo`), without its text; then a sweep deletes that too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from memoryd_server.stores.mongodb.clock import date_of
from memoryd_server.stores.mongodb.database import Database
from memoryd_server.stores.mongodb.documents import DROPPED_AT, summary_text_of
from memoryd_server.stores.mongodb.layout import SUMMARIES, numbered_id
from memoryd_server.stores.mongodb.sessions import Session
from memoryd_server.stores.records import StoredSummary, decode_summary

_FIELDS: Final = ("number", "summary")
_IDS: Final = ("_id",)
_BY_DROP: Final = ((DROPPED_AT, 1),)


class Summaries:
    """Reads and deletes them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, session: Session, numbers: Iterable[int]) -> dict[int, StoredSummary] | None:
        """Those of some summaries that the session's record knows, by number, in the order of `numbers`; None when the
        session has changed meanwhile. Takes a command, unless the session carries all of them.
        """
        known = {link.number for link in session.record.summaries}
        wanted = [number for number in dict.fromkeys(numbers) if number in known]
        texts = {number: text for part in session.pending for number, text in part.new_summaries}
        ids = [numbered_id(*session.place, number) for number in wanted if number not in texts]
        if ids:
            named = {"home": session.place.home, "_id": {"$in": ids}}
            texts |= map(summary_text_of, await self._database.find(SUMMARIES, named, fields=_FIELDS))
        if not all(texts.get(number) for number in wanted):
            return None
        return {number: decode_summary(texts[number]) for number in wanted}

    async def delete_of_life(self, home: str, life: int) -> int:
        """Deletes those of a dead life, which are at most `limits.MAX_SUMMARIES`. Returns: how many."""
        return await self._database.delete(SUMMARIES, {"home": home, "life": life, DROPPED_AT: None})

    async def delete_dropped(self, before: int, limit: int) -> None:
        """Deletes up to `limit` of what stands in the places of those that were dropped before the given time, in
        microseconds since the Unix epoch.
        """
        old = {DROPPED_AT: {"$lt": date_of(before)}}
        found = await self._database.find(SUMMARIES, old, fields=_IDS, order=_BY_DROP, limit=limit)
        if found:
            await self._database.delete(SUMMARIES, {"_id": {"$in": [document["_id"] for document in found]}})
