// Watches: following what happens to a session, over broken connections.

import { create } from "@bufbuild/protobuf";
import type { Metadata } from "@grpc/grpc-js";

import { int64, type Integer, milliseconds, SEQS, string } from "./arguments.js";
import { type AnswerStream, type Connection } from "./connection.js";
import { watchEventFromProto } from "./decoding.js";
import {
  DeadlineExceededError,
  MemorydError,
  type StatusCode,
  TlsFailedError,
  TooManyWatchersError,
  UnavailableError,
  WatchStalledError,
} from "./errors.js";
import {
  HistoryService,
  type WatchMessagesRequest,
  WatchMessagesRequestSchema,
  type WatchMessagesResponse,
} from "./gen/memoryd/v1/history_service_pb.js";
import type { SessionKey } from "./gen/memoryd/v1/session_pb.js";
import type { WatchEvent } from "./histories.js";
import type { Logger } from "./log.js";
import { between, pause } from "./outages.js";

/** Milliseconds, at most, before a watch that broke off is resumed for the first time; doubled with each time in vain. */
const FIRST_PAUSE_MS = 100;
/** Milliseconds that no pause exceeds. A watch that stood for so long begins again with the first pause. */
const LONGEST_PAUSE_MS = 5_000;
/** More than it takes to get from the first pause to the longest. */
const MOST_DOUBLINGS = 10;
/**
 * What a lost connection may look like from behind a proxy, when no server of memoryd gave the reason. Where none ever
 * answered, it tells rather of a wrong address.
 */
const LOST_ON_THE_WAY: readonly StatusCode[] = ["CANCELLED", "INTERNAL", "UNKNOWN"];

/** Where a watch begins, and how long it tries. */
export interface WatchOptions {
  /**
   * Begin behind the event that had this token. After more than 24 hours, or in another session of this name, the first event
   * is of kind `resync`: read the session anew.
   */
  readonly resumeToken?: string | undefined;
  /** Begin behind this seq; 0 begins with the oldest message. Without either: with what happens now. */
  readonly afterSeq?: Integer | undefined;
  /** The milliseconds for which it tries to resume before it rejects with what is in the way; without it for ever. */
  readonly retryForMs?: number | undefined;
  /** Ends the watch: its reader then gets the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Follows one session: where it has got to, which events wait to be handed out, what becomes of a failure. */
class Follower {
  resumeToken: string;
  /** Whether a server has answered since the last failure. */
  stands = false;
  readonly #session: SessionKey;
  readonly #afterSeq: bigint | undefined;
  readonly #retryForMs: number | undefined;
  readonly #logger: Logger;
  readonly #waiting: WatchEvent[] = [];
  #tokenBehind = "";
  #stoodEver = false;
  #standsSince = 0;
  #inVain = 0;
  #inVainSince: number | undefined;

  constructor(session: SessionKey, options: WatchOptions, logger: Logger) {
    const { resumeToken, afterSeq, retryForMs } = options;
    if (resumeToken !== undefined && afterSeq !== undefined) {
      throw new TypeError("a watch begins at one place: give either resumeToken or afterSeq");
    }
    this.resumeToken = string(resumeToken ?? "", "resumeToken", "what an event's resumeToken holds");
    this.#session = session;
    this.#afterSeq = afterSeq === undefined ? undefined : int64(afterSeq, "afterSeq", SEQS);
    this.#retryForMs = retryForMs === undefined ? undefined : milliseconds(retryForMs, "retryForMs");
    this.#logger = logger;
  }

