"""Work on a database as generators that yield the statements to run and are sent what they answer.

So the logic stands once for SQLite, on whose threads a driver is called directly, and for databases behind a network,
whose drivers are awaited. Each side has one small loop that carries a plan out: `carrying` and `served`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

import msgspec

from memoryd_server.stores.sql.rows import Row

Result = TypeVar("Result")


class Fetch(msgspec.Struct, frozen=True, gc=False):
    """Answered by the rows, as an iterable that may be walked once."""

    sql: str
    parameters: Sequence[Any] = ()


class Execute(msgspec.Struct, frozen=True, gc=False):
    """Answered by the number of rows that it changed or deleted."""

    sql: str
    parameters: Sequence[Any] = ()


class Insert(msgspec.Struct, frozen=True, gc=False):
    """Inserts one row. Answered by the number that the database gave it as its primary key."""

    sql: str
    parameters: Sequence[Any] = ()


class ExecuteMany(msgspec.Struct, frozen=True, gc=False):
    """Runs a statement with each of some rows of parameters. Answered by None."""

    sql: str
    rows: Sequence[Row]


Step = Fetch | Execute | Insert | ExecuteMany
Plan = Generator[Step, Any, Result]


def first(rows: Any) -> Row | None:
    """The first row of a Fetch, if there is any."""
    return next(iter(rows), None)
