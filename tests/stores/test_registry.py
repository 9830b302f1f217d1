"""`create_store`: from a type and a URL to a store, or to a text that says what to set or to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memoryd_server.stores.base import StoreMisconfigured
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.redis.store import RedisStore
from memoryd_server.stores.registry import create_store
from memoryd_server.stores.sql.mariadb import MariaDBStore
from memoryd_server.stores.sql.postgresql import PostgreSQLStore
from memoryd_server.stores.sql.sqlite import SQLiteStore

KNOWN = "in_memory, sqlite, postgresql, mysql, redis and mongodb"

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("type_", "url", "expected"),
    [
        ("in_memory", None, InMemoryStore),
        ("in_memory", "memory://", InMemoryStore),
        (None, "memory://", InMemoryStore),
        ("sqlite", "sqlite:///memoryd.db", SQLiteStore),
        ("sqlite", "sqlite+pysqlite:///memoryd.db", SQLiteStore),
        (None, "sqlite:///memoryd.db", SQLiteStore),
        (None, "SQLite:///memoryd.db", SQLiteStore),
        ("", "sqlite:////somewhere/memoryd.db", SQLiteStore),
        (None, "sqlite:///file:memoryd.db?mode=rw&uri=true", SQLiteStore),
        ("postgresql", "postgresql://user:pw@host/db", PostgreSQLStore),
        (None, "postgres://host/db?sslmode=require", PostgreSQLStore),
        (None, "postgresql+asyncpg:///db?host=/var/run/postgresql", PostgreSQLStore),
        (None, "postgresql://host?dbname=db", PostgreSQLStore),
        ("mysql", "mysql://user:pw@host/db", MariaDBStore),
        ("redis", "redis://user:pw@host:6380/2?prefix=mine:", RedisStore),
        (None, "rediss://:pw@host", RedisStore),
        (None, "redis://", RedisStore),
        (None, "redis://user:pw@one:7000,two:7001,[::1]:7002", RedisStore),
        (None, "mariadb+asyncmy://user:pw@host/db", MariaDBStore),
    ],
)
def test_a_type_and_a_url_make_a_store(type_: str | None, url: str | None, expected: type) -> None:
    assert type(create_store("main", type_, url)) is expected


@pytest.mark.parametrize(
    ("type_", "url", "texts"),
    [
        ("sqlite", None, ["'main'", "no URL", "MEMORYD_STORES__MAIN__URL", "`url` in [stores.main]", "sqlite:////"]),
        ("sqlite", "", ["no URL", "MEMORYD_STORES__MAIN__URL"]),
        (None, None, ["no URL", "MEMORYD_STORES__MAIN__URL"]),
        ("oracle", None, ["no type 'oracle'", KNOWN]),
        ("oracle", "oracle://host", ["no type 'oracle'", KNOWN]),
        (None, "oracle://host", ["no URL scheme 'oracle'", KNOWN]),
        (None, "/var/lib/memoryd.db", ["has no scheme", "must look like sqlite:////"]),
        ("postgresql", None, ["no URL", "for example to postgresql://user:password@localhost/memoryd"]),
        ("postgresql", "mysql://host/db", ["type is postgresql", "for mysql", "looks like postgresql://"]),
        (
            None,
            "postgresql+psycopg://u:pw@host/db",
            ["driver psycopg", "uses asyncpg", "begin the URL with postgresql:"],
        ),
        (None, "postgresql://u:pw@host:port/db", ["cannot be read", "must look like postgresql://"]),
        ("mariadb", None, ["no type 'mariadb'", "Its type is mysql"]),
        ("postgres", None, ["no type 'postgres'", "Its type is postgresql"]),
        (None, "mysql://u:pw@host", ["names no database", "must look like mysql://"]),
        (None, "postgresql://u:pw@host", ["names no database", "must look like postgresql://"]),
        (None, "postgresql://u:pw/x@pw@host/db", ["more than one @", "Percent-encode", "@ as %40, / as %2F"]),
        (None, "mysql://u:pw@pw/x@host/db", ["more than one @", "Percent-encode"]),
        (None, "postgresql://u:pw@x:pw@host/db", ["cannot be read", "Percent-encode"]),
        (None, "mysql://u@host/db?connect_timeout=pw", ["an option", "mysql://"]),
        ("postgresql://u:pw@host/db", None, ["no type 'postgresql://u:***@host/db'"]),
        (None, "mysql+pymysql://u:pw@host/db", ["driver pymysql", "uses asyncmy"]),
        ("redis", None, ["no URL", "for example to redis://user:password@localhost/0"]),
        ("rediss", None, ["no type 'rediss'", "Its type is redis"]),
        (
            None,
            "redis+asyncio://u:pw@host",
            ["no URL scheme with 'asyncio'", "rediss for TLS", "must look like redis://"],
        ),
        (None, "redis://u:pw@host:port", ["a port in it is no number", "must look like redis://"]),
        (None, "redis://u:pw@x@host", ["more than one @", "must look like redis://"]),
        (None, "redis://u:pw@host/db", ["not the number of a database", "must look like redis://"]),
        (None, "redis://u:pw@host?db=x", ["option db must be a number", "must look like redis://"]),
        (None, "redis:127.0.0.1", ["has no // behind redis:", "must look like redis://"]),
        (None, "redis::pw@127.0.0.1", ["has no // behind redis:", "must look like redis://"]),
        (None, "rediss:/u:pw@127.0.0.1", ["has no // behind rediss:", "must look like redis://"]),
        (None, "mongodb:u:pw@host/db", ["has no // behind mongodb:", "must look like mongodb://"]),
        (None, "postgresql:u:pw@host/db", ["has no // behind postgresql:", "must look like postgresql://"]),
        (None, "mysql:/u:pw@host/db", ["has no // behind mysql:", "must look like mysql://"]),
        (None, "redis://[host", ["cannot be read", "must look like redis://"]),
        (None, "redis://u:pw@host?retries=3", ["unknown option 'retries'", "prefix, db, username"]),
        (None, "redis://u:pw@host?timeout=0", ["option timeout must be a number from 0.1"]),
        (None, "redis://u:pw@host?connections=many", ["option connections must be a number from 1"]),
        (None, "redis://host?prefix=a{b}", ["prefix holds a brace"]),
        (None, "redis://u:pw@host?ssl_ca_certs=ca.pem", ["ssl_ca_certs is for TLS", "begin the URL with rediss:"]),
        (None, "rediss://u:pw@host?ssl_check_hostname=maybe", ["ssl_check_hostname must be true or false"]),
        (None, "mongodb+srv://host", ["names no database"]),
        (None, "mongodb://u:pw@host/db?timeout=60", ["option timeout=60", "from 0.1 to 20", "leave it out for 5"]),
        (None, "mongodb://u:pw@host/db?timeout=soon", ["option timeout=soon", "how many seconds"]),
        ("in_memory", "sqlite:///memoryd.db", ["type is in_memory", "begins with sqlite:", "looks like memory://"]),
        ("sqlite", "memory://", ["type is sqlite", "begins with memory:", "looks like sqlite:////"]),
        (
            "sqlite",
            "sqlite+aiosqlite:///memoryd.db",
            ["driver aiosqlite", "uses pysqlite by itself", "begin the URL with sqlite:"],
        ),
        ("sqlite", "sqlite://", ["names no file", "four slashes", "in_memory"]),
        ("sqlite", "sqlite:///", ["names no file"]),
        ("sqlite", "sqlite:///:memory:", ["names no file"]),
        ("sqlite", "sqlite:///file:a?mode=memory&uri=true", ["names no file"]),
        ("sqlite", "sqlite://memoryd.db", ["names no file", "four slashes"]),
        ("sqlite", "sqlite:memoryd.db", ["has no // behind sqlite:", "must look like sqlite:////"]),
    ],
)
def test_anything_else_is_refused_with_what_to_do(type_: str | None, url: str | None, texts: list[str]) -> None:
    with pytest.raises(StoreMisconfigured) as raised:
        create_store("main", type_, url)
    for text in texts:
        assert text in str(raised.value)
    assert "pw" not in str(raised.value)


def test_a_python_without_sqlite_is_told_how_to_get_it() -> None:
    script = """
import sys
sys.modules["_sqlite3"] = None
from memoryd_server.stores.base import StoreMisconfigured
from memoryd_server.stores.redis.store import RedisStore
from memoryd_server.stores.registry import create_store
create_store("main", "in_memory", None)
try:
    create_store("main", "sqlite", "sqlite:///memoryd.db")
except StoreMisconfigured as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True)
    assert "built without SQLite" in ran.stdout
    assert "libsqlite3-dev" in ran.stdout


@pytest.mark.parametrize(
    ("url", "driver"),
    [("postgresql://u:pw@host/db", "asyncpg"), ("mysql://u:pw@host/db", "asyncmy"), ("redis://u:pw@host", "redis")],
)
def test_without_its_driver_a_store_says_what_to_install(
    url: str, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    type_ = url.partition(":")[0]
    with pytest.raises(
        StoreMisconfigured, match=rf"driver {driver} is not installed.*memoryd-server\[{type_}\]"
    ) as raised:
        create_store("main", None, url)
    assert "pw" not in str(raised.value)
