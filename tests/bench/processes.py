"""Starts the bench's other processes and ends them, and reads how much memory they take."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from memoryd_server.config import ENV_PREFIX


class ProcessFailed(Exception):
    """A process ended before its work was done; what it said is on standard error."""


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server that serves."""

    pid: int
    address: str

    def memory_mb(self) -> float:
        """The memory that it occupies now, in MB (10^6 bytes)."""
        return self._status("VmRSS")

    def peak_memory_mb(self) -> float:
        """The most that it ever occupied."""
        return self._status("VmHWM")

    def _status(self, name: str) -> float:
        found = re.search(rf"^{name}:\s+(\d+) kB$", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)
        if found is None:
            raise ProcessFailed(f"the server (process {self.pid}) is no more")
        return int(found[1]) * 1_024 / 1_000_000


async def run_to_end(module: str, *arguments: object, loaded: Callable[[int], None]) -> None:
    """Runs a module that loads something. Raises: ProcessFailed."""
    async with _started(module, arguments) as process:
        await _read_events(process, loaded)
        if await process.wait():
            raise ProcessFailed(f"{module} ended with status {process.returncode}")


@asynccontextmanager
async def serving(
    module: str, *arguments: object, loaded: Callable[[int], None] = lambda _: None
) -> AsyncIterator[ServerProcess]:
    """Runs a module that serves, until the end of the context. Raises: ProcessFailed."""
    async with _started(module, arguments) as process:
        address = await _read_events(process, loaded)
        if address is None:
            raise ProcessFailed(f"{module} ended with status {await process.wait()}")
        yield ServerProcess(process.pid, address)


@asynccontextmanager
async def _started(module: str, arguments: tuple[object, ...]) -> AsyncIterator[asyncio.subprocess.Process]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *map(str, arguments), stdout=asyncio.subprocess.PIPE, env=environment
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def _read_events(process: asyncio.subprocess.Process, loaded: Callable[[int], None]) -> str | None:
    """Reads events until the process serves; None when it ends before."""
    assert process.stdout is not None
    async for line in process.stdout:
        event = json.loads(line)
        if "serving" in event:
            return str(event["serving"])
        loaded(event["loaded"])
    return None
