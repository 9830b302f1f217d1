// The connection of a client: a channel, and the operations that make calls on it.

import { setMaxListeners } from "node:events";

import { type DescMessage, type DescMethod, type DescMethodServerStreaming, type DescMethodUnary, fromBinary, type MessageShape, toBinary } from "@bufbuild/protobuf";
import { type ClientReadableStream, Client as Channel, type Metadata, type ServiceError } from "@grpc/grpc-js";

import { kindOf, milliseconds } from "./arguments.js";
import { MemorydError, typedError } from "./errors.js";
import { isRetried } from "./methods.js";
import { pause } from "./outages.js";
import { Tries } from "./retries.js";
import type { Target } from "./target.js";
import "./utf8.js";

/** What every operation takes. */
export interface CallOptions {
  /** The milliseconds that it may take, retries included; without it the client's. */
  readonly timeoutMs?: number | undefined;
  /** Aborts it: it then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** What is leased, and how it is given back. */
export interface Lease {
  giveBack(timeoutMs: number): Promise<void>;
}

/** Milliseconds that giving leases back may take when a client is closed; otherwise they end by themselves. */
export const RELEASE_MS = 2_000;

/** A unary method of the API. */
export type Unary<Input extends DescMessage, Output extends DescMessage> = DescMethodUnary<Input, Output>;
/** A method of the API that answers with a stream. */
export type Streaming<Input extends DescMessage, Output extends DescMessage> = DescMethodServerStreaming<Input, Output>;

/** A channel, and the operations that make calls on it. */
export class Connection {
  /** That of calls that begin now: it names their store. */
  metadata: Metadata;
  /** The summary tasks that are neither committed nor given up, and the runs that are held. */
  readonly leases = new Set<Lease>();
  readonly #channel: Channel;
  readonly #streams = new Set<{ cancel(): void }>();
  readonly #closing = new AbortController();
  /** Whether a server of memoryd has answered a call, be it with a refusal. */
  #hasAnswered = false;

  constructor(readonly target: Target) {
    this.metadata = target.metadata(target.store);
    // As many calls as there are may pause until it aborts.
    setMaxListeners(0, this.#closing.signal);
    this.#channel = new Channel(target.address, target.credentials, target.channelOptions());
  }

  get closed(): boolean {
    return this.#closing.signal.aborted;
  }

  /** Begins an operation. All its calls go to the store that the metadata names, and end with its timeout. */
  operation(options: CallOptions = {}, metadata: Metadata = this.metadata): Operation {
    return new Operation(this, options, metadata);
  }

  /** Makes one call with one answer, again where that is of use. */
  unary<Input extends DescMessage, Output extends DescMessage>(
    method: Unary<Input, Output>,
    request: MessageShape<Input>,
    deadline: Deadline,
    signal: AbortSignal | undefined,
    metadata: Metadata,
  ): Promise<MessageShape<Output>> {
    return this.#retried(method, deadline, signal, () => this.#attempt(method, request, deadline, signal, metadata));
  }

  /** Makes one call with a stream of answers, again where that is of use, and collects them. */
  collect<Input extends DescMessage, Output extends DescMessage>(
    method: Streaming<Input, Output>,
    request: MessageShape<Input>,
    deadline: Deadline,
    signal: AbortSignal | undefined,
    metadata: Metadata,
  ): Promise<MessageShape<Output>[]> {
    return this.#retried(method, deadline, signal, async () => {
      signal?.throwIfAborted();
      const stream = this.stream(method, request, deadline, metadata);
      const abort = (): void => stream.cancel();
      signal?.addEventListener("abort", abort, { once: true });
      try {
        const answers: MessageShape<Output>[] = [];
        for (let answer = await stream.next(); answer !== undefined; answer = await stream.next()) answers.push(answer);
        return answers;
      } catch (error) {
        signal?.throwIfAborted();
        throw error;
      } finally {
        signal?.removeEventListener("abort", abort);
      }
    });
  }

