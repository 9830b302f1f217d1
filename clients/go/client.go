package memoryd

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// releaseTimeout is what giving back a lease may take; otherwise it ends by itself.
const releaseTimeout = 2 * time.Second

// Client is a client of a memoryd server, for any number of goroutines. Make it by [New], and close it.
type Client struct {
	settings *settings
	conn     *grpc.ClientConn
	store    atomic.Pointer[string]
	closed   atomic.Bool
	closing  chan struct{} // Closed with the client.
	answered atomic.Bool   // Whether a server of memoryd has answered a call, be it with a refusal.
	logger   *slog.Logger

	history  memorydv1.HistoryServiceClient
	windows  memorydv1.WindowServiceClient
	summary  memorydv1.SummaryServiceClient
	contexts memorydv1.MemoryContextServiceClient
	runs     memorydv1.RunServiceClient
	agents   memorydv1.AgentServiceClient
	stores   memorydv1.StoreServiceClient

	mutex     sync.Mutex // the rest
	leases    map[lease]struct{}
	isClosing bool
}

// lease is what a client gives back when it is closed: a summary task, or a run that is held.
type lease interface{ giveBack(ctx context.Context) }

// New makes a client of the server at an address: host:port, or what else gRPC takes. Nothing is called before the first
// operation.
func New(address string, options ...Option) (*Client, error) {
	s, err := newSettings(address, options)
	if err != nil {
		return nil, err
	}
	c := &Client{settings: s, logger: s.logger, closing: make(chan struct{}), leases: map[lease]struct{}{}}
	c.store.Store(&s.store)
	connecting := backoff.DefaultConfig
	connecting.BaseDelay, connecting.MaxDelay = firstPause, longestPause
	dial := append([]grpc.DialOption{
		grpc.WithTransportCredentials(s.credentials),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: connecting, MinConnectTimeout: 5 * time.Second}),
		// The server allows pings every 10 s. A watch sends nothing after its request: without pings it would not notice
		// that its connection is gone.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithChainUnaryInterceptor(c.unary),
		grpc.WithChainStreamInterceptor(c.stream),
	}, s.dialOptions...)
	conn, err := grpc.NewClient(address, dial...)
	if err != nil {
		return nil, fmt.Errorf("memoryd: no client of %s can be made: %w", address, err)
	}
	c.conn = conn
	c.history = memorydv1.NewHistoryServiceClient(conn)
	c.windows = memorydv1.NewWindowServiceClient(conn)
	c.summary = memorydv1.NewSummaryServiceClient(conn)
	c.contexts = memorydv1.NewMemoryContextServiceClient(conn)
	c.runs = memorydv1.NewRunServiceClient(conn)
	c.agents = memorydv1.NewAgentServiceClient(conn)
	c.stores = memorydv1.NewStoreServiceClient(conn)
	return c, nil
}

// Close gives back the runs that are held and the summary tasks that are neither committed nor given up, and closes the
// connection. Later calls give [ErrClosed]. The context of a [Run.Do] that still works is cancelled, and Do gives
// [ErrRunLeaseLost]: the run is left to other workers.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	c.mutex.Lock()
	c.isClosing = true
	leases := make([]lease, 0, len(c.leases))
	for each := range c.leases {
		leases = append(leases, each)
	}
	c.mutex.Unlock()
	for _, each := range leases {
		each.giveBack(ctx)
	}
	if c.closed.Swap(true) {
		return nil
	}
	close(c.closing)
	return c.conn.Close()
}

// Conn is the client's connection, for the stubs of package memorydv1: calls of it have the client's store, token and typed
// errors, and calls with one answer its retries and timeout.
func (c *Client) Conn() grpc.ClientConnInterface { return c.conn }

// Session names a session; nothing is called. It begins with its first append.
func (c *Client) Session(agent, id string) *Session {
	return &Session{client: c, key: &SessionKey{Agent: agent, SessionId: id}}
}

// NewSession names a session with a new id: read it from [Session.ID].
func (c *Client) NewSession(agent string) *Session { return c.Session(agent, NewID()) }

