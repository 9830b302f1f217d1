package dev.memoryd;

/** What a window does when its newest group alone exceeds what is left of a token limit. */
public enum Oversize {
  // In the order of the API's numbers.
  /** In an answer: a value that this client does not know. */
  UNSPECIFIED,
  /** The group's longest texts are shortened in the middle until it fits. The default. */
  SHORTEN,
  /** The group is returned whole, and the stats say {@code overLimit}. */
  RETURN,
  /** The call fails with {@link MemorydException.WindowTooSmall}. */
  FAIL;

  private static final Oversize[] VALUES = values();

  dev.memoryd.v1.Oversize toApi() {
    return dev.memoryd.v1.Oversize.forNumber(ordinal());
  }

  static Oversize of(int number) {
    return number > 0 && number < VALUES.length ? VALUES[number] : UNSPECIFIED;
  }
}
