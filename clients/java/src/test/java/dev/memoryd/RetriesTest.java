package dev.memoryd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.Any;
import com.google.rpc.Code;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import com.google.rpc.Status;
import dev.memoryd.v1.AppendMessagesRequest;
import dev.memoryd.v1.AppendMessagesResponse;
import dev.memoryd.v1.HistoryServiceGrpc;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.InsecureServerCredentials;
import io.grpc.MethodDescriptor;
import io.grpc.Server;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.channels.ClosedChannelException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** How calls are tried again: the policy of {@code clients/README.md}, on servers that are killed and started again. */
@Timeout(120)
class RetriesTest {
  private static final int APPENDS = 1_000;

  /** Milliseconds, in all, between the first tries. */
  private static final long A_WHILE = 1_500;

  private static final StatusFailure GONE = new StatusFailure(null, 0);

  @TempDir Path folder;

  @ParameterizedTest
  @ValueSource(ints = {1, 16})
  void appendsOutliveAServerThatIsKilled(int callers) throws Exception {
    TestServer first = lasting("127.0.0.1:0");
    CompletableFuture<TestServer> second = new CompletableFuture<>();
    ExecutorService pool = Executors.newFixedThreadPool(callers + 1);
    try (MemoryClient memory = first.client()) {
      Session session = memory.session("java", "kept");
      List<Future<?>> work = new ArrayList<>();
      for (int caller = 0; caller < callers; caller++) {
        int from = caller;
        work.add(
            pool.submit(
                () -> {
                  for (int number = from; number < APPENDS; number += callers) {
                    if (number == APPENDS / 3) {
                      second.completeAsync(() -> killedAndStarted(first), pool);
                    }
                    session.append(Message.user(Integer.toString(number)));
                  }
                }));
      }
      for (Future<?> each : work) {
        each.get();
      }
      List<Integer> stored = session.messages().stream().map(message -> Integer.valueOf(message.text())).toList();
      assertEquals(APPENDS, stored.size());
      for (int caller = 0; caller < callers; caller++) {
        int from = caller;
        assertEquals(
            IntStream.iterate(from, number -> number < APPENDS, number -> number + callers).boxed().toList(),
            stored.stream().filter(number -> number % callers == from).toList());
      }
    } finally {
      pool.shutdown();
      pool.awaitTermination(1, TimeUnit.MINUTES);
      first.close();
      second.thenAccept(TestServer::close);
    }
  }

  @Test
  void aLargeWindowOutlivesAServerThatIsKilled() throws Exception {
    TestServer first = lasting("127.0.0.1:0");
    try (MemoryClient memory = first.client()) {
      Session session = memory.session("java", "large");
      for (int number = 0; number < 4; number++) {
        session.append(Message.user("x".repeat(1 << 20)));
      }
      first.kill();
      CompletableFuture<Window> window = CompletableFuture.supplyAsync(session::window);
      try (TestServer second = lasting(first.address())) {
        assertEquals(first.address(), second.address());
        assertEquals(4, window.get().messages().size());
      }
    }
  }

  @Test
  void aServerThatNeverAnsweredIsToldSoon() throws IOException {
    int port;
    try (ServerSocket socket = new ServerSocket(0)) {
      port = socket.getLocalPort();
    }
    try (MemoryClient memory = MemoryClient.connect("127.0.0.1:" + port)) {
      Session session = memory.session("a");
      long took = failed(MemorydException.ServerUnavailable.class, session::info);
      assertTrue(A_WHILE - 100 < took && took < 2 * A_WHILE, took + " ms");
      Session hurried = session.withTimeout(Duration.ofMillis(500));
      assertTrue(failed(MemorydException.ServerUnavailable.class, hurried::info) < 1_000);
      MemorydException error = assertThrows(MemorydException.class, hurried::info);
      assertTrue(error.getMessage().contains("127.0.0.1:" + port), error.getMessage());
      assertEquals("", error.reason());
    }
  }

