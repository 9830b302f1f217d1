"""PostgreSQL's errors as those of the contract."""

from __future__ import annotations

import ssl
from typing import Final

from asyncpg import exceptions

from memoryd_server.stores.base import StoreMisconfigured, StoreUnavailable
from memoryd_server.stores.sql.migrate import TABLES_GONE, TABLES_NOT_OURS
from memoryd_server.stores.sql.served import DriverErrors

FAILURES: Final = (
    OSError,
    TimeoutError,
    exceptions.PostgresError,
    exceptions.InterfaceError,
    # What the driver raises when a connection breaks at an awkward moment.
    exceptions.InternalClientError,
)
"""What a call may raise when the database or the way to it fails."""

_UNDONE: Final = (
    exceptions.DeadlockDetectedError,
    exceptions.SerializationError,
    exceptions.LockNotAvailableError,
    # Another server made what this one found missing: a session, a lease. On the next attempt it is found.
    exceptions.UniqueViolationError,
)

_NO_SCHEMA: Final = (
    "It has no schema that the store's user may make tables in: GRANT it USAGE and CREATE on the schema public, or on "
    "another one that you set as its search_path."
)

_OF_TABLES: Final = (
    exceptions.UndefinedTableError,
    exceptions.UndefinedColumnError,
    exceptions.DuplicateTableError,
    exceptions.DuplicateColumnError,
    exceptions.DuplicateObjectError,
    exceptions.WrongObjectTypeError,
    exceptions.InvalidTableDefinitionError,
)
"""What a database says of tables that are not as memoryd left them."""

_ADVICE: Final[tuple[tuple[type[Exception], str], ...]] = (
    (exceptions.TooManyConnectionsError, "It has too many connections. Repeat the call; raise its max_connections."),
    (exceptions.DiskFullError, "Its disk is full: make room, then repeat the call."),
    (exceptions.OutOfMemoryError, "It has too little memory. Repeat the call later."),
    (exceptions.InsufficientResourcesError, "It lacks resources. Repeat the call later."),
    (exceptions.ReadOnlySQLTransactionError, "It takes no writes: lead the store's URL to the primary server."),
    (exceptions.CannotConnectNowError, "It is starting, stopping or recovering. Repeat the call."),
    (exceptions.OperatorInterventionError, "It ended the connection or the statement. Repeat the call."),
    (exceptions.PostgresConnectionError, "The connection to it broke. Repeat the call."),
    (exceptions.PostgresIOError, "It could not read or write a file. Look at its disk and at its log."),
    (exceptions.DataCorruptedError, "Its data is damaged. Restore it from a backup."),
    (exceptions.IndexCorruptedError, "An index of it is damaged: REINDEX it."),
    (exceptions.InvalidAuthorizationSpecificationError, "It does not let memoryd in: check user and password."),
    (exceptions.InvalidCatalogNameError, "It has no database of that name: create it."),
    (exceptions.InvalidSchemaNameError, _NO_SCHEMA),
    (exceptions.InsufficientPrivilegeError, "Let the store's user create, read and write the memoryd_ tables."),
    (exceptions.LockNotAvailableError, "Another connection kept a lock for long. Repeat the call."),
    (exceptions.DeadlockDetectedError, "Other connections kept getting in the way. Repeat the call."),
    (exceptions.SerializationError, "Other connections kept getting in the way. Repeat the call."),
    (exceptions.IdleInTransactionSessionTimeoutError, "This server was stopped for a while. Repeat the call."),
)
"""What to do about the errors that come from outside. Every other is a fault of ours, and no caller's business."""

_TO_BE_DONE_FIRST: Final = (
    exceptions.InvalidAuthorizationSpecificationError,
    exceptions.InvalidCatalogNameError,
    exceptions.InvalidSchemaNameError,
    exceptions.InsufficientPrivilegeError,
    exceptions.ReadOnlySQLTransactionError,
)
"""What keeps a store from being opened until somebody does something about it."""


_ENDINGS: Final = (
    exceptions.PostgresConnectionError,
    exceptions.CannotConnectNowError,
    exceptions.AdminShutdownError,
    exceptions.CrashShutdownError,
    exceptions.IdleInTransactionSessionTimeoutError,
)
"""The database's last words on a connection."""


def is_lost(error: BaseException) -> bool:
    """Whether the connection is of no use any more."""
    if isinstance(error, exceptions.InterfaceError):
        return not isinstance(error, ValueError)  # That is a value that does not fit.
    return isinstance(error, (OSError, exceptions.InternalClientError, *_ENDINGS))


def is_undone(error: BaseException) -> bool:
    """Whether the transaction surely is not made, and may be made when it is tried again."""
    return isinstance(error, _UNDONE)


def unavailable(error: BaseException, seconds: float) -> StoreUnavailable | None:
    """What a failed call raises; None for a fault of ours, which is to surface as it is. `seconds`: how long the call
    waited for an answer.
    """
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"PostgreSQL did not answer within {seconds:g} seconds. Repeat the call.")
    if isinstance(error, _OF_TABLES):
        return StoreUnavailable(TABLES_GONE)
    for kind, advice in _ADVICE:
        if isinstance(error, kind):
            return StoreUnavailable(f"PostgreSQL: {advice}")
    if is_lost(error):
        return StoreUnavailable("PostgreSQL cannot be reached, or the connection to it broke. Repeat the call.")
    return None


def unopenable(error: BaseException, database: str, seconds: float) -> StoreUnavailable | StoreMisconfigured | None:
    """What a failed opening raises: StoreMisconfigured when something must be done before it can succeed."""
    if isinstance(error, ssl.SSLError):
        return StoreMisconfigured(
            f"{database}: TLS with the database failed ({error.reason or 'no reason given'}). Check sslmode and "
            "sslrootcert of the store's URL, and that its host is the one that the server's certificate names."
        )
    if type(error) is ConnectionError:  # asyncpg's word for it.
        return StoreMisconfigured(
            f"{database}: the database speaks no TLS, which sslmode of the store's URL demands. Turn `ssl` of the "
            "database on, or set sslmode to disable where the network is trusted."
        )
    if isinstance(error, (exceptions.ClientConfigurationError, exceptions.UndefinedObjectError)):
        return StoreMisconfigured(
            f"{database}: the URL has an option or a value that neither asyncpg nor the database knows. Options are "
            "those of libpq, such as sslmode, sslrootcert, host and target_session_attrs, and settings of the database."
        )
    if isinstance(error, _OF_TABLES):
        return StoreMisconfigured(f"{database}: {TABLES_NOT_OURS}")
    problem = unavailable(error, seconds)
    if problem is None or not isinstance(error, _TO_BE_DONE_FIRST):
        return problem
    return StoreMisconfigured(f"{database}: {problem}")


ERRORS: Final = DriverErrors(
    failures=FAILURES,
    is_lost=is_lost,
    is_misled=is_lost,
    is_undone=is_undone,
    unavailable=unavailable,
    unopenable=unopenable,
)
