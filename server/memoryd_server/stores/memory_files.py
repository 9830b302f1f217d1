"""Memory files of the in-memory store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import Final

import msgspec
from sortedcontainers import SortedDict

from memoryd_server import limits
from memoryd_server.stores.base import FileStore, Version
from memoryd_server.stores.records import FileKey, FileOwner, FileVersion, StoredFile, Tier

Versions = SortedDict[int, StoredFile]

_NO_FILES: Final[SortedDict[str, Versions]] = SortedDict()


class InMemoryFiles(FileStore):
    """Keeps memory files in this process."""

    def __init__(self) -> None:
        self._owners: defaultdict[FileOwner, SortedDict[str, Versions]] = defaultdict(SortedDict)

    async def load_files(self, keys: Sequence[FileKey]) -> Sequence[StoredFile]:
        return [file for key in keys if (file := self._current(key)) is not None]

    async def save_file(self, file: StoredFile, expected: Version | None) -> bool:
        key = file.key
        current = self._current(key)
        if (current and _version(current)) != expected:
            return False
        versions = self._owners[key.owner].setdefault(key.name, SortedDict())
        if current is not None:
            versions[current.version.version] = msgspec.structs.replace(current, requests="")
        versions[file.version.version] = file
        while len(versions) > limits.MAX_FILE_VERSIONS:
            versions.popitem(0)
        return True

    async def delete_file(self, key: FileKey, expected: Version) -> bool:
        current = self._current(key)
        if current is None or _version(current) != expected:
            return False
        files = self._owners[key.owner]
        del files[key.name]
        if not files:
            del self._owners[key.owner]
        return True

    async def list_files(self, owner: FileOwner, before: str, limit: int) -> Sequence[tuple[str, FileVersion]]:
        files = self._owners.get(owner, _NO_FILES)
        # Code points sort as their UTF-8 bytes do.
        names = files.irange(None, before or None, (True, False), reverse=True)
        return [(name, files[name].peekitem()[1].version) for name in islice(names, limit)]

    async def list_file_versions(self, key: FileKey) -> Sequence[FileVersion]:
        return [file.version for file in reversed(self._versions(key).values())]

    async def load_file_version(self, key: FileKey, version: int) -> StoredFile | None:
        file = self._versions(key).get(version)
        return file if file is None else msgspec.structs.replace(file, requests="")

    async def list_file_owners(self, tenant: str, after: FileOwner | None, limit: int) -> Sequence[FileOwner]:
        owners = (owner for owner in self._owners if owner.tenant == tenant and (after is None or owner > after))
        return sorted(owners)[:limit]

    async def list_file_tenants(self, after: str, limit: int) -> Sequence[str]:
        return sorted({owner.tenant for owner in self._owners if owner.tenant > after})[:limit]

    def erase_files(self, tenant: str, user_id: str, limit: int) -> int:
        """Deletes up to `limit` files of a user. Returns: how many."""
        owner = FileOwner(tenant, Tier.USER, user_id)
        names = list(islice(self._owners.get(owner, _NO_FILES), max(0, limit)))
        for name in names:
            del self._owners[owner][name]
        if owner in self._owners and not self._owners[owner]:
            del self._owners[owner]
        return len(names)

    def _current(self, key: FileKey) -> StoredFile | None:
        versions = self._versions(key)
        return versions.peekitem()[1] if versions else None

    def _versions(self, key: FileKey) -> Versions:
        return self._owners.get(key.owner, _NO_FILES).get(key.name, SortedDict())


def _version(file: StoredFile) -> Version:
    return Version(file.incarnation, file.version.version)
