package memoryd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

const (
	storeHeader         = "memoryd-store"
	authorizationHeader = "authorization"
)

type storeKey struct{}

// pinned makes calls of the context go to the store that the client uses now, also after a switch.
func (c *Client) pinned(ctx context.Context) context.Context {
	if ctx.Value(storeKey{}) != nil {
		return ctx
	}
	return withStore(ctx, *c.store.Load())
}

func withStore(ctx context.Context, store string) context.Context {
	return context.WithValue(ctx, storeKey{}, store)
}

// operation begins an operation of several calls: they have one deadline, and one store.
func (c *Client) operation(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = c.pinned(ctx)
	if _, bounded := ctx.Deadline(); bounded {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.settings.timeout)
}

// addressed adds what goes along with every call: the name of its store, and the caller's token.
func (c *Client) addressed(ctx context.Context) context.Context {
	store, isPinned := ctx.Value(storeKey{}).(string)
	if !isPinned {
		store = *c.store.Load()
	}
	var pairs []string
	if store != "" {
		pairs = append(pairs, storeHeader, store)
	}
	if c.settings.authorizationHeader != "" {
		pairs = append(pairs, authorizationHeader, c.settings.authorizationHeader)
	}
	if pairs == nil {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

func (c *Client) unary(
	ctx context.Context, method string, request, response any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.settings.timeout)
		defer cancel()
	}
	begun := time.Now()
	addressed := c.addressed(ctx)
	return c.retrying(ctx, method, func() error {
		if c.closed.Load() {
			return ErrClosed
		}
		err := invoke(addressed, method, request, response, conn, options...)
		if err == nil {
			c.answered.Store(true)
		}
		return c.typed(err, method, request, begun)
	})
}

func (c *Client) stream(
	ctx context.Context, description *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
	options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if c.closed.Load() {
		return nil, ErrClosed
	}
	begun := time.Now()
	stream, err := open(c.addressed(ctx), description, conn, method, options...)
	if err != nil {
		return nil, c.typed(err, method, nil, begun)
	}
	return &typedStream{ClientStream: stream, client: c, method: method, begun: begun}, nil
}

func (c *Client) typed(err error, method string, request any, begun time.Time) error {
	switch {
	case err == nil:
		return nil
	case c.closed.Load():
		return fmt.Errorf("%w (%w)", ErrClosed, err)
	}
	err = typedError(err, c.settings.address, method, request, time.Since(begun))
	if e := (*Error)(nil); errors.As(err, &e) && e.Reason != "" {
		c.answered.Store(true)
	}
	return err
}

// typedStream gives typed errors.
type typedStream struct {
	grpc.ClientStream
	client *Client
	method string
	begun  time.Time
}

func (s *typedStream) SendMsg(message any) error {
	return s.typed(s.ClientStream.SendMsg(message), message)
}

func (s *typedStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	if err == nil {
		s.client.answered.Store(true)
	}
	return s.typed(err, nil)
}

func (s *typedStream) CloseSend() error {
	return s.typed(s.ClientStream.CloseSend(), nil)
}

func (s *typedStream) typed(err error, request any) error {
	if errors.Is(err, io.EOF) {
		return err
	}
	return s.client.typed(err, s.method, request, s.begun)
}

func storeUnavailable(name string) error {
	return &Error{
		Message: fmt.Sprintf("the store %q does not answer its server now: see the server's log, and switch when it "+
			"answers again. The client goes on with the store that it used", name),
		Code:     codes.Unavailable,
		Reason:   ErrStoreUnavailable,
		Metadata: map[string]string{"store": name},
	}
}
