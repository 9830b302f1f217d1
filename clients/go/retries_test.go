package memoryd_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	memoryd "github.com/memoryd/memoryd/clients/go"
)

// lastingServer is one that has its address and its store again when it is started again.
func lastingServer(t *testing.T) (first *server, start func() *server) {
	t.Helper()
	// The vocabulary of a tokenizer takes as long to read as all else of a start.
	flags := []string{"--store", "main=sqlite:///" + t.TempDir() + "/memory.db", "--tokenizer", "estimate"}
	first = ownServer(t, anyPort, flags...)
	return first, func() *server { return ownServer(t, first.address, flags...) }
}

// deadAddress is one at which nobody listens.
func deadAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	ok(t, listener.Close())
	return listener.Addr().String()
}

func timed(call func() error) (time.Duration, error) {
	begun := time.Now()
	err := call()
	return time.Since(begun), err
}

func TestAppendsOutliveTheirServerAndAreStoredOnce(t *testing.T) {
	const count = 1_000
	for name, test := range map[string]struct {
		end     func(*server)
		callers int
	}{
		"killed": {(*server).kill, 1}, "killed with 16 callers": {(*server).kill, 16}, "drained": {(*server).stop, 1},
	} {
		t.Run(name, func(t *testing.T) {
			first, start := lastingServer(t)
			session := newClient(t, first.address).NewSession(newAgent(t))
			var work sync.WaitGroup
			failures := make(chan error, test.callers)
			for caller := range test.callers {
				work.Go(func() {
					for i := caller; i < count; i += test.callers {
						if i == count/3 {
							work.Go(func() {
								test.end(first)
								start()
							})
						}
						message := memoryd.User(fmt.Sprint(i))
						if _, err := session.Append(t.Context(), []*memoryd.Message{message}); err != nil {
							failures <- err
							return
						}
					}
				})
			}
			work.Wait()
			close(failures)
			for err := range failures {
				t.Error(err)
			}
			messages, err := memoryd.Collect(session.Messages(testContext(t), memoryd.PageSize(1_000)))
			ok(t, err)
			equal(t, "messages", len(messages), count)
			next := make([]int, test.callers)
			for _, message := range messages {
				i, err := strconv.Atoi(memoryd.Text(message))
				ok(t, err)
				caller := i % test.callers
				equal(t, "text", i, caller+next[caller]*test.callers)
				next[caller]++
			}
		})
	}
}

func TestALargeWindowOutlivesItsServer(t *testing.T) {
	first, start := lastingServer(t)
	session := newClient(t, first.address).NewSession(newAgent(t))
	for range 4 {
		_, err := session.Append(testContext(t), []*memoryd.Message{memoryd.User(strings.Repeat("x", 1<<20))})
		ok(t, err)
	}
	first.kill()
	loaded := make(chan error, 1)
	go func() {
		window, err := session.Window(t.Context())
		if err == nil && len(window.Messages) != 4 {
			err = fmt.Errorf("got %d messages", len(window.Messages))
		}
		loaded <- err
	}()
	start()
	ok(t, <-loaded)
}

func TestAServerThatNeverAnsweredIsToldSoon(t *testing.T) {
	const aWhile = 1_500 * time.Millisecond // Between the first tries, in all.
	client := newClient(t, deadAddress(t))
	took, err := timed(func() error { _, err := client.Stores(t.Context()); return err })
	failsWith(t, err, memoryd.ErrServerUnavailable)
	if took < aWhile || took > 2*aWhile {
		t.Errorf("it took %v", took)
	}
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	took, err = timed(func() error { _, err := client.Stores(short); return err })
	failsWith(t, err, memoryd.ErrServerUnavailable)
	if took > time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestAServerThatIsGoneForGoodIsToldInTime(t *testing.T) {
	first, _ := lastingServer(t)
	session := newClient(t, first.address).NewSession(newAgent(t))
	_, err := session.Append(t.Context(), []*memoryd.Message{memoryd.User("a")})
	ok(t, err)
	first.kill()
	took, err := timed(func() error { _, err := session.Info(t.Context()); return err })
	failsWith(t, err, memoryd.ErrServerUnavailable)
	if took < 8*time.Second || took > 11*time.Second {
		t.Errorf("it took %v", took)
	}
	short, cancel := context.WithTimeout(t.Context(), 2_500*time.Millisecond)
	defer cancel()
	_, err = session.Append(short, []*memoryd.Message{memoryd.User("b")})
	failsWith(t, err, memoryd.ErrServerUnavailable)
	if short.Err() != nil {
		t.Error("it failed after the deadline")
	}
	took, err = timed(func() error { _, err := session.Update(t.Context(), memoryd.SetUser("mia")); return err })
	failsWith(t, err, memoryd.ErrServerUnavailable)
	if took > time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestARefusalIsAnAnswer(t *testing.T) {
	s, client := newScripted(t)
	appending := func(ctx context.Context) error {
		_, err := client.Session("a", "b").Append(ctx, []*memoryd.Message{memoryd.User("a")})
		return err
	}
	s.append = func(int) error { return status.Error(codes.Unavailable, "gone") }
	failsWith(t, appending(t.Context()), memoryd.ErrServerUnavailable)
	equal(t, "tries", s.tries["append"], 5)
	s.append = func(int) error { return failure(codes.Unavailable, "SUMMARIZER_FAILED") }
	failsWith(t, appending(t.Context()), memoryd.ErrSummarizerFailed) // A reason that does not pass.
	equal(t, "tries", s.tries["append"], 6)
	s.append = func(int) error { return status.Error(codes.Unavailable, "gone") }
	short, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	failsWith(t, appending(short), memoryd.ErrServerUnavailable)
	if tries := s.tries["append"] - 6; tries <= 5 {
		t.Errorf("it was tried %d times", tries)
	}
}

func TestNothingIsTriedAgainThatHasNoTimeLeft(t *testing.T) {
	s, client := newScripted(t, memoryd.WithTimeout(2*time.Second))
	s.append = func(int) error { return failure(codes.Unavailable, "STORE_UNAVAILABLE") } // It asks for 3 seconds.
	took, err := timed(func() error {
		_, err := client.Session("a", "b").Append(t.Context(), []*memoryd.Message{memoryd.User("a")})
		return err
	})
	failsWith(t, err, memoryd.ErrStoreUnavailable)
	if took > time.Second {
		t.Errorf("it took %v", took)
	}
	equal(t, "tries", s.tries["append"], 1)
}

func TestClosingTheClientOrItsContextEndsTheTries(t *testing.T) {
	for name, end := range map[error]func(client *memoryd.Client, cancel context.CancelFunc){
		memoryd.ErrClosed: func(client *memoryd.Client, _ context.CancelFunc) { _ = client.Close() },
		context.Canceled:  func(_ *memoryd.Client, cancel context.CancelFunc) { cancel() },
	} {
		s, client := newScripted(t)
		tried := make(chan struct{})
		s.append = func(int) error {
			close(tried)
			return failure(codes.Unavailable, "STORE_UNAVAILABLE")
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-tried
			end(client, cancel)
		}()
		took, err := timed(func() error {
			_, err := client.Session("a", "b").Append(ctx, []*memoryd.Message{memoryd.User("a")})
			return err
		})
		cancel()
		if !errors.Is(err, name) || took > 2*time.Second {
			t.Errorf("got %v after %v", err, took)
		}
	}
}
