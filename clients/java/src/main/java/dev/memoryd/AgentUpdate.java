package dev.memoryd;

import java.time.Duration;

/**
 * A change of an agent's settings. What is null stays; what is given replaces the old value as a whole.
 *
 * @param policy the policy of the agent's sessions
 * @param loadMemory whether memory is rendered for the agent
 * @param runRetention how long runs are kept after they ended, up to 100 years: zero for ever, {@link #SERVERS_DEFAULT} as the
 *     server's settings say; unfinished runs are always kept
 * @param etag change it only if the settings are still those that had this etag, else {@link MemorydException.EtagMismatch}
 */
public record AgentUpdate(Policy policy, Boolean loadMemory, Duration runRetention, String etag) {
  /** Takes an agent's own run retention away: from then on, it is the server's. */
  public static final Duration SERVERS_DEFAULT = Duration.ofSeconds(Long.MIN_VALUE);

  /** Changes nothing yet. */
  public static final AgentUpdate NOTHING = new AgentUpdate(null, null, null, null);

  /** Another policy. */
  public AgentUpdate withPolicy(Policy policy) {
    return new AgentUpdate(policy, loadMemory, runRetention, etag);
  }

  /** Whether memory is rendered for the agent. */
  public AgentUpdate withLoadMemory(boolean loadMemory) {
    return new AgentUpdate(policy, loadMemory, runRetention, etag);
  }

  /** How long runs are kept after they ended. */
  public AgentUpdate withRunRetention(Duration runRetention) {
    return new AgentUpdate(policy, loadMemory, runRetention, etag);
  }

  /** Only if the settings are still those that had this etag. */
  public AgentUpdate withEtag(String etag) {
    return new AgentUpdate(policy, loadMemory, runRetention, etag);
  }
}
