"""Redis, and Redis Cluster. A database is all keys with one prefix."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from redis import Redis as Client
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError
from redis.retry import Retry

from tests.databases.kind import Kind, addresses, find_programs

NODE_TIMEOUT_MS: Final = 2_000
"""How long a node of a cluster is silent before the others call it failed: short, so that tests need not wait long for
the promotion of its replica, yet longer than a busy machine holds one up."""
SEEDS: Final = 3
"""How many nodes of a cluster are named in its URL: fewer than there are, as users do."""

_PAGE: Final = 1_000
_SHARED_NODE_TIMEOUT_MS: Final = 30_000
_ANSWER_SECONDS: Final = 10


class Redis(Kind):
    """A single server, which answers a write when it is on the disk."""

    name = "redis"
    title = "Redis"
    packages = "redis-server"
    compose_url = "redis://127.0.0.1:16379/0"

    def programs(self) -> tuple[Path, ...] | None:
        return find_programs("redis-server", "redis-cli")

    def serve_command(self, programs: Sequence[Path], data: Path, port: int) -> list[str]:
        settings = {
            "bind": "127.0.0.1",
            "port": port,
            "dir": data,
            "logfile": "/dev/stderr",
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
        } | self.further_settings(port)
        return [str(programs[0]), *(text for name, value in settings.items() for text in (f"--{name}", str(value)))]

    def further_settings(self, port: int) -> dict[str, object]:
        """What it is configured with beside what every server is."""
        return {}

    def local_url(self, ports: Sequence[int]) -> str:
        return f"redis://127.0.0.1:{ports[0]}/0"

    def database_url(self, server: str, database: str) -> str:
        return urlsplit(server)._replace(query=f"prefix={database}:").geturl()

    def answers(self, server: str) -> bool:
        try:
            with masters(server) as clients:
                return all(client.ping() for client in clients)
        except RedisError:
            return False

    def drop(self, server: str, database: str) -> None:
        self.empty(self.database_url(server, database))

    def empty(self, url: str) -> bool:
        for client, key in keys(url):
            client.unlink(key)
        return True


class RedisCluster(Redis):
    """Three masters, each with one replica."""

    name = "redis_cluster"
    title = "Redis Cluster"
    compose_url = "redis://127.0.0.1:17001,127.0.0.1:17002,127.0.0.1:17003/"
    nodes = 6

    def further_settings(self, port: int) -> dict[str, object]:
        return {
            "cluster-enabled": "yes",
            "cluster-port": bus_port(port),
            "cluster-node-timeout": NODE_TIMEOUT_MS,
            # A replica is one at once, and not after the seconds in which a master waits for others to come, and for
            # something to tell it.
            "repl-diskless-sync-delay": 0,
            "repl-ping-replica-period": 1,
        }

    def unite(self, ports: Sequence[int]) -> None:
        programs = self.programs()
        assert programs is not None
        members = [f"127.0.0.1:{port}@{bus_port(port)}" for port in ports]
        made = subprocess.run(
            [str(programs[1]), "--cluster", "create", *members, "--cluster-replicas", "1", "--cluster-yes"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, f"{made.stdout}{made.stderr}"

    def share(self, ports: Sequence[int]) -> None:
        """Has no node taken for failed, and its replica promoted, because the machine is busy."""
        for port in ports:
            with client_at(("127.0.0.1", port)) as client:
                client.config_set("cluster-node-timeout", _SHARED_NODE_TIMEOUT_MS)

    def local_url(self, ports: Sequence[int]) -> str:
        return f"redis://{','.join(f'127.0.0.1:{port}' for port in ports[:SEEDS])}/"

    def answers(self, server: str) -> bool:
        """Whether all slots are served, and each replica follows its master: then a failure of one loses nothing."""
        with suppress(RedisError), connected(server) as seed:
            nodes = [addresses(f"redis://{node}")[0] for node in seed.cluster("nodes")]
            return all(map(_is_at_work, nodes))
        return False


def bus_port(port: int) -> int:
    """Where a node of a cluster that clients reach at a port talks to the others: below all ports for clients."""
    return port - 10_000


def prefix_of(url: str) -> str:
    """What begins the keys of a database."""
    return parse_qs(urlsplit(url).query)["prefix"][0]


def client_at(address: tuple[str, int], url: str = "") -> Client:
    """A client of one server, with the name and password of a URL, which tries nothing twice."""
    given = urlsplit(url)
    return Client(
        host=address[0],
        port=address[1],
        username=given.username,
        password=given.password,
        socket_timeout=_ANSWER_SECONDS,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    )


@contextmanager
def connected(url: str) -> Iterator[Client]:
    """A client of the server, or of the first node that answers."""
    with ExitStack() as opened:
        clients = [opened.enter_context(client_at(address, url)) for address in addresses(url)]
        yield next(filter(_is_there, clients), clients[0])


@contextmanager
def masters(url: str) -> Iterator[list[Client]]:
    """A client of each master, or of the one server."""
    with ExitStack() as clients, connected(url) as seed:
        found: list[Client] = []
        if is_cluster(seed):
            for address, node in seed.cluster("nodes").items():
                if "master" in node["flags"] and node["slots"]:
                    found.append(clients.enter_context(client_at(addresses(f"redis://{address}")[0], url)))
        yield found or [seed]


def is_cluster(client: Client) -> bool:
    """Whether the server is a node of a cluster."""
    return bool(client.info("cluster")["cluster_enabled"])


def keys(url: str) -> Iterator[tuple[Client, bytes]]:
    """Each key of a database, and a client of the server that has it."""
    with masters(url) as clients:
        for client in clients:
            for key in client.scan_iter(match=f"{prefix_of(url)}*", count=_PAGE):
                yield client, key


def _is_there(client: Client) -> bool:
    try:
        return bool(client.ping())
    except Disconnected:
        return False


def _is_at_work(node: tuple[str, int]) -> bool:
    with client_at(node) as client:
        replication = client.info("replication")
        link = replication.get("master_link_status", "up")
        # What a replica has heard is 0 until it has told for the first time that it follows: before that, its master
        # tells it nothing.
        heard = [replication[f"slave{number}"]["offset"] for number in range(replication["connected_slaves"])]
        return (client.cluster("info")["cluster_state"], link) == ("ok", "up") and all(heard)
