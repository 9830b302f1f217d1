package dev.memoryd;

import java.time.Duration;
import java.util.Map;
import java.util.Objects;

/**
 * What a session is created with, when an append or a run begins it.
 *
 * @param userId the owner of the session; empty for none; at most 256 bytes
 * @param labels at most 64, keys of 1 to 256 bytes and values of up to 256 bytes, one line each
 * @param tokenizer the vocabulary that tokens are counted in; UNSPECIFIED for the server's default
 * @param policy the session's stored policy; null for none
 * @param ttl how long the session outlives its last append: 1 second to 100 years; null for ever. An expired session is gone
 *     with all that belonged to it, and the next append begins a new one
 */
public record SessionSettings(
    String userId, Map<String, String> labels, Tokenizer tokenizer, Policy policy, Duration ttl) {

  /** All by default. */
  public static final SessionSettings DEFAULT =
      new SessionSettings("", Map.of(), Tokenizer.UNSPECIFIED, null, null);

  /** Makes it. */
  public SessionSettings {
    Objects.requireNonNull(userId, "userId");
    labels = Map.copyOf(labels);
    Objects.requireNonNull(tokenizer, "tokenizer");
  }

  /** The owner of the session. */
  public SessionSettings withUserId(String userId) {
    return new SessionSettings(userId, labels, tokenizer, policy, ttl);
  }

  /** The session's labels. */
  public SessionSettings withLabels(Map<String, String> labels) {
    return new SessionSettings(userId, labels, tokenizer, policy, ttl);
  }

  /** The vocabulary that tokens are counted in. */
  public SessionSettings withTokenizer(Tokenizer tokenizer) {
    return new SessionSettings(userId, labels, tokenizer, policy, ttl);
  }

  /** The session's stored policy. */
  public SessionSettings withPolicy(Policy policy) {
    return new SessionSettings(userId, labels, tokenizer, policy, ttl);
  }

  /** How long the session outlives its last append. */
  public SessionSettings withTtl(Duration ttl) {
    return new SessionSettings(userId, labels, tokenizer, policy, ttl);
  }
}
