package dev.memoryd;

import dev.memoryd.v1.LeaseSummaryTaskRequest;
import dev.memoryd.v1.LeaseSummaryTaskResponse;
import dev.memoryd.v1.SessionKey;
import dev.memoryd.v1.SummaryServiceGrpc;
import io.grpc.Status;
import java.time.Duration;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/**
 * The summaries that sessions wait for, to make them with a model of your own. Made by {@link MemoryClient#summaryTasks} and
 * {@link Session#summaryTasks}; close it.
 *
 * <pre>{@code
 * try (SummaryTasks tasks = memory.summaryTasks("travel", SummaryTasks.Options.FOREVER)) {
 *   for (SummaryTask task : tasks) {
 *     task.commit(askModel(task.instructions(), task.input()), "my-model");
 *   }
 * }
 * }</pre>
 *
 * <p>A task that was not committed is given up when the next one is asked for: it then waits, 5 seconds and longer with each
 * time, before it is leased again, since the model failed. Closing leaves one free for others at once. One thread iterates; any
 * may close.
 */
public final class SummaryTasks implements Iterator<SummaryTask>, Iterable<SummaryTask>, AutoCloseable {
  private static final long FIRST_PAUSE_MS = 200;
  private static final long LONGEST_PAUSE_MS = 5_000;

  /** More than it takes to get from the first pause to the longest. */
  private static final int MOST_DOUBLINGS = 10;

  private final Caller caller;
  private final LeaseSummaryTaskRequest request;
  private final boolean waits;
  private final Outage outage;
  private final CountDownLatch closed = new CountDownLatch(1);
  private int inVain;
  private SummaryTask given;
  private SummaryTask next;

  /**
   * How to ask for tasks.
   *
   * @param lease how long one summary may take, 1 second to 10 minutes; null for the server's minute
   * @param waits whether to go on when no task waits: it is asked again after a pause of 0.2 seconds, which grows to 5
   * @param retryFor for how long it is asked again while the server is unavailable, before that is thrown; null for ever.
   *     Without {@code waits}, it is thrown at once
   */
  public record Options(Duration lease, boolean waits, Duration retryFor) {
    /** Goes on for ever. */
    public static final Options FOREVER = new Options(null, true, null);

    /** Ends when no task waits. */
    public static final Options WHAT_WAITS = new Options(null, false, null);

    /** How long one summary may take. */
    public Options withLease(Duration lease) {
      return new Options(lease, waits, retryFor);
    }

    /** For how long it is asked again while the server is unavailable. */
    public Options withRetryFor(Duration retryFor) {
      return new Options(lease, waits, retryFor);
    }
  }

  private SummaryTasks(Caller caller, LeaseSummaryTaskRequest.Builder request, Options options) {
    Objects.requireNonNull(options, "options");
    if (options.lease() != null) {
      request.setLeaseDuration(Protos.duration(options.lease()));
    }
    this.caller = caller.pinned();
    this.request = request.build();
    this.waits = options.waits();
    this.outage = new Outage("no summary task can be leased", "summary tasks are served again", options.retryFor());
  }

  static SummaryTasks of(Caller caller, SessionKey session, Options options) {
    return new SummaryTasks(caller, LeaseSummaryTaskRequest.newBuilder().setSession(session), options);
  }

  static SummaryTasks of(Caller caller, String agent, Options options) {
    return new SummaryTasks(
        caller, LeaseSummaryTaskRequest.newBuilder().setAgent(Protos.text(agent, "agent")), options);
  }

  /** This itself: there is one iteration. */
  @Override
  public Iterator<SummaryTask> iterator() {
    return this;
  }

  /** Waits for the next task. False once this is closed, or without {@code waits} when there is none. */
  @Override
  public boolean hasNext() {
    if (next == null) {
      leave(true);
      next = lease();
    }
    return next != null;
  }

  @Override
  public SummaryTask next() {
    if (!hasNext()) {
      throw new NoSuchElementException("there is no summary task");
    }
    given = next;
    next = null;
    return given;
  }

  /** Ends the iteration, and leaves what was not committed free for others at once. */
  @Override
  public void close() {
    closed.countDown();
    leave(false);
  }

  private boolean isClosed() {
    return closed.getCount() == 0;
  }

  private SummaryTask lease() {
    while (!isClosed()) {
      try {
        LeaseSummaryTaskResponse response =
            caller.call(SummaryServiceGrpc.getLeaseSummaryTaskMethod(), request);
        outage.answered();
        if (response.hasTask()) {
          inVain = 0;
          return new SummaryTask(caller, response.getTask());
        }
        if (!waits) {
          return null;
        }
      } catch (MemorydException failed) {
        if (isClosed()) {
          return null;
        }
        if (!waits) {
          throw failed;
        }
        outage.failed(failed);
      }
      pause();
    }
    return null;
  }

  private void pause() {
    long longest = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS << inVain);
    inVain = Math.min(inVain + 1, MOST_DOUBLINGS);
    try {
      closed.await(ThreadLocalRandom.current().nextLong(longest / 2, longest + 1), TimeUnit.MILLISECONDS);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new MemorydException.Cancelled(
          MemorydException.details("interrupted while it waited for a summary task", Status.Code.CANCELLED));
    }
  }

  /** Gives up what was not settled; a lease that cannot be ends by itself. */
  private void leave(boolean failed) {
    SummaryTask left = given;
    given = null;
    giveUp(left, failed);
    if (!failed) {
      left = next;
      next = null;
      giveUp(left, false);
    }
  }

  private void giveUp(SummaryTask task, boolean failed) {
    if (task != null && !caller.connection().isClosed()) {
      try {
        task.abandon(failed);
      } catch (MemorydException error) {
        Outage.LOG.log(System.Logger.Level.WARNING, task + " could not be given up: " + error.getMessage());
      }
    }
  }

  /** Serves tasks with a function from task to text, closes, and tells how many summaries were made. */
  int serve(Function<SummaryTask, String> function, String model) {
    int made = 0;
    try (this) {
      while (hasNext()) {
        SummaryTask task = next();
        try {
          task.commit(function.apply(task), model);
          made++;
        } catch (MemorydException.SummaryTaskVoid isVoid) {
          Outage.LOG.log(System.Logger.Level.INFO, task + ": " + isVoid.getMessage());
        } catch (MemorydException.Cancelled interrupted) {
          throw interrupted;
        } catch (RuntimeException failed) {
          Outage.LOG.log(System.Logger.Level.WARNING, task + " was not summarized", failed);
        }
      }
    }
    return made;
  }
}
