// Windows: the part of a history that one run is given, and what the server tells about it.

import type { Message } from "./messages.js";
import type { WindowMode } from "./policies.js";

/**
 * Whether a summary stands for older messages.
 *
 * - `none`: the stored policies ask for no summary, or nothing had to be folded yet.
 * - `current`: the summary covers all that the policy wants folded.
 * - `pending`: a summary is being made, or is left to a client. Until then, the window holds the earlier one, if any.
 * - `failed`: the last attempt failed and will be repeated; `summaryFailure` says why.
 */
export type SummaryState = "unspecified" | "none" | "current" | "pending" | "failed";

/** Why messages are not in a window: they did not fit, are results without their calls, or belong to an open group. */
export type LeftOutReason = "unspecified" | "limit" | "orphan_result" | "open_tool_call";

/** A message that is not in the window. */
export interface LeftOutMessage {
  readonly seq: number;
  readonly reason: LeftOutReason;
}

/** What is not in a window, and why. With the window's stored messages, the counts add up to the history's. */
export interface LeftOut {
  /** The number of messages that did not fit. */
  readonly limitCount: number;
  /** The lowest seq of what did not fit, by the heads of groups; 0 when all fit. */
  readonly limitFromSeq: number;
  /** The highest seq of what did not fit, by the heads of groups; 0 when all fit. */
  readonly limitToSeq: number;
  /** The number of messages in the whole history that are results without their calls. */
  readonly orphanResultCount: number;
  /** The number of messages in the whole history that are left out for an unanswered call. */
  readonly openToolCallCount: number;
  /** With `explain`: up to 100 of those left out as orphan results or for an open call, newest first. */
  readonly messages: readonly LeftOutMessage[];
}

/** What a window holds and what it does not. */
export interface WindowStats {
  readonly historyMessageCount: number;
  readonly historyTokenCount: number;
  /** Messages in the window, pins, summary and synthesized results included. */
  readonly windowMessageCount: number;
  /** Tokens in the window, likewise. */
  readonly windowTokenCount: number;
  /** The mode in force. */
  readonly mode: WindowMode;
  /** The limit in force, in the unit of the mode. */
  readonly limit: number;
  /** How much of the limit is used; over 100 with `overLimit`. */
  readonly limitUsedPercent: number;
  /** What is not in the window. */
  readonly leftOut: LeftOut;
  /** Messages in neither window nor summary, apart from orphan results and open groups. */
  readonly uncoveredMessageCount: number;
  /** Whether the window exceeds its limit, because its newest group does. */
  readonly overLimit: boolean;
  /** The seqs of messages with shortened texts. */
  readonly shortenedSeqs: readonly number[];
  readonly summaryState: SummaryState;
  /** The id of the summary that the window shows; empty when it shows none. */
  readonly summaryId: string;
  /** Why the last attempt to make a summary failed, for example `unreachable` or `timeout`; empty when it did not. */
  readonly summaryFailure: string;
  /**
   * Of two windows of one session with equal digests, the longer one begins with the shorter one's messages, byte for byte:
   * a provider's prompt cache holds.
   */
  readonly prefixDigest: Uint8Array;
  /** How many of the window's first messages are pinned. */
  readonly pinnedMessageCount: number;
  /** The session's last seq when the window was read: the `expectedLastSeq` of a conditional append. */
  readonly lastSeq: number;
  /** The seq of the first message after the pins; 0 when there is none. */
  readonly firstSeq: number;
}

/** The part of a history that one run is given. Iterating over it gives its messages. */
export class Window implements Iterable<Message> {
  constructor(
    /**
     * In reading order: pins first, then the summary (a user message with its id and no seq), then whole groups, the results
     * of a group's calls right behind its head.
     */
    readonly messages: readonly Message[],
    readonly stats: WindowStats,
  ) {}

  /** How many messages it holds. */
  get length(): number {
    return this.messages.length;
  }

  [Symbol.iterator](): Iterator<Message> {
    return this.messages[Symbol.iterator]();
  }
}
