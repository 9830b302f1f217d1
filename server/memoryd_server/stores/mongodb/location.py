"""The URL of a store on MongoDB: what memoryd itself takes of it, and what it leaves to the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from pymongo.errors import PyMongoError
from pymongo.uri_parser import split_options

from memoryd_server.stores.base import StoreMisconfigured
from memoryd_server.stores.mongodb.layout import DEFAULT_PREFIX
from memoryd_server.stores.urls import ENCODING

DRIVERS: Final = ("motor", "pymongo")
"""What the option `driver` may name; the first is the default."""

DRIVER: Final = "driver"
COLLECTION_PREFIX: Final = "collection_prefix"
TIMEOUT: Final = "timeout"

ANSWER_SECONDS: Final = 5.0
"""How long a command waits for the database, a connection included, before it is given up, unless the URL says more."""

LONGEST_ANSWER_SECONDS: Final = 20.0
"""The most that the URL may say: what a command brings, and what helps it, must be there before purges begin (see
`redo.HELP_SECONDS`)."""

_MAJORITY: Final = "majority"
_NOT_IN_NAMES: Final = frozenset(' /\\."$*<>:|?\0')
"""What names of databases may not hold on every system."""

_FIXED: Final = {
    "readpreference": ("primary",),
    "readconcernlevel": (_MAJORITY, "linearizable"),
}
"""Options by which a session might be read as it was before what it was just told, and the values that they may have;
`retryWrites` is off whatever the URL says, since a repeated compare-and-set would be refused for what it made itself.
"""


@dataclass(frozen=True)
class Location:
    """Where a store is, and how it is reached."""

    url: str
    """As the driver takes it."""
    database: str
    prefix: str
    """Of the names of the collections."""
    driver: str
    """One of DRIVERS."""
    answer_seconds: float
    """How long a command waits for the database."""
    risk: str
    """Why what is acknowledged may be lost, as the URL wants it, and what to do about it; "" when it may not."""


def locate(url: str, answer_seconds: float = ANSWER_SECONDS) -> Location:
    """Reads the URL of a store, whose host and credentials are the driver's to read.

    `answer_seconds`: how long a command waits where the URL does not say it.

    Raises: StoreMisconfigured when it names no database, or wants what memoryd cannot do with.
    """
    place, _, query = url.partition("?")
    options = [option for option in query.replace(";", "&").split("&") if option]
    own = {DRIVER: DRIVERS[0], COLLECTION_PREFIX: DEFAULT_PREFIX, TIMEOUT: str(answer_seconds)}
    lent: dict[str, str] = {}
    left = []
    for option in options:
        name, _, value = option.partition("=")
        if name in own:
            own[name] = unquote(value)
        else:
            lent[name.lower()] = unquote(value)
            left.append(option)
    _check(own, lent)
    for option in left:
        _check_of_driver(option)
    name = unquote(place.partition("://")[2].partition("/")[2])
    if not name:
        raise StoreMisconfigured(
            "its URL names no database: add its name behind the host and a slash, as in "
            "mongodb://localhost/memoryd, or set MONGODB_DB_NAME where MONGODB_URI gives the URL."
        )
    if "@" in name:
        raise StoreMisconfigured(f"its URL has an @ behind its first slash. {ENCODING}")
    if _NOT_IN_NAMES & set(name):
        raise StoreMisconfigured(f"its URL names the database {name!r}, which MongoDB does not allow as a name.")
    return Location(
        url=place + ("?" + "&".join(left) if left else ""),
        database=name,
        prefix=own[COLLECTION_PREFIX],
        driver=own[DRIVER],
        answer_seconds=_seconds(own[TIMEOUT]),
        risk=_risk(lent),
    )


def _check(own: dict[str, str], lent: dict[str, str]) -> None:
    if own[DRIVER] not in DRIVERS:
        raise StoreMisconfigured(
            f"its URL asks for the driver {own[DRIVER]!r}. Set the option `driver` to {' or '.join(DRIVERS)}, or leave "
            f"it out for {DRIVERS[0]}."
        )
    prefix = own[COLLECTION_PREFIX]
    if not prefix or "$" in prefix or "\0" in prefix or prefix.startswith("system."):
        raise StoreMisconfigured(
            f"its URL has the option collection_prefix={prefix!r}, with which no name of a collection may begin. Leave "
            f"it out for {DEFAULT_PREFIX!r}."
        )
    for option, values in _FIXED.items():
        if lent.get(option, values[0]).lower() not in values:
            raise StoreMisconfigured(
                f"its URL has the option {option}={lent[option]}, by which reads could miss what was just written. "
                "Leave it out."
            )
    if lent.get("w") == "0":
        raise StoreMisconfigured("its URL has the option w=0, by which nobody learns what was written. Leave it out.")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= LONGEST_ANSWER_SECONDS:
        raise StoreMisconfigured(
            f"its URL has the option timeout={text}. It is how many seconds a command waits for the database: from 0.1 "
            f"to {LONGEST_ANSWER_SECONDS:g}, or leave it out for {ANSWER_SECONDS:g}."
        )
    return seconds


def _check_of_driver(option: str) -> None:
    try:
        split_options(option, warn=False)
    except (PyMongoError, TypeError, ValueError) as error:
        name = option.partition("=")[0]
        raise StoreMisconfigured(
            f"its URL has the option {name!r}, which the driver does not know, or not with such a value. Options are "
            "those of MongoDB's connection strings, such as authSource, replicaSet and tls."
        ) from error


def _risk(lent: dict[str, str]) -> str:
    risks = [f"w={lent['w']}"] if lent.get("w", _MAJORITY) != _MAJORITY else []
    if lent.get("journal", "true").lower() != "true":
        risks.append(f"journal={lent['journal']}")
    if not risks:
        return ""
    return (
        f"The store's URL has the option {' and '.join(risks)}: MongoDB then acknowledges writes that a failing server "
        "can lose. Leave it out, and memoryd waits for the journals of a majority."
    )
