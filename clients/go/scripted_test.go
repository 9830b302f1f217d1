package memoryd_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	memoryd "github.com/memoryd/memoryd/clients/go"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// scripted is a server that answers as a test says, for what no real one does on demand.
type scripted struct {
	memorydv1.UnimplementedHistoryServiceServer
	memorydv1.UnimplementedWindowServiceServer
	memorydv1.UnimplementedAgentServiceServer
	memorydv1.UnimplementedRunServiceServer
	mutex   sync.Mutex
	append  func(try int) error
	stream  func(try int, stream grpc.ServerStreamingServer[memorydv1.StreamWindowResponse]) error
	update  func(try int) error
	claim   func(try int) error
	status  memorydv1.RunStatus
	tries   map[string]int
	appends []*memorydv1.AppendMessagesRequest
	headers metadata.MD
}

func (s *scripted) try(name string) int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.tries[name]++
	return s.tries[name]
}

func (s *scripted) AppendMessages(
	ctx context.Context, request *memorydv1.AppendMessagesRequest,
) (*memorydv1.AppendMessagesResponse, error) {
	s.appends = append(s.appends, request)
	s.headers, _ = metadata.FromIncomingContext(ctx)
	return &memorydv1.AppendMessagesResponse{}, s.append(s.try("append"))
}

func (s *scripted) LoadWindow(
	context.Context, *memorydv1.LoadWindowRequest,
) (*memorydv1.LoadWindowResponse, error) {
	return nil, failure(codes.FailedPrecondition, "WINDOW_TOO_LARGE")
}

func (s *scripted) StreamWindow(
	_ *memorydv1.StreamWindowRequest, stream grpc.ServerStreamingServer[memorydv1.StreamWindowResponse],
) error {
	return s.stream(s.try("stream"), stream)
}

func (s *scripted) UpdateAgent(
	context.Context, *memorydv1.UpdateAgentRequest,
) (*memorydv1.UpdateAgentResponse, error) {
	s.try("agent")
	return nil, status.Error(codes.Unavailable, "gone")
}

func (s *scripted) CreateRun(
	_ context.Context, request *memorydv1.CreateRunRequest,
) (*memorydv1.CreateRunResponse, error) {
	return &memorydv1.CreateRunResponse{Run: &memoryd.RunInfo{Key: request.Run, Status: memoryd.RunRunning}, Fence: "1"}, nil
}

func (s *scripted) ClaimRun(
	_ context.Context, request *memorydv1.ClaimRunRequest,
) (*memorydv1.ClaimRunResponse, error) {
	if err := s.claim(s.try("claim")); err != nil {
		return nil, err
	}
	run := &memoryd.RunInfo{Key: request.GetRun(), Status: memoryd.RunRunning, Metadata: new(request.RequestId)}
	return &memorydv1.ClaimRunResponse{Run: run, Fence: "2"}, nil
}

func (s *scripted) GetRun(context.Context, *memorydv1.GetRunRequest) (*memorydv1.GetRunResponse, error) {
	s.try("get")
	return &memorydv1.GetRunResponse{Run: &memoryd.RunInfo{Status: s.status}}, nil
}

func (s *scripted) UpdateRun(
	_ context.Context, request *memorydv1.UpdateRunRequest,
) (*memorydv1.UpdateRunResponse, error) {
	return &memorydv1.UpdateRunResponse{Run: request.Run}, s.update(s.try("update"))
}

// failure is an error as a server of memoryd sends it.
func failure(code codes.Code, reason string) error {
	told, err := status.New(code, "it failed").WithDetails(
		&errdetails.ErrorInfo{Domain: "memoryd", Reason: reason, Metadata: map[string]string{"correlation_id": "c-1"}},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)},
	)
	if err != nil {
		panic(err)
	}
	return told.Err()
}

