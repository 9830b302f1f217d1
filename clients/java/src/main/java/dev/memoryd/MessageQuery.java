package dev.memoryd;

import java.time.Instant;
import java.util.List;

/**
 * Which messages of a session to list, and how.
 *
 * @param order oldest or newest first
 * @param view the current summary and what it does not cover, or all that is stored
 * @param roles only these roles; empty for all
 * @param runId only messages of this run; empty for all
 * @param fromSeq only from this seq on; 0 for no bound
 * @param toSeq only up to this seq, itself included; 0 for no bound
 * @param fromTime only messages stored at this time or later; null for no bound
 * @param toTime only messages stored before this time; null for no bound
 */
public record MessageQuery(
    ListOrder order,
    MessageView view,
    List<Role> roles,
    String runId,
    long fromSeq,
    long toSeq,
    Instant fromTime,
    Instant toTime) {

  /** The active messages, oldest first. */
  public static final MessageQuery ACTIVE =
      new MessageQuery(ListOrder.ASCENDING, MessageView.ACTIVE, List.of(), "", 0, 0, null, null);

  /** Every message that is stored, oldest first. */
  public static final MessageQuery ALL =
      new MessageQuery(ListOrder.ASCENDING, MessageView.ALL, List.of(), "", 0, 0, null, null);

  /** Makes it. */
  public MessageQuery {
    roles = List.copyOf(roles);
  }

  /** Newest first. */
  public MessageQuery newestFirst() {
    return new MessageQuery(ListOrder.DESCENDING, view, roles, runId, fromSeq, toSeq, fromTime, toTime);
  }

  /** Only these roles. */
  public MessageQuery withRoles(Role... roles) {
    return new MessageQuery(order, view, List.of(roles), runId, fromSeq, toSeq, fromTime, toTime);
  }

  /** Only messages of this run. */
  public MessageQuery withRunId(String runId) {
    return new MessageQuery(order, view, roles, runId, fromSeq, toSeq, fromTime, toTime);
  }

  /** Only seqs from one to another, both included; 0 for no bound. */
  public MessageQuery withSeqs(long fromSeq, long toSeq) {
    return new MessageQuery(order, view, roles, runId, fromSeq, toSeq, fromTime, toTime);
  }

  /** Only messages stored from one time on and before another; null for no bound. */
  public MessageQuery withTimes(Instant fromTime, Instant toTime) {
    return new MessageQuery(order, view, roles, runId, fromSeq, toSeq, fromTime, toTime);
  }
}
