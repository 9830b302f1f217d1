// Memory against a real server: files of this machine, files of the store, and the tools of the model.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";

import {
  EtagMismatchError,
  MemoryClient,
  type MemoryContext,
  MemoryFileNotFoundError,
  newId,
  ProjectFiles,
  SecretFoundError,
  StoredMemory,
  UserFiles,
} from "../src/index.js";
import { readBeneath, resolved, walked } from "../src/file-reading.js";
import { MemoryPage, READ_CHARACTERS } from "../src/memory-pages.js";
import { all, deadAddress, Server } from "./server.js";

const SECRET = "- the key is AKIA" + "Z7Q4M2X9K3B6T8W1";

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "memoryd-files-"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

describe("reading files", () => {
  const opens = process.platform === "linux" ? { walked, resolved } : { resolved };
  const names = [".openhands", "memory", "MEMORY.md"];
  const put = async (path: string, content: string | Uint8Array = "- a fact"): Promise<void> => {
    await mkdir(join(folder, path, ".."), { recursive: true });
    await writeFile(join(folder, path), content);
  };

  for (const [way, open] of Object.entries(opens)) {
    const read = async (root = folder): Promise<string | undefined> => {
      const { content, unreadable } = await readBeneath(root, names, open);
      return unreadable ?? (content === undefined ? undefined : Buffer.from(content).toString());
    };

    test(`${way}: a file is read, over links that stay inside`, async () => {
      assert.equal(await read(), undefined);
      assert.equal(await read(join(folder, "nowhere")), undefined);
      await put("notes/memory/MEMORY.md");
      await symlink("notes", join(folder, ".openhands"));
      assert.equal(await read(), "- a fact");
      await symlink(folder, `${folder}-link`);
      assert.equal(await read(`${folder}-link`), "- a fact");
      await rm(`${folder}-link`);
    });

    test(`${way}: an absolute link inside, and a file that is a link in its folder`, async () => {
      await put("notes/memory/MEMORY.md");
      await symlink(join(folder, "notes"), join(folder, ".openhands"));
      assert.equal(await read(), "- a fact");
      await rm(join(folder, ".openhands"));
      await put(".openhands/memory/other.md", "- another");
      await symlink("other.md", join(folder, ".openhands/memory/MEMORY.md"));
      assert.equal(await read(), "- another");
    });

    test(`${way}: nothing outside is read`, async () => {
      const outside = await mkdtemp(join(tmpdir(), "memoryd-outside-"));
      await writeFile(join(outside, "MEMORY.md"), "secret");
      await mkdir(join(folder, ".openhands"));
      for (const target of [outside, `../../${outside.split("/").at(-1)}`, "../../../../../../../../.."]) {
        await symlink(target, join(folder, ".openhands/memory"));
        const found = await read();
        assert.ok(found === undefined || found === "a symbolic link leads out of its folder", found);
        await rm(join(folder, ".openhands/memory"));
      }
      await put(".env", "secret");
      await mkdir(join(folder, ".openhands/memory"));
      await symlink("../../.env", join(folder, ".openhands/memory/MEMORY.md"));
      assert.equal(await read(), "a symbolic link leads out of its folder");
      await rm(join(folder, ".openhands"), { recursive: true });
      await put("memory/here.md", "secret");
      await symlink("here.md", join(folder, "memory/MEMORY.md"));
      await symlink(".", join(folder, ".openhands"));
      assert.equal(await read(), "it is a symbolic link in a folder that is reached over one");
      await rm(outside, { recursive: true });
    });

    test(`${way}: what is no file, or too large, is not read`, async () => {
      await mkdir(join(folder, ".openhands/memory/MEMORY.md"), { recursive: true });
      assert.equal(await read(), "it is a folder, not a file");
      await rm(join(folder, ".openhands"), { recursive: true });
      await mkdir(join(folder, ".openhands/memory"), { recursive: true });
      execFileSync("mkfifo", [join(folder, ".openhands/memory/MEMORY.md")]);
      assert.equal(await read(), "it is a pipe, not a file");
      await rm(join(folder, ".openhands"), { recursive: true });
      await put(".openhands/memory/MEMORY.md", new Uint8Array(1_048_577));
      assert.equal(await read(), "it is larger than 1,048,576 bytes");
      await rm(join(folder, ".openhands"), { recursive: true });
      await put(".openhands", "");
      assert.equal(await read(), "a part of its path is not a folder");
      await rm(join(folder, ".openhands"));
      await symlink(".openhands", join(folder, ".openhands"));
      assert.equal(await read(), "its symbolic links go in a circle, or change");
    });
  }
});

