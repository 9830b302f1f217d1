// Commands on messages that call no server: converters, and the functions that make them.

import { ROLE } from "../src/enums.js";
import { jsonText } from "../src/json-text.js";
import {
  assistant,
  call,
  developer,
  fromAnthropic,
  fromOpenai,
  fromOpenaiResponses,
  type Message,
  system,
  toAnthropic,
  tool,
  toOpenai,
  toOpenaiResponses,
  user,
} from "../src/index.js";
import * as answers from "./answers.js";
import { Format, type MakeMessage } from "./gen/tests/conformance/conformance_pb.js";
import { messages } from "./givens.js";
import { jsonValue } from "./json.js";
import { Fault, type Operations } from "./operations.js";

export const MESSAGES: Operations<"toMessages" | "fromMessages" | "makeMessage"> = {
  async toMessages(_client, { format, json }) {
    return { messages: answers.messages(read(format, jsonValue(json))) };
  },

  async fromMessages(_client, { format, messages: given }) {
    return { json: jsonText(written(format, messages(given))) };
  },

  async makeMessage(_client, given) {
    return { messages: answers.messages([made(given)]) };
  },
};

function read(format: Format, source: unknown): Message[] {
  switch (format) {
    case Format.OPENAI_CHAT:
      return fromOpenai(source as object[]);
    case Format.OPENAI_RESPONSES:
      return fromOpenaiResponses(source as object[]);
    case Format.ANTHROPIC: {
      const prompt = source as { messages: object[]; system?: string | object[] };
      return fromAnthropic(prompt.messages, prompt.system);
    }
    default:
      throw new Fault(`there is no format ${format}`);
  }
}

function written(format: Format, given: readonly Message[]): unknown {
  switch (format) {
    case Format.OPENAI_CHAT:
      return toOpenai(given);
    case Format.OPENAI_RESPONSES:
      return toOpenaiResponses(given);
    case Format.ANTHROPIC:
      return toAnthropic(given);
    default:
      throw new Fault(`there is no format ${format}`);
  }
}

function made({ role, text, calls, callId, isError }: MakeMessage): Message {
  switch (ROLE.known(role)) {
    case "system":
      return system(text);
    case "developer":
      return developer(text);
    case "user":
      return user(text);
    case "assistant":
      return assistant(text, {
        toolCalls: calls.map(({ id, name, arguments: args }) => call(name, args, { id: id || undefined })),
      });
    case "tool":
      return tool(callId, text ?? [], { isError });
    default:
      throw new Fault(`there is no role ${role}`);
  }
}
