package dev.memoryd;

/** What a window does with a group that has an unanswered call. */
public enum OpenCalls {
  // In the order of the API's numbers.
  /** In an answer: a value that this client does not know. */
  UNSPECIFIED,
  /** The group is left out, and the window goes on past it. The default. */
  OMIT,
  /** Each unanswered call gets a marked result that says it was interrupted. Such a result has no seq. */
  SYNTHESIZE,
  /** The group is shown as it is stored. For agents that are about to answer the calls themselves. */
  KEEP;

  private static final OpenCalls[] VALUES = values();

  dev.memoryd.v1.OpenCalls toApi() {
    return dev.memoryd.v1.OpenCalls.forNumber(ordinal());
  }

  static OpenCalls of(int number) {
    return number > 0 && number < VALUES.length ? VALUES[number] : UNSPECIFIED;
  }
}
