"""A gRPC server that answers as a script says: for what no real memoryd server can be made to do on demand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

Answer = Callable[[bytes, grpc.ServicerContext], Iterable[Message]]


def answers(*responses: Message) -> Answer:
    """The call succeeds with these responses: one for a unary method, any number for a stream."""
    return lambda request, context: responses


def fails(
    code: grpc.StatusCode, reason: str = "", *, after: Sequence[Message] = (), retry_after: int = 0, **metadata: str
) -> Answer:
    """The call fails, with an ErrorInfo when a reason is given; a stream fails after the responses `after`."""

    def answer(request: bytes, context: grpc.ServicerContext) -> Iterator[Message]:
        yield from after
        if reason:
            details = [AnyMessage(), AnyMessage()]
            details[0].Pack(RetryInfo(retry_delay=Duration(seconds=retry_after)))
            details[1].Pack(ErrorInfo(domain="memoryd", reason=reason, metadata=metadata))
            status = Status(code=code.value[0], details=details)
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(code, f"text of {reason or code.name}")

    return answer


class ScriptedServer(grpc.GenericRpcHandler):
    """Answers each method with the next entry of its script. What it was sent stays to be looked at."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, bytes]] = []
        self.metadata: list[dict[str, str | bytes]] = []
        self._scripts: dict[str, deque[Answer]] = {}
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((self,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def script(self, method: str, *script: Answer) -> None:
        """What the method answers, call by call."""
        self._scripts[method] = deque(script)

    def asked(self, method: str) -> list[bytes]:
        """The requests that a method got, in order."""
        return [request for name, request in self.requests if name == method]

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        method = handler_call_details.method.rpartition("/")[2]
        if method not in self._scripts:
            return None

        def answer(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            self.requests.append((method, request))
            self.metadata.append(dict(context.invocation_metadata()))
            for response in self._scripts[method].popleft()(request, context):
                yield response.SerializeToString()

        def first(request: bytes, context: grpc.ServicerContext) -> bytes:
            return next(answer(request, context))

        if method.startswith(("Stream", "Watch")):
            return grpc.unary_stream_rpc_method_handler(answer)
        return grpc.unary_unary_rpc_method_handler(first)

    def stop(self) -> None:
        self._server.stop(None).wait()
