"""What servicers take from a call beside its request."""

from __future__ import annotations

import time

from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.stores import Stores
from memoryd_server.interceptors.correlation import current_call
from memoryd_server.interceptors.wrapping import Context


def tenant() -> str:
    """The tenant of the call that is being served."""
    return current_call.get().tenant


def runtime_of(stores: Stores) -> Runtime:
    """The store that the call picked. Raises: RequestError STORE_UNKNOWN."""
    call = current_call.get()
    runtime = stores.pick(call.store)
    if not call.store:
        call.store = runtime.name  # For errors and logs.
    return runtime


def deadline_of(context: Context) -> float | None:
    """The call's deadline in `time.monotonic()` seconds; None without one."""
    remaining: float | None = context.time_remaining()  # None without a deadline, whatever its stub says.
    return None if remaining is None else time.monotonic() + remaining
