// From our messages to items of OpenAI's Responses.

import { exactJsonValue, isObject, UNREADABLE } from "../json-text.js";
import { type MediaPart, type Message, type Part, type ReasoningPart, type ResultPart, type Role, type ToolCall, type ToolResult } from "../messages.js";
import { dataUrl, isUrl, mention } from "./media.js";
import { textOfBlocks } from "./openai-writing.js";
import { paired } from "./responses-pairing.js";
import { type Json, NATIVE, noted, own, patched, readForm } from "./source-form.js";

export const FORMAT = "openai_responses";

/** Marks an item that is kept as JSON, since our messages have no part for it. */
export const ITEM = "item";
/** Marks a call, or an output, whose whole item is kept as JSON. */
export const OTHER = "other";
/** Marks a call of a custom tool, whose input is text, or its output. */
export const CUSTOM = "custom";
/** Marks an item that is a message, although it has no part to tell it by. */
export const MESSAGE = "message";
/** Marks reasoning. Without the mark it is another provider's, and left out. */
export const REASONING = "reasoning";

/** The items of our messages. With `asBorn` they stay as they came, whether or not the API would take them. */
export function writeMessages(messages: Iterable<Message>, asBorn: boolean): Json[] {
  const all = [...messages].flatMap((message) => {
    const parts = message.content ?? [];
    const items = own(readForm(message.extra, FORMAT), "items");
    return isFormOf(items, parts) ? written(message.role, parts, items) : writtenByItself(message.role, parts);
  });
  return asBorn ? all : paired(all);
}

/** Whether notes about items fit the parts: a redaction may have taken these away. */
function isFormOf(items: unknown, parts: readonly Part[]): items is Json[] {
  if (!Array.isArray(items) || !items.every(isObject)) return false;
  let left = parts;
  for (const item of items) {
    const count = partCount(item);
    if (count > left.length) return false;
    const [first] = left;
    const kind = own(item, "kind");
    if (kind === REASONING && first?.type !== "reasoning") return false;
    if (kind === ITEM && first?.type !== "data") return false;
    left = left.slice(count);
  }
  return left.length === 0;
}

/** How many parts an item has. */
export function partCount(item: Json): number {
  const count = own(item, "n");
  return typeof count === "number" ? count : 1;
}

/** The items of a message whose form notes where each begins. */
function written(role: Role, parts: readonly Part[], items: readonly Json[]): Json[] {
  let left = parts;
  return items.map((item) => {
    const itsParts = left.slice(0, partCount(item));
    left = left.slice(itsParts.length);
    return patched(writtenItem(role, itsParts, item), noted(item, "patch")) as Json;
  });
}

/** One item, before its patch. */
export function writtenItem(role: Role, parts: readonly Part[], item: Json): Json {
  const kind = own(item, "kind");
  const [first] = parts;
  if (kind !== MESSAGE && first !== undefined) {
    switch (first.type) {
      case "data": {
        const value = kind === ITEM ? exactJsonValue(first.json) : UNREADABLE;
        if (isObject(value)) return value;
        break;
      }
      case "reasoning":
        return reasoningItem(parts as readonly ReasoningPart[], item);
      case "tool_call":
        return callItem(first, kind);
      case "tool_result":
        return outputItem(first, item);
      default:
    }
  }
  return messageItem(role, parts, item);
}

/** The items of a message that did not come from the Responses. */
export function writtenByItself(role: Role, parts: readonly Part[]): Json[] {
  const items: Json[] = [];
  let said: Part[] = [];
  const say = (speaker: Role): void => {
    if (said.length > 0) items.push(messageItem(speaker, said, {}));
    said = [];
  };
  if (role !== "assistant") {
    for (const part of parts) {
      if (part.type === "tool_result") items.push(outputItem(part, {}));
      else if (isSaid(part)) said.push(part);
    }
    say(role === "tool" || items.length > 0 ? "user" : role);
    return items;
  }
  for (const part of parts) {
    if (part.type === "tool_call") {
      say(role);
      items.push(callItem(part, undefined));
    } else if (isSaid(part)) {
      said.push(part);
    }
  }
  say(role);
  return items;
}

/** Whether a part belongs into a message. Reasoning of other providers is left out, and so is an empty text. */
function isSaid(part: Part): part is ResultPart {
  if (part.type === "text" || part.type === "refusal") return part.text !== "";
  return part.type === "media" || part.type === "data";
}

