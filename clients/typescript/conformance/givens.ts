// From what commands tell to what the SDK takes.

import { type Duration, durationMs, type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";

import { policyFromProto } from "../src/decoding.js";
import { TOKENIZER } from "../src/enums.js";
import type { SessionSettings as ApiSessionSettings } from "../src/gen/memoryd/v1/history_service_pb.js";
import type { Message as ApiMessage } from "../src/gen/memoryd/v1/message_pb.js";
import { type Message, messageFromProto, type Payload, type SessionSettings } from "../src/index.js";
import type { Payload as GivenPayload } from "./gen/tests/conformance/conformance_pb.js";
import { jsonValue } from "./json.js";

export function milliseconds(duration: Duration | undefined): number | undefined {
  return duration && durationMs(duration);
}

export function date(timestamp: Timestamp | undefined): Date | undefined {
  return timestamp && timestampDate(timestamp);
}

export function messages(given: readonly ApiMessage[]): Message[] {
  return given.map(messageFromProto);
}

export function settings(given: ApiSessionSettings | undefined): SessionSettings | undefined {
  if (given === undefined) return undefined;
  return {
    userId: given.userId,
    labels: given.labels,
    tokenizer: TOKENIZER.word(given.tokenizer),
    policy: given.policy && policyFromProto(given.policy),
    ttlMs: milliseconds(given.ttl),
  };
}

/** Which message: what names none is the SDK's to refuse. */
export function messageName(by: ApiMessageName): { seq: bigint } | { id: string } {
  return (by.case === undefined ? {} : { [by.case]: by.value }) as { seq: bigint } | { id: string };
}

type ApiMessageName = { case: "seq"; value: bigint } | { case: "id"; value: string } | { case: undefined; value?: undefined };

/** A payload as a value of the language; undefined for none. */
export function payload(given: GivenPayload | undefined): Payload {
  const form = given?.form;
  return form?.case === "json" ? (jsonValue(form.value) as Payload) : form?.value;
}

/** The items of a list, or its first ones where `most` is not 0. */
export async function read<Item>(items: AsyncIterable<Item>, most = 0): Promise<Item[]> {
  const found: Item[] = [];
  for await (const item of items) {
    found.push(item);
    if (found.length === most) break;
  }
  return found;
}
