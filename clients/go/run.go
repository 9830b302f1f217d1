package memoryd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

const (
	// drainTimeout is what recording how a run stands may take once its worker is told to stop; otherwise its lease ends by
	// itself.
	drainTimeout = 10 * time.Second
	// longestRetry is the most before a renewal that failed is tried again; a tenth of the lease where that is less.
	longestRetry    = time.Second
	mostReasonBytes = 4_096
)

var (
	awaiting = []RunStatus{RunAwaitingApproval, RunAwaitingBudget, RunInterrupted}
	ended    = []RunStatus{RunCompleted, RunBlocked, RunFailed, RunCancelled, RunTimeout, RunAbandoned}
)

type phase int

const (
	phaseNew       phase = iota // not begun or claimed yet
	phaseHeld                   // held, as far as is known
	phaseGivenBack              // paused, ended or released by this holder
	phaseLost                   // not this holder's any more
	phaseReleased               // left to other workers: its client was closed, or nobody did it
)

// Run is a run that is worked at. [Session.Run], [Session.ClaimRun] and [Client.Claims] name it; [Run.Do] holds it.
type Run struct {
	client  *Client
	store   string
	session *Session
	id      string
	holder  string
	lease   time.Duration
	hold    func(context.Context) (*RunInfo, string, error)

	calls chan struct{} // holds one while a call is made: one at a time

	mutex        sync.Mutex // the rest
	phase        phase
	entered      bool
	status       RunStatus
	metadata     string
	steps        int64
	fence        string
	until        time.Time
	isGivingBack bool
	failure      error
	stopKeeping  context.CancelFunc
	cancelBody   context.CancelCauseFunc
}

func (s *Session) newRun(r *runRequest) *Run {
	return &Run{
		client: s.client, store: *s.client.store.Load(), session: s,
		id: r.id, metadata: r.metadata, holder: r.holder, lease: r.lease, calls: make(chan struct{}, 1),
	}
}

// Run names a new run of the session, which begins when [Run.Do] is called, and the session with it if there is none:
//
//	run := session.Run()
//	err := run.Do(ctx, func(ctx context.Context) error {
//		seat := memoryd.Assistant("I would book seat 12A.")
//		if _, err := run.Step(ctx, memoryd.JSONPayload(map[string]string{"seat": "12A"}), memoryd.Produced(seat)); err != nil {
//			return err
//		}
//		return run.Pause(ctx, memoryd.RunAwaitingApproval, memoryd.Because("books a seat"))
//	})
//
// Options are [RunID], [RunMetadata], [Holder], [Lease] and [SessionSettings]. Do gives [ErrRunExists] when the session has
// another run of the id, [ErrTooManyRuns] when it has 64 unfinished ones.
func (s *Session) Run(options ...RunOption) *Run {
	r := newRunRequest().begin(options)
	run := s.newRun(r)
	request := &memorydv1.CreateRunRequest{
		Run: s.runKey(r.id), Metadata: r.metadata, Holder: r.holder, LeaseDuration: durationpb.New(r.lease), Create: r.create,
	}
	run.hold = func(ctx context.Context) (*RunInfo, string, error) {
		response, err := s.client.runs.CreateRun(ctx, request)
		return response.GetRun(), response.GetFence(), err
	}
	return run
}

// ClaimRun names a run to go on with, which is claimed when [Run.Do] is called. A run that waits for an approval or a budget
// is claimed only so. Options are [Holder] and [Lease]. Do gives [ErrRunNotClaimable] while another worker holds the run,
// [ErrRunEnded] when it has ended, [ErrRunNotFound] or [ErrSessionNotFound] without it.
func (s *Session) ClaimRun(id string, options ...ClaimOption) *Run {
	r := newRunRequest().claim(options)
	r.id = id
	run := s.newRun(r)
	request := &memorydv1.ClaimRunRequest{
		Of:     &memorydv1.ClaimRunRequest_Run{Run: s.runKey(id)},
		Holder: r.holder, LeaseDuration: durationpb.New(r.lease), RequestId: NewID(),
	}
	run.hold = func(ctx context.Context) (*RunInfo, string, error) {
		response, err := s.client.claimByName(ctx, request)
		return response.GetRun(), response.GetFence(), err
	}
	return run
}