describe("memory on a server", () => {
  let server: Server;
  let memory: MemoryClient;
  const logged: string[] = [];
  before(async () => {
    server = await Server.start();
    memory = new MemoryClient(server.address, { logger: { warn: (text) => void logged.push(text), info: () => {} } });
  });
  after(async () => {
    await memory.close();
    await server.stop();
  });

  test("files of this machine are rendered", async () => {
    await mkdir(join(folder, "work/.openhands/memory"), { recursive: true });
    await writeFile(join(folder, "work/.openhands/memory/MEMORY.md"), "- uses cursors\n");
    await writeFile(join(folder, "MEMORY.md"), "- prefers uv\n");
    const files = { user: new UserFiles(folder), project: new ProjectFiles(join(folder, "work")) };
    const context = await memory.renderContext(files);
    assert.match(context.block, /^<MEMORY_CONTEXT>[\s\S]*- prefers uv[\s\S]*- uses cursors[\s\S]*<\/MEMORY_CONTEXT>$/);
    assert.equal(context.prompt, `${context.block}\n\n${context.instructions}`);
    assert.deepEqual([context.enabled, context.user, context.warnings], [true, { state: "loaded", keptLines: 1, droppedLines: 0 }, []]);
    assert.deepEqual(context.tools.names, []);
    const one = await memory.renderContext({
      user: new UserFiles(join(folder, "work/.openhands/memory")),
      project: new ProjectFiles(join(folder, "work")),
    });
    assert.match(one.warnings.join(), /are one file/);
    const none = await memory.renderContext({ project: new ProjectFiles(join(folder, "nowhere")) });
    assert.match(none.warnings.join(), /there is no folder/);
    assert.deepEqual([none.project.state, none.enabled], ["unreadable", true]);
    assert.ok(logged.some((text) => text.includes("there is no folder")));
    const agent = memory.agent(newId());
    assert.equal((await memory.renderContext({ ...files, agent: agent.name })).prompt, "");
    process.env["OH_PERSISTENCE_DIR"] = join(folder, "elsewhere");
    assert.equal((await memory.renderContext({ user: new UserFiles() })).user.state, "absent");
    delete process.env["OH_PERSISTENCE_DIR"];
  });

  test("without a server the agent starts all the same", async () => {
    const warnings: string[] = [];
    const options = { logger: { warn: (text: string) => void warnings.push(text), info: () => {} }, timeoutMs: 1_000 };
    await using alone = new MemoryClient(await deadAddress(), options);
    const context = await alone.renderContext({ user: new UserFiles(folder) });
    assert.deepEqual([context.enabled, context.prompt, context.user.state], [false, "", "unreadable"]);
    assert.match(warnings.join(), /the agent does without/);
  });

  test("mistakes are named before any call", async () => {
    for (const [wrong, complaint] of [
      [() => new UserFiles(7 as unknown as string), /path is of type number/],
      [() => new ProjectFiles("a\0"), /workspace is no path/],
      [() => new StoredMemory({}), /whose memory/],
      [() => new StoredMemory({ user: "" }), /user is empty/],
      [() => memory.renderContext({ user: "~/a" as unknown as UserFiles }), /user is of type string/],
      [() => memory.renderContext({ stored: new StoredMemory({ user: "a" }), user: new UserFiles() }), /user memory has one place/],
      [() => memory.renderContext({ project: new StoredMemory({ user: "a" }) }), /StoredMemory without a project/],
      [() => memory.files({ user: "a", project: "b" } as never), /memory files have one owner/],
    ] as const) {
      await assert.rejects(async () => wrong(), complaint);
    }
  });

  test("files of the store", async () => {
    const files = memory.files({ project: newId() });
    await assert.rejects(files.get(), MemoryFileNotFoundError);
    const added = await files.add(["- the API uses cursors", "- tests run on PostgreSQL"], { author: "mia" });
    assert.deepEqual([added.added, added.skipped, added.file.version], [2, 0, 1]);
    assert.equal((await files.add("- the API uses cursors")).skipped, 1);
    assert.equal((await files.log("Moved to cursors.", { date: "2026-07-25" })).name, "2026-07-25.md");
    await assert.rejects(files.add(SECRET), (error: unknown) => error instanceof SecretFoundError && error.line === 1 && error.kind !== "");
    await files.add(SECRET, { allowSecrets: true });
    const index = await files.get();
    const put = await files.put("- the API uses tokens\n", { etag: index.etag });
    assert.ok(put.version > index.version);
    await assert.rejects(files.put("x", { etag: index.etag }), EtagMismatchError);
    await assert.rejects(files.put("x", { createOnly: true }), EtagMismatchError);
    assert.deepEqual((await all(files.list())).map(({ name }) => name), ["MEMORY.md", "2026-07-25.md"]);
    assert.equal((await files.versions()).length, put.version);
    assert.equal((await files.get("MEMORY.md", { version: 1 })).author, "mia");
    await files.put(new Uint8Array([0xff, 0x0a]), { name: "2026-07-26.md" });
    const bytes = await files.get("2026-07-26.md");
    assert.deepEqual([bytes.content, bytes.text], [new Uint8Array([0xff, 0x0a]), "\ufffd\n"]);
    assert.equal(await files.delete("2026-07-26.md"), true);
    assert.equal(await files.delete("2026-07-26.md"), false);
  });

  test("the model keeps its memory by tools", async () => {
    const stored = new StoredMemory({ user: newId(), project: newId() });
    const render = (): Promise<MemoryContext> => memory.renderContext({ stored, agent: "" });
    const { tools, instructions } = await render();
    assert.deepEqual(tools.names, ["read_memory", "add_memory", "log_memory", "rewrite_memory"]);
    assert.match(instructions, /read_memory/);
    assert.equal(tools.openai()[0]!.function.parameters["type"], "object");
    assert.equal(tools.anthropic()[0]!.input_schema.type, "object");
    assert.equal(tools.openaiResponses()[0]!.name, "read_memory");
    const called = (name: string, args: string | object): Promise<string> => tools.call(name, args);
    assert.match(await called("rewrite_memory", { tier: "user", content: "x" }), /^Error: read the user memory's MEMORY.md/);
    assert.match(await called("read_memory", { tier: "user" }), /There is no MEMORY.md yet/);
    assert.equal(await called("rewrite_memory", { tier: "user", content: "- one\n" }), "MEMORY.md is rewritten: 6 bytes.");
    assert.equal(await called("add_memory", '{"tier":"user","entries":["- two","- one"]}'), "Added to MEMORY.md: 1 of 2 entries. 1 were there already, or came twice.");
    assert.match(await called("rewrite_memory", { tier: "user", content: "x" }), /was changed since you read it/);
    assert.match(await called("log_memory", { tier: "project", text: "x", date: "2026-07-25.md" }), /Added to 2026-07-25.md/);
    const read = await called("read_memory", { tier: "user", from_line: 1 });
    assert.match(read, /There are no logs\.\n\[MEMORY.md [0-9a-f]{16} begins[^\n]*\n- one\n- two\n\[MEMORY.md [0-9a-f]{16} ends\]/);
    assert.match(await called("read_memory", { tier: "project", date: "2026-07-25" }), /The newest logs: 2026-07-25.md/);
    for (const [name, args, complaint] of [
      ["forget", {}, /there is no such tool/],
      ["read_memory", "[]", /the arguments are no JSON object/],
      ["read_memory", "", /`tier` is missing/],
      ["read_memory", { tier: "planet" }, /`tier` can be 'user' or 'project'/],
      ["read_memory", { tier: "user", date: "2026-02-30" }, /must be a day of the calendar/],
      ["read_memory", { tier: "user", from_line: 9 }, /has no line 9/],
      ["read_memory", { tier: "user", line: 1 }, /there are only the arguments `tier`, `date`, `from_line`/],
      ["add_memory", { tier: "user", entries: "x" }, /`entries` must be an array/],
      ["add_memory", { tier: "user", entries: ["\ud800"] }, /holds half of a surrogate pair/],
      ["add_memory", { tier: "user", entries: [SECRET] }, /line 1 of entries\S* holds a credential/],
      ["log_memory", { tier: "user", text: " " }, /^Error: /],
    ] as const) {
      const answer = await called(name, args);
      assert.ok(answer.startsWith("Error: ") && complaint.test(answer), answer);
    }
    assert.match((await render()).block, /- one\n- two/);
    const erased = await memory.eraseUser(stored.user!);
    assert.equal(erased.memoryFileCount, 1);
  });

  test("long files are read page by page", () => {
    const page = MemoryPage.of("🙂".repeat(READ_CHARACTERS + 5), 1)!;
    assert.deepEqual([page.toLine, page.lines, page.cut, page.text.length], [1, 1, 6, 2 * (READ_CHARACTERS - 1) + 1]);
    const lines = MemoryPage.of("a\r\nb\rc\n", 2)!;
    assert.deepEqual([lines.fromLine, lines.toLine, lines.text], [2, 3, "b\nc\n"]);
    assert.equal(MemoryPage.of("a", 2), undefined);
    assert.equal(MemoryPage.of("", 1)!.shown("MEMORY.md"), "MEMORY.md is empty.");
    const long = `${"x".repeat(9_999)}\n`.repeat(2);
    assert.match(MemoryPage.of(long, 1)!.shown("f"), /lines 1 to 1 of 2; read on with from_line=2/);
  });
});
