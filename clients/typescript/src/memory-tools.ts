// The tools with which a model keeps the memory that the store holds: their definitions, and what becomes of a model's call.

import type { Metadata } from "@grpc/grpc-js";

import { type CallOptions, callOptions, type Connection, type Operation } from "./connection.js";
import {
  EtagMismatchError,
  FieldInvalidError,
  FieldRequiredError,
  FieldTooLargeError,
  MemoryFileFullError,
  MemoryFileNotFoundError,
  SecretFoundError,
} from "./errors.js";
import type { MemoryTool } from "./gen/memoryd/v1/memory_context_service_pb.js";
import { encodable, isObject, jsonValue } from "./json-text.js";
import { memoryFileCalls, ownerToProto } from "./memory-files.js";
import { MemoryPage } from "./memory-pages.js";
import { INDEX, type TierName } from "./memory-sources.js";

/** How many of the newest logs the answer to a read names. */
const MOST_LOGS = 14;
/** Stands for the etag of an index that is not there. */
const NO_FILE = "";

/** What the model did wrong, in words that it can act on. */
class Refused extends Error {}

/** How much of an index the model has read, from its first line on and of one state of it. */
interface Seen {
  readonly etag: string;
  readonly toLine: number;
  readonly lines: number;
}

/** The definition of a tool in the form of OpenAI's Chat Completions. */
export interface OpenAiTool {
  type: "function";
  function: { name: string; description: string; parameters: Record<string, unknown> };
}

/** The definition of a tool in the form of OpenAI's Responses. */
export interface OpenAiResponsesTool {
  type: "function";
  name: string;
  description: string;
  parameters: Record<string, unknown>;
  strict: false;
}

/** The definition of a tool in the form of Anthropic's Messages. */
export interface AnthropicTool {
  name: string;
  description: string;
  input_schema: { type: "object" } & Record<string, unknown>;
}

type CarriesOut = (tools: MemoryTools, operation: Operation, given: Arguments) => Promise<string>;

/**
 * The tools with which a model reads and keeps memory in the store. Made by `MemoryClient.renderContext`; none where no tier is
 * in the store.
 *
 * ```ts
 * for (const called of answer.choices[0].message.tool_calls ?? []) {
 *   if (context.tools.has(called.function.name)) {
 *     const content = await context.tools.call(called.function.name, called.function.arguments);
 *     messages.push({ role: "tool", tool_call_id: called.id, content });
 *   }
 * }
 * ```
 *
 * All calls go to the store that the client used when memory was rendered.
 */
export class MemoryTools {
  /** The names of the tools; none when the store holds no tier. */
  readonly names: readonly string[];
  readonly #tools: readonly MemoryTool[];
  readonly #owners: ReadonlyMap<TierName, string>;
  readonly #author: string;
  readonly #seen = new Map<TierName, Seen>();
  readonly #connection: Connection;
  readonly #metadata: Metadata;

  /** @internal */
  constructor(
    connection: Connection,
    metadata: Metadata,
    tools: readonly MemoryTool[],
    owners: ReadonlyMap<TierName, string>,
    author: string,
  ) {
    this.#connection = connection;
    this.#metadata = metadata;
    this.#tools = tools.filter((tool) => MemoryTools.#carriedOut.has(tool.name));
    this.#owners = owners;
    this.#author = author;
    this.names = this.#tools.map((tool) => tool.name);
  }

  /** Whether there is a tool of a name. */
  has(name: string): boolean {
    return this.names.includes(name);
  }

