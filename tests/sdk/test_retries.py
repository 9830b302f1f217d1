"""How calls are tried again while the server is unavailable: the policy of `clients/README.md`, on servers that are
killed and started again (design section 10, invariant 2).
"""

import asyncio
import time
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from memoryd import MemorydError, ServerUnavailable, StoreUnavailable, SummarizerFailed, user
from memoryd.retries import FIRST_TRIES, RESTART_SECONDS
from memoryd.v1.history_service_pb2 import GetSessionResponse
from tests.conftest import StartServer
from tests.databases.servers import free_ports
from tests.sdk.conftest import Connect
from tests.sdk.scripted_server import ScriptedServer, answers, fails
from tests.servers import ServerProcess

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
APPENDS = 1_000
MOST_CALLERS = 16
A_WHILE = 1.5
"""Seconds, in all, between the first tries."""


@pytest.fixture
def lasting(start_server: StartServer, tmp_path: Path) -> ServerProcess:
    """A server that has its address and its store again when it is restarted."""
    [port] = free_ports(1)
    return start_server("--listen", f"127.0.0.1:{port}", "--store", f"main=sqlite:///{tmp_path / 'memory.db'}")


async def failed(call: Awaitable[Any], kind: type[MemorydError]) -> float:
    """The seconds that a call takes until it fails."""
    begun = time.monotonic()
    with pytest.raises(MemorydError) as error:
        await call
    assert type(error.value) is kind
    return time.monotonic() - begun


@pytest.mark.parametrize("callers", [1, MOST_CALLERS])
async def test_appends_outlive_a_server_that_is_killed(
    callers: int, connect: Connect, lasting: ServerProcess, agent: str
) -> None:
    """Each is stored once, in the order in which its caller sent it, and no caller is told (invariant 2)."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(MOST_CALLERS + 1))
    session = connect(lasting.address).session(agent=agent)
    restarts: list[asyncio.Task[None]] = []

    async def restart() -> None:
        await asyncio.to_thread(lasting.kill)
        await asyncio.to_thread(lasting.restart)

    async def append(first: int) -> None:
        for number in range(first, APPENDS, callers):
            if number == APPENDS // 3:
                restarts.append(asyncio.create_task(restart()))
            await session.append(user(f"{number}"))

    await asyncio.gather(*(append(first) for first in range(callers)))
    await asyncio.gather(*restarts)
    stored = [int(message.text) async for message in session.messages(page_size=1_000)]
    assert len(restarts) == 1
    assert sorted(stored) == list(range(APPENDS))
    for first in range(callers):
        assert [number for number in stored if number % callers == first] == list(range(first, APPENDS, callers))


async def test_a_large_window_outlives_a_server_that_is_killed(
    connect: Connect, lasting: ServerProcess, agent: str
) -> None:
    session = connect(lasting.address).session(agent=agent)
    for _ in range(4):
        await session.append(user("x" * (1 << 20)))
    lasting.kill()
    window, _ = await asyncio.gather(session.window(messages=10), asyncio.to_thread(lasting.restart))
    assert len(window) == 4


async def test_a_server_that_never_answered_is_told_soon(connect: Connect) -> None:
    [port] = free_ports(1)
    session = connect(f"127.0.0.1:{port}").session(agent="a")
    assert A_WHILE - 0.1 < await failed(session.info(), ServerUnavailable) < 2 * A_WHILE
    assert await failed(session.info(timeout=0.5), ServerUnavailable) < 1


async def test_a_server_that_is_gone_for_good_is_told_in_time(
    connect: Connect, lasting: ServerProcess, agent: str
) -> None:
    """The error is that of the last try, also where the deadline is what ends them."""
    session = connect(lasting.address).session(agent=agent)
    await session.append(user("a"))
    lasting.kill()
    assert RESTART_SECONDS - 2 < await failed(session.info(), ServerUnavailable) < RESTART_SECONDS + 1
    assert await failed(session.append(user("b"), timeout=2.5), ServerUnavailable) < 2.5
    assert await failed(session.update(user_id="mia"), ServerUnavailable) < 1


async def test_a_refusal_is_an_answer(connect: Connect, scripted: ScriptedServer) -> None:
    """After one, the client waits for its server as for one that restarts."""
    many = FIRST_TRIES + 1
    scripted.script("GetSession", fails(UNAVAILABLE, "STORE_UNAVAILABLE"), *[fails(UNAVAILABLE)] * many)
    scripted.script("GetStore", *[fails(UNAVAILABLE)] * many)
    await failed(connect(scripted.address).store(), ServerUnavailable)
    assert len(scripted.asked("GetStore")) == FIRST_TRIES
    await failed(connect(scripted.address).session(agent="a").info(timeout=4), ServerUnavailable)
    assert len(scripted.asked("GetSession")) > FIRST_TRIES


async def test_the_server_says_how_long_to_wait(connect: Connect, scripted: ScriptedServer) -> None:
    """Where that is longer than there is time for, it is not asked again."""
    session = connect(scripted.address).session(agent="a")
    scripted.script("GetSession", fails(UNAVAILABLE, "SERVER_DRAINING", retry_after=1), answers(GetSessionResponse()))
    begun = time.monotonic()
    await session.info()
    assert time.monotonic() - begun >= 1
    for seconds, timeout in ((60, None), (1, 0.9)):
        scripted.script("GetSession", fails(UNAVAILABLE, "STORE_UNAVAILABLE", retry_after=seconds))
        assert await failed(session.info(timeout=timeout), StoreUnavailable) < 0.9
    assert len(scripted.asked("GetSession")) == 4


async def test_a_reason_that_does_not_pass_is_told_at_once(connect: Connect, scripted: ScriptedServer) -> None:
    scripted.script("GetSession", fails(UNAVAILABLE, "SUMMARIZER_FAILED"))
    await failed(connect(scripted.address).session(agent="a").info(), SummarizerFailed)


async def test_a_closed_client_ends_its_tries(connect: Connect, scripted: ScriptedServer) -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def refuses(request: bytes, context: grpc.ServicerContext) -> Any:
        loop.call_soon_threadsafe(asked.set)
        return fails(UNAVAILABLE, "SERVER_DRAINING", retry_after=8)(request, context)

    scripted.script("GetSession", refuses)
    memory = connect(scripted.address)
    call = asyncio.ensure_future(memory.session(agent="a").info())
    await asked.wait()
    begun = time.monotonic()
    await memory.close()
    # An async call whose refusal has not arrived yet is cancelled, as gRPC does it.
    with pytest.raises((RuntimeError, MemorydError, asyncio.CancelledError)):
        await call
    assert time.monotonic() - begun < 2
