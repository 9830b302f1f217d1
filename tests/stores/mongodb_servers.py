"""Servers of memoryd on MongoDB, and how one ends in the middle of something."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from memoryd_server.stores.mongodb.location import locate
from memoryd_server.stores.mongodb.store import MongoDBStore


@asynccontextmanager
async def server(url: str) -> AsyncIterator[MongoDBStore]:
    """A server of its own on the data."""
    store = MongoDBStore(locate(url))
    await store.open()
    yield store
    await store.close()


class Ended(Exception):
    """The server was killed."""


class Doomed:
    """Has a server end after some of its commands, or within one that inserts or changes several documents."""

    def __init__(self, store: MongoDBStore, commands: int, documents: int | None = None) -> None:
        self.store = store
        self.left = commands
        self.documents = documents
        self.has_ended = False
        database = store._database
        self._answer, self._add, self._write = database.answer, database.add, database.write
        database.answer = self.answer  # type: ignore[method-assign, assignment]
        if documents is not None:
            database.add = self.add  # type: ignore[method-assign]
            database.write = self.write  # type: ignore[method-assign]

    async def answer(self, call_: Callable[[], Awaitable[Any]]) -> Any:
        if not self.left:
            self.has_ended = True
            raise Ended
        self.left -= 1
        return await self._answer(call_)

    async def add(self, collection: str, documents: Sequence[Any]) -> None:
        await self._partly(self._add, collection, documents)

    async def write(self, collection: str, operations: Sequence[Any]) -> None:
        await self._partly(self._write, collection, operations)

    async def _partly(self, carry_out: Callable[..., Awaitable[None]], collection: str, parts: Sequence[Any]) -> None:
        assert self.documents is not None
        if len(parts) <= self.documents:
            self.documents -= len(parts)
            return await carry_out(collection, parts)
        if self.documents:
            await carry_out(collection, parts[: self.documents])
        self.has_ended, self.left = True, 0
        raise Ended

    async def do(self, work: Awaitable[object]) -> None:
        """Does something until the server ends."""
        with suppress(Ended):
            await work
