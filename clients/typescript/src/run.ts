// Runs that are worked at: what a holder knows of its run and its lease, what becomes of them, and how a worker asks for the
// next run.

import { hostname } from "node:os";

import { create } from "@bufbuild/protobuf";
import type { Metadata } from "@grpc/grpc-js";

import { milliseconds, oneOf, options as checked } from "./arguments.js";
import { type CallOptions, callOptions, type Connection, type Lease, type Operation, RELEASE_MS } from "./connection.js";
import { runStepFromProto } from "./decoding.js";
import { RUN_STATUS } from "./enums.js";
import { MemorydError, NotFoundError, RunEndedError, RunLeaseLostError } from "./errors.js";
import {
  type ClaimRunRequest,
  ClaimRunRequestSchema,
  type ClaimRunResponse,
  type CreateRunRequest,
  type CreateRunResponse,
  ReleaseRunRequestSchema,
  RenewRunLeaseRequestSchema,
  type RunKey,
  RunService,
} from "./gen/memoryd/v1/run_service_pb.js";
import { duration } from "./encoding.js";
import type { SessionSettings } from "./histories.js";
import type { Message } from "./messages.js";
import { between, Outage, pause } from "./outages.js";
import * as calls from "./run-calls.js";
import type { Payload, RunStatus, RunStep } from "./runs.js";
import { Session } from "./session.js";
import { cutToBytes } from "./utf8.js";

/** Milliseconds for which a run is held unless its lease is renewed. */
export const DEFAULT_LEASE_MS = 30_000;
/** Milliseconds, on average, between two questions for a run to claim while there is none. */
const DEFAULT_POLL_MS = 1_000;
/** What recording how a run stands may take once its worker is told to stop; otherwise its lease ends by itself. */
const DRAIN_MS = 10_000;
/** Milliseconds, at most, before a renewal that failed is tried again; a tenth of the lease where that is less. */
const LONGEST_RETRY_MS = 1_000;
/** The most of a reason that the server takes. */
const REASON_BYTES = 4_096;
/** The most of a holder's name that the server takes. */
const HOLDER_BYTES = 256;

/** A status with which a run waits. */
export type WaitingStatus = "awaiting_approval" | "awaiting_budget" | "interrupted";
/** A status with which a run ends. */
export type EndStatus = "completed" | "blocked" | "failed" | "cancelled" | "timeout" | "abandoned";

const WAITING: readonly WaitingStatus[] = ["awaiting_approval", "awaiting_budget", "interrupted"];
const ENDED: readonly EndStatus[] = ["completed", "blocked", "failed", "cancelled", "timeout", "abandoned"];

/** How a run is held. */
export interface HoldOptions {
  /** Who holds it, for people to read, at most 256 bytes; without it this machine and process. */
  readonly holder?: string | undefined;
  /**
   * The milliseconds, 1,000 to 3,600,000, after which another worker may claim it if this one was not heard of; 30,000 by
   * default. It is renewed every third of that.
   */
  readonly leaseMs?: number | undefined;
  /** Tells the work to stop: the run is INTERRUPTED then, so that another worker goes on behind its last step. */
  readonly signal?: AbortSignal | undefined;
}

/** What a new run takes. */
export interface RunOptions extends HoldOptions {
  /** The run's id, unique within its session, at most 256 bytes; without it one is made: read it from `Run.id`. */
  readonly id?: string | undefined;
  /** Data of yours: text, JSON by convention, at most 64 KiB. */
  readonly metadata?: string | undefined;
  /** Settings for a session that this run begins; ignored when it exists. */
  readonly create?: SessionSettings | undefined;
}

/** How runs are claimed. */
export interface ClaimsOptions extends HoldOptions {
  /**
   * The milliseconds between two questions while there is none, on average, 1,000 by default: each pause is drawn from half of
   * it to one and a half.
   */
  readonly pollMs?: number | undefined;
}

/** What a step takes. */
export interface StepOptions extends CallOptions {
  /** At most 256, together at most 3.5 MiB. They get the run's id as `runId`. */
  readonly messages?: Iterable<Message> | undefined;
  /**
   * What the payload is, at most 256 bytes; without it `text/plain; charset=utf-8` of text, `application/json` of what became
   * JSON, and nothing of bytes.
   */
  readonly contentType?: string | undefined;
}

