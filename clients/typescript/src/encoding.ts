// From the SDK's types to the API's.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type Duration, DurationSchema, type Timestamp, timestampFromDate } from "@bufbuild/protobuf/wkt";

import { boolean, date, int64, kindOf, milliseconds, options as checked, string } from "./arguments.js";
import { OPEN_CALLS, OVERSIZE, RETENTION, ROLE, TOKENIZER, WINDOW_MODE } from "./enums.js";
import type { SessionSettingsSchema } from "./gen/memoryd/v1/history_service_pb.js";
import { type Message as ApiMessage, MessageSchema, type PartSchema } from "./gen/memoryd/v1/message_pb.js";
import type { PolicySchema, SummaryPolicySchema, WindowOptionsSchema } from "./gen/memoryd/v1/policy_pb.js";
import { FOREVER, type SessionSettings } from "./histories.js";
import { newId } from "./ids.js";
import { isObject, loneSurrogate } from "./json-text.js";
import type { Message, Part } from "./messages.js";
import type { Policy, SummaryPolicy, WindowOptions } from "./policies.js";

const LIMITS = "1 to 100,000 messages or 1 to 100,000,000 tokens";
const SIZES = "the number of bytes, or 0 when it is not known";

/** A moment for the API. */
export function timestamp(moment: Date, argument: string): Timestamp {
  return timestampFromDate(date(moment, argument));
}

/** A number of milliseconds for the API. */
export function duration(value: number, argument: string): Duration {
  const nanos = BigInt(Math.round(milliseconds(value, argument) * 1e6));
  return create(DurationSchema, { seconds: nanos / 1_000_000_000n, nanos: Number(nanos % 1_000_000_000n) });
}

/** A session's ttl for the API, which has none for a session without end. */
export function ttl(value: number | undefined): Duration | undefined {
  return value === undefined || value === FOREVER ? undefined : duration(value, "ttlMs");
}

/** An agent's run retention for the API: null is the server's own, and 0 there is for ever. */
export function runRetention(value: number | null | undefined): Duration | undefined {
  if (value === undefined || value === null) return undefined;
  return duration(value === FOREVER ? 0 : value, "runRetentionMs");
}

/**
 * A message of the API. One without an id gets one. What only the server gives is carried along; it is ignored there.
 *
 * @throws TypeError for what is no message, RangeError for text that UTF-8 cannot encode: half of a surrogate pair.
 */
export function messageToProto(message: Message): ApiMessage {
  if (!isObject(message) || typeof message.role !== "string") {
    throw new TypeError(
      `a message is ${kindOf(message)}; give user("Hello!"), for example, or ...fromOpenai(messages)`,
    );
  }
  const of = `of message ${message.id || "without an id"}`;
  const said = message.content;
  if (said !== undefined && !Array.isArray(said)) {
    throw new TypeError(`the content ${of} is ${kindOf(said)}; give an array of parts, or undefined for absent content`);
  }
  return create(MessageSchema, {
    id: text(message.id || newId(), `the id ${of}`),
    seq: int64(message.seq ?? 0, `the seq ${of}`, "what the server gave, or 0"),
    role: ROLE.number(message.role, `the role ${of}`),
    ...(message.name === undefined ? {} : { name: text(message.name, `the name ${of}`) }),
    ...(said === undefined ? {} : { content: { parts: said.map((part: Part) => partToProto(part, of)) } }),
    runId: text(message.runId ?? "", `the runId ${of}`),
    metadata: text(message.metadata ?? "", `the metadata ${of}`),
    extra: text(message.extra ?? "", `the extra ${of}`),
    ...(message.createTime === undefined ? {} : { createTime: timestamp(message.createTime, `the createTime ${of}`) }),
    tokenCount: int64(message.tokenCount ?? 0, `the tokenCount ${of}`, "what the server gave, or 0"),
    ...(message.redaction === undefined
      ? {}
      : {
          redaction: {
            redactTime: timestamp(message.redaction.redactTime, `the redactTime ${of}`),
            reason: text(message.redaction.reason, `the reason of the redaction ${of}`),
          },
        }),
  });
}

