package dev.memoryd;

import dev.memoryd.v1.ClaimRunRequest;
import dev.memoryd.v1.ClaimRunResponse;
import dev.memoryd.v1.CommitRunStepRequest;
import dev.memoryd.v1.CommitRunStepResponse;
import dev.memoryd.v1.CreateRunRequest;
import dev.memoryd.v1.CreateRunResponse;
import dev.memoryd.v1.ListRunStepsRequest;
import dev.memoryd.v1.ListRunStepsResponse;
import dev.memoryd.v1.ReleaseRunRequest;
import dev.memoryd.v1.RenewRunLeaseRequest;
import dev.memoryd.v1.RunKey;
import dev.memoryd.v1.RunServiceGrpc;
import dev.memoryd.v1.SessionKey;
import io.grpc.Status;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A run that is held. Made by {@link MemoryClient#run}, {@link MemoryClient#openRun}, {@link MemoryClient#claim} and {@link
 * MemoryClient#claims}. While it is held, a thread renews its lease every third of it.
 *
 * <pre>{@code
 * memory.run(session, RunOptions.DEFAULT, run -> {
 *   run.step(Payload.json(Map.of("flight", "LH 1")), Message.assistant("I would take LH 1."));
 *   run.pause(RunStatus.AWAITING_APPROVAL, "books a flight");
 * });
 * }</pre>
 *
 * <p>{@link #work} records how its body went: COMPLETED; FAILED with the exception, which goes on; INTERRUPTED when the thread
 * was interrupted, so that another worker goes on behind the last step. After {@link #pause} or {@link #finish} it changes
 * nothing. A run that is worked at without {@code work} is ended by {@link #finish} or {@link #pause}, and {@link #close}
 * releases it for any worker if neither was called.
 *
 * <p>When the lease is lost (another worker claimed the run, somebody changed its status, no renewal got through in time, the
 * client was closed, which leaves the run to other workers), nothing of it can be written any more: the thread in {@code work} is interrupted, {@code work} throws {@link
 * MemorydException.RunLeaseLost}, and so does the next call of the run. {@link #isHeld} tells before.
 */
public final class Run implements AutoCloseable {
  /** What recording how a run stands may take while an exception waits for it; otherwise its lease ends by itself. */
  private static final Duration DRAIN = Duration.ofSeconds(10);

  /** Before a renewal that failed is tried again, at most; a tenth of the lease where that is less. */
  private static final long LONGEST_RETRY_NANOS = TimeUnit.SECONDS.toNanos(1);

  private static final int MOST_REASON_BYTES = 4_096;

  private enum Phase {
    HELD,
    /** It was paused, ended or released by this holder. */
    GIVEN_BACK,
    /** It was left to others without this holder's doing: its client was closed. */
    LEFT,
    /** It is not this holder's any more. */
    LOST
  }

  /**
   * What is done while a run is held.
   *
   * @param <E> what it throws
   */
  @FunctionalInterface
  public interface Body<E extends Exception> {
    /** Works at the run. */
    void run(Run run) throws E;
  }

  private final Caller caller;
  private final Session session;
  private final RunKey key;
  private final String holder;
  private final String metadata;
  private final String fence;
  private final long leaseNanos;
  private final ReentrantLock calls = new ReentrantLock();
  private final CountDownLatch stopped = new CountDownLatch(1);

  // Guarded by this.
  private Phase phase = Phase.HELD;
  private boolean givingBack;
  private MemorydException failure;
  private RunStatus status;
  private long steps;
  private long until;
  private Thread worker;
  private boolean interrupted;
  private boolean entered;

  private Run(
      Caller caller,
      Session session,
      dev.memoryd.v1.Run run,
      String holder,
      String fence,
      Duration lease,
      long since) {
    this.caller = caller;
    this.session = session;
    this.key = run.getKey();
    this.holder = holder;
    this.metadata = run.getMetadata();
    this.fence = fence;
    this.leaseNanos = lease.toNanos();
    this.status = RunStatus.of(run.getStatusValue());
    this.steps = run.getStepCount();
    // So that the lease lasts no longer here than in the store.
    this.until = since + leaseNanos;
  }

  static Run created(Caller client, Session session, RunOptions options) {
    Caller caller = client.pinned();
    String holder = RunCalls.holder(options);
    CreateRunRequest request =
        RunCalls.creation(session, options)
            .setHolder(holder)
            .setLeaseDuration(Protos.duration(options.lease()))
            .build();
    long since = System.nanoTime();
    CreateRunResponse response = caller.call(RunServiceGrpc.getCreateRunMethod(), request);
    return held(
        new Run(caller, session, response.getRun(), holder, response.getFence(), options.lease(), since));
  }

  static Run claimed(Caller client, Session session, String id, RunOptions options) {
    Caller caller = client.pinned();
    String holder = RunCalls.holder(options);
    ClaimRunRequest request =
        ClaimRunRequest.newBuilder()
            .setRun(RunCalls.key(session, id))
            .setHolder(holder)
            .setLeaseDuration(Protos.duration(options.lease()))
            .setRequestId(Ids.newId())
            .build();
    long since = System.nanoTime();
    ClaimRunResponse response = RunCalls.claimByName(caller.begin(), request);
    return held(
        new Run(caller, session, response.getRun(), holder, response.getFence(), options.lease(), since));
  }

  /** Claims any run of an agent that waits; null when none does. {@code caller} is pinned. */
  static Run claimedOf(Caller caller, String agent, RunOptions options) {
    String holder = RunCalls.holder(options);
    ClaimRunRequest request =
        ClaimRunRequest.newBuilder()
            .setAgent(Protos.text(agent, "agent"))
            .setHolder(holder)
            .setLeaseDuration(Protos.duration(options.lease()))
            .build();
    long since = System.nanoTime();
    ClaimRunResponse response = caller.call(RunServiceGrpc.getClaimRunMethod(), request);
    if (!response.hasRun()) {
      return null;
    }
    Session session = new Session(caller, response.getRun().getKey().getSession());
    return held(
        new Run(caller, session, response.getRun(), holder, response.getFence(), options.lease(), since));
  }

  private static Run held(Run run) {
    run.caller.connection().lease(run, run::leaveToOthers);
    Thread renewer = new Thread(run::keep, "memoryd-run-lease");
    renewer.setDaemon(true);
    renewer.start();
    return run;
  }

  /** The session whose messages the run produces. */
  public Session session() {
    return session;
  }

  /** The run's id, unique within its session. */
  public String id() {
    return key.getRunId();
  }

  /** Who holds it, for people to read. */
  public String holder() {
    return holder;
  }

  /** The caller's own data. */
  public String metadata() {
    return metadata;
  }

  /**
   * Proves that the run is held. Of two fences of a session, the later one is greater, so that other systems can tell a late
   * write too.
   */
  public String fence() {
    return fence;
  }

  /** How it stood when this holder last changed it. */
  public synchronized RunStatus status() {
    return status;
  }

  /** How many steps are committed, as far as this holder knows. */
  public synchronized long steps() {
    return steps;
  }

  /** Whether this holder may write, as far as is known: its lease lasts, and it was not given back. */
  public synchronized boolean isHeld() {
    return phase == Phase.HELD && System.nanoTime() - until < 0;
  }

  @Override
  public String toString() {
    return "Run[" + id() + ", " + session + "]";
  }

  /**
   * Does the body's work, and records how it went. Once, and on the calling thread.
   *
   * @throws MemorydException.RunLeaseLost when the run is not held any more; what the body threw then is suppressed in it
   */
  public <E extends Exception> void work(Body<E> body) throws E {
    Objects.requireNonNull(body, "body");
    enter();
    Throwable thrown = null;
    try {
      body.run(this);
    } catch (Throwable failed) { // Whatever it is: it goes on once it is recorded.
      thrown = failed;
    }
    leave();
    try {
      boolean wasInterrupted = Thread.interrupted();
      try {
        record(thrown, wasInterrupted);
      } finally {
        if (wasInterrupted) {
          Thread.currentThread().interrupt();
        }
      }
    } finally {
      stop();
    }
    if (thrown != null) {
      throw Run.<E>asThrown(thrown);
    }
  }

  @SuppressWarnings("unchecked")
  private static <E extends Exception> E asThrown(Throwable thrown) {
    if (thrown instanceof Error error) {
      throw error;
    }
    // A body throws nothing else.
    return (E) thrown;
  }

  private synchronized void enter() {
    check();
    if (worker != null) {
      throw new IllegalStateException(this + " is worked at already");
    }
    entered = true;
    worker = Thread.currentThread();
  }

  private synchronized void leave() {
    worker = null;
    if (interrupted) {
      // It was meant for the body, and is told by an exception from here on.
      Thread.interrupted();
    }
  }

  /** Records how the body was left. */
  private void record(Throwable thrown, boolean wasInterrupted) {
    synchronized (this) {
      if (phase == Phase.HELD && System.nanoTime() - until >= 0) {
        lose(failure);
      }
      if (phase == Phase.LOST || phase == Phase.LEFT) {
        if (thrown instanceof MemorydException.RunLeaseLost) {
          return;
        }
        MemorydException.RunLeaseLost loss = loss();
        if (thrown != null) {
          loss.addSuppressed(thrown);
        }
        throw loss;
      }
      if (phase == Phase.GIVEN_BACK) {
        return;
      }
    }
    if (thrown == null) {
      giveBack(RunStatus.COMPLETED, "", null, new Message[0], caller.timeout());
      return;
    }
    Duration time = recordingTime();
    try {
      if (isInterruption(thrown, wasInterrupted)) {
        release(reasonOf(thrown), time);
      } else {
        giveBack(RunStatus.FAILED, reasonOf(thrown), null, new Message[0], time);
      }
    } catch (MemorydException failed) {
      // It must not hide what is on its way.
      Outage.LOG.log(
          System.Logger.Level.WARNING, "how " + this + " ended could not be recorded: " + failed.getMessage());
      thrown.addSuppressed(failed);
    }
  }

  private static boolean isInterruption(Throwable thrown, boolean wasInterrupted) {
    return thrown instanceof InterruptedException
        || thrown instanceof CancellationException
        || thrown instanceof MemorydException.Cancelled
        || (wasInterrupted && thrown instanceof Exception);
  }

  /** {@code TypeName: message}, cut to what a reason may hold, as UTF-8 can say it. */
  private static String reasonOf(Throwable thrown) {
    String name = thrown.getClass().getSimpleName();
    String text = thrown.getMessage() == null ? name : name + ": " + thrown.getMessage();
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    int end = Math.min(bytes.length, MOST_REASON_BYTES);
    while (end < bytes.length && end > 0 && (bytes[end] & 0xC0) == 0x80) {
      end--;
    }
    return new String(bytes, 0, end, StandardCharsets.UTF_8);
  }

  private Duration recordingTime() {
    long left;
    synchronized (this) {
      left = until - System.nanoTime();
    }
    long most = Math.min(Math.min(nanos(caller.timeout()), DRAIN.toNanos()), left);
    return Duration.ofNanos(Math.max(1, most));
  }

  private static long nanos(Duration duration) {
    return duration.compareTo(DRAIN) > 0 ? DRAIN.toNanos() : duration.toNanos();
  }

  /**
   * Commits the run's next step and the messages that it produced, all or none, and gives it.
   *
   * <p>Tried again by itself, and committed once. When an answer stays out all the same, repeat it with the same payload and the
   * same Message objects; another step is {@link MemorydException.StepMismatch} then, if the first was committed. {@link
   * MemorydException.MessageIdConflict} for messages that are stored already.
   *
   * @param payload what a worker needs to go on behind this step
   * @param messages at most 256, together at most 3.5 MiB; they get the run's id
   */
  public RunStep step(Payload payload, Message... messages) {
    Objects.requireNonNull(payload, "payload");
    Objects.requireNonNull(messages, "messages");
    calls.lock();
    try {
      return whileHeld(() -> commit(caller.begin(), payload, messages, null, ""));
    } finally {
      calls.unlock();
    }
  }

  private RunStep commit(
      Caller.Operation operation, Payload payload, Message[] messages, RunStatus next, String reason) {
    CommitRunStepRequest.Builder request =
        CommitRunStepRequest.newBuilder()
            .setRun(key)
            .setFence(fence)
            .setNumber(steps() + 1)
            .setPayload(payload.bytes())
            .setContentType(payload.contentType())
            .setStatusReason(Protos.text(reason, "reason"));
    Arrays.stream(messages).forEach(message -> request.addMessages(Protos.toProto(message)));
    if (next != null) {
      request.setStatus(next.toApi());
    }
    CommitRunStepResponse response =
        operation.call(RunServiceGrpc.getCommitRunStepMethod(), request.build());
    synchronized (this) {
      steps = request.getNumber();
    }
    return new RunStep(
        request.getNumber(),
        payload.bytes(),
        payload.contentType(),
        response.getMessagesCount() == 0 ? 0 : response.getMessages(0).getSeq(),
        response.getMessagesCount(),
        Protos.instant(response.getCreateTime()),
        next == null ? RunStatus.RUNNING : next);
  }

  /**
   * Sets a status with which the run waits, and gives its lease back. Like {@link #pause(RunStatus, String, Payload,
   * Message...)}.
   */
  public void pause(RunStatus status, String reason) {
    pause(status, reason, null);
  }

  /**
   * Sets a status with which the run waits, and gives its lease back. A payload or messages become a step, in one commit with
   * the status.
   *
   * @param status AWAITING_APPROVAL or AWAITING_BUDGET, claimed by name only; or INTERRUPTED, for any worker
   * @param reason why, at most 4 KiB
   * @param payload as in {@link #step}; null for no step, where there are no messages either
   * @param messages as in {@link #step}
   */
  public void pause(RunStatus status, String reason, Payload payload, Message... messages) {
    Objects.requireNonNull(status, "status");
    if (status != RunStatus.AWAITING_APPROVAL
        && status != RunStatus.AWAITING_BUDGET
        && status != RunStatus.INTERRUPTED) {
      throw new IllegalArgumentException("status is " + status + ", with which no run waits; finish ends it");
    }
    giveBack(status, reason, payload, messages, caller.timeout());
  }

  /** Ends the run as COMPLETED, and gives its lease back. */
  public void finish() {
    finish(RunStatus.COMPLETED, "");
  }

  /** Ends the run, and gives its lease back. Like {@link #finish(RunStatus, String, Payload, Message...)}. */
  public void finish(RunStatus status, String reason) {
    finish(status, reason, null);
  }

  /**
   * Ends the run with a status and a reason; otherwise like {@link #pause(RunStatus, String, Payload, Message...)}.
   *
   * @param status COMPLETED, BLOCKED, FAILED, CANCELLED, TIMEOUT or ABANDONED
   * @param reason why, at most 4 KiB
   * @param payload as in {@link #step}; null for no step, where there are no messages either
   * @param messages as in {@link #step}
   */
  public void finish(RunStatus status, String reason, Payload payload, Message... messages) {
    Objects.requireNonNull(status, "status");
    if (!status.isEnd()) {
      throw new IllegalArgumentException(
          "status is " + status + ", with which no run ends; pause gives it back unfinished");
    }
    giveBack(status, reason, payload, messages, caller.timeout());
  }

  /** Reads the last step, behind which to go on, also one whose answer was lost; null when there is none. */
  public RunStep resume() {
    calls.lock();
    try {
      return whileHeld(this::lastStep);
    } finally {
      calls.unlock();
    }
  }

  private RunStep lastStep() {
    Caller.Operation operation = caller.begin();
    RunStep last = null;
    String token = "";
    do {
      ListRunStepsResponse page =
          operation.call(
              RunServiceGrpc.getListRunStepsMethod(),
              ListRunStepsRequest.newBuilder()
                  .setRun(key)
                  .setAfterNumber(Math.max(0, steps() - 1))
                  .setPageToken(token)
                  .build());
      if (page.getStepsCount() > 0) {
        last = Protos.step(page.getSteps(page.getStepsCount() - 1));
      }
      token = page.getNextPageToken();
    } while (!token.isEmpty());
    if (last != null) {
      synchronized (this) {
        steps = last.number();
      }
    }
    return last;
  }

  /**
   * Releases the run for any worker, if it is still held. Nothing happens after {@link #work}, {@link #pause} or {@link
   * #finish}.
   *
   * @throws MemorydException.RunLeaseLost when it was lost, or its client closed, and not worked at by {@code work}
   */
  @Override
  public void close() {
    synchronized (this) {
      if ((phase == Phase.LOST || phase == Phase.LEFT) && !entered) {
        stop();
        throw loss();
      }
      if (phase != Phase.HELD) {
        return;
      }
    }
    try {
      release("", caller.timeout());
    } finally {
      stop();
    }
  }

  private void giveBack(RunStatus next, String reason, Payload payload, Message[] messages, Duration time) {
    Objects.requireNonNull(messages, "messages");
    givingBack(
        next,
        () -> {
          Caller.Operation operation = caller.within(time).begin();
          if (payload == null && messages.length == 0) {
            RunCalls.settle(operation, key, fence, next, reason);
          } else {
            commit(operation, payload == null ? Payload.EMPTY : payload, messages, next, reason);
          }
        });
  }

  private void release(String reason, Duration time) {
    givingBack(RunStatus.INTERRUPTED, () -> callRelease(reason, time));
  }

  private void callRelease(String reason, Duration time) {
    caller
        .within(time)
        .call(
            RunServiceGrpc.getReleaseRunMethod(),
            ReleaseRunRequest.newBuilder()
                .setRun(key)
                .setFence(fence)
                .setStatusReason(Protos.text(reason, "reason"))
                .build());
  }

  private void givingBack(RunStatus next, Runnable action) {
    calls.lock();
    try {
      synchronized (this) {
        givingBack = true;
      }
      try {
        whileHeld(
            () -> {
              action.run();
              return null;
            });
      } finally {
        synchronized (this) {
          givingBack = false;
        }
      }
      synchronized (this) {
        status = next;
        phase = Phase.GIVEN_BACK;
      }
      stop();
    } finally {
      calls.unlock();
    }
  }

  /** Gives the run back for any worker, if it is held; a lease that cannot be ends by itself. */
  void abandon() {
    synchronized (this) {
      if (phase != Phase.HELD) {
        return;
      }
    }
    try {
      release("", Connection.RELEASE);
    } catch (MemorydException failed) {
      Outage.LOG.log(System.Logger.Level.WARNING, this + " could not be released: " + failed.getMessage());
    } finally {
      stop();
    }
  }

  /**
   * Leaves the run to other workers, since its client is closed: the thread in {@link #work} is interrupted, and the server told,
   * so that nobody has to wait until the lease is over.
   */
  private void leaveToOthers() {
    boolean endsNow;
    synchronized (this) {
      endsNow = phase == Phase.HELD && givingBack;
    }
    if (endsNow) {
      // The end that is under way counts, unless it fails.
      calls.lock();
      calls.unlock();
    }
    synchronized (this) {
      if (phase != Phase.HELD) {
        return;
      }
      phase = Phase.LEFT;
      interruptWorker();
    }
    try {
      // Not behind a step that is under way: the server takes them in their order, or refuses the step.
      callRelease("", Connection.RELEASE);
    } catch (MemorydException failed) {
      Outage.LOG.log(System.Logger.Level.WARNING, this + " could not be released: " + failed.getMessage());
    } finally {
      stop();
    }
  }

  synchronized boolean isEntered() {
    return entered;
  }

  private void stop() {
    stopped.countDown();
    caller.connection().settled(this);
  }

  /** What only the holder may do. RunLeaseLost from then on, when that is not this one. */
  private <T> T whileHeld(java.util.function.Supplier<T> action) {
    check();
    try {
      return action.get();
    } catch (MemorydException error) {
      if (!isLoss(error)) {
        throw error;
      }
      synchronized (this) {
        lose(error);
      }
      stop();
      throw loss();
    }
  }

  private synchronized void check() {
    if (phase == Phase.GIVEN_BACK) {
      throw new IllegalStateException(this + " was given back; claim it to go on");
    }
    if (!isHeld()) {
      lose(failure);
      throw loss();
    }
  }

  /** Whether an error says that the run is not this holder's any more, or is gone. */
  private static boolean isLoss(MemorydException error) {
    return error instanceof MemorydException.RunLeaseLost
        || error instanceof MemorydException.RunEnded
        || error instanceof MemorydException.NotFound;
  }

  private synchronized void lose(MemorydException why) {
    if (phase == Phase.HELD) {
      phase = Phase.LOST;
      failure = why;
      interruptWorker();
    }
  }

  private synchronized void interruptWorker() {
    if (worker != null && worker != Thread.currentThread()) {
      interrupted = true;
      worker.interrupt();
    }
  }

  private synchronized MemorydException.RunLeaseLost loss() {
    if (phase == Phase.LEFT) {
      return loss(
          "the run "
              + id()
              + " is not held any more: its client was closed, which left it to other workers, and it is not recorded as "
              + "completed. Claim it to go on; close the client behind its work",
          null);
    }
    String message =
        failure != null && isLoss(failure)
            ? "the run " + id() + " is not held any more: " + failure.text()
            : "the lease of the run "
                + id()
                + " is over: none of its renewals got through within "
                + Duration.ofNanos(leaseNanos).toMillis() / 1000.0
                + " s. Stop working at it; claim it to go on";
    return loss(message, failure);
  }

  private MemorydException.RunLeaseLost loss(String message, MemorydException cause) {
    SessionKey of = key.getSession();
    return new MemorydException.RunLeaseLost(
        new MemorydException.Details(
            message,
            Status.Code.FAILED_PRECONDITION,
            "LEASE_LOST",
            Map.of("agent", of.getAgent(), "session_id", of.getSessionId(), "run_id", id()),
            cause));
  }

  /** Renews the lease until the run is lost or given back. */
  private void keep() {
    try {
      while (isToBeRenewed() && !stopped.await(nanosToRenewal(), TimeUnit.NANOSECONDS)) {
        if (!isToBeRenewed()) {
          return;
        }
        long since = System.nanoTime();
        try {
          caller
              .within(renewalTime())
              .call(
                  RunServiceGrpc.getRenewRunLeaseMethod(),
                  RenewRunLeaseRequest.newBuilder()
                      .setRun(key)
                      .setFence(fence)
                      .setLeaseDuration(Protos.duration(Duration.ofNanos(leaseNanos)))
                      .build());
          synchronized (this) {
            until = since + leaseNanos;
            failure = null;
          }
        } catch (MemorydException failed) {
          notRenewed(failed);
        }
      }
    } catch (InterruptedException | IllegalStateException closed) {
      // The client is closed: what it held is given back, or its lease ends by itself.
      stopped.countDown();
    }
  }

  /** Takes note of a renewal that failed. While the run is given back, that may be why. */
  private synchronized void notRenewed(MemorydException failed) {
    if (isLoss(failed) && !givingBack) {
      lose(failed);
    } else if (phase == Phase.HELD) {
      failure = failed;
    }
  }

  /** Whether the run is held; it is lost once its lease is over. */
  private synchronized boolean isToBeRenewed() {
    if (phase == Phase.HELD && !givingBack && System.nanoTime() - until >= 0) {
      lose(failure);
    }
    return phase == Phase.HELD;
  }

  /** The pause before the next renewal: a third of the lease, or less after one that failed. */
  private synchronized long nanosToRenewal() {
    long left = until - System.nanoTime();
    long longest = Math.max(2, Math.min(LONGEST_RETRY_NANOS, leaseNanos / 10));
    long again = ThreadLocalRandom.current().nextLong(longest / 2, longest);
    if (left <= 0) {
      return again;
    }
    return Math.min(left, failure == null ? Math.max(0, left - leaseNanos / 3 * 2) : again);
  }

  /** What one renewal may take, so that there is time for another. */
  private synchronized Duration renewalTime() {
    long left = until - System.nanoTime();
    return Duration.ofNanos(Math.max(1, left <= 0 ? leaseNanos / 3 : Math.min(left, leaseNanos / 3)));
  }
}
