"""Agents and their settings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from memoryd_server.engine import page_tokens
from memoryd_server.engine.changes import check_etag
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.histories import page_size_of
from memoryd_server.engine.incoming import check_agent
from memoryd_server.engine.policies import PolicyUpdate, check_policy, merge_policy
from memoryd_server.engine.runtime import Runtime
from memoryd_server.stores.records import AgentRecord

_ATTEMPTS = 5
"""How often an update without an etag is planned again when others change the agent at the same time."""


@dataclass(frozen=True, slots=True)
class AgentUpdate:
    """New values of an agent's settings; None leaves one as it is."""

    policy: PolicyUpdate | None = None
    etag: str = ""


def etag_of(record: AgentRecord) -> str:
    """The etag of an agent's settings (AIP-154)."""
    return f"agent-{record.version}"


async def get(runtime: Runtime, tenant: str, agent: str) -> AgentRecord:
    """An agent's settings as they are stored now. Raises: RequestError, StoreUnavailable."""
    check_agent(agent)
    return await runtime.store.load_agent(tenant, agent) or AgentRecord(tenant, agent)


async def update(runtime: Runtime, tenant: str, agent: str, changes: AgentUpdate) -> AgentRecord:
    """Changes an agent's settings. Raises: RequestError (field errors, ETAG_MISMATCH, CONTENTION), StoreUnavailable."""
    check_agent(agent, "agent.agent")
    if changes.policy is not None:
        check_policy("agent.policy", changes.policy.policy, runtime.summarizers.names)
    for _ in range(_ATTEMPTS):
        record = await get(runtime, tenant, agent)
        check_etag(changes.etag, etag_of(record))
        policy = merge_policy(record.policy, changes.policy)
        check_policy("agent.policy", policy)
        if policy == record.policy:
            return record
        new = msgspec.structs.replace(
            record, version=record.version + 1, updated=await runtime.store.now(), policy=policy
        )
        if await runtime.store.save_agent(new):
            runtime.agents.put(new)
            return new
        await asyncio.sleep(0)
    raise RequestError(
        Reason.CONTENTION,
        f"other calls kept changing agent {agent!r}; nothing was written: try again",
        retry_after=0.5,
    )


async def list_(runtime: Runtime, tenant: str, page_size: int, page_token: str) -> tuple[Sequence[AgentRecord], str]:
    """A page of the tenant's agents, and the token of the next. Raises: RequestError, StoreUnavailable."""
    limit = page_size_of(page_size)
    query = ("ListAgents", tenant)
    after = page_tokens.read(runtime.info.secret, query, page_token, str) if page_token else ""
    found = await runtime.store.list_agents(tenant, after, limit + 1)
    page = found[:limit]
    more = len(found) > limit
    return page, page_tokens.make(runtime.info.secret, query, page[-1].agent) if more else ""
