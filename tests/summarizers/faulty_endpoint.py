"""An OpenAI-compatible endpoint on the loopback interface that fails as it is told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

Reply = Callable[[asyncio.StreamWriter], Awaitable[None]]
"""Writes the answer to one request; the connection is closed after it."""


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]
    body: Any
    at: float
    """By the event loop's clock."""


class FaultyEndpoint:
    """Answers each request with the next of its replies; the last serves all further ones."""

    def __init__(self, *replies: Reply) -> None:
        self.received: list[Received] = []
        self.closed_early = asyncio.Event()
        """A client went away before it had its answer."""
        self.asked = asyncio.Event()
        self.connections: set[asyncio.Future[None]] = set()
        """What serves those that are open."""
        self._replies = self._all(replies)
        self._server: asyncio.Server | None = None

    @staticmethod
    def _all(replies: tuple[Reply, ...]) -> Iterator[Reply]:
        yield from replies
        while True:
            yield replies[-1]

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self.connections:
            connection.cancel()
        await asyncio.gather(*self.connections, return_exceptions=True)
        await self._server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.ensure_future(self._serve(reader, writer))
        self.connections.add(connection)
        connection.add_done_callback(self.connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.received.append(Received(head[0].split()[1], headers, body, asyncio.get_running_loop().time()))
        self.asked.set()
        answering = asyncio.ensure_future(next(self._replies)(writer))
        leaving = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
            if leaving.done() and not answering.done():
                self.closed_early.set()
            elif not writer.transport.is_closing():
                writer.close()
                await writer.wait_closed()
        finally:
            answering.cancel()
            leaving.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)


def status(code: int, body: object = b"", **headers: str) -> Reply:
    """An answer with this status; a body that is no bytes is sent as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def reply(writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {code} Told", f"Content-Length: {len(content)}", "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        await writer.drain()

    return reply


def completion(
    content: object = "The project is called Atlas.", finish_reason: str = "stop", **message: object
) -> dict[str, Any]:
    """The JSON of an answer."""
    return {
        "id": "c1",
        "object": "chat.completion",
        "model": "model-2026-11",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
        "usage": {"prompt_tokens": 120, "completion_tokens": 7, "total_tokens": 127},
    }


def error(message: str = "", **fields: object) -> dict[str, Any]:
    """The JSON of an error."""
    return {"error": {"message": message, **fields}}


GOOD: Reply = status(200, completion())


async def silent(writer: asyncio.StreamWriter) -> None:
    """Never answers."""
    del writer
    await asyncio.get_running_loop().create_future()


async def slow(writer: asyncio.StreamWriter) -> None:
    """Begins an answer and never ends it, though it always goes on."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.005)


async def cut_before(writer: asyncio.StreamWriter) -> None:
    """Cuts the connection without an answer."""
    writer.transport.abort()


async def cut_within(writer: asyncio.StreamWriter) -> None:
    """Cuts the connection within its answer."""
    writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{"choices": [')
    await writer.drain()
    writer.close()


async def endless(writer: asyncio.StreamWriter) -> None:
    """Answers with a text that has no end."""
    writer.write(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"choices": [{"message": {"content": "')
    while True:
        writer.write(b"word " * 10_000)
        await writer.drain()
