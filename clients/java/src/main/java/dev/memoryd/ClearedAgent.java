package dev.memoryd;

/**
 * What the clearing of an agent took away.
 *
 * @param sessionCount in how many sessions there were messages to take away
 * @param messageCount how many messages were taken away
 */
public record ClearedAgent(long sessionCount, long messageCount) {}
