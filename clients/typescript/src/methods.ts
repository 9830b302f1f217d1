// Which methods of the API are tried again on UNAVAILABLE.

import type { DescMethod } from "@bufbuild/protobuf";

import { AgentService } from "./gen/memoryd/v1/agent_service_pb.js";
import { HistoryService } from "./gen/memoryd/v1/history_service_pb.js";
import { MemoryContextService } from "./gen/memoryd/v1/memory_context_service_pb.js";
import { RunService } from "./gen/memoryd/v1/run_service_pb.js";
import { StoreService } from "./gen/memoryd/v1/store_service_pb.js";
import { SummaryService } from "./gen/memoryd/v1/summary_service_pb.js";
import { WindowService } from "./gen/memoryd/v1/window_service_pb.js";

/** The services of the API. */
export const SERVICES = [
  HistoryService,
  WindowService,
  SummaryService,
  MemoryContextService,
  RunService,
  AgentService,
  StoreService,
] as const;

const { method: history } = HistoryService;
const { method: summaries } = SummaryService;
const { method: memory } = MemoryContextService;
const { method: runs } = RunService;

/**
 * Not tried again are: an update, since a repeat could undo another caller's later one (or, with an etag or a fence, fail
 * against its own first try); the clear of an agent, whose second answer would count nothing; the deletion of a memory file
 * or a run, which could take away one that was made meanwhile; a summarization, since each try may ask a model; the revert
 * of a summary; a lease of a summary task, and a claim, which without a run's name would claim another. A watch resumes by
 * itself, behind what it has seen, and `run-calls.ts` says how a run's claim and end are repeated.
 *
 * All others are reads, or what a repeat does not change: an append is recognized by the ids of its messages; a clear, a
 * rewind, a fork and a write of a memory file by the request id that the SDK makes; a run that begins by its id, its steps
 * by their numbers.
 */
const ONCE: ReadonlySet<DescMethod> = new Set<DescMethod>([
  history.updateSession,
  history.clearAgentHistory,
  history.watchMessages,
  AgentService.method.updateAgent,
  summaries.summarize,
  summaries.revertSummary,
  summaries.leaseSummaryTask,
  memory.deleteMemoryFile,
  runs.updateRun,
  runs.claimRun,
  runs.deleteRun,
]);

/** Whether a method is tried again while the server is unavailable. */
export function isRetried(method: DescMethod): boolean {
  return !ONCE.has(method);
}
