// What the SDK answers, as the API's messages.

import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Duration, Timestamp } from "@bufbuild/protobuf/wkt";

import { duration as durationOf, policyToProto, timestamp } from "../src/encoding.js";
import { LEFT_OUT_REASON, RUN_STATUS, SUMMARY_STATE, TIER_STATE, TOKENIZER, WATCH_EVENT_KIND, WINDOW_MODE } from "../src/enums.js";
import type { AgentSchema } from "../src/gen/memoryd/v1/agent_service_pb.js";
import { ErrorReason } from "../src/gen/memoryd/v1/error_reason_pb.js";
import type { AppendedMessageSchema, WatchEventSchema } from "../src/gen/memoryd/v1/history_service_pb.js";
import { MemoryContextState, type MemoryFileSchema, type MemoryTierStatusSchema } from "../src/gen/memoryd/v1/memory_context_service_pb.js";
import type { Message as ApiMessage } from "../src/gen/memoryd/v1/message_pb.js";
import type { RunSchema, RunStepSchema } from "../src/gen/memoryd/v1/run_service_pb.js";
import type { SessionSchema } from "../src/gen/memoryd/v1/session_pb.js";
import type { StoreSchema } from "../src/gen/memoryd/v1/store_service_pb.js";
import type { SummarySchema, SummaryTaskSchema } from "../src/gen/memoryd/v1/summary_service_pb.js";
import type { LoadWindowResponseSchema, WindowStatsSchema } from "../src/gen/memoryd/v1/window_service_pb.js";
import {
  type AgentInfo,
  type AppendedMessage,
  FOREVER,
  InvalidArgumentError,
  type MemoryContext,
  type MemoryFileInfo,
  MemorydError,
  type Message,
  messageToProto,
  type Run,
  type RunInfo,
  type RunStep,
  type SessionInfo,
  type StoreInfo,
  type Summary,
  type SummaryTask,
  type TierStatus,
  type WatchEvent,
  type Window,
  type WindowStats,
} from "../src/index.js";
import type { FailureSchema, HeldRunSchema, RenderedSchema } from "./gen/tests/conformance/conformance_pb.js";

type Present<Fields> = { [Name in keyof Fields]?: Exclude<Fields[Name], undefined> };

/** Fields without those that are undefined. */
function present<Fields extends object>(fields: Fields): Present<Fields> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Present<Fields>;
}

function time(moment: Date | undefined): Timestamp | undefined {
  return moment && timestamp(moment, "an answer's time");
}

function duration(milliseconds: number | undefined): Duration | undefined {
  return milliseconds === undefined ? undefined : durationOf(milliseconds, "an answer's duration");
}

export function message(given: Message): ApiMessage {
  // Where a message has no id, one is made for the way to the server.
  return { ...messageToProto(given), id: given.id };
}

export function messages(given: readonly Message[]): { messages: ApiMessage[] } {
  return { messages: given.map(message) };
}

export function appended(given: AppendedMessage): MessageInitShape<typeof AppendedMessageSchema> {
  const { id, seq, createTime, tokenCount, memoryContextRemoved } = given;
  return {
    ...present({ createTime: time(createTime) }),
    id,
    seq: BigInt(seq),
    tokenCount: BigInt(tokenCount),
    memoryContextRemoved,
  };
}

export function session(info: SessionInfo): MessageInitShape<typeof SessionSchema> {
  return {
    ...present({
      createTime: time(info.createTime),
      activityTime: time(info.activityTime),
      ttl: duration(info.ttlMs),
      expireTime: time(info.expireTime),
    }),
    key: { agent: info.agent, sessionId: info.sessionId },
    userId: info.userId,
    labels: { ...info.labels },
    policy: policyToProto(info.policy),
    tokenizer: TOKENIZER.number(info.tokenizer, "tokenizer"),
    messageCount: BigInt(info.messageCount),
    tokenCount: BigInt(info.tokenCount),
    openMessageCount: BigInt(info.openMessageCount),
    orphanMessageCount: BigInt(info.orphanMessageCount),
    openCallCount: info.openCallCount,
    unfinishedRunCount: info.unfinishedRunCount,
    lastSeq: BigInt(info.lastSeq),
    etag: info.etag,
  };
}

