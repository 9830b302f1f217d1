"""Stores by type and URL."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Final

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from memoryd_server.stores.base import Store, StoreMisconfigured
from memoryd_server.stores.fallbacks import VARIABLE_OF_TYPE
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.urls import ENCODING, masked

_TYPE_OF_SCHEME: Final = {
    "memory": "in_memory",
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "redis": "redis",
    "rediss": "redis",
    "mongodb": "mongodb",
}

TYPES: Final = tuple(dict.fromkeys(_TYPE_OF_SCHEME.values()))
"""The types of stores, as settings name them."""

_EXAMPLES: Final = {
    "in_memory": "memory://",
    "sqlite": "sqlite:////var/lib/memoryd/memoryd.db",
    "postgresql": "postgresql://user:password@localhost/memoryd",
    "mysql": "mysql://user:password@localhost/memoryd",
    "redis": "redis://user:password@localhost/0",
    "mongodb": "mongodb://user:password@localhost/memoryd",
}
_DATABASE_OPTIONS: Final = frozenset({"database", "dbname"})
"""Options that name a database, as PostgreSQL's own library has them."""
_DRIVERS: Final = {"sqlite": "pysqlite", "postgresql": "asyncpg", "mysql": "asyncmy"}


def create_store(name: str, type: str | None, url: str | None, *, answer_seconds: float | None = None) -> Store:
    """The store that settings describe; it is yet to be opened.

    Args:
        name: The name in the settings, for messages.
        type: One of TYPES; None for the one that the URL belongs to.
        url: Where the data is: `memory://`; a SQLite file (`sqlite:///relative/path`, `sqlite:////absolute/path`); a
            database on PostgreSQL (`postgresql://`, with the options of libpq), or on MySQL or MariaDB (`mysql://`);
            Redis (`redis://`, `rediss://` with TLS; for a cluster, some of its nodes with commas between). A store of
            the type `in_memory` needs none.
        answer_seconds: How long the database may take to answer, where its type and not its URL leaves that open.

    Raises: StoreMisconfigured with a text that says what to set or to install.
    """
    try:
        return _create_store(type or None, url or None, name, answer_seconds)
    except StoreMisconfigured as error:
        raise StoreMisconfigured(f"Store {name!r}: {error}") from error.__cause__


def _create_store(type_: str | None, url: str | None, name: str, answer_seconds: float | None) -> Store:
    if type_ is not None and type_ not in TYPES:
        if type_ in _TYPE_OF_SCHEME:
            raise StoreMisconfigured(f"there is no type {type_!r}. Its type is {_TYPE_OF_SCHEME[type_]}.")
        raise _unknown(f"there is no type {masked(type_)!r}")
    if url is None and type_ != "in_memory":
        variable = VARIABLE_OF_TYPE.get(type_ or "")
        own = f"MEMORYD_STORES__{name.upper()}__URL, or `url` in [stores.{name}] of the TOML file"
        raise StoreMisconfigured(
            f"it has no URL. Set {own}, or {variable}, for example to {_EXAMPLES[type_]}."
            if type_ and variable
            else f"it has no URL. Set {own}, for example to {_EXAMPLES['sqlite']}."
        )
    if url is not None:
        scheme, colon, rest = url.partition(":")
        if not colon:
            raise StoreMisconfigured(f"its URL is none: it has no scheme. It must look like {_EXAMPLES['sqlite']}.")
        scheme = scheme.lower()
        backend, _, driver = scheme.partition("+")
        type_of_url = _TYPE_OF_SCHEME.get(backend)
        if type_of_url is None:
            raise _unknown(f"there is no URL scheme {scheme!r}")
        if type_ is not None and type_ != type_of_url:
            raise StoreMisconfigured(
                f"its type is {type_}, but its URL begins with {scheme}:, which is for {type_of_url}. Change one of "
                f"them; a URL for {type_} looks like {_EXAMPLES[type_]}."
            )
        if type_of_url != "in_memory" and not rest.startswith("//"):
            raise StoreMisconfigured(f"its URL has no // behind {scheme}:. It must look like {_EXAMPLES[type_of_url]}.")
        if type_of_url == "redis":
            return _create_redis_store(f"{scheme}:{rest}", driver, answer_seconds)
        if type_of_url == "mongodb":
            return _create_mongodb_store(f"{scheme}:{rest}", driver, answer_seconds)
        if type_of_url != "in_memory":
            return _create_sql_store(type_of_url, f"{scheme}:{rest}", driver)
    return InMemoryStore()


