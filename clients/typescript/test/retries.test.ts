// How calls are tried again while the server is unavailable: the policy of `clients/README.md`, on servers that are killed and
// started again.

import assert from "node:assert/strict";
import { inspect } from "node:util";
import { describe, test } from "node:test";

import { create, toBinary } from "@bufbuild/protobuf";

import { MemoryClient, ServerUnavailableError, StoreUnavailableError, SummarizerFailedError, textOf, user } from "../src/index.js";
import { FIRST_TRIES, RESTART_MS } from "../src/retries.js";
import * as v1 from "../src/v1.js";
import { type Answer, ScriptedServer } from "./scripted-server.js";
import { all, deadAddress, Server, until } from "./server.js";

const APPENDS = 1_000;
/** Has a server start without the vocabulary of a tokenizer, which takes as long to read as all else of its start. */
const QUICK = ["--tokenizer", "estimate"];
/** Milliseconds, in all, between the first tries. */
const A_WHILE = 1_500;
const UNAVAILABLE: Answer = { code: "UNAVAILABLE" };
const STORED: Answer = { responses: [toBinary(v1.GetSessionResponseSchema, create(v1.GetSessionResponseSchema, { session: {} }))] };

/** The milliseconds that a call takes until it fails. */
async function failed(call: Promise<unknown>, kind: Function): Promise<number> {
  const begun = performance.now();
  await assert.rejects(call, (error: object) => error.constructor === kind || assert.fail(inspect(error)));
  return performance.now() - begun;
}

async function withServer(work: (server: Server, memory: MemoryClient) => Promise<void>): Promise<void> {
  const server = await Server.start({ stores: ["main=sqlite:///FOLDER/memory.db"], args: QUICK });
  const memory = new MemoryClient(server.address);
  try {
    await work(server, memory);
  } finally {
    await memory.close();
    await server.stop();
  }
}

async function withScript(work: (scripted: ScriptedServer, memory: MemoryClient) => Promise<void>): Promise<void> {
  const scripted = await ScriptedServer.start();
  const memory = new MemoryClient(scripted.address);
  try {
    await work(scripted, memory);
  } finally {
    await memory.close();
    scripted.stop();
  }
}

describe("on a server that is killed", () => {
  for (const callers of [1, 16]) {
    test(`appends of ${callers} at once are stored once, in order, when it is started again`, () =>
      withServer(async (server, memory) => {
        const talk = memory.session({ agent: "a" });
        let restarted: Promise<void> | undefined;
        const append = async (first: number): Promise<void> => {
          for (let number = first; number < APPENDS; number += callers) {
            if (number === 333) restarted = server.kill().then(() => server.restart());
            await talk.append(user(`${number}`));
          }
        };
        try {
          await Promise.all(Array.from({ length: callers }, (_, first) => append(first)));
        } finally {
          await restarted;
        }
        const stored = (await all(talk.messages({ pageSize: 1_000 }))).map((message) => Number(textOf(message)));
        assert.equal(stored.length, APPENDS);
        for (let first = 0; first < callers; first += 1) {
          const sent = Array.from({ length: Math.ceil((APPENDS - first) / callers) }, (_, index) => first + index * callers);
          assert.deepEqual(stored.filter((number) => number % callers === first), sent);
        }
      }));
  }

  test("a large window comes when it is started again", () =>
    withServer(async (server, memory) => {
      const talk = memory.session({ agent: "a" });
      for (let number = 0; number < 4; number += 1) await talk.append(user("x".repeat(1_048_576)));
      await server.kill();
      const [window] = await Promise.all([talk.window({ messages: 10 }), server.restart()]);
      assert.equal(window.length, 4);
    }));

  test("calls fail in time when it is gone for good", () =>
    withServer(async (server, memory) => {
      const talk = memory.session({ agent: "a" });
      await talk.append(user("a"));
      await server.kill();
      const took = await failed(talk.info(), ServerUnavailableError);
      assert.ok(RESTART_MS - 2_000 < took && took < RESTART_MS + 1_000, `${took}`);
      assert.ok((await failed(talk.append(user("b"), { timeoutMs: 2_500 }), ServerUnavailableError)) < 2_500);
      assert.ok((await failed(talk.update({ userId: "mia" }), ServerUnavailableError)) < 1_000);
    }));
});

test("a server that never answered is told soon", async () => {
  await using memory = new MemoryClient(await deadAddress());
  const took = await failed(memory.stores(), ServerUnavailableError);
  assert.ok(A_WHILE - 100 < took && took < 2 * A_WHILE, `${took}`);
  assert.ok((await failed(memory.stores({ timeoutMs: 500 }), ServerUnavailableError)) < 1_000);
});

describe("on a server that follows a script", () => {
  test("a refusal is an answer, after which it is waited for", () =>
    withScript(async (scripted, memory) => {
      scripted.script("GetStore", UNAVAILABLE);
      await failed(memory.store(), ServerUnavailableError);
      assert.equal(scripted.count("GetStore"), FIRST_TRIES);
      scripted.script("GetSession", { ...UNAVAILABLE, reason: "STORE_UNAVAILABLE" }, UNAVAILABLE);
      await failed(memory.session({ agent: "a" }).info({ timeoutMs: 4_000 }), ServerUnavailableError);
      assert.ok(scripted.count("GetSession") > FIRST_TRIES);
    }));

  test("it says how long to wait, and is not asked again where that is longer than there is time for", () =>
    withScript(async (scripted, memory) => {
      const session = memory.session({ agent: "a" });
      scripted.script("GetSession", { ...UNAVAILABLE, reason: "SERVER_DRAINING", retryAfterMs: 1_000 }, STORED);
      const begun = performance.now();
      await session.info();
      assert.ok(performance.now() - begun >= 999);
      for (const [retryAfterMs, timeoutMs] of [[60_000, undefined], [1_000, 900]] as const) {
        scripted.script("GetSession", { ...UNAVAILABLE, reason: "STORE_UNAVAILABLE", retryAfterMs });
        assert.ok((await failed(session.info({ timeoutMs }), StoreUnavailableError)) < 900);
      }
      assert.equal(scripted.count("GetSession"), 4);
    }));

  test("a reason that does not pass is told at once", () =>
    withScript(async (scripted, memory) => {
      scripted.script("GetSession", { ...UNAVAILABLE, reason: "SUMMARIZER_FAILED" });
      await failed(memory.session({ agent: "a" }).info(), SummarizerFailedError);
      assert.equal(scripted.count("GetSession"), 1);
    }));

  test("closing the client, or a signal, ends the tries", () =>
    withScript(async (scripted, memory) => {
      scripted.script("GetSession", { ...UNAVAILABLE, reason: "SERVER_DRAINING", retryAfterMs: 8_000 });
      const begun = performance.now();
      const abort = new AbortController();
      const aborted = assert.rejects(memory.session({ agent: "a" }).info({ signal: abort.signal }), /enough/);
      const closed = assert.rejects(memory.session({ agent: "a" }).info());
      await until(() => scripted.count("GetSession") === 2);
      abort.abort(new Error("enough"));
      await aborted;
      await memory.close();
      await closed;
      assert.ok(performance.now() - begun < 4_000);
    }));
});
