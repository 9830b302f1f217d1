"""Secrets: a store's own, by which it is told from others, and those of stores from which sessions were copied."""

from __future__ import annotations

import asyncio
import os

import pytest

from memoryd_server.stores.base import Store
from memoryd_server.stores.registry import create_store
from tests.adapters import EACH_SHARED_ADAPTER, Adapter
from tests.stores.conftest import OpenStore

SECRETS = [bytes(32), bytes([255]) * 32, b"'\"\\;-- \r\n\x00\x1a" + bytes(21), *(os.urandom(32) for _ in range(7))]

on_shared_stores = pytest.mark.parametrize("adapter", EACH_SHARED_ADAPTER, indirect=True)


@pytest.fixture
def anew() -> bool:
    """Emptied data keeps its secrets."""
    return True


async def test_none_is_adopted_at_first(store: Store) -> None:
    assert list(await store.adopted_secrets()) == []


async def test_adopted_ones_are_told_each_once(store: Store) -> None:
    for secret in (*SECRETS, *SECRETS[:3]):
        await store.adopt_secret(secret)
    assert sorted(await store.adopted_secrets()) == sorted(SECRETS)


async def test_that_many_adopt_at_once_are_told_each_once(store: Store) -> None:
    await asyncio.gather(*(store.adopt_secret(secret) for secret in SECRETS * 3))
    assert sorted(await store.adopted_secrets()) == sorted(SECRETS)


@on_shared_stores
async def test_an_adopted_one_is_known_to_every_server_and_after_a_restart(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()
    await asyncio.gather(first.adopt_secret(SECRETS[0]), second.adopt_secret(SECRETS[0]))
    assert list(await second.adopted_secrets()) == [SECRETS[0]]
    await first.close()
    assert list(await (await open_store()).adopted_secrets()) == [SECRETS[0]]


@on_shared_stores
async def test_adopting_leaves_the_store_its_own(adapter: Adapter, store_url: str) -> None:
    own = []
    for _ in range(2):
        store = create_store("test", adapter.type, store_url)
        own.append((await store.open()).secret)
        await store.adopt_secret(SECRETS[-1])
        await store.close()
    assert own[0] == own[1] != SECRETS[-1]
    assert len(own[0]) == 32
