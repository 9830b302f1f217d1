/**
 * memoryd: the memory service for agents. This is its TypeScript SDK; `memoryd/v1` holds the generated code of the API.
 *
 * @module
 */

export type { Integer } from "./arguments.js";
export { batches } from "./batches.js";
export {
  Agent,
  type EnqueueRunOptions,
  type ListRunsOptions,
  type ListSessionsOptions,
  MemoryClient,
  type UpdateAgentOptions,
  type UpdateRunOptions,
} from "./client.js";
export type { CallOptions } from "./connection.js";
export {
  type AnthropicPrompt,
  fromAnthropic,
  fromOpenai,
  fromOpenaiResponses,
  type ProviderMessage,
  toAnthropic,
  toOpenai,
  toOpenaiResponses,
} from "./converters/index.js";
export { messageFromProto } from "./decoding.js";
export { messageToProto } from "./encoding.js";
export {
  AbortedError,
  AlreadyExistsError,
  AnswerUnreadableError,
  ContentionError,
  CredentialInvalidError,
  CredentialMissingError,
  DeadlineExceededError,
  type ErrorFields,
  EtagMismatchError,
  FailedPreconditionError,
  FieldInvalidError,
  FieldRequiredError,
  FieldTooLargeError,
  ForkInterruptedError,
  InternalError,
  InvalidArgumentError,
  LastSeqMismatchError,
  MemorydError,
  MemoryFileFullError,
  MemoryFileNotFoundError,
  MessageIdConflictError,
  MessageNotFoundError,
  MethodUnknownError,
  NotFoundError,
  OriginalsRemovedError,
  PageTokenInvalidError,
  RecordTooLargeError,
  RequestIdConflictError,
  ResourceExhaustedError,
  ResumeTokenInvalidError,
  RunEndedError,
  RunExistsError,
  RunLeaseLostError,
  RunNotClaimableError,
  RunNotFoundError,
  RunUnfinishedError,
  SecretFoundError,
  ServerDrainingError,
  ServerUnavailableError,
  SessionExistsError,
  SessionNotFoundError,
  type StatusCode,
  StepMismatchError,
  StoreUnavailableError,
  StoreUnknownError,
  SummariesDisabledError,
  SummarizerDiffersError,
  SummarizerFailedError,
  SummaryNotFoundError,
  SummaryTaskVoidError,
  SummaryUnderWayError,
  TlsFailedError,
  TooManyRunsError,
  TooManyWatchersError,
  UnauthenticatedError,
  UnavailableError,
  WatchStalledError,
  WindowChangedError,
  WindowTooLargeError,
  WindowTooSmallError,
} from "./errors.js";
export {
  type AgentInfo,
  type AppendedMessage,
  type ClearedAgent,
  type ErasedUser,
  FOREVER,
  type ListOrder,
  type MessageView,
  type RewoundSession,
  type SessionInfo,
  type SessionSettings,
  type WatchEvent,
  type WatchEventKind,
} from "./histories.js";
export { newId } from "./ids.js";
export type { Logger } from "./log.js";
export {
  type AddedEntries,
  MemoryFile,
  type MemoryFileInfo,
  type MemoryStyle,
  type TierState,
  type TierStatus,
} from "./memories.js";
export { MemoryContext, type RenderContextOptions } from "./memory-context.js";
export {
  type LogMemoryOptions,
  MemoryFiles,
  type MemoryFilesOwner,
  type PutMemoryFileOptions,
  type WriteMemoryOptions,
} from "./memory-files.js";
export { ProjectFiles, StoredMemory, UserFiles } from "./memory-sources.js";
export { type AnthropicTool, MemoryTools, type OpenAiResponsesTool, type OpenAiTool } from "./memory-tools.js";
export {
  assistant,
  type AssistantMessageOptions,
  call,
  type ContentInput,
  type DataPart,
  developer,
  type MediaPart,
  message,
  type Message,
  type MessageOptions,
  type Part,
  type ReasoningPart,
  type Redaction,
  type RefusalPart,
  type ResultPart,
  type Role,
  system,
  textOf,
  textOfParts,
  type TextPart,
  tool,
  type ToolCall,
  toolCallsOf,
  type ToolMessageOptions,
  type ToolResult,
  toolResult,
  toolResultsOf,
  user,
} from "./messages.js";
export type { ListOptions } from "./paging.js";
export type {
  OpenCalls,
  Oversize,
  Policy,
  Retention,
  SummaryPolicy,
  Tokenizer,
  WindowMode,
  WindowOptions,
} from "./policies.js";
export {
  type ClaimsOptions,
  type EndStatus,
  type HoldOptions,
  Run,
  RunClaims,
  type RunOptions,
  type StatusOptions,
  type StepOptions,
  type WaitingStatus,
} from "./run.js";
export { type Payload, type RunInfo, type RunStatus, RunStep } from "./runs.js";
export {
  type AppendAllOptions,
  type AppendOptions,
  type ForkOptions,
  type ListMessagesOptions,
  type LoadWindowOptions,
  type MessageName,
  type RequestIdOptions,
  type RewindOptions,
  Session,
  type UpdateSessionOptions,
} from "./session.js";
export type { Capability, StoreInfo, SummarizedSession, Summary } from "./stores.js";
export {
  type SummarizeWithOptions,
  SummaryTask,
  type SummaryTaskOptions,
  SummaryTasks,
} from "./summary-tasks.js";
export type { ClientOptions } from "./target.js";
export { Watch, type WatchOptions } from "./watch.js";
export {
  type LeftOut,
  type LeftOutMessage,
  type LeftOutReason,
  type SummaryState,
  Window,
  type WindowStats,
} from "./windows.js";