// Claims iterates over the runs of an agent that any worker may take up: queued ones, INTERRUPTED ones, and those whose
// lease is over. It ends with the context, whose error comes then.
//
//	for run, err := range client.Claims(ctx, "travel") {
//		if err != nil {
//			return err
//		}
//		err := run.Do(ctx, func(ctx context.Context) error { … })
//		…
//	}
//
// Each run is claimed already, and its lease renewed: the one that waits longest comes first, to one worker alone. One that
// is not done in its turn of the loop is released when the loop goes on or ends: for several runs at once, have several
// goroutines loop. While there is none, it asks again after a pause; while the server is unavailable too, and tells the log.
// Options are [Holder], [Lease] and [Poll].
func (c *Client) Claims(ctx context.Context, agent string, options ...ClaimOption) iter.Seq2[*Run, error] {
	r := newRunRequest().claim(options)
	store := *c.store.Load()
	request := &memorydv1.ClaimRunRequest{
		Of: &memorydv1.ClaimRunRequest_Agent{Agent: agent}, Holder: r.holder, LeaseDuration: durationpb.New(r.lease),
	}
	return func(yield func(*Run, error) bool) {
		outage := outage{logger: c.logger, begins: "no run can be claimed", ends: "runs are claimed again"}
		for {
			run, err := c.claimOf(ctx, store, request, r)
			switch {
			case ctx.Err() != nil:
				if run != nil {
					run.abandon(ctx)
				}
				yield(nil, ctx.Err())
				return
			case err == nil:
				outage.ended()
			case !outage.passes(err):
				yield(nil, err)
				return
			}
			if run != nil {
				if !giveRun(ctx, run, yield) {
					return
				}
				continue
			}
			pause := time.Duration(float64(r.poll) * (0.5 + rand.Float64()))
			if err := sleep(ctx, pause); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// giveRun hands a run to the loop's body, and releases it when that has not entered it.
func giveRun(ctx context.Context, run *Run, yield func(*Run, error) bool) bool {
	defer func() {
		if !run.isEntered() {
			run.abandon(ctx)
		}
	}()
	return yield(run, nil)
}

// claimOf claims a run of an agent; nil when there is none. The call is carried through although the context ends
// meanwhile, since a run that was claimed has to be known, to be released.
func (c *Client) claimOf(
	ctx context.Context, store string, request *memorydv1.ClaimRunRequest, r *runRequest,
) (*Run, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	call, cancel := context.WithCancel(withStore(context.WithoutCancel(ctx), store))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(releaseTimeout, cancel)
	})
	defer stop()
	since := time.Now()
	response, err := c.runs.ClaimRun(call, request)
	if err != nil || response.GetRun() == nil {
		return nil, err
	}
	key := response.GetRun().GetKey()
	run := c.Session(key.GetSession().GetAgent(), key.GetSession().GetSessionId()).newRun(r)
	run.store = store
	run.id = key.GetRunId()
	run.takeHold(response.GetRun(), response.GetFence(), since)
	return run, nil
}

// Session is the session whose messages the run produces.
func (r *Run) Session() *Session { return r.session }

// ID is the run's id, unique within its session.
func (r *Run) ID() string { return r.id }

// Holder is who holds it, for people to read.
func (r *Run) Holder() string { return r.holder }

// Metadata is the caller's own data; of a claimed run, once it is held.
func (r *Run) Metadata() string {
	defer r.locked()()
	return r.metadata
}

// Status is how the run stood when this holder last changed it; 0 before it is held.
func (r *Run) Status() RunStatus {
	defer r.locked()()
	return r.status
}

// Steps is how many steps are committed, as far as this holder knows.
func (r *Run) Steps() int64 {
	defer r.locked()()
	return r.steps
}

// Fence proves that the run is held. Of two fences of a session, the later one is greater, so that other systems can tell a
// late write too. Empty before it is held.
func (r *Run) Fence() string {
	defer r.locked()()
	return r.fence
}

// IsHeld says whether the run is still this holder's, by this machine's clock and what the server last answered.
func (r *Run) IsHeld() bool {
	defer r.locked()()
	return r.isHeld()
}

// String names the run.
func (r *Run) String() string { return fmt.Sprintf("run %q of %s", r.id, r.session) }

func (r *Run) locked() (unlock func()) {
	r.mutex.Lock()
	return r.mutex.Unlock
}

func (r *Run) isEntered() bool {
	defer r.locked()()
	return r.entered
}

func (r *Run) isHeld() bool { return r.phase == phaseHeld && time.Now().Before(r.until) }

func (r *Run) key() *memorydv1.RunKey { return r.session.runKey(r.id) }

// Do begins or claims the run, works at it, and records how that went. It can be called once.
//
// While the function works, the lease is renewed every third of it. When it returns nil, the run is COMPLETED; FAILED with
// an error, or when it panics; INTERRUPTED when it returns an error after ctx has ended, so that another worker goes on
// behind the last step: that is written although ctx has ended, within 10 seconds. After [Run.Pause] or [Run.Finish]
// nothing is changed. Do gives the function's error, and otherwise that of recording.
//
// When the lease is lost (another worker claimed the run, somebody changed its status, no renewal got through in time, the
// client was closed), nothing of it can be written any more: the function's context is cancelled, with [ErrRunLeaseLost] as
// its cause, and Do gives that, unless the function returns another error of its own.
func (r *Run) Do(ctx context.Context, work func(ctx context.Context) error) error {
	if err := r.enter(ctx); err != nil {
		return err
	}
	body, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.bind(cancel)
	defer r.stop()
	failed := true
	defer func() {
		if failed { // The function panics, or ends its goroutine.
			reason := "the worker ended"
			if panicked := recover(); panicked != nil {
				defer panic(panicked)
				reason = fmt.Sprintf("panic: %v", panicked)
			}
			r.record(ctx, errors.New(reason), false)
		}
	}()
	err := work(body)
	failed = false
	return r.left(ctx, err)
}

func (r *Run) enter(ctx context.Context) error {
	unlock := r.locked()
	phase, entered := r.phase, r.entered
	unlock()
	switch {
	case entered:
		return fmt.Errorf("memoryd: %s was done before; claim it to go on", r)
	case phase == phaseReleased:
		return r.undone()
	case phase == phaseNew:
		if err := r.begin(ctx); err != nil {
			return err
		}
	}
	unlock = r.locked()
	r.entered = true
	unlock()
	if err := r.check(); err != nil {
		r.stop()
		return err
	}
	return nil
}

// undone is the error of a run that was released before anybody did it.
func (r *Run) undone() error {
	return fmt.Errorf("memoryd: %s was released, since it was not done in its turn of the loop, or its client was closed", r)
}

// begin begins or claims the run. It is carried through although the context ends meanwhile, since a run that is held has
// to be known, to be released.
func (r *Run) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	call, cancel := context.WithTimeout(withStore(context.WithoutCancel(ctx), r.store), r.timeout(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(releaseTimeout, cancel) })
	defer stop()
	since := time.Now()
	info, fence, err := r.hold(call)
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return ctx.Err()
		}
		return err
	}
	r.takeHold(info, fence, since)
	if err := ctx.Err(); err != nil {
		r.abandon(ctx)
		return err
	}
	return nil
}