  async #retried<Answer>(
    method: DescMethod,
    deadline: Deadline,
    signal: AbortSignal | undefined,
    attempt: () => Promise<Answer>,
  ): Promise<Answer> {
    const tries = new Tries(isRetried(method), () => deadline.left());
    for (;;) {
      try {
        const answer = await attempt();
        this.#hasAnswered = true;
        return answer;
      } catch (error) {
        if (!(error instanceof MemorydError) || signal?.aborted === true) throw error;
        const until = signal === undefined ? this.#closing.signal : AbortSignal.any([this.#closing.signal, signal]);
        await pause(tries.failed(error, this.#hasAnswered), until);
      }
    }
  }

  #attempt<Input extends DescMessage, Output extends DescMessage>(
    method: Unary<Input, Output>,
    request: MessageShape<Input>,
    deadline: Deadline,
    signal: AbortSignal | undefined,
    metadata: Metadata,
  ): Promise<MessageShape<Output>> {
    this.checkOpen();
    signal?.throwIfAborted();
    return new Promise((resolve, reject) => {
      const call = this.#channel.makeUnaryRequest<MessageShape<Input>, MessageShape<Output>>(
        pathOf(method),
        (message) => encode(method.input, message),
        (bytes) => decode(method.output, bytes),
        request,
        metadata,
        { deadline: deadline.end() },
        (error: ServiceError | null, response?: MessageShape<Output>) => {
          signal?.removeEventListener("abort", abort);
          if (error === null) resolve(response as MessageShape<Output>);
          else if (signal?.aborted === true) reject(signal.reason as Error);
          else reject(this.#typed(error, method, deadline));
        },
      );
      const abort = (): void => call.cancel();
      signal?.addEventListener("abort", abort, { once: true });
    });
  }

  /** Makes one call with a stream of answers. */
  stream<Input extends DescMessage, Output extends DescMessage>(
    method: Streaming<Input, Output>,
    request: MessageShape<Input>,
    deadline: Deadline | undefined,
    metadata: Metadata,
  ): AnswerStream<MessageShape<Output>> {
    this.checkOpen();
    const call = this.#channel.makeServerStreamRequest<MessageShape<Input>, MessageShape<Output>>(
      pathOf(method),
      (message) => encode(method.input, message),
      (bytes) => decode(method.output, bytes),
      request,
      metadata,
      deadline === undefined ? {} : { deadline: deadline.end() },
    );
    this.#streams.add(call);
    call.once("close", () => this.#streams.delete(call));
    return new AnswerStream(
      call,
      () => (this.#hasAnswered = true),
      (error) => this.#typed(error, method, deadline),
    );
  }

  /** Gives back what is leased, and closes the channel. */
  async close(): Promise<void> {
    if (this.closed) return;
    await Promise.all(
      [...this.leases].map((lease) =>
        lease.giveBack(RELEASE_MS).catch((error: unknown) => {
          if (!(error instanceof MemorydError)) throw error;
        }),
      ),
    );
    this.#closing.abort();
    for (const stream of this.#streams) stream.cancel();
    this.#channel.close();
  }

  /** Throws when the client is closed. */
  checkOpen(): void {
    if (this.closed) throw new Error("this client is closed; make a new MemoryClient");
  }

  #typed(error: ServiceError, method: Unary<DescMessage, DescMessage> | Streaming<DescMessage, DescMessage>, deadline?: Deadline): MemorydError {
    const typed = typedError(error, {
      address: this.target.address,
      method: method.name,
      retried: isRetried(method),
      timeoutMs: deadline?.timeoutMs ?? Number.POSITIVE_INFINITY,
      hasAnswered: this.#hasAnswered,
    });
    if (typed.reason !== "") this.#hasAnswered = true;
    return typed;
  }
}

/** The answers of a stream, one after another. */
export class AnswerStream<Answer> {
  readonly #call: ClientReadableStream<Answer>;
  readonly #answers: AsyncIterator<Answer>;
  readonly #answered: () => void;
  readonly #typed: (error: ServiceError) => MemorydError;

  constructor(call: ClientReadableStream<Answer>, answered: () => void, typed: (error: ServiceError) => MemorydError) {
    this.#call = call;
    this.#answered = answered;
    this.#typed = typed;
    this.#answers = call[Symbol.asyncIterator]() as AsyncIterator<Answer>;
    // What fails after nobody reads any more is nobody's concern.
    call.on("error", () => {});
  }

  /** The next answer; undefined at the end. */
  async next(): Promise<Answer | undefined> {
    try {
      const { value, done } = await this.#answers.next();
      this.#answered();
      return done === true ? undefined : value;
    } catch (error) {
      throw isServiceError(error) ? this.#typed(error) : error;
    }
  }

  /** Ends the call. A reader that waits finds an error. */
  cancel(): void {
    this.#call.cancel();
  }
}

/** One operation, which may take several calls within one timeout. */
export class Operation {
  readonly #connection: Connection;
  readonly #deadline: Deadline;
  readonly #metadata: Metadata;
  readonly signal: AbortSignal | undefined;

  constructor(connection: Connection, options: CallOptions, metadata: Metadata) {
    this.#connection = connection;
    this.#metadata = metadata;
    this.#deadline = new Deadline(options.timeoutMs ?? connection.target.timeoutMs);
    this.signal = options.signal;
  }

  /** Makes a call with one answer. */
  call<Input extends DescMessage, Output extends DescMessage>(
    method: Unary<Input, Output>,
    request: MessageShape<Input>,
  ): Promise<MessageShape<Output>> {
    return this.#connection.unary(method, request, this.#deadline, this.signal, this.#metadata);
  }

  /** Makes a call with a stream of answers, and collects them. */
  collect<Input extends DescMessage, Output extends DescMessage>(
    method: Streaming<Input, Output>,
    request: MessageShape<Input>,
  ): Promise<MessageShape<Output>[]> {
    return this.#connection.collect(method, request, this.#deadline, this.signal, this.#metadata);
  }
}

/** The end of one operation. */
export class Deadline {
  readonly timeoutMs: number;
  readonly #end: number;

  constructor(timeoutMs: number) {
    this.timeoutMs = milliseconds(timeoutMs, "timeoutMs");
    this.#end = performance.now() + this.timeoutMs;
  }

  /** The milliseconds until the end, at least 0. */
  left(): number {
    return Math.max(0, this.#end - performance.now());
  }

  /** The end, by the wall clock, as gRPC takes it. */
  end(): Date {
    return new Date(Date.now() + this.left());
  }
}

/** The options of a call, without those of the operation. TypeError for what is no object. */
export function callOptions(options: CallOptions): CallOptions {
  if (options.signal !== undefined && !(options.signal instanceof AbortSignal)) {
    throw new TypeError(`signal is ${kindOf(options.signal)}; give an AbortSignal`);
  }
  return { timeoutMs: options.timeoutMs, signal: options.signal };
}

function pathOf(method: { readonly name: string; readonly parent: { readonly typeName: string } }): string {
  return `/${method.parent.typeName}/${method.name}`;
}

function encode<Input extends DescMessage>(schema: Input, message: MessageShape<Input>): Buffer {
  const bytes = toBinary(schema, message);
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function decode<Output extends DescMessage>(schema: Output, bytes: Buffer): MessageShape<Output> {
  // Not the Buffer itself: the bytes in an answer are to be plain Uint8Arrays.
  return fromBinary(schema, new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength));
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && "details" in error && typeof error.code === "number";
}
