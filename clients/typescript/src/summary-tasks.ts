// Summary tasks: what one holds, and how a worker asks for the next one.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { Metadata } from "@grpc/grpc-js";

import { string } from "./arguments.js";
import { type CallOptions, callOptions, type Connection, type Lease, RELEASE_MS } from "./connection.js";
import { messageFromProto, moment, summaryFromProto } from "./decoding.js";
import { duration } from "./encoding.js";
import { MemorydError, SummaryTaskVoidError } from "./errors.js";
import { type SessionKey } from "./gen/memoryd/v1/session_pb.js";
import {
  AbandonSummaryTaskRequestSchema,
  CommitSummaryRequestSchema,
  type LeaseSummaryTaskRequest,
  LeaseSummaryTaskRequestSchema,
  type SummaryTask as ApiSummaryTask,
  SummaryService,
} from "./gen/memoryd/v1/summary_service_pb.js";
import type { Message } from "./messages.js";
import { between, Outage, pause } from "./outages.js";
import type { Summary } from "./stores.js";

/** Milliseconds, at most, before a worker that got no task asks again for the first time; doubled with each time in vain. */
const FIRST_PAUSE_MS = 200;
/** Milliseconds that no pause exceeds. */
const LONGEST_PAUSE_MS = 5_000;
/** More than it takes to get from the first pause to the longest. */
const MOST_DOUBLINGS = 10;

/** How summary tasks are asked for. */
export interface SummaryTaskOptions {
  /** The milliseconds that one summary may take, 1,000 to 600,000; without it the server's 60,000. */
  readonly leaseMs?: number | undefined;
  /** Whether to go on when no task waits; `false` ends the loop then. Default: true. */
  readonly wait?: boolean | undefined;
  /**
   * The milliseconds for which it asks again while the server is unavailable, before it rejects with what is in the way;
   * without it for ever. Without `wait`, it rejects at once.
   */
  readonly retryForMs?: number | undefined;
  /** Ends the iteration: its reader then gets the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** How a function summarizes. */
export interface SummarizeWithOptions extends SummaryTaskOptions {
  /** The name of the model, for the record; at most 256 bytes. */
  readonly model?: string | undefined;
}

/** The work for one summary, leased to the iterator that gave it: {@link SummaryTasks}. */
export class SummaryTask implements Lease {
  /** The agent of the session that is summarized. */
  readonly agent: string;
  /** The id of the session that is summarized. */
  readonly sessionId: string;
  /** The text of the summary so far, which has to be part of the new one; empty for none. */
  readonly previous: string;
  /**
   * The messages to fold, oldest first. Empty where they are one group larger than 3 MiB: `input` has it, with its longest
   * texts shortened.
   */
  readonly messages: readonly Message[];
  /** What a model is to do and to keep: its system prompt. */
  readonly instructions: string;
  /** The previous summary and the messages, fenced and escaped, for a model to read after the instructions. */
  readonly input: string;
  /** How many tokens the summary should have. */
  readonly targetTokens: number;
  /** How many it may have: what is over it is cut at the end of a sentence. */
  readonly maxTokens: number;
  /** How often this fold was tried before. */
  readonly attempts: number;
  /** When the lease ends. */
  readonly expires: Date;
  readonly #connection: Connection;
  readonly #metadata: Metadata;
  readonly #session: SessionKey;
  readonly #token: string;
  #settled = false;

  /** @internal */
  constructor(connection: Connection, metadata: Metadata, task: ApiSummaryTask) {
    this.#session = task.session as SessionKey;
    this.agent = this.#session.agent;
    this.sessionId = this.#session.sessionId;
    this.previous = task.previousSummary;
    this.messages = task.messages.map(messageFromProto);
    this.instructions = task.instructions;
    this.input = task.input;
    this.targetTokens = Number(task.targetTokens);
    this.maxTokens = Number(task.maxTokens);
    this.attempts = task.attempts;
    this.expires = moment(task.expireTime);
    this.#token = task.taskToken;
    this.#connection = connection;
    this.#metadata = metadata;
    connection.leases.add(this);
  }

  /** Instructions and input in one text, for a model that takes one. */
  get prompt(): string {
    return `${this.instructions}\n\n${this.input}`;
  }

  /** Whether it is committed, void or given up. */
  get settled(): boolean {
    return this.#settled;
  }

  /**
   * Commits the summary, and gives it. Safe to repeat: the first answer comes again.
   *
   * SummaryTaskVoidError when the lease is over or the history changed where the task lies; FieldInvalidError for a text that
   * is empty or white, which is none: abandon the task instead.
   *
   * @param text The summary, at most 1 MiB. What is over `maxTokens` is cut at the end of a sentence.
   * @param options.model The name of the model that made it, for the record; at most 256 bytes.
   */
  async commit(text: string, options: CallOptions & { readonly model?: string | undefined } = {}): Promise<Summary> {
    const request = create(CommitSummaryRequestSchema, {
      session: this.#session,
      taskToken: this.#token,
      text: string(text, "text", "The project is called Atlas."),
      model: string(options.model ?? "", "model", "gpt-5-mini"),
    });
    const operation = this.#connection.operation(callOptions(options), this.#metadata);
    try {
      const response = await operation.call(SummaryService.method.commitSummary, request);
      this.#settle();
      return summaryFromProto(response.summary!);
    } catch (error) {
      if (error instanceof SummaryTaskVoidError) this.#settle();
      throw error;
    }
  }

