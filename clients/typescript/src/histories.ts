// Sessions and agents: what they are created with, and what the server tells about them.

import type { Message } from "./messages.js";
import type { Policy, Tokenizer } from "./policies.js";

/** The ttl of a session that does not expire: takes a ttl away in an update. Also a run retention that keeps all. */
export const FOREVER = Number.POSITIVE_INFINITY;

/** In which order messages are listed. */
export type ListOrder = "ascending" | "descending";

/** Which messages a list shows: the current summary and what it does not cover (`active`), or all that is stored. */
export type MessageView = "active" | "all";

/** What a session is created with, when an append or a run begins it. */
export interface SessionSettings {
  /** The owner of the session; empty for none. At most 256 bytes. */
  readonly userId?: string | undefined;
  /** At most 64, keys of 1 to 256 bytes and values of up to 256 bytes, one line each. */
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** The vocabulary that tokens are counted in. Default: the server's. */
  readonly tokenizer?: Tokenizer | undefined;
  /** The session's stored policy. */
  readonly policy?: Policy | undefined;
  /**
   * How many milliseconds the session outlives its last append: 1 second to 100 years; undefined or FOREVER for ever. An
   * expired session is gone with all that belonged to it, and the next append begins a new one.
   */
  readonly ttlMs?: number | undefined;
}

/** What became of one appended message. */
export interface AppendedMessage {
  readonly id: string;
  /** The message's place in its session, from 1. */
  readonly seq: number;
  /** When it was stored, cut to a millisecond. */
  readonly createTime: Date;
  /** Its price in tokens of the session's tokenizer. */
  readonly tokenCount: number;
  /** Whether rendered memory was cut out of it: no MEMORY_CONTEXT block of a system or developer message is stored. */
  readonly memoryContextRemoved: boolean;
}

/** A session's settings and counts. */
export interface SessionInfo {
  readonly agent: string;
  readonly sessionId: string;
  /** The owner; empty for none. */
  readonly userId: string;
  readonly labels: Readonly<Record<string, string>>;
  /** The session's stored policy; what it leaves out comes from the agent's and the server's. */
  readonly policy: Policy;
  readonly tokenizer: Tokenizer;
  /** How many messages the history holds. */
  readonly messageCount: number;
  /** How many tokens the history holds. */
  readonly tokenCount: number;
  /** How many of the messages belong to groups with an unanswered call. */
  readonly openMessageCount: number;
  /** How many of the messages no window shows, since they are results without their calls. */
  readonly orphanMessageCount: number;
  /** How many calls still wait for their results. */
  readonly openCallCount: number;
  /** How many of its runs have not ended; at most 64. */
  readonly unfinishedRunCount: number;
  /** The seq of the newest message that was ever stored; 0 before the first. */
  readonly lastSeq: number;
  /** When the session began. */
  readonly createTime: Date | undefined;
  /** When the session last took an append or a step, or a run of it ended, to a second. */
  readonly activityTime: Date | undefined;
  /** The mark of the settings (user, labels, ttl, policy) for a conditional update. Appends do not change it. */
  readonly etag: string;
  /** How many milliseconds the session outlives its last append; undefined for ever. */
  readonly ttlMs: number | undefined;
  /** When the session expires if no append comes; undefined without a ttl, and while a run is unfinished. */
  readonly expireTime: Date | undefined;
}

/** An agent's settings. */
export interface AgentInfo {
  readonly agent: string;
  /** The policy of the agent's sessions; what it leaves out comes from the server's. */
  readonly policy: Policy;
  /** When the settings were last changed; undefined before the first change. */
  readonly updateTime: Date | undefined;
  /** The mark of the settings for a conditional update. */
  readonly etag: string;
  /** Whether memory is rendered for the agent. */
  readonly loadMemory: boolean;
  /**
   * How many milliseconds runs of the agent's sessions are kept after they ended; FOREVER for ever, undefined as the
   * server's settings say (30 days by default).
   */
  readonly runRetentionMs: number | undefined;
}

/** What the clearing of an agent took away. */
export interface ClearedAgent {
  /** In how many sessions there were messages to take away. */
  readonly sessionCount: number;
  /** How many messages were taken away. */
  readonly messageCount: number;
}

/** What a rewind took away. */
export interface RewoundSession {
  /** How many messages were taken away. */
  readonly messageCount: number;
  /** How many calls wait for results after it. */
  readonly openCallCount: number;
}

/** What the erasure of a user deleted. After an erasure that was tried again: what the last try found. */
export interface ErasedUser {
  /** How many sessions were deleted. */
  readonly sessionCount: number;
  /** How many messages were deleted, those included that had been taken away before and were still stored. */
  readonly messageCount: number;
  /** How many id look-ups were deleted. */
  readonly lookupCount: number;
  /** How many memory files were deleted, each with its versions. */
  readonly memoryFileCount: number;
  /** How many runs were deleted. */
  readonly runCount: number;
  /** How many steps of these were. */
  readonly runStepCount: number;
}

/**
 * What happened to a session. `resync`: what happened since the resume token is not known, as it is of an earlier session
 * of this name, or older than 24 hours: read the session anew; what happens from here on follows.
 */
export type WatchEventKind =
  | "unspecified"
  | "appended"
  | "summarized"
  | "redacted"
  | "cleared"
  | "rewound"
  | "resync";

/** Something that happened to a session. */
export interface WatchEvent {
  readonly kind: WatchEventKind;
  /** The seq of the first message that it is about; 0 for `resync`. */
  readonly fromSeq: number;
  /** The seq of the last message that it is about, itself included; below `fromSeq` when there is none. */
  readonly toSeq: number;
  /**
   * The message that was appended, or the redacted one as it is now. undefined in other events, and when it has been taken
   * away since: such messages may share one event, and a later event tells what took them away.
   */
  readonly message: Message | undefined;
  /** When it happened; undefined where messages have been taken away since. */
  readonly eventTime: Date | undefined;
  /** Resumes a watch behind this event, for 24 hours: `session.watch({ resumeToken })`. */
  readonly resumeToken: string;
}
