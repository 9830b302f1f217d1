// How windows are cut, histories folded and tokens counted: the options of a request, and what is stored for sessions and
// agents. In an answer, `unspecified` stands for what this SDK does not know.

import type { Integer } from "./arguments.js";

/**
 * The vocabulary that a session's tokens are counted in. Fixed when the session begins.
 *
 * - `o200k_base`: that of GPT-4o and later OpenAI models, counted exactly.
 * - `cl100k_base`: that of GPT-3.5 and GPT-4, counted exactly.
 * - `estimate`: none: one token for every four ASCII characters (rounded up) and one for every other character.
 */
export type Tokenizer = "unspecified" | "o200k_base" | "cl100k_base" | "estimate";

/** The unit of a window's limit. */
export type WindowMode = "unspecified" | "messages" | "tokens";

/**
 * What a window does with a group that has an unanswered call.
 *
 * - `omit` (the default): the group is left out, and the window goes on past it.
 * - `synthesize`: each unanswered call gets a marked result that says it was interrupted. Such a result has no seq.
 * - `keep`: the group is shown as it is stored. For agents that are about to answer the calls themselves.
 */
export type OpenCalls = "unspecified" | "omit" | "synthesize" | "keep";

/**
 * What a window does when its newest group alone exceeds what is left of a token limit.
 *
 * - `shorten` (the default): the group's longest texts are shortened in the middle until it fits.
 * - `return`: the group is returned whole, and the stats say `overLimit`.
 * - `fail`: the call fails with WindowTooSmallError.
 */
export type Oversize = "unspecified" | "shorten" | "return" | "fail";

/**
 * What becomes of the messages that a summary covers.
 *
 * - `keep` (the default): they stay: the view `all` lists them, and the summary can be taken back.
 * - `delete`: they are removed in the commit of the summary. Pinned messages stay.
 */
export type Retention = "unspecified" | "keep" | "delete";

/** How a window is cut. What is left out comes from the session's stored policy, then the agent's, then the server's. */
export interface WindowOptions {
  /** The unit of `limit`. Server's default: `messages`. */
  readonly mode?: WindowMode | undefined;
  /** The most that a window may hold: 1 to 100,000 messages or 1 to 100,000,000 tokens. Server's default: 10,000. */
  readonly limit?: Integer | undefined;
  /** Whether the system and developer messages that open the history stay in every window. Server's default: true. */
  readonly pinSystem?: boolean | undefined;
  /**
   * Whether a window that would begin with another role gets the newest user message before it in front. Server's default:
   * false.
   */
  readonly startWithUser?: boolean | undefined;
  /** What to do with groups that have an unanswered call. Server's default: `omit`. */
  readonly openCalls?: OpenCalls | undefined;
  /** What to do when the newest group alone exceeds a token limit. Server's default: `shorten`. */
  readonly oversize?: Oversize | undefined;
}

/**
 * How a history is folded: when all that a window of the stored policy would show exceeds its limit, the oldest groups are
 * summarized, so that the newest `keep` messages or tokens stay as they are.
 *
 * It replaces a more general policy's as a whole; what is left out takes its default. The limit of the stored policies must
 * then be at least 2 messages or 256 tokens.
 */
export interface SummaryPolicy {
  /** Whether there are summaries. Default: true; false lets a session do without although its agent has them. */
  readonly enabled?: boolean | undefined;
  /**
   * Who makes them: `extractive` (the server itself, without a network), `openai` (the endpoint in the server's settings)
   * or `client` (whoever leases summary tasks). Empty for the server's default.
   */
  readonly summarizer?: string | undefined;
  /**
   * The most tokens of a summary, 64 to 8,000. Default: 1,000 when the limit counts messages, 20 % of a limit in tokens.
   */
  readonly maxTokens?: Integer | undefined;
  /**
   * How many of the newest messages or tokens stay as they are when older ones are folded, in the unit of the window's
   * mode. Default: all that the limit leaves beside summary and pins. Half the limit folds less often, and keeps the
   * beginning of the prompt the same for longer.
   */
  readonly keep?: Integer | undefined;
  /** What becomes of the messages that a summary covers. Default: `keep`. */
  readonly retention?: Retention | undefined;
  /**
   * Whether a load that finds that it must fold waits for the summary, at most 10 seconds. Default: true. Nothing waits for
   * the summarizer `client`.
   */
  readonly wait?: boolean | undefined;
}

/** The stored policy of a session or an agent. */
export interface Policy {
  /** How windows are cut when a request leaves options out. */
  readonly window?: WindowOptions | undefined;
  /** How histories are folded. Without it: as the more general policy says; the server's own folds nothing. */
  readonly summary?: SummaryPolicy | undefined;
}
