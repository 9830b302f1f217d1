"""Wraps all four kinds of method handlers alike, so that an interceptor says once what it does around a call."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import grpc
import grpc.aio

# In quotes: generic in their stubs alone.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Around = Callable[[str, Context], AbstractAsyncContextManager[None]]


class WrappingInterceptor(grpc.aio.ServerInterceptor, ABC):
    """An interceptor that does something around each call, whatever its kind."""

    def __init__(self) -> None:
        self._wrapped: dict[str, tuple[Handler | None, Handler]] = {}

    @abstractmethod
    def around(self, method: str, context: Context) -> AbstractAsyncContextManager[None]:
        """The context in which the call of `method` ("/package.Service/Method") runs."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wraps the handler; the wrapped one is kept, since handlers are the same from call to call."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        known = self._wrapped.get(method)
        if known is not None and known[0] is handler:
            return known[1]
        if handler is None:
            return self.unknown_method(method)
        wrapped = _wrap(handler, method, self.around)
        self._wrapped[method] = (handler, wrapped)
        return wrapped

    def unknown_method(self, method: str) -> Handler | None:
        """The handler for a method that the server does not have; None leaves it to gRPC."""
        del method
        return None


def _wrap(handler: Handler, method: str, around: Around) -> Handler:
    kind = {
        (False, False): ("unary_unary", grpc.unary_unary_rpc_method_handler),
        (False, True): ("unary_stream", grpc.unary_stream_rpc_method_handler),
        (True, False): ("stream_unary", grpc.stream_unary_rpc_method_handler),
        (True, True): ("stream_stream", grpc.stream_stream_rpc_method_handler),
    }[handler.request_streaming, handler.response_streaming]
    name, make = kind
    behavior = getattr(handler, name)
    call: Callable[[Any, Context], Any]
    if inspect.isasyncgenfunction(behavior):

        async def call(request: Any, context: Context) -> AsyncIterator[Any]:
            async with around(method, context):
                async for response in behavior(request, context):
                    yield response

    else:

        async def call(request: Any, context: Context) -> Any:
            async with around(method, context):
                return await behavior(request, context)

    return make(
        call,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )
