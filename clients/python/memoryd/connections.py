"""The connections of the clients: a channel, and the loop that carries plans out on it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio

from memoryd import paging, plans
from memoryd.channel import Deadline, Metadata, Target, call_seconds, channel_options
from memoryd.each_address import looked_closer, may_hide_another
from memoryd.errors import MemorydError, out_of_time, typed_error
from memoryd.methods import STUBS, Method
from memoryd.retries import Server, Tries
from memoryd.summary_work import RELEASE_SECONDS

Result = TypeVar("Result")
Item = TypeVar("Item")


def is_cancelled() -> bool:
    """Whether somebody cancelled this task of asyncio, rather than a call that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Abandon(Protocol):
    """Gives back what is leased."""

    def __call__(self, *, failed: bool, timeout: float) -> None: ...


class AsyncAbandon(Protocol):
    """Gives back what is leased."""

    async def __call__(self, *, failed: bool, timeout: float) -> None: ...


class Connection:
    """A channel, and the loop that carries plans out on it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.metadata = target.metadata(target.store)
        """That of calls that begin now: it names their store."""
        options = channel_options(target.address)
        if target.credentials is None:
            self._channel = grpc.insecure_channel(target.address, options=options)
        else:
            self._channel = grpc.secure_channel(target.address, target.credentials, options=options)
        self._stubs = {stub: stub(self._channel) for stub in STUBS}
        self._closing = threading.Event()
        self.server = Server()
        self.leases: dict[object, Abandon] = {}
        """The summary tasks that are neither committed nor given up, and the runs that are held; and how each is given
        back."""

    @property
    def closed(self) -> bool:
        """Whether calls are refused, since the client was closed."""
        return self._closing.is_set()

    def run(self, plan: plans.Plan[Result], timeout: float | None, metadata: Metadata | None = None) -> Result:
        """Carries a plan out within the timeout (in seconds; None: the client's) and returns its result.

        All its calls go to the store that the metadata names; None for the store that the client uses now.
        """
        metadata = self.metadata if metadata is None else metadata
        deadline = Deadline(self.target.timeout if timeout is None else timeout)
        try:
            call = next(plan)
            while True:
                try:
                    answer = self._answer(call, deadline, metadata)
                except MemorydError as error:
                    call = plan.throw(error)
                else:
                    call = plan.send(answer)
        except StopIteration as done:
            result: Result = done.value
            return result

    def iterate(self, pages: paging.Pages[Item], timeout: float | None) -> Iterator[Item]:
        """Gives the items of all pages, each page read when the one before is used up, within the timeout.

        All pages are of the store that the client uses now.
        """
        if timeout is not None:
            call_seconds(timeout)
        return self._items(pages, timeout, self.metadata)

    def _items(self, pages: paging.Pages[Item], timeout: float | None, metadata: Metadata) -> Iterator[Item]:
        while pages.left:
            yield from self.run(pages.next_page(), timeout, metadata)

    def begin(self, method: Method[Any, Any], request: Any, timeout: float | None, metadata: Metadata) -> Any:
        """Makes a call that may take `timeout` seconds; without them, as long as it likes."""
        if self.closed:
            raise self._is_closed()
        try:
            return getattr(self._stubs[method.stub], method.name)(request, timeout=timeout, metadata=metadata)
        except ValueError as error:
            # What gRPC raises for a channel that another thread closed just now.
            if self.closed:
                raise self._is_closed() from error
            raise

    def explained(self, error: MemorydError, method: Method[Any, Any], left: float) -> MemorydError:
        """The error, or the one that it hides: that of another address of the server."""
        return looked_closer(error, self.target, method, left) if may_hide_another(error) else error

    def close(self, *, failed: bool = False) -> None:
        """Gives up what is leased, and closes the channel."""
        for abandon in tuple(self.leases.values()):
            with suppress(MemorydError):
                abandon(failed=failed, timeout=RELEASE_SECONDS)
        self._closing.set()
        self._channel.close()

    def _answer(self, call: plans.Call[Any, Any], deadline: Deadline, metadata: Metadata) -> Any:
        """Makes a call, again where that is of use. Raises MemorydError."""
        tries = Tries(self.server, call.method, deadline)
        while True:
            # gRPC sends a call whose time is over all the same, and may have its answer.
            if (left := deadline.left()) <= 0:
                raise out_of_time(self.target.address, call.method, deadline.seconds)
            try:
                begun = self.begin(call.method, call.request, left, metadata)
                answer = list(begun) if call.streaming else begun
            except grpc.RpcError as failed:
                error = typed_error(failed, self.target.address, call.method, deadline.seconds)
                if self.closed and error.code is grpc.StatusCode.CANCELLED:
                    raise self._is_closed() from failed
            else:
                self.server.has_answered = True
                return answer
            try:
                pause = tries.failed(error)
            except MemorydError:
                closer = self.explained(error, call.method, deadline.left())
                raise closer from closer.__cause__
            self._closing.wait(pause)

    def _is_closed(self) -> RuntimeError:
        return RuntimeError("this client is closed; make a new MemoryClient")


class AsyncConnection:
    """A channel, made by the first call in its event loop, and the loop that carries plans out on it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.metadata = target.metadata(target.store)
        """That of calls that begin now: it names their store."""
        self._channel: grpc.aio.Channel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stubs: Mapping[type[Any], Any] = {}
        self._closing = asyncio.Event()
        self.server = Server()
        self.leases: dict[object, AsyncAbandon] = {}
        """The summary tasks that are neither committed nor given up, and the runs that are held; and how each is given
        back."""

    @property
    def closed(self) -> bool:
        """Whether calls are refused, since the client was closed."""
        return self._closing.is_set()

    async def run(self, plan: plans.Plan[Result], timeout: float | None, metadata: Metadata | None = None) -> Result:
        """Carries a plan out within the timeout (in seconds; None: the client's) and returns its result.

        All its calls go to the store that the metadata names; None for the store that the client uses now.
        """
        metadata = self.metadata if metadata is None else metadata
        deadline = Deadline(self.target.timeout if timeout is None else timeout)
        try:
            call = next(plan)
            while True:
                try:
                    answer = await self._answer(call, deadline, metadata)
                except MemorydError as error:
                    call = plan.throw(error)
                else:
                    call = plan.send(answer)
        except StopIteration as done:
            result: Result = done.value
            return result

    def iterate(self, pages: paging.Pages[Item], timeout: float | None) -> AsyncIterator[Item]:
        """Gives the items of all pages, each page read when the one before is used up, within the timeout.

        All pages are of the store that the client uses now.
        """
        if timeout is not None:
            call_seconds(timeout)
        return self._items(pages, timeout, self.metadata)

    async def _items(self, pages: paging.Pages[Item], timeout: float | None, metadata: Metadata) -> AsyncIterator[Item]:
        while pages.left:
            for item in await self.run(pages.next_page(), timeout, metadata):
                yield item

    def begin(self, method: Method[Any, Any], request: Any, timeout: float | None, metadata: Metadata) -> Any:
        """Begins a call that may take `timeout` seconds; without them, as long as it likes."""
        if self.closed:
            raise self._is_closed()
        self._check_loop()
        if self._channel is None:
            self._loop = asyncio.get_running_loop()
            self._channel = channel = self._opened()
            self._stubs = {stub: stub(channel) for stub in STUBS}
        return getattr(self._stubs[method.stub], method.name)(request, timeout=timeout, metadata=metadata)

    async def explained(self, error: MemorydError, method: Method[Any, Any], left: float) -> MemorydError:
        """The error, or the one that it hides: that of another address of the server."""
        if not may_hide_another(error):
            return error
        return await asyncio.to_thread(looked_closer, error, self.target, method, left)

    async def close(self, *, failed: bool = False) -> None:
        """Gives up what is leased, and closes the channel."""
        self._check_loop()
        for abandon in tuple(self.leases.values()):
            with suppress(MemorydError):
                await abandon(failed=failed, timeout=RELEASE_SECONDS)
        self._closing.set()
        if self._channel is not None:
            await self._channel.close()

    async def _answer(self, call: plans.Call[Any, Any], deadline: Deadline, metadata: Metadata) -> Any:
        """Makes a call, again where that is of use. Raises MemorydError."""
        tries = Tries(self.server, call.method, deadline)
        while True:
            # gRPC sends a call whose time is over all the same, and may have its answer.
            if (left := deadline.left()) <= 0:
                raise out_of_time(self.target.address, call.method, deadline.seconds)
            try:
                begun = self.begin(call.method, call.request, left, metadata)
                answer = [response async for response in begun] if call.streaming else await begun
            except grpc.RpcError as failed:
                error = typed_error(failed, self.target.address, call.method, deadline.seconds)
                if self.closed and error.code is grpc.StatusCode.CANCELLED:
                    raise self._is_closed() from failed
            except asyncio.CancelledError as cancelled:
                # gRPC raises it for calls that end with their channel, too, though nobody cancelled this task.
                if self.closed and not is_cancelled():
                    raise self._is_closed() from cancelled
                raise
            else:
                self.server.has_answered = True
                return answer
            try:
                pause = tries.failed(error)
            except MemorydError:
                closer = await self.explained(error, call.method, deadline.left())
                raise closer from closer.__cause__
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause)

    def _is_closed(self) -> RuntimeError:
        return RuntimeError("this client is closed; make a new AsyncMemoryClient")

    def _check_loop(self) -> None:
        """Raises RuntimeError in another event loop than that of the first call."""
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise RuntimeError(
                "this client belongs to the event loop of its first call, and was used in another one; make an "
                "AsyncMemoryClient in each loop (each asyncio.run), and close it there"
            )

    def _opened(self) -> grpc.aio.Channel:
        target = self.target
        options = channel_options(target.address)
        if target.credentials is None:
            return grpc.aio.insecure_channel(target.address, options=options)
        return grpc.aio.secure_channel(target.address, target.credentials, options=options)
