"""Memory files on MongoDB: their commands, a server that ends at any step of a change, and others that come between
(design sections 5 and 8)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from memoryd_server import limits
from memoryd_server.stores.base import Deleted, Store, StoreUnavailable, Version
from memoryd_server.stores.mongodb import files
from memoryd_server.stores.mongodb.files import WRITE_SECONDS
from memoryd_server.stores.mongodb.layout import DEFAULT_PREFIX, ENDED_FILES, FILE_VERSIONS, FILES, INDEXES
from memoryd_server.stores.mongodb.location import LONGEST_ANSWER_SECONDS, locate
from memoryd_server.stores.mongodb.store import MongoDBStore
from memoryd_server.stores.records import FileKey, StoredFile
from tests.databases.mongodb import database_at
from tests.stores.builders import erased, swept
from tests.stores.mongodb_commands import Command, Recorder
from tests.stores.mongodb_places import EACH_PLACE, Place, documents
from tests.stores.mongodb_servers import Doomed, server
from tests.stores.test_files import INDEX, OWNER, File, load

KEY: Final = FileKey(OWNER, INDEX)
MOST: Final = 4
"""Versions of a file that are kept here, so that few changes need trimming."""
A_SWEEP: Final = limits.PURGE_DELAY_SECONDS + 10
"""In seconds: when nobody can be writing any more."""
NOTHING: Final[dict[str, Any]] = {"file": [], "told": [], "contents": [], "listed": [], "owners": []}


@pytest.fixture(params=EACH_PLACE)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    place: Place = request.param
    with place.new_database() as url:
        yield url


@pytest.fixture(autouse=True)
def few_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_FILE_VERSIONS", MOST)


async def saved(store: Store, count: int) -> File:
    """A file with so many versions."""
    file = File(store)
    for number in range(1, count + 1):
        await file.save(b"%d" % number)
    return file


async def state(store: Store) -> dict[str, Any]:
    """All that callers can learn of the owner and the file."""
    told = [each.version for each in await store.list_file_versions(KEY)]
    contents = [await store.load_file_version(KEY, version) for version in told]
    return {
        "file": await load(store, KEY),
        "told": told,
        "contents": [each and (each.incarnation, each.content) for each in contents],
        "listed": [(name, version.version) for name, version in await store.list_files(OWNER, "", 10)],
        "owners": list(await store.list_file_owners("tenant", None, 10)),
    }


def expected(file: StoredFile) -> dict[str, Any]:
    """The state of a file whose versions are 1, 2, and so on, with these as their contents."""
    newest = file.version.version
    told = list(range(newest, max(0, newest - MOST), -1))
    return {
        "file": [file],
        "told": told,
        "contents": [(file.incarnation, b"%d" % version) for version in told],
        "listed": [(INDEX, newest)],
        "owners": [OWNER],
    }


def contents(url: str) -> list[bytes]:
    """What documents of versions hold."""
    return sorted(bytes(each["content"]) for each in documents(url, FILE_VERSIONS))


def after(store: MongoDBStore, method: str, collection: str, interfere: Callable[[], Awaitable[object]]) -> None:
    """Has others come between: behind the next command of a kind to a collection."""
    database = store._database
    original = getattr(database, method)

    async def call(name: str, *args: Any, **kwargs: Any) -> Any:
        answer = await original(name, *args, **kwargs)
        if name == collection:
            setattr(database, method, original)
            await interfere()
        return answer

    setattr(database, method, call)


class TestCommandsOfACall:
    @pytest.fixture
    def recorder(self) -> Recorder:
        return Recorder()

    async def sent(self, url: str, recorder: Recorder, prepared: int, call: Callable[[File], Awaitable[object]]) -> Any:
        """The names of what a call sends, on a file with so many versions."""
        store = MongoDBStore(locate(url), event_listeners=[recorder])
        await store.open()
        file = await saved(store, prepared)
        with recorder.during() as sent:
            await call(file)
        await store.close()
        return sent

    def names(self, sent: list[Command]) -> list[str]:
        return [f"{command.name} {command.collection}" for command in sent]

    @pytest.mark.parametrize(
        ("prepared", "names"),
        [
            (0, [f"insert {FILES}"]),
            (1, [f"find {FILES}", f"insert {FILE_VERSIONS}", f"update {FILES}"]),
            (MOST, [f"find {FILES}", f"insert {FILE_VERSIONS}", f"update {FILES}", f"delete {FILE_VERSIONS}"]),
        ],
        ids=["the first", "another", "one over the limit"],
    )
    async def test_a_version_takes_up_to_four(
        self, url: str, recorder: Recorder, prepared: int, names: list[str]
    ) -> None:
        assert self.names(await self.sent(url, recorder, prepared, lambda file: file.save(b"new"))) == names

    async def test_reading_takes_one_and_an_earlier_version_two(self, url: str, recorder: Recorder) -> None:
        keys = [KEY, *(FileKey(OWNER, f"2026-01-{day:02}.md") for day in range(1, 31))]
        sent = await self.sent(url, recorder, 3, lambda file: file.store.load_files(keys))
        assert self.names(sent) == [f"find {FILES}"]

    async def test_an_earlier_version_takes_two(self, url: str, recorder: Recorder) -> None:
        sent = await self.sent(url, recorder, 3, lambda file: file.store.load_file_version(KEY, 1))
        assert self.names(sent) == [f"find {FILES}", f"find {FILE_VERSIONS}"]

    async def test_lists_read_no_content_and_those_of_files_the_index_alone(self, url: str, recorder: Recorder) -> None:
        async def lists(file: File) -> None:
            await file.store.list_files(OWNER, "n", 10)
            await file.store.list_file_owners("tenant", OWNER._replace(id="a"), 10)
            await file.store.list_file_tenants("", 1)

        of_lists = await self.sent(url, recorder, 3, lists)
        assert {command.collection for command in of_lists} == {FILES}
        index = set(INDEXES[FILES]["by_name"])
        for command in of_lists:
            assert {name for name, shown in command.body["projection"].items() if shown} <= index
            assert not command.body["projection"]["_id"]
        [of_versions] = await self.sent(url, recorder, 0, lambda file: file.store.list_file_versions(KEY))
        assert "content" not in of_versions.body["projection"]

    async def test_what_is_asked_of_a_file_is_asked_by_its_name(self, url: str, recorder: Recorder) -> None:
        """(design section 8)"""

        async def use(file: File) -> None:
            await file.save(b"new")
            await file.store.load_files([KEY])
            await file.store.list_file_versions(KEY)
            await file.store.load_file_version(KEY, 2)
            assert file.expected is not None
            await file.store.delete_file(KEY, file.expected)

        sent = await self.sent(url, recorder, MOST, use)
        assert all("_id" in each for command in sent for each in command.filters)

    async def test_writes_wait_for_the_journals_of_a_majority(self, url: str, recorder: Recorder) -> None:
        async def use(file: File) -> None:
            await file.save(b"new")
            assert file.expected is not None
            await file.store.delete_file(KEY, file.expected)

        for command in await self.sent(url, recorder, MOST, use):
            if command.name != "find":
                concern = command.body["writeConcern"]
                assert (concern["w"], concern["j"]) == ("majority", True)


class TestServerEnds:
    """At each step: a file is as it was or as it is to be, and the next call mends what is left."""

    @pytest.mark.parametrize("commands", range(5))
    @pytest.mark.parametrize("prepared", [1, MOST, MOST + 1])
    async def test_in_a_change(self, url: str, prepared: int, commands: int) -> None:
        async with server(url) as store:
            file = await saved(store, prepared)
            assert file.current is not None
            changed = file.next(b"%d" % (prepared + 1))
            await Doomed(store, commands).do(store.save_file(changed, file.expected))
        async with server(url) as store:
            is_made = await load(store, KEY) == [changed]
            assert is_made == (commands > 2)
            assert await state(store) == expected(changed if is_made else file.current)
            file = File(store, current=changed if is_made else file.current)
            assert file.current is not None
            number = file.current.version.version + 1
            await file.save(b"%d" % number)
            assert await state(store) == expected(file.current)
        assert contents(url) == sorted(b"%d" % version for version in range(max(1, number - MOST + 1), number))

    @pytest.mark.parametrize("commands", range(5))
    async def test_in_a_change_of_what_is_deleted_then(self, url: str, commands: int) -> None:
        async with server(url) as store:
            file = await saved(store, 2)
            await Doomed(store, commands).do(store.save_file(file.next(b"3"), file.expected))
        async with server(url) as store:
            [found] = await load(store, KEY)
            assert await store.delete_file(KEY, Version(found.incarnation, found.version.version))
            assert await state(store) == NOTHING
        assert contents(url) == []

    @pytest.mark.parametrize("commands", range(5))
    @pytest.mark.parametrize("next", ["a sweep", "an erasure", "another file"])
    async def test_in_a_deletion(self, url: str, next: str, commands: int) -> None:
        async with server(url) as store:
            file = await saved(store, 3)
            assert file.current is not None
            assert file.expected is not None
            await Doomed(store, commands).do(store.delete_file(KEY, file.expected))
        async with server(url) as store:
            is_there = await load(store, KEY) != []
            assert is_there == (commands < 3)
            assert await state(store) == (expected(file.current) if is_there else NOTHING)
            assert await swept(store, 0) == Deleted()
            assert await state(store) == (expected(file.current) if is_there else NOTHING)
            if next == "a sweep":
                await swept(store, A_SWEEP)
                assert documents(url, ENDED_FILES) == []
                assert contents(url) == ([b"1", b"2"] if is_there else [])
                assert await state(store) == (expected(file.current) if is_there else NOTHING)
            if next == "an erasure":
                assert await erased(store, OWNER.id) == Deleted(files=int(is_there))
                assert contents(url) == []
                assert await state(store) == NOTHING
            if next == "another file" and not is_there:
                again = await saved(store, 2)
                assert again.current is not None
                await swept(store, A_SWEEP)
                assert await state(store) == expected(again.current)
                assert contents(url) == [b"1"]

    async def test_in_a_deletion_that_is_made_after_all(self, url: str) -> None:
        """Its note is not forgotten with that of the attempt before."""
        async with server(url) as store, server(url) as other:
            file = await saved(store, 2)
            assert file.expected is not None
            await Doomed(store, 2).do(store.delete_file(KEY, file.expected))
            with database_at(url.partition("?")[0]) as database:
                long_ago = {"$set": {"ended_at": datetime(2026, 1, 1, tzinfo=UTC)}}
                assert database[DEFAULT_PREFIX + ENDED_FILES].update_many({}, long_ago).matched_count == 1
            found = Version(file.expected.incarnation, file.expected.version)
            sweeping = MongoDBStore(locate(url))
            await sweeping.open()

            async def delete_it() -> None:
                assert await other.delete_file(KEY, found)

            after(sweeping, "find", FILES, delete_it)
            await swept(sweeping, 0)
            await sweeping.close()
            assert [each["_id"] for each in documents(url, ENDED_FILES)] == [found.incarnation]
            assert contents(url) == []

    @pytest.mark.parametrize("commands", range(3, 8))
    async def test_in_an_erasure(self, url: str, commands: int) -> None:
        async with server(url) as store:
            for name in (INDEX, "2026-01-01.md"):
                file = File(store, name=name)
                for content in (b"1", b"2", b"3"):
                    await file.save(content)
            await Doomed(store, commands).do(store.erase("tenant", OWNER.id, 100))
        async with server(url) as store:
            left = len(documents(url, FILES))
            assert await erased(store, OWNER.id, limit=1) == Deleted(files=left)
            assert await state(store) == NOTHING
            assert documents(url, FILES) == documents(url, FILE_VERSIONS) == []
            assert OWNER.id not in str(documents(url, ENDED_FILES))
            await swept(store, A_SWEEP)
        assert documents(url, ENDED_FILES) == []

    @pytest.mark.parametrize("commands", [1, 2, 3, 4])
    @pytest.mark.parametrize("next", ["a sweep", "an erasure"])
    async def test_in_a_change_while_another_deletes_the_file(self, url: str, next: str, commands: int) -> None:
        """What it leaves is nobody's, and goes."""
        async with server(url) as store, server(url) as other:
            file = await saved(store, 2)

            async def delete_and_begin_anew() -> None:
                assert file.expected is not None
                assert await other.delete_file(KEY, file.expected)
                await saved(other, 2)

            after(store, "find_one", FILES, delete_and_begin_anew)
            await Doomed(store, commands).do(store.save_file(file.next(b"3"), file.expected))
        async with server(url) as store:
            [again] = await load(store, KEY)
            assert await state(store) == expected(again)
            if next == "a sweep":
                await swept(store, A_SWEEP)
                assert await state(store) == expected(again)
                assert contents(url) == [b"1"]
            else:
                assert await erased(store, OWNER.id) == Deleted(files=1)
                assert contents(url) == []

    def test_what_is_late_is_over_before_the_note_is_looked_at(self) -> None:
        assert 2 * (WRITE_SECONDS + LONGEST_ANSWER_SECONDS) <= limits.PURGE_DELAY_SECONDS


