// The client against a real server.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import {
  assistant,
  batches,
  call,
  ContentionError,
  EtagMismatchError,
  FieldInvalidError,
  FieldRequiredError,
  FOREVER,
  LastSeqMismatchError,
  MemoryClient,
  MemorydError,
  type Message,
  MessageIdConflictError,
  MessageNotFoundError,
  newId,
  RequestIdConflictError,
  SessionExistsError,
  SessionNotFoundError,
  StoreUnknownError,
  SummariesDisabledError,
  SummarizerDiffersError,
  SummaryTaskVoidError,
  system,
  textOf,
  tool,
  user,
  WindowTooSmallError,
} from "../src/index.js";
import { all, Server } from "./server.js";

const HISTORY = "travel";

function sameContent(one: Message, other: Message): void {
  const { seq: _1, createTime: _2, tokenCount: _3, ...mine } = one;
  const { seq: _4, createTime: _5, tokenCount: _6, ...theirs } = other;
  assert.deepEqual(mine, theirs);
}

describe("on a server in memory", () => {
  let server: Server;
  let memory: MemoryClient;
  before(async () => {
    server = await Server.start({ stores: ["main=memory://", "archive=memory://"], args: ["--default-store", "main"] });
    memory = new MemoryClient(server.address);
  });
  after(async () => {
    await memory.close();
    await server.stop();
  });
  const session = (): ReturnType<MemoryClient["session"]> => memory.session({ agent: HISTORY });

  test("a conversation is kept, and its window is whole", async () => {
    const talk = session();
    const weather = call("get_weather", { city: "Oslo" });
    const appended = await talk.append([
      system("You are a travel agent."),
      user("How is the weather in Oslo?"),
      assistant(undefined, { toolCalls: [weather] }),
      tool(weather.id, "4 degrees, light rain"),
    ]);
    assert.deepEqual(appended.map(({ seq }) => seq), [1, 2, 3, 4]);
    assert.ok(appended[0]!.createTime.getTime() > Date.now() - 60_000);
    await talk.append(assistant("It is 4 degrees in Oslo, with light rain."));
    const window = await talk.window({ messages: 4 });
    assert.deepEqual([...window].map(({ role }) => role), ["system", "assistant", "tool", "assistant"]);
    assert.equal(window.length, 4);
    assert.equal(window.stats.pinnedMessageCount, 1);
    assert.equal(window.stats.leftOut.limitCount, 1);
    assert.equal(window.stats.mode, "messages");
    const tokens = await talk.window({ tokens: 4_000, explain: true });
    assert.equal(tokens.stats.windowTokenCount, tokens.stats.historyTokenCount);
    assert.equal(tokens.stats.prefixDigest.length, 32);
    await assert.rejects(talk.window({ tokens: 1, oversize: "fail" }), WindowTooSmallError);
  });

  test("what was stored comes back byte for byte", async () => {
    const talk = session();
    const texts = ["a\0b", "\ufeffwith a mark in front", "🙂 👩‍👩‍👧 שלום 日本語", "\r\n\t ", "", "x".repeat(1_048_576)];
    const messages: Message[] = [
      ...texts.map((text) => user(text)),
      user(null),
      user([]),
      { ...user("named", { name: "", metadata: { n: 1 } }), extra: '{"a":1,"a":2}' },
      assistant([
        { type: "reasoning", text: "hm", signature: "sig" },
        { type: "refusal", text: "No." },
        { type: "data", json: '{"n": 9007199254740993}' },
        { type: "media", mediaType: "image/png", data: new Uint8Array([0, 255, 1]), size: 3 },
        { type: "media", mediaType: "", uri: "file_1", size: 0 },
        { type: "tool_call", id: "", name: "f", arguments: '{"n": 9007199254740993, "s": "\\ud83d", bad' },
      ]),
      tool("", [{ type: "text", text: "\ufeff" }, { type: "refusal", text: "" }], { name: "f", isError: true }),
    ];
    await talk.append(messages);
    const read = await all(talk.messages({ pageSize: 3 }));
    assert.equal(read.length, messages.length);
    messages.forEach((sent, index) => sameContent(read[index]!, sent));
    sameContent(await talk.message({ seq: 2 }), messages[1]!);
    sameContent(await talk.message({ id: messages[2]!.id }), messages[2]!);
    await assert.rejects(talk.message({ seq: 99 }), MessageNotFoundError);
  });

  test("an append is stored once", async () => {
    const talk = session();
    const yes = user("yes");
    const first = await talk.append(yes);
    assert.deepEqual(await talk.append(yes), first);
    await talk.append(user("yes"));
    assert.equal((await talk.info()).messageCount, 2);
    await assert.rejects(talk.append({ ...yes, content: [] }), MessageIdConflictError);
    await assert.rejects(talk.append(user("x"), { expectedLastSeq: 7 }), (error: unknown) => {
      assert.ok(error instanceof LastSeqMismatchError);
      assert.deepEqual([error.actual, error.code, error.reason], [2, "ABORTED", "LAST_SEQ_MISMATCH"]);
      assert.match(error.message, /correlation id/);
      assert.equal(error.metadata["correlation_id"], error.correlationId);
      return true;
    });
    const marked = user("marked");
    await talk.append(marked, { requestId: "r" });
    await assert.rejects(talk.append(user("other"), { requestId: "r" }), RequestIdConflictError);
  });

  test("any number of messages is appended", async () => {
    const talk = session();
    const messages = Array.from({ length: 600 }, (_, index) => user(`${index}`));
    const appended = await talk.appendAll(messages);
    assert.equal(appended.at(-1)!.seq, 600);
    assert.deepEqual((await all(batches(messages))).map(({ length }) => length), [256, 256, 88]);
    const large = Array.from({ length: 5 }, () => user("x".repeat(1_500_000)));
    assert.deepEqual((await all(batches(large))).map(({ length }) => length), [2, 2, 1]);
    const newest = await all(talk.messages({ order: "descending", fromSeq: 599n, toSeq: 600 }));
    assert.deepEqual(newest.map(textOf), ["599", "598"]);
    assert.deepEqual(await all(talk.messages({ roles: ["tool"] })), []);
    assert.equal((await all(talk.messages({ toTime: new Date(0) }))).length, 0);
    const since = await all(talk.messages({ fromTime: appended.at(-1)!.createTime }));
    assert.equal(since.at(-1)!.seq, 600); // A time of the server's is finer than a Date.
  });

  test("a window of any size arrives", async () => {
    const talk = session();
    await talk.appendAll(Array.from({ length: 6 }, (_, index) => user(`${index}${"x".repeat(1_000_000)}`)));
    const window = await talk.window();
    assert.deepEqual([...window].map((one) => textOf(one)[0]), ["0", "1", "2", "3", "4", "5"]);
    assert.equal(window.stats.windowMessageCount, 6);
  });

  test("settings of sessions and agents", async () => {
    const talk = session();
    await assert.rejects(talk.info(), SessionNotFoundError);
    await talk.append(user("Hello!"), {
      create: { userId: "noor", labels: { channel: "web" }, ttlMs: 86_400_000, tokenizer: "estimate", policy: { window: { limit: 20 } } },
    });
    const info = await talk.info();
    assert.deepEqual(
      [info.userId, info.labels, info.ttlMs, info.tokenizer, info.policy, info.unfinishedRunCount],
      ["noor", { channel: "web" }, 86_400_000, "estimate", { window: { limit: 20 } }, 0],
    );
    assert.ok(info.expireTime! > info.createTime!);
    const changed = await talk.update({ ttlMs: FOREVER, labels: {}, etag: info.etag });
    assert.deepEqual([changed.ttlMs, changed.labels, changed.userId], [undefined, {}, "noor"]);
    await assert.rejects(talk.update({ userId: "x", etag: info.etag }), EtagMismatchError);
    await assert.rejects(talk.update({}), /nothing to update/);
    assert.deepEqual((await all(memory.sessions({ userId: "noor" }))).map(({ sessionId }) => sessionId), [talk.id]);

    const agent = memory.agent(newId());
    assert.deepEqual((await agent.info()).runRetentionMs, undefined);
    const policy = { window: { mode: "tokens", limit: 1_000 }, summary: { enabled: true, summarizer: "extractive", keep: 500, retention: "keep", wait: true } } as const;
    const updated = await agent.update({ policy, loadMemory: true, runRetentionMs: FOREVER });
    assert.deepEqual([updated.policy, updated.loadMemory, updated.runRetentionMs], [policy, true, FOREVER]);
    assert.equal((await agent.update({ runRetentionMs: null })).runRetentionMs, undefined);
    assert.ok((await all(memory.agents({ pageSize: 1 }))).some(({ agent: name }) => name === agent.name));
  });

  test("fork, rewind, redact, clear, erase", async () => {
    const talk = session();
    await talk.append([user("My card is 4012."), assistant("Thank you."), user("Book it.")], { create: { userId: "ines" } });
    const other = await talk.fork({ throughSeq: 2 });
    assert.deepEqual((await all(other.messages())).map(textOf), ["My card is 4012.", "Thank you."]);
    await assert.rejects(talk.fork({ target: other }), SessionExistsError);
    assert.deepEqual(await talk.rewind(2, { expectedLastSeq: 3 }), { messageCount: 1, openCallCount: 0 });
    const redacted = await talk.redact({ seq: 1 }, { reason: "a card" });
    assert.deepEqual([textOf(redacted), redacted.redaction?.reason], ["[REDACTED]", "a card"]);
    assert.equal(await talk.clear({ requestId: "c" }), 2);
    await talk.append(user("again"));
    assert.equal(await talk.clear({ requestId: "c" }), 2);
    assert.equal((await talk.info()).messageCount, 1);
    const erased = await memory.eraseUser("ines");
    assert.equal(erased.sessionCount, 2);
    assert.ok(erased.messageCount >= 3);
    await assert.rejects(memory.eraseUser(""), FieldRequiredError);
    const alone = memory.session({ agent: newId() });
    await alone.append(user("a"));
    assert.deepEqual(await memory.clearAgent(alone.agent), { sessionCount: 1, messageCount: 1 });
  });

  test("stores by name", async () => {
    await using client = new MemoryClient(server.address);
    assert.deepEqual((await client.stores()).map(({ name, type, default: isDefault }) => [name, type, isDefault]), [
      ["main", "in_memory", true],
      ["archive", "in_memory", false],
    ]);
    const talk = client.session({ agent: HISTORY });
    await talk.append([user("a"), user("b")]);
    const list = talk.messages({ pageSize: 1 });
    await list.next();
    assert.equal((await client.switchStore("archive")).name, "archive");
    await assert.rejects(talk.info(), SessionNotFoundError);
    assert.equal(textOf((await list.next()).value as Message), "b");
    await assert.rejects(client.switchStore("nowhere"), StoreUnknownError);
    assert.equal((await client.store()).name, "archive");
    assert.equal(await client.storeType(), "in_memory");
    await using second = new MemoryClient(server.address, { store: "archive" });
    assert.equal((await second.store()).name, "archive");
  });

  test("mistakes are named before any call", async () => {
    const talk = session();
    const never = new MemoryClient("127.0.0.1:1");
    for (const [wrong, complaint] of [
      [() => never.session({ agent: 7 as unknown as string }), /agent is of type number; give text/],
      [() => never.session({ agent: "a\ud800" }), /agent holds half of a surrogate pair/],
      [() => talk.append(user(5 as unknown as string)), /content is of type number/],
      [() => talk.append("Hello!" as unknown as Message), /a message is of type string/],
      [() => talk.append(user("a\ud800")), /half of a surrogate pair \(U\+D800\)/],
      [() => talk.append(user([{ type: "media", mediaType: "", uri: "a", data: new Uint8Array() }])), /exactly one of uri and data/],
      [() => talk.append(user("a"), { expectedLastSeq: 1.5 }), /expectedLastSeq is 1.5; give an integer/],
      [() => talk.append(user("a"), { expectedLastSeq: 2 ** 60 }), /give a bigint/],
      [() => talk.append(user("a"), { expectedLastSeq: 2n ** 70n }), /beyond 64 bits/],
      [() => talk.window({ messages: 1, tokens: 1 }), /a window has one limit/],
      [() => talk.window({ openCalls: "sometimes" as "omit" }), /openCalls is "sometimes"; it can be one of "omit"/],
      [() => talk.message({ seq: 1, id: "a" } as never), /give either seq or id/],
      [() => talk.info({ timeoutMs: Number.NaN }), /timeoutMs is NaN/],
      [() => talk.watch({ resumeToken: "a", afterSeq: 1 }), /a watch begins at one place/],
      [() => new MemoryClient(""), /address is empty/],
      [() => new MemoryClient("a:1", { timeoutMs: 0 }), /timeoutMs is 0/],
      [() => new MemoryClient("a:1", { store: "é" }), /store is "é"/],
      [() => new MemoryClient("a:1", 5 as unknown as object), /options is of type number/],
    ] as const) {
      await assert.rejects(
        async () => wrong(),
        (error: Error) => (error instanceof TypeError || error instanceof RangeError) && complaint.test(error.message),
        String(complaint),
      );
    }
    await assert.rejects(talk.append([]), FieldRequiredError);
    await assert.rejects(talk.append(user("a"), { create: { ttlMs: 5 } }), FieldInvalidError);
    await never.close();
    await assert.rejects(never.stores(), /this client is closed/);
  });

  test("a signal aborts a call", async () => {
    const reason = new Error("enough");
    await assert.rejects(session().append(user("a"), { signal: AbortSignal.abort(reason) }), (error) => error === reason);
    const controller = new AbortController();
    const waiting = session().append(user("a"), { signal: controller.signal });
    controller.abort(reason);
    await assert.rejects(waiting, (error) => error === reason);
  });

  test("a server's summaries", async () => {
    const talk = session();
    await assert.rejects(talk.append(user("x"), { create: { policy: { summary: { summarizer: "nobody" } } } }), FieldInvalidError);
    await talk.append(
      Array.from({ length: 12 }, (_, index) => user(`Message ${index} says that the project is called Atlas ${index}.`)),
      { create: { policy: { window: { limit: 8 }, summary: { keep: 2, summarizer: "extractive" } } } },
    );
    const window = await talk.window();
    assert.equal(window.stats.summaryState, "current");
    const summary = await talk.summary();
    assert.equal(window.stats.summaryId, summary.id);
    assert.match(textOf(window.messages[0]!), /^\[CONVERSATION SUMMARY\]\n/);
    assert.deepEqual([summary.current, summary.fromSeq, summary.summarizer], [true, 1, "extractive"]);
    assert.ok(summary.durationMs >= 0);
    assert.deepEqual((await talk.summaries()).map(({ id }) => id), [summary.id]);
    assert.equal(await talk.revertSummary(summary.id), undefined);
    await talk.append(user("More."));
    assert.ok((await talk.summarize()).messageCount > 0);
    await assert.rejects(talk.summarizeWith(() => "x", { wait: false }), SummarizerDiffersError);
    const bare = session();
    await bare.append(user("a"));
    await assert.rejects(bare.summarize(), SummariesDisabledError);
  });

  test("summaries of the agent's own model", async () => {
    const talk = memory.session({ agent: newId() });
    const fill = async (): Promise<void> => {
      await talk.append(
        Array.from({ length: 12 }, (_, index) => user(`The project is called Atlas ${index}.`)),
        { create: { policy: { window: { limit: 8 }, summary: { keep: 2, summarizer: "client" } } } },
      );
      assert.equal((await talk.window()).stats.summaryState, "pending");
    };
    await fill();
    const made = await memory.summarizeWith(talk.agent, (prompt, task) => {
      assert.ok(prompt.includes("Atlas 3") && task.messages.length > 0 && task.expires.getTime() > Date.now());
      return "The project is called Atlas.";
    }, { wait: false, model: "m" });
    assert.equal(made, 1);
    assert.deepEqual([(await talk.summary()).text, (await talk.summary()).model], ["The project is called Atlas.", "m"]);
    await fill();
    for await (const task of talk.summaryTasks({ wait: false })) {
      assert.equal(task.previous, "The project is called Atlas.");
      await talk.clear();
      await assert.rejects(task.commit("Too late."), SummaryTaskVoidError);
      assert.ok(task.settled);
    }
    await fill();
    const tasks = talk.summaryTasks({ wait: false });
    for await (const task of tasks) {
      assert.equal(task.attempts, 0);
      await tasks.close(); // Free for others at once.
      break;
    }
    let tries = 0;
    for await (const task of talk.summaryTasks({ wait: false })) {
      tries += 1;
      assert.equal(task.sessionId, talk.id);
    }
    assert.equal(tries, 1); // It was left without a commit, and waits before it is leased again.
    await using ending = talk.summaryTasks();
    const asking = all(ending);
    await ending.close();
    assert.deepEqual(await asking, []);
    await assert.rejects(all(talk.summaryTasks({ signal: AbortSignal.abort(new Error("stop")) })), /stop/);
  });

  test("a watch tells what happens, in order", async () => {
    const talk = session();
    await talk.append([user("Hello!"), user("Is anybody there?")]);
    const kinds: string[] = [];
    const events = talk.watch({ afterSeq: 0 });
    for await (const event of events) {
      kinds.push(`${event.kind} ${event.fromSeq} ${event.message === undefined ? "" : textOf(event.message)}`.trim());
      if (event.toSeq === 2) break;
    }
    assert.deepEqual(kinds, ["appended 1 Hello!", "appended 2 Is anybody there?"]);
    await using later = await talk.watch({ resumeToken: events.resumeToken }).open();
    await talk.redact({ seq: 1 });
    await talk.rewind(1);
    await talk.clear();
    for (const kind of ["redacted", "rewound", "cleared"]) assert.equal((await later.next()).value?.kind, kind);
    const waiting = later.next();
    later.close();
    assert.deepEqual(await waiting, { done: true, value: undefined });
    await assert.rejects(all(session().watch()), SessionNotFoundError);
    const controller = new AbortController();
    const aborted = await talk.watch({ signal: controller.signal }).open();
    const next = aborted.next();
    controller.abort(new Error("stop"));
    await assert.rejects(next, /stop/);
    const client = new MemoryClient(server.address);
    const left = await client.session({ agent: talk.agent, id: talk.id }).watch().open();
    const last = left.next();
    await client.close();
    await assert.rejects(last, /this client is closed/);
  });

  test("errors are of one family", () => {
    const error = new ContentionError("text", { code: "ABORTED", reason: "CONTENTION", metadata: { correlation_id: "c" } });
    assert.ok(error instanceof MemorydError && error instanceof Error);
    assert.deepEqual([error.name, error.text, error.message], ["ContentionError", "text", "text (correlation id c)"]);
  });
});
