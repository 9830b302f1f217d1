"""The database servers of a test run: one of each kind, shared by all of its workers.

A server is the one whose URL the environment gives, or else one that is started here, or else the one of
`tests/compose.yaml`. The first worker that needs a server of its kind starts it. It lives as long as the process that
pytest began with holds its end of a pipe, so nothing is left over when that process is killed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.databases.kind import Kind, is_served
from tests.databases.kinds import KINDS
from tests.databases.servers import (
    DatabaseServer,
    free_ports,
    make_directory,
    start_keeper,
    unite,
    wait_until_it_answers,
)

_END_SECONDS: Final = 60
_POLL_SECONDS: Final = 0.02
_LIFELINE: Final = "lifeline"
_PORTS: Final = "ports"
_UNITED: Final = "united"
"""Names of files in a server's directory: its ports; the mark that its nodes are one server."""


class SharedServers:
    """The servers as one process of the test run sees them."""

    def __init__(self, directory: Path, given_urls: Mapping[str, str]) -> None:
        self.directory: Final = directory
        self.given_urls: Final = given_urls
        """URLs from the environment, by name of kind."""
        self.used: defaultdict[Kind, list[str]] = defaultdict(list)
        """Databases that tests have used, to be used again."""
        self._kept = ExitStack()
        self._found: dict[Kind, DatabaseServer] = {}
        self._keepers: list[subprocess.Popen[bytes]] = []

    def missing(self, kind: Kind, *, to_be_stopped: bool = False) -> str | None:
        """Why there is no server of the kind, and what to do about it; None when there is one.

        One that is `to_be_stopped` by a test is started by it: an address of a server is not enough then.
        """
        if kind.programs():
            return None
        if to_be_stopped:
            return f"{kind.title} is not installed, which tests that stop it need. {kind.how_to_install}"
        if kind.name in self.given_urls or is_served(kind.compose_url):
            return None
        elsewhere = f"docker compose -f tests/compose.yaml up --wait, or {kind.url_variable}={kind.compose_url}"
        return f"{kind.title} is missing. {kind.how_to_install}. Elsewhere: {elsewhere}"

    def require(self, kind: Kind, *, to_be_stopped: bool = False) -> None:
        """Where there is no such server, skips the test, or fails it if CI runs it."""
        if reason := self.missing(kind, to_be_stopped=to_be_stopped):
            (pytest.fail if is_ci() else pytest.skip)(reason)

    def start(self, kind: Kind) -> None:
        """Has the server started, where it is one of ours and not yet started; does not wait for it."""
        if kind.name in self.given_urls or not kind.programs():
            return
        with self._locked(kind):
            directory = self.directory / kind.name
            if directory.exists():
                return
            directory.mkdir()
            # Whoever runs the nodes has to reach their directories.
            directory.chmod(0o711)
            ports = free_ports(kind.nodes)
            for port in ports:
                make_directory(kind, directory / str(port))
                # Opening must not wait for a process that holds the other end, reading must: it ends when none does.
                lifeline = os.open(self.directory / _LIFELINE, os.O_RDONLY | os.O_NONBLOCK)
                os.set_blocking(lifeline, True)
                self._keepers.append(start_keeper(kind, directory / str(port), port, lifeline, subprocess.DEVNULL))
                os.close(lifeline)
            (directory / _PORTS).write_text(" ".join(map(str, ports)))

    def server(self, kind: Kind) -> DatabaseServer:
        """The server of the kind; `require` says what happens where there is none."""
        if kind not in self._found:
            self._found[kind] = self._find(kind)
        return self._found[kind]

    def take_emptied(self, kind: Kind) -> str:
        """A database that nobody uses, emptied; a new one where there is none."""
        while self.used[kind]:
            url = self.used[kind].pop()
            # One that cannot be emptied is left alone.
            if kind.empty(url):
                return url
        return self._kept.enter_context(self.server(kind).new_database())

    def drop_used(self) -> None:
        """Drops the databases of this process."""
        self._kept.close()

    def _find(self, kind: Kind) -> DatabaseServer:
        self.require(kind)
        if kind.name in self.given_urls or not kind.programs():
            return DatabaseServer(kind, self.given_urls.get(kind.name, kind.compose_url))
        self.start(kind)
        directory = self.directory / kind.name
        ports = [int(port) for port in (directory / _PORTS).read_text().split()]
        nodes = [directory / str(port) for port in ports]
        with self._locked(kind):
            if not (directory / _UNITED).exists():
                unite(kind, ports, nodes)
                kind.share(ports)
                (directory / _UNITED).touch()
        server = DatabaseServer(kind, kind.local_url(ports))
        wait_until_it_answers(server, nodes)
        return server

    @contextmanager
    def _locked(self, kind: Kind) -> Iterator[None]:
        """For one process of the run at a time."""
        with (self.directory / f"{kind.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class SharedServersHolder(SharedServers):
    """The servers as the process sees them that pytest began with, which holds them."""

    def __init__(self) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="memoryd-databases-")), urls_of_environment())
        for kind in KINDS:
            # Settings of memoryd have the same prefix, and it refuses those that it does not know.
            os.environ.pop(kind.url_variable, None)
        # The user who runs the servers has to reach their directories.
        self.directory.chmod(0o711)
        os.mkfifo(self.directory / _LIFELINE)
        self._lifeline = os.open(self.directory / _LIFELINE, os.O_RDWR)

    def close(self) -> None:
        """Ends the servers, and removes all data."""
        os.close(self._lifeline)
        for keeper in self._keepers:
            keeper.wait(_END_SECONDS)
        # Those that workers started are not ours to wait for; they remove their directories when all is over.
        deadline = time.monotonic() + _END_SECONDS
        while any(nodes_in(self.directory)) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        shutil.rmtree(self.directory, ignore_errors=True)


def urls_of_environment() -> dict[str, str]:
    """The servers that the environment names, by name of kind."""
    return {kind.name: url for kind in KINDS if (url := os.environ.get(kind.url_variable))}


def is_ci() -> bool:
    """Whether continuous integration runs the tests, where nothing may be missing."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def nodes_in(directory: Path) -> Iterator[Path]:
    """The data of servers, in the directory of a run, that are not yet removed."""
    return directory.glob("*/*/")


_of_this_run: list[SharedServers] = []


def use(servers: SharedServers) -> None:
    """Makes these the servers of the run."""
    _of_this_run[:] = [servers]


def of_this_run() -> SharedServers:
    """The servers of the run."""
    return _of_this_run[0]


@contextmanager
def emptied_database(kind: Kind) -> Iterator[str]:
    """A database on the run's server of the kind that holds nothing, but perhaps the tables of memoryd already: what
    most tests need, at a small part of what a new one and its migration cost. As a context with its URL.
    """
    servers = of_this_run()
    url = servers.take_emptied(kind)
    yield url
    servers.used[kind].append(url)


def new_database(kind: Kind) -> AbstractContextManager[str]:
    """A new, empty database on the run's server of the kind, as a context with its URL, dropped at its end.

    Where there is no such server, the test is skipped, or fails if CI runs it.
    """
    return of_this_run().server(kind).new_database()
