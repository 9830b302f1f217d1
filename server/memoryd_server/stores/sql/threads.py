"""Threads that hold a connection each, and hand their results to the event loop.

A hop through a queue of our own takes less than one through an executor, and leaves the loop's default executor free.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from memoryd_server.stores.base import StoreUnavailable

Held = TypeVar("Held")
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

_Job = tuple["asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class HoldingThreads(Generic[Held]):
    """Threads over one queue of calls. Each opens what its calls work on, and closes it at the end."""

    def __init__(
        self,
        name: str,
        count: int,
        open_held: Callable[[], Held],
        close_held: Callable[[Held], None],
        after_call: Callable[[Held], None] = lambda _: None,
    ) -> None:
        """`after_call` is upkeep that no caller waits for. It raises nothing."""
        self._name = name
        self._count = count
        self._open_held = open_held
        self._close_held = close_held
        self._after_call = after_call
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._ended: list[asyncio.Future[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Starts the threads. Raises: what opening raised, after ending those that were started."""
        loop = self._loop = asyncio.get_running_loop()
        self._jobs = SimpleQueue()
        opened = []
        for number in range(self._count):
            ready, ended = loop.create_future(), loop.create_future()
            # A daemon, so that a process can end without `stop`: what was answered is durable without it.
            thread = threading.Thread(
                target=self._work, args=(loop, ready, ended), name=f"{self._name}-{number}", daemon=True
            )
            thread.start()
            opened.append(ready)
            self._threads.append(thread)
            self._ended.append(ended)
        try:
            errors = [error for error in await asyncio.gather(*opened, return_exceptions=True) if error]
            if errors:
                raise errors[0]
        except BaseException:
            await self.stop()
            raise

    async def run(
        self, call: Callable[Concatenate[Held, Arguments], Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Calls with what a thread holds. What is cancelled while it waits is not called; what was begun goes on.

        Raises: StoreUnavailable after `stop`; what the call raises.
        """
        if self._loop is None:
            raise StoreUnavailable("The store is closed.")
        done: asyncio.Future[Result] = self._loop.create_future()
        self._jobs.put((done, call, args, kwargs))
        return await done

    async def stop(self) -> None:
        """Ends the threads after the calls that wait."""
        self._loop = None
        for _ in self._threads:
            self._jobs.put(None)
        for ended in self._ended:
            await asyncio.shield(ended)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._ended.clear()

    def _work(self, loop: asyncio.AbstractEventLoop, ready: asyncio.Future[None], ended: asyncio.Future[None]) -> None:
        try:
            held = self._open_held()
        except BaseException as error:  # For the one who waits.
            _answer(loop, ready, None, error)
        else:
            _answer(loop, ready, None, None)
            try:
                while (job := self._jobs.get()) is not None:
                    _do(loop, held, *job)
                    del job
                    self._after_call(held)
            finally:
                self._close_held(held)
        finally:
            _answer(loop, ended, None, None)


def _do(
    loop: asyncio.AbstractEventLoop,
    held: Any,
    done: asyncio.Future[Any],
    call: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    if done.cancelled():
        return
    try:
        result = call(held, *args, **kwargs)
    except BaseException as error:  # For the one who waits.
        _answer(loop, done, None, error)
    else:
        _answer(loop, done, result, None)


def _answer(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], result: object, error: BaseException | None
) -> None:
    with suppress(RuntimeError):  # The loop was closed: nobody waits any more.
        loop.call_soon_threadsafe(_settle, future, result, error)


def _settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():  # Cancelled.
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
