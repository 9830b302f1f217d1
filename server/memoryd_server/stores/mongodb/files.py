"""Memory files: a document each, and one for each of their earlier versions.

The compare-and-set on a file's document is the commit. The document holds the current version and tells of the earlier
ones, so that one read of it is a history of one moment; a version's document holds nothing but a content, and counts
only where the file tells of it. It is written before the compare-and-set that makes the version an earlier one, and
whoever else has read the same version writes the same.

So a server that ends in the middle leaves a file as it was or as it is to be, and at most contents of which it tells
nothing. Those of a living file stand at its current version, and become an earlier one's with the next change; or
before its oldest, and go with that change. Those of an ended one are looked for once more when nobody can be writing
any more, for which it is noted before the file is deleted that it is about to be (`ENDED_FILES`); an erasure finds them
by their owner besides. An incarnation is never used again, so that nothing late becomes another file's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Sequence
from typing import Final

from pymongo import UpdateOne

from memoryd_server import limits
from memoryd_server.stores.base import StoreUnavailable, Version
from memoryd_server.stores.mongodb.clock import date_of
from memoryd_server.stores.mongodb.database import DESCENDING, Database
from memoryd_server.stores.mongodb.documents import (
    FILE_FIELDS,
    FILE_VERSION_FIELDS,
    TOLD_FIELDS,
    Document,
    document_of_file,
    document_of_file_version,
    fields_of_file,
    fields_of_owner,
    file_of,
    file_version_of,
    file_versions_of,
)
from memoryd_server.stores.mongodb.layout import (
    ENDED_FILES,
    FILE_VERSIONS,
    FILES,
    file_id,
    file_version_id,
    file_versions_before,
)
from memoryd_server.stores.records import FileKey, FileOwner, FileVersion, StoredFile, Tier

ATTEMPTS: Final = 5
"""How often a version is read of a file that others keep changing."""

PAGE: Final = 50
"""Files that are deleted together."""

WRITE_SECONDS: Final = 10.0
"""How long after a file was read one of its contents may be written, and how long after its note a file may be deleted.
One after the other, each with the command that follows, they are over before the note is looked at.
"""

_INCARNATIONS: Final = ("incarnation",)
_OWNERS: Final = ("owner",)
_BY_END: Final = (("ended_at", 1),)
_BY_NAME_BACKWARDS: Final = (("name", DESCENDING),)
_BY_OWNER: Final = (("owner", 1),)
_BY_TENANT: Final = (("tenant", 1),)
_CHANGING: Final = "The file changed again and again while it was read. Repeat the call."
_TOO_LATE: Final = "The database was too slow for a change of this file. Repeat the call."
_log: Final = logging.getLogger(__name__)


class Files:
    """Reads, writes and deletes them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, keys: Sequence[FileKey]) -> Sequence[StoredFile]:
        """See `FileStore.load_files`. Takes one command."""
        if not keys:
            return []
        named = {"_id": {"$in": [file_id(key) for key in keys]}}
        found = {each["_id"]: each for each in await self._database.find(FILES, named, fields=FILE_FIELDS)}
        return [file_of(key, found[id_]) for key in keys if (id_ := file_id(key)) in found]

    async def save(self, file: StoredFile, expected: Version | None) -> bool:
        """See `FileStore.save_file`. Takes three commands for a file that is there, and a fourth once it has all the
        versions that it may have.
        """
        if expected is None:
            return await self._database.insert(FILES, document_of_file(file))
        key, life = file.key, expected.incarnation
        same = _at(key, expected)
        begun = time.monotonic()
        current = await self._database.find_one(FILES, same, fields=(*TOLD_FIELDS, "content"))
        if current is None:
            return False
        earlier = file_versions_of(current)[1 - limits.MAX_FILE_VERSIONS :]
        _check_time(begun)
        outgoing = document_of_file_version(key.owner, life, expected.version, bytes(current["content"]))
        await self._database.insert(FILE_VERSIONS, outgoing)
        if not await self._database.update(FILES, same, {"$set": fields_of_file(file, earlier)}):
            await self._withdraw(key, expected)
            return False
        if len(earlier) == limits.MAX_FILE_VERSIONS - 1:
            await self._trim(life, earlier[0].version)
        return True

    async def _withdraw(self, key: FileKey, written: Version) -> None:
        """Takes back a version's document that was written for a change that is refused, unless the file tells of it:
        then it is whose change was faster.
        """
        of_life = {"_id": file_id(key), "incarnation": written.incarnation}
        current = await self._database.find_one(FILES, of_life, fields=TOLD_FIELDS)
        # What is read may be older than what the compare-and-set met, which is not yet a majority's: the file may seem
        # to be at the very version that it is no longer at.
        if current is not None and written.version in (each.version for each in file_versions_of(current)):
            return
        name = {"_id": file_version_id(written.incarnation, written.version)}
        await self._database.delete(FILE_VERSIONS, name)

    async def _trim(self, life: str, oldest: int) -> None:
        """Deletes the versions before the oldest that stays. The change is made: what fails here, the next one makes
        up for.
        """
        try:
            await self._database.delete(FILE_VERSIONS, file_versions_before(life, oldest))
        except StoreUnavailable as error:
            _log.info("a memory file is stored, and its oldest version is not yet deleted: %s", error)

    async def delete(self, key: FileKey, expected: Version) -> bool:
        """See `FileStore.delete_file`."""
        same = _at(key, expected)
        if await self._database.find_one(FILES, same, fields=_INCARNATIONS) is None:
            return False
        return bool(await self._end([expected.incarnation], same))

    async def list(self, owner: FileOwner, before: str, limit: int) -> Sequence[tuple[str, FileVersion]]:
        """See `FileStore.list_files`. Takes one command, which reads the index alone."""
        of_owner = fields_of_owner(owner)
        if before:
            of_owner["name"] = {"$lt": before}
        fields = ("name", *FILE_VERSION_FIELDS)
        found = await self._database.find(FILES, of_owner, fields=fields, order=_BY_NAME_BACKWARDS, limit=limit)
        return [(document["name"], file_version_of(document)) for document in found]

    async def list_versions(self, key: FileKey) -> Sequence[FileVersion]:
        """See `FileStore.list_file_versions`. Takes one command."""
        current = await self._database.find_one(FILES, {"_id": file_id(key)}, fields=TOLD_FIELDS)
        return [] if current is None else file_versions_of(current)[::-1]

    async def load_version(self, key: FileKey, version: int) -> StoredFile | None:
        """See `FileStore.load_file_version`. Takes two commands, and more while others change the file."""
        for _ in range(ATTEMPTS):
            current = await self._database.find_one(FILES, {"_id": file_id(key)}, fields=TOLD_FIELDS)
            told = {} if current is None else {each.version: each for each in file_versions_of(current)}
            if current is None or version not in told:
                return None
            life = current["incarnation"]
            if version == current["version"]:
                where, name = FILES, _at(key, Version(life, version))
            else:
                where, name = FILE_VERSIONS, {"_id": file_version_id(life, version)}
            held = await self._database.find_one(where, name, fields=("content",))
            if held is not None:
                return StoredFile(key, life, told[version], bytes(held["content"]))
        raise StoreUnavailable(_CHANGING)

    async def list_owners(self, tenant: str, after: FileOwner | None, limit: int) -> Sequence[FileOwner]:
        """See `FileStore.list_file_owners`. Reads the index alone."""
        owners: list[FileOwner] = []
        for tier in Tier:
            if after is not None and tier < after.tier:
                continue
            last = after.id if after is not None and tier == after.tier else ""
            while len(owners) < limit:
                behind = {"tenant": tenant, "tier": int(tier), "owner": {"$gt": last}}
                found = await self._database.find(FILES, behind, fields=_OWNERS, order=_BY_OWNER, limit=limit)
                owners += (FileOwner(tenant, tier, id_) for id_ in dict.fromkeys(each["owner"] for each in found))
                if len(found) < limit:
                    break
                last = found[-1]["owner"]
        return owners[:limit]

    async def list_tenants(self, after: str, limit: int) -> Sequence[str]:
        """See `FileStore.list_file_tenants`. Takes a command a tenant, which reads one entry of the index."""
        tenants: list[str] = []
        while len(tenants) < limit:
            behind = {"tenant": {"$gt": after}}
            found = await self._database.find(FILES, behind, fields=("tenant",), order=_BY_TENANT, limit=1)
            if not found:
                break
            after = found[0]["tenant"]
            tenants.append(after)
        return tenants

    async def erase(self, owner: FileOwner, limit: int) -> int:
        """Deletes up to `limit` files of an owner with their versions, and versions that were left of others.

        Returns: how many files; 0 only when neither is left.
        """
        of_owner = fields_of_owner(owner)
        while True:
            found = await self._database.find(FILES, of_owner, fields=_INCARNATIONS, limit=min(limit, PAGE))
            lives = [document["incarnation"] for document in found]
            if lives:
                if deleted := await self._end(lives, {"incarnation": {"$in": lives}}):
                    return deleted
                continue
            left = await self._database.find(FILE_VERSIONS, of_owner, fields=_INCARNATIONS, limit=PAGE)
            if not left:
                return 0
            # One that lives began meanwhile, since a file is there before its versions are.
            await self._delete_versions(await self._ended({document["incarnation"] for document in left}))

    async def forget_ended(self, before: int, limit: int) -> None:
        """Looks once more for versions of up to about `limit` files that ended before the given time, in microseconds
        since the Unix epoch.
        """
        old = {"ended_at": {"$lt": date_of(before)}}
        for _ in range(0, limit, PAGE):
            found = await self._database.find(ENDED_FILES, old, fields=("_id",), order=_BY_END, limit=PAGE)
            lives = [document["_id"] for document in found]
            if lives:
                # One may live on, when its deletion was refused; who deletes it after all notes it anew.
                await self._delete_versions(await self._ended(lives))
                await self._database.delete(ENDED_FILES, {"_id": {"$in": lives}, **old})
            if len(found) < PAGE:
                break

    async def _end(self, lives: Sequence[str], filter: Document) -> int:
        """Deletes those of some files that a filter leads to, with their versions. Returns: how many files."""
        begun = time.monotonic()
        ended = {"$currentDate": {"ended_at": True}}
        await self._database.write(ENDED_FILES, [UpdateOne({"_id": life}, ended, upsert=True) for life in lives])
        _check_time(begun)
        deleted = await self._database.delete(FILES, filter)
        if deleted:
            await self._delete_versions(lives)
        return deleted

    async def _ended(self, lives: Collection[str]) -> set[str]:
        """Those of some files that are deleted."""
        there = {"incarnation": {"$in": list(lives)}}
        living = await self._database.find(FILES, there, fields=_INCARNATIONS)
        return set(lives) - {document["incarnation"] for document in living}

    async def _delete_versions(self, lives: Collection[str]) -> None:
        """Deletes the versions of files that are deleted."""
        versions = map(file_versions_before, lives)
        await asyncio.gather(*(self._database.delete(FILE_VERSIONS, each) for each in versions))


def _at(key: FileKey, expected: Version) -> Document:
    """The filter for a file at an incarnation and version."""
    return {"_id": file_id(key), "incarnation": expected.incarnation, "version": expected.version}


def _check_time(begun: float) -> None:
    if time.monotonic() - begun > WRITE_SECONDS:
        raise StoreUnavailable(_TOO_LATE)
