"""The adapters under test: a new one needs one entry here to be tested as a store and behind a server."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from _pytest.mark import ParameterSet

from memoryd_server.stores.mongodb.layout import (
    DEFAULT_PREFIX,
    EVENTS,
    FILE_VERSIONS,
    FILES,
    HISTORY,
    LEFTOVERS,
    RUNS,
    SESSIONS,
    STEPS,
    SUMMARIES,
)
from memoryd_server.stores.registry import create_store
from tests.databases import shared
from tests.databases.kind import Kind
from tests.databases.kinds import MARIADB, MONGODB, MONGODB_CONCURRENT, POSTGRESQL, REDIS, REDIS_CLUSTER
from tests.databases.mongodb import index_single_fields

SQLITE_FILE: Final = "memoryd.db"


@dataclass(frozen=True)
class Adapter:
    """A kind of store under test."""

    name: str
    type: str
    """As settings name it."""
    data: Callable[[Path], AbstractContextManager[str]]
    """Given a directory of its own: a context with the URL of data that is new, and gone when the context ends."""
    shared: bool
    """Whether several stores on one URL are one: how tests play several servers, and a restart."""
    database: Kind | None = None
    """The database server that it needs."""

    def emptied(self, directory: Path) -> AbstractContextManager[str]:
        """Likewise with data that holds nothing, but is not new where making it takes time."""
        if self.database:
            return shared.emptied_database(self.database)
        if self.type == "sqlite":
            file = directory / SQLITE_FILE
            file.touch(mode=0o600)
            file.write_bytes(_sqlite_file_with_tables())
        return self.data(directory)

    @property
    def is_atomic(self) -> bool:
        """Whether its database does concurrent updates right."""
        return self.database is None or self.database.is_atomic

    @property
    def is_here(self) -> bool:
        """Whether this machine has the database server that it needs."""
        return self.database is None or shared.of_this_run().missing(self.database) is None


@cache
def _sqlite_file_with_tables() -> bytes:
    """What a SQLite file holds when a store has been opened on it and closed, and nothing else: the migrations that it
    takes to make one take longer than most tests.
    """

    async def open_once(url: str) -> None:
        store = create_store("test", "sqlite", url)
        await store.open()
        await store.close()

    # On a thread of its own: an event loop may run on this one already.
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(1) as thread:
        file = Path(directory) / SQLITE_FILE
        thread.submit(asyncio.run, open_once(f"sqlite:///{file}")).result()
        return file.read_bytes()


def on_database(type: str, database: Kind) -> Adapter:
    """An adapter with its data in a database on a database server."""
    return Adapter(database.name, type, lambda _: shared.new_database(database), shared=True, database=database)


MONGODB_FIELDS: Final = {
    SESSIONS: ("agent", "user_id", "ended_user", "expires_at", "removed_at", "abandon_at"),
    HISTORY: ("home",),
    EVENTS: ("home",),
    SUMMARIES: ("home",),
    RUNS: ("home", "agent", "leaving"),
    STEPS: ("home",),
    LEFTOVERS: ("user_id",),
    FILES: ("owner",),
    FILE_VERSIONS: ("owner",),
}
"""What NX-27017 finds documents by, since it uses no index of several fields: without, it goes through all that the
tests before left."""


@contextmanager
def new_mongodb_concurrent() -> Iterator[str]:
    """A new database on NX-27017."""
    with shared.new_database(MONGODB_CONCURRENT) as url:
        index_single_fields(url, {DEFAULT_PREFIX + name: fields for name, fields in MONGODB_FIELDS.items()})
        yield url


SQL_ADAPTERS: Final = (
    Adapter("sqlite", "sqlite", lambda directory: nullcontext(f"sqlite:///{directory / SQLITE_FILE}"), shared=True),
    on_database("postgresql", POSTGRESQL),
    on_database("mysql", MARIADB),
)
ADAPTERS: Final = (
    Adapter("in_memory", "in_memory", lambda _: nullcontext("memory://"), shared=False),
    *SQL_ADAPTERS,
    on_database("redis", REDIS),
    on_database("redis", REDIS_CLUSTER),
    on_database("mongodb", MONGODB),
    replace(on_database("mongodb", MONGODB_CONCURRENT), data=lambda _: new_mongodb_concurrent()),
)


def parameters(adapters: Iterable[Adapter]) -> list[ParameterSet]:
    """Adapters as the parameters of a test or fixture, each marked with the database that it needs."""
    return [
        pytest.param(adapter, id=adapter.name, marks=adapter.database.mark if adapter.database else ())
        for adapter in adapters
    ]


EACH_ADAPTER: Final = parameters(adapter for adapter in ADAPTERS if adapter.database is not MONGODB_CONCURRENT)
"""For tests of one caller. Of the two servers that stand in for MongoDB it is the one that is closer to it."""
EACH_SQL_ADAPTER: Final = parameters(SQL_ADAPTERS)
"""For tests about tables."""
EACH_ATOMIC_ADAPTER: Final = parameters(adapter for adapter in ADAPTERS if adapter.is_atomic)
"""For tests of several callers of one server."""
EACH_SHARED_ADAPTER: Final = parameters(adapter for adapter in ADAPTERS if adapter.shared and adapter.is_atomic)
"""For tests in which several servers have one database, or one server ends in the middle of something."""

EACH_QUICK_ADAPTER: Final = parameters(adapter for adapter in ADAPTERS if adapter.type != "mongodb")
"""For the few tests behind a server that need thousands of messages, tens of megabytes, or hundreds of sessions.
NX-27017 takes a millisecond for each message, and goes through all that it holds to delete some of it: up to a minute
for each of these. They are those of `test_long_histories`, and in `test_erasure` the one of many small sessions, and of
a fork that has to last long enough on each database to be killed in the middle. `tests/stores` tests the same of
MongoDB's store, on less."""
EACH_QUICK_SHARED_ADAPTER: Final = parameters(
    adapter for adapter in ADAPTERS if adapter.shared and adapter.type != "mongodb"
)
"""Likewise where several servers have one database, or one server ends in the middle of something."""
