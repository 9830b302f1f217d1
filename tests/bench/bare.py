"""A bare grpc.aio server in a process of its own: no interceptors, no options, only the floor.

python -m tests.bench.bare
"""

from __future__ import annotations

import grpc
import uvloop

from tests.bench.child import announce, until_stopped
from tests.bench.floor import floor_handler


async def main() -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((floor_handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    announce(serving=f"127.0.0.1:{port}")
    await until_stopped()
    await server.stop(None)


if __name__ == "__main__":
    uvloop.run(main())
