"""StoreService."""

from __future__ import annotations

from memoryd.v1 import store_service_pb2 as pb
from memoryd.v1 import store_service_pb2_grpc
from memoryd_server.engine.stores import Stores, StoreStatus
from memoryd_server.interceptors.correlation import current_call
from memoryd_server.interceptors.wrapping import Context


class StoreService(store_service_pb2_grpc.StoreServiceServicer):
    """Tells about the server's stores."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def GetStore(self, request: pb.GetStoreRequest, context: Context) -> pb.GetStoreResponse:
        del context
        status = await self._stores.status(request.name or current_call.get().store)
        response = pb.GetStoreResponse()
        _encode_store(status, response.store)
        return response

    async def ListStores(self, request: pb.ListStoresRequest, context: Context) -> pb.ListStoresResponse:
        del request, context
        response = pb.ListStoresResponse()
        for status in await self._stores.statuses():
            _encode_store(status, response.stores.add())
        return response


def _encode_store(status: StoreStatus, into: pb.Store) -> None:
    into.name = status.name
    into.type = status.info.type
    into.reachable = status.reachable
    into.durable = status.info.durable
    into.default = status.default
    for capability in status.info.capabilities:
        into.capabilities.add(name=capability.name, supported=capability.supported, reason=capability.reason)
