package dev.memoryd;

import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * A list that the server gives page by page. Each iteration reads it anew, a page when the one before is used up, each within
 * the timeout. All pages are of the store that the client used when it was asked for the list.
 *
 * @param <T> what the list holds
 */
public final class Pages<T> implements Iterable<T> {
  private final Reader<T> reader;
  private final int pageSize;

  Pages(Reader<T> reader) {
    this(reader, 0);
  }

  Pages(Reader<T> reader, int pageSize) {
    this.reader = reader;
    this.pageSize = pageSize;
  }

  /** Reads a page: the first one by an empty token. A size of 0 leaves it to the server. */
  @FunctionalInterface
  interface Reader<T> {
    Page<T> read(String token, int size);
  }

  /** One page, and the token of the next one; empty on the last, which need not be an empty page. */
  record Page<T>(List<T> items, String next) {}

  /** The same list in pages of at most so many items, up to 1,000; 0 for the server's default of 100. */
  public Pages<T> withPageSize(int pageSize) {
    return new Pages<>(reader, pageSize);
  }

  @Override
  public Iterator<T> iterator() {
    return new Iterator<>() {
      private Iterator<T> page = List.<T>of().iterator();
      private String next = "";
      private boolean mayHaveMore = true;

      @Override
      public boolean hasNext() {
        while (!page.hasNext() && mayHaveMore) {
          Page<T> read = reader.read(next, pageSize);
          page = read.items().iterator();
          next = read.next();
          mayHaveMore = !next.isEmpty();
        }
        return page.hasNext();
      }

      @Override
      public T next() {
        if (!hasNext()) {
          throw new NoSuchElementException();
        }
        return page.next();
      }
    };
  }

  /** The list as a stream, which reads no more pages than it needs. */
  public Stream<T> stream() {
    return StreamSupport.stream(spliterator(), false);
  }
}
