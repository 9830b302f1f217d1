package dev.memoryd;

import java.util.Objects;

/**
 * How a history is folded: when all that a window of the stored policy would show exceeds its limit, the oldest groups are
 * summarized, so that the newest {@code keep} messages or tokens stay as they are.
 *
 * <p>It replaces a more general policy's as a whole; what is null takes its default. The limit of the stored policies must then
 * be at least 2 messages or 256 tokens. A policy that the server tells has {@code enabled}, {@code retention} and {@code waits}
 * set, with their defaults where they were null; so it need not equal the one that was given.
 *
 * @param enabled whether there are summaries; true by default: false lets a session do without although its agent has them
 * @param summarizer who makes them: {@code extractive} (the server itself, without a network), {@code openai} (the endpoint in
 *     the server's settings) or {@code client} (whoever leases summary tasks); empty for the server's default
 * @param maxTokens the most tokens of a summary, 64 to 8,000; by default 1,000 when the limit counts messages, 20 % of a limit
 *     in tokens
 * @param keep how many of the newest messages or tokens stay as they are when older ones are folded, in the unit of the
 *     window's mode; by default all that the limit leaves beside summary and pins. Half the limit folds less often, and keeps
 *     the beginning of the prompt the same for longer
 * @param retention what becomes of the messages that a summary covers; KEEP by default
 * @param waits whether a load that finds that it must fold waits for the summary, at most 10 seconds; true by default. Nothing
 *     waits for the summarizer {@code client}
 */
public record SummaryPolicy(
    Boolean enabled, String summarizer, Long maxTokens, Long keep, Retention retention, Boolean waits) {

  /** Summaries, all by default. */
  public static final SummaryPolicy DEFAULT = new SummaryPolicy(null, "", null, null, null, null);

  /** Makes it. */
  public SummaryPolicy {
    Objects.requireNonNull(summarizer, "summarizer");
  }

  /** Whether there are summaries. */
  public SummaryPolicy withEnabled(boolean enabled) {
    return new SummaryPolicy(enabled, summarizer, maxTokens, keep, retention, waits);
  }

  /** Who makes them. */
  public SummaryPolicy withSummarizer(String summarizer) {
    return new SummaryPolicy(enabled, summarizer, maxTokens, keep, retention, waits);
  }

  /** The most tokens of a summary. */
  public SummaryPolicy withMaxTokens(long maxTokens) {
    return new SummaryPolicy(enabled, summarizer, maxTokens, keep, retention, waits);
  }

  /** How many of the newest messages or tokens stay as they are when older ones are folded. */
  public SummaryPolicy withKeep(long keep) {
    return new SummaryPolicy(enabled, summarizer, maxTokens, keep, retention, waits);
  }

  /** What becomes of the messages that a summary covers. */
  public SummaryPolicy withRetention(Retention retention) {
    return new SummaryPolicy(enabled, summarizer, maxTokens, keep, retention, waits);
  }

  /** Whether a load that finds that it must fold waits for the summary. */
  public SummaryPolicy withWaits(boolean waits) {
    return new SummaryPolicy(enabled, summarizer, maxTokens, keep, retention, waits);
  }
}
