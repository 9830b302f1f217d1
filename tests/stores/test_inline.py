"""SQLite: little reads on the event loop."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from memoryd_server.stores.base import Store, Tail
from memoryd_server.stores.records import FileKey, FileOwner, FileVersion, SessionKey, StoredFile, Tier
from memoryd_server.stores.registry import create_store
from memoryd_server.stores.sql.inline import (
    LITTLE_BYTES,
    LITTLE_FILES,
    LITTLE_MESSAGES,
    LITTLE_TOKENS,
    LONG_SECONDS,
    PAUSE_SECONDS,
    InlineReads,
    is_little,
)
from memoryd_server.stores.sql.reader import Reader
from memoryd_server.stores.sql.sqlite import SQLiteStore
from tests.stores.builders import BOTH, USABLE, Session, message, seqs

KEY = SessionKey("tenant", "agent", "session")


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class IdleReader:
    """Stands where a reader would; the reads of these tests do not look at it."""

    def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reads(clock: Clock) -> Iterator[InlineReads]:
    reads = InlineReads(IdleReader, clock)  # type: ignore[arg-type]
    reads.open()
    yield reads
    reads.close()


def test_are_not_allowed_before_the_opening_and_after_the_close(clock: Clock) -> None:
    reads = InlineReads(IdleReader, clock)  # type: ignore[arg-type]
    assert not reads.allowed
    reads.open()
    assert reads.allowed
    reads.close()
    assert not reads.allowed


@pytest.mark.parametrize(("seconds", "goes_on"), [(LONG_SECONDS * 0.9, True), (LONG_SECONDS * 1.1, False)])
def test_a_read_that_took_long_sends_the_next_ones_to_the_threads(
    reads: InlineReads, clock: Clock, seconds: float, goes_on: bool
) -> None:
    def read(_: Reader) -> str:
        clock.seconds += seconds
        return "answer"

    assert reads.run(read) == "answer"
    assert reads.allowed is goes_on
    clock.seconds += PAUSE_SECONDS
    assert reads.allowed


def test_a_read_that_failed_late_does_so_too(reads: InlineReads, clock: Clock) -> None:
    def fail(_: Reader) -> None:
        clock.seconds += 1
        raise ValueError

    with pytest.raises(ValueError):
        reads.run(fail)
    assert not reads.allowed


@pytest.mark.parametrize(
    ("tail", "little"),
    [
        (None, True),
        (Tail(USABLE, LITTLE_MESSAGES), True),
        (Tail(BOTH, LITTLE_MESSAGES), True),
        (Tail(USABLE, LITTLE_MESSAGES + 1), False),
        (Tail(USABLE, 100_000, tokens=LITTLE_TOKENS), True),
        (Tail(USABLE, 100_000, tokens=LITTLE_TOKENS + 1), False),
    ],
)
def test_what_is_little_is_told_by_its_bounds(tail: Tail | None, little: bool) -> None:
    assert is_little(tail) is little


@pytest.fixture
def threads_that_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that load, in order."""
    names: list[str] = []

    def record(read: Callable[..., object]) -> Callable[..., object]:
        def recorded(*arguments: object, **options: object) -> object:
            names.append(threading.current_thread().name)
            return read(*arguments, **options)

        return recorded

    for name in ("load", "load_files"):
        monkeypatch.setattr(Reader, name, record(getattr(Reader, name)))
    return names


