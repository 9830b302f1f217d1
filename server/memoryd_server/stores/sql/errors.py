"""SQLite's errors as those of the contract."""

from __future__ import annotations

import re
import sqlite3
from typing import Final

from memoryd_server.stores.base import StoreMisconfigured, StoreUnavailable
from memoryd_server.stores.sql.migrate import TABLES_GONE, TABLES_NOT_OURS

_ADVICE: Final = {
    sqlite3.SQLITE_BUSY: "Another process kept it locked. Repeat the call; close what writes to the file for long.",
    sqlite3.SQLITE_LOCKED: "Another connection kept it locked. Repeat the call.",
    sqlite3.SQLITE_NOMEM: "Give the server more memory.",
    sqlite3.SQLITE_READONLY: "Let the user that memoryd runs as write to the file and to its directory.",
    sqlite3.SQLITE_INTERRUPT: "Repeat the call.",
    sqlite3.SQLITE_IOERR: "Look at the disk and at the system's log.",
    sqlite3.SQLITE_CORRUPT: "Restore it from a backup.",
    sqlite3.SQLITE_FULL: "The disk is full: make room, then repeat the call.",
    sqlite3.SQLITE_CANTOPEN: "Make its directory, and let the user that memoryd runs as write to it.",
    sqlite3.SQLITE_PROTOCOL: "Too many processes opened it at once. Repeat the call.",
    sqlite3.SQLITE_PERM: "Let the user that memoryd runs as write to the file and to its directory.",
    sqlite3.SQLITE_AUTH: "Let the user that memoryd runs as write to the file and to its directory.",
    sqlite3.SQLITE_NOTADB: "It is no SQLite database: give the store another file.",
}
"""What to do about the errors that come from outside. Every other is a fault of ours, and no caller's business."""

_OF_TABLES: Final = re.compile(
    "no such (table|column)|has no column named|duplicate column|already exists|there is already an? (table|index)|"
    "views may not be indexed"
)
"""What SQLite says of tables that are not as we left them: it has no codes for that."""

_PASSING: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL)


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _is_of_tables(error: sqlite3.Error) -> bool:
    return _code(error) == sqlite3.SQLITE_ERROR and _OF_TABLES.search(str(error)) is not None


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection holds the lock."""
    return _code(error) == sqlite3.SQLITE_BUSY


def unavailable(error: sqlite3.Error) -> StoreUnavailable | None:
    """What a failed read or write raises; None for a fault of ours, which is to surface as it is."""
    if _is_of_tables(error):
        return StoreUnavailable(TABLES_GONE)
    advice = _ADVICE.get(_code(error))
    return StoreUnavailable(f"SQLite: {error}. {advice}") if advice else None


def unopenable(error: sqlite3.Error, database: str) -> StoreUnavailable | StoreMisconfigured | None:
    """What a failed opening raises: StoreMisconfigured when something must be done before it can succeed."""
    if _is_of_tables(error):
        return StoreMisconfigured(f"{database}: {TABLES_NOT_OURS}")
    problem = unavailable(error)
    if problem is None or _code(error) in _PASSING:
        return problem
    return StoreMisconfigured(f"{database}: {problem}")
