"""A copy of a memory file is the file: its content and versions, their authors and times, and the writes that it
remembers; whatever comes in between, and whoever changed the target."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from memoryd_server import limits
from memoryd_server.engine import agents, copying, memory_files, tokens
from memoryd_server.engine.agents import AgentUpdate
from memoryd_server.engine.copy_differences import Differs
from memoryd_server.engine.copying import Difference, Scope, Tally
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.file_copying import FileCopier
from memoryd_server.engine.memory_writes import Write, Written
from memoryd_server.engine.runtime import Defaults, Runtime
from memoryd_server.engine.session_copying import Copied
from memoryd_server.stores.base import Store
from memoryd_server.stores.records import FileKey, FileOwner, FileVersion, Tier
from memoryd_server.stores.registry import create_store
from tests.adapters import EACH_ATOMIC_ADAPTER, Adapter
from tests.engine.faulty_store import FaultyFiles, failing
from tests.engine.test_copying import EVERYTHING, Witness, copied

ANA = FileOwner("t", Tier.USER, "ana")
ATLAS = FileOwner("t", Tier.PROJECT, "atlas")
INDEX = FileKey(ANA, "MEMORY.md")
DAY = "2026-01-31"
KEPT = limits.MAX_FILE_VERSIONS


async def opened(store: Store) -> Runtime:
    return Runtime("default", store, await store.open(), Defaults(tokenizer=tokens.ESTIMATE))


@pytest.fixture
async def source() -> Runtime:
    return await opened(FaultyFiles())


@pytest.fixture
def target_store() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
async def target(target_store: FaultyFiles) -> Runtime:
    return await opened(target_store)


async def put(runtime: Runtime, content: str, key: FileKey = INDEX, **fields: Any) -> FileVersion:
    return await memory_files.put(runtime, Write(key, **fields), content.encode())


async def add(runtime: Runtime, *entries: str, owner: FileOwner = ANA, **fields: Any) -> Written:
    return await memory_files.add_entries(runtime, Write(FileKey(owner, "MEMORY.md"), **fields), entries)


async def log(runtime: Runtime, text: str, owner: FileOwner = ANA, **fields: Any) -> tuple[str, FileVersion]:
    return await memory_files.append_log(runtime, Write(FileKey(owner, ""), **fields), text, day=DAY)


async def reason_of(call: Awaitable[object]) -> Reason:
    """Why a call is refused."""
    with pytest.raises(RequestError) as raised:
        await call
    return raised.value.reason


async def reads(runtime: Runtime, *owners: FileOwner) -> list[Any]:
    """All that a caller may read of the files of these owners."""
    found: list[Any] = []
    for owner in owners:
        files, _ = await memory_files.list_(runtime, owner, 1_000)
        for name, version in files:
            key = FileKey(owner, name)
            versions = await memory_files.list_versions(runtime, key)
            contents = [(await memory_files.get(runtime, key, each.version)).content for each in versions]
            found.append((key, version, versions, contents, (await memory_files.get(runtime, key)).content))
    return found


async def assert_same(source: Runtime, target: Runtime, *owners: FileOwner) -> None:
    here = await reads(source, *owners)
    assert here
    assert await reads(target, *owners) == here


async def differences(source: Runtime, target: Runtime) -> list[Difference]:
    """What a copy lists."""
    witness, tally = Witness(), Tally()
    await copying.copy(source, target, EVERYTHING, tally, witness)
    assert tally.different_files == len(witness.differences)
    return witness.differences


@pytest.mark.parametrize("adapter", EACH_ATOMIC_ADAPTER)
async def test_there_and_back_all_is_the_same_on_every_store(adapter: Adapter, tmp_path: Path, source: Runtime) -> None:
    """Of the last versions, with authors and times; and repeated writes are recognized (invariants 2, 4 and 5)."""
    for number in range(KEPT + 3):
        await put(source, f"- {number}\n", author=f"author {number}", request_id=f"put {number}")
    added = await add(source, "- one", "- \0 \u2028 \U0001f600", owner=ATLAS, request_id="add")
    logged = await log(source, "hello", owner=ATLAS, request_id="log")
    twin = FileOwner("t", Tier.PROJECT, ANA.id)
    await add(source, "- of the project", owner=twin)
    await add(source, "- of another tenant", owner=ANA._replace(tenant="u"))
    await add(source, "- of another case", owner=ANA._replace(id="ANA"))
    owners = (ANA, ATLAS, twin, ANA._replace(tenant="u"), ANA._replace(id="ANA"))

    async with AsyncExitStack() as running:
        store = create_store("test", adapter.type, running.enter_context(adapter.emptied(tmp_path)))
        target = await opened(store)
        running.push_async_callback(store.close)
        last = await opened(FaultyFiles())
        tally = await copied(source, target)
        assert (tally.files, tally.new_files, tally.different_files) == (6, 6, 0)
        await assert_same(source, target, *owners)
        await copied(target, last)
        await assert_same(source, last, *owners)
        for runtime in (target, last):
            version = await put(runtime, f"- {KEPT}\n", author=f"author {KEPT}", request_id=f"put {KEPT}")
            assert (version.version, version.author) == (KEPT + 1, f"author {KEPT}")
            assert await reason_of(put(runtime, "- other\n", request_id=f"put {KEPT}")) == Reason.REQUEST_ID_CONFLICT
            assert await add(runtime, "- one", "- \0 \u2028 \U0001f600", owner=ATLAS, request_id="add") == added
            assert await log(runtime, "hello", owner=ATLAS, request_id="log") == logged
        await assert_same(source, target, *owners)


async def test_a_second_copy_passes_over_what_is_there_and_adds_what_came_since(
    source: Runtime, target: Runtime, target_store: FaultyFiles
) -> None:
    for number in range(3):
        await put(source, f"- {number}\n")
    await log(source, "one")
    await copied(source, target)
    assert target_store.saves == 4
    tally = await copied(source, target)
    assert (tally.files, tally.new_files, target_store.saves) == (2, 0, 4)

    await put(source, "- later\n", author="ana")
    await log(source, "two", request_id="r")
    await add(source, "- of a project", owner=ATLAS)
    tally = await copied(source, target)
    assert (tally.files, tally.new_files, target_store.saves) == (3, 3, 7)
    await assert_same(source, target, ANA, ATLAS)
    assert await log(target, "two", request_id="r") == await log(source, "two", request_id="r")


async def test_many_versions_later_the_oldest_have_gone_in_the_copy_too(source: Runtime, target: Runtime) -> None:
    for number in range(10):
        await put(source, f"- {number}\n")
    await copied(source, target)
    for number in range(10, KEPT + 5):
        await put(source, f"- {number}\n")
    await copied(source, target)
    await assert_same(source, target, ANA)


class TestAnotherFileInTheTarget:
    """It is listed and left alone: nobody's memory is overwritten."""

    async def listed(self, source: Runtime, target: Runtime, what: str) -> None:
        before = await reads(target, ANA)
        (difference,) = await differences(source, target)
        assert (difference.file, difference.session_id, difference.failed) == (INDEX, None, False)
        assert what in difference.what
        assert "keep one of the two" in difference.advice
        assert await reads(target, ANA) == before

    async def test_that_was_there_before(self, source: Runtime, target: Runtime) -> None:
        await put(source, "- here\n")
        await put(target, "- there\n")
        await self.listed(source, target, "the target has another file of this name")

    async def test_that_is_the_copy_changed(self, source: Runtime, target: Runtime) -> None:
        await put(source, "- one\n")
        await copied(source, target)
        await put(target, "- two\n")
        await self.listed(source, target, "it was changed in the target since it was copied")
        await put(source, "- three\n")
        await self.listed(source, target, "it was changed in the target since it was copied")
        await put(source, "- four\n")
        await self.listed(source, target, "it was changed in the target since it was copied")
        # As the advice says.
        assert await memory_files.delete(target, INDEX)
        await copied(source, target)
        await assert_same(source, target, ANA)

    async def test_that_is_the_copy_changed_more_than_50_versions_ago(self, source: Runtime, target: Runtime) -> None:
        """The source has forgotten the version that would show it."""
        await put(source, "- one\n")
        await copied(source, target)
        await put(target, "- two\n")
        for number in range(KEPT + 2):
            await put(source, f"- {number}\n")
        await self.listed(source, target, "no version is left in both that would show whether it was changed")

    async def test_that_came_after_a_deletion_in_the_source(self, source: Runtime, target: Runtime) -> None:
        await put(source, "- one\n")
        await copied(source, target)
        await memory_files.delete(source, INDEX)
        await put(source, "- a new file\n")
        await self.listed(source, target, "the target has another file of this name")

    async def test_is_no_obstacle_for_the_others(self, source: Runtime, target: Runtime) -> None:
        await put(source, "- here\n")
        await put(target, "- there\n")
        await add(source, "- of a project", owner=ATLAS)
        await self.listed(source, target, "another file")
        await assert_same(source, target, ATLAS)