func (r *Run) timeout(ctx context.Context) time.Duration {
	if deadline, bounded := ctx.Deadline(); bounded {
		return time.Until(deadline)
	}
	return r.client.settings.timeout
}

// takeHold takes note of a lease that was asked for at since, so that it lasts no longer here than in the store.
func (r *Run) takeHold(info *RunInfo, fence string, since time.Time) {
	keeping, stop := context.WithCancel(withStore(context.Background(), r.store))
	unlock := r.locked()
	r.status, r.steps, r.metadata = info.GetStatus(), info.GetStepCount(), info.GetMetadata()
	r.fence, r.until, r.phase = fence, since.Add(r.lease), phaseHeld
	r.stopKeeping = stop
	unlock()
	if !r.client.hold(r) { // The client is being closed, and gives back no more: the lease ends by itself.
		r.leave(phaseReleased)
	}
	go r.keep(keeping)
}

// bind has the body cancelled when the run is lost or released.
func (r *Run) bind(cancel context.CancelCauseFunc) {
	defer r.locked()()
	r.cancelBody = cancel
	if r.isGone() {
		cancel(r.loss())
	}
}

func (r *Run) stop() {
	unlock := r.locked()
	stop := r.stopKeeping
	unlock()
	if stop != nil {
		stop()
	}
	r.client.forget(r)
}

