package dev.memoryd;

/**
 * What a fold did.
 *
 * @param summary the current summary; null when nothing had to be folded yet
 * @param messageCount how many messages were folded; 0 when no more than {@code keep} of the stored policy were
 *     raw
 */
public record SummarizedSession(Summary summary, long messageCount) {}
