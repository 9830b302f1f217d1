"""Memory files: compare-and-set, versions, lists, deletion and erasure (design sections 5 and 8)."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from memoryd_server import limits
from memoryd_server.stores.base import Deleted, Store, Version
from memoryd_server.stores.records import (
    AgentRecord,
    AgentSettings,
    FileKey,
    FileOwner,
    FileRequest,
    FileVersion,
    StoredFile,
    Tier,
    encode_requests,
)
from tests.adapters import EACH_SHARED_ADAPTER, Adapter
from tests.stores.builders import TIME, new_incarnation
from tests.stores.conftest import OpenStore

OWNER = FileOwner("tenant", Tier.USER, "user")
INDEX = "MEMORY.md"


def version_of(version: int, content: bytes, **fields: Any) -> FileVersion:
    """A version of a file with this content."""
    digest = hashlib.sha256(content).hexdigest()
    return FileVersion(
        **{"version": version, "digest": digest, "size": len(content), "author": "", "created": TIME, **fields}
    )


@dataclass(slots=True)
class File:
    """A file under test, and what it is expected to be."""

    store: Store
    owner: FileOwner = OWNER
    name: str = INDEX
    current: StoredFile | None = None

    @property
    def key(self) -> FileKey:
        return FileKey(self.owner, self.name)

    @property
    def expected(self) -> Version | None:
        """What a change of the file must expect."""
        return None if self.current is None else Version(self.current.incarnation, self.current.version.version)

    def next(self, content: bytes, requests: str = "", **fields: Any) -> StoredFile:
        """The file's next version; its first when there is none."""
        incarnation, number = (
            (new_incarnation(), 1)
            if self.current is None
            else (self.current.incarnation, self.current.version.version + 1)
        )
        return StoredFile(self.key, incarnation, version_of(number, content, **fields), content, requests)

    async def save(self, content: bytes, **fields: Any) -> StoredFile:
        """Stores the next version."""
        file = self.next(content, **fields)
        assert await self.store.save_file(file, self.expected)
        self.current = file
        return file


async def load(store: Store, *keys: FileKey) -> list[StoredFile]:
    """The files that are there."""
    return list(await store.load_files(keys))


async def owners(store: Store, tenant: str = "tenant", page: int = 2) -> list[FileOwner]:
    """All owners of a tenant, read in pages."""
    found: list[FileOwner] = []
    while rows := await store.list_file_owners(tenant, found[-1] if found else None, page):
        found.extend(rows)
    return found


async def tenants(store: Store) -> list[str]:
    """All tenants with files, read one by one."""
    found: list[str] = []
    while rows := await store.list_file_tenants(found[-1] if found else "", 1):
        found.extend(rows)
    return found


