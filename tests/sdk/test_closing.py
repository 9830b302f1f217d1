"""Clients that are closed while others use them, and async ones in an event loop that is not theirs."""

import asyncio
import gc
import threading
from typing import Any

import grpc
import pytest

from memoryd import AsyncMemoryClient, user
from memoryd.v1.history_service_pb2 import GetSessionResponse
from tests.sdk.conftest import Connect
from tests.sdk.scripted_server import ScriptedServer
from tests.servers import ServerProcess

CALLERS = 3


async def test_every_call_that_closing_cuts_off_says_so(connect: Connect, scripted: ScriptedServer) -> None:
    begun, over = threading.Semaphore(0), threading.Event()

    def hangs(request: bytes, context: grpc.ServicerContext) -> list[Any]:
        begun.release()
        over.wait()
        return [GetSessionResponse()]

    scripted.script("AppendMessages", *[hangs] * CALLERS)
    memory = connect(scripted.address)
    calls = [asyncio.create_task(memory.session(agent="a").append(user("a"))) for _ in range(CALLERS)]
    try:
        for _ in calls:
            await asyncio.to_thread(begun.acquire)
        await memory.close()
        failures = await asyncio.gather(*calls, return_exceptions=True)
    finally:
        over.set()
    for failure in failures:
        assert type(failure) is RuntimeError
        assert "this client is closed; make a new" in str(failure)


async def test_appends_in_a_row_end_with_the_same_error_when_their_client_is_closed(
    connect: Connect, server: ServerProcess, agent: str
) -> None:
    """Whether a call was on its way, or about to be."""
    memory = connect(server.address)
    begun = asyncio.Event()

    async def append() -> None:
        while True:
            await memory.session(agent=agent).append(user("a"))
            begun.set()

    calls = [asyncio.create_task(append()) for _ in range(CALLERS)]
    await begun.wait()
    await memory.close()
    for failure in await asyncio.gather(*calls, return_exceptions=True):
        assert type(failure) is RuntimeError
        assert "this client is closed; make a new" in str(failure)


async def test_a_cancelled_call_stays_cancelled(scripted: ScriptedServer) -> None:
    begun, over = threading.Event(), threading.Event()

    def hangs(request: bytes, context: grpc.ServicerContext) -> list[Any]:
        begun.set()
        over.wait()
        return [GetSessionResponse()]

    scripted.script("GetSession", hangs)
    async with AsyncMemoryClient(scripted.address) as memory:
        call = asyncio.create_task(memory.session(agent="a").info())
        try:
            await asyncio.to_thread(begun.wait)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        finally:
            over.set()


def test_an_async_client_says_that_it_belongs_to_one_event_loop(server: ServerProcess, agent: str) -> None:
    """In words, and without a warning about what was never awaited."""
    memory = AsyncMemoryClient(server.address)

    async def append() -> None:
        await memory.session(agent=agent).append(user("a"))

    asyncio.run(append())
    for use in (append, memory.close):
        with pytest.raises(RuntimeError, match=r"belongs to the event loop .* make an AsyncMemoryClient in each loop"):
            asyncio.run(use())
    gc.collect()
