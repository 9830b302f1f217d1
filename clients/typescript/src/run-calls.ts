// What the operations on runs do.
//
// A run's claim by name and its end are repeated here and not by the connection, since each must be looked at in between: by
// reading the run, whose own tries bring the pauses.

import { create, type MessageInitShape } from "@bufbuild/protobuf";

import { options as checked, string } from "./arguments.js";
import type { Operation } from "./connection.js";
import { runInfoFromProto } from "./decoding.js";
import { duration, messageToProto, sessionSettingsToProto } from "./encoding.js";
import { RUN_STATUS } from "./enums.js";
import { RunEndedError, RunLeaseLostError, UnavailableError } from "./errors.js";
import {
  type ClaimRunRequest,
  ClaimRunRequestSchema,
  type ClaimRunResponse,
  CommitRunStepRequestSchema,
  type CreateRunRequest,
  CreateRunRequestSchema,
  GetRunRequestSchema,
  ListRunStepsRequestSchema,
  type ListRunStepsResponse,
  type RunKey,
  RunKeySchema,
  RunService,
  RunStatus as ApiRunStatus,
  type RunStep as ApiRunStep,
  RunStepSchema,
  type UpdateRunRequest,
  UpdateRunRequestSchema,
} from "./gen/memoryd/v1/run_service_pb.js";
import type { SessionKey } from "./gen/memoryd/v1/session_pb.js";
import type { SessionSettings } from "./histories.js";
import { jsonText } from "./json-text.js";
import type { Message } from "./messages.js";
import type { Payload, RunInfo, RunStatus } from "./runs.js";
import { paths } from "./session.js";
import { utf8Bytes } from "./utf8.js";

/**
 * How often a run is claimed by name, or ended, while the server is unavailable. Before each further try the run is read, which
 * is tried again by itself, with pauses.
 */
const TRIES = 3;
const METADATA = '{"goal": "book a flight"}';
const HOLDER = "worker-7";

const { method } = RunService;

/** The key of a run. */
export function runKey(session: SessionKey, id: string): RunKey {
  return create(RunKeySchema, { session, runId: string(id, "id", "run-7") });
}

/** The request for a run that its maker holds, or for one that any worker may claim. */
export function creation(
  run: RunKey,
  given: { metadata?: string | undefined; create?: SessionSettings | undefined; holder?: string; leaseMs?: number },
): CreateRunRequest {
  const { metadata, create: settings, holder, leaseMs } = given;
  return create(CreateRunRequestSchema, {
    run,
    metadata: string(metadata ?? "", "metadata", METADATA),
    ...(holder === undefined ? { queued: true } : { holder: string(holder, "holder", HOLDER) }),
    ...(leaseMs === undefined ? {} : { leaseDuration: duration(leaseMs, "leaseMs") }),
    ...(settings === undefined ? {} : { create: sessionSettingsToProto(settings) }),
  });
}

/** The request for a named run, or for any claimable one of an agent. */
export function claim(
  of: RunKey | string,
  given: { holder: string; leaseMs: number; requestId?: string },
): ClaimRunRequest {
  const whose: MessageInitShape<typeof ClaimRunRequestSchema>["of"] =
    typeof of === "object" ? { case: "run", value: of } : { case: "agent", value: string(of, "agent", "assistant") };
  return create(ClaimRunRequestSchema, {
    of: whose,
    holder: string(given.holder, "holder", HOLDER),
    leaseDuration: duration(given.leaseMs, "leaseMs"),
    requestId: given.requestId ?? "",
  });
}

/** Claims a named run. A try whose answer was lost is recognized by the request id. */
export async function claimedByName(operation: Operation, request: ClaimRunRequest): Promise<ClaimRunResponse> {
  for (let triesLeft = TRIES - 1; ; triesLeft -= 1) {
    try {
      return await operation.call(method.claimRun, request);
    } catch (error) {
      if (!(error instanceof UnavailableError) || triesLeft === 0) throw error;
    }
    await operation.call(method.getRun, create(GetRunRequestSchema, { run: request.of.value as RunKey }));
  }
}

