package memoryd

// Reason says why a call failed, by the names of the API's ErrorReason: a target of [errors.Is]. A server newer than this
// client may give others.
type Reason string

// Error is the name of the reason.
func (r Reason) Error() string { return "memoryd: " + string(r) }

// The reasons of errors.
const (
	// ErrFieldRequired: INVALID_ARGUMENT: a required field is empty. Metadata: `field`. Example: an append without
	// session.agent.
	ErrFieldRequired Reason = "FIELD_REQUIRED"
	// ErrFieldInvalid: INVALID_ARGUMENT: a field has a value that it cannot have. Metadata: `field`. Example: a limit of
	// 0.
	ErrFieldInvalid Reason = "FIELD_INVALID"
	// ErrFieldTooLarge: INVALID_ARGUMENT: a field is over its limit. Metadata: `field`, `limit`, `actual` (bytes or
	// items). Example: a message of 5 MB.
	ErrFieldTooLarge Reason = "FIELD_TOO_LARGE"
	// ErrPageTokenInvalid: INVALID_ARGUMENT: the page token is damaged, or is of another store, tenant or query. Metadata:
	// `field`. Start again without a token.
	ErrPageTokenInvalid Reason = "PAGE_TOKEN_INVALID"
	// ErrStoreUnknown: INVALID_ARGUMENT: no store has the name in the metadata key `memoryd-store` or in the request.
	// Metadata: `store`, `stores` (the known names).
	ErrStoreUnknown Reason = "STORE_UNKNOWN"
	// ErrSessionNotFound: NOT_FOUND: there is no such session. Metadata: `agent`, `session_id`.
	ErrSessionNotFound Reason = "SESSION_NOT_FOUND"
	// ErrMessageNotFound: NOT_FOUND: the session holds no such message. Metadata: `agent`, `session_id`, `message`.
	ErrMessageNotFound Reason = "MESSAGE_NOT_FOUND"
	// ErrMessageIDConflict: ALREADY_EXISTS: a message id is known with other content, or only some ids of the batch are
	// known. Nothing was written. Metadata: `message_id`. Use new ids for new messages.
	ErrMessageIDConflict Reason = "MESSAGE_ID_CONFLICT"
	// ErrRequestIDConflict: ALREADY_EXISTS: the request id is known with other messages. Nothing was written. Metadata:
	// `request_id`.
	ErrRequestIDConflict Reason = "REQUEST_ID_CONFLICT"
	// ErrLastSeqMismatch: ABORTED: the session's last seq is not the expected one. Metadata: `expected`, `actual`. Read
	// again, then append.
	ErrLastSeqMismatch Reason = "LAST_SEQ_MISMATCH"
	// ErrEtagMismatch: ABORTED: the etag is not the current one. Metadata: `etag` (the current one). Read again, then
	// update.
	ErrEtagMismatch Reason = "ETAG_MISMATCH"
	// ErrContention: ABORTED with a RetryInfo: other calls kept changing the session until the deadline. Nothing was
	// written.
	ErrContention Reason = "CONTENTION"
	// ErrWindowTooLarge: FAILED_PRECONDITION: the window is over 3.5 MiB. Metadata: `bytes`, `limit`. Use StreamWindow, as
	// the SDKs do, or a smaller limit.
	ErrWindowTooLarge Reason = "WINDOW_TOO_LARGE"
	// ErrWindowTooSmall: FAILED_PRECONDITION: oversize is FAIL and the newest group alone exceeds the limit. Metadata:
	// `limit`, `needed`.
	ErrWindowTooSmall Reason = "WINDOW_TOO_SMALL"
	// ErrWindowChanged: ABORTED: history was taken away while a window was streamed. Start again.
	ErrWindowChanged Reason = "WINDOW_CHANGED"
	// ErrStoreUnavailable: UNAVAILABLE with a RetryInfo: the store did not answer. An append may have been stored: retry
	// it with the same ids. Metadata: `store`.
	ErrStoreUnavailable Reason = "STORE_UNAVAILABLE"
	// ErrRecordTooLarge: RESOURCE_EXHAUSTED: the session's record cannot hold what was asked for. Metadata: `limit`,
	// `actual`. Labels, user and policy are too large together (bytes): use fewer or shorter labels. Or, with a RetryInfo,
	// the session was rewound 64 times within a minute: try again when what the first of these took away is deleted.
	ErrRecordTooLarge Reason = "RECORD_TOO_LARGE"
	// ErrInternal: INTERNAL: a fault of the server; its text is only in the log, under the correlation id.
	ErrInternal Reason = "INTERNAL"
	// ErrServerDraining: UNAVAILABLE with a RetryInfo: the server is shutting down. Retry, and another server answers.
	ErrServerDraining Reason = "SERVER_DRAINING"
	// ErrServerDeadlineExceeded: DEADLINE_EXCEEDED: the call's deadline passed in the server.
	ErrServerDeadlineExceeded Reason = "DEADLINE_EXCEEDED"
	// ErrMethodUnknown: UNIMPLEMENTED: the server has no such method; it may be older than the client.
	ErrMethodUnknown Reason = "METHOD_UNKNOWN"
	// ErrCredentialMissing: UNAUTHENTICATED: the server asks for a bearer token, and the call brought none. Send the
	// metadata `authorization: Bearer TOKEN`.
	ErrCredentialMissing Reason = "CREDENTIAL_MISSING"
	// ErrCredentialInvalid: UNAUTHENTICATED: the call's bearer token is none of the server's: wrong, or revoked.
	ErrCredentialInvalid Reason = "CREDENTIAL_INVALID"
	// ErrSessionExists: ALREADY_EXISTS: the target of a fork is the name of a session, or was until less than 24 hours
	// ago. Metadata: `agent`, `session_id`. Fork to another name.
	ErrSessionExists Reason = "SESSION_EXISTS"
	// ErrForkInterrupted: ABORTED with a RetryInfo: the source of a fork lost messages (cleared, rewound, redacted,
	// erased) while it was copied. Nothing was made. Fork again.
	ErrForkInterrupted Reason = "FORK_INTERRUPTED"
	// ErrResumeTokenInvalid: INVALID_ARGUMENT: the resume token is damaged, or is of another store, tenant or session.
	// Metadata: `field`. Read the session, and watch without a token.
	ErrResumeTokenInvalid Reason = "RESUME_TOKEN_INVALID"
	// ErrWatchStalled: ABORTED with a RetryInfo: a watcher left an answer unread for too long. Resume with the last token.
	ErrWatchStalled Reason = "WATCH_STALLED"
	// ErrTooManyWatchers: RESOURCE_EXHAUSTED with a RetryInfo: the server serves as many watchers as it may. Metadata:
	// `limit`. Watch another server, or later.
	ErrTooManyWatchers Reason = "TOO_MANY_WATCHERS"
	// ErrSummaryNotFound: NOT_FOUND: the session has no such summary, or none at all. Metadata: `agent`, `session_id`,
	// `summary_id`.
	ErrSummaryNotFound Reason = "SUMMARY_NOT_FOUND"
	// ErrSummaryTaskVoid: ABORTED: the summary task is void: its lease is over, or the history changed where the task lies
	// (cleared, rewound, redacted, or a call in it was answered). Nothing was changed. Metadata: `agent`, `session_id`.
	// Lease again.
	ErrSummaryTaskVoid Reason = "SUMMARY_TASK_VOID"
	// ErrOriginalsRemoved: FAILED_PRECONDITION: the messages behind a summary are removed (retention DELETE), so it cannot
	// be taken back. Metadata: `summary_id`, `to_seq` (the newest message that is gone).
	ErrOriginalsRemoved Reason = "ORIGINALS_REMOVED"
	// ErrSummarizerFailed: UNAVAILABLE with a RetryInfo: the summarizer failed. Nothing was changed, and it is tried again
	// with backoff. Metadata: `summarizer`, `failure` (as in WindowStats.summary_failure).
	ErrSummarizerFailed Reason = "SUMMARIZER_FAILED"
	// ErrSummariesDisabled: FAILED_PRECONDITION: the stored policies of session and agent have no summaries. Metadata:
	// `agent`, `session_id`. Store a policy with `summary` first.
	ErrSummariesDisabled Reason = "SUMMARIES_DISABLED"
	// ErrSummarizerDiffers: FAILED_PRECONDITION: the session's summarizer is `client`: lease a summary task instead. Or it
	// is another one, and there are no tasks to lease. Metadata: `agent`, `session_id`, `summarizer`.
	ErrSummarizerDiffers Reason = "SUMMARIZER_DIFFERS"
	// ErrSummaryUnderWay: ABORTED with a RetryInfo: another server or client makes the session's summary. Metadata:
	// `agent`, `session_id`.
	ErrSummaryUnderWay Reason = "SUMMARY_UNDER_WAY"
	// ErrSecretFound: INVALID_ARGUMENT: a text for a memory file holds a credential. Nothing was written. Metadata:
	// `field`, `line` (from 1), `kind` (of credential); never the credential. Take it out, or set allow_secrets.
	ErrSecretFound Reason = "SECRET_FOUND"
	// ErrMemoryFileNotFound: NOT_FOUND: the owner has no such memory file, or the file no such version. Metadata: `name`,
	// `version` where one was asked for.
	ErrMemoryFileNotFound Reason = "MEMORY_FILE_NOT_FOUND"
	// ErrMemoryFileFull: RESOURCE_EXHAUSTED: the memory file would be over its limit. Nothing was written. Metadata:
	// `name`, `limit`, `actual` (bytes). Put a shorter file first.
	ErrMemoryFileFull Reason = "MEMORY_FILE_FULL"
	// ErrRunNotFound: NOT_FOUND: the session has no such run. It may have been deleted after its retention. Metadata:
	// `agent`, `session_id`, `run_id`.
	ErrRunNotFound Reason = "RUN_NOT_FOUND"
	// ErrRunExists: ALREADY_EXISTS: the session has a run of this id already, and it is not the one that this call began.
	// Metadata: `agent`, `session_id`, `run_id`. Use a new id, or claim the run.
	ErrRunExists Reason = "RUN_EXISTS"
	// ErrRunLeaseLost: FAILED_PRECONDITION: the caller does not hold the run any more: its lease is over, was given back,
	// or another worker claimed the run. Nothing was written. Metadata: `agent`, `session_id`, `run_id`. Stop working at
	// it; claim it to go on.
	ErrRunLeaseLost Reason = "LEASE_LOST"
	// ErrRunEnded: FAILED_PRECONDITION: the run has ended, and never changes again. Nothing was written. Metadata:
	// `agent`, `session_id`, `run_id`, `status`.
	ErrRunEnded Reason = "RUN_ENDED"
	// ErrRunNotClaimable: FAILED_PRECONDITION with a RetryInfo: another worker holds the run until its lease is over.
	// Metadata: `agent`, `session_id`, `run_id`, `holder`.
	ErrRunNotClaimable Reason = "RUN_NOT_CLAIMABLE"
	// ErrStepMismatch: ABORTED: the step is not the run's next one, or its number was committed with other content.
	// Nothing was written. Metadata: `agent`, `session_id`, `run_id`, `number`, `step_count`. Read the steps, and go on
	// behind the last.
	ErrStepMismatch Reason = "STEP_MISMATCH"
	// ErrTooManyRuns: RESOURCE_EXHAUSTED: the session has as many unfinished runs as it may. Nothing was written.
	// Metadata: `agent`, `session_id`, `limit`. End some, or use another session.
	ErrTooManyRuns Reason = "TOO_MANY_RUNS"
	// ErrRunUnfinished: FAILED_PRECONDITION: the run has not ended, and cannot be deleted. Metadata: `agent`,
	// `session_id`, `run_id`, `status`. Set a status that ends it first, such as CANCELLED.
	ErrRunUnfinished Reason = "RUN_UNFINISHED"
)
