// What becomes of calls that fail: tries, typed errors, deadlines, tokens, TLS, and servers that go away.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { inspect } from "node:util";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";

import { create, type DescMessage, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";

import * as sdk from "../src/index.js";
import {
  AnswerUnreadableError,
  CredentialInvalidError,
  CredentialMissingError,
  DeadlineExceededError,
  MemoryClient,
  MemorydError,
  MethodUnknownError,
  ServerUnavailableError,
  type Session,
  StoreUnavailableError,
  textOf,
  TlsFailedError,
  UnauthenticatedError,
  UnavailableError,
  user,
  WindowChangedError,
} from "../src/index.js";
import * as v1 from "../src/v1.js";
import { isRetried, SERVICES } from "../src/methods.js";
import { isLoopback } from "../src/target.js";
import { all, deadAddress, TEST_MEMORYD, Server, until } from "./server.js";
import { type Answer, ScriptedServer } from "./scripted-server.js";

const QUIET = { logger: { warn: () => {}, info: () => {} } };
const TOKEN = "memoryd_c2VjcmV0";

function bytes<Schema extends DescMessage>(schema: Schema, init: MessageInitShape<Schema>): Uint8Array {
  return toBinary(schema, create(schema, init));
}

describe("on a server that follows a script", () => {
  let scripted: ScriptedServer;
  let memory: MemoryClient;
  beforeEach(async () => {
    scripted = await ScriptedServer.start();
    memory = new MemoryClient(scripted.address, QUIET);
  });
  afterEach(async () => {
    await memory.close();
    scripted.stop();
  });
  const session = (): Session => memory.session({ agent: "a", id: "s" });
  const message: MessageInitShape<typeof v1.MessageSchema> = {
    id: "m",
    seq: 1n,
    role: v1.Role.USER,
    content: { parts: [{ kind: { case: "text", value: "a" } }] },
  };

  test("an append is tried again with the same ids", async () => {
    const stored = bytes(v1.AppendMessagesResponseSchema, { messages: [{ id: "m", seq: 1n }] });
    scripted.script("AppendMessages", { code: "UNAVAILABLE" }, { code: "UNAVAILABLE" }, { responses: [stored] });
    assert.equal((await session().append(user("a")))[0]!.seq, 1);
    const asked = scripted.asked.map(({ request }) => fromBinary(v1.AppendMessagesRequestSchema, request));
    assert.equal(asked.length, 3);
    assert.equal(new Set(asked.map(({ messages }) => messages[0]!.id)).size, 1);
    // Also one that is larger than what gRPC keeps by default.
    scripted.script("AppendMessages", { code: "UNAVAILABLE" }, { responses: [stored] });
    await session().append([user("x".repeat(1_800_000)), user("x".repeat(1_500_000))]);
    assert.equal(scripted.count("AppendMessages"), 5);
  });

  test("a change that a repeat would do twice is tried once", async () => {
    const calls: Record<string, () => Promise<unknown>> = {
      UpdateSession: () => session().update({ userId: "x" }),
      ClearAgentHistory: () => memory.clearAgent("a"),
      UpdateAgent: () => memory.agent("a").update({ loadMemory: true }),
      Summarize: () => session().summarize(),
      RevertSummary: () => session().revertSummary("x"),
      LeaseSummaryTask: () => memory.summarizeWith("a", () => "", { wait: false }),
      DeleteMemoryFile: () => memory.files({ user: "a" }).delete("MEMORY.md"),
      DeleteRun: () => memory.deleteRun(session(), "r"),
    };
    for (const [method, call] of Object.entries(calls)) {
      scripted.script(method, { code: "UNAVAILABLE", reason: "STORE_UNAVAILABLE", metadata: { store: "main" } });
      await assert.rejects(call(), (error: unknown) => error instanceof StoreUnavailableError && error.metadata["store"] === "main");
      assert.equal(scripted.count(method), 1, method);
    }
    const once = SERVICES.flatMap((service) => service.methods).filter((method) => !isRetried(method));
    const named = new Set([...Object.keys(calls), "WatchMessages", "UpdateRun", "ClaimRun"]);
    assert.deepEqual(new Set(once.map(({ name }) => name)), named);
  });

  test("tries end, and the error stays", async () => {
    scripted.script("ClearHistory", { code: "UNAVAILABLE", reason: "SERVER_DRAINING" });
    await assert.rejects(session().clear({ timeoutMs: 1_000 }), sdk.ServerDrainingError);
    assert.ok(scripted.count("ClearHistory") > 1);
    const ids = scripted.asked.map(({ request }) => fromBinary(v1.ClearHistoryRequestSchema, request).requestId);
    assert.equal(new Set(ids).size, 1);
    assert.notEqual(ids[0], "");
  });

  test("every reason has its error", async () => {
    const names = Object.values(v1.ErrorReason).filter((name): name is string => typeof name === "string" && name !== "UNSPECIFIED");
    const kinds = new Map<string, Function>();
    for (const reason of names) {
      scripted.script("GetSession", { code: "ABORTED", reason, metadata: { field: "f" } });
      const error = await session().info().catch((failed: unknown) => failed);
      assert.ok(error instanceof MemorydError && error.reason === reason && error.text === `text of ${reason}`, reason);
      assert.ok(!["MemorydError", "AbortedError"].includes(error.name), reason);
      const exported: unknown = (sdk as Record<string, unknown>)[error.name];
      assert.equal(exported, error.constructor, error.name);
      kinds.set(reason, error.constructor);
    }
    assert.equal(new Set(kinds.values()).size, names.length);
    scripted.script("GetSession", { code: "NOT_FOUND", reason: "A_NEWER_REASON" });
    await assert.rejects(session().info(), (error: unknown) => error instanceof sdk.NotFoundError && error.reason === "A_NEWER_REASON");
    for (const reason of ["toString", "__proto__"]) {
      scripted.script("GetSession", { code: "NOT_FOUND", reason });
      await assert.rejects(session().info(), sdk.NotFoundError);
    }
  });

  test("errors from elsewhere have no reason", async () => {
    scripted.script("GetSession", { code: "PERMISSION_DENIED" });
    await assert.rejects(session().info(), (error: unknown) => {
      assert.ok(error instanceof MemorydError && error.reason === "" && error.code === "PERMISSION_DENIED");
      return error.message.includes("GetSession failed at 127.0.0.1");
    });
    scripted.script("GetSession", { code: "UNIMPLEMENTED" });
    await assert.rejects(session().info(), MethodUnknownError);
    scripted.script("GetSession", { code: "UNAUTHENTICATED" });
    await assert.rejects(session().info(), (error: unknown) => error instanceof UnauthenticatedError && error.reason === "");
  });

  test("calls end with their deadline", async () => {
    scripted.script("GetSession", { delayMs: 60_000 });
    scripted.script("UpdateSession", { delayMs: 60_000 });
    const started = performance.now();
    await assert.rejects(session().info({ timeoutMs: 200 }), (error: unknown) => {
      assert.ok(error instanceof DeadlineExceededError && error.reason === "");
      return error.message.includes("GetSession did not end within 0.2 s") && error.message.includes("stores() tells");
    });
    await assert.rejects(session().update({ userId: "a", timeoutMs: 200 }), /read before you repeat it/);
    await using short = new MemoryClient(scripted.address, { timeoutMs: 200 });
    await assert.rejects(short.session({ agent: "a" }).info(), DeadlineExceededError);
    scripted.script("GetSession", { code: "UNAVAILABLE" });
    await assert.rejects(session().info({ timeoutMs: 100 }), (error) => error instanceof DeadlineExceededError || error instanceof UnavailableError);
    assert.ok(performance.now() - started < 3_000);
  });

  test("an empty page is not the end", async () => {
    const page = (next: string, ...messages: MessageInitShape<typeof v1.MessageSchema>[]): Answer => ({
      responses: [bytes(v1.ListMessagesResponseSchema, { messages, nextPageToken: next })],
    });
    scripted.script("ListMessages", page("1"), page("2", message), page(""));
    assert.equal((await all(session().messages())).length, 1);
    const tokens = scripted.asked.map(({ request }) => fromBinary(v1.ListMessagesRequestSchema, request).pageToken);
    assert.deepEqual(tokens, ["", "1", "2"]);
  });

  test("a large window is streamed, and the stream begun again", async () => {
    const piece = bytes(v1.StreamWindowResponseSchema, { messages: [message] });
    const last = bytes(v1.StreamWindowResponseSchema, { messages: [message], stats: { lastSeq: 1n } });
    const changed: Answer = { responses: [piece], code: "ABORTED", reason: "WINDOW_CHANGED" };
    const broken: Answer = { responses: [piece], code: "UNAVAILABLE" };
    scripted.script("LoadWindow", { code: "FAILED_PRECONDITION", reason: "WINDOW_TOO_LARGE" });
    scripted.script("StreamWindow", changed, broken, { responses: [piece, last] });
    const window = await session().window({ messages: 5, summary: false });
    assert.deepEqual([window.length, window.stats.lastSeq], [2, 1]);
    const request = fromBinary(v1.StreamWindowRequestSchema, scripted.asked.at(-1)!.request);
    assert.deepEqual([request.options?.limit, request.summary, request.session?.sessionId], [5n, false, "s"]);
    scripted.script("StreamWindow", changed);
    await assert.rejects(session().window(), WindowChangedError);
    assert.equal(scripted.count("StreamWindow"), 8);
    scripted.script("StreamWindow", { responses: [piece] });
    await assert.rejects(session().window(), (error: unknown) => error instanceof AnswerUnreadableError && error.code === "DATA_LOSS");
  });

  test("what a newer server sends is no silent loss", async () => {
    const unknown = bytes(v1.GetMessageResponseSchema, { message: { ...(message as object), role: 77 as v1.Role } });
    scripted.script("GetMessage", { responses: [unknown] });
    await assert.rejects(session().message({ seq: 1 }), AnswerUnreadableError);
    scripted.script("GetMessage", { responses: [bytes(v1.GetMessageResponseSchema, { message: { ...(message as object), role: v1.Role.USER, content: { parts: [{}] } } })] });
    await assert.rejects(session().message({ seq: 1 }), /a kind of message part that this SDK does not know/);
    scripted.script("GetSession", { responses: [bytes(v1.GetSessionResponseSchema, { session: { tokenizer: 77 as v1.Tokenizer } })] });
    assert.equal((await session().info()).tokenizer, "unspecified");
  });

  test("the token and the store go along with every call", async () => {
    scripted.script("GetSession", { responses: [bytes(v1.GetSessionResponseSchema, { session: {} })] });
    await using client = new MemoryClient(scripted.address, { token: TOKEN, store: "second" });
    await client.session({ agent: "a" }).info();
    await session().info();
    const [first, second] = scripted.asked.map(({ metadata }) => metadata.getMap());
    assert.deepEqual([first!["authorization"], first!["memoryd-store"]], [`Bearer ${TOKEN}`, "second"]);
    assert.ok(!("authorization" in second!) && !("memoryd-store" in second!));
    scripted.script("GetSession", { code: "UNAUTHENTICATED", reason: "CREDENTIAL_INVALID" });
    const error: unknown = await client.session({ agent: "a" }).info().catch((failed: unknown) => failed);
    assert.ok(error instanceof CredentialInvalidError);
    assert.ok(!inspect([error, client], { depth: 20, showHidden: true }).includes(TOKEN));
  });

  test("a claim by name and the end of a run are repeated with a look in between", async () => {
    const key = { session: { agent: "a", sessionId: "s" }, runId: "r" };
    const run = (status: v1.RunStatus, statusReason = ""): Uint8Array => bytes(v1.GetRunResponseSchema, { run: { key, status, statusReason } });
    const held = bytes(v1.ClaimRunResponseSchema, { run: { key, status: v1.RunStatus.RUNNING }, fence: "f" });
    scripted.script("ClaimRun", { code: "UNAVAILABLE" }, { responses: [held] });
    scripted.script("GetRun", { responses: [run(v1.RunStatus.RUNNING)] }, { responses: [run(v1.RunStatus.COMPLETED)] });
    scripted.script("UpdateRun", { code: "UNAVAILABLE" });
    await memory.claim(session(), "r").work(() => {});
    assert.deepEqual(scripted.asked.map(({ method }) => method), ["ClaimRun", "GetRun", "ClaimRun", "UpdateRun", "GetRun"]);
  });
});

test("a missing server says where and what to do", async () => {
  const address = await deadAddress();
  await using memory = new MemoryClient(address);
  await assert.rejects(memory.agent("a").update({ loadMemory: true }), (error: unknown) => {
    assert.ok(error instanceof ServerUnavailableError && !(error instanceof TlsFailedError), inspect(error));
    return error.message.includes(`no memoryd server answers at ${address}`) && error.reason === "";
  });
});

test("which addresses are this machine's", () => {
  for (const address of ["127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1", "unix:/tmp/a"]) assert.ok(isLoopback(address), address);
  for (const address of ["10.0.0.1:1", "example.com:1", "[::2]:1", "127.0.0.1.example.com:1", "localhost.example.com:1"]) {
    assert.ok(!isLoopback(address), address);
  }
});

test("a token never goes unencrypted to another machine", async () => {
  for (const [wrong, complaint] of [
    [() => new MemoryClient("memory.example.com:7600", { token: TOKEN }), /token would go to memory.example.com:7600 unencrypted/],
    [() => new MemoryClient("memory.example.com:7600", { token: TOKEN, tls: false }), /unencrypted/],
    [() => new MemoryClient("127.0.0.1:1", { token: `${TOKEN}\n` }), /token holds white space/],
    [() => new MemoryClient("127.0.0.1:1", { token: "" }), /token is empty/],
    [() => new MemoryClient("127.0.0.1:1", { ca: "/nowhere.pem" }), /ca "\/nowhere.pem" cannot be read/],
    [() => new MemoryClient("127.0.0.1:1", { ca: Buffer.from("x") }), /ca holds no certificate/],
    [() => new MemoryClient("127.0.0.1:1", { ca: Buffer.from("x"), tls: false }), /ca is given and tls is false/],
  ] as const) {
    assert.throws(wrong, (error: Error) => complaint.test(error.message) && !inspect(error).includes(TOKEN));
  }
  await new MemoryClient("memory.example.com:7600", { token: TOKEN, tls: true }).close();
  await new MemoryClient("memory.example.com:7600", { token: TOKEN, allowTokenWithoutTls: true }).close();
});

describe("on a server with tokens and TLS", () => {
  let server: Server;
  let token = "";
  let plainServer: Server;
  const file = (name: string): string => join(server.folder, name);
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  const openssl = (...args: string[]): void => void execFileSync("openssl", args, { stdio: "ignore", cwd: server.folder });

  before(async () => {
    plainServer = await Server.start();
    server = await Server.start();
    await server.kill();
    for (const name of ["ca", "other"]) {
      openssl("req", "-x509", ...key, "-keyout", `${name}.key`, "-out", `${name}.pem`, "-days", "2", "-subj", `/CN=${name}`);
    }
    openssl("req", ...key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost");
    execFileSync("sh", ["-c", "printf 'subjectAltName=DNS:localhost' > san.cnf"], { cwd: server.folder });
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "server.pem", "-days", "2", "-extfile", "san.cnf");
    execFileSync(TEST_MEMORYD, ["token", "create", "--file", file("tokens.toml"), "--tenant", "acme", "--out", file("token")], { stdio: "ignore" });
    token = readFileSync(file("token"), "utf8").trim();
    const args = ["--tls-certificate", file("server.pem"), "--tls-key", file("server.key"), "--tokens-file", file("tokens.toml")];
    Object.assign(server, { args: ["--store", "main=memory://", ...args] });
    await server.restart();
  });
  after(async () => {
    await server.stop();
    await plainServer.stop();
  });
  const localhost = (): string => server.address.replace("127.0.0.1", "localhost");
  const failure = async (address: string, options: sdk.ClientOptions): Promise<unknown> => {
    await using memory = new MemoryClient(address, options);
    return await memory.stores({ timeoutMs: 15_000 }).then(() => undefined, (error: unknown) => error);
  };

  test("calls arrive, and refusals have their types", async () => {
    assert.equal(await failure(localhost(), { ca: file("ca.pem"), token }), undefined);
    assert.equal(await failure(localhost(), { ca: readFileSync(file("ca.pem")), token }), undefined);
    assert.ok((await failure(localhost(), { ca: file("ca.pem") })) instanceof CredentialMissingError);
    assert.ok((await failure(localhost(), { ca: file("ca.pem"), token: TOKEN })) instanceof CredentialInvalidError);
  });

  for (const [name, address, options, complaint] of [
    ["another authority", localhost, () => ({ ca: file("other.pem"), token }), /is not from a CA that the client trusts/],
    ["public authorities", localhost, () => ({ tls: true, token }), /is not from a CA that the client trusts/],
    ["another name", () => server.address, () => ({ ca: file("ca.pem"), token }), /is for other names/],
    ["a server without TLS", () => plainServer.address, () => ({ ca: file("ca.pem") }), /does not speak TLS/],
    ["a client without TLS", localhost, () => ({ token }), /closed the connection at once: it may ask for TLS/],
  ] as const) {
    test(`${name} is told`, async () => {
      const error = await failure(address(), options());
      assert.ok(error instanceof TlsFailedError, inspect(error));
      assert.match(error.message, complaint);
    });
  }
});

describe("on a server that goes away", () => {
  test("a watch goes on behind what it has seen", async () => {
    const server = await Server.start({ stores: ["main=sqlite:///FOLDER/memory.db"] });
    const logged: string[] = [];
    const logger = { warn: (text: string) => void logged.push(text), info: (text: string) => void logged.push(text) };
    await using memory = new MemoryClient(server.address, { logger });
    try {
      const talk = memory.session({ agent: "a" });
      await talk.append([user("1"), user("2")]);
      const events = talk.watch({ afterSeq: 0 });
      const seen: string[] = [];
      const reading = (async () => {
        for await (const { message } of events) {
          seen.push(textOf(message!));
          if (seen.length === 5) break;
        }
      })();
      await until(() => seen.length === 2);
      await server.kill();
      await until(() => logged.some((text) => text.includes("broke off and is resumed")));
      assert.match(logged[0]!, /no memoryd server answers/);
      await server.restart();
      await talk.append([user("3"), user("4")], { timeoutMs: 30_000 });
      await until(() => seen.length === 4);
      await server.kill("SIGTERM");
      await server.restart();
      await talk.append(user("5"));
      await reading;
      assert.deepEqual(seen, ["1", "2", "3", "4", "5"]);
      await server.kill();
      await assert.rejects(all(talk.watch({ retryForMs: 200 })), ServerUnavailableError);
    } finally {
      await server.stop();
    }
  });

  // The same reset is a sign of TLS from a server that never answered in plaintext, and none from one that did.
  test("a connection that is reset is no matter of TLS once the server has answered", async () => {
    const scripted = await ScriptedServer.start();
    const port = Number(scripted.address.split(":").at(-1));
    const sockets: Socket[] = [];
    let isUp = true;
    const reset = (socket: Socket): void => {
      socket.on("error", () => {});
      socket.once("data", () => socket.resetAndDestroy());
    };
    const way = createServer((socket) => {
      if (!isUp) {
        reset(socket);
        return;
      }
      const behind = connect(port, "127.0.0.1");
      socket.pipe(behind).pipe(socket);
      for (const one of [socket, behind]) one.on("error", () => {});
      sockets.push(socket, behind);
    }).listen(0, "127.0.0.1");
    // Another address, since gRPC shares what it knows of one between clients.
    const noWay = createServer(reset).listen(0, "127.0.0.1");
    await Promise.all([way, noWay].map((one) => new Promise((resolve) => one.once("listening", resolve))));
    const [address, another] = [way, noWay].map((one) => `127.0.0.1:${(one.address() as { port: number }).port}`);
    const update = (memory: MemoryClient): Promise<unknown> => memory.session({ agent: "a" }).update({ userId: "mia" });
    const isUnavailable = (error: unknown): boolean =>
      error instanceof ServerUnavailableError && !(error instanceof TlsFailedError) && error.message.includes("no memoryd server answers");
    try {
      await using memory = new MemoryClient(address, QUIET);
      // A refusal is an answer, too.
      scripted.script("UpdateSession", { code: "NOT_FOUND", reason: "SESSION_NOT_FOUND" }, { delayMs: 60_000 });
      await assert.rejects(update(memory), sdk.SessionNotFoundError);
      const underWay = assert.rejects(update(memory), isUnavailable);
      await until(() => scripted.count("UpdateSession") === 2);
      isUp = false;
      for (const socket of sockets) socket.resetAndDestroy();
      await underWay;
      await assert.rejects(update(memory), isUnavailable);
      await using stranger = new MemoryClient(another, QUIET);
      await assert.rejects(update(stranger), TlsFailedError);
    } finally {
      way.close();
      noWay.close();
      scripted.stop();
    }
  });

  test("a server that accepts and says nothing ends with the deadline", async () => {
    const sockets: Socket[] = [];
    const silent = createServer((socket) => void sockets.push(socket)).listen(0, "127.0.0.1");
    await new Promise((resolve) => silent.once("listening", resolve));
    const { port } = silent.address() as { port: number };
    await using memory = new MemoryClient(`127.0.0.1:${port}`);
    await assert.rejects(memory.stores({ timeoutMs: 300 }), DeadlineExceededError);
    for (const socket of sockets) socket.destroy();
    silent.close();
  });
});