class TestSaving:
    async def test_what_was_saved_is_loaded(self, store: Store) -> None:
        file = File(store)
        request = FileRequest("id", "digest", version_of(1, b"-"), 2, TIME)
        saved = await file.save(b"- prefers uv\n", author="ana", created=TIME + 1, requests=encode_requests([request]))
        assert await load(store, file.key) == [saved]

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\0",
            b"\xff\xfe bad \x80",
            b"\xef\xbb\xbfBOM\r\nCRLF\rCR\n",
            "\u2028\u2029\x85 \U0001f600 \u202eright to left e\u0301 \u00e9".encode(),
            b"'\"\\%_$1{}?;--",
            bytes(range(256)) * (limits.MAX_FILE_BYTES // 256),
        ],
        ids=["empty", "NUL", "bad bytes", "line ends", "Unicode", "syntax", "1 MiB of every byte"],
    )
    async def test_content_is_exact_bytes(self, store: Store, content: bytes) -> None:
        """(issue 6, encoding)"""
        file = File(store)
        await file.save(content)
        await file.save(content + b".")
        assert await load(store, file.key) == [file.current]
        earlier = await store.load_file_version(file.key, 1)
        assert earlier is not None
        assert earlier.content == content

    @pytest.mark.parametrize("author", ["", "\0", "a\u0301", "\U0001f600" * 64, "'; DROP TABLE memoryd_files; --"])
    async def test_authors_are_exact(self, store: Store, author: str) -> None:
        file = File(store)
        request = FileRequest("id", "digest", version_of(1, b"x", author=author), 0, TIME)
        saved = await file.save(b"x", author=author, requests=encode_requests([request]))
        assert await load(store, file.key) == [saved]
        assert await store.list_file_versions(file.key) == [saved.version]
        assert await store.list_files(OWNER, "", 10) == [(INDEX, saved.version)]

    async def test_replaces_content_and_requests(self, store: Store) -> None:
        file = File(store)
        await file.save(b"a", requests=encode_requests([FileRequest("1", "d", version_of(1, b"a"), 1, TIME)]))
        await file.save(b"b" * 100_000, requests=encode_requests([FileRequest("2", "d", version_of(2, b"b"), 1, TIME)]))
        saved = await file.save(b"c")
        assert await load(store, file.key) == [saved]

    async def test_versions_may_leave_numbers_out(self, store: Store) -> None:
        """A copy brings the versions that its source still has."""
        file = File(store)
        for number in (7, 9, 400):
            stored = file.next(b"%d" % number)
            file_at = msgspec.structs.replace(stored, version=version_of(number, stored.content))
            assert await store.save_file(file_at, file.expected)
            file.current = file_at
        assert await load(store, file.key) == [file.current]
        assert [version.version for version in await store.list_file_versions(file.key)] == [400, 9, 7]

    async def test_is_refused_when_the_file_is_another(self, store: Store) -> None:
        """Compare-and-set on incarnation and version (design section 5)."""
        file = File(store)
        first = await file.save(b"first")
        second = await file.save(b"second")
        wrong = [
            None,
            Version(first.incarnation, 1),
            Version(first.incarnation, 3),
            Version(new_incarnation(), 2),
        ]
        for expected in wrong:
            assert not await store.save_file(file.next(b"late"), expected)
        assert await load(store, file.key) == [second]
        assert [version.version for version in await store.list_file_versions(file.key)] == [2, 1]

    async def test_is_refused_when_there_is_no_file_to_change(self, store: Store) -> None:
        file = File(store)
        assert not await store.save_file(file.next(b"x"), Version(new_incarnation(), 1))
        assert await load(store, file.key) == []
        assert await store.list_files(OWNER, "", 10) == []
        assert await owners(store) == []

    async def test_a_change_planned_before_a_deletion_does_not_meet_the_next_file(self, store: Store) -> None:
        file = File(store)
        old = await file.save(b"old")
        assert file.expected is not None
        assert await store.delete_file(file.key, file.expected)
        file.current = None
        new = await file.save(b"new")
        stale = StoredFile(file.key, old.incarnation, version_of(2, b"stale"), b"stale")
        assert not await store.save_file(stale, Version(old.incarnation, 1))
        assert await load(store, file.key) == [new]
        assert await store.list_file_versions(file.key) == [new.version]


class TestKeys:
    async def test_are_exact(self, store: Store) -> None:
        """Names that differ in a byte, a tier or a tenant are different files (invariant 5)."""
        ids = ["user", "User", "user ", "us\u00e9r", "use\u0301r", "%", "_", "a:b", "a", "{a}", "\u00fc" * 128, "\x01"]
        keys = [FileKey(FileOwner("tenant", tier, id_), INDEX) for tier in Tier for id_ in ids]
        keys += [FileKey(FileOwner(tenant, Tier.USER, "user"), INDEX) for tenant in ("Tenant", "tenant ", "t")]
        keys += [FileKey(OWNER, name) for name in ("memory.md", "2026-01-01.md", "MEMORY.md ", "MEMORY-md")]
        saved = [await File(store, *key).save(str(key).encode()) for key in keys]
        assert await load(store, *keys) == saved
        assert await load(store, *reversed(keys)) == saved[::-1]
        for key in keys:
            assert len(await store.list_file_versions(key)) == 1

    async def test_those_that_are_not_there_are_passed_over(self, store: Store) -> None:
        saved = [await File(store, name=name).save(name.encode()) for name in ("2026-01-01.md", "2026-01-03.md")]
        keys = [FileKey(OWNER, f"2026-01-0{day}.md") for day in (1, 2, 3, 4)]
        assert await load(store, *keys) == saved
        assert await load(store, keys[1]) == await load(store) == []


