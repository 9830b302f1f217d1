package dev.memoryd;

/**
 * What the erasure of a user deleted. After an erasure that was tried again: what the last try found.
 *
 * @param sessionCount how many sessions were deleted
 * @param messageCount how many messages were deleted, those included that had been taken away before and were
 *     still stored
 * @param lookupCount how many id look-ups were deleted
 * @param memoryFileCount how many memory files were deleted, each with its versions
 * @param runCount how many runs were deleted
 * @param runStepCount how many steps of these were
 */
public record ErasedUser(
    long sessionCount,
    long messageCount,
    long lookupCount,
    long memoryFileCount,
    long runCount,
    long runStepCount) {}