/** What goes with a new status. A payload or messages become a step, in one commit with the status. */
export interface StatusOptions extends StepOptions {
  /** Why, at most 4 KiB. */
  readonly reason?: string | undefined;
  /** What a worker needs to go on behind it. */
  readonly payload?: Payload;
}

type Beginning = CreateRunRequest | ClaimRunRequest;
/** How a run stands to its holder. `released`: left to others without this holder's doing, by its client or its loop. */
type Phase = "new" | "held" | "given back" | "released" | "lost";

const { method } = RunService;

/** Who holds a run, for people to read: machine and process where the caller names nobody. */
export function holderName(given: string | undefined): string {
  return given ?? `${hostname()}:${process.pid}`.slice(-HOLDER_BYTES);
}

/** `Name: message` of an error, cut to what a reason may hold, as UTF-8 can say it. */
function reasonOf(error: unknown): string {
  const text = error instanceof Error ? (error.message ? `${error.name}: ${error.message}` : error.name) : String(error);
  return cutToBytes(text.replaceAll("\0", "\ufffd"), REASON_BYTES);
}

function isLoss(error: unknown): error is MemorydError {
  return error instanceof RunLeaseLostError || error instanceof RunEndedError || error instanceof NotFoundError;
}

/**
 * A run that is worked at. Made by `MemoryClient.run`, `MemoryClient.claim` and `MemoryClient.claims`.
 *
 * ```ts
 * await memory.run(session).work(async (run) => {
 *   const answer = await model.ask("…", { signal: run.signal });
 *   await run.step({ flight: "LH 1" }, { messages: [assistant(answer)] });
 *   await run.pause("awaiting_approval", { reason: "books a flight" });
 * });
 * ```
 *
 * {@link work} begins or claims the run, and renews its lease every third of it while the given function goes on. How that ends
 * is recorded: COMPLETED; FAILED with the error, which goes on; INTERRUPTED when `options.signal` told it to stop, so that
 * another worker goes on behind the last step. After {@link pause} or {@link finish} it changes nothing.
 *
 * When the lease is lost (another worker claimed the run, somebody changed its status, no renewal got through in time, the client
 * was closed), {@link signal} is aborted, nothing of the run can be written any more, and `work` rejects with RunLeaseLostError. A function of
 * JavaScript cannot be stopped from outside: give the signal to what it waits for.
 */
export class Run implements Lease {
  /** The session whose messages the run produces. */
  readonly session: Session;
  /** The run's id, unique within its session. */
  readonly id: string;
  /** Who holds it, for people to read. */
  readonly holder: string;
  readonly #connection: Connection;
  readonly #grpcMetadata: Metadata;
  readonly #beginning: Beginning;
  readonly #key: RunKey;
  readonly #leaseMs: number;
  readonly #outer: AbortSignal | undefined;
  readonly #work = new AbortController();
  readonly #stopped = new AbortController();
  #metadata: string;
  #status: RunStatus = "unspecified";
  #steps = 0;
  #fence = "";
  #until = 0;
  #phase: Phase = "new";
  #isGivingBack = false;
  #failure: MemorydError | undefined;
  #entered = false;
  #turn: Promise<unknown> = Promise.resolve();

  /** @internal */
  constructor(
    connection: Connection,
    metadata: Metadata,
    session: Session,
    beginning: Beginning,
    leaseMs: number,
    signal: AbortSignal | undefined,
  ) {
    this.#connection = connection;
    this.#grpcMetadata = metadata;
    this.session = session;
    this.#beginning = beginning;
    this.#key = (isCreation(beginning) ? beginning.run : beginning.of.value) as RunKey;
    this.id = this.#key.runId;
    this.holder = beginning.holder;
    this.#metadata = isCreation(beginning) ? beginning.metadata : "";
    this.#leaseMs = leaseMs;
    this.#outer = signal;
  }

  /** The caller's own data; of a claimed run, once it is worked at. */
  get metadata(): string {
    return this.#metadata;
  }

  /** How it stood when this holder last changed it; `unspecified` before it is worked at. */
  get status(): RunStatus {
    return this.#status;
  }

  /** How many steps are committed, as far as this holder knows. */
  get steps(): number {
    return this.#steps;
  }

  /**
   * Proves that the run is held. Of two fences of a session, the later one is greater, byte by byte, so that other systems can
   * tell a late write too. Empty before it is worked at.
   */
  get fence(): string {
    return this.#fence;
  }

