package dev.memoryd;

import dev.memoryd.v1.HistoryServiceGrpc;
import dev.memoryd.v1.SessionKey;
import dev.memoryd.v1.WatchMessagesRequest;
import dev.memoryd.v1.WatchMessagesResponse;
import io.grpc.Context;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * What happens to a session, as an iterator. Made by {@link Session#watch}; close it.
 *
 * <p>{@link #next} waits for the next event. After an error it can be called again, and goes on behind the last event that it
 * gave. One thread reads; any may close, and the reader then finds that there is no next event. A reader that is interrupted
 * gets {@link MemorydException.Cancelled}.
 */
public final class Watch implements Iterator<WatchEvent>, Iterable<WatchEvent>, AutoCloseable {
  private static final long FIRST_PAUSE_MS = 100;
  private static final long LONGEST_PAUSE_MS = 5_000;

  /** More than it takes to get from the first pause to the longest. */
  private static final int MOST_DOUBLINGS = 10;

  /** What a lost connection may look like from behind a proxy, when no server of memoryd gave the reason. */
  private static final Set<Status.Code> LOST_ON_THE_WAY =
      Set.of(Status.Code.CANCELLED, Status.Code.INTERNAL, Status.Code.UNKNOWN);

  private final Caller caller;
  private final SessionKey session;
  private final Long afterSeq;
  private final Duration retryFor;
  private final CountDownLatch closed = new CountDownLatch(1);
  private final Deque<WatchEvent> waiting = new ArrayDeque<>();
  private volatile String resumeToken;
  private volatile Context.CancellableContext context;
  private Iterator<WatchMessagesResponse> answers;
  private String tokenBehind = "";
  private boolean stands;
  private boolean stoodEver;
  private long standsSince;
  private int inVain;
  private boolean isInVain;
  private long inVainSince;

  /**
   * Where a watch begins, and how long it tries to resume.
   *
   * @param resumeToken behind the event that had this token; null for none. After more than 24 hours, or in another session of
   *     this name, the first event is of kind RESYNC: read the session anew
   * @param afterSeq behind this seq; 0 begins with the oldest message; null for what happens from now on
   * @param retryFor for how long it tries to resume before it throws what is in the way; null for ever
   */
  public record Options(String resumeToken, Long afterSeq, Duration retryFor) {
    /** With what happens from now on. */
    public static final Options FROM_NOW = new Options(null, null, null);

    /** Makes it. */
    public Options {
      if (resumeToken != null && afterSeq != null) {
        throw new IllegalArgumentException("a watch begins at one place: give either resumeToken or afterSeq");
      }
    }

    /** Behind the event that had this token. */
    public static Options resuming(String resumeToken) {
      return new Options(resumeToken, null, null);
    }

    /** Behind this seq. */
    public static Options after(long seq) {
      return new Options(null, seq, null);
    }

    /** For how long it tries to resume. */
    public Options withRetryFor(Duration retryFor) {
      return new Options(resumeToken, afterSeq, retryFor);
    }
  }

  private Watch(Caller caller, SessionKey session, Options options) {
    Objects.requireNonNull(options, "options");
    this.caller = caller;
    this.session = session;
    this.resumeToken = Protos.optional(options.resumeToken(), "resumeToken");
    this.afterSeq = options.afterSeq();
    this.retryFor = options.retryFor();
  }

  static Watch begin(Caller caller, SessionKey session, Options options) {
    Watch watch = new Watch(caller, session, options);
    try {
      while (!watch.stands) {
        watch.read();
      }
    } catch (RuntimeException failed) {
      watch.close();
      throw failed;
    }
    return watch;
  }

  /** Resumes a watch behind the last event that this one gave. */
  public String resumeToken() {
    return resumeToken;
  }

  /** This watch itself: there is one iteration. */
  @Override
  public Iterator<WatchEvent> iterator() {
    return this;
  }

  /** Waits for the next event. False once the watch is closed. */
  @Override
  public boolean hasNext() {
    while (!isClosed()) {
      if (!waiting.isEmpty()) {
        return true;
      }
      read();
    }
    return false;
  }

  @Override
  public WatchEvent next() {
    if (!hasNext()) {
      throw new NoSuchElementException("the watch is closed");
    }
    WatchEvent event = waiting.remove();
    if (!event.resumeToken().isEmpty()) {
      resumeToken = event.resumeToken();
    }
    handOnToken();
    return event;
  }

  /** Ends the watch. */
  @Override
  public void close() {
    closed.countDown();
    Context.CancellableContext call = context;
    if (call != null) {
      call.cancel(null);
    }
  }

  private boolean isClosed() {
    return closed.getCount() == 0;
  }

  /** Takes one answer in, or pauses after a failure. Throws what ends the watch. */
  private void read() {
    MemorydException error;
    try {
      if (answers == null) {
        context = Context.ROOT.withCancellation();
        answers = caller.follow(HistoryServiceGrpc.getWatchMessagesMethod(), request(), context);
      }
      if (isClosed()) {
        // Before there was a call that closing could cancel.
        context.cancel(null);
      }
      if (answers.hasNext()) {
        answered(answers.next());
        return;
      }
      error =
          new MemorydException.Unavailable(
              MemorydException.details(
                  "the watch was ended at " + caller.connection().address, Status.Code.UNAVAILABLE));
    } catch (StatusRuntimeException failed) {
      error = caller.typed(failed, HistoryServiceGrpc.getWatchMessagesMethod());
    } catch (RuntimeException failed) {
      forgetCall();
      throw failed;
    }
    forgetCall();
    if (Thread.currentThread().isInterrupted()) {
      throw error;
    }
    if (!isClosed() && !caller.connection().isClosed()) {
      pause(brokeOff(error));
    } else if (!isClosed()) {
      throw new IllegalStateException("this client is closed; make a new MemoryClient");
    }
  }

  private void pause(long milliseconds) {
    try {
      closed.await(milliseconds, TimeUnit.MILLISECONDS);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new MemorydException.Cancelled(
          MemorydException.details("interrupted between two tries to resume a watch", Status.Code.CANCELLED));
    }
  }

  private void forgetCall() {
    answers = null;
    Context.CancellableContext call = context;
    context = null;
    if (call != null) {
      call.cancel(null);
    }
  }

  private WatchMessagesRequest request() {
    WatchMessagesRequest.Builder request =
        WatchMessagesRequest.newBuilder().setSession(session).setResumeToken(resumeToken);
    if (resumeToken.isEmpty() && afterSeq != null) {
      request.setAfterSeq(afterSeq);
    }
    return request.build();
  }

  private void answered(WatchMessagesResponse response) {
    caller.connection().answered();
    for (dev.memoryd.v1.WatchEvent event : response.getEventsList()) {
      waiting.add(Protos.event(event));
    }
    if (!stands) {
      stands = true;
      stoodEver = true;
      standsSince = System.nanoTime();
      if (isInVain) {
        Outage.LOG.log(System.Logger.Level.INFO, "the watch of session " + session.getSessionId() + " goes on");
        isInVain = false;
      }
    }
    tokenBehind = response.getResumeToken();
    handOnToken();
  }

  private void handOnToken() {
    if (waiting.isEmpty() && !tokenBehind.isEmpty()) {
      resumeToken = tokenBehind;
    }
  }

  /** The milliseconds to pause before the watch is resumed. Throws the error when that is of no use. */
  private long brokeOff(MemorydException error) {
    if (!mayPass(error)) {
      throw error;
    }
    long now = System.nanoTime();
    if (stands && now - standsSince >= TimeUnit.MILLISECONDS.toNanos(LONGEST_PAUSE_MS)) {
      inVain = 0;
    }
    stands = false;
    long since = isInVain ? inVainSince : now;
    if (retryFor != null && now - since >= retryFor.toNanos()) {
      throw error;
    }
    if (!isInVain) {
      isInVain = true;
      inVainSince = since;
      Outage.LOG.log(
          System.Logger.Level.WARNING,
          "the watch of session " + session.getSessionId() + " broke off and is resumed: " + error.getMessage());
    }
    long longest = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS << inVain);
    inVain = Math.min(inVain + 1, MOST_DOUBLINGS);
    return ThreadLocalRandom.current().nextLong(longest / 2, longest + 1);
  }

  private boolean mayPass(MemorydException error) {
    boolean isTls = error instanceof MemorydException.TlsFailed;
    if (!isTls
        && (error instanceof MemorydException.Unavailable
            || error instanceof MemorydException.WatchStalled
            || error instanceof MemorydException.TooManyWatchers
            || error instanceof MemorydException.DeadlineExceeded)) {
      return true;
    }
    boolean lost = isTls || (error.reason().isEmpty() && LOST_ON_THE_WAY.contains(error.code()));
    return lost && stoodEver;
  }
}
