// How calls are tried again while the server is unavailable: the policy of all SDKs, in `clients/README.md`.

import { type MemorydError, ServerDrainingError, StoreUnavailableError } from "./errors.js";
import { between } from "./outages.js";

/** How often a call is tried on a server that has not answered this client yet: about 1.5 s, with the pauses between. */
export const FIRST_TRIES = 5;
/**
 * Milliseconds for which a call is tried again, from its first failure on, on a server that has answered: as long as a restart
 * may take.
 */
export const RESTART_MS = 10_000;
/**
 * The pauses between tries of a call, and between tries to connect, so that a server that restarts is found again as soon as a
 * call is.
 */
export const FIRST_PAUSE_MS = 100;
export const LONGEST_PAUSE_MS = 1_000;
/** Pauses are longer by up to a fifth, so that clients that lost one server do not come back all at once. */
const LONGEST_JITTER = 1.2;

/** The tries of one call. */
export class Tries {
  #failures = 0;
  #since = 0;

  /** For a call that may be repeated or not, and the milliseconds until its deadline. */
  constructor(
    private readonly isRetried: boolean,
    private readonly left: () => number,
  ) {}

  /** Takes note of a failure, and gives the pause before the next try. Throws the error when there is to be none. */
  failed(error: MemorydError, hasAnswered: boolean): number {
    if (!this.isRetried || !isPassing(error)) throw error;
    const now = performance.now();
    if (this.#failures === 0) this.#since = now;
    const backoff = Math.min(FIRST_PAUSE_MS * 2 ** this.#failures, LONGEST_PAUSE_MS);
    const pause = Math.max(backoff, error.retryAfterMs ?? 0) * between(1, LONGEST_JITTER);
    this.#failures += 1;
    const isOver = now + pause > this.#since + RESTART_MS || (!hasAnswered && this.#failures >= FIRST_TRIES);
    // A try that has no time left would hide why the others failed.
    if (isOver || pause + FIRST_PAUSE_MS > this.left()) throw error;
    return pause;
  }
}

/** Whether a repeat is of use. No reason is given where no server of memoryd answered. */
function isPassing(error: MemorydError): boolean {
  const passes = error.reason === "" || error instanceof StoreUnavailableError || error instanceof ServerDrainingError;
  return error.code === "UNAVAILABLE" && passes;
}
