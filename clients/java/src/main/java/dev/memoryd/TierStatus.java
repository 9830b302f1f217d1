package dev.memoryd;

/**
 * A tier in a rendered block.
 *
 * @param state what became of it
 * @param keptLines how many lines of it are in the block
 * @param droppedLines how many lines were left out: the oldest (top) ones, and those that no budget holds
 */
public record TierStatus(TierState state, int keptLines, int droppedLines) {}