function messageItem(role: Role, parts: readonly Part[], item: Json): Json {
  const said = parts.filter((part): part is ResultPart => ["text", "refusal", "media", "data"].includes(part.type));
  const blocks = said.map((part, index) => block(part, own(noted(item, "parts"), String(index)), role === "assistant"));
  return { role, ...contentOf("content", blocks, own(item, "content"), contentForm(said)) };
}

/** How the content of a message is written by itself. */
export function contentForm(parts: readonly Part[]): string {
  return parts.length === 1 && parts[0]!.type === "text" ? "text" : "list";
}

/** How the output of a tool is written by itself. */
export function outputForm(parts: readonly ResultPart[]): string {
  return parts.length > 0 ? contentForm(parts) : "text";
}

function contentOf(key: string, blocks: unknown[], form: unknown, byItself: string): Json {
  const isAbsent = form === "missing" || form === "null";
  const actual = form === undefined || (blocks.length > 0 && isAbsent) ? byItself : form;
  if (actual === "missing") return {};
  if (actual === "null") return { [key]: null };
  return { [key]: actual === "text" ? textOfBlocks(blocks) : blocks };
}

function block(part: ResultPart, tag: unknown, byAssistant: boolean): unknown {
  const textType = byAssistant ? "output_text" : "input_text";
  switch (part.type) {
    case "text":
      return { type: textType, text: part.text };
    case "refusal":
      return byAssistant ? { type: "refusal", refusal: part.text } : { type: textType, text: part.text };
    case "media":
      return (byAssistant ? undefined : mediaBlock(part)) ?? { type: textType, text: mention(part) };
    case "data": {
      const value = tag === NATIVE ? exactJsonValue(part.json) : UNREADABLE;
      return value === UNREADABLE ? { type: textType, text: part.json } : value;
    }
  }
}

/** The block of media; undefined where the Responses have none, as for sound. */
export function mediaBlock(media: MediaPart): Json | undefined {
  const { mediaType, data } = media;
  const reference = media.uri ?? "";
  if (mediaType.startsWith("image/")) {
    if (data !== undefined) return { type: "input_image", image_url: dataUrl(mediaType, data), detail: "auto" };
    const place = isUrl(reference) ? { image_url: reference } : { file_id: reference };
    return { type: "input_image", ...place, detail: "auto" };
  }
  if (mediaType.startsWith("audio/")) return undefined;
  if (data !== undefined) return { type: "input_file", file_data: dataUrl(mediaType, data) };
  return { type: "input_file", ...(isUrl(reference) ? { file_url: reference } : { file_id: reference }) };
}

function reasoningItem(parts: readonly ReasoningPart[], item: Json): Json {
  // The last ones are the thinking itself, where a model shows it; those before are its summary.
  const raw = own(item, "raw");
  const cut = parts.length - (typeof raw === "number" ? raw : 0);
  const [summary, content] = [parts.slice(0, cut), parts.slice(cut)];
  const isEmpty = summary.length === 1 && summary[0]!.text === "";
  const signature = parts[0]?.signature ?? "";
  return {
    type: "reasoning",
    summary: isEmpty ? [] : summary.map(({ text }) => ({ type: "summary_text", text })),
    ...(content.length > 0 ? { content: content.map(({ text }) => ({ type: "reasoning_text", text })) } : {}),
    ...(signature === "" ? {} : { encrypted_content: signature }),
  };
}

function callItem(call: ToolCall, kind: unknown): Json {
  if (kind === CUSTOM) return { type: "custom_tool_call", call_id: call.id, name: call.name, input: call.arguments };
  const value = kind === OTHER ? exactJsonValue(call.arguments) : UNREADABLE;
  if (isObject(value)) return value;
  return { type: "function_call", call_id: call.id, name: call.name, arguments: call.arguments };
}

function outputItem(result: ToolResult, item: Json): Json {
  const kind = own(item, "kind");
  const [first] = result.parts;
  if (kind === OTHER && first?.type === "data") {
    const value = exactJsonValue(first.json);
    if (isObject(value)) return value;
  }
  const blocks = result.parts.map((part, index) => block(part, own(noted(item, "parts"), String(index)), false));
  return {
    type: kind === CUSTOM ? "custom_tool_call_output" : "function_call_output",
    call_id: result.callId,
    ...contentOf("output", blocks, own(item, "content"), outputForm(result.parts)),
  };
}
