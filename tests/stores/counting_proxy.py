"""A TCP proxy before a database that counts round trips, can fall silent, and can break in the middle of a packet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from sqlalchemy import make_url


class CountingProxy:
    """Passes bytes on, in both directions."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._flows: set[asyncio.Task[None]] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self._left: dict[bool, int] = {}
        self._resets = self._once = False
        self._writers: set[asyncio.StreamWriter] = set()
        self.round_trips = 0
        """How often a client began to speak after it had been answered."""
        self.connections = 0
        """How many were made."""
        self.cuts = 0
        """How often all of them were broken."""

    def fall_silent(self) -> None:
        """Takes what comes and passes nothing on, as a network does that lost its route."""
        self._passing.clear()

    def speak(self) -> None:
        """Passes on again, beginning with what was held back."""
        self._passing.set()

    def cut_after(self, count: int, *, asked: bool, reset: bool, once: bool) -> None:
        """Breaks all connections when so many bytes more have gone one way: of what is asked, or of what is answered.

        `reset`: as a crash of the machine does, and not as the end of a process, whose socket is closed. `once`: what
        is connected anew stays; otherwise it breaks at once.
        """
        self._left, self._resets, self._once = {asked: count}, reset, once

    def cut(self) -> None:
        """Breaks all connections."""
        self.cuts += 1
        for writer in self._writers:
            if self._resets:
                writer.transport.abort()
            else:
                writer.close()
        self._writers.clear()

    def mend(self) -> None:
        """Cuts no more."""
        self._left = {}

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self.connections += 1
        server, to_server = await asyncio.open_connection(self._host, self._port)
        self._writers |= {to_client, to_server}
        answered = True

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, asks: bool) -> None:
            nonlocal answered
            try:
                with suppress(OSError):
                    while data := await reader.read(1 << 20):
                        await self._passing.wait()
                        if asks and answered:
                            self.round_trips += 1
                        answered = not asks
                        writer.write(data[: self._left.get(asks)])
                        await writer.drain()
                        if asks in self._left:
                            self._left[asks] = max(0, self._left[asks] - len(data))
                            if not self._left[asks]:
                                self.cut()
                                if self._once:
                                    self.mend()
            finally:
                writer.close()

        for flow in (pass_on(client, to_server, asks=True), pass_on(server, to_client, asks=False)):
            task = asyncio.create_task(flow)
            self._flows.add(task)
            task.add_done_callback(self._flows.discard)

    async def end(self) -> None:
        for flow in self._flows:
            flow.cancel()
        await asyncio.gather(*self._flows, return_exceptions=True)


@asynccontextmanager
async def counting_proxy(url: str) -> AsyncIterator[tuple[CountingProxy, str]]:
    """A proxy before the database of a URL, and the URL that leads through it."""
    target = make_url(url)
    assert target.host is not None
    assert target.port is not None
    proxy = CountingProxy(target.host, target.port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield proxy, target.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)
    finally:
        server.close()
        await proxy.end()
