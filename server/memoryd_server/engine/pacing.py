"""How much a copy asks of a store at once, and how patiently: as much as the store answers in good time.

A database that is asked for more than it can do answers nothing in time: it goes on with the calls that were given up,
and their repetitions wait behind these. So a copy begins with one call at a time, makes more at once while answers come
soon, and fewer as soon as they do not.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Any, Final, TypeVar, cast

from memoryd_server.engine.runtime import Runtime
from memoryd_server.stores.base import Store, StoreUnavailable

MOST_AT_ONCE: Final = 64
"""Calls at once: small sessions share commits then, and wait for their databases together."""

SOON_SECONDS: Final = 1.0
"""Within which an answer comes soon: a fifth of what stores wait for one before they give a call up."""

TRIES: Final = 6
"""How often a call is made while the store does not answer it."""

FIRST_PAUSE_SECONDS: Final = 0.2
"""How long the second try waits at most; then each twice as long as the one before: 6 s in all."""

_REPEATABLE: Final = frozenset(
    {
        "adopt_secret",
        "adopted_secrets",
        "begin_staging",
        "delete_run",
        "end_staging",
        "find",
        "list_agents",
        "list_file_owners",
        "list_file_tenants",
        "list_file_versions",
        "list_files",
        "list_lookups",
        "list_messages",
        "list_runs",
        "list_sessions",
        "list_steps",
        "list_tenants",
        "load",
        "load_agent",
        "load_file_version",
        "load_files",
        "load_run",
        "now",
        "read",
        "read_summaries",
        "save_agent",
        "save_file",
        "stage",
    }
)
"""Calls of a store that may be made again without a look at what the first try did: reads, writes that change nothing
the second time, and those of which a copy finds out by itself.
"""

_PACED: Final = _REPEATABLE | {"commit"}

Answer = TypeVar("Answer")


class Unanswered(StoreUnavailable):
    """A store did not answer a call, however often it was made."""


class Turns:
    """Lets up to `width` work at once, in the order in which they come."""

    def __init__(self, width: int = 1) -> None:
        self._width = width
        self._at_work = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def width(self) -> int:
        """How many may work at once. Where it shrinks, who is at work goes on."""
        return self._width

    @width.setter
    def width(self, width: int) -> None:
        self._width = width
        self._admit()

    @property
    def are_awaited(self) -> bool:
        """Whether somebody waits for a turn."""
        return bool(self._waiting)

    async def __aenter__(self) -> None:
        if self._at_work < self._width and not self._waiting:
            self._at_work += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._end_turn()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end_turn()

    def _end_turn(self) -> None:
        self._at_work -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._at_work < self._width:
            turn = self._waiting.popleft()
            if not turn.done():
                self._at_work += 1
                turn.set_result(None)


class Pace:
    """How much a store is asked for at once."""

    def __init__(self, *, wants_more: Callable[[], bool], changed: Callable[[], None]) -> None:
        """`wants_more` says whether more would be asked for; `changed` is told when `width` is another one."""
        self._wants_more = wants_more
        self._changed = changed
        self._turns = Turns()
        self._is_cautious = False
        self._set_at = 0.0
        self._width = 1.0

    @property
    def width(self) -> int:
        """How many calls are made at once, from 1 to MOST_AT_ONCE."""
        return self._turns.width

    def begin_anew(self) -> None:
        """Other calls come now, of which nothing is known yet."""
        self._is_cautious = False
        self._set(1)

    async def ask(self, call: Callable[[], Awaitable[Answer]], *, repeatable: bool) -> Answer:
        """Makes a call in its turn. Raises: what the call raises; `repeatable`: see `patiently`."""
        if repeatable:
            return await patiently(partial(self._ask_once, call))
        return await self._ask_once(call)

    async def _ask_once(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        async with self._turns:
            asked_at = time.monotonic()
            try:
                answer = await call()
            except StoreUnavailable:
                self._heard(asked_at, 0.25)
                raise
            self._heard(asked_at, 1.0 if time.monotonic() - asked_at <= SOON_SECONDS else 0.5)
            return answer

    def _heard(self, asked_at: float, factor: float) -> None:
        """Learns from an answer. Calls that were made before the width was set tell nothing of it."""
        if asked_at < self._set_at:
            return
        if factor < 1:
            self._is_cautious = True
            self._set(self._width * factor)
        elif self._width < MOST_AT_ONCE and (self._turns.are_awaited or self._wants_more()):
            # Twice as many a round at first; once it was too much, one more a round.
            self._grow(1 / self._width if self._is_cautious else 1)

    def _grow(self, by: float) -> None:
        self._width = min(self._width + by, MOST_AT_ONCE)
        self._apply()

    def _set(self, width: float) -> None:
        self._width = max(width, 1.0)
        self._set_at = time.monotonic()
        self._apply()

    def _apply(self) -> None:
        if int(self._width) != self._turns.width:
            self._turns.width = int(self._width)
            self._changed()


async def patiently(call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Makes a call again while a store does not answer it. Raises: Unanswered; what else the call raises."""
    for tries in range(1, TRIES):
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(FIRST_PAUSE_SECONDS * 2 ** (tries - 1) * random.uniform(0.5, 1))
    try:
        return await call()
    except StoreUnavailable as error:
        raise Unanswered(*error.args) from error


class _PacedStore:
    """A store that is called at a pace."""

    def __init__(self, store: Store, pace: Pace) -> None:
        self._store = store
        self._pace = pace

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if name not in _PACED:
            return attribute
        call = partial(self._call, attribute, name in _REPEATABLE)
        setattr(self, name, call)
        return call

    async def _call(self, method: Callable[..., Awaitable[Any]], repeatable: bool, *args: Any) -> Any:
        return await self._pace.ask(partial(method, *args), repeatable=repeatable)


def paced(runtime: Runtime, pace: Pace) -> Runtime:
    """The same store, called at a pace, as if by another server. Its clock is yet to be set."""
    store = cast(Store, _PacedStore(runtime.store, pace))
    return Runtime(runtime.name, store, runtime.info, runtime.defaults, runtime.instruments, runtime.summarizers)
