package memoryd

import memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"

// What messages are made of.
type (
	// Message is one entry of a history. [System], [Developer], [User], [Assistant], [CallTools], [Tool] and [NewMessage]
	// make messages with an id of their own.
	Message = memorydv1.Message
	// Content is what a message says. Absent content (nil) and content without parts differ.
	Content = memorydv1.Content
	// Part is one part of a message; [TextPart] and its like make them.
	Part = memorydv1.Part
	// Reasoning is the model's thinking.
	Reasoning = memorydv1.Reasoning
	// Media is an image, a sound, a file: by reference or in place.
	Media = memorydv1.Media
	// ToolCall is a call of a tool by the model; [NewCall] makes one.
	ToolCall = memorydv1.ToolCall
	// ToolResult is the answer to a tool call.
	ToolResult = memorydv1.ToolResult
	// Redaction is the trace that a redaction leaves in a message.
	Redaction = memorydv1.Redaction
	// Role says who speaks in a message.
	Role = memorydv1.Role
)

// Who speaks in a message.
const (
	RoleSystem    = memorydv1.Role_ROLE_SYSTEM
	RoleDeveloper = memorydv1.Role_ROLE_DEVELOPER
	RoleUser      = memorydv1.Role_ROLE_USER
	RoleAssistant = memorydv1.Role_ROLE_ASSISTANT
	RoleTool      = memorydv1.Role_ROLE_TOOL
)

// How windows are cut, histories folded and tokens counted.
type (
	// Policy is the stored policy of a session or an agent.
	Policy = memorydv1.Policy
	// WindowOptions say in a stored policy how windows are cut. What is nil comes from a more general policy.
	WindowOptions = memorydv1.WindowOptions
	// SummaryPolicy says how a history is folded.
	SummaryPolicy = memorydv1.SummaryPolicy
	// WindowMode is the unit of a window's limit.
	WindowMode = memorydv1.WindowMode
	// OpenCalls says what a window does with a group that has an unanswered call.
	OpenCalls = memorydv1.OpenCalls
	// Oversize says what a window does when its newest group alone exceeds a token limit.
	Oversize = memorydv1.Oversize
	// Retention says what becomes of the messages that a summary covers.
	Retention = memorydv1.Retention
	// Tokenizer is the vocabulary that a session's tokens are counted in.
	Tokenizer = memorydv1.Tokenizer
)

// Values of policies.
const (
	WindowModeMessages  = memorydv1.WindowMode_WINDOW_MODE_MESSAGES
	WindowModeTokens    = memorydv1.WindowMode_WINDOW_MODE_TOKENS
	OpenCallsOmit       = memorydv1.OpenCalls_OPEN_CALLS_OMIT
	OpenCallsSynthesize = memorydv1.OpenCalls_OPEN_CALLS_SYNTHESIZE
	OpenCallsKeep       = memorydv1.OpenCalls_OPEN_CALLS_KEEP
	OversizeShorten     = memorydv1.Oversize_OVERSIZE_SHORTEN
	OversizeReturn      = memorydv1.Oversize_OVERSIZE_RETURN
	OversizeFail        = memorydv1.Oversize_OVERSIZE_FAIL
	RetentionKeep       = memorydv1.Retention_RETENTION_KEEP
	RetentionDelete     = memorydv1.Retention_RETENTION_DELETE
	TokenizerO200kBase  = memorydv1.Tokenizer_TOKENIZER_O200K_BASE
	TokenizerCl100kBase = memorydv1.Tokenizer_TOKENIZER_CL100K_BASE
	TokenizerEstimate   = memorydv1.Tokenizer_TOKENIZER_ESTIMATE
)

// What the server tells about histories and agents.
type (
	// SessionInfo is a session's settings and counts.
	SessionInfo = memorydv1.Session
	// SessionKey is the name of a session.
	SessionKey = memorydv1.SessionKey
	// AppendedMessage is what became of one appended message.
	AppendedMessage = memorydv1.AppendedMessage
	// AgentInfo is an agent's settings.
	AgentInfo = memorydv1.Agent
	// WindowStats tell what a window holds and what it does not.
	WindowStats = memorydv1.WindowStats
	// SummaryState tells whether a summary stands for older messages.
	SummaryState = memorydv1.SummaryState
	// Summary is what stands for the oldest messages of a session.
	Summary = memorydv1.Summary
	// SummarizedSession is what a fold did.
	SummarizedSession = memorydv1.SummarizeResponse
	// RewoundSession is what a rewind took away.
	RewoundSession = memorydv1.RewindSessionResponse
	// ClearedAgent is what the clearing of an agent took away.
	ClearedAgent = memorydv1.ClearAgentHistoryResponse
	// ErasedUser is what the erasure of a user deleted. After an erasure that was tried again: what the last try found.
	ErasedUser = memorydv1.EraseUserResponse
	// StoreInfo is a store of the server.
	StoreInfo = memorydv1.Store
	// WatchEvent is something that happened to a session.
	WatchEvent = memorydv1.WatchEvent
	// WatchEventKind says what happened to a session.
	WatchEventKind = memorydv1.WatchEventKind
)

