// From the API's types to the SDK's.

import type { Duration, Timestamp } from "@bufbuild/protobuf/wkt";

import {
  LEFT_OUT_REASON,
  OPEN_CALLS,
  OVERSIZE,
  RETENTION,
  ROLE,
  RUN_STATUS,
  SUMMARY_STATE,
  TIER_STATE,
  TOKENIZER,
  WATCH_EVENT_KIND,
  WINDOW_MODE,
} from "./enums.js";
import { AnswerUnreadableError } from "./errors.js";
import type { Agent as ApiAgent } from "./gen/memoryd/v1/agent_service_pb.js";
import type { AppendedMessage as ApiAppended, WatchEvent as ApiWatchEvent } from "./gen/memoryd/v1/history_service_pb.js";
import {
  type MemoryFile as ApiMemoryFile,
  MemoryTierState,
  type MemoryTierStatus,
} from "./gen/memoryd/v1/memory_context_service_pb.js";
import type { Message as ApiMessage, Part as ApiPart } from "./gen/memoryd/v1/message_pb.js";
import type {
  Policy as ApiPolicy,
  SummaryPolicy as ApiSummaryPolicy,
  WindowOptions as ApiWindowOptions,
} from "./gen/memoryd/v1/policy_pb.js";
import type { Run as ApiRun, RunStep as ApiRunStep } from "./gen/memoryd/v1/run_service_pb.js";
import type { Session as ApiSession } from "./gen/memoryd/v1/session_pb.js";
import type { Store as ApiStore } from "./gen/memoryd/v1/store_service_pb.js";
import type { Summary as ApiSummary } from "./gen/memoryd/v1/summary_service_pb.js";
import type { LeftOut as ApiLeftOut, WindowStats as ApiWindowStats } from "./gen/memoryd/v1/window_service_pb.js";
import { type AgentInfo, type AppendedMessage, FOREVER, type SessionInfo, type WatchEvent } from "./histories.js";
import type { MemoryFileInfo, TierStatus } from "./memories.js";
import type { Message, Part, ResultPart } from "./messages.js";
import type { Policy, SummaryPolicy, WindowOptions } from "./policies.js";
import { type RunInfo, RunStep } from "./runs.js";
import type { StoreInfo, Summary } from "./stores.js";
import type { LeftOut, WindowStats } from "./windows.js";

/**
 * A time, cut to a millisecond; that of an unset field is the epoch. It is not rounded up: what is listed from a message's time on
 * holds the message.
 */
export function moment(timestamp: Timestamp | undefined): Date {
  if (timestamp === undefined) return new Date(0);
  return new Date(Number(timestamp.seconds) * 1000 + Math.floor(timestamp.nanos / 1e6));
}

function momentIfSet(timestamp: Timestamp | undefined): Date | undefined {
  return timestamp === undefined ? undefined : moment(timestamp);
}

function span(duration: Duration | undefined): number {
  return duration === undefined ? 0 : Number(duration.seconds) * 1000 + duration.nanos / 1e6;
}

/** A message of the API. AnswerUnreadableError for a role or a part that this SDK does not know. */
export function messageFromProto(message: ApiMessage): Message {
  const role = ROLE.known(message.role);
  if (role === undefined) {
    throw unreadable(`the role ${message.role} of message ${message.id || message.seq.toString()}`);
  }
  const { redaction } = message;
  return {
    role,
    content: message.content?.parts.map(part),
    name: message.name,
    runId: message.runId,
    metadata: message.metadata,
    extra: message.extra,
    id: message.id,
    seq: Number(message.seq),
    createTime: momentIfSet(message.createTime),
    tokenCount: Number(message.tokenCount),
    redaction:
      redaction === undefined ? undefined : { redactTime: moment(redaction.redactTime), reason: redaction.reason },
  };
}

function part({ kind }: ApiPart): Part {
  switch (kind.case) {
    case "reasoning":
      return { type: "reasoning", text: kind.value.text, signature: kind.value.signature };
    case "toolCall":
      return { type: "tool_call", id: kind.value.id, name: kind.value.name, arguments: kind.value.arguments };
    case "toolResult": {
      const { callId, name, isError, parts } = kind.value;
      return { type: "tool_result", callId, name, isError, parts: parts.map(resultPart) };
    }
    default:
      return resultPart({ kind });
  }
}

