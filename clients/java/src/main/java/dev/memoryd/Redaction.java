package dev.memoryd;

import java.time.Instant;

/**
 * The trace that a redaction leaves in a message.
 *
 * @param redactTime when the content was taken away
 * @param reason the reason that the caller gave; may be empty
 */
public record Redaction(Instant redactTime, String reason) {}
