// Checks of what callers give, so that a mistake is named by its argument, before any call. Only what no request could
// carry is refused here; which values make sense is the server's to say.

import { encodable, isObject } from "./json-text.js";

export const PAGE_SIZES = "1 to 1,000, or 0 for the server's default";
export const SEQS = "0 to 9,223,372,036,854,775,807";

/** An integer: a number, or a bigint for one beyond 2^53. */
export type Integer = number | bigint;

/** What a value is, in words. */
export function kindOf(value: unknown): string {
  if (value === undefined || value === null) return String(value);
  if (typeof value !== "object") return `of type ${typeof value}`;
  return Array.isArray(value) ? "an array" : `of type ${(value as object).constructor?.name ?? "object"}`;
}

/** A 64-bit integer that a request can carry. TypeError for what is none, RangeError beyond; both say `allowed`. */
export function int64(value: Integer, argument: string, allowed: string): bigint {
  const number = integer(value, argument, allowed);
  if (BigInt.asIntN(64, number) !== number) throw new RangeError(`${argument} is beyond 64 bits; it can be ${allowed}`);
  return number;
}

/** A 32-bit integer that a request can carry. Errors as {@link int64}. */
export function int32(value: Integer, argument: string, allowed: string): number {
  const number = integer(value, argument, allowed);
  if (BigInt.asIntN(32, number) !== number) throw new RangeError(`${argument} is beyond 32 bits; it can be ${allowed}`);
  return Number(number);
}

function integer(value: Integer, argument: string, allowed: string): bigint {
  if (typeof value === "bigint") return value;
  if (typeof value !== "number") throw new TypeError(`${argument} is ${kindOf(value)}; give an integer: ${allowed}`);
  if (!Number.isInteger(value)) throw new TypeError(`${argument} is ${value}; give an integer: ${allowed}`);
  if (!Number.isSafeInteger(value)) {
    throw new RangeError(`${argument} is beyond what a number can hold exactly; give a bigint: ${allowed}`);
  }
  return BigInt(value);
}

/** Text that a request can carry. TypeError for what is none, RangeError for what UTF-8 cannot encode. */
export function string(value: string, argument: string, example: string): string {
  if (typeof value !== "string") {
    throw new TypeError(`${argument} is ${kindOf(value)}; give text, for example ${JSON.stringify(example)}`);
  }
  if (!encodable(value)) {
    throw new RangeError(`${argument} holds half of a surrogate pair, which UTF-8 cannot encode; replace it`);
  }
  return value;
}

/** A boolean. TypeError for what is none. */
export function boolean(value: boolean, argument: string): boolean {
  if (typeof value !== "boolean") throw new TypeError(`${argument} is ${kindOf(value)}; give true or false`);
  return value;
}

/** A number of milliseconds. TypeError for what is no number, RangeError for one without end. */
export function milliseconds(value: number, argument: string): number {
  if (typeof value !== "number") {
    throw new TypeError(`${argument} is ${kindOf(value)}; give milliseconds, for example 30_000`);
  }
  if (!Number.isFinite(value)) throw new RangeError(`${argument} is ${value}; give milliseconds, for example 30_000`);
  return value;
}

/** A moment. TypeError for what is no Date, RangeError for an invalid one. */
export function date(value: Date, argument: string): Date {
  if (!(value instanceof Date)) throw new TypeError(`${argument} is ${kindOf(value)}; give a Date`);
  if (Number.isNaN(value.getTime())) throw new RangeError(`${argument} is an invalid Date`);
  return value;
}

/** An object of options. TypeError for what is none, so that a positional mistake is not taken for no options. */
export function options<Options extends object>(value: Options | undefined, argument = "options"): Partial<Options> {
  if (value === undefined) return {};
  if (!isObject(value)) throw new TypeError(`${argument} is ${kindOf(value)}; give an object`);
  return value;
}

/** One of some texts. RangeError says which there are. */
export function oneOf<Value extends string>(value: Value, argument: string, allowed: readonly Value[]): Value {
  if (!allowed.includes(value)) {
    const names = allowed.map((name) => JSON.stringify(name)).join(", ");
    throw new RangeError(`${argument} is ${JSON.stringify(value)}; it can be one of ${names}`);
  }
  return value;
}
