"""The adapters under test: a new one needs one entry here to be tested as a store and behind a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from _pytest.mark import ParameterSet

from tests.databases import shared
from tests.databases.kind import Kind
from tests.databases.kinds import MARIADB, MONGODB, MONGODB_CONCURRENT, POSTGRESQL, REDIS, REDIS_CLUSTER


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
        return shared.emptied_database(self.database) if self.database else self.data(directory)

    @property
    def is_atomic(self) -> bool:
        """Whether its database does concurrent updates right."""
        return self.database is None or self.database.is_atomic

    @property
    def is_here(self) -> bool:
        """Whether this machine has the database server that it needs."""
        return self.database is None or shared.of_this_run().missing(self.database) is None


def on_database(type: str, database: Kind) -> Adapter:
    """An adapter with its data in a database on a database server."""
    return Adapter(database.name, type, lambda _: shared.new_database(database), shared=True, database=database)


SQL_ADAPTERS: Final = (
    Adapter("sqlite", "sqlite", lambda directory: nullcontext(f"sqlite:///{directory}/memoryd.db"), shared=True),
    on_database("postgresql", POSTGRESQL),
    on_database("mysql", MARIADB),
)
ADAPTERS: Final = (
    Adapter("in_memory", "in_memory", lambda _: nullcontext("memory://"), shared=False),
    *SQL_ADAPTERS,
    on_database("redis", REDIS),
    on_database("redis", REDIS_CLUSTER),
    on_database("mongodb", MONGODB),
    on_database("mongodb", MONGODB_CONCURRENT),
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

EACH_SERVED_ADAPTER: Final = parameters(adapter for adapter in ADAPTERS if adapter.type != "mongodb")
"""For tests behind a server that they share. The servers that stand in for MongoDB go through whole collections, so
that what one test leaves makes the next ones slower than calls may be: they are for the tests of stores."""
EACH_SERVED_SHARED_ADAPTER: Final = parameters(
    adapter for adapter in ADAPTERS if adapter.shared and adapter.type != "mongodb"
)
"""Likewise where several servers have one database, or one server ends in the middle of something."""
