package memoryd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// WatchOption is an option of [Session.Watch].
type WatchOption interface{ applyWatch(*Watch) }

type watchOption func(*Watch)

func (o watchOption) applyWatch(w *Watch) { o(w) }

// ResumeToken begins a watch behind the event that had the token. After more than 24 hours, or in another session of this
// name, the first event is [WatchResync]: read the session anew.
func ResumeToken(token string) WatchOption {
	return watchOption(func(w *Watch) { w.setToken(token) })
}

// AfterSeq begins a watch behind a seq; 0 begins with the oldest message. Without it, and without a [ResumeToken], a watch
// begins with what happens from now on.
func AfterSeq(seq int64) WatchOption {
	return watchOption(func(w *Watch) { w.afterSeq = &seq })
}

// RetryForOption is made by [RetryFor].
type RetryForOption time.Duration

// RetryFor bounds for how long a watch tries to resume, or a loop over summary tasks asks again, while the server is
// unavailable; what is in the way is its error then. Without it, or with 0: for ever.
func RetryFor(limit time.Duration) RetryForOption { return RetryForOption(limit) }

func (limit RetryForOption) applyWatch(w *Watch)     { w.outage.retryFor = time.Duration(limit) }
func (limit RetryForOption) applyTasks(a *taskAsker) { a.outage.retryFor = time.Duration(limit) }

const (
	firstWatchPause   = 100 * time.Millisecond
	longestWatchPause = 5 * time.Second
)

// Watch gives what happens to a session, in order, each event once. [Session.Watch] makes it.
//
// It has no end of its own: the end of its context and [Watch.Close] end it. When the connection is lost, the server drains
// or tells a slow reader to resume, it resumes by itself behind the last event that it gave, after a pause with jitter of
// up to 5 seconds, and tells the log.
type Watch struct {
	session     *Session
	ctx         context.Context
	cancel      context.CancelFunc
	closed      atomic.Bool
	afterSeq    *int64
	token       atomic.Pointer[string]
	tokenBehind string
	waiting     []*WatchEvent
	stream      grpc.ServerStreamingClient[memorydv1.WatchMessagesResponse]
	cancelCall  context.CancelFunc
	stands      bool
	standsSince time.Time
	stoodEver   bool
	pauses      pauses
	outage      outage
}

// Watch follows what happens to the session, until the context ends. It returns when the watch stands: from there on
// nothing is missed. Options are [ResumeToken], [AfterSeq] and [RetryFor].
//
// [ErrSessionNotFound] without the session, here and from [Watch.Next] when it has expired or was erased;
// [ErrResumeTokenInvalid] for a token of something else.
func (s *Session) Watch(ctx context.Context, options ...WatchOption) (*Watch, error) {
	ctx, cancel := context.WithCancel(s.client.pinned(ctx))
	w := &Watch{
		session: s,
		ctx:     ctx,
		cancel:  cancel,
		pauses:  pauses{first: firstWatchPause, longest: longestWatchPause},
		outage: outage{
			logger: s.client.logger,
			begins: fmt.Sprintf("the watch of %s broke off", s),
			ends:   fmt.Sprintf("the watch of %s goes on", s),
		},
	}
	w.setToken("")
	for _, option := range options {
		option.applyWatch(w)
	}
	if w.ResumeToken() != "" && w.afterSeq != nil {
		cancel()
		return nil, errors.New("memoryd: a watch begins at one place: give either ResumeToken or AfterSeq")
	}
	for !w.stands {
		if err := w.read(); err != nil {
			cancel()
			return nil, err
		}
	}
	return w, nil
}

// ResumeToken resumes a watch behind the last event that this one gave. It may be called from any goroutine.
func (w *Watch) ResumeToken() string { return *w.token.Load() }

func (w *Watch) setToken(token string) { w.token.Store(&token) }

// Close ends the watch, also while another goroutine waits for its next event.
func (w *Watch) Close() {
	w.closed.Store(true)
	w.cancel()
}

// Next waits for the next event. It gives [io.EOF] when the watch was closed, and the context's error when that has ended.
// After another error it can be called again, and goes on behind the last event.
func (w *Watch) Next() (*WatchEvent, error) {
	for {
		switch {
		case w.closed.Load():
			return nil, io.EOF
		case len(w.waiting) > 0:
			event := w.waiting[0]
			w.waiting = w.waiting[1:]
			if token := event.GetResumeToken(); token != "" {
				w.setToken(token)
			}
			w.handOnToken()
			return event, nil
		}
		if err := w.read(); err != nil {
			if w.closed.Load() {
				return nil, io.EOF
			}
			return nil, err
		}
	}
}

// Events iterates over the events, as [Watch.Next] gives them. It ends without an error when the watch is closed.
func (w *Watch) Events() iter.Seq2[*WatchEvent, error] {
	return func(yield func(*WatchEvent, error) bool) {
		for {
			event, err := w.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(event, err) || err != nil {
				return
			}
		}
	}
}

// read takes one answer in, or pauses after a failure. Its error is what ends the watch.
func (w *Watch) read() error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	answer, err := w.receive()
	if err == nil {
		w.answered(answer)
		return nil
	}
	w.cancelCall()
	w.stream = nil
	if w.ctx.Err() != nil {
		return w.ctx.Err()
	}
	if errors.Is(err, io.EOF) {
		address := w.session.client.settings.address
		err = &Error{Message: fmt.Sprintf("the watch was ended at %s", address), Code: codes.Unavailable, cause: err}
	}
	if !w.mayPass(err) {
		return err
	}
	if w.stands && time.Since(w.standsSince) >= longestWatchPause {
		w.pauses.inVain = 0
	}
	w.stands = false
	if !w.outage.waits(err) {
		return err
	}
	return sleep(w.ctx, w.pauses.next())
}

func (w *Watch) receive() (*memorydv1.WatchMessagesResponse, error) {
	if w.stream == nil {
		var ctx context.Context
		ctx, w.cancelCall = context.WithCancel(w.ctx)
		request := &memorydv1.WatchMessagesRequest{Session: w.session.key, ResumeToken: w.ResumeToken()}
		if request.ResumeToken == "" {
			request.AfterSeq = w.afterSeq
		}
		stream, err := w.session.client.history.WatchMessages(ctx, request)
		if err != nil {
			return nil, err
		}
		w.stream = stream
	}
	return w.stream.Recv()
}

func (w *Watch) answered(answer *memorydv1.WatchMessagesResponse) {
	if !w.stands {
		w.stands, w.stoodEver = true, true
		w.standsSince = time.Now()
		w.outage.ended()
	}
	w.waiting = append(w.waiting, answer.GetEvents()...)
	w.tokenBehind = answer.GetResumeToken()
	w.handOnToken()
}

func (w *Watch) handOnToken() {
	if len(w.waiting) == 0 && w.tokenBehind != "" {
		w.setToken(w.tokenBehind)
	}
}

func (w *Watch) mayPass(err error) bool {
	isTLS := errors.Is(err, ErrTLSFailed)
	if !isTLS && (errors.Is(err, ErrUnavailable) || errors.Is(err, ErrDeadlineExceeded) ||
		hasReason(err, ErrWatchStalled, ErrTooManyWatchers)) {
		return true
	}
	// What a lost connection may look like from behind a proxy, when no server of memoryd gave the reason. Where none
	// ever answered, it tells rather of a wrong address.
	var e *Error
	isLost := isTLS
	if errors.As(err, &e) && e.Reason == "" {
		isLost = isLost || e.Code == codes.Canceled || e.Code == codes.Internal || e.Code == codes.Unknown
	}
	return isLost && w.stoodEver
}
