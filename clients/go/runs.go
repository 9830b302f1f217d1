package memoryd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"time"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

const (
	// DefaultLease is how long a run is held unless its lease is renewed.
	DefaultLease = 30 * time.Second
	// DefaultPoll is the pause, on average, between two questions for a run to claim while there is none.
	DefaultPoll = time.Second

	mostHolderBytes = 256
	// runTries is how often a run is claimed by name, or ended, while the server is unavailable. Before each further try
	// the run is read, which is tried again by itself.
	runTries = 3
)

// runRequest is what run options set: of a run that begins, is queued, or is claimed.
type runRequest struct {
	id       string
	metadata string
	holder   string
	lease    time.Duration
	poll     time.Duration
	create   *memorydv1.SessionSettings
}

// RunOption is an option of [Session.Run] and [Session.EnqueueRun]; a [SessionSettings] is one, too.
type RunOption interface{ applyRun(*runRequest) }

// ClaimOption is an option of [Session.ClaimRun] and [Client.Claims].
type ClaimOption interface{ applyClaim(*runRequest) }

type runOption func(*runRequest)

func (o runOption) applyRun(r *runRequest) { o(r) }

// HoldingOption is an option of [Session.Run], [Session.ClaimRun] and [Client.Claims], made by [Holder] and [Lease].
type HoldingOption struct{ set func(*runRequest) }

func (o HoldingOption) applyRun(r *runRequest)   { o.set(r) }
func (o HoldingOption) applyClaim(r *runRequest) { o.set(r) }

type claimOption func(*runRequest)

func (o claimOption) applyClaim(r *runRequest) { o(r) }

// RunID gives a new run its id, unique within its session, at most 256 bytes. Without it, one is made.
func RunID(id string) RunOption { return runOption(func(r *runRequest) { r.id = id }) }

// RunMetadata gives a new run data of yours: text, JSON by convention, at most 64 KiB.
func RunMetadata(text string) RunOption { return runOption(func(r *runRequest) { r.metadata = text }) }

// Holder says who holds a run, for people to read, at most 256 bytes. Without it: this machine and process.
func Holder(name string) HoldingOption {
	return HoldingOption{func(r *runRequest) { r.holder = name }}
}

// Lease is after how long, 1 second to 1 hour, another worker may claim a run if this one was not heard of: [DefaultLease]
// without it. It is renewed every third of that.
func Lease(lease time.Duration) HoldingOption {
	return HoldingOption{func(r *runRequest) { r.lease = lease }}
}

// Poll is the pause of [Client.Claims] between two questions while there is no run, on average: each pause is drawn from
// half of it to one and a half. [DefaultPoll] without it.
func Poll(pause time.Duration) ClaimOption {
	return claimOption(func(r *runRequest) { r.poll = pause })
}

func newRunRequest() *runRequest {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	holder := fmt.Sprintf("%s:%d", host, os.Getpid())
	return &runRequest{
		holder: holder[max(0, len(holder)-mostHolderBytes):], lease: DefaultLease, poll: DefaultPoll,
	}
}

func (r *runRequest) begin(options []RunOption) *runRequest {
	r.id = NewID()
	for _, option := range options {
		option.applyRun(r)
	}
	return r
}

func (r *runRequest) claim(options []ClaimOption) *runRequest {
	for _, option := range options {
		option.applyClaim(r)
	}
	return r
}

func (s *Session) runKey(id string) *memorydv1.RunKey {
	return &memorydv1.RunKey{Session: s.key, RunId: id}
}

// EnqueueRun begins a run for any worker to claim, and the session if there is none. Options are [RunID], [RunMetadata] and
// [SessionSettings]. [ErrRunExists] when the session has another run of the id, [ErrTooManyRuns] when it has 64 unfinished
// ones.
func (s *Session) EnqueueRun(ctx context.Context, options ...RunOption) (*RunInfo, error) {
	r := newRunRequest().begin(options)
	response, err := s.client.runs.CreateRun(ctx, &memorydv1.CreateRunRequest{
		Run: s.runKey(r.id), Metadata: r.metadata, Queued: true, Create: r.create,
	})
	return response.GetRun(), err
}

// GetRun reads a run. [ErrRunNotFound] or [ErrSessionNotFound] without it.
func (s *Session) GetRun(ctx context.Context, id string) (*RunInfo, error) {
	return s.client.getRun(ctx, s.runKey(id))
}

