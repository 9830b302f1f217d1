// Runs against a real server.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import {
  assistant,
  EtagMismatchError,
  MemoryClient,
  newId,
  type Run,
  RunEndedError,
  RunExistsError,
  RunLeaseLostError,
  RunNotClaimableError,
  RunNotFoundError,
  RunUnfinishedError,
  type Session,
  StepMismatchError,
  textOf,
} from "../src/index.js";
import { all, Server, until } from "./server.js";

describe("runs", () => {
  let server: Server;
  let memory: MemoryClient;
  let logged: string[];
  before(async () => {
    server = await Server.start();
    const logger = { warn: (text: string) => void logged.push(text), info: () => {} };
    logged = [];
    memory = new MemoryClient(server.address, { logger });
  });
  after(async () => {
    await memory.close();
    await server.stop();
  });
  const session = (): Session => memory.session({ agent: newId() });
  const status = async (run: Run): Promise<string[]> => {
    const { status: itsStatus, reason } = await memory.getRun(run.session, run.id);
    return [itsStatus, reason];
  };

  test("work that ends well is completed", async () => {
    const run = memory.run(session(), { id: "run-7", metadata: '{"goal":"x"}', holder: "me" });
    await assert.rejects(run.step("early"), /is not held yet/);
    const result = await run.work(async (same) => {
      assert.equal(same, run);
      assert.ok(run.isHeld && run.fence !== "" && run.status === "running" && !run.signal.aborted);
      const step = await run.step({ seat: "12A", n: 2n ** 60n }, { messages: [assistant("I would book seat 12A.")] });
      assert.deepEqual([step.number, step.contentType, step.firstSeq, step.messageCount], [1, "application/json", 1, 1]);
      assert.equal(step.text, '{"seat":"12A","n":1152921504606846976}');
      assert.deepEqual((await run.step("text")).contentType, "text/plain; charset=utf-8");
      assert.deepEqual((await run.step(new Uint8Array([1]), { contentType: "x/y" })).contentType, "x/y");
      return 5;
    });
    assert.equal(result, 5);
    assert.deepEqual(await status(run), ["completed", ""]);
    const info = await memory.getRun(run.session, "run-7");
    assert.deepEqual([info.steps, info.metadata, info.holder, info.recoveries], [3, '{"goal":"x"}', "me", 0]);
    assert.ok(info.ended instanceof Date && info.leaseExpires === undefined);
    const steps = await all(memory.runSteps(run.session, run.id, { pageSize: 1 }));
    assert.deepEqual(steps.map(({ number, payload }) => [number, payload.length]), [[1, 38], [2, 4], [3, 1]]);
    assert.deepEqual(steps[2]!.payload, new Uint8Array([1]));
    const [message] = await all(run.session.messages({ runId: "run-7" }));
    assert.equal(textOf(message!), "I would book seat 12A.");
    assert.deepEqual((await all(memory.runs({ session: run.session }))).map(({ id }) => id), ["run-7"]);
    assert.deepEqual(await all(memory.runs({ agent: run.session.agent, statuses: ["failed"] })), []);
    await assert.rejects(run.work(() => {}), /was worked at before/);
    await assert.rejects(run.step(), /was given back/);
    await assert.rejects(memory.run(run.session, { id: "run-7" }).work(() => {}), RunExistsError);
    await assert.rejects(memory.claim(run.session, "run-7").work(() => {}), RunEndedError);
    await assert.rejects(memory.claim(run.session, "nothing").work(() => {}), RunNotFoundError);
    assert.equal(await memory.deleteRun(run.session, "run-7"), true);
    assert.equal(await memory.deleteRun(run.session, "run-7"), false);
  });

  test("work that fails is failed, with its reason", async () => {
    const run = memory.run(session());
    await assert.rejects(
      run.work(() => {
        throw new RangeError("no\0seat");
      }),
      /no\0seat/,
    );
    assert.deepEqual(await status(run), ["failed", "RangeError: no\ufffdseat"]);
  });

  test("work that is told to stop is interrupted, and taken up again", async () => {
    const controller = new AbortController();
    const run = memory.run(session(), { signal: controller.signal });
    const reason = new Error("the pod is stopped");
    await assert.rejects(
      run.work(async () => {
        await run.step({ at: 1 });
        setTimeout(() => controller.abort(reason), 10);
        await new Promise((_, reject) => run.signal.addEventListener("abort", () => reject(run.signal.reason as Error)));
      }),
      (error) => error === reason,
    );
    assert.deepEqual(await status(run), ["interrupted", "Error: the pod is stopped"]);
    await memory.claim(run.session, run.id).work(async (again) => {
      const last = await again.resume();
      assert.deepEqual([last!.number, last!.json()], [1, { at: 1 }]);
      const next = await again.step("more");
      assert.deepEqual([next.number, next.status], [2, "running"]);
      await again.finish("blocked", { reason: "no seats", payload: null, messages: [assistant("Sorry.")] });
      await assert.rejects(again.step("late"), /was given back/);
    });
    assert.deepEqual(await status(run), ["blocked", "no seats"]);
    const steps = await all(memory.runSteps(run.session, run.id));
    assert.deepEqual(steps.map((step) => step.status), ["running", "running", "blocked"]);
    await assert.rejects(memory.run(session(), { signal: AbortSignal.abort(reason) }).work(() => {}), (error) => error === reason);
  });

  test("a run waits for an approval", async () => {
    const run = memory.run(session());
    await run.work(async () => {
      await assert.rejects(run.pause("completed" as "interrupted"), /status is "completed"/);
      await run.pause("awaiting_approval", { reason: "books a seat", payload: { seat: "12A" } });
      assert.equal(run.status, "awaiting_approval");
    });
    await assert.rejects(memory.deleteRun(run.session, run.id), RunUnfinishedError);
    const info = await memory.getRun(run.session, run.id);
    const approved = await memory.updateRun(info, { status: "interrupted", reason: "approved by mia", metadata: "{}" });
    assert.deepEqual([approved.status, approved.reason, approved.metadata], ["interrupted", "approved by mia", "{}"]);
    await assert.rejects(memory.updateRun(info, { status: "cancelled" }), EtagMismatchError);
    await assert.rejects(memory.updateRun(approved, {}), /nothing to update/);
  });

  test("a run that others took is lost, and its work told so", async () => {
    const run = memory.run(session(), { leaseMs: 1_000, holder: "first" });
    const started = performance.now();
    await assert.rejects(
      run.work(async () => {
        await assert.rejects(memory.claim(run.session, run.id).work(() => {}), (error: unknown) => {
          assert.ok(error instanceof RunNotClaimableError);
          assert.ok(error.retryAfterMs! > 0 && error.retryAfterMs! <= 1_000);
          return error.holder === "first";
        });
        await memory.updateRun(await memory.getRun(run.session, run.id), { status: "cancelled", reason: "by mia" });
        await new Promise((_, reject) => run.signal.addEventListener("abort", () => reject(run.signal.reason as Error)));
      }),
      (error: unknown) => error instanceof RunLeaseLostError && error.reason === "LEASE_LOST",
    );
    assert.ok(performance.now() - started < 5_000);
    assert.deepEqual(await status(run), ["cancelled", "by mia"]);
    const ignoring = memory.run(session(), { leaseMs: 1_000 });
    await assert.rejects(
      ignoring.work(async () => {
        await memory.updateRun(await memory.getRun(ignoring.session, ignoring.id), { status: "cancelled" });
        await assert.rejects(ignoring.step("late"), RunLeaseLostError);
        assert.ok(ignoring.signal.aborted && !ignoring.isHeld);
      }),
      RunLeaseLostError,
    );
  });

  test("a lease is renewed for as long as the work takes", async () => {
    const run = memory.run(session(), { leaseMs: 1_000 });
    await run.work(async () => {
      await new Promise((resolve) => setTimeout(resolve, 2_500));
      assert.ok(run.isHeld);
      await run.step("still here");
    });
    assert.deepEqual(await status(run), ["completed", ""]);
  });

  test("queued runs are claimed in a loop, each by one worker", async () => {
    const talk = session();
    for (const id of ["a", "b", "c", "d"]) {
      const info = await memory.enqueueRun(talk, { id, metadata: id });
      assert.deepEqual([info.status, info.holder], ["interrupted", ""]);
    }
    const done: string[] = [];
    const controller = new AbortController();
    const worker = async (): Promise<void> => {
      for await (const run of memory.claims(talk.agent, { pollMs: 20, signal: controller.signal })) {
        if (run.id === "d") continue; // Released for others.
        await run.work(async () => {
          assert.equal(run.metadata, run.id);
          await run.step({ id: run.id });
          done.push(run.id);
        });
        if (done.length === 3) controller.abort(new Error("enough"));
      }
    };
    const ended = await Promise.allSettled([worker(), worker()]);
    assert.deepEqual(ended.map(({ status: how }) => how), ["rejected", "rejected"]);
    assert.deepEqual(done.toSorted(), ["a", "b", "c"]);
    await until(async () => (await memory.getRun(talk, "d")).status === "interrupted");
    await using claims = memory.claims(talk.agent);
    for await (const run of claims) {
      assert.equal(run.id, "d");
      await run.work(() => {});
      await claims.close();
    }
  });

  // Others take the run up, so its work must not be told that all went well (design: runs, leases).
  test("a client that is closed leaves its runs to others, and their work rejects", async () => {
    const isLoss = (error: unknown): boolean =>
      error instanceof RunLeaseLostError &&
      error.reason === "LEASE_LOST" &&
      /its client was closed, .* it is not recorded as completed/.test(error.message);
    const cause = new RangeError("no seat");
    const ends: Record<string, (run: Run) => unknown> = {
      "ends well": () => "as if nothing had happened",
      "goes on": (run) => assert.rejects(run.step("late"), isLoss).then(() => run.step("later")),
      "heeds the signal": (run) => run.signal.throwIfAborted(),
      "fails": () => {
        throw cause;
      },
    };
    for (const [how, end] of Object.entries(ends)) {
      const client = new MemoryClient(server.address, { logger: { warn: () => {}, info: () => {} } });
      const run = client.run(client.session({ agent: newId() }));
      const work = run.work(async () => {
        await client.close();
        assert.ok(run.signal.aborted && isLoss(run.signal.reason) && !run.isHeld, how);
        return end(run);
      });
      await assert.rejects(work, (error: Error) => isLoss(error) && (error.cause === cause) === (how === "fails"), how);
      assert.deepEqual(await status(run), ["interrupted", ""], how);
    }
  });

  test("work that was told to stop before its client was closed rejects with why", async () => {
    const client = new MemoryClient(server.address, { logger: { warn: () => {}, info: () => {} } });
    const controller = new AbortController();
    const reason = new Error("the pod is stopped");
    const run = client.run(client.session({ agent: newId() }), { signal: controller.signal });
    const work = run.work(async () => {
      controller.abort(reason);
      await client.close();
      run.signal.throwIfAborted();
    });
    await assert.rejects(work, (error) => error === reason);
    assert.equal((await status(run))[0], "interrupted");
  });

  test("a step that was committed unseen is found again", async () => {
    const run = memory.run(session());
    await run.work(async () => {
      await run.step("one");
      // Another client with the same fence stands for a try whose answer was lost.
      const { RunService, CommitRunStepRequestSchema } = await import("../src/v1.js");
      const { create } = await import("@bufbuild/protobuf");
      const { Connection } = await import("../src/connection.js");
      const { Target } = await import("../src/target.js");
      const connection = new Connection(new Target(server.address, {}));
      const key = { session: { agent: run.session.agent, sessionId: run.session.id }, runId: run.id };
      const request = create(CommitRunStepRequestSchema, { run: key, fence: run.fence, number: 2n, payload: new Uint8Array([50]) });
      await connection.operation().call(RunService.method.commitRunStep, request);
      await connection.close();
      await assert.rejects(run.step("two"), (error: unknown) => error instanceof StepMismatchError && error.stepCount === 2);
      assert.equal((await run.resume())!.text, "2");
      assert.equal((await run.step("three")).number, 3);
    });
  });
});
