// From our messages to Anthropic's.

import { exactJsonValue, isObject, jsonValue, UNREADABLE } from "../json-text.js";
import { type Message, type MediaPart, type Part, type Role, textOfParts, type ToolResult } from "../messages.js";
import { base64Text, isUrl, mention } from "./media.js";
import { textOfBlocks } from "./openai-writing.js";
import { aligned, type Json, NATIVE, noted, own, patched, readForm } from "./source-form.js";

export const FORMAT = "anthropic";
/** The format whose reasoning has signatures that only OpenAI reads. */
const RESPONSES = "openai_responses";

/** Marks reasoning that Anthropic gave in encrypted form only. */
export const REDACTED = "redacted";
/** Marks a call whose input is not an object. */
export const AS_IS = "as_is";
/** Marks a message with results right behind another one, which Anthropic would want as one message. */
export const APART = "apart";
/** Marks a message with results behind something else, which Anthropic would want first. */
export const MIXED = "mixed";

const ROLES: Readonly<Record<Role, string>> = {
  system: "system",
  developer: "system",
  user: "user",
  assistant: "assistant",
  tool: "user",
};

/**
 * The system prompt (undefined without one) and the messages.
 *
 * Anthropic wants the results of a turn's calls in one message, before anything else that it says. With `asBorn`, a
 * conversation that came from Anthropic otherwise stays as it came.
 */
export function writeMessages(
  messages: Iterable<Message>,
  asBorn: boolean,
): { system: string | unknown[] | undefined; turns: Json[] } {
  const opening: Json[] = [];
  const turns: Json[] = [];
  for (const message of messages) {
    const form = aligned(readForm(message.extra, FORMAT), message.content ?? []);
    const before = written(message, form);
    if (before === undefined) continue;
    let source = patched(before, noted(form, "patch")) as Json;
    const isSystem = message.role === "system" || message.role === "developer";
    if (!isSystem || own(form, "inline")) {
      if (!(asBorn && own(form, MIXED))) source = resultsFirst(source);
      const last = turns.at(-1);
      if (last !== undefined && answers(last) && answers(source) && !(asBorn && own(form, APART))) {
        turns[turns.length - 1] = joined(last, source);
      } else {
        turns.push(source);
      }
    } else if (turns.length === 0) {
      opening.push(source);
    } else {
      turns.push({ ...source, role: "user" });
    }
  }
  return { system: systemOf(opening), turns };
}

/** Whether a message of Anthropic's holds results of calls. */
export function answers(source: Json): boolean {
  const content = own(source, "content");
  return own(source, "role") === "user" && Array.isArray(content) && content.some(isResult);
}

/** Whether a message of Anthropic's holds results behind something else. */
export function isMixed(source: Json): boolean {
  if (!answers(source)) return false;
  const content = source["content"] as unknown[];
  return content.some((block, index) => isResult(block) && index > 0 && !isResult(content[index - 1]));
}

function systemOf(opening: readonly Json[]): string | unknown[] | undefined {
  const contents = opening.map((source) => own(source, "content") as string | unknown[]);
  if (contents.length < 2) return contents[0];
  return contents.flatMap((content) => (typeof content === "string" ? [{ type: "text", text: content }] : content));
}

function joined(first: Json, second: Json): Json {
  const content = [...(first["content"] as unknown[]), ...(second["content"] as unknown[])];
  return resultsFirst({ ...first, ...second, content });
}

function resultsFirst(source: Json): Json {
  if (!answers(source)) return source;
  const content = source["content"] as unknown[];
  return { ...source, content: [...content.filter(isResult), ...content.filter((block) => !isResult(block))] };
}

function isResult(block: unknown): boolean {
  return isObject(block) && own(block, "type") === "tool_result";
}

/** How a message's content is written by itself. */
export function contentForm(parts: readonly Part[]): string {
  return parts.length === 1 && parts[0]!.type === "text" ? "text" : "list";
}

/** How a result's content is written by itself. */
export function resultContentForm(parts: readonly Part[]): string {
  return parts.length > 0 ? contentForm(parts) : "missing";
}

