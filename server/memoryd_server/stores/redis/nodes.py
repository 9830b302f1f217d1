"""The way to the nodes: one server, or a cluster whose shape may change at any time."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import AskError, ClusterDownError, MasterDownError, MovedError, NoScriptError, TryAgainError

from memoryd_server.stores.base import PoolStatus, StoreUnavailable
from memoryd_server.stores.pool import ConnectionPool
from memoryd_server.stores.redis.connection import NothingSent, RedisConnection
from memoryd_server.stores.redis.errors import FAILURES, code_of, is_lost, unavailable
from memoryd_server.stores.redis.scripts import Call, Value
from memoryd_server.stores.redis.url import Address, Target

REPLICA_SECONDS: Final = 2.0
"""How long a change waits for its replicas before it is told as unknown."""

REDIRECTIONS: Final = 16
"""How often a call follows a cluster's redirections: far more than one change of its shape takes."""

BACKOFF_SECONDS: Final = 0.05
"""How long a call waits for the next attempt where keys are being moved or a node is being replaced."""

SHAPE_SECONDS: Final = 0.5
"""How long a cluster's shape is trusted at least: a node that fails is asked about no more often."""

Replies = list[Any]


class Node:
    """A server with a pool of connections to it."""

    def __init__(self, address: Address, connect: Callable[[Address], Awaitable[RedisConnection]], size: int) -> None:
        self.address = address
        self.pool = ConnectionPool(partial(connect, address), size)

    async def run(self, commands: Sequence[tuple[Value, ...]], *, repeatable: bool) -> Replies:
        """What commands answer. `repeatable`: once more on another connection, if the first turns out to be broken."""
        try:
            return await self._run(commands)
        except FAILURES as error:
            if not (isinstance(error, NothingSent) or (repeatable and is_lost(error))):
                if is_lost(error):
                    self.pool.drop_free()
                raise
        self.pool.drop_free()
        return await self._run(commands)

    async def _run(self, commands: Sequence[tuple[Value, ...]]) -> Replies:
        async with self.pool.connection() as connection:
            try:
                return await connection.run(commands)
            except asyncio.CancelledError:
                connection.abort()
                raise


