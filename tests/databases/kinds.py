"""The kinds of database servers: where their programs are, how they are run, and what differs in their SQL."""

from __future__ import annotations

import os
import shutil
import signal
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Final

import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncConnection

CONNECTIONS: Final = 500
"""How many connections a server takes: each worker of the tests runs several servers of memoryd, each with a pool."""


class Kind(ABC):
    """A kind of database server."""

    name: ClassVar[str]
    """In marks, names of parameters, and names of directories."""
    title: ClassVar[str]
    driver: ClassVar[str]
    """What SQLAlchemy calls the scheme with the driver of memoryd."""
    packages: ClassVar[str]
    """What to install on Debian."""
    compose_url: ClassVar[str]
    """Where `docker compose -f tests/compose.yaml up` serves it."""
    lock_limit: ClassVar[str]
    """Has the connection wait for no lock for long."""
    stop_signal: ClassVar[signal.Signals]
    """Ends the server in order, without waiting for its clients."""
    end_signal: ClassVar[signal.Signals]
    """Ends the server at once, without a trace outside of its directory."""

    @property
    def url_variable(self) -> str:
        """The environment variable with the URL of a server to use."""
        return f"MEMORYD_TEST_{self.name.upper()}_URL"

    @property
    def mark(self) -> pytest.MarkDecorator:
        """The mark of tests that need such a server: it is started while others run."""
        found: pytest.MarkDecorator = getattr(pytest.mark, self.name)
        return found

    @abstractmethod
    def programs(self) -> tuple[Path, Path] | None:
        """The program that makes a data directory and the one that serves it, if they are installed."""

    @abstractmethod
    def make_command(self, program: Path, data: Path) -> list[str]:
        """Makes the data directory, with an administrator who needs no password."""

    @abstractmethod
    def serve_command(self, program: Path, data: Path, port: int) -> list[str]:
        """Serves it on the loopback interface, in the foreground."""

    @abstractmethod
    def local_url(self, port: int) -> URL:
        """The administrator's URL of a server that `serve_command` runs."""

    @abstractmethod
    def create_statement(self, database: str) -> str:
        """Creates a database."""

    @abstractmethod
    async def drop(self, connection: AsyncConnection, database: str) -> None:
        """Drops a database, connections to it notwithstanding."""


class _PostgreSQL(Kind):
    name = "postgresql"
    title = "PostgreSQL"
    driver = "postgresql+asyncpg"
    packages = "postgresql"
    compose_url = "postgresql://memoryd:memoryd@127.0.0.1:15432/postgres"
    lock_limit = "SET lock_timeout = '2s'"
    stop_signal = signal.SIGINT
    end_signal = signal.SIGQUIT

    def programs(self) -> tuple[Path, Path] | None:
        # Debian has the programs of each version in a directory of their own, outside of PATH.
        versions = [file.parent for file in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
        newest_first = sorted(versions, key=lambda programs: float(programs.parent.name), reverse=True)
        return _find("initdb", "postgres", *newest_first)

    def make_command(self, program: Path, data: Path) -> list[str]:
        access = ["--username=postgres", "--auth=trust"]
        return [str(program), "--pgdata", str(data), "--encoding=UTF8", "--locale=C", "--no-sync", *access]

    def serve_command(self, program: Path, data: Path, port: int) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": "",
            "max_connections": CONNECTIONS,
            "dynamic_shared_memory_type": "mmap",
        }
        return [str(program), "-D", str(data), *(f"--{name}={value}" for name, value in settings.items())]

    def local_url(self, port: int) -> URL:
        return URL.create("postgresql", "postgres", host="127.0.0.1", port=port, database="postgres")

    def create_statement(self, database: str) -> str:
        # Sorted as people read, as many databases are: what needs the order of bytes must say so itself.
        collation = "ENCODING UTF8 LOCALE 'C' LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
        return f"CREATE DATABASE {database} TEMPLATE template0 {collation}"

    async def drop(self, connection: AsyncConnection, database: str) -> None:
        await connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")


class _MariaDB(Kind):
    name = "mariadb"
    title = "MariaDB"
    driver = "mysql+asyncmy"
    packages = "mariadb-server-core mariadb-client-core"
    compose_url = "mysql://root:memoryd@127.0.0.1:13306/mysql"
    lock_limit = "SET SESSION innodb_lock_wait_timeout = 2"
    stop_signal = signal.SIGTERM
    end_signal = signal.SIGKILL

    def programs(self) -> tuple[Path, Path] | None:
        return _find("mariadb-install-db", "mariadbd", Path("/usr/sbin"), Path("/usr/local/sbin"))

    def make_command(self, program: Path, data: Path) -> list[str]:
        access = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        return [str(program), "--no-defaults", f"--datadir={data}", *access]

    def serve_command(self, program: Path, data: Path, port: int) -> list[str]:
        return [
            str(program),
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

    def local_url(self, port: int) -> URL:
        return URL.create("mysql", "root", host="127.0.0.1", port=port, database="mysql")

    def create_statement(self, database: str) -> str:
        # The default of long-lived servers, which cannot hold what is stored: the schema must say utf8mb4 itself.
        return f"CREATE DATABASE {database} CHARACTER SET latin1"

    async def drop(self, connection: AsyncConnection, database: str) -> None:
        # Dropping waits for transactions that have read the tables, so their connections go first.
        sessions = await connection.exec_driver_sql(
            f"SELECT id FROM information_schema.processlist WHERE db = '{database}'"
        )
        for number in sessions.scalars().all():
            await connection.exec_driver_sql(
                f"BEGIN NOT ATOMIC DECLARE CONTINUE HANDLER FOR 1094 DO 0; KILL {number}; END"
            )
        await connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {database}")


def _find(maker: str, server: str, *before_path: Path) -> tuple[Path, Path] | None:
    directories = os.pathsep.join([*map(str, before_path), *os.get_exec_path()])
    found = shutil.which(maker, path=directories), shutil.which(server, path=directories)
    return (Path(found[0]), Path(found[1])) if found[0] and found[1] else None


POSTGRESQL: Final = _PostgreSQL()
MARIADB: Final = _MariaDB()
KINDS: Final[tuple[Kind, ...]] = (POSTGRESQL, MARIADB)
