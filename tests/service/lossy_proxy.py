"""A TCP proxy that can lose answers: the request arrives and is carried out, and its caller never hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

_CHUNK_BYTES: Final = 64 * 1024


class LossyProxy:
    """Passes connections on to `target`. While `losing`, nothing comes back."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.losing = False
        self.address = ""
        self._writers: set[asyncio.StreamWriter] = set()

    @classmethod
    @asynccontextmanager
    async def run(cls, target: str) -> AsyncIterator[LossyProxy]:
        proxy = cls(target)
        server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        proxy.address = f"{host}:{port}"
        try:
            yield proxy
        finally:
            server.close()
            proxy.cut()

    def cut(self) -> None:
        """Breaks all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        try:
            onward_reader, onward_writer = await asyncio.open_connection(host, int(port))
        except ConnectionError:
            writer.transport.abort()
            return
        both = {writer, onward_writer}
        self._writers |= both
        with suppress(ConnectionError):
            await asyncio.gather(
                self._pass(reader, onward_writer, answers=False), self._pass(onward_reader, writer, answers=True)
            )
        for each in both:
            each.transport.abort()
        self._writers -= both

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            if not (answers and self.losing):
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
