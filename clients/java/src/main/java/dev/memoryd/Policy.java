package dev.memoryd;

import java.util.Objects;

/**
 * The stored policy of a session or an agent.
 *
 * @param window how windows are cut when a request leaves options out
 * @param summary how histories are folded; null: as the more general policy says, and the server's own folds nothing
 */
public record Policy(WindowOptions window, SummaryPolicy summary) {
  /** Makes it. */
  public Policy {
    Objects.requireNonNull(window, "window");
  }

  /** A policy of windows alone. */
  public static Policy of(WindowOptions window) {
    return new Policy(window, null);
  }

  /** The policy with summaries. */
  public Policy withSummary(SummaryPolicy summary) {
    return new Policy(window, summary);
  }
}