func (c *Client) getRun(ctx context.Context, key *memorydv1.RunKey) (*RunInfo, error) {
	response, err := c.runs.GetRun(ctx, &memorydv1.GetRunRequest{Run: key})
	return response.GetRun(), err
}

// DeleteRun deletes a run that has ended, with its steps, and tells whether there was one. Its messages stay.
// [ErrRunUnfinished] for another. It is not tried again by itself.
func (s *Session) DeleteRun(ctx context.Context, id string) (bool, error) {
	response, err := s.client.runs.DeleteRun(ctx, &memorydv1.DeleteRunRequest{Run: s.runKey(id)})
	return response.GetDeleted(), err
}

// RunsOption is an option of [Session.Runs] and [Client.Runs].
type RunsOption interface {
	applyRuns(*memorydv1.ListRunsRequest)
}

type runsOption func(*memorydv1.ListRunsRequest)

func (o runsOption) applyRuns(r *memorydv1.ListRunsRequest) { o(r) }

// WithStatus lists only runs of these statuses.
func WithStatus(statuses ...RunStatus) RunsOption {
	return runsOption(func(r *memorydv1.ListRunsRequest) { r.Statuses = statuses })
}

// Runs lists the runs of the session, newest first. [ErrSessionNotFound] without it. Options are [WithStatus] and
// [PageSize].
func (s *Session) Runs(ctx context.Context, options ...RunsOption) iter.Seq2[*RunInfo, error] {
	return s.client.listRuns(ctx, &memorydv1.ListRunsRequest{
		Of: &memorydv1.ListRunsRequest_Session{Session: s.key},
	}, options)
}

// Runs lists the runs of all sessions of an agent, newest first. Options are [WithStatus] and [PageSize].
func (c *Client) Runs(ctx context.Context, agent string, options ...RunsOption) iter.Seq2[*RunInfo, error] {
	return c.listRuns(ctx, &memorydv1.ListRunsRequest{Of: &memorydv1.ListRunsRequest_Agent{Agent: agent}}, options)
}

func (c *Client) listRuns(
	ctx context.Context, request *memorydv1.ListRunsRequest, options []RunsOption,
) iter.Seq2[*RunInfo, error] {
	for _, option := range options {
		option.applyRuns(request)
	}
	return pages(c, ctx, request, c.runs.ListRuns,
		func(r *memorydv1.ListRunsRequest, token string) { r.PageToken = token },
		(*memorydv1.ListRunsResponse).GetRuns)
}

// StepsOption is an option of [Session.RunSteps].
type StepsOption interface {
	applySteps(*memorydv1.ListRunStepsRequest)
}

type stepsOption func(*memorydv1.ListRunStepsRequest)

func (o stepsOption) applySteps(r *memorydv1.ListRunStepsRequest) { o(r) }

// AfterStep lists only steps with a greater number.
func AfterStep(number int64) StepsOption {
	return stepsOption(func(r *memorydv1.ListRunStepsRequest) { r.AfterNumber = number })
}

// RunSteps iterates over a run's steps by number, reading page after page. [ErrRunNotFound] or [ErrSessionNotFound] without
// it. Options are [AfterStep] and [PageSize].
func (s *Session) RunSteps(ctx context.Context, id string, options ...StepsOption) iter.Seq2[*RunStep, error] {
	return s.client.runSteps(ctx, s.runKey(id), options...)
}

func (c *Client) runSteps(
	ctx context.Context, key *memorydv1.RunKey, options ...StepsOption,
) iter.Seq2[*RunStep, error] {
	request := &memorydv1.ListRunStepsRequest{Run: key}
	for _, option := range options {
		option.applySteps(request)
	}
	return pages(c, ctx, request, c.runs.ListRunSteps,
		func(r *memorydv1.ListRunStepsRequest, token string) { r.PageToken = token },
		(*memorydv1.ListRunStepsResponse).GetSteps)
}

// RunUpdateOption is an option of [Client.UpdateRun].
type RunUpdateOption interface {
	applyRunUpdate(*memorydv1.UpdateRunRequest)
}

type runUpdateOption func(*memorydv1.UpdateRunRequest)

func (o runUpdateOption) applyRunUpdate(r *memorydv1.UpdateRunRequest) { o(r) }

