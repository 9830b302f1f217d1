"""Runs a database server for as long as someone holds its standard input open.

    python keeper.py DIRECTORY END_SIGNAL OWNER -- MAKE… -- SERVE…

The holder may end in any way, killed included: then the server ends at once, and DIRECTORY is removed, as is the one
that it is in when that is empty then. When the server ends otherwise, so does the keeper, and the data stays. MAKE runs
first where DIRECTORY holds no data yet. Both run as OWNER, where one is given. Standard output tells the process id of
the server.
"""

from __future__ import annotations

import os
import pwd
import select
import shutil
import subprocess
import sys
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, Final

DATA: Final = "data"
ENDED: Final = "ended"
"""Names in DIRECTORY: the data of the server; the mark that nothing runs on it any more."""


def main(directory: Path, end_signal: int, owner: str, make: list[str], serve: list[str]) -> int:
    try:
        return keep(directory, end_signal, owner, make, serve)
    finally:
        if directory.exists():
            (directory / ENDED).touch()


def keep(directory: Path, end_signal: int, owner: str, make: list[str], serve: list[str]) -> int:
    run_as: dict[str, Any] = {"stdin": subprocess.DEVNULL, "cwd": directory}
    if owner:
        run_as |= {"user": owner, "group": pwd.getpwnam(owner).pw_gid, "extra_groups": ()}
    if not (directory / DATA).exists():
        subprocess.run(make, stdout=sys.stderr, check=True, **run_as)

    # The output is a pipe that every process of the server inherits: it closes when the last of them has gone.
    server = subprocess.Popen(serve, stdout=subprocess.PIPE, **run_as)
    assert server.stdout is not None
    print(server.pid, flush=True)
    watched = [sys.stdin.fileno(), server.stdout.fileno()]
    while True:
        for ready in select.select(watched, [], [])[0]:
            if os.read(ready, 65536):
                continue
            if ready == server.stdout.fileno():
                return server.wait()
            watched.remove(ready)
            server.send_signal(end_signal)
            server.stdout.read()
            server.wait()
            shutil.rmtree(directory, ignore_errors=True)
            # The last of several nodes leaves nothing in there.
            with suppress(OSError):
                directory.parent.rmdir()
            return 0


if __name__ == "__main__":
    first, making, serving = (list(part) for is_rule, part in groupby(sys.argv[1:], "--".__eq__) if not is_rule)
    sys.exit(main(Path(first[0]), int(first[1]), first[2], making, serving))
