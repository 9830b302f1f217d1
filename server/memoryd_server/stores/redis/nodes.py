"""The way to a server: its connections, what is sent on them, and what is awaited before an answer counts."""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from redis.exceptions import NoScriptError

from memoryd_server.stores.base import PoolStatus, StoreUnavailable
from memoryd_server.stores.pool import ConnectionPool
from memoryd_server.stores.redis.connection import NothingSent, RedisConnection
from memoryd_server.stores.redis.errors import FAILURES, code_of, is_lost, unavailable
from memoryd_server.stores.redis.scripts import Call, Value
from memoryd_server.stores.redis.url import Address, Target

REPLICA_SECONDS: Final = 2.0
"""How long a change waits for its replicas before it is told as unknown."""

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


class Nodes(ABC):
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

    @abstractmethod
    async def _run(self, calls: Sequence[Call], *, repeatable: bool, replicas: int) -> Replies:
        """What calls answer, errors excluded. Raises: StoreUnavailable, FAILURES."""

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
            "may not be made. Repeat the call; if it goes on, look at the replicas of the cluster. Where it is to have "
            "none, set the option replicas of the store's URL to 0, as in redis://host:6379/?replicas=0."
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