func runUpdated(path string, set func(*RunInfo)) RunUpdateOption {
	return runUpdateOption(func(r *memorydv1.UpdateRunRequest) {
		set(r.Run)
		r.UpdateMask.Paths = append(r.UpdateMask.Paths, path)
	})
}

// SetStatus sets the status of a run that another may hold: any but RUNNING.
func SetStatus(status RunStatus) RunUpdateOption {
	return runUpdated("status", func(r *RunInfo) { r.Status = status })
}

// SetRunMetadata replaces the caller's own data of a run.
func SetRunMetadata(text string) RunUpdateOption {
	return runUpdated("metadata", func(r *RunInfo) { r.Metadata = &text })
}

// UpdateRun changes a run that was just read, as who does not hold it: to approve or to cancel it, say.
//
// A new status takes the lease from a holder, whose next call is refused: [RunInterrupted] lets any worker claim the run.
// [ErrEtagMismatch] when the run changed meanwhile (its steps and renewals do that, too): read it again. [ErrRunEnded] when
// it has ended. Options are [SetStatus], [Because] and [SetRunMetadata]. It is not tried again by itself.
func (c *Client) UpdateRun(ctx context.Context, info *RunInfo, options ...RunUpdateOption) (*RunInfo, error) {
	request := &memorydv1.UpdateRunRequest{
		Run: &RunInfo{Key: info.GetKey(), Etag: info.GetEtag()}, UpdateMask: &fieldmaskpb.FieldMask{},
	}
	for _, option := range options {
		option.applyRunUpdate(request)
	}
	if len(request.UpdateMask.Paths) == 0 {
		return nil, errors.New("memoryd: nothing to update: give SetStatus, Because or SetRunMetadata")
	}
	response, err := c.runs.UpdateRun(ctx, request)
	return response.GetRun(), err
}

// Payload is what a step holds for whoever goes on behind it: at most 2 MiB. [BytesPayload], [TextPayload] and
// [JSONPayload] make it.
type Payload struct {
	content     []byte
	contentType string
	err         error
}

// BytesPayload holds bytes, of any content type, or of none.
func BytesPayload(content []byte, contentType string) Payload {
	return Payload{content: content, contentType: contentType}
}

// TextPayload holds text.
func TextPayload(text string) Payload {
	return Payload{content: []byte(text), contentType: "text/plain; charset=utf-8"}
}

// JSONPayload holds what encoding/json makes of a value, without its escapes for HTML. A value that it refuses is the step's
// error.
func JSONPayload(value any) Payload {
	var content bytes.Buffer
	encoder := json.NewEncoder(&content)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	if err != nil {
		err = fmt.Errorf("memoryd: the payload of the step: %w", err)
	}
	return Payload{content: bytes.TrimSuffix(content.Bytes(), []byte("\n")), contentType: "application/json", err: err}
}

// claimByName claims a named run. A try whose answer was lost is recognized by the request id.
func (c *Client) claimByName(
	ctx context.Context, request *memorydv1.ClaimRunRequest,
) (*memorydv1.ClaimRunResponse, error) {
	for try := 1; ; try++ {
		response, err := c.runs.ClaimRun(ctx, request)
		if err == nil || !errors.Is(err, ErrUnavailable) || try == runTries {
			return response, err
		}
		if _, err := c.getRun(ctx, request.GetRun()); err != nil {
			return nil, err
		}
	}
}

// settleRun gives a held run another status, and its lease back. A try whose answer was lost may have done it: the run then
// has the status already, and a further try is refused.
func (c *Client) settleRun(ctx context.Context, key *memorydv1.RunKey, fence string, status RunStatus, reason string) error {
	request := &memorydv1.UpdateRunRequest{
		Run:        &RunInfo{Key: key, Status: status, StatusReason: reason},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"status", "status_reason"}},
		Fence:      fence,
	}
	isDoubtful := false
	for try := 1; ; try++ {
		_, err := c.runs.UpdateRun(ctx, request)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrUnavailable) && try < runTries:
			isDoubtful = true
		case isDoubtful && hasReason(err, ErrRunLeaseLost, ErrRunEnded):
		default:
			return err
		}
		stands, readErr := c.getRun(ctx, key)
		switch {
		case readErr != nil:
			return readErr
		case stands.GetStatus() == status && stands.GetStatusReason() == reason:
			return nil
		case !errors.Is(err, ErrUnavailable):
			return err
		}
	}
}
