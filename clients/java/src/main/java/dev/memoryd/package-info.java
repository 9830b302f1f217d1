/**
 * The Java client of memoryd, the memory service for agents: it keeps conversations and hands each run the window of history
 * that fits, and the Markdown memory of its user and project. Begin with {@link dev.memoryd.MemoryClient}.
 */
package dev.memoryd;
