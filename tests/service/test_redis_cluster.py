"""A Redis Cluster whose shape changes in the middle of load: every call ends in time, memoryd goes on by itself, and
what was acknowledged is there, once and in order (invariants 2, 3, 12 and 16).

Redis Cluster replicates after it has answered, so a master that fails may have answered what its replica never hears
of. memoryd answers when a replica has confirmed the change (WAIT 1). Here a master has one replica, which is the only
one that can take its place: so nothing that was acknowledged may be missing, and that is what these tests assert.

A master whose only replica is gone gets no confirmation: changes are then refused as unknown, reads go on, and all
works again when the other node is back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.conftest import StartServer
from tests.databases.cluster import OwnCluster
from tests.databases.kinds import REDIS_CLUSTER
from tests.databases.servers import Node
from tests.service.database_scan import port_with
from tests.service.load import READS, Load, check_failures, check_stored
from tests.service.test_rebirth import wait_for
from tests.service.wire import Stubs

pytestmark = REDIS_CLUSTER.mark

WRITERS: Final = 6
"""Enough that each master has the sessions of some."""


def killed(cluster: OwnCluster, master: Node, load: Load) -> None:
    replica = cluster.replica_of(master)
    master.kill()
    cluster.wait_until_promoted(replica)
    wait_for(load.answered_anew(*READS))
    master.start()


def hanging(cluster: OwnCluster, master: Node, load: Load) -> None:
    """When it goes on, it takes itself for a master until it hears of the other."""
    replica = cluster.replica_of(master)
    with master.hanging():
        cluster.wait_until_promoted(replica)
        wait_for(load.answered_anew(*READS))


def demoted(cluster: OwnCluster, master: Node, load: Load) -> None:
    cluster.promote(cluster.replica_of(master))


def emptied(cluster: OwnCluster, master: Node, load: Load) -> None:
    """All its slots with anything in them move to another, one by one."""
    other = next(each for each in cluster.masters() if each is not master)
    assert sum(cluster.move_slot(slot, other) for slot in cluster.slots_with_keys(master)) > WRITERS


CHANGES: Final[dict[str, Callable[[OwnCluster, Node, Load], None]]] = {
    "killed": killed,
    "hanging": hanging,
    "demoted": demoted,
    "emptied": emptied,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_master_that_is(redis_cluster: OwnCluster, start_server: StartServer, change: str) -> None:
    with redis_cluster.new_database() as url:
        servers = [start_server("--store", f"default={url}", "--tokenizer", "estimate") for _ in range(2)]
        load = Load([server.address for server in servers], writers=WRITERS)
        with load.running():
            wait_for(load.answered_anew())
            assert not load.failures
            # The one that the readers look at.
            port = port_with(url, b"of writer 0, 0/0")
            master = next(node for node in redis_cluster.nodes if node.port == port)
            CHANGES[change](redis_cluster, master, load)
            redis_cluster.wait_until_whole()
            wait_for(load.answered_anew())
            assert all(server.process.poll() is None for server in servers)
        check_failures(load)
        for server in servers:
            with Stubs(server.address) as stubs:
                check_stored(stubs, load)
