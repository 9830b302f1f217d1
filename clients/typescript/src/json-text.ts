// JSON as text: how the SDK writes it, and how it reads what others wrote.

/** What {@link jsonValue} answers for text that is not JSON, or that JavaScript cannot hold. */
export const UNREADABLE: unique symbol = Symbol("unreadable");

const LONE_SURROGATE = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
const INTEGER = /^-?\d+$/;
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/gs;

/** Whether UTF-8 can encode the text: whether it holds no half of a surrogate pair. */
export function encodable(text: string): boolean {
  return text.isWellFormed();
}

/** Whether a value is an object of plain data: no array, and nothing that has a class. */
export function isObject(value: unknown): value is Record<string, unknown> {
  if (typeof value !== "object" || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || prototype === Object.prototype || Object.getPrototypeOf(prototype) === null;
}

/**
 * Compact JSON of a value, which UTF-8 can encode: halves of surrogate pairs are escaped, other characters are not. A
 * bigint is written as its digits, and keys whose value is undefined are left out.
 *
 * @throws TypeError for what JSON cannot hold.
 */
export function jsonText(value: unknown): string {
  switch (typeof value) {
    case "string":
      // JSON.stringify escapes halves of surrogate pairs by itself.
      return JSON.stringify(value);
    case "number":
      if (!Number.isFinite(value)) throw new TypeError(`the number ${value}`);
      return Object.is(value, -0) ? "-0" : JSON.stringify(value);
    case "bigint":
      return value.toString();
    case "boolean":
      return value ? "true" : "false";
    case "object":
      if (value === null) return "null";
      if (Array.isArray(value)) return `[${Array.from(value, jsonText).join(",")}]`;
      if (isObject(value)) {
        const entries = Object.entries(value).filter(([, item]) => item !== undefined);
        return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${jsonText(item)}`).join(",")}}`;
      }
      throw new TypeError(`an object of type ${value.constructor.name}`);
    default:
      throw new TypeError(`a value of type ${typeof value}`);
  }
}

/** The value of JSON text; UNREADABLE for what is not JSON, or nests beyond JavaScript's limits. */
export function jsonValue(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return UNREADABLE;
  }
}

/**
 * As {@link jsonValue}; UNREADABLE too for text with an integer that a number of JavaScript does not give back in the same
 * digits: better the text as it is than a wrong number.
 */
export function exactJsonValue(text: string): unknown {
  const value = jsonValue(text);
  return value !== UNREADABLE && /\d{16}/.test(text) && !holdsExactly(text) ? UNREADABLE : value;
}

function holdsExactly(text: string): boolean {
  for (const [token] of text.matchAll(TOKENS)) {
    if (INTEGER.test(token) && token.length > 15 && digitsOf(Number(token)) !== BigInt(token)) return false;
  }
  return true;
}

/** The integer that JSON.stringify writes of a number. */
function digitsOf(number: number): bigint | undefined {
  const [, sign = "", whole = "", fraction = "", exponent = "0"] =
    /^(-?)(\d+)(?:\.(\d+))?(?:e\+(\d+))?$/.exec(String(number)) ?? [];
  const zeros = Number(exponent) - fraction.length;
  return whole === "" || zeros < 0 ? undefined : BigInt(`${sign}${whole}${fraction}${"0".repeat(zeros)}`);
}

/** Whether a text holds a half of a surrogate pair, and which, as `U+D83D`. */
export function loneSurrogate(text: string): string | undefined {
  const found = text.match(LONE_SURROGATE)?.[0];
  return found === undefined ? undefined : `U+${found.charCodeAt(0).toString(16).toUpperCase()}`;
}
