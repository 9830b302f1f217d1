"""A database on MongoDB, as the store uses it: commands of which each ends in time, whichever driver sends them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from pymongo import ASCENDING, IndexModel, ReadPreference, WriteConcern
from pymongo.errors import BulkWriteError, DuplicateKeyError, InvalidOperation
from pymongo.read_concern import ReadConcern

from memoryd_server.stores.base import PoolStatus
from memoryd_server.stores.mongodb.documents import Document
from memoryd_server.stores.mongodb.errors import FAILURES, are_duplicates, unavailable
from memoryd_server.stores.mongodb.layout import INDEXES
from memoryd_server.stores.mongodb.location import Location

CONNECTIONS: Final = 10
"""The most connections that a server has to its database, as on the other database servers."""

CONNECT_SECONDS: Final = 2.0
"""How long a connection may take."""

SELECT_SECONDS: Final = 3.0
"""How long a command waits for a primary server to be there: an election takes less as a rule."""

CLOSE_SECONDS: Final = 1.0
"""How long commands that nobody waits for any more may take when the store is closed."""

MAJORITY_SECONDS: Final = 4.0
"""How long a write waits for a majority."""

BATCH: Final = 100_000
"""Documents that one answer holds, but at most 16 MiB of them: what is asked for comes with one command."""

UPSERT_ATTEMPTS: Final = 3
"""How often updates are tried of which others insert the same documents: then these are there."""

DESCENDING: Final = -1

Result = TypeVar("Result")
Order = Sequence[tuple[str, int]]


class Deletion(NamedTuple):
    """What a step deleted. Others may have been at the same documents, so that few of them says nothing of the rest."""

    rows: int
    is_complete: bool
    """Whether nothing was left behind it."""


def create_client(location: Location, **options: Any) -> Any:
    """The driver's client: Motor's, or PyMongo's own, which is its successor. Both answer to the same calls here."""
    if location.driver == "pymongo":
        from pymongo import AsyncMongoClient

        return AsyncMongoClient(location.url, **options)
    from motor.motor_asyncio import AsyncIOMotorClient

    return AsyncIOMotorClient(location.url, **options)


