"""What the tests need to know of a kind of database server."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import urlsplit

import pytest

_DEFAULT_PORTS: Final = {"postgresql": 5432, "mysql": 3306, "redis": 6379, "mongodb": 27017}


class Kind(ABC):
    """A kind of database server. A server is known by its URL: the administrator's, without a database."""

    name: ClassVar[str]
    """In marks, names of parameters, and names of directories."""
    title: ClassVar[str]
    packages: ClassVar[str] = ""
    """What to install on Debian, where it has packages of it."""
    compose_url: ClassVar[str]
    """Where `docker compose -f tests/compose.yaml up` serves it."""
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    """Ends the server in order, without waiting for its clients."""
    end_signal: ClassVar[signal.Signals] = signal.SIGKILL
    """Ends the server at once, without a trace outside of its directory."""
    refuses_root: ClassVar[bool] = False
    """Whether it has to run as somebody else where the tests run as root."""
    nodes: ClassVar[int] = 1
    """How many processes, each with a port and data of its own, make one server."""
    is_atomic: ClassVar[bool] = True
    """Whether concurrent updates are right: without that, it is no ground for tests of several callers."""

    @property
    def url_variable(self) -> str:
        """The environment variable with the URL of a server to use."""
        return f"MEMORYD_TEST_{self.name.upper()}_URL"

    @property
    def mark(self) -> pytest.MarkDecorator:
        """The mark of tests that need such a server: it is started while others run."""
        found: pytest.MarkDecorator = getattr(pytest.mark, self.name)
        return found

    @property
    def how_to_install(self) -> str:
        """A sentence."""
        return f"On Debian or Ubuntu: apt-get install {self.packages}"

    @abstractmethod
    def programs(self) -> tuple[Path, ...] | None:
        """The programs that the commands run, if they are installed."""

    def make_command(self, programs: Sequence[Path], data: Path) -> list[str]:
        """Makes the data directory, with an administrator who needs no password."""
        return ["mkdir", str(data)]

    @abstractmethod
    def serve_command(self, programs: Sequence[Path], data: Path, port: int) -> list[str]:
        """Serves it on the loopback interface, in the foreground."""

    def unite(self, ports: Sequence[int]) -> None:  # noqa: B027 - most are one process
        """Makes one server of its nodes, all of which run."""

    def share(self, ports: Sequence[int]) -> None:  # noqa: B027 - most are as steady as they get
        """Prepares a server that no test stops, but that many use at once."""

    @abstractmethod
    def local_url(self, ports: Sequence[int]) -> str:
        """The URL of a server that `serve_command` runs."""

    @abstractmethod
    def database_url(self, server: str, database: str) -> str:
        """The URL of a database, as a user gives it to memoryd."""

    @abstractmethod
    def answers(self, server: str) -> bool:
        """Whether the server does what it is asked."""

    def create(self, server: str, database: str) -> None:  # noqa: B027 - it may come with its first use
        """Creates a database."""

    @abstractmethod
    def drop(self, server: str, database: str) -> None:
        """Drops a database, connections to it notwithstanding."""

    @abstractmethod
    def empty(self, url: str) -> bool:
        """Deletes what tests have put into a database. Returns: whether it could."""


def find_programs(*names: str, before_path: Sequence[Path] = ()) -> tuple[Path, ...] | None:
    """Where programs are, in some directories or those of PATH, if all of them are there."""
    directories = os.pathsep.join([*map(str, before_path), *os.get_exec_path()])
    found = [shutil.which(name, path=directories) for name in names]
    return tuple(Path(path) for path in found if path) if all(found) else None


def addresses(url: str) -> list[tuple[str, int]]:
    """The hosts and ports that a URL names."""
    parts = urlsplit(url)
    hosts = [host.partition(":") for host in parts.netloc.rpartition("@")[2].split(",")]
    return [(name, int(port or _DEFAULT_PORTS[parts.scheme])) for name, _, port in hosts]


def is_served(url: str) -> bool:
    """Whether something takes connections at all the addresses of a URL."""
    return all(map(is_open, addresses(url)))


def is_open(address: tuple[str, int]) -> bool:
    """Whether something takes connections at an address."""
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True