async def test_a_file_that_is_deleted_in_the_target_is_copied_anew(source: Runtime, target: Runtime) -> None:
    await put(source, "- one\n")
    await put(source, "- two\n")
    await copied(source, target)
    await memory_files.delete(target, INDEX)
    assert (await copied(source, target)).new_files == 1
    await assert_same(source, target, ANA)


class TestAFileThatIsDeletedInTheSource:
    async def test_is_listed_and_left_to_the_caller(self, source: Runtime, target: Runtime) -> None:
        """Nothing but copies is changed in the target; but it is not said to be the same, since what a person deleted
        would come back with it.
        """
        await put(source, "- one\n")
        await log(source, "one")
        await copied(source, target)
        await memory_files.delete(source, INDEX)
        (difference,) = await differences(source, target)
        assert (difference.file, difference.failed) == (INDEX, False)
        assert "deleted" in difference.what
        assert "memoryd memory delete" in difference.advice
        assert (await memory_files.get(target, INDEX)).content == b"- one\n"
        await memory_files.delete(target, INDEX)
        assert (await copied(source, target)).files == 1

    async def test_is_found_where_no_file_is_left(self, source: Runtime, target: Runtime) -> None:
        await put(source, "- one\n")
        await copied(source, target)
        await memory_files.delete(source, INDEX)
        assert len(await differences(source, target)) == 1

    async def test_is_found_beyond_a_store_between(self, source: Runtime, target: Runtime) -> None:
        between = await opened(FaultyFiles())
        await put(source, "- one\n")
        await copied(source, between)
        await copied(between, target)
        await memory_files.delete(between, INDEX)
        assert len(await differences(between, target)) == 1

    async def test_is_none_that_the_target_had_of_itself(self, source: Runtime, target: Runtime) -> None:
        await put(target, "- of the target\n")
        await put(source, "- one\n", FileKey(ATLAS, "MEMORY.md"))
        await copied(source, target)
        back = await opened(FaultyFiles())
        await copied(target, back)
        assert (await copied(source, back)).files == 1


