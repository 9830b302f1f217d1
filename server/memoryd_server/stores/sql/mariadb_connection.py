"""One connection to MariaDB or MySQL, over asyncmy's own connection.

Single statements are prepared once and then sent in binary form: half the time of the text protocol. Several statements
that need nothing of each other's answers go out as one text, in one round trip.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import asyncmy
from asyncmy import converters, errors
from asyncmy.constants import CR, FIELD_TYPE, SERVER_STATUS
from sqlalchemy import URL, Dialect

from memoryd_server.stores.base import StoreMisconfigured
from memoryd_server.stores.sql.mariadb_errors import is_from_server
from memoryd_server.stores.sql.mariadb_texts import in_packets, with_rows, with_values
from memoryd_server.stores.sql.rows import Row
from memoryd_server.stores.sql.served import CLOSE_SECONDS, LOCK_SECONDS

STATEMENTS: Final = 256
"""Prepared statements that a connection keeps: more than there are."""

_BEGIN: Final = b"START TRANSACTION"
_BEGIN_SNAPSHOT: Final = b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION READ ONLY"
"""Begins a read of several statements that all see one moment: that of the first of them."""

_SESSION: Final = "; ".join(
    (
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
        # Each statement sees what is committed, and writers lock no gaps between rows: unique keys tell what is there.
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', autocommit = 1, completion_type = 0, "
        "sql_select_limit = 18446744073709551615, sql_big_selects = 1, sql_safe_updates = 0, sql_auto_is_null = 0, "
        f"unique_checks = 1, time_zone = '+00:00', innodb_lock_wait_timeout = {LOCK_SECONDS}, "
        f"lock_wait_timeout = {LOCK_SECONDS}, wait_timeout = 28800",
    )
)
"""What statements mean must not depend on the defaults of the server or of the user."""


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()


_CONVERSIONS: Final = {**converters.conversions, FIELD_TYPE.VAR_STRING: _text}
"""Ids are VARBINARY columns, and they alone: the driver gives them as the texts that they are."""

_ARGUMENTS: Final = frozenset(
    {"host", "port", "user", "password", "db", "unix_socket", "connect_timeout", "client_flag"}
)
"""What a URL may set; all else decides about the meaning of what is stored."""

# The driver logs what the server remarks on statements, such as the name of a key that it does not use.
logging.getLogger("asyncmy").setLevel(logging.ERROR)


def connect_arguments(dialect: Dialect, url: URL) -> dict[str, Any]:
    """The driver's arguments for a URL. Raises: StoreMisconfigured when it says what cannot be."""
    arguments: dict[str, Any] = dict(dialect.create_connect_args(url)[1])
    charset = arguments.pop("charset", "utf8mb4")
    verify = _truth(arguments.pop("ssl_verify_cert", "true"))
    tls = arguments.pop("ssl", None)
    unknown = sorted(arguments.keys() - _ARGUMENTS)
    if unknown:
        raise StoreMisconfigured(
            f"its URL sets {unknown[0]}, which memoryd does not know. It may set unix_socket, connect_timeout, ssl, "
            "ssl_ca, ssl_capath, ssl_cert, ssl_key, ssl_cipher, ssl_check_hostname and ssl_verify_cert."
        )
    if charset != "utf8mb4":
        raise StoreMisconfigured(
            f"its URL asks for the character set {charset}; memoryd speaks utf8mb4 alone: leave it out."
        )
    if tls is not None and (isinstance(tls, dict) or _truth(tls)):
        arguments["ssl"] = _tls_context(tls if isinstance(tls, dict) else {}, verify)
    return arguments


def _truth(text: str) -> bool:
    return text.lower() in {"true", "1", "yes", "on"}


def _tls_context(options: dict[str, Any], verify: bool) -> ssl.SSLContext:
    """Made once, since it reads files. Verifies the server by `ssl_ca`, or by whom the system trusts."""
    try:
        context = ssl.create_default_context(cafile=options.get("ca"), capath=options.get("capath"))
        if "cert" in options:
            context.load_cert_chain(options["cert"], options.get("key"))
        if "cipher" in options:
            context.set_ciphers(options["cipher"])
    except (OSError, ssl.SSLError) as error:
        raise StoreMisconfigured(f"the files or ciphers of its ssl_ options cannot be used: {error}.") from error
    context.check_hostname = verify and bool(options.get("check_hostname", True))
    if not verify:
        context.verify_mode = ssl.CERT_NONE
    return context


