"""Where tests keep their files, those of databases included: in memory, where there is room.

Databases wait for the disk at each commit, and thousands of tests commit. What a test can see does not depend on that:
it kills processes, and what these have written outlives them in memory as on a disk. Whether memoryd waits for the disk
is told by its calls to the system.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

_IN_MEMORY: Final = Path("/dev/shm")
_ROOM_BYTES: Final = 4 * 1024**3
"""Several times what a run of all tests fills: containers often have 64 MiB there."""


def keep_files_in_memory() -> None:
    """Makes it the directory of temporary files, for this process and those that it starts, unless somebody named
    another. Programs must be able to run from there: tests install some.
    """
    if "TMPDIR" in os.environ or not os.access(_IN_MEMORY, os.W_OK | os.X_OK):
        return
    there = os.statvfs(_IN_MEMORY)
    if there.f_bavail * there.f_frsize >= _ROOM_BYTES and not there.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = str(_IN_MEMORY)