async def test_a_file_that_goes_while_it_is_copied_is_no_difference(source: Runtime, target: Runtime) -> None:
    copier = FileCopier(source, target)
    await put(source, "- one\n")
    await memory_files.delete(source, INDEX)
    assert await copier.copy(INDEX) is Copied.GONE
    assert await copier.compare(INDEX) is Copied.GONE


async def test_a_copy_that_ended_half_way_goes_on_there(
    source: Runtime, target: Runtime, target_store: FaultyFiles
) -> None:
    """Before and after a version was stored (invariants 2 and 3)."""
    for number in range(6):
        await put(source, f"- {number}\n", author=f"{number}", request_id=f"{number}")
    copier = FileCopier(source, target)

    async def pass_() -> None:
        pass

    target_store.before_save = deque([pass_, pass_, failing(RuntimeError("gone"))])
    with pytest.raises(RuntimeError):
        await copier.copy(INDEX)
    assert len(await memory_files.list_versions(target, INDEX)) == 2
    target_store.after_save = deque([failing(RuntimeError("gone"))])
    with pytest.raises(RuntimeError):
        await copier.copy(INDEX)
    assert len(await memory_files.list_versions(target, INDEX)) == 3

    assert await copier.copy(INDEX) is Copied.UPDATED
    assert target_store.saves == 6
    assert await copier.compare(INDEX) is Copied.KNOWN
    await assert_same(source, target, ANA)
    assert (await put(target, "- 5\n", author="5", request_id="5")).version == 6


async def test_a_source_that_is_written_meanwhile_is_caught_up_with(source: Runtime, target: Runtime) -> None:
    """All that was there when the comparison began is in the target."""
    await put(source, "- one\n")
    written = iter(range(2))

    async def change() -> None:
        for number in written:
            await put(source, f"- meanwhile {number}\n")
            return

    assert isinstance(target.store, FaultyFiles)
    target.store.before_save = deque([change, change])
    await copied(source, target)
    await assert_same(source, target, ANA)


