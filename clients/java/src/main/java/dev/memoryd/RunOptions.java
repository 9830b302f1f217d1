package dev.memoryd;

import java.time.Duration;
import java.util.Objects;

/**
 * How a run begins, or is claimed.
 *
 * @param id the run's id, unique within its session, at most 256 bytes; null makes one. Of no meaning for a claim
 * @param metadata data of yours: text, JSON by convention, at most 64 KiB. Of no meaning for a claim
 * @param create settings for a session that the run begins, ignored when it exists; null for the defaults. Of no meaning for a
 *     claim
 * @param holder who holds it, for people to read, at most 256 bytes; null for this machine and process
 * @param lease how long, 1 second to 1 hour, it takes until another worker may claim it if this one was not heard of; it is
 *     renewed every third of that
 * @param poll how long to pause, on average, between two questions for a run to claim while there is none
 */
public record RunOptions(
    String id, String metadata, SessionSettings create, String holder, Duration lease, Duration poll) {

  /** An id of its own, a lease of 30 seconds, a question a second. */
  public static final RunOptions DEFAULT =
      new RunOptions(null, "", null, null, Duration.ofSeconds(30), Duration.ofSeconds(1));

  /** Makes it. */
  public RunOptions {
    Objects.requireNonNull(metadata, "metadata");
    Objects.requireNonNull(lease, "lease");
    if (poll.isZero() || poll.isNegative()) {
      throw new IllegalArgumentException("poll is " + poll + "; give the pause between two questions, more than none");
    }
  }

  /** The run's id. */
  public RunOptions withId(String id) {
    return new RunOptions(id, metadata, create, holder, lease, poll);
  }

  /** Data of yours: text, which stays, or a map, which becomes JSON text. */
  public RunOptions withMetadata(Object metadata) {
    return new RunOptions(id, Json.text(metadata), create, holder, lease, poll);
  }

  /** Settings for a session that the run begins. */
  public RunOptions withCreate(SessionSettings create) {
    return new RunOptions(id, metadata, create, holder, lease, poll);
  }

  /** Who holds it, for people to read. */
  public RunOptions withHolder(String holder) {
    return new RunOptions(id, metadata, create, holder, lease, poll);
  }

  /** How long it takes until another worker may claim it if this one was not heard of. */
  public RunOptions withLease(Duration lease) {
    return new RunOptions(id, metadata, create, holder, lease, poll);
  }

  /** How long to pause between two questions for a run to claim. */
  public RunOptions withPoll(Duration poll) {
    return new RunOptions(id, metadata, create, holder, lease, poll);
  }
}
