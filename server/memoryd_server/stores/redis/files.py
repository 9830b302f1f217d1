"""Memory files. `lua/files.lua` tells where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from memoryd_server import limits
from memoryd_server.stores.base import Version
from memoryd_server.stores.records import (
    FileKey,
    FileOwner,
    FileVersion,
    StoredFile,
    Tier,
)
from memoryd_server.stores.redis.keys import Keys, OwnerName
from memoryd_server.stores.redis.members import (
    behind_tenant,
    every_owner,
    files_of,
    number,
    of_owner,
    owner_of,
    owners_of,
)
from memoryd_server.stores.redis.merging import first_members
from memoryd_server.stores.redis.nodes import Nodes
from memoryd_server.stores.redis.scripts import (
    DELETE_FILES,
    FILE,
    FILE_LIST,
    FILE_VERSIONS,
    SAVE_FILE,
    Call,
    command,
)

FILES_A_SCRIPT: Final = 20
"""Files that one script deletes, each with its versions: the server does nothing else meanwhile."""

_CURRENT: Final = b""
"""In the place of a version's number."""

_NO_STATE: Final = ("", b"")
"""In the place of an expected state: that there is no file to save over; that a deletion takes any."""

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(FileVersion).decode


class Files:
    """Keeps memory files, and lists them and their owners."""

    def __init__(self, keys: Keys, nodes: Nodes) -> None:
        self._keys = keys
        self._nodes = nodes

    async def load(self, keys: Sequence[FileKey]) -> Sequence[StoredFile]:
        replies = await self._nodes.run(*(self._read(key, _CURRENT) for key in keys), repeatable=True)
        return [_file(key, reply) for key, reply in zip(keys, replies, strict=True) if reply is not None]

    async def load_version(self, key: FileKey, version: int) -> StoredFile | None:
        if version < 1:
            return None
        [reply] = await self._nodes.run(self._read(key, number(version)), repeatable=True)
        return None if reply is None else msgspec.structs.replace(_file(key, reply), requests="")

    def _read(self, key: FileKey, version: bytes) -> Call:
        owner = self._keys.file_owner(key.owner)
        return FILE(self._keys.file(owner, key.name), values=(owner.key, key.name, version))

    async def save(self, file: StoredFile, expected: Version | None) -> bool:
        owner = self._keys.file_owner(file.key.owner)
        values = (
            *_place_of(file.key.owner, owner),
            file.key.name,
            *(_NO_STATE if expected is None else _state(expected)),
            file.incarnation,
            number(file.version.version),
            _ENCODE(file.version),
            file.content,
            file.requests,
            limits.MAX_FILE_VERSIONS,
        )
        call = SAVE_FILE(self._keys.file(owner, file.key.name), owner.hash, owner.partition, values=values)
        [is_saved] = await self._nodes.change(call)
        return bool(is_saved)

    async def delete(self, key: FileKey, expected: Version) -> bool:
        [deleted] = await self._nodes.change(self._delete(key.owner, [key.name], _state(expected)))
        return bool(deleted)

    async def erase(self, tenant: str, user_id: str, limit: int) -> int:
        """Deletes up to `limit` files of a user. Returns: how many."""
        owner = FileOwner(tenant, Tier.USER, user_id)
        name = self._keys.file_owner(owner)
        prefix = files_of(name.digest)
        members, listed = await self._nodes.run(
            command("ZRANGE", name.partition, b"[" + prefix, b"(" + prefix + b"\xff", "BYLEX", "LIMIT", 0, limit),
            command("ZSCORE", name.partition, of_owner(owner)),
            repeatable=True,
        )
        if not members and listed is None:
            return 0
        names = [member[len(prefix) :].decode() for member in members]
        # Without a name, too: it takes away what tells of the owner.
        parts = [names[first : first + FILES_A_SCRIPT] for first in range(0, max(len(names), 1), FILES_A_SCRIPT)]
        return sum(await self._nodes.change(*(self._delete(owner, part, _NO_STATE) for part in parts)))

    def _delete(self, owner: FileOwner, names: Sequence[str], expected: tuple[str, bytes]) -> Call:
        name = self._keys.file_owner(owner)
        files = [self._keys.file(name, each) for each in names]
        return DELETE_FILES(name.hash, name.partition, *files, values=(*_place_of(owner, name), *expected, *names))

    # Lists

    async def list_files(self, owner: FileOwner, before: str, limit: int) -> Sequence[tuple[str, FileVersion]]:
        name = self._keys.file_owner(owner)
        call = FILE_LIST(name.hash, name.partition, values=(name.key, name.digest, before, limit))
        [reply] = await self._nodes.run(call, repeatable=True)
        return [(each.decode(), _DECODE(told)) for each, told in zip(*reply, strict=True)]

    async def list_versions(self, key: FileKey) -> Sequence[FileVersion]:
        owner = self._keys.file_owner(key.owner)
        call = FILE_VERSIONS(self._keys.file(owner, key.name), values=(owner.key, key.name))
        [reply] = await self._nodes.run(call, repeatable=True)
        return [_DECODE(told) for told in reversed(reply)]

    async def list_owners(self, tenant: str, after: FileOwner | None, limit: int) -> Sequence[FileOwner]:
        low, high = b"[" + owners_of(tenant), b"(" + behind_tenant(tenant)
        if after is not None:
            low = b"(" + of_owner(after)
        found: list[FileOwner] = []
        while len(found) < limit:
            wanted = limit - len(found)
            members = await self._first(low, high, wanted)
            found += await self._with_files(members)
            if len(members) < wanted:
                break
            low = b"(" + members[-1]
        return found

    async def list_tenants(self, after: str, limit: int) -> Sequence[str]:
        low, high = every_owner()
        if after:
            low = behind_tenant(after)
        found: list[str] = []
        while len(found) < limit:
            members = await self._first(b"(" + low, b"(" + high, limit)
            for owner in await self._with_files(members):
                if owner.tenant not in found[-1:]:
                    found.append(owner.tenant)
            if len(members) < limit:
                break
            low = members[-1]
            if owner_of(low).tenant in found[-1:]:
                low = behind_tenant(found[-1])
        return found[:limit]

    async def _first(self, low: bytes, high: bytes, limit: int) -> list[bytes]:
        return [member for member, _ in await first_members(self._nodes, self._keys.partitions, low, high, limit)]

    async def _with_files(self, members: Sequence[bytes]) -> list[FileOwner]:
        """The owners that members tell of and that have files."""
        owners = [owner_of(member) for member in members]
        names = [self._keys.file_owner(owner) for owner in owners]
        stored = await self._nodes.run(*(command("HGET", name.hash, "key") for name in names), repeatable=True)
        return [owner for owner, name, key in zip(owners, names, stored, strict=True) if key == name.key]


def _place_of(owner: FileOwner, name: OwnerName) -> tuple[bytes, bytes, bytes]:
    """What scripts are given of an owner."""
    return name.key, name.digest, of_owner(owner)


def _state(version: Version) -> tuple[str, bytes]:
    """What scripts are given of an expected state."""
    return version.incarnation, number(version.version)


def _file(key: FileKey, reply: Sequence[Any]) -> StoredFile:
    incarnation, told, content, requests = reply
    return StoredFile(key, incarnation.decode(), _DECODE(told), content, requests.decode())