class TestOthersComeBetween:
    async def test_a_deletion_and_the_change_leaves_no_content(self, url: str) -> None:
        async with server(url) as store, server(url) as other:
            file = await saved(store, 3)
            assert file.expected is not None
            was = file.expected
            after(store, "find_one", FILES, lambda: other.delete_file(KEY, was))
            assert not await store.save_file(file.next(b"4"), file.expected)
            assert await state(store) == NOTHING
        assert contents(url) == []

    async def test_an_erasure_and_the_change_leaves_no_content(self, url: str) -> None:
        async with server(url) as store, server(url) as other:
            file = await saved(store, 3)
            after(store, "find_one", FILES, lambda: erased(other, OWNER.id))
            assert not await store.save_file(file.next(b"4"), file.expected)
            assert not (await store.erase("tenant", OWNER.id, 10)).total
        assert documents(url, FILES) == documents(url, FILE_VERSIONS) == []

    @pytest.mark.parametrize("changes", [1, MOST - 1, MOST, MOST + 2])
    @pytest.mark.parametrize("method", ["find_one", "insert"])
    async def test_faster_changes_and_the_history_is_theirs(self, url: str, method: str, changes: int) -> None:
        async with server(url) as store, server(url) as other:
            file, faster = await saved(store, 2), File(other)
            faster.current = file.current

            async def change() -> None:
                for number in range(3, 3 + changes):
                    await faster.save(b"%d" % number)

            after(store, method, FILES if method == "find_one" else FILE_VERSIONS, change)
            assert not await store.save_file(file.next(b"late"), file.expected)
            assert faster.current is not None
            assert await state(store) == expected(faster.current)
        newest = 2 + changes
        assert contents(url) == sorted(b"%d" % version for version in range(max(1, newest - MOST + 1), newest))

    async def test_a_faster_change_that_is_not_yet_a_majoritys_keeps_its_history(self, url: str) -> None:
        """A compare-and-set meets what reads do not show yet."""
        async with server(url) as store, server(url) as other:
            file, faster = await saved(store, 2), File(other)
            faster.current = file.current
            [before] = documents(url, FILES)
            after(store, "insert", FILE_VERSIONS, lambda: faster.save(b"3"))
            find_one = store._database.find_one
            answers = [find_one]

            async def find_as_before(collection: str, filter: Any, **kwargs: Any) -> Any:
                return await answers.pop()(collection, filter, **kwargs) if answers else before

            store._database.find_one = find_as_before  # type: ignore[method-assign]
            assert not await store.save_file(file.next(b"late"), file.expected)
            assert faster.current is not None
            assert await state(other) == expected(faster.current)

    @pytest.mark.parametrize("version", [1, 2, 3])
    async def test_a_version_is_read_as_it_was_or_is(self, url: str, version: int) -> None:
        async with server(url) as store, server(url) as other:
            file = await saved(other, 2)
            first = file.current
            assert first is not None

            async def change(count: int) -> None:
                for _ in range(count):
                    assert file.current is not None
                    await file.save(b"%d" % (file.current.version.version + 1))

            async def delete_and_begin_anew() -> None:
                assert file.expected is not None
                assert await other.delete_file(KEY, file.expected)
                file.current = None
                await change_anew()

            async def change_anew() -> None:
                await file.save(b"anew")
                await file.save(b"anew")

            between: Mapping[str, Callable[[], Awaitable[object]]] = {
                "a change": lambda: change(1),
                "changes that trim": lambda: change(MOST),
                "another life": delete_and_begin_anew,
            }
            for interfere in between.values():
                before = await other.load_file_version(KEY, version)
                after(store, "find_one", FILES, interfere)
                found = await store.load_file_version(KEY, version)
                assert found in (before, await other.load_file_version(KEY, version))

    async def test_one_that_never_holds_still_is_told(self, url: str) -> None:
        async with server(url) as store:
            await saved(store, 2)
            with database_at(url.partition("?")[0]) as database:
                database[DEFAULT_PREFIX + FILE_VERSIONS].delete_many({})
            with pytest.raises(StoreUnavailable, match="changed again and again"):
                await store.load_file_version(KEY, 1)

    async def test_another_erases_the_same(self, url: str) -> None:
        async with server(url) as store, server(url) as other:
            await saved(store, 3)
            after(store, "find", FILES, lambda: other.erase("tenant", OWNER.id, 10))
            assert await store.erase("tenant", OWNER.id, 10) == Deleted()
        assert documents(url, FILES) == documents(url, FILE_VERSIONS) == []

    @pytest.mark.parametrize("commands", [5, 6, 7, 20])
    async def test_a_file_that_begins_during_an_erasure_goes_whole(self, url: str, commands: int) -> None:
        """Its versions are not taken for those of a file that is gone."""
        async with server(url) as store, server(url) as other:
            after(store, "find", FILES, lambda: saved(other, 3))
            await Doomed(store, commands).do(store.erase("tenant", OWNER.id, 10))
            found = await load(other, KEY)
            assert await state(other) == (expected(found[0]) if found else NOTHING)
            assert bool(found) == (commands < 20)