// check gives the error of a run that is not to be worked at.
func (r *Run) check() error {
	defer r.locked()()
	switch {
	case r.phase == phaseNew:
		return fmt.Errorf("memoryd: %s is not held yet: Do begins it", r)
	case r.phase == phaseGivenBack:
		return fmt.Errorf("memoryd: %s was given back; claim it to go on", r)
	case r.phase == phaseReleased && !r.entered:
		return r.undone()
	case !r.isHeld():
		r.lose(r.failure)
		return r.loss()
	}
	return nil
}

func (r *Run) lose(failure error) {
	if r.phase != phaseHeld {
		return
	}
	r.failure = failure
	r.become(phaseLost)
}

// become sets how the run stands once it is not held any more, and cancels its body where that has not made it so.
func (r *Run) become(phase phase) {
	r.phase = phase
	if r.isGone() && r.cancelBody != nil {
		r.cancelBody(r.loss())
	}
}

// isGone says whether the run was taken from its body.
func (r *Run) isGone() bool { return r.phase == phaseLost || r.phase == phaseReleased }

// leave is become for a run that may not be held.
func (r *Run) leave(phase phase) {
	defer r.locked()()
	if r.phase == phaseHeld {
		r.become(phase)
	}
}

func isLoss(err error) bool {
	return hasReason(err, ErrRunLeaseLost, ErrRunEnded) || errors.Is(err, ErrNotFound)
}

func (r *Run) loss() error {
	message := fmt.Sprintf("the lease of the run %q is over: none of its renewals got through within %s. Stop working at "+
		"it; claim it to go on", r.id, r.lease)
	var why *Error
	switch {
	case r.phase == phaseReleased:
		message = fmt.Sprintf("the run %q is not held any more: its client was closed, which left it to other workers, and it "+
			"is not recorded as completed. Claim it to go on; close the client behind Do", r.id)
	case isLoss(r.failure) && errors.As(r.failure, &why):
		message = fmt.Sprintf("the run %q is not held any more: %s", r.id, why.Message)
	}
	return &Error{
		Message:  message,
		Code:     codes.FailedPrecondition,
		Reason:   ErrRunLeaseLost,
		Metadata: map[string]string{"agent": r.session.Agent(), "session_id": r.session.ID(), "run_id": r.id},
		cause:    r.failure,
	}
}

// instead is the loss of the run in place of the end of the context, which a loss ends; otherwise the error itself.
func (r *Run) instead(err error) error {
	defer r.locked()()
	if r.isGone() {
		return r.loss()
	}
	return err
}

