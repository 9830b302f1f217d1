package dev.memoryd;

import java.time.Instant;

/**
 * A memory file at one of its versions.
 *
 * @param name {@code MEMORY.md}, or {@code YYYY-MM-DD.md}
 * @param version the number of the version, from 1
 * @param etag the mark of the content, for a conditional put or delete: equal contents have equal marks
 * @param size bytes of the content
 * @param author who says to have written this version; empty when nobody said
 * @param createTime when this version was written
 */
public record MemoryFileInfo(
    String name,
    long version,
    String etag,
    long size,
    String author,
    Instant createTime) {}
