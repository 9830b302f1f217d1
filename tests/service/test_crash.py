"""A server that is killed in the middle of appends (invariants 2, 3 and 16), and what makes its commits durable."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from sqlalchemy import make_url

from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import message_pb2 as pb
from memoryd.v1 import session_pb2 as session
from memoryd_server.stores.sql.sqlite import SQLiteStore
from memoryd_server.stores.sql.writer import Writer
from tests.adapters import EACH_SHARED_ADAPTER
from tests.conftest import StartServer
from tests.servers import ServerProcess
from tests.service.wire import Stubs, as_sent, text

WRITERS = 6
BATCH = 3
ROUNDS = 3
ACKNOWLEDGED_A_ROUND = 60


@dataclass
class Writes:
    """What the writers were told."""

    enough: threading.Event = field(default_factory=threading.Event)
    acknowledged: dict[str, history.AppendMessagesResponse] = field(default_factory=dict)
    unanswered: list[str] = field(default_factory=list)


def batch(name: str) -> list[pb.Message]:
    return [text(f"{name} {place} " + "é" * 500, id=f"{name}/{place}") for place in range(BATCH)]


def write(address: str, key: session.SessionKey, name: str, writes: Writes, until: int) -> None:
    """Appends batches until the server is gone."""
    with Stubs(address) as stubs:
        for number in itertools.count():
            batch_name = f"{name}-{number}"
            request = history.AppendMessagesRequest(session=key, messages=batch(batch_name))
            try:
                writes.acknowledged[batch_name] = stubs.histories.AppendMessages(request, timeout=30)
            except grpc.RpcError:
                writes.unanswered.append(batch_name)
                return
            if len(writes.acknowledged) >= until:
                writes.enough.set()


@pytest.fixture(params=EACH_SHARED_ADAPTER)
def server_to_kill(
    request: pytest.FixtureRequest, start_server: StartServer, tmp_path: Path
) -> Iterator[ServerProcess]:
    """A server of the test's own on each adapter that keeps what it is given."""
    with request.param.emptied(tmp_path) as url:
        yield start_server("--store", f"default={url}", "--tokenizer", "estimate")


@pytest.mark.parametrize("sessions", [1, WRITERS], ids=["one session", "a session each"])
def test_what_was_acknowledged_survives_kill_9(server_to_kill: ServerProcess, agent: str, sessions: int) -> None:
    """Every acknowledged message is there after the restart, in its place, and no batch is there in part."""
    server = server_to_kill
    keys = [session.SessionKey(agent=agent, session_id=f"s{number}") for number in range(sessions)]
    writes = Writes()
    for round_ in range(ROUNDS):
        writes.enough.clear()
        until = len(writes.acknowledged) + ACKNOWLEDGED_A_ROUND
        threads = [
            threading.Thread(
                target=write, args=(server.address, keys[number % sessions], f"{round_}-{number}", writes, until)
            )
            for number in range(WRITERS)
        ]
        for thread in threads:
            thread.start()
        assert writes.enough.wait(60)
        server.kill()
        for thread in threads:
            thread.join()
        server.restart()

    assert len(writes.acknowledged) >= ROUNDS * ACKNOWLEDGED_A_ROUND
    assert len(writes.unanswered) == ROUNDS * WRITERS
    with Stubs(server.address) as stubs:
        stored = {message.id: message for key in keys for message in stubs.messages(key, page_size=1_000)}
        for key in keys:
            listed = stubs.messages(key, page_size=1_000)
            assert [message.seq for message in listed] == list(range(1, len(listed) + 1))
            assert stubs.session(key).message_count == len(listed)
    for name, answer in writes.acknowledged.items():
        for sent, appended in zip(batch(name), answer.messages, strict=True):
            assert as_sent(stored[sent.id]) == sent
            assert stored[sent.id].seq == appended.seq
    for name in writes.unanswered:
        present = [message.id in stored for message in batch(name)]
        assert all(present) or not any(present)
    assert len(stored) % BATCH == 0


def test_an_unanswered_append_is_repeated_after_the_crash(server_to_kill: ServerProcess, agent: str) -> None:
    """The look-ups that make a replay harmless survive, too (invariant 2)."""
    server = server_to_kill
    key = session.SessionKey(agent=agent, session_id="s")
    with Stubs(server.address) as stubs:
        first = stubs.append(key, *batch("a"), request_id="r")
    server.kill()
    server.restart()
    with Stubs(server.address) as stubs:
        assert stubs.append(key, *batch("a"), request_id="r") == first
        assert stubs.append(key, *batch("a")) == first
        assert [message.seq for message in stubs.messages(key)] == [1, 2, 3]


class TestDurableCommits:
    """A process that is killed loses nothing that reached the kernel, so that this alone would pass without durability:
    the database is told to wait for the disk, and it does."""

    async def test_the_writers_connection_is_synchronous(self, tmp_path: Path) -> None:
        store = SQLiteStore(make_url(f"sqlite:///{tmp_path / 'memoryd.db'}"))
        info = await store.open()

        def pragma(writer: Writer, name: str) -> int | str:
            (value,) = writer._connection.execute(f"PRAGMA {name}").fetchone()
            return value  # type: ignore[no-any-return]

        full, on = 2, 1
        assert info.durable
        assert await store._writer.run(pragma, "synchronous") == full
        assert await store._writer.run(pragma, "fullfsync") == on
        assert await store._writer.run(pragma, "checkpoint_fullfsync") == on
        assert await store._writer.run(pragma, "journal_mode") == "wal"
        await store.close()

    def test_each_commit_waits_for_the_disk(self, start_server: StartServer, tmp_path: Path, agent: str) -> None:
        """At least one fsync or fdatasync an append, made before its answer."""
        appends = 40
        server = start_server("--data-dir", str(tmp_path), "--tokenizer", "estimate")
        key = session.SessionKey(agent=agent, session_id="s")
        with Stubs(server.address) as stubs, syncs_of(server, tmp_path / "strace") as count:
            before = count()
            for number in range(appends):
                stubs.append(key, text(f"{number}"))
                assert count() >= before + number + 1


@contextmanager
def syncs_of(server: ServerProcess, output: Path) -> Iterator[Callable[[], int]]:
    """Counts the syncs that a server has ended since now, as strace sees them."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed: `make test-deps` installs it")
    tracer = subprocess.Popen(
        [strace, "-f", "-e", "trace=fsync,fdatasync", "-o", str(output), "-p", str(server.process.pid)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert tracer.stderr is not None
    told = tracer.stderr.readline()
    if "attached" not in told:
        tracer.wait()
        pytest.skip(f"strace cannot attach to a process here: {told.strip()}")
    ended = re.compile(r"(?:fsync|fdatasync)(?:\(\d+\)| resumed>\)) += 0")
    try:
        yield lambda: len(ended.findall(output.read_text()))
    finally:
        tracer.terminate()
        tracer.wait()
        tracer.stderr.close()
