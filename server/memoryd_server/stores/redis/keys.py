"""Where things are: the names of keys, and the partitions that they belong to.

Everything of a session stands in two keys: a hash (its record, bodies, summaries, look-ups) and a sorted set (what
must be walked in an order). Lists of sessions, and what is due, are members of one more sorted set a partition. All
three share a hash tag, so that a commit is one script, on a cluster too: no list ever says anything else than the
sessions do.

So that lists are few enough to be merged on a read, there are PARTITIONS tags and not one a session. On a cluster,
their slots are spread evenly.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from functools import cache, lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from memoryd_server.stores.records import SessionKey

FORMAT: Final = 1
"""The version of all that is said here and in `codec`, `members` and `lua`."""

PARTITIONS: Final = 128
"""How many parts the sessions are in: the most nodes that share their load, and the keys that a list is merged of.
Fixed, as is the tag of each: they say where things are."""

DIGEST_BYTES: Final = 24
"""Of a session's name (192 bits): nobody finds two with the same, and the full key is compared all the same."""

LIST_BYTES: Final = 16
"""Of the digest that stands for a list: what is read by it is compared with the full key."""

NAME_CACHE: Final = 4_096
"""Sessions whose key names are remembered."""


@cache
def partition_tags() -> tuple[str, ...]:
    """The hash tag of each partition: the first number whose slot lies in the partition's part of the slots."""
    tags: dict[int, str] = {}
    number = 0
    while len(tags) < PARTITIONS:
        slot = key_slot(str(number).encode())
        tags.setdefault(slot * PARTITIONS // REDIS_CLUSTER_HASH_SLOTS, str(number))
        number += 1
    return tuple(tags[partition] for partition in range(PARTITIONS))


def joined(*parts: str) -> bytes:
    """Texts as one, each with its length before it: no others give the same."""
    encoded = [part.encode() for part in parts]
    return b"".join(len(part).to_bytes(4, "big") + part for part in encoded)


def parted(text: bytes) -> list[str]:
    """The inverse of `joined`."""
    parts = []
    while text:
        end = 4 + int.from_bytes(text[:4], "big")
        parts.append(text[4:end].decode())
        text = text[end:]
    return parts


def digest_of(*parts: str, size: int = DIGEST_BYTES) -> bytes:
    """Stands for some texts."""
    return blake2b(joined(*parts), digest_size=size).digest()


class SessionName(NamedTuple):
    """Where a session is."""

    hash: str
    order: str
    """The sorted set."""
    partition: str
    """The sorted set of its partition."""
    key: bytes
    """The full key, as it is stored and compared."""
    digest: bytes


class StagingName(NamedTuple):
    """Where a staging is: it may become a session by renaming its keys, where it is in the session's partition."""

    hash: str
    order: str
    partition: str
    name: bytes


class Keys:
    """The names of all keys, which begin with a prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.partitions: Final = tuple(f"{prefix}{{{tag}}}" for tag in partition_tags())
        self.meta: Final = f"{prefix}{{meta}}"
        """A hash: the format of the data, and the secret."""
        self.probes: Final = (f"{prefix}{{meta}}:a", f"{prefix}{{meta}}:b")
        """Two keys on which to try commands."""
        self.secrets: Final = f"{prefix}{{meta}}:adopted"
        """A set: adopted secrets."""
        self.tenants: Final = f"{prefix}{{tenants}}"
        """A sorted set: tenants with agents."""
        self.session = lru_cache(NAME_CACHE)(self._session)

    def _session(self, key: SessionKey) -> SessionName:
        return self.of_digest(digest_of(*key))._replace(key=joined(*key))

    def of_digest(self, digest: bytes) -> SessionName:
        """The session of a digest, whose key is not known."""
        partition = self.partitions[digest[0] % PARTITIONS]
        name = f"{partition}:{urlsafe_b64encode(digest).decode()}"
        return SessionName(f"{name}:h", f"{name}:z", partition, b"", digest)

    def staging(self, name: bytes, partition: str | None = None) -> StagingName:
        """A staging: where it began, or in another partition to which it was brought."""
        partition = partition or self.partitions[name[0] % PARTITIONS]
        key = f"{partition}:staging:{name.hex()}"
        return StagingName(f"{key}:h", f"{key}:z", partition, name)

    def agents(self, tenant: str) -> tuple[str, str]:
        """Of a tenant: the sorted set of its agents' names, and the hash of their settings."""
        name = f"{self._prefix}{{{urlsafe_b64encode(digest_of('agents', tenant)).decode()}}}"
        return f"{name}:agents", f"{name}:settings"

    def lease(self, name: str) -> str:
        return f"{self._prefix}{{{urlsafe_b64encode(digest_of('lease', name)).decode()}}}:lease"
