// Real servers for the tests.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The server's program: TEST_MEMORYD, or that of the repository where `make install` made it, or the one on the PATH. */
export const TEST_MEMORYD = process.env["TEST_MEMORYD"] || program();
/** What a server may take until it listens. */
const START_MS = 30_000;

function program(): string {
  // The tests run in build/test.
  const built = fileURLToPath(new URL("../../../../.venv/bin/memoryd", import.meta.url));
  return existsSync(built) ? built : "memoryd";
}

/** A server that runs. */
export class Server {
  #process: ChildProcess | undefined;
  address = "";

  private constructor(
    private readonly args: readonly string[],
    readonly folder: string,
  ) {}

  /** Starts a server; without stores it has one in memory. */
  static async start(options: { args?: readonly string[]; stores?: readonly string[] } = {}): Promise<Server> {
    const folder = await mkdtemp(join(tmpdir(), "memoryd-ts-"));
    const stores = options.stores ?? ["main=memory://"];
    const args = [...stores.flatMap((store) => ["--store", store.replace("FOLDER", folder)]), ...(options.args ?? [])];
    const server = new Server(args, folder);
    await server.restart("127.0.0.1:0");
    return server;
  }

  /** Starts it (again), at an address. */
  async restart(listen = this.address): Promise<void> {
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("MEMORYD_")));
    const child = spawn(TEST_MEMORYD, ["serve", "--listen", listen, ...this.args], {
      cwd: this.folder,
      env: { ...env, MEMORYD_CONFIG: "" },
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#process = child;
    let output = "";
    this.address = await new Promise<string>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`the server did not start:\n${output}`)), START_MS);
      const read = (chunk: Buffer): void => {
        output += chunk.toString();
        const found = /(?:serves on |address=)(\S+:\d+)/.exec(output);
        if (found !== null) {
          clearTimeout(timer);
          resolve(found[1]!);
        }
      };
      child.stdout.on("data", read);
      child.stderr.on("data", read);
      child.once("error", reject);
      child.once("exit", (code) => reject(new Error(`the server ended with ${code}:\n${output}`)));
    });
  }

  /** Ends it at once, as a crash does, or lets it drain. */
  async kill(signal: "SIGKILL" | "SIGTERM" = "SIGKILL"): Promise<void> {
    const child = this.#process;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill(signal);
    await ended;
  }

  async stop(): Promise<void> {
    await this.kill();
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** An address at which nobody listens. */
export async function deadAddress(): Promise<string> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  if (address === null || typeof address === "string") throw new Error("no port");
  return `127.0.0.1:${address.port}`;
}

/** All items of a list. */
export async function all<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const found: Item[] = [];
  for await (const item of items) found.push(item);
  return found;
}

/** Waits until something holds. */
export async function until(holds: () => boolean | Promise<boolean>, ms = 10_000): Promise<void> {
  for (const end = Date.now() + ms; !(await holds()); ) {
    if (Date.now() > end) throw new Error("it does not hold in time");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