class Nodes:
    """Carries calls out, each on the node that has its key."""

    def __init__(self, target: Target, tls: ssl.SSLContext | None) -> None:
        self._target = target
        self._tls = tls
        self._nodes: dict[Address, Node] = {}
        self.replicas = 0
        """How many replicas must have a change before it is answered."""

    def node(self, address: Address) -> Node:
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = Node(address, self._connect, self._target.connections)
        return node

    async def _connect(self, address: Address) -> RedisConnection:
        return await RedisConnection.connect(address, self._target.login, self._tls, self._target.database)

    def pool_status(self) -> PoolStatus:
        statuses = [node.pool.status() for node in [*self._nodes.values()]]
        return PoolStatus(
            size=sum(status.size for status in statuses),
            in_use=sum(status.in_use for status in statuses),
            waiting=sum(status.waiting for status in statuses),
        )

    async def close(self) -> None:
        await asyncio.gather(*(node.pool.close() for node in [*self._nodes.values()]))

    async def run(self, *calls: Call, repeatable: bool = False) -> Replies:
        """What calls answer, in their order. Those to one node are sent in one go, in their order.

        Args:
            repeatable: Whether a call may be made twice, for want of the first one's answer.

        Raises: StoreUnavailable: each call was made or not, unknown which.
        """
        return await self._in_time(self._run(calls, repeatable=repeatable, replicas=0))

    async def change(self, *calls: Call) -> Replies:
        """Likewise; what was written is on so many replicas as is asked for when this returns."""
        return await self._in_time(self._run(calls, repeatable=False, replicas=self.replicas))

    async def _in_time(self, running: Awaitable[Replies]) -> Replies:
        seconds = self._target.answer_seconds
        try:
            async with asyncio.timeout(seconds):
                return await running
        except FAILURES as error:
            problem = unavailable(error, seconds)
            if problem is None:
                raise
            raise problem from error

    async def _run(self, calls: Sequence[Call], *, repeatable: bool, replicas: int) -> Replies:
        raise NotImplementedError

    async def _run_on(
        self, node: Node, calls: Sequence[Call], *, repeatable: bool, replicas: int, is_asked: bool = False
    ) -> Replies:
        """What calls answer, errors included. Scripts that the node does not know are sent to it in full."""
        replies = await self._send(node, [call.command for call in calls], repeatable, replicas, is_asked)
        unknown = [at for at, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            in_full = await self._send(node, [calls[at].in_full for at in unknown], repeatable, replicas, is_asked)
            for at, reply in zip(unknown, in_full, strict=True):
                replies[at] = reply
        return replies

    async def _send(
        self, node: Node, commands: Sequence[tuple[Value, ...]], repeatable: bool, replicas: int, is_asked: bool
    ) -> Replies:
        sent: list[tuple[Value, ...]] = []
        for command in commands:
            if is_asked:
                sent.append(("ASKING",))
            sent.append(command)
        if replicas:
            sent.append(("WAIT", replicas, int(REPLICA_SECONDS * 1_000)))
        replies = await node.run(sent, repeatable=repeatable)
        confirmed = replies.pop() if replicas else 0
        if is_asked:
            replies = replies[1::2]
        # Where everything was refused, perhaps by a node that is no primary, no replica has anything to confirm.
        if replicas and not all(isinstance(reply, Exception) for reply in replies):
            _check_replicas(confirmed, replicas)
        return replies


def _check_replicas(confirmed: Any, replicas: int) -> None:
    """Raises: StoreUnavailable where too few replicas confirmed a change; what WAIT answered where that was refused."""
    if isinstance(confirmed, Exception):
        if code_of(confirmed) != "ERR":
            raise confirmed
        confirmed = 0  # The node was demoted before it could wait.
    if confirmed < replicas:
        raise StoreUnavailable(
            f"{confirmed} of {replicas} replicas confirmed the change within {REPLICA_SECONDS:g} seconds: it may or "
            "may not be made. Repeat the call; if it goes on, look at the replicas of the cluster."
        )


class SingleServer(Nodes):
    """One server has all keys."""

    def __init__(self, target: Target, tls: ssl.SSLContext | None) -> None:
        super().__init__(target, tls)
        self._only = self.node(target.addresses[0])

    async def _run(self, calls: Sequence[Call], *, repeatable: bool, replicas: int) -> Replies:
        replies = await self._run_on(self._only, calls, repeatable=repeatable, replicas=replicas)
        for reply in replies:
            if isinstance(reply, Exception):
                if code_of(reply) == "READONLY":
                    self._only.pool.drop_free()  # They lead to a server that was demoted.
                raise reply
        return replies


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

    async def _run(self, calls: Sequence[Call], *, repeatable: bool, replicas: int) -> Replies:
        replies: Replies = [None] * len(calls)
        waiting = list(range(len(calls)))
        slots = [key_slot(call.key.encode()) for call in calls]
        for attempt in range(REDIRECTIONS):
            by_node: dict[Address, list[int]] = {}
            for at in waiting:
                by_node.setdefault(await self._address(slots[at]), []).append(at)
            run = partial(self._run_some, calls, replies, repeatable=repeatable, replicas=replicas)
            if len(by_node) == 1:
                [(address, some)] = by_node.items()
                await run(address, some)
            else:
                await _all(run(address, some) for address, some in by_node.items())
            refused = [at for at in waiting if isinstance(replies[at], Exception)]
            for at in refused:
                self._learn(slots[at], replies[at])
            if not refused:
                return replies
            waiting = refused
            if any(not isinstance(replies[at], MovedError) for at in refused) or attempt:
                await asyncio.sleep(BACKOFF_SECONDS * (1 + random.random()))
        raise replies[waiting[0]]

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
        except FAILURES:
            # Its replica may take its place.
            self._look_soon()
            raise
        for at, answer in zip(some, answers, strict=True):
            replies[at] = answer
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
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        await asyncio.shield(self._looking)

    def _look_soon(self) -> None:
        is_due = time.monotonic() - self._shape.seen_at > SHAPE_SECONDS
        if is_due and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look())
            self._looking.add_done_callback(_let_pass)

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