function resultPart({ kind }: Pick<ApiPart, "kind">): ResultPart {
  switch (kind.case) {
    case "text":
      return { type: "text", text: kind.value };
    case "refusal":
      return { type: "refusal", text: kind.value };
    case "media": {
      const { type: mediaType, source, size } = kind.value;
      if (source.case === undefined) throw unreadable("a source of media");
      const place = source.case === "uri" ? { uri: source.value } : { data: source.value };
      return { type: "media", mediaType, ...place, size: Number(size) };
    }
    case "data":
      return { type: "data", json: kind.value };
    default:
      throw unreadable("a kind of message part");
  }
}

function unreadable(what: string): AnswerUnreadableError {
  return new AnswerUnreadableError(
    `the server sent ${what} that this SDK does not know; a newer one may: npm install memoryd@latest`,
    { code: "UNIMPLEMENTED" },
  );
}

/** What became of an appended message. */
export function appendedFromProto(message: ApiAppended): AppendedMessage {
  return {
    id: message.id,
    seq: Number(message.seq),
    createTime: moment(message.createTime),
    tokenCount: Number(message.tokenCount),
    memoryContextRemoved: message.memoryContextRemoved,
  };
}

function windowOptions(options: ApiWindowOptions | undefined): WindowOptions {
  if (options === undefined) return {};
  const { mode, limit, pinSystem, startWithUser, openCalls, oversize } = options;
  // UNSPECIFIED is the same as absent.
  return {
    ...(mode ? { mode: WINDOW_MODE.word(mode) } : {}),
    ...(limit === undefined ? {} : { limit: Number(limit) }),
    ...(pinSystem === undefined ? {} : { pinSystem }),
    ...(startWithUser === undefined ? {} : { startWithUser }),
    ...(openCalls ? { openCalls: OPEN_CALLS.word(openCalls) } : {}),
    ...(oversize ? { oversize: OVERSIZE.word(oversize) } : {}),
  };
}

/** A policy of the API; an empty one where there is none. */
export function policyFromProto(given: ApiPolicy | undefined): Policy {
  return {
    window: windowOptions(given?.window),
    ...(given?.summary === undefined ? {} : { summary: summaryPolicy(given.summary) }),
  };
}

function summaryPolicy(given: ApiSummaryPolicy): SummaryPolicy {
  const { enabled, summarizer, maxTokens, keep, retention, wait } = given;
  return {
    ...(enabled === undefined ? {} : { enabled }),
    summarizer,
    ...(maxTokens === undefined ? {} : { maxTokens: Number(maxTokens) }),
    ...(keep === undefined ? {} : { keep: Number(keep) }),
    ...(retention ? { retention: RETENTION.word(retention) } : {}),
    ...(wait === undefined ? {} : { wait }),
  };
}

/** A summary of the API. */
export function summaryFromProto(summary: ApiSummary): Summary {
  return {
    id: summary.id,
    text: summary.text,
    previousId: summary.previousId,
    fromSeq: Number(summary.fromSeq),
    toSeq: Number(summary.toSeq),
    messageCount: Number(summary.messageCount),
    coveredFromSeq: Number(summary.coveredFromSeq),
    coveredMessageCount: Number(summary.coveredMessageCount),
    summarizer: summary.summarizer,
    model: summary.model,
    inputTokenCount: Number(summary.inputTokenCount),
    outputTokenCount: Number(summary.outputTokenCount),
    createTime: moment(summary.createTime),
    durationMs: span(summary.duration),
    current: summary.current,
    originalsRemoved: summary.originalsRemoved,
  };
}

/** A session of the API. */
export function sessionInfoFromProto(session: ApiSession): SessionInfo {
  return {
    agent: session.key?.agent ?? "",
    sessionId: session.key?.sessionId ?? "",
    userId: session.userId,
    labels: { ...session.labels },
    policy: policyFromProto(session.policy),
    tokenizer: TOKENIZER.word(session.tokenizer),
    messageCount: Number(session.messageCount),
    tokenCount: Number(session.tokenCount),
    openMessageCount: Number(session.openMessageCount),
    orphanMessageCount: Number(session.orphanMessageCount),
    openCallCount: session.openCallCount,
    unfinishedRunCount: session.unfinishedRunCount,
    lastSeq: Number(session.lastSeq),
    createTime: momentIfSet(session.createTime),
    activityTime: momentIfSet(session.activityTime),
    etag: session.etag,
    ttlMs: session.ttl === undefined ? undefined : span(session.ttl),
    expireTime: momentIfSet(session.expireTime),
  };
}

/** An event of the API. */
export function watchEventFromProto(event: ApiWatchEvent): WatchEvent {
  return {
    kind: WATCH_EVENT_KIND.word(event.kind),
    fromSeq: Number(event.fromSeq),
    toSeq: Number(event.toSeq),
    message: event.message === undefined ? undefined : messageFromProto(event.message),
    eventTime: momentIfSet(event.eventTime),
    resumeToken: event.resumeToken,
  };
}