/** Changes what is given, if the run is still as it was read. */
export function update(
  info: RunInfo,
  changes: { status?: RunStatus | undefined; reason?: string | undefined; metadata?: string | undefined },
): UpdateRunRequest {
  const { agent, sessionId, id, etag } = checked(info, "info") as RunInfo;
  if (typeof etag !== "string") throw new TypeError("info is no run; give what getRun or runs told");
  const { status, reason, metadata } = changes;
  return create(UpdateRunRequestSchema, {
    run: {
      key: runKey({ $typeName: "memoryd.v1.SessionKey", agent, sessionId }, id),
      status: RUN_STATUS.number(status ?? "unspecified", "status"),
      statusReason: string(reason ?? "", "reason", "approved by mia"),
      ...(metadata === undefined ? {} : { metadata: string(metadata, "metadata", METADATA) }),
      etag,
    },
    updateMask: { paths: paths({ status, status_reason: reason || undefined, metadata }) },
  });
}

/** Reads a run. */
export async function get(operation: Operation, run: RunKey): Promise<RunInfo> {
  const response = await operation.call(method.getRun, create(GetRunRequestSchema, { run }));
  return runInfoFromProto(response.run!);
}

/** A page of a run's steps. */
export function stepsPage(
  operation: Operation,
  query: { run: RunKey; afterNumber: bigint; pageSize: number; pageToken: string },
): Promise<ListRunStepsResponse> {
  return operation.call(method.listRunSteps, create(ListRunStepsRequestSchema, query));
}

/** A step to commit. */
export interface Step {
  readonly run: RunKey;
  readonly fence: string;
  readonly number: number;
  readonly payload: Payload;
  readonly contentType?: string | undefined;
  readonly messages: readonly Message[];
  readonly status?: RunStatus | undefined;
  readonly reason?: string | undefined;
}

/** Commits a step, and gives it as it was committed. */
export async function commitStep(operation: Operation, step: Step): Promise<ApiRunStep> {
  const [payload, itsType] = encodedPayload(step.payload);
  const contentType =
    step.contentType === undefined ? itsType : string(step.contentType, "contentType", "application/json");
  const number = BigInt(step.number);
  const request = create(CommitRunStepRequestSchema, {
    run: step.run,
    fence: step.fence,
    number,
    payload,
    contentType,
    messages: step.messages.map(messageToProto),
    status: RUN_STATUS.number(step.status ?? "unspecified", "status"),
    statusReason: string(step.reason ?? "", "reason", "the card was declined"),
  });
  const response = await operation.call(method.commitRunStep, request);
  return create(RunStepSchema, {
    number,
    payload,
    contentType,
    ...(response.createTime === undefined ? {} : { createTime: response.createTime }),
    firstSeq: response.messages[0]?.seq ?? 0n,
    messageCount: response.messages.length,
    status: request.status || ApiRunStatus.RUNNING,
  });
}

/** The bytes of a payload, and what they are. TypeError for what JSON cannot hold. */
export function encodedPayload(payload: Payload): [Uint8Array<ArrayBuffer>, string] {
  if (payload instanceof Uint8Array) return [new Uint8Array(payload), ""];
  const isText = typeof payload === "string";
  const text = isText ? string(payload, "payload", "Paris it is.") : jsonText(payload);
  return [utf8Bytes(text) as Uint8Array<ArrayBuffer>, isText ? "text/plain; charset=utf-8" : "application/json"];
}

/**
 * Gives a held run another status, and its lease back. A try whose answer was lost may have done it: the run then has the status
 * already, and a further try is refused.
 */
export async function settle(
  operation: Operation,
  run: RunKey,
  fence: string,
  status: RunStatus,
  reason: string,
): Promise<void> {
  const request = create(UpdateRunRequestSchema, {
    run: { key: run, status: RUN_STATUS.number(status, "status"), statusReason: string(reason, "reason", "no seats") },
    updateMask: { paths: ["status", "status_reason"] },
    fence,
  });
  const stands = async (): Promise<boolean> => {
    const found = await get(operation, run);
    return found.status === status && found.reason === reason;
  };
  let isDoubtful = false;
  for (let triesLeft = TRIES - 1; ; triesLeft -= 1) {
    try {
      await operation.call(method.updateRun, request);
      return;
    } catch (error) {
      if (error instanceof UnavailableError) {
        if (triesLeft === 0) throw error;
        if (await stands()) return;
        isDoubtful = true;
      } else {
        const isLost = error instanceof RunLeaseLostError || error instanceof RunEndedError;
        if (isLost && isDoubtful && (await stands())) return;
        throw error;
      }
    }
  }
}
