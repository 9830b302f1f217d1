"""Agents and tenants. They are never taken away, so what is listed before it exists will exist, but for a crash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from memoryd_server.stores.records import AgentRecord
from memoryd_server.stores.redis.keys import Keys
from memoryd_server.stores.redis.nodes import Nodes
from memoryd_server.stores.redis.scripts import SAVE_AGENT, Call, command

_ENCODE: Final = msgspec.json.Encoder().encode
_DECODE: Final = msgspec.json.Decoder(AgentRecord).decode


class Agents:
    """Keeps the settings of agents, and lists them."""

    def __init__(self, keys: Keys, nodes: Nodes) -> None:
        self._keys = keys
        self._nodes = nodes

    def enlisting(self, tenant: str, agent: str) -> tuple[Call, Call]:
        """The calls that make an agent known, and its tenant."""
        names, _ = self._keys.agents(tenant)
        return command("ZADD", self._keys.tenants, 0, tenant), command("ZADD", names, 0, agent)

    async def load(self, tenant: str, agent: str) -> AgentRecord | None:
        names, settings = self._keys.agents(tenant)
        score, stored = await self._nodes.run(
            command("ZSCORE", names, agent), command("HGET", settings, agent), repeatable=True
        )
        return None if score is None else _record(tenant, agent, stored)

    async def save(self, record: AgentRecord) -> bool:
        names, settings = self._keys.agents(record.tenant)
        await self._nodes.change(command("ZADD", self._keys.tenants, 0, record.tenant))
        values = (record.agent, record.version - 1, record.version, _ENCODE(record))
        [is_saved] = await self._nodes.change(SAVE_AGENT(settings, names, values=values))
        return bool(is_saved)

    async def list_agents(self, tenant: str, after: str, limit: int) -> Sequence[AgentRecord]:
        names, settings = self._keys.agents(tenant)
        found = await self._after(names, after, limit)
        if not found:
            return []
        [stored] = await self._nodes.run(command("HMGET", settings, *found), repeatable=True)
        return [_record(tenant, name.decode(), each) for name, each in zip(found, stored, strict=True)]

    async def list_tenants(self, after: str, limit: int) -> Sequence[str]:
        tenants: list[str] = []
        while len(tenants) < limit:
            found = [name.decode() for name in await self._after(self._keys.tenants, after, limit)]
            if not found:
                break
            calls = [command("ZCARD", self._keys.agents(tenant)[0]) for tenant in found]
            counts = await self._nodes.run(*calls, repeatable=True)
            tenants += [tenant for tenant, count in zip(found, counts, strict=True) if count]
            after = found[-1]
        return tenants[:limit]

    async def _after(self, key: str, after: str, limit: int) -> list[bytes]:
        low = "(" + after if after else "-"
        [found] = await self._nodes.run(command("ZRANGE", key, low, "+", "BYLEX", "LIMIT", 0, limit), repeatable=True)
        names: list[bytes] = found
        return names


def _record(tenant: str, agent: str, stored: Any) -> AgentRecord:
    """The settings of an agent: they begin with their version."""
    return AgentRecord(tenant, agent) if stored is None else _DECODE(stored.partition(b" ")[2])
