"""PostgreSQL's statements that store a memory file: one round trip each, instead of one for each step of the plan
(`files.FileWrites.save`).
"""

from __future__ import annotations

from typing import Final

from memoryd_server import limits
from memoryd_server.stores.base import Version
from memoryd_server.stores.records import StoredFile
from memoryd_server.stores.sql.files import text_of_requests
from memoryd_server.stores.sql.rows import FILE_KEY_COLUMNS, FILE_VERSION_COLUMNS, Codec, row_of_file_key
from memoryd_server.stores.sql.steps import Fetch

_TYPES: Final = {
    "tenant": "text",
    "tier": "smallint",
    "owner": "text",
    "name": "text",
    "incarnation": "text",
    "version": "bigint",
    "digest": "text",
    "size": "integer",
    "author": "text",
    "created": "bigint",
    "content": "bytea",
    "requests": "text",
    "expected_version": "bigint",
}
"""The parameters, in their order."""

_VALUE: Final = {name: f"${number}::{_TYPES[name]}" for number, name in enumerate(_TYPES, start=1)}


class SaveFileStatements:
    """Each stores a file, if that is as it is expected; it answers a row when it did."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        born = (*FILE_KEY_COLUMNS, "incarnation", "version", "requests")
        self._birth = _saved_by(
            f"INSERT INTO memoryd_files ({', '.join(born)}) VALUES ({_values(*born)}) "
            "ON CONFLICT DO NOTHING RETURNING 1"
        )
        self._change = _saved_by(
            f"UPDATE memoryd_files SET version = {_VALUE['version']}, requests = {_VALUE['requests']} "
            f"WHERE {_OF_KEY} AND incarnation = {_VALUE['incarnation']} AND version = {_VALUE['expected_version']} "
            "RETURNING 1"
        )

    def fetch(self, file: StoredFile, expected: Version | None) -> Fetch:
        """The statement that stores a file."""
        parameters = (
            *row_of_file_key(file.key),
            file.incarnation if expected is None else expected.incarnation,
            *self._codec.row_of_file_version(file.version),
            *(file.content, text_of_requests(file)),
        )
        return (
            Fetch(self._birth, parameters) if expected is None else Fetch(self._change, (*parameters, expected.version))
        )


def _values(*names: str) -> str:
    return ", ".join(_VALUE[name] for name in names)


_OF_KEY: Final = " AND ".join(f"{name} = {_VALUE[name]}" for name in FILE_KEY_COLUMNS)


def _saved_by(statement: str) -> str:
    """The text that does what the statement does, and what goes with it if that answers a row."""
    stored = (*FILE_KEY_COLUMNS, *FILE_VERSION_COLUMNS, "content")
    return f"""
        WITH saved AS ({statement}), stored AS (
            INSERT INTO memoryd_file_versions ({", ".join(stored)}) SELECT {_values(*stored)} FROM saved
        ), dropped AS (
            DELETE FROM memoryd_file_versions WHERE {_OF_KEY} AND EXISTS (SELECT FROM saved) AND version <= (
                SELECT version FROM memoryd_file_versions WHERE {_OF_KEY}
                -- Beside the new one, which this does not see yet.
                ORDER BY version DESC LIMIT 1 OFFSET {limits.MAX_FILE_VERSIONS - 1}
            )
        )
        SELECT 1 FROM saved"""
