"""URLs from variables that other programs read, too: for stores whose settings name a type and no URL (design
section 8).

They never choose a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

_DATABASE_URL: Final = "DATABASE_URL"
_MONGODB_URI: Final = "MONGODB_URI"
_MONGODB_DB_NAME: Final = "MONGODB_DB_NAME"
_MONGODB_COLLECTION: Final = "MONGODB_COLLECTION"

VARIABLE_OF_TYPE: Final = {
    "sqlite": _DATABASE_URL,
    "postgresql": _DATABASE_URL,
    "mysql": _DATABASE_URL,
    "redis": "REDIS_URL",
    "mongodb": _MONGODB_URI,
}
"""The variable that gives a store of a type its URL."""

VARIABLES: Final = (*dict.fromkeys(VARIABLE_OF_TYPE.values()), _MONGODB_DB_NAME, _MONGODB_COLLECTION)
"""All variables that are read."""

COLLECTION_PREFIX: Final = "collection_prefix"
"""The option of a `mongodb:` URL that the names of all collections begin with."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """A URL, and the variables that it was made of."""

    url: str
    variables: tuple[str, ...]


def fallback(type: str | None, environment: Mapping[str, str]) -> Fallback | None:
    """The URL that the environment gives a store of this type; None without one.

    It may not fit the type. Of DATABASE_URL, the driver that its scheme names is left out: it is that of another
    program. MONGODB_DB_NAME is the database of a MONGODB_URI that names none. MONGODB_COLLECTION becomes its option
    `collection_prefix`, and is set apart from what follows: of `chats`, the names begin with `chats_`.
    """
    variable = VARIABLE_OF_TYPE.get(type or "")
    url = environment.get(variable) if variable else None
    if not (variable and url):
        return None
    if variable == _DATABASE_URL:
        scheme, colon, rest = url.partition(":")
        return Fallback(scheme.partition("+")[0] + colon + rest, (variable,))
    if variable == _MONGODB_URI:
        return _mongodb(url, environment.get(_MONGODB_DB_NAME), environment.get(_MONGODB_COLLECTION))
    return Fallback(url, (variable,))


def _mongodb(url: str, database: str | None, prefix: str | None) -> Fallback:
    variables = [_MONGODB_URI]
    place, _, text = url.partition("?")
    scheme, slashes, behind = place.partition("://")
    hosts, _, path = behind.partition("/")
    options = text.split("&") if text else []
    if database and not path:
        path = quote(database, safe="")
        variables.append(_MONGODB_DB_NAME)
    if prefix and not any(option.startswith(f"{COLLECTION_PREFIX}=") for option in options):
        separator = "_" if prefix[-1].isalnum() else ""
        options.append(f"{COLLECTION_PREFIX}={quote(prefix + separator, safe='')}")
        variables.append(_MONGODB_COLLECTION)
    if len(variables) == 1:
        return Fallback(url, tuple(variables))
    return Fallback(f"{scheme}{slashes}{hosts}/{path}{'?' if options else ''}{'&'.join(options)}", tuple(variables))
