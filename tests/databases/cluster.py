"""A Redis Cluster of a test's own, whose nodes fail one by one, and whose slots move."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from redis import Redis as Client

from tests.databases.kind import addresses
from tests.databases.kinds import REDIS_CLUSTER
from tests.databases.redis import client_at
from tests.databases.servers import Node, OwnServer

AGREE_SECONDS: Final = 60
"""How long the nodes may take to agree on who is a master: about 3 s on an idle machine."""

_POLL_SECONDS: Final = 0.02
_KEYS_AT_ONCE: Final = 10
_MIGRATE_MS: Final = 10_000


@dataclass(frozen=True)
class _Known:
    """What a node knows of another."""

    id: str
    master: str
    """The id of its master; empty for a master."""
    slots: tuple[tuple[int, int], ...]


class OwnCluster(OwnServer):
    """Its nodes are `nodes`: each may be stopped, killed and started again."""

    def __init__(self, parent: Path | None = None) -> None:
        super().__init__(REDIS_CLUSTER, parent)

    def client(self, node: Node) -> Client:
        """A client of one node, to be closed by the caller."""
        return client_at(("127.0.0.1", node.port))

    def masters(self) -> list[Node]:
        """Those that serve slots, as the nodes at work know."""
        return [node for node in self.nodes if (known := self._known(node)) and known.slots and not known.master]

    def master_of(self, slot: int) -> Node:
        """The one that serves a slot."""
        for node in self.masters():
            if any(first <= slot <= last for first, last in self._of(node).slots):
                return node
        raise LookupError(f"nobody serves slot {slot}")

    def replica_of(self, master: Node) -> Node:
        """The one that follows a master."""
        id_ = self._of(master).id
        return next(node for node in self.nodes if (known := self._known(node)) and known.master == id_)

    def promote(self, replica: Node) -> None:
        """Has a replica and its master change places, with nothing lost; returns when all have heard of it."""
        with self.client(replica) as client:
            client.execute_command("CLUSTER FAILOVER")
        self.wait_until_promoted(replica)

    def wait_until_promoted(self, replica: Node) -> None:
        """Returns when all nodes at work take a replica for a master, and serve all slots."""
        self._wait_for(lambda: all(self._takes_for_master(each, replica) for each in self.nodes if each.is_at_work))

    def wait_until_whole(self) -> None:
        """Returns when all nodes run, and each replica follows its master."""
        self._wait_for(self.answers)

    def move_slot(self, slot: int, target: Node) -> int:
        """Moves a slot to another master, as `redis-cli --cluster reshard` does. Returns: how many keys moved."""
        source = self.master_of(slot)
        assert source is not target
        source_id, target_id = self._of(source).id, self._of(target).id
        moved = 0
        with self.client(source) as from_, self.client(target) as to:
            to.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", source_id)
            from_.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", target_id)
            while keys := from_.execute_command("CLUSTER GETKEYSINSLOT", slot, _KEYS_AT_ONCE):
                from_.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, _MIGRATE_MS, "KEYS", *keys)
                moved += len(keys)
            # First the one that has it now: nobody is sent to one that does not know it.
            to.execute_command("CLUSTER SETSLOT", slot, "NODE", target_id)
            from_.execute_command("CLUSTER SETSLOT", slot, "NODE", target_id)
        return moved

    def slots_with_keys(self, node: Node) -> list[int]:
        """The slots of a node in which there is something."""
        with self.client(node) as client:
            return sorted({int(client.cluster("keyslot", key)) for key in client.scan_iter(count=1_000)})

    def _takes_for_master(self, node: Node, other: Node) -> bool:
        with self.client(node) as client:
            state = client.cluster("info")["cluster_state"]
            known = _nodes_that(client)[other.port]
        return state == "ok" and not known.master and bool(known.slots)

    def _of(self, node: Node) -> _Known:
        known = self._known(node)
        assert known is not None, "the nodes have not met"
        return known

    def _known(self, node: Node) -> _Known | None:
        asked = next(each for each in [node, *self.nodes] if each.is_at_work)
        with self.client(asked) as client:
            return _nodes_that(client).get(node.port)

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + AGREE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"the nodes did not agree within {AGREE_SECONDS} s"
            time.sleep(_POLL_SECONDS)


def _nodes_that(client: Client) -> dict[int, _Known]:
    """All nodes that one knows, by their ports."""
    found = {}
    for address, node in client.cluster("nodes").items():
        ((_, port),) = addresses(f"redis://{address}")
        ranges = tuple((int(ends[0]), int(ends[-1])) for ends in node["slots"])
        found[port] = _Known(node["node_id"], node["master_id"].strip("-"), ranges)
    return found
