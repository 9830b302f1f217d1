"""How a call ended, as those see it who stand around the error boundary."""

from __future__ import annotations

import asyncio

import grpc

from memoryd_server.interceptors.wrapping import Context


def status_of(context: Context, error: BaseException | None) -> str:
    """The name of the gRPC status of a call that ended with this error, or well.

    CANCELLED when its caller went away or its deadline passed: gRPC tells the server no difference.
    """
    if isinstance(error, asyncio.CancelledError | GeneratorExit):  # The latter in a stream that its caller gave up.
        return grpc.StatusCode.CANCELLED.name
    code: object = context.code()  # None as long as nobody set one, whatever its stub says.
    if isinstance(code, grpc.StatusCode):
        return code.name
    return grpc.StatusCode.OK.name if error is None else grpc.StatusCode.UNKNOWN.name
