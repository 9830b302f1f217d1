package dev.memoryd;

import io.grpc.Status;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * The runs of an agent that any worker may take up, claimed one after another. Made by {@link MemoryClient#claims}; close it.
 *
 * <pre>{@code
 * try (RunClaims claims = memory.claims("travel", RunOptions.DEFAULT)) {
 *   for (Run run : claims) {
 *     try {
 *       run.work(r -> book(r, r.resume()));
 *     } catch (MemorydException.RunLeaseLost lost) {
 *       // Another worker has it.
 *     }
 *   }
 * }
 * }</pre>
 *
 * <p>It has no end of its own. One that is not worked at by {@link Run#work} when the next is asked for, or when this is closed,
 * is released. One thread iterates; any may close.
 */
public final class RunClaims implements Iterator<Run>, Iterable<Run>, AutoCloseable {
  private final Caller caller;
  private final String agent;
  private final RunOptions options;
  private final Outage outage = new Outage("no run can be claimed", "runs are claimed again", null);
  private final CountDownLatch closed = new CountDownLatch(1);
  private Run given;
  private Run next;

  RunClaims(Caller caller, String agent, RunOptions options) {
    this.caller = caller.pinned();
    this.agent = Protos.text(agent, "agent");
    this.options = Objects.requireNonNull(options, "options");
  }

  /** This itself: there is one iteration. */
  @Override
  public Iterator<Run> iterator() {
    return this;
  }

  /** Waits for the next run. False once this is closed. */
  @Override
  public boolean hasNext() {
    Run held;
    synchronized (this) {
      held = next;
    }
    if (held == null) {
      leave();
      held = claim();
      synchronized (this) {
        next = held;
      }
      if (closed.getCount() == 0) {
        leave();
        return false;
      }
    }
    return held != null;
  }

  @Override
  public Run next() {
    if (!hasNext()) {
      throw new NoSuchElementException("the claims are closed");
    }
    synchronized (this) {
      given = next;
      next = null;
      return given;
    }
  }

  /** Ends the iteration, and releases the run that was not worked at. */
  @Override
  public void close() {
    closed.countDown();
    leave();
  }

  private Run claim() {
    while (closed.getCount() > 0) {
      try {
        Run run = Run.claimedOf(caller, agent, options);
        outage.answered();
        if (run != null) {
          return run;
        }
      } catch (MemorydException failed) {
        if (closed.getCount() == 0) {
          return null;
        }
        outage.failed(failed);
      }
      pause();
    }
    return null;
  }

  private void pause() {
    long average = options.poll().toMillis();
    try {
      closed.await(ThreadLocalRandom.current().nextLong(average / 2, average * 3 / 2 + 1), TimeUnit.MILLISECONDS);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new MemorydException.Cancelled(
          MemorydException.details("interrupted while it waited for a run to claim", Status.Code.CANCELLED));
    }
  }

  /** Releases what was not worked at. */
  private void leave() {
    Run[] left;
    synchronized (this) {
      left = new Run[] {given, next};
      given = null;
      next = null;
    }
    for (Run run : left) {
      if (run != null && !run.isEntered() && !caller.connection().isClosed()) {
        run.abandon();
      }
    }
  }
}
