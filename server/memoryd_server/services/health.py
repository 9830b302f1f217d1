"""The standard health service, whose answers rest on the default store (grpc.health.v1)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, cast

from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio as health_aio

from memoryd_server.engine.stores import Stores, is_reachable
from memoryd_server.interceptors.wrapping import Context

INTERVAL_SECONDS: Final = 5.0
"""How often the status that watchers see is brought up to date."""

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING


class HealthService(health_aio.HealthServicer):
    """SERVING, for the server ("") and each of its services, while the default store answers in time."""

    def __init__(self, stores: Stores, services: Sequence[str]) -> None:
        super().__init__()
        self._stores = stores
        self._services = ("", *services)

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Context) -> health_pb2.HealthCheckResponse:
        await self.refresh()
        return await super().Check(request, context)

    async def List(self, request: Message, context: Context) -> Message:
        """The status of each service, which grpcio's own servicer does not tell."""
        del request
        await self.refresh()
        protocol: Any = health_pb2  # Its stubs are older than the method.
        answer = protocol.HealthListResponse()
        for service in self._services:
            of_service = health_pb2.HealthCheckRequest(service=service)
            answer.statuses[service].CopyFrom(await super().Check(of_service, context))
        return cast(Message, answer)

    async def refresh(self) -> None:
        """Asks the default store, and sets the status of all services. After the drain began it stays NOT_SERVING."""
        await self._set_all(await is_reachable(self._stores.pick("")))

    async def _set_all(self, serving: bool) -> None:
        for service in self._services:
            await self.set(service, _SERVING if serving else _NOT_SERVING)

    async def refresh_for_ever(self) -> None:
        """Keeps the status that watchers see up to date. Ends by cancellation only."""
        while True:
            # All stores are asked: of those beside the default one, metrics alone tell whether they answer.
            default, *_ = await self._stores.statuses()
            await self._set_all(default.reachable)
            await asyncio.sleep(INTERVAL_SECONDS)
