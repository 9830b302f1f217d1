// From our messages to OpenAI's chat-completions ones.

import { exactJsonValue, UNREADABLE } from "../json-text.js";
import { type Message, type MediaPart, type Part, type ResultPart, type Role, type ToolCall, type ToolResult, toolResultsOf } from "../messages.js";
import { base64Text, dataUrl, isUrl, mention } from "./media.js";
import { type Json, NATIVE, noted, own, patched, readForm } from "./source-form.js";

export const FORMAT = "openai";

export const AUDIO_TYPES: Readonly<Record<string, string>> = { mp3: "audio/mpeg", wav: "audio/wav" };
const AUDIO_FORMATS: ReadonlyMap<string, string> = new Map(
  Object.entries(AUDIO_TYPES).map(([format, mediaType]) => [mediaType, format]),
);

/**
 * The OpenAI messages of ours. What a message says beside its results waits for the results that follow: they stand directly
 * behind their calls.
 */
export function writeMessages(messages: Iterable<Message>): Json[] {
  const sources: Json[] = [];
  let waiting: Json[] = [];
  for (const message of messages) {
    const said = writeMessage(message, readForm(message.extra, FORMAT));
    const results = toolResultsOf(message).length || (message.role === "tool" ? 1 : 0);
    if (results > 0) {
      sources.push(...said.slice(0, results));
      waiting.push(...said.slice(results));
    } else if (said.length > 0) {
      sources.push(...waiting, ...said);
      waiting = [];
    }
  }
  return [...sources, ...waiting];
}

/** The OpenAI messages of ours: one as a rule, several when it answers several calls. */
function writeMessage(message: Message, form: Json): Json[] {
  const sources = written(message, form);
  if (sources.length === 1 && Object.hasOwn(form, "patch")) return [patched(sources[0], form["patch"]) as Json];
  return sources;
}

/** What is written before the form's patch. */
export function written(message: Message, form: Json): Json[] {
  const { role, name, content } = message;
  const results = toolResultsOf(message);
  if (results.length === 0 && role !== "tool") {
    const isReasoning = content !== undefined && content.length > 0 && content.every((part) => part.type === "reasoning");
    return isReasoning && !own(form, "reasoning") ? [] : [spoken(role, name, content, form)];
  }
  const rest = (content ?? []).filter((part) => part.type !== "tool_result");
  const sources = results.map((result) => writeResult(result, form));
  if (results.length === 0) {
    // A tool's message without a result: nothing to name a call by, but what it says is kept in its place.
    const parts = rest.filter((part): part is ResultPart => part.type !== "reasoning" && part.type !== "tool_call");
    sources.push(writeResult({ type: "tool_result", callId: "", name: "", isError: false, parts }, form));
  } else if (rest.length > 0) {
    sources.push(spoken("user", name, rest, {}));
  }
  return sources;
}

/** How content is written by itself; `alone` tells that the message is there and has nothing else. */
export function spokenContentForm(said: readonly Part[], alone: boolean): string {
  if (said.length === 0) return alone ? "list" : "null";
  return said.length === 1 && said[0]!.type === "text" ? "text" : "list";
}

/** How a tool's content is written by itself. */
export function resultContentForm(parts: readonly ResultPart[]): string {
  return parts.length > 0 ? spokenContentForm(parts, true) : "text";
}