def _create_sql_store(type_: str, text: str, driver: str) -> Store:
    own_driver = _DRIVERS[type_]
    if driver not in ("", own_driver):
        backend = text.partition("+")[0]
        raise StoreMisconfigured(
            f"its URL asks for the driver {driver}, while memoryd uses {own_driver} by itself: begin the URL with "
            f"{backend}:, as in {_EXAMPLES[type_]}."
        )
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise StoreMisconfigured(f"its URL cannot be read. It must look like {_EXAMPLES[type_]}. {ENCODING}") from error
    if type_ == "sqlite":
        return _create_sqlite_store(url)
    if "@" in f"{url.host}{url.database}":
        raise StoreMisconfigured(f"its URL has more than one @. {ENCODING}")
    if not (url.database or (type_ == "postgresql" and url.query.keys() & _DATABASE_OPTIONS)):
        raise StoreMisconfigured(
            f"its URL names no database: add its name behind the host and a slash. It must look like "
            f"{_EXAMPLES[type_]}."
        )
    if find_spec(own_driver) is None:
        raise StoreMisconfigured(
            f"its driver {own_driver} is not installed: install the extra memoryd-server[{type_}], for example with "
            f"pip install 'memoryd-server[{type_}]'."
        )
    if type_ == "postgresql":
        from memoryd_server.stores.sql.postgresql import PostgreSQLStore

        return PostgreSQLStore(url)
    from memoryd_server.stores.sql.mariadb import MariaDBStore

    try:
        return MariaDBStore(url)
    except ValueError as error:
        raise StoreMisconfigured(
            f"an option of its URL has a value that cannot be. It must look like {_EXAMPLES[type_]}."
        ) from error


def _create_sqlite_store(url: URL) -> Store:
    if url.host or not url.database or url.database == ":memory:" or url.query.get("mode") == "memory":
        raise StoreMisconfigured(
            f"its URL names no file. It must look like {_EXAMPLES['sqlite']} (four slashes before an absolute path) or "
            "sqlite:///memoryd.db (three before a relative one). What may be lost belongs in a store of type in_memory."
        )
    try:
        from memoryd_server.stores.sql.sqlite import SQLiteStore
    except ImportError as error:
        if error.name != "_sqlite3":
            raise
        raise StoreMisconfigured(
            "this Python was built without SQLite: its module _sqlite3 is missing. Install a Python that has it; to "
            "build one from source, install libsqlite3-dev (Debian) or sqlite-devel (Fedora) first."
        ) from error
    return SQLiteStore(url)


def _create_redis_store(url: str, suffix: str, answer_seconds: float | None) -> Store:
    if suffix:
        raise StoreMisconfigured(
            f"there is no URL scheme with {suffix!r}: it is redis, or rediss for TLS. It must look like "
            f"{_EXAMPLES['redis']}."
        )
    if find_spec("redis") is None:
        raise StoreMisconfigured(
            "its driver redis is not installed: install the extra memoryd-server[redis], for example with pip install "
            "'memoryd-server[redis]'."
        )
    from memoryd_server.stores.redis.store import RedisStore
    from memoryd_server.stores.redis.url import ANSWER_SECONDS, URLError, read_url

    try:
        target = read_url(url, answer_seconds or ANSWER_SECONDS)
    except URLError as error:
        raise StoreMisconfigured(f"its URL cannot be used: {error}. It must look like {_EXAMPLES['redis']}.") from error
    return RedisStore(target)


def _create_mongodb_store(url: str, suffix: str, answer_seconds: float | None) -> Store:
    if suffix not in ("", "srv"):
        raise StoreMisconfigured(
            f"there is no URL scheme 'mongodb+{suffix}': it is mongodb, or mongodb+srv where DNS names the servers. It "
            f"must look like {_EXAMPLES['mongodb']}."
        )
    if find_spec("motor") is None:
        raise StoreMisconfigured(
            "its driver motor is not installed: install the extra memoryd-server[mongodb], for example with pip "
            "install 'memoryd-server[mongodb]'."
        )
    from memoryd_server.stores.mongodb.location import ANSWER_SECONDS, locate
    from memoryd_server.stores.mongodb.store import MongoDBStore

    return MongoDBStore(locate(url, answer_seconds or ANSWER_SECONDS))


def _unknown(problem: str) -> StoreMisconfigured:
    return StoreMisconfigured(f"{problem} in this version, which has {_listed(TYPES)}.")


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}"
