// What providers' messages hold comes back equal, also after it was stored.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";

import { fromBinary, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";

import {
  assistant,
  call,
  developer,
  fromAnthropic,
  fromOpenai,
  fromOpenaiResponses,
  message,
  type Message,
  messageFromProto,
  messageToProto,
  system,
  toAnthropic,
  toOpenai,
  toOpenaiResponses,
  tool,
  toolResult,
  user,
  Window,
  type WindowStats,
} from "../src/index.js";
import { MessageSchema } from "../src/gen/memoryd/v1/message_pb.js";
import "../src/utf8.js";

type Json = Record<string, unknown>;

const PNG = "iVBORw0KGgo=";
const BYTES = new Uint8Array([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
const LONG = "0123456789".repeat(100);

function shapes(name: string): { shapes: Record<string, Json>; systems: Record<string, string | Json[]>; conversation: never } {
  const text = readFileSync(new URL(`../../test/shapes/${name}.json`, import.meta.url), "utf8");
  return JSON.parse(text) as ReturnType<typeof shapes>;
}

/** The messages as they come back from a server: over the wire, with what a server adds. */
function stored(messages: Iterable<Message>): Message[] {
  return [...messages].map((one, index) => {
    const sent = { ...one, seq: index + 1, tokenCount: 7, createTime: new Date() };
    return messageFromProto(fromBinary(MessageSchema, toBinary(MessageSchema, messageToProto(sent))));
  });
}

/** What two messages are compared by: not their ids, nor what the server adds. */
function said(messages: Iterable<Message>): unknown[] {
  return [...messages].map(({ role, content, name, metadata, extra }) => ({ role, content, name, metadata, extra }));
}

/** A message as a window gives it that had to shorten its texts. */
function shortened(one: Message): Message {
  const cut = <Part extends { readonly type: string }>(part: Part): Part =>
    part.type === "text" ? { ...part, text: `${(part as unknown as { text: string }).text.slice(0, 3)}[shortened]` } : part;
  const content = (one.content ?? []).map((part) =>
    part.type === "tool_result" ? { ...part, parts: part.parts.map(cut) } : cut(part),
  );
  return { ...one, content };
}

function windowOf(messages: readonly Message[]): Window {
  return new Window(messages, {} as WindowStats);
}

/** Any JSON, and among it the words that have a meaning. */
function anyMessage(words: readonly string[], roles: readonly string[]): fc.Arbitrary<Json> {
  const text = fc.oneof(
    fc.string({ unit: "binary", maxLength: 8 }),
    fc.constantFrom("", " ", "\0", "\ud800", "{", "data:,", "https://e.com", `data:image/png;base64,${PNG}`, PNG, "__proto__"),
    fc.constantFrom(...words),
  );
  const { value } = fc.letrec<{ value: unknown }>((tie) => ({
    value: fc.oneof(
      { maxDepth: 5, depthIdentifier: "value" },
      fc.oneof(text, fc.constant(null), fc.boolean(), fc.double({ noNaN: true, noDefaultInfinity: true }), fc.maxSafeInteger()),
      fc.array(tie("value"), { maxLength: 3, depthIdentifier: "value" }),
      fc.dictionary(fc.oneof(fc.constantFrom(...words), text), tie("value"), { maxKeys: 4, depthIdentifier: "value", noNullPrototype: true }),
    ),
  }));
  const content = fc.oneof(fc.constant(null), text, fc.array(value, { maxLength: 3 }));
  const keys = fc.dictionary(fc.constantFrom(...words), value, { maxKeys: 4, noNullPrototype: true });
  return fc
    .tuple(keys, fc.constantFrom(...roles), fc.option(content, { nil: undefined }))
    .map(([more, role, itsContent]) => {
      const { content: _, ...rest } = more;
      return { ...rest, role, ...(itsContent === undefined ? {} : { content: itsContent }) };
    });
}

describe("OpenAI chat completions", () => {
  const openai = shapes("openai");
  const conversation: Json[] = openai.conversation;
  for (const [name, source] of Object.entries(openai.shapes)) {
    test(`${name} comes back equal`, () => {
      assert.deepEqual(toOpenai(fromOpenai([source])), [source]);
      assert.deepEqual(toOpenai(stored(fromOpenai([source]))), [source]);
    });
  }

  test("all shapes together come back in order", () => {
    const sources = Object.values(openai.shapes);
    assert.deepEqual(toOpenai(stored(fromOpenai(sources))), sources);
  });

  test("any message comes back equal", () => {
    const words = [
      ...["type", "text", "refusal", "image_url", "url", "input_audio", "data", "format", "wav", "file", "file_data", "file_id"],
      ...["name", "tool_calls", "function_call", "function", "custom", "arguments", "id", "tool_call_id", "reasoning_content"],
    ];
    const roles = ["system", "developer", "user", "assistant", "tool", "function"];
    fc.assert(
      fc.property(anyMessage(words, roles), (source) => {
        assert.deepEqual(toOpenai(stored(fromOpenai([source]))), [source]);
      }),
      { numRuns: 500, seed: 1 },
    );
  });

  test("plain conversations need no extra", () => {
    assert.deepEqual(toOpenai(stored(fromOpenai(conversation))), conversation);
    assert.deepEqual(new Set(fromOpenai(conversation).map((one) => one.extra)), new Set([""]));
  });

  test("content is stored once", () => {
    const f = (id: string, args: unknown): Json => ({ id, type: "function", function: { name: "f", arguments: args } });
    const sources = [
      { role: "assistant", content: [{ type: "text", text: LONG, x: 1 }, { type: "thing", value: LONG }], refusal: LONG },
      { role: "assistant", content: null, tool_calls: [f("a", LONG), { id: "b", type: "custom", custom: { name: "f", input: LONG } }] },
      { role: "assistant", content: null, tool_calls: [{ id: "c", type: "web", query: LONG }, f("d", { a: LONG })] },
      { role: "tool", content: [{ type: "text", text: LONG }], tool_call_id: "a", name: null },
    ];
    for (const one of fromOpenai(sources)) assert.ok(one.extra !== "" && one.extra.length < 200, one.extra);
    assert.deepEqual(toOpenai(fromOpenai(sources)), sources);
  });

  test("shortened texts stay shortened", () => {
    const sources = [{ role: "user", content: [{ type: "text", text: LONG, x: 1 }] }];
    const expected = [{ role: "user", content: [{ type: "text", text: "012[shortened]", x: 1 }] }];
    assert.deepEqual(toOpenai(fromOpenai(sources).map(shortened)), expected);
  });

  test("what is read into which fields", () => {
    const read = fromOpenai([
      { role: "system", content: "Be brief.", name: "boss" },
      { role: "user", content: [{ type: "text", text: "a" }, { type: "image_url", image_url: { url: "https://e.com/a" } }] },
      {
        role: "assistant",
        content: "Hm.",
        refusal: "No.",
        reasoning_content: "2+2",
        tool_calls: [{ id: "c", type: "function", function: { name: "f", arguments: "{" } }],
      },
      { role: "tool", content: "12 C", tool_call_id: "c", name: "f" },
      { role: "function", content: "12 C", name: "f" },
    ]);
    assert.deepEqual(
      said(read),
      said([
        system("Be brief.", { name: "boss" }),
        user([
          { type: "text", text: "a" },
          { type: "media", mediaType: "image/*", uri: "https://e.com/a", size: 0 },
        ]),
        message({
          role: "assistant",
          content: [
            { type: "reasoning", text: "2+2", signature: "" },
            { type: "text", text: "Hm." },
            { type: "refusal", text: "No." },
            { type: "tool_call", id: "c", name: "f", arguments: "{" },
          ],
          extra: '{"openai":{"reasoning":true}}',
        }),
        tool("c", "12 C", { name: "f" }),
        message({
          role: "tool",
          content: [toolResult("", "12 C", { name: "f" })],
          extra: '{"openai":{"function":true}}',
        }),
      ]),
    );
  });

  test("messages made by hand", () => {
    const weather = call("weather", { city: "Oslo" }, { id: "c" });
    const called = [{ id: "c", type: "function", function: { name: "weather", arguments: '{"city":"Oslo"}' } }];
    assert.deepEqual(
      toOpenai([
        system("Be brief."),
        user(null),
        user([
          { type: "text", text: "a" },
          { type: "data", json: '{"b": 1}' },
          { type: "media", mediaType: "image/png", data: BYTES },
          { type: "media", mediaType: "", uri: "https://e.com/a.pdf" },
        ]),
        assistant("Let me see.", { toolCalls: [weather] }),
        tool("c", [
          { type: "text", text: "12 C" },
          { type: "media", mediaType: "image/png", data: BYTES.slice(0, 4) },
        ]),
        assistant(undefined, { toolCalls: [weather] }),
        tool("c", []),
        assistant([
          { type: "reasoning", text: "hm", signature: "" },
          { type: "text", text: "Warm." },
        ]),
        assistant([{ type: "reasoning", text: "hm", signature: "" }]),
      ]),
      [
        { role: "system", content: "Be brief." },
        { role: "user", content: null },
        {
          role: "user",
          content: [
            { type: "text", text: "a" },
            { type: "text", text: '{"b": 1}' },
            { type: "image_url", image_url: { url: `data:image/png;base64,${PNG}` } },
            { type: "text", text: "[file: https://e.com/a.pdf]" },
          ],
        },
        { role: "assistant", content: "Let me see.", tool_calls: called },
        { role: "tool", tool_call_id: "c", content: [{ type: "text", text: "12 C" }, { type: "text", text: "[image/png, 4 bytes]" }] },
        { role: "assistant", content: null, tool_calls: called },
        { role: "tool", tool_call_id: "c", content: "" },
        { role: "assistant", content: "Warm." },
      ],
    );
  });

  test("nothing stands between a call and its results", () => {
    const calls = [call("f", "{}", { id: "a" }), call("f", "{}", { id: "b" })];
    const first = user([toolResult("a", "1"), { type: "text", text: "One is done." }]);
    const second = user([toolResult("b", "2"), { type: "text", text: "Two is done." }]);
    const texts = toOpenai([assistant(undefined, { toolCalls: calls }), first, second, user("Go on.")]).map(
      (source) => source["content"],
    );
    assert.deepEqual(texts, [null, "1", "2", "One is done.", "Two is done.", "Go on."]);
  });

  test("an extra that says nothing is passed over", () => {
    for (const extra of [
      ...["{", "[]", "null", '{"openai":7}', '{"openai":{"patch":7}}', '{"__proto__":{"openai":{"function_call":true}}}'],
      '{"openai":{"parts":[1],"calls":3,"content":[],"patch":{"in":5,"set":6}}}',
      '{"openai":{"patch":{"in":{"tool_calls":8},"del":9}}}',
    ]) {
      const called = { id: "a", type: "function", function: { name: "f", arguments: "{}" } };
      const [read] = fromOpenai([{ role: "assistant", content: "Hello!", tool_calls: [called] }]);
      assert.deepEqual(toOpenai([{ ...read!, extra }])[0]!["tool_calls"], [called]);
    }
  });

  test("what is no message is named", () => {
    for (const [source, complaint] of [
      ["text", "messages[1] is no object"],
      [{ content: "a" }, "messages[1] has the role undefined; it can be one of system, developer, user"],
      [{ role: "critic", content: "a" }, 'messages[1] has the role "critic"'],
      [{ role: "toString", content: "a" }, 'messages[1] has the role "toString"'],
      [{ role: "user", content: { text: "a" } }, "messages[1] has content that is of type Object"],
      [{ role: "user", content: "a", date: new Uint8Array(2) }, "messages[1] holds what JSON cannot"],
      [{ role: "user", content: [{ type: "x", data: Number.NaN }] }, "messages[1] holds what JSON cannot"],
    ] as const) {
      assert.throws(
        () => fromOpenai([{ role: "user", content: "a" }, source as object]),
        (error: Error) => error instanceof TypeError && error.message.includes(complaint),
      );
    }
  });

  test("undefined values are as good as none", () => {
    const source = { role: "assistant", content: "a", refusal: undefined, tool_calls: undefined, audio: { id: undefined } };
    assert.deepEqual(toOpenai(fromOpenai([source])), [{ role: "assistant", content: "a", audio: {} }]);
  });
});

describe("Anthropic messages", () => {
  const anthropic = shapes("anthropic");
  const conversation: { system: string; messages: Json[] } = anthropic.conversation;
  for (const [name, source] of Object.entries(anthropic.shapes)) {
    test(`${name} comes back equal`, () => {
      assert.deepEqual(toAnthropic(fromAnthropic([source])), { messages: [source] });
      assert.deepEqual(toAnthropic(stored(fromAnthropic([source]))), { messages: [source] });
    });
  }
  for (const [name, prompt] of Object.entries(anthropic.systems)) {
    test(`the system prompt ${name} comes back equal`, () => {
      const whole = { messages: [{ role: "user", content: "Hello!" }], system: prompt };
      assert.deepEqual(toAnthropic(stored(fromAnthropic(whole.messages, prompt))), whole);
    });
  }

  test("all shapes together come back in order", () => {
    const messages = Object.values(anthropic.shapes);
    assert.deepEqual(toAnthropic(stored(fromAnthropic(messages, "Be brief."))), { messages, system: "Be brief." });
  });

  test("any conversation comes back equal", () => {
    const words = [
      ...["type", "text", "image", "document", "source", "base64", "url", "file", "media_type", "data", "file_id", "thinking"],
      ...["signature", "redacted_thinking", "tool_use", "tool_result", "id", "name", "input", "tool_use_id", "content", "is_error"],
    ];
    fc.assert(
      fc.property(fc.array(anyMessage(words, ["user", "assistant", "system"]), { maxLength: 4 }), (sources) => {
        assert.deepEqual(toAnthropic(stored(fromAnthropic(sources))), { messages: sources });
      }),
      { numRuns: 300, seed: 1 },
    );
  });

  test("plain conversations need hardly any extra", () => {
    const messages = stored(fromAnthropic(conversation.messages, conversation.system));
    assert.deepEqual(toAnthropic(messages), conversation);
    assert.deepEqual(
      messages.map((one) => one.extra),
      ["", "", "", '{"anthropic":{"parts":{"1":{"content":"list"}},"results":[0,1]}}', ""],
    );
  });

  test("results that a window left out take their notes along", () => {
    const cached = { cache_control: { type: "ephemeral" } };
    const first = { type: "tool_result", tool_use_id: "a", content: "1", is_error: false, ...cached };
    const text = { type: "text", text: "Go on.", ...cached };
    const second = { type: "tool_result", tool_use_id: "b", content: [{ type: "text", text: "2" }], is_error: false };
    const hologram = { type: "hologram" };
    const [read] = fromAnthropic([{ role: "user", content: [first, text, second, hologram] }]);
    const shown = (left: readonly number[]): unknown =>
      toAnthropic([{ ...read!, content: left.map((index) => read!.content![index]!) }]);
    const of = (...content: unknown[]): unknown => ({ messages: [{ role: "user", content }] });
    assert.deepEqual(shown([0, 1, 2, 3]), of(first, text, second, hologram));
    assert.deepEqual(shown([1, 3]), of(text, hologram));
    assert.deepEqual(shown([1, 2, 3]), of(text, { type: "tool_result", tool_use_id: "b", content: "2" }, hologram));
  });

  test("a window has the results of a turn in one message", () => {
    const use = (id: string): Json => ({ type: "tool_use", id, name: "f", input: {} });
    const result = (id: string, content: string): Json => ({ type: "tool_result", tool_use_id: id, content });
    const text = { type: "text", text: "One." };
    const messages = [
      { role: "assistant", content: [use("a"), use("b")] },
      { role: "user", content: [text, result("a", "1")] },
      { role: "user", content: [result("b", "2")] },
      { role: "assistant", content: "Done." },
    ];
    const read = stored(fromAnthropic(messages));
    const valid = [messages[0], { role: "user", content: [result("a", "1"), result("b", "2"), text] }, messages[3]];
    assert.deepEqual(toAnthropic(read), { messages });
    assert.deepEqual(toAnthropic(windowOf(read)), { messages: valid });
    assert.deepEqual(toAnthropic(read.map((one) => ({ ...one, extra: "" }))), { messages: valid });
  });

  test("messages made by hand", () => {
    const weather = call("weather", { city: "Oslo" }, { id: "c" });
    const use = (id: string, name: string, input: unknown): Json => ({ type: "tool_use", id, name, input });
    const calls = [weather, call("rain", '{"a', { id: "d" }), call("wind", "", { id: "e" })];
    assert.deepEqual(
      toAnthropic([
        system("Be brief."),
        developer([{ type: "text", text: "Be kind." }, { type: "data", json: '{"b": 1}' }]),
        user("Weather?", { name: "ada" }),
        assistant("", { toolCalls: calls }),
        tool("c", [{ type: "text", text: "12 C" }, { type: "media", mediaType: "image/png", data: BYTES }]),
        tool("d", "no such tool", { isError: true, name: "rain" }),
        tool("e", []),
        user([{ type: "text", text: "Go on." }, { type: "media", mediaType: "audio/wav", data: BYTES.slice(0, 4) }]),
        assistant([{ type: "reasoning", text: "not signed", signature: "" }, { type: "text", text: "Warm." }]),
        assistant(""),
        assistant(null),
        system("Be brief again."),
      ]),
      {
        system: [{ type: "text", text: "Be brief." }, { type: "text", text: "Be kind." }, { type: "text", text: '{"b": 1}' }],
        messages: [
          { role: "user", content: "Weather?" },
          { role: "assistant", content: [use("c", "weather", { city: "Oslo" }), use("d", "rain", { arguments: '{"a' }), use("e", "wind", {})] },
          {
            role: "user",
            content: [
              {
                type: "tool_result",
                tool_use_id: "c",
                content: [
                  { type: "text", text: "12 C" },
                  { type: "image", source: { type: "base64", media_type: "image/png", data: PNG } },
                ],
              },
              { type: "tool_result", tool_use_id: "d", content: "no such tool", is_error: true },
              { type: "tool_result", tool_use_id: "e" },
            ],
          },
          { role: "user", content: [{ type: "text", text: "Go on." }, { type: "text", text: "[audio/wav, 4 bytes]" }] },
          { role: "assistant", content: [{ type: "text", text: "Warm." }] },
          { role: "user", content: "Be brief again." },
        ],
      },
    );
  });

  test("integers that JavaScript cannot hold are never another number", () => {
    const input = (args: string): unknown => {
      const [source] = toAnthropic([assistant(undefined, { toolCalls: [call("f", args, { id: "a" })] })]).messages;
      return (source!["content"] as Json[])[0]!["input"];
    };
    for (const args of ['{"a":9007199254740993}', '{"a":[-12345678901234567890]}', '{"a":1152921504606846976}', `{"a":${"9".repeat(400)}}`]) {
      assert.deepEqual(input(args), { arguments: args });
    }
    assert.deepEqual(input('{"a":9007199254740992,"b":"9007199254740993"}'), { a: 2 ** 53, b: "9007199254740993" });
    assert.deepEqual(input("[".repeat(100_000)), { arguments: "[".repeat(100_000) });
  });
});

describe("OpenAI Responses", () => {
  const output = (text: string, more: Json = {}): Json => ({ type: "output_text", text, annotations: [], logprobs: [], ...more });
  const answer = (...content: Json[]): Json => ({ type: "message", id: "msg_1", role: "assistant", status: "completed", content });
  const reasoning = (more: Json = {}): Json => ({ type: "reasoning", id: "rs_1", summary: [], ...more });
  const called = (id: string, more: Json = {}): Json => ({ type: "function_call", id: `fc_${id}`, call_id: id, name: "f", arguments: "{}", ...more });
  const result = (id: string, itsOutput: unknown, more: Json = {}): Json => ({ type: "function_call_output", call_id: id, output: itsOutput, ...more });
  const ITEMS: Record<string, Json> = {
    "text of a user": { role: "user", content: "Hello!" },
    "text of a user, typed": { type: "message", role: "user", content: "Hello!" },
    "text of the assistant": { role: "assistant", content: "Hello!" },
    "a developer's blocks": { role: "developer", content: [{ type: "input_text", text: "Be brief." }] },
    "empty text": { role: "user", content: "" },
    "no blocks": { role: "user", content: [] },
    "no blocks of the assistant": { type: "message", role: "assistant", content: [] },
    "null content": { role: "user", content: null },
    "no content": { role: "assistant" },
    "half of a surrogate pair": { role: "user", content: "a \ud83d" },
    "U+0000, emoji, CJK": { role: "user", content: "a\0b 🙂 日本語" },
    "an image by URL": { role: "user", content: [{ type: "input_image", image_url: "https://e.com/a.png", detail: "auto" }] },
    "an image by URL, low": { role: "user", content: [{ type: "input_image", image_url: "https://e.com/a.png", detail: "low" }] },
    "an image without detail": { role: "user", content: [{ type: "input_image", image_url: "https://e.com/a.png" }] },
    "an image in place": { role: "user", content: [{ type: "input_image", image_url: `data:image/png;base64,${PNG}`, detail: "auto" }] },
    "an image by id": { role: "user", content: [{ type: "input_image", file_id: "file_1", detail: "high" }] },
    "a file by id": { role: "user", content: [{ type: "input_file", file_id: "file_1" }, { type: "input_text", text: "?" }] },
    "a file by URL": { role: "user", content: [{ type: "input_file", file_url: "https://e.com/a.pdf" }] },
    "a file in place": { role: "user", content: [{ type: "input_file", filename: "a.pdf", file_data: `data:application/pdf;base64,${PNG}` }] },
    "sound": { role: "user", content: [{ type: "input_audio", input_audio: { data: PNG, format: "wav" } }] },
    "an unknown block": { role: "user", content: [{ type: "hologram", n: [1, 1.5, null] }, 7, "a", null] },
    "an answer": answer(output("4")),
    "an answer of several parts": answer(output("4"), output("", { annotations: [{ type: "url_citation", url: "https://e.com" }] })),
    "a refusal": answer({ type: "refusal", refusal: "No." }),
    "text and a refusal": answer(output("Well."), { type: "refusal", refusal: "No." }),
    "an unknown block of the assistant": answer({ type: "hologram", x: 1 }),
    "an input block of the assistant": { role: "assistant", content: [{ type: "input_text", text: "a" }] },
    "reasoning": reasoning(),
    "reasoning, encrypted": reasoning({ encrypted_content: "gAAAA==" }),
    "reasoning, encrypted null": reasoning({ encrypted_content: null, status: null }),
    "reasoning with a summary": reasoning({ summary: [{ type: "summary_text", text: "A" }, { type: "summary_text", text: "B" }], encrypted_content: "x" }),
    "reasoning with an empty summary": reasoning({ summary: [{ type: "summary_text", text: "" }] }),
    "reasoning with its content": reasoning({ content: [{ type: "reasoning_text", text: "hm" }] }),
    "reasoning with both": reasoning({ summary: [{ type: "summary_text", text: "A" }], content: [{ type: "reasoning_text", text: "hm" }, { type: "reasoning_text", text: "so" }] }),
    "reasoning with unknown blocks": reasoning({ summary: [{ type: "x" }, { type: "summary_text", text: "A" }], content: [7] }),
    "reasoning without a summary": { type: "reasoning", id: "rs_1" },
    "a call": called("a"),
    "a call of the caller": { type: "function_call", call_id: "a", name: "f", arguments: '{"a": tru' },
    "a call with an empty id": called(""),
    "a call without an id": { type: "function_call", name: "f", arguments: "{}" },
    "a call whose arguments are an object": { type: "function_call", call_id: "a", name: "f", arguments: { a: 1 } },
    "a call without a name": { type: "function_call", call_id: "a", arguments: "{}" },
    "a custom call": { type: "custom_tool_call", id: "ctc_1", call_id: "a", name: "shell", input: "ls" },
    "a custom result": { type: "custom_tool_call_output", call_id: "a", output: "x" },
    "a result": result("a", "12 C"),
    "a result with more": result("a", "12 C", { id: "fco_1", status: "completed" }),
    "a result that is empty": result("a", ""),
    "a result that is null": result("a", null),
    "a result without output": { type: "function_call_output", call_id: "a" },
    "a result of blocks": result("a", [{ type: "input_text", text: "a" }, { type: "input_image", image_url: `data:image/png;base64,${PNG}`, detail: "auto" }]),
    "a result of one block": result("a", [{ type: "input_text", text: "a" }]),
    "a result of no blocks": result("a", []),
    "a result that is an object": result("a", { a: 1 }),
    "a computer's call": { type: "computer_call", id: "cu_1", call_id: "a", action: { type: "click", x: 1, y: 2 }, pending_safety_checks: [], status: "completed" },
    "a computer's result": { type: "computer_call_output", call_id: "a", output: { type: "computer_screenshot", image_url: "data:," } },
    "a local shell's call": { type: "local_shell_call", id: "lsh_1", call_id: "a", action: { type: "exec", command: ["ls"] }, status: "completed" },
    "a web search": { type: "web_search_call", id: "ws_1", status: "completed", action: { type: "search", query: "x" } },
    "a reference": { type: "item_reference", id: "msg_1" },
    "an approval": { type: "mcp_approval_response", approval_request_id: "x", approve: true },
    "an MCP call": { type: "mcp_call", id: "mcp_1", name: "f", arguments: "{}", server_label: "s", output: "x" },
    "an unknown item": { type: "hologram", n: 1e300, nested: { a: [null, true, -0] } },
    "unknown keys": { role: "user", content: "Hello!", metadata: { a: null }, __proto__: null } as Json,
  };
  for (const [name, item] of Object.entries(ITEMS)) {
    test(`${name} comes back equal`, () => {
      assert.deepEqual(toOpenaiResponses(fromOpenaiResponses([item])), [{ ...item }]);
      assert.deepEqual(toOpenaiResponses(stored(fromOpenaiResponses([item]))), [{ ...item }]);
    });
  }

  test("all items together come back in order", () => {
    const items = Object.values(ITEMS).map((item) => ({ ...item }));
    assert.deepEqual(toOpenaiResponses(stored(fromOpenaiResponses(items))), items);
    const turned = items.toReversed();
    assert.deepEqual(toOpenaiResponses(stored(fromOpenaiResponses(turned))), turned);
  });

  test("any items come back equal", () => {
    const words = [
      ...["type", "text", "input_text", "output_text", "input_image", "image_url", "file_id", "detail", "auto", "input_file", "file_url"],
      ...["message", "function_call", "custom_tool_call", "function_call_output", "custom_tool_call_output", "computer_call", "call_id"],
      ...["reasoning", "summary", "summary_text", "reasoning_text", "encrypted_content", "name", "arguments", "input", "output"],
    ];
    const byRole = anyMessage(words, ["user", "assistant", "system", "developer"]).map((item) => ({ ...item, type: "message" }));
    const types = ["reasoning", "function_call", "custom_tool_call", "function_call_output", "custom_tool_call_output", "computer_call", "x"];
    const byType = fc
      .tuple(anyMessage(words, ["user"]), fc.constantFrom(...types), fc.constantFrom("a", "b", undefined))
      .map(([item, type, callId]) => ({ ...item, type, ...(callId === undefined ? {} : { call_id: callId }) }));
    fc.assert(
      fc.property(fc.array(fc.oneof(byRole, byType), { maxLength: 5 }), (items) => {
        assert.deepEqual(toOpenaiResponses(stored(fromOpenaiResponses(items))), items);
      }),
      { numRuns: 500, seed: 1 },
    );
  });

  test("what the model says in a row is one message, and each output one of its own", () => {
    const items = [
      { role: "user", content: "Weather?" },
      reasoning({ encrypted_content: "x" }),
      answer(output("Let me see.")),
      called("a"),
      called("b"),
      result("a", "4 C"),
      result("b", "12 C"),
      answer(output("4 and 12.")),
    ];
    const messages = fromOpenaiResponses(items);
    assert.deepEqual(messages.map(({ role }) => role), ["user", "assistant", "tool", "tool", "assistant"]);
    assert.deepEqual(messages[1]!.content!.map(({ type }) => type), ["reasoning", "text", "tool_call", "tool_call"]);
    assert.deepEqual(messages[1]!.content![0], { type: "reasoning", text: "", signature: "x" });
    assert.deepEqual(messages.map(({ extra }) => extra !== ""), [false, true, false, false, true]);
    assert.deepEqual(toOpenaiResponses(windowOf(stored(messages))), items);
  });

  test("text alone is a user's message", () => {
    assert.deepEqual(toOpenaiResponses(fromOpenaiResponses("Hello!")), [{ role: "user", content: "Hello!" }]);
  });

  test("content is stored once, and shortened texts stay shortened", () => {
    const items = [answer(output(LONG)), called("a", { arguments: LONG }), result("a", LONG, { id: "x" })];
    for (const one of fromOpenaiResponses(items)) assert.ok(one.extra.length < 400, one.extra);
    const [first, , last] = toOpenaiResponses(fromOpenaiResponses(items).map(shortened));
    assert.deepEqual(first, answer(output("012[shortened]")));
    assert.deepEqual(last, result("a", "012[shortened]", { id: "x" }));
  });

  test("messages made by hand, and those of other providers", () => {
    const messages = [
      system("Be brief."),
      user([{ type: "text", text: "a" }, { type: "media", mediaType: "image/png", data: BYTES }, { type: "media", mediaType: "audio/wav", data: BYTES }], { name: "ada" }),
      assistant([{ type: "reasoning", text: "hm", signature: "of another" }, { type: "text", text: "Let me see." }], { toolCalls: [call("f", "{}", { id: "a" })] }),
      user([toolResult("a", "1", { isError: true }), { type: "text", text: "Go on." }]),
      assistant([{ type: "reasoning", text: "hm", signature: "" }]),
      assistant(""),
    ];
    assert.deepEqual(toOpenaiResponses(messages), [
      { role: "system", content: "Be brief." },
      {
        role: "user",
        content: [
          { type: "input_text", text: "a" },
          { type: "input_image", image_url: `data:image/png;base64,${PNG}`, detail: "auto" },
          { type: "input_text", text: "[audio/wav, 8 bytes]" },
        ],
      },
      { role: "assistant", content: "Let me see." },
      { type: "function_call", call_id: "a", name: "f", arguments: "{}" },
      { type: "function_call_output", call_id: "a", output: "1" },
      { role: "user", content: "Go on." },
    ]);
  });

  test("what is no item is named", () => {
    assert.throws(() => fromOpenaiResponses([{ role: "user", content: "a" }, 7 as unknown as object]), /items\[1\] is no object/);
    assert.throws(() => fromOpenaiResponses([{ a: 1 }]), /items\[0\] has neither a type nor a role/);
    assert.throws(() => fromOpenaiResponses([{ role: "tool", content: "a" }]), /items\[0\] has the role "tool"/);
    assert.throws(() => fromOpenaiResponses([{ type: "x", date: new Date() }]), /items\[0\] holds what JSON cannot/);
    assert.throws(() => fromOpenaiResponses([{ role: "user", content: "a", date: new Date() }]), /items\[0\] holds what JSON cannot/);
    assert.throws(() => fromOpenaiResponses([{ role: "user", content: "a", x: [Number.NaN] }]), /items\[0\] holds what JSON cannot/);
  });

  test("a conversation goes over to the other formats and back", () => {
    const items = [
      { role: "developer", content: "You are a travel agent." },
      { role: "user", content: "Weather in Oslo?" },
      reasoning({ encrypted_content: "x", summary: [{ type: "summary_text", text: "hm" }] }),
      called("a"),
      result("a", "4 C"),
      answer(output("4 degrees.")),
    ];
    const messages = stored(fromOpenaiResponses(items));
    const chat = toOpenai(messages);
    assert.deepEqual(chat, [
      { role: "developer", content: "You are a travel agent." },
      { role: "user", content: "Weather in Oslo?" },
      { role: "assistant", content: null, tool_calls: [{ id: "a", type: "function", function: { name: "f", arguments: "{}" } }] },
      { role: "tool", tool_call_id: "a", content: "4 C" },
      { role: "assistant", content: "4 degrees." },
    ]);
    assert.deepEqual(toAnthropic(messages), {
      system: "You are a travel agent.",
      messages: [
        { role: "user", content: "Weather in Oslo?" },
        { role: "assistant", content: [{ type: "tool_use", id: "a", name: "f", input: {} }] },
        { role: "user", content: [{ type: "tool_result", tool_use_id: "a", content: "4 C" }] },
        { role: "assistant", content: "4 degrees." },
      ],
    });
    assert.deepEqual(toOpenai(stored(fromOpenaiResponses(toOpenaiResponses(stored(fromOpenai(chat)))))), chat);
  });
});

test("each format reads only its own notes", () => {
  const sources = [
    ...fromOpenai(Object.values(shapes("openai").shapes)),
    ...fromAnthropic(Object.values(shapes("anthropic").shapes)),
  ];
  for (const one of sources) {
    const bare = { ...one, extra: "" };
    if (!one.extra.includes('"openai"')) assert.deepEqual(toOpenai([one]), toOpenai([bare]));
    if (!one.extra.includes('"anthropic"')) assert.deepEqual(toAnthropic([one]), toAnthropic([bare]));
    assert.deepEqual(toOpenaiResponses([one]), toOpenaiResponses([bare]));
  }
});
