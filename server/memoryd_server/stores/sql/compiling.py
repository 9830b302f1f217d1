"""Statements of SQLAlchemy Core as the texts that drivers take, compiled once for the dialect of the database."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import (
    ARRAY,
    BindParameter,
    ClauseElement,
    ColumnElement,
    Delete,
    Dialect,
    Insert,
    Select,
    Table,
    any_,
    bindparam,
    insert,
    literal_column,
)
from sqlalchemy.dialects import postgresql, sqlite

LIST_SIZES: Final = (1, 4, 16, 64, 256)
"""The lengths of lists of values that texts exist for: a list is filled up to the next of them, a longer one is cut."""

ALL: Final = sys.maxsize
"""The limit of a statement that is to answer all there is, or that the reader ends where it likes."""

MYSQL: Final = ("mysql", "mariadb")
"""The dialects of MySQL and MariaDB."""

Value = TypeVar("Value")


def compile_once(dialect: Dialect, statement: ClauseElement, *parameters: str) -> str:
    """The SQL text of a Core statement, for the driver's own connection: what SQLAlchemy does for each execution takes
    longer than what SQLite does.

    `parameters` names the values in the order in which callers pass them. Raises: ValueError if the text has another.
    """
    compiled: Any = statement.compile(dialect=dialect)
    found = tuple(compiled.positiontup)
    if dialect.paramstyle == "numeric_dollar" and set(found) == set(parameters):
        # Numbered parameters may stand in any order in the text.
        return re.sub(r"\$(\d+)", lambda number: f"${parameters.index(found[int(number[1]) - 1]) + 1}", str(compiled))
    if found != parameters:
        raise ValueError(f"the parameters are {found}, not {parameters}, in {compiled}")
    return str(compiled)


class ListStatement:
    """A statement that is restricted to a list of values, which are its last parameters: one array where the database
    has arrays, otherwise one parameter each.
    """

    __slots__ = ("takes_arrays", "variants")

    def __init__(
        self, dialect: Dialect, statement: Select[Any] | Delete, column: ColumnElement[Any], *parameters: str
    ) -> None:
        self.variants: list[tuple[int, str]] = []
        self.takes_arrays = dialect.name == "postgresql"
        if self.takes_arrays:
            values = bindparam("values", type_=ARRAY(column.type))
            sql = compile_once(dialect, statement.where(column == any_(values)), *parameters, "values")
            self.variants.append((ALL, sql))
            return
        for size in LIST_SIZES:
            names = [f"value_{index}" for index in range(size)]
            restricted = statement.where(column.in_([bindparam(name) for name in names]))
            self.variants.append((size, compile_once(dialect, restricted, *parameters, *names)))

    def runs(self, values: Sequence[Value]) -> Iterator[tuple[str, list[Any]]]:
        """The texts to run, each with its last parameters, so that together they cover all values once."""
        if self.takes_arrays:
            if values:
                yield self.variants[0][1], [list(values)]
            return
        longest = LIST_SIZES[-1]
        for start in range(0, len(values), longest):
            part = list(values[start : start + longest])
            size, sql = next(variant for variant in self.variants if variant[0] >= len(part))
            yield sql, part + part[-1:] * (size - len(part))


def values_of(names: Sequence[str]) -> dict[str, BindParameter[Any]]:
    """Columns, each with the parameter of its name."""
    return {name: bindparam(name) for name in names}


def insert_row(table: Table, *names: str) -> Insert:
    """Inserts a row of the values of columns."""
    return insert(table).values(values_of(names))


def insert_new(dialect: Dialect, table: Table, *names: str) -> Insert:
    """Inserts a row unless there is one with its key."""
    if dialect.name == "postgresql":
        return postgresql.insert(table).values(values_of(names)).on_conflict_do_nothing()
    if dialect.name == "sqlite":
        return sqlite.insert(table).values(values_of(names)).on_conflict_do_nothing()
    return insert_row(table, *names).prefix_with("IGNORE")


def led_by(statement: Select[Any], table: Table, index: str) -> Select[Any]:
    """Read through an index that MySQL would not choose by itself: it prefers fewer columns to the right order."""
    for dialect in MYSQL:
        statement = statement.with_hint(table, f"FORCE INDEX ({index})", dialect)
    return statement


def first_rows(statement: Select[Any]) -> Select[Any]:
    """Only the first `limit` rows. Without the offset, SQLAlchemy would add a parameter for it."""
    return statement.limit(bindparam("limit")).offset(literal_column("0"))
