package dev.memoryd;

/**
 * What a rewind took away.
 *
 * @param messageCount how many messages were taken away
 * @param openCallCount how many calls wait for results after it
 */
public record RewoundSession(long messageCount, int openCallCount) {}
