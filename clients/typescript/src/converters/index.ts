// Converters between memoryd's messages and those of model providers.
//
// The way there and back loses nothing: what a message has no field for is noted in its `extra`. A message is only read
// together with the notes of the format that is written, so a conversation may come from one provider and go on with another.

import { user, type Message } from "../messages.js";
import { Window } from "../windows.js";
import { readMessages as readAnthropic, readSystem } from "./anthropic-reading.js";
import { writeMessages as writeAnthropic } from "./anthropic-writing.js";
import { readMessage as readOpenai } from "./openai-reading.js";
import { writeMessages as writeOpenai } from "./openai-writing.js";
import { readItems } from "./responses-reading.js";
import { writeMessages as writeResponses } from "./responses-writing.js";
import { listOf } from "./source-form.js";

/** A JSON object of a provider, whose exact type its own SDK knows. */
export type ProviderMessage = Record<string, unknown>;

/**
 * Makes one message of each chat-completions message.
 *
 * Each gets a new id; `{ ...message, id }` gives it another. TypeError, naming the message, for what is not a chat-completions
 * message.
 */
export function fromOpenai(messages: Iterable<object>): Message[] {
  return listOf(messages, "messages").map((source, index) => readOpenai(source, `messages[${index}]`));
}

/**
 * Makes chat-completions messages, ready for `client.chat.completions.create({ messages })`. Takes a Window too.
 *
 * `toOpenai(fromOpenai(x))` equals x for every chat-completions message, also after it was stored. What comes from elsewhere is
 * said as well as chat completions can:
 *
 * - A message that answers several calls becomes several tool messages. What else it says becomes a user message behind them and
 *   behind the results that follow, since nothing may stand between a call and its results.
 * - Reasoning is left out (with the message, when that is all of it), and so is whether a result is an error.
 * - Data becomes text; media become text such as `[image/png, 2048 bytes]` outside of user messages.
 *
 * ```ts
 * const messages = toOpenai<ChatCompletionMessageParam>(await session.window({ tokens: 4_000 }));
 * ```
 *
 * @typeParam Target The type that the provider's SDK has for a message.
 */
export function toOpenai<Target = ProviderMessage>(messages: Iterable<Message>): Target[] {
  return writeOpenai(messages) as Target[];
}

/** A conversation as Anthropic's `messages.create` takes it: its arguments `system` and `messages`. */
export interface AnthropicPrompt<Target = ProviderMessage, Block = ProviderMessage> {
  messages: Target[];
  /** Absent when there is no system prompt. */
  system?: string | Block[];
}

/**
 * Makes one message of each Anthropic message, and one of role `system` of `system`.
 *
 * Each gets a new id; `{ ...message, id }` gives it another. TypeError, naming the message, for what is not a message of
 * Anthropic's.
 */
export function fromAnthropic(messages: Iterable<object>, system?: string | readonly object[]): Message[] {
  const opening = system === undefined ? [] : [readSystem(system)];
  return [...opening, ...readAnthropic(listOf(messages, "messages"))];
}

/**
 * Makes the arguments for `client.messages.create({ model, max_tokens, ...toAnthropic(window) })`.
 *
 * Give a model the Window itself, not a list of its messages: only a Window is always made what Anthropic accepts.
 * `toAnthropic(fromAnthropic(x.messages, x.system))` equals x for every Anthropic conversation, also after it was stored. What
 * comes from elsewhere is said as well as Anthropic can:
 *
 * - `system` and `developer` messages that open the conversation are the system prompt; later ones speak as the user.
 * - The results of the calls of one turn are joined in one user message, results first, then what else was said beside them. In a
 *   list, what `fromAnthropic` read otherwise stays as it was; in a Window it does not, since Anthropic refuses it.
 * - Arguments that are not a JSON object become `{ arguments: "…" }`, and so do those with an integer that a number of JavaScript
 *   cannot hold.
 * - Names, thinking without a signature of Anthropic's and empty texts are left out, and so is a message that says nothing else.
 * - Data becomes text, and so do media that Anthropic has no block for, as `[audio/wav, 2048 bytes]`.
 *
 * @typeParam Target The type that the provider's SDK has for a message.
 * @typeParam Block The type that it has for a block of the system prompt.
 */
export function toAnthropic<Target = ProviderMessage, Block = ProviderMessage>(
  messages: Iterable<Message>,
): AnthropicPrompt<Target, Block> {
  const { system, turns } = writeAnthropic(messages, !(messages instanceof Window));
  const prompt: AnthropicPrompt<Target, Block> = { messages: turns as Target[] };
  if (system !== undefined) prompt.system = system as string | Block[];
  return prompt;
}

/**
 * Makes messages of items of OpenAI's Responses: of `response.output`, or of what you gave as `input`.
 *
 * What the model says in a row (reasoning, text, calls) becomes one message, so that no window parts reasoning from what follows
 * from it. The output of a tool is a message of its own. Each gets a new id. TypeError, naming the item, for what is none.
 *
 * ```ts
 * const response = await client.responses.create({ model, input: toOpenaiResponses(window), store: false,
 *   include: ["reasoning.encrypted_content"] });
 * await session.append(fromOpenaiResponses(response.output));
 * ```
 */
export function fromOpenaiResponses(items: string | Iterable<object>): Message[] {
  return typeof items === "string" ? [user(items)] : readItems(listOf(items, "items"));
}

/**
 * Makes items for `client.responses.create({ input })`. Takes a Window too.
 *
 * Give a model the Window itself, not a list of its messages: only a Window is always made what the API accepts.
 * `toOpenaiResponses(fromOpenaiResponses(x))` equals x for every list of items, also after it was stored: ids, status,
 * annotations, encrypted reasoning, and items of tools that nobody knew. What comes from elsewhere is said as well as the
 * Responses can:
 *
 * - A message that answers several calls becomes several outputs; what else it says becomes a user message behind them.
 * - Reasoning of other providers, names, empty texts and whether a result is an error are left out, and so is a message that says
 *   nothing else.
 * - Data becomes text; sound, and all media of the assistant, become text such as `[audio/wav, 2048 bytes]`.
 * - In a Window, an output is of the type that its call asks for, also where `tool(call.id, "…")` made it. Where that needs more
 *   than text (a computer's call), the two are said as a function's. Reasoning that nothing follows, and outputs and approvals of
 *   what the window does not show, are left out.
 *
 * @typeParam Target The type that the provider's SDK has for an item.
 */
export function toOpenaiResponses<Target = ProviderMessage>(messages: Iterable<Message>): Target[] {
  return writeResponses(messages, !(messages instanceof Window)) as Target[];
}