  /** The definitions in the form of OpenAI's Chat Completions. */
  openai(): OpenAiTool[] {
    return this.#tools.map(({ name, description, inputSchema }) => ({
      type: "function",
      function: { name, description, parameters: JSON.parse(inputSchema) as Record<string, unknown> },
    }));
  }

  /** The definitions in the form of OpenAI's Responses. */
  openaiResponses(): OpenAiResponsesTool[] {
    return this.#tools.map(({ name, description, inputSchema }) => ({
      type: "function",
      name,
      description,
      parameters: JSON.parse(inputSchema) as Record<string, unknown>,
      strict: false,
    }));
  }

  /** The definitions in the form of Anthropic's Messages. */
  anthropic(): AnthropicTool[] {
    return this.#tools.map(({ name, description, inputSchema }) => ({
      name,
      description,
      input_schema: JSON.parse(inputSchema) as AnthropicTool["input_schema"],
    }));
  }

  /**
   * Carries a call of the model out, and gives the answer for it: the content of a tool result.
   *
   * What the model did wrong is in the answer, which then begins with `Error:`; so is a credential, told by line and kind. What
   * fails for other reasons rejects: with an UnavailableError, say.
   *
   * @param name The name of the tool.
   * @param args What the model gave: JSON text (OpenAI) or the object (Anthropic).
   */
  async call(name: string, args: string | object, options: CallOptions = {}): Promise<string> {
    const operation = this.#connection.operation(callOptions(options), this.#metadata);
    try {
      const carriesOut = this.has(name) ? MemoryTools.#carriedOut.get(name) : undefined;
      if (carriesOut === undefined) {
        throw new Refused(`there is no such tool; those for memory are: ${this.names.join(", ") || "none"}`);
      }
      return await carriesOut(this, operation, new Arguments(args));
    } catch (error) {
      if (error instanceof Refused) return `Error: ${error.message}`;
      if (error instanceof SecretFoundError) {
        return (
          `Error: line ${error.line} of ${error.field} holds a credential (${error.kind}), and memory is no place for it. ` +
          "Nothing was written: take it out"
        );
      }
      if (
        error instanceof FieldRequiredError ||
        error instanceof FieldInvalidError ||
        error instanceof FieldTooLargeError ||
        error instanceof MemoryFileFullError
      ) {
        return `Error: ${error.text}`;
      }
      throw error;
    }
  }

  static readonly #carriedOut: ReadonlyMap<string, CarriesOut> = new Map<string, CarriesOut>([
    ["read_memory", (tools, operation, given) => tools.#read(operation, given)],
    ["add_memory", (tools, operation, given) => tools.#add(operation, given)],
    ["log_memory", (tools, operation, given) => tools.#log(operation, given)],
    ["rewrite_memory", (tools, operation, given) => tools.#rewrite(operation, given)],
  ]);

  async #read(operation: Operation, given: Arguments): Promise<string> {
    const [tier, day, fromLine] = [this.#tier(given), given.day(), given.line()];
    given.checkNames();
    const owner = this.#ownerOf(tier);
    const name = day === undefined ? INDEX : `${day}.md`;
    let file;
    try {
      file = await memoryFileCalls.get(operation, owner, name);
    } catch (error) {
      if (!(error instanceof MemoryFileNotFoundError)) throw error;
      const logs = await newestLogs(operation, owner);
      if (day !== undefined) return `Error: there is no ${name}\n${logs}`;
      this.#seen.set(tier, { etag: NO_FILE, toLine: 0, lines: 0 });
      return `${logs}\nThere is no ${INDEX} yet: it is made when you add to it.`;
    }
    const page = MemoryPage.of(file.text, fromLine);
    if (page === undefined) throw new Refused(`${name} has no line ${fromLine}: read it from line 1`);
    const parts = [await newestLogs(operation, owner), page.shown(name)];
    if (day === undefined) {
      let seen = this.#seen.get(tier) ?? { etag: file.etag, toLine: 0, lines: 0 };
      if (seen.etag !== file.etag) {
        seen = { etag: file.etag, toLine: 0, lines: 0 };
        if (fromLine > 1) {
          parts.splice(1, 0, `${INDEX} was changed since you read its beginning: read it again from line 1.`);
        }
      }
      // A gap in front of the page stays a gap.
      const toLine = page.fromLine <= seen.toLine + 1 ? Math.max(seen.toLine, page.toLine) : seen.toLine;
      this.#seen.set(tier, { etag: seen.etag, toLine, lines: page.lines });
    }
    return parts.join("\n");
  }

  async #add(operation: Operation, given: Arguments): Promise<string> {
    const [tier, entries] = [this.#tier(given), given.texts("entries")];
    given.checkNames();
    const added = await memoryFileCalls.add(operation, this.#ownerOf(tier), entries, { author: this.#author });
    const known = added.skipped > 0 ? ` ${added.skipped} were there already, or came twice.` : "";
    return `Added to ${INDEX}: ${added.added} of ${entries.length} entries.${known}`;
  }

  async #log(operation: Operation, given: Arguments): Promise<string> {
    const [tier, text, date] = [this.#tier(given), given.text("text"), given.day()];
    given.checkNames();
    const file = await memoryFileCalls.log(operation, this.#ownerOf(tier), text, { date, author: this.#author });
    return `Added to ${file.name}.`;
  }

  async #rewrite(operation: Operation, given: Arguments): Promise<string> {
    const [tier, content] = [this.#tier(given), given.text("content")];
    given.checkNames();
    const seen = this.#seen.get(tier);
    if (seen === undefined) {
      throw new Refused(`read the ${tier} memory's ${INDEX} with read_memory first, then rewrite what it says`);
    }
    if (seen.toLine !== seen.lines) {
      throw new Refused(
        `you have read ${seen.toLine} of the ${seen.lines} lines of the ${tier} memory's ${INDEX}, and a rewrite replaces ` +
          `all: read on with from_line=${seen.toLine + 1} first, then rewrite what it says`,
      );
    }
    this.#seen.delete(tier);
    try {
      const file = await memoryFileCalls.put(operation, this.#ownerOf(tier), content, {
        etag: seen.etag,
        createOnly: seen.etag === NO_FILE,
        author: this.#author,
      });
      this.#seen.set(tier, { etag: file.etag, toLine: 0, lines: 0 });
      return `${INDEX} is rewritten: ${file.size.toLocaleString("en-US")} bytes.`;
    } catch (error) {
      if (error instanceof EtagMismatchError) {
        throw new Refused(
          `the ${tier} memory's ${INDEX} was changed since you read it, and nothing was written: read it with read_memory ` +
            "first, then rewrite what it says now",
        );
      }
      if (!this.#seen.has(tier)) this.#seen.set(tier, seen);
      throw error;
    }
  }

  #tier(given: Arguments): TierName {
    const tier = given.text("tier");
    if (!this.#owners.has(tier as TierName)) {
      throw new Refused(`\`tier\` can be ${[...this.#owners.keys()].map((name) => `'${name}'`).join(" or ")}`);
    }
    return tier as TierName;
  }

  #ownerOf(tier: TierName): ReturnType<typeof ownerToProto> {
    const id = this.#owners.get(tier) as string;
    return ownerToProto(tier === "user" ? { user: id } : { project: id });
  }
}

async function newestLogs(operation: Operation, owner: ReturnType<typeof ownerToProto>): Promise<string> {
  // One more than are named: the index comes first.
  const [files] = await memoryFileCalls.list(operation, owner, MOST_LOGS + 1, "");
  const logs = files.map((file) => file.name).filter((name) => name !== INDEX);
  return logs.length > 0 ? `The newest logs: ${logs.slice(0, MOST_LOGS).join(", ")}.` : "There are no logs.";
}

/** The arguments of a model's call. What is wrong with them is Refused, and never told with their values. */
class Arguments {
  readonly #values: Readonly<Record<string, unknown>>;
  readonly #names: string[] = [];

  constructor(given: string | object) {
    // Some models send no text at all where there are no arguments.
    const values = typeof given === "string" ? jsonValue(given || "{}") : given;
    if (!isObject(values)) throw new Refused("the arguments are no JSON object");
    this.#values = values;
  }

  /** A text that must be given. */
  text(name: string): string {
    return checkedText(`\`${name}\``, this.#given(name, "a string"));
  }

  /** A list of texts that must be given. */
  texts(name: string): string[] {
    const values = this.#given(name, "an array of strings");
    if (!Array.isArray(values)) throw new Refused(`\`${name}\` must be an array of strings`);
    return values.map((value, index) => checkedText(`\`${name}[${index}]\``, value));
  }

  /** The day in `date`; undefined when it is not given. */
  day(): string | undefined {
    const value = this.#value("date");
    if (value === undefined || value === null || value === "") return undefined;
    const day = checkedText("`date`", value).replace(/\.md$/, "");
    const isDay = /^[0-9]{4}-[0-9]{2}-[0-9]{2}$/.test(day) && !day.startsWith("0000");
    const moment = isDay ? new Date(`${day}T00:00:00Z`) : undefined;
    if (moment === undefined || Number.isNaN(moment.getTime()) || moment.toISOString().slice(0, 10) !== day) {
      throw new Refused("`date` must be a day of the calendar, as YYYY-MM-DD");
    }
    return day;
  }

  /** The line in `from_line`, from 1, which it is when it is not given. */
  line(): number {
    const value = this.#value("from_line");
    if (value === undefined || value === null) return 1;
    if (typeof value !== "number" || !Number.isInteger(value)) throw new Refused("`from_line` must be an integer");
    if (value < 1) throw new Refused("`from_line` must be 1 or more: it is the number of a line");
    return value;
  }

  /** Refuses what was given beside what was asked for: a misspelt name would be no argument at all. */
  checkNames(): void {
    if (Object.keys(this.#values).some((name) => !this.#names.includes(name))) {
      throw new Refused(`there are only the arguments ${this.#names.map((name) => `\`${name}\``).join(", ")}`);
    }
  }

  #given(name: string, kind: string): unknown {
    const value = this.#value(name);
    if (value === undefined || value === null) throw new Refused(`\`${name}\` is missing: give ${kind}`);
    return value;
  }

  #value(name: string): unknown {
    this.#names.push(name);
    return Object.hasOwn(this.#values, name) ? this.#values[name] : undefined;
  }
}

function checkedText(name: string, value: unknown): string {
  if (typeof value !== "string") throw new Refused(`${name} must be a string`);
  if (!encodable(value)) throw new Refused(`${name} holds half of a surrogate pair, which is no character`);
  return value;
}
