// The items of OpenAI's Responses are stored, and written, as the SDKs of other languages store and write them.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";

import { fromJson, type JsonObject, toJson } from "@bufbuild/protobuf";

import { fromOpenaiResponses, type Message, messageFromProto, messageToProto, toOpenaiResponses, Window, type WindowStats } from "../src/index.js";
import { MessageSchema } from "../src/gen/memoryd/v1/message_pb.js";

/** One of the cases that all SDKs read; what its keys are, `tests/sdk/test_responses_fixtures.py` says. */
interface Case {
  readonly name: string;
  readonly items?: Record<string, unknown>[];
  readonly messages: JsonObject[];
  readonly gives?: Record<string, unknown>[];
  readonly window?: Record<string, unknown>[];
}

const FIXTURES = new URL("../../../../tests/conformance/fixtures/openai_responses.json", import.meta.url);
const CASES = JSON.parse(readFileSync(FIXTURES, "utf8")) as Case[];

function storedForm(one: Message): JsonObject {
  const { id: _, ...form } = toJson(MessageSchema, messageToProto(one)) as JsonObject;
  return form;
}

describe("fixtures of OpenAI Responses", () => {
  for (const { name, items, messages, gives = items, window = gives } of CASES) {
    test(`${name}: the same messages, the same items`, () => {
      if (items !== undefined) assert.deepEqual(fromOpenaiResponses(items).map(storedForm), messages);
      const read = messages.map((form, index) => messageFromProto(fromJson(MessageSchema, { ...form, id: `m${index}` })));
      assert.deepEqual(toOpenaiResponses(read), gives);
      assert.deepEqual(toOpenaiResponses(new Window(read, {} as WindowStats)), window);
    });
  }
});
