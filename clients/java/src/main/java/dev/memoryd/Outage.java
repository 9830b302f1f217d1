package dev.memoryd;

import java.time.Duration;

/** An outage, as it meets who asks a server again and again: it is waited for, and told in the log once. */
final class Outage {
  static final System.Logger LOG = System.getLogger("memoryd");

  private final String begins;
  private final String ends;
  private final Duration retryFor;
  private boolean answeredEver;
  private boolean lasts;
  private long since;

  /** {@code retryFor} may be null: for ever. */
  Outage(String begins, String ends, Duration retryFor) {
    this.begins = begins;
    this.ends = ends;
    this.retryFor = retryFor;
  }

  /** Takes note of an answer. */
  void answered() {
    if (lasts) {
      LOG.log(System.Logger.Level.INFO, ends);
    }
    answeredEver = true;
    lasts = false;
  }

  /** Takes note of a failure. Throws the error when it is of no use to ask again. */
  void failed(MemorydException error) {
    if (!passes(error) || (error instanceof MemorydException.TlsFailed && !answeredEver)) {
      throw error;
    }
    long now = System.nanoTime();
    long from = lasts ? since : now;
    if (retryFor != null && now - from >= retryFor.toNanos()) {
      throw error;
    }
    if (!lasts) {
      lasts = true;
      since = now;
      LOG.log(System.Logger.Level.WARNING, begins + ", which is tried again: " + error.getMessage());
    }
  }

  private static boolean passes(MemorydException error) {
    return error instanceof MemorydException.Unavailable
        || error instanceof MemorydException.DeadlineExceeded
        || error instanceof MemorydException.Contention;
  }
}
