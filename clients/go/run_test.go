package memoryd_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	memoryd "github.com/memoryd/memoryd/clients/go"
)

func statusOf(t *testing.T, session *memoryd.Session, id string) (memoryd.RunStatus, string) {
	t.Helper()
	info, err := session.GetRun(testContext(t), id)
	ok(t, err)
	return info.Status, info.StatusReason
}

func TestARunThatIsDoneIsCompleted(t *testing.T) {
	ctx, session, client := newSession(t)
	run := session.Run(memoryd.RunID("run-1"), memoryd.RunMetadata(`{"goal":1}`), memoryd.Holder("me"),
		memoryd.SessionSettings{UserID: "mia"})
	if _, err := run.Step(ctx, memoryd.TextPayload("early")); err == nil {
		t.Error("a run takes steps before it is held")
	}
	said := memoryd.Assistant("Paris it is.")
	ok(t, run.Do(ctx, func(ctx context.Context) error {
		if !run.IsHeld() || run.Fence() == "" {
			t.Errorf("%s is not held", run)
		}
		none, err := run.Resume(ctx)
		ok(t, err)
		if none != nil {
			t.Errorf("got %v", none)
		}
		step, err := run.Step(ctx, memoryd.JSONPayload(map[string]string{"city": "Paris <3"}), memoryd.Produced(said))
		ok(t, err)
		equal(t, "number", step.Number, 1)
		equal(t, "first seq", step.FirstSeq, 1)
		_, err = run.Step(ctx, memoryd.BytesPayload([]byte{0, 255}, "application/x"))
		ok(t, err)
		_, err = run.Step(ctx, memoryd.BytesPayload(nil, ""), memoryd.Produced(memoryd.CallTools(nil)))
		failsWith(t, err, memoryd.ErrInvalidArgument)
		_, err = run.Step(ctx, memoryd.JSONPayload(func() {}))
		if err == nil {
			t.Error("a function is JSON")
		}
		last, err := run.Resume(ctx)
		ok(t, err)
		equal(t, "the last step", last.Number, 2)
		return nil
	}))
	status, _ := statusOf(t, session, "run-1")
	equal(t, "status", status, memoryd.RunCompleted)
	equal(t, "its own", run.Status(), memoryd.RunCompleted)
	equal(t, "steps", run.Steps(), 2)
	message, err := session.Message(ctx, 1)
	ok(t, err)
	equal(t, "run of the message", message.RunId, "run-1")
	steps, err := memoryd.Collect(session.RunSteps(ctx, "run-1", memoryd.PageSize(1)))
	ok(t, err)
	equal(t, "payload", string(steps[0].Payload), `{"city":"Paris <3"}`)
	equal(t, "content type", steps[0].ContentType, "application/json")
	after, err := memoryd.Collect(session.RunSteps(ctx, "run-1", memoryd.AfterStep(1)))
	ok(t, err)
	equal(t, "after the first", len(after), 1)
	if err := run.Do(ctx, nil); err == nil {
		t.Error("a run is done twice")
	}
	err = session.Run(memoryd.RunID("run-1")).Do(ctx, nil)
	failsWith(t, err, memoryd.ErrRunExists)
	err = session.ClaimRun("run-1").Do(ctx, nil)
	failsWith(t, err, memoryd.ErrRunEnded)
	_, err = session.GetRun(ctx, "run-2")
	failsWith(t, err, memoryd.ErrRunNotFound)
	listed, err := memoryd.Collect(client.Runs(ctx, session.Agent(), memoryd.WithStatus(memoryd.RunCompleted)))
	ok(t, err)
	equal(t, "listed", len(listed), 1)
	deleted, err := session.DeleteRun(ctx, "run-1")
	ok(t, err)
	equal(t, "deleted", deleted, true)
}

