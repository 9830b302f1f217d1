// From Anthropic's messages to ours.

import { kindOf } from "../arguments.js";
import { isObject, jsonText } from "../json-text.js";
import { message, type Message, type MediaPart, type Part, type ResultPart, type Role, type ToolResult } from "../messages.js";
import {
  answers,
  APART,
  AS_IS,
  contentForm,
  FORMAT,
  isMixed,
  mediaBlock,
  MIXED,
  REDACTED,
  resultContentForm,
  written,
} from "./anthropic-writing.js";
import { ANY_IMAGE, base64Bytes, mediaByUri, mediaOfData } from "./media.js";
import { contentFormOf, roleOf, withoutOthers } from "./openai-reading.js";
import { difference, type Json, kept, NATIVE, own, plain, writeForm } from "./source-form.js";

const ROLES: Readonly<Record<string, Role>> = { user: "user", assistant: "assistant", system: "system" };

/** What the source form notes about a part. */
type Tag = string | Json | undefined;

/** The SYSTEM message of a system prompt. TypeError for what is none. */
export function readSystem(system: unknown): Message {
  return read(plain({ role: "system", content: system }), "system", {});
}

/** Our messages of Anthropic's. TypeError, naming the message, for what is none. */
export function readMessages(sources: Iterable<unknown>): Message[] {
  const messages: Message[] = [];
  let behindResults = false;
  for (const [index, given] of [...sources].entries()) {
    const where = `messages[${index}]`;
    if (!isObject(given)) {
      throw new TypeError(`${where} is no object; a message is like { role: "user", content: "Hello!" }`);
    }
    const source = plain(given);
    const withResults = answers(source);
    const form: Json = {};
    if (own(source, "role") === "system") form["inline"] = true;
    if (behindResults && withResults) form[APART] = true;
    if (isMixed(source)) form[MIXED] = true;
    messages.push(read(source, where, form));
    behindResults = withResults;
  }
  return messages;
}

function read(source: Json, where: string, form: Json): Message {
  const role = roleOf(source, ROLES, where);
  const content = own(source, "content") ?? null;
  if (!(content === null || typeof content === "string" || Array.isArray(content))) {
    throw new TypeError(`${where} has content that is ${kindOf(content)}; it can be text or an array`);
  }
  return withoutOthers(where, () => {
    const [parts, tags] = readParts(content, role);
    if (Object.keys(tags).length > 0) form["parts"] = tags;
    const actual = contentFormOf(source);
    if (actual !== contentForm(parts) || parts.length === 0) form["content"] = actual;
    const ours = message({ role, content: content === null ? undefined : parts });
    // What the parts and the form do not say of the source is in its difference from what would be written.
    const patch = difference(source, written(ours, form));
    if (patch !== undefined) form["patch"] = patch;
    const places = [...parts.keys()].filter((index) => parts[index]!.type === "tool_result");
    if (places.length > 0 && Object.keys(form).length > 0) form["results"] = places;
    return { ...ours, extra: writeForm(form, FORMAT) };
  });
}

/** The parts of a message's content, and what is noted about them. */
function readParts(content: unknown, role: Role): [Part[], Json] {
  return tagged(blocksOf(content).map((block) => readPart(block, role)));
}

function tagged<Kind>(read: readonly (readonly [Kind, Tag])[]): [Kind[], Json] {
  const tags = [...read.entries()].filter(([, [, tag]]) => tag !== undefined);
  const noted = Object.fromEntries(tags.map(([index, [, tag]]) => [String(index), tag]));
  return [read.map(([part]) => part), noted];
}

function blocksOf(content: unknown): unknown[] {
  if (typeof content === "string") return [{ type: "text", text: content }];
  return Array.isArray(content) ? content : [];
}

function readPart(block: unknown, role: Role): readonly [Part, Tag] {
  if (!isObject(block)) return readResultPart(block);
  const type = own(block, "type");
  const [thinking, data, name] = [own(block, "thinking"), own(block, "data"), own(block, "name")];
  if (type === "thinking" && typeof thinking === "string") {
    const signature = kept(own(block, "signature"));
    return [{ type: "reasoning", text: kept(thinking), signature }, signature === "" ? NATIVE : undefined];
  }
  if (type === "redacted_thinking" && typeof data === "string") {
    return [{ type: "reasoning", text: "", signature: kept(data) }, REDACTED];
  }
  if (type === "tool_use" && typeof name === "string" && role === "assistant") {
    const args = Object.hasOwn(block, "input") ? jsonText(block["input"]) : "";
    const isUsual = !Object.hasOwn(block, "input") || isObject(block["input"]);
    const id = kept(own(block, "id"));
    return [{ type: "tool_call", id, name: kept(name), arguments: args }, isUsual ? undefined : AS_IS];
  }
  if (type === "tool_result" && role === "user") {
    const content = own(block, "content") ?? null;
    if (content === null || typeof content === "string" || Array.isArray(content)) return readResult(block, content);
  }
  return readResultPart(block);
}

function readResult(block: Json, content: unknown): readonly [ToolResult, Tag] {
  const [parts, tags] = tagged(blocksOf(content).map(readResultPart));
  const form: Json = {};
  const actual = contentFormOf(block);
  if (Object.keys(tags).length > 0) form["parts"] = tags;
  if (actual !== resultContentForm(parts)) form["content"] = actual;
  // Text alone is written as it is, empty or not.
  else if (actual === "text") delete form["parts"];
  const callId = kept(own(block, "tool_use_id"));
  const result: ToolResult = { type: "tool_result", callId, name: "", isError: own(block, "is_error") === true, parts };
  return [result, Object.keys(form).length > 0 ? form : undefined];
}

function readResultPart(block: unknown): readonly [ResultPart, Tag] {
  if (isObject(block) && own(block, "type") === "text" && typeof own(block, "text") === "string") {
    const text = kept(block["text"]);
    return [{ type: "text", text }, text === "" ? NATIVE : undefined];
  }
  // JSON is kept for what our media would not give back as it was.
  const media = readMedia(block);
  return media === undefined ? [{ type: "data", json: jsonText(block) }, NATIVE] : [media, undefined];
}

function readMedia(block: unknown): MediaPart | undefined {
  if (!isObject(block)) return undefined;
  const [type, given] = [own(block, "type"), own(block, "source")];
  if (!(type === "image" || type === "document") || !isObject(given)) return undefined;
  const [kind, mediaType, data] = [own(given, "type"), own(given, "media_type"), own(given, "data")];
  const [url, fileId] = [own(given, "url"), own(given, "file_id")];
  const anyType = type === "image" ? ANY_IMAGE : "";
  let media: MediaPart | undefined;
  let source: Json = {};
  if (kind === "base64" && typeof mediaType === "string" && typeof data === "string") {
    const bytes = base64Bytes(data);
    media = bytes === undefined ? undefined : mediaOfData(kept(mediaType), bytes);
    source = { type: kind, media_type: mediaType, data };
  } else if (kind === "url" && typeof url === "string") {
    media = mediaByUri(anyType, kept(url));
    source = { type: kind, url };
  } else if (kind === "file" && typeof fileId === "string") {
    media = mediaByUri(anyType, kept(fileId));
    source = { type: kind, file_id: fileId };
  }
  if (media === undefined || media.uri === "") return undefined;
  return difference(mediaBlock(media), { type, source }) === undefined ? media : undefined;
}
