"""The deletion of runs, of those that have ended and of those of dead lives.

A run is hidden first, by one change of its document: it is in no list any more, and of what was said of it nothing is
left. Then its steps go, in turns. What is left of the document keeps its place from being taken by who is late (see
`redo`) until nobody can be; then a sweep deletes that too, and what came late of the steps. A run that begins in its
place meanwhile is a newer one: of what it brings nothing is older than the version under which the other was hidden.
"""

from __future__ import annotations

import asyncio
from typing import Final

from memoryd_server.stores.base import RunName, StoreUnavailable
from memoryd_server.stores.mongodb.clock import date_of
from memoryd_server.stores.mongodb.database import Database, Deletion
from memoryd_server.stores.mongodb.documents import HIDDEN_RUN, Document
from memoryd_server.stores.mongodb.layout import RUNS, STEPS, Leaving, run_id_of
from memoryd_server.stores.mongodb.sessions import Session, Sessions

ATTEMPTS: Final = 5
"""How often a run is looked at whose session others keep changing."""

PAGE: Final = 50
"""Runs that are looked at together."""

_FIELDS: Final = ("home", "life", "run", "ended", "written", "leaving")
_TRACE_FIELDS: Final = ("_id", *_FIELDS)
_BY_NUMBER: Final = (("run", 1), ("number", 1))
_BY_AGE: Final = (("hidden_at", 1),)
_CHANGING: Final = "The session changed again and again while its run was to be deleted. Repeat the call."


class RunDeletion:
    """Deletes runs with their steps."""

    def __init__(self, database: Database, sessions: Sessions) -> None:
        self._database = database
        self._sessions = sessions

    async def delete(self, name: RunName, limit: int) -> int:
        """See `RunStore.delete_run`."""
        for _ in range(ATTEMPTS):
            session = await self._sessions.read(name.key)
            if session is None or session.incarnation != name.incarnation:
                return 0
            session = await self._sessions.settle(session)
            home, life = session.place
            named = {"_id": run_id_of(home, life, name.run_id), "home": home}
            run = await self._database.find_one(RUNS, named, fields=_FIELDS)
            if run is None or run.get("leaving") == Leaving.TRACE:
                return 0
            if run.get("leaving") == Leaving.STEPS:
                return await self._shorten(run, limit)
            if run.get("ended") is None:
                return 0
            hidden = await self._hide(session, named, run)
            if hidden is not None:
                return 1 + (await self._shorten(hidden, limit - 1) if limit > 1 else 0)
        raise StoreUnavailable(_CHANGING)

    async def _hide(self, session: Session, named: Document, run: Document) -> Document | None:
        """Hides a run as it was read. Returns: what is left of it; None when it or its session is another by now."""
        # Else what the document carries would bring the run back once its trace is gone.
        if not await self._sessions.lighten(session.key, session.settled):
            return None
        same = {**named, "written": run["written"], "leaving": None}
        hidden = {**HIDDEN_RUN, "written": session.version}
        if not await self._database.update(RUNS, same, {"$set": hidden, "$currentDate": {"hidden_at": True}}):
            return None
        return {**run, **hidden}

    async def go_on(self, limit: int) -> int:
        """Deletes up to `limit` steps of hidden runs whose deletion was left half way. Returns: how many."""
        deleted = 0
        leaving = {"leaving": int(Leaving.STEPS)}
        while deleted < limit:
            found = await self._database.find(RUNS, leaving, fields=_FIELDS, order=_BY_AGE, limit=PAGE)
            for run in found:
                if deleted < limit:
                    deleted += await self._shorten(run, limit - deleted)
            if deleted or not found:
                break
        return deleted

    async def forget_deleted(self, before: int, limit: int) -> None:
        """Deletes up to about `limit` traces of runs that were hidden before the given time, in microseconds since the
        Unix epoch, and what came late of their steps.
        """
        old = {"leaving": int(Leaving.TRACE), "hidden_at": {"$lt": date_of(before)}}
        for _ in range(0, limit, PAGE):
            found = await self._database.find(RUNS, old, fields=_TRACE_FIELDS, order=_BY_AGE, limit=PAGE)
            if found:
                await asyncio.gather(*(self._database.delete(STEPS, _steps_of(run)) for run in found))
                await self._database.delete(RUNS, {"_id": {"$in": [run["_id"] for run in found]}, **old})
            if len(found) < PAGE:
                break

    async def delete_steps_of_life(self, home: str, life: int, limit: int) -> Deletion:
        """Deletes up to `limit` steps of a dead life."""
        return await self._database.delete_some(STEPS, {"home": home, "life": life}, limit, _BY_NUMBER)

    async def delete_of_life(self, home: str, life: int, limit: int) -> Deletion:
        """Deletes up to `limit` runs of a dead life. Those that were hidden are none any more."""
        of_life = {"home": home, "life": life}
        found = await self._database.find(RUNS, of_life, fields=("_id", "leaving"), limit=limit)
        counts = []
        for is_hidden in (True, False):
            ids = [run["_id"] for run in found if (run.get("leaving") is not None) == is_hidden]
            named = {"_id": {"$in": ids}, "home": home}
            counts.append(await self._database.delete(RUNS, named) if ids else 0)
        return Deletion(counts[-1], is_complete=len(found) < limit)

    async def _shorten(self, run: Document, limit: int) -> int:
        """Deletes up to `limit` steps of a hidden run, the oldest first. Returns: how many; 0 only when none is left.

        The order is what `runs` tells a run by that is deleted while its steps are read.
        """
        while True:
            steps = await self._database.delete_some(STEPS, _steps_of(run), limit, _BY_NUMBER[1:])
            if steps.is_complete:
                named = {"_id": run_id_of(run["home"], run["life"], run["run"]), "home": run["home"]}
                same = {**named, "written": run["written"], "leaving": int(Leaving.STEPS)}
                await self._database.update(RUNS, same, {"$set": {"leaving": int(Leaving.TRACE)}})
            if steps.rows or steps.is_complete:
                return steps.rows


def _steps_of(run: Document) -> Document:
    """The filter for the steps of a hidden run, and not for those of one that began in its place."""
    of_run = {"home": run["home"], "life": run["life"], "run": run["run"]}
    return {**of_run, "number": {"$gte": 0}, "written": {"$lte": run["written"]}}
