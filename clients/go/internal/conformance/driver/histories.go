package main

import (
	"slices"

	memoryd "github.com/memoryd/memoryd/clients/go"
	pb "github.com/memoryd/memoryd/clients/go/internal/conformance/conformancepb"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

func settingsOf(create *memorydv1.SessionSettings) memoryd.SessionSettings {
	return memoryd.SessionSettings{
		UserID: create.GetUserId(), Labels: create.GetLabels(), Tokenizer: create.GetTokenizer(),
		Policy: create.GetPolicy(), TTL: create.GetTtl().AsDuration(),
	}
}

func (c *call) append(request *memorydv1.AppendMessagesRequest) (*pb.Reply, error) {
	var given options[memoryd.AppendOption]
	given.when(request.GetRequestId() != "", memoryd.RequestID(request.GetRequestId()))
	given.when(request.ExpectedLastSeq != nil, memoryd.ExpectedLastSeq(request.GetExpectedLastSeq()))
	given.when(request.Create != nil, settingsOf(request.GetCreate()))
	return appended(c.session(request.GetSession()).Append(c.ctx, request.GetMessages(), given...))
}

func (c *call) appendAll(request *memorydv1.AppendMessagesRequest) (*pb.Reply, error) {
	var settings *memoryd.SessionSettings
	if request.Create != nil {
		settings = new(settingsOf(request.GetCreate()))
	}
	messages := slices.Values(request.GetMessages())
	return appended(c.session(request.GetSession()).AppendAll(c.ctx, messages, settings))
}

func appended(messages []*memoryd.AppendedMessage, err error) (*pb.Reply, error) {
	return &pb.Reply{Appended: &pb.Appended{Messages: messages}}, err
}

func (c *call) listMessages(told *pb.ListMessages) (*pb.Reply, error) {
	request, filter := told.GetRequest(), told.GetRequest().GetFilter()
	var given options[memoryd.MessagesOption]
	given.when(request.GetPageSize() != 0, memoryd.PageSize(int(request.GetPageSize())))
	given.when(request.GetOrder() == memorydv1.ListOrder_LIST_ORDER_DESCENDING, memoryd.NewestFirst())
	given.when(request.GetView() == memorydv1.MessageView_MESSAGE_VIEW_ALL, memoryd.AllStored())
	given.when(filter.GetRoles() != nil, memoryd.WithRoles(filter.GetRoles()...))
	given.when(filter.GetRunId() != "", memoryd.OfRun(filter.GetRunId()))
	given.when(filter.GetFromSeq() != 0, memoryd.FromSeq(filter.GetFromSeq()))
	given.when(filter.GetToSeq() != 0, memoryd.ToSeq(filter.GetToSeq()))
	given.when(filter.GetFromTime() != nil, memoryd.StoredSince(filter.GetFromTime().AsTime()))
	given.when(filter.GetToTime() != nil, memoryd.StoredBefore(filter.GetToTime().AsTime()))
	messages, err := all(c.session(request.GetSession()).Messages(c.ctx, given...), told.GetTake())
	return messagesReply(messages, err)
}

func messagesReply(messages []*memoryd.Message, err error) (*pb.Reply, error) {
	return &pb.Reply{Messages: &pb.Messages{Messages: messages}}, err
}

func messageReply(message *memoryd.Message, err error) (*pb.Reply, error) {
	return messagesReply(one(message), err)
}

func (c *call) getMessage(request *memorydv1.GetMessageRequest) (*pb.Reply, error) {
	session := c.session(request.GetSession())
	switch by := request.GetBy().(type) {
	case *memorydv1.GetMessageRequest_Seq:
		return messageReply(session.Message(c.ctx, by.Seq))
	case *memorydv1.GetMessageRequest_Id:
		return messageReply(session.MessageByID(c.ctx, by.Id))
	}
	return nil, faultf("the SDK gets a message by seq or id alone")
}

func sessionReply(session *memoryd.SessionInfo, err error) (*pb.Reply, error) {
	return &pb.Reply{Session: session}, err
}

func (c *call) getSession(request *memorydv1.GetSessionRequest) (*pb.Reply, error) {
	return sessionReply(c.session(request.GetSession()).Info(c.ctx))
}

func (c *call) listSessions(request *memorydv1.ListSessionsRequest) (*pb.Reply, error) {
	var given options[memoryd.SessionsOption]
	given.when(request.GetAgent() != "", memoryd.OfAgent(request.GetAgent()))
	given.when(request.GetUserId() != "", memoryd.OfUser(request.GetUserId()))
	given.when(request.GetPageSize() != 0, memoryd.PageSize(int(request.GetPageSize())))
	sessions, err := all(c.client.Sessions(c.ctx, given...), 0)
	return &pb.Reply{Sessions: &pb.Sessions{Sessions: sessions}}, err
}

func (c *call) updateSession(request *memorydv1.UpdateSessionRequest) (*pb.Reply, error) {
	session := request.GetSession()
	var given options[memoryd.UpdateOption]
	for _, path := range request.GetUpdateMask().GetPaths() {
		switch path {
		case "user_id":
			given = append(given, memoryd.SetUser(session.GetUserId()))
		case "labels":
			given = append(given, memoryd.SetLabels(session.GetLabels()))
		case "ttl":
			given = append(given, memoryd.SetTTL(session.GetTtl().AsDuration()))
		case "policy":
			given = append(given, memoryd.SetPolicy(session.GetPolicy()))
		default:
			return nil, faultf("the SDK does not update %s of a session", path)
		}
	}
	given.when(session.GetEtag() != "", memoryd.IfEtag(session.GetEtag()))
	return sessionReply(c.session(session.GetKey()).Update(c.ctx, given...))
}

func (c *call) clearHistory(request *memorydv1.ClearHistoryRequest) (*pb.Reply, error) {
	var given options[memoryd.ClearOption]
	given.when(request.GetRequestId() != "", memoryd.RequestID(request.GetRequestId()))
	count, err := c.session(request.GetSession()).Clear(c.ctx, given...)
	return &pb.Reply{Count: count}, err
}

func (c *call) clearAgent(request *memorydv1.ClearAgentHistoryRequest) (*pb.Reply, error) {
	cleared, err := c.client.ClearAgent(c.ctx, request.GetAgent())
	return &pb.Reply{ClearedAgent: cleared}, err
}

func (c *call) redactMessage(request *memorydv1.RedactMessageRequest) (*pb.Reply, error) {
	session := c.session(request.GetSession())
	switch by := request.GetBy().(type) {
	case *memorydv1.RedactMessageRequest_Seq:
		return messageReply(session.Redact(c.ctx, by.Seq, request.GetReason()))
	case *memorydv1.RedactMessageRequest_Id:
		return messageReply(session.RedactByID(c.ctx, by.Id, request.GetReason()))
	}
	return nil, faultf("the SDK redacts a message by seq or id alone")
}

func (c *call) rewind(request *memorydv1.RewindSessionRequest) (*pb.Reply, error) {
	if request.ToSeq == nil {
		return nil, faultf("the SDK rewinds to a seq alone")
	}
	var given options[memoryd.RewindOption]
	given.when(request.ExpectedLastSeq != nil, memoryd.ExpectedLastSeq(request.GetExpectedLastSeq()))
	given.when(request.GetRequestId() != "", memoryd.RequestID(request.GetRequestId()))
	rewound, err := c.session(request.GetSession()).Rewind(c.ctx, request.GetToSeq(), given...)
	return &pb.Reply{Rewound: rewound}, err
}

// fork tells no counts, since the SDK gives the new session alone.
func (c *call) fork(request *memorydv1.ForkSessionRequest) (*pb.Reply, error) {
	var given options[memoryd.ForkOption]
	given.when(request.Target != nil, memoryd.ForkTo(c.session(request.GetTarget())))
	given.when(request.ThroughSeq != nil, memoryd.ThroughSeq(request.GetThroughSeq()))
	given.when(request.GetRequestId() != "", memoryd.RequestID(request.GetRequestId()))
	_, err := c.session(request.GetSource()).Fork(c.ctx, given...)
	return &pb.Reply{Forked: &memorydv1.ForkSessionResponse{}}, err
}

func (c *call) eraseUser(request *memorydv1.EraseUserRequest) (*pb.Reply, error) {
	erased, err := c.client.EraseUser(c.ctx, request.GetUserId())
	return &pb.Reply{Erased: erased}, err
}

func (c *call) loadWindow(request *memorydv1.LoadWindowRequest) (*pb.Reply, error) {
	limits := request.GetOptions()
	var given options[memoryd.WindowOption]
	switch {
	case limits == nil || limits.Mode == nil && limits.Limit == nil:
	case limits.GetMode() == memoryd.WindowModeMessages && limits.Limit != nil:
		given = append(given, memoryd.MaxMessages(limits.GetLimit()))
	case limits.GetMode() == memoryd.WindowModeTokens && limits.Limit != nil:
		given = append(given, memoryd.MaxTokens(limits.GetLimit()))
	default:
		return nil, faultf("the SDK limits a window in messages or tokens alone, not by %s", limits)
	}
	given.when(limits != nil && limits.PinSystem != nil, memoryd.PinSystem(limits.GetPinSystem()))
	given.when(limits != nil && limits.StartWithUser != nil, memoryd.StartWithUser(limits.GetStartWithUser()))
	given.when(limits != nil && limits.OpenCalls != nil, memoryd.WithOpenCalls(limits.GetOpenCalls()))
	given.when(limits != nil && limits.Oversize != nil, memoryd.WithOversize(limits.GetOversize()))
	given.when(request.Summary != nil, memoryd.WithSummary(request.GetSummary()))
	given.when(request.WaitForSummary != nil, memoryd.WaitForSummary(request.GetWaitForSummary()))
	given.when(request.GetExplain(), memoryd.Explain())
	window, err := c.session(request.GetSession()).Window(c.ctx, given...)
	if err != nil {
		return nil, err
	}
	return &pb.Reply{Window: &memorydv1.LoadWindowResponse{Messages: window.Messages, Stats: window.Stats}}, nil
}
