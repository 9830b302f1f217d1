"""How fast `memoryd copy` moves what a store holds to another one, there and back: the whole command, from its start to
the end of its comparison.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

import msgspec

from memoryd_server.cli.copy_run import NOTHING_MATCHED
from memoryd_server.config import ENV_PREFIX
from tests.bench import sessions
from tests.bench.databases import SERVERS
from tests.bench.options import COPIED_STORES, Options
from tests.bench.processes import ProcessFailed, run_to_end
from tests.databases.servers import OwnServer

_SHORT: Final = 200
"""Messages of most of the sessions."""
_LONG: Final = 10_000
"""Messages of the others: a tenth of all messages, where there are enough."""
_NOT_COMPILED_ONCE: Final = "PYTHONDONTWRITEBYTECODE"
"""The variable that has Python compile a program whenever it runs, unlike one that is installed."""


class _Store(NamedTuple):
    name: str
    url: str


class Copied(msgspec.Struct, frozen=True):
    """One copy of everything."""

    source: str
    target: str
    messages: int
    seconds: float
    cpu: float
    """The share of that in which the copying process computed; what is left is waiting for the databases."""

    @property
    def per_second(self) -> float:
        return self.messages / self.seconds


async def measure_copies(
    options: Options, directory: Path, on_disk: Path, loaded: Callable[[int], None]
) -> list[Copied]:
    """Fills a SQLite file, copies it to Redis, and copies that into another SQLite file.

    Raises: ProcessFailed, also when a copy is not what it was copied from.
    """
    plans = directory / "copy.json"
    sessions.write_plans(plans, _plans(options.copied_messages))
    first, second = (_sqlite_url(directory / f"{name}.db") for name in ("copy", "back"))
    await run_to_end("tests.bench.load", first, plans, 0, loaded=loaded)
    with ExitStack() as stack:
        here, there = COPIED_STORES
        server = await asyncio.to_thread(stack.enter_context, OwnServer(SERVERS[there], on_disk))
        between = stack.enter_context(server.new_database())
        # The first run of a program compiles it.
        await _copy(_Store(here, first), _Store(there, between), "--agent", "nobody", status=NOTHING_MATCHED)
        return [
            await _measured(_Store(here, first), _Store(there, between), options.copied_messages),
            await _measured(_Store(there, between), _Store(here, second), options.copied_messages),
        ]


def _sqlite_url(file: Path) -> str:
    return f"sqlite:///{file.absolute()}"


def _plans(messages: int) -> list[sessions.SessionPlan]:
    long = messages // 10 // _LONG
    short = (messages - long * _LONG) // _SHORT
    return [
        sessions.session_of(length, number)
        for length, count in ((_LONG, long), (_SHORT, short))
        for number in range(count)
    ]


async def _measured(source: _Store, target: _Store, messages: int) -> Copied:
    computed, began = _computed(), perf_counter()
    await _copy(source, target)
    seconds = perf_counter() - began
    return Copied(source.name, target.name, messages, seconds, (_computed() - computed) / seconds)


async def _copy(source: _Store, target: _Store, *arguments: str, status: int = 0) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    environment.pop(_NOT_COMPILED_ONCE, None)
    for store in (source, target):
        environment[f"{ENV_PREFIX}STORES__{store.name.upper()}__URL"] = store.url
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "memoryd_server", "copy", "--from", source.name, "--to", target.name, *arguments),
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    if process.returncode != status:
        raise ProcessFailed(
            f"memoryd copy from {source.name} to {target.name} ended with status {process.returncode}:\n{said.decode()}"
        )


def _computed() -> float:
    """The seconds that all processes which have ended computed."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
