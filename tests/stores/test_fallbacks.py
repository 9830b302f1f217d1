"""URLs that variables of other programs give: only to a store that has a type, and none of its own."""

from __future__ import annotations

import pytest

from memoryd_server.stores.fallbacks import VARIABLE_OF_TYPE, VARIABLES, Fallback, fallback
from memoryd_server.stores.registry import TYPES

ALL = {
    "DATABASE_URL": "postgresql://u:pw@host/db",
    "REDIS_URL": "redis://host:6379/1",
    "MONGODB_URI": "mongodb://host/db",
}


@pytest.mark.parametrize(
    ("type_", "variable"),
    [
        ("sqlite", "DATABASE_URL"),
        ("postgresql", "DATABASE_URL"),
        ("mysql", "DATABASE_URL"),
        ("redis", "REDIS_URL"),
        ("mongodb", "MONGODB_URI"),
    ],
)
def test_a_type_has_its_variable(type_: str, variable: str) -> None:
    assert fallback(type_, ALL) == Fallback(ALL[variable], (variable,))
    assert fallback(type_, {name: url for name, url in ALL.items() if name != variable}) is None
    assert fallback(type_, ALL | {variable: ""}) is None


@pytest.mark.parametrize("type_", [None, "", "in_memory", "oracle"])
def test_what_has_no_such_type_has_none(type_: str | None) -> None:
    assert fallback(type_, ALL) is None


def test_every_type_that_needs_a_url_has_a_variable() -> None:
    assert set(TYPES) - {"in_memory"} <= set(VARIABLE_OF_TYPE)
    assert set(VARIABLES) == {*ALL, "MONGODB_DB_NAME", "MONGODB_COLLECTION"}


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("postgresql+psycopg2://u:pw@host/db?sslmode=require", "postgresql://u:pw@host/db?sslmode=require"),
        ("postgresql+asyncpg://u:p+w@host/db", "postgresql://u:p+w@host/db"),
        ("postgres://u:pw@host/db", "postgres://u:pw@host/db"),
        ("mysql+pymysql://u:pw@host/db", "mysql://u:pw@host/db"),
        ("sqlite+aiosqlite:////var/lib/app.db", "sqlite:////var/lib/app.db"),
        ("no URL", "no URL"),
    ],
)
def test_the_driver_of_another_program_is_left_out(given: str, taken: str) -> None:
    assert fallback("postgresql", {"DATABASE_URL": given}) == Fallback(taken, ("DATABASE_URL",))


@pytest.mark.parametrize(
    ("uri", "database", "collection", "taken", "used"),
    [
        ("mongodb://u:pw@a:1,b:2", "memory", "", "mongodb://u:pw@a:1,b:2/memory", "DB_NAME"),
        ("mongodb://a/", "memory", "", "mongodb://a/memory", "DB_NAME"),
        ("mongodb://a/?replicaSet=r", "memory", "", "mongodb://a/memory?replicaSet=r", "DB_NAME"),
        ("mongodb+srv://u:pw@a/other", "memory", "", "mongodb+srv://u:pw@a/other", ""),
        ("mongodb://a", "Ω/1", "", "mongodb://a/%CE%A9%2F1", "DB_NAME"),
        ("mongodb://a", "", "chats", "mongodb://a/?collection_prefix=chats_", "COLLECTION"),
        ("mongodb://a", "", "my.chats.", "mongodb://a/?collection_prefix=my.chats.", "COLLECTION"),
        ("mongodb://a/db", "", "a&b_", "mongodb://a/db?collection_prefix=a%26b_", "COLLECTION"),
        ("mongodb://a/db?w=1", "", "chats", "mongodb://a/db?w=1&collection_prefix=chats_", "COLLECTION"),
        ("mongodb://a/db?collection_prefix=x", "", "chats", "mongodb://a/db?collection_prefix=x", ""),
        ("mongodb://a", "memory", "chats", "mongodb://a/memory?collection_prefix=chats_", "DB_NAME COLLECTION"),
        ("mongodb://a", "", "", "mongodb://a", ""),
    ],
)
def test_a_mongodb_uri_is_completed(uri: str, database: str, collection: str, taken: str, used: str) -> None:
    environment = {"MONGODB_URI": uri, "MONGODB_DB_NAME": database, "MONGODB_COLLECTION": collection}
    variables = ("MONGODB_URI", *(f"MONGODB_{name}" for name in used.split()))
    assert fallback("mongodb", environment) == Fallback(taken, variables)
