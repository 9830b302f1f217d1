package memoryd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// Session is one conversation of one agent. [Client.Session] names it; it begins with its first append.
type Session struct {
	client *Client
	key    *SessionKey
}

// Agent is the agent that owns the conversation.
func (s *Session) Agent() string { return s.key.GetAgent() }

// ID is the session's id.
func (s *Session) ID() string { return s.key.GetSessionId() }

// String names the session.
func (s *Session) String() string { return fmt.Sprintf("session %q of agent %q", s.ID(), s.Agent()) }

// Append appends messages, all or none, and begins the session if there is none. It gives id, seq, time and token count of
// each message, in their order.
//
// It takes 1 to 256 messages, together at most 3.5 MiB and each at most 2 MiB; [Session.AppendAll] takes more. It is safe
// to repeat with the same messages: what is stored already is recognized by the ids, and the first answer comes again. A
// message without an id is given one, in place; goroutines may append one message at once all the same. A message that
// cannot be sent, since a part of it is nil or a text is not UTF-8, is [ErrInvalidArgument], which names it.
//
// Options are [RequestID], [ExpectedLastSeq] and [SessionSettings].
func (s *Session) Append(ctx context.Context, messages []*Message, options ...AppendOption) ([]*AppendedMessage, error) {
	if err := prepare(messages); err != nil {
		return nil, err
	}
	request := &memorydv1.AppendMessagesRequest{Session: s.key, Messages: messages}
	for _, option := range options {
		option.applyAppend(request)
	}
	response, err := s.client.history.AppendMessages(ctx, request)
	return response.GetMessages(), err
}

// AppendAll appends any number of messages, in as many calls as needed ([Batches] cuts them), and gives what became of
// those that were appended.
//
// Each call is all or none, the whole is not: after an error the messages before it are stored. Repeating it with the same
// messages goes on where it stopped, as long as it is within 24 hours. The client's timeout holds for each call. The
// settings are for a session that it begins; nil for none.
func (s *Session) AppendAll(
	ctx context.Context, messages iter.Seq[*Message], settings *SessionSettings,
) ([]*AppendedMessage, error) {
	ctx = s.client.pinned(ctx)
	var options []AppendOption
	if settings != nil {
		options = append(options, *settings)
	}
	var appended []*AppendedMessage
	for batch := range Batches(messages) {
		these, err := s.Append(ctx, batch, options...)
		if err != nil {
			return appended, err
		}
		appended = append(appended, these...)
	}
	return appended, nil
}

// Limits of one append: those of the server, less room for the rest of the request.
const (
	batchMessages = 256
	batchBytes    = 3_407_872 // 3.25 MiB
	batchOverhead = 8
)

// Batches cuts messages, in their order, into slices that fit into one append each: at most 256 messages and 3.25 MiB. A
// message that alone is larger comes alone, for the server to say what is wrong with it. The messages are taken as they
// are needed; one without an id is given one, in place.
func Batches(messages iter.Seq[*Message]) iter.Seq[[]*Message] {
	return func(yield func([]*Message) bool) {
		var batch []*Message
		size := 0
		for message := range messages {
			identify([]*Message{message})
			added := proto.Size(message) + batchOverhead
			if len(batch) > 0 && (len(batch) == batchMessages || size+added > batchBytes) {
				if !yield(batch) {
					return
				}
				batch, size = nil, 0
			}
			batch = append(batch, message)
			size += added
		}
		if len(batch) > 0 {
			yield(batch)
		}
	}
}

// Messages iterates over the session's messages by seq, reading page after page. [ErrSessionNotFound] without the session.
//
// Options are [NewestFirst], [AllStored], [WithRoles], [OfRun], [FromSeq], [ToSeq], [StoredSince], [StoredBefore] and
// [PageSize].
func (s *Session) Messages(ctx context.Context, options ...MessagesOption) iter.Seq2[*Message, error] {
	request := &memorydv1.ListMessagesRequest{Session: s.key}
	for _, option := range options {
		option.applyMessages(request)
	}
	return pages(s.client, ctx, request, s.client.history.ListMessages,
		func(r *memorydv1.ListMessagesRequest, token string) { r.PageToken = token },
		(*memorydv1.ListMessagesResponse).GetMessages)
}

// Message reads the message with a seq. [ErrSessionNotFound] or [ErrMessageNotFound] without it.
func (s *Session) Message(ctx context.Context, seq int64) (*Message, error) {
	return s.message(ctx, &memorydv1.GetMessageRequest{By: &memorydv1.GetMessageRequest_Seq{Seq: seq}})
}

// MessageByID reads the message with an id. [ErrSessionNotFound] or [ErrMessageNotFound] without it.
func (s *Session) MessageByID(ctx context.Context, id string) (*Message, error) {
	return s.message(ctx, &memorydv1.GetMessageRequest{By: &memorydv1.GetMessageRequest_Id{Id: id}})
}

