"""SQL servers: where their programs are, how they are run, and what differs in their SQL."""

from __future__ import annotations

import asyncio
import signal
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from sqlalchemy import URL, Row, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from memoryd_server.stores.sql.schema import meta, metadata
from tests.databases.kind import Kind, find_programs

Answer = TypeVar("Answer")

CONNECTIONS: Final = 500
"""How many connections a server takes: each worker of the tests runs several servers of memoryd, each with a pool."""

_TABLES: Final = [table.name for table in metadata.sorted_tables if table is not meta]
"""All that tests fill. What belongs to the database itself stays."""


class SqlKind(Kind):
    """A kind of SQL server, to which SQLAlchemy speaks."""

    driver: ClassVar[str]
    """What SQLAlchemy calls the scheme with the driver of memoryd."""
    lock_limit: ClassVar[str]
    """Has the connection wait for no lock for long."""
    refuses_root = True

    def database_url(self, server: str, database: str) -> str:
        return make_url(server).set(database=database).render_as_string(hide_password=False)

    def answers(self, server: str) -> bool:
        try:
            execute(server, "SELECT 1")
        except (OSError, DBAPIError):
            return False
        return True

    def create(self, server: str, database: str) -> None:
        execute(server, self.create_statement(database))

    def drop(self, server: str, database: str) -> None:
        _run(server, lambda connection: self.drop_with(connection, database))

    def empty(self, url: str) -> bool:
        # A test may have left a lock behind.
        with suppress(DBAPIError):
            execute(url, self.lock_limit, self.together([f"DELETE FROM {table}" for table in _TABLES]))
            return True
        return False

    @abstractmethod
    def together(self, statements: Sequence[str]) -> str:
        """One statement that runs some: the server is asked once, and waits for its disk once."""

    @abstractmethod
    def create_statement(self, database: str) -> str:
        """Creates a database."""

    @abstractmethod
    async def drop_with(self, connection: AsyncConnection, database: str) -> None:
        """Drops a database, connections to it notwithstanding."""


class PostgreSQL(SqlKind):
    name = "postgresql"
    title = "PostgreSQL"
    driver = "postgresql+asyncpg"
    packages = "postgresql"
    compose_url = "postgresql://memoryd:memoryd@127.0.0.1:15432/postgres"
    lock_limit = "SET lock_timeout = '2s'"
    stop_signal = signal.SIGINT
    end_signal = signal.SIGQUIT

    def programs(self) -> tuple[Path, ...] | None:
        # Debian has the programs of each version in a directory of their own, outside of PATH.
        versions = [file.parent for file in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
        newest_first = sorted(versions, key=lambda programs: float(programs.parent.name), reverse=True)
        return find_programs("initdb", "postgres", before_path=newest_first)

    def make_command(self, programs: Sequence[Path], data: Path) -> list[str]:
        access = ["--username=postgres", "--auth=trust"]
        return [str(programs[0]), "--pgdata", str(data), "--encoding=UTF8", "--locale=C", "--no-sync", *access]

    def serve_command(self, programs: Sequence[Path], data: Path, port: int) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": "",
            "max_connections": CONNECTIONS,
            "dynamic_shared_memory_type": "mmap",
        }
        return [str(programs[1]), "-D", str(data), *(f"--{name}={value}" for name, value in settings.items())]

    def local_url(self, ports: Sequence[int]) -> str:
        return f"postgresql://postgres@127.0.0.1:{ports[0]}/postgres"

    def together(self, statements: Sequence[str]) -> str:
        return f"DO $$ BEGIN {'; '.join(statements)}; END $$"

    def create_statement(self, database: str) -> str:
        # Sorted as people read, as many databases are: what needs the order of bytes must say so itself.
        collation = "ENCODING UTF8 LOCALE 'C' LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
        return f"CREATE DATABASE {database} TEMPLATE template0 {collation}"

    async def drop_with(self, connection: AsyncConnection, database: str) -> None:
        await connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")


class MariaDB(SqlKind):
    name = "mariadb"
    title = "MariaDB"
    driver = "mysql+asyncmy"
    packages = "mariadb-server-core mariadb-client-core"
    compose_url = "mysql://root:memoryd@127.0.0.1:13306/mysql"
    lock_limit = "SET SESSION innodb_lock_wait_timeout = 2"

    def programs(self) -> tuple[Path, ...] | None:
        outside_of_path = [Path("/usr/sbin"), Path("/usr/local/sbin")]
        return find_programs("mariadb-install-db", "mariadbd", before_path=outside_of_path)

    def make_command(self, programs: Sequence[Path], data: Path) -> list[str]:
        access = ["--auth-root-authentication-method=normal", "--skip-test-db", f"--tmpdir={data.parent}"]
        return [str(programs[0]), "--no-defaults", f"--datadir={data}", *access]

    def serve_command(self, programs: Sequence[Path], data: Path, port: int) -> list[str]:
        return [
            str(programs[1]),
            "--no-defaults",
            f"--datadir={data}",
            # Not among others' files: names there are made from process numbers, which come again.
            f"--tmpdir={data}",
            "--bind-address=127.0.0.1",
            f"--port={port}",
            f"--socket={data}/socket",
            f"--pid-file={data}/pid",
            f"--max-connections={CONNECTIONS}",
        ]

    def local_url(self, ports: Sequence[int]) -> str:
        return f"mysql://root@127.0.0.1:{ports[0]}/mysql"

    def together(self, statements: Sequence[str]) -> str:
        return f"BEGIN NOT ATOMIC START TRANSACTION; {'; '.join(statements)}; COMMIT; END"

    def create_statement(self, database: str) -> str:
        # The default of long-lived servers, which cannot hold what is stored: the schema must say utf8mb4 itself.
        return f"CREATE DATABASE {database} CHARACTER SET latin1"

    async def drop_with(self, connection: AsyncConnection, database: str) -> None:
        # Dropping waits for transactions that have read the tables, so their connections go first.
        sessions = await connection.exec_driver_sql(
            f"SELECT id FROM information_schema.processlist WHERE db = '{database}'"
        )
        for number in sessions.scalars().all():
            await connection.exec_driver_sql(
                f"BEGIN NOT ATOMIC DECLARE CONTINUE HANDLER FOR 1094 DO 0; KILL {number}; END"
            )
        await connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {database}")


def execute(url: str | URL, *statements: str) -> Sequence[Row[Any]]:
    """Runs statements, each committed by itself; asynchronous code may call it and is then held up meanwhile.

    Returns: the rows of the last one.
    """

    async def run(connection: AsyncConnection) -> Sequence[Row[Any]]:
        rows: Sequence[Row[Any]] = ()
        for statement in statements:
            result = await connection.exec_driver_sql(statement)
            rows = result.all() if result.returns_rows else ()
        return rows

    return _run(url, run)


def with_driver(url: str | URL) -> URL:
    """The URL with the driver of memoryd, as SQLAlchemy takes it."""
    parsed = make_url(url)
    kinds = (PostgreSQL, MariaDB)
    driver = next(kind.driver for kind in kinds if kind.driver.startswith(parsed.get_backend_name()))
    return parsed.set(drivername=driver)


def _run(url: str | URL, work: Callable[[AsyncConnection], Awaitable[Answer]]) -> Answer:
    """Does work on a connection of its own, on a thread of its own: an event loop may run on this one already."""

    async def connected() -> Answer:
        engine = create_async_engine(with_driver(url), poolclass=NullPool, isolation_level="AUTOCOMMIT")
        async with engine.connect() as connection:
            return await work(connection)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, connected()).result()
