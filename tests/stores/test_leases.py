"""`lease`: background work of one server at a time, by the store's clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from memoryd_server.stores.base import Store
from tests.adapters import EACH_SHARED_ADAPTER
from tests.stores.conftest import OpenStore

on_shared_stores = pytest.mark.parametrize("adapter", EACH_SHARED_ADAPTER, indirect=True)

LONG = 3600.0
SHORT = 0.2
PATIENCE = 20.0
"""Seconds after which a lease that is long over counts as never ending."""


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Waits until a condition holds."""
    begun = time.monotonic()
    while not await condition():
        assert time.monotonic() - begun < PATIENCE
        await asyncio.sleep(0.01)


async def test_has_one_holder(store: Store) -> None:
    assert await store.lease("sweep", "one", LONG)
    assert not await store.lease("sweep", "two", LONG)
    assert not await store.lease("sweep", "two", 0.001)


async def test_is_renewed_by_its_holder(store: Store) -> None:
    for _ in range(3):
        assert await store.lease("sweep", "one", LONG)
    assert not await store.lease("sweep", "two", LONG)


async def test_ends_when_its_time_is_over(store: Store) -> None:
    begun = time.monotonic()
    assert await store.lease("sweep", "one", SHORT)
    await until(lambda: store.lease("sweep", "two", LONG))
    # Clocks of a database and of this process need not agree to the millisecond.
    assert time.monotonic() - begun > SHORT - 0.1
    assert not await store.lease("sweep", "one", LONG)


async def test_is_shortened_by_a_renewal_for_a_shorter_time(store: Store) -> None:
    """How a holder gives it up."""
    assert await store.lease("sweep", "one", LONG)
    assert await store.lease("sweep", "one", 0)
    await until(lambda: store.lease("sweep", "two", LONG))


async def test_is_prolonged_by_a_renewal(store: Store) -> None:
    assert await store.lease("sweep", "one", SHORT)
    assert await store.lease("sweep", "one", LONG)
    await until(lambda: store.lease("witness", "one", SHORT))
    await until(lambda: store.lease("witness", "two", SHORT))
    assert not await store.lease("sweep", "two", LONG)


async def test_can_be_taken_again_by_the_holder_whose_time_is_over(store: Store) -> None:
    assert await store.lease("sweep", "one", 0)
    assert await store.lease("sweep", "one", LONG)
    assert not await store.lease("sweep", "two", LONG)


async def test_of_another_name_is_another(store: Store) -> None:
    """(invariant 5)"""
    for number, name in enumerate(["sweep", "Sweep", "sweep ", "swéep", "swe\u0301ep", "%", "_"]):
        assert await store.lease(name, f"holder {number}", LONG)
    assert not await store.lease("sweep", "holder 1", LONG)


async def test_holders_differ_in_every_byte(store: Store) -> None:
    assert await store.lease("sweep", "one", LONG)
    for other in ("One", "one ", "öne", ""):
        assert not await store.lease("sweep", other, LONG)


@on_shared_stores
async def test_of_one_server_keeps_the_others_out(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()
    assert await first.lease("sweep", "one", LONG)
    assert not await second.lease("sweep", "two", LONG)
    await first.close()
    assert not await second.lease("sweep", "two", LONG)
    assert await second.lease("sweep", "one", LONG)


@on_shared_stores
async def test_of_many_that_ask_at_once_one_gets_it(open_store: OpenStore) -> None:
    servers = [await open_store() for _ in range(4)]
    for round_ in range(5):
        answers = await asyncio.gather(
            *(server.lease(f"round {round_}", f"{number}", LONG) for number, server in enumerate(servers * 5))
        )
        assert answers.count(True) == 1


@on_shared_stores
async def test_that_is_over_goes_to_one_of_many_that_ask_at_once(open_store: OpenStore) -> None:
    servers = [await open_store() for _ in range(4)]
    assert await servers[0].lease("sweep", "earlier", 0)
    answers: list[bool] = []

    async def ask() -> bool:
        answers[:] = await asyncio.gather(
            *(server.lease("sweep", f"{number}", LONG) for number, server in enumerate(servers))
        )
        return any(answers)

    await until(ask)
    assert answers.count(True) == 1
