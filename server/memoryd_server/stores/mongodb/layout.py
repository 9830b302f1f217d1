"""The collections and their indexes. Every filter is a prefix of one of these indexes (`tests/stores/test_mongodb.py`).

A session's name has a home, which is random and never used again, and lives that are numbered from 1. Messages, events
and summaries are named by home, life and their number, id look-ups by home, kind and id: so a staging is a home that no
name leads to yet, and nothing that anybody writes late can become another life's.

A memory file is one document with all that is current. Its earlier versions are named by its incarnation, which is
never used again either, and their number.

Runs are named by home, life and id, and so are their steps, with their number and the version of the record that
brought them: what is late of a run that was deleted is no step of the one that has its id now.

To shard: `history`, `events`, `summaries`, `runs` and `steps` by `home`, all others by `_id`. What a request asks for
of one session or one memory file carries these keys; listing, erasing and sweeping ask all shards.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import msgspec

from memoryd_server.stores.records import FileKey, FileVersion, LookupKind, SessionKey

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
RUNS: Final = "runs"
"""A document a run; and one in the place of each that is deleted, until nobody can be writing it any more."""
STEPS: Final = "steps"
AGENTS: Final = "agents"
LEFTOVERS: Final = "leftovers"
"""Dead lives and stagings: what nobody can reach any more, or will not once it is due."""
FILES: Final = "memories"
"""A document a memory file: its current version, what is told of the earlier ones, and what it remembers of writes. A
name that ends with `files` may be taken for one of GridFS's.
"""
FILE_VERSIONS: Final = "memory_versions"
"""A document an earlier version of a memory file: its content."""
ENDED_FILES: Final = "memory_ends"
"""A document a memory file that was just deleted, or is about to be. Names nobody."""
LEASES: Final = "leases"
META: Final = "meta"

COLLECTIONS: Final = (
    *(SESSIONS, HISTORY, EVENTS, SUMMARIES, RUNS, STEPS),
    AGENTS,
    LEFTOVERS,
    *(FILES, FILE_VERSIONS, ENDED_FILES),
    LEASES,
    META,
)

READING_ORDER: Final = "in_reading_order"

CARRIED_RUNS: Final = "carried_runs"
"""Of a session: one of `CarriedRuns`, or null when its document carries no run that is yet to be written out."""

INDEXES: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    SESSIONS: {
        "of_tenant": ("tenant", "activity", "home"),
        "of_agent": ("tenant", "agent", "activity", "home"),
        "of_user": ("tenant", "user_id", "activity", "home"),
        "purgeable": ("removed_at", "home"),
        "expiring": ("expires_at", "home"),
        "folding": ("tenant", "agent", "fold_at", "home"),
        "abandoned": ("abandon_at", "home"),
        "claimable": ("tenant", "agent", "claimable_at", "home"),
        "unlisted": ("tenant", "agent", CARRIED_RUNS, "home"),
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
    RUNS: {
        "of_agent": ("tenant", "agent", "begun"),
        "of_status": ("tenant", "agent", "status", "begun"),
        "of_life": ("home", "life", "begun"),
        "claimable": ("home", "claimable_at"),
        "ended": ("tenant", "agent", "ended"),
        "leaving": ("leaving", "hidden_at"),
    },
    # It ends with what a page is chosen by, so that no payload is read for that.
    STEPS: {"by_number": ("home", "life", "run", "number", "written", "size")},
    AGENTS: {"of_tenant": ("tenant", "agent")},
    LEFTOVERS: {"due": ("due",), "of_user": ("tenant", "user_id"), "of_home": ("home",)},
    # The first ends with what lists tell, so that they read no document: that would be reading contents.
    FILES: {
        "by_name": ("tenant", "tier", "owner", "name", *FileVersion.__struct_fields__),
        "of_life": ("incarnation",),
    },
    FILE_VERSIONS: {"of_owner": ("tenant", "tier", "owner")},
    ENDED_FILES: {"by_end": ("ended_at",)},
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


class CarriedRuns(IntEnum):
    """What a session's document carries of runs."""

    STATES = 0
    """States that leave the runs in the lists in which they are."""
    PLACES = 1
    """What moves runs between lists: whoever reads one of the agent writes it out before."""


class Leaving(IntEnum):
    """What is left of a run that is deleted."""

    STEPS = 1
    """Its document and perhaps steps."""
    TRACE = 2
    """What keeps its place in its document from being taken by who is late."""


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


def behind(field: str, value: int, tie: str, at: str, *, backwards: bool = False) -> dict[str, Any]:
    """The filter for what comes behind a place in an index that goes on with two fields."""
    operator = "$lt" if backwards else "$gt"
    return {field: {f"{operator}e": value}, "$or": [{field: {operator: value}}, {tie: {operator: at}}]}


def lookup_id(home: str, kind: LookupKind, id_: str) -> str:
    """The `_id` of an id look-up."""
    return f"{home}:{_KINDS[kind]}:{id_}"


def lookup_range(home: str, after: str) -> dict[str, Any]:
    """The filter for a home's look-ups behind the one with the given `_id`; from the first on when that is empty."""
    return {"home": home, "_id": {"$gt": after or f"{home}:{_KINDS[LookupKind.MESSAGE]}", "$lt": f"{home}:s"}}


def leftover_id(home: str, life: int) -> str:
    """The `_id` of a leftover."""
    return f"{home}:{life:08x}"


def run_id_of(home: str, life: int, run_id: str) -> str:
    """The `_id` of a run."""
    return f"{home}:{life:08x}:{run_id}"


def place_at(time: int, id_: str = "") -> str:
    """The place of a run in an order by time; without its `_id`, one before all that are of that time."""
    return f"{time:016x}:{id_}"


def step_id(home: str, life: int, run_id: str, number: int, written: int) -> str:
    """The `_id` of a step that a version of the record brought: what follows the run's id is always as long."""
    return f"{run_id_of(home, life, run_id)}:{number:016x}:{written:016x}"


def file_id(key: FileKey) -> str:
    """The `_id` of a memory file."""
    return msgspec.json.encode((*key.owner, key.name)).decode()


def file_version_id(incarnation: str, version: int) -> str:
    """The `_id` of an earlier version of a memory file."""
    return f"{incarnation}:{version:016x}"


def file_versions_before(incarnation: str, version: int = _LAST_NUMBER) -> dict[str, Any]:
    """The filter for the versions of a memory file before the given one."""
    return {"_id": {"$gte": file_version_id(incarnation, 0), "$lt": file_version_id(incarnation, version)}}


def agent_id(tenant: str, agent: str) -> str:
    """The `_id` of an agent."""
    return msgspec.json.encode((tenant, agent)).decode()
