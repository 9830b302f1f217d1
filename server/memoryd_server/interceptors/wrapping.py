"""Wraps all four kinds of method handlers alike, so that an interceptor says once what it does around a call."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, ClassVar, Final, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from memoryd_server.engine.errors import RequestError, field_invalid

# In quotes: generic in their stubs alone.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Around = Callable[[str, Context], AbstractAsyncContextManager[None]]

ENDLESS: Final = (
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.",
    "/memoryd.v1.HistoryService/WatchMessages",
)
"""The beginnings of the methods whose streams last as long as their caller wants."""

_END: Final = object()
"""Stands for the end of a stream."""

_KEPT_HANDLERS: Final = 256
"""More methods than a server has: names of unknown ones, which callers make up, must not fill the memory."""


class WrappingInterceptor(grpc.aio.ServerInterceptor, ABC):
    """An interceptor that does something around each call, whatever its kind."""

    by_step: ClassVar[bool] = False
    """Whether `around` encloses each answer of a stream by itself, rather than the whole stream. While gRPC sends an
    answer, which lasts as long as the caller does not read, nothing is enclosed then: an interceptor that cancels must
    not do so there, since gRPC would give such a call no status."""

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
        wrapped = _wrap(handler, method, self.around, self.by_step)
        if len(self._wrapped) < _KEPT_HANDLERS:
            self._wrapped[method] = (handler, wrapped)
        return wrapped

    def unknown_method(self, method: str) -> Handler | None:
        """The handler for a method that the server does not have; None leaves it to gRPC."""
        del method
        return None


def _wrap(handler: Handler, method: str, around: Around, by_step: bool) -> Handler:
    kind = {
        (False, False): ("unary_unary", grpc.unary_unary_rpc_method_handler),
        (False, True): ("unary_stream", grpc.unary_stream_rpc_method_handler),
        (True, False): ("stream_unary", grpc.stream_unary_rpc_method_handler),
        (True, True): ("stream_stream", grpc.stream_stream_rpc_method_handler),
    }[handler.request_streaming, handler.response_streaming]
    name, make = kind
    behavior = getattr(handler, name)
    read = _reader(handler)
    call: Callable[[Any, Context], Any]
    if inspect.isasyncgenfunction(behavior) and by_step:

        async def call(request: Any, context: Context) -> AsyncIterator[Any]:
            async with aclosing(behavior(read(request), context)) as responses:
                while True:
                    async with around(method, context):
                        response = await anext(responses, _END)
                    if response is _END:
                        return
                    yield response

    elif inspect.isasyncgenfunction(behavior):

        async def call(request: Any, context: Context) -> AsyncIterator[Any]:
            async with around(method, context), aclosing(behavior(read(request), context)) as responses:
                async for response in responses:
                    yield response

    else:

        async def call(request: Any, context: Context) -> Any:
            async with around(method, context):
                return await behavior(read(request), context)

    # The innermost interceptor reads the request, so that one which cannot be read gets its status from the boundary.
    return make(call, request_deserializer=None, response_serializer=handler.response_serializer)


def _reader(handler: Handler) -> Callable[[Any], Any]:
    """Reads what gRPC gives to a wrapped handler: a request, or the requests of a stream."""
    deserialize = handler.request_deserializer
    if deserialize is None:
        return lambda request: request

    def read(request: bytes) -> Any:
        try:
            return deserialize(request)
        except DecodeError as error:
            raise _unreadable() from error

    async def read_all(requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        async for request in requests:
            yield read(request)

    return read_all if handler.request_streaming else read


def _unreadable() -> RequestError:
    return field_invalid(
        "request",
        "its bytes are not this method's request message; texts must be valid UTF-8, so replace halves of surrogate "
        "pairs, and send bytes as media",
    )
