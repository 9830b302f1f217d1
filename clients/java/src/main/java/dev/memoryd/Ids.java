package dev.memoryd;

import java.security.SecureRandom;

/** Ids that the client makes: of messages, sessions, runs, tool calls and requests. */
public final class Ids {
  private static final SecureRandom RANDOM = new SecureRandom();

  private Ids() {}

  /** Makes a UUID of version 7 (RFC 9562), ordered by time to a millisecond, as 32 lowercase hex digits. */
  public static String newId() {
    long high = System.currentTimeMillis() << 16 | 0x7000 | RANDOM.nextInt(1 << 12);
    long low = RANDOM.nextLong() >>> 2 | 1L << 63;
    return hex(high) + hex(low);
  }

  private static String hex(long value) {
    String digits = Long.toHexString(value);
    return "0".repeat(16 - digits.length()) + digits;
  }
}
