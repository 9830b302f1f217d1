"""AgentService."""

from __future__ import annotations

from typing import Final

from memoryd.v1 import agent_service_pb2 as pb
from memoryd.v1 import agent_service_pb2_grpc
from memoryd_server.engine import agents
from memoryd_server.engine.stores import Stores
from memoryd_server.interceptors.wrapping import Context
from memoryd_server.services.calls import runtime_of, tenant
from memoryd_server.services.message_codec import encode_time
from memoryd_server.services.policy_codec import (
    POLICY_PATHS,
    decode_policy,
    encode_policy,
    mask_paths,
    policy_update,
)
from memoryd_server.stores.records import AgentRecord

_UPDATE_PATHS: Final = POLICY_PATHS


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
    set_fields = ["policy"] if agent.HasField("policy") else []
    paths = mask_paths(request.update_mask.paths, set_fields, _UPDATE_PATHS)
    return agents.AgentUpdate(policy_update(decode_policy("agent.policy", agent.policy), paths), etag=agent.etag)


def _encode_agent(record: AgentRecord, into: pb.Agent) -> None:
    into.agent = record.agent
    into.policy.SetInParent()
    encode_policy(record.policy, into.policy)
    if record.updated:
        encode_time(record.updated, into.update_time)
    into.etag = agents.etag_of(record)
