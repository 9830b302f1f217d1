package dev.memoryd;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Objects;

/** Cutting many messages into appends that the server takes. */
public final class Batches {
  private static final int MOST_MESSAGES = 256;

  /** 3.25 MiB: the server's limit of 3.5 MiB for one append, less room for the rest of the request. */
  private static final long MOST_BYTES = 3_407_872;

  /** More than what a message takes in a request beside its own bytes. */
  private static final int OVERHEAD = 8;

  private Batches() {}

  /**
   * Cuts messages, in their order, into lists that fit into one append each: at most 256 messages and 3.25 MiB. A message that
   * alone is larger comes alone, for the server to say what is wrong with it. The input is read as far as it is needed.
   */
  public static Iterable<List<Message>> of(Iterable<Message> messages) {
    Objects.requireNonNull(messages, "messages");
    return () -> new Cutter(messages.iterator());
  }

  private static final class Cutter implements Iterator<List<Message>> {
    private final Iterator<Message> messages;
    private Message held;
    private long heldBytes;

    Cutter(Iterator<Message> messages) {
      this.messages = messages;
    }

    @Override
    public boolean hasNext() {
      return held != null || messages.hasNext();
    }

    @Override
    public List<Message> next() {
      List<Message> batch = new ArrayList<>();
      long bytes = 0;
      while (hold()) {
        if (!batch.isEmpty() && (batch.size() == MOST_MESSAGES || bytes + heldBytes > MOST_BYTES)) {
          return batch;
        }
        batch.add(held);
        bytes += heldBytes;
        held = null;
      }
      if (batch.isEmpty()) {
        throw new NoSuchElementException();
      }
      return batch;
    }

    private boolean hold() {
      if (held == null && messages.hasNext()) {
        held = messages.next();
        heldBytes = Protos.toProto(held).getSerializedSize() + (long) OVERHEAD;
      }
      return held != null;
    }
  }
}
