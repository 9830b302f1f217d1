"""Sessions as they are stored: their documents, and the writing out of what these carry."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from memoryd_server.stores.base import StoreUnavailable
from memoryd_server.stores.mongodb import redo
from memoryd_server.stores.mongodb.database import Database, Order
from memoryd_server.stores.mongodb.documents import KEY_FIELDS, Document, key_of
from memoryd_server.stores.mongodb.layout import (
    CARRIED_RUNS,
    EVENTS,
    HISTORY,
    RUNS,
    SESSIONS,
    STEPS,
    SUMMARIES,
    CarriedRuns,
    session_id,
)
from memoryd_server.stores.mongodb.openings import OPENING
from memoryd_server.stores.mongodb.redo import HELP_SECONDS, CarriedRun, Part
from memoryd_server.stores.records import Record, SessionKey, decode_record

REMEMBERED: Final = 8_192
"""Sessions of which it is remembered that all of a version is written out."""

FEW_DOCUMENTS: Final = 16
"""So many are inserted with the command that changes others; more of them are faster with one of their own."""

MOST_UPDATES: Final = 32
"""So many are carried out with one command, which must end in time."""

PAGE: Final = 50
"""Sessions that are written out together."""

_FIELDS: Final = ("home", "life", "incarnation", "version", "epoch", "record", "redo", "ended_life")
_OUTLINE_FIELDS: Final = (*KEY_FIELDS, "home", "life", "incarnation", "version", CARRIED_RUNS)
_BY_HOME: Final = (("home", 1),)
_TOO_LATE: Final = "The database was too slow for a change of this session to be completed. Repeat the call."


class Place(NamedTuple):
    """Where the documents of a life are."""

    home: str
    life: int


class Settled(NamedTuple):
    """A version of a living session of which all is written out."""

    incarnation: str
    version: int
    place: Place


@dataclass(frozen=True)
class Session:
    """A living session's document."""

    key: SessionKey
    incarnation: str
    version: int
    epoch: int
    place: Place
    text: str
    """Its record, encoded."""
    pending: Sequence[Part]
    """What may not be written out yet."""
    tells_of_another: bool
    """Whether its document tells of a life that ended before, of which there may be no leftover yet."""
    opening: Mapping[str, Any] | None
    """The copy of its opening, where it was asked for (see `openings`)."""
    read_at: float = field(default_factory=time.monotonic)

    @cached_property
    def record(self) -> Record:
        return decode_record(self.text)

    @property
    def settled(self) -> Settled:
        """Its version, once that is all written out."""
        return Settled(self.incarnation, self.version, self.place)


class Outline(NamedTuple):
    """What lists of runs know of a living session."""

    key: SessionKey
    incarnation: str
    place: Place
    carries_runs: bool
    """Whether its document carries runs that may not be written out."""


@dataclass(frozen=True)
class DeadName:
    """The document of a name without a life."""

    key: SessionKey
    place: Place
    """Of its last life."""


