"""Real servers for tests: `memoryd serve` as processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from memoryd_server.stores.fallbacks import VARIABLES

MEMORYD: Final = Path(sys.executable).parent / "memoryd"
START_SECONDS: Final = 60


def memoryd_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a memoryd process: this one's, without settings of memoryd and what stands in for them."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("MEMORYD_") and name not in VARIABLES
    }
    return kept | dict(extra or {})


class ServerProcess:
    """A server in a process of its own, on a free port of the loopback interface unless its arguments name another."""

    def __init__(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        log: Path,
        wrapper: Sequence[str] = (),
    ) -> None:
        listen = [] if "--listen" in arguments else ["--listen", "127.0.0.1:0"]
        self._command = [*wrapper, str(MEMORYD), "serve", *listen, *arguments]
        self._environment = memoryd_environment(environment)
        self._log = log
        self.address = ""
        self.process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        with self._log.open("a") as log:
            process = subprocess.Popen(
                self._command, env=self._environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("memoryd serves on "):
            process.kill()
            raise RuntimeError(f"the server did not start: {line!r}\n{self.log_text()}")
        self.address = line.removeprefix("memoryd serves on ").strip()
        return process

    def log_text(self) -> str:
        """What the server has logged so far."""
        return self._log.read_text() if self._log.exists() else ""

    def kill(self) -> None:
        """Ends the server at once, as a crash would."""
        self.process.kill()
        self._reap()

    def stop(self) -> int:
        """Drains the server. Returns: its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self._reap()

    def restart(self) -> None:
        """Starts it again after `kill` or `stop`, on another free port."""
        self.process = self._start()

    def _reap(self) -> int:
        status = self.process.wait(START_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return status

    def close(self) -> None:
        """Ends the server if it still runs."""
        if self.process.poll() is None:
            self.kill()
