"""Where things are: the names of keys, and the partitions that they belong to.

Everything of a session stands in two keys: a hash (its record, bodies, summaries, runs and their steps, look-ups) and a
sorted set (what must be walked in an order). Lists of sessions and of runs, and what is due, are members of one more
sorted set a partition. All three share a hash tag, so that a commit is one script, on a cluster too: no list ever says
anything else than the sessions do.

Memory files are in the partition of their owner: each in a hash of its own, and what is told of all files of the owner
in one more. Who owns files, and their names, are members of the partition's sorted set. So a change of a file is one
script, too.

So that lists are few enough to be merged on a read, there are some tags and not one a session: PARTITIONS where the
data begins on a cluster, over whose slots they are spread evenly, and one where it begins on a server alone, which has
nothing to spread it over. The data tells how many, since they say where things are: it keeps them wherever it is moved.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from functools import cache, lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from memoryd_server.stores.records import FileOwner, SessionKey

FORMAT: Final = 2
"""The version of all that is said here and in `codec`, `members` and `lua`. Data of version 1, which differs in nothing
else, does not tell how many partitions it is in: there are PARTITIONS."""

PARTITIONS: Final = 128
"""How many parts the sessions of a cluster are in: the most nodes that share their load, and the keys that a list is
merged of."""

PARTITIONS_OF_A_SERVER: Final = 1
"""Likewise of a server that is none of a cluster: each list is then one, and nothing is merged."""

DIGEST_BYTES: Final = 24
"""Of a session's name (192 bits): nobody finds two with the same, and the full key is compared all the same."""

LIST_BYTES: Final = 16
"""Of the digest that stands for a list: what is read by it is compared with the full key."""

NAME_CACHE: Final = 4_096
"""Sessions whose key names are remembered."""


@cache
def partition_tags(partitions: int) -> tuple[str, ...]:
    """The hash tag of each of so many partitions: the first number whose slot lies in its part of the slots. They are
    fixed, as they say where things are.
    """
    tags: dict[int, str] = {}
    number = 0
    while len(tags) < partitions:
        slot = key_slot(str(number).encode())
        tags.setdefault(slot * partitions // REDIS_CLUSTER_HASH_SLOTS, str(number))
        number += 1
    return tuple(tags[partition] for partition in range(partitions))


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


class OwnerName(NamedTuple):
    """Where it is told which memory files an owner has."""

    hash: str
    partition: str
    key: bytes
    """The owner in full, as it is stored and compared."""
    digest: bytes


class Keys:
    """The names of all keys, which begin with a prefix."""

    def __init__(self, prefix: str, partitions: int = PARTITIONS) -> None:
        self._prefix = prefix
        self.partitions: Final = tuple(f"{prefix}{{{tag}}}" for tag in partition_tags(partitions))
        self.meta: Final = f"{prefix}{{meta}}"
        """A hash: the format of the data, how many partitions it is in, and the secret."""
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
        """The session of a digest, whose key is not known. `lua/claimable_runs.lua` makes the same name."""
        partition = self._partition(digest)
        name = f"{partition}:{urlsafe_b64encode(digest).decode()}"
        return SessionName(f"{name}:h", f"{name}:z", partition, b"", digest)

    def staging(self, name: bytes, partition: str | None = None) -> StagingName:
        """A staging: where it began, or in another partition to which it was brought."""
        partition = partition or self._partition(name)
        key = f"{partition}:staging:{name.hex()}"
        return StagingName(f"{key}:h", f"{key}:z", partition, name)

    def file_owner(self, owner: FileOwner) -> OwnerName:
        names = (owner.tenant, f"{owner.tier:d}", owner.id)
        digest = digest_of("files", *names)
        partition = self._partition(digest)
        return OwnerName(f"{partition}:{urlsafe_b64encode(digest).decode()}:o", partition, joined(*names), digest)

    def file(self, owner: OwnerName, name: str) -> str:
        """The hash of a memory file of this owner."""
        digest = digest_of("file", *parted(owner.key), name)
        return f"{owner.partition}:{urlsafe_b64encode(digest).decode()}:f"

    def agents(self, tenant: str) -> tuple[str, str]:
        """Of a tenant: the sorted set of its agents' names, and the hash of their settings."""
        name = f"{self._prefix}{{{urlsafe_b64encode(digest_of('agents', tenant)).decode()}}}"
        return f"{name}:agents", f"{name}:settings"

    def lease(self, name: str) -> str:
        return f"{self._prefix}{{{urlsafe_b64encode(digest_of('lease', name)).decode()}}}:lease"

    def _partition(self, name: bytes) -> str:
        """That of a digest, or of the name of a staging."""
        return self.partitions[name[0] % len(self.partitions)]
