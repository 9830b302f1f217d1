package dev.memoryd;

/** Who speaks in a message. */
public enum Role {
  // In the order of the API's numbers, which begin with 1 here.
  /** Instructions of the application. SYSTEM and DEVELOPER messages that open a history are pinned in windows. */
  SYSTEM,
  /** Instructions of the developer, as newer OpenAI models call the system role. */
  DEVELOPER,
  /** The person, or whatever takes the person's part. */
  USER,
  /** The model. */
  ASSISTANT,
  /** The results of tool calls. */
  TOOL;

  private static final Role[] VALUES = values();

  dev.memoryd.v1.Role toApi() {
    return dev.memoryd.v1.Role.forNumber(ordinal() + 1);
  }

  /** The role of the API's number; null for one that this client does not know. */
  static Role of(int number) {
    return number > 0 && number <= VALUES.length ? VALUES[number - 1] : null;
  }
}
