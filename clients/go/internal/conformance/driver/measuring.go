package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	memoryd "github.com/memoryd/memoryd/clients/go"
	pb "github.com/memoryd/memoryd/clients/go/internal/conformance/conformancepb"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

const (
	warmUpCalls    = 50 // of each caller
	windowMessages = 20
)

// text is what each appended message says.
var text = strings.Repeat("x", 200)

// measured makes one call of a caller.
type measured func(ctx context.Context, session *memoryd.SessionKey) error

func (c *call) measure(told *pb.Measure) (*pb.Reply, error) {
	by := c.bySDK(told.GetOperation())
	if told.GetBare() {
		conn, err := grpc.NewClient(
			c.driver.address(c.command.GetClient()), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		by = byStub(told.GetOperation(), conn)
	}
	if by == nil {
		return nil, faultf("%s is not measured", told.GetOperation())
	}
	return c.measureCallers(told, by)
}

func (c *call) measureCallers(told *pb.Measure, by measured) (*pb.Reply, error) {
	callers := make([]*caller, told.GetCallers())
	for number := range callers {
		session := &memoryd.SessionKey{
			Agent: told.GetSession().GetAgent(), SessionId: told.GetSession().GetSessionId(),
		}
		if len(callers) > 1 && told.GetOperation() == pb.Measured_MEASURED_APPEND {
			session.SessionId += fmt.Sprintf("-%d", number)
		}
		callers[number] = &caller{session: session, by: by}
	}
	each(callers, func(one *caller) {
		for range warmUpCalls {
			one.call()
		}
		one.nanoseconds = nil
	})
	begun := time.Now()
	end := begun.Add(told.GetDuration().AsDuration())
	each(callers, func(one *caller) {
		for one.err == nil && time.Now().Before(end) {
			one.call()
		}
	})
	measurement := &pb.Measurement{Elapsed: durationpb.New(time.Since(begun))}
	for _, one := range callers {
		if one.err != nil {
			return nil, one.err
		}
		measurement.Nanoseconds = append(measurement.Nanoseconds, one.nanoseconds...)
	}
	return &pb.Reply{Measurement: measurement}, nil
}

// caller makes one call after the other, until one fails.
type caller struct {
	session     *memoryd.SessionKey
	by          measured
	nanoseconds []int64
	err         error
}

func (c *caller) call() {
	if c.err != nil {
		return
	}
	begun := time.Now()
	// No context of the command's: what a deadline costs is what the SDK itself adds to one without.
	c.err = c.by(context.Background(), c.session)
	c.nanoseconds = append(c.nanoseconds, time.Since(begun).Nanoseconds())
}

// each lets all callers do something at once, and waits for them.
func each(callers []*caller, do func(*caller)) {
	var running sync.WaitGroup
	for _, one := range callers {
		running.Go(func() { do(one) })
	}
	running.Wait()
}

func (c *call) bySDK(operation pb.Measured) measured {
	switch operation {
	case pb.Measured_MEASURED_APPEND:
		return func(ctx context.Context, session *memoryd.SessionKey) error {
			_, err := c.session(session).Append(ctx, []*memoryd.Message{memoryd.User(text)})
			return err
		}
	case pb.Measured_MEASURED_LOAD_WINDOW:
		return func(ctx context.Context, session *memoryd.SessionKey) error {
			_, err := c.session(session).Window(ctx, memoryd.MaxMessages(windowMessages))
			return err
		}
	}
	return nil
}

func byStub(operation pb.Measured, conn *grpc.ClientConn) measured {
	switch operation {
	case pb.Measured_MEASURED_APPEND:
		history := memorydv1.NewHistoryServiceClient(conn)
		return func(ctx context.Context, session *memoryd.SessionKey) error {
			_, err := history.AppendMessages(ctx, &memorydv1.AppendMessagesRequest{
				Session: session, Messages: []*memoryd.Message{memoryd.User(text)},
			})
			return err
		}
	case pb.Measured_MEASURED_LOAD_WINDOW:
		windows := memorydv1.NewWindowServiceClient(conn)
		return func(ctx context.Context, session *memoryd.SessionKey) error {
			_, err := windows.LoadWindow(ctx, &memorydv1.LoadWindowRequest{
				Session: session,
				Options: &memoryd.WindowOptions{
					Mode: memoryd.WindowModeMessages.Enum(), Limit: new(int64(windowMessages)),
				},
			})
			return err
		}
	}
	return nil
}

func (d *driver) address(client string) string {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.addresses[client]
}
