"""The way to the nodes of a cluster, whose shape may change at any time.

redis-py's own client of clusters repeats calls whose connection broke, and gives no hold on the connection on which a
replica must be waited for.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import AskError, ClusterDownError, MasterDownError, MovedError, TryAgainError

from memoryd_server.stores.base import StoreUnavailable
from memoryd_server.stores.redis.errors import FAILURES
from memoryd_server.stores.redis.nodes import Nodes, Replies
from memoryd_server.stores.redis.scripts import Call
from memoryd_server.stores.redis.url import Address, Target

PATIENCE: Final = 0.8
"""For what part of its time a call waits where keys are being moved or a node is being replaced: the rest is left to
tell which of these it is."""

BACKOFF_SECONDS: Final = 0.05
"""How long it waits before each further attempt, and up to twice as long."""

SHAPE_SECONDS: Final = 0.5
"""How long the shape is trusted at least: a node that fails is asked about no more often."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """Which node has which slots, at some moment."""

    primaries: tuple[Address | None, ...]
    """By slot."""
    known: frozenset[Address]
    """All nodes, replicas included."""
    seen_at: float


class Cluster(Nodes):
    """Keys are on the nodes of a cluster by their slots."""

    def __init__(self, target: Target, tls: ssl.SSLContext | None) -> None:
        super().__init__(target, tls)
        self._shape = _Shape((None,) * REDIS_CLUSTER_HASH_SLOTS, frozenset(target.addresses), float("-inf"))
        self._moved: dict[int, Address] = {}
        """Slots that were redirected since the shape was seen."""
        self._looking: asyncio.Task[None] | None = None

    def primaries(self) -> frozenset[Address]:
        """The nodes that have slots."""
        return frozenset(address for address in self._shape.primaries if address is not None)

    def known(self) -> frozenset[Address]:
        """All nodes, replicas included."""
        return self._shape.known

    async def _run(self, calls: Sequence[Call], *, repeatable: bool, replicas: int) -> Replies:
        replies: Replies = [None] * len(calls)
        waiting = list(range(len(calls)))
        slots = [key_slot(call.key.encode()) for call in calls]
        end = time.monotonic() + PATIENCE * self._target.answer_seconds
        was_led = False
        while True:
            by_node: dict[Address, list[int]] = {}
            for at in waiting:
                by_node.setdefault(await self._address(slots[at]), []).append(at)
            run = partial(self._run_some, calls, replies, repeatable=repeatable, replicas=replicas)
            if len(by_node) == 1:
                [(address, some)] = by_node.items()
                await run(address, some)
            else:
                await _all(run(address, some) for address, some in by_node.items())
            waiting = [at for at in waiting if isinstance(replies[at], Exception)]
            if not waiting:
                return replies
            for at in waiting:
                self._learn(slots[at], replies[at])
            if was_led or not all(isinstance(replies[at], MovedError) for at in waiting):
                if time.monotonic() > end:
                    raise replies[waiting[0]]
                await asyncio.sleep(BACKOFF_SECONDS * (1 + random.random()))
            was_led = True

    async def _run_some(
        self,
        calls: Sequence[Call],
        replies: Replies,
        address: Address,
        some: Sequence[int],
        *,
        repeatable: bool,
        replicas: int,
    ) -> None:
        try:
            answers = await self._run_on(
                self.node(address), [calls[at] for at in some], repeatable=repeatable, replicas=replicas
            )
        except (*FAILURES, asyncio.CancelledError):
            # Its time may be over since the node says nothing: a replica may have taken its place.
            self._look_soon()
            raise
        for at, answer in zip(some, answers, strict=True):
            replies[at] = answer
            if isinstance(answer, AskError):  # MovedError is one, too.
                # A node without a name of its own is where it was asked.
                answer.host = answer.host or address.host
            if isinstance(answer, AskError) and not isinstance(answer, MovedError):
                node = self.node(Address(answer.host, answer.port))
                [replies[at]] = await self._run_on(
                    node, [calls[at]], repeatable=repeatable, replicas=replicas, is_asked=True
                )

    def _learn(self, slot: int, error: Exception) -> None:
        """Takes from a refusal where its slot is now. Raises: the refusal, where nothing is learned."""
        if isinstance(error, MovedError):
            self._moved[slot] = Address(error.host, error.port)
            self._look_soon()
        elif isinstance(error, (ClusterDownError, MasterDownError)):
            self._look_soon()
        elif not isinstance(error, (TryAgainError, AskError)):
            raise error

    async def _address(self, slot: int) -> Address:
        address = self._moved.get(slot) or self._shape.primaries[slot]
        if address is None:
            await self.look()
            address = self._shape.primaries[slot]
        if address is None:
            raise ClusterDownError("CLUSTERDOWN Hash slot not served", status_code="CLUSTERDOWN")
        return address

    # The shape

    async def look(self) -> None:
        """Asks the cluster for its shape. Raises: what the last node that was asked raises."""
        await asyncio.shield(self._begin_to_look())

    def _look_soon(self) -> None:
        if time.monotonic() - self._shape.seen_at > SHAPE_SECONDS:
            self._begin_to_look()

    def _begin_to_look(self) -> asyncio.Task[None]:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
            self._looking.add_done_callback(_let_pass)
        return self._looking

    async def _look(self) -> None:
        failure: BaseException = ClusterDownError("CLUSTERDOWN no node", status_code="CLUSTERDOWN")
        known = sorted(self._shape.known | set(self._target.addresses), key=lambda _: random.random())
        for address in known:
            moved = dict(self._moved)
            try:
                async with asyncio.timeout(self._target.answer_seconds / 2):
                    [ranges] = await self.node(address).run([("CLUSTER", "SLOTS")], repeatable=True)
                if isinstance(ranges, Exception):
                    raise ranges
            except (*FAILURES, StoreUnavailable) as error:
                failure = error
                continue
            self._shape = _shape_of(ranges, address)
            self._moved = {slot: to for slot, to in self._moved.items() if moved.get(slot) != to}
            await self._forget_strangers()
            return
        raise failure

    async def _forget_strangers(self) -> None:
        """Closes the connections to nodes that left."""
        known = self._shape.known | set(self._target.addresses)
        for address in [address for address in self._nodes if address not in known]:
            await self._nodes.pop(address).pool.close()

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        await super().close()


def _let_pass(looking: asyncio.Task[None]) -> None:
    """A look that fails is repeated when a call needs it."""
    if not looking.cancelled():
        looking.exception()


async def _all(running: Iterable[Awaitable[None]]) -> None:
    """Waits for all, whatever becomes of the others. Raises: the first error."""
    for result in await asyncio.gather(*running, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _shape_of(ranges: Iterable[Sequence[Any]], asked: Address) -> _Shape:
    """The shape in an answer to CLUSTER SLOTS. A node that does not know its own name is where it was asked."""
    primaries: list[Address | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
    known: set[Address] = set()
    for first, last, *nodes in ranges:
        addresses = [Address((host or b"").decode() or asked.host, port) for host, port, *_ in nodes]
        known.update(addresses)
        primaries[first : last + 1] = [addresses[0]] * (last + 1 - first)
    return _Shape(tuple(primaries), frozenset(known), time.monotonic())
