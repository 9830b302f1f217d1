"""Reads and writes of memory files as plans of statements, for every SQL database.

A file's row is what its changes contend for: who has changed, made or deleted it in a transaction is alone with the
file's versions.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import chain
from typing import Final

from memoryd_server import limits
from memoryd_server.stores.base import Version
from memoryd_server.stores.records import (
    FileKey,
    FileOwner,
    FileVersion,
    StoredFile,
    Tier,
)
from memoryd_server.stores.sql.file_statements import FileStatements
from memoryd_server.stores.sql.rows import FILE_KEY_COLUMNS, Codec, Row, row_of_file_key
from memoryd_server.stores.sql.steps import Execute, Fetch, Plan, first

TOGETHER: Final = 16
"""Files that one statement reads."""

ERASED_TOGETHER: Final = 64
"""Files that one transaction erases, each with its versions: it must end in time."""

_BEHIND_ALL: Final = chr(sys.maxunicode)
"""Names are ASCII: each comes before this."""

_KEY: Final = len(FILE_KEY_COLUMNS)


class FileReads:
    """The plans of the reads."""

    def __init__(self, statements: FileStatements, codec: Codec) -> None:
        self._sql = statements
        self._codec = codec

    def load(self, keys: Sequence[FileKey]) -> Plan[Sequence[StoredFile]]:
        found: dict[FileKey, StoredFile] = {}
        for start in range(0, len(keys), TOGETHER):
            some = keys[start : start + TOGETHER]
            parameters = tuple(chain.from_iterable(map(row_of_file_key, some)))
            for row in (yield Fetch(self._sql.load(len(some)), parameters)):
                file = self._file(row)
                found[file.key] = file
        return [found[key] for key in keys if key in found]

    def load_version(self, key: FileKey, version: int) -> Plan[StoredFile | None]:
        row = first((yield Fetch(self._sql.load_version, (*row_of_file_key(key), version))))
        if row is None:
            return None
        incarnation, content, *told = row
        return StoredFile(key, incarnation, self._codec.file_version(tuple(told)), content)

    def versions(self, key: FileKey) -> Plan[Sequence[FileVersion]]:
        return list(map(self._codec.file_version, (yield Fetch(self._sql.versions, row_of_file_key(key)))))

    def list_of(self, owner: FileOwner, before: str, limit: int) -> Plan[Sequence[tuple[str, FileVersion]]]:
        parameters = (*_row_of_owner(owner), before or _BEHIND_ALL, limit)
        rows = yield Fetch(self._sql.list_of_owner, parameters)
        return [(self._codec.text(row[0]), self._codec.file_version(row[1:])) for row in rows]

    def owners(self, tenant: str, after: FileOwner | None, limit: int) -> Plan[Sequence[FileOwner]]:
        found: list[FileOwner] = []
        for tier in Tier:
            if len(found) < limit and (after is None or tier >= after.tier):
                place = after.id if after is not None and tier == after.tier else ""
                rows = yield Fetch(self._sql.list_owners, (tenant, int(tier), place, limit - len(found)))
                found += [FileOwner(tenant, tier, self._codec.text(id_)) for (id_,) in rows]
        return found

    def tenants(self, after: str, limit: int) -> Plan[Sequence[str]]:
        return [self._codec.text(tenant) for (tenant,) in (yield Fetch(self._sql.list_tenants, (after, limit)))]

    def _file(self, row: Row) -> StoredFile:
        incarnation, requests, content = row[_KEY : _KEY + 3]
        return StoredFile(
            self._codec.file_key(row[:_KEY]),
            incarnation,
            self._codec.file_version(row[_KEY + 3 :]),
            content,
            requests or "",
        )


class FileWrites:
    """The plans of the writes, each to be run in a transaction."""

    def __init__(self, statements: FileStatements, codec: Codec) -> None:
        self._sql = statements
        self._codec = codec

    def save(self, file: StoredFile, expected: Version | None) -> Plan[bool]:
        key, version = row_of_file_key(file.key), file.version.version
        state = (version, text_of_requests(file))
        if expected is None:
            made = yield Execute(self._sql.insert, (*key, file.incarnation, *state))
        else:
            made = yield Execute(self._sql.change, (*state, *key, expected.incarnation, expected.version))
        if not made:
            return False
        yield Execute(self._sql.insert_version, (*key, *self._codec.row_of_file_version(file.version), file.content))
        if version > limits.MAX_FILE_VERSIONS:
            row = first((yield Fetch(self._sql.newest_surplus_version, key)))
            if row is not None:
                yield Execute(self._sql.delete_first_versions, (*key, row[0]))
        return True

    def delete(self, key: FileKey, expected: Version) -> Plan[bool]:
        of_key = row_of_file_key(key)
        if not (yield Execute(self._sql.delete, (*of_key, expected.incarnation, expected.version))):
            return False
        yield Execute(self._sql.delete_versions, of_key)
        return True

    def erase(self, tenant: str, user_id: str, limit: int) -> Plan[int]:
        """Deletes some files of a user. Returns: how many; 0 when there were none."""
        owner = _row_of_owner(FileOwner(tenant, Tier.USER, user_id))
        names = [name for (name,) in (yield Fetch(self._sql.lock_some, (*owner, min(limit, ERASED_TOGETHER))))]
        for statement in (self._sql.delete_versions_named, self._sql.delete_named):
            for sql, values in statement.runs(names):
                yield Execute(sql, (*owner, *values))
        return len(names)


def text_of_requests(file: StoredFile) -> str | None:
    """The value of the column `requests`."""
    return file.requests or None


def _row_of_owner(owner: FileOwner) -> Row:
    return owner.tenant, int(owner.tier), owner.id
