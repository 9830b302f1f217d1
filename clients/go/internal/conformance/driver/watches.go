package main

import (
	"context"
	"sync"
	"time"

	memoryd "github.com/memoryd/memoryd/clients/go"
	pb "github.com/memoryd/memoryd/clients/go/internal/conformance/conformancepb"
)

// followed is a watch that is read by one command at a time.
type followed struct {
	*memoryd.Watch
	cancel  context.CancelCauseFunc
	reading sync.Mutex
}

func (f *followed) end() {
	f.Close()
	f.cancel(nil)
}

func (c *call) openWatch(told *pb.OpenWatch) (*pb.Reply, error) {
	request := told.GetRequest()
	var given options[memoryd.WatchOption]
	given.when(request.GetResumeToken() != "", memoryd.ResumeToken(request.GetResumeToken()))
	given.when(request.AfterSeq != nil, memoryd.AfterSeq(request.GetAfterSeq()))
	// A watch lasts as long as its context: the timeout is for its beginning alone.
	ctx, cancel := context.WithCancelCause(c.driver.ctx)
	if c.command.Timeout != nil {
		timer := time.AfterFunc(c.command.GetTimeout().AsDuration(), func() { cancel(context.DeadlineExceeded) })
		defer timer.Stop()
	}
	watch, err := c.session(request.GetSession()).Watch(ctx, given...)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	c.name(told.GetName(), &followed{Watch: watch, cancel: cancel})
	return done(nil)
}

func (c *call) nextEvents(told *pb.NextEvents) (*pb.Reply, error) {
	watch, err := named[*followed](c, told.GetName())
	if err != nil {
		return nil, err
	}
	watch.reading.Lock()
	defer watch.reading.Unlock()
	var events []*memoryd.WatchEvent
	for range told.GetCount() {
		event, err := watch.Next()
		if err != nil {
			return nil, err
		}
		events = append(events, event)
	}
	return &pb.Reply{Events: &pb.Events{Events: events, ResumeToken: watch.ResumeToken()}}, nil
}

func (c *call) closeWatch(name string) (*pb.Reply, error) {
	watch, err := named[*followed](c, name)
	if err != nil {
		return nil, err
	}
	watch.end()
	return done(nil)
}
