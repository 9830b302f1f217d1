"""Times what a store does, whichever store it is."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from memoryd_server.stores.base import Store

OPERATIONS: Final = tuple(
    name for name, _ in inspect.getmembers(Store, inspect.iscoroutinefunction) if name not in {"open", "close"}
)
"""The operations that are timed: all of the contract's but its first and its last, so that none which joins the
contract is forgotten.
"""


class StoreMeter(Protocol):
    """Hears of a store's operations."""

    def ended(self, operation: str, seconds: float, error: BaseException | None) -> None:
        """An operation ended, well or with an error. On the path of calls: it takes microseconds and raises nothing."""


def measure(store: Store, meter: StoreMeter) -> None:
    """Has the meter hear of each operation of this store. What an operation calls of the same store is told too."""
    for operation in OPERATIONS:
        setattr(store, operation, _timed(operation, getattr(store, operation), meter))


def _timed(
    operation: str, call: Callable[..., Awaitable[object]], meter: StoreMeter
) -> Callable[..., Awaitable[object]]:
    @functools.wraps(call)
    async def timed(*args: Any, **kwargs: Any) -> object:
        started = time.perf_counter()
        try:
            answer = await call(*args, **kwargs)
        except BaseException as error:
            meter.ended(operation, time.perf_counter() - started, error)
            raise
        meter.ended(operation, time.perf_counter() - started, None)
        return answer

    return timed


__all__ = ["OPERATIONS", "StoreMeter", "measure"]
