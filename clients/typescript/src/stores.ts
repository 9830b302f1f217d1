// Stores and summaries, as the server tells them.

/** A power that a store may lack. */
export interface Capability {
  /** `shared` (several servers may use the store at once) or `durable` (see {@link StoreInfo.durable}). More may come. */
  readonly name: string;
  readonly supported: boolean;
  /** Why the store lacks it, and what to do instead; empty when it is supported. */
  readonly reason: string;
}

/** A store of the server. */
export interface StoreInfo {
  /** The name in the server's settings. */
  readonly name: string;
  /** The kind: `in_memory`, `sqlite`, `postgresql`, `mysql` (MariaDB too), `redis` or `mongodb`. */
  readonly type: string;
  /** Whether it answered just now, within 2 seconds. */
  readonly reachable: boolean;
  /**
   * Whether what was acknowledged survives the loss of the server's process and of its machine's power. Where it does not,
   * the capability `durable` says why.
   */
  readonly durable: boolean;
  /** Whether requests that name no store use it. */
  readonly default: boolean;
  readonly capabilities: readonly Capability[];
}

/** What stands for the oldest messages of a session, how it was made, and from what. */
export interface Summary {
  readonly id: string;
  /** The summary, without the line that marks it in windows. */
  readonly text: string;
  /** The id of the summary that was part of its input; empty for none. */
  readonly previousId: string;
  /** The seq of the first message that it took in beside the previous summary. */
  readonly fromSeq: number;
  /** The seq of the last message that it took in. */
  readonly toSeq: number;
  /** How many messages it took in beside the previous summary. */
  readonly messageCount: number;
  /** The seq of the first message that it and those before it stand for. */
  readonly coveredFromSeq: number;
  /** How many messages it and those before it stand for, removed ones included. */
  readonly coveredMessageCount: number;
  /** Who made it: `extractive`, `openai` or `client`. */
  readonly summarizer: string;
  /** With which model; empty for none. */
  readonly model: string;
  /** The tokens of what it took in, the previous summary included. */
  readonly inputTokenCount: number;
  /** The tokens of its text. */
  readonly outputTokenCount: number;
  /** When it was committed. */
  readonly createTime: Date;
  /** How many milliseconds it took, from the lease to the commit. */
  readonly durationMs: number;
  /** Whether it is the one that windows show. */
  readonly current: boolean;
  /** Whether messages behind it are removed, so that it cannot be taken back. */
  readonly originalsRemoved: boolean;
}

/** What a fold did. */
export interface SummarizedSession {
  /** The current summary; undefined when nothing had to be folded yet. */
  readonly summary: Summary | undefined;
  /** How many messages were folded; 0 when no more than `keep` of the stored policy were raw. */
  readonly messageCount: number;
}
