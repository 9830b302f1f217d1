"""The driver of the Python SDK: `python -m tests.conformance.python.driver` (conformance.proto tells what it does)."""

from __future__ import annotations

import asyncio
import sys
import traceback
from typing import BinaryIO

from google.protobuf import json_format

import memoryd
from tests.conformance import conformance_pb2 as pb
from tests.conformance.python import answers
from tests.conformance.python.operations import FEATURES, Client


class Driver:
    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._clients: dict[str, Client] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, source: asyncio.StreamReader) -> None:
        """Carries out what it reads, to its end."""
        while line := await source.readline():
            task = asyncio.create_task(self._answer(json_format.Parse(line, pb.Command())))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients.values():
            await client.close()

    async def _answer(self, command: pb.Command) -> None:
        try:
            reply = await self._carried_out(command)
        except memoryd.MemorydError as error:
            reply = pb.Reply(failure=answers.failure(error))
        except (TypeError, ValueError) as error:
            # What the SDK refuses by itself.
            traceback.print_exc()
            reply = pb.Reply(failure=pb.Failure(message=str(error), type=type(error).__name__))
        except Exception as error:
            traceback.print_exc()
            reply = pb.Reply(fault=f"{type(error).__name__}: {error}")
        reply.id = command.id
        line = json_format.MessageToJson(reply, indent=None, ensure_ascii=False)
        self._output.write(line.encode() + b"\n")
        self._output.flush()

    async def _carried_out(self, command: pb.Command) -> pb.Reply:
        match command.WhichOneof("operation"):
            case "connect":
                await self._close(command.client)
                self._clients[command.client] = Client(command.connect)
                return pb.Reply(hello=pb.Hello(language="python", features=FEATURES))
            case "close":
                await self._close(command.client)
                return pb.Reply(done=pb.Done())
            case _:
                return await self._clients[command.client].carry_out(command)

    async def _close(self, name: str) -> None:
        if (client := self._clients.pop(name, None)) is not None:
            await client.close()


async def main() -> None:
    # A line is a command, and as long as what it carries: there is no limit that would help.
    source = asyncio.StreamReader(limit=sys.maxsize)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(source), sys.stdin)
    await Driver(sys.stdout.buffer).run(source)


if __name__ == "__main__":
    asyncio.run(main())
