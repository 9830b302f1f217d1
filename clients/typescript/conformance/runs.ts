// Commands on runs.

import { RUN_STATUS } from "../src/enums.js";
import type { EndStatus, HoldOptions, StatusOptions, UpdateRunOptions, WaitingStatus } from "../src/index.js";
import * as answers from "./answers.js";
import type { BeginRun, ClaimRun, EndRun } from "./gen/tests/conformance/conformance_pb.js";
import { messages, milliseconds, payload, read, settings } from "./givens.js";
import { HeldRun } from "./held-run.js";
import type { Operations } from "./operations.js";

/** Milliseconds between two questions for a run to claim. */
const POLL_MS = 50;

export const RUNS: Operations<
  | "enqueueRun"
  | "getRun"
  | "listRuns"
  | "updateRun"
  | "deleteRun"
  | "listRunSteps"
  | "beginRun"
  | "claimRun"
  | "lookAtRun"
  | "commitRunStep"
  | "resumeRun"
  | "pauseRun"
  | "finishRun"
  | "leaveRun"
> = {
  async enqueueRun(client, { run, metadata, create }, call) {
    const options = { ...call, id: run?.runId || undefined, metadata, create: settings(create) };
    return { runs: answers.runs(await client.memory.enqueueRun(client.session(run?.session), options)) };
  },

  async getRun(client, { run }, call) {
    return { runs: answers.runs(await client.memory.getRun(client.session(run?.session), run?.runId ?? "", call)) };
  },

  async listRuns(client, { of, statuses, pageSize }, call) {
    const whose = of.case === "session" ? { session: client.session(of.value) } : { agent: of.value ?? "" };
    const words = statuses.map((status) => RUN_STATUS.word(status));
    return { runs: answers.runs(...(await read(client.memory.runs({ ...call, ...whose, statuses: words, pageSize })))) };
  },

  async updateRun(client, { run, updateMask }, call) {
    const changes = new Set(updateMask?.paths);
    const info = await client.memory.getRun(client.session(run?.key?.session), run?.key?.runId ?? "", call);
    const status = changes.has("status") ? RUN_STATUS.word(run?.status ?? 0) : undefined;
    const updated = await client.memory.updateRun(
      { ...info, etag: run?.etag || info.etag },
      {
        ...call,
        status: status as UpdateRunOptions["status"],
        reason: changes.has("status_reason") ? run?.statusReason : undefined,
        metadata: changes.has("metadata") ? (run?.metadata ?? "") : undefined,
      },
    );
    return { runs: answers.runs(updated) };
  },

  async deleteRun(client, { run }, call) {
    return { flag: await client.memory.deleteRun(client.session(run?.session), run?.runId ?? "", call) };
  },

  async listRunSteps(client, { run, afterNumber, pageSize }, call) {
    const options = { ...call, after: afterNumber, pageSize };
    const steps = await read(client.memory.runSteps(client.session(run?.session), run?.runId ?? "", options));
    return { runSteps: answers.runSteps(...steps) };
  },

  async beginRun(client, given) {
    const { name, run, metadata } = given;
    const stopping = new AbortController();
    const options = { ...hold(given, stopping), id: run?.runId || undefined, metadata };
    const held = await HeldRun.begin(client.memory.run(client.session(run?.session), options), stopping);
    client.runs.set(name, held);
    return { heldRun: answers.heldRun(held.run) };
  },

  async claimRun(client, given) {
    const { name, of, patience } = given;
    const stopping = new AbortController();
    const options = hold(given, stopping);
    if (of.case === "run") {
      const named = client.memory.claim(client.session(of.value.session), of.value.runId, options);
      const held = await HeldRun.begin(named, stopping);
      client.runs.set(name, held);
      return { heldRun: answers.heldRun(held.run) };
    }
    const claims = client.memory.claims(of.value ?? "", { ...options, pollMs: POLL_MS });
    const timer = patience && setTimeout(() => void claims.close(), milliseconds(patience));
    try {
      for await (const run of claims) {
        const held = await HeldRun.begin(run, stopping);
        client.runs.set(name, held);
        return { heldRun: answers.heldRun(run) };
      }
    } finally {
      clearTimeout(timer);
    }
    return {};
  },

  lookAtRun(client, { name }) {
    return Promise.resolve({ heldRun: answers.heldRun(client.runs.get(name).run) });
  },

  async commitRunStep(client, { name, payload: given, messages: produced }, call) {
    const options = { ...call, messages: messages(produced), contentType: given?.contentType || undefined };
    return { runSteps: answers.runSteps(await client.runs.get(name).run.step(payload(given), options)) };
  },

  async resumeRun(client, { name }, call) {
    const step = await client.runs.get(name).run.resume(call);
    return { runSteps: answers.runSteps(...(step === undefined ? [] : [step])) };
  },

  async pauseRun(client, given, call) {
    const { run } = client.runs.get(given.name);
    await run.pause(RUN_STATUS.word(given.status) as WaitingStatus, { ...call, ...ending(given) });
    return { heldRun: answers.heldRun(run) };
  },

  async finishRun(client, given, call) {
    const { run } = client.runs.get(given.name);
    await run.finish(RUN_STATUS.word(given.status) as EndStatus, { ...call, ...ending(given) });
    return { heldRun: answers.heldRun(run) };
  },

  async leaveRun(client, { name, how }) {
    await client.runs.take(name).leave(how);
    return { done: {} };
  },
};

function hold({ holder, lease }: BeginRun | ClaimRun, stopping: AbortController): HoldOptions {
  return { holder: holder || undefined, leaseMs: milliseconds(lease), signal: stopping.signal };
}

function ending({ reason, payload: given, messages: produced }: EndRun): StatusOptions {
  return {
    reason,
    payload: payload(given),
    contentType: given?.contentType || undefined,
    messages: messages(produced),
  };
}
