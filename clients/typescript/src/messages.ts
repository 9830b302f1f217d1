// Messages, what they are made of, and the functions that make them.

import { kindOf } from "./arguments.js";
import { newId } from "./ids.js";
import { jsonText } from "./json-text.js";

/**
 * Who speaks in a message.
 *
 * - `system`: instructions of the application. `system` and `developer` messages that open a history are pinned in windows.
 * - `developer`: instructions of the developer, as newer OpenAI models call the system role.
 * - `user`: the person, or whatever takes the person's part.
 * - `assistant`: the model.
 * - `tool`: the results of tool calls.
 */
export type Role = "system" | "developer" | "user" | "assistant" | "tool";

/** Plain text. May hold any character but half of a surrogate pair, U+0000 included. */
export interface TextPart {
  readonly type: "text";
  readonly text: string;
}

/** The model's thinking. */
export interface ReasoningPart {
  readonly type: "reasoning";
  /** The thinking as text; empty when the provider shows only a signature. */
  readonly text: string;
  /** The provider's opaque proof of the thinking, or its encrypted form. Not counted in tokens. */
  readonly signature: string;
}

/** The model's refusal to answer. */
export interface RefusalPart {
  readonly type: "refusal";
  readonly text: string;
}

/** An image, a sound, a file: by reference (`uri`) or in place (`data`), never both. */
export interface MediaPart {
  readonly type: "media";
  /** The IANA media type, for example `image/png`; empty when it is not known. */
  readonly mediaType: string;
  /** A reference that the server never follows: a URL or a provider's file id. */
  readonly uri?: string | undefined;
  /** The bytes themselves. They count towards the message's 2 MiB. */
  readonly data?: Uint8Array | undefined;
  /** The size in bytes as the caller knows it; 0 when unknown. */
  readonly size?: number | undefined;
}

/** Structured data as JSON text, kept byte for byte. */
export interface DataPart {
  readonly type: "data";
  readonly json: string;
}

/** A call of a tool by the model. Only in messages of role `assistant`. */
export interface ToolCall {
  readonly type: "tool_call";
  /** The id that the call's result names. May be empty, as some providers send it. */
  readonly id: string;
  /** The tool's name. */
  readonly name: string;
  /** The arguments as the model wrote them: JSON text as a rule, but invalid JSON is kept too. */
  readonly arguments: string;
}

/** The answer to a tool call. In messages of role `tool` or `user`. */
export interface ToolResult {
  readonly type: "tool_result";
  /** The id of the call that this answers: the newest unanswered call with this id. */
  readonly callId: string;
  /** The tool's name, where the provider repeats it. */
  readonly name: string;
  /** Whether the tool failed. */
  readonly isError: boolean;
  /** What the tool said. */
  readonly parts: readonly ResultPart[];
}

/** What a tool result may hold. */
export type ResultPart = TextPart | RefusalPart | MediaPart | DataPart;

/** What a message may hold. */
export type Part = ResultPart | ReasoningPart | ToolCall | ToolResult;

/** The trace that a redaction leaves in a message. */
export interface Redaction {
  /** When the content was taken away. */
  readonly redactTime: Date;
  /** The reason that the caller gave; may be empty. */
  readonly reason: string;
}

/**
 * One immutable entry of a history.
 *
 * A message gets its `id` when it is made, so appending the same object again, after a lost answer for instance, stores
 * it once. To say the same thing twice, make two messages.
 */
export interface Message {
  readonly role: Role;
  /** The parts in order. undefined (a provider's null content) and empty differ, and both come back as sent. */
  readonly content?: readonly Part[] | undefined;
  /** The speaker's name. undefined and empty differ. At most 256 bytes. */
  readonly name?: string | undefined;
  /** The run that made the message; empty outside of runs. */
  readonly runId: string;
  /** JSON text of your own data about the message, kept byte for byte and never read by the server. At most 64 KiB. */
  readonly metadata: string;
  /** JSON text of what a provider's format holds beyond these fields; the converters write and read it. */
  readonly extra: string;
  /** Unique in the session: 1 to 256 bytes of UTF-8 without U+0000. */
  readonly id: string;
  /** The message's place in its session, from 1. Given by the server; 0 on a message that is not stored. */
  readonly seq: number;
  /** When the server stored the message, cut to a millisecond. */
  readonly createTime?: Date | undefined;
  /** The message's price in tokens of the session's tokenizer. Given by the server. */
  readonly tokenCount: number;
  /** Set when the message's content was taken away on request. */
  readonly redaction?: Redaction | undefined;
}

/** Text, parts, or nothing (absent content). */
export type ContentInput = string | readonly Part[] | null | undefined;

/** What may be given about a message beside its content. */
export interface MessageOptions {
  /** The speaker's name. */
  readonly name?: string | undefined;
  /** Your own data about the message: JSON text, or what becomes it. */
  readonly metadata?: string | object | undefined;
  /** An id of your own, 1 to 256 bytes; without one, one is made. */
  readonly id?: string | undefined;
}

/** What may be given about a tool's message. */
export interface ToolMessageOptions extends MessageOptions {
  /** The tool's name. */
  readonly name?: string | undefined;
  /** Whether the tool failed. */
  readonly isError?: boolean | undefined;
}

