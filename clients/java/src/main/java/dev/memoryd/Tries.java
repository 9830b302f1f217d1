package dev.memoryd;

import io.grpc.Deadline;
import io.grpc.Status;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * The tries of one call, made again while the server is unavailable: the policy of all clients, in {@code clients/README.md}.
 */
final class Tries {
  /** How often a call is tried on a server that has not answered this client yet: about 1.5 s, with the pauses between. */
  static final int FIRST_TRIES = 5;

  /**
   * For how long a call is tried again, from its first failure on, on a server that has answered: as long as a restart may
   * take.
   */
  static final Duration RESTART = Duration.ofSeconds(10);

  /**
   * The pauses between tries of a call, and between tries to connect, so that a server that restarts is found again as soon as
   * a call is.
   */
  static final Duration FIRST_PAUSE = Duration.ofMillis(100);

  static final Duration LONGEST_PAUSE = Duration.ofSeconds(1);

  /** Pauses are longer by up to a fifth, so that clients that lost one server do not come back all at once. */
  private static final double LONGEST_JITTER = 1.2;

  /** The reasons of UNAVAILABLE with which a repeat is of use; none is given where no server of memoryd answered. */
  private static final Set<String> PASSING_REASONS = Set.of("", "STORE_UNAVAILABLE", "SERVER_DRAINING");

  private final boolean isRetried;
  private final Deadline deadline;
  private int failures;
  private long since;

  Tries(boolean isRetried, Deadline deadline) {
    this.isRetried = isRetried;
    this.deadline = deadline;
  }

  /** Takes note of a failure, and gives the pause before the next try. Throws the error when there is to be none. */
  Duration failed(MemorydException error, boolean hasAnswered) {
    Duration asked = error.retryAfter().orElse(Duration.ZERO);
    if (!isRetried
        || error.code() != Status.Code.UNAVAILABLE
        || !PASSING_REASONS.contains(error.reason())
        || asked.compareTo(RESTART) > 0) {
      throw error;
    }
    long now = System.nanoTime();
    if (failures == 0) {
      since = now;
    }
    long backoff = Math.min(FIRST_PAUSE.toNanos() << Math.min(failures, 10), LONGEST_PAUSE.toNanos());
    long pause = (long) (Math.max(backoff, asked.toNanos()) * ThreadLocalRandom.current().nextDouble(1, LONGEST_JITTER));
    failures++;
    boolean isOver = now + pause - since > RESTART.toNanos() || (!hasAnswered && failures >= FIRST_TRIES);
    // A try that has no time left would hide why the others failed.
    if (isOver || pause + FIRST_PAUSE.toNanos() > deadline.timeRemaining(TimeUnit.NANOSECONDS)) {
      throw error;
    }
    return Duration.ofNanos(pause);
  }
}