func TestHowARunEndsIsRecorded(t *testing.T) {
	ctx, session, _ := newSession(t)
	appended(t, session, memoryd.User("Go."))
	broken := errors.New("the card\x00was declined")
	cancelled, cancel := context.WithCancel(ctx)
	for name, c := range map[string]struct {
		ctx    context.Context
		work   func(run *memoryd.Run) func(context.Context) error
		err    error
		status memoryd.RunStatus
		reason string
	}{
		"an error": {ctx, func(*memoryd.Run) func(context.Context) error {
			return func(context.Context) error { return broken }
		}, broken, memoryd.RunFailed, "the card\uFFFDwas declined"},
		"a cancellation": {cancelled, func(*memoryd.Run) func(context.Context) error {
			return func(ctx context.Context) error { cancel(); return context.Cause(ctx) }
		}, context.Canceled, memoryd.RunInterrupted, "context canceled"},
		"a pause": {ctx, func(run *memoryd.Run) func(context.Context) error {
			return func(ctx context.Context) error {
				return run.Pause(ctx, memoryd.RunAwaitingApproval, memoryd.Because("books a seat"))
			}
		}, nil, memoryd.RunAwaitingApproval, "books a seat"},
		"a pause with a step": {ctx, func(run *memoryd.Run) func(context.Context) error {
			return func(ctx context.Context) error {
				return run.Pause(ctx, memoryd.RunAwaitingBudget, memoryd.LastStep(memoryd.TextPayload("a")),
					memoryd.Produced(memoryd.Assistant("It is dear.")), memoryd.Because("dear"))
			}
		}, nil, memoryd.RunAwaitingBudget, "dear"},
		"an end": {ctx, func(run *memoryd.Run) func(context.Context) error {
			return func(ctx context.Context) error {
				if err := run.Pause(ctx, memoryd.RunCompleted); err == nil {
					t.Error("a run waits although it ended")
				}
				if err := run.Finish(ctx, memoryd.RunInterrupted); err == nil {
					t.Error("a run ends although it waits")
				}
				err := run.Finish(ctx, memoryd.RunBlocked, memoryd.Because("no seats"))
				if _, late := run.Step(ctx, memoryd.TextPayload("late")); late == nil {
					t.Error("a run takes steps after its end")
				}
				return err
			}
		}, nil, memoryd.RunBlocked, "no seats"},
	} {
		t.Run(name, func(t *testing.T) {
			run := session.Run()
			if err := run.Do(c.ctx, c.work(run)); !errors.Is(err, c.err) {
				t.Errorf("got %v, want %v", err, c.err)
			}
			status, reason := statusOf(t, session, run.ID())
			equal(t, "status", status, c.status)
			equal(t, "reason", reason, c.reason)
		})
	}
	run := session.Run()
	func() {
		defer func() { equal(t, "panic", recover(), any("broken")) }()
		_ = run.Do(ctx, func(context.Context) error { panic("broken") })
	}()
	status, reason := statusOf(t, session, run.ID())
	equal(t, "status", status, memoryd.RunFailed)
	equal(t, "reason", reason, "panic: broken")
}

func TestARunThatIsTakenAwayCancelsItsWork(t *testing.T) {
	ctx, session, client := newSession(t)
	run := session.Run(memoryd.Lease(time.Second))
	err := run.Do(ctx, func(ctx context.Context) error {
		info, err := session.GetRun(ctx, run.ID())
		ok(t, err)
		_, err = client.UpdateRun(ctx, info, memoryd.SetStatus(memoryd.RunCancelled), memoryd.Because("changed my mind"))
		ok(t, err)
		<-ctx.Done()
		failsWith(t, context.Cause(ctx), memoryd.ErrRunLeaseLost)
		_, err = run.Step(context.WithoutCancel(ctx), memoryd.TextPayload("late"))
		failsWith(t, err, memoryd.ErrRunLeaseLost)
		// Which of the two a call that has both to tell finds first is a matter of chance.
		for range 20 {
			_, err = run.Step(ctx, memoryd.TextPayload("late, with the context that the loss ended"))
			failsWith(t, err, memoryd.ErrRunLeaseLost)
		}
		return ctx.Err()
	})
	failsWith(t, err, memoryd.ErrRunLeaseLost)
	equal(t, "held", run.IsHeld(), false)
	status, reason := statusOf(t, session, run.ID())
	equal(t, "status", status, memoryd.RunCancelled)
	equal(t, "reason", reason, "changed my mind")
}

func TestALeaseIsRenewedWhileWorkGoesOn(t *testing.T) {
	ctx, session, _ := newSession(t)
	run := session.Run(memoryd.Lease(time.Second))
	ok(t, run.Do(ctx, func(ctx context.Context) error {
		err := session.ClaimRun(run.ID()).Do(ctx, nil)
		failsWith(t, err, memoryd.ErrRunNotClaimable)
		time.Sleep(2500 * time.Millisecond)
		_, err = run.Step(ctx, memoryd.TextPayload("slow"))
		return err
	}))
	info, err := session.GetRun(ctx, run.ID())
	ok(t, err)
	equal(t, "recoveries", info.RecoveryCount, 0)
}

func TestARunWhoseServerIsGoneIsLost(t *testing.T) {
	server := ownServer(t, anyPort, "--store", "main=memory://")
	client := newClient(t, server.address)
	run := client.NewSession("a").Run(memoryd.Lease(time.Second))
	err := run.Do(testContext(t), func(ctx context.Context) error {
		server.kill()
		<-ctx.Done()
		return ctx.Err()
	})
	failure := failsWith(t, err, memoryd.ErrRunLeaseLost)
	if !strings.Contains(failure.Message, "none of its renewals got through") {
		t.Errorf("got %v", err)
	}
}

func TestQueuedRunsAreClaimedByOneWorkerEach(t *testing.T) {
	ctx, session, client := newSession(t)
	const count = 6
	for range count {
		_, err := session.EnqueueRun(ctx, memoryd.RunMetadata("job"))
		ok(t, err)
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	var mutex sync.Mutex
	done := map[string]int{}
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for run, err := range client.Claims(working, session.Agent(), memoryd.Poll(50*time.Millisecond)) {
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
				if err := run.Do(working, func(ctx context.Context) error {
					equal(t, "metadata", run.Metadata(), "job")
					mutex.Lock()
					defer mutex.Unlock()
					done[run.ID()]++
					return nil
				}); err != nil {
					t.Error(err)
				}
				mutex.Lock()
				if len(done) == count {
					stop()
				}
				mutex.Unlock()
			}
		})
	}
	workers.Wait()
	equal(t, "runs", len(done), count)
	for id, times := range done {
		equal(t, "times "+id, times, 1)
	}
}

