// The driver of the TypeScript SDK for the conformance suite: tests/conformance/conformance.proto tells what it does.
// `npm run build:conformance` compiles it, and `node build/conformance/conformance/driver.js` runs it.

import { create, fromJson, type JsonValue, toJsonString } from "@bufbuild/protobuf";

import type { CallOptions } from "../src/index.js";
import { AGENTS_AND_STORES } from "./agents-and-stores.js";
import { failure } from "./answers.js";
import { DriverClient } from "./driver-client.js";
import { type Command, CommandSchema, ReplySchema } from "./gen/tests/conformance/conformance_pb.js";
import { milliseconds } from "./givens.js";
import { HISTORIES } from "./histories.js";
import { linesOf } from "./lines.js";
import { MEASURING } from "./measuring.js";
import { MEMORY } from "./memory.js";
import { MESSAGES } from "./messages.js";
import { type Answer, type CarriesOut, Fault, type Kind, type Operations } from "./operations.js";
import { RUNS } from "./runs.js";
import { WINDOWS } from "./windows.js";

const HELLO = { language: "typescript", features: ["openai_responses"] };

const OPERATIONS: Operations<Kind> = {
  ...HISTORIES,
  ...WINDOWS,
  ...MEMORY,
  ...RUNS,
  ...AGENTS_AND_STORES,
  ...MESSAGES,
  ...MEASURING,
};

const clients = new Map<string, DriverClient>();

async function close(name: string): Promise<void> {
  const client = clients.get(name);
  clients.delete(name);
  await client?.memory.close();
}

async function carriedOut({ client: name, operation, timeout }: Command): Promise<Answer> {
  switch (operation.case) {
    case undefined:
      throw new Fault("there is nothing to do, or nothing that this driver knows");
    case "connect":
      await close(name);
      clients.set(name, new DriverClient(operation.value));
      return { hello: HELLO };
    case "close":
      await close(name);
      return { done: {} };
    default: {
      const client = clients.get(name);
      if (client === undefined) throw new Fault(`there is no client ${JSON.stringify(name)}`);
      const call: CallOptions = { timeoutMs: milliseconds(timeout) };
      // What is given goes with the kind, which the types of a look-up cannot say.
      return (OPERATIONS[operation.case] as CarriesOut<Kind>)(client, operation.value as never, call);
    }
  }
}

/** Carries out the command of a line, and writes the reply. */
async function answer(line: string): Promise<void> {
  const json = JSON.parse(line) as { id?: string | number };
  let result: Answer;
  try {
    result = await carriedOut(fromJson(CommandSchema, json as JsonValue));
  } catch (error) {
    const failed = failure(error);
    if (failed?.code === undefined) console.error(error);
    result = failed === undefined ? { fault: String(error) } : { failure: failed };
  }
  const reply = create(ReplySchema, { ...result, id: BigInt(json.id ?? 0) });
  process.stdout.write(`${toJsonString(ReplySchema, reply)}\n`);
}

for await (const line of linesOf(process.stdin)) void answer(line);
await Promise.all([...clients.keys()].map(close));
process.stdout.write("", () => process.exit(0));
