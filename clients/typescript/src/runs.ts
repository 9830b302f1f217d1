// Runs: the durable records of what agents do, and their steps.

import { utf8Text } from "./utf8.js";

/** What a step can hold: bytes, text, or what JSON can say. */
export type Payload = Uint8Array | string | number | bigint | boolean | object | null | undefined;

/**
 * How a run stands. From `completed` on it has ended, and never changes again.
 *
 * - `running`: a worker holds it, or did until its lease was over.
 * - `interrupted`: any worker may claim it: it is queued, was released, or its worker was stopped.
 * - `awaiting_approval`, `awaiting_budget`: it waits for that. Claimed by name only.
 * - `completed`: it reached its goal. `blocked`: it cannot go on without help, and ended.
 * - `failed`: it ended with an error, or was recovered too often. `cancelled`: somebody ended it.
 * - `timeout`: it took too long, and ended. `abandoned`: nobody claimed it for 30 days.
 * - `unspecified`: of a run that was not begun or claimed yet; in an answer, one that this SDK does not know.
 */
export type RunStatus =
  | "unspecified"
  | "running"
  | "interrupted"
  | "awaiting_approval"
  | "awaiting_budget"
  | "completed"
  | "blocked"
  | "failed"
  | "cancelled"
  | "timeout"
  | "abandoned";

/** A run as the server tells it, without its steps. */
export interface RunInfo {
  /** The agent of its session. */
  readonly agent: string;
  /** The id of its session. */
  readonly sessionId: string;
  /** Unique within its session. */
  readonly id: string;
  readonly status: RunStatus;
  /** Why it has this status, as whoever set it said; empty while it is running. */
  readonly reason: string;
  /** The caller's own data, byte for byte. */
  readonly metadata: string;
  /** Who says to have claimed it last; empty for nobody. */
  readonly holder: string;
  /** How many steps are committed. */
  readonly steps: number;
  /** How often it was claimed after a lease was over. */
  readonly recoveries: number;
  /** When the lease is over unless it is renewed, by the store's clock; undefined when nobody holds it. */
  readonly leaseExpires: Date | undefined;
  /** When it began. */
  readonly created: Date;
  /** When it last changed, renewals of its lease aside. */
  readonly updated: Date;
  /** When it ended; undefined for an unfinished one. */
  readonly ended: Date | undefined;
  /** The mark of its state, for `updateRun`. Steps and renewals of the lease change it too. */
  readonly etag: string;
}

/** A step of a run: what a worker needs to go on behind it. */
export class RunStep {
  /** From 1, without gaps. */
  readonly number: number;
  /** The bytes, as they were committed. */
  readonly payload: Uint8Array;
  /** What the payload is, such as `application/json`; empty when nobody said. */
  readonly contentType: string;
  /** The seq of the first of the messages that it produced, which have consecutive ones; 0 when it produced none. */
  readonly firstSeq: number;
  /** How many messages it produced. */
  readonly messageCount: number;
  /** When it was committed. */
  readonly createTime: Date;
  /** What the run's status became with it; `running` when it went on. */
  readonly status: RunStatus;

  constructor(fields: Omit<RunStep, "text" | "json">) {
    this.number = fields.number;
    this.payload = fields.payload;
    this.contentType = fields.contentType;
    this.firstSeq = fields.firstSeq;
    this.messageCount = fields.messageCount;
    this.createTime = fields.createTime;
    this.status = fields.status;
  }

  /** The payload as text: U+FFFD stands for bytes that are not UTF-8. */
  get text(): string {
    return utf8Text(this.payload);
  }

  /** The value of the payload as JSON. SyntaxError when it is none. */
  json<Value = unknown>(): Value {
    return JSON.parse(this.text) as Value;
  }
}