func (s *Session) message(ctx context.Context, request *memorydv1.GetMessageRequest) (*Message, error) {
	request.Session = s.key
	response, err := s.client.history.GetMessage(ctx, request)
	return response.GetMessage(), err
}

// Info reads the session's settings and counts. [ErrSessionNotFound] without the session.
func (s *Session) Info(ctx context.Context) (*SessionInfo, error) {
	response, err := s.client.history.GetSession(ctx, &memorydv1.GetSessionRequest{Session: s.key})
	return response.GetSession(), err
}

// Update changes the session's settings: what an option names is replaced as a whole, the rest stays. Options are
// [SetUser], [SetLabels], [SetTTL], [SetPolicy] and [IfEtag]. [ErrSessionNotFound] without the session. It is not tried
// again by itself.
func (s *Session) Update(ctx context.Context, options ...UpdateOption) (*SessionInfo, error) {
	request := &memorydv1.UpdateSessionRequest{
		Session: &SessionInfo{Key: s.key}, UpdateMask: &fieldmaskpb.FieldMask{},
	}
	for _, option := range options {
		option.applyUpdate(request)
	}
	if len(request.UpdateMask.Paths) == 0 {
		return nil, errors.New("memoryd: nothing to update: give SetUser, SetLabels, SetTTL or SetPolicy")
	}
	response, err := s.client.history.UpdateSession(ctx, request)
	return response.GetSession(), err
}

// Clear takes away the session's messages, keeps its settings, and tells how many there were. Later seqs go on. A session
// that does not exist answers 0. The option is [RequestID].
func (s *Session) Clear(ctx context.Context, options ...ClearOption) (int64, error) {
	request := &memorydv1.ClearHistoryRequest{Session: s.key, RequestId: NewID()}
	for _, option := range options {
		option.applyClear(request)
	}
	response, err := s.client.history.ClearHistory(ctx, request)
	return response.GetClearedMessageCount(), err
}

// Rewind takes away the messages after a seq (0 takes all), as if they had never been appended, and tells how many there
// were. Calls whose results are taken away wait for results again. Later seqs go on. [ErrSessionNotFound] without the
// session. Options are [ExpectedLastSeq] and [RequestID].
func (s *Session) Rewind(ctx context.Context, toSeq int64, options ...RewindOption) (*RewoundSession, error) {
	request := &memorydv1.RewindSessionRequest{Session: s.key, ToSeq: &toSeq, RequestId: NewID()}
	for _, option := range options {
		option.applyRewind(request)
	}
	return s.client.history.RewindSession(ctx, request)
}

// Redact takes away the content of the message with a seq for good, and gives the message as it is now. Its place, role
// and ids stay, so that windows stay valid, and a text "[REDACTED]" stands for what it said. The reason is for those who
// read the message later: at most 256 bytes, one line; may be empty.
func (s *Session) Redact(ctx context.Context, seq int64, reason string) (*Message, error) {
	return s.redact(ctx, &memorydv1.RedactMessageRequest{Reason: reason, By: &memorydv1.RedactMessageRequest_Seq{Seq: seq}})
}

// RedactByID is [Session.Redact] for the message with an id.
func (s *Session) RedactByID(ctx context.Context, id, reason string) (*Message, error) {
	return s.redact(ctx, &memorydv1.RedactMessageRequest{Reason: reason, By: &memorydv1.RedactMessageRequest_Id{Id: id}})
}

func (s *Session) redact(ctx context.Context, request *memorydv1.RedactMessageRequest) (*Message, error) {
	request.Session = s.key
	response, err := s.client.history.RedactMessage(ctx, request)
	return response.GetMessage(), err
}

// Fork copies the session into a new one, which appears once it is complete, and gives that one. Messages keep their seqs
// and ids; user, labels, ttl and policy are copied, too. Options are [ForkTo], [ThroughSeq] and [RequestID].
//
// [ErrSessionNotFound] without the session, [ErrSessionExists] when the name is in use or was in the last 24 hours,
// [ErrForkInterrupted] when messages were taken away meanwhile: fork again then.
func (s *Session) Fork(ctx context.Context, options ...ForkOption) (*Session, error) {
	request := &memorydv1.ForkSessionRequest{
		Source: s.key, Target: &SessionKey{Agent: s.Agent(), SessionId: NewID()}, RequestId: NewID(),
	}
	for _, option := range options {
		option.applyFork(request)
	}
	if _, err := s.client.history.ForkSession(ctx, request); err != nil {
		return nil, err
	}
	return &Session{client: s.client, key: request.Target}, nil
}