// call does what only the holder may do, one at a time. ErrRunLeaseLost from then on, when that is not this one.
func (r *Run) call(ctx context.Context, do func(ctx context.Context) error) error {
	select {
	case r.calls <- struct{}{}:
		defer func() { <-r.calls }()
	case <-ctx.Done():
		return r.instead(ctx.Err())
	}
	if err := r.check(); err != nil {
		return err
	}
	ctx, cancel := r.client.operation(withStore(ctx, r.store))
	defer cancel()
	err := do(ctx)
	switch {
	case errors.Is(err, context.Canceled):
		return r.instead(err)
	case !isLoss(err):
		return err
	}
	defer r.stop()
	defer r.locked()()
	r.lose(err)
	return r.loss()
}

// StepOption is an option of [Run.Step].
type StepOption interface{ applyStep(*stepRequest) }

// EndOption is an option of [Run.Pause] and [Run.Finish].
type EndOption interface{ applyEnd(*stepRequest) }

type stepRequest struct {
	messages []*Message
	reason   string
	payload  *Payload
}

// ProducedOption is made by [Produced].
type ProducedOption []*Message

// Produced gives the messages that a step produced: at most 256, together at most 3.5 MiB. They get the run's id as their
// run_id. A message without an id is given one, in place.
func Produced(messages ...*Message) ProducedOption { return messages }

func (o ProducedOption) applyStep(s *stepRequest) { s.messages = append(s.messages, o...) }
func (o ProducedOption) applyEnd(s *stepRequest)  { s.messages = append(s.messages, o...) }

// ReasonOption is made by [Because].
type ReasonOption string

// Because says why a run has its status, in at most 4 KiB.
func Because(reason string) ReasonOption { return ReasonOption(reason) }

func (o ReasonOption) applyEnd(s *stepRequest) { s.reason = string(o) }
func (o ReasonOption) applyRunUpdate(r *memorydv1.UpdateRunRequest) {
	r.Run.StatusReason = string(o)
	r.UpdateMask.Paths = append(r.UpdateMask.Paths, "status_reason")
}

type endOption func(*stepRequest)

func (o endOption) applyEnd(s *stepRequest) { o(s) }

// LastStep commits a last step together with the status, in one commit.
func LastStep(payload Payload) EndOption {
	return endOption(func(s *stepRequest) { s.payload = &payload })
}

// Step commits the run's next step and the messages that it produced ([Produced]), all or none, and gives it.
//
// It is tried again by itself, and committed once. When an answer stays out all the same, repeat it with the same payload
// and the same messages; another step is [ErrStepMismatch] then, if the first was committed. [ErrRunLeaseLost] when the run
// is not held any more; [ErrMessageIDConflict] for messages that are stored already.
func (r *Run) Step(ctx context.Context, payload Payload, options ...StepOption) (*RunStep, error) {
	request := stepRequest{payload: &payload}
	for _, option := range options {
		option.applyStep(&request)
	}
	var step *RunStep
	err := r.call(ctx, func(ctx context.Context) (err error) {
		step, err = r.commit(ctx, request, 0)
		return err
	})
	return step, err
}

func (r *Run) commit(ctx context.Context, s stepRequest, status RunStatus) (*RunStep, error) {
	if s.payload == nil {
		s.payload = &Payload{}
	}
	if s.payload.err != nil {
		return nil, s.payload.err
	}
	if err := prepare(s.messages); err != nil {
		return nil, err
	}
	request := &memorydv1.CommitRunStepRequest{
		Run: r.key(), Fence: r.Fence(), Number: r.Steps() + 1,
		Payload: s.payload.content, ContentType: s.payload.contentType,
		Messages: s.messages, Status: status, StatusReason: s.reason,
	}
	response, err := r.client.runs.CommitRunStep(ctx, request)
	if err != nil {
		return nil, err
	}
	defer r.locked()()
	r.steps = request.Number
	step := &RunStep{
		Number: request.Number, Payload: request.Payload, ContentType: request.ContentType,
		CreateTime: response.GetCreateTime(), Status: response.GetStatus(), MessageCount: int32(len(response.GetMessages())),
	}
	if len(response.GetMessages()) > 0 {
		step.FirstSeq = response.GetMessages()[0].GetSeq()
	}
	return step, nil
}

