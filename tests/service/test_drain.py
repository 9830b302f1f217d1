"""A server that is told to end (invariant 16): every call ends with a status, and what was acknowledged is there."""

from __future__ import annotations

import asyncio
import itertools
import signal
import threading
import time
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import session_pb2 as session
from memoryd.v1 import window_service_pb2 as window
from memoryd_server.app import drain
from tests.conftest import StartServer
from tests.service.in_process import AsyncStubs, Gate, HookedStore, connect, failing, gathered, serving, until
from tests.service.wire import Stubs, refusal_of, text

CALLERS: Final = 8
KEY: Final = session.SessionKey(agent="a", session_id="s")
SERVING: Final = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING


def append(id_: str) -> history.AppendMessagesRequest:
    return history.AppendMessagesRequest(session=KEY, messages=[text(id_, id=id_)])


class TestSigterm:
    @pytest.fixture(params=[signal.SIGTERM, signal.SIGINT])
    def signal_(self, request: pytest.FixtureRequest) -> signal.Signals:
        found: signal.Signals = request.param
        return found

    def test_lets_calls_end_and_exits_with_0(
        self, start_server: StartServer, tmp_path: Path, signal_: signal.Signals
    ) -> None:
        """Callers that never pause: each call is answered, or refused as UNAVAILABLE; what was answered is stored."""
        server = start_server("--data-dir", str(tmp_path), "--tokenizer", "estimate")
        acknowledged: set[str] = set()
        refusals: list[grpc.StatusCode] = []
        busy = threading.Event()

        def call_on(caller: int) -> None:
            with Stubs(server.address) as stubs:
                for number in itertools.count():
                    id_ = f"{caller}/{number}"
                    try:
                        stubs.histories.AppendMessages(append(id_), timeout=60)
                    except grpc.RpcError as error:
                        failed: Any = error
                        refusals.append(failed.code())
                        return
                    acknowledged.add(id_)
                    if number == 20:
                        busy.set()

        threads = [threading.Thread(target=call_on, args=(caller,)) for caller in range(CALLERS)]
        for thread in threads:
            thread.start()
        assert busy.wait(60)
        server.process.send_signal(signal_)
        server.process.wait(30)
        assert server.stop() == 0
        for thread in threads:
            thread.join()

        assert refusals == [grpc.StatusCode.UNAVAILABLE] * CALLERS
        server.restart()
        with Stubs(server.address) as stubs:
            stored = {message.id for message in stubs.messages(KEY, page_size=1_000)}
        assert acknowledged <= stored

    def test_ends_an_idle_server_at_once(self, start_server: StartServer, tmp_path: Path) -> None:
        """Neither idle connections nor watchers of its health hold it up."""
        server = start_server("--data-dir", str(tmp_path), "--tokenizer", "estimate")
        with Stubs(server.address) as stubs:
            stubs.append(KEY, text("one"))
            health: Any = health_pb2_grpc.HealthStub(stubs.channel)
            watch = health.Watch(health_pb2.HealthCheckRequest())
            assert next(watch).status == SERVING
            started = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - started < 10  # the drain may take 30 s for calls under way
            assert next(watch).status == NOT_SERVING
            with pytest.raises(grpc.RpcError):
                next(watch)
            assert refusal_of(watch).reason == "SERVER_DRAINING"

    def test_ends_what_does_not_end_by_itself(self, start_server: StartServer, tmp_path: Path) -> None:
        """A caller that does not read its stream gets UNAVAILABLE when the time is over."""
        server = start_server("--data-dir", str(tmp_path), "--tokenizer", "estimate", "--drain-seconds", "1")
        with Stubs(server.address) as stubs:
            for _ in range(20):
                stubs.append(KEY, text("x" * 1_500_000), text("y" * 1_500_000))
            stream: Any = stubs.windows.StreamWindow(window.StreamWindowRequest(session=KEY), timeout=60)
            next(stream)
            assert server.stop() == 0
            with pytest.raises(grpc.RpcError):
                list(stream)
            assert stream.code() == grpc.StatusCode.UNAVAILABLE