// Summarize folds now what exceeds the stored policy's keep, although the window may not be full yet.
//
// [ErrSummariesDisabled] or [ErrSummarizerDiffers] when the stored policies do not leave it to the server;
// [ErrSummarizerFailed], with nothing changed; [ErrSummaryUnderWay] while another server does it. It is not tried again by
// itself, since each try may ask a model.
func (s *Session) Summarize(ctx context.Context) (*SummarizedSession, error) {
	return s.client.summary.Summarize(ctx, &memorydv1.SummarizeRequest{Session: s.key})
}

// Summary reads a summary by its id; the current one without an id. [ErrSummaryNotFound] when there is none.
func (s *Session) Summary(ctx context.Context, id string) (*Summary, error) {
	response, err := s.client.summary.GetSummary(ctx, &memorydv1.GetSummaryRequest{Session: s.key, SummaryId: id})
	return response.GetSummary(), err
}

// Summaries reads the newest summaries, at most 16, the current one first: each knows its range and its predecessor.
func (s *Session) Summaries(ctx context.Context) ([]*Summary, error) {
	response, err := s.client.summary.ListSummaries(ctx, &memorydv1.ListSummariesRequest{Session: s.key})
	return response.GetSummaries(), err
}

// RevertSummary takes the current summary back, by its id, and gives the one that is current then; nil for none. The
// messages that it covered are shown again, and nothing is folded before the next append.
//
// [ErrEtagMismatch] when another one is current, [ErrOriginalsRemoved] when its messages are, [ErrSummaryNotFound] without
// it. It is not tried again by itself.
func (s *Session) RevertSummary(ctx context.Context, id string) (*Summary, error) {
	response, err := s.client.summary.RevertSummary(ctx, &memorydv1.RevertSummaryRequest{Session: s.key, SummaryId: id})
	return response.GetSummary(), err
}

// Window is the part of a history that one run is given.
type Window struct {
	// Messages are in reading order: pins first, then the summary (a USER message with its id and no seq), then whole
	// groups, the results of a group's calls right behind its head.
	Messages []*Message
	// Stats tell what the window holds and what it does not.
	Stats *WindowStats
}

// streamAttempts is how often a window's stream is begun: again when history was taken away meanwhile.
const streamAttempts = 5

// Window loads the newest part of the history that fits: whole tool groups, valid for a model's API. [ErrSessionNotFound]
// without the session.
//
// What the options leave out comes from the session's stored policy, then the agent's, then the server's: [MaxMessages],
// [MaxTokens], [PinSystem], [StartWithUser], [WithOpenCalls], [WithOversize], [WithSummary], [WaitForSummary], [Explain]. A
// window of any size arrives: one over 3.5 MiB is streamed, and the stream begun again (up to five times) when history was
// taken away meanwhile.
func (s *Session) Window(ctx context.Context, options ...WindowOption) (*Window, error) {
	request := windowRequest{LoadWindowRequest: &memorydv1.LoadWindowRequest{Session: s.key, Options: &WindowOptions{}}}
	for _, option := range options {
		option.applyWindow(&request)
	}
	if request.err != nil {
		return nil, request.err
	}
	ctx, cancel := s.client.operation(ctx)
	defer cancel()
	response, err := s.client.windows.LoadWindow(ctx, request.LoadWindowRequest)
	switch {
	case err == nil:
		return &Window{Messages: response.GetMessages(), Stats: response.GetStats()}, nil
	case !errors.Is(err, ErrWindowTooLarge):
		return nil, err
	}
	streamed := &memorydv1.StreamWindowRequest{
		Session: request.Session, Options: request.Options, Explain: request.Explain,
		Summary: request.Summary, WaitForSummary: request.WaitForSummary,
	}
	for attempt := 1; ; attempt++ {
		var window *Window
		err := s.client.retrying(ctx, memorydv1.WindowService_StreamWindow_FullMethodName, func() (err error) {
			window, err = s.streamedWindow(ctx, streamed)
			return err
		})
		if err == nil || attempt == streamAttempts || !errors.Is(err, ErrWindowChanged) {
			return window, err
		}
	}
}

func (s *Session) streamedWindow(ctx context.Context, request *memorydv1.StreamWindowRequest) (*Window, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.client.windows.StreamWindow(ctx, request)
	if err != nil {
		return nil, err
	}
	window := &Window{}
	for {
		piece, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && window.Stats != nil:
			return window, nil
		case errors.Is(err, io.EOF):
			return nil, &Error{
				Message: "the stream of the window ended without its stats, so the window is not whole; load it again",
				Code:    codes.DataLoss,
			}
		case err != nil:
			return nil, err
		}
		window.Messages = append(window.Messages, piece.GetMessages()...)
		window.Stats = piece.GetStats()
	}
}
