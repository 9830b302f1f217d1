package dev.memoryd;

import java.time.Instant;

/**
 * Something that happened to a session.
 *
 * @param kind what
 * @param fromSeq the seq of the first message that it is about; 0 for RESYNC
 * @param toSeq the seq of the last message that it is about, itself included; below {@code fromSeq} when there is
 *     none
 * @param message the message that was appended, or the redacted one as it is now; null in other events, and when
 *     it has been taken away since: such messages may share one event, and a later event tells what took them away
 * @param eventTime when it happened; null where messages have been taken away since
 * @param resumeToken resumes a watch behind this event, for 24 hours
 */
public record WatchEvent(
    WatchEventKind kind,
    long fromSeq,
    long toSeq,
    Message message,
    Instant eventTime,
    String resumeToken) {}
