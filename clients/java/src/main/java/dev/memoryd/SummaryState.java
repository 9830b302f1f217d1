package dev.memoryd;

/** Whether a summary stands for older messages. */
public enum SummaryState {
  // In the order of the API's numbers.
  /** Not told, or a state that this client does not know. */
  UNSPECIFIED,
  /** The stored policies ask for no summary, or nothing had to be folded yet. */
  NONE,
  /** The summary covers all that the policy wants folded. */
  CURRENT,
  /** A summary is being made, or is left to a client. Until it is there, the window holds the earlier one, if any. */
  PENDING,
  /** The last attempt failed and will be repeated; {@link WindowStats#summaryFailure} says why. */
  FAILED;

  private static final SummaryState[] VALUES = values();

  static SummaryState of(int number) {
    return number > 0 && number < VALUES.length ? VALUES[number] : UNSPECIFIED;
  }
}
