package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	memoryd "github.com/memoryd/memoryd/clients/go"
	pb "github.com/memoryd/memoryd/clients/go/internal/conformance/conformancepb"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

func runReply(run *memoryd.RunInfo, err error) (*pb.Reply, error) { return runsReply(one(run), err) }

func runsReply(runs []*memoryd.RunInfo, err error) (*pb.Reply, error) {
	return &pb.Reply{Runs: &pb.Runs{Runs: runs}}, err
}

func stepsReply(steps []*memoryd.RunStep, err error) (*pb.Reply, error) {
	return &pb.Reply{RunSteps: &pb.RunSteps{Steps: steps}}, err
}

func (c *call) enqueueRun(request *memorydv1.CreateRunRequest) (*pb.Reply, error) {
	var given options[memoryd.RunOption]
	given.when(request.GetRun().GetRunId() != "", memoryd.RunID(request.GetRun().GetRunId()))
	given.when(request.GetMetadata() != "", memoryd.RunMetadata(request.GetMetadata()))
	given.when(request.Create != nil, settingsOf(request.GetCreate()))
	return runReply(c.session(request.GetRun().GetSession()).EnqueueRun(c.ctx, given...))
}

func (c *call) getRun(request *memorydv1.GetRunRequest) (*pb.Reply, error) {
	return runReply(c.session(request.GetRun().GetSession()).GetRun(c.ctx, request.GetRun().GetRunId()))
}

func (c *call) listRuns(request *memorydv1.ListRunsRequest) (*pb.Reply, error) {
	var given options[memoryd.RunsOption]
	given.when(request.GetStatuses() != nil, memoryd.WithStatus(request.GetStatuses()...))
	given.when(request.GetPageSize() != 0, memoryd.PageSize(int(request.GetPageSize())))
	switch of := request.GetOf().(type) {
	case *memorydv1.ListRunsRequest_Session:
		return runsReply(all(c.session(of.Session).Runs(c.ctx, given...), 0))
	case *memorydv1.ListRunsRequest_Agent:
		return runsReply(all(c.client.Runs(c.ctx, of.Agent, given...), 0))
	}
	return nil, faultf("the SDK lists runs of a session or an agent alone")
}

func (c *call) updateRun(request *memorydv1.UpdateRunRequest) (*pb.Reply, error) {
	changed := request.GetRun()
	var given options[memoryd.RunUpdateOption]
	for _, path := range request.GetUpdateMask().GetPaths() {
		switch path {
		case "status":
			given = append(given, memoryd.SetStatus(changed.GetStatus()))
		case "status_reason":
			given = append(given, memoryd.Because(changed.GetStatusReason()))
		case "metadata":
			given = append(given, memoryd.SetRunMetadata(changed.GetMetadata()))
		default:
			return nil, faultf("the SDK does not update %s of a run", path)
		}
	}
	info, err := c.session(changed.GetKey().GetSession()).GetRun(c.ctx, changed.GetKey().GetRunId())
	if err != nil {
		return nil, err
	}
	if changed.GetEtag() != "" {
		info.Etag = changed.GetEtag()
	}
	return runReply(c.client.UpdateRun(c.ctx, info, given...))
}

func (c *call) deleteRun(request *memorydv1.DeleteRunRequest) (*pb.Reply, error) {
	deleted, err := c.session(request.GetRun().GetSession()).DeleteRun(c.ctx, request.GetRun().GetRunId())
	return &pb.Reply{Flag: deleted}, err
}

func (c *call) listRunSteps(request *memorydv1.ListRunStepsRequest) (*pb.Reply, error) {
	var given options[memoryd.StepsOption]
	given.when(request.GetAfterNumber() != 0, memoryd.AfterStep(request.GetAfterNumber()))
	given.when(request.GetPageSize() != 0, memoryd.PageSize(int(request.GetPageSize())))
	steps := c.session(request.GetRun().GetSession()).RunSteps(c.ctx, request.GetRun().GetRunId(), given...)
	return stepsReply(all(steps, 0))
}

