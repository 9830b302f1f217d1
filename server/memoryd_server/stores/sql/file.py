"""Whether the file that a connection has open is still the one that its name leads to.

A file that was removed or replaced while it is open goes on taking commits that nobody will find again, and SQLite does
not notice.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from memoryd_server.stores.base import StoreUnavailable


class DatabaseFile:
    """The file behind a connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """The connection has just been opened. One without a file has nothing to lose, and always passes."""
        (_, _, name) = connection.execute("PRAGMA database_list").fetchone()
        self._path = Path(name) if name else None
        self._identity = self._look()

    def check(self) -> None:
        """Raises: StoreUnavailable when the name leads to no file, or to another one."""
        if self._look() != self._identity:
            raise StoreUnavailable(
                "The SQLite file was removed or replaced while the server had it open, and nobody would find what is "
                "written to it. Put the file back if you can, and restart every server on it."
            )

    def _look(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        try:
            found = self._path.stat()
        except OSError:
            return 0, 0
        return found.st_dev, found.st_ino


def make_private(path: str | None) -> None:
    """Makes an empty database that only its owner may read, if there is no file yet. SQLite's other files follow it."""
    if path and path != ":memory:":
        try:
            Path(path).touch(mode=0o600, exist_ok=False)
        except OSError:
            return  # It is there, or cannot be made: opening it says why.
