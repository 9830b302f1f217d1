"""Calls that their callers give up (invariants 3 and 16)."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import message_pb2 as pb
from memoryd.v1 import session_pb2 as session
from memoryd.v1 import window_service_pb2 as window
from memoryd_server.interceptors import deadline
from memoryd_server.stores.mongodb.database import CONNECTIONS as CONNECTIONS_TO_MONGODB
from memoryd_server.stores.redis.url import CONNECTIONS as CONNECTIONS_TO_A_NODE
from tests.servers import ServerProcess
from tests.service.in_process import AsyncStubs, Gate, HookedStore, connect, failing, gathered, serving, until
from tests.service.wire import Stubs, new_key, text

CANCELLED = 200
BATCH = 3
POOLED = 3 * CONNECTIONS_TO_A_NODE
"""The most connections that any store keeps: one on a cluster of three primaries."""
THREADS = CONNECTIONS_TO_MONGODB
"""The most threads that any store comes to keep: one a command under way, with Motor."""


def append(key: session.SessionKey, number: int) -> history.AppendMessagesRequest:
    messages = [text(f"{number}/{place} " + "x" * 2_000, id=f"{number}/{place}") for place in range(BATCH)]
    return history.AppendMessagesRequest(session=key, messages=messages)


def threads_of(server: ServerProcess) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/task").iterdir()))


def connections_of(server: ServerProcess) -> int:
    """How many sockets the server holds open."""
    with suppress(FileNotFoundError):  # One was closed while this looked.
        return sum(
            str(file.readlink()).startswith("socket:") for file in Path(f"/proc/{server.process.pid}/fd").iterdir()
        )
    return connections_of(server)


@pytest.mark.parametrize("one_session", [True, False], ids=["of one session", "of a session each"])
async def test_two_hundred_cancelled_appends_leave_the_server_whole(
    any_server: ServerProcess, agent: str, one_session: bool
) -> None:
    """Each is stored wholly or not at all, and no thread, no connection to the store, no socket is held for it."""
    seed = random.Random(7)
    keys = [new_key(agent)] if one_session else [new_key(agent) for _ in range(20)]
    with Stubs(any_server.address) as probe:
        for key in keys:
            probe.append(key, text("first"))
        threads, connections = threads_of(any_server), connections_of(any_server)
        async with connect(any_server.address) as channel:
            stubs = AsyncStubs(channel)
            await channel.channel_ready()
            answered = set()

            async def give_up(number: int) -> None:
                call = stubs.histories.AppendMessages(append(keys[number % len(keys)], number), timeout=30)
                for _ in range(seed.randrange(40)):
                    await asyncio.sleep(0)
                if call.cancel():
                    with pytest.raises(asyncio.CancelledError):
                        await call
                else:
                    answered.add(number)

            await asyncio.gather(*map(give_up, range(CANCELLED)))
            normal = range(CANCELLED, 2 * CANCELLED)
            for number in normal:
                await stubs.histories.AppendMessages(append(keys[number % len(keys)], number), timeout=30)

        stored: set[str] = set()
        for key in keys:
            listed = probe.messages(key, page_size=1_000)
            assert [message.seq for message in listed] == list(range(1, len(listed) + 1))
            stored |= {message.id for message in listed}
            assert_in_batches(listed[1:])
        for number in range(2 * CANCELLED):
            present = [f"{number}/{place}" in stored for place in range(BATCH)]
            assert all(present) if number in normal or number in answered else all(present) or not any(present)
        # Connections end a moment after their clients; those to a database are kept.
        await until(lambda: threads_of(any_server) <= threads + THREADS)
        await until(lambda: connections_of(any_server) <= connections + POOLED)


def assert_in_batches(listed: list[pb.Message]) -> None:
    """The messages of a batch stand side by side, in their order."""
    ids = [message.id.split("/") for message in listed]
    for place in range(0, len(ids), BATCH):
        (number, _) = ids[place]
        assert ids[place : place + BATCH] == [[number, f"{within}"] for within in range(BATCH)]


async def give_up(stream: Any) -> None:
    assert (await stream.read()).messages
    stream.cancel()
    assert await stream.code() == grpc.StatusCode.CANCELLED


async def test_a_stream_that_is_given_up_is_ended(any_server: ServerProcess, agent: str) -> None:
    """The server does not read the rest of a window that nobody wants."""
    key = new_key(agent)
    with Stubs(any_server.address) as stubs:
        for _ in range(8):
            stubs.append(key, text("x" * 1_500_000), text("y" * 1_500_000))
        connections = connections_of(any_server)
        async with connect(any_server.address) as channel:
            for _ in range(10):
                await give_up(AsyncStubs(channel).windows.StreamWindow(window.StreamWindowRequest(session=key)))
        await until(lambda: connections_of(any_server) <= connections + POOLED)
        assert len(stubs.load(key, limit=1).messages) == 1


async def test_a_call_whose_deadline_passes_is_safe_to_repeat(any_server: ServerProcess, agent: str) -> None:
    """Each try ends with a status, DEADLINE_EXCEEDED or, where the server was faster, its answer; all of them together
    store the messages once (invariant 2)."""
    key = new_key(agent)
    async with connect(any_server.address) as channel:
        stubs = AsyncStubs(channel)
        await channel.channel_ready()
        for timeout in (-1, 0, 1e-6, 1e-4, 1e-3, 2e-3):
            call = stubs.histories.AppendMessages(append(key, 0), timeout=timeout)
            assert await call.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.OK)
        answer = await stubs.histories.AppendMessages(append(key, 0), timeout=30)
        assert [message.seq for message in answer.messages] == [1, 2, 3]
        listed = await stubs.histories.ListMessages(history.ListMessagesRequest(session=key))
        assert [message.seq for message in listed.messages] == [1, 2, 3]


class TestWhileTheStoreIsSlow:
    async def test_a_deadline_ends_the_call_on_both_sides(self) -> None:
        gate = Gate()
        store = HookedStore()
        store.before = gate
        key = session.SessionKey(agent="a", session_id="s")
        async with serving(store) as (app, stubs):
            await stubs.histories.AppendMessages(append(key, 0))
            gate.shut()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stubs.histories.ListMessages(history.ListMessagesRequest(session=key), timeout=0.2)
            assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            async with asyncio.timeout(10):
                await app.in_flight.wait_until_idle()
            assert not gate.waiting
            gate.open()
            assert (await stubs.histories.ListMessages(history.ListMessagesRequest(session=key))).messages

    async def test_a_cancelled_append_that_waits_its_turn_is_not_stored(self) -> None:
        """And one that is being committed is stored whole."""
        gate = Gate()
        store = HookedStore()
        store.before = gate
        key = session.SessionKey(agent="a", session_id="s")
        async with serving(store) as (app, stubs):
            await stubs.histories.AppendMessages(append(key, 0))
            gate.shut()
            committing = stubs.histories.AppendMessages(append(key, 1))
            await gate.wait_for(1)
            waiting = [stubs.histories.AppendMessages(append(key, number)) for number in range(2, 10)]
            await until(lambda: app.in_flight.count == 9)
            for call in (committing, *waiting):
                call.cancel()
            async with asyncio.timeout(10):
                await app.in_flight.wait_until_idle()
            gate.open()
            await stubs.histories.AppendMessages(append(key, 10))

            listed = (await stubs.histories.ListMessages(history.ListMessagesRequest(session=key))).messages
            assert [message.id for message in listed] == [
                f"{number}/{place}" for number in (0, 1, 10) for place in range(BATCH)
            ]

    @pytest.mark.parametrize("method", ["GetSession", "StreamWindow"])
    async def test_a_call_without_a_deadline_ends_all_the_same(
        self, monkeypatch: pytest.MonkeyPatch, method: str
    ) -> None:
        monkeypatch.setattr(deadline, "LONGEST_CALL_SECONDS", 0.1)
        gate = Gate()
        store = HookedStore()
        store.before = gate
        key = session.SessionKey(agent="a", session_id="s")
        async with serving(store) as (_, stubs):
            gate.shut()
            if method == "GetSession":
                refusal = await failing(stubs.histories.GetSession(history.GetSessionRequest(session=key)))
            else:
                refusal = await failing(gathered(stubs.windows.StreamWindow(window.StreamWindowRequest(session=key))))
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED")
            gate.open()

    async def test_a_slow_reader_gets_its_whole_stream(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Time in which a caller does not read is not the server's: ended there, a call would get no status."""
        monkeypatch.setattr(deadline, "LONGEST_CALL_SECONDS", 0.1)
        key = session.SessionKey(agent="a", session_id="s")
        async with serving(HookedStore()) as (_, stubs):
            for _ in range(12):
                said = [text("x" * 1_500_000), text("y" * 1_500_000)]
                await stubs.histories.AppendMessages(history.AppendMessagesRequest(session=key, messages=said))
            stream = aiter(stubs.windows.StreamWindow(window.StreamWindowRequest(session=key)))
            pieces = [await anext(stream)]
            await asyncio.sleep(0.3)
            async with asyncio.timeout(20):
                pieces += await gathered(stream)

        assert pieces[-1].stats.window_message_count == 24
