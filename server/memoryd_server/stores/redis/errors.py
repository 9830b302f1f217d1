"""Redis's errors as those of the contract."""

from __future__ import annotations

import re
import socket
import ssl
from typing import Final

from redis import exceptions

from memoryd_server.stores.base import StoreMisconfigured, StoreUnavailable

FAILURES: Final = (exceptions.RedisError, OSError, TimeoutError)
"""What a call raises when the database or the way to it fails."""

_BROKEN: Final = (
    "Redis cannot be reached, or the connection to it broke. Repeat the call; if it goes on, start the database "
    "server, look at its log, or correct the store's URL."
)
_LOGIN: Final = "Give the store's URL the right user and password."
_ADVICE: Final = {
    "BUSY": "A script of someone else runs for too long. Repeat the call.",
    "CLUSTERDOWN": "Some part of the cluster has no node that serves it. Repeat the call; look at CLUSTER INFO.",
    "CROSSSLOT": "It is behind a proxy that hides a cluster: lead the store's URL to the cluster's own nodes.",
    "LOADING": "It is reading its data after a start. Repeat the call.",
    "MASTERDOWN": "A replica answered that has lost its primary. Repeat the call.",
    "MISCONF": "It refuses writes since it cannot save to disk: look at its disk and its log.",
    "NOAUTH": _LOGIN,
    "NOPERM": (
        "Give the user of the store's URL the commands of memoryd (+@all but -@admin will do, with +info, "
        "+config|get and +cluster) on all keys that begin with the store's prefix."
    ),
    "NOREPLICAS": "It has fewer replicas than min-replicas-to-write asks for. Repeat the call; look at its replicas.",
    "OOM": "Its memory is full: raise maxmemory, or clear histories.",
    "READONLY": "It may have been demoted: repeat the call. Lead the store's URL to the primary server.",
    "TRYAGAIN": "The keys are being moved between nodes. Repeat the call.",
    "UNBLOCKED": "It was demoted while it waited for its replicas: the change may or may not be made. Repeat the call.",
    "WRONGPASS": _LOGIN,
}
"""What to do about the errors that come from outside, by their code. Every other is a fault of ours."""

_NEEDLESS_PASSWORD: Final = ("without any password configured", "no password is set")
"""What servers say of a password that nobody set, at the front of which is no code but ERR."""
_NO_PASSWORD: Final = (
    "Redis has no password, and the store's URL gives one. Leave the password out of the URL, or set one with the "
    "server's setting `requirepass`."
)

_LASTING: Final = frozenset({"CROSSSLOT", "NOAUTH", "NOPERM", "WRONGPASS"})
"""What no repeated opening heals."""

_FORBIDDEN: Final = "The user executing the script can't run this command"
"""What servers say of a script that calls what its user may not."""

_NO_DATABASE: Final = ("DB index is out of range", "SELECT is not allowed in cluster mode")
"""What servers say of a number that is none of a database of theirs."""

_CODE: Final = re.compile(r"[A-Z]+\b")
_CODE_IN_SCRIPT: Final = re.compile(r"-([A-Z]+) ")
"""Where servers before version 7 tell what failed in a script."""


def code_of(error: BaseException) -> str:
    """The code of what the server answered; empty when it did not."""
    status: str | None = getattr(error, "status_code", None)
    if isinstance(error, exceptions.AuthenticationError) and not status:
        return "WRONGPASS"
    text = str(error)
    if _FORBIDDEN in text:
        return "NOPERM"
    found = _CODE_IN_SCRIPT.search(text) or _CODE.match(status or text)
    return found.group(found.lastindex or 0) if found and isinstance(error, exceptions.RedisError) else ""


def is_lost(error: BaseException) -> bool:
    """Whether the connection is of no use any more."""
    return isinstance(error, (exceptions.ConnectionError, exceptions.InvalidResponse, OSError)) and not isinstance(
        error, TimeoutError
    )


def is_of_needless_password(error: BaseException) -> bool:
    """Whether the server refused a password since it has none."""
    return isinstance(error, exceptions.AuthenticationError) and any(text in str(error) for text in _NEEDLESS_PASSWORD)


def unavailable(error: BaseException, silence: float) -> StoreUnavailable | None:
    """What a failed call raises; None for a fault of ours, which is to surface as it is.

    `silence`: after how many seconds without an answer a call is given up.
    """
    if isinstance(error, (TimeoutError, exceptions.TimeoutError)):
        return StoreUnavailable(
            f"The database did not answer within {silence:g} seconds. Repeat the call; if it goes on, look at its "
            "server."
        )
    if is_of_needless_password(error):
        return StoreUnavailable(_NO_PASSWORD)
    code = code_of(error)
    if code in _ADVICE:
        # Not the server's own text, which may name users and keys.
        return StoreUnavailable(f"Redis refused with {code}. {_ADVICE[code]}")
    return StoreUnavailable(_BROKEN) if is_lost(error) else None


def unopenable(error: BaseException, database: str, silence: float) -> StoreUnavailable | StoreMisconfigured | None:
    """What a failed opening raises: StoreMisconfigured when something must be done before it can succeed."""
    refusal = error if isinstance(error, OSError) else error.__context__
    if isinstance(refusal, ssl.SSLError):
        return StoreMisconfigured(
            f"{database}: TLS with the database failed: {refusal}. Check ssl_ca_certs, ssl_certfile and ssl_keyfile of "
            "the store's URL, and that its host is the one that the server's certificate names; without TLS, a URL "
            "begins with redis:."
        )
    if isinstance(refusal, socket.gaierror):
        return StoreUnavailable(
            f"The host of the store's URL has no address ({refusal.strerror}). Correct the URL, or look at the name "
            "server."
        )
    if any(text in str(error) for text in _NO_DATABASE):
        return StoreMisconfigured(
            f"{database}: it has no database of the number behind the host. Leave the number out of the URL, or "
            "give one that is less than the server's setting `databases`; a cluster has number 0 alone. The option "
            "prefix keeps several stores apart."
        )
    problem = unavailable(error, silence)
    if problem is not None and (code_of(error) in _LASTING or is_of_needless_password(error)):
        return StoreMisconfigured(f"{database}: {problem}")
    return problem
