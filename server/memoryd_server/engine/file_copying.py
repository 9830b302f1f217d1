"""Copies memory files from a store into another one, with the versions that are kept, their authors and times.

A copy of an earlier state of a file is brought up to date by the versions that it lacks, as long as nobody else changed
it: so a copy can be repeated, and goes on where it was interrupted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from hashlib import sha256
from typing import Final

from memoryd_server.engine.copy_differences import Differs
from memoryd_server.engine.memory_writes import expected, load, was_born_in
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.session_copying import ATTEMPTS, Copied
from memoryd_server.stores.records import FileKey, FileOwner, FileVersion, StoredFile

PAGE_FILES: Final = 500
"""Tenants, owners or files that are listed at once."""

_KEEP_ONE: Final = "keep one of the two: put its content into the other store, or delete it there, then copy again"

_DELETE_TOO: Final = "delete it in the target, too (`memoryd memory delete`), or put it back into the source"


async def list_file_tenants(runtime: Runtime) -> AsyncIterator[str]:
    """The tenants that have memory files. Raises: StoreUnavailable."""
    last = ""
    while page := await runtime.store.list_file_tenants(last, PAGE_FILES):
        for tenant in page:
            yield tenant
        last = page[-1]


async def list_file_owners(runtime: Runtime, tenant: str) -> AsyncIterator[FileOwner]:
    """A tenant's owners of memory files. Raises: StoreUnavailable."""
    last: FileOwner | None = None
    while page := await runtime.store.list_file_owners(tenant, last, PAGE_FILES):
        for owner in page:
            yield owner
        last = page[-1]


async def list_owned(runtime: Runtime, owner: FileOwner) -> AsyncIterator[FileKey]:
    """An owner's memory files. Raises: StoreUnavailable."""
    last = ""
    while page := await runtime.store.list_files(owner, last, PAGE_FILES):
        for name, _ in page:
            yield FileKey(owner, name)
        last = page[-1][0]


class FileCopier:
    """Copies memory files between two stores."""

    def __init__(self, source: Runtime, target: Runtime) -> None:
        self._source = source
        self._target = target
        self._secrets: set[bytes] = set()

    async def copy(self, key: FileKey) -> Copied:
        """Has the target hold a file as the source does. What is there already is passed over.

        Raises: Differs, StoreUnavailable.
        """
        for _ in range(ATTEMPTS):
            copied = await self._try(key)
            if copied is not None:
                return copied
        raise Differs("it changed all the time while it was copied", "stop its writers, then copy again")

    async def compare(self, key: FileKey) -> Copied:
        """Has the target hold a file as the source does, by all that both hold of it.

        Returns: what had to be done for that, since the source may have gone on.
        Raises: Differs, StoreUnavailable.
        """
        for _ in range(ATTEMPTS):
            copied = await self.copy(key)
            if copied is Copied.GONE or await self._are_same(key):
                return copied
        raise Differs("its versions are not the same", _KEEP_ONE)

    async def look_for_leftover(self, key: FileKey) -> None:
        """A file of the target must not be one that the source had, and has no more.

        Raises: Differs, StoreUnavailable.
        """
        if await self._source.store.list_file_versions(key):
            return
        file = await load(self._target, key)
        if file is not None and was_born_in(file.incarnation, await self._secrets_of_source()):
            raise Differs("the source has it no more: it was deleted there since it was copied", _DELETE_TOO)

    async def _secrets_of_source(self) -> Collection[bytes]:
        """Of the source and of the stores that were copied to it, but not of the target: its own files stay its own."""
        if not self._secrets:
            adopted = await self._source.store.adopted_secrets()
            self._secrets = {self._source.info.secret, *adopted} - {self._target.info.secret}
        return self._secrets

    async def _try(self, key: FileKey) -> Copied | None:
        """None when something changed meanwhile."""
        versions = await self._source.store.list_file_versions(key)
        file = await load(self._source, key)
        if file is None or not versions:
            return Copied.GONE
        copy = await load(self._target, key)
        _check_copy(file, versions, copy)
        if copy is not None and copy.version == file.version:
            return Copied.KNOWN
        known = 0 if copy is None else copy.version.version
        there = copy
        for version in reversed(versions):
            if known < version.version <= file.version.version:
                is_newest = version == file.version
                next_ = file if is_newest else await self._source.store.load_file_version(key, version.version)
                if next_ is None or next_.incarnation != file.incarnation:
                    return None
                if not await self._target.store.save_file(next_, None if there is None else expected(there)):
                    return None
                there = next_
        return Copied.BORN if copy is None else Copied.UPDATED

    async def _are_same(self, key: FileKey) -> bool:
        here = await self._source.store.list_file_versions(key)
        there = await self._target.store.list_file_versions(key)
        if here != there[: len(here)]:
            return False
        for version in here:
            for runtime in (self._source, self._target):
                file = await runtime.store.load_file_version(key, version.version)
                if file is None or sha256(file.content).hexdigest() != version.digest:
                    return False
        return True


def _check_copy(file: StoredFile, versions: Sequence[FileVersion], copy: StoredFile | None) -> None:
    """Raises: Differs unless the copy is the source's file, or an earlier state of it."""
    if copy is None:
        return
    if copy.incarnation != file.incarnation:
        raise Differs("the target has another file of this name", _KEEP_ONE)
    same = {version.version: version for version in versions}.get(copy.version.version)
    if copy.version.version > file.version.version or (same is not None and same != copy.version):
        raise Differs("it was changed in the target since it was copied", _KEEP_ONE)
    if same is None:
        raise Differs("no version is left in both that would show whether it was changed in the target", _KEEP_ONE)
