"""The stores of a server: picking one by name, and telling whether it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memoryd_server import limits
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.runtime import Runtime
from memoryd_server.stores.base import StoreError, StoreInfo


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """A store, and whether it answered just now."""

    name: str
    info: StoreInfo
    default: bool
    reachable: bool


class Stores:
    """The open stores by name. One is the default."""

    def __init__(self, runtimes: Mapping[str, Runtime], default: str) -> None:
        self._runtimes = dict(runtimes)
        self._default = default

    def pick(self, name: str) -> Runtime:
        """The store of that name; the default one for an empty name. Raises: RequestError STORE_UNKNOWN."""
        runtime = self._runtimes.get(name or self._default)
        if runtime is None:
            names = ", ".join(sorted(self._runtimes))
            raise RequestError(
                Reason.STORE_UNKNOWN,
                f"this server has no store {name!r}: use one of {names}, or add it to the server's settings",
                store=name,
                stores=names,
            )
        return runtime

    async def status(self, name: str) -> StoreStatus:
        """One store's status. Raises: RequestError STORE_UNKNOWN."""
        runtime = self.pick(name)
        return StoreStatus(
            runtime.name, runtime.info, runtime.name == self._default, reachable=await is_reachable(runtime)
        )

    async def statuses(self) -> Sequence[StoreStatus]:
        """The status of all stores, the default first, then by name."""
        names = sorted(self._runtimes, key=lambda name: (name != self._default, name))
        return await asyncio.gather(*(self.status(name) for name in names))

    def all(self) -> Sequence[Runtime]:
        """All stores."""
        return list(self._runtimes.values())


async def is_reachable(runtime: Runtime) -> bool:
    """Whether the store answers within `limits.STORE_PROBE_SECONDS`."""
    try:
        async with asyncio.timeout(limits.STORE_PROBE_SECONDS):
            await runtime.store.ping()
    except (StoreError, TimeoutError):
        reachable = False
    else:
        reachable = True
    runtime.instruments.reached(reachable)
    return reachable