func newScripted(t *testing.T, options ...memoryd.Option) (*scripted, *memoryd.Client) {
	t.Helper()
	s := &scripted{tries: map[string]int{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	server := grpc.NewServer(grpc.MaxRecvMsgSize(16 << 20))
	memorydv1.RegisterHistoryServiceServer(server, s)
	memorydv1.RegisterWindowServiceServer(server, s)
	memorydv1.RegisterAgentServiceServer(server, s)
	memorydv1.RegisterRunServiceServer(server, s)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return s, newClient(t, listener.Addr().String(), options...)
}

func TestALargeAppendIsTriedAgainWithTheSameIDs(t *testing.T) {
	s, client := newScripted(t, memoryd.WithStore("archive"), memoryd.WithToken("memoryd_token"))
	s.append = func(try int) error {
		if try < 3 {
			return failure(codes.Unavailable, "SERVER_DRAINING")
		}
		return nil
	}
	message := &memoryd.Message{Role: memoryd.RoleUser}
	large := memoryd.User(strings.Repeat("x", 2<<20))
	_, err := client.Session("a", "b").Append(testContext(t), []*memoryd.Message{message, large})
	ok(t, err)
	equal(t, "tries", s.tries["append"], 3)
	if message.Id == "" || !proto.Equal(s.appends[0], s.appends[2]) {
		t.Error("a try differs from the first")
	}
	equalSlices(t, "store", s.headers.Get("memoryd-store"), []string{"archive"})
	equalSlices(t, "authorization", s.headers.Get("authorization"), []string{"Bearer memoryd_token"})
}

func TestTriesEnd(t *testing.T) {
	s, client := newScripted(t)
	s.append = func(int) error { return failure(codes.Unavailable, "STORE_UNAVAILABLE") }
	short, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	_, err := client.Session("a", "b").Append(short, []*memoryd.Message{memoryd.User("a")})
	told := failsWith(t, err, memoryd.ErrStoreUnavailable)
	equal(t, "tries", s.tries["append"], 2) // 3 seconds lie between them, as the server asks.
	equal(t, "message", told.Error(), "memoryd: it failed (correlation id c-1)")
	equal(t, "retry after", told.RetryAfter, 3*time.Second)
	_, err = client.Agent("a").Update(testContext(t), memoryd.LoadMemory(true))
	failsWith(t, err, memoryd.ErrServerUnavailable)
	equal(t, "tries of an update", s.tries["agent"], 1)
	s.append = func(int) error { return failure(codes.ResourceExhausted, "A_NEW_REASON") }
	_, err = client.Session("a", "b").Append(testContext(t), []*memoryd.Message{memoryd.User("a")})
	failsWith(t, err, memoryd.ErrResourceExhausted)
	failsWith(t, err, memoryd.Reason("A_NEW_REASON"))
	_, err = client.Session("a", "b").Info(testContext(t))
	failsWith(t, err, memoryd.ErrMethodUnknown)
}

func TestAStreamedWindowIsBegunAgainOrNamed(t *testing.T) {
	s, client := newScripted(t)
	s.stream = func(try int, stream grpc.ServerStreamingServer[memorydv1.StreamWindowResponse]) error {
		piece := &memorydv1.StreamWindowResponse{Messages: []*memoryd.Message{memoryd.User("a")}}
		if err := stream.Send(piece); err != nil {
			return err
		}
		if try < 3 {
			return failure(codes.Aborted, "WINDOW_CHANGED")
		}
		return stream.Send(&memorydv1.StreamWindowResponse{Stats: &memoryd.WindowStats{}})
	}
	window, err := client.Session("a", "b").Window(testContext(t))
	ok(t, err)
	equal(t, "messages", len(window.Messages), 1)
	s.stream = func(int, grpc.ServerStreamingServer[memorydv1.StreamWindowResponse]) error { return nil }
	_, err = client.Session("a", "b").Window(testContext(t))
	failsWith(t, err, memoryd.ErrAnswerUnreadable)
	s.stream = func(int, grpc.ServerStreamingServer[memorydv1.StreamWindowResponse]) error {
		return failure(codes.Aborted, "WINDOW_CHANGED")
	}
	before := s.tries["stream"]
	_, err = client.Session("a", "b").Window(testContext(t))
	failsWith(t, err, memoryd.ErrWindowChanged)
	equal(t, "tries", s.tries["stream"]-before, 5)
}

func TestTheEndOfARunWhoseAnswerWasLostIsFound(t *testing.T) {
	nothing := func(context.Context) error { return nil }
	s, client := newScripted(t)
	s.update = func(int) error { return status.Error(codes.Unavailable, "lost") }
	s.status = memoryd.RunCompleted
	ok(t, client.Session("a", "b").Run().Do(testContext(t), nothing))
	equal(t, "tries", s.tries["update"], 1)

	s.status = memoryd.RunRunning
	s.update = func(try int) error {
		if try == 2 {
			return status.Error(codes.Unavailable, "lost")
		}
		s.status = memoryd.RunCompleted
		return failure(codes.FailedPrecondition, "RUN_ENDED")
	}
	ok(t, client.Session("a", "b").Run().Do(testContext(t), nothing))
	equal(t, "tries", s.tries["update"], 3)

	s.status = memoryd.RunCancelled
	s.update = func(int) error { return failure(codes.FailedPrecondition, "RUN_ENDED") }
	failsWith(t, client.Session("a", "b").Run().Do(testContext(t), nothing), memoryd.ErrRunLeaseLost)
}

func TestAClaimByNameIsTriedAgain(t *testing.T) {
	s, client := newScripted(t)
	s.update = func(int) error { return nil }
	s.claim = func(try int) error {
		if try < 3 {
			return status.Error(codes.Unavailable, "lost")
		}
		return nil
	}
	run := client.Session("a", "b").ClaimRun("r")
	ok(t, run.Do(testContext(t), func(context.Context) error { return nil }))
	equal(t, "tries", s.tries["claim"], 3)
	equal(t, "reads between", s.tries["get"], 2)
	if run.Metadata() == "" {
		t.Error("the claim has no request id")
	}
}

func TestNoMethodIsForgotten(t *testing.T) {
	methods := memoryd.RetriedMethods()
	count := 0
	for _, service := range []grpc.ServiceDesc{
		memorydv1.HistoryService_ServiceDesc, memorydv1.WindowService_ServiceDesc, memorydv1.SummaryService_ServiceDesc,
		memorydv1.MemoryContextService_ServiceDesc, memorydv1.RunService_ServiceDesc, memorydv1.AgentService_ServiceDesc,
		memorydv1.StoreService_ServiceDesc,
	} {
		var names []string
		for _, method := range service.Methods {
			names = append(names, method.MethodName)
		}
		for _, stream := range service.Streams {
			names = append(names, stream.StreamName)
		}
		for _, name := range names {
			count++
			if _, known := methods["/"+service.ServiceName+"/"+name]; !known {
				t.Errorf("methods.go does not say whether %s is tried again", name)
			}
		}
	}
	equal(t, "methods", len(methods), count)
}