class MariaDBConnection:
    """See `ServedConnection`. What a call breaks off in the middle makes it unusable."""

    def __init__(self, driver: Any, packet: int) -> None:
        """`packet`: how many bytes one text of statements may take."""
        self._driver = driver
        self.packet = packet
        # Kept, since the driver lets go of it, and then nothing could end it that waits for a silent server.
        self._transport = driver._transport
        self._statements: dict[str, Any] = {}
        self._is_busy = False
        self._in_transaction = False

    @classmethod
    async def connect(cls, arguments: dict[str, Any], packet: int) -> MariaDBConnection:
        """Raises: what the driver raises."""
        return cls(await cls.connect_driver(arguments), packet)

    @staticmethod
    async def connect_driver(arguments: dict[str, Any]) -> Any:
        """A connection of the driver's own, set up in the same way."""
        try:
            return await asyncmy.connect(**arguments, autocommit=None, init_command=_SESSION, conv=_CONVERSIONS)
        except RuntimeError as error:
            # On uvloop the driver finds no socket where the server closed it right after it had accepted it.
            raise errors.OperationalError(CR.CR_SERVER_LOST, "the server closed the new connection") from error

    @property
    def is_usable(self) -> bool:
        return not (self._is_busy or self._in_transaction or self._driver._stream_broken)

    def abort(self) -> None:
        self._transport.abort()
        self._driver.close()

    async def close(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._driver.ensure_closed()
        except (errors.Error, OSError, TimeoutError):
            pass
        finally:
            self._transport.abort()

    async def fetch(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Row]:
        """The rows of a statement, whose parameters are marked by `?`."""
        return (await self._execute(sql, parameters)).rows or ()

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Returns: how many rows it found to change, delete or insert."""
        return int((await self._execute(sql, parameters)).affected_rows)

    async def insert(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Returns: the number that the database gave the row."""
        return int((await self._execute(sql, parameters)).insert_id)

    async def execute_many(self, sql: str, rows: Sequence[Row]) -> None:
        texts = with_rows(sql, rows) if sql.startswith("INSERT") else [with_values(sql, row) for row in rows]
        for packet in in_packets(texts, self.packet):
            await self.run(*packet)

    async def run_packets(self, texts: Sequence[bytes]) -> None:
        """Runs statements in a transaction of their own, mostly in one round trip; rolls it back when one fails."""
        packets = in_packets(texts, self.packet)
        if len(packets) == 1:
            await self._run_transaction(*packets[0])
            return
        async with self.transaction():
            for packet in packets:
                await self.run(*packet)

    async def run(self, *texts: bytes) -> None:
        """Runs statements without parameters, each after the one before, until one of them fails."""
        driver = self._driver
        if driver.server_status & SERVER_STATUS.SERVER_STATUS_NO_BACKSLASH_ESCAPES:
            raise StoreMisconfigured(
                "Something between memoryd and its database changed the SQL mode of the connection. Lead the store's "
                "URL to the database itself, or to a proxy that keeps a connection's settings."
            )
        self._is_busy = True
        try:
            await driver.query(b";".join(texts))
            while driver._result.has_next:
                await driver.next_result()
        except errors.Error as error:
            self._is_busy = not is_from_server(error)
            raise
        self._is_busy = False

    @asynccontextmanager
    async def transaction(self, *, snapshot: bool = False) -> AsyncIterator[None]:
        self._in_transaction = True
        await self.run(_BEGIN_SNAPSHOT if snapshot else _BEGIN)
        try:
            yield
        except Exception:
            await self._roll_back()
            raise
        await self.run(b"COMMIT")
        self._in_transaction = False

    async def _run_transaction(self, *texts: bytes) -> None:
        self._in_transaction = True
        try:
            await self.run(_BEGIN, *texts, b"COMMIT")
        except Exception:
            await self._roll_back()
            raise
        self._in_transaction = False

    async def _roll_back(self) -> None:
        """Ends a transaction of which nothing is to remain. A broken connection needs nothing: the server does it."""
        if not self._is_busy:
            with suppress(errors.Error, OSError):
                await self.run(b"ROLLBACK")
                self._in_transaction = False

    async def _execute(self, sql: str, parameters: Sequence[Any]) -> Any:
        self._is_busy = True
        try:
            statement = self._statements.get(sql)
            if statement is None:
                if len(self._statements) >= STATEMENTS:
                    await self._statements.pop(next(iter(self._statements))).close()
                statement = self._statements[sql] = await self._driver.prepare(sql)
            result = await statement.execute(parameters)
        except errors.Error as error:
            self._is_busy = not is_from_server(error)
            raise
        self._is_busy = False
        return result
