"""Drivers as processes: one a language, which does with its SDK what it is told (conformance.proto)."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import pytest
from google.protobuf import json_format

from tests.conformance import conformance_pb2 as pb
from tests.databases.shared import is_ci

ROOT: Final = Path(__file__).parents[2]
REPLY_SECONDS: Final = 60
"""How long a reply may take on a busy machine, where the command itself does not wait."""


def _java_command() -> list[str]:
    folder = ROOT / "clients/java/target"
    libraries = (folder / "conformance.classpath").read_text().strip()
    path = os.pathsep.join([str(folder / "classes"), str(folder / "test-classes"), libraries])
    # Java names files in the encoding of the locale, which C has none of but for ASCII, and no flag changes that.
    java = ["env", "LC_ALL=C.UTF-8", "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return [*java, "-cp", path, "dev.memoryd.conformance.Driver"]


@dataclass(frozen=True)
class Language:
    """An SDK's language."""

    name: str
    title: str
    """As people write it."""
    tools: tuple[str, ...]
    """What building its driver needs."""
    built: Path
    """What is there once it is built (`make conformance-drivers`)."""
    command: Callable[[], Sequence[str]]
    features: frozenset[str] = frozenset()
    """What its SDK has and not every one: `Hello.features`."""

    @property
    def missing(self) -> str:
        """Why it cannot run here; empty when it can."""
        if lacking := [tool for tool in self.tools if shutil.which(tool) is None]:
            return f"there is no {', '.join(lacking)}"
        return "" if self.built.exists() else "its driver is not built: make conformance-drivers"


def require(language: Language) -> None:
    """Where a language's driver cannot run, skips the test, or fails it if CI runs it, which leaves nothing out. The
    end of the output names what was.
    """
    if language.missing:
        (pytest.fail if is_ci() else pytest.skip)(f"the SDK for {language.title}: {language.missing}")


RESPONSES: Final = frozenset({"openai_responses"})
"""Converters of OpenAI's Responses."""

_GO: Final = ROOT / "build/conformance/go-driver"
_TYPESCRIPT: Final = ROOT / "clients/typescript/build/conformance/conformance/driver.js"

LANGUAGES: Final = (
    Language(
        "python",
        "Python",
        (),
        Path(sys.executable),
        lambda: [sys.executable, "-m", "tests.conformance.python.driver"],
        RESPONSES,
    ),
    Language("typescript", "TypeScript", ("node", "npm"), _TYPESCRIPT, lambda: ["node", str(_TYPESCRIPT)], RESPONSES),
    Language("go", "Go", ("go",), _GO, lambda: [str(_GO)]),
    Language("java", "Java", ("java", "mvn"), ROOT / "clients/java/target/conformance.classpath", _java_command),
)


class DriverFault(Exception):
    """A driver could not do what it was told, or is gone."""


class Driver:
    """A driver's process. Commands may be sent by several threads."""

    def __init__(self, language: Language, log: Path) -> None:
        self.language = language.name
        self._log = log
        self._errors = log.open("ab")
        self._process = subprocess.Popen(
            language.command(), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input: IO[bytes] = self._process.stdin
        self._output: IO[bytes] = self._process.stdout
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[pb.Reply]] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, name=f"{language.name}-driver", daemon=True)
        self._reader.start()

    def connect(self, address: str, client: str = "", **options: Any) -> pb.Hello:
        """Makes one of its clients; `options` as in `Connect`."""
        return self.call(pb.Command(client=client, connect=pb.Connect(address=address, **options))).hello

    def send(self, command: pb.Command) -> Future[pb.Reply]:
        """Sends a command without waiting for its reply. The driver carries out several at once."""
        command.id = next(self._numbers)
        reply: Future[pb.Reply] = Future()
        line = json_format.MessageToJson(command, indent=None, ensure_ascii=False).encode() + b"\n"
        with self._lock:
            self._waiting[command.id] = reply
            try:
                self._input.write(line)
                self._input.flush()
            except OSError as error:
                raise DriverFault(self._ended()) from error
        return reply

    def reply(self, command: pb.Command, seconds: float = REPLY_SECONDS) -> pb.Reply:
        """Sends a command, and waits for its reply, which may be a failure. Raises DriverFault, TimeoutError."""
        reply = self.send(command).result(seconds)
        if reply.fault:
            raise DriverFault(f"the {self.language} driver: {reply.fault}\n{self.log_text()[-2000:]}")
        return reply

    def call(self, command: pb.Command, seconds: float = REPLY_SECONDS) -> pb.Reply:
        """Likewise, where it must succeed."""
        reply = self.reply(command, seconds)
        assert not reply.HasField("failure"), reply.failure
        return reply

    def _read(self) -> None:
        for line in self._output:
            reply = json_format.Parse(line, pb.Reply())
            with self._lock:
                waiting = self._waiting.pop(reply.id)
            waiting.set_result(reply)
        self._process.wait()
        with self._lock:
            left, self._waiting = self._waiting, {}
        for waiting in left.values():
            waiting.set_exception(DriverFault(self._ended()))

    def _ended(self) -> str:
        return f"the {self.language} driver has ended with {self._process.poll()}:\n{self.log_text()[-2000:]}"

    def log_text(self) -> str:
        """What it wrote for people."""
        return self._log.read_text("utf-8", "replace")

    def close(self) -> int:
        """Ends it. Returns: its exit status."""
        self._input.close()
        try:
            status = self._process.wait(REPLY_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._reader.join()
        self._output.close()
        self._errors.close()
        return status
