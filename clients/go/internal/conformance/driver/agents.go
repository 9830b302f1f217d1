package main

import (
	memoryd "github.com/memoryd/memoryd/clients/go"
	pb "github.com/memoryd/memoryd/clients/go/internal/conformance/conformancepb"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

func agentReply(agent *memoryd.AgentInfo, err error) (*pb.Reply, error) {
	return &pb.Reply{Agent: agent}, err
}

func (c *call) getAgent(request *memorydv1.GetAgentRequest) (*pb.Reply, error) {
	return agentReply(c.client.Agent(request.GetAgent()).Info(c.ctx))
}

func (c *call) updateAgent(request *memorydv1.UpdateAgentRequest) (*pb.Reply, error) {
	agent := request.GetAgent()
	var given options[memoryd.AgentUpdateOption]
	for _, path := range request.GetUpdateMask().GetPaths() {
		switch {
		case path == "policy":
			given = append(given, memoryd.SetPolicy(agent.GetPolicy()))
		case path == "load_memory" && agent.LoadMemory != nil:
			given = append(given, memoryd.LoadMemory(agent.GetLoadMemory()))
		case path == "run_retention" && agent.RunRetention != nil:
			given = append(given, memoryd.KeepRuns(agent.GetRunRetention().AsDuration()))
		case path == "run_retention":
			given = append(given, memoryd.KeepRunsByDefault())
		default:
			return nil, faultf("the SDK does not update %s of an agent so", path)
		}
	}
	given.when(agent.GetEtag() != "", memoryd.IfEtag(agent.GetEtag()))
	return agentReply(c.client.Agent(agent.GetAgent()).Update(c.ctx, given...))
}

func (c *call) listAgents(request *memorydv1.ListAgentsRequest) (*pb.Reply, error) {
	var given options[memoryd.AgentsOption]
	given.when(request.GetPageSize() != 0, memoryd.PageSize(int(request.GetPageSize())))
	agents, err := all(c.client.Agents(c.ctx, given...), 0)
	return &pb.Reply{Agents: &pb.Agents{Agents: agents}}, err
}
