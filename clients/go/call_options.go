package memoryd

import (
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// Options of operations. Each operation takes those of its own kind, so that an option that it does not know does not
// compile.
type (
	// AppendOption is an option of [Session.Append].
	AppendOption interface {
		applyAppend(*memorydv1.AppendMessagesRequest)
	}
	// MessagesOption is an option of [Session.Messages].
	MessagesOption interface {
		applyMessages(*memorydv1.ListMessagesRequest)
	}
	// SessionsOption is an option of [Client.Sessions].
	SessionsOption interface {
		applySessions(*memorydv1.ListSessionsRequest)
	}
	// AgentsOption is an option of [Client.Agents].
	AgentsOption interface {
		applyAgents(*memorydv1.ListAgentsRequest)
	}
	// UpdateOption is an option of [Session.Update].
	UpdateOption interface {
		applyUpdate(*memorydv1.UpdateSessionRequest)
	}
	// AgentUpdateOption is an option of [Agent.Update].
	AgentUpdateOption interface {
		applyAgentUpdate(*memorydv1.UpdateAgentRequest)
	}
	// ClearOption is an option of [Session.Clear].
	ClearOption interface {
		applyClear(*memorydv1.ClearHistoryRequest)
	}
	// RewindOption is an option of [Session.Rewind].
	RewindOption interface {
		applyRewind(*memorydv1.RewindSessionRequest)
	}
	// ForkOption is an option of [Session.Fork].
	ForkOption interface {
		applyFork(*memorydv1.ForkSessionRequest)
	}
	// WindowOption is an option of [Session.Window].
	WindowOption interface {
		applyWindow(*windowRequest)
	}
)

// windowRequest is what window options set.
type windowRequest struct {
	*memorydv1.LoadWindowRequest
	err error // of options that exclude each other
}

// RequestIDOption is made by [RequestID].
type RequestIDOption string

// RequestID marks a request, with at most 256 bytes: a repeat with the mark does nothing more, and the first answer comes
// again; another request with it is [ErrRequestIDConflict]. Without one, the client makes one for each clear, rewind, fork
// and write of a memory file.
func RequestID(id string) RequestIDOption { return RequestIDOption(id) }

func (id RequestIDOption) applyAppend(r *memorydv1.AppendMessagesRequest) { r.RequestId = string(id) }
func (id RequestIDOption) applyClear(r *memorydv1.ClearHistoryRequest)    { r.RequestId = string(id) }
func (id RequestIDOption) applyRewind(r *memorydv1.RewindSessionRequest)  { r.RequestId = string(id) }
func (id RequestIDOption) applyFork(r *memorydv1.ForkSessionRequest)      { r.RequestId = string(id) }
func (id RequestIDOption) applyPut(r *memorydv1.PutMemoryFileRequest)     { r.RequestId = string(id) }
func (id RequestIDOption) applyAdd(r *memorydv1.AddMemoryEntriesRequest)  { r.RequestId = string(id) }
func (id RequestIDOption) applyLog(r *memorydv1.AppendDailyLogRequest)    { r.RequestId = string(id) }

// ExpectedLastSeqOption is made by [ExpectedLastSeq].
type ExpectedLastSeqOption int64

// ExpectedLastSeq has an append or a rewind made only if this is the session's last seq (0: no session yet), else
// [ErrLastSeqMismatch].
func ExpectedLastSeq(seq int64) ExpectedLastSeqOption { return ExpectedLastSeqOption(seq) }

func (seq ExpectedLastSeqOption) applyAppend(r *memorydv1.AppendMessagesRequest) {
	r.ExpectedLastSeq = new(int64(seq))
}

func (seq ExpectedLastSeqOption) applyRewind(r *memorydv1.RewindSessionRequest) {
	r.ExpectedLastSeq = new(int64(seq))
}

// SessionSettings are what a session is created with, when an append or a run begins it; ignored when it exists. They are
// an option of [Session.Append], [Session.AppendAll], [Session.Run] and [Session.EnqueueRun].
type SessionSettings struct {
	// UserID is the owner of the session; empty for none. At most 256 bytes.
	UserID string
	// Labels are at most 64, keys of 1 to 256 bytes and values of up to 256 bytes, one line each.
	Labels map[string]string
	// Tokenizer is the vocabulary that tokens are counted in; 0 for the server's default.
	Tokenizer Tokenizer
	// Policy is the session's stored policy.
	Policy *Policy
	// TTL is how long the session outlives its last append: 1 second to 100 years; 0 for ever.
	TTL time.Duration
}

func (s SessionSettings) toProto() *memorydv1.SessionSettings {
	created := &memorydv1.SessionSettings{
		UserId: s.UserID, Labels: s.Labels, Tokenizer: s.Tokenizer, Policy: s.Policy,
	}
	if s.TTL != 0 {
		created.Ttl = durationpb.New(s.TTL)
	}
	return created
}

func (s SessionSettings) applyAppend(r *memorydv1.AppendMessagesRequest) { r.Create = s.toProto() }
func (s SessionSettings) applyRun(r *runRequest)                         { r.create = s.toProto() }

// PageSizeOption is made by [PageSize].
type PageSizeOption int32

// PageSize is the most items of one page of a list: up to 1,000; 0 for the server's default of 100.
func PageSize(size int) PageSizeOption { return PageSizeOption(min(max(size, -1), 1_000)) }

func (size PageSizeOption) applyMessages(r *memorydv1.ListMessagesRequest) { r.PageSize = int32(size) }
func (size PageSizeOption) applySessions(r *memorydv1.ListSessionsRequest) { r.PageSize = int32(size) }
func (size PageSizeOption) applyAgents(r *memorydv1.ListAgentsRequest)     { r.PageSize = int32(size) }
func (size PageSizeOption) applyFiles(r *memorydv1.ListMemoryFilesRequest) { r.PageSize = int32(size) }
func (size PageSizeOption) applyRuns(r *memorydv1.ListRunsRequest)         { r.PageSize = int32(size) }
func (size PageSizeOption) applySteps(r *memorydv1.ListRunStepsRequest)    { r.PageSize = int32(size) }

type sessionsOption func(*memorydv1.ListSessionsRequest)

func (o sessionsOption) applySessions(r *memorydv1.ListSessionsRequest) { o(r) }

// OfAgent lists only the sessions of an agent.
func OfAgent(agent string) SessionsOption {
	return sessionsOption(func(r *memorydv1.ListSessionsRequest) { r.Agent = agent })
}

// OfUser lists only the sessions of a user.
func OfUser(userID string) SessionsOption {
	return sessionsOption(func(r *memorydv1.ListSessionsRequest) { r.UserId = userID })
}

type messagesOption func(*memorydv1.ListMessagesRequest)

func (o messagesOption) applyMessages(r *memorydv1.ListMessagesRequest) { o(r) }

func filtered(set func(*memorydv1.MessageFilter)) MessagesOption {
	return messagesOption(func(r *memorydv1.ListMessagesRequest) {
		if r.Filter == nil {
			r.Filter = &memorydv1.MessageFilter{}
		}
		set(r.Filter)
	})
}

// NewestFirst lists messages by descending seq.
func NewestFirst() MessagesOption {
	return messagesOption(func(r *memorydv1.ListMessagesRequest) {
		r.Order = memorydv1.ListOrder_LIST_ORDER_DESCENDING
	})
}

// AllStored lists every message that is still stored, and no summary, rather than the current summary and what it does not
// cover.
func AllStored() MessagesOption {
	return messagesOption(func(r *memorydv1.ListMessagesRequest) { r.View = memorydv1.MessageView_MESSAGE_VIEW_ALL })
}

// WithRoles lists only messages of these roles.
func WithRoles(roles ...Role) MessagesOption {
	return filtered(func(f *memorydv1.MessageFilter) { f.Roles = roles })
}

// OfRun lists only messages of a run.
func OfRun(id string) MessagesOption {
	return filtered(func(f *memorydv1.MessageFilter) { f.RunId = id })
}

// FromSeq lists only messages from a seq on.
func FromSeq(seq int64) MessagesOption {
	return filtered(func(f *memorydv1.MessageFilter) { f.FromSeq = seq })
}

// ToSeq lists only messages up to a seq, itself included.
func ToSeq(seq int64) MessagesOption {
	return filtered(func(f *memorydv1.MessageFilter) { f.ToSeq = seq })
}

// StoredSince lists only messages stored at a time or later.
func StoredSince(when time.Time) MessagesOption {
	return filtered(func(f *memorydv1.MessageFilter) { f.FromTime = timestamppb.New(when) })
}

// StoredBefore lists only messages stored before a time.
func StoredBefore(when time.Time) MessagesOption {
	return filtered(func(f *memorydv1.MessageFilter) { f.ToTime = timestamppb.New(when) })
}

type updateOption func(*memorydv1.UpdateSessionRequest)

func (o updateOption) applyUpdate(r *memorydv1.UpdateSessionRequest) { o(r) }

func updated(path string, set func(*SessionInfo)) UpdateOption {
	return updateOption(func(r *memorydv1.UpdateSessionRequest) {
		set(r.Session)
		r.UpdateMask.Paths = append(r.UpdateMask.Paths, path)
	})
}

// SetUser gives the session to a user; empty to none.
func SetUser(userID string) UpdateOption {
	return updated("user_id", func(s *SessionInfo) { s.UserId = userID })
}

// SetLabels replaces the session's labels.
func SetLabels(labels map[string]string) UpdateOption {
	return updated("labels", func(s *SessionInfo) { s.Labels = labels })
}

// SetTTL sets how long the session outlives its last append: 1 second to 100 years; 0 for ever.
func SetTTL(ttl time.Duration) UpdateOption {
	return updated("ttl", func(s *SessionInfo) {
		s.Ttl = nil
		if ttl != 0 {
			s.Ttl = durationpb.New(ttl)
		}
	})
}

// PolicyOption is made by [SetPolicy].
type PolicyOption struct{ policy *Policy }

// SetPolicy replaces the stored policy of a session or an agent as a whole; nil takes it away.
func SetPolicy(policy *Policy) PolicyOption { return PolicyOption{policy} }

func (o PolicyOption) applyUpdate(r *memorydv1.UpdateSessionRequest) {
	r.Session.Policy = o.policy
	r.UpdateMask.Paths = append(r.UpdateMask.Paths, "policy")
}

func (o PolicyOption) applyAgentUpdate(r *memorydv1.UpdateAgentRequest) {
	r.Agent.Policy = o.policy
	r.UpdateMask.Paths = append(r.UpdateMask.Paths, "policy")
}

// EtagOption is made by [IfEtag].
type EtagOption string

// IfEtag has a change made only if what is changed is still what was read with this etag, else [ErrEtagMismatch].
func IfEtag(etag string) EtagOption { return EtagOption(etag) }

func (etag EtagOption) applyUpdate(r *memorydv1.UpdateSessionRequest)    { r.Session.Etag = string(etag) }
func (etag EtagOption) applyAgentUpdate(r *memorydv1.UpdateAgentRequest) { r.Agent.Etag = string(etag) }
func (etag EtagOption) applyPut(r *memorydv1.PutMemoryFileRequest)       { r.Etag = string(etag) }
func (etag EtagOption) applyDelete(r *memorydv1.DeleteMemoryFileRequest) { r.Etag = string(etag) }

type agentUpdateOption func(*memorydv1.UpdateAgentRequest)

func (o agentUpdateOption) applyAgentUpdate(r *memorydv1.UpdateAgentRequest) { o(r) }

func agentUpdated(path string, set func(*AgentInfo)) AgentUpdateOption {
	return agentUpdateOption(func(r *memorydv1.UpdateAgentRequest) {
		set(r.Agent)
		r.UpdateMask.Paths = append(r.UpdateMask.Paths, path)
	})
}

// LoadMemory says whether [Client.RenderContext] renders memory for the agent.
func LoadMemory(load bool) AgentUpdateOption {
	return agentUpdated("load_memory", func(a *AgentInfo) { a.LoadMemory = &load })
}

// KeepRuns sets how long runs of the agent's sessions are kept after they ended: up to 100 years; 0 for ever. Unfinished
// runs are always kept.
func KeepRuns(retention time.Duration) AgentUpdateOption {
	return agentUpdated("run_retention", func(a *AgentInfo) { a.RunRetention = durationpb.New(retention) })
}

// KeepRunsByDefault takes the agent's own run retention away: from then on, it is the server's.
func KeepRunsByDefault() AgentUpdateOption {
	return agentUpdated("run_retention", func(a *AgentInfo) { a.RunRetention = nil })
}

type forkOption func(*memorydv1.ForkSessionRequest)

func (o forkOption) applyFork(r *memorydv1.ForkSessionRequest) { o(r) }

// ForkTo says which session a fork makes, perhaps one of another agent. Without it, one of the same agent with a new id.
func ForkTo(target *Session) ForkOption {
	return forkOption(func(r *memorydv1.ForkSessionRequest) { r.Target = target.key })
}

// ThroughSeq is the newest seq that a fork copies; without it, all messages are copied.
func ThroughSeq(seq int64) ForkOption {
	return forkOption(func(r *memorydv1.ForkSessionRequest) { r.ThroughSeq = &seq })
}

type windowOption func(*windowRequest)

func (o windowOption) applyWindow(r *windowRequest) { o(r) }

func cut(set func(*WindowOptions)) WindowOption {
	return windowOption(func(r *windowRequest) { set(r.Options) })
}

func limited(mode WindowMode, limit int64) WindowOption {
	return windowOption(func(r *windowRequest) {
		if r.Options.Mode != nil && r.Options.GetMode() != mode {
			r.err = errors.New("memoryd: a window has one limit: give either MaxMessages or MaxTokens")
		}
		r.Options.Mode, r.Options.Limit = &mode, &limit
	})
}

// MaxMessages limits a window in messages: 1 to 100,000. Not together with [MaxTokens], which is an error.
func MaxMessages(limit int64) WindowOption { return limited(WindowModeMessages, limit) }

// MaxTokens limits a window in tokens of the session's tokenizer: 1 to 100,000,000. Not together with [MaxMessages], which
// is an error.
func MaxTokens(limit int64) WindowOption { return limited(WindowModeTokens, limit) }

// PinSystem says whether a window keeps the SYSTEM and DEVELOPER messages that open the history.
func PinSystem(pin bool) WindowOption {
	return cut(func(o *WindowOptions) { o.PinSystem = &pin })
}

// StartWithUser says whether a window that would begin with another role gets the newest USER message before it in front.
func StartWithUser(start bool) WindowOption {
	return cut(func(o *WindowOptions) { o.StartWithUser = &start })
}

// WithOpenCalls says what a window does with groups that have an unanswered call.
func WithOpenCalls(open OpenCalls) WindowOption {
	return cut(func(o *WindowOptions) { o.OpenCalls = &open })
}

// WithOversize says what a window does when its newest group alone exceeds a token limit.
func WithOversize(oversize Oversize) WindowOption {
	return cut(func(o *WindowOptions) { o.Oversize = &oversize })
}

// WithSummary says whether a window shows the session's summary in the place of what it covers. Without it: if the stored
// policies have summaries.
func WithSummary(show bool) WindowOption {
	return windowOption(func(r *windowRequest) { r.Summary = &show })
}

// WaitForSummary says whether to wait when the stored policies ask for a fold, at most 10 seconds. Without it: as they say.
func WaitForSummary(wait bool) WindowOption {
	return windowOption(func(r *windowRequest) { r.WaitForSummary = &wait })
}

// Explain lets the stats of a window list messages that were left out.
func Explain() WindowOption {
	return windowOption(func(r *windowRequest) { r.Explain = true })
}
