package memoryd_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	memoryd "github.com/memoryd/memoryd/clients/go"
)

func TestAWatchGivesEachEventOnceInOrder(t *testing.T) {
	ctx, session, _ := newSession(t)
	_, err := session.Watch(ctx)
	failsWith(t, err, memoryd.ErrSessionNotFound)
	appended(t, session, memoryd.User("a"), memoryd.User("b"))
	watch, err := session.Watch(ctx, memoryd.AfterSeq(0))
	ok(t, err)
	defer watch.Close()
	appended(t, session, memoryd.User("c"))
	_, err = session.Redact(ctx, 1, "")
	ok(t, err)
	_, err = session.Rewind(ctx, 2)
	ok(t, err)
	_, err = session.Clear(ctx)
	ok(t, err)
	var kinds []memoryd.WatchEventKind
	var token string
	for event, err := range watch.Events() {
		ok(t, err)
		kinds = append(kinds, event.Kind)
		if len(kinds) == 3 {
			token = watch.ResumeToken()
			equal(t, "token", token, event.ResumeToken)
		}
		if event.Kind == memoryd.WatchCleared {
			break
		}
	}
	if len(kinds) < 4 || kinds[0] != memoryd.WatchAppended {
		t.Errorf("got %v", kinds)
	}
	resumed, err := session.Watch(ctx, memoryd.ResumeToken(token))
	ok(t, err)
	defer resumed.Close()
	event, err := resumed.Next()
	ok(t, err)
	equal(t, "the event behind the token", event.Kind, kinds[3])
	_, err = session.Watch(ctx, memoryd.ResumeToken("damaged"))
	failsWith(t, err, memoryd.ErrResumeTokenInvalid)
	if _, err = session.Watch(ctx, memoryd.ResumeToken(token), memoryd.AfterSeq(1)); err == nil {
		t.Error("a watch begins at two places")
	}
}

func TestAWatchEndsWhenItIsClosedOrItsContextEnds(t *testing.T) {
	ctx, session, _ := newSession(t)
	appended(t, session, memoryd.User("a"))
	watch, err := session.Watch(ctx)
	ok(t, err)
	time.AfterFunc(50*time.Millisecond, watch.Close)
	for range watch.Events() {
		t.Error("an event came from nowhere")
	}
	if _, err := watch.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	short, cancel := context.WithCancel(ctx)
	watch, err = session.Watch(short)
	ok(t, err)
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := watch.Next(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestAWatchOutlivesItsServer(t *testing.T) {
	store := "main=sqlite:///" + t.TempDir() + "/memory.db"
	first := ownServer(t, anyPort, "--store", store)
	client := newClient(t, first.address)
	session := client.NewSession(newAgent(t))
	appended(t, session, memoryd.User("a"))
	ctx := testContext(t)
	watch, err := session.Watch(ctx, memoryd.AfterSeq(0))
	ok(t, err)
	defer watch.Close()
	event, err := watch.Next()
	ok(t, err)
	equal(t, "seq", event.FromSeq, 1)
	first.kill()
	next := make(chan error, 1)
	go func() {
		event, err := watch.Next()
		if err == nil && event.GetFromSeq() != 2 {
			err = errors.New("the event behind the restart is another")
		}
		next <- err
	}()
	ownServer(t, first.address, "--store", store)
	appended(t, session, memoryd.User("b"))
	ok(t, <-next)
}

func TestAWatchGivesUpAfterItsTime(t *testing.T) {
	server := ownServer(t, anyPort, "--store", "main=memory://")
	client := newClient(t, server.address)
	session := client.NewSession(newAgent(t))
	appended(t, session, memoryd.User("a"))
	watch, err := session.Watch(testContext(t), memoryd.RetryFor(200*time.Millisecond))
	ok(t, err)
	defer watch.Close()
	server.kill()
	_, err = watch.Next()
	failsWith(t, err, memoryd.ErrUnavailable)
}
