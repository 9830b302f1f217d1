"""Background work tells of a store that is away once, with its cause, and once that it is back."""

from __future__ import annotations

import logging

import pytest

from memoryd_server.engine import histories
from memoryd_server.engine.changes import SessionSettings
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.sweeping import Sweeper
from memoryd_server.stores.base import Loaded, StoreUnavailable, Tail
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.records import SessionKey
from tests.engine.messages import KEY, user
from tests.engine.sessions import runtime_on

AWAY = "Redis cannot be reached, or the connection to it broke. Repeat the call; if it goes on, look at its log."
TTL = 60_000_000


class _Store(InMemoryStore):
    """A store that is away when a test says so, as a whole or for its reads of sessions."""

    error: Exception | None = None
    error_of_loads: Exception | None = None
    ahead = 0

    async def now(self) -> int:
        return await super().now() + self.ahead

    async def lease(self, name: str, holder: str, seconds: float) -> bool:
        if self.error is not None:
            raise self.error
        return await super().lease(name, holder, seconds)

    async def load(self, key: SessionKey, tail: Tail | None = None) -> Loaded | None:
        if self.error_of_loads is not None:
            raise self.error_of_loads
        return await super().load(key, tail)


@pytest.fixture
def store() -> _Store:
    return _Store()


@pytest.fixture
def runtime(store: _Store) -> Runtime:
    return runtime_on(store)


def told(log: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    """What was logged since the last look, with its level; no line has a traceback."""
    assert not [record for record in log.records if record.exc_info]
    lines = [(record.levelno, record.getMessage()) for record in log.records]
    log.clear()
    return lines


async def test_an_outage_is_one_line_however_often_it_is_swept_and_its_end_another(
    runtime: Runtime, store: _Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sweeper = Sweeper(runtime)
    await sweeper.try_to_sweep()
    assert told(caplog) == []
    for _ in range(2):
        store.error = StoreUnavailable(AWAY)
        for _ in range(3):
            await sweeper.try_to_sweep()
        [(level, line)] = told(caplog)
        assert level == logging.WARNING
        assert line.endswith(
            f"in store {runtime.name}; it is tried again until it works: "
            "Redis cannot be reached, or the connection to it broke. If it goes on, look at its log."
        )
        store.error = None
        for _ in range(3):
            await sweeper.try_to_sweep()
        assert told(caplog) == [(logging.INFO, f"store {runtime.name} answers again")]


async def test_an_outage_in_the_middle_of_a_sweep_is_one_line_too(
    runtime: Runtime, store: _Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for number in range(5):
        key = KEY._replace(session_id=f"{number}")
        settings = SessionSettings(ttl=TTL)
        await histories.append(runtime, histories.Append(key, [user("hi")], settings=settings))
        runtime.committer.records.drop(key)
    store.ahead = 2 * TTL
    store.error_of_loads = StoreUnavailable(AWAY)
    sweeper = Sweeper(runtime)
    for _ in range(2):
        await sweeper.try_to_sweep()
    assert [level for level, _ in told(caplog)] == [logging.WARNING]
    store.error_of_loads = None
    await sweeper.try_to_sweep()
    assert told(caplog) == [(logging.INFO, f"store {runtime.name} answers again")]
    assert await store.load(KEY._replace(session_id="3")) is None


async def test_a_fault_of_ours_is_still_told_with_its_place(
    runtime: Runtime, store: _Store, caplog: pytest.LogCaptureFixture
) -> None:
    """And no proof that a store answers again."""
    caplog.set_level(logging.INFO)
    sweeper = Sweeper(runtime)
    store.error = StoreUnavailable(AWAY)
    await sweeper.try_to_sweep()
    store.error = ValueError("a fault")
    await sweeper.try_to_sweep()
    assert [record.exc_info is not None for record in caplog.records] == [False, True]
