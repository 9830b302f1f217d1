package dev.memoryd;

import com.google.protobuf.ByteString;
import java.util.List;

/**
 * What a window holds and what it does not.
 *
 * @param historyMessageCount messages in the history
 * @param historyTokenCount tokens in the history
 * @param windowMessageCount messages in the window, pins, summary and synthesized results included
 * @param windowTokenCount tokens in the window, likewise
 * @param mode the mode in force
 * @param limit the limit in force, in the unit of the mode
 * @param limitUsedPercent how much of the limit is used; over 100 with {@code overLimit}
 * @param leftOut what is not in the window
 * @param uncoveredMessageCount messages in neither window nor summary, apart from those left out as ORPHAN_RESULT
 *     or OPEN_TOOL_CALL
 * @param overLimit whether the window exceeds its limit, because its newest group does
 * @param shortenedSeqs the seqs of messages with shortened texts
 * @param summaryState the state of the summary
 * @param summaryId the id of the summary that the window shows; empty when it shows none
 * @param summaryFailure why the last attempt to make a summary failed, for example {@code unreachable} or {@code
 *     timeout}; empty when it did not
 * @param prefixDigest of two windows of one session with equal digests, the longer one begins with the shorter
 *     one's messages, byte for byte: a provider's prompt cache holds
 * @param pinnedMessageCount how many of the window's first messages are pinned
 * @param lastSeq the session's last seq when the window was read: what a conditional append expects
 * @param firstSeq the seq of the first message after the pins; 0 when there is none
 */
public record WindowStats(
    long historyMessageCount,
    long historyTokenCount,
    long windowMessageCount,
    long windowTokenCount,
    WindowMode mode,
    long limit,
    double limitUsedPercent,
    LeftOut leftOut,
    long uncoveredMessageCount,
    boolean overLimit,
    List<Long> shortenedSeqs,
    SummaryState summaryState,
    String summaryId,
    String summaryFailure,
    ByteString prefixDigest,
    int pinnedMessageCount,
    long lastSeq,
    long firstSeq) {
  /** Makes it. */
  public WindowStats {
    shortenedSeqs = List.copyOf(shortenedSeqs);
  }
}
