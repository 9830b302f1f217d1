package memoryd

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
)

// How calls are tried again while the server is unavailable: the policy of all clients, in clients/README.md.
const (
	// firstTries is how often a call is tried on a server that has not answered this client yet: about 1.5 s, with the
	// pauses between.
	firstTries = 5
	// restartTime is for how long a call is tried again, from its first failure on, on a server that has answered: as long
	// as a restart may take.
	restartTime = 10 * time.Second
	// firstPause and longestPause are those between tries of a call, and between tries to connect, so that a server that
	// restarts is found again as soon as a call is.
	firstPause   = 100 * time.Millisecond
	longestPause = time.Second
	// longestJitter: pauses are longer by up to a fifth, so that clients that lost one server do not come back all at once.
	longestJitter = 0.2
)

// tries are those of one call.
type tries struct {
	failures int
	since    time.Time
}

// next takes note of a failure, and gives the pause before the next try; false when there is to be none.
func (t *tries) next(ctx context.Context, err error, hasAnswered bool) (time.Duration, bool) {
	var e *Error
	if !errors.As(err, &e) || !e.passes() || e.RetryAfter > restartTime {
		return 0, false
	}
	now := time.Now()
	if t.failures == 0 {
		t.since = now
	}
	pause := max(min(firstPause<<min(t.failures, 10), longestPause), e.RetryAfter)
	pause += time.Duration(float64(pause) * longestJitter * rand.Float64())
	t.failures++
	end, bounded := ctx.Deadline()
	switch {
	case now.Add(pause).After(t.since.Add(restartTime)), !hasAnswered && t.failures >= firstTries:
		return 0, false
	case bounded && now.Add(pause+firstPause).After(end):
		// A try that has no time left would hide why the others failed.
		return 0, false
	}
	return pause, true
}

// passes says whether a repeat is of use. No reason is given where no server of memoryd answered.
func (e *Error) passes() bool {
	return e.Code == codes.Unavailable && (e.Reason == "" || e.Reason == ErrStoreUnavailable || e.Reason == ErrServerDraining)
}

// retrying makes a call, again where that is of use.
func (c *Client) retrying(ctx context.Context, method string, call func() error) error {
	var t tries
	for {
		err := call()
		if err == nil || !isRetried(method) {
			return err
		}
		pause, again := t.next(ctx, err, c.answered.Load())
		if !again {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			// The call itself tells so.
		case <-c.closing:
			// As above.
		}
		timer.Stop()
	}
}
