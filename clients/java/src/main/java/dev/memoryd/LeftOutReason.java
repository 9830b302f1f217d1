package dev.memoryd;

/** Why messages are not in a window. */
public enum LeftOutReason {
  // In the order of the API's numbers.
  /** Not told, or a reason that this client does not know. */
  UNSPECIFIED,
  /** They did not fit. */
  LIMIT,
  /** They are results without their calls. */
  ORPHAN_RESULT,
  /** They belong to a group with an unanswered call. */
  OPEN_TOOL_CALL;

  private static final LeftOutReason[] VALUES = values();

  static LeftOutReason of(int number) {
    return number > 0 && number < VALUES.length ? VALUES[number] : UNSPECIFIED;
  }
}
