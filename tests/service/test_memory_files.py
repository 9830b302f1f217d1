"""Memory files (design section 3): what was put is read byte for byte, versions are kept, calls at once do not
overwrite each other, and what was answered stays."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import grpc
import pytest

from memoryd.v1 import memory_context_service_pb2 as memory
from tests.adapters import EACH_QUICK_ADAPTER, EACH_SHARED_ADAPTER, Adapter
from tests.conftest import StartServer
from tests.servers import ServerProcess
from tests.service.memory_calls import (
    INDEX,
    Source,
    add,
    content_of,
    delete,
    get,
    listed,
    log,
    pages,
    project,
    put,
    render,
    user,
    versions,
)
from tests.service.memory_shapes import SHAPES, expected_block
from tests.service.wire import Stubs, refused

MIB: Final = 1024 * 1024
KEPT_VERSIONS: Final = 50
ENTRIES: Final = 20
"""What each of the callers at once adds."""

CONTENTS: Final[dict[str, bytes]] = {
    "nothing": b"",
    "every byte": bytes(range(256)),
    "a BOM and CRLF": b"\xef\xbb\xbf- one\r\n- two\r\n",
    "lone CR": b"- one\r- two",
    "NUL": b"- one\0two\n",
    "U+2028 and emoji": "- one\u2028two \U0001f600\n".encode(),
    "1 MiB": b"- one line of a file that is as large as a file may be\n" * (MIB // 55) + b"." * (MIB % 55),
}


@pytest.fixture
def owner(agent: str) -> memory.MemoryOwner:
    """A user whom no other test uses."""
    return user(agent)


@pytest.mark.parametrize("name", CONTENTS)
def test_what_was_put_is_read_byte_for_byte(stubs: Stubs, owner: memory.MemoryOwner, name: str) -> None:
    """(invariant 4)"""
    content = CONTENTS[name]
    before = datetime.now(UTC) - timedelta(seconds=5)
    file = put(stubs, owner, content, author="ana")

    assert (file.name, file.version, file.size, file.author) == (INDEX, 1, len(content), "ana")
    assert before < file.create_time.ToDatetime(UTC) < before + timedelta(seconds=35)
    read = get(stubs, owner)
    assert read.content == content
    assert read.file == file
    assert versions(stubs, owner) == [file]
    assert pages(stubs, owner) == [[file]]


class TestPut:
    def test_replaces_the_content_and_keeps_the_version_before(self, stubs: Stubs, owner: memory.MemoryOwner) -> None:
        first = put(stubs, owner, b"- one\n", author="ana")
        second = put(stubs, owner, b"- two\n", author="bob", etag=first.etag)

        assert second.version == 2
        assert second.etag != first.etag
        assert [each.author for each in versions(stubs, owner)] == ["bob", "ana"]
        assert versions(stubs, owner) == [second, first]
        assert [content_of(stubs, owner, version=number) for number in (0, 1, 2)] == [
            b"- two\n",
            b"- one\n",
            b"- two\n",
        ]

    def test_of_what_it_holds_already_writes_nothing(self, stubs: Stubs, owner: memory.MemoryOwner) -> None:
        """Whatever the condition: a put whose answer was lost is repeated with the etag of before."""
        first = put(stubs, owner, b"- one\n")
        second = put(stubs, owner, b"- two\n", etag=first.etag)

        assert put(stubs, owner, b"- two\n", etag=first.etag) == second
        assert put(stubs, owner, b"- two\n", create_only=True) == second
        assert put(stubs, owner, b"- two\n") == second
        assert len(versions(stubs, owner)) == 2

    def test_with_a_stale_etag_is_refused(self, stubs: Stubs, owner: memory.MemoryOwner) -> None:
        stale = put(stubs, owner, b"- one\n").etag
        current = put(stubs, owner, b"- two\n")
        for refusal in (
            refused(lambda: put(stubs, owner, b"- three\n", etag=stale)),
            refused(lambda: put(stubs, owner, b"- three\n", create_only=True)),
            refused(lambda: delete(stubs, owner, etag=stale)),
        ):
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "ETAG_MISMATCH")
            assert refusal.metadata["etag"] == current.etag
        assert content_of(stubs, owner) == b"- two\n"
        assert delete(stubs, owner, etag=current.etag)
        gone = refused(lambda: put(stubs, owner, b"- three\n", etag=current.etag))
        assert (gone.code, gone.reason) == (grpc.StatusCode.ABORTED, "ETAG_MISMATCH")
        assert listed(stubs, owner) == []

    def test_makes_equal_contents_have_equal_etags(self, stubs: Stubs, owner: memory.MemoryOwner) -> None:
        etag = put(stubs, owner, b"- one\n").etag
        put(stubs, owner, b"- two\n")

        assert put(stubs, owner, b"- one\n").etag == etag
        assert put(stubs, owner, b"- one\n", "2026-01-02.md").etag == etag


def test_the_last_50_versions_are_kept(stubs: Stubs, owner: memory.MemoryOwner) -> None:
    count = KEPT_VERSIONS + 3
    written = [put(stubs, owner, b"- %d\n" % number, author=f"{number}") for number in range(1, count + 1)]

    assert versions(stubs, owner) == written[: count - KEPT_VERSIONS - 1 : -1]
    for number in (count - KEPT_VERSIONS + 1, count - 1, count):
        assert content_of(stubs, owner, version=number) == b"- %d\n" % number
    for number in (1, count - KEPT_VERSIONS, count + 1):
        refusal = refused(partial(content_of, stubs, owner, version=number))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "MEMORY_FILE_NOT_FOUND")
        assert (refusal.metadata["name"], refusal.metadata["version"]) == (INDEX, f"{number}")


class TestDelete:
    def test_takes_all_versions_and_a_new_file_begins_at_1(self, stubs: Stubs, owner: memory.MemoryOwner) -> None:
        put(stubs, owner, b"- one\n")
        put(stubs, owner, b"- two\n")
        put(stubs, owner, b"a log\n", "2026-01-02.md")

        assert delete(stubs, owner)
        assert not delete(stubs, owner)
        assert listed(stubs, owner) == ["2026-01-02.md"]
        for call in (get, versions, partial(content_of, version=1)):
            refusal = refused(partial(call, stubs, owner))
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "MEMORY_FILE_NOT_FOUND")
            assert refusal.metadata["name"] == INDEX
        assert put(stubs, owner, b"- new\n").version == 1
        assert content_of(stubs, owner) == b"- new\n"

    def test_of_what_was_never_there_does_nothing(self, stubs: Stubs, owner: memory.MemoryOwner) -> None:
        assert not delete(stubs, owner)
        assert not delete(stubs, owner, etag="any")


class TestAdd:
    def test_makes_the_index_and_skips_what_it_holds(self, stubs: Stubs, owner: memory.MemoryOwner) -> None:
        first = add(stubs, owner, "- one", "- two", "- one", author="ana")
        second = add(stubs, owner, "- two", "- three")

        assert (first.added_count, first.skipped_count, first.file.version) == (2, 1, 1)
        assert (second.added_count, second.skipped_count, second.file.version) == (1, 1, 2)
        assert content_of(stubs, owner) == b"- one\n- two\n- three\n"
        replayed = add(stubs, owner, "- two", "- three")
        assert (replayed.added_count, replayed.skipped_count) == (0, 2)
        assert replayed.file == second.file
        assert [each.author for each in versions(stubs, owner)] == ["", "ana"]

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (b"- one", b"- one\n- two\n"),
            (b"- one\r\n", b"- one\r\n- two\r\n"),
            (b"- zero\r\n- one", b"- zero\r\n- one\r\n- two\r\n"),
            (b"\xff\xfe- one\n", b"\xff\xfe- one\n- two\n"),
        ],
    )
    def test_changes_nothing_before_it_and_ends_lines_as_the_file_does(
        self, sqlite_stubs: Stubs, owner: memory.MemoryOwner, before: bytes, after: bytes
    ) -> None:
        put(sqlite_stubs, owner, before)
        add(sqlite_stubs, owner, "- two")

        assert content_of(sqlite_stubs, owner) == after

    def test_beyond_1_mib_is_refused_as_a_whole(self, stubs: Stubs, owner: memory.MemoryOwner) -> None:
        full = b"x" * (MIB - 6)
        put(stubs, owner, full)
        put(stubs, owner, full, "2026-01-02.md")
        for refusal in (
            refused(lambda: add(stubs, owner, "- a", "- b")),
            refused(lambda: log(stubs, owner, "seven..", date="2026-01-02")),
        ):
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "MEMORY_FILE_FULL")
            assert int(refusal.metadata["actual"]) > int(refusal.metadata["limit"]) == MIB
        assert content_of(stubs, owner) == full
        assert add(stubs, owner, "- a").file.size == MIB - 1
        assert log(stubs, owner, "four", date="2026-01-02").size == MIB


class TestLog:
    def test_appends_to_the_log_of_its_day(self, stubs: Stubs, owner: memory.MemoryOwner) -> None:
        first = log(stubs, owner, "## Morning\n- one", date="2026-01-31", author="ana")
        log(stubs, owner, "- another day\n", date="2026-02-01")
        again = log(stubs, owner, "- one\n\n", date="2026-01-31")

        assert (first.name, first.version, first.author) == ("2026-01-31.md", 1, "ana")
        assert (again.name, again.version) == ("2026-01-31.md", 2)
        assert content_of(stubs, owner, "2026-01-31.md") == b"## Morning\n- one\n- one\n"
        assert content_of(stubs, owner, "2026-02-01.md") == b"- another day\n"
        assert listed(stubs, owner) == ["2026-02-01.md", "2026-01-31.md"]

    @pytest.mark.parametrize("zone", ["", "UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Berlin"])
    def test_takes_today_in_the_time_zone(self, sqlite_stubs: Stubs, owner: memory.MemoryOwner, zone: str) -> None:
        """Kiritimati and Pago Pago are 25 hours apart: never on one day."""
        before = datetime.now(ZoneInfo(zone or "UTC")).date()
        name = log(sqlite_stubs, owner, "hello", time_zone=zone).name
        after = datetime.now(ZoneInfo(zone or "UTC")).date()

        assert name in {f"{before}.md", f"{after}.md"}


class TestRequestIds:
    """A replay returns the first answer and writes nothing (AIP-155, invariant 2)."""

    def test_of_each_kind_of_write(self, stubs: Stubs, owner: memory.MemoryOwner) -> None:
        writes: dict[str, Callable[[], object]] = {
            "put": lambda: put(stubs, owner, b"- one\n", request_id="put"),
            "add": lambda: add(stubs, owner, "- two", "- one", request_id="add"),
            "log": lambda: log(stubs, owner, "hello", date="2026-01-02", request_id="log"),
        }
        first = {kind: write() for kind, write in writes.items()}
        put(stubs, owner, b"- something else\n")
        assert {kind: write() for kind, write in writes.items()} == first

        assert content_of(stubs, owner) == b"- something else\n"
        assert content_of(stubs, owner, "2026-01-02.md") == b"hello\n"
        for conflict in (
            lambda: put(stubs, owner, b"- other\n", request_id="put"),
            lambda: put(stubs, owner, b"- one\n", etag="e", request_id="put"),
            lambda: add(stubs, owner, "- two", request_id="put"),
            lambda: log(stubs, owner, "other", date="2026-01-02", request_id="log"),
        ):
            refusal = refused(conflict)
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_CONFLICT")
        # Each file has its own.
        assert log(stubs, owner, "other", date="2026-01-03", request_id="log").version == 1

    def test_are_recognized_by_the_other_server(self, here: Stubs, there: Stubs, owner: memory.MemoryOwner) -> None:
        first = log(here, owner, "hello", date="2026-01-02", request_id="r")

        assert log(there, owner, "hello", date="2026-01-02", request_id="r") == first
        assert content_of(there, owner, "2026-01-02.md") == b"hello\n"


def test_the_same_id_in_two_tiers_is_two_owners(stubs: Stubs, agent: str) -> None:
    """(invariant 5)"""
    put(stubs, user(agent), b"of the user")
    put(stubs, project(agent), b"of the project")
    log(stubs, project(agent), "of the project", date="2026-01-02")

    assert content_of(stubs, user(agent)) == b"of the user"
    assert content_of(stubs, project(agent)) == b"of the project"
    assert listed(stubs, user(agent)) == [INDEX]
    assert delete(stubs, user(agent))
    assert listed(stubs, project(agent)) == [INDEX, "2026-01-02.md"]


@pytest.mark.parametrize("any_server", EACH_QUICK_ADAPTER, indirect=True)
def test_400_days_of_logs_are_listed_in_pages_and_only_the_index_is_rendered(
    stubs: Stubs, owner: memory.MemoryOwner
) -> None:
    """The index comes first, then the newest logs."""
    shape = "an index beside 400 days of logs"
    days = [date(2025, 1, 31) + timedelta(days=number) for number in range(400)]
    with ThreadPoolExecutor(4) as threads:
        written = list(threads.map(lambda day: log(stubs, owner, f"- day {day}", date=f"{day}"), days[::-1]))
    index = put(stubs, owner, SHAPES[shape].user)
    expected = [index, *written]

    assert pages(stubs, owner, page_size=1_001) == [expected]
    assert [len(page) for page in pages(stubs, owner)] == [100, 100, 100, 100, 1]
    by_37 = pages(stubs, owner, page_size=37)
    assert [len(page) for page in by_37] == [37] * 10 + [31]
    assert list(itertools.chain.from_iterable(by_37)) == expected
    assert render(stubs, Source(stored=owner.user_id)).block == expected_block(shape)


def at_once(calls: Iterable[Callable[[], None]]) -> None:
    """Makes calls that begin at one time. Raises what one of them does."""
    calls = list(calls)
    start = threading.Barrier(len(calls))

    def begin(call: Callable[[], None]) -> None:
        start.wait(30)
        call()

    with ThreadPoolExecutor(len(calls)) as threads:
        for done in [threads.submit(begin, call) for call in calls]:
            done.result()


def check_adds_at_once(addresses: Sequence[str], owner: memory.MemoryOwner) -> None:
    """Two clients add 20 entries each, and as many log texts, while a third puts with a stale etag."""
    own_connection = ("grpc.use_local_subchannel_pool", 1)
    day = "2026-01-02"
    with ExitStack() as opened:
        first, second, third = (
            opened.enter_context(Stubs(address, own_connection))
            for address in itertools.islice(itertools.cycle(addresses), 3)
        )
        stale = put(first, owner, b"- once").etag
        put(first, owner, b"- first\n")

        def write(stubs: Stubs, client: int) -> None:
            for number in range(ENTRIES):
                assert add(stubs, owner, f"- {client}/{number}", author=f"{client}").added_count == 1
                log(stubs, owner, f"{client}/{number}\n  and more", date=day)

        def overwrite() -> None:
            for _ in range(ENTRIES):
                refusal = refused(lambda: put(third, owner, b"- mine alone\n", etag=stale))
                assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "ETAG_MISMATCH")

        at_once([partial(write, first, 1), partial(write, second, 2), overwrite])

        lines = content_of(third, owner).decode().splitlines()
        logged = content_of(third, owner, f"{day}.md").decode().split("\n  and more\n")
        for client in (1, 2):
            # All of them, each once, those of a client in its order.
            expected = [f"{client}/{number}" for number in range(ENTRIES)]
            assert [line for line in lines if line.startswith(f"- {client}/")] == [f"- {each}" for each in expected]
            assert [each for each in logged if each.startswith(f"{client}/")] == expected
        assert (len(lines), len(logged)) == (1 + 2 * ENTRIES, 1 + 2 * ENTRIES)
        kept = versions(third, owner)
        assert [each.version for each in kept] == list(range(2 + 2 * ENTRIES, 0, -1))
        assert sorted(each.author for each in kept[:-2]) == ["1"] * ENTRIES + ["2"] * ENTRIES


class TestCallsAtOnce:
    """Calls for one file do not overwrite each other."""

    def test_through_one_server(self, any_server: ServerProcess, owner: memory.MemoryOwner) -> None:
        check_adds_at_once([any_server.address], owner)

    def test_through_two_servers(self, pair: tuple[str, str], owner: memory.MemoryOwner) -> None:
        check_adds_at_once(pair, owner)


@pytest.mark.parametrize("adapter", EACH_SHARED_ADAPTER)
def test_what_was_answered_survives_kill_9_and_a_restart(
    adapter: Adapter, start_server: StartServer, tmp_path: Path, owner: memory.MemoryOwner
) -> None:
    """All that was answered is there, once, and of what was not either all or nothing (invariants 2 and 3)."""
    with adapter.data(tmp_path) as url:
        server = start_server("--store", f"default={url}", "--tokenizer", "estimate")
        answered: list[str] = []
        enough = threading.Event()

        def write(writer: int) -> None:
            with Stubs(server.address) as stubs:
                for number in itertools.count():
                    entries = [f"- {writer}/{number}/{place}" for place in range(3)]
                    try:
                        add(stubs, owner, *entries)
                        log(stubs, owner, "\n".join(entries), date="2026-01-02", request_id=entries[0])
                    except grpc.RpcError:
                        return
                    answered.append(entries[0])
                    if len(answered) >= ENTRIES:
                        enough.set()

        with ThreadPoolExecutor(3) as threads:
            writing = [threads.submit(write, writer) for writer in range(3)]
            assert enough.wait(60)
            server.kill()
        for each in writing:
            each.result()
        server.restart()
        with Stubs(server.address) as stubs:
            lines: list[str] = []
            for name in (INDEX, "2026-01-02.md"):
                lines = content_of(stubs, owner, name).decode().splitlines()
                assert len(lines) == len(set(lines))
                firsts = [line.removesuffix("/0") for line in lines if line.endswith("/0")]
                assert lines == [f"{first}/{place}" for first in firsts for place in range(3)]
                assert {line.removesuffix("/0") for line in answered} <= set(firsts)
                assert get(stubs, owner, name).file.version == len(firsts)
            known = answered[0].removesuffix("0")
            text = "\n".join(f"{known}{place}" for place in range(3))
            log(stubs, owner, text, date="2026-01-02", request_id=answered[0])
            assert content_of(stubs, owner, "2026-01-02.md").decode().splitlines() == lines
