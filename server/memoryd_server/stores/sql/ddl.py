"""Steps of migrations that may be taken again: on MySQL and MariaDB each commits by itself, and a server may end
between two of them.
"""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import Column, inspect
from sqlalchemy.schema import SchemaItem


def create_table(name: str, *items: SchemaItem, **options: Any) -> None:
    """Makes a table, unless it is there."""
    op.create_table(name, *items, if_not_exists=_may_be_there(), **options)


def create_index(name: str, table: str, columns: list[str], **options: Any) -> None:
    """Makes an index, unless it is there."""
    if not (_may_be_there() and name in {index["name"] for index in inspect(op.get_bind()).get_indexes(table)}):
        op.create_index(name, table, columns, **options)


def add_column(table: str, column: Column[Any]) -> None:
    """Adds a column, unless it is there."""
    if not (_may_be_there() and column.name in {each["name"] for each in inspect(op.get_bind()).get_columns(table)}):
        op.add_column(table, column)


def _may_be_there() -> bool:
    return op.get_bind().dialect.name in {"mysql", "mariadb"}
