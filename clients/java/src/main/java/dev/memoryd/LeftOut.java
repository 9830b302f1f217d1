package dev.memoryd;

import java.util.List;

/**
 * What is not in a window, and why. With the window's stored messages, the counts add up to the history's.
 *
 * @param limitCount the number of messages that did not fit
 * @param limitFromSeq the lowest seq of what did not fit, by the heads of groups; 0 when all fit
 * @param limitToSeq the highest seq of what did not fit, by the heads of groups; 0 when all fit; the range may
 *     hold messages that were left out for another reason
 * @param orphanResultCount the number of messages in the whole history that are results without their calls
 * @param openToolCallCount the number of messages in the whole history that are left out for an unanswered call
 * @param messages with {@link WindowRequest#withExplanation}: up to 100 of those left out as ORPHAN_RESULT or
 *     OPEN_TOOL_CALL, newest first
 */
public record LeftOut(
    long limitCount,
    long limitFromSeq,
    long limitToSeq,
    long orphanResultCount,
    long openToolCallCount,
    List<LeftOutMessage> messages) {
  /** Makes it. */
  public LeftOut {
    messages = List.copyOf(messages);
  }

  /**
   * A message that is not in the window.
   *
   * @param seq its seq
   * @param reason why it was left out
   */
  public record LeftOutMessage(long seq, LeftOutReason reason) {}
}
