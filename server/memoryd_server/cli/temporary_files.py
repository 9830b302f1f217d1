"""Files that are written beside what they then replace, and what is left of them when a process is killed meanwhile."""

import contextlib
import os
import re
import time
from collections.abc import Callable
from secrets import token_hex
from typing import Final

ABANDONED_SECONDS: Final = 60.0
"""Nobody writes a temporary file any more that was not written to for so long: the largest has a few MiB."""

_FORM: Final = re.compile(r"\.(.+)\.[0-9a-f]{12}\.tmp")


def temporary_name(name: str) -> str:
    """The name of a new temporary file that will replace the file of a name."""
    return f".{name}.{token_hex(6)}.tmp"


def is_temporary(entry: os.DirEntry[str], of: Callable[[str], bool]) -> bool:
    """Whether something in a folder is a temporary file, made for a name of which `of` says so. Raises: OSError."""
    form = _FORM.fullmatch(entry.name)
    return form is not None and of(form[1]) and entry.is_file(follow_symlinks=False)


def remove_abandoned(folder: int, of: Callable[[str], bool]) -> None:
    """Removes what killed processes left in an open folder; what cannot be removed stays. Raises: OSError."""
    latest = time.time() - ABANDONED_SECONDS
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if is_temporary(entry, of)]
    for entry in found:
        with contextlib.suppress(OSError):  # Somebody else removed it, or nobody may write into the folder.
            if os.stat(entry.name, dir_fd=folder, follow_symlinks=False).st_mtime < latest:
                os.unlink(entry.name, dir_fd=folder)