  /** As gRPC tells it where it does not know any more why its channel was closed: a matter of microseconds. */
  @Test
  void aChannelThatWasClosedUnderACallIsAnUnavailableServer() {
    Connection connection = new Connection("127.0.0.1:1", true, InsecureChannelCredentials.create(), "", "");
    io.grpc.Status closed =
        io.grpc.Status.UNKNOWN.withDescription("channel closed").withCause(new ClosedChannelException());
    MethodDescriptor<?, ?> method = HistoryServiceGrpc.getGetSessionMethod();
    MemorydException error = Errors.typed(closed.asRuntimeException(), connection, method, Duration.ofSeconds(1));
    connection.close();
    assertEquals(MemorydException.ServerUnavailable.class, error.getClass());
    assertEquals(io.grpc.Status.Code.UNAVAILABLE, error.code());
  }

  @Test
  void aServerThatIsGoneForGoodIsToldInTime() throws Exception {
    TestServer server = lasting("127.0.0.1:0");
    try (MemoryClient memory = server.client()) {
      Session session = memory.session("java", "gone");
      session.append(Message.user("a"));
      server.kill();
      long took = failed(MemorydException.ServerUnavailable.class, session::info);
      long restart = Tries.RESTART.toMillis();
      assertTrue(restart - 2_000 < took && took < restart + 1_000, took + " ms");
      Session hurried = session.withTimeout(Duration.ofMillis(2_500));
      assertTrue(
          failed(MemorydException.ServerUnavailable.class, () -> hurried.append(Message.user("b"))) < 2_500);
      assertTrue(failed(MemorydException.ServerUnavailable.class, () -> memory.clearAgent("java")) < 1_000);
    }
  }

  @Test
  void anAppendIsTriedAgainAsTheSameRequest() throws IOException {
    try (Scripted scripted = new Scripted()) {
      scripted.script(GONE, new StatusFailure("SERVER_DRAINING", 0), null);
      scripted.append(scripted.session());
      assertEquals(3, scripted.asked.size());
      assertEquals(1, scripted.asked.stream().distinct().count());
    }
  }

  @Test
  void aRefusalIsAnAnswer() throws IOException {
    try (Scripted scripted = new Scripted()) {
      scripted.script(GONE);
      Session session = scripted.session();
      failed(MemorydException.ServerUnavailable.class, () -> scripted.append(session));
      assertEquals(Tries.FIRST_TRIES, scripted.asked.size());
      scripted.script(new StatusFailure("SUMMARIZER_FAILED", 0)); // A reason that does not pass.
      failed(MemorydException.SummarizerFailed.class, () -> scripted.append(session));
      assertEquals(1, scripted.asked.size());
      scripted.script(GONE);
      failed(
          MemorydException.ServerUnavailable.class,
          () -> scripted.append(session.withTimeout(Duration.ofSeconds(4))));
      assertTrue(scripted.asked.size() > Tries.FIRST_TRIES);
    }
  }

  @Test
  void theServerSaysHowLongToWait() throws IOException {
    try (Scripted scripted = new Scripted()) {
      Session session = scripted.session();
      scripted.script(new StatusFailure("SERVER_DRAINING", 1), null);
      long begun = System.nanoTime();
      scripted.append(session);
      assertTrue(System.nanoTime() - begun >= Duration.ofSeconds(1).toNanos());
      // Where that is longer than there is time for, it is not asked again.
      scripted.script(new StatusFailure("STORE_UNAVAILABLE", 60));
      assertTrue(failed(MemorydException.StoreUnavailable.class, () -> scripted.append(session)) < 900);
      scripted.script(new StatusFailure("STORE_UNAVAILABLE", 1));
      Session hurried = session.withTimeout(Duration.ofMillis(900));
      assertTrue(failed(MemorydException.StoreUnavailable.class, () -> scripted.append(hurried)) < 900);
      assertEquals(1, scripted.asked.size());
    }
  }

