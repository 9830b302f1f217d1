package memoryd

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"
)

// outage tells failures that pass from those that do not, for those who ask a server again and again, and tells the log of
// them once.
type outage struct {
	logger   *slog.Logger
	begins   string
	ends     string
	retryFor time.Duration // 0: for ever
	answered bool
	since    time.Time
}

// ended takes note of an answer.
func (o *outage) ended() {
	if !o.since.IsZero() {
		o.logger.Info("memoryd: " + o.ends)
	}
	o.answered = true
	o.since = time.Time{}
}

// passes takes note of a failure, and says whether it is of use to ask again.
func (o *outage) passes(err error) bool {
	if !isPassing(err) || errors.Is(err, ErrTLSFailed) && !o.answered {
		return false
	}
	return o.waits(err)
}

func (o *outage) waits(err error) bool {
	now := time.Now()
	begun := o.since.IsZero()
	if begun {
		o.since = now
	}
	if o.retryFor > 0 && now.Sub(o.since) >= o.retryFor {
		return false
	}
	if begun {
		o.logger.Warn("memoryd: "+o.begins+", which is tried again", "error", err)
	}
	return true
}

func isPassing(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrDeadlineExceeded) || errors.Is(err, ErrContention)
}

// pauses grow with each time in vain, up to the longest, with jitter.
type pauses struct {
	first, longest time.Duration
	inVain         int
}

func (p *pauses) next() time.Duration {
	pause := min(p.longest, p.first<<min(p.inVain, 10))
	p.inVain++
	return time.Duration(float64(pause) * (0.5 + rand.Float64()/2))
}

// sleep waits, or gives the context's error.
func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
