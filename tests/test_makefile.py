"""The Makefile, where its targets are not what CI runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.servers import memoryd_environment

ROOT = Path(__file__).parents[1]


def test_make_sets_no_variable_that_memoryd_would_take_for_a_setting() -> None:
    """`make serve` and `make demo` would not start."""
    show = ["make", "--no-print-directory", "--eval=show-environment: ; @env", "show-environment"]
    shown = subprocess.run(show, cwd=ROOT, env=memoryd_environment(), capture_output=True, text=True, check=True)
    assert "PATH=" in shown.stdout
    assert not [line for line in shown.stdout.splitlines() if line.startswith("MEMORYD_")]
