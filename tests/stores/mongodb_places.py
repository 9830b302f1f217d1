"""Servers that stand in for MongoDB, and the drivers that lead to them: between them, each of both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest

from memoryd_server.stores.mongodb.layout import DEFAULT_PREFIX
from memoryd_server.stores.mongodb.location import DRIVERS
from tests.databases.kind import Kind
from tests.databases.kinds import MONGODB, MONGODB_CONCURRENT
from tests.databases.mongodb import database_at
from tests.databases.shared import new_database


@dataclass(frozen=True)
class Place:
    """A server, and the driver that leads to it."""

    kind: Kind
    driver: str

    @contextmanager
    def new_database(self) -> Iterator[str]:
        """The URL of a new database, gone when the context ends."""
        with new_database(self.kind) as url:
            yield f"{url.partition('?')[0]}?driver={self.driver}"


def _parameter(kind: Kind, driver: str) -> Any:
    return pytest.param(Place(kind, driver), marks=kind.mark, id=f"{kind.name}-{driver}")


EACH_PLACE: Final = [
    _parameter(kind, driver) for kind, driver in zip((MONGODB, MONGODB_CONCURRENT), DRIVERS, strict=True)
]
EACH_ATOMIC_PLACE: Final = [_parameter(MONGODB_CONCURRENT, driver) for driver in DRIVERS]
"""For tests in which several servers change the same documents."""


def documents(url: str, collection: str, **conditions: Any) -> list[dict[str, Any]]:
    """What a collection holds."""
    with database_at(url.partition("?")[0]) as database:
        return list(database[DEFAULT_PREFIX + collection].find(conditions))
