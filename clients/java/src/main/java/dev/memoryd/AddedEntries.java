package dev.memoryd;

/**
 * What became of entries for an index.
 *
 * @param file the index as it is now
 * @param added how many were added
 * @param skipped how many were in the index already, or came twice
 */
public record AddedEntries(MemoryFileInfo file, int added, int skipped) {}