// Resume reads the last step, behind which to go on; nil when there is none. It finds also one that was committed by a try
// whose answer was lost.
func (r *Run) Resume(ctx context.Context) (*RunStep, error) {
	var last *RunStep
	err := r.call(ctx, func(ctx context.Context) error {
		for step, err := range r.client.runSteps(ctx, r.key(), AfterStep(max(0, r.Steps()-1))) {
			if err != nil {
				return err
			}
			last = step
		}
		if last != nil {
			defer r.locked()()
			r.steps = last.GetNumber()
		}
		return nil
	})
	return last, err
}

// Pause sets a status with which the run waits, and gives its lease back; the end of [Run.Do] then changes nothing.
//
// The status is [RunAwaitingApproval] or [RunAwaitingBudget], claimed by name only, or [RunInterrupted], for any worker.
// Options are [Because], [LastStep] and [Produced]: a payload or messages become a step, in one commit with the status.
// [ErrRunLeaseLost] and [ErrMessageIDConflict] as in [Run.Step].
func (r *Run) Pause(ctx context.Context, status RunStatus, options ...EndOption) error {
	if !slices.Contains(awaiting, status) {
		return fmt.Errorf("memoryd: %s is no status with which a run waits; Finish ends it", status)
	}
	return r.end(ctx, status, options)
}

// Finish ends the run with a status ([RunCompleted], [RunBlocked], [RunFailed], [RunCancelled], [RunTimeout] or
// [RunAbandoned]); the end of [Run.Do] then changes nothing. Otherwise like [Run.Pause].
func (r *Run) Finish(ctx context.Context, status RunStatus, options ...EndOption) error {
	if !slices.Contains(ended, status) {
		return fmt.Errorf("memoryd: %s is no status with which a run ends; Pause gives it back unfinished", status)
	}
	return r.end(ctx, status, options)
}

func (r *Run) end(ctx context.Context, status RunStatus, options []EndOption) error {
	var request stepRequest
	for _, option := range options {
		option.applyEnd(&request)
	}
	return r.giveUp(ctx, status, phaseGivenBack, func(ctx context.Context) error {
		if request.payload == nil && len(request.messages) == 0 {
			return r.client.settleRun(ctx, r.key(), r.Fence(), status, request.reason)
		}
		_, err := r.commit(ctx, request, status)
		return err
	})
}

func (r *Run) release(ctx context.Context, reason string, phase phase) error {
	return r.giveUp(ctx, RunInterrupted, phase, func(ctx context.Context) error {
		_, err := r.client.runs.ReleaseRun(ctx, &memorydv1.ReleaseRunRequest{
			Run: r.key(), Fence: r.Fence(), StatusReason: reason,
		})
		return err
	})
}

func (r *Run) giveUp(
	ctx context.Context, status RunStatus, phase phase, do func(ctx context.Context) error,
) error {
	return r.call(ctx, func(ctx context.Context) error {
		r.setGivingBack(true)
		defer r.setGivingBack(false)
		if err := do(ctx); err != nil {
			return err
		}
		defer r.stop()
		defer r.locked()()
		r.status = status
		r.become(phase)
		return nil
	})
}

func (r *Run) setGivingBack(is bool) {
	defer r.locked()()
	r.isGivingBack = is
}

// left records how the work ended, and gives the error of Do.
func (r *Run) left(ctx context.Context, err error) error {
	unlock := r.locked()
	phase, isGone := r.phase, r.isGone()
	loss := r.loss()
	unlock()
	switch {
	case isGone:
		if err == nil || errors.Is(err, ErrRunLeaseLost) || ctx.Err() == nil && errors.Is(err, context.Canceled) {
			return loss
		}
		return err
	case phase != phaseHeld:
		return err
	case err == nil:
		return r.Finish(context.WithoutCancel(ctx), RunCompleted)
	}
	r.record(ctx, err, ctx.Err() != nil)
	return err
}

