package dev.memoryd;

import java.util.Iterator;
import java.util.List;

/**
 * The part of a history that one run is given. Iterating over it gives its messages.
 *
 * @param messages in reading order: pins first, then the summary (a USER message with its id and no seq), then whole groups,
 *     the results of a group's calls right behind its head
 * @param stats what it holds and what it does not
 */
public record Window(List<Message> messages, WindowStats stats) implements Iterable<Message> {
  /** Makes it. */
  public Window {
    messages = List.copyOf(messages);
  }

  @Override
  public Iterator<Message> iterator() {
    return messages.iterator();
  }
}
