// Outages, as those meet them who ask a server again and again: they are waited for, and told in the log once.

import { milliseconds } from "./arguments.js";
import { ContentionError, DeadlineExceededError, MemorydError, TlsFailedError, UnavailableError } from "./errors.js";
import type { Logger } from "./log.js";

/** Tells failures that pass from those that do not. */
export class Outage {
  readonly #logger: Logger;
  readonly #begins: string;
  readonly #ends: string;
  readonly #retryForMs: number | undefined;
  #answeredEver = false;
  #since: number | undefined;

  constructor(logger: Logger, words: { begins: string; ends: string }, retryForMs?: number) {
    this.#logger = logger;
    this.#begins = words.begins;
    this.#ends = words.ends;
    this.#retryForMs = retryForMs === undefined ? undefined : milliseconds(retryForMs, "retryForMs");
  }

  /** Takes note of an answer. */
  answered(): void {
    if (this.#since !== undefined) this.#logger.info(this.#ends);
    this.#answeredEver = true;
    this.#since = undefined;
  }

  /** Takes note of a failure. Throws the error when it is of no use to ask again. */
  failed(error: unknown): void {
    if (!isPassing(error) || (error instanceof TlsFailedError && !this.#answeredEver)) throw error;
    const now = performance.now();
    const since = this.#since ?? now;
    if (this.#retryForMs !== undefined && now - since >= this.#retryForMs) throw error;
    if (this.#since === undefined) {
      this.#since = since;
      this.#logger.warn(`${this.#begins}, which is tried again: ${error.message}`);
    }
  }
}

function isPassing(error: unknown): error is MemorydError {
  return (
    error instanceof UnavailableError || error instanceof DeadlineExceededError || error instanceof ContentionError
  );
}

/** A pause that an event may cut short. */
export function pause(milliseconds: number, until: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (until.aborted) {
      resolve();
      return;
    }
    const end = (): void => {
      clearTimeout(timer);
      until.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    until.addEventListener("abort", end, { once: true });
  });
}

/** A number between two, by chance. */
export function between(low: number, high: number): number {
  return low + Math.random() * (high - low);
}
