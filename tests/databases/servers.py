"""Database servers: one at an address, or one that is run here."""

from __future__ import annotations

import atexit
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
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from tests.databases import keeper
from tests.databases.kind import Kind, is_open

START_SECONDS: Final = 60
"""How long a server may take from nothing to its first answer: 2 s on an idle machine."""

PORTS: Final = range(22_000, 32_000)
"""Ports for servers: below those that systems give to clients, so that none of these (not even one that keeps trying to
reach a stopped server) sits on a server's port when it starts again. A node of a cluster has another 10,000 below."""

MOST_CLAIMS: Final = 200
"""Ports that a worker keeps from the others: more than tests need at once, fewer than a process may have open files."""

OWNER: Final = "nobody"
"""Who runs servers that refuse to run as root."""

_POLL_SECONDS: Final = 0.05
_ATTEMPTS_TO_END: Final = 12
_LOG: Final = "log"


class DatabaseServer:
    """A database server at an address."""

    def __init__(self, kind: Kind, url: str) -> None:
        self.kind = kind
        self._url = url

    def url(self, database: str) -> str:
        """The URL of a database, as a user gives it to memoryd."""
        return self.kind.database_url(self._url, database)

    @contextmanager
    def new_database(self) -> Iterator[str]:
        """Creates an empty database. Yields: its URL. At the end it is dropped, whoever is still connected to it."""
        name = f"memoryd_{uuid.uuid4().hex}"
        self.kind.create(self._url, name)
        try:
            yield self.url(name)
        finally:
            self.kind.drop(self._url, name)

    def answers(self) -> bool:
        """Whether the server does what it is asked."""
        return self.kind.answers(self._url)


class Node:
    """A process of a server of the caller's own, which can be ended and started again on its port and its data.

    It ends with the process that started it, however that ends.
    """

    def __init__(self, kind: Kind, directory: Path, port: int) -> None:
        self.directory: Final = directory
        self.port: Final = port
        self._kind = kind
        self._pid = 0
        self._hangs = False
        self._keeper: subprocess.Popen[bytes] | None = None
        make_directory(kind, directory)

    @property
    def is_at_work(self) -> bool:
        """Whether it runs, and does not hang."""
        return self._keeper is not None and not self._hangs

    def start(self) -> None:
        """Starts it; does not wait for it."""
        self._keeper = start_keeper(self._kind, self.directory, self.port, subprocess.PIPE, subprocess.PIPE)
        assert self._keeper.stdout is not None
        self._pid = int(self._keeper.stdout.readline() or 0)

    def stop(self) -> None:
        """Ends it in order."""
        self._end(self._kind.stop_signal)

    def kill(self) -> None:
        """Ends it as a crash would."""
        self._end(signal.SIGKILL)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Lets its processes stand still, as those of a machine that is overloaded: its connections stay open, it
        accepts new ones, and nothing answers."""
        # First the one that starts others. These may end by themselves at any time.
        _signal([self._pid], signal.SIGSTOP)
        processes = [self._pid, *_children(self._pid)]
        _signal(processes, signal.SIGSTOP)
        self._hangs = True
        try:
            yield
        finally:
            _signal(processes, signal.SIGCONT)
            self._hangs = False

    def close(self) -> None:
        """Ends it if it still runs."""
        if self._keeper is not None:
            assert self._keeper.stdin is not None
            self._keeper.stdin.close()
            self._reap(self._keeper)

    def _end(self, with_signal: signal.Signals) -> None:
        assert self._keeper is not None, "it does not run"
        # NX-27017 loses one that finds it in a callback of its event loop.
        for _ in range(_ATTEMPTS_TO_END):
            _signal([self._pid], with_signal)
            with suppress(subprocess.TimeoutExpired):
                self._keeper.wait(START_SECONDS / _ATTEMPTS_TO_END)
                break
        self._reap(self._keeper)

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        process.wait(START_SECONDS)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()
        self._keeper = None


class OwnServer(DatabaseServer):
    """A database server of the caller's own, all of whose nodes can be ended and started again."""

    def __init__(self, kind: Kind, parent: Path | None = None) -> None:
        """Its data is in a new directory in `parent`, or where temporary files are."""
        self._directory = Path(tempfile.mkdtemp(prefix=f"memoryd-{kind.name}-", dir=parent))
        # Whoever runs the nodes has to reach their directories.
        self._directory.chmod(0o711)
        ports = free_ports(kind.nodes)
        super().__init__(kind, kind.local_url(ports))
        self.nodes: Final = [Node(kind, self._directory / str(port), port) for port in ports]
        self._is_united = False

    def __enter__(self) -> Self:
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
        for node in self.nodes:
            node.start()
        directories = [node.directory for node in self.nodes]
        if not self._is_united:
            unite(self.kind, [node.port for node in self.nodes], directories)
            self._is_united = True
        wait_until_it_answers(self, directories)

    def stop(self) -> None:
        """Ends the server in order."""
        for node in self.nodes:
            node.stop()

    def kill(self) -> None:
        """Ends the server as a crash would."""
        for node in self.nodes:
            node.kill()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Lets the server's processes stand still."""
        with ExitStack() as hanging:
            for node in self.nodes:
                hanging.enter_context(node.hanging())
            yield

    def close(self) -> None:
        """Ends the server if it still runs, and removes its data."""
        for node in self.nodes:
            node.close()
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


