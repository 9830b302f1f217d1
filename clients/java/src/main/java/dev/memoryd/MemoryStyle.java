package dev.memoryd;

/** The form of a rendered block. */
public enum MemoryStyle {
  // In the order of the API's numbers, which begin with 1 here.
  /** All memory stands inside UNTRUSTED_CONTENT, and a notice counts the lines that were left out. */
  ENCLOSED,
  /** UNTRUSTED_CONTENT holds the warning alone, and memory follows it, as in OpenHands. */
  OPENHANDS;

  dev.memoryd.v1.MemoryStyle toApi() {
    return dev.memoryd.v1.MemoryStyle.forNumber(ordinal() + 1);
  }
}
