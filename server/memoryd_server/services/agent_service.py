"""AgentService."""

from __future__ import annotations

from typing import Final

from memoryd.v1 import agent_service_pb2 as pb
from memoryd.v1 import agent_service_pb2_grpc
from memoryd_server.engine import agents
from memoryd_server.engine.agents import Unchanged
from memoryd_server.engine.errors import field_invalid
from memoryd_server.engine.stores import Stores
from memoryd_server.interceptors.wrapping import Context
from memoryd_server.services.calls import runtime_of, tenant
from memoryd_server.services.message_codec import decode_duration, encode_duration, encode_time
from memoryd_server.services.policy_codec import (
    POLICY_PATHS,
    decode_policy,
    encode_policy,
    mask_paths,
    policy_update,
)
from memoryd_server.stores.records import AgentRecord

_LOAD_MEMORY: Final = "load_memory"
_RUN_RETENTION: Final = "run_retention"
_UPDATE_PATHS: Final = (*POLICY_PATHS, _LOAD_MEMORY, _RUN_RETENTION)


class AgentService(agent_service_pb2_grpc.AgentServiceServicer):
    """Keeps the settings of agents."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def GetAgent(self, request: pb.GetAgentRequest, context: Context) -> pb.GetAgentResponse:
        del context
        record = await agents.get(runtime_of(self._stores), tenant(), request.agent)
        response = pb.GetAgentResponse()
        _encode_agent(record, response.agent)
        return response

    async def UpdateAgent(self, request: pb.UpdateAgentRequest, context: Context) -> pb.UpdateAgentResponse:
        del context
        record = await agents.update(runtime_of(self._stores), tenant(), request.agent.agent, _decode_update(request))
        response = pb.UpdateAgentResponse()
        _encode_agent(record, response.agent)
        return response

    async def ListAgents(self, request: pb.ListAgentsRequest, context: Context) -> pb.ListAgentsResponse:
        del context
        records, next_page_token = await agents.list_(
            runtime_of(self._stores), tenant(), request.page_size, request.page_token
        )
        response = pb.ListAgentsResponse(next_page_token=next_page_token)
        for record in records:
            _encode_agent(record, response.agents.add())
        return response


def _decode_update(request: pb.UpdateAgentRequest) -> agents.AgentUpdate:
    agent = request.agent
    set_fields = [field for field in ("policy", _LOAD_MEMORY, _RUN_RETENTION) if agent.HasField(field)]
    paths = mask_paths(request.update_mask.paths, set_fields, _UPDATE_PATHS)
    return agents.AgentUpdate(
        policy_update(decode_policy("agent.policy", agent.policy), paths),
        load_memory=agent.load_memory if _LOAD_MEMORY in paths else None,
        run_retention=_decode_retention(agent) if _RUN_RETENTION in paths else Unchanged.UNCHANGED,
        etag=agent.etag,
    )


def _decode_retention(agent: pb.Agent) -> int | None:
    if not agent.HasField(_RUN_RETENTION):
        return None
    field = f"agent.{_RUN_RETENTION}"
    retention = decode_duration(field, agent.run_retention)
    if not retention and agent.run_retention.nanos:
        raise field_invalid(field, "it is less than a microsecond; 0 keeps runs for ever")
    return retention


def _encode_agent(record: AgentRecord, into: pb.Agent) -> None:
    into.agent = record.agent
    into.policy.SetInParent()
    encode_policy(record.policy, into.policy)
    into.load_memory = record.settings.load_memory
    if record.settings.run_retention is not None:
        encode_duration(record.settings.run_retention, into.run_retention)
        into.run_retention.SetInParent()
    if record.updated:
        encode_time(record.updated, into.update_time)
    into.etag = agents.etag_of(record)
