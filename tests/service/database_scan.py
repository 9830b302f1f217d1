"""Looks through all that a database holds, whatever its schema."""

from __future__ import annotations

import base64
import itertools
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from redis import Redis
from sqlalchemy import make_url

from tests.databases import mongodb, redis
from tests.databases.sql import execute

Value = tuple[str, bytes]
"""A value, and the name of what holds it: a table, a collection, or the type of a key."""


@dataclass(frozen=True)
class _Scan:
    """How a type of database is looked through."""

    values: Callable[[str], Iterator[Value]]
    """Every value in the database of a URL."""
    size: Callable[[str], int]
    """How many rows, documents, or members of keys there are."""


class Contents:
    """All that a database held at one time."""

    def __init__(self, url: str) -> None:
        self._values = list(_scan(url).values(url))

    def places_of(self, marker: bytes) -> list[str]:
        """The values that hold the marker as it is, in hexadecimal digits, or in Base64 wherever it begins."""
        forms = list(_forms(marker))
        return [f"{place}: {value!r:.200}" for place, value in self._values if any(form in value for form in forms)]

    def holds(self, marker: bytes) -> bool:
        """Whether the marker is anywhere."""
        return bool(self.places_of(marker))

    def count_of(self, marker: bytes) -> int:
        """How often the marker is there as it is."""
        return sum(value.count(marker) for _, value in self._values)


def size_of(url: str) -> int:
    """How many rows, documents, or members of keys a database holds: quickly told, for seeing that it grows."""
    return _scan(url).size(url)


def port_with(url: str, marker: bytes) -> int:
    """The port of the Redis server that holds a value with the marker."""
    for server, key, type_ in _keys(url):
        if any(marker in value for value in _REDIS_TYPES[type_].values(server, key)):
            return int(server.connection_pool.connection_kwargs["port"])
    raise LookupError(f"no server holds {marker!r}")


def _scan(url: str) -> _Scan:
    return _SCANS[urlsplit(url).scheme]


def _forms(marker: bytes) -> Iterator[bytes]:
    yield marker
    yield marker.hex().encode()
    yield marker.hex().upper().encode()
    for before in range(3):
        # The characters in the middle depend on nothing that stands around.
        encoded = base64.b64encode(b"\0" * before + marker)
        yield encoded[4 if before else 0 : -4]


def _bytes_of(value: Any) -> bytes:
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else str(value).encode()


def _sql_values(url: str) -> Iterator[Value]:
    for table in _tables(url):
        for row in _rows(url, f"SELECT * FROM {table}"):
            yield from ((table, _bytes_of(value)) for value in row)


def _sql_size(url: str) -> int:
    return sum(int(_rows(url, f"SELECT count(*) FROM {table}")[0][0]) for table in _tables(url))


def _tables(url: str) -> list[str]:
    return [str(name) for (name,) in _rows(url, _TABLES[make_url(url).get_backend_name()])]


_TABLES: Final = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
    "postgresql": "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()",
    "mysql": "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()",
}


def _rows(url: str, statement: str) -> list[tuple[Any, ...]]:
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        assert parsed.database
        with closing(sqlite3.connect(parsed.database)) as connection:
            return connection.execute(statement).fetchall()
    return [tuple(row) for row in execute(parsed, statement)]


def _redis_values(url: str) -> Iterator[Value]:
    for server, key, type_ in _keys(url):
        yield f"name of a {type_}", key
        yield from ((type_, value) for value in _REDIS_TYPES[type_].values(server, key))


def _redis_size(url: str) -> int:
    return sum(_REDIS_TYPES[type_].size(server, key) for server, key, type_ in _keys(url))


def _keys(url: str) -> Iterator[tuple[Any, bytes, str]]:
    for server, key in redis.keys(url):
        type_ = str(server.type(key), "ascii")  # type: ignore[arg-type]
        # It may have gone meanwhile.
        if type_ != "none":
            yield server, key, type_


@dataclass(frozen=True)
class _RedisType:
    values: Callable[[Any, bytes], Iterable[bytes]]
    size: Callable[[Any, bytes], int]


def _flat(parts: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    return itertools.chain.from_iterable(parts)


_REDIS_TYPES: Final = {
    "string": _RedisType(lambda server, key: [server.get(key)], lambda server, key: 1),
    "hash": _RedisType(lambda server, key: _flat(server.hgetall(key).items()), Redis.hlen),
    "zset": _RedisType(lambda server, key: server.zrange(key, 0, -1), Redis.zcard),
    "set": _RedisType(lambda server, key: server.smembers(key), Redis.scard),
    "list": _RedisType(lambda server, key: server.lrange(key, 0, -1), Redis.llen),
    "stream": _RedisType(
        lambda server, key: _flat(_flat(fields.items()) for _, fields in server.xrange(key)), Redis.xlen
    ),
}


def _mongodb_values(url: str) -> Iterator[Value]:
    as_it_is: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
    with mongodb.database_at(url) as database:
        for name in database.list_collection_names():
            for document in database.get_collection(name).with_options(as_it_is).find():
                yield name, bytes(document.raw)


def _mongodb_size(url: str) -> int:
    with mongodb.database_at(url) as database:
        return sum(database[name].estimated_document_count() for name in database.list_collection_names())


_SQL: Final = _Scan(_sql_values, _sql_size)
_SCANS: Final = {
    "sqlite": _SQL,
    "postgresql": _SQL,
    "mysql": _SQL,
    "redis": _Scan(_redis_values, _redis_size),
    "mongodb": _Scan(_mongodb_values, _mongodb_size),
}