// heldRun is a run at work: its function waits until it is told how to end.
type heldRun struct {
	run    *memoryd.Run
	ctx    context.Context // the function's
	cancel context.CancelFunc

	entered chan struct{} // closed when the function is called
	leave   chan error    // gives what the function is to return
	ended   chan struct{} // closed when err is what Do gave
	err     error
}

// work does a run. It ends when the run is left.
func (h *heldRun) work(ctx context.Context, run *memoryd.Run) error {
	return run.Do(ctx, func(ctx context.Context) error {
		h.run, h.ctx = run, ctx
		close(h.entered)
		return <-h.leave
	})
}

// end leaves a run whose client is closed.
func (h *heldRun) end() {
	select {
	case h.leave <- nil:
	case <-h.ended:
	}
}

// hold works in a goroutine of its own, and gives the run once its function is called. The command's timeout does not
// hold: the context of Do is that of the work, too.
func (c *call) hold(name string, work func(ctx context.Context, held *heldRun) error) (*pb.Reply, error) {
	ctx, cancel := context.WithCancel(c.driver.ctx)
	held := &heldRun{
		cancel: cancel, entered: make(chan struct{}), leave: make(chan error), ended: make(chan struct{}),
	}
	go func() {
		defer close(held.ended)
		defer cancel()
		held.err = work(ctx, held)
	}()
	select {
	case <-held.entered:
		c.name(name, held)
		return held.reply(), nil
	case <-held.ended:
		return nil, held.err
	}
}

func (h *heldRun) reply() *pb.Reply {
	session := h.run.Session()
	return &pb.Reply{HeldRun: &pb.HeldRun{
		Key: &memorydv1.RunKey{
			Session: &memoryd.SessionKey{Agent: session.Agent(), SessionId: session.ID()}, RunId: h.run.ID(),
		},
		Status:    h.run.Status(),
		StepCount: h.run.Steps(),
		Fence:     h.run.Fence(),
		Holder:    h.run.Holder(),
		Metadata:  h.run.Metadata(),
		IsHeld:    h.run.IsHeld(),
	}}
}

func (c *call) beginRun(told *pb.BeginRun) (*pb.Reply, error) {
	var given options[memoryd.RunOption]
	given.when(told.GetRun().GetRunId() != "", memoryd.RunID(told.GetRun().GetRunId()))
	given.when(told.GetMetadata() != "", memoryd.RunMetadata(told.GetMetadata()))
	given.when(told.GetHolder() != "", memoryd.Holder(told.GetHolder()))
	given.when(told.Lease != nil, memoryd.Lease(told.GetLease().AsDuration()))
	run := c.session(told.GetRun().GetSession()).Run(given...)
	return c.hold(told.GetName(), func(ctx context.Context, held *heldRun) error { return held.work(ctx, run) })
}

// claimPause is short, so that cases do not wait.
const claimPause = 50 * time.Millisecond

var errNoneClaimable = errors.New("no run was claimable in time")

func (c *call) claimRun(told *pb.ClaimRun) (*pb.Reply, error) {
	given := options[memoryd.ClaimOption]{memoryd.Poll(claimPause)}
	given.when(told.GetHolder() != "", memoryd.Holder(told.GetHolder()))
	given.when(told.Lease != nil, memoryd.Lease(told.GetLease().AsDuration()))
	switch of := told.GetOf().(type) {
	case *pb.ClaimRun_Run:
		run := c.session(of.Run.GetSession()).ClaimRun(of.Run.GetRunId(), given...)
		return c.hold(told.GetName(), func(ctx context.Context, held *heldRun) error { return held.work(ctx, run) })
	case *pb.ClaimRun_Agent:
		reply, err := c.hold(told.GetName(), func(ctx context.Context, held *heldRun) error {
			patient, cancel := context.WithCancel(ctx)
			if told.Patience != nil {
				patient, cancel = context.WithTimeout(ctx, told.GetPatience().AsDuration())
			}
			defer cancel()
			for run, err := range c.client.Claims(patient, of.Agent, given...) {
				switch {
				case err == nil:
					return held.work(ctx, run)
				case patient.Err() == nil || ctx.Err() != nil:
					return err
				}
			}
			return errNoneClaimable
		})
		if errors.Is(err, errNoneClaimable) {
			return &pb.Reply{}, nil
		}
		return reply, err
	}
	return nil, faultf("the SDK claims a run, or one of an agent, alone")
}