  /**
   * Gives the task up: as free for others at once, or as `failed`, to wait before it is leased again. Nothing happens when it
   * is committed or its lease is over.
   */
  async abandon(options: CallOptions & { readonly failed?: boolean | undefined } = {}): Promise<void> {
    if (this.#settled) return;
    this.#settle();
    const request = create(AbandonSummaryTaskRequestSchema, {
      session: this.#session,
      taskToken: this.#token,
      failed: options.failed ?? false,
    });
    const operation = this.#connection.operation(callOptions(options), this.#metadata);
    await operation.call(SummaryService.method.abandonSummaryTask, request);
  }

  /** @internal */
  giveBack(timeoutMs: number): Promise<void> {
    return this.abandon({ timeoutMs });
  }

  toString(): string {
    return `the summary task of session ${JSON.stringify(this.sessionId)} of agent ${JSON.stringify(this.agent)}`;
  }

  #settle(): void {
    this.#settled = true;
    this.#connection.leases.delete(this);
  }
}

/**
 * The summary tasks of a session or an agent, to be iterated over with `for await`. Made by `MemoryClient.summaryTasks` and
 * `Session.summaryTasks`.
 *
 * A task that a turn of the loop leaves without a commit is given up at once. It then waits, 5 seconds and longer with each
 * time, before it is leased again: the model failed. So it is after an error in the loop's body, and after a `break`;
 * {@link close} before the `break` leaves the task free for others at once.
 */
export class SummaryTasks implements AsyncIterable<SummaryTask>, AsyncDisposable {
  readonly #connection: Connection;
  readonly #metadata: Metadata;
  readonly #request: LeaseSummaryTaskRequest;
  readonly #wait: boolean;
  readonly #signal: AbortSignal | undefined;
  readonly #outage: Outage;
  readonly #closing = new AbortController();
  #inVain = 0;
  #task: SummaryTask | undefined;

  /** @internal */
  constructor(connection: Connection, of: SessionKey | string, options: SummaryTaskOptions) {
    const { leaseMs, wait, retryForMs, signal } = options;
    const whose: MessageInitShape<typeof LeaseSummaryTaskRequestSchema>["of"] =
      typeof of === "object"
        ? { case: "session", value: of }
        : { case: "agent", value: string(of, "agent", "assistant") };
    this.#request = create(LeaseSummaryTaskRequestSchema, {
      of: whose,
      ...(leaseMs === undefined ? {} : { leaseDuration: duration(leaseMs, "leaseMs") }),
    });
    this.#connection = connection;
    this.#metadata = connection.metadata;
    this.#wait = wait ?? true;
    this.#signal = signal;
    const words = { begins: "no summary task can be leased", ends: "summary tasks are served again" };
    this.#outage = new Outage(connection.target.logger, words, retryForMs);
    signal?.addEventListener("abort", () => this.#closing.abort(), { once: true, signal: this.#closing.signal });
    if (signal?.aborted === true) this.#closing.abort();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<SummaryTask, void, undefined> {
    try {
      for (let task = await this.#next(); task !== undefined; task = await this.#next()) {
        yield task;
        await this.#leave(true);
      }
      this.#signal?.throwIfAborted();
    } finally {
      await this.#leave(true);
    }
  }

  /** Ends the iteration, and leaves the task that was not committed free for others. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#leave(false);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #next(): Promise<SummaryTask | undefined> {
    const closing = this.#closing.signal;
    while (!closing.aborted) {
      try {
        const operation = this.#connection.operation({}, this.#metadata);
        const { task } = await operation.call(SummaryService.method.leaseSummaryTask, this.#request);
        this.#outage.answered();
        if (task !== undefined) {
          this.#inVain = 0;
          this.#task = new SummaryTask(this.#connection, this.#metadata, task);
          if (!closing.aborted) return this.#task;
          await this.#leave(false);
        } else if (!this.#wait) {
          return undefined;
        }
      } catch (error) {
        this.#connection.checkOpen();
        if (closing.aborted) break;
        if (!this.#wait) throw error;
        this.#outage.failed(error);
      }
      await pause(this.#pauseMs(), closing);
    }
    return undefined;
  }

  #pauseMs(): number {
    const longest = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.#inVain);
    this.#inVain = Math.min(this.#inVain + 1, MOST_DOUBLINGS);
    return longest * between(0.5, 1);
  }

  /** Gives up the task that the loop has left, if it is not settled; a lease that cannot be ends by itself. */
  async #leave(failed: boolean): Promise<void> {
    const task = this.#task;
    this.#task = undefined;
    if (task === undefined || this.#connection.closed) return;
    try {
      await task.abandon({ failed, timeoutMs: failed ? undefined : RELEASE_MS });
    } catch (error) {
      if (!(error instanceof MemorydError)) throw error;
      this.#connection.target.logger.warn(`${task.toString()} could not be given up: ${error.message}`);
    }
  }
}

/** Serves tasks with a function from prompt to text, and gives the number of summaries. */
export async function summarizeWith(
  connection: Connection,
  tasks: SummaryTasks,
  summarize: (prompt: string, task: SummaryTask) => string | Promise<string>,
  model: string,
): Promise<number> {
  const { logger } = connection.target;
  let made = 0;
  for await (const task of tasks) {
    try {
      await task.commit(await summarize(task.prompt, task), { model });
      made += 1;
    } catch (error) {
      if (error instanceof SummaryTaskVoidError) logger.info(`${task.toString()}: ${error.message}`);
      else logger.warn(`${task.toString()} was not summarized: ${String(error)}`);
    }
  }
  return made;
}
