// What calls take, by the SDK and by gRPC alone.

import { create, type DescMethodUnary, type DescMessage, fromBinary, type MessageShape, toBinary } from "@bufbuild/protobuf";
import { type Duration, durationMs, DurationSchema } from "@bufbuild/protobuf/wkt";
import { Client as Channel, credentials } from "@grpc/grpc-js";

import { AppendMessagesRequestSchema, HistoryService } from "../src/gen/memoryd/v1/history_service_pb.js";
import { Role } from "../src/gen/memoryd/v1/message_pb.js";
import { WindowMode } from "../src/gen/memoryd/v1/policy_pb.js";
import { LoadWindowRequestSchema, WindowService } from "../src/gen/memoryd/v1/window_service_pb.js";
import { type MemoryClient, newId, user } from "../src/index.js";
import type { DriverClient } from "./driver-client.js";
import { type Measure, Measured } from "./gen/tests/conformance/conformance_pb.js";
import { Fault, type Operations } from "./operations.js";

/** Calls of each caller that do not count. */
const WARM_UP = 50;
/** What is appended. */
const TEXT = "x".repeat(200);
/** How many messages are loaded. */
const MESSAGES = 20;
const NANOSECONDS = 1_000_000_000n;

type Call = () => Promise<unknown>;

export const MEASURING: Operations<"measure"> = {
  async measure(client, given) {
    const channel = new Channel(client.address, credentials.createInsecure());
    try {
      const callers = Array.from({ length: given.callers }, (_, caller) => callOf(client, channel, given, caller));
      for (const call of callers) for (let left = WARM_UP; left > 0; left -= 1) await call();
      const begun = process.hrtime.bigint();
      const end = begun + nanosecondsOf(given.duration);
      const took = await Promise.all(callers.map((call) => repeated(call, end)));
      const elapsed = process.hrtime.bigint() - begun;
      return {
        measurement: {
          nanoseconds: took.flat(),
          elapsed: create(DurationSchema, { seconds: elapsed / NANOSECONDS, nanos: Number(elapsed % NANOSECONDS) }),
        },
      };
    } finally {
      channel.close();
    }
  },
};

function nanosecondsOf(duration: Duration | undefined): bigint {
  return duration === undefined ? 0n : BigInt(durationMs(duration)) * 1_000_000n;
}

/** Makes calls until the end, and gives how long each took. */
async function repeated(call: Call, end: bigint): Promise<bigint[]> {
  const took: bigint[] = [];
  for (let before = process.hrtime.bigint(); before < end; ) {
    await call();
    const after = process.hrtime.bigint();
    took.push(after - before);
    before = after;
  }
  return took;
}

function callOf(client: DriverClient, channel: Channel, given: Measure, caller: number): Call {
  const [agent, id] = [given.session?.agent ?? "", given.session?.sessionId ?? ""];
  const own = given.callers > 1 ? `${id}-${caller}` : id;
  switch (given.operation) {
    case Measured.APPEND:
      return given.bare ? bareAppend(channel, agent, own) : append(client.memory, agent, own);
    case Measured.LOAD_WINDOW:
      return given.bare ? bareLoad(channel, agent, id) : load(client.memory, agent, id);
    default:
      throw new Fault(`there is nothing to measure as ${given.operation}`);
  }
}

function append(memory: MemoryClient, agent: string, id: string): Call {
  const session = memory.session({ agent, id });
  return () => session.append(user(TEXT));
}

function load(memory: MemoryClient, agent: string, id: string): Call {
  const session = memory.session({ agent, id });
  return () => session.window({ messages: MESSAGES });
}

function bareAppend(channel: Channel, agent: string, sessionId: string): Call {
  return () => {
    const content = { parts: [{ kind: { case: "text" as const, value: TEXT } }] };
    const messages = [{ id: newId(), role: Role.USER, content }];
    const request = create(AppendMessagesRequestSchema, { session: { agent, sessionId }, messages });
    return unary(channel, HistoryService.method.appendMessages, request);
  };
}

function bareLoad(channel: Channel, agent: string, sessionId: string): Call {
  const options = { mode: WindowMode.MESSAGES, limit: BigInt(MESSAGES) };
  const request = create(LoadWindowRequestSchema, { session: { agent, sessionId }, options });
  return () => unary(channel, WindowService.method.loadWindow, request);
}

/** A call as the stubs make it that gRPC's own generator writes. */
function unary<Input extends DescMessage, Output extends DescMessage>(
  channel: Channel,
  method: DescMethodUnary<Input, Output>,
  request: MessageShape<Input>,
): Promise<MessageShape<Output>> {
  return new Promise((resolve, reject) => {
    channel.makeUnaryRequest<MessageShape<Input>, MessageShape<Output>>(
      `/${method.parent.typeName}/${method.name}`,
      (message) => Buffer.from(toBinary(method.input, message)),
      (bytes) => fromBinary(method.output, bytes),
      request,
      (error, answer) => {
        if (error === null) resolve(answer as MessageShape<Output>);
        else reject(error);
      },
    );
  });
}
