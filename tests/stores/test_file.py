"""SQLite: a file that is removed, replaced, or not for everybody's eyes."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from memoryd_server.stores.base import Store, StoreUnavailable
from memoryd_server.stores.records import SessionKey
from memoryd_server.stores.registry import create_store
from tests.stores.builders import Session, birth, change_of, message

KEY = SessionKey("tenant", "agent", "session")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memoryd.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[Store]:
    store = create_store("default", "sqlite", f"sqlite:///{path}")
    await store.open()
    yield store
    await store.close()


def remove(path: Path) -> None:
    path.unlink()


def move_away(path: Path) -> None:
    path.rename(path.with_suffix(".bak"))


def put_back(path: Path) -> None:
    path.with_suffix(".bak").rename(path)


def put_another_in_its_place(path: Path) -> None:
    other = path.with_suffix(".restored")
    other.write_bytes(path.read_bytes())
    other.rename(path)


@pytest.mark.parametrize("happens", [remove, move_away, put_another_in_its_place])
async def test_nothing_is_acknowledged_once_the_file_is_another(
    store: Store, path: Path, happens: Callable[[Path], None]
) -> None:
    """What would be written then is found by nobody (invariants 3 and 12)."""
    record = await Session(store, KEY).commit(message(1))
    happens(path)
    with pytest.raises(StoreUnavailable, match=r"removed or replaced .* restart every server"):
        await store.commit([change_of(KEY, record, message(2))])
    with pytest.raises(StoreUnavailable, match="removed or replaced"):
        await store.ping()


async def test_a_file_that_is_put_back_goes_on(store: Store, path: Path) -> None:
    session = Session(store, KEY)
    await session.commit(message(1))
    move_away(path)
    with pytest.raises(StoreUnavailable):
        await store.commit([birth(KEY._replace(session_id="other"))])
    put_back(path)
    await store.ping()
    await session.commit(message(2))


async def test_conversations_are_for_the_owner_of_the_file_alone(store: Store, path: Path) -> None:
    await Session(store, KEY).commit(message(1))
    for file in (path, path.with_name("memoryd.db-wal")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