  /** Aborted when the work is to stop: the run is lost, or `options.signal` said so. */
  get signal(): AbortSignal {
    return this.#work.signal;
  }

  /** Whether the run is still this holder's, by this machine's clock and what the server last answered. */
  get isHeld(): boolean {
    return this.#phase === "held" && performance.now() < this.#until;
  }

  /**
   * Begins or claims the run, does the work, and records how it ended. A run can be worked at once.
   *
   * Rejects with what the function rejects with. RunExistsError when the session has another run of the id, TooManyRunsError when
   * it has 64 unfinished ones; of a claim, RunNotClaimableError while another worker holds it, RunEndedError when it has ended,
   * RunNotFoundError or SessionNotFoundError without it.
   *
   * @returns What the function gives.
   */
  async work<Result>(body: (run: this) => Result | Promise<Result>): Promise<Result> {
    this.#checkEnterable();
    this.#entered = true;
    const interrupt = (): void => this.#work.abort(this.#outer?.reason);
    try {
      if (this.#phase === "new") {
        this.#outer?.throwIfAborted();
        await this.#begin();
      }
      this.#outer?.addEventListener("abort", interrupt, { once: true });
      if (this.#outer?.aborted === true) interrupt();
      let result: Result;
      try {
        this.#outer?.throwIfAborted();
        result = await body(this);
      } catch (error) {
        throw await this.#leftWith(error);
      }
      await this.#leftWell();
      return result;
    } finally {
      this.#outer?.removeEventListener("abort", interrupt);
      this.#stop();
    }
  }

  /**
   * Commits the run's next step and the messages that it produced, all or none, and gives it.
   *
   * Tried again by itself, and committed once. When an answer stays out all the same, repeat it with the same payload and the
   * same message objects; another step is StepMismatchError then, if the first was committed. RunLeaseLostError when the run is
   * not held any more; MessageIdConflictError for messages that are stored already.
   *
   * @param payload What a worker needs to go on behind this step, at most 2 MiB: bytes, text, or what JSON can say.
   */
  async step(payload: Payload = new Uint8Array(), options: StepOptions = {}): Promise<RunStep> {
    const { messages, contentType } = checked(options);
    const produced = [...(messages ?? [])];
    return this.#inTurn(options, (operation) =>
      this.#whileHeld(() => this.#commit(operation, { payload, messages: produced, contentType })),
    );
  }

  /**
   * Sets a status with which the run waits, and gives its lease back; the end of the work then changes nothing. RunLeaseLostError
   * and MessageIdConflictError as in {@link step}.
   *
   * @param status `awaiting_approval` or `awaiting_budget`, claimed by name only; or `interrupted`, for any worker.
   */
  async pause(status: WaitingStatus, options: StatusOptions = {}): Promise<void> {
    oneOf(status, "status", WAITING);
    await this.#inTurn(options, (operation) => this.#setStatus(operation, status, options));
  }

  /** Ends the run with a status and a reason; the end of the work then changes nothing. Otherwise like {@link pause}. */
  async finish(status: EndStatus = "completed", options: StatusOptions = {}): Promise<void> {
    oneOf(status, "status", ENDED);
    await this.#inTurn(options, (operation) => this.#setStatus(operation, status, options));
  }

  /** Reads the last step, behind which to go on; undefined when there is none. */
  async resume(options: CallOptions = {}): Promise<RunStep | undefined> {
    return this.#inTurn(options, (operation) => this.#whileHeld(() => this.#lastStep(operation)));
  }

