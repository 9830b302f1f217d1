"""A real model on the loopback interface, in pytest: started for the tests that use it, named at the end where it is
missing.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.databases.shared import is_ci
from tests.summarizers import model_server

PACKAGES: Final = Path(__file__).parents[2] / "build" / "tools" / "model-server"
"""Where `make test-deps` installs the server and the model."""

MISSING: Final = (
    "The language model and its server are missing: `make test-deps` installs them, where packages can be had"
)


@pytest.fixture(scope="session")
def model_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of an OpenAI-compatible endpoint with a real, small model behind it. It is one for each worker."""
    if not PACKAGES.is_dir():
        (pytest.fail if is_ci() else pytest.skip)(MISSING)
    log = tmp_path_factory.mktemp("model") / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-I", model_server.__file__, str(PACKAGES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
        )
    # It ends with its standard input, so also when this process is killed.
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip()
        if not address:
            pytest.fail(f"the model is not served:\n{log.read_text(errors='replace')[-4000:]}")
        yield f"{address}/v1"
        process.stdin.close()
        process.wait(60)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names the model where tests were skipped or failed for want of it."""
    told = [
        str(report.longrepr)
        for outcome in ("skipped", "failed", "error")
        for report in terminalreporter.stats.get(outcome, ())
    ]
    if count := sum(MISSING in text for text in told):
        terminalreporter.section(f"Not run for want of a language model: {count}", yellow=True)
        terminalreporter.line(MISSING)
