"""Looks through every column of every table of a database, whatever the schema."""

from __future__ import annotations

import base64
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from sqlalchemy import make_url

from tests.databases.sql import execute

_TABLES: Final = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
    "postgresql": "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()",
    "mysql": "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()",
}


def table_names(url: str) -> list[str]:
    """All tables."""
    return [str(name) for (name,) in rows(url, _TABLES[make_url(url).get_backend_name()])]


def count_of(url: str, table: str) -> int:
    """How many rows a table has."""
    return int(rows(url, f"SELECT count(*) FROM {table}")[0][0])


def rows(url: str, statement: str) -> list[tuple[Any, ...]]:
    """The rows that a statement finds."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        assert parsed.database
        with closing(sqlite3.connect(parsed.database)) as connection:
            return connection.execute(statement).fetchall()
    return [tuple(row) for row in execute(parsed, statement)]


class Contents:
    """All that a database held at one time."""

    def __init__(self, url: str) -> None:
        self._values = [
            (table, _bytes_of(value))
            for table in table_names(url)
            for row in rows(url, f"SELECT * FROM {table}")
            for value in row
        ]

    def places_of(self, marker: bytes) -> list[str]:
        """The values that hold the marker as it is, in hexadecimal digits, or in Base64 wherever it begins."""
        forms = list(_forms(marker))
        return [f"{table}: {value!r:.200}" for table, value in self._values if any(form in value for form in forms)]

    def holds(self, marker: bytes) -> bool:
        """Whether the marker is anywhere."""
        return bool(self.places_of(marker))


def _forms(marker: bytes) -> Iterator[bytes]:
    yield marker
    yield marker.hex().encode()
    yield marker.hex().upper().encode()
    for before in range(3):
        # The characters in the middle depend on nothing that stands around.
        encoded = base64.b64encode(b"\0" * before + marker)
        yield encoded[4 if before else 0 : -4]


def _bytes_of(value: Any) -> bytes:
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else str(value).encode()
