// JSON text of commands as a value of the language. What a number cannot hold exactly is a bigint, which the SDK takes too.

import { newId } from "../src/index.js";

const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/gs;
const INTEGER = /^-?\d+$/;

export function jsonValue(text: string): unknown {
  const mark = newId(); // No text of the command begins with it.
  const marked = text.replace(TOKENS, (token) =>
    INTEGER.test(token) && !Number.isSafeInteger(Number(token)) ? JSON.stringify(mark + token) : token,
  );
  return JSON.parse(marked, (_key, value: unknown) =>
    typeof value === "string" && value.startsWith(mark) ? BigInt(value.slice(mark.length)) : value,
  );
}