  /** The request that goes on behind the last event that was handed out. */
  request(): WatchMessagesRequest {
    return create(WatchMessagesRequestSchema, {
      session: this.#session,
      resumeToken: this.resumeToken,
      ...(this.resumeToken || this.#afterSeq === undefined ? {} : { afterSeq: this.#afterSeq }),
    });
  }

  /** Takes an answer in. AnswerUnreadableError for a message that this SDK does not know. */
  answered(response: WatchMessagesResponse): void {
    const events = response.events.map(watchEventFromProto);
    if (!this.stands) {
      this.stands = this.#stoodEver = true;
      this.#standsSince = performance.now();
      if (this.#inVainSince !== undefined) {
        this.#logger.info(`the watch of session ${JSON.stringify(this.#session.sessionId)} goes on`);
        this.#inVainSince = undefined;
      }
    }
    this.#waiting.push(...events);
    this.#tokenBehind = response.resumeToken;
    this.#handOnToken();
  }

  /** The next event that waits to be handed out; undefined when the next answer must be read first. */
  nextEvent(): WatchEvent | undefined {
    const event = this.#waiting.shift();
    if (event !== undefined) {
      this.resumeToken = event.resumeToken || this.resumeToken;
      this.#handOnToken();
    }
    return event;
  }

  #handOnToken(): void {
    if (this.#waiting.length === 0) this.resumeToken = this.#tokenBehind || this.resumeToken;
  }

  /** The milliseconds to pause before the watch is resumed. Throws the error when that is of no use. */
  brokeOff(error: unknown): number {
    const now = performance.now();
    if (!this.#mayPass(error)) throw error;
    if (this.stands && now - this.#standsSince >= LONGEST_PAUSE_MS) this.#inVain = 0;
    this.stands = false;
    const since = this.#inVainSince ?? now;
    if (this.#retryForMs !== undefined && now - since >= this.#retryForMs) throw error;
    if (this.#inVainSince === undefined) {
      this.#inVainSince = since;
      const session = JSON.stringify(this.#session.sessionId);
      this.#logger.warn(`the watch of session ${session} broke off and is resumed: ${error.message}`);
    }
    const longest = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.#inVain);
    this.#inVain = Math.min(this.#inVain + 1, MOST_DOUBLINGS);
    return longest * between(0.5, 1);
  }

  #mayPass(error: unknown): error is MemorydError {
    if (!(error instanceof MemorydError)) return false;
    const isTls = error instanceof TlsFailedError;
    if (
      !isTls &&
      (error instanceof UnavailableError ||
        error instanceof WatchStalledError ||
        error instanceof TooManyWatchersError ||
        error instanceof DeadlineExceededError)
    ) {
      return true;
    }
    return (isTls || (error.reason === "" && LOST_ON_THE_WAY.includes(error.code))) && this.#stoodEver;
  }
}

/**
 * An async iterator over what happens to a session. Made by `Session.watch`.
 *
 * A `break` out of `for await` closes it, as does {@link close} or `await using`. After an error it can be iterated over
 * again, and goes on behind the last event that it gave.
 */
export class Watch implements AsyncIterableIterator<WatchEvent, undefined, undefined>, AsyncDisposable {
  readonly #connection: Connection;
  readonly #metadata: Metadata;
  readonly #follower: Follower;
  readonly #signal: AbortSignal | undefined;
  readonly #closing = new AbortController();
  #call: AnswerStream<WatchMessagesResponse> | undefined;
  #turn: Promise<unknown> = Promise.resolve();

  /** @internal */
  constructor(connection: Connection, session: SessionKey, options: WatchOptions) {
    this.#connection = connection;
    this.#metadata = connection.metadata;
    this.#follower = new Follower(session, options, connection.target.logger);
    this.#signal = options.signal;
    options.signal?.addEventListener("abort", () => this.close(), { once: true, signal: this.#closing.signal });
    if (options.signal?.aborted === true) this.close();
  }

  /** Resumes a watch behind the last event that this one gave; empty while no server has answered. */
  get resumeToken(): string {
    return this.#follower.resumeToken;
  }

  /** Waits until the watch stands: from there on nothing is missed. Gives the watch. */
  async open(): Promise<this> {
    await this.#inTurn(async () => {
      while (!(this.#follower.stands || this.#isClosed)) await this.#read();
      this.#signal?.throwIfAborted();
    });
    return this;
  }

  /** The next event; done when the watch is closed. */
  next(): Promise<IteratorResult<WatchEvent, undefined>> {
    return this.#inTurn(async () => {
      while (!this.#isClosed) {
        const value = this.#follower.nextEvent();
        if (value !== undefined) return { done: false, value };
        await this.#read();
      }
      this.#signal?.throwIfAborted();
      return { done: true, value: undefined };
    });
  }

  /** Ends the watch. Whoever waits for its next event finds that there is none. */
  close(): void {
    this.#closing.abort();
    this.#call?.cancel();
  }

  return(): Promise<IteratorResult<WatchEvent, undefined>> {
    this.close();
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }

  get #isClosed(): boolean {
    return this.#closing.signal.aborted;
  }

  /** One reader at a time. */
  #inTurn<Result>(work: () => Promise<Result>): Promise<Result> {
    const result = this.#turn.then(work);
    this.#turn = result.catch(() => {});
    return result;
  }

  /** Takes one answer in, or pauses after a failure. Throws what ends the watch. */
  async #read(): Promise<void> {
    let error: unknown;
    try {
      this.#call ??= this.#connection.stream(
        HistoryService.method.watchMessages,
        this.#follower.request(),
        undefined,
        this.#metadata,
      );
      const answer = await this.#call.next();
      if (answer !== undefined) {
        this.#follower.answered(answer);
        return;
      }
      const text = `the watch was ended at ${this.#connection.target.address} (OK)`;
      error = new UnavailableError(text, { code: "UNAVAILABLE" });
    } catch (failed) {
      error = failed;
    }
    this.#call?.cancel();
    this.#call = undefined;
    if (this.#isClosed) return;
    this.#connection.checkOpen();
    await pause(this.#follower.brokeOff(error), this.#closing.signal);
  }
}
