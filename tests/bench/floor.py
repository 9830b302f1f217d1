"""The RPC that answers at once: what an operation would cost if the service did nothing.

It takes the operation's own requests and gives a prebuilt answer of the operation's own type. Beside the service, on
the same server, it is the floor of the operation; on a bare server, it is the floor of the floor.
"""

from __future__ import annotations

from typing import Any, Final

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from tests.bench import operations
from tests.bench.operations import Operation

SERVICE: Final = "memoryd.bench.Floor"


def path(operation: Operation) -> str:
    """The path of an operation's floor on the wire."""
    return f"/{SERVICE}/{operation.name}"


def floor_handler() -> grpc.GenericRpcHandler:
    """A handler for the floors of all operations. Their answers must be prepared before they are called."""
    answers: dict[str, Message] = {}

    async def prepare(request: AnyMessage, _: object) -> Empty:
        operation = operations.ALL[request.type_url]
        answers[operation.name] = operation.answer_type.FromString(request.value)
        return Empty()

    def handler_of(operation: Operation) -> grpc.RpcMethodHandler[Any, Any]:
        async def answer(_request: object, _context: object) -> Message:
            return answers[operation.name]

        return _unary(answer, operation.request_type, operation.answer_type)

    handlers = {operation.name: handler_of(operation) for operation in operations.ALL.values()}
    handlers[_PREPARE] = _unary(prepare, AnyMessage, Empty)
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


_PREPARE: Final = "Prepare"


def _unary(behaviour: Any, request: type[Message], answer: type[Message]) -> grpc.RpcMethodHandler[Any, Any]:
    return grpc.unary_unary_rpc_method_handler(
        behaviour, request_deserializer=request.FromString, response_serializer=answer.SerializeToString
    )


async def prepare_floor(channel: grpc.aio.Channel, operation: Operation, answer: Message) -> None:
    """Tells a server with which answer the operation's floor answers from now on."""
    call = channel.unary_unary(
        f"/{SERVICE}/{_PREPARE}",
        request_serializer=AnyMessage.SerializeToString,
        response_deserializer=Empty.FromString,
    )
    await call(AnyMessage(type_url=operation.name, value=answer.SerializeToString()))
