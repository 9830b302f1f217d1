"""The settings of agents.

An agent's document is written before the first session of it, so that none is hidden by a crash; until one is seen, or
the agent has settings, it is not answered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from memoryd_server.stores.mongodb.database import Database
from memoryd_server.stores.mongodb.documents import Document, agent_of, fields_of_agent
from memoryd_server.stores.mongodb.layout import AGENTS, SESSIONS, agent_id
from memoryd_server.stores.records import AgentRecord

REMEMBERED: Final = 8_192
"""Agents that are known to have their document, which none ever loses."""

_BY_NAME: Final = (("agent", 1),)
_BY_TENANT: Final = (("tenant", 1),)


class Agents:
    """Reads and writes them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._added: OrderedDict[str, None] = OrderedDict()
        self._seen: OrderedDict[str, None] = OrderedDict()

    async def add(self, tenant: str, agent: str) -> None:
        """Writes an agent's document, for a session that is about to be born."""
        name = agent_id(tenant, agent)
        if name in self._added:
            return
        fields = {"tenant": tenant, "agent": agent, **fields_of_agent(AgentRecord(tenant, agent)), "seen": False}
        await self._database.keep(AGENTS, {"_id": name}, fields)
        _remember(self._added, name)

    async def load(self, tenant: str, agent: str) -> AgentRecord | None:
        """See `AgentStore.load_agent`."""
        document = await self._database.find_one(AGENTS, {"_id": agent_id(tenant, agent)})
        return agent_of(document) if document and await self._is_there(document) else None

    async def save(self, record: AgentRecord) -> bool:
        """See `AgentStore.save_agent`."""
        name = {"_id": agent_id(record.tenant, record.agent)}
        fields: Document = {**fields_of_agent(record), "seen": True}
        if await self._database.update(AGENTS, {**name, "version": record.version - 1}, {"$set": fields}):
            return True
        if record.version != 1:
            return False
        return await self._database.insert(AGENTS, {**name, "tenant": record.tenant, "agent": record.agent, **fields})

    async def list(self, tenant: str, after: str, limit: int) -> Sequence[AgentRecord]:
        """See `AgentStore.list_agents`."""
        agents: list[AgentRecord] = []
        while len(agents) < limit:
            asked = limit - len(agents)
            found = await self._database.find(
                AGENTS, {"tenant": tenant, "agent": {"$gt": after}}, order=_BY_NAME, limit=asked
            )
            agents += [agent_of(document) for document in found if await self._is_there(document)]
            if len(found) < asked:
                break
            after = found[-1]["agent"]
        return agents

    async def list_tenants(self, after: str, limit: int) -> Sequence[str]:
        """See `AgentStore.list_tenants`."""
        tenants: list[str] = []
        while len(tenants) < limit:
            found = await self._database.find(
                AGENTS, {"tenant": {"$gt": after}}, fields=("tenant",), order=_BY_TENANT, limit=1
            )
            if not found:
                break
            after = found[0]["tenant"]
            if await self.list(after, "", 1):
                tenants.append(after)
        return tenants

    async def see(self, tenant: str, agent: str) -> None:
        """Notes that an agent has had a session: before the last trace of that goes."""
        name = agent_id(tenant, agent)
        if name not in self._seen:
            await self._database.update(AGENTS, {"_id": name}, {"$set": {"seen": True}})
            _remember(self._seen, name)

    async def _is_there(self, document: Document) -> bool:
        if document["seen"]:
            return True
        of_agent = {"tenant": document["tenant"], "agent": document["agent"]}
        if await self._database.find_one(SESSIONS, of_agent, fields=("home",)) is None:
            return False
        await self.see(**of_agent)
        return True


def _remember(names: OrderedDict[str, None], name: str) -> None:
    names[name] = None
    if len(names) > REMEMBERED:
        names.popitem(last=False)