function spoken(role: Role, name: string | undefined, content: readonly Part[] | undefined, form: Json): Json {
  const parts = content ?? [];
  const source: Json = { role };
  const said = [...parts.entries()].filter(
    (entry): entry is [number, ResultPart] => entry[1].type !== "reasoning" && entry[1].type !== "tool_call",
  );
  let refusal: string | undefined;
  const last = said.at(-1)?.[1];
  if (role === "assistant" && own(form, "refusal") !== "part" && last?.type === "refusal") {
    refusal = last.text;
    said.pop();
  }
  setContent(
    source,
    said.map(([index, part]) => block(part, tag(form, index), role === "user")),
    spokenContentForm(
      said.map(([, part]) => part),
      content !== undefined && said.length === parts.length,
    ),
    form,
  );
  if (name !== undefined) source["name"] = name;
  if (own(form, "reasoning")) {
    source["reasoning_content"] = parts.map((part) => (part.type === "reasoning" ? part.text : "")).join("");
  }
  if (refusal !== undefined) source["refusal"] = refusal;
  const calls = parts.filter((part): part is ToolCall => part.type === "tool_call");
  if (calls.length > 0 && own(form, "function_call")) {
    const legacy = calls.pop()!;
    source["function_call"] = { name: legacy.name, arguments: legacy.arguments };
  }
  if (calls.length > 0) {
    const forms = noted(form, "calls");
    source["tool_calls"] = calls.map((call, index) => writeCall(call, own(forms, String(index))));
  }
  return source;
}

function writeResult(result: ToolResult, form: Json): Json {
  const isLegacy = Boolean(own(form, "function"));
  const source: Json = isLegacy ? { role: "function" } : { role: "tool", tool_call_id: result.callId };
  if (result.name || isLegacy) source["name"] = result.name;
  const blocks = result.parts.map((part, index) => block(part, tag(form, index), false));
  setContent(source, blocks, resultContentForm(result.parts), form);
  return source;
}

function tag(form: Json, index: number): unknown {
  return own(noted(form, "parts"), String(index));
}

function setContent(source: Json, blocks: unknown[], byItself: string, form: Json): void {
  let actual = Object.hasOwn(form, "content") ? form["content"] : byItself;
  if (blocks.length > 0 && (actual === "missing" || actual === "null")) actual = byItself;
  if (actual === "missing") return;
  if (actual === "null") source["content"] = null;
  else if (actual === "text") source["content"] = textOfBlocks(blocks);
  else source["content"] = blocks;
}

/** The texts of blocks, one after another. */
export function textOfBlocks(blocks: readonly unknown[]): string {
  return blocks.map((item) => String((item as { text?: unknown }).text ?? "")).join("");
}

function block(part: ResultPart, tagged: unknown, byUser: boolean): unknown {
  switch (part.type) {
    case "text":
      return { type: "text", text: part.text };
    case "refusal":
      return { type: "refusal", refusal: part.text };
    case "media": {
      const media = byUser || tagged === NATIVE ? mediaBlock(part) : undefined;
      return media ?? { type: "text", text: mention(part) };
    }
    case "data": {
      const value = tagged === NATIVE ? exactJsonValue(part.json) : UNREADABLE;
      return value === UNREADABLE ? { type: "text", text: part.json } : value;
    }
  }
}

/** The content part of media; undefined where chat completions have none, as for a document by URL. */
export function mediaBlock(media: MediaPart): Json | undefined {
  const { mediaType, data } = media;
  const isImage = mediaType.startsWith("image/");
  if (data === undefined) {
    const reference = media.uri ?? "";
    if (!isUrl(reference)) return { type: "file", file: { file_id: reference } };
    return isImage ? { type: "image_url", image_url: { url: reference } } : undefined;
  }
  if (isImage) return { type: "image_url", image_url: { url: dataUrl(mediaType, data) } };
  if (mediaType.startsWith("audio/")) {
    const format = AUDIO_FORMATS.get(mediaType) ?? mediaType.slice("audio/".length);
    return { type: "input_audio", input_audio: { data: base64Text(data), format } };
  }
  return { type: "file", file: { file_data: dataUrl(mediaType, data) } };
}

function writeCall(call: ToolCall, form: unknown): unknown {
  if (form === "custom") {
    return { id: call.id, type: "custom", custom: { name: call.name, input: call.arguments } };
  }
  const value = form === "object" || form === "other" ? exactJsonValue(call.arguments) : UNREADABLE;
  if (form === "other" && value !== UNREADABLE) return value;
  const args = value === UNREADABLE ? call.arguments : value;
  return { id: call.id, type: "function", function: { name: call.name, arguments: args } };
}
