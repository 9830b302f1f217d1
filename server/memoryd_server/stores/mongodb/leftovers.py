"""Dead lives and stagings: from the moment when nobody can reach them until nothing of them is left."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Final

from memoryd_server import limits
from memoryd_server.stores.base import Deleted, StagingLost
from memoryd_server.stores.mongodb import redo
from memoryd_server.stores.mongodb.agents import Agents
from memoryd_server.stores.mongodb.clock import Clock
from memoryd_server.stores.mongodb.database import Database, Deletion
from memoryd_server.stores.mongodb.documents import Document
from memoryd_server.stores.mongodb.layout import (
    EVENTS,
    FIRST_LIFE,
    HISTORY,
    LEFTOVERS,
    NUMBERS,
    SESSIONS,
    LeftoverKind,
    Pile,
    leftover_id,
    numbered_range,
    session_id,
)
from memoryd_server.stores.mongodb.run_deletion import RunDeletion
from memoryd_server.stores.mongodb.summaries import Summaries
from memoryd_server.stores.records import Lookup, SessionKey, StoredMessage

PAGE: Final = 50
"""Leftovers, or names, that are looked at together."""

AT_ONCE: Final = 8
"""Homes of which something is deleted at the same time."""

LEAST_SHARE: Final = 50
"""Rows that may be deleted of each of them then."""

ADOPTION_SECONDS: Final = 60
"""How long after a staging was claimed its session may be born: longer than any call lasts."""

_MICROSECONDS: Final = 1_000_000
_IDS: Final = ("_id",)
_BY_DUE: Final = (("due", 1),)
_BY_AGE: Final = (("created", 1),)
_LOST: Final = "The copy was abandoned for too long, or its user was erased."
_ENDED_FIELDS: Final = ("_id", "tenant", "home", "ended_life", "ended_user", "ended_due")
_NOT_ENDED: Final[Document] = {"$set": {"ended_life": None, "ended_user": None, "ended_due": None}}
_NOT_ASHES: Final = [int(kind) for kind in LeftoverKind if kind is not LeftoverKind.ASHES]
_NOBODYS: Final[Document] = dict.fromkeys(("tenant", "user_id", "session"))


class Leftovers:
    """Keeps and deletes them."""

    def __init__(
        self, database: Database, agents: Agents, summaries: Summaries, runs: RunDeletion, clock: Clock
    ) -> None:
        self._database = database
        self._agents = agents
        self._summaries = summaries
        self._runs = runs
        self._clock = clock

    # Dead lives

    async def settle(self, key: SessionKey) -> None:
        """Makes a leftover of the life that ended last, if the name's document, which has room for one, tells of it."""
        document = await self._database.find_one(SESSIONS, {"_id": session_id(key)}, fields=_ENDED_FIELDS)
        if document is not None:
            await self._settle(document)

    async def settle_ended(self, key: SessionKey, home: str, ended: Document) -> None:
        """Likewise of a life of which that document was just told."""
        await self._settle({"_id": session_id(key), "tenant": key.tenant, "home": home, **ended})

    async def _settle(self, document: Document) -> None:
        """That a life is dead never changes, so that this may be done again at any time."""
        if document["ended_life"] is None:
            return
        home, life = document["home"], document["ended_life"]
        fields = {
            "home": home,
            "life": life,
            "kind": int(LeftoverKind.LIFE),
            "tenant": document["tenant"],
            "user_id": document["ended_user"],
            "due": document["ended_due"],
            "session": document["_id"],
        }
        await self._database.keep(LEFTOVERS, {"_id": leftover_id(home, life)}, fields)
        same = {"_id": document["_id"], "home": home, "ended_life": life}
        await self._database.update(SESSIONS, same, _NOT_ENDED)

    # Stagings

    async def begin_staging(self, tenant: str, user_id: str, due: int) -> str:
        """See `HistoryStore.begin_staging`."""
        home = secrets.token_hex(16)
        document = {
            "_id": leftover_id(home, FIRST_LIFE),
            "home": home,
            "life": FIRST_LIFE,
            "kind": int(LeftoverKind.STAGING),
            "tenant": tenant,
            "user_id": user_id or None,
            "due": due,
            "session": None,
            "is_partial": False,
        }
        await self._database.insert(LEFTOVERS, document)
        return home

    async def stage(self, staging: str, messages: Sequence[StoredMessage], lookups: Sequence[Lookup], due: int) -> None:
        """See `HistoryStore.stage`. What was added in part only cannot become a session's until it is added again."""
        documents = redo.staged_documents(staging, FIRST_LIFE, messages, lookups)
        partial = {"due": due, "is_partial": bool(documents)}
        if not await self._database.update(LEFTOVERS, _staging(staging), {"$set": partial}):
            raise StagingLost(_LOST)
        if documents:
            await self._database.add(HISTORY, documents)
            if not await self._database.update(LEFTOVERS, _staging(staging), {"$set": {"is_partial": False}}):
                raise StagingLost(_LOST)

    async def end_staging(self, staging: str) -> None:
        """See `HistoryStore.end_staging`."""
        await self._abandon(_staging(staging), due=0)

    async def claim(self, staging: str, key: SessionKey) -> bool:
        """Keeps everybody from a staging that is about to become the session's. False when it is gone."""
        due = await self._clock.now() + ADOPTION_SECONDS * _MICROSECONDS
        claimed = {"kind": int(LeftoverKind.ADOPTED), "session": session_id(key), "due": due}
        return bool(
            await self._database.update(LEFTOVERS, {**_staging(staging), "is_partial": False}, {"$set": claimed})
        )

    async def give_back(self, staging: str) -> None:
        """Undoes a claim, when no session was born of it."""
        claimed = {"_id": leftover_id(staging, FIRST_LIFE), "kind": int(LeftoverKind.ADOPTED)}
        await self._database.update(LEFTOVERS, claimed, {"$set": {"kind": int(LeftoverKind.STAGING), "session": None}})

    async def forget_adopted(self, staging: str) -> None:
        """Forgets a staging that is a session's."""
        adopted = {"_id": leftover_id(staging, FIRST_LIFE), "kind": int(LeftoverKind.ADOPTED)}
        await self._database.delete(LEFTOVERS, adopted)

    async def _abandon(self, filter: Document, due: int) -> bool:
        """Lets nobody add to a staging any more, nor make a session of it."""
        abandoned = {"kind": int(LeftoverKind.ABANDONED), "due": due}
        return bool(await self._database.update(LEFTOVERS, filter, {"$set": abandoned}))

    # Deleting

    async def sweep(self, now: int, limit: int) -> Deleted:
        """See `HistoryStore.sweep`."""
        deleted = Deleted()
        later = await self._later()
        await self._settle_all({"ended_due": {"$lte": now}})
        due = {"due": {"$lte": now}}
        while not deleted.total:
            found = _deletable(await self._database.find(LEFTOVERS, due, order=_BY_DUE, limit=PAGE), later)
            if not found:
                break
            deleted += await self._delete_all(found, later, limit)
        if deleted.total < limit:
            deleted += await self._delete_old_events(now - limits.EVENT_SECONDS * _MICROSECONDS, limit - deleted.total)
        if deleted.total < limit:
            deleted += Deleted(steps=await self._runs.go_on(limit - deleted.total))
        await self._runs.forget_deleted(now - limits.PURGE_DELAY_SECONDS * _MICROSECONDS, limit)
        await self._summaries.delete_dropped(now - limits.PURGE_DELAY_SECONDS * _MICROSECONDS, limit)
        old = {"died_at": {"$lt": now - limits.LOOKUP_SECONDS * _MICROSECONDS}}
        for name in await self._database.find(SESSIONS, old, fields=_IDS, limit=PAGE):
            if deleted.total < limit:
                deleted += await self._forget_name(name["_id"], later, limit - deleted.total)
        return deleted

    async def erase(self, tenant: str, user_id: str, limit: int) -> Deleted:
        """See `HistoryStore.erase`."""
        deleted = Deleted()
        later = await self._later()
        await self._settle_all({"tenant": tenant, "ended_user": user_id})
        of_user = {"tenant": tenant, "user_id": user_id}
        while not deleted.total:
            found = _deletable(await self._database.find(LEFTOVERS, of_user, limit=PAGE), later)
            if not found:
                break
            deleted += await self._delete_all(found, later, limit, forgets=True)
        return deleted

    async def _later(self) -> int:
        return await self._clock.now() + limits.PURGE_DELAY_SECONDS * _MICROSECONDS

    async def _settle_all(self, filter: Document) -> None:
        while found := await self._database.find(SESSIONS, filter, fields=_ENDED_FIELDS, limit=PAGE):
            await asyncio.gather(*map(self._settle, found))

    async def _delete_all(self, found: Sequence[Document], later: int, limit: int, *, forgets: bool = False) -> Deleted:
        """Deletes of some leftovers, of several at once where the limit leaves each a share."""
        by_home: dict[str, list[Document]] = {}
        for leftover in found:
            by_home.setdefault(leftover["home"], []).append(leftover)
        homes = list(by_home.values())
        at_once = max(1, min(AT_ONCE, limit // LEAST_SHARE))
        deleted = Deleted()
        for start in range(0, len(homes), at_once):
            if deleted.total >= limit:
                break
            share = max(1, (limit - deleted.total) // at_once)
            some = homes[start : start + at_once]
            for each in await asyncio.gather(*(self._delete_each(of, later, share, forgets) for of in some)):
                deleted += each
        return deleted

    async def _delete_each(self, of_home: Sequence[Document], later: int, limit: int, forgets: bool) -> Deleted:
        """One after the other, so that the last of a name's lives is known as that."""
        deleted = Deleted()
        for leftover in of_home:
            if deleted.total < limit:
                deleted += await self._delete(leftover, later, limit - deleted.total, forgets=forgets)
        return deleted

    async def _delete(self, leftover: Document, later: int, limit: int, *, forgets: bool) -> Deleted:
        """Deletes of a dead life or a staging; with `forgets`, look-ups of the life too, and with the last of the dead
        lives a dead name. `later`: when nobody can be writing any more.
        """
        kind, same = leftover["kind"], {"_id": leftover["_id"], "kind": leftover["kind"]}
        if kind == LeftoverKind.ADOPTED and await self._is_adopted(leftover):
            await self._database.delete(LEFTOVERS, same)
            return Deleted()
        if kind in (LeftoverKind.STAGING, LeftoverKind.ADOPTED):
            if not await self._abandon(same, due=leftover["due"]):
                return Deleted()
            kind, same = LeftoverKind.ABANDONED, {**same, "kind": int(LeftoverKind.ABANDONED)}
        home, life = leftover["home"], leftover["life"]
        messages = await self.delete_numbered(HISTORY, home, life, limit=limit)
        deleted = Deleted(messages=messages.rows)
        if not messages.is_complete:
            return deleted
        events = await self.delete_numbered(EVENTS, home, life, limit=max(1, limit - deleted.total))
        deleted += Deleted(events=events.rows)
        if not events.is_complete:
            return deleted
        deleted += Deleted(summaries=await self._summaries.delete_of_life(home, life))
        steps = await self._runs.delete_steps_of_life(home, life, max(1, limit - deleted.total))
        deleted += Deleted(steps=steps.rows)
        if not steps.is_complete:
            return deleted
        runs = await self._runs.delete_of_life(home, life, max(1, limit - deleted.total))
        deleted += Deleted(runs=runs.rows)
        if not runs.is_complete:
            return deleted
        if kind == LeftoverKind.LIFE and not forgets:
            swept = {"kind": int(LeftoverKind.SWEPT), "due": None}
            await self._database.update(LEFTOVERS, same, {"$set": swept})
            return deleted
        lookups = await self._delete_lookups(home, life, max(1, limit - deleted.total))
        deleted += Deleted(lookups=lookups.rows)
        if not lookups.is_complete:
            return deleted
        if kind == LeftoverKind.ASHES:
            await self._database.delete(LEFTOVERS, same)
            return deleted
        ashes = {**_NOBODYS, "kind": int(LeftoverKind.ASHES), "due": later}
        await self._database.update(LEFTOVERS, same, {"$set": ashes})
        if leftover["session"] is not None and kind in (LeftoverKind.LIFE, LeftoverKind.SWEPT):
            deleted += await self._forget_name(leftover["session"], later, limit - deleted.total, erases=False)
        return deleted

    async def _is_adopted(self, leftover: Document) -> bool:
        """Whether a claimed staging is a session's."""
        named = {"_id": leftover["session"], "home": leftover["home"]}
        return await self._database.find_one(SESSIONS, named, fields=("home",)) is not None

    async def _forget_name(self, id_: str, later: int, limit: int, *, erases: bool = True) -> Deleted:
        """Deletes a name, unless it lives, once nothing of its lives is left; with `erases`, what is left of them
        first.
        """
        fields = (*_ENDED_FIELDS, "agent", "life", "incarnation")
        name = await self._database.find_one(SESSIONS, {"_id": id_}, fields=fields)
        if name is None or name["incarnation"] is not None:
            return Deleted()
        await self._settle(name)
        deleted = Deleted()
        of_name = {"home": name["home"], "kind": {"$in": _NOT_ASHES}}
        lives = await self._database.find(LEFTOVERS, of_name, limit=PAGE)
        if lives:
            return deleted if not erases else await self._delete_all(lives, later, limit, forgets=True)
        await self._agents.see(name["tenant"], name["agent"])
        same = {"_id": id_, "home": name["home"], "life": name["life"], "incarnation": None}
        return Deleted(sessions=await self._database.delete(SESSIONS, same))

    async def _delete_old_events(self, before: int, limit: int) -> Deleted:
        old = {"created": {"$lt": before}}
        return Deleted(events=(await self._database.delete_some(EVENTS, old, limit, _BY_AGE)).rows)

    async def purge(self, home: str, life: int, from_seq: int, to_seq: int, limit: int) -> int:
        """Deletes up to `limit` messages of a range. Returns: how many; 0 only when none is left in it."""
        while True:
            deletion = await self.delete_numbered(HISTORY, home, life, from_seq, to_seq, limit=limit)
            if deletion.rows or deletion.is_complete:
                return deletion.rows

    async def delete_numbered(
        self, collection: str, home: str, life: int, low: int = 0, high: int = 2**63 - 1, *, limit: int
    ) -> Deletion:
        """Deletes up to `limit` messages or events of a life, the oldest first.

        The order is what `loads` tells a session by that ends while it is read.
        """
        number = NUMBERS[collection]
        in_range = numbered_range(collection, home, life, low, high)
        found = await self._database.find(collection, in_range, fields=(number,), order=((number, 1),), limit=limit)
        if not found:
            return Deletion(0, is_complete=True)
        in_range = numbered_range(collection, home, life, low, found[-1][number])
        return Deletion(await self._database.delete(collection, in_range), is_complete=len(found) < limit)

    async def _delete_lookups(self, home: str, life: int, limit: int) -> Deletion:
        of_life = {"home": home, "life": life, "pile": int(Pile.LOOKUP)}
        return await self._database.delete_some(HISTORY, of_life, limit)


def _deletable(found: Sequence[Document], later: int) -> list[Document]:
    """Those of some leftovers that nobody is about to make a session of. What was not made one in time by the store's
    own clock, whatever time a sweep is for, is nobody's. `later`: see `Leftovers._later`.
    """
    now = later - limits.PURGE_DELAY_SECONDS * _MICROSECONDS
    return [each for each in found if each["kind"] != LeftoverKind.ADOPTED or each["due"] <= now]


def _staging(staging: str) -> Document:
    return {"_id": leftover_id(staging, FIRST_LIFE), "kind": int(LeftoverKind.STAGING)}
