"""Sessions as they are stored: their documents, and the writing out of what these carry."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from memoryd_server.stores.base import StoreUnavailable
from memoryd_server.stores.mongodb import redo
from memoryd_server.stores.mongodb.database import Database
from memoryd_server.stores.mongodb.documents import Document
from memoryd_server.stores.mongodb.layout import EVENTS, HISTORY, SESSIONS, SUMMARIES, session_id
from memoryd_server.stores.mongodb.openings import OPENING
from memoryd_server.stores.mongodb.redo import HELP_SECONDS, Part
from memoryd_server.stores.records import Record, SessionKey, decode_record

REMEMBERED: Final = 8_192
"""Sessions of which it is remembered that all of a version is written out."""

FEW_DOCUMENTS: Final = 16
"""So many are inserted with the command that changes others; more of them are faster with one of their own."""

MOST_UPDATES: Final = 32
"""So many are carried out with one command, which must end in time."""

_FIELDS: Final = ("home", "life", "incarnation", "version", "epoch", "record", "redo", "ended_life")
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
            await self.write_out(session.place, session.pending)
        self.remember(session.key, Settled(session.incarnation, session.version, session.place))
        return replace(session, pending=())

    async def lighten(self, key: SessionKey, settled: Settled) -> None:
        """Takes what is written out away from the session's document, so that nobody reads it along any more."""
        same = {"_id": session_id(key), "incarnation": settled.incarnation, "version": settled.version}
        await self._database.update(SESSIONS, same, {"$set": {"redo": None}})

    async def write_out(self, place: Place, parts: Sequence[Part]) -> None:
        """Writes out the redo of a life; see `redo`."""
        documents = redo.history_documents(*place, parts)
        updates = redo.history_updates(*place, parts)
        if updates and len(documents) <= FEW_DOCUMENTS:
            updates = [*redo.insertions(documents), *updates]
        elif documents:
            await self._database.add(HISTORY, documents)
        await self._write(HISTORY, updates)
        if events := redo.event_documents(*place, parts):
            await self._database.add(EVENTS, events)
        await self._write(SUMMARIES, redo.summary_updates(*place, parts))

    async def _write(self, collection: str, updates: Sequence[Any]) -> None:
        for start in range(0, len(updates), MOST_UPDATES):
            await self._database.write(collection, updates[start : start + MOST_UPDATES])

    def _living(self, key: SessionKey, document: Document) -> Session:
        incarnation, version = document["incarnation"], document["version"]
        place = _place_of(document)
        is_settled = self._settled.get(key) == Settled(incarnation, version, place)
        return Session(
            key=key,
            incarnation=incarnation,
            version=version,
            epoch=document["epoch"],
            place=place,
            text=document["record"],
            pending=() if is_settled else redo.decode(document["redo"]),
            tells_of_another=document["ended_life"] is not None,
            opening=document.get(OPENING),
        )


def _place_of(document: Document) -> Place:
    return Place(document["home"], document["life"])
