"""Lists that are in parts, one in each partition, as one list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from memoryd_server.stores.redis.nodes import Nodes
from memoryd_server.stores.redis.scripts import Call, command

SPARE: Final = 8
"""Members that are read of each part beyond twice its even share: nearly all lists are then read at once."""


async def first_members(
    nodes: Nodes, partitions: Sequence[str], low: bytes, high: bytes, limit: int, *, descending: bool = False
) -> list[tuple[bytes, str]]:
    """The first members of a range of all partitions, in one order, each with its partition.

    Args:
        low: The least member, as BYLEX has it.
        high: The greatest.
        limit: At most so many.
    """
    found: list[tuple[bytes, str]] = []
    ends = dict.fromkeys(partitions, high if descending else low)
    count = min(limit, 2 * limit // len(partitions) + SPARE)
    while ends and len(found) < limit:
        parts = await _parts(nodes, ends, low, high, count, descending)
        # Beyond the end of a part that goes on, others' members may have to wait for its next.
        edges = [members[-1] for members in parts.values() if len(members) == count]
        edge = (max if descending else min)(edges, default=None)
        taken: dict[str, bytes] = {}
        for member, key in sorted(
            ((member, key) for key, members in parts.items() for member in members), reverse=descending
        ):
            if len(found) == limit or (edge is not None and (member < edge if descending else member > edge)):
                break
            found.append((member, key))
            taken[key] = member
        ends = {
            key: b"(" + taken[key] if key in taken else ends[key]
            for key, members in parts.items()
            if members and (len(members) == count or taken.get(key) != members[-1])
        }
        count *= 2
    return found


async def _parts(
    nodes: Nodes, ends: Mapping[str, bytes], low: bytes, high: bytes, count: int, descending: bool
) -> dict[str, list[bytes]]:
    """The first members of each partition, beyond the end up to which it was read."""
    calls = [
        _read(key, low if descending else end, end if descending else high, count, descending)
        for key, end in ends.items()
    ]
    members = await nodes.run(*calls, repeatable=True)
    return dict(zip(ends, members, strict=True))


def _read(key: str, low: bytes, high: bytes, count: int, descending: bool) -> Call:
    if descending:
        return command("ZRANGE", key, high, low, "BYLEX", "REV", "LIMIT", 0, count)
    return command("ZRANGE", key, low, high, "BYLEX", "LIMIT", 0, count)
