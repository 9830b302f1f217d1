"""Servers inside of the test's process, on stores that a test can make fail or wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from memoryd.v1 import (
    agent_service_pb2_grpc,
    history_service_pb2_grpc,
    memory_context_service_pb2_grpc,
    run_service_pb2_grpc,
    store_service_pb2_grpc,
    window_service_pb2_grpc,
)
from memoryd_server.app import App, build
from memoryd_server.config import load_settings
from memoryd_server.engine.runtime import Defaults, Runtime
from memoryd_server.engine.stores import Stores
from memoryd_server.stores.base import (
    AgentRecord,
    Change,
    Entry,
    FileKey,
    FileOwner,
    FileVersion,
    Loaded,
    Lookup,
    LookupKind,
    MessagePage,
    MessageQuery,
    Outcome,
    Record,
    RunName,
    RunPage,
    RunQuery,
    SessionKey,
    SessionPage,
    SessionQuery,
    StepPage,
    Store,
    StoredFile,
    StoredMessage,
    Tail,
    Usability,
    Version,
)
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.records import StoredRun
from tests.service.wire import Refusal, refusal_of


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Returns when the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to hold"
        await asyncio.sleep(0.001)


async def until_answer(call: Callable[[], Awaitable[Any]], suits: Callable[[Any], bool], seconds: float = 20) -> Any:
    """The first answer that suits, of a call that is repeated."""
    end = time.monotonic() + seconds
    while not suits(answer := await call()):
        assert time.monotonic() < end, "no answer came to suit"
    return answer


async def gathered(stream: Any) -> list[Any]:
    """All answers of a stream."""
    return [answer async for answer in stream]


async def failing(call: Awaitable[object]) -> Refusal:
    """The error of a call that must fail."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return refusal_of(error)
    raise AssertionError("the call was not refused")


class AsyncStubs:
    """The generated stubs of all services on one channel, for an event loop."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        # The generated classes serve both kinds of channels; which one, their types say by overloads that mypy loses.
        self.histories: Any = history_service_pb2_grpc.HistoryServiceStub(channel)
        self.windows: Any = window_service_pb2_grpc.WindowServiceStub(channel)
        self.agents: Any = agent_service_pb2_grpc.AgentServiceStub(channel)
        self.stores: Any = store_service_pb2_grpc.StoreServiceStub(channel)
        self.memory: Any = memory_context_service_pb2_grpc.MemoryContextServiceStub(channel)
        self.runs: Any = run_service_pb2_grpc.RunServiceStub(channel)


def connect(address: str) -> grpc.aio.Channel:
    """A channel of its own connection."""
    options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.insecure_channel(address, options=options)


@asynccontextmanager
async def serving(store: Store) -> AsyncIterator[tuple[App, AsyncStubs]]:
    """A server on the store, with stubs on it. At the end it is stopped at once, if it still runs."""
    runtime = Runtime("default", store, await store.open(), Defaults(tokenizer="estimate"))
    app = build(load_settings({"listen": "127.0.0.1:0"}), Stores({"default": runtime}, "default"))
    await app.server.start()
    try:
        async with connect(app.address) as channel:
            yield app, AsyncStubs(channel)
    finally:
        await app.server.stop(None)
        await app.in_flight.wait_until_idle()
        await runtime.close()


async def _nothing(method: str) -> None:
    del method


async def _nothing_more() -> None:
    pass


class HookedStore(InMemoryStore):
    """Awaits `before` ahead of each method that talks to a database, and `after_commit` behind each commit: what they
    raise is what the method raises."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[str], Awaitable[None]] = _nothing
        self.after_commit: Callable[[], Awaitable[None]] = _nothing_more

    async def load(self, key: SessionKey, tail: Tail | None = None) -> Loaded | None:
        await self.before("load")
        return await super().load(key, tail)

    async def read(
        self, key: SessionKey, incarnation: str, seqs: Sequence[int]
    ) -> tuple[Record, Sequence[StoredMessage]] | None:
        await self.before("read")
        return await super().read(key, incarnation, seqs)

    async def list_messages(self, key: SessionKey, query: MessageQuery) -> MessagePage | None:
        await self.before("list_messages")
        return await super().list_messages(key, query)

    async def list_unusable(self, key: SessionKey, usabilities: Collection[Usability], limit: int) -> Sequence[Entry]:
        await self.before("list_unusable")
        return await super().list_unusable(key, usabilities, limit)

    async def find(self, key: SessionKey, kind: LookupKind, ids: Sequence[str]) -> Sequence[Lookup]:
        await self.before("find")
        return await super().find(key, kind, ids)

    async def commit(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        await self.before("commit")
        outcomes = await super().commit(changes)
        await self.after_commit()
        return outcomes

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        await self.before("list_sessions")
        return await super().list_sessions(query)

    async def load_run(self, key: SessionKey, run_id: str) -> tuple[Record, StoredRun | None] | None:
        await self.before("load_run")
        return await super().load_run(key, run_id)

    async def list_runs(self, query: RunQuery) -> RunPage:
        await self.before("list_runs")
        return await super().list_runs(query)

    async def list_claimable(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[RunName]:
        await self.before("list_claimable")
        return await super().list_claimable(tenant, agent, before, limit)

    async def list_steps(
        self, key: SessionKey, incarnation: str, run_id: str, after: int, limit: int, max_bytes: int
    ) -> StepPage | None:
        await self.before("list_steps")
        return await super().list_steps(key, incarnation, run_id, after, limit, max_bytes)

    async def delete_run(self, name: RunName, limit: int) -> int:
        await self.before("delete_run")
        return await super().delete_run(name, limit)

    async def load_agent(self, tenant: str, agent: str) -> AgentRecord | None:
        await self.before("load_agent")
        return await super().load_agent(tenant, agent)

    async def save_agent(self, record: AgentRecord) -> bool:
        await self.before("save_agent")
        return await super().save_agent(record)

    async def list_agents(self, tenant: str, after: str, limit: int) -> Sequence[AgentRecord]:
        await self.before("list_agents")
        return await super().list_agents(tenant, after, limit)

    async def load_files(self, keys: Sequence[FileKey]) -> Sequence[StoredFile]:
        await self.before("load_files")
        return await super().load_files(keys)

    async def save_file(self, file: StoredFile, expected: Version | None) -> bool:
        await self.before("save_file")
        return await super().save_file(file, expected)

    async def list_files(self, owner: FileOwner, before: str, limit: int) -> Sequence[tuple[str, FileVersion]]:
        await self.before("list_files")
        return await super().list_files(owner, before, limit)

    async def list_file_versions(self, key: FileKey) -> Sequence[FileVersion]:
        await self.before("list_file_versions")
        return await super().list_file_versions(key)

    async def ping(self) -> None:
        await self.before("ping")
        await super().ping()


class Gate:
    """A hook that keeps calls waiting while it is shut."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._arrivals = asyncio.Condition()
        self.waiting = 0

    async def __call__(self, method: str) -> None:
        if self._open.is_set():
            return
        self.waiting += 1
        async with self._arrivals:
            self._arrivals.notify_all()
        try:
            await self._open.wait()
        finally:
            self.waiting -= 1

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def wait_for(self, waiting: int) -> None:
        """Returns when so many calls wait."""
        async with self._arrivals:
            await self._arrivals.wait_for(lambda: self.waiting >= waiting)
