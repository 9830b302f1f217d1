"""Agents and their settings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

import msgspec

from memoryd_server import limits
from memoryd_server.engine import page_tokens
from memoryd_server.engine.changes import check_etag
from memoryd_server.engine.errors import Reason, RequestError, field_invalid
from memoryd_server.engine.histories import page_size_of
from memoryd_server.engine.incoming import check_agent
from memoryd_server.engine.policies import PolicyUpdate, check_policy, merge_policy
from memoryd_server.engine.runtime import Runtime
from memoryd_server.stores.records import AgentRecord

_ATTEMPTS = 5
"""How often an update without an etag is planned again when others change the agent at the same time."""


class Unchanged(Enum):
    """A value that an update leaves as it is, where None is a value."""

    UNCHANGED = auto()


@dataclass(frozen=True, slots=True)
class AgentUpdate:
    """New values of an agent's settings; None leaves one as it is."""

    policy: PolicyUpdate | None = None
    load_memory: bool | None = None
    run_retention: int | Unchanged | None = Unchanged.UNCHANGED
    """Microseconds; 0 keeps runs for ever, None goes back to the server's default."""
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
    if isinstance(changes.run_retention, int):
        _check_retention("agent.run_retention", changes.run_retention)
    for _ in range(_ATTEMPTS):
        record = await get(runtime, tenant, agent)
        check_etag(changes.etag, etag_of(record))
        policy = merge_policy(record.policy, changes.policy)
        check_policy("agent.policy", policy)
        load_memory = record.settings.load_memory if changes.load_memory is None else changes.load_memory
        settings = msgspec.structs.replace(record.settings, load_memory=load_memory)
        if not isinstance(changes.run_retention, Unchanged):
            settings = msgspec.structs.replace(settings, run_retention=changes.run_retention)
        if (policy, settings) == (record.policy, record.settings):
            return record
        new = msgspec.structs.replace(
            record,
            version=record.version + 1,
            updated=await runtime.store.now(),
            policy=policy,
            settings=settings,
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


def _check_retention(field: str, microseconds: int) -> None:
    most = limits.MAX_RUN_RETENTION_SECONDS
    if not 0 <= microseconds <= most * 1_000_000:
        raise field_invalid(field, f"it is up to {most:,} seconds; 0 keeps runs for ever")


async def list_(runtime: Runtime, tenant: str, page_size: int, page_token: str) -> tuple[Sequence[AgentRecord], str]:
    """A page of the tenant's agents, and the token of the next. Raises: RequestError, StoreUnavailable."""
    limit = page_size_of(page_size)
    query = ("ListAgents", tenant)
    after = page_tokens.read(runtime.info.secret, query, page_token, str) if page_token else ""
    found = await runtime.store.list_agents(tenant, after, limit + 1)
    page = found[:limit]
    more = len(found) > limit
    return page, page_tokens.make(runtime.info.secret, query, page[-1].agent) if more else ""
