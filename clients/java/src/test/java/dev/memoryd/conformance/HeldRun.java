package dev.memoryd.conformance;

import dev.memoryd.Run;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

/** A run whose body is at work, in a thread of its own, as a user's would be: it waits to be told how to end. */
final class HeldRun {
  /** How the SDK is asked for a run and given its body. It ends when the body has, or without one where there is no run. */
  @FunctionalInterface
  interface Way {
    void enter(Run.Body<Exception> body) throws Exception;
  }

  private final CompletableFuture<Run> entered = new CompletableFuture<>();

  /** With the exception that the body is to end with; null for none. */
  private final CompletableFuture<Exception> leaving = new CompletableFuture<>();

  /** With what the SDK threw; null for nothing. */
  private final CompletableFuture<Throwable> left = new CompletableFuture<>();

  private final Thread thread;

  private HeldRun(Way way) {
    thread = new Thread(() -> hold(way), "conformance-run");
    thread.setDaemon(true);
  }

  /** Enters the body of a run, which may take its time. Null where there was none; throws what the SDK throws before. */
  static HeldRun enter(Way way) throws Exception {
    HeldRun held = new HeldRun(way);
    held.thread.start();
    try {
      return held.entered.get() == null ? null : held;
    } catch (ExecutionException failed) {
      throw thrown(failed.getCause());
    }
  }

  private void hold(Way way) {
    Throwable thrown = null;
    try {
      way.enter(this::body);
    } catch (Throwable failed) { // Whatever it is: whoever leaves the run is told.
      thrown = failed;
    }
    left.complete(thrown);
    if (thrown == null) {
      entered.complete(null);
    } else {
      entered.completeExceptionally(thrown);
    }
  }

  private void body(Run run) throws Exception {
    entered.complete(run);
    Exception error = leaving.get();
    if (error != null) {
      throw error;
    }
  }

  Run run() {
    return entered.join();
  }

  /** Ends the body as it would by itself, with an exception unless that is null. */
  void leave(Exception error) throws Exception {
    leaving.complete(error);
    Throwable thrown = left.get();
    if (thrown != null && thrown != error) {
      throw thrown(thrown);
    }
  }

  /** Ends the body from outside. */
  void cancel() throws Exception {
    thread.interrupt();
    Throwable thrown = left.get();
    if (thrown != null && !(thrown instanceof InterruptedException)) {
      throw thrown(thrown);
    }
  }

  private static Exception thrown(Throwable thrown) {
    if (thrown instanceof Error error) {
      throw error;
    }
    return (Exception) thrown;
  }
}
