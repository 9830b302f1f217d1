// From OpenAI's chat-completions messages to ours.

import { kindOf } from "../arguments.js";
import { isObject, jsonText } from "../json-text.js";
import { message, type Message, type MediaPart, type Part, type ReasoningPart, type RefusalPart, type ResultPart, type Role, type ToolCall, type ToolResult } from "../messages.js";
import { ANY_IMAGE, base64Bytes, dataUrlMedia, mediaByUri, mediaOfData } from "./media.js";
import { AUDIO_TYPES, FORMAT, mediaBlock, resultContentForm, spokenContentForm, written } from "./openai-writing.js";
import { difference, type Json, kept, NATIVE, own, plain, writeForm } from "./source-form.js";

const ROLES: Readonly<Record<string, Role>> = {
  system: "system",
  developer: "developer",
  user: "user",
  assistant: "assistant",
  tool: "tool",
  function: "tool",
};

/** Our message of an OpenAI one. TypeError, with `where`, for what is none. */
export function readMessage(given: unknown, where: string): Message {
  if (!isObject(given)) {
    throw new TypeError(`${where} is no object; a message is like { role: "user", content: "Hello!" }`);
  }
  const source = plain(given);
  const role = roleOf(source, ROLES, where);
  const content = own(source, "content") ?? null;
  if (!(content === null || typeof content === "string" || Array.isArray(content))) {
    throw new TypeError(`${where} has content that is ${kindOf(content)}; it can be text, an array or null`);
  }
  const form: Json = {};
  return withoutOthers(where, () => {
    const name = own(source, "name");
    const read = message(
      role === "tool"
        ? { role, content: [readResult(source, form)] }
        : { role, name: typeof name === "string" ? kept(name) : undefined, content: spoken(source, role, form) },
    );
    // What the parts and the form do not say of the source is in its difference from what would be written.
    const patch = difference(source, written(read, form)[0]);
    if (patch !== undefined) form["patch"] = patch;
    return { ...read, extra: writeForm(form, FORMAT) };
  });
}

/** The role of a provider's message. */
export function roleOf(source: Json, roles: Readonly<Record<string, Role>>, where: string): Role {
  const given = own(source, "role");
  const role = typeof given === "string" && Object.hasOwn(roles, given) ? roles[given] : undefined;
  if (role === undefined) {
    const allowed = Object.keys(roles).join(", ");
    throw new TypeError(`${where} has the role ${JSON.stringify(given) ?? "undefined"}; it can be one of ${allowed}`);
  }
  return role;
}

/** Does what fails for values that JSON cannot hold, and says so. */
export function withoutOthers<Result>(where: string, work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new TypeError(`${where} holds what JSON cannot (${error.message}); give plain data`, { cause: error });
  }
}

/** The parts of a message that is not a tool's: reasoning, content, refusal, calls. */
function spoken(source: Json, role: Role, form: Json): readonly Part[] | undefined {
  const content = own(source, "content");
  const byAssistant = role === "assistant";
  const reasoning = byAssistant ? readReasoning(source, form) : [];
  const refusal = byAssistant ? readRefusal(source) : [];
  const calls = byAssistant ? readCalls(source, form) : [];
  const said = readSaid(content, form, reasoning.length, role === "user");
  if (byAssistant && refusal.length === 0 && said.at(-1)?.type === "refusal") form["refusal"] = "part";
  const parts = [...reasoning, ...said, ...refusal, ...calls];
  const present = parts.length > 0 || Array.isArray(content);
  noteContentForm(source, spokenContentForm(said, present && parts.length === said.length), form);
  return present ? parts : undefined;
}

function readReasoning(source: Json, form: Json): ReasoningPart[] {
  const text = own(source, "reasoning_content");
  if (typeof text !== "string") return [];
  form["reasoning"] = true;
  return [{ type: "reasoning", text: kept(text), signature: "" }];
}

function readRefusal(source: Json): RefusalPart[] {
  const text = own(source, "refusal");
  return typeof text === "string" ? [{ type: "refusal", text: kept(text) }] : [];
}

function readCalls(source: Json, form: Json): ToolCall[] {
  const entries = own(source, "tool_calls");
  const read = Array.isArray(entries) ? entries.map(readCall) : [];
  const forms = [...read.entries()].filter(([, [, callForm]]) => callForm !== undefined);
  if (forms.length > 0) {
    form["calls"] = Object.fromEntries(forms.map(([index, [, callForm]]) => [String(index), callForm]));
  }
  const calls = read.map(([call]) => call);
  const legacy = own(source, "function_call");
  if (isObject(legacy)) {
    const [name, args] = [own(legacy, "name"), own(legacy, "arguments")];
    if (typeof name === "string" && typeof args === "string") {
      form["function_call"] = true;
      calls.push(toolCall("", name, kept(args)));
    }
  }
  return calls;
}

