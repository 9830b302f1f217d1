// Messages, ids, and JSON as text.

import assert from "node:assert/strict";
import { test } from "node:test";

import { create } from "@bufbuild/protobuf";
import { TimestampSchema } from "@bufbuild/protobuf/wkt";

import { assistant, call, message, messageFromProto, messageToProto, newId, textOf, tool, toolCallsOf, toolResultsOf, user } from "../src/index.js";
import { exactJsonValue, jsonText, UNREADABLE } from "../src/json-text.js";
import { cutToBytes } from "../src/utf8.js";

test("ids are UUIDs of version 7, and in order of time", () => {
  const ids = Array.from({ length: 1_000 }, newId);
  assert.equal(new Set(ids).size, 1_000);
  for (const id of ids) assert.match(id, /^[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}$/);
  const times = ids.map((id) => Number.parseInt(id.slice(0, 12), 16));
  assert.deepEqual(times, times.toSorted((a, b) => a - b));
  assert.ok(Math.abs(times[0]! - Date.now()) < 5_000);
});

test("what the functions make", () => {
  const weather = call("get_weather", { city: "Oslo", n: 2n ** 64n });
  assert.match(weather.id, /^call_[0-9a-f]{32}$/);
  assert.equal(weather.arguments, '{"city":"Oslo","n":18446744073709551616}');
  const said = assistant("Let me see.", { toolCalls: [weather], metadata: '{"raw": 1}', id: "m" });
  assert.deepEqual([textOf(said), toolCallsOf(said), said.metadata, said.id], ["Let me see.", [weather], '{"raw": 1}', "m"]);
  const answer = tool(weather.id, "4 degrees", { name: "get_weather", isError: true });
  assert.deepEqual(toolResultsOf(answer), [
    { type: "tool_result", callId: weather.id, name: "get_weather", isError: true, parts: [{ type: "text", text: "4 degrees" }] },
  ]);
  assert.deepEqual([user(null).content, user("").content, user([]).content], [undefined, [{ type: "text", text: "" }], []]);
  assert.notEqual(user("yes").id, user("yes").id);
  const full = message({ role: "user", runId: "r", redaction: { redactTime: new Date(5), reason: "x" }, createTime: new Date(7) });
  assert.deepEqual(messageFromProto(messageToProto(full)), full);
  const stored = { ...messageToProto(full), createTime: create(TimestampSchema, { seconds: 1n, nanos: 546_938_000 }) };
  assert.equal(messageFromProto(stored).createTime!.getTime(), 1_546); // not rounded up
  for (const wrong of [5, { type: "text" }, new Map(), new Uint8Array(2)]) {
    assert.throws(() => user(wrong as never), TypeError);
  }
});

test("JSON as text", () => {
  const odd = { "a\ud800": [1, -0, 1e300, true, null, "\u2028\ud83d"], __proto__: null, b: undefined };
  assert.equal(jsonText(odd), '{"a\\ud800":[1,-0,1e+300,true,null,"\u2028\\ud83d"]}');
  assert.equal(jsonText(JSON.parse('{"__proto__":1}')), '{"__proto__":1}');
  for (const wrong of [Number.NaN, () => 1, Symbol("a"), [undefined], new Date(), new Map()]) {
    assert.throws(() => jsonText(wrong), TypeError);
  }
  for (const [text, value] of [
    ['{"a":9007199254740993}', UNREADABLE],
    ['{"a":"9007199254740993"}', { a: "9007199254740993" }],
    ["1000000000000000000000", 1e21],
    ["1180591620717411303424", UNREADABLE],
    ["-9007199254740992", -(2 ** 53)],
    ["1.00000000000000000001", 1],
    ["{", UNREADABLE],
  ] as const) {
    assert.deepEqual(exactJsonValue(text), value, text);
  }
});

test("text is cut between characters", () => {
  assert.deepEqual([cutToBytes("a🙂b", 4), cutToBytes("a🙂b", 5), cutToBytes("\ud800", 9)], ["a", "a🙂", "\ufffd"]);
});
