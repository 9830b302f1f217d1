"""Deletes what nobody can reach any more: what is due in any partition, and what is left of a user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from memoryd_server.stores.base import Deleted
from memoryd_server.stores.redis.keys import DIGEST_BYTES, Keys
from memoryd_server.stores.redis.members import (
    DEAD_LIFE,
    DEAD_NAME,
    DELETED_RUN,
    OLD_EVENT,
    STAGING,
    SWEEPABLE,
    number,
    of_user,
)
from memoryd_server.stores.redis.merging import first_members
from memoryd_server.stores.redis.nodes import Nodes
from memoryd_server.stores.redis.scripts import BURY, DROP_EVENT, DROP_RUN, UNSTAGE, Call

FOUND_AT_ONCE: Final = 50
"""Lives, names and stagings that are looked for at once: each is deleted by scripts of its own."""

STAGINGS_AT_ONCE: Final = 128
"""Stagings of a user that an erasure keeps from growing: others wait for its next part."""

ROWS_A_SCRIPT: Final = 1_000
"""Rows that one script deletes: the server does nothing else meanwhile, for a millisecond or two."""


class Deletion:
    """`sweep` and `erase`."""

    def __init__(self, keys: Keys, nodes: Nodes) -> None:
        self._keys = keys
        self._nodes = nodes

    async def sweep(self, now: int, limit: int) -> Deleted:
        # Behind a due time comes a letter.
        high = b"(" + SWEEPABLE + number(now + 1)
        return await self._delete(b"[" + SWEEPABLE, high, len(SWEEPABLE) + 8, limit, forgets=False)

    async def erase(self, tenant: str, user_id: str, limit: int) -> Deleted:
        user = b"E" + of_user(tenant, user_id)
        found = await first_members(
            self._nodes, self._keys.partitions, b"[" + user + STAGING, b"(" + user + _behind(STAGING), STAGINGS_AT_ONCE
        )
        # At once, so that nobody adds to them any more.
        for member, partition in found:
            await self._run(self._unstage(member, partition, len(user), 0))
        return await self._delete(b"[" + user, b"(" + user + b"\xff", len(user), limit, forgets=True)

    async def _delete(self, low: bytes, high: bytes, place: int, limit: int, *, forgets: bool) -> Deleted:
        """Deletes what members of a range tell of. What they say begins at `place` of each."""
        deleted = Deleted()
        before: list[tuple[bytes, str]] = []
        while not deleted.total:
            wanted = min(FOUND_AT_ONCE, max(limit, 1))
            found = await first_members(self._nodes, self._keys.partitions, low, high, wanted)
            if not found or found == before:
                break
            before = found
            for member, partition in found:
                if deleted.total < limit:
                    most = min(limit - deleted.total, ROWS_A_SCRIPT)
                    deleted += await self._run(self._call(member, partition, place, most, forgets))
        return deleted

    def _call(self, member: bytes, partition: str, place: int, most: int, forgets: bool) -> Call:
        kind, rest = member[place : place + 1], member[place + 1 :]
        if kind == STAGING:
            return self._unstage(member, partition, place, most)
        digest, rest = rest[:DIGEST_BYTES], rest[DIGEST_BYTES:]
        name = self._keys.of_digest(digest)
        keys = (name.hash, name.order, name.partition)
        if kind == OLD_EVENT:
            return DROP_EVENT(*keys, values=(member, rest[:4], rest[4:]))
        if kind == DELETED_RUN:
            return DROP_RUN(*keys, values=(member, rest[:4], rest[4:], most))
        assert kind in (DEAD_LIFE, DEAD_NAME)
        return BURY(*keys, values=(digest, rest, most, int(forgets or kind == DEAD_NAME), member))

    def _unstage(self, member: bytes, partition: str, place: int, most: int) -> Call:
        name = self._keys.staging(member[place + 1 :], partition)
        return UNSTAGE(*name[:3], values=(name.name, most, member))

    async def _run(self, call: Call) -> Deleted:
        [counts] = await self._nodes.change(call)
        return _deleted(counts)


def _deleted(counts: Sequence[int] | int) -> Deleted:
    """What a script deleted: events alone, messages and look-ups, or all kinds."""
    if isinstance(counts, int):
        return Deleted(events=counts)
    if len(counts) == 2:
        return Deleted(messages=counts[0], lookups=counts[1])
    return Deleted(*counts)


def _behind(letter: bytes) -> bytes:
    return bytes([letter[0] + 1])
