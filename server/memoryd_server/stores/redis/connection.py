"""A connection to a server: redis-py's own, without its pool and its retries.

redis-py's clients repeat a command whose connection broke, which must not happen to a commit, and share connections in
a way that does not let a call wait for a replica on the connection that it wrote on.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from hiredis import pack_command
from redis.asyncio.connection import Connection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from memoryd_server.stores.redis.scripts import Value
from memoryd_server.stores.redis.url import Address

CONNECT_SECONDS: Final = 2.0
"""How long making a connection may take, logging in included."""

CLOSE_SECONDS: Final = 1.0
"""How long a server may take to close a connection."""

READ_BYTES: Final = 1 << 18
"""Bytes that are taken from a connection at once: a window of usual length."""


_PACKED: Final = cast("Callable[[tuple[Value, ...]], bytes]", pack_command)
"""A command as it is sent. redis-py's own way takes several times as long; the types that hiredis tells are wrong."""


class NothingSent(RedisConnectionError):
    """The connection turned out to be closed before anything was sent on it."""


class _Driver(Connection):
    def __init__(self, tls: ssl.SSLContext | None, **settings: Any) -> None:
        super().__init__(**settings)
        self._tls = tls

    def _connection_arguments(self) -> Mapping[str, Any]:
        # Not redis-py's SSLConnection, which reads all certificates again for each connection.
        return {**super()._connection_arguments(), **({"ssl": self._tls} if self._tls else {})}

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
            self._reader = self._writer = None


class RedisConnection:
    """See `pool.Poolable`. Used by one call at a time."""

    __slots__ = ("_driver", "_is_answered")

    def __init__(self, driver: _Driver) -> None:
        self._driver = driver
        self._is_answered = True

    @classmethod
    async def connect(
        cls, address: Address, login: Mapping[str, str], tls: ssl.SSLContext | None, database: int
    ) -> RedisConnection:
        """Raises: what redis-py raises, TimeoutError."""
        driver = _Driver(
            tls,
            host=address.host,
            port=address.port,
            db=database,
            **login,
            client_name="memoryd",
            driver_info=None,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            # Calls have a time of their own.
            socket_timeout=None,
            socket_connect_timeout=CONNECT_SECONDS,
            socket_read_size=READ_BYTES,
        )
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await driver.connect()  # type: ignore[no-untyped-call]
        except BaseException:
            driver.abort()
            raise
        return cls(driver)

    @property
    def is_usable(self) -> bool:
        return self._is_answered and self._driver.is_connected

    def abort(self) -> None:
        self._driver.abort()

    async def close(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._driver.disconnect()
        except Exception:
            self.abort()

    async def run(self, commands: Sequence[tuple[Value, ...]]) -> list[Any]:
        """Sends commands in one go. Returns: what each answers; an error that the server answered is among them.

        Raises: NothingSent; what redis-py raises when the connection breaks, which then is not usable.
        """
        driver = self._driver
        if not driver.is_connected or await driver.can_read():
            driver.abort()
            raise NothingSent
        self._is_answered = False
        await driver.send_packed_command(b"".join(map(_PACKED, commands)), check_health=False)
        answers: list[Any] = []
        for _ in commands:
            try:
                answers.append(await driver.read_response())
            except ResponseError as error:
                answers.append(error)
        self._is_answered = True
        return answers
