"""The command line as a user runs it: as a process, or (where that makes no difference) quicker, in this one."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pty
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from memoryd_server.cli import main
from tests.process_logging import logging_put_back
from tests.servers import MEMORYD, START_SECONDS, memoryd_environment


def environment(address: str = "", extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a command sees: the server's address, and 80 columns."""
    given = {"MEMORYD_ADDRESS": address} if address else {}
    return memoryd_environment({"COLUMNS": "80", **given, **(extra or {})})


def memoryd(*arguments: str, address: str = "", stdin: str = "", **extra: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(
        [str(MEMORYD), *arguments],
        env=environment(address, extra),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )


def memoryd_ok(*arguments: str, address: str, stdin: str = "") -> str:
    """Runs a command that must succeed. Returns: its standard output."""
    done = memoryd(*arguments, address=address, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def started(*arguments: str, address: str = "") -> subprocess.Popen[str]:
    """Starts a command, in a process group of its own."""
    return subprocess.Popen(
        [str(MEMORYD), *arguments],
        env=environment(address),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _ends(process: subprocess.Popen[str], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def at_a_terminal(
    *arguments: str, address: str, typed: str, meanwhile: Callable[[], object] = lambda: None
) -> subprocess.CompletedProcess[str]:
    """Runs a command whose standard input is a terminal, where a person types once asked; its output goes elsewhere.
    `meanwhile` is what happens between the question and the answer.
    """
    terminal, stdin = pty.openpty()
    try:
        process = subprocess.Popen(
            [str(MEMORYD), *arguments],
            env=environment(address),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Ctrl-C reaches the foreground group of the terminal that a process belongs to.
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )
        assert process.stdout is not None
        assert process.stderr is not None
        with process.stdout as stdout, process.stderr as stderr:
            error = ""
            while not error.endswith("[y/N] "):
                read = stderr.read(1)
                assert read, f"it ended without a question: {error}"
                error += read
            meanwhile()
            os.write(terminal, typed.encode())
            # A Ctrl-C between the question and the wait for its answer is seen with the next one only: a person, too,
            # would press it again.
            while not _ends(process, seconds=2):
                os.write(terminal, typed.encode())
            error += stderr.read()
            output = stdout.read()
    finally:
        os.close(terminal)
        os.close(stdin)
    return subprocess.CompletedProcess(arguments, process.returncode, output, error)


def write_lines(path: Path, values: Iterable[Any]) -> Path:
    """Writes JSON Lines; a text among the values becomes a line as it is."""
    path.write_text(
        "".join(f"{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}\n" for value in values),
        "utf-8",
    )
    return path


class Here:
    """Runs commands in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def memoryd(self, *arguments: str, address: str = "", **extra: str) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end."""
        self._capsys.readouterr()
        status: object = 0
        with logging_put_back(), self._monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["memoryd", *arguments])
            for name in set(os.environ) - set(memoryd_environment()):
                patch.delenv(name)
            for name, value in environment(address, extra).items():
                patch.setenv(name, value)
            # A command that sets up logs has them written to what is standard error while it runs.
            patch.setattr(logging.root, "handlers", [])
            try:
                main()
            except SystemExit as ended:
                status = ended.code
        output = self._capsys.readouterr()
        return subprocess.CompletedProcess(arguments, status if isinstance(status, int) else 0, output.out, output.err)

    def ok(self, *arguments: str, address: str, **extra: str) -> str:
        """Runs a command that must succeed. Returns: its standard output."""
        done = self.memoryd(*arguments, address=address, **extra)
        assert done.returncode == 0, done.stderr
        return done.stdout


def wait_for(condition: Callable[[], object]) -> None:
    """Waits until a condition holds."""
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
