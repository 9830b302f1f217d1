"""Memory files: what is written, when it is refused, and that nobody's entry is lost (design sections 3 and 7)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server import limits
from memoryd_server.engine import memory_files
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.memory_files import etag_of
from memoryd_server.engine.memory_writes import Write, Written
from memoryd_server.engine.runtime import Runtime
from memoryd_server.stores.base import StoreUnavailable, Version
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.records import FileKey, FileOwner, FileVersion, Tier
from tests.engine.faulty_store import FaultyFiles, Gate, failing
from tests.engine.sessions import runtime_on

OWNER = FileOwner("tenant", Tier.USER, "ana")
INDEX = FileKey(OWNER, "MEMORY.md")
DAY = "2026-01-31"
LOG = FileKey(OWNER, f"{DAY}.md")
HOUR = 3_600 * 1_000_000


@pytest.fixture
def store() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def runtime(store: FaultyFiles) -> Runtime:
    return runtime_on(store)


@pytest.fixture
def another(store: FaultyFiles) -> Runtime:
    """Another server on the same store."""
    return runtime_on(store)


async def put(runtime: Runtime, content: bytes, key: FileKey = INDEX, **conditions: object) -> FileVersion:
    write = Write(key, **{name: conditions.pop(name) for name in ("author", "request_id") if name in conditions})  # type: ignore[arg-type]
    return await memory_files.put(runtime, write, content, **conditions)  # type: ignore[arg-type]


async def add(runtime: Runtime, *entries: str, request_id: str = "", deadline: float | None = None) -> Written:
    return await memory_files.add_entries(runtime, Write(INDEX, request_id=request_id), entries, deadline=deadline)


async def log(
    runtime: Runtime, text: str, day: str = DAY, *, time_zone: str = "", request_id: str = ""
) -> tuple[str, FileVersion]:
    write = Write(FileKey(OWNER, ""), request_id=request_id)
    return await memory_files.append_log(runtime, write, text, day=day, time_zone=time_zone)


async def content_of(runtime: Runtime, key: FileKey = INDEX) -> bytes:
    return (await memory_files.get(runtime, key)).content


async def refused(call: Awaitable[object]) -> RequestError:
    """The error that a call ends with."""
    with pytest.raises(RequestError) as raised:
        await call
    return raised.value


async def assert_not_found(runtime: Runtime, key: FileKey = INDEX) -> None:
    assert (await refused(memory_files.get(runtime, key))).reason == Reason.MEMORY_FILE_NOT_FOUND


def overtaking(store: FaultyFiles) -> Callable[[FileKey], Awaitable[None]]:
    """A rival that changes the file each time, as another server does."""

    async def write(key: FileKey) -> None:
        (file,) = await InMemoryStore.load_files(store, [key])
        version = msgspec.structs.replace(file.version, version=file.version.version + 1)
        expected = Version(file.incarnation, file.version.version)
        assert await InMemoryStore.save_file(store, msgspec.structs.replace(file, version=version), expected)

    return write


class TestPut:
    async def test_what_was_put_is_got_with_what_is_told_of_it(self, runtime: Runtime) -> None:
        content = b"\xef\xbb\xbf- a\r\n- \xff\0"
        before = runtime.clock.now()
        version = await put(runtime, content, author="ana's agent")
        assert (version.version, version.size, version.author) == (1, len(content), "ana's agent")
        assert before <= version.created <= runtime.clock.now()
        file = await memory_files.get(runtime, INDEX)
        assert (file.content, file.version) == (content, version)
        assert await put(runtime, b"") == (await memory_files.get(runtime, INDEX)).version
        assert await content_of(runtime) == b""

    async def test_an_etag_is_a_condition(self, runtime: Runtime) -> None:
        first = await put(runtime, b"1")
        second = await put(runtime, b"2", etag=etag_of(first))
        error = await refused(put(runtime, b"3", etag=etag_of(first)))
        assert (error.reason, error.metadata["etag"]) == (Reason.ETAG_MISMATCH, etag_of(second))
        assert await content_of(runtime) == b"2"

    async def test_equal_contents_have_equal_etags(self, runtime: Runtime) -> None:
        """(AIP-154) Also of files that have nothing to do with each other."""
        first = await put(runtime, b"1")
        other = await put(runtime, b"2")
        assert etag_of(first) != etag_of(other)
        assert etag_of(await put(runtime, b"1", LOG)) == etag_of(first) == etag_of(await put(runtime, b"1"))

    async def test_a_content_that_the_file_has_already_passes_and_writes_nothing(
        self, runtime: Runtime, store: FaultyFiles
    ) -> None:
        await put(runtime, b"1")
        second = await put(runtime, b"2", author="ana")
        assert await put(runtime, b"2", etag="stale", author="bob") == second
        assert await put(runtime, b"2", create_only=True) == second
        assert await put(runtime, b"2") == second
        assert store.saves == 2

    async def test_a_file_that_is_gone_has_no_etag(self, runtime: Runtime) -> None:
        first = await put(runtime, b"1")
        await memory_files.delete(runtime, INDEX)
        for content in (b"1", b"2"):
            error = await refused(put(runtime, content, etag=etag_of(first)))
            assert (error.reason, error.metadata["etag"]) == (Reason.ETAG_MISMATCH, "")
        await assert_not_found(runtime)

    async def test_create_only_makes_a_file_and_replaces_none(self, runtime: Runtime) -> None:
        first = await put(runtime, b"", create_only=True)
        error = await refused(put(runtime, b"2", create_only=True))
        assert (error.reason, error.metadata["etag"]) == (Reason.ETAG_MISMATCH, etag_of(first))
        assert await content_of(runtime) == b""

    async def test_an_overtaken_put_with_an_etag_is_refused_and_without_one_made(
        self, runtime: Runtime, another: Runtime, store: FaultyFiles
    ) -> None:
        first = await put(runtime, b"1")

        async def overtake() -> None:
            await put(another, b"between")

        store.before_save.append(overtake)
        assert (await refused(put(runtime, b"2", etag=etag_of(first)))).reason == Reason.ETAG_MISMATCH
        store.before_save.append(overtake)
        await put(runtime, b"other")
        store.before_save.append(overtake)
        assert (await put(runtime, b"2")).version == 5
        assert await content_of(runtime) == b"2"

    async def test_owners_and_files_are_apart(self, runtime: Runtime) -> None:
        """(invariant 5)"""
        owners = [
            FileOwner(tenant, tier, id_)
            for tenant in ("tenant", "Tenant")
            for tier in Tier
            for id_ in ("ana", "Ana", "ana ", "ana/MEMORY.md", "../ana", "a%", "é", "e\u0301")
        ]
        keys = [FileKey(owner, name) for owner in owners for name in ("MEMORY.md", "2026-01-31.md")]
        for number, key in enumerate(keys):
            await put(runtime, str(number).encode(), key)
        assert [await content_of(runtime, key) for key in keys] == [str(n).encode() for n in range(len(keys))]


class TestEntries:
    @pytest.mark.parametrize(
        ("before", "entries", "after", "added"),
        [
            (None, ["- a"], b"- a\n", 1),
            (b"", ["- a", "- b"], b"- a\n- b\n", 2),
            (b"- a\n", ["- a", "- b", "- b", "- c", "- a"], b"- a\n- b\n- c\n", 2),
            (b"- a", ["- a", "- b"], b"- a\n- b\n", 1),
            (b"- a\n\n", ["- b"], b"- a\n\n- b\n", 1),
            (b"- a\r\n- b\r\n", ["- b", "- c", "- d"], b"- a\r\n- b\r\n- c\r\n- d\r\n", 2),
            (b"- a\r\n- b", ["- b", "- c"], b"- a\r\n- b\r\n- c\r\n", 1),
            (b"- a\n- b\r\n", ["- c"], b"- a\n- b\r\n- c\r\n", 1),
            (b"- a\r\n- b\n", ["- c"], b"- a\r\n- b\n- c\n", 1),
            (b"- a\r- b\r", ["- a", "- b", "- c"], b"- a\r- b\r- c\n", 1),
            (b"\xef\xbb\xbf- a\n", ["- a", "- b"], b"\xef\xbb\xbf- a\n- b\n", 1),
            (b"\xef\xbb\xbf", ["- a"], b"\xef\xbb\xbf- a\n", 1),
            (b"- \xff\n", ["- a"], b"- \xff\n- a\n", 1),
            (b"- a \n", ["- a", " - a", "- A"], b"- a \n- a\n - a\n- A\n", 3),
            (b"- a\xe2\x80\xa8- b\n", ["- b"], b"- a\xe2\x80\xa8- b\n- b\n", 1),
            (b"- e\xcc\x81\n", ["- \u00e9"], b"- e\xcc\x81\n- \xc3\xa9\n", 1),
            (b"prefix - a\n", ["- a"], b"prefix - a\n- a\n", 1),
        ],
    )
    async def test_new_lines_go_to_the_end_in_the_files_own_form(
        self, runtime: Runtime, before: bytes | None, entries: list[str], after: bytes, added: int
    ) -> None:
        """Exact duplicates are skipped, also of entries of the same call; all else of the file stays as it is."""
        if before is not None:
            await put(runtime, before)
        written = await add(runtime, *entries)
        assert (await content_of(runtime), written.added) == (after, added)
        assert written.version == (await memory_files.get(runtime, INDEX)).version
        again = await add(runtime, *entries)
        assert (again.version, again.added) == (written.version, 0)

    async def test_nothing_is_written_when_none_is_new(self, runtime: Runtime, store: FaultyFiles) -> None:
        await add(runtime, "- a", "- b")
        assert (await add(runtime, "- b", "- a")).added == 0
        assert store.saves == 1
        assert len(await memory_files.list_versions(runtime, INDEX)) == 1

    @given(
        st.binary(max_size=30),
        st.lists(
            st.text(min_size=1, max_size=4).filter(lambda text: text.strip() and not {*"\r\n"} & {*text}), min_size=1
        ),
    )
    def test_whatever_the_file_holds_the_entries_are_its_last_lines(self, before: bytes, entries: list[str]) -> None:
        async def check() -> None:
            runtime = runtime_on(InMemoryStore())
            await put(runtime, before)
            await memory_files.add_entries(runtime, Write(INDEX, allow_secrets=True), entries)
            after = await content_of(runtime)
            assert after.startswith(before)
            lines = after.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
            assert {entry.encode().removeprefix(b"\xef\xbb\xbf") for entry in entries} <= {
                line.removeprefix(b"\xef\xbb\xbf") for line in lines
            }

        asyncio.run(check())


class TestLogs:
    @pytest.mark.parametrize(
        ("before", "text", "after"),
        [
            (None, "learned", b"learned\n"),
            (b"", "learned\n", b"learned\n"),
            (b"a\n", "learned\n\nmore\n\n\n", b"a\nlearned\n\nmore\n"),
            (b"a", "  learned  ", b"a\n  learned  \n"),
            (b"a\r\nb\r\n", "learned\r\nmore\r\n", b"a\r\nb\r\nlearned\r\nmore\r\n"),
            (b"a\r\nb", "c", b"a\r\nb\r\nc\r\n"),
            (b"\xff", "\n- \0🧠", b"\xff\n\n- \0\xf0\x9f\xa7\xa0\n"),
        ],
    )
    async def test_text_goes_to_the_end_with_a_line_end(
        self, runtime: Runtime, before: bytes | None, text: str, after: bytes
    ) -> None:
        if before is not None:
            await put(runtime, before, LOG)
        name, version = await log(runtime, text)
        assert (name, version) == (LOG.name, (await memory_files.get(runtime, LOG)).version)
        assert await content_of(runtime, LOG) == after

    async def test_the_same_text_is_logged_as_often_as_it_is_sent(self, runtime: Runtime) -> None:
        for _ in range(3):
            await log(runtime, "tests pass")
        assert await content_of(runtime, LOG) == b"tests pass\n" * 3

    @pytest.mark.parametrize(
        ("now", "time_zone", "today"),
        [
            ("2026-01-31T23:30:00", "", "2026-01-31"),
            ("2026-01-31T23:30:00", "UTC", "2026-01-31"),
            ("2026-01-31T23:30:00", "Europe/Berlin", "2026-02-01"),
            ("2026-01-31T10:30:00", "Pacific/Kiritimati", "2026-02-01"),
            ("2026-01-01T09:30:00", "Pacific/Honolulu", "2025-12-31"),
            ("2026-01-31T18:45:00", "Asia/Kathmandu", "2026-02-01"),
            ("2028-02-29T12:00:00", "America/New_York", "2028-02-29"),
            ("2026-07-01T03:30:00", "America/New_York", "2026-06-30"),
        ],
    )
    async def test_today_is_the_stores_in_the_time_zone(
        self, runtime: Runtime, store: FaultyFiles, now: str, time_zone: str, today: str
    ) -> None:
        store.ahead = int(datetime.fromisoformat(now).replace(tzinfo=UTC).timestamp()) * 1_000_000 - await store.now()
        await runtime.clock.sync()
        name, version = await log(runtime, "learned", "", time_zone=time_zone)
        assert name == f"{today}.md"
        assert datetime.fromtimestamp(version.created // 1_000_000, UTC).isoformat() == f"{now}+00:00"

    async def test_of_a_request_that_is_repeated_behind_midnight_is_yesterdays(
        self, runtime: Runtime, store: FaultyFiles
    ) -> None:
        """(AIP-155) The first answer comes again, and nothing is logged twice."""
        midnight = int(datetime(2026, 2, 1, tzinfo=UTC).timestamp()) * 1_000_000
        store.ahead = midnight - 1_000_000 - await store.now()
        await runtime.clock.sync()
        first = await log(runtime, "learned", "", request_id="one")
        store.ahead += 2_000_000
        await runtime.clock.sync()
        assert await log(runtime, "learned", "", request_id="one") == first
        assert first[0] == "2026-01-31.md"
        assert (await refused(log(runtime, "else", "", request_id="one"))).reason is Reason.REQUEST_ID_CONFLICT
        assert (await log(runtime, "learned", "", request_id="two"))[0] == "2026-02-01.md"

    @pytest.mark.parametrize("day", ["0001-01-01", "2024-02-29", "9999-12-31"])
    async def test_a_day_may_be_any_of_the_calendar(self, runtime: Runtime, day: str) -> None:
        assert (await log(runtime, "learned", day))[0] == f"{day}.md"

    @pytest.mark.parametrize(
        "day",
        [
            *("2026-02-29", "2026-02-30", "2026-13-01", "2026-00-10", "0000-01-01", "2026-1-1", "20260131"),
            *(
                "2026-W05-6",
                "２０２６-01-31",
                "2026-01-31\n",
                " 2026-01-31",
                "../MEMORY",
                "yesterday",
                "2026-01-31.md",
                "-",
            ),
        ],
    )
    async def test_an_impossible_day_is_refused(self, runtime: Runtime, store: FaultyFiles, day: str) -> None:
        error = await refused(log(runtime, "learned", day))
        assert (error.reason, error.metadata["field"]) == (Reason.FIELD_INVALID, "date")
        error = await refused(put(runtime, b"x", FileKey(OWNER, f"{day}.md")))
        assert (error.reason, error.metadata["field"]) == (Reason.FIELD_INVALID, "name")
        assert store.loads == 0

    async def test_a_log_is_no_way_to_the_index(self, runtime: Runtime) -> None:
        error = await refused(log(runtime, "learned", "MEMORY"))
        assert (error.reason, error.metadata["field"]) == (Reason.FIELD_INVALID, "date")

    @pytest.mark.parametrize(
        "time_zone",
        ["Mars/Base", "../etc/passwd", "/etc/localtime", "Europe", "a\0", "UTC\n", "z" * 256, "zone.tab", "."],
    )
    async def test_an_unknown_time_zone_is_refused(self, runtime: Runtime, store: FaultyFiles, time_zone: str) -> None:
        error = await refused(log(runtime, "learned", "", time_zone=time_zone))
        assert (error.reason, error.metadata["field"]) == (Reason.FIELD_INVALID, "time_zone")
        assert store.loads == 0

    async def test_a_day_and_a_time_zone_do_not_go_together(self, runtime: Runtime) -> None:
        error = await refused(log(runtime, "learned", time_zone="UTC"))
        assert (error.reason, error.metadata["field"]) == (Reason.FIELD_INVALID, "time_zone")


NO_OWNER = FileKey(FileOwner("tenant", Tier.PROJECT, ""), "MEMORY.md")
LONG_OWNER = FileKey(FileOwner("tenant", Tier.USER, "é" * 129), "MEMORY.md")
LIMITS: list[tuple[str, Reason, Callable[[Runtime], Awaitable[object]]]] = [
    ("owner.project_id", Reason.FIELD_REQUIRED, lambda runtime: memory_files.get(runtime, NO_OWNER)),
    ("owner.user_id", Reason.FIELD_TOO_LARGE, lambda runtime: memory_files.delete(runtime, LONG_OWNER)),
    ("owner.project_id", Reason.FIELD_REQUIRED, lambda runtime: memory_files.list_(runtime, NO_OWNER.owner)),
    (
        "owner.user_id",
        Reason.FIELD_INVALID,
        lambda runtime: put(runtime, b"", FileKey(FileOwner("t", Tier.USER, "\0"), "x")),
    ),
    ("owner.user_id", Reason.FIELD_TOO_LARGE, lambda runtime: memory_files.append_log(runtime, Write(LONG_OWNER), "x")),
    ("name", Reason.FIELD_REQUIRED, lambda runtime: memory_files.get(runtime, FileKey(OWNER, ""))),
    ("name", Reason.FIELD_INVALID, lambda runtime: memory_files.list_versions(runtime, FileKey(OWNER, "memory.md"))),
    ("name", Reason.FIELD_INVALID, lambda runtime: put(runtime, b"", FileKey(OWNER, "../MEMORY.md"))),
    ("name", Reason.FIELD_INVALID, lambda runtime: memory_files.delete(runtime, FileKey(OWNER, "MEMORY.md\n"))),
    ("version", Reason.FIELD_INVALID, lambda runtime: memory_files.get(runtime, INDEX, -1)),
    ("page_size", Reason.FIELD_INVALID, lambda runtime: memory_files.list_(runtime, OWNER, -1)),
    ("content", Reason.FIELD_TOO_LARGE, lambda runtime: put(runtime, b"x" * (limits.MAX_FILE_BYTES + 1))),
    ("create_only", Reason.FIELD_INVALID, lambda runtime: put(runtime, b"x", etag="etag", create_only=True)),
    ("author", Reason.FIELD_TOO_LARGE, lambda runtime: put(runtime, b"x", author="é" * 129)),
    ("author", Reason.FIELD_INVALID, lambda runtime: put(runtime, b"x", author="\0")),
    ("request_id", Reason.FIELD_TOO_LARGE, lambda runtime: add(runtime, "- a", request_id="r" * 257)),
    ("entries", Reason.FIELD_REQUIRED, add),
    ("entries", Reason.FIELD_TOO_LARGE, lambda runtime: add(runtime, *map(str, range(limits.MAX_MEMORY_ENTRIES + 1)))),
    ("entries[1]", Reason.FIELD_REQUIRED, lambda runtime: add(runtime, "- a", " \t\u3000")),
    ("entries[1]", Reason.FIELD_INVALID, lambda runtime: add(runtime, "- a", "- b\n- c")),
    ("entries[0]", Reason.FIELD_INVALID, lambda runtime: add(runtime, "- b\r")),
    ("entries[2]", Reason.FIELD_TOO_LARGE, lambda runtime: add(runtime, "- a", "- b", "é" * 2_049)),
    ("text", Reason.FIELD_REQUIRED, lambda runtime: log(runtime, " \n\r\n")),
    ("text", Reason.FIELD_TOO_LARGE, lambda runtime: log(runtime, "é" * (limits.MAX_FILE_BYTES // 2) + "x")),
    ("request_id", Reason.FIELD_INVALID, lambda runtime: log(runtime, "x", request_id="\0")),
]


class TestLimits:
    @pytest.mark.parametrize(
        ("field", "reason", "call"), LIMITS, ids=[f"{field} {reason}" for field, reason, _ in LIMITS]
    )
    async def test_a_limit_names_its_field_before_anything_is_read(
        self,
        runtime: Runtime,
        store: FaultyFiles,
        field: str,
        reason: Reason,
        call: Callable[[Runtime], Awaitable[object]],
    ) -> None:
        error = await refused(call(runtime))
        assert (error.reason, error.metadata["field"]) == (reason, field)
        assert (store.loads, store.saves) == (0, 0)

    async def test_what_is_just_within_the_limits_is_written(self, runtime: Runtime) -> None:
        key = FileKey(FileOwner("tenant", Tier.PROJECT, "p" * 256), "MEMORY.md")
        await put(runtime, b"\n" * limits.MAX_FILE_BYTES, key, author="a" * 256, request_id="r" * 256)
        size = limits.MAX_MEMORY_ENTRY_BYTES
        assert (
            await add(runtime, *(f"{n:0{size}d}" for n in range(200)), *map(str, range(55)), "é" * (size // 2))
        ).added == 256
        await log(runtime, "\n" + "x" * (limits.MAX_FILE_BYTES - 2))

    async def test_a_full_file_takes_no_more_and_stays_as_it_is(self, runtime: Runtime, store: FaultyFiles) -> None:
        full = b"- a\n" + b"x" * (limits.MAX_FILE_BYTES - 9) + b"\n"
        await put(runtime, full)
        await put(runtime, full, LOG)
        for call, name in ((add(runtime, "- b", "- c"), "MEMORY.md"), (log(runtime, "12345"), LOG.name)):
            error = await refused(call)
            assert error.reason == Reason.MEMORY_FILE_FULL
            assert error.metadata["name"] == name
            assert error.metadata["limit"] == str(limits.MAX_FILE_BYTES)
            assert int(error.metadata["actual"]) > limits.MAX_FILE_BYTES
        assert store.saves == 2
        assert (await add(runtime, "- a")).added == 0
        assert (await add(runtime, "- b")).version.size == limits.MAX_FILE_BYTES
        assert (await log(runtime, "123"))[1].size == limits.MAX_FILE_BYTES


SECRET = "AKIA" + "QZ7WX3RT5VB2NM8K"
"""Of the form of an access key."""


class TestSecrets:
    @pytest.mark.parametrize(
        ("call", "field", "line"),
        [
            (lambda runtime: put(runtime, f"- a\n- key {SECRET}\n".encode()), "content", "2"),
            (lambda runtime: put(runtime, f"\xff\n\n- {SECRET}".encode("latin-1")), "content", "3"),
            (lambda runtime: put(runtime, f"- a\r\n- key {SECRET}\r\n".encode("utf-16")), "content", "2"),
            (lambda runtime: add(runtime, "- a", f"- key {SECRET}"), "entries[1]", "1"),
            (lambda runtime: log(runtime, f"learned\nthat\n{SECRET}"), "text", "3"),
        ],
    )
    async def test_a_credential_is_refused_and_told_by_line_and_kind(
        self,
        runtime: Runtime,
        store: FaultyFiles,
        call: Callable[[Runtime], Awaitable[object]],
        field: str,
        line: str,
    ) -> None:
        error = await refused(call(runtime))
        assert error.reason == Reason.SECRET_FOUND
        assert (error.metadata["field"], error.metadata["line"]) == (field, line)
        assert error.metadata["kind"]
        assert SECRET not in error.text + repr(error.metadata)
        assert (store.loads, store.saves) == (0, 0)

    async def test_it_is_stored_when_the_caller_says_so(self, runtime: Runtime) -> None:
        for key in (INDEX, LOG):
            write = Write(key, allow_secrets=True)
            await memory_files.put(runtime, write, f"- {SECRET}".encode())
        await memory_files.add_entries(runtime, Write(INDEX, allow_secrets=True), [f"+ {SECRET}"])
        await memory_files.append_log(runtime, Write(INDEX, allow_secrets=True), f"+ {SECRET}", day=DAY)
        for key in (INDEX, LOG):
            assert await content_of(runtime, key) == f"- {SECRET}\n+ {SECRET}\n".encode()

    async def test_what_the_file_held_before_is_not_held_against_an_entry(self, runtime: Runtime) -> None:
        await memory_files.put(runtime, Write(INDEX, allow_secrets=True), f"- {SECRET}\n".encode())
        assert (await add(runtime, "- b")).added == 1


@pytest.mark.parametrize("kind", ["put", "add", "log"])
class TestRequestIds:
    """A replay gets the first answer and writes nothing (AIP-155)."""

    async def write(self, runtime: Runtime, kind: str, text: str, request_id: str = "request") -> FileVersion:
        if kind == "put":
            return await put(runtime, text.encode(), request_id=request_id)
        if kind == "add":
            return (await add(runtime, text, "- twice", request_id=request_id)).version
        return (await log(runtime, text, request_id=request_id))[1]

    def key(self, kind: str) -> FileKey:
        return LOG if kind == "log" else INDEX

    async def test_a_replay_gets_the_first_answer(
        self, runtime: Runtime, another: Runtime, store: FaultyFiles, kind: str
    ) -> None:
        first = await self.write(runtime, kind, "one")
        await put(runtime, b"changed since", self.key(kind))
        assert await self.write(runtime, kind, "one") == first
        assert await self.write(another, kind, "one") == first
        assert await content_of(runtime, self.key(kind)) == b"changed since"
        assert store.saves == 2

    async def test_a_replay_of_added_entries_tells_how_many_were_added_at_first(
        self, runtime: Runtime, kind: str
    ) -> None:
        assert kind
        first = await add(runtime, "- a", "- b", request_id="request")
        assert await add(runtime, "- a", "- b", request_id="request") == first
        assert first.added == 2

    async def test_another_request_with_its_id_is_a_conflict(
        self, runtime: Runtime, store: FaultyFiles, kind: str
    ) -> None:
        await self.write(runtime, kind, "one")
        error = await refused(self.write(runtime, kind, "two"))
        assert error.reason == Reason.REQUEST_ID_CONFLICT
        assert store.saves == 1

    async def test_a_request_of_another_kind_is_another_request(self, runtime: Runtime, kind: str) -> None:
        await put(runtime, b"one", self.key(kind), request_id="request")
        if kind == "put":
            calls = [
                put(runtime, b"one", request_id="request", create_only=True),
                add(runtime, "one", request_id="request"),
            ]
        else:
            calls = [self.write(runtime, kind, "one")]
        for call in calls:
            assert (await refused(call)).reason == Reason.REQUEST_ID_CONFLICT

    async def test_the_id_is_of_one_file(self, runtime: Runtime, store: FaultyFiles, kind: str) -> None:
        await self.write(runtime, kind, "one")
        other = FileKey(FileOwner("tenant", Tier.PROJECT, "ana"), self.key(kind).name)
        assert (await put(runtime, b"two", other, request_id="request")).version == 1
        assert store.saves == 2

    async def test_it_is_held_for_24_hours(self, runtime: Runtime, store: FaultyFiles, kind: str) -> None:
        first = await self.write(runtime, kind, "one")
        store.ahead = 23 * HOUR
        await runtime.clock.sync()
        await put(runtime, b"23 hours later", self.key(kind))
        assert await self.write(runtime, kind, "one") == first
        store.ahead = 25 * HOUR
        await runtime.clock.sync()
        await put(runtime, b"25 hours later", self.key(kind))
        assert (await self.write(runtime, kind, "two")).version == 4
        assert (await refused(self.write(runtime, kind, "one"))).reason == Reason.REQUEST_ID_CONFLICT

    async def test_it_is_held_among_the_last_256(self, runtime: Runtime, kind: str) -> None:
        first = await self.write(runtime, kind, "first", "first")
        for number in range(limits.MAX_FILE_REQUESTS - 1):
            await self.write(runtime, kind, str(number), f"request {number}")
        assert await self.write(runtime, kind, "first", "first") == first
        await self.write(runtime, kind, "last", "last")
        # The oldest is forgotten; the second oldest is not.
        assert (await self.write(runtime, kind, "0", "request 0")).version == 2
        assert (await self.write(runtime, kind, "first, and another", "first")).version == 258

    async def test_a_write_whose_answer_was_lost_is_made_once(
        self, runtime: Runtime, store: FaultyFiles, kind: str
    ) -> None:
        store.after_save.append(failing(StoreUnavailable("the connection broke")))
        with pytest.raises(StoreUnavailable):
            await self.write(runtime, kind, "one")
        assert (await self.write(runtime, kind, "one")).version == 1
        assert store.saves == 1
        assert (await content_of(runtime, self.key(kind))).count(b"one") == 1

    async def test_a_write_that_was_not_made_is_made_by_the_next(
        self, runtime: Runtime, store: FaultyFiles, kind: str
    ) -> None:
        for steps in (store.before_load, store.before_save):
            steps.append(failing(StoreUnavailable("away")))
            with pytest.raises(StoreUnavailable):
                await self.write(runtime, kind, "one")
        await assert_not_found(runtime, self.key(kind))
        assert (await self.write(runtime, kind, "one")).version == 1

    async def test_of_calls_at_once_with_one_id_one_writes(
        self, runtime: Runtime, another: Runtime, store: FaultyFiles, kind: str
    ) -> None:
        store.always = turn
        calls = [self.write(server, kind, "one") for server in (runtime, another) for _ in range(5)]
        assert len(set(map(msgspec.structs.astuple, await asyncio.gather(*calls)))) == 1
        assert store.saves == 1


async def turn() -> None:
    """Lets other calls come between."""
    await asyncio.sleep(0)


class TestConcurrency:
    async def test_calls_of_one_server_take_turns(self, runtime: Runtime, store: FaultyFiles) -> None:
        store.always = turn
        await asyncio.gather(*(add(runtime, f"- {number}") for number in range(40)))
        assert sorted((await content_of(runtime)).split()[1::2]) == sorted(b"%d" % number for number in range(40))
        assert store.conflicts == 0
        assert len(runtime.file_turns) == 0

    async def test_calls_for_other_files_do_not_wait(self, runtime: Runtime, store: FaultyFiles) -> None:
        gate = Gate()
        store.before_save.append(gate)
        waiting = asyncio.create_task(add(runtime, "- a"))
        await gate.reached.wait()
        await log(runtime, "meanwhile")
        gate.open()
        await waiting

    @pytest.mark.parametrize("servers", [1, 2])
    async def test_no_entry_of_two_clients_is_lost_and_a_stale_put_is_aborted(
        self, runtime: Runtime, another: Runtime, store: FaultyFiles, servers: int
    ) -> None:
        """40 entries and 40 log entries at once, one server overtaking the other (issue 6)."""
        stale = await put(runtime, b"- old\n")
        await put(runtime, b"- new\n")
        store.always = turn
        second = another if servers == 2 else runtime
        calls: list[Awaitable[object]] = []
        for number in range(20):
            calls += [
                add(runtime, f"- first {number}"),
                add(second, f"- second {number}", "- new"),
                log(runtime, f"first {number}"),
                log(second, f"second {number}"),
            ]
        puts = [refused(put(server, b"- lost\n", etag=etag_of(stale))) for server in (runtime, second)]
        answers, errors = await asyncio.gather(asyncio.gather(*calls), asyncio.gather(*puts))
        assert {error.reason for error in errors} == {Reason.ETAG_MISMATCH}
        names = {f"{client} {number}" for client in ("first", "second") for number in range(20)}
        lines = (await content_of(runtime)).decode().splitlines()
        assert lines[0] == "- new"
        assert sorted(lines[1:]) == sorted(f"- {name}" for name in names)
        assert sorted((await content_of(runtime, LOG)).decode().splitlines()) == sorted(names)
        assert len(answers) == 80
        assert (store.conflicts > 0) == (servers == 2)
        # Each made a version of its own.
        assert [version.version for version in await memory_files.list_versions(runtime, INDEX)] == [*range(42, 0, -1)]

    async def test_one_that_is_overtaken_is_made_when_the_others_rest(
        self, runtime: Runtime, store: FaultyFiles
    ) -> None:
        await add(runtime, "- a")
        overtake = overtaking(store)
        for _ in range(5):
            store.before_save.append(lambda: overtake(INDEX))
        assert (await add(runtime, "- b")).version.version == 7
        assert store.conflicts == 5
        assert await content_of(runtime) == b"- a\n- b\n"

    async def test_two_that_begin_a_file_at_once_share_it(
        self, runtime: Runtime, another: Runtime, store: FaultyFiles
    ) -> None:
        async def overtake() -> None:
            await add(another, "- theirs")

        store.before_save.append(overtake)
        await add(runtime, "- ours")
        assert await content_of(runtime) == b"- theirs\n- ours\n"

    @pytest.mark.parametrize("kind", ["put", "add", "delete"])
    async def test_one_that_is_always_overtaken_ends_before_its_deadline(
        self, runtime: Runtime, store: FaultyFiles, kind: str
    ) -> None:
        """(invariant 16)"""
        await put(runtime, b"- a\n")
        store.rival = overtaking(store)
        deadline = time.monotonic() + 0.3
        call: Awaitable[object]
        if kind == "put":
            call = put(runtime, b"- b\n", deadline=deadline)
        elif kind == "add":
            call = add(runtime, "- b", deadline=deadline)
        else:
            call = memory_files.delete(runtime, INDEX, deadline=deadline)
        error = await refused(call)
        assert error.reason == Reason.CONTENTION
        assert error.retry_after
        store.rival = None
        assert await content_of(runtime) == b"- a\n"
        assert len(runtime.file_turns) == 0

    async def test_a_call_that_is_cancelled_lets_the_next_go_on(self, runtime: Runtime, store: FaultyFiles) -> None:
        """(invariant 16)"""
        gate = Gate()
        store.before_save.append(gate)
        first = asyncio.create_task(add(runtime, "- cancelled"))
        await gate.reached.wait()
        waiting, last = (asyncio.create_task(add(runtime, entry)) for entry in ("- cancelled too", "- last"))
        await asyncio.sleep(0)
        waiting.cancel()
        first.cancel()
        await asyncio.gather(first, waiting, return_exceptions=True)
        assert (await last).version.version == 1
        assert await content_of(runtime) == b"- last\n"


class TestDeletion:
    async def test_a_file_goes_with_all_its_versions(self, runtime: Runtime) -> None:
        for content in (b"1", b"2", b"3"):
            await put(runtime, content, request_id=f"request {content!r}")
        await put(runtime, b"log", LOG)
        assert await memory_files.delete(runtime, INDEX)
        await assert_not_found(runtime)
        for call in (memory_files.get(runtime, INDEX, 1), memory_files.list_versions(runtime, INDEX)):
            assert (await refused(call)).reason == Reason.MEMORY_FILE_NOT_FOUND
        assert [name for name, _ in (await memory_files.list_(runtime, OWNER))[0]] == [LOG.name]
        assert not await memory_files.delete(runtime, INDEX)
        assert not await memory_files.delete(runtime, INDEX, etag="any")
        # What is made anew has no past.
        assert (await put(runtime, b"4", request_id="request b'1'")).version == 1

    async def test_an_etag_is_a_condition(self, runtime: Runtime) -> None:
        first = await put(runtime, b"1")
        second = await put(runtime, b"2")
        error = await refused(memory_files.delete(runtime, INDEX, etag=etag_of(first)))
        assert (error.reason, error.metadata["etag"]) == (Reason.ETAG_MISMATCH, etag_of(second))
        assert await memory_files.delete(runtime, INDEX, etag=etag_of(second))

    async def test_what_was_changed_meanwhile_is_looked_at_again(
        self, runtime: Runtime, another: Runtime, store: FaultyFiles
    ) -> None:
        first = await put(runtime, b"1")

        async def overtake() -> None:
            await put(another, b"2")

        store.before_delete.append(overtake)
        assert (await refused(memory_files.delete(runtime, INDEX, etag=etag_of(first)))).reason == Reason.ETAG_MISMATCH

        async def delete() -> None:
            await memory_files.delete(another, INDEX)

        store.before_delete.append(delete)
        assert not await memory_files.delete(runtime, INDEX)
        await assert_not_found(runtime)

    async def test_an_entry_is_added_to_a_file_that_is_deleted_meanwhile(
        self, runtime: Runtime, another: Runtime, store: FaultyFiles
    ) -> None:
        await add(runtime, "- a")

        async def delete() -> None:
            await memory_files.delete(another, INDEX)

        store.before_save.append(delete)
        assert (await add(runtime, "- b")).version.version == 1
        assert await content_of(runtime) == b"- b\n"


class TestVersions:
    async def test_the_last_50_are_kept_with_author_and_time(self, runtime: Runtime, store: FaultyFiles) -> None:
        for number in range(1, 61):
            store.ahead = number * HOUR
            await runtime.clock.sync()
            await put(runtime, str(number).encode(), author=f"agent {number}")
        versions = await memory_files.list_versions(runtime, INDEX)
        assert [version.version for version in versions] == [*range(60, 10, -1)]
        assert [version.author for version in versions] == [f"agent {number}" for number in range(60, 10, -1)]
        assert all(newer.created > older.created for newer, older in pairwise(versions))
        for version in (60, 33, 11):
            file = await memory_files.get(runtime, INDEX, version)
            assert (file.content, file.version.version) == (str(version).encode(), version)
        assert (await memory_files.get(runtime, INDEX)).version == versions[0]
        for gone in (10, 1, 61):
            error = await refused(memory_files.get(runtime, INDEX, gone))
            assert (error.reason, error.metadata) == (
                Reason.MEMORY_FILE_NOT_FOUND,
                {"name": "MEMORY.md", "version": str(gone)},
            )

    async def test_writes_of_every_kind_make_versions(self, runtime: Runtime) -> None:
        await memory_files.put(runtime, Write(INDEX, "ana"), b"- a\n")
        await memory_files.add_entries(runtime, Write(INDEX, "bob"), ["- b"])
        await memory_files.append_log(runtime, Write(INDEX, "eve"), "learned", day=DAY)
        assert [v.author for v in await memory_files.list_versions(runtime, INDEX)] == ["bob", "ana"]
        assert [v.author for v in await memory_files.list_versions(runtime, LOG)] == ["eve"]


class TestLists:
    async def fill(self, runtime: Runtime, days: int) -> list[str]:
        """An index and the logs of so many days. Returns: the names in the order of lists."""
        names = [f"{date(2026, 3, 1) - timedelta(days=number)}.md" for number in range(days)]
        for name in sorted(names, key=lambda name: name[::-1]):
            await put(runtime, name.encode(), FileKey(OWNER, name))
        await put(runtime, b"- a")
        return ["MEMORY.md", *names]

    async def pages(self, runtime: Runtime, owner: FileOwner, page_size: int) -> list[list[str]]:
        pages: list[list[str]] = []
        token = ""
        while not pages or token:
            page, token = await memory_files.list_(runtime, owner, page_size, token)
            pages.append([name for name, _ in page])
        return pages

    @pytest.mark.parametrize(
        ("page_size", "sizes"),
        [(0, [100, 100, 100, 100, 1]), (150, [150, 150, 101]), (401, [401]), (400, [400, 1]), (5_000, [401])],
    )
    async def test_the_index_comes_first_and_then_the_newest_of_400_days(
        self, runtime: Runtime, page_size: int, sizes: list[int]
    ) -> None:
        names = await self.fill(runtime, 400)
        await put(runtime, b"x", FileKey(FileOwner("tenant", Tier.PROJECT, "ana"), "2026-03-02.md"))
        pages = await self.pages(runtime, OWNER, page_size)
        assert [len(page) for page in pages] == sizes
        assert [name for page in pages for name in page] == names

    async def test_a_page_holds_1_000_at_most(self, runtime: Runtime) -> None:
        names = await self.fill(runtime, 1_001)
        pages = await self.pages(runtime, OWNER, 2**31 - 1)
        assert [len(page) for page in pages] == [1_000, 2]
        assert pages[1] == names[-2:]

    async def test_it_tells_the_current_version_of_each(self, runtime: Runtime) -> None:
        await put(runtime, b"1", author="ana")
        second = await put(runtime, b"22", author="bob")
        assert await memory_files.list_(runtime, OWNER) == ([("MEMORY.md", second)], "")
        assert await memory_files.list_(runtime, FileOwner("tenant", Tier.USER, "nobody")) == ([], "")

    async def test_what_is_written_meanwhile_moves_nothing(self, runtime: Runtime) -> None:
        names = await self.fill(runtime, 5)
        first, token = await memory_files.list_(runtime, OWNER, 3)
        await put(runtime, b"new", FileKey(OWNER, "2026-12-31.md"))
        await memory_files.delete(runtime, FileKey(OWNER, names[2]))
        rest, _ = await memory_files.list_(runtime, OWNER, 3, token)
        assert [name for name, _ in [*first, *rest]] == names

    async def test_a_token_is_of_its_owner(self, runtime: Runtime) -> None:
        await self.fill(runtime, 2)
        _, token = await memory_files.list_(runtime, OWNER, 1)
        assert token
        damaged = token[:-1] + ("A" if token[-1] != "A" else "B")
        for owner, other in (
            (FileOwner("tenant", Tier.PROJECT, "ana"), token),
            (FileOwner("other", Tier.USER, "ana"), token),
            (FileOwner("tenant", Tier.USER, "bob"), token),
            (OWNER, damaged),
            (OWNER, "token"),
            (OWNER, "é"),
        ):
            error = await refused(memory_files.list_(runtime, owner, 1, other))
            assert error.reason == Reason.PAGE_TOKEN_INVALID
        # The size of the page may change.
        assert len((await memory_files.list_(runtime, OWNER, 5, token))[0]) == 2


async def test_a_failed_read_is_an_error(runtime: Runtime, store: FaultyFiles) -> None:
    """(invariant 12)"""
    await put(runtime, b"1")
    store.always = failing(StoreUnavailable("away"))
    for call in (memory_files.get(runtime, INDEX), memory_files.delete(runtime, INDEX), add(runtime, "- a")):
        with pytest.raises(StoreUnavailable):
            await call
    store.always = None
    assert await content_of(runtime) == b"1"
