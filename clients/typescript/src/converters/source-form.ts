// What a provider's message holds beyond the fields of ours: kept in `Message.extra`, so that the way back loses nothing.
//
// `extra` is a JSON object with one key a format. Its value, the source form, says only where the provider's message differs
// from what the converter would write by itself, so a plain message has none. It never holds a second copy of what the parts
// hold: texts that a window shortened stay shortened on the way back.

import { encodable, isObject, jsonText, jsonValue } from "../json-text.js";
import type { Part } from "../messages.js";

/** A JSON object. */
export type Json = Record<string, unknown>;

/** Marks a part that the format says itself, where the converter would otherwise make text of it or leave it out. */
export const NATIVE = "native";

/** The source form of a format; empty where there is none. */
export function readForm(extra: string, format: string): Json {
  const forms = extra === "" ? undefined : jsonValue(extra);
  return isObject(forms) ? noted(forms, format) : {};
}

/** The `extra` that holds a source form. */
export function writeForm(form: Json, format: string): string {
  return Object.keys(form).length > 0 ? jsonText({ [format]: form }) : "";
}

/** What an object holds under a key of its own. */
export function own(of: Json, key: string): unknown {
  return Object.hasOwn(of, key) ? of[key] : undefined;
}

/** What a form notes under a key, about parts or calls by their index; empty where it notes nothing. */
export function noted(form: Json, key: string): Json {
  const value = own(form, key);
  return isObject(value) ? value : {};
}

/**
 * The form for parts of which a window may have left out results: those whose calls are gone (invariant 6 of the design).
 *
 * What is noted about the other parts moves with them. Which results are left is not known, so what is noted about results is
 * passed over.
 */
export function aligned(form: Json, parts: readonly Part[]): Json {
  const places = own(form, "results");
  const isResult = (part: Part): boolean => part.type === "tool_result";
  if (!Array.isArray(places) || parts.filter(isResult).length === places.length) return form;
  const others = [...parts.keys()].filter((index) => !isResult(parts[index]!));
  const before = [...Array(others.length + places.length).keys()].filter((index) => !places.includes(index));
  const moved = new Map(others.map((index, order) => [String(before[order]), String(index)]));
  const patch = noted(form, "patch");
  const content = noted(noted(patch, "in"), "content");
  const inner = Object.hasOwn(content, "in") ? { content: { ...content, in: movedNotes(noted(content, "in"), moved) } } : {};
  return {
    ...form,
    content: "list",
    parts: movedNotes(noted(form, "parts"), moved),
    patch: { ...patch, in: { ...noted(patch, "in"), ...inner } },
  };
}

function movedNotes(notes: Json, moved: ReadonlyMap<string, string>): Json {
  const entries = Object.entries(notes).filter(([index]) => moved.has(index));
  return Object.fromEntries(entries.map(([index, note]) => [moved.get(index) as string, note]));
}

/** What a field of ours keeps of a value: text that UTF-8 can encode. What it does not comes back by the patch. */
export function kept(value: unknown): string {
  return typeof value === "string" && encodable(value) ? value : "";
}

/** The value without the keys whose value is undefined: what JSON would hold of it. */
export function plain<Value>(value: Value): Value {
  if (Array.isArray(value)) return value.map((item: unknown) => plain(item)) as Value;
  if (!isObject(value)) return value;
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  return Object.fromEntries(entries.map(([key, item]) => [key, plain(item)])) as Value;
}

/**
 * The patch that makes the wanted JSON value of the given one; undefined when they are the same.
 *
 * A patch is an object: `is` replaces the value; `set` gives an object's keys new values; `del` removes keys; `in` holds the
 * patches of an object's values or of an array's items (by index, where both arrays have one length).
 */
export function difference(wanted: unknown, given: unknown): Json | undefined {
  if (isObject(wanted) && isObject(given)) {
    const set: [string, unknown][] = [];
    const inner: [string, unknown][] = [];
    for (const [key, value] of Object.entries(wanted)) {
      if (!Object.hasOwn(given, key)) {
        set.push([key, value]);
        continue;
      }
      const patch = difference(value, given[key]);
      if (patch !== undefined && Object.hasOwn(patch, "is")) set.push([key, patch["is"]]);
      else if (patch !== undefined) inner.push([key, patch]);
    }
    const removed = Object.keys(given).filter((key) => !Object.hasOwn(wanted, key));
    const patch: Json = {};
    if (set.length > 0) patch["set"] = Object.fromEntries(set);
    if (removed.length > 0) patch["del"] = removed;
    if (inner.length > 0) patch["in"] = Object.fromEntries(inner);
    return Object.keys(patch).length > 0 ? patch : undefined;
  }
  if (Array.isArray(wanted) && Array.isArray(given) && wanted.length === given.length) {
    const patches = wanted.map((value: unknown, index) => [String(index), difference(value, given[index])] as const);
    const inner = patches.filter(([, patch]) => patch !== undefined);
    return inner.length > 0 ? { in: Object.fromEntries(inner) } : undefined;
  }
  return Object.is(wanted, given) ? undefined : { is: wanted };
}

/** The value that a patch makes of the given one. What is no patch, or names what the value lacks, has no effect. */
export function patched(given: unknown, patch: unknown): unknown {
  if (!isObject(patch)) return given;
  if (Object.hasOwn(patch, "is")) return patch["is"];
  const inner = noted(patch, "in");
  if (Array.isArray(given)) {
    return given.map((item: unknown, index) => {
      const key = String(index);
      return Object.hasOwn(inner, key) ? patched(item, inner[key]) : item;
    });
  }
  if (!isObject(given)) return given;
  const removed = own(patch, "del");
  const isRemoved = (key: string): boolean => Array.isArray(removed) && removed.includes(key);
  const remaining = Object.entries(given)
    .filter(([key]) => !isRemoved(key))
    .map(([key, item]) => [key, Object.hasOwn(inner, key) ? patched(item, inner[key]) : item] as const);
  return Object.fromEntries([...remaining, ...Object.entries(noted(patch, "set"))]);
}

/** What a caller gave as a list of a provider's messages. */
export function listOf(values: Iterable<unknown>, argument: string): unknown[] {
  if (typeof values !== "object" || values === null || !(Symbol.iterator in values)) {
    throw new TypeError(`${argument} is no list; give an array`);
  }
  return [...values];
}
