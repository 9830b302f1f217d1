// From items of OpenAI's Responses to our messages.

import { kindOf } from "../arguments.js";
import { isObject, jsonText } from "../json-text.js";
import { message, type Message, type MediaPart, type Part, type ReasoningPart, type ResultPart, type Role } from "../messages.js";
import { ANY_IMAGE, dataUrlMedia, mediaByUri } from "./media.js";
import { contentFormOf, roleOf, withoutOthers } from "./openai-reading.js";
import { callIdOf } from "./responses-pairing.js";
import {
  contentForm,
  CUSTOM,
  FORMAT,
  ITEM,
  mediaBlock,
  MESSAGE,
  OTHER,
  outputForm,
  REASONING,
  writtenByItself,
  writtenItem,
} from "./responses-writing.js";
import { difference, type Json, kept, NATIVE, own, plain, writeForm } from "./source-form.js";

const ROLES: Readonly<Record<string, Role>> = {
  system: "system",
  developer: "developer",
  user: "user",
  assistant: "assistant",
};

/** Outputs that the API makes itself, of items that are no calls: they are of the model's turn, as those are. */
const MODELS_OUTPUTS: ReadonlySet<string> = new Set(["program_output"]);

/** An item as it was read: whose it is, its parts, and what is noted about it. */
interface Read {
  readonly role: Role;
  readonly parts: readonly Part[];
  readonly form: Json;
  readonly source: Json;
}

/**
 * Our messages of items. What the model says in a row (reasoning, text, calls) becomes one message, so that no window parts
 * reasoning from what follows from it. TypeError, naming the item, for what is none.
 */
export function readItems(items: Iterable<unknown>): Message[] {
  const turns: Read[][] = [];
  for (const [index, given] of [...items].entries()) {
    const read = readItem(given, `items[${index}]`);
    const last = turns.at(-1);
    if (read.role === "assistant" && last?.[0]?.role === "assistant") last.push(read);
    else turns.push([read]);
  }
  return turns.map(messageOf);
}

function messageOf(turn: readonly Read[]): Message {
  const role = turn[0]!.role;
  const content = turn.flatMap(({ parts }) => parts);
  const sources = turn.map(({ source }) => source);
  const isPlain = difference(sources, writtenByItself(role, content)) === undefined;
  const items = turn.map(({ parts, form }) => (parts.length === 1 ? form : { n: parts.length, ...form }));
  return message({ role, content, extra: isPlain ? "" : writeForm({ items }, FORMAT) });
}

function readItem(given: unknown, where: string): Read {
  if (!isObject(given)) throw new TypeError(`${where} is no object; an item is like { role: "user", content: "Hello!" }`);
  const source = plain(given);
  return withoutOthers(where, () => {
    const { role, parts, form } = partsOf(source, where);
    const patch = difference(source, writtenItem(role, parts, form));
    // Written with the whole turn, but what it cannot hold is this item's fault.
    if (patch !== undefined) jsonText(patch);
    return { role, parts, form: patch === undefined ? form : { ...form, patch }, source };
  });
}

function partsOf(source: Json, where: string): Omit<Read, "source"> {
  const type = own(source, "type");
  const isMessage = type === MESSAGE || (type === undefined && Object.hasOwn(source, "role"));
  if (isMessage) return readMessage(source, where);
  if (typeof type !== "string") {
    throw new TypeError(`${where} has neither a type nor a role; a message is like { role: "user", content: "Hello!" }`);
  }
  const callId = callIdOf(source);
  const isOutput = type.endsWith("_output") && !MODELS_OUTPUTS.has(type);
  if (typeof callId === "string" && isOutput) return readOutput(source, type, callId);
  if (typeof callId === "string" && type.endsWith("_call")) return readCall(source, type, callId);
  const reasoning = type === REASONING ? readReasoning(source) : undefined;
  if (reasoning !== undefined) return reasoning;
  // An approval is what the person says; all else that has no part of its own is of the model's turn.
  const role: Role = type === "mcp_approval_response" ? "user" : "assistant";
  return { role, parts: [{ type: "data", json: jsonText(source) }], form: { kind: ITEM } };
}

function readMessage(source: Json, where: string): Omit<Read, "source"> {
  const role = roleOf(source, ROLES, where);
  const content = own(source, "content") ?? null;
  if (!(content === null || typeof content === "string" || Array.isArray(content))) {
    throw new TypeError(`${where} has content that is ${kindOf(content)}; it can be text or an array`);
  }
  const [parts, form] = readContent(content, role === "assistant");
  const actual = contentFormOf(source);
  if (actual !== contentForm(parts)) form["content"] = actual;
  // Without a part, or with data as its first one, it could be taken for another item.
  if (parts.length === 0) form["kind"] = MESSAGE;
  return { role, parts, form };
}

/** The parts of a message's content, or of a tool's output, and what is noted about them. */
function readContent(content: unknown, byAssistant: boolean): [ResultPart[], Json] {
  if (typeof content === "string") return [[{ type: "text", text: kept(content) }], {}];
  const parts = Array.isArray(content) ? content.map((block: unknown) => readPart(block, byAssistant)) : [];
  const native = [...parts.entries()].filter(([, part]) => part.type === "data");
  const tags = Object.fromEntries(native.map(([index]) => [String(index), NATIVE]));
  return [parts, native.length > 0 ? { parts: tags } : {}];
}