function partToProto(part: Part, of: string): MessageInitShape<typeof PartSchema> {
  switch (part?.type) {
    case "text":
      return { kind: { case: "text", value: text(part.text, `a text ${of}`) } };
    case "reasoning": {
      const value = { text: text(part.text, `a reasoning ${of}`), signature: text(part.signature, `a signature ${of}`) };
      return { kind: { case: "reasoning", value } };
    }
    case "refusal":
      return { kind: { case: "refusal", value: text(part.text, `a refusal ${of}`) } };
    case "media": {
      if ((part.uri === undefined) === (part.data === undefined)) {
        throw new TypeError(`a media part ${of} needs exactly one of uri and data`);
      }
      const source =
        part.uri === undefined
          ? { case: "data" as const, value: bytes(part.data, `the data of a media part ${of}`) }
          : { case: "uri" as const, value: text(part.uri, `the uri of a media part ${of}`) };
      const size = int64(part.size ?? 0, `the size of a media part ${of}`, SIZES);
      return { kind: { case: "media", value: { type: text(part.mediaType, `a mediaType ${of}`), source, size } } };
    }
    case "data":
      return { kind: { case: "data", value: text(part.json, `the json of a data part ${of}`) } };
    case "tool_call": {
      const value = {
        id: text(part.id, `the id of a call ${of}`),
        name: text(part.name, `the name of a call ${of}`),
        arguments: text(part.arguments, `the arguments of a call ${of}`),
      };
      return { kind: { case: "toolCall", value } };
    }
    case "tool_result": {
      const value = {
        callId: text(part.callId, `the callId of a result ${of}`),
        name: text(part.name ?? "", `the name of a result ${of}`),
        isError: boolean(part.isError ?? false, `isError of a result ${of}`),
        parts: part.parts.map((inner) => partToProto(inner, of)),
      };
      return { kind: { case: "toolResult", value } };
    }
    default:
      throw new TypeError(`${JSON.stringify(part)} ${of} is no part: give { type: "text", text: "Hello!" }, for example`);
  }
}

function text(value: string, what: string): string {
  if (typeof value !== "string") throw new TypeError(`${what} is ${kindOf(value)}; give text`);
  const half = value.isWellFormed() ? undefined : loneSurrogate(value);
  if (half !== undefined) {
    throw new RangeError(
      `${what} holds half of a surrogate pair (${half}), which UTF-8 cannot encode; replace it, for example with U+FFFD`,
    );
  }
  return value;
}

function bytes(value: unknown, what: string): Uint8Array<ArrayBuffer> {
  if (!(value instanceof Uint8Array)) throw new TypeError(`${what} is ${kindOf(value)}; give a Uint8Array`);
  return value as Uint8Array<ArrayBuffer>;
}

/** Window options of the API. */
export function windowOptionsToProto(given: WindowOptions): MessageInitShape<typeof WindowOptionsSchema> {
  const { mode, limit, pinSystem, startWithUser, openCalls, oversize } = checked(given, "window");
  return {
    ...(mode === undefined ? {} : { mode: WINDOW_MODE.number(mode, "mode") }),
    ...(limit === undefined ? {} : { limit: int64(limit, "limit", LIMITS) }),
    ...(pinSystem === undefined ? {} : { pinSystem: boolean(pinSystem, "pinSystem") }),
    ...(startWithUser === undefined ? {} : { startWithUser: boolean(startWithUser, "startWithUser") }),
    ...(openCalls === undefined ? {} : { openCalls: OPEN_CALLS.number(openCalls, "openCalls") }),
    ...(oversize === undefined ? {} : { oversize: OVERSIZE.number(oversize, "oversize") }),
  };
}

/** A policy of the API. */
export function policyToProto(given: Policy): MessageInitShape<typeof PolicySchema> {
  const { window, summary } = checked(given, "policy");
  return {
    window: windowOptionsToProto(window ?? {}),
    ...(summary === undefined ? {} : { summary: summaryPolicyToProto(summary) }),
  };
}

function summaryPolicyToProto(given: SummaryPolicy): MessageInitShape<typeof SummaryPolicySchema> {
  const { enabled, summarizer, maxTokens, keep, retention, wait } = checked(given, "summary");
  return {
    ...(enabled === undefined ? {} : { enabled: boolean(enabled, "enabled") }),
    summarizer: string(summarizer ?? "", "summarizer", "extractive"),
    ...(maxTokens === undefined ? {} : { maxTokens: int64(maxTokens, "maxTokens", "64 to 8,000") }),
    ...(keep === undefined ? {} : { keep: int64(keep, "keep", "1 or more messages or tokens") }),
    retention: RETENTION.number(retention ?? "unspecified", "retention"),
    ...(wait === undefined ? {} : { wait: boolean(wait, "wait") }),
  };
}

/** Labels of the API. */
export function labelsToProto(labels: Readonly<Record<string, string>>): Record<string, string> {
  if (!isObject(labels)) throw new TypeError(`labels is ${kindOf(labels)}; give an object of texts`);
  return Object.fromEntries(
    Object.entries(labels).map(([key, value]) => [
      string(key, "a key of labels", "channel"),
      string(value, `labels.${key}`, "web"),
    ]),
  );
}

/** Session settings of the API. */
export function sessionSettingsToProto(given: SessionSettings): MessageInitShape<typeof SessionSettingsSchema> {
  const { userId, labels, tokenizer, policy, ttlMs } = checked(given, "create");
  const lifetime = ttl(ttlMs);
  return {
    userId: string(userId ?? "", "userId", "mia"),
    labels: labelsToProto(labels ?? {}),
    tokenizer: TOKENIZER.number(tokenizer ?? "unspecified", "tokenizer"),
    ...(policy === undefined ? {} : { policy: policyToProto(policy) }),
    ...(lifetime === undefined ? {} : { ttl: lifetime }),
  };
}
