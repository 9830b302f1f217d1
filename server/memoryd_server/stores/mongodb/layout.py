"""The collections and their indexes. Every filter is a prefix of one of these indexes (`tests/stores/test_mongodb.py`).

A session's name has a home, which is random and never used again, and lives that are numbered from 1. Messages, events
and summaries are named by home, life and their number, id look-ups by home, kind and id: so a staging is a home that no
name leads to yet, and nothing that anybody writes late can become another life's.

To shard: `history`, `events` and `summaries` by `home`, all others by `_id`. What a request asks for of one session
carries these keys; listing, erasing and sweeping ask all shards.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import msgspec

from memoryd_server.stores.records import LookupKind, SessionKey

FORMAT: Final = 1
"""Of the documents: grows when a server of the version before could not serve them."""

DEFAULT_PREFIX: Final = "memoryd_"
"""Of the collections' names, since the database may be one that other applications use too."""

SESSIONS: Final = "sessions"
"""A document a name, alive or dead: the record, what goes with it and is yet to be written out, and what indexes know
of it."""
HISTORY: Final = "history"
"""A document a message, and one an id look-up: in one collection, since one command then writes both."""
EVENTS: Final = "events"
SUMMARIES: Final = "summaries"
AGENTS: Final = "agents"
LEFTOVERS: Final = "leftovers"
"""Dead lives and stagings: what nobody can reach any more, or will not once it is due."""
LEASES: Final = "leases"
META: Final = "meta"

COLLECTIONS: Final = (SESSIONS, HISTORY, EVENTS, SUMMARIES, AGENTS, LEFTOVERS, LEASES, META)

READING_ORDER: Final = "in_reading_order"

INDEXES: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    SESSIONS: {
        "of_tenant": ("tenant", "activity", "home"),
        "of_agent": ("tenant", "agent", "activity", "home"),
        "of_user": ("tenant", "user_id", "activity", "home"),
        "purgeable": ("removed_at", "home"),
        "expiring": ("expires_at", "home"),
        "folding": ("tenant", "agent", "fold_at", "home"),
        "dead": ("died_at",),
        "ended": ("ended_due",),
        "ended_of_user": ("tenant", "ended_user"),
    },
    # The first ends with what walks over tokens and sizes ask for, so that they read no document.
    HISTORY: {
        READING_ORDER: ("home", "life", "pile", "head", "position", "seq", "tokens", "size"),
        "by_seq": ("home", "life", "seq"),
    },
    EVENTS: {"by_number": ("home", "life", "number"), "by_age": ("created",)},
    SUMMARIES: {"of_life": ("home", "life", "dropped_at"), "dropped": ("dropped_at",)},
    AGENTS: {"of_tenant": ("tenant", "agent")},
    LEFTOVERS: {"due": ("due",), "of_user": ("tenant", "user_id"), "of_home": ("home",)},
    LEASES: {},
    META: {},
}
"""By collection and name, all ascending; each collection has the one on `_id` besides."""


NUMBERS: Final = {HISTORY: "seq", EVENTS: "number"}
"""What the documents of a life are counted by."""


class Pile(IntEnum):
    """What a document of `history` is: its place in the index that leads past what windows skip (invariant 17)."""

    USABLE = 0
    OPEN = 1
    ORPHAN = 2
    LOOKUP = 3


class LeftoverKind(IntEnum):
    """What a document of `leftovers` is about."""

    LIFE = 0
    """A dead life: its messages, events and look-ups."""
    SWEPT = 1
    """A dead life of which at most look-ups are left, which hold as long as the name does."""
    STAGING = 2
    """A staging that may yet become a session's."""
    ADOPTED = 3
    """A staging that is about to become a session's, or is one."""
    ABANDONED = 4
    """What was staged and never will be a session's."""
    ASHES = 5
    """What is deleted, and is looked for once more when nobody can be writing it any more. Names nobody."""


FIRST_LIFE: Final = 1
_LAST_NUMBER: Final = 2**63 - 1
_KINDS: Final = {LookupKind.MESSAGE: "m", LookupKind.REQUEST: "r"}


def session_id(key: SessionKey) -> str:
    """The `_id` of a session: JSON texts of different keys differ."""
    return msgspec.json.encode(key).decode()


def numbered_id(home: str, life: int, number: int) -> str:
    """The `_id` of a message, an event or a summary."""
    return f"{home}:{life:08x}:{number:016x}"


def numbered_range(collection: str, home: str, life: int, low: int = 0, high: int = _LAST_NUMBER) -> dict[str, Any]:
    """The filter for the messages or events of a life with numbers in a range, both ends included."""
    return {"home": home, "life": life, NUMBERS[collection]: {"$gte": low, "$lte": min(high, _LAST_NUMBER)}}


def lookup_id(home: str, kind: LookupKind, id_: str) -> str:
    """The `_id` of an id look-up."""
    return f"{home}:{_KINDS[kind]}:{id_}"


def lookup_range(home: str, after: str) -> dict[str, Any]:
    """The filter for a home's look-ups behind the one with the given `_id`; from the first on when that is empty."""
    return {"home": home, "_id": {"$gt": after or f"{home}:{_KINDS[LookupKind.MESSAGE]}", "$lt": f"{home}:s"}}


def leftover_id(home: str, life: int) -> str:
    """The `_id` of a leftover."""
    return f"{home}:{life:08x}"


def agent_id(tenant: str, agent: str) -> str:
    """The `_id` of an agent."""
    return msgspec.json.encode((tenant, agent)).decode()