class Database:
    """Sends commands. All of them raise StoreUnavailable."""

    def __init__(self, location: Location, **options: Any) -> None:
        """`options`: of the driver's client, for tests. Connects when the first command does."""
        self._client = create_client(
            location,
            appname="memoryd",
            maxPoolSize=CONNECTIONS,
            serverSelectionTimeoutMS=int(SELECT_SECONDS * 1000),
            connectTimeoutMS=int(CONNECT_SECONDS * 1000),
            # Behind our own time, which Motor's threads do not hear of.
            socketTimeoutMS=int(location.answer_seconds * 1000),
            # A compare-and-set that is repeated is refused for what it made itself.
            retryWrites=False,
            retryReads=True,
            **options,
        )
        concern = self._client.write_concern.document
        self._database = self._client.get_database(
            location.database,
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
            write_concern=WriteConcern(
                w=concern.get("w", "majority"),
                j=concern.get("j", True),
                wtimeout=concern.get("wtimeout", int(MAJORITY_SECONDS * 1000)),
            ),
        )
        self._prefix = location.prefix
        self._answer_seconds = location.answer_seconds
        self._lanes = asyncio.Semaphore(CONNECTIONS)
        self._under_way: set[asyncio.Future[Any]] = set()
        self._waiting = 0
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=CLOSE_SECONDS)
        closing = self._client.close()
        if inspect.isawaitable(closing):
            await closing

    def status(self) -> PoolStatus:
        """See `base.Pooled`."""
        return PoolStatus(size=CONNECTIONS, in_use=len(self._under_way), waiting=self._waiting)

    async def create_indexes(self) -> None:
        """Creates the collections and their indexes, unless they are there."""
        for name, indexes in INDEXES.items():
            collection = self._collection(name)
            there = await self.answer(collection.index_information) if indexes else {}
            # By what they hold, since an administrator may have given them other names.
            held = [[field for field, _ in index["key"]] for index in there.values()]
            models = [
                IndexModel([(field, ASCENDING) for field in fields], name=index)
                for index, fields in indexes.items()
                if list(fields) not in held
            ]
            if models:
                await self.answer(partial(collection.create_indexes, models))

    async def command(self, name: str) -> Document:
        """Runs a command without arguments."""
        answer: Document = await self.answer(lambda: self._database.command(name))
        return answer

    async def find(
        self,
        collection: str,
        filter: Document,
        *,
        fields: Sequence[str] = (),
        order: Order = (),
        limit: int = 0,
    ) -> list[Document]:
        """Documents, all of them or up to `limit`; with these fields alone when there are some."""
        # MongoDB answers the `_id` too, unless it is told not to.
        projection = {"_id": 0, **dict.fromkeys(fields, 1)} if fields else None

        def call() -> Awaitable[list[Document]]:
            cursor = self._collection(collection).find(filter, projection, limit=limit, batch_size=limit or BATCH)
            if order:
                cursor = cursor.sort(list(order))
            found: Awaitable[list[Document]] = cursor.to_list(None)
            return found

        return await self.answer(call)

    async def find_one(self, collection: str, filter: Document, *, fields: Sequence[str] = ()) -> Document | None:
        """The document, if there is one."""
        found = await self.find(collection, filter, fields=fields, limit=1)
        return found[0] if found else None

    async def insert(self, collection: str, document: Document) -> bool:
        """Returns: False, and nothing is changed, when there is one of the same `_id`."""
        try:
            await self.answer(lambda: self._collection(collection).insert_one(document))
        except DuplicateKeyError:
            return False
        return True

    async def update(self, collection: str, filter: Document, update: Document) -> int:
        """Updates one document. Returns: how many fit the filter."""
        result = await self.answer(lambda: self._collection(collection).update_one(filter, update))
        return int(result.matched_count)

    async def keep(self, collection: str, filter: Document, fields: Document) -> None:
        """Inserts a document, unless one fits the filter, which names its `_id`."""
        with_fields = {"$setOnInsert": fields}
        with suppress(DuplicateKeyError):  # Another server was as fast.
            await self.answer(lambda: self._collection(collection).update_one(filter, with_fields, upsert=True))

    async def add(self, collection: str, documents: Sequence[Document]) -> None:
        """Inserts documents, with one command; those of which one with the same `_id` is there stay as they are."""
        try:
            await self.answer(lambda: self._collection(collection).insert_many(documents, ordered=False))
        except BulkWriteError as error:
            if not are_duplicates(error):
                raise

    async def write(self, collection: str, operations: Sequence[Any]) -> None:
        """Carries out PyMongo's updates in their order, with one command; with another when a second server inserted
        the same documents at the same time. They are such that they may be repeated.
        """
        for attempt in range(UPSERT_ATTEMPTS):
            try:
                await self.answer(lambda: self._collection(collection).bulk_write(list(operations), ordered=True))
            except BulkWriteError as error:
                if attempt + 1 == UPSERT_ATTEMPTS or not are_duplicates(error):
                    raise
            else:
                return

    async def delete(self, collection: str, filter: Document) -> int:
        """Returns: how many documents were deleted."""
        result = await self.answer(lambda: self._collection(collection).delete_many(filter))
        return int(result.deleted_count)

    async def delete_some(self, collection: str, filter: Document, limit: int, order: Order = ()) -> Deletion:
        """Deletes up to `limit` documents, the first in an order."""
        found = await self.find(collection, filter, fields=("_id",), order=order, limit=limit)
        if not found:
            return Deletion(0, is_complete=True)
        named = {"_id": {"$in": [document["_id"] for document in found]}}
        if "home" in filter:
            named["home"] = filter["home"]
        return Deletion(await self.delete(collection, named), is_complete=len(found) < limit)

    def _collection(self, name: str) -> Any:
        return self._database[self._prefix + name]

    async def answer(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Waits for a command's answer. Who does not wait any longer leaves the command to end by itself: broken off,
        PyMongo leaves its socket open, while Motor goes on in its thread.
        """
        try:
            if self._closed:
                raise InvalidOperation
            async with asyncio.timeout(self._answer_seconds):
                self._waiting += 1
                try:
                    await self._lanes.acquire()
                finally:
                    self._waiting -= 1
                command = asyncio.ensure_future(self._run(call))
                self._under_way.add(command)
                command.add_done_callback(self._ended)
                return await asyncio.shield(command)
        except DuplicateKeyError:
            raise
        except FAILURES as error:
            problem = unavailable(error, self._answer_seconds)
            if problem is None:
                raise
            raise problem from error

    async def _run(self, call: Callable[[], Awaitable[Result]]) -> Result:
        return await call()

    def _ended(self, command: asyncio.Future[Any]) -> None:
        self._under_way.discard(command)
        self._lanes.release()
        if not command.cancelled():
            command.exception()  # Nobody may wait for it any more.
