package dev.memoryd;

import java.time.Duration;
import java.util.Map;

/**
 * A change of a session's settings. What is null stays; what is given replaces the old value as a whole.
 *
 * @param userId the owner
 * @param labels all labels
 * @param ttl how long the session outlives its last append; {@link #FOREVER} takes a ttl away
 * @param policy the stored policy
 * @param etag change it only if the settings are still those that had this etag, else {@link MemorydException.EtagMismatch}
 */
public record SessionUpdate(String userId, Map<String, String> labels, Duration ttl, Policy policy, String etag) {
  /** The ttl of a session that does not expire. */
  public static final Duration FOREVER = Duration.ofSeconds(Long.MAX_VALUE);

  /** Changes nothing yet. */
  public static final SessionUpdate NOTHING = new SessionUpdate(null, null, null, null, null);

  /** Makes it. */
  public SessionUpdate {
    labels = labels == null ? null : Map.copyOf(labels);
  }

  /** Another owner; empty for none. */
  public SessionUpdate withUserId(String userId) {
    return new SessionUpdate(userId, labels, ttl, policy, etag);
  }

  /** Other labels. */
  public SessionUpdate withLabels(Map<String, String> labels) {
    return new SessionUpdate(userId, labels, ttl, policy, etag);
  }

  /** Another ttl. */
  public SessionUpdate withTtl(Duration ttl) {
    return new SessionUpdate(userId, labels, ttl, policy, etag);
  }

  /** Another policy. */
  public SessionUpdate withPolicy(Policy policy) {
    return new SessionUpdate(userId, labels, ttl, policy, etag);
  }

  /** Only if the settings are still those that had this etag. */
  public SessionUpdate withEtag(String etag) {
    return new SessionUpdate(userId, labels, ttl, policy, etag);
  }
}