// record records that the work failed, or was interrupted: what fails then does not hide its error. It takes no longer than
// the lease lasts.
func (r *Run) record(ctx context.Context, err error, isInterrupted bool) {
	unlock := r.locked()
	held, left := r.phase == phaseHeld, time.Until(r.until)
	unlock()
	if !held {
		return
	}
	most := r.client.settings.timeout
	if isInterrupted {
		most = min(most, drainTimeout)
	}
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(most, left))
	defer cancel()
	var failure error
	if isInterrupted {
		failure = r.release(call, reasonOf(err), phaseGivenBack)
	} else {
		failure = r.Finish(call, RunFailed, Because(reasonOf(err)))
	}
	if failure != nil {
		r.client.logger.Warn("memoryd: how a run ended could not be recorded", "run", r.String(), "error", failure)
	}
}

// reasonOf is an error as a reason can hold it.
func reasonOf(err error) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "\uFFFD"), "\x00", "\uFFFD")
	return cutBytes(text, mostReasonBytes)
}

func (r *Run) giveBack(ctx context.Context) { r.abandon(ctx) }

// abandon leaves the run to any worker, if it is held. It is not held from then on, also where the server does not hear of
// that: the lease ends by itself then.
func (r *Run) abandon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	defer r.stop()
	unlock := r.locked()
	held := r.phase == phaseHeld
	unlock()
	if !held {
		return
	}
	err := r.release(ctx, "", phaseReleased)
	unlock = r.locked()
	held = r.phase == phaseHeld
	unlock()
	if err != nil && held { // Otherwise it ended, or was lost, meanwhile.
		r.leave(phaseReleased)
		r.client.logger.Warn("memoryd: a run could not be released", "run", r.String(), "error", err)
	}
}

// keep renews the lease until the run is lost or given back.
func (r *Run) keep(ctx context.Context) {
	for r.isToBeRenewed() {
		if sleep(ctx, r.untilRenewal()) != nil || !r.isToBeRenewed() {
			return
		}
		r.renew(ctx)
	}
}

func (r *Run) renew(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.renewalTimeout())
	defer cancel()
	since := time.Now()
	_, err := r.client.runs.RenewRunLease(ctx, &memorydv1.RenewRunLeaseRequest{
		Run: r.key(), Fence: r.Fence(), LeaseDuration: durationpb.New(r.lease),
	})
	defer r.locked()()
	switch {
	case err == nil:
		r.until, r.failure = since.Add(r.lease), nil
	case isLoss(err) && !r.isGivingBack:
		r.lose(err)
	case r.phase == phaseHeld:
		r.failure = err
	}
}

// isToBeRenewed says whether the run is held; it is lost once its lease is over.
func (r *Run) isToBeRenewed() bool {
	defer r.locked()()
	if r.phase == phaseHeld && !r.isGivingBack && !time.Now().Before(r.until) {
		r.lose(r.failure)
	}
	return r.phase == phaseHeld
}

// untilRenewal is the pause before the next renewal: a third of the lease, or less after one that failed.
func (r *Run) untilRenewal() time.Duration {
	defer r.locked()()
	left := time.Until(r.until)
	again := time.Duration(float64(min(longestRetry, r.lease/10)) * (0.5 + rand.Float64()/2))
	switch {
	case left <= 0:
		return again
	case r.failure != nil:
		return min(left, again)
	}
	return min(left, max(0, left-r.lease*2/3))
}

// renewalTimeout is what one renewal may take, so that there is time for another.
func (r *Run) renewalTimeout() time.Duration {
	defer r.locked()()
	if left := time.Until(r.until); left > 0 {
		return min(left, r.lease/3)
	}
	return r.lease / 3
}