class TestVersions:
    async def test_are_told_newest_first(self, store: Store) -> None:
        file = File(store)
        saved = [await file.save(b"%d" % number, author=f"{number}", created=TIME + number) for number in range(5)]
        assert await store.list_file_versions(file.key) == [version.version for version in reversed(saved)]

    async def test_each_can_be_read(self, store: Store) -> None:
        file = File(store)
        request = FileRequest("id", "digest", version_of(1, b"-"), 2, TIME)
        saved = [await file.save(b"%d" % number, requests=encode_requests([request])) for number in range(3)]
        for version in saved:
            bare = msgspec.structs.replace(version, requests="")
            assert await store.load_file_version(file.key, version.version.version) == bare
        assert await store.load_file_version(file.key, 0) is None
        assert await store.load_file_version(file.key, 4) is None

    async def test_the_last_50_stay(self, store: Store) -> None:
        file = File(store)
        saved = [await file.save(b"%d" % number) for number in range(limits.MAX_FILE_VERSIONS + 3)]
        assert await store.list_file_versions(file.key) == [version.version for version in reversed(saved[3:])]
        assert await store.load_file_version(file.key, 3) is None
        oldest = await store.load_file_version(file.key, 4)
        assert oldest is not None
        assert oldest.content == b"3"

    async def test_of_nothing_are_none(self, store: Store) -> None:
        assert await store.list_file_versions(FileKey(OWNER, INDEX)) == []
        assert await store.load_file_version(FileKey(OWNER, INDEX), 1) is None


class TestLists:
    async def test_index_first_then_the_newest_logs(self, store: Store) -> None:
        names = [INDEX, *(f"2026-0{month}-0{day}.md" for month in (1, 2, 3) for day in (1, 2))]
        saved = {name: await File(store, name=name).save(name.encode()) for name in names}
        await File(store, FileOwner("tenant", Tier.PROJECT, "user"), "2026-02-03.md").save(b"another tier")
        await File(store, FileOwner("tenant", Tier.USER, "user2"), "2026-02-03.md").save(b"another user")
        expected = [(name, saved[name].version) for name in sorted(names, reverse=True)]
        assert await store.list_files(OWNER, "", 100) == expected
        for page in (1, 2, 3, 7):
            found: list[tuple[str, FileVersion]] = []
            while rows := await store.list_files(OWNER, found[-1][0] if found else "", page):
                found.extend(rows)
            assert found == expected

    async def test_tell_the_newest_version(self, store: Store) -> None:
        file = File(store)
        await file.save(b"a")
        saved = await file.save(b"bb")
        assert await store.list_files(OWNER, "", 10) == [(INDEX, saved.version)]

    async def test_owners_by_tier_and_bytes(self, store: Store) -> None:
        ids = ["b", "a", "\U0001f600", "\uff41", "a b", "aa"]
        expected = [FileOwner("tenant", tier, id_) for tier in Tier for id_ in sorted(ids, key=str.encode)]
        for owner in reversed(expected):
            await File(store, owner).save(b"x")
            await File(store, owner, "2026-01-01.md").save(b"y")
        await File(store, FileOwner("another", Tier.USER, "c")).save(b"x")
        assert await owners(store) == expected
        assert await owners(store, "another") == [FileOwner("another", Tier.USER, "c")]
        assert await tenants(store) == ["another", "tenant"]
        assert await owners(store, "nobody") == []


class TestDeletion:
    async def test_takes_all_versions_and_the_place_in_lists(self, store: Store) -> None:
        file, other = File(store), File(store, name="2026-01-01.md")
        for content in (b"a", b"b", b"c"):
            await file.save(content)
        kept = await other.save(b"kept")
        assert file.expected is not None
        assert await store.delete_file(file.key, file.expected)
        assert await load(store, file.key, other.key) == [kept]
        assert await store.list_file_versions(file.key) == []
        assert await store.load_file_version(file.key, 1) is None
        assert await store.list_files(OWNER, "", 10) == [(other.name, kept.version)]
        assert await owners(store) == [OWNER]

    async def test_of_the_last_file_takes_the_owner(self, store: Store) -> None:
        file = File(store)
        await file.save(b"a")
        assert file.expected is not None
        assert await store.delete_file(file.key, file.expected)
        assert await owners(store) == []
        assert await tenants(store) == []

    async def test_is_refused_when_the_file_is_another(self, store: Store) -> None:
        file = File(store)
        first = await file.save(b"a")
        second = await file.save(b"b")
        for expected in (Version(first.incarnation, 1), Version(new_incarnation(), 2)):
            assert not await store.delete_file(file.key, expected)
        assert not await store.delete_file(FileKey(OWNER, "2026-01-01.md"), Version(first.incarnation, 2))
        assert await load(store, file.key) == [second]

    async def test_begins_versions_anew(self, store: Store) -> None:
        file = File(store)
        await file.save(b"a")
        await file.save(b"b")
        assert file.expected is not None
        assert await store.delete_file(file.key, file.expected)
        file.current = None
        saved = await file.save(b"c")
        assert await store.list_file_versions(file.key) == [saved.version]
        assert saved.version.version == 1


