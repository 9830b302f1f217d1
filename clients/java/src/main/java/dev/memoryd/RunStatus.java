package dev.memoryd;

/** How a run stands. From COMPLETED on it has ended, and never changes again. */
public enum RunStatus {
  // In the order of the API's numbers.
  /** Of a run that is not held yet; in an answer: one that this client does not know. */
  UNSPECIFIED,
  /** A worker holds it, or did until its lease was over. */
  RUNNING,
  /** Any worker may claim it: it is queued, was released, or its worker was stopped. */
  INTERRUPTED,
  /** It waits for somebody's approval. Claimed by name only. */
  AWAITING_APPROVAL,
  /** It waits for a budget. Claimed by name only. */
  AWAITING_BUDGET,
  /** It reached its goal. */
  COMPLETED,
  /** It cannot go on without help, and ended. */
  BLOCKED,
  /** It ended with an error, or was recovered too often. */
  FAILED,
  /** Somebody ended it. */
  CANCELLED,
  /** It took too long, and ended. */
  TIMEOUT,
  /** Nobody claimed it for 30 days. */
  ABANDONED;

  private static final RunStatus[] VALUES = values();

  /** Whether a run with this status has ended. */
  public boolean isEnd() {
    return compareTo(COMPLETED) >= 0;
  }

  dev.memoryd.v1.RunStatus toApi() {
    return dev.memoryd.v1.RunStatus.forNumber(ordinal());
  }

  static RunStatus of(int number) {
    return number > 0 && number < VALUES.length ? VALUES[number] : UNSPECIFIED;
  }
}
