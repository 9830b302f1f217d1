"""Finds out what kind of server a URL leads to, and whether memoryd can work with it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any, Final

from redis.exceptions import AuthenticationError, InvalidResponse, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from memoryd_server.stores.base import StoreMisconfigured
from memoryd_server.stores.redis import durability
from memoryd_server.stores.redis.cluster import Cluster
from memoryd_server.stores.redis.errors import FAILURES
from memoryd_server.stores.redis.nodes import Node, Nodes, SingleServer
from memoryd_server.stores.redis.scripts import Value
from memoryd_server.stores.redis.url import Address, Target, tls_context

OLDEST_VERSION: Final = (6, 2)
"""ZRANGE by bytes, by which everything is walked, came with it."""

PROBE_SECONDS: Final = 1.0
"""How long a server that failed may take to tell which protocol it speaks."""

_UNREACHED: Final = (ConnectionRefusedError, socket.gaierror)
"""Failures with which nobody answered."""
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""What TLS says of an answer that is none of TLS, by the version of OpenSSL."""

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
        except FAILURES as error:
            if address == target.addresses[-1]:
                await nodes.close()
                await check_protocol(target, address, error)
                raise
        except BaseException:
            await nodes.close()
            raise
    raise AssertionError


async def check_protocol(target: Target, address: Address, error: BaseException) -> None:
    """Raises: StoreMisconfigured, when a server could be reached and failed like this since it speaks otherwise."""
    causes = (error, error.__cause__, error.__context__)
    if isinstance(error, AuthenticationError) or any(isinstance(cause, _UNREACHED) for cause in causes):
        return
    where = f"{target.name}: the server at port {address.port}"
    if target.tls is None:
        if await _speaks_tls(address):
            raise StoreMisconfigured(f"{where} speaks TLS. Begin the URL with rediss:, or give the port without TLS.")
    elif await _speaks_plainly(address):
        raise StoreMisconfigured(f"{where} speaks no TLS. Begin the URL with redis:, or give the port with TLS.")
    if any(getattr(cause, "reason", None) in _NO_TLS for cause in causes):
        raise StoreMisconfigured(f"{where} speaks no TLS, and is no Redis. Correct the host and the port of the URL.")
    if isinstance(error, InvalidResponse):
        raise StoreMisconfigured(f"{where} is no Redis: it speaks otherwise. Correct the host and the port of the URL.")
    refusals = [cause.reason or "" for cause in causes if isinstance(cause, ssl.SSLError)]
    lacks_certificate = target.tls is not None and "ssl_certfile" not in target.tls
    # Some servers say why they end a connection, and it is not always read before its end is.
    if lacks_certificate and isinstance(error, RedisConnectionError) and all(map(_asks_for_one, refusals)):
        raise StoreMisconfigured(
            f"{where} ended the connection by TLS. If it asks its clients for certificates, give one with the options "
            "ssl_certfile and ssl_keyfile of the URL; else look at its log."
        )


def _asks_for_one(refusal: str) -> bool:
    return "CERTIFICATE_REQUIRED" in refusal


async def _speaks_plainly(address: Address) -> bool:
    """Whether a Redis answers without TLS. Tells it no secret."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            reader, writer = await asyncio.open_connection(*address)
            try:
                writer.write(b"PING\r\n")
                return await reader.read(1) in (b"+", b"-")
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError):
        return False


async def _speaks_tls(address: Address) -> bool:
    """Whether a server can be talked to by TLS, whoever it is. Tells it nothing."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            _, writer = await asyncio.open_connection(*address, ssl=context)
            writer.transport.abort()
    except (OSError, TimeoutError):
        return False
    return True


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