  /** @internal Gives the run back for any worker, if it is held; a lease that cannot be ends by itself. */
  async giveBack(timeoutMs: number): Promise<void> {
    try {
      if (this.#phase === "held") {
        const operation = this.#connection.operation({ timeoutMs }, this.#grpcMetadata);
        await this.#release(operation, "", "released");
      }
    } catch (error) {
      if (!(error instanceof MemorydError)) throw error;
      this.#warn(`could not be released: ${error.message}`);
    } finally {
      // Also where the server did not hear of it: nobody renews the lease any more.
      if (this.#phase === "held") this.#phase = "released";
      this.#stop();
      if (this.#phase === "released") this.#work.abort(this.#loss());
    }
  }

  /** @internal Takes note of a lease that was asked for at `since`, so that it lasts no longer here than in the store. */
  takeHold(response: CreateRunResponse | ClaimRunResponse, since: number): void {
    const run = response.run!;
    this.#status = RUN_STATUS.word(run.status);
    this.#steps = Number(run.stepCount);
    this.#metadata = run.metadata ?? "";
    this.#fence = response.fence;
    this.#until = since + this.#leaseMs;
    this.#phase = "held";
    this.#connection.leases.add(this);
    void this.#keepLease();
  }

  /** @internal Whether somebody works, or has worked, at it. */
  get entered(): boolean {
    return this.#entered;
  }

  toString(): string {
    const { agent, id } = this.session;
    return `Run(agent=${JSON.stringify(agent)}, session=${JSON.stringify(id)}, id=${JSON.stringify(this.id)})`;
  }

  async #begin(): Promise<void> {
    const since = performance.now();
    const operation = this.#connection.operation({}, this.#grpcMetadata);
    const response = isCreation(this.#beginning)
      ? await operation.call(method.createRun, this.#beginning)
      : await calls.claimedByName(operation, this.#beginning);
    this.takeHold(response, since);
  }

  /** Records that the work went well. RunLeaseLostError where the run was lost meanwhile, or released. */
  async #leftWell(): Promise<void> {
    if (this.#phase === "lost" || this.#phase === "released") throw this.#loss();
    if (this.#phase === "held") await this.#inTurn({}, (operation) => this.#setStatus(operation, "completed", {}));
  }

  /** Records how the work failed, and gives the error to go on with. What fails then does not hide that. */
  async #leftWith(error: unknown): Promise<unknown> {
    const isInterrupted = this.#outer?.aborted === true;
    // A run that was told to stop is left to others in either way.
    if (this.#phase === "lost" || (this.#phase === "released" && !isInterrupted)) {
      const isItself = error === this.#work.signal.reason || error instanceof RunLeaseLostError;
      return this.#loss(isItself ? undefined : error);
    }
    if (this.#phase !== "held") return error;
    const { timeoutMs: most } = this.#connection.target;
    const left = Math.max(0, this.#until - performance.now());
    const timeoutMs = Math.min(left, isInterrupted ? Math.min(most, DRAIN_MS) : most);
    try {
      await this.#inTurn({ timeoutMs }, (operation) =>
        isInterrupted
          ? this.#release(operation, reasonOf(error))
          : this.#setStatus(operation, "failed", { reason: reasonOf(error) }),
      );
    } catch (failure) {
      if (!(failure instanceof MemorydError)) throw failure;
      this.#warn(`ended, and how could not be recorded: ${failure.message}`);
    }
    return error;
  }

  async #commit(
    operation: Operation,
    step: Pick<calls.Step, "payload" | "messages" | "contentType" | "status" | "reason">,
  ): Promise<RunStep> {
    const made = await calls.commitStep(operation, {
      run: this.#key,
      fence: this.#fence,
      number: this.#steps + 1,
      ...step,
    });
    this.#steps = Number(made.number);
    return runStepFromProto(made);
  }

  /** Reads the last step, also one that was committed by a try whose answer was lost. */
  async #lastStep(operation: Operation): Promise<RunStep | undefined> {
    const query = { run: this.#key, afterNumber: BigInt(Math.max(0, this.#steps - 1)), pageSize: 0 };
    let last: RunStep | undefined;
    let pageToken = "";
    do {
      const response = await calls.stepsPage(operation, { ...query, pageToken });
      const step = response.steps.at(-1);
      if (step !== undefined) last = runStepFromProto(step);
      pageToken = response.nextPageToken;
    } while (pageToken !== "");
    if (last !== undefined) this.#steps = last.number;
    return last;
  }

  /** Sets the status, in the commit of a step where there is something to keep in one. */
  async #setStatus(operation: Operation, status: RunStatus, options: StatusOptions): Promise<void> {
    const { payload, reason = "", contentType } = options;
    const messages = [...(options.messages ?? [])];
    await this.#givenBack(status, async () => {
      if (payload === undefined && messages.length === 0) {
        await calls.settle(operation, this.#key, this.#fence, status, reason);
      } else {
        await this.#commit(operation, { payload: payload ?? new Uint8Array(), messages, contentType, status, reason });
      }
    });
  }

  async #release(operation: Operation, statusReason: string, phase: Phase = "given back"): Promise<void> {
    const request = create(ReleaseRunRequestSchema, { run: this.#key, fence: this.#fence, statusReason });
    const release = async (): Promise<void> => void (await operation.call(method.releaseRun, request));
    await this.#givenBack("interrupted", release, phase);
  }

  async #givenBack(status: RunStatus, work: () => Promise<void>, phase: Phase = "given back"): Promise<void> {
    this.#isGivingBack = true;
    try {
      await this.#whileHeld(work);
    } finally {
      this.#isGivingBack = false;
    }
    this.#status = status;
    this.#phase = phase;
    this.#stop();
  }

  /** Does what only the holder may do. RunLeaseLostError from then on, when that is not this one. */
  async #whileHeld<Result>(work: () => Promise<Result>): Promise<Result> {
    this.#check();
    try {
      return await work();
    } catch (error) {
      if (!isLoss(error)) throw error;
      this.#lose(error);
      throw this.#loss();
    }
  }

  /** One call at a time. */
  async #inTurn<Result>(options: CallOptions, work: (operation: Operation) => Promise<Result>): Promise<Result> {
    const call = callOptions(options);
    const result = this.#turn.then(() => work(this.#connection.operation(call, this.#grpcMetadata)));
    this.#turn = result.catch(() => {});
    return result;
  }

