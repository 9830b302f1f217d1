// What the README shows is compiled, and run against a real server.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { after, before, test } from "node:test";
import { promisify } from "node:util";

import ts from "typescript";

import { Server } from "./server.js";

const HERE = new URL("../../", import.meta.url);
const EXAMPLES = new URL("build/examples/", HERE);

let server: Server;
before(async () => {
  server = await Server.start();
  await mkdir(EXAMPLES, { recursive: true });
});
after(async () => {
  await server.stop();
  await rm(EXAMPLES, { recursive: true });
});

test("what the README shows compiles and works", async () => {
  // The client's own, and the first use in that of the repository.
  const readmes = ["README.md", "../../README.md"].map((path) => readFileSync(new URL(path, HERE), "utf8")).join("\n");
  const blocks = [...readmes.matchAll(/```ts\n(.*?)```/gs)].map(([, block]) => block!);
  assert.ok(blocks.length >= 8);
  const files: string[] = [];
  for (const [index, block] of blocks.entries()) {
    const source = block.replaceAll('"memoryd"', '"../../src/index.js"').replaceAll(/(127\.0\.0\.1|localhost):7600/g, server.address);
    const file = fileURLToPath(new URL(`example${index}.ts`, EXAMPLES));
    await writeFile(file, `${source}\nexport {};\n`);
    files.push(file);
  }
  const config = ts.readConfigFile(fileURLToPath(new URL("tsconfig.json", HERE)), ts.sys.readFile).config as { compilerOptions: object };
  const { options } = ts.convertCompilerOptionsFromJson(config.compilerOptions, fileURLToPath(HERE));
  const program = ts.createProgram(files, { ...options, noUnusedLocals: false, rootDir: fileURLToPath(HERE) });
  const complaints = ts.getPreEmitDiagnostics(program).map(({ messageText, file }) => `${file?.fileName}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`);
  assert.deepEqual(complaints, []);
  for (const file of files) {
    const { outputText } = ts.transpileModule(readFileSync(file, "utf8"), { compilerOptions: { ...options, module: ts.ModuleKind.ESNext } });
    const script = file.replace(/\.ts$/, ".mjs");
    await writeFile(script, outputText.replaceAll("../../src/", "../src/"));
    await promisify(execFile)(process.execPath, [script], { timeout: 30_000, cwd: server.folder });
  }
});
