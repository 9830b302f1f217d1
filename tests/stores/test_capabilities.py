"""What every store tells about itself: which powers it lacks, and why."""

from __future__ import annotations

from memoryd_server.stores.registry import create_store
from tests.adapters import Adapter


async def test_a_store_says_which_powers_it_lacks_and_why(adapter: Adapter, store_url: str) -> None:
    store = create_store("test", adapter.type, store_url)
    try:
        info = await store.open()
        powers = {power.name: power for power in info.capabilities}

        assert info.type == adapter.type
        assert set(powers) >= {"shared", "durable"}
        assert info.durable == powers["durable"].supported
        assert len(powers) == len(info.capabilities)
        for power in info.capabilities:
            assert bool(power.reason) != power.supported, power.name
    finally:
        await store.close()
