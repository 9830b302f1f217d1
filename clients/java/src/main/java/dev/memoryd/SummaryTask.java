package dev.memoryd;

import dev.memoryd.v1.AbandonSummaryTaskRequest;
import dev.memoryd.v1.CommitSummaryRequest;
import dev.memoryd.v1.SummaryServiceGrpc;
import java.time.Instant;
import java.util.List;

/** The work for one summary, leased to the iteration that gave it: {@link SummaryTasks}. */
public final class SummaryTask {
  private final Caller caller;
  private final dev.memoryd.v1.SummaryTask task;
  private final List<Message> messages;
  private volatile boolean settled;

  SummaryTask(Caller caller, dev.memoryd.v1.SummaryTask task) {
    this.caller = caller;
    this.task = task;
    this.messages = Protos.messages(task.getMessagesList());
    caller.connection().lease(this, () -> abandon(caller.within(Connection.RELEASE), false));
  }

  /** The agent of the session that is summarized. */
  public String agent() {
    return task.getSession().getAgent();
  }

  /** The id of the session that is summarized. */
  public String sessionId() {
    return task.getSession().getSessionId();
  }

  /** The text of the summary so far, which has to be part of the new one; empty for none. */
  public String previous() {
    return task.getPreviousSummary();
  }

  /**
   * The messages to fold, oldest first. Empty where they are one group larger than 3 MiB: {@link #input} has it, with its
   * longest texts shortened.
   */
  public List<Message> messages() {
    return messages;
  }

  /** What a model is to do and to keep: its system prompt. */
  public String instructions() {
    return task.getInstructions();
  }

  /** The previous summary and the messages, fenced and escaped, for a model to read after the instructions. */
  public String input() {
    return task.getInput();
  }

  /** Instructions and input in one text, for a model that takes one. */
  public String prompt() {
    return instructions() + "\n\n" + input();
  }

  /** How many tokens the summary should have. */
  public long targetTokens() {
    return task.getTargetTokens();
  }

  /** How many it may have: what is over it is cut at the end of a sentence. */
  public long maxTokens() {
    return task.getMaxTokens();
  }

  /** How often this fold was tried before. */
  public int attempts() {
    return task.getAttempts();
  }

  /** When the lease ends. */
  public Instant expires() {
    return Protos.instant(task.getExpireTime());
  }

  /** Whether it is committed, void or given up. */
  public boolean isSettled() {
    return settled;
  }

  /** Commits the summary, and gives it. Like {@link #commit(String, String)}, without a model's name. */
  public Summary commit(String text) {
    return commit(text, "");
  }

  /**
   * Commits the summary, and gives it. Safe to repeat: the first answer comes again.
   *
   * <p>{@link MemorydException.SummaryTaskVoid} when the lease is over or the history changed where the task lies; {@link
   * MemorydException.FieldInvalid} for a text that is empty or white, which is none: abandon the task instead.
   *
   * @param text the summary, at most 1 MiB; what is over {@link #maxTokens} is cut at the end of a sentence
   * @param model the name of the model that made it, for the record; at most 256 bytes
   */
  public Summary commit(String text, String model) {
    CommitSummaryRequest request =
        CommitSummaryRequest.newBuilder()
            .setSession(task.getSession())
            .setTaskToken(task.getTaskToken())
            .setText(Protos.text(text, "text"))
            .setModel(Protos.text(model, "model"))
            .build();
    try {
      Summary summary =
          Protos.summary(caller.call(SummaryServiceGrpc.getCommitSummaryMethod(), request).getSummary());
      settle();
      return summary;
    } catch (MemorydException.SummaryTaskVoid isVoid) {
      settle();
      throw isVoid;
    }
  }

  /**
   * Gives the task up. Nothing happens when it is committed or its lease is over.
   *
   * @param failed whether the model failed: the task then waits before it is leased again; otherwise it is free for others at
   *     once
   */
  public void abandon(boolean failed) {
    abandon(caller, failed);
  }

  private void abandon(Caller with, boolean failed) {
    if (!settled) {
      settle();
      with.call(
          SummaryServiceGrpc.getAbandonSummaryTaskMethod(),
          AbandonSummaryTaskRequest.newBuilder()
              .setSession(task.getSession())
              .setTaskToken(task.getTaskToken())
              .setFailed(failed)
              .build());
    }
  }

  private void settle() {
    settled = true;
    caller.connection().settled(this);
  }

  @Override
  public String toString() {
    return "SummaryTask[agent="
        + agent()
        + ", sessionId="
        + sessionId()
        + ", messages="
        + messages.size()
        + ", attempts="
        + attempts()
        + "]";
  }
}