class Sessions:
    """Reads the documents of sessions, and writes out what they carry."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._settled: OrderedDict[SessionKey, Settled] = OrderedDict()

    async def read(self, key: SessionKey, *, opening: bool = False) -> Session | None:
        """The session, with the copy of its opening or without; None when there is none that lives."""
        found = await self.find(key, opening=opening)
        return found if isinstance(found, Session) else None

    async def find(self, key: SessionKey, *, opening: bool = False) -> Session | DeadName | None:
        """What the name leads to."""
        fields = (*_FIELDS, OPENING) if opening else _FIELDS
        document = await self._database.find_one(SESSIONS, {"_id": session_id(key)}, fields=fields)
        if document is None:
            return None
        if document["incarnation"] is None:
            return DeadName(key, _place_of(document))
        return self._living(key, document)

    async def outlines(self, filter: Document, order: Order = (), limit: int = 0) -> list[tuple[Document, Outline]]:
        """Those of some documents, which hold the fields of the order besides, that are of living sessions."""
        fields = (*_OUTLINE_FIELDS, *(name for name, _ in order))
        found = await self._database.find(SESSIONS, filter, fields=fields, order=order, limit=limit)
        outlined = [(document, self._outline(document)) for document in found]
        return [(document, outline) for document, outline in outlined if outline is not None]

    async def carried_runs(self, outlines: Iterable[Outline]) -> dict[Place, dict[str, CarriedRun]]:
        """What living sessions carry of runs, by their ids. Takes a command when some of them carry any."""
        ids = [session_id(outline.key) for outline in outlines if outline.carries_runs]
        if not ids:
            return {}
        fields = (*KEY_FIELDS, *_FIELDS)
        found = await self._database.find(SESSIONS, {"_id": {"$in": ids}}, fields=fields)
        living = [self._living(key_of(document), document) for document in found if document["incarnation"]]
        return {session.place: redo.carried_runs(session.pending) for session in living}

    async def enlist_runs(self, tenant: str, agent: str) -> None:
        """Writes out what sessions of an agent carry that moves runs between lists. There is little of it: what servers
        are about to write out themselves, or were when they ended.
        """
        of_agent: Document = {"tenant": tenant, "agent": agent, CARRIED_RUNS: int(CarriedRuns.PLACES)}
        fields = (*KEY_FIELDS, *_FIELDS)
        home = ""
        while True:
            behind = {**of_agent, "home": {"$gt": home}}
            found = await self._database.find(SESSIONS, behind, fields=fields, order=_BY_HOME, limit=PAGE)
            sessions = [self._living(key_of(document), document) for document in found]
            await asyncio.gather(*map(self._settle_and_lighten, sessions))
            if len(found) < PAGE:
                return
            home = found[-1]["home"]

    async def _settle_and_lighten(self, session: Session) -> None:
        await self.settle(session)
        await self.lighten(session.key, session.settled)

    async def is_alive(self, session: Session) -> bool:
        """Whether the session's life goes on."""
        same = {"_id": session_id(session.key)}
        document = await self._database.find_one(SESSIONS, same, fields=("incarnation",))
        return document is not None and document["incarnation"] == session.incarnation

    async def has_kept(self, session: Session) -> bool:
        """Whether nothing has been taken away from the session since it was read. What has been added to it, or turned
        usable, bears the stamp of a later version.
        """
        same = {"_id": session_id(session.key)}
        document = await self._database.find_one(SESSIONS, same, fields=("incarnation", "version", "epoch"))
        return (
            document is not None
            and document["incarnation"] == session.incarnation
            and (document["version"] == session.version or document["epoch"] == session.epoch)
        )

    def settled(self, key: SessionKey) -> Settled | None:
        """The version of a session that is known to be all written out, if it still is the session's."""
        return self._settled.get(key)

    def remember(self, key: SessionKey, settled: Settled) -> None:
        """From now on, this version of the session is known to be all written out."""
        self._settled[key] = settled
        self._settled.move_to_end(key)
        if len(self._settled) > REMEMBERED:
            self._settled.popitem(last=False)

    def forget(self, key: SessionKey) -> None:
        self._settled.pop(key, None)

    async def settle(self, session: Session) -> Session:
        """Writes out what the session carries, unless it is known to be.

        Returns: the session, with nothing pending.
        Raises: StoreUnavailable, also when the session was read too long ago for that.
        """
        if session.pending:
            if time.monotonic() - session.read_at > HELP_SECONDS:
                raise StoreUnavailable(_TOO_LATE)
            await self.write_out(session.key, session.place, session.pending)
        self.remember(session.key, session.settled)
        return replace(session, pending=())

    async def lighten(self, key: SessionKey, settled: Settled) -> bool:
        """Takes what is written out away from the session's document, so that nobody reads it along any more.

        Returns: False when the session has changed meanwhile.
        """
        same = {"_id": session_id(key), "incarnation": settled.incarnation, "version": settled.version}
        return bool(await self._database.update(SESSIONS, same, {"$set": {"redo": None, CARRIED_RUNS: None}}))

    async def write_out(self, key: SessionKey, place: Place, parts: Sequence[Part]) -> None:
        """Writes out the redo of a life; see `redo`. What goes to several collections is written at once."""
        ways = [self._write_history(place, parts)]
        if events := redo.event_documents(*place, parts):
            ways.append(self._database.add(EVENTS, events))
        if summaries := redo.summary_updates(*place, parts):
            ways.append(self._write(SUMMARIES, summaries))
        if runs := redo.run_updates(key, *place, parts):
            ways.append(self._write(RUNS, runs))
        if steps := redo.step_documents(*place, parts):
            ways.append(self._database.add(STEPS, steps))
        for failure in await asyncio.gather(*ways, return_exceptions=True):
            if failure is not None:
                raise failure

    async def _write_history(self, place: Place, parts: Sequence[Part]) -> None:
        documents = redo.history_documents(*place, parts)
        updates = redo.history_updates(*place, parts)
        if updates and len(documents) <= FEW_DOCUMENTS:
            updates = [*redo.insertions(documents), *updates]
        elif documents:
            await self._database.add(HISTORY, documents)
        await self._write(HISTORY, updates)

    async def _write(self, collection: str, updates: Sequence[Any]) -> None:
        for start in range(0, len(updates), MOST_UPDATES):
            await self._database.write(collection, updates[start : start + MOST_UPDATES])

    def _outline(self, document: Document) -> Outline | None:
        key, incarnation, place = key_of(document), document["incarnation"], _place_of(document)
        if incarnation is None:
            return None
        carries_runs = document.get(CARRIED_RUNS) is not None and not self._is_settled(key, document)
        return Outline(key, incarnation, place, carries_runs)

    def _is_settled(self, key: SessionKey, document: Document) -> bool:
        version = Settled(document["incarnation"], document["version"], _place_of(document))
        return self._settled.get(key) == version

    def _living(self, key: SessionKey, document: Document) -> Session:
        return Session(
            key=key,
            incarnation=document["incarnation"],
            version=document["version"],
            epoch=document["epoch"],
            place=_place_of(document),
            text=document["record"],
            pending=() if self._is_settled(key, document) else redo.decode(document["redo"]),
            tells_of_another=document["ended_life"] is not None,
            opening=document.get(OPENING),
        )


def _place_of(document: Document) -> Place:
    return Place(document["home"], document["life"])
