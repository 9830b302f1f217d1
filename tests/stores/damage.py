"""Damage that no server does: what a fault of a disk or of an administrator leaves behind."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from sqlalchemy import make_url

from memoryd_server.stores.mongodb.layout import DEFAULT_PREFIX, SESSIONS, session_id
from memoryd_server.stores.records import SessionKey
from memoryd_server.stores.redis.keys import PARTITIONS, PARTITIONS_OF_A_SERVER, Keys
from tests.databases import mongodb, redis
from tests.databases.sql import execute


def damage_record(url: str, key: SessionKey) -> None:
    """Makes the records of the sessions with this session id unreadable."""
    if url.startswith("redis:"):
        _damage_hash(url, key)
        return
    if url.startswith("mongodb:"):
        _damage_document(url, key)
        return
    assert key.session_id.isalnum(), "it becomes part of a statement"
    statement = f"UPDATE memoryd_sessions SET record = '{{' WHERE session_id = '{key.session_id}'"
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        execute(url, statement)
        return
    assert parsed.database is not None
    with closing(sqlite3.connect(parsed.database, isolation_level=None)) as connection:
        assert connection.execute(statement).rowcount == 1


def _damage_hash(url: str, key: SessionKey) -> None:
    prefix = redis.prefix_of(url)
    names = {Keys(prefix, count).session(key).hash for count in (PARTITIONS, PARTITIONS_OF_A_SERVER)}
    damaged = [client.hset(found, "rec", "{") for client, found in redis.keys(url) if found.decode() in names]
    assert damaged == [0], "the record was there"


def _damage_document(url: str, key: SessionKey) -> None:
    with mongodb.database_at(url) as database:
        sessions = database[DEFAULT_PREFIX + SESSIONS]
        damaged = sessions.update_one({"_id": session_id(key)}, {"$set": {"record": "{"}})
    assert damaged.modified_count == 1, "the record was there"