  #checkEnterable(): void {
    if (this.#entered) throw new Error(`${this.toString()} was worked at before; claim it to go on`);
    if (this.#phase === "released") {
      throw new Error(
        `${this.toString()} was released, since it was not worked at in its turn of the loop: call work in the loop's body`,
      );
    }
    if (this.#phase !== "new") this.#check();
  }

  /** Throws when the run is not to be worked at. */
  #check(): void {
    if (this.#phase === "new") throw new Error(`${this.toString()} is not held yet: call work first`);
    if (this.#phase === "given back") throw new Error(`${this.toString()} was given back; claim it to go on`);
    if (!this.isHeld) {
      this.#lose(this.#failure);
      throw this.#loss();
    }
  }

  #lose(failure: MemorydError | undefined): void {
    if (this.#phase !== "held") return;
    this.#phase = "lost";
    this.#failure = failure;
    this.#stop();
    this.#work.abort(this.#loss());
  }

  #loss(cause: unknown = this.#failure): RunLeaseLostError {
    const metadata = { agent: this.session.agent, session_id: this.session.id, run_id: this.id };
    return new RunLeaseLostError(this.#whyLost(), { code: "FAILED_PRECONDITION", reason: "LEASE_LOST", metadata, cause });
  }

  #whyLost(): string {
    const id = JSON.stringify(this.id);
    if (this.#phase === "released") {
      return (
        `the run ${id} is not held any more: its client was closed, which left it to other workers, and it is not recorded as ` +
        "completed. Claim it to go on; close the client when the work has ended"
      );
    }
    if (isLoss(this.#failure)) return `the run ${id} is not held any more: ${this.#failure.text}`;
    return (
      `the lease of the run ${id} is over: none of its renewals got through within ${this.#leaseMs / 1000} s. Stop working at ` +
      "it; claim it to go on"
    );
  }

  /** Renews the lease until the run is lost or given back. */
  async #keepLease(): Promise<void> {
    while (this.#isToBeRenewed()) {
      await pause(this.#msToRenewal(), this.#stopped.signal);
      if (this.#stopped.signal.aborted || !this.#isToBeRenewed()) return;
      const since = performance.now();
      const left = this.#until - since;
      const timeoutMs = left <= 0 ? this.#leaseMs / 3 : Math.min(left, this.#leaseMs / 3);
      try {
        const operation = this.#connection.operation({ timeoutMs }, this.#grpcMetadata);
        const leaseDuration = duration(this.#leaseMs, "leaseMs");
        const request = create(RenewRunLeaseRequestSchema, { run: this.#key, fence: this.#fence, leaseDuration });
        await operation.call(method.renewRunLease, request);
        this.#until = since + this.#leaseMs;
        this.#failure = undefined;
      } catch (error) {
        if (!(error instanceof MemorydError)) return; // The client is closed.
        // While the run is given back, that may be why.
        if (isLoss(error) && !this.#isGivingBack) this.#lose(error);
        else if (this.#phase === "held") this.#failure = error;
      }
    }
  }

  /** Whether the run is held; it is lost once its lease is over. */
  #isToBeRenewed(): boolean {
    if (this.#phase === "held" && !this.#isGivingBack && performance.now() >= this.#until) this.#lose(this.#failure);
    return this.#phase === "held";
  }

  /** The pause before the next renewal: a third of the lease, or less after one that failed. */
  #msToRenewal(): number {
    const left = this.#until - performance.now();
    const again = Math.min(LONGEST_RETRY_MS, this.#leaseMs / 10) * between(0.5, 1);
    if (left <= 0) return again;
    return Math.min(left, this.#failure === undefined ? Math.max(0, left - (this.#leaseMs * 2) / 3) : again);
  }

  #stop(): void {
    this.#stopped.abort();
    this.#connection.leases.delete(this);
  }

  #warn(text: string): void {
    this.#connection.target.logger.warn(`${this.toString()} ${text}`);
  }
}

/**
 * The claimable runs of an agent, to be iterated over with `for await`. Made by `MemoryClient.claims`. {@link close} ends the
 * iteration; like its end, it releases the run that was not worked at.
 */
export class RunClaims implements AsyncIterable<Run>, AsyncDisposable {
  readonly #connection: Connection;
  readonly #metadata: Metadata;
  readonly #request: ClaimRunRequest;
  readonly #leaseMs: number;
  readonly #pollMs: number;
  readonly #signal: AbortSignal | undefined;
  readonly #outage: Outage;
  readonly #closing = new AbortController();
  #run: Run | undefined;

  /** @internal */
  constructor(connection: Connection, agent: string, options: ClaimsOptions) {
    this.#connection = connection;
    this.#metadata = connection.metadata;
    this.#leaseMs = milliseconds(options.leaseMs ?? DEFAULT_LEASE_MS, "leaseMs");
    this.#request = calls.claim(agent, { holder: holderName(options.holder), leaseMs: this.#leaseMs });
    this.#pollMs = milliseconds(options.pollMs ?? DEFAULT_POLL_MS, "pollMs");
    if (this.#pollMs <= 0) {
      throw new RangeError(`pollMs is ${this.#pollMs}; give the milliseconds between two questions for a run, more than 0`);
    }
    const words = { begins: "no run can be claimed", ends: "runs are claimed again" };
    this.#outage = new Outage(connection.target.logger, words);
    this.#signal = options.signal;
    this.#signal?.addEventListener("abort", () => this.#closing.abort(), { once: true, signal: this.#closing.signal });
    if (this.#signal?.aborted === true) this.#closing.abort();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Run, void, undefined> {
    try {
      for (let run = await this.#next(); run !== undefined; run = await this.#next()) {
        yield run;
        await this.#leave();
      }
      this.#signal?.throwIfAborted();
    } finally {
      await this.#leave();
    }
  }

  /** Ends the iteration. Whoever waits for the next run finds that there is none. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#leave();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #next(): Promise<Run | undefined> {
    const closing = this.#closing.signal;
    while (!closing.aborted) {
      try {
        this.#run = await this.#claim();
        this.#outage.answered();
        // A run that was claimed when the iteration ended is released.
        if (closing.aborted) await this.#leave();
        else if (this.#run !== undefined) return this.#run;
      } catch (error) {
        this.#connection.checkOpen();
        if (closing.aborted) break;
        this.#outage.failed(error);
      }
      await pause(this.#pollMs * between(0.5, 1.5), closing);
    }
    return undefined;
  }

  async #claim(): Promise<Run | undefined> {
    const since = performance.now();
    const operation = this.#connection.operation({}, this.#metadata);
    const response = await operation.call(method.claimRun, this.#request);
    const key = response.run?.key;
    if (key === undefined) return undefined;
    const { holder } = this.#request;
    const named = create(ClaimRunRequestSchema, { of: { case: "run", value: key }, holder });
    const session = new Session(this.#connection, key.session!.agent, key.session!.sessionId);
    const run = new Run(this.#connection, this.#metadata, session, named, this.#leaseMs, this.#signal);
    run.takeHold(response, since);
    return run;
  }

  /** Releases the run that the loop has left, if it was not worked at. */
  async #leave(): Promise<void> {
    const run = this.#run;
    this.#run = undefined;
    if (run !== undefined && !run.entered && !this.#connection.closed) await run.giveBack(RELEASE_MS);
  }
}

function isCreation(beginning: Beginning): beginning is CreateRunRequest {
  return beginning.$typeName === "memoryd.v1.CreateRunRequest";
}
