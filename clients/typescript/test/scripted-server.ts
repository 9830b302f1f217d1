// A gRPC server that answers as a script says: for what no real server can be made to do on demand.

import { create, toBinary } from "@bufbuild/protobuf";
import { anyPack, durationFromMs } from "@bufbuild/protobuf/wkt";
import { Metadata, type sendUnaryData, Server as GrpcServer, ServerCredentials, type ServerUnaryCall, type ServerWritableStream, status } from "@grpc/grpc-js";

import { ErrorInfoSchema, RetryInfoSchema } from "../src/gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../src/gen/google/rpc/status_pb.js";
import { SERVICES } from "../src/methods.js";

/** One answer: bytes of responses, then an error, if any. */
export interface Answer {
  readonly responses?: readonly Uint8Array[];
  readonly code?: keyof typeof status;
  readonly reason?: string;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly delayMs?: number;
  readonly retryAfterMs?: number;
}

/** Answers each method with the next entry of its script. What it was sent stays to be looked at. */
export class ScriptedServer {
  readonly asked: { method: string; request: Uint8Array; metadata: Metadata }[] = [];
  address = "";
  readonly #scripts = new Map<string, Answer[]>();
  readonly #server = new GrpcServer();

  static async start(): Promise<ScriptedServer> {
    const scripted = new ScriptedServer();
    for (const service of SERVICES) {
      const definition = Object.fromEntries(
        service.methods.map((method) => [
          method.name,
          {
            path: `/${service.typeName}/${method.name}`,
            requestStream: false,
            responseStream: method.methodKind === "server_streaming",
            requestSerialize: Buffer.from,
            requestDeserialize: (bytes: Buffer) => new Uint8Array(bytes),
            responseSerialize: (bytes: Uint8Array) => Buffer.from(bytes),
            responseDeserialize: (bytes: Buffer) => bytes,
          },
        ]),
      );
      const handlers = Object.fromEntries(
        service.methods.map((method) => [
          method.name,
          method.methodKind === "server_streaming"
            ? (call: ServerWritableStream<Uint8Array, Uint8Array>) => void scripted.#stream(method.name, call)
            : (call: ServerUnaryCall<Uint8Array, Uint8Array>, done: sendUnaryData<Uint8Array>) =>
                void scripted.#unary(method.name, call, done),
        ]),
      );
      scripted.#server.addService(definition as never, handlers as never);
    }
    const port = await new Promise<number>((resolve, reject) => {
      scripted.#server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) => {
        if (error === null) resolve(bound);
        else reject(error);
      });
    });
    scripted.address = `127.0.0.1:${port}`;
    return scripted;
  }

  /** What the method answers, call by call; the last answer stays. */
  script(method: string, ...answers: Answer[]): void {
    this.#scripts.set(method, answers);
  }

  count(method: string): number {
    return this.asked.filter((one) => one.method === method).length;
  }

  stop(): void {
    this.#server.forceShutdown();
  }

  async #next(method: string, request: Uint8Array, metadata: Metadata): Promise<Answer> {
    this.asked.push({ method, request, metadata });
    const script = this.#scripts.get(method) ?? [];
    const answer = (script.length > 1 ? script.shift() : script[0]) ?? { code: "UNIMPLEMENTED" };
    if (answer.delayMs !== undefined) await new Promise((resolve) => setTimeout(resolve, answer.delayMs).unref());
    return answer;
  }

  async #unary(method: string, call: ServerUnaryCall<Uint8Array, Uint8Array>, done: sendUnaryData<Uint8Array>): Promise<void> {
    const answer = await this.#next(method, call.request, call.metadata);
    if (answer.code === undefined) done(null, answer.responses?.[0] ?? new Uint8Array());
    else done(errorOf(answer));
  }

  async #stream(method: string, call: ServerWritableStream<Uint8Array, Uint8Array>): Promise<void> {
    const answer = await this.#next(method, call.request, call.metadata);
    for (const response of answer.responses ?? []) call.write(response);
    if (answer.code === undefined) call.end();
    else call.emit("error", errorOf(answer));
  }
}

function errorOf({ code = "UNKNOWN", reason, metadata = {}, retryAfterMs = 0 }: Answer): { code: status; details: string; metadata: Metadata } {
  const trailers = new Metadata();
  if (reason !== undefined) {
    const info = anyPack(ErrorInfoSchema, create(ErrorInfoSchema, { domain: "memoryd", reason, metadata }));
    const retry = anyPack(RetryInfoSchema, create(RetryInfoSchema, { retryDelay: durationFromMs(retryAfterMs) }));
    const bytes = toBinary(StatusSchema, create(StatusSchema, { code: status[code], details: [info, retry] }));
    trailers.set("grpc-status-details-bin", Buffer.from(bytes));
  }
  return { code: status[code], details: `text of ${reason ?? code}`, metadata: trailers };
}
