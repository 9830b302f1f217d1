package memoryd

import (
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// Agent is an agent and the settings of its sessions. [Client.Agent] names it; it exists by being named.
type Agent struct {
	client *Client
	name   string
}

// Name is the agent's name.
func (a *Agent) Name() string { return a.name }

// Info reads the agent's settings; those of an agent that was never updated are empty.
func (a *Agent) Info(ctx context.Context) (*AgentInfo, error) {
	response, err := a.client.agents.GetAgent(ctx, &memorydv1.GetAgentRequest{Agent: a.name})
	return response.GetAgent(), err
}

// Update changes the agent's settings; servers may use the old ones for up to 5 seconds more. What an option names is
// replaced as a whole, the rest stays. Options are [SetPolicy], [LoadMemory], [KeepRuns], [KeepRunsByDefault] and [IfEtag].
// It is not tried again by itself.
func (a *Agent) Update(ctx context.Context, options ...AgentUpdateOption) (*AgentInfo, error) {
	request := &memorydv1.UpdateAgentRequest{Agent: &AgentInfo{Agent: a.name}, UpdateMask: &fieldmaskpb.FieldMask{}}
	for _, option := range options {
		option.applyAgentUpdate(request)
	}
	if len(request.UpdateMask.Paths) == 0 {
		return nil, errors.New("memoryd: nothing to update: give SetPolicy, LoadMemory, KeepRuns or KeepRunsByDefault")
	}
	response, err := a.client.agents.UpdateAgent(ctx, request)
	return response.GetAgent(), err
}
