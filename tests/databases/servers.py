"""Database servers: one at an address, or one that is run here."""

from __future__ import annotations

import asyncio
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, TypeVar

from sqlalchemy import URL, Row, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from tests.databases import keeper
from tests.databases.kinds import KINDS, Kind

Answer = TypeVar("Answer")

START_SECONDS: Final = 60
"""How long a server may take from nothing to its first answer: 2 s on an idle machine."""

PORTS: Final = range(20_000, 32_000)
"""Ports for servers: below those that systems give to clients, so that none of these (not even one that keeps trying to
reach a stopped server) sits on a server's port when it starts again."""

OWNER: Final = "nobody" if os.geteuid() == 0 else ""
"""Who runs the servers, which refuse to run as root; empty for the current user."""

_POLL_SECONDS: Final = 0.05
_LOG: Final = "log"


class DatabaseServer:
    """A database server at an address."""

    def __init__(self, kind: Kind, url: str | URL) -> None:
        self.kind = kind
        self._administrator = make_url(url)

    def url(self, database: str) -> str:
        """The URL of a database, as a user gives it to memoryd."""
        return self._administrator.set(database=database).render_as_string(hide_password=False)

    @contextmanager
    def new_database(self) -> Iterator[str]:
        """Creates an empty database. Yields: its URL. At the end it is dropped, whoever is still connected to it."""
        name = f"memoryd_{uuid.uuid4().hex}"
        execute(self._administrator, self.kind.create_statement(name))
        try:
            yield self.url(name)
        finally:
            _run(self._administrator, lambda connection: self.kind.drop(connection, name))

    def answers(self) -> bool:
        """Whether the server takes connections."""
        try:
            execute(self._administrator, "SELECT 1")
        except (OSError, DBAPIError):
            return False
        return True


class OwnServer(DatabaseServer):
    """A database server of the caller's own, which can be ended and started again on its port and its data.

    It ends with the process that started it, however that ends.
    """

    def __init__(self, kind: Kind, parent: Path | None = None) -> None:
        """Its data is in a new directory in `parent`, or where temporary files are."""
        self._directory = Path(tempfile.mkdtemp(prefix=f"memoryd-{kind.name}-", dir=parent))
        self._port = prepare(self._directory)
        super().__init__(kind, kind.local_url(self._port))
        self._pid = 0
        self._keeper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> OwnServer:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Starts the server, and waits until it answers."""
        self._keeper = start_keeper(self.kind, self._directory, self._port, subprocess.PIPE, subprocess.PIPE)
        assert self._keeper.stdout is not None
        self._pid = int(self._keeper.stdout.readline() or 0)
        wait_until_it_answers(self, self._directory)

    def stop(self) -> None:
        """Ends the server in order."""
        self._end(self.kind.stop_signal)

    def kill(self) -> None:
        """Ends the server as a crash would."""
        self._end(signal.SIGKILL)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Lets the server's processes stand still, as those of a machine that is overloaded: its connections stay open,
        it accepts new ones, and nothing answers."""
        # First the one that starts others. These may end by themselves at any time.
        _signal([self._pid], signal.SIGSTOP)
        processes = [self._pid, *_children(self._pid)]
        _signal(processes, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal(processes, signal.SIGCONT)

    def _end(self, with_signal: signal.Signals) -> None:
        assert self._keeper is not None, "the server does not run"
        os.kill(self._pid, with_signal)
        self._reap(self._keeper)

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        process.wait(START_SECONDS)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()
        self._keeper = None

    def close(self) -> None:
        """Ends the server if it still runs, and removes its data."""
        if self._keeper is not None:
            assert self._keeper.stdin is not None
            self._keeper.stdin.close()
            self._reap(self._keeper)
        shutil.rmtree(self._directory, ignore_errors=True)


def _signal(processes: Sequence[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def _children(process: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            # The name in parentheses may hold anything; the parent is the second field behind it.
            if int(stat.read_text().rpartition(")")[2].split()[1]) == process:
                found.append(int(stat.parent.name))
    return found


def prepare(directory: Path) -> int:
    """Lets OWNER keep a server's data in a new directory. Returns: a free port for the server."""
    if OWNER:
        user = pwd.getpwnam(OWNER)
        os.chown(directory, user.pw_uid, user.pw_gid)
    # From the system: Hypothesis makes the common generator give the same numbers in all workers.
    generator = random.SystemRandom()
    while True:
        port = generator.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def start_keeper(
    kind: Kind, directory: Path, port: int, lifeline: int | IO[bytes], output: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    """Starts a server on what `prepare` prepared, to run while `lifeline` is held open at its other end."""
    programs = kind.programs()
    assert programs is not None, f"{kind.title} is not installed"
    data = directory / keeper.DATA
    (directory / keeper.ENDED).unlink(missing_ok=True)
    with (directory / _LOG).open("ab") as log:
        return subprocess.Popen(
            [
                *(sys.executable, "-I", keeper.__file__),
                *(str(directory), str(int(kind.end_signal)), OWNER),
                *("--", *kind.make_command(programs[0], data)),
                *("--", *kind.serve_command(programs[1], data, port)),
            ],
            stdin=lifeline,
            stdout=output,
            stderr=log,
            # Ctrl-C in a terminal is for the tests: they end the server when they have ended.
            start_new_session=True,
        )


def wait_until_it_answers(server: DatabaseServer, directory: Path) -> None:
    """Raises: RuntimeError with the end of the server's log when it ends instead, or takes over START_SECONDS."""
    deadline = time.monotonic() + START_SECONDS
    while not server.answers():
        if (directory / keeper.ENDED).exists() or time.monotonic() > deadline:
            log = (directory / _LOG).read_text(errors="replace")
            raise RuntimeError(f"{server.kind.title} did not start:\n{log[-4000:]}")
        time.sleep(_POLL_SECONDS)


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


def _run(url: str | URL, work: Callable[[AsyncConnection], Awaitable[Answer]]) -> Answer:
    """Does work on a connection of its own, on a thread of its own: an event loop may run on this one already."""

    async def connected() -> Answer:
        engine = create_async_engine(_with_driver(make_url(url)), poolclass=NullPool, isolation_level="AUTOCOMMIT")
        async with engine.connect() as connection:
            return await work(connection)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, connected()).result()


def _with_driver(url: URL) -> URL:
    driver = next(kind.driver for kind in KINDS if kind.driver.startswith(url.get_backend_name()))
    return url.set(drivername=driver)
