package dev.memoryd;

import java.time.Duration;
import java.time.Instant;

/**
 * An agent's settings.
 *
 * @param agent its name
 * @param policy the policy of the agent's sessions; what it leaves out comes from the server's
 * @param updateTime when the settings were last changed; null before the first change
 * @param etag the mark of the settings for a conditional update
 * @param loadMemory whether memory is rendered for the agent
 * @param runRetention how long runs of the agent's sessions are kept after they ended; zero for ever, null as the
 *     server's settings say (30 days by default)
 */
public record AgentInfo(
    String agent,
    Policy policy,
    Instant updateTime,
    String etag,
    boolean loadMemory,
    Duration runRetention) {}