/** What may be given about an assistant's message. */
export interface AssistantMessageOptions extends MessageOptions {
  /** The calls, behind the content. Where thinking, text and calls mix, give all of them in the content. */
  readonly toolCalls?: Iterable<ToolCall> | undefined;
}

/** Makes a message of any role from its fields; what is left out is empty, and an id is made. */
export function message(fields: Partial<Message> & Pick<Message, "role">): Message {
  return {
    role: fields.role,
    content: fields.content,
    name: fields.name,
    runId: fields.runId ?? "",
    metadata: fields.metadata ?? "",
    extra: fields.extra ?? "",
    id: fields.id ?? newId(),
    seq: fields.seq ?? 0,
    createTime: fields.createTime,
    tokenCount: fields.tokenCount ?? 0,
    redaction: fields.redaction,
  };
}

/** Makes a message of role `system`. */
export function system(content: ContentInput, options: MessageOptions = {}): Message {
  return made("system", parts(content), options);
}

/** Makes a message of role `developer`. */
export function developer(content: ContentInput, options: MessageOptions = {}): Message {
  return made("developer", parts(content), options);
}

/** Makes a message of role `user`. */
export function user(content: ContentInput, options: MessageOptions = {}): Message {
  return made("user", parts(content), options);
}

/**
 * Makes a message of role `assistant`.
 *
 * ```ts
 * const weather = call("get_weather", { city: "Oslo" });
 * assistant("Let me see.", { toolCalls: [weather] });
 * ```
 */
export function assistant(content?: ContentInput, options: AssistantMessageOptions = {}): Message {
  const said = parts(content);
  const calls = [...listed(options.toolCalls ?? [], "toolCalls", "a list, for example [call('get_weather', {})]")];
  return made("assistant", calls.length > 0 ? [...(said ?? []), ...calls] : said, options);
}

/** Makes a message of role `tool` that answers the call with the id `callId`. `options.name` is the tool's name. */
export function tool(
  callId: string,
  content: string | readonly ResultPart[],
  options: ToolMessageOptions = {},
): Message {
  const result = toolResult(callId, content, { name: options.name, isError: options.isError });
  return made("tool", [result], { ...options, name: undefined });
}

/** Makes a tool call, with an id when none is given. An object of arguments becomes JSON text; text stays. */
export function call(name: string, args: string | object = "{}", options: { id?: string | undefined } = {}): ToolCall {
  return { type: "tool_call", id: options.id ?? `call_${newId()}`, name, arguments: textOfJson(args, "args") };
}

/** Makes the answer to a call, for a message that holds several. */
export function toolResult(
  callId: string,
  content: string | readonly ResultPart[] = [],
  options: { name?: string | undefined; isError?: boolean | undefined } = {},
): ToolResult {
  const said: readonly ResultPart[] =
    typeof content === "string"
      ? [{ type: "text", text: content }]
      : [...listed(content, "content", "the result as text, or a list of parts")];
  return { type: "tool_result", callId, name: options.name ?? "", isError: options.isError ?? false, parts: said };
}

/** The texts of a message, one after another; those inside of tool results are left out. */
export function textOf(of: Message): string {
  return textOfParts(of.content ?? []);
}

/** The texts among parts, one after another. */
export function textOfParts(of: readonly Part[]): string {
  return of.map((part) => (part.type === "text" ? part.text : "")).join("");
}

/** The calls of a message, in order. */
export function toolCallsOf(of: Message): readonly ToolCall[] {
  return (of.content ?? []).filter((part): part is ToolCall => part.type === "tool_call");
}

/** The results of a message, in order. */
export function toolResultsOf(of: Message): readonly ToolResult[] {
  return (of.content ?? []).filter((part): part is ToolResult => part.type === "tool_result");
}

function made(role: Role, content: readonly Part[] | undefined, options: MessageOptions): Message {
  return message({
    role,
    content,
    name: options.name,
    metadata: textOfJson(options.metadata ?? "", "metadata"),
    id: options.id ?? newId(),
  });
}

function parts(content: ContentInput): readonly Part[] | undefined {
  if (typeof content === "string") return [{ type: "text", text: content }];
  if (content === undefined || content === null) return undefined;
  return [...listed(content, "content", "text, or a list of parts such as [{ type: 'text', text: 'Hello!' }]")];
}

function listed<Item>(items: Iterable<Item>, argument: string, wanted: string): Iterable<Item> {
  const isOther = ArrayBuffer.isView(items) || items instanceof Map;
  if (typeof items !== "object" || items === null || isOther || !(Symbol.iterator in items)) {
    throw new TypeError(`${argument} is ${kindOf(items)}; give ${wanted}`);
  }
  return items;
}

function textOfJson(value: string | object, argument: string): string {
  if (typeof value === "string") return value;
  if (typeof value !== "object" || value === null) {
    throw new TypeError(`${argument} is ${kindOf(value)}; give JSON text, or an object`);
  }
  try {
    return jsonText(value);
  } catch (error) {
    throw new TypeError(`${argument} holds what JSON cannot: ${(error as Error).message}`, { cause: error });
  }
}