async def test_a_content_that_was_damaged_is_found(source: Runtime, target: Runtime) -> None:
    """The comparison reads both, and does not trust what is told of them."""
    await put(source, "- one\n")
    await put(source, "- two\n")
    await copied(source, target)
    assert isinstance(target.store, FaultyFiles)
    file = target.store._owners[ANA]["MEMORY.md"][1]
    target.store._owners[ANA]["MEMORY.md"][1] = type(file)(file.key, file.incarnation, file.version, b"- 0ne\n")
    with pytest.raises(Differs, match="its versions are not the same"):
        await FileCopier(source, target).compare(INDEX)
    (difference,) = await differences(source, target)
    assert difference.file == INDEX


class TestScope:
    @pytest.fixture
    async def source(self) -> Runtime:
        source = await opened(FaultyFiles())
        for tenant in ("t", "u"):
            for owner in ("ana", "bob"):
                await add(source, "- one", owner=FileOwner(tenant, Tier.USER, owner))
            await add(source, "- one", owner=FileOwner(tenant, Tier.PROJECT, "ana"))
        return source

    @pytest.mark.parametrize(
        ("scope", "expected"),
        [
            (Scope(), {f"{tenant} {owner}" for tenant in "tu" for owner in ("USER ana", "USER bob", "PROJECT ana")}),
            (Scope(users=frozenset({"ana"})), {"t USER ana", "u USER ana"}),
            (Scope(users=frozenset({"ana", "bob"}), tenants=frozenset({"u"})), {"u USER ana", "u USER bob"}),
            (Scope(tenants=frozenset({"t"})), {"t USER ana", "t USER bob", "t PROJECT ana"}),
            (Scope(agents=frozenset({"assistant"})), set()),
            (Scope(agents=frozenset({"assistant"}), users=frozenset({"ana"})), set()),
        ],
        ids=["all", "a user", "users of a tenant", "a tenant", "an agent", "an agent and a user"],
    )
    async def test_only_what_is_asked_for(
        self, source: Runtime, target: Runtime, scope: Scope, expected: set[str]
    ) -> None:
        """A project's memory is no user's, and no memory is an agent's."""
        tally = await copied(source, target, scope)
        found = {
            f"{tenant} {owner.tier.name} {owner.id}"
            for tenant in await target.store.list_file_tenants("", 10)
            for owner in await target.store.list_file_owners(tenant, None, 10)
        }
        assert found == expected
        assert tally.files == tally.new_files == len(expected)

    async def test_a_user_who_has_memory_alone_is_found(self, source: Runtime, target: Runtime) -> None:
        tally = await copied(source, target, Scope(users=frozenset({"ana", "nobody"})))
        assert tally.unmatched == ["user 'nobody'"]


async def test_more_than_a_page_of_owners_and_files_is_copied(
    source: Runtime, target: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memoryd_server.engine.file_copying.PAGE_FILES", 2)
    owners = [FileOwner(tenant, tier, f"{n}") for tenant in ("t", "u", "v") for tier in Tier for n in range(3)]
    for owner in owners:
        for day in range(1, 4):
            await put(source, f"{owner}", FileKey(owner, f"2026-01-0{day}.md"))
    assert (await copied(source, target)).files == 3 * len(owners)
    await assert_same(source, target, *owners)


class TestTheSettingsOfAnAgent:
    """`load_memory` is copied as the policy is."""

    async def test_are_copied(self, source: Runtime, target: Runtime) -> None:
        await agents.update(source, "t", "assistant", AgentUpdate(load_memory=True))
        await copied(source, target)
        assert (await agents.get(target, "t", "assistant")).settings.load_memory

    async def test_that_differ_are_listed(self, source: Runtime, target: Runtime) -> None:
        await agents.update(source, "t", "assistant", AgentUpdate(load_memory=True))
        await copied(source, target)
        await agents.update(target, "t", "assistant", AgentUpdate(load_memory=False))
        witness, tally = Witness(), Tally()
        await copying.copy(source, target, EVERYTHING, tally, witness)
        assert [(each.agent, each.file) for each in witness.differences] == [("assistant", None)]
        assert not (await agents.get(target, "t", "assistant")).settings.load_memory
