"""The sync client behind the async one's interface, so that one test states a behaviour of both."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Self

from memoryd import (
    Agent,
    MemoryClient,
    MemoryContext,
    MemoryFiles,
    MemoryTools,
    Run,
    RunClaims,
    Session,
    SummaryTask,
    SummaryTasks,
    Watch,
)

Wrapped = (
    MemoryClient
    | Session
    | Agent
    | Watch
    | SummaryTasks
    | SummaryTask
    | MemoryFiles
    | MemoryContext
    | MemoryTools
    | Run
    | RunClaims
)


class Awaited:
    """A sync object whose methods are awaited, and whose iterators are async."""

    def __init__(self, wrapped: Wrapped) -> None:
        self._wrapped: Any = wrapped

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        # In a thread, so that a watch that waits for an event lets the test go on.
        if (item := await asyncio.to_thread(next, self._wrapped, None)) is None:
            raise StopAsyncIteration
        return item

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._wrapped.__enter__)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await asyncio.to_thread(self._wrapped.__exit__, *error)

    def __bool__(self) -> bool:
        return bool(self._wrapped)

    def __repr__(self) -> str:
        return repr(self._wrapped)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._wrapped, name)
        if isinstance(value, MemoryTools | Session):
            return Awaited(value)
        return _awaited_method(value) if callable(value) else value


class _AwaitedTasks(Awaited):
    """Summary tasks, whose loop ends as that of an async iterator does, and whose tasks are awaited."""

    async def __aiter__(self) -> AsyncIterator[Awaited]:  # type: ignore[override]
        with contextlib.closing(iter(self._wrapped)) as tasks:
            while (task := await asyncio.to_thread(next, tasks, None)) is not None:
                yield Awaited(task)


class _AwaitedClaims(Awaited):
    """Claimed runs, whose loop ends as that of an async iterator does, and whose runs are awaited."""

    async def __aiter__(self) -> AsyncIterator[Awaited]:  # type: ignore[override]
        with contextlib.closing(iter(self._wrapped)) as runs:
            while (run := await asyncio.to_thread(next, runs, None)) is not None:
                yield Awaited(run)


def _awaited_method(method: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        if method.__name__ in ("openai", "anthropic"):
            return method(*args, **kwargs)
        if method.__name__ in ("session", "agent", "watch", "files"):
            return Awaited(method(*args, **kwargs))
        if method.__name__ == "summary_tasks":
            return _AwaitedTasks(method(*args, **kwargs))
        if method.__name__ in ("run", "claim"):
            return Awaited(method(*_unwrapped(args), **kwargs))
        if method.__name__ == "claims":
            return _AwaitedClaims(method(*args, **kwargs))
        if method.__name__ in ("runs", "run_steps"):
            named = {name: _unwrapped([value])[0] for name, value in kwargs.items()}
            return _awaited_iterator(method(*_unwrapped(args), **named))
        if method.__name__ in ("fork", "render_context"):
            return _awaited_handle(method, *args, **kwargs)
        if method.__name__ in ("messages", "sessions", "agents", "list"):
            return _awaited_iterator(method(*args, **kwargs))
        return _awaited_call(method, *args, **kwargs)

    return called


async def _awaited_iterator(items: Iterator[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


async def _awaited_handle(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Awaited:
    return Awaited(method(*_unwrapped(args), **kwargs))


async def _awaited_call(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    # In a thread, so that the test, and a proxy of it, go on meanwhile.
    return await asyncio.to_thread(method, *_unwrapped(args), **kwargs)


def _unwrapped(args: Sequence[Any]) -> list[Any]:
    return [arg._wrapped if isinstance(arg, Awaited) else arg for arg in args]
