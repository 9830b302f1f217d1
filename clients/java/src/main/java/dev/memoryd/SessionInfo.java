package dev.memoryd;

import java.time.Duration;
import java.time.Instant;
import java.util.Map;

/**
 * A session's settings and counts.
 *
 * @param agent the agent that owns it
 * @param sessionId its id
 * @param userId the owner; empty for none
 * @param labels the caller's own labels
 * @param policy the session's stored policy; what it leaves out comes from the agent's and the server's
 * @param tokenizer the vocabulary that its tokens are counted in
 * @param messageCount how many messages the history holds
 * @param tokenCount how many tokens the history holds
 * @param openMessageCount how many of the messages belong to groups with an unanswered call
 * @param orphanMessageCount how many of the messages no window shows, since they are results without their calls
 * @param openCallCount how many calls still wait for their results
 * @param lastSeq the seq of the newest message that was ever stored; 0 before the first
 * @param createTime when the session began; null when it is not told
 * @param activityTime when the session last took an append or a step, to a second; null when it is not told
 * @param etag the mark of the settings (user, labels, ttl, policy) for a conditional update; appends do not change
 *     it
 * @param ttl how long the session outlives its last append; null for ever
 * @param expireTime when the session expires if no append comes; null without a ttl, and while a run is unfinished
 * @param unfinishedRunCount how many of its runs have not ended
 */
public record SessionInfo(
    String agent,
    String sessionId,
    String userId,
    Map<String, String> labels,
    Policy policy,
    Tokenizer tokenizer,
    long messageCount,
    long tokenCount,
    long openMessageCount,
    long orphanMessageCount,
    int openCallCount,
    long lastSeq,
    Instant createTime,
    Instant activityTime,
    String etag,
    Duration ttl,
    Instant expireTime,
    int unfinishedRunCount) {}
