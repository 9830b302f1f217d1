package dev.memoryd;

/** What happened to a session. */
public enum WatchEventKind {
  // In the order of the API's numbers.
  /** In an answer: something that this client does not know. */
  UNSPECIFIED,
  /** Messages were appended. */
  APPENDED,
  /** A summary was made or withdrawn. */
  SUMMARIZED,
  /** A message was redacted. */
  REDACTED,
  /** All messages were taken away. */
  CLEARED,
  /** The newest messages were taken away. */
  REWOUND,
  /** What happened since the resume token is not known: it is of an earlier session of this name, or older than 24
   * hours. Read the session anew; what happens from here on follows. */
  RESYNC;

  private static final WatchEventKind[] VALUES = values();

  static WatchEventKind of(int number) {
    return number > 0 && number < VALUES.length ? VALUES[number] : UNSPECIFIED;
  }
}