// held gives a held run, and the context of its function, bounded by the command's timeout.
func (c *call) held(name string) (*heldRun, context.Context, context.CancelFunc, error) {
	held, err := named[*heldRun](c, name)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := c.bounded(held.ctx)
	return held, ctx, cancel, nil
}

func (c *call) lookAtRun(name string) (*pb.Reply, error) {
	held, err := named[*heldRun](c, name)
	if err != nil {
		return nil, err
	}
	return held.reply(), nil
}

func (c *call) commitRunStep(told *pb.CommitRunStep) (*pb.Reply, error) {
	held, ctx, cancel, err := c.held(told.GetName())
	if err != nil {
		return nil, err
	}
	defer cancel()
	payload, err := payloadOf(told.GetPayload())
	if err != nil {
		return nil, err
	}
	var given options[memoryd.StepOption]
	given.when(told.GetMessages() != nil, memoryd.Produced(told.GetMessages()...))
	step, err := held.run.Step(ctx, payload, given...)
	return stepsReply(one(step), err)
}

func (c *call) resumeRun(name string) (*pb.Reply, error) {
	held, ctx, cancel, err := c.held(name)
	if err != nil {
		return nil, err
	}
	defer cancel()
	step, err := held.run.Resume(ctx)
	return stepsReply(one(step), err)
}

// endRun pauses or finishes a run.
func (c *call) endRun(
	told *pb.EndRun,
	end func(*memoryd.Run, context.Context, memoryd.RunStatus, ...memoryd.EndOption) error,
) (*pb.Reply, error) {
	held, ctx, cancel, err := c.held(told.GetName())
	if err != nil {
		return nil, err
	}
	defer cancel()
	var given options[memoryd.EndOption]
	given.when(told.GetReason() != "", memoryd.Because(told.GetReason()))
	given.when(told.GetMessages() != nil, memoryd.Produced(told.GetMessages()...))
	if told.Payload != nil {
		payload, err := payloadOf(told.GetPayload())
		if err != nil {
			return nil, err
		}
		given = append(given, memoryd.LastStep(payload))
	}
	if err := end(held.run, ctx, told.GetStatus(), given...); err != nil {
		return nil, err
	}
	return held.reply(), nil
}

func (c *call) leaveRun(told *pb.LeaveRun) (*pb.Reply, error) {
	held, err := named[*heldRun](c, told.GetName())
	if err != nil {
		return nil, err
	}
	var outcome error
	switch how := told.GetHow().(type) {
	case *pb.LeaveRun_Error:
		outcome = errors.New(how.Error)
	case *pb.LeaveRun_Cancelled:
		if how.Cancelled {
			held.cancel()
			outcome = held.ctx.Err()
		}
	}
	select {
	case held.leave <- outcome:
	case <-held.ended:
		return nil, faultf("the run %q was left before", told.GetName())
	}
	<-held.ended
	if outcome != nil && errors.Is(held.err, outcome) {
		return done(nil)
	}
	return done(held.err)
}

func payloadOf(given *pb.Payload) (memoryd.Payload, error) {
	contentType := given.GetContentType()
	switch form := given.GetForm().(type) {
	case *pb.Payload_Text:
		if contentType == "" {
			return memoryd.TextPayload(form.Text), nil
		}
		return memoryd.BytesPayload([]byte(form.Text), contentType), nil
	case *pb.Payload_Json:
		var value any
		numbers := json.NewDecoder(bytes.NewReader([]byte(form.Json)))
		numbers.UseNumber()
		if err := numbers.Decode(&value); err != nil {
			return memoryd.Payload{}, faultf("the payload is no JSON: %s", err)
		}
		if contentType == "" {
			return memoryd.JSONPayload(value), nil
		}
		content, err := json.Marshal(value)
		return memoryd.BytesPayload(content, contentType), err
	}
	return memoryd.BytesPayload(given.GetData(), contentType), nil
}
