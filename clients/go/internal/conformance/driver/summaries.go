package main

import (
	"context"
	"errors"
	"iter"

	"google.golang.org/protobuf/types/known/timestamppb"

	memoryd "github.com/memoryd/memoryd/clients/go"
	pb "github.com/memoryd/memoryd/clients/go/internal/conformance/conformancepb"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

func summariesReply(summaries []*memoryd.Summary, err error) (*pb.Reply, error) {
	return &pb.Reply{Summaries: &pb.Summaries{Summaries: summaries}}, err
}

func summaryReply(summary *memoryd.Summary, err error) (*pb.Reply, error) {
	return summariesReply(one(summary), err)
}

func (c *call) summarize(request *memorydv1.SummarizeRequest) (*pb.Reply, error) {
	summarized, err := c.session(request.GetSession()).Summarize(c.ctx)
	return &pb.Reply{Summarized: summarized}, err
}

func (c *call) getSummary(request *memorydv1.GetSummaryRequest) (*pb.Reply, error) {
	return summaryReply(c.session(request.GetSession()).Summary(c.ctx, request.GetSummaryId()))
}

func (c *call) listSummaries(request *memorydv1.ListSummariesRequest) (*pb.Reply, error) {
	return summariesReply(c.session(request.GetSession()).Summaries(c.ctx))
}

func (c *call) revertSummary(request *memorydv1.RevertSummaryRequest) (*pb.Reply, error) {
	return summaryReply(c.session(request.GetSession()).RevertSummary(c.ctx, request.GetSummaryId()))
}

// leasedTask is a task whose turn of the loop over tasks lasts until it is settled.
type leasedTask struct {
	*memoryd.SummaryTask
	endLoop func()
}

func (t *leasedTask) end() { t.endLoop() }

func (c *call) leaseSummaryTask(told *pb.LeaseSummaryTask) (*pb.Reply, error) {
	request := told.GetRequest()
	given := options[memoryd.TasksOption]{memoryd.UntilNoneWaits()}
	given.when(request.LeaseDuration != nil, memoryd.LeaseFor(request.GetLeaseDuration().AsDuration()))
	ctx, cancel := c.bounded(c.driver.ctx)
	var tasks iter.Seq2[*memoryd.SummaryTask, error]
	switch of := request.GetOf().(type) {
	case *memorydv1.LeaseSummaryTaskRequest_Session:
		tasks = c.session(of.Session).SummaryTasks(ctx, given...)
	case *memorydv1.LeaseSummaryTaskRequest_Agent:
		tasks = c.client.SummaryTasks(ctx, of.Agent, given...)
	default:
		cancel()
		return nil, faultf("the SDK leases tasks of a session or an agent alone")
	}
	next, stop := iter.Pull2(tasks)
	endLoop := func() { stop(); cancel() }
	task, err, _ := next()
	if err != nil || task == nil {
		endLoop()
		return &pb.Reply{}, err
	}
	c.name(told.GetName(), &leasedTask{task, endLoop})
	return &pb.Reply{SummaryTask: &memorydv1.SummaryTask{
		Session:         &memoryd.SessionKey{Agent: task.Agent(), SessionId: task.SessionID()},
		PreviousSummary: task.Previous(),
		Messages:        task.Messages(),
		Instructions:    task.Instructions(),
		Input:           task.Input(),
		TargetTokens:    task.TargetTokens(),
		MaxTokens:       task.MaxTokens(),
		ExpireTime:      timestamppb.New(task.Expires()),
		Attempts:        int32(task.Attempts()),
	}}, nil
}

func (c *call) commitSummary(told *pb.CommitSummary) (*pb.Reply, error) {
	task, err := named[*leasedTask](c, told.GetName())
	if err != nil {
		return nil, err
	}
	summary, err := task.Commit(c.ctx, told.GetText(), told.GetModel())
	if err == nil || errors.Is(err, memoryd.ErrSummaryTaskVoid) {
		task.end()
	}
	return summaryReply(summary, err)
}

func (c *call) abandonSummaryTask(told *pb.AbandonSummaryTask) (*pb.Reply, error) {
	task, err := named[*leasedTask](c, told.GetName())
	if err != nil {
		return nil, err
	}
	defer task.end()
	return done(task.Abandon(c.ctx, told.GetFailed()))
}

func (c *call) summarizeWith(told *pb.SummarizeWith) (*pb.Reply, error) {
	given := options[memoryd.TasksOption]{memoryd.UntilNoneWaits()}
	given.when(told.GetModel() != "", memoryd.ModelName(told.GetModel()))
	answer := func(context.Context, *memoryd.SummaryTask) (string, error) { return told.GetAnswer(), nil }
	var made int
	var err error
	switch of := told.GetOf().(type) {
	case *pb.SummarizeWith_Session:
		made, err = c.session(of.Session).SummarizeWith(c.ctx, answer, given...)
	case *pb.SummarizeWith_Agent:
		made, err = c.client.SummarizeWith(c.ctx, of.Agent, answer, given...)
	default:
		return nil, faultf("the SDK summarizes a session or the sessions of an agent alone")
	}
	return &pb.Reply{Count: int64(made)}, err
}