// Sessions lists the sessions of an agent ([OfAgent]), of a user ([OfUser]), of both or of all, newest activity first. It
// reads page after page.
func (c *Client) Sessions(ctx context.Context, options ...SessionsOption) iter.Seq2[*SessionInfo, error] {
	request := &memorydv1.ListSessionsRequest{}
	for _, option := range options {
		option.applySessions(request)
	}
	return pages(c, ctx, request, c.history.ListSessions,
		func(r *memorydv1.ListSessionsRequest, token string) { r.PageToken = token },
		(*memorydv1.ListSessionsResponse).GetSessions)
}

// Agent names an agent; nothing is called. It exists by being named.
func (c *Client) Agent(name string) *Agent { return &Agent{client: c, name: name} }

// Agents lists the agents that have settings or sessions, by name. It reads page after page.
func (c *Client) Agents(ctx context.Context, options ...AgentsOption) iter.Seq2[*AgentInfo, error] {
	request := &memorydv1.ListAgentsRequest{}
	for _, option := range options {
		option.applyAgents(request)
	}
	return pages(c, ctx, request, c.agents.ListAgents,
		func(r *memorydv1.ListAgentsRequest, token string) { r.PageToken = token },
		(*memorydv1.ListAgentsResponse).GetAgents)
}

// ClearAgent takes away the messages of every session of an agent, and tells how many. It works session by session: a
// failure half way leaves some cleared, and the call can be repeated. It is not tried again by itself.
func (c *Client) ClearAgent(ctx context.Context, agent string) (*ClearedAgent, error) {
	return c.history.ClearAgentHistory(ctx, &memorydv1.ClearAgentHistoryRequest{Agent: agent})
}

// EraseUser deletes all that a user owns in the client's store, expired sessions and memory files included, and tells how
// much. When it has answered, nothing of it is left in the database. A failure half way leaves a part, and the call can be
// repeated; it is tried again by itself, too.
func (c *Client) EraseUser(ctx context.Context, userID string) (*ErasedUser, error) {
	return c.history.EraseUser(ctx, &memorydv1.EraseUserRequest{UserId: userID})
}

// Store tells about a store, and whether it answers now; without a name, about the one that this client uses.
func (c *Client) Store(ctx context.Context, name string) (*StoreInfo, error) {
	response, err := c.stores.GetStore(ctx, &memorydv1.GetStoreRequest{Name: name})
	return response.GetStore(), err
}

// Stores tells about all stores of the server, the default first, and whether they answer now.
func (c *Client) Stores(ctx context.Context) ([]*StoreInfo, error) {
	response, err := c.stores.ListStores(ctx, &memorydv1.ListStoresRequest{})
	return response.GetStores(), err
}

// StoreType is the kind of the store that this client uses, for example sqlite.
func (c *Client) StoreType(ctx context.Context) (string, error) {
	store, err := c.Store(ctx, "")
	return store.GetType(), err
}

// SwitchStore uses another store of the server from now on, once it has answered, and tells about it.
//
// Sessions and agents that were named before follow: they name the same keys in the new store. Nothing is copied. Calls
// that have begun, lists that are iterated over, appends of [Session.AppendAll], watches, runs and the tools of rendered
// memory keep the store that they began with.
//
// The client goes on with the store it has when this fails: [ErrStoreUnknown] when the server has none of this name,
// [ErrStoreUnavailable] when the store does not answer.
func (c *Client) SwitchStore(ctx context.Context, name string) (*StoreInfo, error) {
	if err := checkStore(name); err != nil {
		return nil, fmt.Errorf("memoryd: %w", err)
	}
	store, err := c.Store(ctx, name)
	if err != nil {
		return nil, err
	}
	if !store.GetReachable() {
		return nil, storeUnavailable(name)
	}
	c.store.Store(&name)
	return store, nil
}

// hold has a lease given back when the client is closed; false when it is being closed already.
func (c *Client) hold(l lease) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.isClosing {
		return false
	}
	c.leases[l] = struct{}{}
	return true
}

func (c *Client) forget(l lease) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.leases, l)
}
