package dev.memoryd;

/** What became of a tier of memory. */
public enum TierState {
  // In the order of the API's numbers.
  /** One that this client does not know. */
  UNSPECIFIED,
  /** There is no file, or the tier is not used. */
  ABSENT,
  /** The file holds white space at most. */
  EMPTY,
  /** All of it is in the block. */
  LOADED,
  /** A part of its lines is in the block. */
  TRUNCATED,
  /** It could not be read; a warning tells why. */
  UNREADABLE;

  private static final TierState[] VALUES = values();

  static TierState of(int number) {
    return number > 0 && number < VALUES.length ? VALUES[number] : UNSPECIFIED;
  }
}