class TestErasure:
    """(design section 3, EraseUser)"""

    async def test_takes_a_users_files(self, store: Store) -> None:
        for name in (INDEX, "2026-01-01.md", "2026-01-02.md"):
            file = File(store, name=name)
            await file.save(b"a")
            await file.save(b"b")
        kept = [
            await File(store, owner).save(b"kept")
            for owner in (
                FileOwner("tenant", Tier.PROJECT, "user"),
                FileOwner("tenant", Tier.USER, "user2"),
                FileOwner("another", Tier.USER, "user"),
            )
        ]
        deleted = Deleted()
        while (step := await store.erase("tenant", "user", 2)).total:
            deleted += step
        assert deleted == Deleted(files=3)
        assert await store.list_files(OWNER, "", 10) == []
        assert await store.list_file_versions(FileKey(OWNER, INDEX)) == []
        assert await load(store, FileKey(OWNER, INDEX), *(file.key for file in kept)) == kept

    async def test_a_change_planned_before_does_not_bring_the_file_back(self, store: Store) -> None:
        file = File(store)
        await file.save(b"a")
        planned, expected = file.next(b"b"), file.expected
        assert (await store.erase("tenant", "user", 100)).files == 1
        assert not await store.save_file(planned, expected)
        assert not (await store.erase("tenant", "user", 100)).total


@pytest.mark.parametrize("adapter", EACH_SHARED_ADAPTER, indirect=True)
class TestOfTwoServers:
    async def test_one_of_many_changes_at_once_is_made(self, open_store: OpenStore) -> None:
        stores = [await open_store(), await open_store()]
        file = File(stores[0])
        for expected_rounds in range(5):
            candidates = [file.next(b"%d %d" % (expected_rounds, number)) for number in range(8)]
            made = await asyncio.gather(
                *(stores[number % 2].save_file(candidate, file.expected) for number, candidate in enumerate(candidates))
            )
            assert sum(made) == 1
            file.current = candidates[made.index(True)]
            for store in stores:
                assert await load(store, file.key) == [file.current]
        assert [version.version for version in await stores[1].list_file_versions(file.key)] == [5, 4, 3, 2, 1]

    async def test_a_deletion_and_a_change_at_once_end_as_one_of_the_two(self, open_store: OpenStore) -> None:
        stores = [await open_store(), await open_store()]
        file = File(stores[0])
        for _ in range(5):
            await file.save(b"a")
            changed, expected = file.next(b"b"), file.expected
            assert expected is not None
            deleted, saved = await asyncio.gather(
                stores[0].delete_file(file.key, expected), stores[1].save_file(changed, expected)
            )
            assert deleted != saved
            assert await load(stores[0], file.key) == ([] if deleted else [changed])
            file.current = changed if saved else None

    async def test_files_outlive_a_restart(self, adapter: Adapter, open_store: OpenStore) -> None:
        del adapter
        file = File(await open_store())
        await file.save(b"a")
        await file.save(b"b")
        await file.store.close()
        again = await open_store()
        assert await load(again, file.key) == [file.current]
        assert len(await again.list_file_versions(file.key)) == 2


class TestSettingsOfAgents:
    async def test_load_memory_is_stored_beside_the_policy(self, store: Store) -> None:
        record = AgentRecord("tenant", "agent", 1, TIME, settings=AgentSettings(load_memory=True))
        assert await store.save_agent(record)
        assert await store.load_agent("tenant", "agent") == record
        assert list(await store.list_agents("tenant", "", 10)) == [record]
        off = msgspec.structs.replace(record, version=2, settings=AgentSettings())
        assert await store.save_agent(off)
        assert await store.load_agent("tenant", "agent") == off