function toolCall(id: unknown, name: string, args: string): ToolCall {
  return { type: "tool_call", id: kept(id), name: kept(name), arguments: args };
}

/** A call and its form: none for a function's, `object` where its arguments are not text, `custom`, or `other`. */
function readCall(entry: unknown): [ToolCall, string | undefined] {
  if (!isObject(entry)) return [toolCall("", "unknown", jsonText(entry)), "other"];
  const [id, type, custom, called] = [own(entry, "id"), own(entry, "type"), own(entry, "custom"), own(entry, "function")];
  if (type === "custom" && isObject(custom)) {
    const [name, input] = [own(custom, "name"), own(custom, "input")];
    if (typeof name === "string" && typeof input === "string") return [toolCall(id, name, kept(input)), "custom"];
  }
  if (isObject(called)) {
    const [name, args] = [own(called, "name"), own(called, "arguments")];
    if (typeof name === "string") {
      return isObject(args) ? [toolCall(id, name, jsonText(args)), "object"] : [toolCall(id, name, kept(args)), undefined];
    }
  }
  return [toolCall(id, typeof type === "string" ? type : "unknown", jsonText(entry)), "other"];
}

/** The result in a message of role tool or function. */
function readResult(source: Json, form: Json): ToolResult {
  if (source["role"] === "function") form["function"] = true;
  const parts = readSaid(own(source, "content"), form, 0, false);
  noteContentForm(source, resultContentForm(parts), form);
  return {
    type: "tool_result",
    callId: kept(own(source, "tool_call_id")),
    name: kept(own(source, "name")),
    isError: false,
    parts,
  };
}

/** How the content of a provider's message is written. */
export function contentFormOf(source: Json, key = "content"): string {
  if (!Object.hasOwn(source, key)) return "missing";
  const content = source[key];
  if (typeof content === "string") return "text";
  if (Array.isArray(content)) return "list";
  return content === null ? "null" : "missing";
}

function noteContentForm(source: Json, byItself: string, form: Json): void {
  const actual = contentFormOf(source);
  if (actual !== byItself) form["content"] = actual;
}

/** The parts of a message's content. The form notes those, counted from `first`, that only OpenAI says so. */
function readSaid(content: unknown, form: Json, first: number, byUser: boolean): ResultPart[] {
  if (typeof content === "string") return [{ type: "text", text: kept(content) }];
  const parts = Array.isArray(content) ? content.map(readPart) : [];
  const native = [...parts.entries()].filter(([, part]) => part.type === "data" || (part.type === "media" && !byUser));
  if (native.length > 0) {
    form["parts"] = Object.fromEntries(native.map(([index]) => [String(first + index), NATIVE]));
  }
  return parts;
}

function readPart(block: unknown): ResultPart {
  if (isObject(block)) {
    const [type, text, refusal] = [own(block, "type"), own(block, "text"), own(block, "refusal")];
    if (type === "text" && typeof text === "string") return { type: "text", text: kept(text) };
    if (type === "refusal" && typeof refusal === "string") return { type: "refusal", text: kept(refusal) };
  }
  // JSON is kept for what our media would not give back as it was.
  return readMedia(block) ?? { type: "data", json: jsonText(block) };
}

function readMedia(block: unknown): MediaPart | undefined {
  if (!isObject(block)) return undefined;
  let media: MediaPart | undefined;
  let core: Json = {};
  const type = own(block, "type");
  const inner = typeof type === "string" ? own(block, type) : undefined;
  if (!isObject(inner)) return undefined;
  const url = own(inner, "url");
  const [data, format] = [own(inner, "data"), own(inner, "format")];
  const [fileData, fileId] = [own(inner, "file_data"), own(inner, "file_id")];
  if (type === "image_url" && typeof url === "string") {
    media = dataUrlMedia(url) ?? mediaByUri(ANY_IMAGE, kept(url));
    core = { type, image_url: { url } };
  } else if (type === "input_audio" && typeof data === "string" && typeof format === "string") {
    const bytes = base64Bytes(data);
    const mediaType = Object.hasOwn(AUDIO_TYPES, format) ? AUDIO_TYPES[format]! : `audio/${format}`;
    media = bytes === undefined ? undefined : mediaOfData(mediaType, bytes);
    core = { type, input_audio: { data, format } };
  } else if (type === "file" && typeof fileData === "string") {
    media = dataUrlMedia(fileData);
    core = { type, file: { file_data: fileData } };
  } else if (type === "file" && typeof fileId === "string") {
    media = mediaByUri("", kept(fileId));
    core = { type, file: { file_id: fileId } };
  }
  const isSaid = media !== undefined && media.uri !== "" && difference(mediaBlock(media), core) === undefined;
  return isSaid && encodableMedia(media!) ? media : undefined;
}

function encodableMedia(media: MediaPart): boolean {
  return media.mediaType.isWellFormed();
}
