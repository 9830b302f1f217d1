package dev.memoryd;

import java.time.Instant;

/**
 * What became of one appended message.
 *
 * @param id the message's id
 * @param seq the message's place in its session, from 1
 * @param createTime when it was stored
 * @param tokenCount its price in tokens of the session's tokenizer
 * @param memoryContextRemoved whether rendered memory was cut out of it: memoryd stores no MEMORY_CONTEXT block of
 *     a system or developer message
 */
public record AppendedMessage(
    String id,
    long seq,
    Instant createTime,
    long tokenCount,
    boolean memoryContextRemoved) {}