/** An agent of the API. */
export function agentInfoFromProto(agent: ApiAgent): AgentInfo {
  const retention = agent.runRetention;
  return {
    agent: agent.agent,
    policy: policyFromProto(agent.policy),
    updateTime: momentIfSet(agent.updateTime),
    etag: agent.etag,
    loadMemory: agent.loadMemory ?? false,
    runRetentionMs: retention === undefined ? undefined : span(retention) || FOREVER,
  };
}

/** A tier of rendered memory; what is told of none is absent. */
export function tierStatusFromProto(status: MemoryTierStatus | undefined): TierStatus {
  return {
    state: TIER_STATE.word(status?.state || MemoryTierState.ABSENT),
    keptLines: status?.keptLineCount ?? 0,
    droppedLines: status?.droppedLineCount ?? 0,
  };
}

/** What is told of a memory file. */
export function memoryFileInfoFromProto(file: ApiMemoryFile | undefined): MemoryFileInfo {
  return {
    name: file?.name ?? "",
    version: Number(file?.version ?? 0),
    etag: file?.etag ?? "",
    size: Number(file?.size ?? 0),
    author: file?.author ?? "",
    createTime: moment(file?.createTime),
  };
}

/** A run of the API. */
export function runInfoFromProto(run: ApiRun): RunInfo {
  return {
    agent: run.key?.session?.agent ?? "",
    sessionId: run.key?.session?.sessionId ?? "",
    id: run.key?.runId ?? "",
    status: RUN_STATUS.word(run.status),
    reason: run.statusReason,
    metadata: run.metadata ?? "",
    holder: run.holder,
    steps: Number(run.stepCount),
    recoveries: run.recoveryCount,
    leaseExpires: momentIfSet(run.leaseExpireTime),
    created: moment(run.createTime),
    updated: moment(run.updateTime),
    ended: momentIfSet(run.endTime),
    etag: run.etag,
  };
}

/** A step of a run. */
export function runStepFromProto(step: ApiRunStep): RunStep {
  return new RunStep({
    number: Number(step.number),
    payload: step.payload,
    contentType: step.contentType,
    firstSeq: Number(step.firstSeq),
    messageCount: step.messageCount,
    createTime: moment(step.createTime),
    status: RUN_STATUS.word(step.status),
  });
}

/** A store of the API. */
export function storeInfoFromProto(store: ApiStore): StoreInfo {
  return {
    name: store.name,
    type: store.type,
    reachable: store.reachable,
    durable: store.durable,
    default: store.default,
    capabilities: store.capabilities.map(({ name, supported, reason }) => ({ name, supported, reason })),
  };
}

/** Window stats of the API. */
export function windowStatsFromProto(stats: ApiWindowStats): WindowStats {
  return {
    historyMessageCount: Number(stats.historyMessageCount),
    historyTokenCount: Number(stats.historyTokenCount),
    windowMessageCount: Number(stats.windowMessageCount),
    windowTokenCount: Number(stats.windowTokenCount),
    mode: WINDOW_MODE.word(stats.mode),
    limit: Number(stats.limit),
    limitUsedPercent: stats.limitUsedPercent,
    leftOut: leftOut(stats.leftOut),
    uncoveredMessageCount: Number(stats.uncoveredMessageCount),
    overLimit: stats.overLimit,
    shortenedSeqs: stats.shortenedSeqs.map(Number),
    summaryState: SUMMARY_STATE.word(stats.summaryState),
    summaryId: stats.summaryId,
    summaryFailure: stats.summaryFailure,
    prefixDigest: stats.prefixDigest,
    pinnedMessageCount: stats.pinnedMessageCount,
    lastSeq: Number(stats.lastSeq),
    firstSeq: Number(stats.firstSeq),
  };
}

function leftOut(given: ApiLeftOut | undefined): LeftOut {
  return {
    limitCount: Number(given?.limitCount ?? 0),
    limitFromSeq: Number(given?.limitFromSeq ?? 0),
    limitToSeq: Number(given?.limitToSeq ?? 0),
    orphanResultCount: Number(given?.orphanResultCount ?? 0),
    openToolCallCount: Number(given?.openToolCallCount ?? 0),
    messages: (given?.messages ?? []).map(({ seq, reason }) => ({ seq: Number(seq), reason: LEFT_OUT_REASON.word(reason) })),
  };
}