export function watchEvent(event: WatchEvent): MessageInitShape<typeof WatchEventSchema> {
  return {
    ...present({ message: event.message && message(event.message), eventTime: time(event.eventTime) }),
    kind: WATCH_EVENT_KIND.number(event.kind, "kind"),
    fromSeq: BigInt(event.fromSeq),
    toSeq: BigInt(event.toSeq),
    resumeToken: event.resumeToken,
  };
}

export function window(given: Window): MessageInitShape<typeof LoadWindowResponseSchema> {
  return { ...messages(given.messages), stats: windowStats(given.stats) };
}

function windowStats(stats: WindowStats): MessageInitShape<typeof WindowStatsSchema> {
  const { leftOut } = stats;
  return {
    historyMessageCount: BigInt(stats.historyMessageCount),
    historyTokenCount: BigInt(stats.historyTokenCount),
    windowMessageCount: BigInt(stats.windowMessageCount),
    windowTokenCount: BigInt(stats.windowTokenCount),
    mode: WINDOW_MODE.number(stats.mode, "mode"),
    limit: BigInt(stats.limit),
    limitUsedPercent: stats.limitUsedPercent,
    leftOut: {
      limitCount: BigInt(leftOut.limitCount),
      limitFromSeq: BigInt(leftOut.limitFromSeq),
      limitToSeq: BigInt(leftOut.limitToSeq),
      orphanResultCount: BigInt(leftOut.orphanResultCount),
      openToolCallCount: BigInt(leftOut.openToolCallCount),
      messages: leftOut.messages.map(({ seq, reason }) => ({
        seq: BigInt(seq),
        reason: LEFT_OUT_REASON.number(reason, "reason"),
      })),
    },
    uncoveredMessageCount: BigInt(stats.uncoveredMessageCount),
    overLimit: stats.overLimit,
    shortenedSeqs: stats.shortenedSeqs.map(BigInt),
    summaryState: SUMMARY_STATE.number(stats.summaryState, "summaryState"),
    summaryId: stats.summaryId,
    summaryFailure: stats.summaryFailure,
    prefixDigest: new Uint8Array(stats.prefixDigest),
    pinnedMessageCount: stats.pinnedMessageCount,
    lastSeq: BigInt(stats.lastSeq),
    firstSeq: BigInt(stats.firstSeq),
  };
}

export function summary(given: Summary): MessageInitShape<typeof SummarySchema> {
  return {
    ...present({ createTime: time(given.createTime), duration: duration(given.durationMs) }),
    id: given.id,
    text: given.text,
    previousId: given.previousId,
    fromSeq: BigInt(given.fromSeq),
    toSeq: BigInt(given.toSeq),
    messageCount: BigInt(given.messageCount),
    coveredFromSeq: BigInt(given.coveredFromSeq),
    coveredMessageCount: BigInt(given.coveredMessageCount),
    summarizer: given.summarizer,
    model: given.model,
    inputTokenCount: BigInt(given.inputTokenCount),
    outputTokenCount: BigInt(given.outputTokenCount),
    current: given.current,
    originalsRemoved: given.originalsRemoved,
  };
}

export function summaryTask(task: SummaryTask): MessageInitShape<typeof SummaryTaskSchema> {
  return {
    ...present({ expireTime: time(task.expires) }),
    session: { agent: task.agent, sessionId: task.sessionId },
    previousSummary: task.previous,
    ...messages(task.messages),
    instructions: task.instructions,
    input: task.input,
    targetTokens: BigInt(task.targetTokens),
    maxTokens: BigInt(task.maxTokens),
    attempts: task.attempts,
  };
}

