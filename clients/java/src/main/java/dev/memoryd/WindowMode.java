package dev.memoryd;

/** The unit of a window's limit. */
public enum WindowMode {
  // In the order of the API's numbers.
  /** In an answer: a mode that this client does not know. */
  UNSPECIFIED,
  /** The limit counts messages. */
  MESSAGES,
  /** The limit counts tokens of the session's tokenizer. */
  TOKENS;

  private static final WindowMode[] VALUES = values();

  dev.memoryd.v1.WindowMode toApi() {
    return dev.memoryd.v1.WindowMode.forNumber(ordinal());
  }

  static WindowMode of(int number) {
    return number > 0 && number < VALUES.length ? VALUES[number] : UNSPECIFIED;
  }
}
