package dev.memoryd;

/** What becomes of the messages that a summary covers. */
public enum Retention {
  // In the order of the API's numbers.
  /** In an answer: a value that this client does not know. */
  UNSPECIFIED,
  /** They stay: the view ALL lists them, and the summary can be taken back. The default. */
  KEEP,
  /** They are removed in the commit of the summary. Pinned messages stay. */
  DELETE;

  private static final Retention[] VALUES = values();

  dev.memoryd.v1.Retention toApi() {
    return dev.memoryd.v1.Retention.forNumber(ordinal());
  }

  static Retention of(int number) {
    return number > 0 && number < VALUES.length ? VALUES[number] : UNSPECIFIED;
  }
}
