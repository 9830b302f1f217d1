// What makes a window's items valid input of OpenAI's Responses, which refuses what lacks its counterpart.

import { jsonText } from "../json-text.js";
import { type Json, own } from "./source-form.js";

/** The types of outputs that are not the type of their call with `_output`. */
const OUTPUTS: ReadonlyMap<string, string> = new Map([
  ["tool_search_call", "tool_search_output"],
  ["program", "program_output"],
]);
/** The calls whose outputs have one form, but for the type. */
const TEXT_CALLS: ReadonlySet<string> = new Set(["function_call", "custom_tool_call"]);
/** The outputs of these. */
const TEXT_OUTPUTS: ReadonlySet<string> = new Set(["function_call_output", "custom_tool_call_output"]);

/**
 * The items, each with what the API wants it to stand with.
 *
 * An output is of the type that its call asks for: what was answered by hand, or for want of an answer, does not know it. A call
 * that such an answer cannot be given to (a computer's, which wants a screenshot) becomes a function's. What has no counterpart
 * is left out: outputs and approvals of what is not here, and reasoning that nothing follows.
 */
export function paired(items: readonly Json[]): Json[] {
  const shown: (Json | undefined)[] = [];
  const calls = new Map<string, number>();
  const approvals = new Set<unknown>();
  for (const item of items) {
    const [kind, callId, place] = [kindOf(item), callIdOf(item), shown.length];
    shown.push(item);
    if (kind === "mcp_approval_request") {
      approvals.add(own(item, "id"));
    } else if (kind === "mcp_approval_response") {
      if (!approvals.has(own(item, "approval_request_id"))) shown[place] = undefined;
    } else if (typeof callId === "string") {
      if (!kind.endsWith("_output")) {
        calls.set(callId, place);
        continue;
      }
      const at = calls.get(callId);
      const call = at === undefined ? undefined : shown[at];
      calls.delete(callId);
      if (at === undefined || call === undefined) shown[place] = undefined;
      else [shown[at], shown[place]] = answered(call, item);
    }
  }
  return withoutLooseReasoning(shown.filter((item) => item !== undefined));
}

/** The id that an item shares with its call. The API has another key for that of a local shell's output. */
export function callIdOf(item: Json): unknown {
  const isOther = own(item, "type") === "local_shell_call_output" && !Object.hasOwn(item, "call_id");
  return own(item, isOther ? "id" : "call_id");
}

function kindOf(item: Json): string {
  const kind = Object.hasOwn(item, "type") ? item["type"] : "message";
  return typeof kind === "string" ? kind : "";
}

/** A call and its output, in types that go together. */
function answered(call: Json, output: Json): [Json, Json] {
  const [kind, given] = [kindOf(call), kindOf(output)];
  const wanted = OUTPUTS.get(kind) ?? `${kind}_output`;
  if (given === wanted) return [call, output];
  const isText = TEXT_CALLS.has(kind);
  const type = isText ? wanted : "function_call_output";
  const callId = callIdOf(output);
  return [
    isText ? call : { type: "function_call", call_id: callId, name: kind, arguments: jsonText(call) },
    TEXT_OUTPUTS.has(given) ? { ...output, type } : { type, call_id: callId, output: jsonText(output) },
  ];
}

/** The items without reasoning that no item of the model follows. */
function withoutLooseReasoning(items: readonly Json[]): Json[] {
  const left: Json[] = [];
  let follows = false;
  for (const item of items.toReversed()) {
    const kind = kindOf(item);
    if (kind === "reasoning") {
      if (follows) left.push(item);
      continue;
    }
    const byOther = kind === "mcp_approval_response" || kind.endsWith("_output");
    follows = kind === "message" ? own(item, "role") === "assistant" : !byOther;
    left.push(item);
  }
  return left.toReversed();
}
