"""MariaDB's and MySQL's errors as those of the contract."""

from __future__ import annotations

import ssl
from typing import Final

from asyncmy import errors

from memoryd_server.stores.base import StoreMisconfigured, StoreUnavailable
from memoryd_server.stores.sql.migrate import TABLES_GONE, TABLES_NOT_OURS
from memoryd_server.stores.sql.served import DriverErrors

DUPLICATE_KEY: Final = 1062
OUT_OF_RANGE: Final = 1690
DEADLOCK: Final = 1213

READ_ONLY: Final = frozenset({1036, 1290, 1792, 1836, 4165})
"""The server takes no writes: mostly it was demoted, and its name leads to another one from now on."""

_NO_DATABASE: Final = 1046
"""The connection's database was dropped: one of the same name may be there again, but only for new connections."""

_OF_TABLES: Final = frozenset({1050, 1054, 1060, 1061, 1072, 1146, 1347, 1932, _NO_DATABASE})
"""What a server says of tables that are not as memoryd left them."""

_LOST: Final = frozenset({0, 1053, 1158, 1159, 1160, 1161, 1927, 2006, 2013, 2014, _NO_DATABASE})
"""The connection is of no use any more. For 0, see `code_of`."""

_UNREACHABLE: Final = frozenset({2002, 2003})
"""There is no connection."""

_BROKEN: Final = (
    "MariaDB (or MySQL) cannot be reached, or the connection to it broke. Repeat the call; if it goes on, start the "
    "database server, look at its log, or correct the store's URL."
)
_NO_SPACE: Final = "The disk of the database is full: make room, then repeat the call."
_TOO_MANY: Final = "Repeat the call later, or raise max_connections of the server, or lower `connections` of the store."
_NOT_PRIMARY: Final = "It may have been demoted: repeat the call. Lead the store's URL to the primary server."
_ACCESS: Final = "Give the user of the store's URL all rights on its database, and the URL the right password."

_ADVICE: Final = {
    3: _NO_SPACE,
    28: _NO_SPACE,
    1021: _NO_SPACE,
    1114: _NO_SPACE,
    1026: "Look at the disk and at the server's log.",
    1030: "Look at the disk and at the server's log.",
    1037: "Give the database server more memory.",
    1038: "Give the database server more memory.",
    1040: _TOO_MANY,
    1203: _TOO_MANY,
    1226: _TOO_MANY,
    1041: "Give the database server more memory.",
    1044: _ACCESS,
    1045: _ACCESS,
    1142: _ACCESS,
    1143: _ACCESS,
    1227: _ACCESS,
    1370: _ACCESS,
    1698: _ACCESS,
    1049: "Create the database that the store's URL names: memoryd makes its tables, not the database.",
    1047: "Repeat the call: the server is not ready, for example since its cluster has no quorum.",
    1129: "Unblock this host with FLUSH HOSTS on the server.",
    1130: "Let the user of the store's URL connect from this host.",
    1153: "Raise max_allowed_packet of the server to 64M, and restart memoryd.",
    1180: "Repeat the call; if it goes on, look at the disk and at the server's log.",
    1194: "Repair the table, or restore it from a backup.",
    1205: "Another server held the session for long. Repeat the call.",
    DEADLOCK: "Others changed the same rows. Repeat the call.",
    1317: "It was interrupted. Repeat the call.",
    1665: "Set binlog_format of the server to ROW or MIXED.",
    1969: "Raise max_statement_time of the server or of the user.",
    2059: "Let the user of the store's URL log in by mysql_native_password, caching_sha2_password or ed25519.",
    3024: "Raise max_execution_time of the server or of the user.",
    **dict.fromkeys(READ_ONLY, _NOT_PRIMARY),
}
"""What to do about the errors that come from outside. Every other is a fault of ours, and no caller's business."""

_LASTING: Final = frozenset({1044, 1045, 1049, 1129, 1130, 1142, 1143, 1153, 1227, 1370, 1665, 1698, 2059})
"""What no repeated opening heals."""

FAILURES: Final = (errors.Error, OSError, TimeoutError)
"""What asyncmy raises when the database does not do what it is asked for."""


def code_of(error: BaseException) -> int:
    """The number of the server's or the driver's error; 0 where the driver gives none since the connection failed it,
    -1 for every other without.
    """
    if not isinstance(error, errors.Error):
        return -1
    number = error.args[0] if error.args else None
    if isinstance(number, int):
        return number
    return 0 if isinstance(error, errors.InternalError) else -1


def is_from_server(error: BaseException) -> bool:
    """Whether the server answered with it, so that the connection can be used further."""
    return isinstance(error, errors.Error) and error.sqlstate is not None


def is_lost(error: BaseException) -> bool:
    """Whether the connection is."""
    if isinstance(error, TimeoutError):
        return False
    return isinstance(error, OSError) or code_of(error) in _LOST


def is_misled(error: BaseException) -> bool:
    """Whether the other connections are of no use either, since they lead to the same server."""
    return is_lost(error) or code_of(error) in READ_ONLY


def is_undone(error: BaseException) -> bool:
    """Whether the transaction surely is not made, and may be made when it is tried again.

    Of two births of one name the second finds a duplicate, and on the next attempt the session.
    """
    return code_of(error) in {DEADLOCK, DUPLICATE_KEY}


def unavailable(error: BaseException, silence: float) -> StoreUnavailable | None:
    """What a failed call raises; None for a fault of ours, which is to surface as it is.

    `silence`: after how many seconds without an answer a call is given up.
    """
    if isinstance(error, TimeoutError):
        return StoreUnavailable(
            f"The database did not answer within {silence:g} seconds. Repeat the call; if it goes on, look at its "
            "server."
        )
    code = code_of(error)
    if code in _OF_TABLES:
        return StoreUnavailable(TABLES_GONE)
    if isinstance(error, OSError) or code in _LOST | _UNREACHABLE:
        return StoreUnavailable(_BROKEN)
    advice = _ADVICE.get(code)
    # Not the server's own text, which may name users, keys and tables.
    return StoreUnavailable(f"The database failed with error {code}. {advice}") if advice else None


def unopenable(error: BaseException, database: str, silence: float) -> StoreUnavailable | StoreMisconfigured | None:
    """What a failed opening raises: StoreMisconfigured when something must be done before it can succeed."""
    refusal = error.__cause__ if isinstance(error.__cause__, ssl.SSLError) else error
    if isinstance(refusal, ssl.SSLError):
        return StoreMisconfigured(
            f"{database}: TLS with the database failed: {refusal}. Check ssl_ca, ssl_cert and ssl_key of the store's "
            "URL, and that its host is the one that the server's certificate names."
        )
    if code_of(error) in _OF_TABLES:
        return StoreMisconfigured(f"{database}: {TABLES_NOT_OURS}")
    problem = unavailable(error, silence)
    if problem is None:
        return None
    if code_of(error) in _LASTING:
        return StoreMisconfigured(f"{database}: {error.args[-1]}. {_ADVICE[code_of(error)]}")
    return StoreUnavailable(f"{database}: {problem}")


ERRORS: Final = DriverErrors(
    failures=FAILURES,
    is_lost=is_lost,
    is_misled=is_misled,
    is_undone=is_undone,
    unavailable=unavailable,
    unopenable=unopenable,
)
