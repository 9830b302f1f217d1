"""The sync client behind the async one's interface, so that one test states a behaviour of both."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from memoryd import Agent, MemoryClient, Session


class Awaited:
    """A sync object whose methods are awaited, and whose iterators are async."""

    def __init__(self, wrapped: MemoryClient | Session | Agent) -> None:
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._wrapped, name)
        return _awaited_method(value) if callable(value) else value


def _awaited_method(method: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        if method.__name__ in ("session", "agent"):
            return Awaited(method(*args, **kwargs))
        if method.__name__ in ("messages", "sessions", "agents"):
            return _awaited_iterator(method(*args, **kwargs))
        return _awaited_call(method, *args, **kwargs)

    return called


async def _awaited_iterator(items: Iterator[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


async def _awaited_call(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return method(*args, **kwargs)