  @Test
  void closingTheClientOrAnInterruptEndsTheTries() throws Exception {
    for (boolean closes : new boolean[] {true, false}) {
      try (Scripted scripted = new Scripted()) {
        scripted.script(new StatusFailure("SERVER_DRAINING", 8));
        Session session = scripted.session();
        CompletableFuture<Throwable> ended = new CompletableFuture<>();
        Thread caller =
            new Thread(
                () -> {
                  try {
                    scripted.append(session);
                    ended.complete(null);
                  } catch (RuntimeException failed) {
                    ended.complete(failed);
                  }
                });
        caller.start();
        scripted.isAsked.await();
        long begun = System.nanoTime();
        if (closes) {
          scripted.memory.close();
        } else {
          caller.interrupt();
        }
        Class<?> kind = closes ? IllegalStateException.class : MemorydException.Cancelled.class;
        assertEquals(kind, ended.get().getClass());
        assertTrue(System.nanoTime() - begun < Duration.ofSeconds(4).toNanos());
      }
    }
  }

  /** A server that has its store again when it is started again. */
  private TestServer lasting(String listen) {
    // The vocabulary of a tokenizer takes as long to read as all else of a start.
    return TestServer.start(
        listen, "--store", "main=sqlite:///" + folder.resolve("kept.db"), "--tokenizer", "estimate");
  }

  private TestServer killedAndStarted(TestServer server) {
    try {
      server.kill();
    } catch (InterruptedException interrupted) {
      throw new IllegalStateException(interrupted);
    }
    return lasting(server.address());
  }

  /** The milliseconds that a call takes until it fails. */
  private static long failed(Class<? extends MemorydException> kind, Runnable call) {
    long begun = System.nanoTime();
    MemorydException error = assertThrows(MemorydException.class, call::run);
    assertEquals(kind, error.getClass(), error.getMessage());
    return Duration.ofNanos(System.nanoTime() - begun).toMillis();
  }

  /** UNAVAILABLE, as a server of memoryd tells it where it has a reason. */
  private record StatusFailure(String reason, int retryAfter) {
    Throwable toThrowable() {
      Status.Builder status = Status.newBuilder().setCode(Code.UNAVAILABLE_VALUE).setMessage("it failed");
      if (reason != null) {
        status
            .addDetails(Any.pack(ErrorInfo.newBuilder().setDomain("memoryd").setReason(reason).build()))
            .addDetails(
                Any.pack(
                    RetryInfo.newBuilder()
                        .setRetryDelay(com.google.protobuf.Duration.newBuilder().setSeconds(retryAfter))
                        .build()));
      }
      return StatusProto.toStatusRuntimeException(status.build());
    }
  }

  /** A server that answers appends as a script says, and its client. The last entry of the script stays. */
  private static final class Scripted extends HistoryServiceGrpc.HistoryServiceImplBase implements AutoCloseable {
    final List<AppendMessagesRequest> asked = new CopyOnWriteArrayList<>();
    final CountDownLatch isAsked = new CountDownLatch(1);
    final MemoryClient memory;
    private final Queue<Optional<StatusFailure>> script = new ArrayDeque<>();
    private final Server server;

    Scripted() throws IOException {
      server =
          Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create()).addService(this).build().start();
      memory = MemoryClient.connect("127.0.0.1:" + server.getPort());
    }

    /** Null is an answer. */
    synchronized void script(StatusFailure... failures) {
      asked.clear();
      script.clear();
      for (StatusFailure failure : failures) {
        script.add(Optional.ofNullable(failure));
      }
    }

    Session session() {
      return memory.session("a");
    }

    void append(Session session) {
      session.append(Message.user("a"));
    }

    @Override
    public synchronized void appendMessages(
        AppendMessagesRequest request, StreamObserver<AppendMessagesResponse> answer) {
      asked.add(request);
      StatusFailure failure = (script.size() > 1 ? script.remove() : script.element()).orElse(null);
      if (failure == null) {
        answer.onNext(AppendMessagesResponse.getDefaultInstance());
        answer.onCompleted();
      } else {
        answer.onError(failure.toThrowable());
      }
      isAsked.countDown();
    }

    @Override
    public void close() {
      memory.close();
      server.shutdownNow();
    }
  }
}
