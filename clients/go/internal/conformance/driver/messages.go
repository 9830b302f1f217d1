package main

import (
	"bytes"
	"encoding/json"

	memoryd "github.com/memoryd/memoryd/clients/go"
	pb "github.com/memoryd/memoryd/clients/go/internal/conformance/conformancepb"
)

func toMessages(told *pb.ToMessages) (*pb.Reply, error) {
	switch told.GetFormat() {
	case pb.Format_FORMAT_OPENAI_CHAT:
		return messagesReply(memoryd.FromOpenAI([]byte(told.GetJson())))
	case pb.Format_FORMAT_ANTHROPIC:
		var prompt memoryd.AnthropicPrompt
		if err := json.Unmarshal([]byte(told.GetJson()), &prompt); err != nil {
			return nil, faultf("the prompt is no JSON object: %s", err)
		}
		return messagesReply(memoryd.FromAnthropic(prompt))
	}
	return nil, faultf("the SDK has no converter of %s", told.GetFormat())
}

func fromMessages(told *pb.FromMessages) (*pb.Reply, error) {
	switch told.GetFormat() {
	case pb.Format_FORMAT_OPENAI_CHAT:
		return &pb.Reply{Json: string(memoryd.ToOpenAI(told.GetMessages()))}, nil
	case pb.Format_FORMAT_ANTHROPIC:
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		err := encoder.Encode(memoryd.ToAnthropic(told.GetMessages()))
		return &pb.Reply{Json: text.String()}, err
	}
	return nil, faultf("the SDK has no converter of %s", told.GetFormat())
}

func makeMessage(told *pb.MakeMessage) (*pb.Reply, error) {
	var calls []*memoryd.ToolCall
	for _, given := range told.GetCalls() {
		call := memoryd.NewCall(given.GetName(), given.GetArguments())
		if given.GetId() != "" {
			call.Id = given.GetId()
		}
		calls = append(calls, call)
	}
	var given options[memoryd.MessageOption]
	given.when(calls != nil, memoryd.WithCalls(calls...))
	given.when(told.GetIsError(), memoryd.ToolFailed())
	return messageReply(made(told, calls, given), nil)
}

func made(told *pb.MakeMessage, calls []*memoryd.ToolCall, given []memoryd.MessageOption) *memoryd.Message {
	switch role := told.GetRole(); {
	case role == memoryd.RoleTool && told.Text == nil:
		return memoryd.ToolParts(told.GetCallId(), nil, given...)
	case role == memoryd.RoleTool:
		return memoryd.Tool(told.GetCallId(), told.GetText(), given...)
	case role == memoryd.RoleAssistant && told.Text == nil:
		return memoryd.CallTools(calls...)
	case told.Text == nil:
		return memoryd.NewMessage(role, nil, given...)
	case role == memoryd.RoleSystem:
		return memoryd.System(told.GetText(), given...)
	case role == memoryd.RoleDeveloper:
		return memoryd.Developer(told.GetText(), given...)
	case role == memoryd.RoleUser:
		return memoryd.User(told.GetText(), given...)
	case role == memoryd.RoleAssistant:
		return memoryd.Assistant(told.GetText(), given...)
	default:
		return memoryd.NewMessage(role, []*memoryd.Part{memoryd.TextPart(told.GetText())}, given...)
	}
}
