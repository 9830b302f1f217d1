package dev.memoryd;

/**
 * Conditions of an append.
 *
 * @param requestId a mark of this request, at most 256 bytes; a repeat with other messages is {@link
 *     MemorydException.RequestIdConflict}; null for none
 * @param expectedLastSeq append only if this is the session's last seq (0: no session yet), else {@link
 *     MemorydException.LastSeqMismatch}; null for whatever it is
 * @param create settings for a session that this append begins, ignored when it exists; null for the defaults
 */
public record AppendOptions(String requestId, Long expectedLastSeq, SessionSettings create) {
  /** None. */
  public static final AppendOptions DEFAULT = new AppendOptions(null, null, null);

  /** A mark of this request. */
  public AppendOptions withRequestId(String requestId) {
    return new AppendOptions(requestId, expectedLastSeq, create);
  }

  /** Append only if this is the session's last seq. */
  public AppendOptions withExpectedLastSeq(long expectedLastSeq) {
    return new AppendOptions(requestId, expectedLastSeq, create);
  }

  /** Settings for a session that this append begins. */
  public AppendOptions withCreate(SessionSettings create) {
    return new AppendOptions(requestId, expectedLastSeq, create);
  }
}