// Values of answers about histories.
const (
	SummaryStateNone    = memorydv1.SummaryState_SUMMARY_STATE_NONE
	SummaryStateCurrent = memorydv1.SummaryState_SUMMARY_STATE_CURRENT
	SummaryStatePending = memorydv1.SummaryState_SUMMARY_STATE_PENDING
	SummaryStateFailed  = memorydv1.SummaryState_SUMMARY_STATE_FAILED

	WatchAppended   = memorydv1.WatchEventKind_WATCH_EVENT_KIND_APPENDED
	WatchSummarized = memorydv1.WatchEventKind_WATCH_EVENT_KIND_SUMMARIZED
	WatchRedacted   = memorydv1.WatchEventKind_WATCH_EVENT_KIND_REDACTED
	WatchCleared    = memorydv1.WatchEventKind_WATCH_EVENT_KIND_CLEARED
	WatchRewound    = memorydv1.WatchEventKind_WATCH_EVENT_KIND_REWOUND
	// WatchResync tells that what happened since the resume token is not known: read the session anew.
	WatchResync = memorydv1.WatchEventKind_WATCH_EVENT_KIND_RESYNC
)

// Runs.
type (
	// RunInfo is a run as the server tells it, without its steps.
	RunInfo = memorydv1.Run
	// RunStep is a step of a run: what a worker needs to go on behind it.
	RunStep = memorydv1.RunStep
	// RunStatus tells how a run stands.
	RunStatus = memorydv1.RunStatus
)

// How a run stands. From RunCompleted on it has ended, and never changes again.
const (
	RunRunning          = memorydv1.RunStatus_RUN_STATUS_RUNNING
	RunInterrupted      = memorydv1.RunStatus_RUN_STATUS_INTERRUPTED
	RunAwaitingApproval = memorydv1.RunStatus_RUN_STATUS_AWAITING_APPROVAL
	RunAwaitingBudget   = memorydv1.RunStatus_RUN_STATUS_AWAITING_BUDGET
	RunCompleted        = memorydv1.RunStatus_RUN_STATUS_COMPLETED
	RunBlocked          = memorydv1.RunStatus_RUN_STATUS_BLOCKED
	RunFailed           = memorydv1.RunStatus_RUN_STATUS_FAILED
	RunCancelled        = memorydv1.RunStatus_RUN_STATUS_CANCELLED
	RunTimeout          = memorydv1.RunStatus_RUN_STATUS_TIMEOUT
	RunAbandoned        = memorydv1.RunStatus_RUN_STATUS_ABANDONED
)

// Memory.
type (
	// MemoryFileInfo is a memory file at one of its versions.
	MemoryFileInfo = memorydv1.MemoryFile
	// AddedEntries is what became of entries for an index.
	AddedEntries = memorydv1.AddMemoryEntriesResponse
	// MemoryStyle is the form of a rendered block.
	MemoryStyle = memorydv1.MemoryStyle
	// TierStatus is a tier in a rendered block.
	TierStatus = memorydv1.MemoryTierStatus
	// TierState tells what became of a tier.
	TierState = memorydv1.MemoryTierState
)

// Values of memory.
const (
	MemoryEnclosed  = memorydv1.MemoryStyle_MEMORY_STYLE_ENCLOSED
	MemoryOpenHands = memorydv1.MemoryStyle_MEMORY_STYLE_OPENHANDS

	TierAbsent     = memorydv1.MemoryTierState_MEMORY_TIER_STATE_ABSENT
	TierEmpty      = memorydv1.MemoryTierState_MEMORY_TIER_STATE_EMPTY
	TierLoaded     = memorydv1.MemoryTierState_MEMORY_TIER_STATE_LOADED
	TierTruncated  = memorydv1.MemoryTierState_MEMORY_TIER_STATE_TRUNCATED
	TierUnreadable = memorydv1.MemoryTierState_MEMORY_TIER_STATE_UNREADABLE
)
