"""How the bench's own processes speak with the one that started them: a line of JSON on standard output for each event,
and SIGTERM when they are to end."""

from __future__ import annotations

import asyncio
import json
import signal


def announce(**event: str | int) -> None:
    """Tells of an event: `loaded` (messages so far) or `serving` (an address)."""
    print(json.dumps(event), flush=True)


async def until_stopped() -> None:
    """Returns when the process is asked to end."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