/** What is written before the form's patch; undefined for a message that says nothing that Anthropic takes. */
export function written(message: Message, form: Json): Json | undefined {
  const parts = message.content ?? [];
  const blocks = blocksOf(parts, noted(form, "parts"), isOfResponses(message));
  if (blocks.length === 0 && !Object.hasOwn(form, "content")) return undefined;
  return { role: ROLES[message.role], ...contentOf(blocks, own(form, "content"), contentForm(parts)) };
}

/** Whether the signatures of a message's reasoning are OpenAI's, which Anthropic refuses. */
function isOfResponses(message: Message): boolean {
  const forms = message.extra === "" ? undefined : jsonValue(message.extra);
  return isObject(forms) && Object.hasOwn(forms, RESPONSES) && !Object.hasOwn(forms, FORMAT);
}

function blocksOf(parts: readonly Part[], tags: Json, isForeign = false): unknown[] {
  return parts.flatMap((part, index) => {
    const tag = own(tags, String(index));
    const isLeftOut = !tag && (isRefused(part) || (isForeign && part.type === "reasoning"));
    return isLeftOut ? [] : [blockOf(part, tag)];
  });
}

/** Whether Anthropic refuses the block of a part: empty text, and thinking without its signature. */
function isRefused(part: Part): boolean {
  if (part.type === "reasoning") return part.signature === "";
  return (part.type === "text" || part.type === "refusal") && part.text === "";
}

function contentOf(blocks: unknown[], noted: unknown, byItself: string): Json {
  const isAbsent = noted === "missing" || noted === "null";
  const actual = noted === undefined || noted === null || (blocks.length > 0 && isAbsent) ? byItself : noted;
  if (actual === "missing") return {};
  if (actual === "null") return { content: null };
  return { content: actual === "text" ? textOfBlocks(blocks) : blocks };
}

function blockOf(part: Part, tag: unknown): unknown {
  switch (part.type) {
    case "text":
    case "refusal":
      return { type: "text", text: part.text };
    case "reasoning":
      return tag === REDACTED
        ? { type: "redacted_thinking", data: part.signature }
        : { type: "thinking", thinking: part.text, signature: part.signature };
    case "media":
      return mediaBlock(part) ?? { type: "text", text: mention(part) };
    case "data": {
      const value = tag === NATIVE ? exactJsonValue(part.json) : UNREADABLE;
      return value === UNREADABLE ? { type: "text", text: part.json } : value;
    }
    case "tool_call":
      return { type: "tool_use", id: part.id, name: part.name, input: inputOf(part.arguments, tag) };
    case "tool_result":
      return resultOf(part, isObject(tag) ? tag : {});
  }
}

function inputOf(args: string, tag: unknown): unknown {
  const value = args === "" ? {} : exactJsonValue(args);
  if (isObject(value) || (tag === AS_IS && value !== UNREADABLE)) return value;
  return { arguments: args };
}

function resultOf(result: ToolResult, form: Json): Json {
  const source: Json = { type: "tool_result", tool_use_id: result.callId };
  const byItself = resultContentForm(result.parts);
  const content =
    byItself === "text" && !Object.hasOwn(form, "content")
      ? { content: textOfParts(result.parts) }
      : contentOf(blocksOf(result.parts, noted(form, "parts")), own(form, "content"), byItself);
  return { ...source, ...content, ...(result.isError ? { is_error: true } : {}) };
}

/** The block of media; undefined where Anthropic has none, as for sound. */
export function mediaBlock(media: MediaPart): Json | undefined {
  const { mediaType, data } = media;
  const type = mediaType.startsWith("image/") ? "image" : "document";
  if (data === undefined) {
    const reference = media.uri ?? "";
    const source = isUrl(reference) ? { type: "url", url: reference } : { type: "file", file_id: reference };
    return { type, source };
  }
  if (type === "document" && mediaType !== "application/pdf") return undefined;
  return { type, source: { type: "base64", media_type: mediaType, data: base64Text(data) } };
}
