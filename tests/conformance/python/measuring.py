"""What the Python driver measures: the SDK's async client, and the bare stubs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import grpc.aio

import memoryd
from memoryd.ids import new_id
from memoryd.v1 import (
    history_service_pb2,
    history_service_pb2_grpc,
    message_pb2,
    policy_pb2,
    session_pb2,
    window_service_pb2,
    window_service_pb2_grpc,
)
from tests.conformance import conformance_pb2 as pb

WARM_UP: Final = 50
"""Calls of each caller that do not count."""

TEXT: Final = "x" * 200
"""What is appended."""

MESSAGES: Final = 20
"""What is loaded."""

Call = Callable[[], Awaitable[object]]


async def measure(given: pb.Measure, memory: memoryd.AsyncMemoryClient, address: str) -> pb.Measurement:
    """Measures for `duration`, with `callers` at once."""
    async with grpc.aio.insecure_channel(address) as channel:
        calls = [
            _bare(given, caller, channel) if given.bare else _by_sdk(given, caller, memory)
            for caller in range(given.callers)
        ]
        for call in calls:
            for _ in range(WARM_UP):
                await call()
        begun = time.perf_counter_ns()
        end = begun + given.duration.ToNanoseconds()
        took = await asyncio.gather(*(_repeated(call, end) for call in calls))
        result = pb.Measurement(nanoseconds=[nanoseconds for each in took for nanoseconds in each])
        result.elapsed.FromNanoseconds(time.perf_counter_ns() - begun)
        return result


async def _repeated(call: Call, end: int) -> list[int]:
    took = []
    before = time.perf_counter_ns()
    while before < end:
        await call()
        after = time.perf_counter_ns()
        took.append(after - before)
        before = after
    return took


def _session_id(given: pb.Measure, caller: int) -> str:
    return f"{given.session.session_id}-{caller}" if given.callers > 1 else given.session.session_id


def _by_sdk(given: pb.Measure, caller: int, memory: memoryd.AsyncMemoryClient) -> Call:
    if given.operation == pb.MEASURED_APPEND:
        own = memory.session(agent=given.session.agent, id=_session_id(given, caller))
        return lambda: own.append(memoryd.user(TEXT))
    session = memory.session(agent=given.session.agent, id=given.session.session_id)
    return lambda: session.window(messages=MESSAGES)


def _bare(given: pb.Measure, caller: int, channel: grpc.aio.Channel) -> Call:
    if given.operation == pb.MEASURED_APPEND:
        append = history_service_pb2_grpc.HistoryServiceStub(channel).AppendMessages
        key = session_pb2.SessionKey(agent=given.session.agent, session_id=_session_id(given, caller))
        return lambda: append(
            history_service_pb2.AppendMessagesRequest(
                session=key,
                messages=[
                    message_pb2.Message(
                        id=new_id(),
                        role=message_pb2.ROLE_USER,
                        content=message_pb2.Content(parts=[message_pb2.Part(text=TEXT)]),
                    )
                ],
            )
        )
    load = window_service_pb2_grpc.WindowServiceStub(channel).LoadWindow
    request = window_service_pb2.LoadWindowRequest(
        session=given.session,
        options=policy_pb2.WindowOptions(mode=policy_pb2.WINDOW_MODE_MESSAGES, limit=MESSAGES),
    )
    return lambda: load(request)