@pytest.mark.parametrize(
    ("size", "on_threads"), [(LITTLE_BYTES // 2, False), (LITTLE_BYTES + 1, True)], ids=["small", "large"]
)
async def test_bodies_that_could_be_large_are_read_on_a_thread(
    tmp_path: Path, threads_that_read: list[str], size: int, on_threads: bool
) -> None:
    """The event loop does no work above about a millisecond."""
    store = create_store("default", "sqlite", f"sqlite:///{tmp_path / 'memoryd.db'}")
    assert isinstance(store, SQLiteStore)
    await store.open()
    try:
        session = Session(store, KEY)
        await session.commit(message(1, size=size), bytes=size)
        loaded = await store.load(KEY, Tail(USABLE, 10, body_bytes=10 * LITTLE_BYTES))
        assert loaded is not None
        assert seqs(loaded.tail) == [1]
        assert any(name.startswith("memoryd-sqlite-reader") for name in threads_that_read) is on_threads
        assert threads_that_read[0] == threading.main_thread().name
    finally:
        await store.close()


@pytest.mark.parametrize("tail", [Tail(USABLE, 20, body_bytes=1 << 20), Tail(USABLE, 100_000, tokens=2_000)])
async def test_a_little_of_a_long_history_is_read_on_the_event_loop(
    tmp_path: Path, threads_that_read: list[str], tail: Tail
) -> None:
    store = create_store("default", "sqlite", f"sqlite:///{tmp_path / 'memoryd.db'}")
    await store.open()
    try:
        long_history = {"messages": 100_000, "tokens": 5_000_000, "bytes": 100_000 * 300, "largest": 100_000}
        await Session(store, KEY).commit(message(1), **long_history)
        assert await store.load(KEY, tail) is not None
        assert threads_that_read == [threading.main_thread().name]
    finally:
        await store.close()


async def test_a_long_tail_is_read_on_a_thread(tmp_path: Path, threads_that_read: list[str]) -> None:
    store = create_store("default", "sqlite", f"sqlite:///{tmp_path / 'memoryd.db'}")
    await store.open()
    try:
        await Session(store, KEY).commit(message(1))
        assert await store.load(KEY, Tail(USABLE, LITTLE_MESSAGES + 1)) is not None
        assert all(name.startswith("memoryd-sqlite-reader") for name in threads_that_read)
    finally:
        await store.close()


async def test_a_claim_s_read_is_on_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = create_store("default", "sqlite", f"sqlite:///{tmp_path / 'memoryd.db'}")
    await store.open()
    try:
        monkeypatch.setattr(Reader, "run", None)
        assert await store.load_claimable("tenant", "agent", 1, 4) == []
    finally:
        await store.close()


class TestFiles:
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        store = create_store("default", "sqlite", f"sqlite:///{tmp_path / 'memoryd.db'}")
        await store.open()
        yield store
        await store.close()

    async def saved(self, store: Store, size: int) -> StoredFile:
        key = FileKey(FileOwner("tenant", Tier.USER, "user"), f"{size}.md")
        file = StoredFile(key, "1" * 32, FileVersion(1, "2" * 64, size, "", 1), b"a" * size)
        assert await store.save_file(file, None)
        return file

    async def test_little_ones_are_read_on_the_event_loop(
        self, store: Store, threads_that_read: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They are on the path of the rendering of memory."""
        files = [await self.saved(store, size) for size in (LITTLE_BYTES // 2 - 1, LITTLE_BYTES // 2)]
        monkeypatch.setattr(Reader, "run", None)
        assert await store.load_files([file.key for file in files]) == files
        assert threads_that_read == [threading.main_thread().name]

    async def test_large_ones_are_read_on_a_thread(self, store: Store, threads_that_read: list[str]) -> None:
        """The event loop does no work above about a millisecond: it looks at their sizes alone."""
        files = [await self.saved(store, size) for size in (LITTLE_BYTES // 2, LITTLE_BYTES // 2 + 1)]
        for_sizes = threading.main_thread().name
        assert await store.load_files([file.key for file in files]) == files
        assert threads_that_read == [for_sizes]

    async def test_many_are_read_on_a_thread(self, store: Store, threads_that_read: list[str]) -> None:
        files = [await self.saved(store, size) for size in range(LITTLE_FILES + 1)]
        assert await store.load_files([file.key for file in files]) == files
        assert threads_that_read == []
