"""Finds out what kind of server a URL leads to, and whether memoryd can work with it."""

from __future__ import annotations

import ssl
from typing import Any, Final

from redis.exceptions import ResponseError

from memoryd_server.stores.base import StoreMisconfigured
from memoryd_server.stores.redis import durability
from memoryd_server.stores.redis.cluster import Cluster
from memoryd_server.stores.redis.errors import FAILURES
from memoryd_server.stores.redis.nodes import Node, Nodes, SingleServer
from memoryd_server.stores.redis.scripts import Value
from memoryd_server.stores.redis.url import Target, tls_context

OLDEST_VERSION: Final = (6, 2)
"""ZRANGE by bytes, by which everything is walked, came with it."""

_TOLD_BY_INFO: Final = {"appendonly": "aof_enabled", "maxmemory-policy": "maxmemory_policy"}
"""Where servers that hide their settings tell of some."""


async def find_nodes(target: Target) -> Nodes:
    """The way to a server or cluster that can serve. Raises: StoreMisconfigured, FAILURES."""
    nodes, info = await _first_that_answers(target, _tls(target))
    try:
        check(target, info)
        if info.get("redis_mode") == "cluster":
            await nodes.close()
            nodes = Cluster(target, _tls(target))
            await nodes.look()
    except BaseException:
        await nodes.close()
        raise
    return nodes


def _tls(target: Target) -> ssl.SSLContext | None:
    try:
        return None if target.tls is None else tls_context(target.tls)
    except OSError as error:
        raise StoreMisconfigured(
            f"{target.name}: a file of its options ssl_ca_certs, ssl_ca_path, ssl_certfile and ssl_keyfile cannot be "
            f"read: {error}"
        ) from error


async def _first_that_answers(target: Target, tls: ssl.SSLContext | None) -> tuple[Nodes, dict[str, str]]:
    nodes = SingleServer(target, tls)
    for address in target.addresses:
        try:
            return nodes, await _info(nodes.node(address))
        except FAILURES:
            if address == target.addresses[-1]:
                await nodes.close()
                raise
        except BaseException:
            await nodes.close()
            raise
    raise AssertionError


def check(target: Target, info: dict[str, str]) -> None:
    """Raises: StoreMisconfigured when a server that says this of itself cannot serve."""
    version = info.get("redis_version", "0")
    if tuple(map(int, version.split(".")[:2])) < OLDEST_VERSION:
        oldest = ".".join(map(str, OLDEST_VERSION))
        raise StoreMisconfigured(f"{target.name}: this is Redis {version}. memoryd needs {oldest} or newer.")
    mode = info.get("redis_mode")
    if mode == "sentinel":
        raise StoreMisconfigured(f"{target.name}: this is a Sentinel. Give the store the URL of the primary server.")
    if mode == "cluster":
        return
    if len(target.addresses) > 1:
        raise StoreMisconfigured(
            f"{target.name}: several hosts are for a cluster, and this server is none. Give the store one host."
        )
    if info.get("role") == "slave":
        raise StoreMisconfigured(f"{target.name}: this is a replica. Give the store the URL of the primary server.")


async def risk_of(target: Target, nodes: Nodes) -> str:
    """Why what was answered may be lost, and what to do; "" when it may not. Raises: FAILURES."""
    if not isinstance(nodes, Cluster):
        return durability.risk_of(await _settings(nodes.node(target.addresses[0])))
    risks = set()
    for address in nodes.known():
        try:
            risks.add(durability.risk_of(await _settings(nodes.node(address))))
        except FAILURES:
            # A replica that is away is asked by the server that starts next.
            if address in nodes.primaries():
                raise
    return " ".join(sorted(risks)).strip()


async def _settings(node: Node) -> dict[str, str | None]:
    settings: dict[str, str | None] = {}
    for name in durability.SETTINGS:
        try:
            reply = await _ask(node, "CONFIG", "GET", name)
        except ResponseError:
            reply = []
        settings[name] = reply[1].decode() if len(reply) == 2 else None
    if None in settings.values():
        info = await _info(node)
        for name, told in _TOLD_BY_INFO.items():
            if settings[name] is None and told in info:
                settings[name] = {"0": "no", "1": "yes"}.get(info[told], info[told])
    return settings


async def _info(node: Node) -> dict[str, str]:
    text = (await _ask(node, "INFO")).decode()
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


async def _ask(node: Node, *command: Value) -> Any:
    [reply] = await node.run([command], repeatable=True)
    if isinstance(reply, Exception):
        raise reply
    return reply
