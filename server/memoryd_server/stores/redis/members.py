"""The members of a partition's sorted set, which lists its sessions and what is due in it.

All have the score 0, so that they are ordered by their bytes: first the list, then the place in it. Numbers are
unsigned and big-endian.

    T list activity digest      a session of a list: its tenant's, its agent's, its user's
    P at digest, X at digest    a session that is due for a purge, for expiry
    F list at digest            a session whose next summary is left to a client, in the list of its agent
    Q due L digest life         what a dead life held may be swept
    Q due N digest              a dead name may be forgotten
    Q due V digest life number  an event is old
    Q due S name                a staging is abandoned
    E user L digest life        what is left of a user's dead life
    E user S name               a staging of a user

`list` and `user` are digests of LIST_BYTES, `digest` that of a session, `activity`, `at`, `due` and `number` take 8
bytes, `life` 4 and `name` 16.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from memoryd_server.stores.base import Due, SessionQuery
from memoryd_server.stores.records import Record, SessionKey
from memoryd_server.stores.redis.keys import LIST_BYTES, SessionName, digest_of

SWEEPABLE: Final = b"Q"
DEAD_LIFE, DEAD_NAME, OLD_EVENT, STAGING = b"L", b"N", b"V", b"S"
DUE: Final = {Due.PURGE: b"P", Due.EXPIRY: b"X"}


def number(value: int) -> bytes:
    """A number as 8 bytes that sort as it does."""
    return value.to_bytes(8, "big")


def listing(query: SessionQuery) -> bytes:
    """What the members of the list begin with that answers a query."""
    if query.user_id is not None:
        return _list("user", query.tenant, query.user_id)
    return _list("tenant", query.tenant) if query.agent is None else _list("agent", query.tenant, query.agent)


def folds(tenant: str, agent: str) -> bytes:
    """What the members begin with that tell of sessions of an agent whose next summary is left to a client."""
    return b"F" + _list_digest("agent", tenant, agent)


def of_user(tenant: str, user_id: str) -> bytes:
    """What stands for a user; empty for nobody."""
    return digest_of("user", tenant, user_id, size=LIST_BYTES) if user_id else b""


def place_of(record: Record) -> tuple[object, ...]:
    """All that lists know of a record."""
    return record.activity, record.user_id, record.ttl, record.purge_at, record.fold_at


def of_session(key: SessionKey, name: SessionName, record: Record) -> set[bytes]:
    """All that lists say of a living session."""
    place = number(record.activity) + name.digest
    lists = [_list("tenant", key.tenant), _list("agent", key.tenant, key.agent)]
    if record.user_id:
        lists.append(_list("user", key.tenant, record.user_id))
    listed = {each + place for each in lists}
    if record.purge_at is not None:
        listed.add(DUE[Due.PURGE] + number(record.purge_at) + name.digest)
    if record.expiry_listed_at is not None:
        listed.add(DUE[Due.EXPIRY] + number(record.expiry_listed_at) + name.digest)
    if record.fold_at is not None:
        listed.add(folds(key.tenant, key.agent) + number(record.fold_at) + name.digest)
    return listed


def _list(*names: str) -> bytes:
    return b"T" + _list_digest(*names)


@lru_cache(maxsize=1024)
def _list_digest(*names: str) -> bytes:
    return digest_of(*names, size=LIST_BYTES)