class TestCallsUnderWay:
    """In the test's own process, where the store can be made to wait."""

    async def test_are_given_the_time_that_they_need(self) -> None:
        gate = Gate()
        store = HookedStore()
        async with serving(store) as (app, stubs):
            await stubs.histories.AppendMessages(append("one"))
            store.before = gate
            gate.shut()
            call = stubs.histories.AppendMessages(append("two"))
            request = window.StreamWindowRequest(session=KEY)
            stream = asyncio.ensure_future(gathered(stubs.windows.StreamWindow(request)))
            await gate.wait_for(2)
            draining = asyncio.create_task(drain(app, 30))
            await until(lambda: app.draining._refusing)
            gate.open()

            assert [message.seq for message in (await call).messages] == [2]
            assert (await stream)[-1].HasField("stats")
            async with asyncio.timeout(10):
                await draining

    async def test_are_told_when_their_time_is_over(self) -> None:
        """UNAVAILABLE with a reason and a time to retry, and not a silent end."""
        gate = Gate()
        store = HookedStore()
        store.before = gate
        async with serving(store) as (app, stubs):
            await stubs.histories.AppendMessages(append("one"))
            gate.shut()
            calls = [
                stubs.histories.AppendMessages(append("two")),
                stubs.histories.GetSession(history.GetSessionRequest(session=KEY)),
                gathered(stubs.windows.StreamWindow(window.StreamWindowRequest(session=KEY))),
            ]
            calls = list(map(asyncio.ensure_future, calls))
            await gate.wait_for(3)
            async with asyncio.timeout(20):
                await drain(app, 0.2)
            assert app.in_flight.count == 0

            for call in calls:
                refusal = await failing(call)
                assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")
                assert refusal.retry_seconds is not None
            gate.open()

    async def test_turn_health_first(self) -> None:
        """Whoever watches sees NOT_SERVING while calls are still under way."""
        gate = Gate()
        store = HookedStore()
        async with serving(store) as (app, stubs):
            health: Any = health_pb2_grpc.HealthStub(stubs.channel)
            watch = health.Watch(health_pb2.HealthCheckRequest())
            await stubs.histories.AppendMessages(append("one"))
            assert (await watch.read()).status == SERVING
            store.before = gate
            gate.shut()
            call = stubs.histories.AppendMessages(append("two"))
            await gate.wait_for(1)
            draining = asyncio.create_task(drain(app, 30))

            assert (await watch.read()).status == NOT_SERVING
            assert not draining.done()
            gate.open()
            await call
            async with asyncio.timeout(10):
                await draining

    async def test_are_not_joined_by_new_ones(self) -> None:
        gate = Gate()
        store = HookedStore()
        async with serving(store) as (app, stubs):
            await stubs.histories.AppendMessages(append("one"))
            store.before = gate
            gate.shut()
            call = stubs.histories.AppendMessages(append("two"))
            await gate.wait_for(1)
            draining = asyncio.create_task(drain(app, 30))
            await until(lambda: app.draining._refusing)
            async with connect(app.address) as channel:
                refusal = await failing(AsyncStubs(channel).histories.AppendMessages(append("three"), timeout=10))
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")
            gate.open()
            await call
            await draining

    async def test_are_joined_by_new_ones_until_a_balancer_may_have_noticed(self) -> None:
        """Health is NOT_SERVING, and calls are taken all the same: a balancer that has not asked yet sends them."""
        async with serving(HookedStore()) as (app, stubs):
            health: Any = health_pb2_grpc.HealthStub(stubs.channel)
            watch = health.Watch(health_pb2.HealthCheckRequest())
            assert (await watch.read()).status == SERVING
            draining = asyncio.create_task(drain(app, 30, delay_seconds=3_600))
            assert (await watch.read()).status == NOT_SERVING
            assert (await health.Check(health_pb2.HealthCheckRequest())).status == NOT_SERVING

            async with connect(app.address) as channel:
                appended = await AsyncStubs(channel).histories.AppendMessages(append("one"), timeout=30)
            assert [message.seq for message in appended.messages] == [1]
            draining.cancel()
