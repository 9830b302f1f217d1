package dev.memoryd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class RunTest {
  private static final RunOptions SHORT = RunOptions.DEFAULT.withLease(Duration.ofSeconds(2));

  private MemoryClient memory;
  private String agent;
  private Session session;

  @BeforeEach
  void connect() {
    memory = TestServer.shared().client();
    agent = "java-" + Ids.newId();
    session = memory.session(agent);
  }

  @AfterEach
  void close() {
    memory.close();
  }

  private RunInfo only() {
    List<RunInfo> runs = memory.runs(session).stream().toList();
    assertEquals(1, runs.size());
    return runs.get(0);
  }

  @Test
  void aRunIsPausedInOnePlaceAndGoesOnInAnother() throws Exception {
    memory.run(
        session,
        RunOptions.DEFAULT.withId("run-7").withMetadata(Map.of("goal", "a seat")),
        run -> {
          RunStep step = run.step(Payload.json(Map.of("seat", "12A")), Message.assistant("Shall I book 12A?"));
          assertEquals(1, step.number());
          assertEquals(1, step.firstSeq());
          assertEquals(RunStatus.RUNNING, step.status());
          run.pause(RunStatus.AWAITING_APPROVAL, "books a seat");
          assertFalse(run.isHeld());
        });
    RunInfo paused = only();
    assertEquals(RunStatus.AWAITING_APPROVAL, paused.status());
    assertEquals("books a seat", paused.reason());
    assertEquals("{\"goal\":\"a seat\"}", paused.metadata());
    assertEquals("run-7", session.message(1).runId());

    try (Run run = memory.claim(session, "run-7", RunOptions.DEFAULT)) {
      assertEquals(Map.of("seat", "12A"), run.resume().json());
      run.finish(RunStatus.COMPLETED, "", Payload.text("booked"), Message.assistant("It is booked."));
    }
    assertEquals(RunStatus.COMPLETED, only().status());
    assertEquals(
        List.of("{\"seat\":\"12A\"}", "booked"),
        memory.runSteps(session, "run-7").stream().map(RunStep::text).toList());
    assertEquals(
        List.of(RunStatus.RUNNING, RunStatus.COMPLETED),
        memory.runSteps(session, "run-7").withPageSize(1).stream().map(RunStep::status).toList());
    assertThrows(MemorydException.RunEnded.class, () -> memory.claim(session, "run-7", RunOptions.DEFAULT));
    assertTrue(memory.deleteRun(session, "run-7"));
    assertThrows(MemorydException.RunNotFound.class, () -> memory.getRun(session, "run-7"));
  }

  @Test
  void howABodyEndsIsRecorded() {
    assertNull(assertDone(run -> assertTrue(run.isHeld()), RunStatus.COMPLETED, ""));
    IllegalStateException failure = new IllegalStateException("no seats");
    assertSame(
        failure,
        assertDone(
            run -> {
              throw failure;
            },
            RunStatus.FAILED,
            "IllegalStateException: no seats"));
    assertDone(
        run -> {
          throw new CancellationException("stopped");
        },
        RunStatus.INTERRUPTED,
        "CancellationException: stopped");
    assertDone(
        run -> {
          Thread.currentThread().interrupt();
          Thread.sleep(1_000);
        },
        RunStatus.INTERRUPTED,
        "InterruptedException: sleep interrupted");
    assertDone(
        run -> {
          Thread.currentThread().interrupt();
          run.step(Payload.EMPTY);
        },
        RunStatus.INTERRUPTED,
        null);
    assertTrue(Thread.interrupted());
  }

  private Throwable assertDone(Run.Body<Exception> body, RunStatus status, String reason) {
    RunOptions options = RunOptions.DEFAULT.withId(Ids.newId());
    Throwable thrown = null;
    try {
      memory.run(session, options, body);
    } catch (Exception failed) {
      thrown = failed;
    }
    boolean interrupted = Thread.interrupted();
    RunInfo info = memory.getRun(session, options.id());
    assertEquals(status, info.status(), String.valueOf(thrown));
    if (reason != null) {
      assertEquals(reason, info.reason());
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
    return thrown;
  }

  @Test
  void aLeaseIsRenewedWhileTheBodyWorks() throws Exception {
    memory.run(
        session,
        SHORT,
        run -> {
          Thread.sleep(4_000);
          assertTrue(run.isHeld());
          run.step(Payload.of(new byte[] {0, 1}));
        });
    assertEquals(RunStatus.COMPLETED, only().status());
  }

  @Test
  void aBodyThatLosesItsLeaseIsInterrupted() {
    long begun = System.nanoTime();
    MemorydException.RunLeaseLost error =
        assertThrows(
            MemorydException.RunLeaseLost.class,
            () ->
                memory.run(
                    session,
                    SHORT,
                    run -> {
                      memory.updateRun(only(), RunStatus.CANCELLED, "changed my mind", null);
                      Thread.sleep(30_000);
                    }));
    assertTrue(System.nanoTime() - begun < Duration.ofSeconds(20).toNanos());
    assertTrue(error.getSuppressed()[0] instanceof InterruptedException);
    assertFalse(Thread.interrupted());
    assertEquals("changed my mind", only().reason());
  }

  @Test
  void aLostRunRefusesItsNextStep() {
    MemorydException.RunLeaseLost error =
        assertThrows(
            MemorydException.RunLeaseLost.class,
            () ->
                memory.run(
                    session,
                    RunOptions.DEFAULT,
                    run -> {
                      memory.updateRun(only(), RunStatus.INTERRUPTED, "", null);
                      run.step(Payload.text("late"));
                    }));
    assertEquals(0, only().steps());
    assertEquals(session.id(), error.metadata().get("session_id"));
  }

  @Test
  void aRunThatIsClosedWithoutAnEndIsReleased() {
    try (Run run = memory.openRun(session, RunOptions.DEFAULT)) {
      MemorydException.RunNotClaimable refused =
          assertThrows(
              MemorydException.RunNotClaimable.class, () -> memory.claim(session, run.id(), RunOptions.DEFAULT));
      assertTrue(refused.retryAfter().orElseThrow().compareTo(RunOptions.DEFAULT.lease()) <= 0);
      MemorydException without =
          assertThrows(MemorydException.RunNotFound.class, () -> memory.getRun(session, "none"));
      assertTrue(without.retryAfter().isEmpty());
      assertThrows(IllegalArgumentException.class, () -> run.finish(RunStatus.RUNNING, ""));
      assertThrows(IllegalArgumentException.class, () -> run.pause(RunStatus.FAILED, ""));
    }
    assertEquals(RunStatus.INTERRUPTED, only().status());
    try (Run run = memory.claimNext(agent, RunOptions.DEFAULT).orElseThrow()) {
      run.finish();
      assertThrows(IllegalStateException.class, () -> run.step(Payload.EMPTY));
    }
    assertTrue(memory.claimNext(agent, RunOptions.DEFAULT).isEmpty());
  }

  @Test
  void aClosedClientReleasesItsRuns() {
    try (MemoryClient other = TestServer.shared().client()) {
      other.openRun(other.session(agent, session.id()), RunOptions.DEFAULT);
    }
    assertEquals(RunStatus.INTERRUPTED, only().status());
  }

  /** As on the loss of a lease: another worker does the work from here on, so that this one must stop and must be told. */
  @Test
  void aClientThatIsClosedInterruptsTheBodyWhoseRunItLeavesToOthers() throws Exception {
    MemoryClient other = TestServer.shared().client();
    CountDownLatch begun = new CountDownLatch(1);
    Thread closer = new Thread(() -> {
      await(begun);
      other.close();
    });
    closer.start();
    long since = System.nanoTime();
    MemorydException.RunLeaseLost error =
        assertThrows(
            MemorydException.RunLeaseLost.class,
            () ->
                other.run(
                    other.session(agent, session.id()),
                    RunOptions.DEFAULT,
                    run -> {
                      begun.countDown();
                      Thread.sleep(30_000);
                    }));
    assertTrue(System.nanoTime() - since < Duration.ofSeconds(20).toNanos());
    assertTrue(error.getMessage().contains("its client was closed"), error.getMessage());
    assertTrue(error.getMessage().contains("it is not recorded as completed"), error.getMessage());
    assertTrue(error.getSuppressed()[0] instanceof InterruptedException);
    assertFalse(Thread.interrupted());
    closer.join();
    assertEquals(RunStatus.INTERRUPTED, only().status());
    memory.claimNext(agent, RunOptions.DEFAULT).orElseThrow().work(run -> assertTrue(run.isHeld()));
    assertEquals(RunStatus.COMPLETED, only().status());
  }

  private static void await(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  @Test
  void aBodyThatClosesItsClientIsNotCompleted() {
    MemoryClient other = TestServer.shared().client();
    MemorydException.RunLeaseLost error =
        assertThrows(
            MemorydException.RunLeaseLost.class,
            () -> other.run(other.session(agent, session.id()), RunOptions.DEFAULT, run -> other.close()));
    assertTrue(error.getMessage().contains("its client was closed"), error.getMessage());
    assertFalse(Thread.interrupted());
    assertEquals(RunStatus.INTERRUPTED, only().status());
  }

  @Test
  void aHeldRunSaysThatItsClientWasClosed() {
    MemoryClient other = TestServer.shared().client();
    Run run = other.openRun(other.session(agent, session.id()), RunOptions.DEFAULT);
    other.close();
    assertFalse(run.isHeld());
    assertThrows(MemorydException.RunLeaseLost.class, () -> run.step(Payload.EMPTY));
    assertThrows(MemorydException.RunLeaseLost.class, run::close);
  }

  @Test
  void queuedRunsAreClaimedOneAfterAnother() {
    for (String id : List.of("a", "b", "c")) {
      memory.enqueueRun(session, RunOptions.DEFAULT.withId(id));
    }
    assertThrows(
        MemorydException.RunExists.class,
        () -> memory.openRun(session, RunOptions.DEFAULT.withId("a")));
    List<String> claimed = new ArrayList<>();
    AtomicReference<RunClaims> open = new AtomicReference<>();
    try (RunClaims claims = memory.claims(agent, RunOptions.DEFAULT.withPoll(Duration.ofMillis(100)))) {
      open.set(claims);
      for (Run run : claims) {
        claimed.add(run.id());
        run.work(held -> held.step(Payload.text(held.id())));
        if (claimed.size() == 3) {
          claims.close();
        }
      }
    }
    assertEquals(List.of("a", "b", "c"), claimed);
    assertEquals(3, memory.runs(agent, RunStatus.COMPLETED).stream().count());
  }

  @Test
  void whatIsNotWorkedAtInItsTurnIsReleased() {
    memory.enqueueRun(session, RunOptions.DEFAULT.withId("a"));
    try (RunClaims claims = memory.claims(agent, RunOptions.DEFAULT)) {
      assertEquals("a", claims.next().id());
    }
    assertEquals(RunStatus.INTERRUPTED, only().status());
  }
}