def free_ports(count: int) -> list[int]:
    """Ports for servers that are about to be started.

    No other worker gets one of them either, not even while its server is stopped: a new server there would be taken for
    the one that is to come back, and a cluster would take its node in.
    """
    # From the system: Hypothesis makes the common generator give the same numbers in all workers.
    generator = random.SystemRandom()
    ports: list[int] = []
    while len(ports) < count:
        port = generator.choice(PORTS)
        claim = socket.socket(type=socket.SOCK_DGRAM)
        with socket.socket() as probe:
            try:
                claim.bind(("127.0.0.1", port))
                probe.bind(("127.0.0.1", port))
            except OSError:
                claim.close()
                continue
        _claims.append(claim)
        if len(_claims) > MOST_CLAIMS:
            _claims.popleft().close()
        ports.append(port)
    return ports


_claims: Final[deque[socket.socket]] = deque()
"""Hold the UDP ports of the numbers that were given out: no server uses them, and the system frees those of a worker
that ends, however it does."""


@atexit.register
def _give_up_claims() -> None:
    for claim in _claims:
        claim.close()


def make_directory(kind: Kind, directory: Path) -> None:
    """Makes the directory of a node, in which whoever runs it may keep its data."""
    directory.mkdir()
    if owner := _owner(kind):
        user = pwd.getpwnam(owner)
        os.chown(directory, user.pw_uid, user.pw_gid)


def _owner(kind: Kind) -> str:
    return OWNER if kind.refuses_root and os.geteuid() == 0 else ""


def start_keeper(
    kind: Kind, directory: Path, port: int, lifeline: int | IO[bytes], output: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    """Starts a node in what `make_directory` made, to run while `lifeline` is held open at its other end."""
    programs = kind.programs()
    assert programs is not None, f"{kind.title} is not installed"
    data = directory / keeper.DATA
    (directory / keeper.ENDED).unlink(missing_ok=True)
    with (directory / _LOG).open("ab") as log:
        return subprocess.Popen(
            [
                *(sys.executable, "-I", keeper.__file__),
                *(str(directory), str(int(kind.end_signal)), _owner(kind)),
                *("--", *kind.make_command(programs, data)),
                *("--", *kind.serve_command(programs, data, port)),
            ],
            stdin=lifeline,
            stdout=output,
            stderr=log,
            # Ctrl-C in a terminal is for the tests: they end the server when they have ended.
            start_new_session=True,
        )


def unite(kind: Kind, ports: Sequence[int], directories: Sequence[Path]) -> None:
    """Waits for the nodes of a new server, and makes them one.

    Raises: RuntimeError like `wait_until_it_answers`.
    """
    if kind.nodes > 1:
        _wait_for(lambda: all(is_open(("127.0.0.1", port)) for port in ports), kind, directories)
    kind.unite(ports)


def wait_until_it_answers(server: DatabaseServer, directories: Sequence[Path]) -> None:
    """Raises: RuntimeError with the ends of its logs when it ends instead, or takes over START_SECONDS."""
    _wait_for(server.answers, server.kind, directories)


def _wait_for(condition: Callable[[], bool], kind: Kind, directories: Sequence[Path]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline or any((directory / keeper.ENDED).exists() for directory in directories):
            logs = [(directory / _LOG).read_text(errors="replace")[-4000:] for directory in directories]
            raise RuntimeError("\n".join([f"{kind.title} did not start:", *logs]))
        time.sleep(_POLL_SECONDS)
