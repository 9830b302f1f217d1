"""The members of a partition's sorted set, which lists its sessions and what is due in it.

All have the score 0, so that they are ordered by their bytes: first the list, then the place in it. Numbers are
unsigned and big-endian.

    T list activity digest      a session of a list: its tenant's, its agent's, its user's
    P at digest, X at digest    a session that is due for a purge, for expiry
    A at digest                 a session with an unfinished run, by its oldest change
    F list at digest            a session whose next summary is left to a client, in the list of its agent
    Q due L digest life         what a dead life held may be swept
    Q due N digest              a dead name may be forgotten
    Q due V digest life number  an event is old
    Q due S name                a staging is abandoned
    Q 0 R digest life run       a run is deleted, and steps of it are left
    E user L digest life        what is left of a user's dead life
    E user S name               a staging of a user
    O tenant 0 tier id          an owner who has memory files
    M owner file                a memory file, by its name
    R list 0 created digest life run        a run of an agent
    R list status created digest life run   a run of an agent, by its status
    R list C at digest life run             a run of an agent that anybody may claim from then on
    R list E at digest life run             a run of an agent that ended then

`list` and `user` are digests of LIST_BYTES, `digest` that of a session, `activity`, `at`, `created`, `due` and `number`
take 8 bytes, `life` 4 and `name` 16. `owner` is the digest of an owner of files; `tenant`, `id`, `file` and `run` are
texts, and `tier` and `status` take a byte. In `tenant`, a byte 255 follows each zero byte, so that the one behind it is
told from them, and tenants sort as their bytes do.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from memoryd_server.stores.base import Due, SessionQuery
from memoryd_server.stores.records import FileOwner, Record, SessionKey, Tier
from memoryd_server.stores.redis.keys import LIST_BYTES, SessionName, digest_of

SWEEPABLE: Final = b"Q"
DEAD_LIFE, DEAD_NAME, OLD_EVENT, STAGING, DELETED_RUN = b"L", b"N", b"V", b"S", b"R"
OWNERS, FILES = b"O", b"M"
DUE: Final = {Due.PURGE: b"P", Due.EXPIRY: b"X", Due.ABANDONMENT: b"A"}
EVERY_RUN, CLAIMABLE, ENDED = b"\0", b"C", b"E"

_OWNER: Final = re.compile(OWNERS + rb"((?:[^\0]|\0\xff)*)\0([^\xff])(.*)", re.DOTALL)


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


def runs_of(tenant: str, agent: str) -> bytes:
    """What stands for the lists of an agent's runs."""
    return _list_digest("agent", tenant, agent)


def run_list(tenant: str, agent: str, kind: bytes) -> bytes:
    """What the members begin with of a list of an agent's runs: all, those of a status, or those of another kind."""
    return b"R" + runs_of(tenant, agent) + kind


def of_user(tenant: str, user_id: str) -> bytes:
    """What stands for a user; empty for nobody."""
    return digest_of("user", tenant, user_id, size=LIST_BYTES) if user_id else b""


def of_session(key: SessionKey, name: SessionName, record: Record) -> set[bytes]:
    """All that lists say of a living session."""
    place = number(record.activity) + name.digest
    lists = [_list("tenant", key.tenant), _list("agent", key.tenant, key.agent)]
    if record.user_id:
        lists.append(_list("user", key.tenant, record.user_id))
    return {each + place for each in lists} | dues_of_session(key, name, record)


def dues_of_session(key: SessionKey, name: SessionName, record: Record) -> set[bytes]:
    """What lists say of when a living session is due for something."""
    listed = set()
    if (purge_at := record.purge_at) is not None:
        listed.add(DUE[Due.PURGE] + number(purge_at) + name.digest)
    if (expiry := record.expiry_listed_at) is not None:
        listed.add(DUE[Due.EXPIRY] + number(expiry) + name.digest)
    if (abandon_at := record.abandon_at) is not None:
        listed.add(DUE[Due.ABANDONMENT] + number(abandon_at) + name.digest)
    if (fold_at := record.fold_at) is not None:
        listed.add(folds(key.tenant, key.agent) + number(fold_at) + name.digest)
    return listed


def _list(*names: str) -> bytes:
    return b"T" + _list_digest(*names)


@lru_cache(maxsize=1024)
def _list_digest(*names: str) -> bytes:
    return digest_of(*names, size=LIST_BYTES)


def files_of(owner: bytes) -> bytes:
    """What the members begin with that tell of the memory files of an owner, given by its digest."""
    return FILES + owner


def every_owner() -> tuple[bytes, bytes]:
    """What is less than all members that tell of owners of memory files, and what is greater."""
    return OWNERS, OWNERS + b"\xff"


def owners_of(tenant: str) -> bytes:
    """What the members begin with that tell of a tenant's owners of memory files."""
    return OWNERS + _escaped(tenant) + b"\0"


def of_owner(owner: FileOwner) -> bytes:
    """The member that tells that an owner has memory files."""
    return owners_of(owner.tenant) + bytes([owner.tier]) + owner.id.encode()


def owner_of(member: bytes) -> FileOwner:
    """The inverse of `of_owner`."""
    found = _OWNER.fullmatch(member)
    assert found is not None
    tenant, tier, id_ = found.groups()
    return FileOwner(tenant.replace(b"\0\xff", b"\0").decode(), Tier(tier[0]), id_.decode())


def behind_tenant(tenant: str) -> bytes:
    """What is greater than all that tells of a tenant's owners of memory files, and less than all of later tenants."""
    return owners_of(tenant) + b"\xff"


def _escaped(text: str) -> bytes:
    return text.encode().replace(b"\0", b"\0\xff")
