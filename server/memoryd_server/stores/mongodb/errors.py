"""MongoDB's and its drivers' errors as those of the contract."""

from __future__ import annotations

from typing import Final

from pymongo import errors

from memoryd_server.stores.base import StoreMisconfigured, StoreUnavailable

FAILURES: Final = (errors.PyMongoError, OSError, TimeoutError)
"""What the drivers raise when the database does not do what it is asked for."""

DUPLICATE_KEY: Final = 11000

_BROKEN: Final = (
    "MongoDB cannot be reached, or the connection to it broke. Repeat the call; if it goes on, start the database "
    "server, look at its log, or correct the store's URL."
)
_CLOSED: Final = "The store is closed."
GONE: Final = (
    "The collections of memoryd are gone, or the database was made anew. Restore it from a backup; to begin anew, "
    "restart memoryd."
)
_ACCESS: Final = "Give the user of the store's URL the role readWrite on its database, and the URL the right password."
_REPEAT: Final = "Repeat the call; if it goes on, look at the server's log."
_NOT_PRIMARY: Final = "Repeat the call: another server is becoming the primary one."
_NO_SPACE: Final = "The disk of the database is full: make room, then repeat the call."

_ADVICE: Final = {
    **dict.fromkeys((6, 7, 89, 9001), _REPEAT),
    **dict.fromkeys((10107, 13435, 189, 91, 11600, 11602, 10058, 13436), _NOT_PRIMARY),
    **dict.fromkeys((13, 18, 8000), _ACCESS),
    1: _REPEAT,
    8: _REPEAT,
    24: _REPEAT,
    43: _REPEAT,
    46: _REPEAT,
    50: _REPEAT,
    64: "Too few servers of the replica set confirmed it in time. Look at them, then repeat the call.",
    79: "The write concern of the store's URL is none of the replica set's.",
    100: "The replica set has too few servers for a majority. Look at them, then repeat the call.",
    112: "Others changed the same document. Repeat the call.",
    133: "No shard answers. Look at them, then repeat the call.",
    134: "Repeat the call: the server has not caught up yet.",
    202: _REPEAT,
    262: _REPEAT,
    314: _REPEAT,
    317: _REPEAT,
    14031: _NO_SPACE,
}
"""What to do about the errors that come from outside. Every other is a fault of ours, and no caller's business."""

_LASTING: Final = frozenset({13, 18, 79, 8000})
"""What no repeated opening heals."""


def unavailable(error: BaseException, silence: float) -> StoreUnavailable | None:
    """What a failed call raises; None for a fault of ours, which is to surface as it is.

    `silence`: after how many seconds without an answer a call is given up.
    """
    if isinstance(error, (TimeoutError, errors.NetworkTimeout, errors.WaitQueueTimeoutError)):
        return StoreUnavailable(
            f"The database did not answer within {silence:g} seconds. Repeat the call; if it goes on, look at its "
            "server."
        )
    if isinstance(error, errors.InvalidOperation):
        return StoreUnavailable(_CLOSED)
    if isinstance(error, errors.ConnectionFailure) and not isinstance(error, errors.NotPrimaryError):
        return StoreUnavailable(_BROKEN)
    if isinstance(error, OSError):
        return StoreUnavailable(_BROKEN)
    code = code_of(error)
    advice = _ADVICE.get(code)
    # Not the server's own text, which may name users, keys and collections.
    return StoreUnavailable(f"The database failed with error {code}. {advice}") if advice else None


def code_of(error: BaseException) -> int:
    """The number of the server's error; -1 without."""
    if isinstance(error, errors.BulkWriteError):
        details = error.details or {}
        found = [*details.get("writeErrors", ()), *details.get("writeConcernErrors", ())]
        return int(found[0].get("code", -1)) if found else -1
    code = error.code if isinstance(error, errors.OperationFailure) else None
    if code is None and isinstance(error, errors.NotPrimaryError):
        return 10107
    return -1 if code is None else code


def are_duplicates(error: errors.BulkWriteError) -> bool:
    """Whether nothing failed but that some documents were there already."""
    details = error.details or {}
    failed = [*details.get("writeErrors", ()), *details.get("writeConcernErrors", ())]
    return all(each.get("code") == DUPLICATE_KEY for each in failed)


def unopenable(error: BaseException, database: str, silence: float) -> StoreUnavailable | StoreMisconfigured | None:
    """What a failed opening raises: StoreMisconfigured when something must be done before it can succeed."""
    if isinstance(error, (errors.ConfigurationError, ValueError)):
        return StoreMisconfigured(f"{database}: the store's URL cannot be used: {error}")
    if isinstance(error, errors.ServerSelectionTimeoutError) and "SSL" in str(error):
        return StoreMisconfigured(
            f"{database}: TLS with the database failed: {error}. Check the options tlsCAFile and tlsCertificateKeyFile "
            "of the store's URL, and that its host is the one that the server's certificate names."
        )
    problem = unavailable(error, silence)
    if isinstance(error, (errors.ConnectionFailure, TimeoutError)):
        return StoreUnavailable(f"{database}: MongoDB does not answer. {problem}")
    if problem is None:
        return None
    code = code_of(error)
    if code in _LASTING:
        return StoreMisconfigured(f"{database}: the database refused with error {code}. {_ADVICE[code]}")
    return StoreUnavailable(f"{database}: {problem}")