class TestTooLate:
    """Who was held up writes nothing, since nobody may look for it any more."""

    @pytest.fixture(autouse=True)
    def late(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(files, "WRITE_SECONDS", -1.0)

    async def test_a_change(self, url: str) -> None:
        async with server(url) as store:
            file = await saved(store, 1)
            assert file.current is not None
            with pytest.raises(StoreUnavailable, match="too slow"):
                await store.save_file(file.next(b"2"), file.expected)
            assert await state(store) == expected(file.current)
        assert contents(url) == []

    async def test_a_deletion(self, url: str) -> None:
        async with server(url) as store:
            file = await saved(store, 1)
            assert file.current is not None
            assert file.expected is not None
            with pytest.raises(StoreUnavailable, match="too slow"):
                await store.delete_file(KEY, file.expected)
            assert await state(store) == expected(file.current)


async def test_a_version_that_is_trimmed_later_is_said_in_the_log(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A change that is made is not answered with an error."""

    async def fail(*_: object) -> int:
        raise StoreUnavailable("away")

    caplog.set_level(logging.INFO)
    async with server(url) as store:
        file = await saved(store, MOST)
        with monkeypatch.context() as patch:
            patch.setattr(store._database, "delete", fail)
            await file.save(b"%d" % (MOST + 1))
        assert file.current is not None
        assert "not yet deleted" in caplog.text
        assert await state(store) == expected(file.current)


async def test_a_note_of_a_deletion_names_nobody(url: str) -> None:
    """(design section 3, EraseUser)"""
    async with server(url) as store:
        file = await saved(store, 2)
        await erased(store, OWNER.id)
    assert file.current is not None
    [note] = documents(url, ENDED_FILES)
    assert note.keys() == {"_id", "ended_at"}
    assert note["_id"] == file.current.incarnation


async def test_owners_with_many_files_are_told_once_each(url: str) -> None:
    """Pages of the index end within an owner's files."""
    async with server(url) as store:
        for id_ in ("a", "b", "c"):
            for day in range(1, 6):
                await File(store, OWNER._replace(id=id_), f"2026-01-0{day}.md").save(b"x")
        for limit in (1, 2, 3, 10):
            found = [owner.id for owner in await store.list_file_owners("tenant", None, limit)]
            assert found == ["a", "b", "c"][:limit]


async def test_sweeps_look_at_many_deletions(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PAGE", 2)
    async with server(url) as store:
        for day in range(1, 6):
            file = File(store, name=f"2026-01-0{day}.md")
            await file.save(b"x")
            assert file.expected is not None
            assert await store.delete_file(file.key, file.expected)
        assert len(documents(url, ENDED_FILES)) == 5
        await store.sweep(await store.now() + A_SWEEP * 1_000_000, 4)
        assert len(documents(url, ENDED_FILES)) == 1
        await store.sweep(await store.now() + A_SWEEP * 1_000_000, 4)
    assert documents(url, ENDED_FILES) == []