function readPart(block: unknown, byAssistant: boolean): ResultPart {
  if (isObject(block)) {
    const [type, text, refusal] = [own(block, "type"), own(block, "text"), own(block, "refusal")];
    if (type === (byAssistant ? "output_text" : "input_text") && typeof text === "string") {
      return { type: "text", text: kept(text) };
    }
    if (byAssistant && type === "refusal" && typeof refusal === "string") return { type: "refusal", text: kept(refusal) };
  }
  // JSON is kept for what our media would not give back as it was.
  return (byAssistant ? undefined : readMedia(block)) ?? { type: "data", json: jsonText(block) };
}

function readMedia(block: unknown): MediaPart | undefined {
  if (!isObject(block)) return undefined;
  const [type, imageUrl, fileId] = [own(block, "type"), own(block, "image_url"), own(block, "file_id")];
  const [fileData, fileUrl] = [own(block, "file_data"), own(block, "file_url")];
  let media: MediaPart | undefined;
  let core: Json = {};
  if (type === "input_image" && typeof imageUrl === "string") {
    media = dataUrlMedia(imageUrl) ?? mediaByUri(ANY_IMAGE, kept(imageUrl));
    core = { type, image_url: imageUrl, detail: "auto" };
  } else if (type === "input_image" && typeof fileId === "string") {
    media = mediaByUri(ANY_IMAGE, kept(fileId));
    core = { type, file_id: fileId, detail: "auto" };
  } else if (type === "input_file" && typeof fileData === "string") {
    media = dataUrlMedia(fileData);
    core = { type, file_data: fileData };
  } else if (type === "input_file" && typeof fileUrl === "string") {
    media = mediaByUri("", kept(fileUrl));
    core = { type, file_url: fileUrl };
  } else if (type === "input_file" && typeof fileId === "string") {
    media = mediaByUri("", kept(fileId));
    core = { type, file_id: fileId };
  }
  if (media === undefined || media.uri === "" || !media.mediaType.isWellFormed()) return undefined;
  return difference(mediaBlock(media), core) === undefined ? media : undefined;
}

function readReasoning(source: Json): Omit<Read, "source"> | undefined {
  const summary = textsOf(own(source, "summary"), "summary_text");
  const content = textsOf(own(source, "content"), "reasoning_text");
  const texts = [...(summary ?? []), ...(content ?? [])];
  if (summary === undefined && content === undefined) return undefined;
  const signature = kept(own(source, "encrypted_content"));
  const raw = content?.length ?? 0;
  const parts: ReasoningPart[] = texts.map((text, index) => ({ type: "reasoning", text, signature: index === 0 ? signature : "" }));
  if (parts.length === 0) parts.push({ type: "reasoning", text: "", signature });
  return { role: "assistant", parts, form: { kind: REASONING, ...(raw > 0 ? { raw } : {}) } };
}

/** The texts of blocks of one type; undefined for what is no list. What is another block is told by the patch. */
function textsOf(blocks: unknown, type: string): string[] | undefined {
  if (!Array.isArray(blocks)) return undefined;
  return blocks
    .filter((block): block is Json => isObject(block) && own(block, "type") === type && typeof own(block, "text") === "string")
    .map((block) => kept(block["text"]));
}

function readCall(source: Json, type: string, callId: string): Omit<Read, "source"> {
  const [name, args, input] = [own(source, "name"), own(source, "arguments"), own(source, "input")];
  const call = (itsName: string, itsArguments: string): Part => ({
    type: "tool_call",
    id: kept(callId),
    name: kept(itsName),
    arguments: itsArguments,
  });
  if (type === "function_call" && typeof name === "string" && typeof args === "string") {
    return { role: "assistant", parts: [call(name, kept(args))], form: {} };
  }
  if (type === "custom_tool_call" && typeof name === "string" && typeof input === "string") {
    return { role: "assistant", parts: [call(name, kept(input))], form: { kind: CUSTOM } };
  }
  return { role: "assistant", parts: [call(type, jsonText(source))], form: { kind: OTHER } };
}

function readOutput(source: Json, type: string, callId: string): Omit<Read, "source"> {
  const output = own(source, "output") ?? null;
  const isText = output === null || typeof output === "string" || Array.isArray(output);
  const result = (parts: readonly ResultPart[]): Part => ({
    type: "tool_result",
    callId: kept(callId),
    name: "",
    isError: false,
    parts,
  });
  if (isText && (type === "function_call_output" || type === "custom_tool_call_output")) {
    const [parts, form] = readContent(output, false);
    const actual = contentFormOf(source, "output");
    if (actual !== outputForm(parts)) form["content"] = actual;
    if (type === "custom_tool_call_output") form["kind"] = CUSTOM;
    return { role: "tool", parts: [result(parts)], form };
  }
  return { role: "tool", parts: [result([{ type: "data", json: jsonText(source) }])], form: { kind: OTHER } };
}
