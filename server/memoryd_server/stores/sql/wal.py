"""SQLite's write-ahead log: when it is written back into the database.

SQLite by itself does so inside a commit, which waits for it, and again in every commit while a reader is in its way.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import Final

from memoryd_server.limits import MIB

PAGE_BYTES: Final = 4096
"""SQLite's default."""

PAGES_A_CHANGE: Final = 8
"""About so many pages a change with a small message writes: of the tables, their indexes and what leads to them."""

CHECKPOINT_PAGES: Final = 1_000
"""Pages after which the log is written back: SQLite's default."""

LONG_LOG_PAGES: Final = 64 * MIB // PAGE_BYTES
"""Pages from which on it waits for the readers that keep the log from beginning anew: it must not grow for ever."""

READER_WAIT_MILLISECONDS: Final = 200
"""How long it waits for them, once for every LONG_LOG_PAGES: beyond that, the log grows until they end."""


class WriteAheadLog:
    """The log of a database, on the connection of its writer, whose automatic checkpoints are off."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute
        self._pages = 0
        self._too_long = LONG_LOG_PAGES

    def grow(self, changes: int, size: int) -> None:
        """Notes what a commit wrote: so many changes, with bodies of so many bytes."""
        self._pages += changes * PAGES_A_CHANGE + size // PAGE_BYTES

    def tidy(self) -> None:
        """Writes the log back when it is time to."""
        if self._pages < CHECKPOINT_PAGES:
            return
        self._pages = 0
        with suppress(sqlite3.Error):  # The log is whole; the next write tells what is wrong.
            _, pages = self._checkpoint("PASSIVE")
            if pages >= self._too_long:
                self._begin_anew()

    def _begin_anew(self) -> None:
        self._execute(f"PRAGMA busy_timeout = {READER_WAIT_MILLISECONDS}")
        try:
            busy, pages = self._checkpoint("RESTART")
        finally:
            self._execute("PRAGMA busy_timeout = 0")
        self._too_long = LONG_LOG_PAGES + (pages if busy else 0)

    def close(self) -> None:
        """Writes everything back and empties the log, if nobody else uses it."""
        with suppress(sqlite3.Error):
            self._checkpoint("TRUNCATE")

    def _checkpoint(self, mode: str) -> tuple[bool, int]:
        """Returns: whether another connection was in the way; how many pages the log holds, -1 when that is unknown."""
        busy, pages, _ = self._execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        return bool(busy), pages