func TestARunThatIsNotDoneInItsTurnIsReleased(t *testing.T) {
	ctx, session, client := newSession(t)
	queued, err := session.EnqueueRun(ctx)
	ok(t, err)
	var kept *memoryd.Run
	for run, err := range client.Claims(ctx, session.Agent()) {
		ok(t, err)
		kept = run
		break
	}
	if err := kept.Do(ctx, nil); err == nil || !strings.Contains(err.Error(), "was released") {
		t.Errorf("got %v", err)
	}
	status, _ := statusOf(t, session, queued.Key.RunId)
	equal(t, "status", status, memoryd.RunInterrupted)
	claimed := session.ClaimRun(queued.Key.RunId)
	ok(t, claimed.Do(ctx, func(context.Context) error { return nil }))
	status, _ = statusOf(t, session, queued.Key.RunId)
	equal(t, "status", status, memoryd.RunCompleted)
}

func TestClosingAClientReleasesItsRuns(t *testing.T) {
	ctx, session, _ := newSession(t)
	other := newClient(t, shared.address)
	run := other.Session(session.Agent(), session.ID()).Run()
	err := run.Do(ctx, func(ctx context.Context) error { return other.Close() })
	closedUnderIt(t, err)
	status, _ := statusOf(t, session, run.ID())
	equal(t, "status", status, memoryd.RunInterrupted)
}

func closedUnderIt(t *testing.T, err error) {
	t.Helper()
	failure := failsWith(t, err, memoryd.ErrRunLeaseLost)
	if !strings.Contains(failure.Message, "its client was closed") || !strings.Contains(failure.Message, "not recorded as completed") {
		t.Errorf("got %v", err)
	}
}

// Another worker does the work again: the one whose client was closed must neither go on nor take it for done.
func TestClosingAClientCancelsTheWorkOfItsRuns(t *testing.T) {
	ctx, session, _ := newSession(t)
	other := newClient(t, shared.address)
	run := other.Session(session.Agent(), session.ID()).Run()
	closed := make(chan error, 1)
	err := run.Do(ctx, func(ctx context.Context) error {
		go func() { closed <- other.Close() }()
		<-ctx.Done()
		closedUnderIt(t, context.Cause(ctx))
		_, err := run.Step(context.WithoutCancel(ctx), memoryd.TextPayload("late"))
		closedUnderIt(t, err)
		return ctx.Err()
	})
	closedUnderIt(t, err)
	ok(t, <-closed)
	equal(t, "held", run.IsHeld(), false)
	status, _ := statusOf(t, session, run.ID())
	equal(t, "status", status, memoryd.RunInterrupted)
	ok(t, session.ClaimRun(run.ID()).Do(ctx, func(context.Context) error { return nil }))
}

// The server does not hear of it, and the lease ends by itself; the work ends all the same.
func TestClosingAClientWhoseServerIsGoneCancelsTheWorkOfItsRuns(t *testing.T) {
	server := ownServer(t, anyPort, "--store", "main=memory://")
	client := newClient(t, server.address)
	err := client.NewSession("a").Run().Do(testContext(t), func(ctx context.Context) error {
		server.kill()
		go client.Close()
		<-ctx.Done()
		return nil
	})
	closedUnderIt(t, err)
}

func TestUpdatesOfRuns(t *testing.T) {
	ctx, session, client := newSession(t)
	info, err := session.EnqueueRun(ctx)
	ok(t, err)
	changed, err := client.UpdateRun(ctx, info, memoryd.SetRunMetadata("new"))
	ok(t, err)
	equal(t, "metadata", changed.GetMetadata(), "new")
	_, err = client.UpdateRun(ctx, info, memoryd.SetStatus(memoryd.RunCancelled))
	failsWith(t, err, memoryd.ErrEtagMismatch)
	if _, err = client.UpdateRun(ctx, info); err == nil {
		t.Error("an update of nothing is no error")
	}
	_, err = session.DeleteRun(ctx, info.Key.RunId)
	failsWith(t, err, memoryd.ErrRunUnfinished)
	listed, err := memoryd.Collect(session.Runs(ctx))
	ok(t, err)
	equal(t, "listed", len(listed), 1)
}

func TestWorkThatEndsBeforeItBegan(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	client := newClient(t, shared.address)
	err := client.NewSession(newAgent(t)).Run().Do(cancelled, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	for _, err := range client.Claims(cancelled, newAgent(t)) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	defer listener.Close()
	short, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	err = newClient(t, listener.Addr().String()).NewSession("a").Run().Do(short, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