export function rendered(context: MemoryContext): MessageInitShape<typeof RenderedSchema> {
  return {
    prompt: context.prompt,
    context: {
      state: context.enabled ? MemoryContextState.ENABLED : MemoryContextState.DISABLED,
      block: context.block,
      instructions: context.instructions,
      user: tier(context.user),
      project: tier(context.project),
      warnings: [...context.warnings],
      tools: context.tools.names.map((name) => ({ name })),
    },
  };
}

function tier({ state, keptLines, droppedLines }: TierStatus): MessageInitShape<typeof MemoryTierStatusSchema> {
  return { state: TIER_STATE.number(state, "state"), keptLineCount: keptLines, droppedLineCount: droppedLines };
}

export function memoryFile(info: MemoryFileInfo): MessageInitShape<typeof MemoryFileSchema> {
  const { name, version, etag, size, author, createTime } = info;
  return { ...present({ createTime: time(createTime) }), name, version: BigInt(version), etag, size: BigInt(size), author };
}

export function run(info: RunInfo): MessageInitShape<typeof RunSchema> {
  return {
    ...present({
      leaseExpireTime: time(info.leaseExpires),
      createTime: time(info.created),
      updateTime: time(info.updated),
      endTime: time(info.ended),
    }),
    key: { session: { agent: info.agent, sessionId: info.sessionId }, runId: info.id },
    status: RUN_STATUS.number(info.status, "status"),
    statusReason: info.reason,
    metadata: info.metadata,
    holder: info.holder,
    stepCount: BigInt(info.steps),
    recoveryCount: info.recoveries,
    etag: info.etag,
  };
}

export function runs(...given: RunInfo[]): { runs: MessageInitShape<typeof RunSchema>[] } {
  return { runs: given.map(run) };
}

export function runStep(step: RunStep): MessageInitShape<typeof RunStepSchema> {
  return {
    ...present({ createTime: time(step.createTime) }),
    number: BigInt(step.number),
    payload: new Uint8Array(step.payload),
    contentType: step.contentType,
    firstSeq: BigInt(step.firstSeq),
    messageCount: step.messageCount,
    status: RUN_STATUS.number(step.status, "status"),
  };
}

export function runSteps(...given: RunStep[]): { steps: MessageInitShape<typeof RunStepSchema>[] } {
  return { steps: given.map(runStep) };
}

export function heldRun(held: Run): MessageInitShape<typeof HeldRunSchema> {
  return {
    key: { session: { agent: held.session.agent, sessionId: held.session.id }, runId: held.id },
    status: RUN_STATUS.number(held.status, "status"),
    stepCount: BigInt(held.steps),
    fence: held.fence,
    holder: held.holder,
    metadata: held.metadata,
    isHeld: held.isHeld,
  };
}

export function agent(info: AgentInfo): MessageInitShape<typeof AgentSchema> {
  const retention = info.runRetentionMs === FOREVER ? 0 : info.runRetentionMs;
  return {
    ...present({ updateTime: time(info.updateTime), runRetention: duration(retention) }),
    agent: info.agent,
    policy: policyToProto(info.policy),
    etag: info.etag,
    loadMemory: info.loadMemory,
  };
}

export function stores(...given: StoreInfo[]): { stores: MessageInitShape<typeof StoreSchema>[] } {
  return {
    stores: given.map((store) => ({ ...store, capabilities: store.capabilities.map((capability) => ({ ...capability })) })),
  };
}

/** An error of the SDK, as it has it; undefined for one that is none of the SDK's. */
export function failure(error: unknown): MessageInitShape<typeof FailureSchema> | undefined {
  if (error instanceof MemorydError) {
    return {
      ...present({ retryAfter: duration(error.retryAfterMs) }),
      reason: ErrorReason[error.reason as keyof typeof ErrorReason] ?? ErrorReason.UNSPECIFIED,
      code: error.code,
      message: error.text,
      field: error instanceof InvalidArgumentError ? error.field : "",
      metadata: { ...error.metadata },
      type: error.name,
    };
  }
  // What the SDK refuses by itself.
  if (error instanceof TypeError || error instanceof RangeError) return { message: error.message, type: error.name };
  return undefined;
}
